"""Tensor copies element by element: boxes of one to five dimensions, edges, element strides, fills, packed types, swizzles, reductions."""

import numpy as np
import pytest
from core_support import kernel, kinds, launch, only

from zoo import emulator
from zoo.emulator.tma import swizzled

RNG = np.random.default_rng(5)

COPY = """
    mov.u32 %r1, bar;
    mov.u32 %r2, tile;
    setp.eq.u32 %p1, %r0, 0;
    @!%p1 bra WAIT;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {bytes};
    mov.b64 %rd10, k_map;
    cvta.param.u64 %rd10, %rd10;
    cp.async.bulk.tensor.{mode}.shared::cluster.global{tile}.mbarrier::complete_tx::bytes [%r2], [%rd10, {{{coordinates}}}], [%r1];
WAIT:
    bar.sync 0;
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    @!%p2 bra W;
    mov.u32 %r3, %r0;
L:  add.u32 %r4, %r2, %r3;
    ld.shared.u8 %h1, [%r4];
    cvt.u64.u32 %rd5, %r3;
    add.s64 %rd6, %rd0, %rd5;
    st.global.u8 [%rd6], %h1;
    add.u32 %r3, %r3, 32;
    setp.lt.u32 %p3, %r3, {size};
    @%p3 bra L;
"""
SHARED = ".shared .align 8 .u64 bar; .shared .align 1024 .b8 tile[{size}];"


def with_map(text):
    return text.replace(".visible .entry k(", ".visible .entry k(\n    .param .align 64 .b8 k_map[128],")


def load(gpu, record, coordinates, size, tile=".tile", count=None, **options):
    """The bytes of the image that a load leaves in shared memory, and the report."""
    out = gpu.alloc(size)
    registers = "".join(f"mov.s32 %r{40 + i}, {c};" for i, c in enumerate(coordinates))
    body = registers + COPY.format(
        bytes=record.box_bytes if count is None else count, mode=f"{record.rank}d", tile=tile, size=size,
        coordinates=", ".join(f"%r{40 + i}" for i in range(len(coordinates))),
    )  # fmt: skip
    text = with_map(kernel(body, parameters=1, shared=SHARED.format(size=size), target="sm_100a"))
    report = launch(text, device=gpu, params=[record, out], **options)
    return gpu.read(out, size, np.uint8), report


def device(**options):
    return emulator.Device(arch="sm_100a", **{"scheduling": "last", **options})


def box_by_hand(array, coordinates, box, steps, fill):
    """array is indexed [dim n-1, ..., dim 0]; so is the result."""
    taken = [-(-extent // step) for extent, step in zip(box, steps, strict=True)]
    result = np.full(taken[::-1], fill, array.dtype)
    for index in np.ndindex(*taken[::-1]):
        place = [c + i * s for c, i, s in zip(coordinates[::-1], index, steps[::-1], strict=True)]
        if all(0 <= p < extent for p, extent in zip(place, array.shape, strict=True)):
            result[index] = array[tuple(place)]
    return result


CASES = [
    ((64,), (32,), (16,), (1,)),
    ((64,), (32,), (-4,), (1,)),
    ((20, 7), (8, 4), (16, 5), (1, 1)),
    ((20, 7), (8, 4), (-4, -2), (1, 1)),
    ((24, 9), (8, 4), (4, 1), (1, 2)),
    ((24, 9), (8, 3), (20, -3), (1, 4)),
    ((12, 5, 6), (8, 2, 3), (8, 4, -1), (1, 1, 1)),
    ((12, 3, 4, 3), (4, 2, 2, 2), (8, 2, 3, 2), (1, 1, 1, 1)),
    ((10, 3, 4, 3, 3), (4, 2, 2, 2, 2), (8, -1, 3, 0, 2), (1, 1, 1, 1, 1)),
    ((8, 4), (4, 2), (100, 0), (1, 1)),
]


@pytest.mark.parametrize(("dims", "box", "coordinates", "steps"), CASES)
def test_boxes_with_edges_strides_and_fill(dims, box, coordinates, steps):
    array = RNG.integers(1, 2**32, dims[::-1], dtype=np.uint32)
    padded = np.zeros((*dims[:0:-1], -(-dims[0] // 4) * 4 + 4), np.uint32)
    padded[..., : dims[0]] = array
    gpu = device()
    address = gpu.alloc(padded)
    strides, pitch = [], padded.shape[-1] * 4
    for extent in dims[1:]:
        strides.append(pitch)
        pitch *= extent
    record = gpu.tensor_map(address, "u32", dims, strides, box, element_strides=steps)
    image, report = load(gpu, record, coordinates, record.box_bytes)
    assert report.ok, report
    expected = box_by_hand(array, coordinates, box, steps, 0)
    np.testing.assert_array_equal(image.view(np.uint32).reshape(expected.shape), expected)
    assert report.bytes["tensor copies loaded"] == record.box_bytes


@pytest.mark.parametrize(("dtype", "stored"), [("f16", "u2"), ("bf16", "u2"), ("f32", "u4")])
def test_nan_fill_has_the_bits_that_fma_oob_tests(dtype, stored):
    width = 32 // np.dtype(stored).itemsize
    gpu = device()
    record = gpu.tensor_map(gpu.alloc(np.ones((4, width), stored)), dtype, (width, 4), (32,), (width, 2), fill="nan")
    image, report = load(gpu, record, (width // 2, 3), 64)
    assert report.ok, report
    nan = {"u2": 0x7FF7, "u4": 0x7FF77FF7}[stored]
    assert image.view(stored).reshape(2, width).tolist() == [[1] * (width // 2) + [nan] * (width // 2), [nan] * width]


@pytest.mark.parametrize(
    ("name", "span", "mix"),
    [("none", 128, lambda line: 0), ("32B", 32, lambda line: line % 2), ("64B", 64, lambda line: line % 4), ("128B", 128, lambda line: line % 8),
     ("128B_atom_32B", 128, lambda line: line % 4 * 2), ("128B_atom_64B", 128, lambda line: line % 2 * 4)],
)  # fmt: skip
def test_swizzled_loads(name, span, mix):
    """16-byte column c of the 128-byte line l lies in column c xor mix(l)."""
    rows = 32
    data = RNG.integers(0, 256, (rows, span), dtype=np.uint8)
    gpu = device()
    record = gpu.tensor_map(gpu.alloc(data), "u8", (span, rows), (span,), (span, rows), name)
    image, report = load(gpu, record, (0, 0), rows * span)
    assert report.ok, report
    columns, flat = image.reshape(-1, 16), data.reshape(-1, 16)
    for place in range(len(flat)):
        line, column = divmod(place, 8)
        np.testing.assert_array_equal(columns[line * 8 + (column ^ mix(line))], flat[place])


def test_every_swizzle_is_a_permutation_of_its_tile():
    for name in ("none", "32B", "64B", "128B", "128B_atom_32B", "128B_atom_64B", "128B_atom_32B_flip_8B"):
        assert sorted(swizzled(name, 1024, 4096)) == list(range(128, 640))


def test_flipped_halves_differ_from_the_plain_atom_by_one_exchange():
    plain, flipped = swizzled("128B_atom_32B", 1024, 2048), swizzled("128B_atom_32B_flip_8B", 1024, 2048)
    line = np.arange(256) // 16
    np.testing.assert_array_equal(flipped, np.where(line % 2 == 1, plain ^ 1, plain))


@pytest.mark.parametrize(("dtype", "pitch"), [("u4_align8", 64), ("u4_align16", 128)])
def test_packed_four_bit_rows(dtype, pitch):
    data = RNG.integers(0, 256, (8, 64), dtype=np.uint8)  # 128 elements a row
    gpu = device()
    record = gpu.tensor_map(gpu.alloc(data), dtype, (128, 8), (64,), (128, 8))
    assert record.box_bytes == 512  # the barrier counts packed bytes in both forms
    image, report = load(gpu, record, (0, 0), 8 * pitch)
    if dtype == "u4_align8":
        assert report.ok
        np.testing.assert_array_equal(image, data.reshape(-1))
    else:
        assert kinds(report) == {"uninitialised-shared"}  # the kernel read the padding
        units = image.reshape(-1, 16)
        np.testing.assert_array_equal(units[:, :8].reshape(-1), data.reshape(-1))


def test_gather_takes_its_four_rows():
    data = RNG.integers(0, 2**32, (16, 32), dtype=np.uint32)
    gpu = device()
    record = gpu.tensor_map(gpu.alloc(data), "u32", (32, 16), (128,), (8, 1))
    image, report = load(gpu, record, (16, 3, 15, 0, 99), 128, tile=".tile::gather4", count=128)
    assert report.ok, report
    expected = np.stack([data[3, 16:24], data[15, 16:24], data[0, 16:24], np.zeros(8, np.uint32)])
    np.testing.assert_array_equal(image.view(np.uint32).reshape(4, 8), expected)


STORE = """
    mov.u32 %r2, tile;
    mov.u32 %r3, %r0;
L:  add.u32 %r4, %r2, %r3;
    st.shared.u8 [%r4], %r3;
    add.u32 %r3, %r3, 32;
    setp.lt.u32 %p3, %r3, {size};
    @%p3 bra L;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    setp.eq.u32 %p1, %r0, 0;
    @!%p1 bra END;
    mov.b64 %rd10, k_map;
    cvta.param.u64 %rd10, %rd10;
    {operation}.2d.global.shared::cta{form}.bulk_group [%rd10, {{{x}, {y}}}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:
"""


def store(gpu, record, x, y, operation="cp.async.bulk.tensor", form=".tile"):
    size = record.box_bytes
    text = kernel(STORE.format(size=size, operation=operation, form=form, x=x, y=y), parameters=1, shared=SHARED.format(size=size))
    return launch(with_map(text), device=gpu, params=[record, 0])


@pytest.mark.parametrize(("width", "written", "found"), [(32, 32, set()), (40, 48, {"out-of-bounds"})], ids=["whole", "partial"])
def test_store_drops_what_lies_outside(width, written, found):
    """Rows to the element; within a row whole 16 bytes are written, which is a finding where they are not all the tensor's."""
    gpu = emulator.Device(scheduling="last")
    before = np.full((6, 64), 7, np.uint8)
    address = gpu.alloc(before)
    record = gpu.tensor_map(address, "u8", (width, 6), (64,), (32, 4))
    report = store(gpu, record, 16, 3)
    assert kinds(report) == found
    expected = before.copy()
    expected[3:6, 16:written] = np.arange(128).astype(np.uint8).reshape(4, 32)[:3, : written - 16]
    np.testing.assert_array_equal(gpu.read(address, (6, 64), np.uint8), expected)


def test_scatter_puts_its_four_rows():
    gpu = emulator.Device(arch="sm_100a", scheduling="last")
    address = gpu.alloc(np.zeros((8, 64), np.uint8))
    record = gpu.tensor_map(address, "u8", (64, 8), (64,), (32, 1))
    body = STORE.format(size=128, operation="cp.async.bulk.tensor", form=".tile::scatter4", x=16, y="7, 0, 9, 3")
    report = launch(with_map(kernel(body, parameters=1, shared=SHARED.format(size=128), target="sm_100a")), device=gpu, params=[record, 0])
    assert report.ok, report
    expected = np.zeros((8, 64), np.uint8)
    expected[[7, 0, 3], 16:48] = np.arange(128, dtype=np.uint8).reshape(4, 32)[[0, 1, 3]]
    np.testing.assert_array_equal(gpu.read(address, (8, 64), np.uint8), expected)


@pytest.mark.parametrize(("name", "function"), [("min", np.minimum), ("max", np.maximum), ("and", np.bitwise_and), ("xor", np.bitwise_xor)])
def test_reductions_of_integers(name, function):
    gpu = emulator.Device(scheduling="last")
    start = RNG.integers(0, 2**32, (4, 8), dtype=np.uint32)
    address = gpu.alloc(start)
    record = gpu.tensor_map(address, "u32", (8, 4), (32,), (8, 4))
    assert store(gpu, record, 0, 0, "cp.reduce.async.bulk.tensor", f".{name}.tile").ok
    given = np.arange(128).astype(np.uint8).view(np.uint32).reshape(4, 8)
    np.testing.assert_array_equal(gpu.read(address, (4, 8), np.uint32), function(start, given))


def test_reduction_adds_elementwise():
    gpu = emulator.Device(scheduling="last")
    start = RNG.integers(0, 2**31, (4, 8), dtype=np.uint32)
    address = gpu.alloc(start)
    record = gpu.tensor_map(address, "u32", (8, 4), (32,), (8, 4))
    report = store(gpu, record, 0, 0, "cp.reduce.async.bulk.tensor", ".add.tile")
    assert report.ok, report
    added = np.arange(128).astype(np.uint8).view(np.uint32).reshape(4, 8)
    np.testing.assert_array_equal(gpu.read(address, (4, 8), np.uint32), start + added)


def test_rules_of_tensor_copies():
    gpu = emulator.Device(scheduling="issue")
    record = gpu.tensor_map(gpu.alloc(np.zeros((16, 64), np.uint8)), "u8", (64, 16), (64,), (32, 4))
    assert "negative coordinates" in only(store(gpu, record, -16, 0), "tensor-map").message
    beyond = gpu.tensor_map(record.address, "u8", (64, 17), (64,), (32, 4))
    assert kinds(store(gpu, beyond, 0, 13)) == {"out-of-bounds"}


def test_bytes_that_are_no_tensor_map():
    gpu = device()
    text = kernel(
        "mov.s32 %r40, 0;" + COPY.format(bytes=128, mode="2d", tile="", size=128, coordinates="%r40, %r40"),
        parameters=1,
        shared=SHARED.format(size=128),
        target="sm_100a",
    )
    report = launch(with_map(text), device=gpu, params=[bytes(128), gpu.alloc(128)])
    assert "tensor-map" in kinds(report) and "deadlock" in kinds(report)


RAGGED = """
    mov.u32 %r2, tile;
    shl.b32 %r3, %r0, 4;
    add.u32 %r3, %r3, %r2;
    setp.lt.u32 %p1, %r0, {lanes};
    @%p1 st.shared.v4.u32 [%r3], {{%r0, %r0, %r0, %r0}};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    mov.b64 %rd10, k_map;
    cvta.param.u64 %rd10, %rd10;
    mov.u32 %r5, 0;
    setp.eq.u32 %p2, %r0, 0;
    @%p2 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd10, {{%r5, %r5}}], [%r2];
    @%p2 cp.async.bulk.commit_group;
    @%p2 cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_rows_that_a_store_drops_need_not_be_there(swizzle):
    """8 rows of 64 bytes in the box, 6 in the tensor: 24 lanes write the rows that reach it."""
    for written, expected in ((24, set()), (23, {"uninitialised-shared"})):
        gpu = device()
        y = gpu.alloc(6 * 64)
        record = gpu.tensor_map(y, "u8", (64, 6), (64,), (64, 8), swizzle)
        text = with_map(kernel(RAGGED.format(lanes=written), parameters=1, shared=SHARED.format(size=512), target="sm_100a"))
        report = launch(text, device=gpu, params=[record, y])
        # 64B swizzles inside 512 bytes: which lanes' bytes are dropped differs, the dropped rows do not
        assert kinds(report) == expected


# ---- tensor maps that the kernel edits -----------------------------------------------------------------------------------
EDIT = """
    mov.u32 %r1, bar;
    mov.u32 %r2, tile;
    mov.u32 %r7, map;
    mov.b64 %rd10, k_map;
    cvta.param.u64 %rd10, %rd10;
    setp.lt.u32 %p6, %r0, 8;
    mul.wide.u32 %rd11, %r0, 16;
    add.s64 %rd11, %rd11, %rd10;
    shl.b32 %r8, %r0, 4;
    add.u32 %r8, %r8, %r7;
    @%p6 ld.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd11];
    @%p6 st.shared.v4.u32 [%r8], {{%r20, %r21, %r22, %r23}};
    bar.sync 0;
    setp.eq.u32 %p1, %r0, 0;
    @!%p1 bra EDITED;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r7], %rd1;
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r7], 1, 3;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r7], 0, 128;
    tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r7], 0;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
EDITED:
    bar.sync 0;
    {release}
    {order}
    setp.eq.u32 %p1, %r0, 32;
    @!%p1 bra WAIT;
    {acquire}
    mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
    mov.u32 %r5, 0;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd2, {{%r5, %r5}}], [%r1];
WAIT:
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    @!%p2 bra W;
    shl.b32 %r3, %r0, 2;
    add.u32 %r4, %r2, %r3;
    ld.shared.u32 %r5, [%r4];
    cvt.u64.u32 %rd5, %r3;
    add.s64 %rd6, %rd0, %rd5;
    st.global.u32 [%rd6], %r5;
"""
RELEASE = "setp.lt.u32 %p7, %r0, 32; @!%p7 bra R; tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%r7], 128; R:"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;"


def edit_a_map(release=RELEASE, order="bar.sync 0;", acquire=ACQUIRE, scheduling="last"):
    gpu = device(scheduling=scheduling)
    data = np.arange(4 * 32, dtype=np.uint32).reshape(4, 32)
    x, place, y = gpu.alloc(data), gpu.alloc(128), gpu.alloc(256)
    record = gpu.tensor_map(gpu.alloc(64), "u32", (16, 1), (64,), (16, 4), "64B")
    shared = SHARED.format(size=256) + ".shared .align 128 .b8 map[128];"
    text = with_map(kernel(EDIT.format(release=release, order=order, acquire=acquire), parameters=3, shared=shared, target="sm_100a"))
    report = launch(text, device=gpu, params=[record, y, x, place], block=64)
    return gpu.read(y, (4, 16), np.uint32), data, report


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
def test_a_map_that_the_kernel_edits_copies_from_its_new_place(scheduling):
    found, data, report = edit_a_map(scheduling=scheduling)
    assert report.ok, report
    np.testing.assert_array_equal(found, np.concatenate([data[:3, :16], np.zeros((1, 16), np.uint32)]))


def test_an_edited_map_used_without_its_fences():
    assert "acquire" in only(edit_a_map(acquire="")[2], "missing-proxy-fence").message
    # the acquire comes before anything orders the two warps
    assert "missing-proxy-fence" in kinds(edit_a_map(order="setp.ge.u32 %p8, %r0, 32; @%p8 " + ACQUIRE + "bar.sync 0;", acquire="")[2])
    plain = "setp.lt.u32 %p7, %r0, 8; @!%p7 bra R; ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r8]; mul.wide.u32 %rd12, %r0, 16; add.s64 %rd12, %rd12, %rd2; st.global.v4.u32 [%rd12], {%r20, %r21, %r22, %r23}; R: bar.sync 0; setp.eq.u32 %p7, %r0, 0;"
    edit = " @%p7 tensormap.replace.tile.fill_mode.global.b1024.b32 [%rd2], 0;"
    fence = " @%p7 fence.proxy.tensormap::generic.release.gpu;"
    assert edit_a_map(release=plain + edit + fence)[2].ok
    assert "release" in only(edit_a_map(release=plain + edit)[2], "missing-proxy-fence").message


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("tile.rank.shared::cta.b1024.b32 [%r7], 5", "there are 1 to 5"), ("tile.box_dim.shared::cta.b1024.b32 [%r7], 5, 8", "box_dim 5: a map has 5"),
        ("tile.interleave_layout.shared::cta.b1024.b32 [%r7], 1", "not covered"), ("tile.swizzle_atomicity.shared::cta.b1024.b32 [%r7], 1", "does not exist"),
    ],
)  # fmt: skip
def test_an_edit_that_makes_no_map_is_reported(field, words):
    report = edit_a_map(order=f"@%p1 tensormap.replace.{field}; bar.sync 0;")[2]
    assert any(words in finding.message for finding in report.findings if finding.kind == "tensor-map"), report


def test_every_field_is_replaced():
    from zoo.contract.tensor_map import DTYPES, TensorMap
    from zoo.emulator.tensor_map_edits import ELEMENT_TYPES, replaced

    record = TensorMap("u8", 4096, (64, 8), (64,), (32, 4))
    raw = record.to_bytes()

    def edited(*edits):
        result = raw
        for field, ordinal, value in edits:
            result = replaced(result, field, ordinal, value)
        return TensorMap.from_bytes(result)

    assert set(ELEMENT_TYPES) == set(DTYPES)
    assert [edited(("elemtype", None, number)).dtype for number in range(16)] == list(ELEMENT_TYPES)
    assert edited(("rank", None, 2)).dims == (64, 8, 1) and edited(("rank", None, 0)).strides == ()
    assert edited(("box_dim", 1, 7)).box == (32, 7) and edited(("element_stride", 1, 2)).element_strides == (1, 2)
    assert edited(("global_address", None, 8192)).address == 8192 and edited(("global_stride", 0, 96)).strides == (96,)
    assert edited(("swizzle_mode", None, 3), ("swizzle_atomicity", None, 2)).swizzle == "128B_atom_32B_flip_8B"
    assert edited(("fill_mode", None, 1)).fill == "nan"


def test_dimensions_beyond_the_rank_may_be_edited_before_or_after_it_grows():
    """Programs that edit a map write all five dimensions of it, whatever rank it has."""
    from zoo.contract.tensor_map import TensorMap
    from zoo.emulator.tensor_map_edits import replaced

    record = TensorMap("u8", 4096, (64, 8), (64,), (32, 4))
    edits = [("global_dim", 2, 5), ("global_stride", 1, 512), ("box_dim", 2, 3), ("element_stride", 2, 2)]

    def edited(*edits):
        raw = record.to_bytes()
        for field, ordinal, value in edits:
            raw = replaced(raw, field, ordinal, value)
        return TensorMap.from_bytes(raw)

    grown = TensorMap("u8", 4096, (64, 8, 5), (64, 512), (32, 4, 3), (1, 1, 2))
    assert edited(*edits) == record
    assert edited(*edits, ("rank", None, 2)) == edited(("rank", None, 2), *edits) == grown
    assert edited(*edits, ("rank", None, 2), ("rank", None, 1)) == record
    # the kernel of two dimensions above does the same
    more = "@%p1 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r7], 2, 1;"
    assert edit_a_map(release=more + RELEASE)[2].ok


@pytest.mark.parametrize("hint", [False, True])
def test_a_byte_mask_comes_behind_the_cache_policy(hint):
    """Bit i of the mask: byte i of every 16 is copied."""
    body = "mov.u32 %r2, tile; add.u32 %r3, %r2, %r0; st.shared.u8 [%r3], %r0; fence.proxy.async.shared::cta; bar.sync 0;"
    body += "setp.eq.u32 %p1, %r0, 0; mov.b16 %h1, 0x8005; createpolicy.fractional.L2::evict_first.b64 %rd3, 1.0;"
    form, policy = (".L2::cache_hint", "%rd3, ") if hint else ("", "")
    body += f"@%p1 cp.async.bulk.global.shared::cta.bulk_group{form}.cp_mask [%rd0], [%r2], 32, {policy}%h1;"
    body += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    gpu = device()
    y = gpu.alloc(np.full(32, 99, np.uint8))
    report = launch(kernel(body, parameters=1, shared=SHARED.format(size=32), target="sm_100a"), device=gpu, params=[y])
    assert report.ok, report
    byte = np.arange(32)
    np.testing.assert_array_equal(gpu.read(y, 32, np.uint8), np.where(0x8005 >> byte % 16 & 1, byte, 99))

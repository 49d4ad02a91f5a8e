"""tcgen05 instruction by instruction: one small PTX kernel per case, operands laid out here by formulas that share nothing with the emulator."""

import numpy
import pytest

from zoo.emulator import Device, EmulatorError, Module, number_formats

U32 = numpy.uint32

HEADER = """
.version 9.1
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry kernel(.param .u64 image, .param .u32 image_words, .param .u64 cells_in, .param .u64 out, .param .u64 a_desc, .param .u64 b_desc, .param .u32 idesc)
{cluster}
{{
    .reg .pred p, q, one;
    .reg .b32 %r<{registers}>, t, lane, warp, w, n, tid, base, rank, column, offset;
    .reg .b64 g, s, da, db, o, c;
    .reg .b32 id;
    mov.u32 tid, %tid.x;
    and.b32 lane, tid, 31;
    shr.u32 warp, tid, 5;
    mov.u32 rank, %cluster_ctarank;
    // shared memory starts with 1024 bytes for the barrier (offset 0) and the tensor-memory address (offset 16), then the image
    mov.b32 base, memory;
    ld.param.u64 g, [image];
    ld.param.u32 n, [image_words];
    mul.wide.u32 s, rank, n;
    shl.b64 s, s, 2;
    add.u64 g, g, s;
    mov.u32 w, tid;
COPY:
    setp.ge.u32 p, w, n;
    @p bra COPIED;
    mul.wide.u32 s, w, 4;
    add.u64 s, s, g;
    ld.global.u32 t, [s];
    shl.b32 offset, w, 2;
    add.u32 offset, offset, base;
    st.shared.u32 [offset+1024], t;
    add.u32 w, w, 128;
    bra COPY;
COPIED:
    fence.proxy.async.shared::cta;
    setp.eq.u32 one, tid, 0;
    @one mbarrier.init.shared.b64 [base], 1;
    @one fence.mbarrier_init.release.cluster;
    {started}
    setp.eq.u32 q, warp, 0;
    @q tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [base+16], 512;
    {sync}
    ld.shared.u32 column, [base+16];
    ld.param.u64 da, [a_desc];
    ld.param.u64 db, [b_desc];
    ld.param.u32 id, [idesc];
    // own lanes: add 32 * warp to the lane field
    shl.b32 t, warp, 21;
    add.u32 column, column, t;
    ld.param.u64 c, [cells_in];
    ld.param.u64 o, [out];
    mul.wide.u32 s, rank, {out_bytes};
    add.u64 o, o, s;
    mul.wide.u32 s, rank, 262144;
    add.u64 c, c, s;
    mul.wide.u32 s, tid, 2048;
    add.u64 c, c, s;
"""

WAIT = """
    mov.u32 t, 0;
WAIT{label}:
    mbarrier.try_wait.parity.shared.b64 p, [base], {parity};
    @!p bra WAIT{label};
    tcgen05.fence::after_thread_sync;
"""

FOOTER = """
    tcgen05.fence::before_thread_sync;
    {sync}
    setp.eq.u32 q, warp, 0;
    and.b32 column, column, 0xFFFF;
    @q tcgen05.dealloc.cta_group::{group}.sync.aligned.b32 column, 512;
    ret;
}}
"""


def vector(first, count):
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def preload(columns):
    """Every thread writes its lane's first `columns` cells from cells_in."""
    lines = []
    for start in range(0, columns, 32):
        for i in range(32):
            lines.append(f"    ld.global.u32 %r{i}, [c+{4 * (start + i)}];")
        lines.append(f"    add.u32 t, column, {start};")
        lines.append(f"    tcgen05.st.sync.aligned.32x32b.x32.b32 [t], {vector(0, 32)};")
        lines.append("    tcgen05.wait::st.sync.aligned;")
    lines += ["    tcgen05.fence::before_thread_sync;", "    {sync}", "    tcgen05.fence::after_thread_sync;"]
    return "\n".join(lines)


def readback(columns):
    """Every thread stores its lane's first `columns` cells to out[tid][column]."""
    lines = [f"    mul.wide.u32 s, tid, {4 * columns};", "    add.u64 o, o, s;"]
    for start in range(0, columns, 32):
        lines.append(f"    add.u32 t, column, {start};")
        lines.append(f"    tcgen05.ld.sync.aligned.32x32b.x32.b32 {vector(0, 32)}, [t];")
        lines.append("    tcgen05.wait::ld.sync.aligned;")
        for i in range(32):
            lines.append(f"    st.global.u32 [o+{4 * (start + i)}], %r{i};")
    return "\n".join(lines)


def kernel(body, *, group=1, out_bytes=128 * 2048, registers=140, arch="sm_100a"):
    cluster = ".reqnctapercluster 2, 1, 1 .explicitcluster" if group == 2 else ""
    sync = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if group == 2 else "bar.sync 0;"
    started = sync if group == 2 else ""  # a pair allocates together: the peer must run
    fields = {"group": group, "cluster": cluster, "sync": sync, "started": started, "out_bytes": out_bytes, "registers": registers}
    return Module(HEADER.format(**fields).replace("sm_100a", arch) + body.replace("{sync}", sync) + FOOTER.format(**fields))


def launch(module, *, image=b"", cells=None, a=0, b=0, idesc=0, group=1, out_shape, arithmetic="exact", scheduling="last", arch="sm_100a"):
    """Runs the kernel; image: one byte string per CTA of the pair, or one for all; cells: (group, 128, 512) words. Returns out."""
    images = image if isinstance(image, list) else [image] * group
    size = -(-max(len(i) for i in images) // 16) * 16 or 16
    data = b"".join(i.ljust(size, b"\0") for i in images)
    gpu = Device(arch=arch, scheduling=scheduling, arithmetic=arithmetic)
    cells = numpy.zeros((group, 128, 512), U32) if cells is None else cells
    out = gpu.alloc(int(numpy.prod(out_shape)) * 4)
    report = gpu.launch(
        module, "kernel", group, 128, shared_bytes=1024 + size,
        params=[gpu.alloc(numpy.frombuffer(data, numpy.uint8)), size // 4, gpu.alloc(cells), out, a, b, idesc],
    )  # fmt: skip
    assert report.ok, str(report)
    return gpu.read(out, out_shape, U32)


IMAGE = 1024 + 1024  # shared offset of the image: the reserved first KiB, then the kernel's own 1024 bytes


# ---- ld and st

NUMBER = numpy.arange(128)[:, None] * 1000 + numpy.arange(512)[None, :]


def expected_cell(shape, register, lane, split=0):
    """(lane, column) by the fragments: a 16x256b register pair is a row of the mma accumulator fragment, and so on."""
    quad, position = divmod(lane, 4)
    if shape == "32x32b":
        return lane, register
    if shape == "16x64b":  # bit 0 of the lane picks the upper eight rows, bit 1 the second column
        return quad + 8 * (position & 1), 2 * register + (position >> 1)
    if shape == "16x128b":
        return quad + 8 * (register & 1), 4 * (register >> 1) + position
    if shape == "16x256b":
        return quad + 8 * (register >> 1 & 1), 8 * (register >> 2) + 2 * position + (register & 1)
    return (lane, register) if lane < 16 else (lane - 16, register + split)


SIXTEEN_LANES = [("16x64b", 8, 8), ("16x128b", 8, 16), ("16x256b", 4, 16), ("16x256b", 1, 4), ("16x32bx2", 8, 8)]


@pytest.mark.parametrize(
    ("shape", "repeat", "registers", "upper"),
    [("32x32b", 8, 8, 0), ("32x32b", 128, 128, 0)] + [(*form, upper) for form in SIXTEEN_LANES for upper in (0, 16)],
)
def test_a_load_gives_every_lane_its_cells(shape, repeat, registers, upper):
    split = ", 40" if shape == "16x32bx2" else ""
    body = (
        preload(256)
        + f"""
    mul.wide.u32 s, tid, {4 * registers};
    add.u64 o, o, s;
    add.u32 t, column, {(upper << 16) + 5};
    tcgen05.ld.sync.aligned.{shape}.x{repeat}.b32 {vector(0, registers)}, [t]{split};
    tcgen05.wait::ld.sync.aligned;
"""
        + "\n".join(f"    st.global.u32 [o+{4 * i}], %r{i};" for i in range(registers))
    )
    module = kernel(body)
    out = launch(module, cells=NUMBER[None].astype(U32), out_shape=(128, registers))
    for thread in range(128):
        for j in range(registers):
            row, column = expected_cell(shape, j, thread % 32, 40)
            assert out[thread, j] == NUMBER[32 * (thread // 32) + upper + row, column + 5], (thread, j)


@pytest.mark.parametrize(("shape", "repeat", "registers"), [("16x64b", 4, 4), ("16x128b", 2, 4), ("16x256b", 2, 8), ("16x32bx2", 4, 4)])
def test_a_store_is_the_inverse_of_the_load(shape, repeat, registers):
    split = ", 40" if shape == "16x32bx2" else ""
    lines = [f"    mul.lo.u32 t, tid, 100;\n    add.u32 %r{i}, t, {i + 7};" for i in range(registers)]
    body = (
        preload(64)
        + "\n".join(lines)
        + f"""
    tcgen05.st.sync.aligned.{shape}.x{repeat}.b32 [column]{split}, {vector(0, registers)};
    tcgen05.wait::st.sync.aligned;
"""
        + readback(64)
    )
    out = launch(kernel(body), cells=NUMBER[None].astype(U32), out_shape=(128, 64))
    expected = NUMBER[:, :64].copy()
    for thread in range(128):
        for j in range(registers):
            row, column = expected_cell(shape, j, thread % 32, 40)
            expected[32 * (thread // 32) + row, column] = thread * 100 + j + 7
    numpy.testing.assert_array_equal(out, expected)


def test_packing_takes_the_low_halves_of_two_columns():
    body = (
        preload(64)
        + f"""
    mul.wide.u32 s, tid, 16;
    add.u64 o, o, s;
    tcgen05.ld.sync.aligned.32x32b.x4.pack::16b.b32 {vector(0, 4)}, [column];
    tcgen05.wait::ld.sync.aligned;
"""
        + "\n".join(f"    st.global.u32 [o+{4 * i}], %r{i};" for i in range(4))
    )
    cells = (NUMBER * 65537)[None].astype(U32)
    out = launch(kernel(body), cells=cells, out_shape=(128, 4))
    low = cells[0, :, :8] & 0xFFFF
    numpy.testing.assert_array_equal(out, low[:, 0::2] | low[:, 1::2] << 16)


# ---- cp


def copy_body(form):
    return (
        preload(64)
        + f"""
    @one tcgen05.cp.cta_group::1.{form} [column], da;
    @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [base];
"""
        + WAIT.format(label=1, parity=0)
        + readback(64)
    )


def no_swizzle(start, leading, stride):
    return (start >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | 1 << 46


@pytest.mark.parametrize(
    ("form", "rows", "chunks", "lanes_of"),
    [
        ("128x128b", 128, 1, lambda r: [r]),
        ("128x256b", 128, 2, lambda r: [r]),
        ("32x128b.warpx4", 32, 1, lambda r: [r, 32 + r, 64 + r, 96 + r]),
        ("64x128b.warpx2::02_13", 64, 1, lambda r: [r, 64 + r]),
        ("64x128b.warpx2::01_23", 64, 1, lambda r: [r, r + 32] if r < 32 else [r + 32, r + 64]),
        ("4x256b", 4, 2, lambda r: [32 * r]),
    ],
)
def test_a_copy_puts_source_rows_into_their_lanes(form, rows, chunks, lanes_of):
    rng = numpy.random.default_rng(4)
    source = rng.integers(0, 1 << 32, (rows, 4 * chunks), dtype=numpy.uint64).astype(U32)
    # core matrices of 8 rows x 16 bytes; the second column of core matrices 4096 bytes on, 8 rows every 144 bytes
    image = numpy.zeros(16384, numpy.uint8)
    for r in range(rows):
        for c in range(chunks):
            at = r // 8 * 144 + r % 8 * 16 + c * 4096
            image[at : at + 16] = source[r, 4 * c : 4 * c + 4].view(numpy.uint8)
    cells = NUMBER[None].astype(U32)
    out = launch(kernel(copy_body(form)), image=image.tobytes(), cells=cells, a=no_swizzle(IMAGE, 4096, 144), out_shape=(128, 64))
    expected = cells[0, :, :64].copy()
    for r in range(rows):
        for lane in lanes_of(r):
            expected[lane, : 4 * chunks] = source[r]
    numpy.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("source", "bits"), [("b4x16_p64", 4), ("b6x16_p32", 6)])
def test_a_decompressing_copy_widens_codes_to_bytes(source, bits):
    rng = numpy.random.default_rng(8)
    codes = rng.integers(0, 1 << bits, (128, 16))
    image = numpy.full(2048, 0xEE, numpy.uint8)  # the padding
    for r in range(128):
        packed = sum(int(c) << bits * i for i, c in enumerate(codes[r]))
        image[16 * r : 16 * r + 2 * bits] = numpy.frombuffer(packed.to_bytes(2 * bits, "little"), numpy.uint8)
    out = launch(kernel(copy_body(f"128x128b.b8x16.{source}")), image=image.tobytes(), a=no_swizzle(IMAGE, 0, 128), out_shape=(128, 64))
    expected = (codes << (2 if bits == 4 else 0)).astype(numpy.uint8).view(U32)
    numpy.testing.assert_array_equal(out[:, :4], expected)


# ---- shift


def shift_body(lane=0):
    return (
        preload(64)
        + f"""
    add.u32 t, column, {(lane << 16) + 3};
    @one tcgen05.shift.cta_group::1.down [t];
    @one tcgen05.shift.cta_group::1.down [t];
    @one tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [base];
"""
        + WAIT.format(label=1, parity=0)
        + readback(64)
    )


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
def test_a_shift_moves_eight_columns_down_within_each_quarter(scheduling):
    out = launch(kernel(shift_body()), cells=NUMBER[None].astype(U32), out_shape=(128, 64), scheduling=scheduling)
    expected = NUMBER[:, :64].copy()
    lane = numpy.arange(128)
    expected[:, 3:11] = NUMBER[32 * (lane // 32) + numpy.minimum(lane % 32 + 2, 31), 3:11]
    numpy.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(("shape", "ordered"), [("4x256b", True), ("128x256b", False)])
def test_only_the_smallest_copy_waits_for_a_shift(shape, ordered):
    body = shift_body().replace(
        "@one tcgen05.shift.cta_group::1.down [t];\n    @one tcgen05.commit",
        f"@one tcgen05.cp.cta_group::1.{shape} [t], da;\n    @one tcgen05.commit",
    )
    options = dict(image=bytes(16384), cells=NUMBER[None].astype(U32), a=no_swizzle(IMAGE, 4096, 144), out_shape=(128, 64))
    if ordered:
        assert not launch(kernel(body), **options)[::32, 3:11].any()
    else:
        with pytest.raises(AssertionError, match="missing-wait"):
            launch(kernel(body), **options)


def test_a_shift_from_another_lane_is_refused():
    with pytest.raises(AssertionError, match="must be a multiple of 32"):
        launch(kernel(shift_body(lane=16)), cells=NUMBER[None].astype(U32), out_shape=(128, 64))
    with pytest.raises(EmulatorError, match="which lanes move"):
        launch(kernel(shift_body(lane=32)), cells=NUMBER[None].astype(U32), out_shape=(128, 64))


# ---- mma


def xor_128(address):
    return address ^ ((address >> 7 & 7) << 4)


def place(image, at, data):
    image[at : at + len(data)] = data


def k_major_128(image, start, rows):
    """Rows of 32 bytes into a 128-byte-swizzled image (each row's first 32 of 128 bytes)."""
    for r, row in enumerate(rows):
        for half in (0, 16):
            place(image, xor_128(IMAGE + start + r * 128 + half) - IMAGE, row[half : half + 16])


def mn_major_128(image, start, columns, size):
    """columns[k] = bytes of all mn for one k: atoms of 128 bytes of mn by 8 k, atoms along mn 1024 bytes apart, along k after them."""
    atoms = len(columns[0]) // 128
    for k, column in enumerate(columns):
        for chunk in range(len(column) // 16):
            at = start + chunk % 8 * 16 + chunk // 8 * 1024 + k % 8 * 128 + k // 8 * 1024 * atoms
            place(image, xor_128(IMAGE + at) - IMAGE, column[16 * chunk : 16 * chunk + 16])


def swizzled(start, leading, stride):
    return ((IMAGE + start) >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | 1 << 46 | 2 << 61


def mma_body(kind, *, group=1, a="da", accumulate=0, extra="", columns=64, scales=""):
    leader = "setp.eq.u32 q, rank, 0;\n    and.pred q, q, one;" if group == 2 else "mov.pred q, one;"
    multicast = ".multicast::cluster" if group == 2 else ""
    mask = ", 3" if group == 2 else ""
    mask_register = ""
    if group == 2:
        mask_register, mask = "    .reg .b16 both;\n    mov.b16 both, 3;\n", ", both"
    return (
        preload(512)
        + f"""
{mask_register}    {leader}
    setp.ne.u32 p, {accumulate}, 0;
    @q tcgen05.mma.cta_group::{group}.kind::{kind} [column], {a}, db, id{scales}, {extra}p;
    @q tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster{multicast}.b64 [base]{mask};
"""
        + WAIT.format(label=2, parity=0)
        + readback(columns)
    )


def random_codes(rng, format, *shape):
    """Small values: every sum is exact in f32."""
    values = rng.integers(-3, 4, shape) * 1.0
    return number_formats.encode(format, values, "rn", satfinite=True).astype(numpy.int64)


def dense_idesc(m, n, a, b, d=1, extra=0):
    return d << 4 | a << 7 | b << 10 | n >> 3 << 17 | m >> 4 << 24 | extra


def bytes_of(codes, size):
    return codes.astype({1: numpy.uint8, 2: numpy.uint16, 4: numpy.uint32}[size]).view(numpy.uint8)


def product(format_a, a, format_b, b):
    return number_formats.decode(format_a, a) @ number_formats.decode(format_b, b).T


DENSE = {
    "f16": (number_formats.F16, 0, 2), "bf16": (number_formats.BF16, 1, 2), "tf32": (number_formats.TF32, 2, 4), "e4m3": (number_formats.E4M3, 0, 1), "e5m2": (number_formats.E5M2, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
@pytest.mark.parametrize(("name", "kind"), [("f16", "f16"), ("bf16", "f16"), ("tf32", "tf32"), ("e4m3", "f8f6f4"), ("e5m2", "f8f6f4")])
def test_dense_kinds_multiply(name, kind, scheduling):
    format, code, size = DENSE[name]
    depth, n = 32 // size, 48
    rng = numpy.random.default_rng(6)
    a, b = random_codes(rng, format, 128, depth), random_codes(rng, format, n, depth)
    image = numpy.zeros(128 * 128 + 64 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, size))
    k_major_128(image, 16384, bytes_of(b, size))
    out = launch(
        kernel(mma_body(kind)), image=image.tobytes(), cells=NUMBER[None].astype(U32), a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024),
        idesc=dense_idesc(128, n, code, code), out_shape=(128, 64), scheduling=scheduling,
    )  # fmt: skip
    numpy.testing.assert_array_equal(out[:, :n].view(numpy.float32), product(format, a, format, b))
    numpy.testing.assert_array_equal(out[:, n:], NUMBER[:, n:64])


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
def test_accumulation_negation_and_scaling_of_the_input(arithmetic):
    rng = numpy.random.default_rng(6)
    a, b = random_codes(rng, number_formats.BF16, 128, 16), random_codes(rng, number_formats.BF16, 32, 16)
    image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, 2))
    k_major_128(image, 16384, bytes_of(b, 2))
    cells = numpy.zeros((1, 128, 512), numpy.float32)
    cells[0, :, :32] = rng.integers(-64, 64, (128, 32)) * 8
    common = {
        "image": image.tobytes(),
        "cells": cells.view(U32),
        "a": swizzled(0, 0, 1024),
        "b": swizzled(16384, 0, 1024),
        "out_shape": (128, 64),
    }
    exact = product(number_formats.BF16, a, number_formats.BF16, b)
    out = launch(kernel(mma_body("f16", accumulate=1)), idesc=dense_idesc(128, 32, 1, 1, extra=1 << 13), arithmetic=arithmetic, **common)
    numpy.testing.assert_array_equal(out[:, :32].view(numpy.float32), cells[0, :, :32] - exact)
    body = mma_body("f16", accumulate=1).replace("id, p;", "id, p, 3;")
    out = launch(kernel(body), idesc=dense_idesc(128, 32, 1, 1), arithmetic=arithmetic, **common)
    numpy.testing.assert_array_equal(out[:, :32].view(numpy.float32), cells[0, :, :32] / 8 + exact)


def test_an_operand_may_start_in_any_row_of_the_swizzle_pattern():
    rng = numpy.random.default_rng(7)
    a, b = random_codes(rng, number_formats.BF16, 128, 16), random_codes(rng, number_formats.BF16, 32, 16)
    image = numpy.zeros(169 * 128, numpy.uint8)
    k_major_128(image, 5 * 128, bytes_of(a, 2))
    k_major_128(image, 137 * 128, bytes_of(b, 2))
    out = launch(
        kernel(mma_body("f16")),
        image=image.tobytes(),
        a=swizzled(5 * 128, 0, 1024),
        b=swizzled(137 * 128, 0, 1024),
        idesc=dense_idesc(128, 32, 1, 1),
        out_shape=(128, 64),
    )
    numpy.testing.assert_array_equal(out[:, :32].view(numpy.float32), product(number_formats.BF16, a, number_formats.BF16, b))


def test_an_f16_result_lies_in_the_low_half_of_each_cell():
    rng = numpy.random.default_rng(6)
    a, b = random_codes(rng, number_formats.F16, 128, 16), random_codes(rng, number_formats.F16, 32, 16)
    image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, 2))
    k_major_128(image, 16384, bytes_of(b, 2))
    out = launch(
        kernel(mma_body("f16")),
        image=image.tobytes(),
        a=swizzled(0, 0, 1024),
        b=swizzled(16384, 0, 1024),
        idesc=dense_idesc(128, 32, 0, 0, 0),
        out_shape=(128, 64),
    )
    assert ((out[:, :32] & 0xFFFF).astype(numpy.uint16).view(numpy.float16) == product(number_formats.F16, a, number_formats.F16, b)).all()


@pytest.mark.parametrize(("name", "kind"), [("bf16", "f16"), ("e4m3", "f8f6f4")])
def test_operands_stored_along_m_and_n(name, kind):
    format, code, size = DENSE[name]
    depth, n = 32 // size, 128
    rng = numpy.random.default_rng(16)
    a, b = random_codes(rng, format, 128, depth), random_codes(rng, format, n, depth)
    image = numpy.zeros(32768, numpy.uint8)
    mn_major_128(image, 0, bytes_of(numpy.ascontiguousarray(a.T), size), size)
    mn_major_128(image, 16384, bytes_of(numpy.ascontiguousarray(b.T), size), size)
    atoms = 128 * size // 128
    out = launch(
        kernel(mma_body(kind, columns=128)), image=image.tobytes(), a=swizzled(0, 1024, 1024 * atoms), b=swizzled(16384, 1024, 1024 * atoms),
        idesc=dense_idesc(128, n, code, code, extra=1 << 15 | 1 << 16), out_shape=(128, 128),
    )  # fmt: skip
    numpy.testing.assert_array_equal(out.view(numpy.float32), product(format, a, format, b))


def test_sixty_four_rows_use_sixteen_lanes_of_every_quarter():
    rng = numpy.random.default_rng(26)
    a, b = random_codes(rng, number_formats.F16, 64, 16), random_codes(rng, number_formats.F16, 32, 16)
    image = numpy.zeros(64 * 128 + 32 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, 2))
    k_major_128(image, 8192, bytes_of(b, 2))
    out = launch(
        kernel(mma_body("f16")), image=image.tobytes(), cells=NUMBER[None].astype(U32), a=swizzled(0, 0, 1024), b=swizzled(8192, 0, 1024),
        idesc=dense_idesc(64, 32, 0, 0), out_shape=(128, 64),
    )  # fmt: skip
    exact = product(number_formats.F16, a, number_formats.F16, b)
    for row in range(64):
        lane = row // 16 * 32 + row % 16
        numpy.testing.assert_array_equal(out[lane, :32].view(numpy.float32), exact[row])
        numpy.testing.assert_array_equal(out[lane + 16, :32], NUMBER[lane + 16, :32])


def test_a_from_tensor_memory():
    rng = numpy.random.default_rng(36)
    a, b = random_codes(rng, number_formats.BF16, 128, 16), random_codes(rng, number_formats.BF16, 32, 16)
    image = numpy.zeros(32 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(b, 2))
    cells = numpy.zeros((1, 128, 512), U32)
    cells[0, :, 100:108] = a[:, 0::2] | a[:, 1::2] << 16
    body = mma_body("f16", a="[t]").replace("    setp.ne.u32 p,", "    add.u32 t, column, 100;\n    setp.ne.u32 p,")
    out = launch(
        kernel(body), image=image.tobytes(), cells=cells, b=swizzled(0, 0, 1024), idesc=dense_idesc(128, 32, 1, 1), out_shape=(128, 64)
    )
    numpy.testing.assert_array_equal(out[:, :32].view(numpy.float32), product(number_formats.BF16, a, number_formats.BF16, b))


def test_disabled_lanes_keep_their_cells():
    rng = numpy.random.default_rng(46)
    a, b = random_codes(rng, number_formats.F16, 128, 16), random_codes(rng, number_formats.F16, 32, 16)
    image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, 2))
    k_major_128(image, 16384, bytes_of(b, 2))
    body = mma_body("f16", extra="{%r0, %r1, %r2, %r3}, ").replace(
        "    setp.ne.u32 p,", "    mov.u32 %r0, 1; mov.u32 %r1, 0; mov.u32 %r2, 0x80000000; mov.u32 %r3, 0;\n    setp.ne.u32 p,"
    )
    out = launch(
        kernel(body), image=image.tobytes(), cells=NUMBER[None].astype(U32), a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024),
        idesc=dense_idesc(128, 32, 0, 0), out_shape=(128, 64),
    )  # fmt: skip
    exact = product(number_formats.F16, a, number_formats.F16, b).astype(numpy.float32)
    for lane in range(128):
        expected = NUMBER[lane, :32] if lane in (0, 95) else exact[lane].view(U32)
        numpy.testing.assert_array_equal(out[lane, :32], expected)


def test_integer_matrices():
    rng = numpy.random.default_rng(56)
    a, b = rng.integers(0, 256, (128, 32)), rng.integers(-128, 128, (32, 32))
    image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, 1))
    k_major_128(image, 16384, bytes_of(b, 1))
    out = launch(
        kernel(mma_body("i8")),
        image=image.tobytes(),
        a=swizzled(0, 0, 1024),
        b=swizzled(16384, 0, 1024),
        idesc=dense_idesc(128, 32, 0, 1, 2),
        out_shape=(128, 64),
    )
    numpy.testing.assert_array_equal(out[:, :32].view(numpy.int32), a @ b.T)


@pytest.mark.parametrize("scheduling", ["issue", "last"])
@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_of_ctas_shares_the_rows_of_both_operands(m, scheduling):
    rng = numpy.random.default_rng(66)
    n = 64
    a, b = random_codes(rng, number_formats.E4M3, m, 32), random_codes(rng, number_formats.E4M3, n, 32)
    images = []
    for cta in range(2):
        image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
        k_major_128(image, 0, bytes_of(a[cta * m // 2 : (cta + 1) * m // 2], 1))
        k_major_128(image, 16384, bytes_of(b[cta * n // 2 : (cta + 1) * n // 2], 1))
        images.append(image.tobytes())
    out = launch(
        kernel(mma_body("f8f6f4", group=2), group=2, out_bytes=128 * 64 * 4), image=images, cells=numpy.broadcast_to(NUMBER, (2, 128, 512)).astype(U32),
        a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024), idesc=dense_idesc(m, n, 0, 0), group=2, out_shape=(2, 128, 64), scheduling=scheduling,
    ).view(numpy.float32)  # fmt: skip
    exact = product(number_formats.E4M3, a, number_formats.E4M3, b)
    for cta in range(2):
        if m == 256:
            numpy.testing.assert_array_equal(out[cta], exact[128 * cta : 128 * cta + 128])
        else:  # 64 rows each; the second half of N lies in the upper 64 lanes
            part = exact[64 * cta : 64 * cta + 64]
            numpy.testing.assert_array_equal(out[cta, :64, :32], part[:, :32])
            numpy.testing.assert_array_equal(out[cta, 64:, :32], part[:, 32:])


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize("name", ["e2m1", "e2m3", "e3m2"])
def test_four_and_six_bit_operands_come_padded_and_their_padding_may_be_unwritten(name, arithmetic):
    format = number_formats.FORMATS[name]
    code = {"e2m1": 5, "e2m3": 3, "e3m2": 4}[name]
    rng = numpy.random.default_rng(76)
    a, b = rng.integers(0, 1 << format.bits, (128, 32)), random_codes(rng, number_formats.E4M3, 32, 32)
    image = numpy.full(128 * 128 + 32 * 128, 0xEE, numpy.uint8)
    rows = numpy.full((128, 32), 0xEE, numpy.uint8)
    for r in range(128):
        for half in (0, 1):
            packed = sum(int(c) << format.bits * i for i, c in enumerate(a[r, 16 * half : 16 * half + 16]))
            rows[r, 16 * half : 16 * half + 2 * format.bits] = numpy.frombuffer(packed.to_bytes(2 * format.bits, "little"), numpy.uint8)
    k_major_128(image, 0, rows)
    k_major_128(image, 16384, bytes_of(b, 1))
    out = launch(
        kernel(mma_body("f8f6f4")), image=image.tobytes(), a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024), idesc=dense_idesc(128, 32, code, 0),
        out_shape=(128, 64), arithmetic=arithmetic,
    )  # fmt: skip
    numpy.testing.assert_array_equal(out[:, :32].view(numpy.float32), product(format, a, number_formats.E4M3, b))


SCALED = [
    ("mxf8f6f4", "block32", 1, "ue8m0", "e4m3", 0, 0),
    ("mxf8f6f4", "scale_vec::1X", 1, "ue8m0", "e5m2", 1, 3),
    ("mxf4", "block32", 2, "ue8m0", "e2m1", 1, 2),
    ("mxf4nvf4", "scale_vec::2X", 2, "ue8m0", "e2m1", 1, 0),
    ("mxf4nvf4", "block16", 4, "ue8m0", "e2m1", 1, 0),
    ("mxf4nvf4", "block16", 4, "ue4m3", "e2m1", 1, 0),
]


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("kind", "qualifier", "scales", "scale_name", "name", "code", "number"), SCALED)
def test_block_scales_come_from_their_bytes_in_tensor_memory(kind, qualifier, scales, scale_name, name, code, number, arithmetic):
    format, scale_format = number_formats.FORMATS[name], number_formats.FORMATS[scale_name]
    depth, n = (64, 48) if name == "e2m1" else (32, 48)
    rng = numpy.random.default_rng(86)
    a, b = random_codes(rng, format, 128, depth), random_codes(rng, format, n, depth)
    low, high = (125, 130) if scale_name == "ue8m0" else (0x30, 0x48)
    scale_a, scale_b = rng.integers(low, high, (128, scales)), rng.integers(low, high, (n, scales))
    image = numpy.zeros(128 * 128 + 64 * 128, numpy.uint8)
    pack = (lambda c: (c[:, 0::2] | c[:, 1::2] << 4).astype(numpy.uint8)) if name == "e2m1" else (lambda c: c.astype(numpy.uint8))
    k_major_128(image, 0, pack(a))
    k_major_128(image, 16384, pack(b))
    cells = rng.integers(0, 1 << 32, (1, 128, 512), dtype=numpy.uint64).astype(U32)
    view = cells[0].view(numpy.uint8).reshape(128, 512, 4)
    for first, table in ((200, scale_a), (300, scale_b)):
        for row in range(len(table)):
            for quarter in range(4):
                view[32 * quarter + row % 32, first + row // 32, number : number + scales] = table[row]
    body = mma_body(f"{kind}.block_scale.{qualifier}", scales=", [w], [n]").replace(
        "    setp.ne.u32 p,", "    add.u32 w, column, 200;\n    add.u32 n, column, 300;\n    setp.ne.u32 p,"
    )
    idesc = number << 4 | code << 7 | code << 10 | n >> 3 << 17 | (scale_name == "ue8m0") << 23 | 1 << 27 | number << 29
    out = launch(
        kernel(body),
        image=image.tobytes(),
        cells=cells,
        a=swizzled(0, 0, 1024),
        b=swizzled(16384, 0, 1024),
        idesc=idesc,
        out_shape=(128, 64),
        arithmetic=arithmetic,
    )
    block = depth // scales
    left = number_formats.decode(format, a) * numpy.repeat(number_formats.decode(scale_format, scale_a), block, axis=1)
    right = number_formats.decode(format, b) * numpy.repeat(number_formats.decode(scale_format, scale_b), block, axis=1)
    numpy.testing.assert_array_equal(out[:, :n].view(numpy.float32), left @ right.T)


@pytest.mark.parametrize("m", [256, 128])
def test_block_scales_of_a_pair_lie_by_rows_per_cta_and_all_columns_in_both(m):
    rng = numpy.random.default_rng(96)
    n, each = 64, m // 2
    a, b = random_codes(rng, number_formats.E4M3, m, 32), random_codes(rng, number_formats.E4M3, n, 32)
    scale_a, scale_b = rng.integers(125, 130, m), rng.integers(125, 130, n)
    images, cells = [], rng.integers(0, 1 << 32, (2, 128, 512), dtype=numpy.uint64).astype(U32)
    for cta in range(2):
        image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
        k_major_128(image, 0, bytes_of(a[cta * each : (cta + 1) * each], 1))
        k_major_128(image, 16384, bytes_of(b[cta * n // 2 : (cta + 1) * n // 2], 1))
        images.append(image.tobytes())
        view = cells[cta].view(numpy.uint8).reshape(128, 512, 4)
        for row in range(each):
            for quarter in range(4):
                view[32 * quarter + row % 32, 200 + row // 32, 1] = scale_a[cta * each + row]
        for column in range(n):
            if m == 256:
                for quarter in range(4):
                    view[32 * quarter + column % 32, 300 + column // 32, 1] = scale_b[column]
            else:  # the 2x2 data path: the second half of N in the upper 64 lanes, each half twice
                for copy in range(2):
                    view[64 * (column // 32) + 32 * copy + column % 32, 300, 1] = scale_b[column]
    body = mma_body("mxf8f6f4.block_scale.block32", group=2, scales=", [w], [n]").replace(
        "    setp.ne.u32 p,", "    add.u32 w, column, 200;\n    add.u32 n, column, 300;\n    setp.ne.u32 p,"
    )
    idesc = 1 << 4 | n >> 3 << 17 | 1 << 23 | m >> 7 << 27 | 1 << 29
    out = launch(
        kernel(body, group=2, out_bytes=128 * 64 * 4), image=images, cells=cells, a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024), idesc=idesc, group=2,
        out_shape=(2, 128, 64),
    ).view(numpy.float32)  # fmt: skip
    left = number_formats.decode(number_formats.E4M3, a) * 2.0 ** (scale_a[:, None] - 127.0)
    right = number_formats.decode(number_formats.E4M3, b) * 2.0 ** (scale_b[:, None] - 127.0)
    exact = left @ right.T
    for cta in range(2):
        part = exact[each * cta : each * cta + each]
        if m == 256:
            numpy.testing.assert_array_equal(out[cta], part)
        else:
            numpy.testing.assert_array_equal(out[cta, :64, :32], part[:, :32])
            numpy.testing.assert_array_equal(out[cta, 64:, :32], part[:, 32:])


def test_tf32_stored_along_m_and_n_uses_atoms_of_four_k_rows():
    rng = numpy.random.default_rng(17)
    n = 64
    a, b = random_codes(rng, number_formats.TF32, 128, 8), random_codes(rng, number_formats.TF32, n, 8)
    image = numpy.zeros(16384, numpy.uint8)

    def store(start, matrix):
        """Atoms of 128 bytes of mn by 4 k, 512 bytes each: along k first, then along mn; 32-byte columns swizzled by the k row."""
        for mn in range(len(matrix)):
            for k in range(8):
                at = IMAGE + start + mn // 32 * 1024 + k // 4 * 512 + k % 4 * 128 + mn % 32 * 4
                at ^= (at >> 7 & 3) << 5
                place(image, at - IMAGE, matrix[mn : mn + 1, k].astype(U32).view(numpy.uint8))

    store(0, a)
    store(8192, b)
    descriptor = lambda start: ((IMAGE + start) >> 4) | (1024 >> 4) << 16 | (512 >> 4) << 32 | 1 << 46 | 1 << 61  # noqa: E731
    out = launch(
        kernel(mma_body("tf32")),
        image=image.tobytes(),
        a=descriptor(0),
        b=descriptor(8192),
        idesc=dense_idesc(128, n, 2, 2, extra=1 << 15 | 1 << 16),
        out_shape=(128, 64),
    )
    numpy.testing.assert_array_equal(out.view(numpy.float32), product(number_formats.TF32, a, number_formats.TF32, b))

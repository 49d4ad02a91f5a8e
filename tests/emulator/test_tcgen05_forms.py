"""tcgen05.mma.sp and .ws: sparse A with metadata in tensor memory, 32 rows, columns of B that count as zero."""

import numpy
import pytest
from test_matrix_tcgen05 import (
    DENSE,
    IMAGE,
    NUMBER,
    U32,
    bytes_of,
    dense_idesc,
    expected_cell,
    k_major_128,
    kernel,
    launch,
    mma_body,
    place,
    preload,
    product,
    random_codes,
    readback,
    swizzled,
    vector,
    xor_128,
)
from test_sparse_matrices import sparse

from zoo.emulator import EmulatorError, UnsupportedInstruction, descriptors, number_formats

CELLS = 200  # the column of the metadata


def rows_of_64_bytes(image, start, rows):
    for r, row in enumerate(rows):
        for part in range(0, 64, 16):
            place(image, xor_128(IMAGE + start + r * 128 + part) - IMAGE, row[part : part + 16])


def encoded(format, values):
    return number_formats.encode(format, values.astype(float), "rn", satfinite=True).astype(numpy.int64)


def metadata_cells(cells, nibbles, size, selector, lane_of):
    """Writes the nibbles of A's rows: two cells a row for bytes; for wider elements rows m and m + 8 share the cells of two lanes."""
    words = (nibbles.reshape(len(nibbles), -1, 4) << numpy.array([0, 4, 8, 12])).sum(axis=2)
    for m, j in numpy.ndindex(words.shape):
        if size == 1:
            cells[lane_of(m), CELLS + j // 2] |= words[m, j] << 16 * (j % 2)
        else:
            cells[lane_of(16 * (m // 16) + m % 8 + 8 * j), CELLS + selector] |= words[m, j] << 16 * (m // 8 % 2)


def sparse_body(kind, address=CELLS, **options):
    body = mma_body(kind, **options).replace("tcgen05.mma.cta", "tcgen05.mma.sp.cta").replace("db, id", "db, [%r9], id")
    return body.replace("    setp.ne.u32 p,", f"    add.u32 %r9, column, {address};\n    setp.ne.u32 p,")


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("name", "kind", "m", "selector", "group"), [
    ("f16", "f16", 128, 1, 1), ("bf16", "f16", 64, 0, 1), ("tf32", "tf32", 128, 0, 1), ("e4m3", "f8f6f4", 128, 0, 1), ("e5m2", "f8f6f4", 64, 0, 1),
    ("f16", "f16", 256, 0, 2), ("e4m3", "f8f6f4", 128, 0, 2),
])  # fmt: skip
def test_a_sparse_product_takes_its_metadata_from_tensor_memory(name, kind, m, selector, group, arithmetic):
    format, code, size = DENSE[name]
    depth, n = 64 // size, 32
    dense, stored, nibbles = sparse(m, depth, name == "tf32")
    b = numpy.random.default_rng(7).integers(-3, 4, (n, depth))
    each = m // group
    lane_of = (lambda row: row % 16 + 32 * (row // 16)) if each == 64 else (lambda row: row)
    cells = numpy.broadcast_to(NUMBER, (group, 128, 512)).copy()
    cells[:, :, CELLS : CELLS + 2] = 0
    images = []
    for cta in range(group):
        image = numpy.zeros(128 * 128 + n * 128, numpy.uint8)
        k_major_128(image, 0, bytes_of(encoded(format, stored[cta * each : (cta + 1) * each]), size))
        rows_of_64_bytes(image, 16384, bytes_of(encoded(format, b[cta * n // group : (cta + 1) * n // group]), size))
        images.append(image.tobytes())
        metadata_cells(cells[cta], nibbles[cta * each : (cta + 1) * each], size, selector, lane_of)
    out = launch(
        kernel(sparse_body(kind, group=group), group=group, out_bytes=128 * 64 * 4), image=images, cells=cells.astype(U32), a=swizzled(0, 0, 1024),
        b=swizzled(16384, 0, 1024), idesc=dense_idesc(m, n, code, code, extra=4 | selector), group=group, out_shape=(group, 128, 64), arithmetic=arithmetic,
    ).view(numpy.float32)  # fmt: skip
    lanes = numpy.array([lane_of(row) for row in range(each)])
    for cta in range(group):
        numpy.testing.assert_array_equal(out[cta, lanes, :n], (dense @ b.T)[cta * each : (cta + 1) * each])


def test_packed_four_bit_elements_are_kept_in_pairs():
    rng = numpy.random.default_rng(17)
    pairs, stored, nibbles = sparse(128, 64, False)  # of bytes
    dense = numpy.stack([pairs, -pairs], axis=2).reshape(128, 128)
    kept = encoded(number_formats.E2M1, stored) | encoded(number_formats.E2M1, -stored) << 4
    b = rng.integers(-3, 4, (32, 128))
    codes = encoded(number_formats.E2M1, b)
    image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
    k_major_128(image, 0, kept.astype(numpy.uint8))
    rows_of_64_bytes(image, 16384, (codes[:, 0::2] | codes[:, 1::2] << 4).astype(numpy.uint8))
    cells = numpy.zeros((128, 512), numpy.int64)
    metadata_cells(cells, nibbles, 1, 0, lambda row: row)
    cells[:, 300:308] = 0x80808080  # scales: 2
    scales = ", [%r10], [%r11]"
    body = sparse_body("mxf4.block_scale.block32", scales=scales).replace(
        "    add.u32 %r9", "    add.u32 %r10, column, 300; add.u32 %r11, column, 304;\n    add.u32 %r9"
    )
    out = launch(
        kernel(body), image=image.tobytes(), cells=cells[None].astype(U32), a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024),
        idesc=dense_idesc(128, 32, 1, 1, 0, 1 << 23 | 4), out_shape=(128, 64),
    )  # fmt: skip
    numpy.testing.assert_array_equal(out[:, :32].view(numpy.float32), 4 * (dense @ b.T))


@pytest.mark.parametrize(("edit", "idesc", "why"), [
    ({"address": CELLS + 1}, 4, "column 201"), ({"address": CELLS + (16 << 16)}, 4, "lane 16"), ({}, 0, "sparsity bit"), ({}, 4 | 2, "selector"),
    ({"metadata": 0x4444_4454}, 4, "must be two indices in increasing order"),
])  # fmt: skip
def test_metadata_that_no_tensor_core_reads_is_found(edit, idesc, why):
    cells = numpy.zeros((1, 128, 512), U32)
    cells[0, :, CELLS : CELLS + 2] = edit.pop("metadata", 0x4444_4444)
    with pytest.raises(AssertionError, match=why):
        launch(
            kernel(sparse_body("f16", **edit)), image=b"\0\x3c" * (128 * 128), cells=cells, a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024),
            idesc=dense_idesc(128, 32, 0, 0, extra=idesc), out_shape=(128, 64),
        )  # fmt: skip


# ---- weight stationary
def stationary_body(mask="", collector="", columns=64):
    return (
        mma_body("f16" + collector, columns=columns)
        .replace("tcgen05.mma.cta", "tcgen05.mma.ws.cta")
        .replace("p;\n    @q tcgen05.commit", f"p{mask};\n    @q tcgen05.commit")
    )


@pytest.mark.parametrize(("m", "mask"), [(32, 0), (64, 1 << 39 | 3 << 48 | 2 << 40 | 1 << 32), (128, 1 << 39 | 3 << 48 | 2 << 40 | 1)])
def test_parts_of_the_columns_lie_in_lanes_one_above_the_other(m, mask):
    """A mask zeros three columns after four that are used; its second half begins with the four, its first half with the three (M = 64)."""
    format, n = number_formats.F16, 64
    rng = numpy.random.default_rng(27)
    a, b = random_codes(rng, format, m, 16), random_codes(rng, format, n, 16)
    image = numpy.zeros(128 * 128 + n * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, 2))
    k_major_128(image, 16384, bytes_of(b, 2))
    body = stationary_body(", o" if mask else "", ".collector::b2::fill").replace(
        "    mov.pred q, one;", f"    mov.u64 g, o; mov.u64 o, {mask};\n    mov.pred q, one;"
    )
    body = body.replace(f"    mul.wide.u32 s, tid, {4 * n};", f"    mov.u64 o, g;\n    mul.wide.u32 s, tid, {4 * n};")
    out = launch(
        kernel(body), image=image.tobytes(), cells=NUMBER[None].astype(U32), a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024),
        idesc=dense_idesc(m, n, 0, 0), out_shape=(128, n),
    ).view(numpy.float32)  # fmt: skip
    expected = product(format, a, format, b)
    if m == 64:
        expected[:, [0, 1, 2, 7, 8, 9, 14, 15, 16, 21, 22, 23, 28, 29, 30]] = 0
        expected[:, [36, 37, 38, 43, 44, 45, 50, 51, 52, 57, 58, 59]] = 0
    elif m == 128:  # one column of the first four is skipped
        expected[:, [c for c in range(n) if (c + 1) % 7 >= 4]] = 0
    width = n * m // 128
    for part in range(128 // m):
        numpy.testing.assert_array_equal(out[m * part : m * part + m, :width], expected[:, width * part : width * part + width])


@pytest.mark.parametrize(("m", "start", "first", "masks"), [
    (128, 0, 0, ["11100001110000"]), (64, 0, 0b01, ["11100001110000111", "000011100001110000"]),
    (32, 1 << 24 | 2 << 16 | 1 << 8, 0b0011, ["00001110000111", "0000111000011", "111000011100", "1110000111000"]),
])  # fmt: skip
def test_masks_are_those_of_the_manuals_examples(m, start, first, masks):
    """The manual writes a mask with column 0 last: skip span 2, use span 3."""
    zeros = descriptors.zero_columns(start | first << 32 | 1 << 39 | 2 << 40 | 3 << 48, m, 256)
    assert not descriptors.zero_columns(start | first << 32 | 2 << 40 | 3 << 48, m, 256).any()
    for part, mask in enumerate(masks):
        low = zeros[256 * m // 128 * part :][: len(mask)]
        assert low[::-1].tolist() == [bit == "1" for bit in mask]


@pytest.mark.parametrize(("first", "mask"), [(0, "100001110"), (1, "011100001")])
@pytest.mark.parametrize("start", [3, 4, 255])
def test_a_start_beyond_the_first_span_leaves_its_last_column(start, first, mask):
    """Spans of 4 columns that are used and 3 that are zero; a mask is written with column 0 last."""
    zeros = descriptors.zero_columns(start | first << 32 | 1 << 39 | 2 << 40 | 3 << 48, 128, 256)
    assert zeros[8::-1].tolist() == [bit == "1" for bit in mask]


def test_stationary_forms_that_the_manual_leaves_open_or_does_not_have_are_refused():
    options = dict(image=bytes(128 * 256), a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024), out_shape=(128, 64))
    with pytest.raises(AssertionError, match=r"N = 48: tcgen05\.mma\.ws takes 64, 128 or 256"):
        launch(kernel(stationary_body()), idesc=dense_idesc(32, 48, 0, 0), **options)
    with pytest.raises(EmulatorError, match="in which lanes it lies"):
        launch(kernel(stationary_body().replace("[column], da", "[column], [column]")), idesc=dense_idesc(32, 64, 0, 0), **options)
    with pytest.raises(UnsupportedInstruction, match="cta_group::1 without block scales"):
        launch(kernel(stationary_body().replace("kind::f16", "kind::mxf4.block_scale")), **options)


def test_96_elements_along_k_are_refused_by_name_where_they_exist():
    options = dict(image=bytes(128 * 256), a=swizzled(0, 0, 1024), b=swizzled(16384, 0, 1024), out_shape=(128, 64))
    body = mma_body("mxf4.block_scale.block32", scales=", [%r10], [%r10]").replace(
        "    setp.ne.u32 p,", "    add.u32 %r10, column, 300;\n    setp.ne.u32 p,"
    )
    idesc = dense_idesc(128, 32, 1, 1, 0, 1 << 23 | 1 << 31)
    with pytest.raises(EmulatorError, match="K = 96 is not covered"):
        launch(kernel(body, arch="sm_103a"), idesc=idesc, arch="sm_103a", **options)
    with pytest.raises(AssertionError, match="exists only on sm_103"):
        launch(kernel(body), idesc=idesc, **options)


# ---- loads and stores
@pytest.mark.parametrize(
    ("shape", "repeat", "registers"), [("32x32b", 4, 4), ("16x64b", 4, 4), ("16x128b", 2, 4), ("16x256b", 2, 8), ("16x32bx2", 4, 4)]
)
def test_packing_doubles_the_columns_of_every_shape(shape, repeat, registers):
    """Loaded with .pack, doubled, stored with .unpack."""
    split = ", 40" if shape == "16x32bx2" else ""
    body = preload(64) + f"""
    tcgen05.ld.sync.aligned.{shape}.x{repeat}.pack::16b.b32 {vector(0, registers)}, [column]{split};
    tcgen05.wait::ld.sync.aligned;
    {" ".join(f"shl.b32 %r{i}, %r{i}, 1;" for i in range(registers))}
    tcgen05.st.sync.aligned.{shape}.x{repeat}.unpack::16b.b32 [column]{split}, {vector(0, registers)};
    tcgen05.wait::st.sync.aligned;
    """ + readback(64)  # fmt: skip
    cells = (NUMBER % 9973 + (NUMBER % 7 << 20))[:, :64]
    expected = cells.copy()
    for lane, register in numpy.ndindex(32, registers):
        row, word = expected_cell(shape, register, lane)
        first = 2 * word + (40 if shape == "16x32bx2" and lane >= 16 else 0)
        expected[row::32, first : first + 2] = 2 * (cells[row::32, first : first + 2] & 0xFFFF)
    out = launch(kernel(body), cells=numpy.pad(cells, ((0, 0), (0, 448)))[None].astype(U32), out_shape=(128, 64))
    numpy.testing.assert_array_equal(out, expected)


def reduced(form, cells, shape="32x32b"):
    body = preload(32) + f"""
    tcgen05.ld.red.sync.aligned.{shape}.x8.{form} {vector(0, 8)}, %r40, [column]{", 8" if shape == "16x32bx2" else ""};
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 s, tid, 36; add.u64 o, o, s; st.global.u32 [o], %r40;
    """ + "".join(f"st.global.u32 [o+{4 * i + 4}], %r{i};" for i in range(8))  # fmt: skip
    padded = numpy.zeros((1, 128, 512), U32)
    padded[0, :, :32] = cells.view(U32)
    return launch(kernel(body, arch="sm_103a"), cells=padded, out_shape=(128, 9), arch="sm_103a")


@pytest.mark.parametrize(("form", "function"), [
    ("min.f32", numpy.fmin.reduce), ("max.abs.f32", lambda x, axis: numpy.fmax.reduce(numpy.abs(x), axis)), ("max.NaN.f32", numpy.maximum.reduce),
    ("min.u32", numpy.minimum.reduce), ("max.s32", numpy.maximum.reduce),
])  # fmt: skip
def test_a_reducing_load_gives_every_lane_its_extreme(form, function):
    rng = numpy.random.default_rng(37)
    dtype = {"f32": "f4", "u32": "u4", "s32": "i4"}[form[-3:]]
    cells = rng.standard_normal((128, 32)).astype("f4") if dtype == "f4" else rng.integers(0, 1 << 32, (128, 32), dtype=U32).view(dtype)
    if dtype == "f4":
        cells[::5, 3] = numpy.nan
    out = reduced(form, cells)
    numpy.testing.assert_array_equal(out[:, 0].copy().view(dtype), function(cells[:, :8], axis=1))
    numpy.testing.assert_array_equal(out[:, 1:], cells[:, :8].view(U32))
    halves = reduced(form, cells, "16x32bx2")
    for lane in range(32):
        part = cells[lane % 16 :: 32, 8 * (lane // 16) :][:, :8]
        numpy.testing.assert_array_equal(halves[lane::32, 0].copy().view(dtype), function(part, axis=1))


def test_a_reducing_load_that_does_not_exist_is_refused():
    cells = numpy.zeros((128, 32), U32)
    for form, shape, why in (("max.NaN.s32", "32x32b", r"\.abs and \.NaN are for \.f32"), ("max.f32", "16x64b", "without packing")):
        with pytest.raises(UnsupportedInstruction, match=why):
            reduced(form, cells, shape)

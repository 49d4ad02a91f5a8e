"""mma.sync with 4, 6 and 8-bit types and block scales (sm_120), and what an fp8 mma.sync is made of where it is not in hardware.

Fragments are written out here lane by lane; the 16-bit and integer forms are compared with a real GPU in test_matrix_raw_ptx.py.
"""

import pathlib

import numpy
import pytest

from zoo.emulator import Device, Module, UnsupportedInstruction, number_formats

U32 = numpy.uint32

TEXT = """
.version 9.1
.target {target}
.address_size 64
.visible .entry kernel(.param .u64 words, .param .u64 out)
{{
    .reg .b32 %r<12>, lane;
    .reg .f32 %c<4>, %d<4>;
    .reg .b64 g, o, s;
    mov.u32 lane, %tid.x;
    ld.param.u64 g, [words];
    mul.wide.u32 s, lane, 48;
    add.u64 g, g, s;
    ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [g];
    ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [g+16];
    ld.global.v4.f32 {{%c0, %c1, %c2, %c3}}, [g+32];
    {body}
    ld.param.u64 o, [out];
    mul.wide.u32 s, lane, 16;
    add.u64 o, o, s;
    st.global.v4.f32 [o], {{%d0, %d1, %d2, %d3}};
    ret;
}}
"""
OPERANDS = "{%d0, %d1, %d2, %d3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%c0, %c1, %c2, %c3}"


def run(instruction, a_bytes, b_bytes, c, scale_a=None, scale_b=None, *, target="sm_120a", arithmetic="exact"):
    """D (16, 8) float32 of the instruction; a_bytes (16, 32) and b_bytes (8, 32) along K, scales as one word per lane."""
    words = numpy.zeros((32, 12), U32)
    for lane in range(32):
        row, quad = divmod(lane, 4)
        for i in range(4):
            at = 4 * quad + 16 * (i // 2)
            words[lane, i] = a_bytes[row + 8 * (i % 2), at : at + 4].copy().view(U32)[0]
        for i in range(2):
            at = 4 * quad + 16 * i
            words[lane, 4 + i] = b_bytes[row, at : at + 4].copy().view(U32)[0]
        if scale_a is not None:
            words[lane, 6], words[lane, 7] = scale_a[lane], scale_b[lane]
        for j in range(4):
            words[lane, 8 + j] = c[row + 8 * (j // 2), 2 * quad + j % 2 : 2 * quad + j % 2 + 1].view(U32)[0]
    gpu = Device(arch=target, arithmetic=arithmetic)
    out = gpu.alloc(512)
    report = gpu.launch(Module(TEXT.format(target=target, body=instruction)), "kernel", 1, 32, params=[gpu.alloc(words), out])
    assert report.ok, str(report)
    lanes = gpu.read(out, (32, 4), numpy.float32)
    d = numpy.empty((16, 8), numpy.float32)
    for lane in range(32):
        for j in range(4):
            d[lane // 4 + 8 * (j // 2), 2 * (lane % 4) + j % 2] = lanes[lane, j]
    return d


def small_codes(rng, format, *shape):
    return number_formats.encode(format, rng.integers(-3, 4, shape) * 1.0, "rn", satfinite=True).astype(numpy.uint8)


def containers(format, codes):
    """One byte per element: e2m1 in the middle four bits, six-bit types in the lower six; the rest is rubbish."""
    if format is number_formats.E2M1:
        return (codes << 2 | 0xC1).astype(numpy.uint8)
    return (codes | 0xC0).astype(numpy.uint8) if format.bits == 6 else codes


@pytest.fixture
def rng():
    return numpy.random.default_rng(21)


@pytest.fixture
def c(rng):
    return rng.integers(-50, 50, (16, 8)).astype(numpy.float32)


PAIRS = [("e4m3", "e5m2"), ("e2m1", "e4m3"), ("e3m2", "e2m3"), ("e2m1", "e2m1"), ("e5m2", "e2m1")]


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("a_name", "b_name"), PAIRS)
def test_mixed_types_lie_in_bytes(rng, c, a_name, b_name, arithmetic):
    fa, fb = number_formats.FORMATS[a_name], number_formats.FORMATS[b_name]
    a, b = small_codes(rng, fa, 16, 32), small_codes(rng, fb, 8, 32)
    d = run(
        f"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.{a_name}.{b_name}.f32 {OPERANDS};",
        containers(fa, a),
        containers(fb, b),
        c,
        arithmetic=arithmetic,
    )
    numpy.testing.assert_array_equal(d, number_formats.decode(fa, a) @ number_formats.decode(fb, b).T + c)


def scale_words(rng, table_a, table_b, byte_a, thread_a, byte_b, thread_b):
    """A word per lane for each operand; every byte that the selectors do not name is rubbish."""
    words_a, words_b = (rng.integers(0, 1 << 32, 32, dtype=numpy.uint64).astype(U32) for _ in range(2))
    bytes_a, bytes_b = words_a.view(numpy.uint8).reshape(32, 4), words_b.view(numpy.uint8).reshape(32, 4)
    count = table_a.shape[1]
    for row in range(16):  # rows 0-7 in the first, rows 8-15 in the second lane of the selected pair of each quad
        bytes_a[4 * (row % 8) + 2 * thread_a + row // 8, byte_a : byte_a + count] = table_a[row]
    for column in range(8):
        bytes_b[4 * column + thread_b, byte_b : byte_b + count] = table_b[column]
    return words_a, words_b


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("byte_a", "thread_a", "byte_b", "thread_b"), [(0, 0, 0, 0), (3, 1, 2, 3), (1, 0, 3, 2)])
@pytest.mark.parametrize(("a_name", "b_name"), PAIRS[:3])
def test_one_scale_per_row_comes_from_the_selected_lane_and_byte(rng, c, a_name, b_name, byte_a, thread_a, byte_b, thread_b, arithmetic):
    fa, fb = number_formats.FORMATS[a_name], number_formats.FORMATS[b_name]
    a, b = small_codes(rng, fa, 16, 32), small_codes(rng, fb, 8, 32)
    table_a, table_b = rng.integers(125, 130, (16, 1)), rng.integers(125, 130, (8, 1))
    words = scale_words(rng, table_a, table_b, byte_a, thread_a, byte_b, thread_b)
    d = run(
        f"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.{a_name}.{b_name}.f32.ue8m0 {OPERANDS}, "
        f"%r6, {{{byte_a}, {thread_a}}}, %r7, {{{byte_b}, {thread_b}}};",
        containers(fa, a), containers(fb, b), c, *words, arithmetic=arithmetic,
    )  # fmt: skip
    left, right = number_formats.decode(fa, a) * 2.0 ** (table_a - 127.0), number_formats.decode(fb, b) * 2.0 ** (table_b - 127.0)
    numpy.testing.assert_array_equal(d, left @ right.T + c)


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(
    ("qualifiers", "scale_name", "count", "byte"),
    [
        ("kind::mxf4.block_scale", "ue8m0", 2, 2),
        ("kind::mxf4.block_scale.scale_vec::2X", "ue8m0", 2, 0),
        ("kind::mxf4nvf4.block_scale.scale_vec::2X", "ue8m0", 2, 0),
        ("kind::mxf4nvf4.block_scale.scale_vec::4X", "ue8m0", 4, 0),
        ("kind::mxf4nvf4.block_scale.scale_vec::4X", "ue4m3", 4, 0),
    ],
)
def test_fp4_blocks_have_their_scales_along_k(rng, c, qualifiers, scale_name, count, byte, arithmetic):
    scale = number_formats.FORMATS[scale_name]
    a, b = small_codes(rng, number_formats.E2M1, 16, 64), small_codes(rng, number_formats.E2M1, 8, 64)
    low, high = (125, 130) if scale_name == "ue8m0" else (0x30, 0x48)
    table_a, table_b = rng.integers(low, high, (16, count)), rng.integers(low, high, (8, count))
    words = scale_words(rng, table_a, table_b, byte, 1, byte, 2)
    pack = lambda codes: (codes[:, 0::2] | codes[:, 1::2] << 4).astype(numpy.uint8)  # noqa: E731
    d = run(
        f"mma.sync.aligned.m16n8k64.row.col.{qualifiers}.f32.e2m1.e2m1.f32.{scale_name} {OPERANDS}, %r6, {{{byte}, 1}}, %r7, {{{byte}, 2}};",
        pack(a), pack(b), c, *words, arithmetic=arithmetic,
    )  # fmt: skip
    left = number_formats.decode(number_formats.E2M1, a) * numpy.repeat(number_formats.decode(scale, table_a), 64 // count, axis=1)
    right = number_formats.decode(number_formats.E2M1, b) * numpy.repeat(number_formats.decode(scale, table_b), 64 // count, axis=1)
    numpy.testing.assert_array_equal(d, left @ right.T + c)


def one_code(value):
    return int(number_formats.encode(number_formats.E4M3, numpy.array([value]), "rn", satfinite=True)[0])


def test_fp8_is_one_sum_on_sm_120_and_two_f16_sums_on_sm_90():
    """2^16 and -2^16 at k = 0 and 1 cancel; 2^-11 at k = 2 is 27 places below them. In one sum it is cut off, after the first half it is alone."""
    a, b = numpy.zeros((16, 32), numpy.uint8), numpy.zeros((8, 32), numpy.uint8)
    a[0, :3] = one_code(256.0), one_code(256.0), one_code(2.0**-6)
    b[0, :3] = one_code(256.0), one_code(-256.0), one_code(2.0**-5)
    c = numpy.zeros((16, 8), numpy.float32)
    text = f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {OPERANDS};"
    assert run(text, a, b, c, arithmetic="hw")[0, 0] == 0.0
    assert run(text, a, b, c, target="sm_90a", arithmetic="hw")[0, 0] == 2.0**-11


def test_c_is_added_after_the_sum_only_where_fp8_is_made_of_f16():
    """2^24 + 1.5 lies between 2^24 and 2^24 + 2: the tensor core's sum is truncated, the separate addition rounds to nearest."""
    a, b = numpy.zeros((16, 32), numpy.uint8), numpy.zeros((8, 32), numpy.uint8)
    a[0, 0], b[0, 0] = one_code(1.5), one_code(1.0)
    c = numpy.zeros((16, 8), numpy.float32)
    c[0, 0] = 2.0**24
    text = f"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {OPERANDS};"
    assert run(text, a, b, c, arithmetic="hw")[0, 0] == 2.0**24  # truncated
    assert run(text, a, b, c, target="sm_90a", arithmetic="hw")[0, 0] == 2.0**24 + 2  # rounded to nearest


@pytest.mark.parametrize(
    "instruction",
    [
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.f32.e2m1.e2m1.f32.ue4m3",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue8m0",
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue4m3",
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f16.e4m3.e4m3.f16.ue8m0",
    ],
)
def test_scale_forms_that_do_not_exist_are_refused(instruction, rng, c):
    with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+"):
        run(
            f"{instruction} {OPERANDS}, %r6, {{0, 0}}, %r7, {{0, 0}};",
            numpy.zeros((16, 32), numpy.uint8),
            numpy.zeros((8, 32), numpy.uint8),
            c,
            [0] * 32,
            [0] * 32,
        )


@pytest.mark.parametrize(
    "text",
    [
        "m16n8k16.row.row.f32.f16.f16.f32",
        "m16n8k32.row.col.f32.e2m1.e2m1.f32",
        "m8n8k4.row.col.f32.f16.f16.f16",
        "m16n8k16.row.col.f32.f16.f16.f16",
    ],
)
def test_other_shapes_and_layouts_are_refused(text, c):
    with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+"):
        run(f"mma.sync.aligned.{text} {OPERANDS};", numpy.zeros((16, 32), numpy.uint8), numpy.zeros((8, 32), numpy.uint8), c)


def test_a_selector_outside_its_range_is_reported(rng, c):
    words = [0] * 32
    with pytest.raises(AssertionError, match="thread-id-a"):
        run(
            f"mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0 {OPERANDS}, %r6, {{0, 2}}, %r7, {{0, 0}};",
            numpy.zeros((16, 32), numpy.uint8), numpy.zeros((8, 32), numpy.uint8), c, words, words,
        )  # fmt: skip


# ---- m8n8k4 of halves: the manual's formulas, lane by lane
def factor_place(lane, i, along):
    """(row of A or column of B, k) of half i."""
    upper = 4 * (lane >= 16)
    return (lane % 4 + upper, i) if along else (i + upper, lane % 4)


def sum_place(lane, i, result):
    """(row, column) of number i of C and D."""
    upper = 4 * (lane >= 16)
    return (lane % 4 + upper, i) if result == "f16" else ((lane & 1) + (i & 2) + upper, (i & 4) + (lane & 2) + (i & 1))


def of_lanes(layouts, result, halves, sums, arithmetic=None):
    """(32, 8) numbers of D; halves: of A and B, sums: of C, eight a lane."""
    count = 4 if result == "f16" else 8
    names = ["{" + ", ".join(f"%{letter}{k}" for k in range(count)) + "}" for letter in "dc"]
    loads = "".join(f"ld.global.b32 %c{k}, [s+{4 * k}];\n" for k in range(count))
    stores = "".join(f"st.global.b32 [s+{4 * k}], %d{k};\n" for k in range(count))
    text = f"""
.version 9.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 factors, .param .u64 sums) {{
    .reg .b32 %r<4>, %c<8>, %d<8>, lane;
    .reg .b64 g, s, step;
    mov.u32 lane, %tid.x;
    ld.param.u64 g, [factors]; mul.wide.u32 step, lane, 16; add.u64 g, g, step;
    ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [g];
    ld.param.u64 s, [sums]; mul.wide.u32 step, lane, {4 * count}; add.u64 s, s, step;
    {loads}
    mma.sync.aligned.m8n8k4.{layouts}.{result}.f16.f16.{result} {names[0]}, {{%r0, %r1}}, {{%r2, %r3}}, {names[1]};
    {stores}
    ret;
}}"""
    gpu = Device(arch="sm_90a", arithmetic=arithmetic)
    memory = gpu.alloc(sums)
    report = gpu.launch(Module(text), "kernel", 1, 32, params=[gpu.alloc(halves), memory])
    assert report.ok, str(report)
    return gpu.read(memory, (32, 8), sums.dtype)


@pytest.mark.parametrize("result", ["f16", "f32"])
@pytest.mark.parametrize("layouts", ["row.col", "row.row", "col.col", "col.row"])
def test_four_products_of_quad_pairs_stay_apart(layouts, result):
    rng, (of_a, of_b) = numpy.random.default_rng(3), layouts.split(".")
    a, b = (rng.integers(-8, 9, (4, 8, 4)).astype(numpy.float16) for _ in range(2))
    dtype = numpy.float16 if result == "f16" else numpy.float32
    c = rng.integers(-8, 9, (4, 8, 8)).astype(dtype)
    halves, sums = numpy.zeros((32, 8), numpy.float16), numpy.zeros((32, 8), dtype)
    for lane in range(32):
        pair = lane % 16 // 4
        for i in range(4):
            halves[lane, i] = a[pair][factor_place(lane, i, of_a == "row")]
            halves[lane, 4 + i] = b[pair][factor_place(lane, i, of_b == "col")]
        for i in range(8):
            sums[lane, i] = c[pair][sum_place(lane, i, result)]
    found = of_lanes(layouts, result, halves, sums)
    expected = a.astype(float) @ b.astype(float).swapaxes(1, 2) + c
    for lane in range(32):
        for i in range(8):
            assert found[lane, i] == expected[lane % 16 // 4][sum_place(lane, i, result)]


QUADS = numpy.load(pathlib.Path(__file__).parent / "hardware" / "vectors" / "sm_90_m8n8k4.npz")


def test_sums_of_quad_pairs_have_the_bits_of_an_h200():
    found = of_lanes("row.col", "f32", QUADS["factors"], QUADS["sums"])
    numpy.testing.assert_array_equal(found.view(numpy.uint32), QUADS["gpu"])
    exact = of_lanes("row.col", "f32", QUADS["factors"], QUADS["sums"], "exact")
    assert (exact.view(numpy.uint32) != QUADS["gpu"]).sum() == 61


def test_sums_of_quad_pairs_in_halves_are_rounded_as_the_compiler_orders_them():
    """C + 2 ** 26 is a number of f32 without the 1 of C, and - 2 ** 26 leaves nothing."""
    halves, sums = numpy.zeros((32, 8), numpy.float16), numpy.ones((32, 8), numpy.float16)
    halves[:, :4], halves[:, 4:] = [8192, 0, 8192, 0], [8192, 0, -8192, 0]
    assert (of_lanes("row.col", "f16", halves, sums) == 0).all()
    assert (of_lanes("row.col", "f16", halves, sums, "exact") == 1).all()

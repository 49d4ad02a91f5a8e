"""Forms that compilers emit and zoo's kernels do not have: against the same arithmetic in numpy, exactly."""

import operator
from fractions import Fraction

import numpy as np
import pytest
from core_support import kernel, kinds, lanes, launch

from zoo import emulator
from zoo.emulator import ParseError, UnsupportedInstruction, number_formats
from zoo.emulator.errors import LaunchError

RNG = np.random.default_rng(61)
SOURCE = r"""
#include <alloca.h>
#include <cooperative_groups.h>
#include <mma.h>
namespace cg = cooperative_groups;
using namespace nvcuda;

// Each CTA adds what all CTAs wrote before the barrier of the grid, twice.
extern "C" __global__ void grid_sums(unsigned* sums, unsigned* words) {
    cg::grid_group grid = cg::this_grid();
    for (int turn = 0; turn < 2; ++turn) {
        if (threadIdx.x == 0) words[blockIdx.x] = 10 * turn + blockIdx.x;
        grid.sync();
        if (threadIdx.x == 0)
            for (int i = 0; i < gridDim.x; ++i) sums[blockIdx.x] += words[i];
        grid.sync();
    }
}

// A tile of two warps meets in reserved shared memory.
extern "C" __global__ void tile_of_two_warps(unsigned* out) {
    __shared__ cg::block_tile_memory<128> scratch;
    __shared__ unsigned row[128];
    cg::thread_block block = cg::this_thread_block(scratch);
    auto tile = cg::tiled_partition<64>(block);
    row[threadIdx.x] = threadIdx.x;
    tile.sync();
    out[threadIdx.x] = row[threadIdx.x ^ 32];
}

template <typename Factor, typename Sum, int M, int N, int K, typename Stored>
__device__ void product(const Stored* a, const Stored* b, const Sum* c, Sum* d) {
    wmma::fragment<wmma::matrix_a, M, N, K, Factor, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, M, N, K, Factor, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::load_matrix_sync(left, a, K);
    wmma::load_matrix_sync(right, b, K);
    wmma::load_matrix_sync(sum, c, N, wmma::mem_row_major);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= Sum(2);
    wmma::mma_sync(sum, left, right, sum);
    wmma::store_matrix_sync(d, sum, M, wmma::mem_col_major);
}
#define PRODUCT(NAME, FACTOR, SUM, M, N, K, STORED) \
    extern "C" __global__ void NAME(const STORED* a, const STORED* b, const SUM* c, SUM* d) { product<FACTOR, SUM, M, N, K>(a, b, c, d); }
PRODUCT(f16_f32, half, float, 16, 16, 16, half)
PRODUCT(f16_f16, half, half, 32, 8, 16, half)
PRODUCT(bf16_f32, __nv_bfloat16, float, 8, 32, 16, __nv_bfloat16)
PRODUCT(tf32_f32, wmma::precision::tf32, float, 16, 16, 8, float)
PRODUCT(s8_s32, signed char, int, 32, 8, 16, signed char)
PRODUCT(u8_s32, unsigned char, int, 8, 32, 16, unsigned char)
PRODUCT(f64_f64, double, double, 8, 8, 4, double)
PRODUCT(s4_s32, wmma::experimental::precision::s4, int, 8, 8, 32, unsigned)
PRODUCT(u4_s32, wmma::experimental::precision::u4, int, 8, 8, 32, unsigned)

// How many bits are set in both, and how many differ.
extern "C" __global__ void bits(const unsigned* a, const unsigned* b, int* both, int* different) {
    wmma::fragment<wmma::matrix_a, 8, 8, 128, wmma::experimental::precision::b1, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 8, 8, 128, wmma::experimental::precision::b1, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 8, 8, 128, int> zero, sum;
    wmma::load_matrix_sync(left, a, 256);
    wmma::load_matrix_sync(right, b, 128);
    wmma::fill_fragment(zero, 0);
    wmma::bmma_sync(sum, left, right, zero, wmma::experimental::bmmaBitOpAND);
    wmma::store_matrix_sync(both, sum, 8, wmma::mem_row_major);
    wmma::bmma_sync(sum, left, right, zero, wmma::experimental::bmmaBitOpXOR);
    wmma::store_matrix_sync(different, sum, 8, wmma::mem_row_major);
}

// C and D of two types.
template <typename Of, typename Into>
__device__ void mixed(const half* a, const half* b, const Of* c, Into* d) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, Of> sum;
    wmma::fragment<wmma::accumulator, 16, 16, 16, Into> result;
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::load_matrix_sync(sum, c, 16, wmma::mem_row_major);
    wmma::mma_sync(result, left, right, sum);
    wmma::store_matrix_sync(d, result, 16, wmma::mem_row_major);
}

// Room whose size is an argument, in the kernel and in a function that gives it back.
__device__ __noinline__ int sum_in_room(int count) {
    int* room = static_cast<int*>(alloca(count * sizeof(int)));
    for (int i = 0; i < count; ++i) room[i] = i;
    int sum = 0;
    for (int i = count; i--;) sum += room[i * 7 % count];
    return sum;
}
extern "C" __global__ void rooms(int* out, int count) {
    int* room = static_cast<int*>(alloca(count * sizeof(int)));
    for (int i = 0; i < count; ++i) room[i] = threadIdx.x % 2 ? sum_in_room(i + 1) : i;
    int sum = 0;
    for (int i = 0; i < count; ++i) sum += room[i];
    out[threadIdx.x] = sum;
}
extern "C" __global__ void f16_to_f32(const half* a, const half* b, const half* c, float* d) { mixed(a, b, c, d); }
extern "C" __global__ void f32_to_f16(const half* a, const half* b, const float* c, half* d) { mixed(a, b, c, d); }
"""


@pytest.fixture(scope="module")
def module(compile_ptx, tmp_path_factory):
    source = tmp_path_factory.mktemp("rarer") / "rarer_forms.cu"
    source.write_text(SOURCE)
    return emulator.Module(compile_ptx(source, "sm_90a"), whole=False)


# ---- cooperative groups ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheduling", ["issue", "random"])
def test_a_cooperative_grid_meets(module, scheduling):
    gpu = emulator.Device(scheduling=scheduling)
    sums, words = gpu.alloc(np.zeros(5, np.uint32)), gpu.alloc(20)
    report = gpu.launch(module, "grid_sums", 5, 64, params=[sums, words], cooperative=True)
    assert report.ok, report
    assert gpu.read(sums, 5, np.uint32).tolist() == [10 + 60] * 5
    assert "trap" in kinds(gpu.launch(module, "grid_sums", 5, 64, params=[sums, words]))
    with pytest.raises(LaunchError, match="cooperative"):
        gpu.launch(module, "grid_sums", 1 << 16, 64, params=[sums, words], cooperative=True)


def test_a_tile_of_two_warps_meets_in_reserved_shared_memory(module):
    gpu = emulator.Device()
    out = gpu.alloc(512)
    report = gpu.launch(module, "tile_of_two_warps", 1, 128, params=[out])
    assert report.ok, report
    assert gpu.read(out, 128, np.uint32).tolist() == [thread ^ 32 for thread in range(128)]
    late = "mov.u32 %r1, {}; st.shared.u32 [%r1], %r0; mov.u32 %r2, %reserved_smem_offset_1; st.shared.u32 [%r2{}], %r0;"
    assert kinds(launch(kernel("mov.u32 %r2, 512; st.shared.u32 [%r2], %r0;", parameters=0), block=1)) == {"out-of-bounds"}
    assert kinds(launch(kernel(late.format("%reserved_smem_offset_1", "+284"), parameters=0), block=1)) == set()
    assert kinds(launch(kernel(late.format("%reserved_smem_offset_1", "+288"), parameters=0), block=1)) == {"out-of-bounds"}


# ---- matrices ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("name", "m", "n", "k", "stored", "result"), [
    ("f16_f32", 16, 16, 16, "f2", "f4"), ("f16_f16", 32, 8, 16, "f2", "f2"), ("bf16_f32", 8, 32, 16, "bf16", "f4"),
    ("tf32_f32", 16, 16, 8, "f4", "f4"), ("s8_s32", 32, 8, 16, "i1", "i4"), ("u8_s32", 8, 32, 16, "u1", "i4"),
    ("f64_f64", 8, 8, 4, "f8", "f8"), ("s4_s32", 8, 8, 32, "s4", "i4"), ("u4_s32", 8, 8, 32, "u4", "i4"),
])  # fmt: skip
def test_wmma_is_a_product(module, name, m, n, k, stored, result, arithmetic):
    low = 0 if stored in ("u1", "u4") else -4
    a, b, c = (RNG.integers(low, 5, shape) for shape in ((m, k), (n, k), (m, n)))

    def bits(matrix):
        if stored == "bf16":
            return number_formats.encode(number_formats.BF16, matrix.astype(float), "rn").astype(np.uint16)
        if stored in ("s4", "u4"):
            return (matrix[:, 0::2] & 15 | (matrix[:, 1::2] & 15) << 4).astype(np.uint8)
        return matrix.astype(stored)

    gpu = emulator.Device(arithmetic=arithmetic)
    d = gpu.alloc(m * n * np.dtype(result).itemsize)
    report = gpu.launch(module, name, 1, 32, params=[gpu.alloc(bits(a)), gpu.alloc(bits(b)), gpu.alloc(c.astype(result)), d])
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(d, (n, m), result).T, a @ b.T + 2 * c)


def test_wmma_of_bits_counts_those_set_in_both_and_those_that_differ(module):
    a, b = RNG.integers(0, 2, (8, 256)), RNG.integers(0, 2, (8, 128))  # rows of A are 256 bits apart
    packed = [np.packbits(matrix.astype(np.uint8), axis=1, bitorder="little") for matrix in (a, b)]
    gpu = emulator.Device()
    both, different = gpu.alloc(256), gpu.alloc(256)
    report = gpu.launch(module, "bits", 1, 32, params=[*map(gpu.alloc, packed), both, different])
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(both, (8, 8), np.int32), a[:, :128] @ b.T)
    np.testing.assert_array_equal(gpu.read(different, (8, 8), np.int32), (a[:, None, :128] != b[None]).sum(axis=2))


@pytest.mark.parametrize("arithmetic", ["exact", "hw"])
@pytest.mark.parametrize(("name", "of", "into"), [("f16_to_f32", "f2", "f4"), ("f32_to_f16", "f4", "f2")])
def test_wmma_adds_to_sums_of_another_type(module, name, of, into, arithmetic):
    a, b = RNG.integers(-4, 5, (2, 16, 16)).astype("f2")
    c = (RNG.integers(-40, 40, (16, 16)) / 8).astype(of)
    gpu = emulator.Device(arithmetic=arithmetic)
    d = gpu.alloc(256 * np.dtype(into).itemsize)
    report = gpu.launch(module, name, 1, 32, params=[gpu.alloc(a), gpu.alloc(b), gpu.alloc(c), d])
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(d, (16, 16), into), (a.astype(float) @ b.T.astype(float) + c).astype(into))


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_mma_of_f64_rounds_each_step_along_k(m, k):
    a, b, c = (RNG.standard_normal(shape) for shape in ((m, k), (8, k), (m, 8)))
    counts = {"a": m * k // 32, "b": 8 * k // 32, "c": m * 8 // 32}
    first = {"a": 0, "b": counts["a"], "c": counts["a"] + counts["b"]}
    lane = np.arange(32)
    places = {
        "a": [(lane // 4 + 8 * (i % (m // 8)), lane % 4 + 4 * (i // (m // 8))) for i in range(counts["a"])],
        "b": [(lane // 4, lane % 4 + 4 * i) for i in range(counts["b"])],
        "c": [(lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2) for i in range(counts["c"])],
    }
    image = np.stack([matrix[rows, columns] for name, matrix in (("a", a), ("b", b), ("c", c)) for rows, columns in places[name]])
    total = sum(counts.values())
    registers = {name: "{" + ", ".join(f"%fd{first[name] + i}" for i in range(counts[name])) + "}" for name in counts}
    body = ".reg .f64 %x<2>; mul.wide.u32 %rd10, %r0, 8; add.s64 %rd11, %rd1, %rd10; add.s64 %rd10, %rd0, %rd10;"
    body = body + "".join(f"ld.global.f64 %fd{i}, [%rd11+{256 * i}];" for i in range(total))
    body += f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64 {registers['c']}, {registers['a']}, {registers['b']}, {registers['c']};"
    body += "".join(f"st.global.f64 [%rd10+{256 * i}], %fd{first['c'] + i};" for i in range(counts["c"]))
    gpu = emulator.Device()
    y = gpu.alloc(256 * counts["c"])
    report = launch(kernel(body).replace("%fd<16>", "%fd<32>"), device=gpu, params=[y, gpu.alloc(image)])
    assert report.ok, report
    got, expected = np.empty((m, 8)), c.copy()
    for (rows, columns), values in zip(places["c"], gpu.read(y, (counts["c"], 32), np.float64), strict=True):
        got[rows, columns] = values
    for row, column, depth in np.ndindex(m, 8, k):  # exact products and sums, rounded once a step
        step = Fraction(a[row, depth]) * Fraction(b[column, depth]) + Fraction(expected[row, column])
        expected[row, column] = float(step)
    np.testing.assert_array_equal(got, expected)


# ---- f32 with halves ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("type", ["f16", "bf16"])
@pytest.mark.parametrize("operation", ["add.rn", "add", "sub.rz", "fma.rn", "add.rn.sat"])
def test_f32_arithmetic_takes_halves(operation, type):
    format = number_formats.F16 if type == "f16" else number_formats.BF16
    codes = number_formats.encode(format, RNG.standard_normal((2, 32)), "rn").astype(np.uint32)
    c = RNG.standard_normal(32).astype(np.float32)
    name, _, modifiers = operation.partition(".")
    factors = "%h1, %h2" if name == "fma" else "%h1"
    body = f"cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; {name}{'.' if modifiers else ''}{modifiers}.f32.{type} %f9, {factors}, %f3; mov.b32 %r40, %f9;"
    got, report = lanes(body, codes[0], codes[1], c, output=np.uint32)
    assert report.ok, report
    x, y = (number_formats.decode(format, row) for row in codes)
    exact = {"add": x + c, "sub": x - c, "fma": x * y + c}[name]  # exact in f64: the halves have 8 or 11 bits
    if "sat" in modifiers:
        exact = np.clip(exact, 0, 1)
    expected = number_formats.encode(number_formats.F32, exact, "rz" if "rz" in modifiers else "rn")
    np.testing.assert_array_equal(got, expected.astype(np.uint32))


@pytest.mark.parametrize("type", ["f16", "bf16", "f16x2", "bf16x2"])
@pytest.mark.parametrize("modifiers", ["rn.oob", "rn.oob.relu"])
def test_a_factor_out_of_bounds_makes_the_sum_zero(modifiers, type):
    """Other NaNs stay NaN, and so does a sum of which only the addend is out of bounds."""
    format = number_formats.F16 if type.startswith("f16") else number_formats.BF16
    two, three = number_formats.encode(format, np.array([2.0, -3.0]), "rn").tolist()
    outside, other = 0x7FF7, 0x7FFF
    cases = [
        (outside, three, two),
        (two, outside, three),
        (outside, other, other),
        (two, three, two),
        (other, two, two),
        (two, two, outside),
    ]
    operands = np.array([cases[lane % len(cases)] for lane in range(32)], np.uint32).T
    expected = [0.0, 0.0, 0.0, 0.0 if "relu" in modifiers else -4.0, np.nan, np.nan]
    if type.endswith("x2"):  # the other half is 2 * -3 + 2
        operands = operands | np.array([two, three, two], np.uint32)[:, None] << 16
        body = f"fma.{modifiers}.{type} %r40, %r1, %r2, %r3;"
    else:
        body = (
            "".join(f"cvt.u16.u32 %h{i}, %r{i};" for i in (1, 2, 3)) + f"fma.{modifiers}.{type} %h4, %h1, %h2, %h3; cvt.u32.u16 %r40, %h4;"
        )
    got, report = lanes(body, *operands)
    assert report.ok, report
    np.testing.assert_array_equal(number_formats.decode(format, got & 0xFFFF), [expected[lane % len(cases)] for lane in range(32)])
    if type.endswith("x2"):
        assert set(number_formats.decode(format, got >> 16).tolist()) == {expected[3]}
    with pytest.raises(UnsupportedInstruction, match=r"\.oob and \.ftz"):
        lanes(body.replace(".oob", ".oob.ftz"), *operands)


# ---- rounding in every direction ---------------------------------------------------------------------------------------
EXACT = {
    "add": lambda a, b, c: a + b, "sub": lambda a, b, c: a - b, "mul": lambda a, b, c: a * b, "fma": lambda a, b, c: a * b + c, "div": lambda a, b, c: a / b,
    "rcp": lambda a, b, c: 1 / a, "sqrt": lambda a, b, c: a,
}  # fmt: skip


@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("rounding", ["rz", "rm", "rp"])
@pytest.mark.parametrize("operation", list(EXACT))
def test_results_are_rounded_in_the_direction_that_is_named(operation, rounding, type):
    """Between the result and the exact value, on the side that is named, lies no other number. Some results are exact."""
    dtype = np.float32 if type == "f32" else np.float64
    operands = (RNG.standard_normal((3, 32)) * 2.0 ** RNG.integers(-4, 5, (3, 32))).astype(dtype)
    operands[0, :4], operands[1, :4], operands[2, :4] = 4, (1, 2, 4, -8), -16
    if operation == "sqrt":
        operands = np.abs(operands)
    a, b, c = operands
    count = {"fma": 3, "rcp": 1, "sqrt": 1}.get(operation, 2)
    prefix = "f" if type == "f32" else "fd"
    loads = "" if type == "f32" else "".join(f"mov.b64 %fd{i}, %rd{7 + i};" for i in range(1, 4))
    body = f"{loads} {operation}.{rounding}.{type} %{prefix}9, {', '.join(f'%{prefix}{i}' for i in range(1, 1 + count))};"
    body += "mov.b32 %r40, %f9;" if type == "f32" else "mov.b64 %rd20, %fd9;"
    got, report = lanes(
        body, *(x if type == "f32" else x.view(np.uint64) for x in (a, b, c)), output=np.uint32 if type == "f32" else np.uint64
    )
    assert report.ok, report
    for lane, found in enumerate(got.view(dtype)):
        exact = EXACT[operation](*(Fraction(float(x[lane])) for x in (a, b, c)))
        low, high = (Fraction(float(np.nextafter(found, dtype(side)))) for side in (-np.inf, np.inf))
        value = Fraction(float(found))
        if operation == "sqrt":
            low, value, high = low**2, value**2, high**2
        down = rounding == "rm" or (rounding == "rz" and exact > 0)
        assert value <= exact < high if down else low < exact <= value


def test_a_difference_of_equal_numbers_is_a_negative_zero_downward():
    zero = np.full(32, 1.5)
    for rounding, bits in (("rm", 1 << 63), ("rz", 0), ("rp", 0)):
        got, _ = lanes(
            f"mov.b64 %fd1, %rd8; sub.{rounding}.f64 %fd2, %fd1, %fd1; mov.b64 %rd20, %fd2;", zero.view(np.uint64), output=np.uint64
        )
        assert set(got.tolist()) == {bits}


@pytest.mark.parametrize(
    ("operation", "expected"), [("rcp.approx.ftz.f64", lambda x: 1 / x), ("rsqrt.approx.f64", lambda x: 1 / np.sqrt(x))]
)
def test_approximations_of_f64_have_twenty_bits_in_the_upper_half(operation, expected):
    x = np.abs(RNG.standard_normal(32)) + 2.0**-20
    got, report = lanes(f"mov.b64 %fd1, %rd8; {operation} %fd2, %fd1; mov.b64 %rd20, %fd2;", x.view(np.uint64), output=np.uint64)
    assert report.ok and not (got & 0xFFFFFFFF).any()
    np.testing.assert_allclose(got.view(np.float64), expected(x), rtol=2.0**-20)


# ---- small forms -------------------------------------------------------------------------------------------------------
def test_forms_of_comparisons_bytes_and_events():
    a, b = RNG.integers(0, 1 << 32, (2, 32), dtype=np.uint32)
    c = np.arange(32, dtype=np.uint32) % 2
    odd = "setp.ne.u32 %p1, %r3, 0; "
    for body, expected in {
        "set.lt.and.u32.u32 %r40, %r1, %r2, %p1;": np.where((a < b) & (c == 1), 0xFFFFFFFF, 0),
        "set.lt.or.u32.u32 %r40, %r1, %r2, !%p1;": np.where((a < b) | (c == 0), 0xFFFFFFFF, 0),
        "vabsdiff4.u32.u32.u32 %r40, %r1, %r2, %r1;": np.abs(a.view(np.uint8).astype(int) - b.view(np.uint8)).astype(np.uint8).view(np.uint32),
        "vabsdiff4.u32.s32.s32.add %r40, %r1, %r2, %r3;": np.abs(a.view(np.int8).astype(int) - b.view(np.int8)).reshape(32, 4).sum(axis=1) + c,
        "mov.f32 %f1, 0f80000001; slct.ftz.u32.f32 %r40, %r1, %r2, %f1;": a,
        "mov.f32 %f1, 0f80000001; slct.u32.f32 %r40, %r1, %r2, %f1;": b,
        "pmevent 1; mov.u32 %r40, %r1;": a,
        "mov.b32 %r4, 0x3C004000; setp.eq.xor.f16x2 %p2|%p3, %r4, 0x3C003C00, %p1; selp.u32 %r5, 1, 0, %p2; selp.u32 %r40, 2, 0, %p3; add.u32 %r40, %r40, %r5;": c + 2 * (1 - c),
    }.items():  # fmt: skip
        got, report = lanes(odd + body, a, b, c)
        assert report.ok, report
        np.testing.assert_array_equal(got, expected, body)


def parts_of(word, count, type):
    """The halves or bytes of a number, lowest first."""
    bits = 32 // count
    found = [word >> bits * k & (1 << bits) - 1 for k in range(count)]
    return [part - (1 << bits) if type == "s32" and part >> bits - 1 else part for part in found]


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("types", ["u32.u32.u32", "s32.s32.s32", "u32.s32.s32", "s32.u32.s32"])
def test_parts_of_registers_do_not_carry_into_each_other(types, count):
    operations = {
        "vadd": lambda a, b: a + b, "vsub": lambda a, b: a - b, "vabsdiff": lambda a, b: abs(a - b), "vmin": min, "vmax": max,
        "vavrg": lambda a, b: (a + b + 1) // 2 if a + b >= 0 else (a + b) // 2,
    }  # fmt: skip
    a, b, c = RNG.integers(0, 1 << 32, (3, 32), dtype=np.uint32)
    target, of_a, of_b = types.split(".")
    bits = 32 // count
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target == "s32" else (0, (1 << bits) - 1)
    for name, operation in operations.items():
        found = [
            [operation(x, y) for x, y in zip(parts_of(int(one), count, of_a), parts_of(int(two), count, of_b), strict=True)]
            for one, two in zip(a, b, strict=True)
        ]
        joined = [sum((part & (1 << bits) - 1) << bits * k for k, part in enumerate(parts)) for parts in found]
        clipped = [sum((min(max(part, low), high) & (1 << bits) - 1) << bits * k for k, part in enumerate(parts)) for parts in found]
        added = [(int(start) + sum(parts)) % (1 << 32) for start, parts in zip(c, found, strict=True)]
        for suffix, expected in (("", joined), (".sat", clipped), (".add", added)):
            got, report = lanes(f"{name}{count}.{types}{suffix} %r40, %r1, %r2, %r3;", a, b, c)
            assert report.ok, report
            np.testing.assert_array_equal(got, expected, name + suffix)


@pytest.mark.parametrize("count", [2, 4])
def test_comparisons_of_parts_give_1_in_each_part_where_they_hold(count):
    a, b, c = RNG.integers(0, 1 << 32, (3, 32), dtype=np.uint32)
    b[::4] = a[::4]
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        found = [
            [getattr(operator, name)(x, y) for x, y in zip(parts_of(int(one), count, "s32"), parts_of(int(two), count, "u32"), strict=True)]
            for one, two in zip(a, b, strict=True)
        ]
        got, report = lanes(f"vset{count}.s32.u32.{name} %r40, %r1, %r2, %r3;", a, b, c)
        assert report.ok
        np.testing.assert_array_equal(got, [sum(part << 32 // count * k for k, part in enumerate(parts)) for parts in found], name)
        got, _ = lanes(f"vset{count}.s32.u32.{name}.add %r40, %r1, %r2, %r3;", a, b, c)
        np.testing.assert_array_equal(got, [(int(start) + sum(parts)) % (1 << 32) for start, parts in zip(c, found, strict=True)], name)


@pytest.mark.parametrize(
    "text", ["vadd2.u32.u32.u32.sat.add %r1, %r2, %r3, %r1;", "vadd2.u32.u32 %r1, %r2, %r3, %r1;", "vadd.u32.u32.u32 %r1, %r2, %r3;"]
)
def test_video_instructions_on_single_values_or_with_wrong_modifiers_are_refused(text):
    with pytest.raises(UnsupportedInstruction, match="PTX line"):
        launch(kernel(text), params=[0, 0])


def test_halves_are_compared_and_signed_with_subnormals_flushed_or_kept():
    tiny, small = 0x0001, 0x0400  # the smallest subnormal and normal number of f16
    a = np.where(np.arange(32) % 2, tiny, small).astype(np.uint32)
    odd = np.arange(32) % 2 == 1
    start = "cvt.u16.u32 %h1, %r1; mov.b16 %h2, 0; mov.b32 %r2, {%h1, %h1}; mov.b32 %r3, 0;"
    for body, expected in {
        "abs.ftz.f16 %h3, %h1; cvt.u32.u16 %r40, %h3;": np.where(odd, 0, small),
        "neg.ftz.f16 %h3, %h1; cvt.u32.u16 %r40, %h3;": np.where(odd, 0x8000, small | 0x8000),
        "neg.ftz.f16x2 %r40, %r2;": np.where(odd, 0x80008000, 0x84008400),
        "setp.gt.ftz.f16 %p1, %h1, %h2; selp.u32 %r40, 1, 0, %p1;": ~odd,
        "setp.gt.f16 %p1, %h1, %h2; selp.u32 %r40, 1, 0, %p1;": odd | ~odd,
        "setp.gt.ftz.f16x2 %p1|%p2, %r2, %r3; selp.u32 %r40, 1, 0, %p2;": ~odd,
        "set.gt.ftz.f16.f16 %h3, %h1, %h2; cvt.u32.u16 %r40, %h3;": np.where(odd, 0, 0x3C00),
    }.items():  # fmt: skip
        got, report = lanes(start + body, a)
        assert report.ok, report
        np.testing.assert_array_equal(got, expected.astype(np.uint32), body)


def test_a_comparison_of_bf16_becomes_a_number():
    a = np.where(np.arange(32) % 2, 0x3F80, 0x7FC0).astype(np.uint32)  # 1 and NaN
    odd = np.arange(32) % 2 == 1
    for body, expected in {
        "set.eq.bf16.bf16 %h3, %h1, %h1; cvt.u32.u16 %r40, %h3;": np.where(odd, 0x3F80, 0),
        "set.neu.u32.bf16 %r40, %h1, %h1;": np.where(odd, 0, 0xFFFFFFFF),
        "set.equ.s16.bf16 %h3, %h1, %h1; cvt.u32.u16 %r40, %h3;": np.full(32, 0xFFFF),
    }.items():  # fmt: skip
        got, report = lanes("cvt.u16.u32 %h1, %r1;" + body, a)
        assert report.ok, report
        np.testing.assert_array_equal(got, expected.astype(np.uint32), body)


@pytest.mark.parametrize("type", ["u64", "s64"])
@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_integers_of_64_bits_become_f64_in_the_direction_that_is_named(rounding, type):
    """2^53 and above, where neighbours of f64 are 2 to 2048 apart."""
    edges = [0, 1, *(power + more for power in (1 << 53, 1 << 54, 1 << 63) for more in (-1, 0, 1, 3)), (1 << 64) - 1024, (1 << 64) - 1]
    x = np.array([*edges, *RNG.integers(1 << 54, 1 << 62, 32 - len(edges))], np.uint64)
    got, report = lanes(f"cvt.{rounding}.f64.{type} %fd1, %rd8; mov.b64 %rd20, %fd1;", x, output=np.uint64)
    assert report.ok, report
    for found, exact in zip(got.view(np.float64), x.view(np.int64 if type == "s64" else np.uint64).tolist(), strict=True):
        low, high = (Fraction(float(np.nextafter(found, side))) for side in (-np.inf, np.inf))
        value = Fraction(float(found))
        if rounding == "rn":
            assert abs(value - exact) <= min(abs(low - exact), abs(high - exact))
        else:
            assert value <= exact < high if rounding == "rm" or (rounding == "rz" and exact >= 0) else low < exact <= value


def test_halves_of_one_kind_become_the_other_by_the_nearest_without_being_told():
    codes = RNG.integers(0, 1 << 16, 32).astype(np.uint32)
    for pair in ("f16.bf16", "bf16.f16"):
        plain, named = (lanes(f"cvt.u16.u32 %h1, %r1; cvt{rn}.{pair} %h2, %h1; cvt.u32.u16 %r40, %h2;", codes)[0] for rn in ("", ".rn"))
        np.testing.assert_array_equal(plain, named)


ORDERS = [
    ("vote.sync.ballot.b32 %r40, %p1, -1;", "vote.ballot.sync.b32 %r40, %p1, -1;"),  # CUB's radix sort
    ("shfl.sync.up.b32 %r40, %r1, 3, 0, -1;", "shfl.up.sync.b32 %r40, %r1, 3, 0, -1;"),
    ("match.any.sync.b32 %r40, %r2, -1;", "match.sync.any.b32 %r40, %r2, -1;"), ("redux.sync.add.s32 %r40, %r1, -1;", "redux.add.sync.s32 %r40, %r1, -1;"),
    ("match.any.sync.b32 %r40, %r2, -1;", "match.b32.any.sync %r40, %r2, -1;"), ("cvt.sat.u8.u32 %r40, %r1;", "cvt.u8.sat.u32 %r40, %r1;"),
    ("cvt.rzi.ftz.s32.f32 %r40, %f1;", "cvt.ftz.s32.rzi.f32 %r40, %f1;"), ("cvt.rn.relu.bf16x2.f32 %r40, %f1, %f2;", "cvt.bf16x2.relu.f32.rn %r40, %f1, %f2;"),
    ("cp.async.ca.shared.global [%r3], [%rd2], 4;", "cp.async.shared.global.ca [%r3], [%rd2], 4;"),
]  # fmt: skip


@pytest.mark.parametrize(("plain", "other"), ORDERS)
def test_modifiers_may_stand_in_another_order(plain, other):
    a = RNG.integers(0, 1 << 32, 32, dtype=np.uint32)
    start = "and.b32 %r2, %r1, 3; setp.ne.u32 %p1, %r2, 0; mov.b32 %f1, %r1; neg.f32 %f2, %f1;"
    if plain.startswith("cp.async"):
        start += ".shared .align 4 .b32 row[32]; mov.u32 %r3, row; mad.lo.u32 %r3, %r0, 4, %r3; mad.wide.u32 %rd2, %r0, 4, %rd1;"
        plain, other = (body + "cp.async.wait_all; ld.shared.u32 %r40, [%r3];" for body in (plain, other))
    first, second = (lanes(start + body, a) for body in (plain, other))
    assert first[1].ok and second[1].ok
    np.testing.assert_array_equal(first[0], second[0])


def test_ptxas_takes_other_orders_and_expressions(compiler, tmp_path):
    forms = [body for pair in ORDERS for body in pair] + [
        "mov.u32 %r40, (1<<4)-1;",
        "ld.global.u32 %r40, [%rd2+4*(7-3)];",
        "add.u32 %r40, %r1, ~6&12/5;",
    ]
    source = tmp_path / "orders.ptx"
    source.write_text(kernel("\n".join(forms)))
    assert compiler.cubin(source, "sm_90a")[:4] == b"\x7fELF"


@pytest.mark.parametrize("operation", ["mad.hi.sat.s32", "mad24.hi.sat.s32"])
def test_a_saturating_sum_stops_at_the_ends(operation):
    a, b, c = (RNG.integers(-(1 << 23), 1 << 23, 32) << (8 if "24" not in operation else 0) for _ in range(3))
    c[:4] = (1 << 31) - 1, -(1 << 31), (1 << 31) - 2, -(1 << 31) + 1
    got, report = lanes(f"{operation} %r40, %r1, %r2, %r3;", *(x.astype(np.int32).view(np.uint32) for x in (a, b, c)))
    assert report.ok, report
    expected = np.clip((a * b >> (16 if "24" in operation else 32)) + c, -(1 << 31), (1 << 31) - 1)
    np.testing.assert_array_equal(got.view(np.int32), expected)


def test_a_kernel_may_ask_where_reserved_shared_memory_begins_and_ends():
    for name, expected in (("0", 0), ("begin", 0), ("1", 512), ("cap", 1024), ("end", 1024)):
        got, report = lanes(f"mov.u32 %r40, %reserved_smem_offset_{name};")
        assert report.ok and set(got.tolist()) == {expected}, name


def test_a_copy_whose_source_is_ignored_writes_zeros():
    body = """
        mov.u32 %r3, words; mad.lo.u32 %r2, %r0, 16, %r3; and.b32 %r4, %r0, 1; setp.ne.u32 %p1, %r4, 0;
        mul.wide.u32 %rd2, %r0, 16; add.s64 %rd3, %rd1, %rd2;
        @%p1 mov.u64 %rd3, 0;                                  // read nowhere
        cp.async.cg.shared.global [%r2], [%rd3], 16, %p1; cp.async.wait_all;
        ld.shared.u32 %r40, [%r2+4]; mul.wide.u32 %rd2, %r0, 4; add.s64 %rd2, %rd2, %rd0; st.global.u32 [%rd2], %r40;
    """
    gpu = emulator.Device()
    y, x = gpu.alloc(128), gpu.alloc(np.full(128, 7, np.uint32))
    report = launch(kernel(body, shared=".shared .align 16 .b32 words[128];"), device=gpu, params=[y, x])
    assert report.ok, report
    assert gpu.read(y, 32, np.uint32).tolist() == [7, 0] * 16


def test_atomics_of_128_bits_exchange_both_halves_together():
    """The lanes add 1 to the low half and 2 to the high half, each when its turn of the comparison comes."""
    body = """
        .reg .b128 %old<3>; .reg .b64 %s<4>;
        mov.b64 %s0, 0; mov.b64 %s1, 0;
    AGAIN:
        mov.b128 %old0, {%s0, %s1}; add.u64 %s2, %s0, 1; add.u64 %s3, %s1, 2; mov.b128 %old1, {%s2, %s3};
        atom.global.cas.b128 %old2, [%rd0], %old0, %old1;
        mov.b128 {%s2, %s3}, %old2;
        setp.eq.u64 %p1, %s0, %s2; setp.eq.and.u64 %p1, %s1, %s3, %p1;
        mov.b64 %s0, %s2; mov.b64 %s1, %s3;
        @!%p1 bra AGAIN;
        mov.b128 %old0, {%s0, %s1}; setp.eq.u32 %p2, %r0, 31;
        @%p2 atom.global.exch.b128 %old1, [%rd0+16], %old0;
    """
    gpu = emulator.Device()
    y = gpu.alloc(np.zeros(4, np.uint64))
    report = launch(kernel(body, parameters=1), device=gpu, params=[y])
    assert report.ok, report
    assert gpu.read(y, 4, np.uint64).tolist() == [32, 64, 31, 62]


def test_bulk_stores_write_zeros_in_steps_of_eight_bytes():
    body = "mov.u32 %r1, 0xFFFFFFFF; mov.u32 %r3, words; mad.lo.u32 %r2, %r0, 4, %r3; st.shared.u32 [%r2], %r1; bar.warp.sync -1;"
    body += "setp.eq.u32 %p1, %r0, 0; @%p1 st.bulk.weak.shared::cta [%r3+8], {}, 0; bar.warp.sync -1; ld.shared.u32 %r40, [%r2];"
    body += "mul.wide.u32 %rd2, %r0, 4; add.s64 %rd2, %rd2, %rd0; st.global.u32 [%rd2], %r40;"
    for size, found in ((40, set()), (12, {"misaligned"}), (1 << 20, {"out-of-bounds"})):
        gpu = emulator.Device("sm_100a")
        y = gpu.alloc(128)
        report = launch(
            kernel(body.format(size), parameters=1, shared=".shared .align 8 .b32 words[32];", target="sm_100a"), device=gpu, params=[y]
        )
        assert kinds(report) == found
        assert gpu.read(y, 32, np.uint32).tolist() == [0xFFFFFFFF * (not (found == set() and 2 <= i < 12)) for i in range(32)]


@pytest.mark.parametrize("source", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
@pytest.mark.parametrize("modifiers", ["", ".satfinite", ".relu"])
def test_small_floats_become_bf16(source, modifiers):
    from zoo.emulator.conversions import conversion

    format = number_formats.FORMATS[source]
    code = np.arange(1 << format.bits, dtype=np.uint32)
    values = number_formats.decode(format, code)
    found = conversion(f"cvt.rn{modifiers}.bf16x2.{source}x2")(code << (4 if source == "e2m1" else 8))
    got = number_formats.decode(number_formats.BF16, found >> 16)
    if "satfinite" in modifiers:
        values = np.where(np.isinf(values), np.copysign(number_formats.BF16.maximum, values), values)
    if "relu" in modifiers:
        values = np.where(values < 0, 0, values)
    np.testing.assert_array_equal(got, values)


# ---- memory of a size that the program computes -------------------------------------------------------------------------
def test_what_a_function_allocates_goes_when_it_returns(module):
    """Sixty calls a thread, in odd lanes alone: were the room kept, the threads would run out of local memory, or meet others' values."""
    gpu, count = emulator.Device(), 60
    out = gpu.alloc(256)
    report = gpu.launch(module, "rooms", 1, 64, params=[out, count])
    assert report.ok and not report.findings, report
    even, odd = sum(range(count)), sum(sum(i * 7 % n for i in range(n)) for n in range(1, count + 1))
    assert gpu.read(out, 64, np.int32).tolist() == [even, odd] * 32


STACK = "mad.lo.u32 %r1, %r0, 8, 8; cvt.u64.u32 %rd1, %r1; stacksave.u64 %rd2; alloca.u64 %rd3, %rd1, 16; "  # lane i has 8 + 8 i bytes


@pytest.mark.parametrize(("body", "found", "told"), [
    ("st.local.u64 [%rd3], 7; ld.local.u64 %rd4, [%rd3]; and.b64 %rd5, %rd3, 15; setp.ne.u64 %p1, %rd5, 0; @%p1 trap;", set(), ()),
    ("cvta.local.u64 %rd4, %rd3; add.u64 %rd4, %rd4, %rd1; st.u64 [%rd4+-8], 7;", set(), ()),
    ("st.local.u64 [%rd3+8], 7;", {"out-of-bounds"}, ("writes local memory", "lanes 0x00000001")),
    ("add.u64 %rd4, %rd3, %rd1; st.local.u8 [%rd4], 7;", {"out-of-bounds"}, ("lanes 0xffffffff",)),
    ("stackrestore.u64 %rd2; ld.local.u64 %rd4, [%rd3]; st.global.u64 [%rd0], %rd4;", {"out-of-bounds"}, ("reads local memory",)),
    ("st.local.u64 [%rd3], 7; stackrestore.u64 %rd2; alloca.u64 %rd3, 8; ld.local.u64 %rd4, [%rd3]; st.global.u64 [%rd0], %rd4;", {"uninitialised-local"}, ()),
    ("add.u64 %rd4, %rd3, 512; stackrestore.u64 %rd4;", {"out-of-bounds"}, ("no stacksave gave",)),
    ("mov.u64 %rd4, -8; alloca.u64 %rd5, %rd4;", {"stack-overflow"}, ("18,446,744,073,709,551,608 bytes of stack",)),
    ("mov.u64 %rd4, 776; alloca.u64 %rd5, %rd4;", {"stack-overflow"}, ("lanes 0x80000000", "776 bytes of stack, and the thread has 768 left of 1,024")),
    ("LOOP: stacksave.u64 %rd6; alloca.u64 %rd5, 704; stackrestore.u64 %rd6; add.u32 %r1, %r1, -8; setp.ne.u32 %p1, %r1, 0; @%p1 bra LOOP;", set(), ()),
    ("LOOP: alloca.u64 %rd5, 65536; bra LOOP;", {"stack-overflow", "livelock"}, ("65,536 bytes of stack", "1,016 left of 1,024")),
])  # fmt: skip
def test_each_lane_has_a_stack_of_its_own(body, found, told):
    gpu = emulator.Device(instruction_limit=1000)
    y = gpu.alloc(np.zeros(1, np.uint64))
    report = launch(kernel(STACK + body, parameters=1), device=gpu, params=[y])
    assert kinds(report) == found, report
    assert all(words in str(report) for words in told), report


# ---- tables of functions -------------------------------------------------------------------------------------------------
TABLE = """
.func (.param .b32 y) twice(.param .b32 x) { .reg .b32 %r; ld.param.u32 %r, [x]; unheard.u32 %r, %r; st.param.b32 [y], %r; ret; }
.global .align 8 .u64 table[2] = {0, twice};
"""


@pytest.mark.parametrize("whole", [True, False])
def test_a_table_of_functions_hinders_no_kernel_that_does_not_call_through_it(whole):
    """nvcc writes one for each class with virtual functions. One of these functions has an instruction that is not covered."""
    calls = "ld.global.u64 %rd1, [table+8]; { .param .b32 a; .param .b32 b; st.param.b32 [a], %r0; call (b), %rd1, (a), prototype; ld.param.b32 %r1, [b]; }"
    calls = "prototype: .callprototype (.param .b32 _) _ (.param .b32 _);" + calls
    for body, refused in (
        ("st.global.u32 [%rd0], %r0;", False),
        ("ld.global.u64 %rd1, [table]; st.global.u64 [%rd0], %rd1;", False),
        (calls, True),
    ):
        text = kernel(body, parameters=1).replace(".visible", TABLE + ".visible", 1)
        gpu = emulator.Device()
        parameters = [gpu.alloc(np.ones(1, np.uint64))]
        if refused:
            with pytest.raises(UnsupportedInstruction, match=r"`unheard\.u32 %r, %r` is not covered"):
                gpu.launch(emulator.Module(text, whole), "k", 1, 1, params=parameters)
        else:
            assert gpu.launch(emulator.Module(text, whole), "k", 1, 1, params=parameters).ok
            assert gpu.read(parameters[0], 1, np.uint64)[0] == 0


# ---- what is no program ------------------------------------------------------------------------------------------------
def test_a_label_is_defined_once_in_a_scope():
    with pytest.raises(ParseError, match="the label A is defined twice"):
        emulator.Module(kernel("A: add.u32 %r1, %r0, 1; A: add.u32 %r1, %r1, 1;"))
    assert launch(kernel("{ A: add.u32 %r1, %r0, 1; } { A: add.u32 %r1, %r1, 1; }", parameters=0)).ok


@pytest.mark.parametrize(("instruction", "target", "arch"), [
    ("tcgen05.fence::before_thread_sync;", "sm_90a", "sm_90a"), ("tcgen05.fence::before_thread_sync;", "sm_120a", "sm_120a"),
    ("tcgen05.fence::before_thread_sync;", "sm_100", "sm_100a"), ("wgmma.fence.sync.aligned;", "sm_90", "sm_90a"),
])  # fmt: skip
def test_an_instruction_that_the_target_does_not_have_is_refused(instruction, target, arch):
    with pytest.raises(UnsupportedInstruction, match=f"{target} has no"):
        launch(kernel(instruction, parameters=0, target=target), arch=arch)


def test_a_text_without_a_version_is_refused():
    with pytest.raises(ParseError, match="version"):
        emulator.Module(kernel("").replace(".version 9.0", ""))


def test_current_graph_exec_is_zero_in_a_launch_by_the_host():
    got, report = lanes("mov.u64 %rd20, %current_graph_exec;", output=np.uint64)
    assert report.ok and not got.any()

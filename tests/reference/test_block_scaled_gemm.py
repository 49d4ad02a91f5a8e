"""The written rule of block-scaled products on Blackwell: against rational arithmetic, float64, the emulator, and where it is exact."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from zoo.emulator import arithmetic, number_formats
from zoo.reference import block_scaled_gemm
from zoo.reference.block_scaled_gemm import KINDS, error_bound, exact, finished, finished_bound, gemm_block_scaled

FORMATS = pytest.mark.parametrize("formats", KINDS)
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
MAGNITUDES = [Fraction(n, 2) for n in (0, 1, 2, 3, 4, 6, 8, 12)]  # of e2m1


def operand(random, formats, side, rows, K, dtype=E4M3, scales="near"):
    """Elements of all codes and scales: near each other, of all exponents that stay far from the ends, or all that there are."""
    kind = KINDS[formats]
    if kind.packed[side]:
        q = random.integers(0, 256, (rows, K // 2), dtype=np.uint8)
    else:
        q = random.integers(0, 256, (rows, K), dtype=np.uint8).view(dtype)
        q = np.where(np.isfinite(q.astype(np.float32)), q, dtype(0))
    low, high = {"near": (122, 133), "wide": (97, 158), "all": (0, 255)}[scales]
    if kind.e4m3_scales:
        low, high = (48, 64) if scales == "near" else (0, 127)
    return q, random.integers(low, high, (rows, K // kind.block), dtype=np.uint8)


def operands(formats, M, N, K, scales="near", dtypes=(E4M3, E4M3), seed=0):
    random = np.random.default_rng([seed, M, N, K])
    return *operand(random, formats, 0, M, K, dtypes[0], scales), *operand(random, formats, 1, N, K, dtypes[1], scales)


# ---- the rule once more, of one sum at a time, in rational numbers ---------------------------------------------------------------


def fields(code, mantissa_bits, exponent_bits):
    """(value, exponent in the code) of a finite number with a sign."""
    bias = (1 << exponent_bits - 1) - 1
    field, mantissa = code >> mantissa_bits & (1 << exponent_bits) - 1, code & (1 << mantissa_bits) - 1
    exponent = max(field, 1) - bias
    value = Fraction(mantissa + ((field > 0) << mantissa_bits), 1 << mantissa_bits) * Fraction(2) ** exponent
    return (-value if code >> mantissa_bits + exponent_bits else value), exponent


def element(q, row, k, packed):
    if packed:
        return fields(int(q[row, k // 2]) >> 4 * (k % 2) & 15, 1, 2)
    return fields(int(q.view(np.uint8)[row, k]), *((2, 5) if q.dtype == E5M2 else (3, 4)))


def scale(code, e4m3):
    return fields(code, 3, 4) if e4m3 else (Fraction(2) ** (code - 127), code - 127)


def exponent_of(value):
    """The exponent of a float32."""
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    return max(exponent - (abs(value) < Fraction(2) ** exponent), -126)


def cut(value, exponent, bits):
    """Towards zero, to so many bits below the exponent."""
    unit = Fraction(2) ** (exponent - bits)
    return (abs(value) // unit) * unit * (1 if value > 0 else -1)


def one_sum(a, a_scale, b, b_scale, formats, m, n, K):
    kind = KINDS[formats]
    total = Fraction(0)
    for first in range(0, K, kind.step):
        terms = [(total, exponent_of(total))] if total else []
        width = 16 if kind.step == 64 else 1
        for k in range(first, min(first + kind.step, K), width):
            pairs = [(element(a, m, i, kind.packed[0]), element(b, n, i, kind.packed[1])) for i in range(k, k + width)]
            of_a, of_b = (scale(int(scales[row, k // kind.block]), kind.e4m3_scales) for scales, row in ((a_scale, m), (b_scale, n)))
            value = sum(x[0] * y[0] for x, y in pairs) * of_a[0] * of_b[0]
            exponent = of_a[1] + of_b[1]
            if width == 1:
                exponent += pairs[0][0][1] + pairs[0][1][1]
            if value or width > 1:
                terms.append((value, exponent))
        top = max((exponent for _, exponent in terms), default=0)
        total = sum((cut(value, top, 35 if width > 1 else 25) for value, _ in terms), Fraction(0))
        total = cut(total, exponent_of(total), 23) if total else total
    return total


@FORMATS
@pytest.mark.parametrize("scales", ["near", "wide"])
def test_sums_are_those_of_rational_arithmetic(formats, scales):
    given = operands(formats, 3, 2, 224, scales, (E4M3, E5M2))
    found = gemm_block_scaled(*given, formats)
    for m, n in np.ndindex(3, 2):
        assert Fraction(float(found[m, n])) == one_sum(*given, formats, m, n, 224)


# ---- against the emulator's tensor core -------------------------------------------------------------------------------------------


def of_the_emulator(a, a_scale, b, b_scale, formats, K):
    kind = KINDS[formats]

    def parts(q, scales, packed, first):
        codes = np.stack((q & 15, q >> 4), -1).reshape(len(q), -1) if packed else q.view(np.uint8)
        codes, scales = codes[:, first : first + kind.step], scales[:, first // kind.block : (first + kind.step) // kind.block]
        rest = kind.step - codes.shape[1]
        codes, scales = np.pad(codes, ((0, 0), (0, rest))), np.pad(scales, ((0, 0), (0, rest // kind.block)))
        format = number_formats.E2M1 if packed else number_formats.E5M2 if q.dtype == E5M2 else number_formats.E4M3
        of_scales = number_formats.UE4M3 if kind.e4m3_scales else number_formats.UE8M0
        return arithmetic.operand(format, codes), arithmetic.BlockScale(of_scales, scales)

    sums = None
    for first in range(0, K, kind.step):
        left, of_left = parts(a, a_scale, kind.packed[0], first)
        right, of_right = parts(b, b_scale, kind.packed[1], first)
        sums = arithmetic.tcgen05_sum(left, right, sums, "f32", "hw", of_left, of_right, fp4=kind.step == 64)
    return sums


def bits(sums):
    """With the one NaN that the tensor core has."""
    return np.where(np.isnan(sums), np.uint32(0x7FFFFFFF), sums.view(np.uint32))


@FORMATS
@pytest.mark.parametrize("K", [32, 96, 288])
@pytest.mark.parametrize("scales", ["near", "wide", "all", "with NaN"])
def test_sums_are_those_of_the_emulators_tensor_core(formats, K, scales):
    a, a_scale, b, b_scale = operands(formats, 37, 24, K, "all" if scales == "with NaN" else scales, (E5M2, E4M3))
    if scales == "with NaN":
        a_scale[3, -1], b_scale[5, 0] = (0x7F, 0xFF) if KINDS[formats].e4m3_scales else (0xFF, 0xFF)
        for q in (a, b):
            if q.dtype != np.uint8:
                q[7, 1], q[8, K - 1] = np.nan, np.inf
    found = bits(gemm_block_scaled(a, a_scale, b, b_scale, formats))
    np.testing.assert_array_equal(found, of_the_emulator(a, a_scale, b, b_scale, formats, K))
    assert (found == 0x7FFFFFFF).any() == (scales == "with NaN" or (scales == "all" and (found & 0x7FFFFFFF > 0x7F800000).any()))


@pytest.mark.parametrize(("value", "times", "found"), [(1.5, 3, 1), (1.0, 4, 2), (1.0, 3, 1), (1.0, 7, 2)])
def test_products_below_all_normal_numbers_are_cut_where_those_at_the_edge_are(value, times, found):
    """Beside a sum of 2^-149, whose exponent is -126: products of 2^-151 are kept, what is half of that is not."""
    a, b = np.zeros((1, 64), E4M3), np.ones((1, 64), E4M3)
    a[0, 0], a[0, 32 : 32 + times] = 1, value
    scales = np.array([[0, 0]], np.uint8), np.array([[105, 103]], np.uint8)
    for left, right in ((a, b), (b, a)):
        assert gemm_block_scaled(left, scales[0], right, scales[1], "mxfp8")[0, 0] == found * 2.0**-149


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_a_bound_has_a_rounding_for_each_step_that_is_done_and_for_d(dtype):
    """Of a product of 3 that is exact so far; and of nothing, where the smallest numbers count."""
    zero, three, one = np.zeros((1, 1)), np.full((1, 1), 3.0), np.ones(1, np.float32)
    step, smallest = {"bf16": (2.0**-8, 2.0**-133), "f16": (2.0**-11, 2.0**-24), "f32": (0.0, 0.0)}[dtype]
    assert error_bound(zero, 100)[0, 0] == 116 * 2.0**-149 and error_bound(three, 84)[0, 0] == 100 * (3 * 2.0**-23 + 2.0**-149)
    for name, given in {"alpha": 2.0, "bias": one, "row_scale": 2 * one, "c": np.ones((1, 1), np.float32)}.items():
        middle, bound = finished_bound(zero, zero, dtype, **{name: given})
        rounding = 2.0**-149 + 2.0**-24 * middle[0, 0]
        assert middle == (1 if name in ("bias", "c") else 0)
        assert bound == rounding + step * (middle + rounding) + smallest
        middle, bound = finished_bound(three, 0.5 + zero, dtype, **{name: given})
        before = 0.5 if name in ("bias", "c") else 1.0
        rounding = before + 2.0**-24 * (middle[0, 0] + before) + 2.0**-149
        assert middle == (4 if name in ("bias", "c") else 6) and bound == rounding + step * (middle + rounding) + smallest
    middle, bound = finished_bound(-three, zero, dtype)
    assert middle == -3 and bound == 3 * step + smallest


# ---- what users rely on ------------------------------------------------------------------------------------------------------------


@FORMATS
@pytest.mark.parametrize("K", [32, 160, 2880])
def test_an_infinitely_precise_sum_is_within_the_bound_and_not_the_same(formats, K):
    for seed in range(3):
        given = operands(formats, 17, 40, K, "wide", (E4M3, E5M2), seed)
        product, magnitude = exact(*given, formats)
        error = np.abs(gemm_block_scaled(*given, formats) - product)
        assert (error <= error_bound(magnitude, K)).all()
        assert error.max() > 0 or K == 32  # so the comparison is of two different computations


@FORMATS
def test_the_bound_notices_a_block_that_is_left_out_and_one_that_counts_twice(formats):
    K, kind = 2880, KINDS[formats]
    a, a_scale, b, b_scale = operands(formats, 9, 16, K)
    random = np.random.default_rng(7)
    a, b = (x if x.dtype == np.uint8 else random.standard_normal(x.shape).astype(E4M3) for x in (a, b))
    one = 56 if kind.e4m3_scales else 127
    a_scale, b_scale = one + a_scale % 2, one + b_scale % 2  # near each other, as of quantised normal numbers
    product, magnitude = exact(a, a_scale, b, b_scale, formats)
    left_out, other_scale = a.copy(), a_scale.copy()
    left_out.view(np.uint8)[4, -kind.block // (1 + kind.packed[0]) :] = 0
    other_scale[4, -1] += 8 if kind.e4m3_scales else 1
    for changed in ((left_out, a_scale, b, b_scale), (a, other_scale, b, b_scale)):
        wrong = np.abs(gemm_block_scaled(*changed, formats) - product) > error_bound(magnitude, K)
        assert wrong[4].mean() > 0.6 and not np.delete(wrong, 4, 0).any()


@FORMATS
def test_small_whole_numbers_are_exact_however_k_is_split(formats):
    random = np.random.default_rng(3)
    K, kind, both = 2080, KINDS[formats], []
    for side, rows in enumerate((12, 20)):
        if kind.packed[side]:
            q = random.integers(0, 256, (rows, K // 2), dtype=np.uint8)
        else:
            q = random.integers(-4, 5, (rows, K)).astype(E4M3)
        codes = (48, 56, 64) if kind.e4m3_scales else (126, 127, 128)
        both += [q, random.choice(codes, (rows, K // kind.block)).astype(np.uint8)]
    product, _ = exact(*both, formats)
    for splits in (1, 2, 4, 8):
        np.testing.assert_array_equal(gemm_block_scaled(*both, formats, splits), product)


@FORMATS
def test_a_split_adds_up_the_sums_of_whole_lines_of_128_bytes_in_order(formats):
    K, line = 2208, KINDS[formats].line
    a, a_scale, b, b_scale = operands(formats, 5, 8, K, "wide")
    kind, lines = KINDS[formats], -(-K // line)
    expected = np.zeros((5, 8), np.float32)
    for split in range(4):
        first, last = lines * split // 4 * line, min(lines * (split + 1) // 4 * line, K)
        cut_a, cut_b = (slice(first // (1 + packed), last // (1 + packed)) for packed in kind.packed)
        scales = slice(first // kind.block, last // kind.block)
        expected = expected + gemm_block_scaled(a[:, cut_a], a_scale[:, scales], b[:, cut_b], b_scale[:, scales], formats)
    np.testing.assert_array_equal(gemm_block_scaled(a, a_scale, b, b_scale, formats, 4), expected)
    assert (expected != gemm_block_scaled(a, a_scale, b, b_scale, formats)).any()


@FORMATS
def test_no_element_or_scale_beyond_k_is_looked_at(formats):
    a, a_scale, b, b_scale = operands(formats, 6, 8, 96)
    nan = np.full((6, 5), 0xFF, np.uint8)
    longer = np.hstack([b, np.full((8, 16), 0x77, np.uint8)]) if KINDS[formats].packed[1] and not KINDS[formats].packed[0] else b
    more = gemm_block_scaled(a, np.hstack([a_scale, nan]), longer, np.hstack([b_scale, np.full((8, 5), 0xFF, np.uint8)]), formats)
    np.testing.assert_array_equal(more, gemm_block_scaled(a, a_scale, b, b_scale, formats))
    assert np.isfinite(more).all()


@FORMATS
def test_a_nan_scale_makes_its_row_nan_and_no_other_even_where_all_elements_are_zero(formats):
    a, a_scale, b, b_scale = operands(formats, 5, 8, 128)
    a_scale[2, -1] = 0x7F if KINDS[formats].e4m3_scales else 0xFF
    a.view(np.uint8)[2] = 0
    d = finished(gemm_block_scaled(a, a_scale, b, b_scale, formats), "bf16")
    assert (d[2].view(np.uint16) == 0x7FFF).all() and np.isfinite(np.delete(d, 2, 0).astype(np.float32)).all()


def test_each_step_of_finishing_is_rounded_to_f32_and_the_last_one_to_d():
    sums = np.array([[3, 1 + 2**-23]], np.float32)
    alpha, bias = np.float32(1 + 2**-23), np.array([2**-24, -1], np.float32)
    row, c = np.array([1 + 2**-12], np.float32), np.array([[2.0**-8, 1]], ml_dtypes.bfloat16)
    expected = []
    for s, add, more in zip(sums[0], bias, c[0].astype(np.float32), strict=True):
        value = np.float32(float(s) * float(alpha))
        value = np.float32(float(value) + float(add))
        value = np.float32(float(value) * float(row[0]))
        expected.append(np.float32(float(value) + float(more)))
    for dtype, kind in (("f32", np.float32), ("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
        np.testing.assert_array_equal(finished(sums, dtype, alpha, bias, row, c), np.array([expected], np.float32).astype(kind))
    other = (sums * row[:, None] * alpha + bias) + c.astype(np.float32)
    assert (other != finished(sums, "f32", alpha, bias, row, c)).any()  # so the order shows


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_a_finished_product_is_within_the_bound_of_all_its_steps(dtype):
    random = np.random.default_rng(4)
    given = operands("mxfp8", 30, 40, 320)
    K, (product, magnitude) = 320, exact(*given, "mxfp8")
    steps = {
        "alpha": np.float32(2.0**-12 / 3),
        "bias": random.standard_normal(40).astype(ml_dtypes.bfloat16),
        "row_scale": random.uniform(0.1, 1, 30).astype(np.float32),
        "c": random.standard_normal((30, 40)).astype(np.float32),
    }
    sums = gemm_block_scaled(*given, "mxfp8")
    for left_out in (None, *steps):
        chosen = {name: value for name, value in steps.items() if name != left_out}
        middle, bound = finished_bound(product, error_bound(magnitude, K), dtype, **chosen)
        found = finished(sums, dtype, **chosen).astype(np.float64)
        assert (np.abs(found - middle)[np.isfinite(found)] <= bound[np.isfinite(found)]).all()
        off = finished(sums * np.float32(1 + 2.0**-6), dtype, **chosen).astype(np.float64)
        assert (np.abs(off - middle)[np.isfinite(off)] > bound[np.isfinite(off)]).mean() > 0.2


@pytest.mark.parametrize(
    ("formats", "M", "N", "together"),
    [("mxfp4", 40, 512, [32, 8]), ("mxfp4", 16385, 1, [16384, 1]), ("nvfp4", 2, 20000, [1, 1]), ("nvfp4", 3, 0, [3])],
)  # fmt: skip
def test_a_million_products_are_worked_out_at_a_time(monkeypatch, formats, M, N, together):
    held = []

    def spied(sums, *others):
        held.append(len(sums))
        return sums

    monkeypatch.setattr(block_scaled_gemm, "_add_packed", spied)
    gemm_block_scaled(*operands(formats, M, N, KINDS[formats].step), formats)
    assert held == together

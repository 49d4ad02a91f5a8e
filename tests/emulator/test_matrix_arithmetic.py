"""The tensor-core sum: against the rule written out with fractions, against sums done by hand, and its speed."""

import math
import time
from fractions import Fraction

import numpy
import pytest

from zoo.emulator import arithmetic, number_formats
from zoo.emulator.arithmetic import BlockScale, SumRule, hw_sum, hw_sum_fp4, operand

U32 = numpy.uint32


def f32_bits(values):
    return numpy.asarray(values, dtype=numpy.float32).view(U32)


def codes_of(format, values):
    return number_formats.encode(format, numpy.asarray(values, dtype=float), "rn", satfinite=True).astype(numpy.int64)


def one(format, a, b, c, rule):
    """One element of D as a float."""
    result = hw_sum(operand(format, codes_of(format, [a])), operand(format, codes_of(format, [b])), f32_bits([[c]]), rule)
    return float(result.view(numpy.float32)[0, 0])


# ---- by hand


def test_a_small_term_is_cut_off_below_the_fraction_of_the_largest():
    # The largest product is 256 = 2^8, so with 13 fraction bits everything below 2^-5 is dropped.
    assert one(number_formats.E4M3, [16, 2**-3], [16, 2**-3], 0.0, arithmetic.HOPPER_FP8_F32) == 256.0  # 2^-6 is lost
    assert one(number_formats.E4M3, [16, 2**-2], [16, 2**-3], 0.0, arithmetic.HOPPER_FP8_F32) == 256.0 + 2**-5
    assert one(number_formats.E4M3, [16, 2**-3], [16, 2**-3], 0.0, arithmetic.WIDE_F32) == 256.0 + 2**-6


def test_terms_are_cut_off_one_by_one_not_their_sum():
    # Thirty-one terms of 2^-6 together are 0.48, but each alone is below 2^-5.
    assert one(number_formats.E4M3, [16] + [2**-3] * 31, [16] + [2**-3] * 31, 0.0, arithmetic.HOPPER_FP8_F32) == 256.0


def test_truncation_goes_toward_zero_for_negative_terms():
    # -(1 + 2^-3) * 2^-5 keeps -2^-5: rounding down would give -2^-4
    assert one(number_formats.E4M3, [16, -1.125 * 2**-2], [16, 2**-3], 0.0, arithmetic.HOPPER_FP8_F32) == 256.0 - 2**-5


def test_the_exponent_of_a_product_is_that_of_its_factors():
    # 1.5 * 1.5 = 2.25 counts with exponent 0: 2^-13 survives beside it, with exponent 1 it would be lost
    result = hw_sum(
        operand(number_formats.E5M2, codes_of(number_formats.E5M2, [[1.5, 2**-7]])),
        operand(number_formats.E5M2, codes_of(number_formats.E5M2, [[1.5, 2**-6]])),
        None,
        SumRule(13, "f32"),
    )
    assert float(result.view(numpy.float32)[0, 0]) == 2.25 + 2**-13


def test_the_hopper_fp8_result_keeps_13_fraction_bits():
    # 2 + 2^-12 needs 13 fraction bits, 2 + 2^-13 needs 14
    assert one(number_formats.E4M3, [2, 2**-6], [1, 2**-6], 0.0, arithmetic.HOPPER_FP8_F32) == 2 + 2**-12
    assert one(number_formats.E4M3, [2.0], [1.0], 2**-13, arithmetic.HOPPER_FP8_F32) == 2.0


def test_the_accumulator_is_aligned_like_a_product():
    assert one(number_formats.E4M3, [1.0], [1.0], 2.0**20, arithmetic.HOPPER_FP8_F32) == 2.0**20
    assert one(number_formats.E4M3, [256.0], [256.0], 1 + 2**-10, arithmetic.HOPPER_FP8_F32) == 65536.0
    assert one(number_formats.E4M3, [8.0], [8.0], 1 + 2**-10, arithmetic.HOPPER_FP8_F32) == 65.0


def test_a_zero_factor_gives_its_term_no_exponent():
    # 0 * 2^100 must not push 1 * 1 out of the alignment window
    assert one(number_formats.BF16, [0.0, 1.0], [2.0**100, 1.0], 0.0, arithmetic.WIDE_F32) == 1.0


def test_a_zero_result_is_positive():
    minus_zero = hw_sum(
        operand(number_formats.E4M3, numpy.array([[0x80]])),
        operand(number_formats.E4M3, numpy.array([[0x38]])),
        numpy.array([[0x80000000]], U32),
        arithmetic.WIDE_F32,
    )
    assert minus_zero.tolist() == [[0]]


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        ([numpy.inf, 1.0], [1.0, 1.0], 0.0, 0x7F800000),
        ([numpy.inf, 1.0], [-1.0, 1.0], 0.0, 0xFF800000),
        ([numpy.inf, 1.0], [0.0, 1.0], 0.0, 0x7FFFFFFF),
        ([numpy.inf, -numpy.inf], [1.0, 1.0], 0.0, 0x7FFFFFFF),
        ([numpy.inf, 1.0], [1.0, 1.0], -numpy.inf, 0x7FFFFFFF),
        ([numpy.nan, 1.0], [1.0, 1.0], 0.0, 0x7FFFFFFF),
        ([1.0, 1.0], [1.0, 1.0], -numpy.inf, 0xFF800000),
        ([1.0, 1.0], [1.0, 1.0], numpy.nan, 0x7FFFFFFF),
    ],
)
def test_specials_follow_ieee_and_touch_only_their_element(a, b, c, expected):
    left = number_formats.encode(number_formats.BF16, numpy.array([a, [1.0, 2.0]]), "rn").astype(numpy.int64)
    right = number_formats.encode(number_formats.BF16, numpy.array([b]), "rn").astype(numpy.int64)
    addend = f32_bits([[c], [0.5]])
    result = hw_sum(operand(number_formats.BF16, left), operand(number_formats.BF16, right), addend, arithmetic.WIDE_F32)
    assert int(result[0, 0]) == expected
    if numpy.isfinite(b).all():
        assert float(result.view(numpy.float32)[1, 0]) == b[0] + 2 * b[1] + 0.5


def test_overflow_of_an_f32_sum_is_infinite_and_of_an_f16_sum_too():
    assert one(number_formats.BF16, [2.0**127, 2.0**127], [1.0, 1.0], 0.0, arithmetic.WIDE_F32) == math.inf
    half = hw_sum(
        operand(number_formats.F16, codes_of(number_formats.F16, [[60000.0, 60000.0]])),
        operand(number_formats.F16, codes_of(number_formats.F16, [[1.0, 1.0]])),
        None,
        arithmetic.WIDE_F16,
    )
    assert half.tolist() == [[0x7C00]]


# ---- the rule written out with fractions


def exponent_of(format, code):
    field = (code >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1)
    return max(field, 1) - format.bias


def cut(value: Fraction, place: int) -> Fraction:
    unit = Fraction(2) ** place
    whole = abs(value) // unit * unit
    return whole if value >= 0 else -whole


def leading(value: Fraction) -> int:
    magnitude = abs(value)
    e = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    while Fraction(2) ** e > magnitude:
        e -= 1
    while Fraction(2) ** (e + 1) <= magnitude:
        e += 1
    return e


def slow_rule(terms, addend: Fraction, fraction_bits: int, kept: int) -> float:
    """terms: (value, exponent). Truncated alignment, exact sum, truncation to `kept` fraction bits."""
    aligned = [(value, e) for value, e in terms if value] + ([(addend, max(leading(addend), -126))] if addend else [])
    if not aligned:
        return 0.0
    top = max(e for _, e in aligned)
    total = sum((cut(value, top - fraction_bits) for value, _ in aligned), Fraction(0))
    if total == 0:
        return 0.0
    return float(cut(total, max(leading(total), -126) - kept))


@pytest.mark.parametrize("rule", [arithmetic.HOPPER_FP8_F32, arithmetic.WIDE_F32], ids=["13 bits", "25 bits"])
@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "e3m2", "f16", "bf16"])
def test_the_vectorised_sum_is_the_rule(name, rule):
    format = number_formats.FORMATS[name]
    rng = numpy.random.default_rng(11)
    a = rng.integers(0, format.largest + 1, (6, 16)) | (rng.integers(0, 2, (6, 16)) * format.sign_bit)
    b = rng.integers(0, format.largest + 1, (5, 16)) | (rng.integers(0, 2, (5, 16)) * format.sign_bit)
    c = f32_bits(rng.standard_normal((6, 5)) * 2.0 ** rng.integers(-20, 20, (6, 5)))
    seen = hw_sum(operand(format, a), operand(format, b), c, rule).view(numpy.float32)
    kept = 13 if rule.result == "e8m13" else 23
    left, right = number_formats.decode(format, a), number_formats.decode(format, b)
    for m in range(6):
        for n in range(5):
            terms = [
                (Fraction(left[m, k]) * Fraction(right[n, k]), exponent_of(format, int(a[m, k])) + exponent_of(format, int(b[n, k])))
                for k in range(16)
            ]
            expected = slow_rule(terms, Fraction(float(c.view(numpy.float32)[m, n])), rule.fraction_bits, kept)
            assert abs(expected) >= 2.0**128 or float(seen[m, n]) == expected


@pytest.mark.parametrize("rule", [arithmetic.HOPPER_FP8_F32, arithmetic.WIDE_F32], ids=["13 bits", "25 bits"])
@pytest.mark.parametrize("of_c", [0, 1, 3])
def test_sums_that_just_keep_and_just_lose_a_bit_are_the_rules(rule, of_c, monkeypatch):
    """A sum of which nothing is cut off is done as one product of matrices: both sides of that line, at every distance from it."""
    kept, real = [], arithmetic._keeps_every_bit
    monkeypatch.setattr(arithmetic, "_keeps_every_bit", lambda *arguments: kept.append(real(*arguments)) or kept[-1])
    monkeypatch.setattr(arithmetic, "_FEW_TERMS", 0)
    format, rng = number_formats.E5M2, numpy.random.default_rng(rule.fraction_bits + of_c)
    for spread in list(range(14)) * 6:
        exponents = [rng.integers(-spread, spread + 1, (2, 4)) for _ in range(2)]
        a, b = (codes_of(format, rng.choice([-1.75, -1, 0, 1, 1.25], (2, 4)) * 2.0**e) for e in exponents)
        c = rng.integers(-of_c, of_c + 1, (2, 2)) * 2.0 ** rng.integers(-2 * spread - rule.fraction_bits, 2 * spread + 1, (2, 2))
        seen = hw_sum(operand(format, a), operand(format, b), f32_bits(c), rule).view(numpy.float32)
        left, right = number_formats.decode(format, a), number_formats.decode(format, b)
        for m in range(2):
            for n in range(2):
                terms = [
                    (Fraction(left[m, k]) * Fraction(right[n, k]), exponent_of(format, int(a[m, k])) + exponent_of(format, int(b[n, k])))
                    for k in range(4)
                ]
                expected = slow_rule(terms, Fraction(float(c[m, n])), rule.fraction_bits, 13 if rule.result == "e8m13" else 23)
                assert float(seen[m, n]) == expected
    assert 10 < sum(kept) < len(kept) - 10


def test_a_sum_in_parts_is_the_sum_at_once():
    """Many terms are added k by k, few of them together."""
    rng = numpy.random.default_rng(3)
    a, b = rng.integers(0, 0x7F, (64, 32)), rng.integers(0, 0x7F, (64, 32))
    c = f32_bits(rng.standard_normal((64, 64)) * 1e4)
    assert 64 * 64 * 32 > arithmetic._TERMS_AT_ONCE >= 4 * 64 * 32
    whole = hw_sum(operand(number_formats.E4M3, a), operand(number_formats.E4M3, b), c, arithmetic.HOPPER_FP8_F32)
    for row in range(0, 64, 4):
        part = operand(number_formats.E4M3, a[row : row + 4])
        few = hw_sum(part, operand(number_formats.E4M3, b), c[row : row + 4], arithmetic.HOPPER_FP8_F32)
        assert numpy.array_equal(few, whole[row : row + 4])


@pytest.mark.parametrize("elements", [range(0x7F), (0x38, 0x40)], ids=["any", "1 and 2"])
def test_block_scales_of_mxfp8_move_the_alignment(elements):
    rng = numpy.random.default_rng(5)
    a, b = rng.choice(elements, (4, 32)), rng.choice(elements, (3, 32))
    scale_a, scale_b = rng.integers(100, 150, (4, 1)), rng.integers(100, 150, (3, 1))
    c = f32_bits(rng.integers(-4, 5, (4, 3)) * 2.0**12 if len(elements) == 2 else rng.standard_normal((4, 3)) * 1e5)
    seen = hw_sum(
        operand(number_formats.E4M3, a),
        operand(number_formats.E4M3, b),
        c,
        arithmetic.WIDE_F32,
        BlockScale(number_formats.UE8M0, scale_a),
        BlockScale(number_formats.UE8M0, scale_b),
    ).view(numpy.float32)
    left, right = number_formats.decode(number_formats.E4M3, a), number_formats.decode(number_formats.E4M3, b)
    for m in range(4):
        for n in range(3):
            shift = int(scale_a[m, 0]) + int(scale_b[n, 0]) - 254
            terms = [
                (
                    Fraction(left[m, k]) * Fraction(right[n, k]) * Fraction(2) ** shift,
                    exponent_of(number_formats.E4M3, int(a[m, k])) + exponent_of(number_formats.E4M3, int(b[n, k])) + shift,
                )
                for k in range(32)
            ]
            assert float(seen[m, n]) == slow_rule(terms, Fraction(float(c.view(numpy.float32)[m, n])), 25, 23)


@pytest.mark.parametrize(("scale_name", "vector"), [("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4)])
def test_fp4_sums_sixteen_products_exactly_before_scaling(scale_name, vector):
    scale = number_formats.FORMATS[scale_name]
    rng = numpy.random.default_rng(9)
    a, b = rng.integers(0, 16, (4, 64)), rng.integers(0, 16, (3, 64))
    low, high = (90, 160) if scale_name == "ue8m0" else (0, 0x7F)
    scale_a, scale_b = rng.integers(low, high, (4, vector)), rng.integers(low, high, (3, vector))
    c = f32_bits(rng.standard_normal((4, 3)) * 1e4)
    seen = hw_sum_fp4(
        operand(number_formats.E2M1, a), operand(number_formats.E2M1, b), c, BlockScale(scale, scale_a), BlockScale(scale, scale_b)
    ).view(numpy.float32)
    left, right = number_formats.decode(number_formats.E2M1, a), number_formats.decode(number_formats.E2M1, b)
    factor_a, factor_b = number_formats.decode(scale, scale_a), number_formats.decode(scale, scale_b)
    for m in range(4):
        for n in range(3):
            terms = []
            for g in range(4):
                j = g * vector // 4
                dot = sum(Fraction(left[m, k]) * Fraction(right[n, k]) for k in range(16 * g, 16 * g + 16))
                exponent = (
                    exponent_of(scale, int(scale_a[m, j])) + exponent_of(scale, int(scale_b[n, j]))
                    if scale_name == "ue4m3"
                    else int(scale_a[m, j]) + int(scale_b[n, j]) - 254
                )
                # the exponent of such a term counts even when its sum is zero
                terms.append((dot * Fraction(factor_a[m, j]) * Fraction(factor_b[n, j]), exponent))
            addend = Fraction(float(c.view(numpy.float32)[m, n]))
            top = max([e for _, e in terms] + [leading(addend)])
            total = sum((cut(v, top - 35) for v, _ in terms), Fraction(0)) + cut(addend, top - 35)
            expected = float(cut(total, max(leading(total), -126) - 23)) if total else 0.0
            assert float(seen[m, n]) == expected


@pytest.mark.parametrize("scale_name", ["ue8m0", "ue4m3"])
def test_a_nan_scale_spoils_its_row_and_no_other(scale_name):
    scale = number_formats.FORMATS[scale_name]
    nan, one_code = scale.nan, {"ue8m0": 127, "ue4m3": 0x38}[scale_name]
    a = operand(number_formats.E2M1, numpy.full((2, 64), 2))
    scale_a = numpy.full((2, 4), one_code)
    scale_a[1, 3] = nan
    result = hw_sum_fp4(
        a,
        operand(number_formats.E2M1, numpy.full((1, 64), 2)),
        None,
        BlockScale(scale, scale_a),
        BlockScale(scale, numpy.full((1, 4), one_code)),
    )
    assert result.tolist() == [[int(f32_bits([64.0])[0])], [0x7FFFFFFF]]


# ---- the modes agree where both are exact


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "f16", "bf16", "tf32"])
def test_exact_and_hardware_mode_agree_on_small_integers(name):
    format = number_formats.FORMATS[name]
    rng = numpy.random.default_rng(2)
    a, b = codes_of(format, rng.integers(-4, 5, (64, 32))), codes_of(format, rng.integers(-4, 5, (40, 32)))
    c = f32_bits(rng.integers(-100, 100, (64, 40)))
    left, right = operand(format, a), operand(format, b)
    exact = arithmetic.exact_sum(left, right, c, "f32")
    numpy.testing.assert_array_equal(hw_sum(left, right, c, arithmetic.HOPPER_FP8_F32), exact)
    numpy.testing.assert_array_equal(hw_sum(left, right, c, arithmetic.WIDE_F32), exact)
    numpy.testing.assert_array_equal(
        exact.view(numpy.float32), number_formats.decode(format, a) @ number_formats.decode(format, b).T + c.view(numpy.float32)
    )


def test_integer_matrices_wrap_or_saturate():
    a, b = numpy.full((1, 32), 127), numpy.full((1, 32), 127)
    near = numpy.array([[0x7FFFFFFF]], U32)
    assert arithmetic.integer_sum(a, b, near, saturate=True).tolist() == [[0x7FFFFFFF]]
    assert arithmetic.integer_sum(a, b, near, saturate=False).tolist() == [[(0x7FFFFFFF + 32 * 127 * 127) & 0xFFFFFFFF]]


def test_one_hardware_step_of_128_by_128_by_32_takes_milliseconds():
    rng = numpy.random.default_rng(1)
    a, b = (operand(number_formats.E4M3, rng.integers(0, 0x7F, (128, 32))) for _ in range(2))
    c = numpy.zeros((128, 128), U32)
    best = min(_seconds(lambda: hw_sum(a, b, c, arithmetic.HOPPER_FP8_F32)) for _ in range(5))
    assert best < 0.02, f"{best * 1e3:.1f} ms"


def _seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start

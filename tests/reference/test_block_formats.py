"""Each format's rule for one block: vectors worked out by hand, hazards, and exact arithmetic of a second implementation."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import DTYPES, any_bits, bytes_of, every_bf16, every_format, every_rule
from tests.reference.exact import block as exact_block
from tests.reference.exact import round32
from tests.reference.test_formats import nearest_code, values_of
from zoo.reference.block_formats import block_format, nvfp4_tensor_scale
from zoo.reference.quantize import quantize_rows
from zoo.reference.small_floats import unpack_e2m1

every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
FLOAT32_MAX = np.finfo(np.float32).max


def quantize(x, format):
    """Scales (as bytes, or float32) and element codes, one a byte."""
    result = quantize_rows(x, format)
    scales = result.scales if result.scales.dtype == np.float32 else bytes_of(result.scales)
    return scales, unpack_e2m1(result.q) if format.packed else bytes_of(result.q)


def quantize_block(first, rest, format, dtype=np.float32):
    """The scale and the first two codes of the block [first, rest, rest, ...]."""
    x = np.full((1, format.block), rest, dtype)
    x[0, 0] = first
    scales, codes = quantize(x, format)
    return scales[0, 0], codes[0, :2].tolist()


def rule_of(format):
    if format.name == "nvfp4":
        return "nvfp4", {"tensor_scale": format.tensor_scale, "subnormal": format.rule.smallest_scale == "subnormal"}
    if format.name == "fp8b128":
        return "fp8b128", {"pow2": format.rule.scaling == "pow2"}
    return "mx", {"element": format.element.name, "rounding": format.rule.rounding}


@pytest.mark.parametrize(
    ("format", "first", "rest", "scale", "codes"),
    [
        # mxfp4, amax 6: E = 129; 129 - 2 = 127: scale 1, codes 7 (6) and 1 (0.5).
        (block_format("mxfp4", rounding="floor"), 6.0, 0.5, 127, [0x7, 0x1]),
        (block_format("mxfp4", rounding="rceil"), 6.0, 0.5, 127, [0x7, 0x1]),  # f32(1/6) * 6 rounds to 1 exactly
        # amax 7: floor keeps scale 1 and saturates; rceil takes 2: 3.5 lies between 3 and 4, to even (4).
        (block_format("mxfp4", rounding="floor"), 7.0, -1.0, 127, [0x7, 0xA]),
        (block_format("mxfp4", rounding="rceil"), 7.0, -1.0, 128, [0x6, 0x9]),
        # every tie of e2m1 at scale 1, the even code wins.
        (block_format("mxfp4", rounding="floor"), 4.0, 0.25, 127, [0x6, 0x0]),
        (block_format("mxfp4", rounding="floor"), 4.0, 0.75, 127, [0x6, 0x2]),
        (block_format("mxfp4", rounding="floor"), 4.0, 1.25, 127, [0x6, 0x2]),
        (block_format("mxfp4", rounding="floor"), 4.0, 1.75, 127, [0x6, 0x4]),
        (block_format("mxfp4", rounding="floor"), 4.0, 2.5, 127, [0x6, 0x4]),
        (block_format("mxfp4", rounding="floor"), 4.0, -3.5, 127, [0x6, 0xE]),
        (block_format("mxfp4", rounding="floor"), 5.0, 5.0, 127, [0x6, 0x6]),
        # nvfp4, tensor scale 1: amax 6 has scale 1 (0x38); 12 has 2 (0x40).
        (block_format("nvfp4", tensor_scale=1.0), 6.0, -0.5, 0x38, [0x7, 0x9]),
        (block_format("nvfp4", tensor_scale=1.0), 12.0, 1.0, 0x40, [0x7, 0x1]),
        # amax 6.2: 1.0333 rounds down to 1; 6.2 saturates at 6. amax 6.4: 1.0667 rounds up to 1.125; 5.69 is nearer to 6.
        (block_format("nvfp4", tensor_scale=1.0), 6.2, 2.5, 0x38, [0x7, 0x4]),
        (block_format("nvfp4", tensor_scale=1.0), 6.4, 2.25, 0x39, [0x7, 0x4]),
        # scales: not below 2^-6 (0x08), not above 448 (0x7E).
        (block_format("nvfp4", tensor_scale=1.0), 2.0**-8, 0.0, 0x08, [0x0, 0x0]),
        (block_format("nvfp4", tensor_scale=1.0), 2.0**-7, 0.0, 0x08, [0x1, 0x0]),
        (block_format("nvfp4", tensor_scale=1.0), 1e9, 448.0, 0x7E, [0x7, 0x2]),
        # down to 2^-9 (0x01) where asked: 6 * 2^-9 is the largest element then, and 7.5 * 2^-9 has the tie between 2^-9 and 2^-8, to even.
        (block_format("nvfp4", tensor_scale=1.0, smallest_scale="subnormal"), 6 * 2.0**-9, 2.0**-10, 0x01, [0x7, 0x1]),
        (block_format("nvfp4", tensor_scale=1.0, smallest_scale="subnormal"), 9 * 2.0**-9, 2.0**-8, 0x02, [0x6, 0x2]),
        (block_format("nvfp4", tensor_scale=1.0, smallest_scale="subnormal"), 2.0**-12, 0.0, 0x01, [0x0, 0x0]),
        (block_format("nvfp4", tensor_scale=1.0, smallest_scale="subnormal"), 6.0, -0.5, 0x38, [0x7, 0x9]),
        # tensor scale 1/4 and a block of 6: relative scale 4 (0x48).
        (block_format("nvfp4", tensor_scale=0.25), 6.0, 3.0, 0x48, [0x7, 0x5]),
        # fp8b128: scale 1 and 2; halfway between 448 and the missing 480 nothing can lie.
        (block_format("fp8b128"), 448.0, -3.0, 1.0, [0x7E, 0xC4]),
        (block_format("fp8b128"), 896.0, 2.0, 2.0, [0x7E, 0x38]),
        # pow2 rounds up: 500 / 448 to 2, 250 lies between 240 and 256; without it the largest is always 448.
        (block_format("fp8b128", scaling="pow2"), 500.0, 1.0, 2.0, [0x78, 0x30]),
        (block_format("fp8b128", scaling="pow2"), 448.0, 1.0, 1.0, [0x7E, 0x38]),
    ],
)  # fmt: skip
def test_vectors_worked_out_by_hand(format, first, rest, scale, codes):
    assert quantize_block(first, rest, format) == (scale, codes)


def scale_in_float64(amax, element, rounding):
    """The rules by the exponent, stated in float64: for magnitudes whose scales are between 2^-127 and 2^127."""
    bits, exponent_of_largest = {"e4m3": (3, 8), "e5m2": (2, 15), "e2m1": (1, 2)}[element]
    mantissa, exponent = np.frexp(np.float64(amax))  # a mantissa in [0.5, 1)
    if rounding == "even":
        mantissa = np.round(mantissa * 2 ** (bits + 1)) / 2 ** (bits + 1)
    raised = mantissa == 1 or (rounding == "ceil" and mantissa != 0.5)
    return 127 + exponent - 1 + raised - exponent_of_largest


@pytest.mark.parametrize("rounding", ["floor", "even", "ceil"])
@pytest.mark.parametrize("element", ["e4m3", "e5m2", "e2m1"])
def test_roundings_part_where_float64_says(element, rounding):
    format = block_format("mxfp4", rounding=rounding) if element == "e2m1" else block_format("mxfp8", element, rounding=rounding)
    for boundary in (1.0, 1.5, 1.75, 1.875, 1.9375):  # ceil; the largest e2m1; the largest of fp8 and even of e2m1, e5m2 and e4m3
        for exponent in (-60, 0, 15, 60):
            exact = np.float32(np.ldexp(boundary, exponent))
            for amax in (np.nextafter(exact, np.float32(0)), exact, np.nextafter(exact, np.float32(np.inf))):
                scales = format.scales(np.array([[amax]], np.float32))
                assert bytes_of(scales)[0, 0] == scale_in_float64(amax, element, rounding), (boundary, exponent)


def test_even_has_no_scale_for_what_it_rounds_to_infinity_and_ceil_has_for_every_number():
    most = np.float32(1.9375 * 2.0**127)
    even, ceil = (block_format("mxfp8", rounding=rounding) for rounding in ("even", "ceil"))
    assert quantize_block(most, 1.0, even) == (255, [0x7F, 0x7F])
    assert quantize_block(np.nextafter(most, np.float32(0)), 0.0, even) == (254 - 8, [0x7E, 0x00])
    assert quantize_block(FLOAT32_MAX, 0.0, ceil) == (255 - 8, [0x78, 0x00])


@pytest.mark.parametrize("rounding", ["even", "ceil"])
def test_subnormal_magnitudes_have_the_smallest_scale(rounding):
    for amax in (2.0**-149, 2.0**-126 - 2.0**-149):
        assert quantize_block(np.float32(amax), 0.0, block_format("mxfp8", rounding=rounding))[0] == 0


@every_rule
def test_zero_block_has_its_own_scale_and_keeps_signs(format):
    scale = {"mxfp8": 0, "mxfp4": 0, "nvfp4": 0x08, "fp8b128": 1.0}[format.name]
    if format.name == "nvfp4" and format.rule.smallest_scale == "subnormal":
        scale = 0x01
    assert quantize_block(-0.0, 0.0, format) == (scale, [0x8 if format.packed else 0x80, 0x00])


@every_rule
@every_dtype
@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
def test_nan_or_infinity_stays_in_its_block(format, dtype, special):
    block = format.block
    x = np.random.default_rng(3).standard_normal((2, 3 * block)).astype(dtype)
    clean_scales, clean = quantize(x, format)
    x[0, block + 5] = special
    scales, codes = quantize(x, format)
    others = np.ones((2, 3), bool)
    others[0, 1] = False
    assert np.array_equal(scales[others], clean_scales[others])
    assert np.array_equal(codes[others.repeat(block, axis=1)], clean[others.repeat(block, axis=1)])
    poisoned = codes[0, block : 2 * block]
    if format.name == "nvfp4" and np.isinf(special):
        multiplier = 1 / (448 * float(format.tensor_scale))  # saturated like any large number; the others are numbers
        expected = nearest_code(x[0, block : 2 * block].astype(np.float64) * multiplier, "e2m1")
        assert scales[0, 1] == 0x7E and np.array_equal(poisoned, expected)
    elif format.name == "fp8b128":
        assert scales.view(np.uint32)[0, 1] == 0x7FFFFFFF and (poisoned == 0x7F).all()
    else:
        assert scales[0, 1] == (0x7F if format.name == "nvfp4" else 255)
        assert (poisoned == (0x00 if format.packed else 0x7F)).all()


@every_rule
def test_one_huge_element_leaves_the_rest_zero_with_their_signs(format):
    huge = float(2**126) if format.name != "nvfp4" else 2688 * 0.002
    scale, (largest, other) = quantize_block(huge, -1e-7, format)
    assert values_of(format.element.name)[largest] > 0 and other == (0x8 if format.packed else 0x80)
    assert scale not in (0, 255)


@every_format
def test_largest_float32_is_a_number(format):
    if format.name == "nvfp4":
        format = block_format("nvfp4", tensor_scale=nvfp4_tensor_scale(FLOAT32_MAX))
    scale, (largest, smaller) = quantize_block(FLOAT32_MAX, FLOAT32_MAX / 4, format)
    assert np.isfinite(scale) and scale not in (255, 0x7F)
    values = values_of(format.element.name)
    assert values[largest] > values[smaller] > 0 and np.isfinite(values[largest])


@every_rule
@every_dtype
def test_random_blocks_of_all_exponents_equal_exact_arithmetic(format, dtype):
    x = any_bits((40, format.block), dtype, seed=5)
    rule, options = rule_of(format)
    scales, codes = quantize(x, format)
    for values, found, scale in zip(x, codes, scales[:, 0], strict=True):
        assert (scale, found.tolist()) == exact_block(values, rule, **options)


@every_rule
def test_blocks_of_one_binade_equal_exact_arithmetic(format):
    # All exponents in one block leave most elements zero; here every element matters.
    random = np.random.default_rng(6)
    rule, options = rule_of(format)
    for exponent in (-149, -140, -127, -126, -20, 0, 20, 120, 127):
        x = np.ldexp(random.uniform(-1, 1, (3, format.block)), exponent).astype(np.float32)
        scales, codes = quantize(x, format)
        for values, found, scale in zip(x, codes, scales[:, 0], strict=True):
            assert (scale, found.tolist()) == exact_block(values, rule, **options)


@every_rule
def test_every_bf16_pattern_in_company_equals_exact_arithmetic(format):
    finite = every_bf16()[0]
    finite = finite[np.isfinite(finite.astype(np.float32))]
    shuffled = np.random.default_rng(7).permutation(finite)
    x = shuffled[: len(shuffled) // format.block * format.block].reshape(-1, format.block)[:: 400 // format.block]
    rule, options = rule_of(format)
    scales, codes = quantize(x, format)
    for values, found, scale in zip(x, codes, scales[:, 0], strict=True):
        assert (scale, found.tolist()) == exact_block(values, rule, **options)


@every_format
def test_every_bf16_pattern_alone_in_its_block(format):
    patterns = every_bf16()[0]
    x = np.zeros((65536, format.block), ml_dtypes.bfloat16)
    x[np.arange(65536), np.arange(65536) % format.block] = patterns
    scales, codes = quantize(x, format)
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = patterns.astype(np.float64)
    finite, nan = np.isfinite(values), np.isnan(values)
    own = codes[np.arange(65536), np.arange(65536) % format.block]
    codes[np.arange(65536), np.arange(65536) % format.block] = 0
    assert (codes[finite] == 0).all()
    assert np.array_equal(np.signbit(values_of(format.element.name)[own[finite]]), np.signbit(values[finite]))
    assert np.array_equal(bytes_of(scales)[:32768], bytes_of(scales)[32768:])  # the sign does not matter
    numbers = scales[:0x7F80, 0].astype(np.float64)
    assert (np.diff(numbers[1:] if format.name == "fp8b128" else numbers) >= 0).all()  # fp8b128: 0 has scale 1
    if format.name == "fp8b128":
        assert (scales.view(np.uint32)[~finite] == 0x7FFFFFFF).all()
    elif format.name == "nvfp4":
        assert (scales[nan] == 0x7F).all() and (own[nan] == 0).all() and (scales[~finite & ~nan] == 0x7E).all()
    else:
        assert (scales[~finite] == 255).all()


@pytest.mark.parametrize("pow2", [False, True])
def test_fp8b128_scale_is_never_subnormal_and_pow2_has_no_mantissa(pow2):
    amax = np.abs(every_bf16()[0][:0x7F80].astype(np.float32))
    scales = block_format("fp8b128", scaling="pow2" if pow2 else "exact").scales(amax)
    assert scales.min() == 2.0**-126 and (scales[amax == 0] == 1).all()
    if pow2:
        assert (bytes_of(scales) & 0x007FFFFF == 0).all()
    # the smallest subnormal still becomes an element: 2^-149 * 2^126 = 2^-23 is 0 in e4m3; 2^-133 * 2^126 = 2^-7 is not
    assert quantize_block(2.0**-133, 0.0, block_format("fp8b128", scaling="pow2" if pow2 else "exact")) == (2.0**-126, [0x04, 0x00])


def test_fp8b128_divides_by_448_and_does_not_multiply_by_the_reciprocal():
    amax = np.arange(1.0, 2.0, 2.0**-12, dtype=np.float32)
    assert (amax / np.float32(448) != amax * np.float32(1 / 448)).any()  # these inputs can tell
    assert np.array_equal(block_format("fp8b128").scales(amax).astype(np.float64), (amax.astype(np.float64) / 448).astype(np.float32))


def near(values, steps=4):
    """float32 neighbours of these numbers, a few steps to both sides."""
    bits = np.asarray(values, np.float32).view(np.int32)
    return (bits[..., None] + np.arange(-steps, steps + 1)).astype(np.int32).view(np.float32).reshape(-1)


def test_nvfp4_block_scale_is_divided_twice_in_order():
    # Near a tie of e4m3 the last bit of the quotient decides. Ties: 1 + an odd number of sixteenths.
    random, six, differ = np.random.default_rng(8), np.float32(6), np.zeros(2, int)
    for tensor_scale in random.uniform(1e-3, 1, 40).astype(np.float32):
        amax = near(6 * tensor_scale * (1 + np.arange(1, 16, 2) / 16))
        scales = bytes_of(block_format("nvfp4", tensor_scale=tensor_scale).scales(amax))
        by_the_rule = [round32(round32(Fraction(float(a)) / 6) / Fraction(float(tensor_scale))) for a in amax]
        assert scales.tolist() == nearest_code(np.array(by_the_rule, np.float64), "e4m3").tolist()
        for i, other in enumerate((amax * np.float32(1 / 6) / tensor_scale, amax / (six * tensor_scale))):
            differ[i] += (scales != nearest_code(other, "e4m3")).sum()
    assert (differ > 0).all()  # these inputs can tell


def test_nvfp4_element_is_multiplied_by_one_rounded_inverse():
    # The inverse of the tensor scale, rounded, over the block scale, rounded; near ties of e2m1 the last bit decides.
    random, one, differ = np.random.default_rng(9), np.float32(1), np.zeros(2, int)
    for tensor_scale in random.uniform(1e-3, 1, 40).astype(np.float32):
        format, block_scale = block_format("nvfp4", tensor_scale=tensor_scale), np.float32(random.choice([1.125, 1.375, 1.625, 1.875]))
        step = block_scale * tensor_scale
        x = np.zeros((7, 16), np.float32)
        x[:, 0] = 6 * step
        x[:, 1:10] = near(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5]) * step).reshape(7, 9)
        scales, codes = quantize(x, format)
        assert (scales == nearest_code(block_scale[None], "e4m3")).all()
        for values, found in zip(x, codes, strict=True):
            assert found.tolist() == exact_block(values, "nvfp4", tensor_scale=tensor_scale)[1]
        for i, other in enumerate((x * (one / (tensor_scale * block_scale)), x / (tensor_scale * block_scale))):
            differ[i] += (codes != nearest_code(other.reshape(-1), "e2m1").reshape(7, 16)).sum()
    assert (differ > 0).all()  # these inputs can tell


def test_nvfp4_tensor_scale_of_a_zero_tensor_is_one():
    assert nvfp4_tensor_scale(np.array([0.0, 2688.0, 5376.0])).tolist() == [1.0, 1.0, 2.0]
    result = quantize_rows(np.zeros((3, 32), np.float32), block_format("nvfp4", tensor_scale=nvfp4_tensor_scale(0.0)))
    assert (bytes_of(result.scales) == 0x08).all() and (result.q == 0).all()


def test_nvfp4_largest_of_the_tensor_has_scale_448_and_element_6():
    for amax in (1e-30, 0.37, 5.0, 1e30):
        format = block_format("nvfp4", tensor_scale=nvfp4_tensor_scale(amax))
        assert quantize_block(amax, 0.0, format) == (0x7E, [0x7, 0x0])


def test_nvfp4_stale_tensor_scale_saturates():
    # The amax of a step before was ten times smaller: scale 448, elements 6, no overflow into NaN (0x7F).
    assert quantize_block(26880.0, -26880.0, block_format("nvfp4", tensor_scale=1.0)) == (0x7E, [0x7, 0xF])


def test_nvfp4_tensor_scale_too_small_to_invert_saturates_and_keeps_zero():
    # 1 / 2^-130 is infinity; infinity * 0 is not an element, and 0 is.
    # 12 * 2^-130 over 6 is a scale of 2 (0x40).
    assert quantize_block(12 * 2.0**-130, 0.0, block_format("nvfp4", tensor_scale=2.0**-130)) == (0x40, [0x7, 0x0])
    assert quantize_block(-12 * 2.0**-130, 2.0**-149, block_format("nvfp4", tensor_scale=2.0**-130)) == (0x40, [0xF, 0x7])


@pytest.mark.parametrize("scale", [np.nan, np.inf])
def test_nvfp4_tensor_scale_that_is_no_number_makes_no_number(scale):
    x = np.ones((1, 16), np.float32)
    result = quantize_rows(x, block_format("nvfp4", tensor_scale=scale))
    with np.errstate(invalid="ignore"):
        meaning = result.scales.astype(np.float32)[0, 0] * np.float32(scale) * 0
    assert np.isnan(meaning) and (unpack_e2m1(result.q) & 7 == 0).all()

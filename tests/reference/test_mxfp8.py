"""MXFP8 against vectors worked out by hand, and against a second implementation in exact rational arithmetic."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.reference.test_formats import nearest_code, values_of
from zoo.reference import dequantize_mxfp8_rows, quantize_mxfp8_rows
from zoo.reference.layouts import from_blocked, to_blocked

DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}
MAXIMUM = {"e4m3": 448, "e5m2": 57344}
EXPONENT = {"e4m3": 8, "e5m2": 15}
every_mode = pytest.mark.parametrize(
    ("element", "rounding"), [(element, rounding) for element in MAXIMUM for rounding in ("floor", "rceil")]
)


def quantise_block(first, rest=0.0, dtype=np.float32, **mode):
    """The scale byte and the bytes of the first two elements of the block [first, rest, rest, ...]."""
    x = np.full((1, 32), rest, dtype)
    x[0, 0] = first
    q, scales = quantize_mxfp8_rows(x, **mode)
    return scales.view(np.uint8)[0, 0], q.view(np.uint8)[0, :2].tolist()


@pytest.mark.parametrize(
    ("mode", "first", "rest", "scale", "bytes_"),
    [
        # amax 1: E = 127; 127 - 8 = 119; 1 * 2^8 = 256 = 0x78. d = 1/448 = 1.14 * 2^-9: E(d) = 118, up to 119.
        (("e4m3", "floor"), 1.0, 0.5, 119, [0x78, 0x70]),
        (("e4m3", "rceil"), 1.0, 0.5, 119, [0x78, 0x70]),
        # amax 448: E = 135, scale 1; d = RN(448 * f32(1/448)) = 1 exactly, nothing to round up.
        (("e4m3", "floor"), 448.0, -3.0, 127, [0x7E, 0xC4]),
        (("e4m3", "rceil"), 448.0, -3.0, 127, [0x7E, 0xC4]),
        # amax 500: floor keeps scale 1 and saturates; rceil takes 2: 250 -> 256 (240 and 256 are the neighbours).
        (("e4m3", "floor"), 500.0, 1.0, 127, [0x7E, 0x38]),
        (("e4m3", "rceil"), 500.0, 1.0, 128, [0x78, 0x30]),
        # e5m2: E = 127; 127 - 15 = 112; 2^15 = 0x78. d = 1/57344 = 1.14 * 2^-16: E(d) = 111, up to 112.
        (("e5m2", "floor"), -1.0, 0.25, 112, [0xF8, 0x70]),
        (("e5m2", "rceil"), -1.0, 0.25, 112, [0xF8, 0x70]),
        (("e5m2", "floor"), 65536.0, 1.0, 128, [0x78, 0x38]),
        (("e5m2", "rceil"), 57344.0, 1.0, 127, [0x7B, 0x3C]),
        # ties to even: with scale 1, 17 lies between 16 (0x58) and 18 (0x59); 19 between 18 and 20 (0x5A).
        (("e4m3", "floor"), 256.0, 17.0, 127, [0x78, 0x58]),
        (("e4m3", "floor"), 256.0, 19.0, 127, [0x78, 0x5A]),
        # e4m3's subnormals: 2^-10 is half of the smallest and goes to 0; 3 * 2^-10 lies between 1 and 2 steps, to 2.
        (("e4m3", "floor"), 256.0, 2.0**-10, 127, [0x78, 0x00]),
        (("e4m3", "floor"), 256.0, 3 * 2.0**-10, 127, [0x78, 0x02]),
    ],
)
def test_vectors_worked_out_by_hand(mode, first, rest, scale, bytes_):
    assert quantise_block(first, rest, element=mode[0], rounding=mode[1]) == (scale, bytes_)


@every_mode
def test_zero_block_has_scale_byte_zero_and_keeps_signs(element, rounding):
    assert quantise_block(-0.0, 0.0, element=element, rounding=rounding) == (0, [0x80, 0x00])


@every_mode
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
def test_nan_or_infinity_poisons_its_block_and_no_other(element, rounding, dtype, special):
    x = np.random.default_rng(3).standard_normal((2, 96)).astype(DTYPES[dtype])
    clean, clean_scales = quantize_mxfp8_rows(x, element, rounding)
    x[0, 40] = special
    q, scales = quantize_mxfp8_rows(x, element, rounding)
    assert scales.view(np.uint8)[0, 1] == 255
    assert (q.view(np.uint8)[0, 32:64] == 0x7F).all()
    others = np.ones((2, 96), bool)
    others[0, 32:64] = False
    assert np.array_equal(q.view(np.uint8)[others], clean.view(np.uint8)[others])
    scales, clean_scales = scales.view(np.uint8).ravel(), clean_scales.view(np.uint8).ravel()
    assert np.array_equal(np.delete(scales, 1), np.delete(clean_scales, 1))


def test_nothing_is_flushed_to_zero():
    # The largest bf16 subnormal, 127 * 2^-133, times 2^127 is 1.98: 2.0 in e4m3.
    x = np.full((1, 32), 0x007F, np.uint16).view(ml_dtypes.bfloat16)
    q, scales = quantize_mxfp8_rows(x)
    assert scales.view(np.uint8)[0, 0] == 0 and (q.view(np.uint8) == 0x40).all()


def test_rceil_below_the_smallest_normal_rounds_up_only_past_half():
    # Byte 0 means 2^-127. 448 * 2^-127 gives exactly that; the next float32 does not.
    exact = np.float32(448 * 2.0**-127)
    assert quantise_block(exact, rounding="rceil")[0] == 0
    assert quantise_block(exact * np.float32(1 + 2.0**-20), rounding="rceil")[0] == 1
    assert quantise_block(np.float32(2.0**-149), rounding="rceil")[0] == 0


@pytest.mark.parametrize("element", MAXIMUM)
def test_rceil_next_to_the_largest_element(element):
    largest = np.float32(MAXIMUM[element])
    assert quantise_block(np.nextafter(largest, np.float32(0)), element=element, rounding="rceil")[0] == 127
    assert quantise_block(largest, element=element, rounding="rceil")[0] == 127
    assert quantise_block(np.nextafter(largest, np.float32(np.inf)), element=element, rounding="rceil")[0] == 128


@every_mode
def test_largest_float32_is_finite(element, rounding):
    scale, (byte, _) = quantise_block(np.finfo(np.float32).max, element=element, rounding=rounding)
    # E = 254 less EMAX, elements saturated; or 2^128 / max, rounded up: one more, and half of the largest power of two.
    assert scale == 254 - EXPONENT[element] + (rounding == "rceil")
    assert byte == {"floor": {"e4m3": 0x7E, "e5m2": 0x7B}, "rceil": {"e4m3": 0x78, "e5m2": 0x78}}[rounding][element]


def exact_scale(amax: Fraction, element: str, rounding: str) -> int:
    """The scale byte by rational arithmetic; amax is a finite float32."""
    if rounding == "floor":
        exponent = 0
        if amax >= Fraction(1, 2**126):
            exponent = amax.numerator.bit_length() - amax.denominator.bit_length()
            exponent += 127 - (amax < Fraction(2) ** exponent)
        return max(exponent - EXPONENT[element], 0)
    reciprocal = Fraction(float(np.float32(1.0) / np.float32(MAXIMUM[element])))
    descale = Fraction(float(np.float32(float(amax * reciprocal))))  # 48 bits of product fit a double: rounded once
    byte = 0
    while Fraction(2) ** (byte - 127) < descale:
        byte += 1
    return byte


@every_mode
@pytest.mark.parametrize("dtype", DTYPES)
def test_random_blocks_of_all_exponents_equal_exact_arithmetic(element, rounding, dtype):
    random = np.random.default_rng(5)
    width = np.dtype(DTYPES[dtype]).itemsize * 8
    unsigned = {16: np.uint16, 32: np.uint32}[width]
    x = random.integers(0, 1 << width, (60, 32), dtype=np.uint64).astype(unsigned).view(DTYPES[dtype])
    with np.errstate(invalid="ignore"):  # signalling NaN
        x = np.where(np.isfinite(x), x, DTYPES[dtype](1))
    q, scales = quantize_mxfp8_rows(x, element, rounding)
    for block, codes, scale in zip(x.astype(np.float64), q.view(np.uint8), scales.view(np.uint8).ravel(), strict=True):
        expected = exact_scale(Fraction(np.abs(block).max()), element, rounding)
        assert scale == expected
        # Exact in float64, and no float32 rounding changes it: what float32 cannot hold is far below an element.
        assert np.array_equal(codes, nearest_code(block * 2.0 ** (127 - expected), element))


@every_mode
def test_every_bf16_pattern_as_the_largest_of_a_block(element, rounding):
    patterns = np.arange(65536, dtype=np.uint16)
    x = np.zeros((65536, 32), np.uint16)
    x[np.arange(65536), patterns % 32] = patterns
    with np.errstate(invalid="ignore"):  # signalling NaN
        values = patterns.view(ml_dtypes.bfloat16).astype(np.float64)
    q, scales = quantize_mxfp8_rows(x.view(ml_dtypes.bfloat16), element, rounding)
    scales = scales.view(np.uint8).ravel()
    finite = np.isfinite(values)
    assert (scales[~finite] == 255).all() and (q.view(np.uint8)[~finite] == 0x7F).all()
    by_magnitude = [exact_scale(Fraction(abs(value)), element, rounding) for value in values[:0x7F80:7]]
    assert scales[:0x7F80:7].tolist() == by_magnitude
    assert np.array_equal(scales[:0x8000], scales[0x8000:])
    assert (np.diff(scales[:0x7F80].astype(int)) >= 0).all()
    kept = values_of(element)[q.view(np.uint8)[np.arange(65536), patterns % 32]][finite]
    assert np.array_equal(np.signbit(kept), np.signbit(values[finite]))
    normal = finite & (np.abs(values) >= 2.0**-118)
    error = np.abs(kept[normal[finite]] * 2.0 ** (scales[normal] - 127.0) / values[normal] - 1)
    half_step = {"e4m3": 2.0**-4, "e5m2": 2.0**-3}[element]
    # floor: the worst is the largest mantissa, 255/128, saturated to 7/4. rceil: half a step above a power of two.
    assert error.max() <= {"floor": 1 - 1.75 / (255 / 128), "rceil": half_step / (1 + half_step)}[rounding] + 2.0**-50


@pytest.mark.parametrize("shape", [(1, 32), (130, 160), (128, 128), (3, 4096), (0, 64), (5, 0)])
def test_blocked_scales_are_the_plain_ones_rearranged(shape):
    x = np.random.default_rng(9).standard_normal(shape).astype(ml_dtypes.bfloat16)
    q, plain = quantize_mxfp8_rows(x, "e4m3", "rceil", "plain")
    q_again, blocked = quantize_mxfp8_rows(x, "e4m3", "rceil", "blocked")
    assert plain.shape == (shape[0], shape[1] // 32)
    assert np.array_equal(q.view(np.uint8), q_again.view(np.uint8))
    assert np.array_equal(blocked.view(np.uint8), to_blocked(plain.view(np.uint8)))
    assert np.array_equal(from_blocked(blocked, *plain.shape).view(np.uint8), plain.view(np.uint8))


@every_mode
@pytest.mark.parametrize("layout", ["plain", "blocked"])
def test_dequantised_is_within_half_a_step_of_the_block_maximum(element, rounding, layout):
    x = np.random.default_rng(11).standard_normal((130, 160)).astype(np.float32)
    back = dequantize_mxfp8_rows(*quantize_mxfp8_rows(x, element, rounding, layout), layout)
    amax = np.abs(x).reshape(130, 5, 32).max(axis=2).repeat(32, axis=1)
    step = {"e4m3": 2.0**-3, "e5m2": 2.0**-2}[element]  # of the largest binade; a saturated element loses as much
    assert (np.abs(back - x) <= amax * step).all() and np.abs(back - x).max() > 0


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((2, 48), {}, "K = 48 is not a multiple of 32"),
        ((2, 64), {"element": "e2m1"}, "'e4m3' or 'e5m2', not 'e2m1'"),
        ((2, 64), {"rounding": "up"}, "'even' or 'ceil', not 'up'"),
        ((2, 64), {"layout": "mn_major"}, "'plain' or 'blocked', not 'mn_major'"),
    ],
)
def test_what_is_not_defined_is_refused(shape, options, message):
    with pytest.raises(ValueError, match=message):
        quantize_mxfp8_rows(np.zeros(shape, np.float32), **options)

"""Number formats and cvt: against ml_dtypes, against exact fractions, and against the cases where implementations usually go wrong."""

from fractions import Fraction

import ml_dtypes
import numpy
import pytest

from zoo.emulator import number_formats
from zoo.emulator.conversions import UnsupportedConversion, conversion

U32 = numpy.uint32

LIBRARY = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "bf16": ml_dtypes.bfloat16,
    "f16": numpy.float16,
}


def bits(*values):
    return numpy.array(values, dtype=numpy.float32).view(U32)


def all_upper_halves():
    """Every upper half of an f32, with lower halves on both sides of every tie."""
    lower = numpy.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=U32)
    return ((numpy.arange(1 << 16, dtype=U32) << U32(16))[:, None] | lower).reshape(-1)


@pytest.mark.parametrize("name", LIBRARY)
def test_every_code_has_the_value_the_library_gives_it(name):
    format = number_formats.FORMATS[name]
    codes = numpy.arange(1 << format.bits)
    container = numpy.uint8 if format.bits <= 8 else numpy.uint16
    expected = codes.astype(container).view(LIBRARY[name]).astype(numpy.float64)
    seen = number_formats.decode(format, codes)
    numpy.testing.assert_array_equal(seen, expected)
    assert (numpy.signbit(seen) == numpy.signbit(expected))[~numpy.isnan(expected)].all()


def test_unsigned_scale_is_e4m3_without_sign_and_nan_with_bit_7():
    codes = numpy.arange(128)
    numpy.testing.assert_array_equal(number_formats.decode(number_formats.UE4M3, codes), number_formats.decode(number_formats.E4M3, codes))
    assert numpy.isnan(number_formats.decode(number_formats.UE4M3, codes + 128)).all()


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2"])
def test_rounding_to_a_short_format_agrees_with_the_library_inside_its_range(name):
    format = number_formats.FORMATS[name]
    patterns = all_upper_halves()
    with numpy.errstate(invalid="ignore"):
        values = patterns.view(numpy.float32)
        inside = numpy.abs(values) <= format.maximum
    expected = values[inside].astype(LIBRARY[name]).view(numpy.uint8)
    assert inside.sum() > 100_000
    numpy.testing.assert_array_equal(number_formats.encode_short(format, patterns[inside]), expected)


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2"])
def test_saturation_keeps_the_sign_and_a_nan_loses_it(name):
    format = number_formats.FORMATS[name]
    beyond = bits(format.maximum * 2, -format.maximum * 2, numpy.inf, -numpy.inf, 3e38, -3e38)
    top = format.largest
    assert number_formats.encode_short(format, beyond).tolist() == [top, top | format.sign_bit] * 3
    nan = format.nan if format.nan is not None else top
    nans = numpy.array([0x7FC00000, 0xFFC00001, 0x7F800001, 0xFF800001], dtype=U32)  # the last two only in their lower half
    assert number_formats.encode_short(format, nans).tolist() == [nan] * 4


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "f16", "bf16"])
def test_every_code_survives_a_round_trip(name):
    format = number_formats.FORMATS[name]
    codes = numpy.arange(1 << format.bits, dtype=numpy.uint64)
    values = number_formats.decode(format, codes)
    finite = numpy.isfinite(values)
    for rounding in number_formats.ROUNDINGS:
        again = number_formats.encode(format, values[finite], rounding, satfinite=True)
        numpy.testing.assert_array_equal(again, codes[finite])


def test_e2m1_ties_go_to_the_even_code():
    code = conversion("cvt.rn.satfinite.e2m1x2.f32")
    ties = bits(0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
    assert (code(ties, bits(*[0.0] * 7)) >> U32(4)).tolist() == [0, 2, 2, 4, 4, 6, 6]


@pytest.mark.parametrize(
    ("mnemonic", "upper", "lower", "expected"),
    [
        ("cvt.rn.satfinite.e4m3x2.f32", 1.0, -2.0, 0x38C0),
        ("cvt.rn.satfinite.e5m2x2.f32", 1.0, -2.0, 0x3CC0),
        ("cvt.rn.satfinite.e2m1x2.f32", 6.0, -0.5, 0x79),
        ("cvt.rn.satfinite.e2m3x2.f32", 1.0, -7.5, 0x083F),
        ("cvt.rn.satfinite.e3m2x2.f32", 1.0, -28.0, 0x0C3F),
        ("cvt.rn.bf16x2.f32", 1.0, -2.0, 0x3F80C000),
        ("cvt.rn.f16x2.f32", 1.0, -2.0, 0x3C00C000),
        ("cvt.rz.satfinite.ue8m0x2.f32", 1.5, 4.0, 0x7F81),
        ("cvt.rp.satfinite.ue8m0x2.f32", 1.5, 4.0, 0x8081),
    ],
)
def test_the_first_operand_goes_to_the_upper_part(mnemonic, upper, lower, expected):
    assert conversion(mnemonic)(bits(upper), bits(lower)).tolist() == [expected]


@pytest.mark.parametrize(
    ("pattern", "down", "up", "up_without_satfinite"),
    [
        (0x00000000, 0, 0, 0),
        (0x00000001, 0, 0, 0),  # far below 2^-127: there is no smaller code
        (0x00400000, 0, 0, 0),  # exactly 2^-127
        (0x00400001, 0, 1, 1),
        (0x00800000, 1, 1, 1),
        (0x00800001, 1, 2, 2),
        (0x3F800000, 127, 127, 127),
        (0xBF800001, 127, 128, 128),  # the sign is ignored
        (0x7F000000, 254, 254, 254),
        (0x7F000001, 254, 254, 255),
        (0x7F7FFFFF, 254, 254, 255),
        (0x7F800000, 254, 254, 255),
        (0x7FC00000, 255, 255, 255),
    ],
)
def test_power_of_two_scales_at_the_ends_of_their_range(pattern, down, up, up_without_satfinite):
    value = numpy.array([pattern], dtype=U32)
    assert number_formats.encode_ue8m0(value, "rz", True)[0] == down
    assert number_formats.encode_ue8m0(value, "rp", True)[0] == up
    assert number_formats.encode_ue8m0(value, "rp", False)[0] == up_without_satfinite


def test_scale_to_bf16_keeps_two_to_the_minus_127_as_a_subnormal():
    convert = conversion("cvt.rn.bf16x2.ue8m0x2")
    assert convert(numpy.array([0x00FF, 0x7F01], dtype=U32)).tolist() == [0x00407FFF, 0x3F800080]


def test_relu_turns_negatives_into_plus_zero_and_keeps_nan():
    convert = conversion("cvt.rn.satfinite.relu.e4m3x2.f32")
    assert convert(bits(-1.0, numpy.nan, -0.0), bits(1.0, -numpy.inf, 2.0)).tolist() == [0x0038, 0x7F00, 0x0040]
    convert = conversion("cvt.rn.relu.bf16x2.f32")
    assert convert(bits(-1.0, numpy.nan), bits(1.0, -0.0)).tolist() == [0x00003F80, 0x7FFF0000]


def test_bf16_rounds_to_even_and_overflows_to_infinity():
    patterns = all_upper_halves()
    values = patterns.view(numpy.float32)
    with numpy.errstate(invalid="ignore"):
        expected = values.astype(ml_dtypes.bfloat16).view(numpy.uint16)
    nan = numpy.isnan(values)
    seen = number_formats.f32_to_bf16(patterns)
    numpy.testing.assert_array_equal(seen[~nan], expected[~nan])
    assert (seen[nan] == 0x7FFF).all()


def exact(code, format):
    return Fraction(float(number_formats.decode(format, numpy.array([code]))[0]))


def rounded(value: Fraction, format, rounding: str, negative_zero: bool) -> int:
    """The code of a fraction by the definition: the neighbours of the value, then the rule. Slow and independent of encode()."""
    sign = value < 0 or (value == 0 and negative_zero)
    magnitude = abs(value)
    table = MAGNITUDES[format.name]
    low, high = 0, len(table) - 1
    while low < high:  # the largest code whose value does not exceed the magnitude
        middle = (low + high + 1) // 2
        if table[middle] <= magnitude:
            low = middle
        else:
            high = middle - 1
    code = low
    if table[code] != magnitude:
        above = table[code + 1] if code + 1 < len(table) else 2 * table[-1] - table[-2]
        distance = (magnitude - table[code]) / (above - table[code])
        if rounding == "rn":
            up = distance > Fraction(1, 2) or (distance == Fraction(1, 2) and code % 2 == 1)
        else:
            up = {"rz": False, "rp": not sign, "rm": sign}[rounding]
        code += up
    return code | (format.sign_bit if sign else 0)


MAGNITUDES = {
    name: [
        Fraction(float(v))
        for v in number_formats.decode(number_formats.FORMATS[name], numpy.arange(number_formats.FORMATS[name].largest + 1))
    ]
    for name in ("f16", "bf16")
}


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_a_half_fma_rounds_once(name, rounding):
    format = number_formats.FORMATS[name]
    rng = numpy.random.default_rng(7)
    a, b, c = (rng.integers(0, 1 << 16, 400).astype(U32) for _ in range(3))
    # half of the addends nearly cancel the product or lie half a unit away from it
    with numpy.errstate(all="ignore"):
        product = number_formats.decode(format, a) * number_formats.decode(format, b)
        near = number_formats.encode(format, -product * (1 + 2.0 ** rng.integers(-12, 3, 400)), "rn").astype(U32)
    c = numpy.where(numpy.arange(400) % 2, near, c)
    seen = number_formats.half_fma(format, a, b, c, rounding)
    checked = 0
    for x, y, z, result in zip(a, b, c, seen, strict=True):
        values = [float(number_formats.decode(format, numpy.array([v]))[0]) for v in (x, y, z)]
        if not numpy.isfinite(values).all():
            continue
        value = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
        if abs(value) >= MAGNITUDES[name][-1]:
            continue
        if value == 0:
            continue
        assert int(result) == rounded(value, format, rounding, False), (hex(x), hex(y), hex(z))
        checked += 1
    assert checked > 100


def f32_of_fraction(value: Fraction, rounding: str) -> float:
    """Correct rounding of a non-zero fraction within the normal and subnormal range of f32."""
    magnitude = abs(value)
    exponent = max(-126, magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - 1)
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    unit = Fraction(2) ** (exponent - 23)
    quotient, rest = divmod(magnitude, unit)
    negative = value < 0
    if rounding == "rn":
        up = rest > unit / 2 or (rest == unit / 2 and quotient % 2 == 1)
    else:
        up = rest != 0 and {"rz": False, "rp": not negative, "rm": negative}[rounding]
    result = (quotient + up) * unit
    return float(-result if negative else result)


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_an_f32_fma_rounds_once_where_float64_would_round_twice(rounding):
    rng = numpy.random.default_rng(3)
    count = 600
    a = ((rng.integers(1 << 23, size=count) | (rng.integers(90, 160, count) << 23)) | (rng.integers(2, size=count) << 31)).astype(U32)
    b = ((rng.integers(1 << 23, size=count) | (rng.integers(90, 160, count) << 23)) | (rng.integers(2, size=count) << 31)).astype(U32)
    # addends so small that they only decide a tie of the product, and addends that cancel it
    product = a.view(numpy.float32).astype(float) * b.view(numpy.float32).astype(float)
    tie = (numpy.ldexp(1.0, numpy.frexp(product)[1] - rng.integers(24, 90, count))).astype(numpy.float32)
    cancel = (-product * (1 + rng.choice([0, 2.0**-23, -(2.0**-22)], count))).astype(numpy.float32)
    c = numpy.where(numpy.arange(count) % 2 == 0, tie, cancel).view(U32)
    # a product with exactly 25 significant bits: a tie for float32
    a[:50] = (0x3F800000 | (rng.integers(1 << 12, size=50) << 11)).astype(U32)
    b[:50] = (0x3F800000 | (rng.integers(1 << 11, size=50) << 12)).astype(U32)
    seen = number_formats.fma(a, b, c, rounding).view(numpy.float32)
    twice = 0
    for x, y, z, result in zip(a.view(numpy.float32), b.view(numpy.float32), c.view(numpy.float32), seen, strict=True):
        value = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        if value == 0 or abs(value) > Fraction(2) ** 127:
            continue
        assert float(result) == f32_of_fraction(value, rounding), (x, y, z)
        twice += float(numpy.float32(float(x) * float(y) + float(z))) != float(result)
    if rounding == "rn":
        assert twice > 0, "no case here shows the double rounding that this test is about"


def test_signs_of_exact_zero_sums_follow_the_rounding_mode():
    one, minus = bits(1.0), bits(-1.0)
    assert number_formats.add(one, minus, "rn").tolist() == [0]
    assert number_formats.add(one, minus, "rm").tolist() == [0x80000000]
    assert number_formats.fma(bits(-0.0), one, bits(-0.0), "rn").tolist() == [0x80000000]


def test_packed_f32x2_works_on_both_halves():
    low, high = bits(1.5), bits(-2.0)
    packed = low.astype(numpy.uint64) | (high.astype(numpy.uint64) << numpy.uint64(32))
    three, ten = bits(3.0).astype(numpy.uint64), bits(10.0).astype(numpy.uint64)
    factor = three | (ten << numpy.uint64(32))
    result = number_formats.multiply_f32x2(packed, factor)
    assert (result & numpy.uint64(0xFFFFFFFF)).astype(U32).view(numpy.float32).tolist() == [4.5]
    assert (result >> numpy.uint64(32)).astype(U32).view(numpy.float32).tolist() == [-20.0]
    assert number_formats.fma_f32x2(packed, factor, packed).tolist() == number_formats.add_f32x2(result, packed).tolist()


def test_flush_to_zero_keeps_signs_and_applies_to_inputs_and_results():
    tiny = numpy.array([0x00000001, 0x80000001], dtype=U32)
    assert number_formats.add(tiny, bits(0.0, -0.0), ftz=True).tolist() == [0, 0x80000000]
    assert number_formats.multiply(bits(1e-30, -1e-30), bits(1e-12, 1e-12), ftz=True).tolist() == [0, 0x80000000]


@pytest.mark.parametrize(
    ("mnemonic", "value", "expected"),
    [
        ("cvt.rzi.s32.f32", 2.9, 2),
        ("cvt.rni.s32.f32", 2.5, 2),
        ("cvt.rmi.s32.f32", -2.1, 0xFFFFFFFD),
        ("cvt.rpi.s32.f32", -2.9, 0xFFFFFFFE),
        ("cvt.rzi.s32.f32", 3e9, 0x7FFFFFFF),
        ("cvt.rzi.u32.f32", -1.0, 0),
        ("cvt.rzi.u32.f32", numpy.nan, 0),
        ("cvt.rzi.u8.f32", 300.0, 255),
        ("cvt.rzi.s8.f32", -300.0, 0xFFFFFF80),
    ],
)
def test_float_to_integer_clamps(mnemonic, value, expected):
    assert conversion(mnemonic)(bits(value)).tolist() == [expected]


def test_large_integers_round_once():
    # 2^24 + 1 is a tie, and 2^53 + 2^29 + 1 would become one if it went through a rounded float64 first
    values = numpy.array([(1 << 24) + 1, (1 << 53) + (1 << 29) + 1], dtype=numpy.uint64)
    assert conversion("cvt.rn.f32.u64")(values).view(numpy.float32).tolist() == [float(1 << 24), float((1 << 53) + (1 << 30))]
    assert conversion("cvt.rz.f32.u64")(values).view(numpy.float32).tolist() == [float(1 << 24), float(1 << 53)]


@pytest.mark.parametrize(
    "mnemonic",
    [
        "cvt.e4m3x2.f32",
        "cvt.rn.e4m3x2.f32",
        "cvt.rz.satfinite.e4m3x2.f32",
        "cvt.rs.e4m3x4.f32",
        "cvt.rn.ue8m0x2.f32",
        "cvt.rn.rz.f16.f32",
        "cvt.f16.f32",
        "cvt.s32.f32",
        "cvt.rn.s2f6x2.f32",
        "cvt.rn.wide.f32.s32",
        "cvt.rn.f32.f32",
        "cvt.rzi.s32.s16",
    ],
)
def test_a_form_that_does_not_exist_is_refused_by_name(mnemonic):
    with pytest.raises(UnsupportedConversion, match=mnemonic.replace(".", r"\.")):
        conversion(mnemonic)

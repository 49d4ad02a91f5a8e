"""The quantisation rules a second time, one block at a time, in rational arithmetic: what the reference is tested against.

Written from the rules and not from zoo.reference; slow. Blocks hold finite numbers here.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from tests.reference.test_formats import nearest_code, values_of

MAXIMUM = {"e4m3": 448, "e5m2": 57344, "e2m1": 6}
EXPONENT = {"e4m3": 8, "e5m2": 15, "e2m1": 2}
MANTISSA_BITS = {"e4m3": 3, "e5m2": 2, "e2m1": 1}


def round32(value: Fraction, mantissa_bits: int = 23) -> Fraction | float:
    """To float32, or to fewer bits of it, to nearest even; infinity past the largest."""
    if value == 0:
        return value
    exponent = abs(value.numerator).bit_length() - value.denominator.bit_length()
    exponent -= abs(value) < Fraction(2) ** exponent
    step = Fraction(2) ** max(exponent - mantissa_bits, -149)
    rounded = round(value / step) * step  # Python rounds a Fraction to even
    return rounded if abs(rounded) < 2**128 else float("inf") * (1 if value > 0 else -1)


def code(value: Fraction | float, element: str) -> int:
    """Of a float32."""
    return int(nearest_code(np.array([float(value)]), element)[0])


def codes(values: list[Fraction], multiplier: Fraction | float, element: str, negative: list[bool]) -> list[int]:
    """Products rounded to float32, then to the element; zero keeps the sign."""
    products = [float(round32(value * multiplier)) for value in values]
    magnitudes = nearest_code(np.abs(np.array(products)), element)
    sign = 8 if element == "e2m1" else 128
    return [int(magnitude) | (sign if minus else 0) for magnitude, minus in zip(magnitudes, negative, strict=True)]


def ue8m0(amax: Fraction, element: str, rounding: str) -> int:
    """The scale byte: by the exponent, or by the least power of two that is large enough."""
    if rounding == "even":
        amax = round32(amax, MANTISSA_BITS[element])
        if amax == float("inf"):
            return 255
    if rounding in ("floor", "even"):
        byte = 0
        while byte < 254 and Fraction(2) ** (byte + 1 - 127 + EXPONENT[element]) <= amax:
            byte += 1
        return byte
    if rounding == "ceil":
        descale = amax / Fraction(2) ** EXPONENT[element]
    else:
        descale = round32(amax * round32(Fraction(1, MAXIMUM[element])))
    byte = 0
    while Fraction(2) ** (byte - 127) < descale:
        byte += 1
    return byte


def block(x: np.ndarray, rule: str, **options) -> tuple[int | float, list[int]]:
    """The scale (byte, or float32 as a float) and the elements' codes of one block of finite numbers."""
    values = [Fraction(float(value)) for value in x]
    negative = [bool(minus) for minus in np.signbit(x.astype(np.float64))]
    amax = max(map(abs, values))
    if rule == "mx":
        byte = ue8m0(amax, options["element"], options["rounding"])
        if byte == 255:
            return byte, [0 if options["element"] == "e2m1" else 0x7F] * len(values)
        return byte, codes(values, Fraction(2) ** (127 - byte), options["element"], negative)
    if rule == "nvfp4":
        tensor_scale = Fraction(float(options["tensor_scale"]))
        relative = round32(round32(amax / 6) / tensor_scale)
        byte = code(min(max(relative, Fraction(1, 512 if options.get("subnormal") else 64)), 448), "e4m3")
        multiplier = round32(round32(1 / tensor_scale) / Fraction(values_of("e4m3")[byte]))
        return byte, codes(values, multiplier, "e2m1", negative)
    if options["pow2"]:
        scale = Fraction(2) ** (ue8m0(amax, "e4m3", "rceil") - 127)
    else:
        scale = round32(amax / 448)
    scale = Fraction(1) if amax == 0 else max(scale, Fraction(1, 2**126))
    return float(scale), codes(values, round32(1 / scale), "e4m3", negative)

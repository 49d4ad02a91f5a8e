"""The rounding `.rs` of cvt: away from zero where random bits, added to the first of the bits that are cut off, carry out of them.

The manual says how many random bits a result has and which register halves hold them. It leaves open which of two elements that share
a half takes which bits, and where the bits are added below a format's normal range. There this file decides; on a GPU the same
random bits may give the other neighbour of the value.
"""

from __future__ import annotations

import numpy

from .number_formats import BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, Format, decode, encode

U32 = numpy.uint32

# target -> (format, bits of an element in the register, random bits of an element, where they begin in rbits: first operand first)
TARGETS = {
    "f16x2": (F16, 16, 13, (16, 0)),
    "bf16x2": (BF16, 16, 16, (16, 0)),
    "e2m1x4": (E2M1, 4, 8, (24, 8, 16, 0)),  # the upper bytes of both halves are for the first two operands
    **{f"{format.name}x4": (format, 8, 16, (16, 16, 0, 0)) for format in (E4M3, E5M2, E2M3, E3M2)},
}


def rounded(format: Format, bits: numpy.ndarray, random: numpy.ndarray, count: int, satfinite: bool, relu: bool) -> numpy.ndarray:
    """Codes of f32 bit patterns; `random` has `count` bits."""
    values = decode(F32, bits)
    finite = numpy.where(numpy.isfinite(values), numpy.abs(values), 0.0)
    last = numpy.maximum(numpy.frexp(finite)[1] - 1, format.smallest_exponent) - format.mantissa_bits  # exponent of the last place
    steps = numpy.ldexp(finite, -last)
    down = numpy.floor(steps)
    carry = numpy.floor((steps - down) * 2.0**count) + random >= 2.0**count
    values = numpy.where(numpy.isfinite(values), numpy.copysign(numpy.ldexp(down + carry, last), values), values)
    return encode(format, values, "rz" if satfinite else "rn", satfinite=satfinite, relu=relu).astype(U32)


def converter(target: str, satfinite: bool, relu: bool):
    """The function of the f32 operands and rbits; the first operand goes to the upper end of the result."""
    format, width, count, places = TARGETS[target]

    def convert(*operands):
        *values, random = (numpy.asarray(operand, dtype=U32) for operand in operands)
        result = U32(0)
        for bits, place in zip(values, places, strict=True):
            chosen = (random >> U32(place)) & U32((1 << count) - 1)
            result = result << U32(width) | rounded(format, bits, chosen, count, satfinite, relu)
        return result

    return convert

"""From a block's largest magnitude to its ue8m0 scale byte: the roundings of the MX formats."""

from __future__ import annotations

import numpy as np

from zoo.reference.small_floats import E8M0_NAN, ElementFormat


def scale_bytes(amax: np.ndarray, element: ElementFormat, rounding: str) -> np.ndarray:
    """The ue8m0 byte of blocks whose largest magnitudes are `amax` (float32, NaN when the block holds one).

    floor: the exponent of amax less the element's; elements of a block may then exceed the largest element and
           saturate (OCP MX v1.0, section 6.3).
    rceil: amax / max_value rounded up to a power of two, so nothing saturates. The division is a multiplication by
           the rounded reciprocal, as other MXFP8 quantisers do it.
    even:  floor of the amax that has been rounded to the mantissa bits of an element. A tie that raises the exponent is between an odd
           mantissa and a power of two, so it goes up. An amax that is rounded to 2^128 has no scale.
    ceil:  amax rounded up to a power of two, less the element's exponent. Nothing saturates.
    """
    amax = np.asarray(amax, np.float32)
    if rounding in ("floor", "even", "ceil"):
        # Added to the bits, it raises the exponent where the mantissa is large enough.
        carry = {"floor": 0, "even": 0x400000 >> element.mantissa_bits, "ceil": 0x7FFFFF}[rounding]
        exponent = ((amax.view(np.uint32) & 0x7FFFFFFF) + np.uint32(carry) >> 23).astype(np.int32)
        scale = np.maximum(exponent - element.exponent_of_max, 0)
        finite = np.isfinite(amax) & ((rounding != "even") | (exponent < 255))
    elif rounding == "rceil":
        with np.errstate(invalid="ignore"):
            descale = amax * np.float32(1.0 / element.max_value)
        bits = descale.view(np.uint32)
        exponent, mantissa = (bits >> 23 & 255).astype(np.int32), bits & 0x7FFFFF
        # Below 2^-126 there is no hidden bit, and byte 0 means 2^-127, whose mantissa is 0x400000.
        scale = exponent + np.where(exponent == 0, mantissa > 0x400000, mantissa != 0)
        finite = np.isfinite(descale)
    else:
        raise ValueError(f"rounding is 'floor', 'rceil', 'even' or 'ceil', not {rounding!r}")
    return np.where(finite, scale, E8M0_NAN).astype(np.uint8)

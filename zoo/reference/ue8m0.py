"""From a block's largest magnitude to its ue8m0 scale byte: the two roundings of the MX formats."""

from __future__ import annotations

import numpy as np

from zoo.reference.small_floats import E8M0_NAN, ElementFormat


def scale_bytes(amax: np.ndarray, element: ElementFormat, rounding: str) -> np.ndarray:
    """The ue8m0 byte of blocks whose largest magnitudes are `amax` (float32, NaN when the block holds one).

    floor: the exponent of amax less the element's; elements of a block may then exceed the largest element and
           saturate (OCP MX v1.0, section 6.3).
    rceil: amax / max_value rounded up to a power of two, so nothing saturates. The division is a multiplication by
           the rounded reciprocal, as other MXFP8 quantisers do it.
    """
    amax = np.asarray(amax, np.float32)
    if rounding == "floor":
        exponent = (amax.view(np.uint32) >> 23 & 255).astype(np.int32)
        scale = np.maximum(exponent - element.exponent_of_max, 0)
        finite = np.isfinite(amax)
    elif rounding == "rceil":
        with np.errstate(invalid="ignore"):
            descale = amax * np.float32(1.0 / element.max_value)
        bits = descale.view(np.uint32)
        exponent, mantissa = (bits >> 23 & 255).astype(np.int32), bits & 0x7FFFFF
        # Below 2^-126 there is no hidden bit, and byte 0 means 2^-127, whose mantissa is 0x400000.
        scale = exponent + np.where(exponent == 0, mantissa > 0x400000, mantissa != 0)
        finite = np.isfinite(descale)
    else:
        raise ValueError(f"rounding is 'floor' or 'rceil', not {rounding!r}")
    return np.where(finite, scale, E8M0_NAN).astype(np.uint8)

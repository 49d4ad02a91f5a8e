"""From MXFP8 to e4m3 with a power of two for 128 x 128, which Hopper multiplies: the answers of zoo.torch.fold_scales.

The scale of a block is the smallest power of two, from 2^-126 on, under which the block's largest number is at most 448. A block of zeros has 1.
Elements are divided by their scale: only exponents change. A quotient below e4m3's normal numbers is rounded, to nearest even, if it needs more
bits than subnormals have. NaN, and elements whose scale is NaN, become 0x7F and have no part in the scale of their block.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zoo.reference.blocks import cut, largest_magnitudes, spread
from zoo.reference.small_floats import E4M3, decode, decode_e8m0, encode_fp8


class Folded(NamedTuple):
    q: np.ndarray
    scales: np.ndarray  # f32
    rounded: int  # elements
    largest_error: float  # of an element, relative to it


def fold_scales(q: np.ndarray, scales: np.ndarray) -> Folded:
    """q (..., N, K) in e4m3, K a multiple of 32. scales in ue8m0: (..., N, K / 32), or (..., ceil(N / 32), K / 32) for 32 x 32."""
    rows, columns = (cut(length, 128) for length in q.shape[-2:])
    if scales.shape[-2] != q.shape[-2]:
        scales = spread(scales, cut(q.shape[-2], 32), axis=-2)
    numbers = decode(q, E4M3) * spread(decode_e8m0(scales).astype(np.float64), cut(q.shape[-1], 32))
    largest = largest_magnitudes(largest_magnitudes(np.nan_to_num(numbers), rows, axis=-2), columns)
    mantissa, exponent = np.frexp(largest)  # of 448: 0.875 and 9
    powers = np.where(largest == 0, 0, np.maximum(exponent - 9 + (mantissa > 0.875), -126))
    quotients = numbers / spread(spread(np.ldexp(1.0, powers), rows, axis=-2), columns)
    made = encode_fp8(quotients.astype(np.float32), E4M3)
    errors = np.abs(decode(made, E4M3) - quotients)[~np.isnan(quotients)]
    exact = np.abs(quotients)[~np.isnan(quotients)]
    relative = errors[errors > 0] / exact[errors > 0]
    return Folded(made, np.ldexp(np.float32(1), powers), relative.size, float(relative.max(initial=0)))

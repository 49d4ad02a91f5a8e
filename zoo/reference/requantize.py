"""From e4m3 with any f32 scales to e4m3 whose scales are powers of two: the answers of requantize.fp8b128."""

from __future__ import annotations

import numpy as np

from zoo.reference.block_formats import NAN, block_format
from zoo.reference.blocks import cut, spread
from zoo.reference.quantize import Quantized
from zoo.reference.small_floats import E4M3, decode

_BLOCK = 128


def requantize_rows(q: np.ndarray, scales: np.ndarray) -> Quantized:
    """q (M, K) with a scale for 1 x 128."""
    return _requantize(q, scales, None)


def requantize_squares(q: np.ndarray, scales: np.ndarray) -> Quantized:
    """q (E, M, K) with a scale for 128 x 128."""
    return _requantize(q, scales, cut(q.shape[-2], _BLOCK))


def powers_of_two_above(scales: np.ndarray) -> np.ndarray:
    """The power of two at or above each, from 2^-126 on. 0 stays 0; what is negative, above 2^127 or no number becomes NaN."""
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(scales.astype(np.float64))
        above = np.maximum(np.ldexp(1.0, exponent - (mantissa == 0.5)), 2.0**-126)
        there = (scales > 0) & (scales <= np.float32(2.0**127))
    nothing = (scales == 0) & ~np.signbit(scales)
    return np.where(there, above, np.where(nothing, np.float32(0), NAN)).astype(np.float32)


def _requantize(q: np.ndarray, scales: np.ndarray, rows: np.ndarray | None) -> Quantized:
    new = powers_of_two_above(scales)
    with np.errstate(all="ignore"):
        factors = np.where(new == 0, np.float32(0), (scales.astype(np.float64) / new).astype(np.float32))
        factors = spread(factors, cut(q.shape[-1], _BLOCK))
        factors = factors if rows is None else spread(factors, rows, axis=-2)
        return Quantized(block_format("fp8b128").encode(decode(q, E4M3) * factors), new)

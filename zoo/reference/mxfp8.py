"""MXFP8: blocks of 32 along a row share one power-of-two scale byte; elements are e4m3 or e5m2."""

from __future__ import annotations

import numpy as np

from zoo.reference.block_formats import FORMATS, block_format
from zoo.reference.dequantize import dequantize
from zoo.reference.layouts import from_blocked
from zoo.reference.quantize import quantize_rows
from zoo.reference.small_floats import ELEMENTS

BLOCK = FORMATS["mxfp8"].block


def quantize_mxfp8_rows(
    x: np.ndarray, element: str = "e4m3", rounding: str = "floor", layout: str = "plain"
) -> tuple[np.ndarray, np.ndarray]:
    """x (M, K), bf16, f16 or f32, K a multiple of 32 -> q (M, K) and its scales.

    `plain` scales are (M, K/32); `blocked` scales are one-dimensional, see `zoo.reference.layouts`.
    """
    quantized = quantize_rows(x, block_format("mxfp8", element, rounding=rounding), layout)
    return quantized.q, quantized.scales


def dequantize_mxfp8_rows(q: np.ndarray, scales: np.ndarray, layout: str = "plain") -> np.ndarray:
    """The float32 matrix that q (an fp8 dtype) and its scales stand for."""
    rows, columns = q.shape
    if layout == "blocked":
        scales = from_blocked(scales, rows, columns // BLOCK)
    element = next(name for name, element in ELEMENTS.items() if element.dtype == q.dtype)
    return dequantize(q, scales, block_format("mxfp8", element), columns)

"""The written rules of zoo's kernels, as literal numpy: slow, readable, and what every kernel is checked against."""

from __future__ import annotations

import importlib
from typing import Any

from zoo.reference.amax import group_amax, tensor_amax
from zoo.reference.block_formats import FORMATS, BlockFormat, Format, block_format, nvfp4_tensor_scale
from zoo.reference.dequantize import dequantize
from zoo.reference.groups import gather, padded_bounds
from zoo.reference.mxfp8 import dequantize_mxfp8_rows, quantize_mxfp8_rows
from zoo.reference.quantize import (
    Quantized,
    quantize_both,
    quantize_cols,
    quantize_rows,
    quantize_squares_both,
    quantize_squares_cols,
    quantize_squares_rows,
)
from zoo.reference.swiglu import swiglu

__all__ = [
    "FORMATS",
    "BlockFormat",
    "Format",
    "Quantized",
    "block_format",
    "dequantize",
    "dequantize_mxfp8_rows",
    "gather",
    "group_amax",
    "nvfp4_tensor_scale",
    "padded_bounds",
    "quantize_both",
    "quantize_cols",
    "quantize_mxfp8_rows",
    "quantize_rows",
    "quantize_squares_both",
    "quantize_squares_cols",
    "quantize_squares_rows",
    "swiglu",
    "tensor_amax",
]


def __getattr__(name: str) -> Any:
    if name == "kernels":  # which load every rule
        return importlib.import_module("zoo.reference.kernels")
    raise AttributeError(f"module 'zoo.reference' has no attribute '{name}'")

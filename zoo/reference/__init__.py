"""The written rules of zoo's kernels, as literal numpy: slow, readable, and what every kernel is checked against."""

from zoo.reference.mxfp8 import dequantize_mxfp8_rows, quantize_mxfp8_rows

__all__ = ["dequantize_mxfp8_rows", "quantize_mxfp8_rows"]

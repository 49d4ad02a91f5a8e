"""What quantised elements and their scales stand for: element * scale, in float32, rounded once; then to the output dtype.

q is (R, C) with C contiguous, whatever R and C were called when it was made: what `cols` wrote comes back transposed.
For NVFP4 element * block scale is exact, and its product with the tensor scale is the one that is rounded.
bf16 and f16 are rounded from the float32, to nearest even. Every NaN is 0x7FFFFFFF in f32, 0x7FFF in bf16 and f16.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from zoo.reference.block_formats import NAN, BlockFormat
from zoo.reference.blocks import cut, cut_groups, spread
from zoo.reference.small_floats import decode, unpack_e2m1

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16), "f16": np.dtype(np.float16)}


def dequantize(
    q: np.ndarray,
    scales: np.ndarray,
    format: BlockFormat,
    columns: int,
    dtype: str = "f32",
    row_groups: np.ndarray | None = None,
    column_groups: np.ndarray | None = None,
) -> np.ndarray:
    """q (..., R, C) and its plain scales -> (..., R, C), where C is `columns`: packed bytes do not tell it.

    Scales are (..., R, C / block), or (..., ceil(R / block), C / block) with one for each square. Sizes of groups along
    R matter to tensor scales only; along C they are where blocks start anew.
    """
    cuts = cut(columns, format.block) if column_groups is None else cut_groups(column_groups, format.block)
    with np.errstate(all="ignore"):
        scale = format.scale_values(scales)
        if scale.shape[-2] != q.shape[-2]:
            scale = spread(scale, cut(q.shape[-2], format.block), axis=-2)
        values = decode(unpack_e2m1(q) if format.packed else q, format.element)[..., :columns] * spread(scale, cuts)
        if format.tensor_scale is not None:
            values *= _tensor_scale(format.tensor_scale, values.ndim, row_groups, column_groups)
        values = np.where(np.isnan(values), NAN, values)
        rounded = values.astype(DTYPES[dtype])
    if dtype != "f32":
        rounded.view(np.uint16)[np.isnan(values)] = 0x7FFF
    return rounded


def _tensor_scale(tensor_scale: np.ndarray, dimensions: int, row_groups: np.ndarray | None, column_groups: np.ndarray | None) -> np.ndarray:
    """Broadcasts against the elements."""
    if tensor_scale.size == 1:
        return tensor_scale
    if column_groups is not None:
        return np.repeat(tensor_scale, column_groups)
    if row_groups is not None:
        return np.repeat(tensor_scale, row_groups)[:, None]
    return tensor_scale.reshape(-1, *[1] * (dimensions - 1))

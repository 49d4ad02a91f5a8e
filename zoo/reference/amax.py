"""The largest magnitude of a tensor, or of each group of rows: what an NVFP4 tensor scale is made of.

float32; NaN wins over everything, infinity over every number; 0 where there is no element. A maximum is exact and
knows no order, so any way to compute it gives the same bits. NaN is stored as 0x7FFFFFFF. A stack of matrices (E, N, K)
is groups of N rows each.

A quantiser that is given the amax of the step before and finds the new one in the same pass is these two side by side:
`quantize_rows(x, block_format("nvfp4", tensor_scale=nvfp4_tensor_scale(amax_before)))` and `tensor_amax(x)`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from zoo.reference.block_formats import NAN
from zoo.reference.groups import group_sizes


def tensor_amax(x: np.ndarray) -> np.ndarray:
    """max|x| over everything, shape (1,)."""
    return np.array([_largest(x)])


def group_amax(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """max|x| over the rows of each group, shape (G,). Rows after the last offset are not read."""
    ends = np.cumsum(group_sizes(offsets, len(x)))
    return np.array([_largest(x[start:end]) for start, end in pairwise(np.append(0, ends))], np.float32)


def _largest(x: np.ndarray) -> np.float32:
    with np.errstate(invalid="ignore"):
        largest = np.float32(np.abs(x.astype(np.float32)).max(initial=0))
    return NAN if np.isnan(largest) else largest

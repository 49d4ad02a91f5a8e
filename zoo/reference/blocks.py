"""How a matrix is cut into blocks: along its last axis, or along its last two. A block ends where the matrix or its
group ends, so the last one of each may be short; its largest magnitude is that of the elements it has.

A cut of an axis is the array of its blocks' sizes.
"""

from __future__ import annotations

import numpy as np


def cut(length: int, block: int) -> np.ndarray:
    """Sizes of the blocks of an axis: all `block`, the last one what is left."""
    sizes = np.full(-(-length // block), block, np.int64)
    if length % block:
        sizes[-1] = length % block
    return sizes


def cut_groups(group_sizes: np.ndarray, block: int) -> np.ndarray:
    """The same for an axis that holds groups: blocks start anew with every group."""
    return np.concatenate([np.zeros(0, np.int64), *(cut(size, block) for size in group_sizes)])


def largest_magnitudes(x: np.ndarray, sizes: np.ndarray, axis: int = -1) -> np.ndarray:
    """max|x| of every block along `axis`; NaN wins."""
    return np.maximum.reduceat(np.abs(x), np.cumsum(sizes) - sizes, axis=axis)


def spread(values: np.ndarray, sizes: np.ndarray, axis: int = -1) -> np.ndarray:
    """One value a block -> one value an element."""
    return np.repeat(values, sizes, axis=axis)

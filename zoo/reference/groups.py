"""Groups of rows: where they start and end, where they lie once padded, and rows taken through an index.

`offsets` (G,) are the cumulative end rows, as torch's grouped_mm takes them. Group g is rows [offsets[g-1], offsets[g]),
and may be empty. Rows after the last offset belong to nobody.
"""

from __future__ import annotations

import numpy as np

ALIGNMENT = 128


def group_sizes(offsets: np.ndarray, rows: int) -> np.ndarray:
    """Sizes of the groups, int64."""
    offsets = np.asarray(offsets)
    if offsets.dtype != np.int32 or offsets.ndim != 1 or not offsets.size:
        raise ValueError(f"offsets are int32, one for each of at least one group, not {offsets.dtype} {offsets.shape}")
    sizes = np.diff(offsets.astype(np.int64), prepend=0)
    if (sizes < 0).any() or offsets[-1] > rows:
        raise ValueError(f"offsets must rise from 0 to at most the {rows} rows of x, not {offsets.tolist()}")
    return sizes


def padded_rows(rows: int, groups: int) -> int:
    """Rows of a padded output: enough for any sizes of the groups, known without reading the offsets."""
    return rows + ALIGNMENT * groups


def padded_bounds(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the padded groups, int32. An end counts the padding: it is the next group's start."""
    padded = -(-group_sizes(offsets, np.iinfo(np.int32).max) // ALIGNMENT) * ALIGNMENT
    ends = np.cumsum(padded)
    return (ends - padded).astype(np.int32), ends.astype(np.int32)


def places(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Where the elements of all groups lie, one after the other, when group g starts at starts[g]."""
    group_starts = np.cumsum(sizes) - sizes
    return np.asarray(np.arange(sizes.sum()) + np.repeat(starts - group_starts, sizes))


def gather(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Row i of the result is row index[i] of x, or zeros where the index is -1.

    A zero row is quantised like any row of zeros: the scales of padding do not apply to it. Offsets, where there are
    any, count the rows of the result.
    """
    index = np.asarray(index)
    if index.dtype != np.int32 or index.ndim != 1:
        raise ValueError(f"index is int32, one for each row of the result, not {index.dtype} {index.shape}")
    if (index < -1).any() or (index >= len(x)).any():
        raise ValueError(f"index must lie in [-1, {len(x)}), the rows of x")
    result = np.zeros((len(index), *x.shape[1:]), x.dtype)
    result[index >= 0] = x[index[index >= 0]]
    return result

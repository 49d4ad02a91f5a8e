"""RMSNorm, forward and backward, as the kernels norm.* compute it: in float32, to the bit.

The rule. s is x, or x + residual rounded to the dtype of x. Every operation is IEEE float32, rounded to nearest even, subnormals kept:

    rstd = 1 / sqrt(sum(s * s) / K + eps)          a sum over the row, then a division, an addition, a root and a reciprocal
    y = s * rstd * weight                          two products, from the left

y is rounded to the dtype of x, or quantised without rounding. Of the backward pass, with the same rstd:

    n = s * rstd
    g = dy * weight
    mean = sum(g * n) / K
    dx = fma(-n, mean, g) * rstd (+ dsum)          rounded to the dtype of x
    dweight_parts[p] = fma(dy, n, ...)             over rows p, p + P, p + 2 P, ... in this order, from zero
    dweight = sum of dweight_parts                 eight sums, of every eighth part, then pairs of neighbours

A sum over a row. Its order depends on K alone, so a row has the same bits among any other rows:

    columns are filled up with zeros to a multiple of 1024
    each 1024      columns c, c + 256, c + 512 and c + 768 by fused multiply-adds in this order, from zero: 256 sums
                   pairs of neighbours are added until one sum is left
    all of them    filled up with zeros to 32, then pairs of neighbours as well; one alone is the sum

Squares that add up to infinity make rstd 0, so finite numbers of such a row become 0, and infinities NaN. NaN makes a whole row NaN.
A row of zeros is 0, but NaN where eps is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zoo.reference.block_formats import NAN
from zoo.reference.float32 import fused_multiply_add

WARP_COLUMNS, PIECE, MOST_WARPS, LANES_OF_PARTS = 1024, 256, 32, 8


class Normed(NamedTuple):
    y: np.ndarray  # float32
    s: np.ndarray  # of the dtype of x
    rstd: np.ndarray  # float32


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float, residual: np.ndarray | None = None) -> Normed:
    """x (M, K) of 16 bits, weight (K,)."""
    with np.errstate(all="ignore"):
        s = x if residual is None else rounded(x.astype(np.float32) + residual.astype(np.float32), x.dtype)
        wide = s.astype(np.float32)
        mean = sum_of_products(wide, wide) / np.float32(x.shape[1])
        rstd = _canonical(np.float32(1) / np.sqrt(mean + np.float32(eps)))
        return Normed(wide * rstd[:, None] * weight.astype(np.float32), s, rstd)


def rms_norm_backward(
    dy: np.ndarray, s: np.ndarray, weight: np.ndarray, rstd: np.ndarray, parts: int, dsum: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """dx of the dtype of s, and the partial sums (parts, K) of dweight."""
    with np.errstate(all="ignore"):
        wide = dy.astype(np.float32)
        n, g = s.astype(np.float32) * rstd[:, None], wide * weight.astype(np.float32)
        mean = sum_of_products(g, n) / np.float32(s.shape[1])
        dx = fused_multiply_add(-n, np.broadcast_to(mean[:, None], n.shape), g) * rstd[:, None]
        if dsum is not None:
            dx = dx + dsum.astype(np.float32)
        sums = np.zeros((parts, s.shape[1]), np.float32)
        for first in range(0, len(s), max(parts, 1)):
            rows = slice(first, first + parts)
            here = sums[: len(n[rows])]
            here[...] = fused_multiply_add(wide[rows], n[rows], here)
        return rounded(dx, s.dtype), _canonical(sums)


def sum_of_parts(parts: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """dweight (K,) from (P, K)."""
    with np.errstate(all="ignore"):
        sums = np.zeros((LANES_OF_PARTS, parts.shape[1]), np.float32)
        for first in range(0, len(parts), LANES_OF_PARTS):
            here = sums[: len(parts[first : first + LANES_OF_PARTS])]
            here += parts[first : first + LANES_OF_PARTS]
        return rounded(_sum_of_neighbours(sums.T), dtype)


def sum_of_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 (M, K) and (M, K) -> the sums over rows (M,)."""
    rows, columns = a.shape
    warps = max(-(-columns // WARP_COLUMNS), 1)
    a, b = (_filled(one, warps * WARP_COLUMNS).reshape(rows, warps, WARP_COLUMNS // PIECE, PIECE) for one in (a, b))
    sums = np.zeros((rows, warps, PIECE), np.float32)
    for piece in range(a.shape[2]):
        sums = fused_multiply_add(a[:, :, piece], b[:, :, piece], sums)
    of_warps = _sum_of_neighbours(sums)
    return of_warps[:, 0] if warps == 1 else _sum_of_neighbours(_filled(of_warps, MOST_WARPS))


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float32 to the dtype, to nearest even. Every NaN is 0x7FFFFFFF or 0x7FFF."""
    if dtype == np.float32:
        return _canonical(values)
    with np.errstate(all="ignore"):
        found = values.astype(dtype)
    found.view(np.uint16)[np.isnan(values)] = 0x7FFF
    return found


def _sum_of_neighbours(values: np.ndarray) -> np.ndarray:
    """Over the last axis, whose length is a power of two."""
    while values.shape[-1] > 1:
        values = values[..., 0::2] + values[..., 1::2]
    return values[..., 0]


def _filled(values: np.ndarray, columns: int) -> np.ndarray:
    return np.pad(values, ((0, 0), (0, columns - values.shape[1])))


def _canonical(values: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(values), NAN, values)

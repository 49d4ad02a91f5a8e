"""The rules of `experts.*`: choices sorted by expert, and sums of the rows that a token's experts gave.

    ids (T, top_k)        0 2 | 2 1 | -1 2       expert of each choice; -1: dropped
    rows (T, top_k)       0 2 | 3 1 | -1 4       row of each choice
    index (R,)            0 1 0 1 2 -1           token of each row
    offsets (E,)          1 2 5                  end row of each expert

Sums. Every operation is IEEE float32, rounded to nearest even; every NaN of a result is 0x7FFFFFFF, 0x7FFF in bf16 and f16:

    y[t]              0, plus weights[t, j] * d[rows[t, j]] for each j in order that is not dropped, plus residual[t]; each product is rounded
    d_rows[rows[t,j]] weights[t, j] * dy[t]
    d_weights[t, j]   dot product of dy[t] and d[rows[t, j]], 0 if dropped. Column c belongs to part c // 8 % 256. A part adds its products
                      in the order of columns, by fused multiply-adds. 32 neighbouring parts are added in pairs that are 16, 8, 4, 2, 1
                      apart, then the 8 sums in order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from zoo.reference.float32 import fused_multiply_add

NAN = np.uint32(0x7FFFFFFF).view(np.float32)
CELL, PARTS, WARP = 8, 256, 32


class Routing(NamedTuple):
    offsets: np.ndarray  # (E,) int32
    index: np.ndarray  # (R,) int32
    rows: np.ndarray  # (T, top_k) int32
    counts: np.ndarray  # (E,) int32
    row_weights: np.ndarray  # (R,) float32


def route(
    ids: np.ndarray, experts: int, all_rows: int | None = None, weights: np.ndarray | None = None, first: int = 0, padding: int = 1
) -> Routing:
    """`all_rows`: R; the fewest that suffice for any ids, if left out."""
    tokens, top_k = ids.shape
    if all_rows is None:
        all_rows = enough_rows(ids.size, experts, padding)
    flat = ids.reshape(-1).astype(object) - first  # of any size
    kept = np.array([0 <= expert < experts for expert in flat], bool)
    local = np.where(kept, flat, experts).astype(np.int64)
    counts = np.bincount(local, minlength=experts + 1)[:experts]
    padded = -(-counts // padding) * padding
    offsets = np.cumsum(padded)
    order = np.argsort(local, kind="stable")[: counts.sum()]
    rows = np.full(ids.size, -1, np.int32)
    rows[order] = np.arange(len(order)) + np.repeat(offsets - padded - (np.cumsum(counts) - counts), counts)
    index, row_weights = np.full(all_rows, -1, np.int32), np.zeros(all_rows, np.float32)
    index[rows[order]] = order // top_k
    if weights is not None:
        row_weights[rows[order]] = weights.reshape(-1)[order]
    return Routing(offsets.astype(np.int32), index, rows.reshape(tokens, top_k), counts.astype(np.int32), row_weights)


def enough_rows(choices: int, experts: int, padding: int) -> int:
    """Rows that suffice for any ids."""
    return choices + min(experts, choices) * (padding - 1)


def combine(d: np.ndarray, rows: np.ndarray, weights: np.ndarray | None = None, residual: np.ndarray | None = None) -> np.ndarray:
    """y, of the dtype of d."""
    y = np.zeros((len(rows), d.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for choice in range(rows.shape[1]):
            kept = rows[:, choice] >= 0
            part = d[rows[kept, choice]].astype(np.float32)
            y[kept] += part if weights is None else weights[kept, choice, None] * part
        if residual is not None:
            y += residual.astype(np.float32)
    return rounded(y, d.dtype)


def combine_backward(
    dy: np.ndarray, rows: np.ndarray, weights: np.ndarray | None = None, d: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows of d_rows in the order of the choices that are not dropped, and d_weights if there is a `d`."""
    kept = rows >= 0
    if len(np.unique(rows[kept])) < kept.sum():
        raise ValueError("rows: a row belongs to two choices, so its gradient would be the sum of two")
    of_choices = np.repeat(dy, kept.sum(axis=1), axis=0)
    with np.errstate(all="ignore"):
        values = of_choices.astype(np.float32)
        d_rows = rounded(values if weights is None else weights[kept][:, None] * values, dy.dtype)
    if d is None:
        return d_rows, None
    d_weights = np.zeros(rows.shape, np.float32)
    d_weights[kept] = dot(of_choices, d[rows[kept]])
    return d_rows, d_weights


def dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(M, N) and (M, N) -> (M,) float32."""
    rows, columns = a.shape
    whole = -(-columns // (CELL * PARTS)) * CELL * PARTS
    sums = np.zeros((rows, PARTS), np.float32)
    for start in range(0, whole, CELL * PARTS):
        for column in range(CELL):
            places = np.arange(start + column, start + CELL * PARTS, CELL)
            places = places[places < columns]
            part = sums[:, : len(places)]
            part[...] = fused_multiply_add(a[:, places].astype(np.float32), b[:, places].astype(np.float32), part)
    sums = sums.reshape(rows, PARTS // WARP, WARP)
    with np.errstate(all="ignore"):
        while sums.shape[2] > 1:
            half = sums.shape[2] // 2
            sums = sums[..., :half] + sums[..., half:]
        total = sums[:, 0, 0].copy()
        for warp in range(1, PARTS // WARP):
            total += sums[:, warp, 0]
    return np.where(np.isnan(total), NAN, total)


def rounded(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """float32 to bf16 or f16."""
    with np.errstate(all="ignore"):
        result = values.astype(dtype)
    result.view(np.uint16)[np.isnan(values)] = 0x7FFF
    return result

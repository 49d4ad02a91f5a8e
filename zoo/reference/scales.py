"""Rearranging scales that exist: what the kernels `scales.*` do, and how the quantisers lay out what they produce.

One matrix:    plain <-> blocked (see `zoo.reference.layouts`), f32 powers of two -> packed ue8m0.
Row groups:    groups of rows, for an A operand. Blocked, every group starts at a row that is a multiple of 128:
               group g lies at row sum over i < g of 128 * ceil(size_i / 128), so a tile never holds two groups.
Column groups: groups along the contracted dimension, for weight gradients. A row of the plain scales holds, one after
               the other, the ceil(size / block) scales of every group. Blocked, the groups are matrices of their own,
               each blocked by itself, one after the other in memory.

Blocked scales of groups have a size known without reading the offsets; what no group reaches is zero.
"""

from __future__ import annotations

from math import prod

import numpy as np

from zoo.reference.groups import ALIGNMENT, group_sizes, padded_bounds, padded_rows, places
from zoo.reference.layouts import TILE_COLUMNS, blocked_shape, from_blocked, to_blocked

MN_MAJOR_ALIGNMENT = 4  # floats: 16 bytes, what TMA asks of a stride


def mn_major_stride(rows: int) -> int:
    """The least distance, in scales, between two columns of mn_major scales, whose rows are neighbours; the gaps are nobody's."""
    return -(-rows // MN_MAJOR_ALIGNMENT) * MN_MAJOR_ALIGNMENT


def pack_ue8m0(scales: np.ndarray) -> np.ndarray:
    """f32 scales (R, C) -> words (ceil(C / 4), R): byte j of word (i, r) is the ue8m0 of scale (r, 4 * i + j).

    A power of two from 2^-127 on becomes its byte, +0 (padding) and columns past C become byte 0. Everything else has
    no ue8m0 and becomes 255, NaN: a scale that is not a power of two must not turn into a wrong one unnoticed.
    """
    rows, columns = scales.shape
    bits = np.ascontiguousarray(scales, np.float32).view(np.uint32)
    power_of_two = np.where(bits & 0x807FFFFF, 255, bits >> 23)
    codes = np.where(bits == 0x00400000, 0, power_of_two)  # 2^-127 has no hidden bit
    words = np.zeros((rows, -(-columns // 4) * 4), np.uint8)
    words[:, :columns] = codes
    return np.ascontiguousarray(words.view("<u4").T)


def unpack_ue8m0(words: np.ndarray, columns: int) -> np.ndarray:
    """The ue8m0 bytes (R, C) of packed words (ceil(C / 4), R)."""
    return np.ascontiguousarray(words.T).view(np.uint8)[:, :columns].copy()


def blocked_row_groups_shape(rows: int, columns: int, groups: int) -> tuple[int, int]:
    """The padded size of blocked scales of row groups; `rows` are those of x."""
    return blocked_shape(padded_rows(rows, groups), columns)


def to_blocked_row_groups(scales: np.ndarray, offsets: np.ndarray, rows: int) -> np.ndarray:
    """Plain scales (R, C), R at least the last offset, of an x of `rows` rows -> bytes, one-dimensional."""
    sizes = group_sizes(offsets, len(scales))
    padded = np.zeros(blocked_row_groups_shape(rows, scales.shape[1], len(sizes)), np.uint8)
    place = places(padded_bounds(offsets)[0], sizes)
    padded[place, : scales.shape[1]] = scales[: sizes.sum()].view(np.uint8)
    return to_blocked(padded).view(scales.dtype)


def from_blocked_row_groups(blocked: np.ndarray, offsets: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Inverse of `to_blocked_row_groups`: plain scales of the rows that belong to a group."""
    sizes = group_sizes(offsets, rows)
    padded = from_blocked(blocked, *blocked_row_groups_shape(rows, columns, len(sizes)))
    return padded[places(padded_bounds(offsets)[0], sizes), :columns]


def blocked_column_groups_shape(rows: int, length: int, groups: int, block: int) -> tuple[int, int]:
    """The padded size of blocked scales of column groups; `length` is x's, in elements, along the contracted dimension.

    A group of n elements takes 4 * ceil(n / (4 * block)) columns, less than 4 more than n / block.
    """
    padded, columns = blocked_shape(rows, -(-length // block))
    return padded, columns + TILE_COLUMNS * groups


def to_blocked_column_groups(scales: np.ndarray, counts: np.ndarray, size: int) -> np.ndarray:
    """Plain scales (R, sum of counts), counts[g] columns of group g -> `size` bytes, one-dimensional."""
    blocked = np.zeros(size, np.uint8)
    starts = np.cumsum(counts) - counts
    groups = [to_blocked(scales[:, start : start + count].view(np.uint8)) for start, count in zip(starts, counts, strict=True)]
    used = np.concatenate([np.zeros(0, np.uint8), *groups])
    blocked[: len(used)] = used
    return blocked.view(scales.dtype)


def from_blocked_column_groups(blocked: np.ndarray, rows: int, counts: np.ndarray) -> np.ndarray:
    """Inverse of `to_blocked_column_groups`."""
    start, groups = 0, [np.zeros((rows, 0), blocked.dtype)]
    for count in counts:
        size = prod(blocked_shape(rows, count))
        groups.append(from_blocked(blocked[start : start + size], rows, count))
        start += size
    return np.concatenate(groups, axis=1)


def columns_of_groups(sizes: np.ndarray, block: int, padded: bool = False) -> np.ndarray:
    """How many scale columns every column group has, its padding to 128 elements included where it is `padded`."""
    return -(-sizes // ALIGNMENT) * (ALIGNMENT // block) if padded else -(-sizes // block)

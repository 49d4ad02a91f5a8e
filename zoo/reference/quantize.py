"""Every block quantiser: a matrix, a format (`zoo.reference.block_formats`), a direction, groups, a scale layout.

x is (M, K), K contiguous; bf16, f16 or f32. 3-D weights (E, N, K) are E matrices, each by itself.

    rows    blocks lie along K:  q (M, K), scales (M, ceil(K / block))
    cols    blocks lie along M:  q (K, M), M contiguous, for the transposed use; scales (K, ceil(M / block)).
            This is `rows` of the transposed matrix, whose rows then hold the groups, one after the other.
    squares a block is block x block; both directions share its scale.

What `offsets` and `padded` mean:

    neither          one group of all rows
    offsets          ragged: only rows before the last offset are read and have results. In `cols` blocks start anew with
                     every group, whose last one may be short, and the groups' scales follow one another without a gap.
    offsets, padded  group g starts at row sum over i < g of 128 * ceil(size_i / 128) of M + 128 * G rows. Padding rows
                     and all rows after the last group have elements 0 and scale bytes 0, next to a NaN block as well.
                     In `cols` it is the M axis of q and of the scales (M / block) that is padded so.

Scales in the layout `blocked` belong to consumers that read one scale for every row and block of that row: those of
groups are blocked group by group (`zoo.reference.scales`), those of squares are repeated for every row of the square.

e2m1 elements share a byte in pairs along the contiguous axis; where it has an odd length the last high nibble is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from zoo.reference.block_formats import BlockFormat
from zoo.reference.blocks import cut, cut_groups, largest_magnitudes, spread
from zoo.reference.groups import group_sizes, padded_bounds, padded_rows, places
from zoo.reference.layouts import blocked_shape, to_blocked
from zoo.reference.scales import (
    blocked_column_groups_shape,
    columns_of_groups,
    to_blocked_column_groups,
    to_blocked_row_groups,
)  # fmt: skip
from zoo.reference.small_floats import pack_e2m1


@dataclass(frozen=True)
class Quantized:
    """Elements (e2m1: packed bytes) and their scales, each as the kernel leaves it in memory."""

    q: np.ndarray
    scales: np.ndarray


def quantize_rows(
    x: np.ndarray, format: BlockFormat, layout: str = "plain", offsets: np.ndarray | None = None, padded: bool = False
) -> Quantized:
    """Blocks along K. Ragged results have as many rows as belong to a group."""
    _check(x, format, layout, offsets, padded)
    _check_columns(x, format)
    if offsets is None:
        return _quantize_ungrouped(x, format, layout)

    sizes = group_sizes(offsets, len(x))
    group = np.repeat(np.arange(len(sizes)), sizes)[:, None]
    codes, scales = _quantize_vectors(x[: sizes.sum()], format.of_group(group), cut(x.shape[1], format.block))
    if padded:
        place, rows = places(padded_bounds(offsets)[0], sizes), padded_rows(len(x), len(sizes))
        codes, scales = _scatter_rows(codes, place, rows), _scatter_rows(scales, place, rows)
    elif layout == "blocked":
        return Quantized(_pack(codes, format), to_blocked_row_groups(scales, offsets, len(x)))
    return Quantized(_pack(codes, format), _arrange(scales, layout))


def quantize_cols(
    x: np.ndarray, format: BlockFormat, layout: str = "plain", offsets: np.ndarray | None = None, padded: bool = False
) -> Quantized:
    """Blocks along M. Ragged results have as many columns as rows of x belong to a group."""
    _check(x, format, layout, offsets, padded)
    transposed = _transpose(x)
    if offsets is None:
        return _quantize_ungrouped(transposed, format, layout)

    sizes = group_sizes(offsets, len(x))
    counts = columns_of_groups(sizes, format.block)
    cuts, group = cut_groups(sizes, format.block), np.repeat(np.arange(len(sizes)), counts)
    codes, scales = _quantize_vectors(transposed[:, : sizes.sum()], format.of_group(group), cuts)
    shape = blocked_column_groups_shape(x.shape[1], len(x), len(sizes), format.block)
    if padded:
        starts, length = padded_bounds(offsets)[0], padded_rows(len(x), len(sizes))
        codes = _scatter_rows(codes.T, places(starts, sizes), length).T
        scales = _scatter_rows(scales.T, places(starts // format.block, counts), -(-length // format.block)).T
        counts, shape = columns_of_groups(sizes, format.block, padded=True), blocked_shape(*scales.shape)
    if layout == "blocked":
        return Quantized(_pack(codes, format), to_blocked_column_groups(scales, counts, prod(shape)))
    return Quantized(_pack(codes, format), _arrange(scales, layout))


def quantize_both(
    x: np.ndarray, format: BlockFormat, layout: str = "plain", offsets: np.ndarray | None = None, padded: bool = False
) -> tuple[Quantized, Quantized]:
    """Both directions: two independent results."""
    return quantize_rows(x, format, layout, offsets, padded), quantize_cols(x, format, layout, offsets, padded)


def quantize_squares_rows(x: np.ndarray, format: BlockFormat, layout: str = "plain") -> Quantized:
    """q (N, K); plain scales (ceil(N / block), ceil(K / block))."""
    _check(x, format, layout, None, False)
    _check_columns(x, format)
    return _quantize_squares(x, format, layout)


def quantize_squares_cols(x: np.ndarray, format: BlockFormat, layout: str = "plain") -> Quantized:
    """q (K, N), N contiguous; plain scales (ceil(K / block), ceil(N / block))."""
    _check(x, format, layout, None, False)
    return _quantize_squares(_transpose(x), format, layout)


def quantize_squares_both(x: np.ndarray, format: BlockFormat, layout: str = "plain") -> tuple[Quantized, Quantized]:
    """Both directions; they hold the same elements and the same scales."""
    return quantize_squares_rows(x, format, layout), quantize_squares_cols(x, format, layout)


def _quantize_vectors(x: np.ndarray, format: BlockFormat, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elements, not packed, and plain scales of the blocks of these sizes along the last axis."""
    with np.errstate(all="ignore"):  # NaN, signalling NaN and infinity are data like any other
        x = x.astype(np.float32)
        scales = format.scales(largest_magnitudes(x, sizes))
        return format.encode(x * spread(format.multiplier(scales), sizes)), scales


def _quantize_ungrouped(x: np.ndarray, format: BlockFormat, layout: str) -> Quantized:
    codes, scales = _quantize_vectors(x, _of_matrix(format, x), cut(x.shape[-1], format.block))
    return Quantized(_pack(codes, format), _arrange(scales, layout))


def _quantize_squares(x: np.ndarray, format: BlockFormat, layout: str) -> Quantized:
    rows, columns = cut(x.shape[-2], format.block), cut(x.shape[-1], format.block)
    of_matrix = _of_matrix(format, x)
    with np.errstate(all="ignore"):
        x = x.astype(np.float32)
        scales = of_matrix.scales(largest_magnitudes(largest_magnitudes(x, columns), rows, axis=-2))
        multiplier = spread(spread(of_matrix.multiplier(scales), rows, axis=-2), columns)
        codes = format.encode(x * multiplier)
    if layout == "blocked":
        scales = spread(scales, rows, axis=-2)
    return Quantized(_pack(codes, format), _arrange(scales, layout))


def _of_matrix(format: BlockFormat, x: np.ndarray) -> BlockFormat:
    """The format for the blocks of x: each matrix of a stack is a group."""
    return format.of_group(np.arange(len(x))[:, None, None]) if x.ndim == 3 else format


def _transpose(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.swapaxes(x, -1, -2))


def _scatter_rows(values: np.ndarray, place: np.ndarray, rows: int) -> np.ndarray:
    result = np.zeros((rows, values.shape[1]), values.dtype)
    result[place] = values
    return result


def _arrange(scales: np.ndarray, layout: str) -> np.ndarray:
    """Plain scales of one matrix, or of a stack of them, in the layout. Those of mn_major are the same array; strides tell them apart."""
    if layout == "blocked" and scales.ndim == 3:
        blocked = np.empty((len(scales), np.prod(blocked_shape(*scales.shape[1:]))), scales.dtype)
        for i, matrix in enumerate(scales):
            blocked[i] = to_blocked(matrix)
        return blocked
    return to_blocked(scales) if layout == "blocked" else np.ascontiguousarray(scales)


def _pack(codes: np.ndarray, format: BlockFormat) -> np.ndarray:
    if not format.packed:
        return np.ascontiguousarray(codes)
    if codes.shape[-1] % 2:
        codes = np.concatenate((codes, np.zeros((*codes.shape[:-1], 1), np.uint8)), axis=-1)
    return pack_e2m1(codes)


def _check(x: np.ndarray, format: BlockFormat, layout: str, offsets: np.ndarray | None, padded: bool) -> None:
    if layout not in format.layouts:
        expected = " or ".join(repr(name) for name in format.layouts)
        raise ValueError(f"layout is {expected}, not {layout!r}")
    if x.ndim not in (2, 3):
        raise ValueError(f"x is (M, K) or (E, N, K), not of {x.ndim} dimensions")
    if x.ndim == 3 and offsets is not None:
        raise ValueError("x with offsets is (M, K): a stack of matrices has no ragged groups")
    if padded and offsets is None:
        raise ValueError("padded needs offsets: the groups to pad")
    if format.tensor_scale is not None and format.tensor_scale.size > 1:
        groups = len(x) if x.ndim == 3 else 1 if offsets is None else len(offsets)
        if format.tensor_scale.shape != (groups,):
            raise ValueError(f"tensor_scale is one number or one for each of {groups} groups, not {format.tensor_scale.shape}")


def _check_columns(x: np.ndarray, format: BlockFormat) -> None:
    if x.shape[-1] % format.block and not format.short_last_block:
        raise ValueError(f"K = {x.shape[-1]} is not a multiple of {format.block}")

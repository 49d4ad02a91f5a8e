"""The rule of products whose scales are part of the tensor core's multiplication: mxfp8, mxfp4, nvfp4 and mixtures of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.block_formats import BlockFormat
from zoo.reference.block_scaled_epilogues import quantised
from zoo.reference.block_scaled_gemm import KINDS, Kind, finished, gemm_block_scaled
from zoo.reference.gemm import rounded
from zoo.reference.groups import ALIGNMENT, padded_bounds
from zoo.reference.kernels.call import Call
from zoo.reference.kernels.epilogues import made_of_piece, of_group
from zoo.reference.kernels.pieces import Piece, pieces, taken
from zoo.reference.kernels.quantisers import chosen_format
from zoo.reference.layouts import TILE_ROWS, blocked_shape, from_blocked


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return _along_k if kernel.fields["grouping"] == "k_grouped" else _of_rows


def _of_rows(call: Call) -> None:
    arrays, formats = call.arrays, call.kernel.fields["formats"]
    kind, K = KINDS[formats], _length(call)
    scales_of_a = _scales_of_a(call, kind, K)
    finish = _quantise if "q" in arrays else _round
    weights = call.gates_and_ups("b", -3) if "gates" in call.settings else arrays["b"]
    for piece in pieces(call, len(arrays["q" if "q" in arrays else "d"])):
        group, place, _ = piece
        a = taken(arrays["a"], arrays["index"][place]) if "index" in arrays else arrays["a"][place]
        b, b_scale = (array if group is None else array[group] for array in (weights, arrays["b_scale"]))
        b_scale = from_blocked(b_scale, len(b), K // kind.block)
        finish(call, piece, gemm_block_scaled(a, scales_of_a(piece), b, b_scale, formats, call.splits))


def _length(call: Call) -> int:
    return int(call.arrays["a"].shape[-1]) * (1 + KINDS[call.kernel.fields["formats"]].packed[0])


def _scales_of_a(call: Call, kind: Kind, K: int) -> Callable[[Piece], np.ndarray]:
    """What gives the plain scales of a piece's rows."""
    scales, blocks = call.arrays["a_scale"], K // kind.block
    if "index" in call.arrays:
        return lambda piece: taken(scales, call.arrays["index"][piece.place])
    if "rows" in call.arrays:
        height = call.arrays["a"].shape[1]
        return lambda piece: from_blocked(scales[piece.group], height, blocks)[: piece.size]
    if piece_starts := _starts_of_tiles(call):
        return lambda piece: _at_tiles(scales, piece_starts[piece.group or 0], piece.size, blocks)
    return lambda piece: from_blocked(scales, piece.size, blocks)


def _starts_of_tiles(call: Call) -> list[int]:
    """In rows of blocked scales, where each group's begin; none where there are no groups back to back."""
    offsets = call.arrays.get("offsets")
    return [] if offsets is None or not offsets.size else list(padded_bounds(offsets)[0].tolist())


def _at_tiles(scales: np.ndarray, start: int, rows: int, blocks: int) -> np.ndarray:
    return from_blocked(scales[start // TILE_ROWS :][: -(-rows // TILE_ROWS)], rows, blocks)


def _round(call: Call, piece: Piece, sums: np.ndarray) -> None:
    h = made_of_piece(call, piece, sums)
    if "c" in call.arrays:
        with np.errstate(all="ignore"):
            h = h + call.arrays["c"].astype(np.float32)
    call.put("d", rounded(h, call.dtype("d")), piece.place)


def _quantise(call: Call, piece: Piece, sums: np.ndarray) -> None:
    group, place, size = piece
    result = quantised(made_of_piece(call, piece, sums), _format_of_result(call, group))
    call.put("q", result.q, place)
    target = call.arrays["scales"]
    tiles = result.scales.reshape(-(-size // TILE_ROWS), *target.shape[-3:])
    if group is None:
        call.put("scales", tiles)
    elif "rows" in call.arrays:
        call.put("scales", tiles, group)
    else:
        start = _starts_of_tiles(call)[group] // TILE_ROWS
        call.put("scales", tiles, slice(start, start + len(tiles)))


def _format_of_result(call: Call, group: int | None) -> BlockFormat:
    name = call.kernel.fields["extra"].split("_")[-1]
    return chosen_format(call, name, "q", of_group(call.arrays.get("tensor_scale"), group))


def _along_k(call: Call) -> None:
    """Each group has the elements from a multiple of 128 on; what lies between its end and the next is nobody's."""
    arrays, formats = call.arrays, call.kernel.fields["formats"]
    kind, d, dtype = KINDS[formats], arrays["d"], call.dtype("d")
    begin = 0
    places = {"a_scale": 0, "b_scale": 0}  # in bytes: a matrix for each group, one after the other
    for group, size in enumerate(np.diff(arrays["offsets"], prepend=0).tolist()):
        operands: list[np.ndarray] = []
        for name, packed in zip(("a", "b"), kind.packed, strict=True):
            scales = np.ascontiguousarray(arrays[f"{name}_scale"]).reshape(-1)
            rows, place = len(arrays[name]), places[f"{name}_scale"]
            columns = -(-size // ALIGNMENT) * (ALIGNMENT // kind.block)
            height, width = blocked_shape(rows, columns)
            plain = from_blocked(scales[place : place + height * width], rows, columns)
            places[f"{name}_scale"] = place + height * width
            operands += _up_to_a_step(arrays[name], plain, begin, size, kind, packed)
        before = d[group] if call.settings["accumulate"] == "yes" else None
        if size:
            alpha = of_group(arrays.get("alpha"), group)
            a, a_scale, b, b_scale = operands
            sums = gemm_block_scaled(a, a_scale, b, b_scale, formats)
            call.put("d", finished(sums, dtype, alpha=alpha, c=before), group)
        elif before is None:
            call.put("d", np.zeros(d.shape[1:], d.dtype), group)
        begin += -(-size // ALIGNMENT) * ALIGNMENT


def _up_to_a_step(
    elements: np.ndarray, scales: np.ndarray, begin: int, size: int, kind: Kind, packed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A group's elements and scales, and zeros up to a whole number of instructions."""
    length, each = -(-size // kind.step) * kind.step, 1 + packed
    found = np.zeros((len(elements), length // each), np.uint8)
    bits = elements.view(np.uint8)[:, begin // each : begin // each + -(-size // each)]
    found[:, : bits.shape[1]] = bits
    if packed and size % 2:
        found[:, size // 2] &= 0x0F
    blocks = -(-size // kind.block)
    padded = np.zeros((len(scales), length // kind.block), np.uint8)
    padded[:, :blocks] = scales.view(np.uint8)[:, :blocks]
    return found.view(elements.dtype), padded.view(scales.dtype)

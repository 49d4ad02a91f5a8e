"""4-bit weights in the order in which a warpgroup's registers take them: what pack.*.fragments writes, and back.

A matrix (N, K) becomes R = ceil(N / 64) tiles of rows by C = ceil(K / 64) chunks of 64 columns. A chunk is one piece of memory: 2048 bytes
of codes, then its scales, 256 bytes of nvfp4 or 128 of mxfp4. What lies outside the matrix has code 0 and scale byte 0.

    codes           16 bytes for each thread of a warpgroup: zoo.reference.fragment_words. They lie in one of two orders, by the `tokens` that the
                    weights will be multiplied with, "fp8" or "bf16"
    scale byte      nvfp4: of row 16 w + 8 h + g and its block q of 16 at 64 w + 8 g + 2 q + h   (w < 4, h < 2, g < 8, q < 4)
                    mxfp4: of row 16 w + 8 h + g and its block b of 32 at 32 w + 4 g + 2 b + h

Scales as they are stored. nvfp4: the e4m3 without its sign; a sign goes into the block's codes. mxfp4: the power of two by which a code
is multiplied under the rule of four_bit_weights, 2^(scale - largest + 6), as its exponent + 120, which is at most 126; 0 where
that is less than 1 or all codes are 0; 127 for a scale of 255. `largest` of each row lies in an array of its own, row_scale. For bf16 these bytes
become others (zoo.reference.fragment_scales), and where they are 0 magnitudes are, too.

Rows can be taken in another order, for products whose epilogue multiplies gates with ups: of each 16 rows packed, the first 8 are gates, the
other 8 their ups. `gates` says where the matrix has them: "halves", gates first; "interleaved", in even rows; or "plain": no such order. What is
packed of gates and ups has an axis of 2, which tells it from plain rows: the last but one of b, and row_scale is (..., 4 R, 2, 8).

FP8 activations of such a product are e4m3 with their columns in `column_order`: in each 64 the 4 x 4 words of 4 bytes are transposed. Their shape,
(..., ceil(K / 64), 64), tells them from columns that lie in turn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from zoo.reference.four_bit_weights import LARGEST_EXPONENT, MXFP4_BLOCK, NO_LARGEST, NVFP4_BLOCK, largest_scales, mxfp4_as_e4m3
from zoo.reference.fragment_scales import scales_for_bf16, scales_from_bf16
from zoo.reference.fragment_words import CODE_BYTES, COLUMNS, ROWS, axes_behind, packed_codes, unpacked_codes
from zoo.reference.small_floats import E8M0_NAN, pack_e2m1, unpack_e2m1

NOTHING, NOT_A_NUMBER, EXPONENT_BIAS = 0, 127, 120  # of mxfp4's bytes
GATES = ("plain", "halves", "interleaved")
UNIT, PART = 16, 2048  # rows and columns that roundings are counted for


@dataclass(frozen=True)
class PackedMxfp4:
    b: np.ndarray  # (..., R, C, 2176), for bf16 (..., R, C, 17, 128); of gates and ups with halves of the last axis
    row_scale: np.ndarray  # (..., 64 R) ue8m0; of gates and ups (..., 4 R, 2, 8)
    rounded: np.ndarray  # (..., 4 R, ceil(K / 2048)) int32: weights of 16 rows and 2048 columns that fp8 cannot hold exactly


def chunk_shape(block: int, tokens: str, gates: str = "plain") -> tuple[int, ...]:
    """Of the bytes of a chunk. Those for bf16 are lines of as many as scales take, and those of gates and ups have halves: shapes tell orders apart."""
    line = ROWS * COLUMNS // block
    *lines, last = (CODE_BYTES + line,) if tokens == "fp8" else (CODE_BYTES // line + 1, line)
    return (*lines, last) if gates == "plain" else (*lines, 2, last // 2)


def row_order(rows: int, gates: str) -> np.ndarray:
    """The row of the matrix that each packed row is; -1 for the rows that fill the last tile."""
    if gates not in GATES:
        raise ValueError(f"gates is one of {', '.join(GATES)}, not {gates!r}")
    if rows % 8 or (gates != "plain" and rows % UNIT):
        raise ValueError(f"N = {rows} is not a multiple of {8 if gates == 'plain' else UNIT}")
    packed = np.arange(-(-rows // ROWS) * ROWS)
    output, is_up = packed // UNIT * 8 + packed % 8, packed % UNIT // 8
    source = {"plain": packed, "halves": output + is_up * (rows // 2), "interleaved": 2 * output + is_up}[gates]
    return np.where(packed < rows, source, -1)


def column_order(columns: int) -> np.ndarray:
    """The column of the matrix that lies at each place of `columns` rounded up to 64; those from `columns` on are zeros."""
    place = np.arange(-(-columns // COLUMNS) * COLUMNS)
    return np.asarray(place // COLUMNS * COLUMNS + place % 16 // 4 * 16 + place % COLUMNS // 16 * 4 + place % 4)


def permuted_columns(a: np.ndarray) -> np.ndarray:
    """(..., K) elements of a byte -> (..., ceil(K / 64), 64) in `column_order`, zeros behind K."""
    order, codes = column_order(a.shape[-1]), np.ascontiguousarray(a).view(np.uint8)
    whole = np.zeros((*a.shape[:-1], len(order)), np.uint8)
    whole[..., : a.shape[-1]] = codes
    return np.ascontiguousarray(whole[..., order]).view(a.dtype).reshape(*a.shape[:-1], len(order) // COLUMNS, COLUMNS)


def pack_nvfp4(q: np.ndarray, scales: np.ndarray, gates: str = "plain", tokens: str = "fp8") -> np.ndarray:
    """q (..., N, K / 2) bytes of two codes, scales (..., N, K / 16) e4m3 -> (..., R, C, 2304), for bf16 (..., R, C, 9, 256). Of gates and ups N = 2 I."""
    bytes_of_scales = np.asarray(scales).view(np.uint8)
    signs = np.repeat(bytes_of_scales >> 7 << 3, NVFP4_BLOCK, axis=-1)
    return _packed(unpack_e2m1(q) ^ signs, bytes_of_scales & 0x7F, NVFP4_BLOCK, gates, tokens)


def unpack_nvfp4(b: np.ndarray, rows: int, columns: int, gates: str = "plain", tokens: str = "fp8") -> tuple[np.ndarray, np.ndarray]:
    """(q, scales), the latter without signs."""
    codes, scales = _unpacked(b, rows, columns, NVFP4_BLOCK, gates, tokens)
    return pack_e2m1(codes), scales.view(ml_dtypes.float8_e4m3fn)


def pack_mxfp4(q: np.ndarray, scales: np.ndarray, gates: str = "plain", tokens: str = "fp8") -> PackedMxfp4:
    """q (..., N, K / 2) bytes of two codes, scales (..., N, K / 32) ue8m0."""
    codes, bytes_of_scales = unpack_e2m1(q), np.asarray(scales).view(np.uint8).astype(np.int32)
    largest = largest_scales(q, scales)
    stored = bytes_of_scales - largest[..., None].astype(np.int32) + LARGEST_EXPONENT + EXPONENT_BIAS
    empty = ~(codes & 7).reshape(*bytes_of_scales.shape, MXFP4_BLOCK).any(axis=-1)
    stored = np.where(empty | (stored < 1), NOTHING, stored)
    stored = np.where(bytes_of_scales == E8M0_NAN, NOT_A_NUMBER, stored).astype(np.uint8)
    order = row_order(q.shape[-2], gates)
    row_scale = np.where(order < 0, np.uint8(NO_LARGEST), largest[..., order])
    of_parts = np.add.reduceat(mxfp4_as_e4m3(q, scales).rounded, np.arange(0, codes.shape[-1], PART), axis=-1, dtype=np.int32)
    of_rows = np.where(order[:, None] < 0, np.int32(0), of_parts[..., order, :])
    rounded = of_rows.reshape(*largest.shape[:-1], len(order) // UNIT, UNIT, of_rows.shape[-1]).sum(axis=-2, dtype=np.int32)
    if gates != "plain":
        row_scale = row_scale.reshape(*row_scale.shape[:-1], len(order) // UNIT, 2, 8)
    return PackedMxfp4(_packed(codes, stored, MXFP4_BLOCK, gates, tokens), row_scale.view(ml_dtypes.float8_e8m0fnu), rounded)


def unpack_mxfp4(
    b: np.ndarray, row_scale: np.ndarray, rows: int, columns: int, gates: str = "plain", tokens: str = "fp8"
) -> tuple[np.ndarray, np.ndarray]:
    """(q, scales): a block whose byte says nothing has scale 0."""
    codes, stored = _unpacked(b, rows, columns, MXFP4_BLOCK, gates, tokens)
    order = row_order(rows, gates)
    largest = np.zeros((*stored.shape[:-1], 1), np.int32)
    of_rows = np.asarray(row_scale).view(np.uint8).reshape(*stored.shape[:-2], len(order))
    largest[..., order[order >= 0], 0] = of_rows[..., order >= 0]
    scales = np.clip(stored + largest - (LARGEST_EXPONENT + EXPONENT_BIAS), 0, E8M0_NAN - 1)
    scales = np.where(stored == NOTHING, 0, np.where(stored == NOT_A_NUMBER, E8M0_NAN, scales)).astype(np.uint8)
    return pack_e2m1(codes), scales.view(ml_dtypes.float8_e8m0fnu)


def _packed(codes: np.ndarray, scales: np.ndarray, block: int, gates: str, tokens: str) -> np.ndarray:
    if tokens == "bf16":
        codes = np.where(np.repeat(scales == 0, block, axis=-1), codes & 8, codes)
        scales = scales_for_bf16(scales, block)
    order, chunks = row_order(codes.shape[-2], gates), -(-codes.shape[-1] // COLUMNS)
    codes, scales = (_filled(x, order, chunks * width) for x, width in ((codes, COLUMNS), (scales, COLUMNS // block)))
    lead, tiles = codes.shape[:-2], len(order) // ROWS
    of_scales = axes_behind(scales.reshape(*lead, tiles, 4, 2, 8, chunks, COLUMNS // block), lead, (0, 4, 1, 3, 5, 2))
    b = np.concatenate((packed_codes(codes, tokens), of_scales.reshape(*lead, tiles, chunks, ROWS * COLUMNS // block)), axis=-1)
    return b.reshape(*b.shape[:-1], *chunk_shape(block, tokens, gates))


def _unpacked(b: np.ndarray, rows: int, columns: int, block: int, gates: str, tokens: str) -> tuple[np.ndarray, np.ndarray]:
    chunk = chunk_shape(block, tokens, gates)
    b = b.reshape(*b.shape[: -len(chunk)], math.prod(chunk))
    order, chunks, lead = row_order(rows, gates), -(-columns // COLUMNS), b.shape[:-3]
    codes = unpacked_codes(b[..., :CODE_BYTES], tokens)
    scales = b[..., CODE_BYTES:] if tokens == "fp8" else scales_from_bf16(b[..., CODE_BYTES:], block)
    scales = axes_behind(scales.reshape(*lead, len(order) // ROWS, chunks, 4, 8, COLUMNS // block, 2), lead, (0, 2, 5, 3, 1, 4))
    found = []
    for values, each in ((codes, 1), (scales, block)):
        values, width = values.reshape(*lead, len(order), chunks * COLUMNS // each), columns // each
        result = np.empty((*lead, rows, width), np.uint8)
        result[..., order[order >= 0], :] = values[..., order >= 0, :width]
        found.append(result)
    return found[0], found[1]


def _filled(x: np.ndarray, order: np.ndarray, columns: int) -> np.ndarray:
    """Rows in their order and as many columns, zeros where there is nothing."""
    whole = np.zeros((*x.shape[:-2], len(order), columns), np.uint8)
    whole[..., : x.shape[-1]] = np.where((order >= 0)[:, None], x[..., order, :], 0)
    return whole

"""What a product with 4-bit weights computes on Hopper, to the bit, and what it would compute exactly.

The weights are those of zoo.reference.four_bit_weights. Which elements of K share an instruction, and so are added up exactly, follows from
the order in which a lane's registers hold weights (zoo.reference.fragments): of each 64, those with k / 8 even, then those with k / 8 odd.
Of bf16 an instruction takes 16 columns that follow each other. Sums of bf16 keep every bit that f32 has: they stay in the tensor core over
all of K.

Times fp8, partial sums leave the tensor core, whose sums have 13 fraction bits, and are added up in f32: every 256 of K where A has a scale for
each row or one for all; every 128, multiplied by A's scale, where it has one for 1 x 128; or never, if a caller asks for that by name.
The sum of a row's and a column's products is then multiplied by what does not depend on K: `finished`.
"""

from __future__ import annotations

import itertools

import numpy as np

from zoo.reference.float32 import fused_multiply_add
from zoo.reference.gemm import chained_sums, distinct_rows, nothing, partial_sums

CHUNK = 64  # of K: two instructions
SPANS = {"256": 256, "128": 128, "never": None}  # of K, until partial sums are added up in f32
_NOTHING = nothing(np.dtype(np.float64), 25)


def instruction_order(columns: int) -> np.ndarray:
    """The columns of a matrix in the order of the instructions that multiply them, 32 each but for the last two of a K that ends in 32."""
    k = np.arange(-(-columns // CHUNK) * CHUNK)
    return np.lexsort((k, k // 8 % 2, k // CHUNK))


def gemm_fp8_by_four_bit(
    a: np.ndarray, weights: np.ndarray, promotion: str = "256", a_scale: np.ndarray | None = None, splits: int = 1
) -> np.ndarray:
    """f32 sums (M, N) of e4m3 a (M, K) and weights (N, K); with a_scale (M, ceil(K / 128)) every 128 of K are scaled as they are added.

    With `splits`, the blocks of 256 are cut into so many shares, whose sums are added up in order.
    """
    order = instruction_order(a.shape[1])
    (a, of_rows), (weights, of_columns) = (distinct_rows(_ordered(x, order)) for x in (a, weights))
    shares = [_share(a, weights, of_rows, promotion, a_scale, cut) for cut in itertools.pairwise(shares_of(len(order), splits))]
    total = shares[0] if splits == 1 else np.zeros_like(shares[0])
    with np.errstate(all="ignore"):
        for share in shares if splits > 1 else ():
            total = total + share
    return total[:, of_columns]


def shares_of(columns: int, splits: int) -> list[int]:
    """Where each share of K begins, whole blocks of 256, and the last ends."""
    blocks = -(-columns // 256)
    return [*(blocks * split // splits * 256 for split in range(splits)), columns]


def _share(
    a: np.ndarray, weights: np.ndarray, of_rows: np.ndarray, promotion: str, a_scale: np.ndarray | None, cut: tuple[int, int]
) -> np.ndarray:
    """Of these columns, in the order of instructions; of_rows: which of a's rows each row of the result is of."""
    span = 128 if a_scale is not None else SPANS[promotion]
    begin, end = cut
    sums = np.zeros((len(of_rows), len(weights)), np.float32)
    with np.errstate(all="ignore"):
        for first in range(begin, end, span or max(end - begin, 1)):
            columns = slice(first, min(first + span, end) if span else end)
            partial = partial_sums(a[:, columns], weights[:, columns])[of_rows]
            sums = sums + partial if a_scale is None else fused_multiply_add(partial, a_scale[:, first // 128, None], sums)
        if a_scale is not None and (end - begin + 127) // 128 % 2:
            sums = sums + np.float32(0)  # K is filled up to whole blocks of 256: -0 becomes 0
    return sums


def finished(
    sums: np.ndarray,
    factors: np.ndarray,
    a_scale: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    row_scale: np.ndarray | None = None,
) -> np.ndarray:
    """What becomes of the sums (M, N) before D is rounded, each step rounded to f32: times a_scale (M,), times the factors (N,) of
    the weights, plus the bias (N,), times row_scale (M,). The factors are `factors_of`."""
    with np.errstate(all="ignore"):
        if a_scale is not None:
            sums = sums * a_scale[:, None]
        sums = sums * factors[None, :]
        if bias is not None:
            sums = sums + bias.astype(np.float32)[None, :]
        return np.asarray(sums if row_scale is None else sums * row_scale[:, None])


def factors_of(powers: np.ndarray, alpha: np.ndarray | float | None = None) -> np.ndarray:
    """alpha, 1 if there is none, times the powers of two that belong to e4m3 weights: 8 of nvfp4, each row's of mxfp4; rounded to f32."""
    with np.errstate(all="ignore"):
        return np.asarray(np.float32(1 if alpha is None else alpha) * powers.astype(np.float32))


def gemm_bf16_by_four_bit(a: np.ndarray, weights: np.ndarray, splits: int = 1) -> np.ndarray:
    """f32 sums (M, N) of bf16 a (M, K) and weights (N, K): sums of 16 products, columns in their order, and the one before, cut to f32.

    With `splits`, the blocks of 256 are cut into so many shares, whose sums are added up in order.
    """
    (a, of_rows), (weights, of_columns) = (distinct_rows(_of_whole_chunks(x)) for x in (a, weights))
    total = np.zeros((len(a), len(weights)), np.float32)
    with np.errstate(all="ignore"):
        for begin, end in itertools.pairwise(shares_of(a.shape[1], splits)):
            left, right = a[:, begin:end], weights[:, begin:end]
            share = chained_sums(left.astype(np.float64), right.astype(np.float64), _exponents(left), _exponents(right), 16, 25, 23)
            total = share if splits == 1 else total + share
    return np.asarray(total[of_rows][:, of_columns])


def exact(a: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the product, sum of |a w|) in float64, of numbers as they are."""
    left, right = a.astype(np.float64), weights.astype(np.float64)
    return left @ right.T, np.abs(left) @ np.abs(right).T


def _ordered(x: np.ndarray, order: np.ndarray) -> np.ndarray:
    codes = np.zeros((len(x), len(order)), np.uint8)
    codes[:, : x.shape[1]] = np.ascontiguousarray(x).view(np.uint8)
    return np.ascontiguousarray(codes[:, order]).view(x.dtype)


def _of_whole_chunks(x: np.ndarray) -> np.ndarray:
    """Filled up with zeros to a multiple of 64 columns."""
    whole = np.zeros((len(x), -(-x.shape[1] // CHUNK) * CHUNK), x.dtype)
    whole[:, : x.shape[1]] = x
    return whole


def _exponents(x: np.ndarray) -> np.ndarray:
    """The exponent in a bf16's code; subnormals have the smallest, zeros none."""
    codes = np.ascontiguousarray(x).view(np.uint16).astype(np.int16) & 0x7FFF
    return np.where(codes == 0, _NOTHING, np.maximum(codes >> 7, 1) - 127).astype(np.int16)

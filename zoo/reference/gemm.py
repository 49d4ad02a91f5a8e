"""What a block-scaled GEMM computes on Hopper, to the bit, and what it would compute exactly.

The tensor core's rule is that of docs/emulator.md, written down a second time: the emulator has its own.
"""

from __future__ import annotations

import numpy as np

from zoo.reference.block_formats import NAN
from zoo.reference.blocks import cut, spread
from zoo.reference.dequantize import DTYPES
from zoo.reference.float32 import fused_multiply_add
from zoo.reference.small_floats import E4M3, decode, decode_e8m0

BLOCK = 128
_DEPTH = 32  # of one wgmma along K
_FRACTION_BITS = 13
_NOTHING = -1000  # the exponent of a zero: never the largest
_CELLS = 1 << 15  # sums that are computed at a time, so that they stay in a cache


def gemm_fp8b128(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray, splits: int = 1) -> np.ndarray:
    """f32 sums (M, N) from a (M, K), a_scale (M, ceil(K / 128)), b (N, K), b_scale (ceil(N / 128), ceil(K / 128)).

    A block's partial sum leaves the tensor core; sum = fma(partial, a_scale * b_scale, sum) in f32, block after block.
    With `splits`, the blocks are cut into so many shares, whose sums are added up in order. Scales are f32, or ue8m0 bytes.
    """
    a_scale, b_scale = as_f32(a_scale), as_f32(b_scale)
    blocks = a_scale.shape[1]
    b_rows = np.repeat(b_scale, BLOCK, axis=0)[: len(b)]
    total = np.zeros((len(a), len(b)), np.float32)
    with np.errstate(all="ignore"):
        for split in range(splits):
            sums = np.zeros_like(total)
            for block in range(blocks * split // splits, blocks * (split + 1) // splits):
                columns = slice(block * BLOCK, (block + 1) * BLOCK)
                scale = a_scale[:, block, None] * b_rows[None, :, block]
                sums = fused_multiply_add(partial_sums(a[:, columns], b[:, columns]), scale, sums)
            total = sums if splits == 1 else total + sums
    return total


def gemm_fp8b128_k_grouped(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """f32 sums (G, M, N) from a (M, K), b (N, K), groups along K, and scales (M, blocks) and (N, blocks).

    Blocks begin anew with every group; the last one of a group ends where the group does. The blocks of all groups follow one
    another in the scales. What is not of a group is not looked at.
    """
    a_scale, b_scale = as_f32(a_scale), as_f32(b_scale)
    sums = np.zeros((len(offsets), len(a), len(b)), np.float32)
    begin = block = 0
    with np.errstate(all="ignore"):
        for group, end in enumerate(np.asarray(offsets).tolist()):
            for first in range(begin, end, BLOCK):
                columns = slice(first, min(first + BLOCK, end))
                scale = a_scale[:, block, None] * b_scale[None, :, block]
                sums[group] = fused_multiply_add(partial_sums(a[:, columns], b[:, columns]), scale, sums[group])
                block += 1
            begin = end
    return sums


def as_f32(scales: np.ndarray) -> np.ndarray:
    """Of ue8m0 bytes the numbers that they are; f32 as it is."""
    return decode_e8m0(scales) if scales.itemsize == 1 else scales


def scaled(sums: np.ndarray, row_scale: np.ndarray) -> np.ndarray:
    """Each row of the f32 sums times its factor, rounded to f32: before c is added, before D is rounded."""
    with np.errstate(all="ignore"):
        return np.asarray(sums * row_scale[:, None])


def accumulated(before: np.ndarray, sums: np.ndarray, dtype: str) -> np.ndarray:
    """D += sums, added in f32 and rounded once. In f32 the L2 cache adds; an H200's keeps subnormal numbers."""
    with np.errstate(all="ignore"):
        return rounded(before.astype(np.float32) + sums, dtype)


def partial_sums(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(M, N) float32: what a chain of wgmmas, each 32 along K, makes of e4m3 a (M, K) and b (N, K).

    Every product and the sum so far are cut, towards zero, to 13 fraction bits below the largest exponent among them
    (of a product: the sum of its factors'), added exactly, and the sum is cut to 13 fraction bits.
    """
    left, right = decode(a, E4M3).astype(np.float64), decode(b, E4M3).astype(np.float64)
    return chained_sums(left, right, _exponents(a), _exponents(b), _DEPTH, _FRACTION_BITS, _FRACTION_BITS)


def chained_sums(
    left: np.ndarray,
    right: np.ndarray,
    left_exponents: np.ndarray,
    right_exponents: np.ndarray,
    depth: int,
    fraction_bits: int,
    kept_bits: int,
) -> np.ndarray:
    """The same for operands as float64 and the exponents that count for their alignment, of instructions `depth` along K."""
    right, right_exponents = np.ascontiguousarray(right.T), np.ascontiguousarray(right_exponents.T)
    found = np.empty((len(left), right.shape[1]), np.float32)
    rows = max(1, _CELLS // max(right.shape[1], 1))
    for begin in range(0, len(left), rows):
        some, exponents = left[begin : begin + rows].T, left_exponents[begin : begin + rows].T
        sums = np.zeros((some.shape[1], right.shape[1]))
        product, exponent = np.empty_like(sums), np.empty(sums.shape, np.int16)  # nothing is allocated in the innermost loops
        for first in range(0, len(right), depth):
            instruction = range(first, min(first + depth, len(right)))
            top = np.where(sums == 0, _NOTHING, np.frexp(sums)[1] - 1).astype(np.int16)
            for k in instruction:
                np.add(exponents[k][:, None], right_exponents[k], out=exponent)
                np.maximum(top, exponent, out=top)
            last_bit = np.maximum(top - fraction_bits, _NOTHING)  # its exponent
            per_bit = np.ldexp(1.0, -last_bit)
            total = np.trunc(sums * per_bit)
            for k in instruction:
                np.multiply(some[k][:, None], right[k], out=product)
                np.multiply(product, per_bit, out=product)
                total += np.trunc(product, out=product)
            mantissa, of_sum = np.frexp(np.ldexp(total, last_bit))
            sums = np.ldexp(np.trunc(np.ldexp(mantissa, kept_bits + 1)), of_sum - kept_bits - 1)
        found[begin : begin + rows] = sums
    return found


def exact(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the product, sum of |a b|) in float64."""
    cuts = cut(a.shape[1], BLOCK)
    left = decode(a, E4M3).astype(np.float64) * spread(a_scale, cuts)
    right = decode(b, E4M3).astype(np.float64) * np.repeat(spread(b_scale, cuts), BLOCK, axis=0)[: len(b)]
    return left @ right.T, np.abs(left) @ np.abs(right).T


def error_bound(product: np.ndarray, magnitude: np.ndarray, dtype: str) -> np.ndarray:
    """How far D may be from the exact product of normal data: 2^-11 of sum |a b| for four cuts a block, and rounding.

    Not a worst case: where magnitudes are spread over all of e4m3, most products of an instruction lose bits.
    """
    step, smallest = {"bf16": (2.0**-8, 2.0**-133), "f16": (2.0**-11, 2.0**-24), "f32": (2.0**-24, 2.0**-149)}[dtype]
    return np.asarray(2.0**-11 * magnitude + step * np.abs(product) + smallest)


def _exponents(elements: np.ndarray) -> np.ndarray:
    """The exponent in an e4m3's code; subnormals have the smallest, zeros none."""
    codes = elements.view(np.uint8).astype(np.int16) & 0x7F
    return np.where(codes == 0, _NOTHING, np.maximum(codes >> 3, 1) - 7)


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """D from the sums."""
    with np.errstate(all="ignore"):
        rounded = np.where(np.isnan(values), NAN, values).astype(DTYPES[dtype])
    if dtype != "f32":
        rounded.view(np.uint16)[np.isnan(values)] = 0x7FFF
    return rounded

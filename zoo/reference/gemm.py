"""What a block-scaled GEMM computes on Hopper, to the bit, and what it would compute exactly.

The tensor core's rule is that of docs/emulator.md, written down a second time: the emulator has its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from zoo.reference.block_formats import NAN
from zoo.reference.blocks import cut, spread
from zoo.reference.dequantize import DTYPES
from zoo.reference.float32 import fused_multiply_add
from zoo.reference.small_floats import E4M3, decode, decode_e8m0

BLOCK = 128
_DEPTH = 32  # of one wgmma along K
_FRACTION_BITS = 13
_LEAST_OF_F32 = -126  # the exponent of its smallest normal number, and of subnormal ones
_CELLS, _PRODUCTS = 1 << 14, 1 << 15  # sums and products that are computed at a time, so that they stay in a cache


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
    return chained_sums(decode(a, E4M3), decode(b, E4M3), _exponents(a), _exponents(b), _DEPTH, _FRACTION_BITS, _FRACTION_BITS)


def chained_sums(
    left: np.ndarray,
    right: np.ndarray,
    left_exponents: np.ndarray,
    right_exponents: np.ndarray,
    depth: int,
    fraction_bits: int,
    kept_bits: int,
    within_f32: bool = False,
) -> np.ndarray:
    """The same for operands as numbers and the exponents that count for their alignment, of instructions `depth` along K.

    `within_f32`: sums are f32 between instructions, too, with its subnormal numbers and infinities, and a zero is +0.

    Operands are of float32 or float64, whichever holds sums of `depth` products in units of their last bit exactly. Twice the exponent of a
    zero must be that of a normal number even when `fraction_bits` are taken off; `nothing(left.dtype, fraction_bits)` is.
    """
    if len(left) > len(right):  # the inner loops of numpy are along the longer side
        return np.ascontiguousarray(
            chained_sums(right, left, right_exponents, left_exponents, depth, fraction_bits, kept_bits, within_f32).T
        )
    form = _FORMS[left.dtype]
    left, right, left_exponents, right_exponents = (np.ascontiguousarray(x.T) for x in (left, right, left_exponents, right_exponents))
    (K, M), N = left.shape, right.shape[1]
    found = np.empty((M, N), np.float32)
    rows = max(1, _CELLS // max(N, 1))
    for begin in range(0, M, rows):
        some, exponents = left[:, begin : begin + rows, None], left_exponents[:, begin : begin + rows, None]
        cells = some.shape[1], N
        together = max(1, min(depth, _PRODUCTS // max(1, cells[0] * N)))  # of K; nothing is allocated in the loops over it
        sums, total, units, per_unit = (np.zeros(cells, left.dtype) for _ in range(4))
        products, of_products = np.empty((together, *cells), left.dtype), np.empty((depth, *cells), left_exponents.dtype)
        top = np.empty(cells, form.bits)
        for first in range(0, K, depth):
            end = min(first + depth, K)
            some_exponents = np.add(exponents[first:end], right_exponents[first:end, None], out=of_products[: end - first])
            if within_f32:
                _exponents_of_f32(sums, out=top)
            else:
                form.exponents(sums, out=top)
            np.maximum(top, some_exponents.max(axis=0), out=top)
            form.power_of_two(top - fraction_bits, out=units)
            form.power_of_two(fraction_bits - top, out=per_unit)
            np.multiply(sums, per_unit, out=total)
            np.trunc(total, out=total)
            for k in range(first, end, together):
                of_k = slice(k, min(k + together, end))
                some_products = np.multiply(some[of_k], right[of_k, None], out=products[: of_k.stop - k])
                some_products *= per_unit
                np.trunc(some_products, out=some_products)
                for product in some_products:
                    total += product
            np.multiply(total, units, out=sums)
            if within_f32:
                _cut_to_f32(sums)
            else:
                form.cut(sums, kept_bits)
        found[begin : begin + rows] = sums
    return found


def distinct_rows(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(each row that there is once, which of them every row is): rows that are the same to the bit have the same sums."""
    places: dict[bytes, int] = {}
    which = np.array([places.setdefault(row.tobytes(), len(places)) for row in matrix], np.intp)
    _, first = np.unique(which, return_index=True)
    return (matrix if len(first) == len(matrix) else matrix[first]), which


@dataclass(frozen=True)
class _Form:
    """How a float lies in its bits."""

    bits: type[np.signedinteger[Any]]
    fraction: int
    bias: int

    def exponents(self, values: np.ndarray, out: np.ndarray) -> None:
        """Of a zero the least one, of what is no number the largest."""
        np.right_shift(values.view(self.bits), self.fraction, out=out)
        np.bitwise_and(out, 2 * self.bias + 1, out=out)
        np.subtract(out, self.bias, out=out)

    def power_of_two(self, exponents: np.ndarray, out: np.ndarray) -> None:
        np.left_shift(exponents + self.bias, self.fraction, out=out.view(self.bits))

    def cut(self, values: np.ndarray, kept_bits: int) -> None:
        """Towards zero, to so many fraction bits of a normal number."""
        of_bits = values.view(self.bits)
        np.bitwise_and(of_bits, self.bits(-1) << (self.fraction - kept_bits), out=of_bits)


_FORMS = {np.dtype(np.float32): _Form(np.int32, 23, 127), np.dtype(np.float64): _Form(np.int64, 52, 1023)}


def _exponents_of_f32(values: np.ndarray, out: np.ndarray) -> None:
    """Of f32 in float64; of a zero the least one."""
    _FORMS[values.dtype].exponents(values, out)
    np.maximum(out, _LEAST_OF_F32, out=out, where=values != 0)


def _cut_to_f32(values: np.ndarray) -> None:
    """float64 to the nearest f32 towards zero; beyond all of them infinity. A zero is +0."""
    magnitudes = np.abs(values)
    subnormal = magnitudes < 2.0**_LEAST_OF_F32
    _FORMS[values.dtype].cut(values, 23)
    if subnormal.any():
        np.copyto(values, np.trunc(values * 2.0**149) * 2.0**-149, where=subnormal)
    np.copyto(values, np.copysign(np.inf, values), where=magnitudes >= 2.0**128)
    values += 0.0


def nothing(dtype: np.dtype[Any], fraction_bits: int) -> int:
    """The exponent of a zero in `chained_sums`: as small as it may be."""
    return -((_FORMS[dtype].bias - 1 - fraction_bits) // 2)


_NOTHING = nothing(np.dtype(np.float32), _FRACTION_BITS)


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
    codes = np.ascontiguousarray(elements).view(np.int8) & np.int8(0x7F)
    return np.where(codes == 0, np.int8(_NOTHING), np.maximum(codes >> 3, 1) - np.int8(7))


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    """D from the sums."""
    with np.errstate(all="ignore"):
        rounded = np.where(np.isnan(values), NAN, values).astype(DTYPES[dtype])
    if dtype != "f32":
        rounded.view(np.uint16)[np.isnan(values)] = 0x7FFF
    return rounded

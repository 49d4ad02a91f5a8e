"""What a product of block-scaled operands computes on Blackwell, to the bit, and what it would compute exactly.

The tensor core's rule is that of docs/emulator.md, written down a second time: the emulator has its own. No GPU has
confirmed it yet; `error_bound` says how far a GPU may be from the exact product if it adds f32 numbers in any other order.

Elements lie as quantisers store them, (rows, K), or (rows, K / 2) bytes of two e2m1; scales are plain, a byte for each block of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zoo.reference.gemm import chained_sums, nothing, rounded
from zoo.reference.small_floats import E2M1, E4M3, E5M2, ElementFormat, decode, decode_e8m0, unpack_e2m1

_NOTHING = nothing(np.dtype(np.float64), 35)  # the exponent of a zero: never the largest
_PRODUCTS_AT_ONCE = 1 << 20
_GROUP = 16  # products of two e2m1 that are added up exactly


@dataclass(frozen=True)
class Kind:
    """How the tensor core multiplies operands of some formats."""

    block: int  # elements that share a scale
    step: int  # elements of K that one instruction multiplies
    line: int  # elements of K of 128 bytes: what K is shared out by
    packed: tuple[bool, bool]  # whether elements of A, and of B, are two e2m1 a byte
    e4m3_scales: bool = False  # or ue8m0


KINDS = {
    "mxfp8": Kind(32, 32, 128, (False, False)),
    "mxfp8_mxfp4": Kind(32, 32, 128, (False, True)),
    "mxfp4": Kind(32, 64, 256, (True, True)),
    "nvfp4": Kind(16, 64, 256, (True, True), e4m3_scales=True),
}


def gemm_block_scaled(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray, formats: str, splits: int = 1) -> np.ndarray:
    """f32 sums (M, N) of the products of a's rows and b's, one instruction along K after the other.

    With `splits`, the lines of K are cut into so many shares, whose sums are added up in order, each addition rounded to f32.
    Where K is no multiple of an instruction's, the elements that are missing are zeros.
    """
    kind = KINDS[formats]
    left, right = Operand.of(a, a_scale, kind, kind.packed[0]), Operand.of(b, b_scale, kind, kind.packed[1])
    K = min(left.values.shape[1], right.values.shape[1])  # rows of packed elements may be longer
    lines = -(-K // kind.line)
    total = np.zeros((len(a), len(b)), np.float32)
    with np.errstate(all="ignore"):
        for split in range(splits):
            begin, end = (min(lines * number // splits * kind.line, K) for number in (split, split + 1))
            share = _sums(left, right, kind, begin, end)
            total = share if split == 0 else total + share
    return total


@dataclass(frozen=True)
class Operand:
    """Elements and scales of an operand, each as a value and the exponent that alignment counts with."""

    values: np.ndarray  # (rows, K), float64
    exponents: np.ndarray  # the one in an element's code; a subnormal's is the smallest, a zero's none
    scales: np.ndarray  # (rows, K / block), float64
    scale_exponents: np.ndarray

    @classmethod
    def of(cls, elements: np.ndarray, scales: np.ndarray, kind: Kind, packed: bool) -> Operand:
        codes = unpack_e2m1(elements) if packed else np.ascontiguousarray(elements).view(np.uint8)
        element = E2M1 if packed else E5M2 if elements.dtype == E5M2.dtype else E4M3
        scale_codes = np.ascontiguousarray(scales).view(np.uint8)
        if kind.e4m3_scales:
            # A scale has no sign: the bit makes it no number.
            values = np.where(scale_codes & 0x80, np.float32(np.nan), decode(scale_codes, E4M3))
            exponents = _exponents(scale_codes, E4M3)
        else:
            values, exponents = decode_e8m0(scale_codes), scale_codes.astype(np.int16) - 127
        own = decode(codes, element).astype(np.float64)
        return cls(own, np.where(own == 0, _NOTHING, _exponents(codes, element)), values.astype(np.float64), exponents)

    def rows(self, rows: slice) -> Operand:
        return Operand(self.values[rows], self.exponents[rows], self.scales[rows], self.scale_exponents[rows])

    def all_exponents(self, block: int, K: int) -> np.ndarray:
        """Of the first K elements of each row, times their scales."""
        own, scales = self.exponents[:, :K], np.repeat(self.scale_exponents, block, axis=1)[:, :K]
        return np.where(self.values[:, :K] == 0, np.int16(_NOTHING), own + scales)

    def exact(self, block: int, K: int) -> np.ndarray:
        """What the first K elements of each row stand for."""
        return np.asarray(self.values[:, :K] * np.repeat(self.scales, block, axis=1)[:, :K])


_MANTISSA_AND_EXPONENT_BITS = {E4M3: (3, 4), E5M2: (2, 5), E2M1: (1, 2)}


def _exponents(codes: np.ndarray, element: ElementFormat) -> np.ndarray:
    mantissa, exponent = _MANTISSA_AND_EXPONENT_BITS[element]
    field = codes.astype(np.int16) >> mantissa & (1 << exponent) - 1
    return np.asarray(np.maximum(field, 1) - ((1 << exponent - 1) - 1))


def _sums(left: Operand, right: Operand, kind: Kind, begin: int, end: int) -> np.ndarray:
    """Of the elements from begin to end: a multiple of instructions, but for those at the end of K."""
    if not all(kind.packed):
        return _sums_of_wide(left, right, kind, slice(begin, end))
    sums = np.zeros((len(left.values), len(right.values)), np.float32)
    together = max(1, _PRODUCTS_AT_ONCE // (kind.step * max(1, sums.shape[1])))
    for row in range(0, len(sums), together):
        rows = slice(row, row + together)
        for first in range(begin, end, kind.step):
            sums[rows] = _add_packed(sums[rows], left.rows(rows), right, slice(first, min(first + kind.step, end)), kind)
    return sums


def _sums_of_wide(left: Operand, right: Operand, kind: Kind, elements: slice) -> np.ndarray:
    """Instructions of kind mxf8f6f4: 32 products and the sum so far, aligned to the largest exponent among them.

    Each is cut, towards zero, to 25 bits below it. A product has the exponents of both factors and of both scales, which are powers of two.
    """
    a, b = (operand.exact(kind.block, elements.stop)[:, elements] for operand in (left, right))
    of_a, of_b = (operand.all_exponents(kind.block, elements.stop)[:, elements] for operand in (left, right))
    return chained_sums(a, b, of_a, of_b, kind.step, 25, 23, within_f32=True)


def _add_packed(sums: np.ndarray, left: Operand, right: Operand, elements: slice, kind: Kind) -> np.ndarray:
    """One instruction of kinds mxf4 and mxf4nvf4: the sums of 16 products are exact, then multiplied by their scales.

    They and the sum so far are aligned to the largest exponent among the scales' products and the sum so far, whatever the sums
    of 16 are, and cut, towards zero, to 35 bits below it.
    """
    terms, exponents = [], []
    for first in range(elements.start, elements.stop, _GROUP):
        group, block = slice(first, first + _GROUP), first // kind.block
        term = left.values[:, group] @ right.values[:, group].T
        terms.append(term * left.scales[:, None, block] * right.scales[None, :, block])
        exponents.append(left.scale_exponents[:, None, block] + right.scale_exponents[None, :, block])
    unit = _unit(np.maximum(np.max(exponents, axis=0), _exponents_of_sums(sums)), 35)
    total = np.trunc(sums / unit)
    for term in terms:
        total += np.trunc(term / unit)
    return _to_f32_towards_zero(total * unit)


def _unit(exponents: np.ndarray, fraction_bits: int) -> np.ndarray:
    return np.asarray(np.ldexp(1.0, np.maximum(exponents, _NOTHING) - fraction_bits))


def _exponents_of_sums(sums: np.ndarray) -> np.ndarray:
    return np.asarray(np.where(sums == 0, _NOTHING, np.maximum(np.frexp(sums)[1] - 1, -126)))


def _to_f32_towards_zero(values: np.ndarray) -> np.ndarray:
    """Beyond all numbers infinity; a zero is +0."""
    nearest = values.astype(np.float32)
    cut = np.where(np.abs(nearest.astype(np.float64)) > np.abs(values), np.nextafter(nearest, np.float32(0)), nearest)
    return np.asarray(np.where(np.abs(values) >= 2.0**128, nearest, cut) + np.float32(0))


def finished(
    sums: np.ndarray,
    dtype: str,
    alpha: np.ndarray | float | None = None,
    bias: np.ndarray | None = None,
    row_scale: np.ndarray | None = None,
    c: np.ndarray | None = None,
) -> np.ndarray:
    """D: the sums times alpha, plus bias, times the row's factor, plus c, each rounded to f32; then rounded to D's dtype.

    alpha is a number or, where rows are of groups, one a row (M, 1); so is bias (N,) or (M, N).
    """
    with np.errstate(all="ignore"):
        if alpha is not None:
            sums = sums * np.asarray(alpha, np.float32)
        if bias is not None:
            sums = sums + bias.astype(np.float32)
        if row_scale is not None:
            sums = sums * row_scale.astype(np.float32)[:, None]
        if c is not None:
            sums = sums + c.astype(np.float32)
    return rounded(sums, dtype)


def exact(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray, formats: str) -> tuple[np.ndarray, np.ndarray]:
    """(the product, sum of |a b|) in float64."""
    kind = KINDS[formats]
    left, right = Operand.of(a, a_scale, kind, kind.packed[0]), Operand.of(b, b_scale, kind, kind.packed[1])
    K = min(left.values.shape[1], right.values.shape[1])
    of_a, of_b = left.exact(kind.block, K), right.exact(kind.block, K)
    with np.errstate(all="ignore"):
        return of_a @ of_b.T, np.abs(of_a) @ np.abs(of_b).T


def error_bound(magnitude: np.ndarray, K: int) -> np.ndarray:
    """How far the sums may be from the exact product, given the sum of |a b| over K elements.

    f32 numbers added in any order, each addition rounded or cut, are (K - 1) * 2^-23 * sum |a b| off at most, and the rule above is
    within it: an instruction cuts 33 terms at 2^-25 and their sum at 2^-23 of the largest. That one, where a factor is subnormal,
    may be up to 16 times smaller than its exponent says, hence 16 more; and a sum below all normal numbers is cut at 2^-149.
    """
    return np.asarray((K + 16) * (2.0**-23 * magnitude + 2.0**-149))


def finished_bound(
    product: np.ndarray,
    bound: np.ndarray,
    dtype: str,
    alpha: np.ndarray | float | None = None,
    bias: np.ndarray | None = None,
    row_scale: np.ndarray | None = None,
    c: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(D without any rounding, how far D may be from it), given the exact product and how far the sums may be from that."""

    def with_rounding(step: float, smallest: float) -> np.ndarray:
        return np.asarray(bound + step * (np.abs(product) + bound) + smallest)

    of_f32, of_d = (2.0**-24, 2.0**-149), {"bf16": (2.0**-8, 2.0**-133), "f16": (2.0**-11, 2.0**-24), "f32": (0.0, 0.0)}[dtype]
    with np.errstate(all="ignore"):
        if alpha is not None:
            product, bound = product * np.float64(alpha), bound * np.abs(np.float64(alpha))
            bound = with_rounding(*of_f32)
        if bias is not None:
            product = product + bias.astype(np.float64)
            bound = with_rounding(*of_f32)
        if row_scale is not None:
            factors = row_scale.astype(np.float64)[:, None]
            product, bound = product * factors, bound * np.abs(factors)
            bound = with_rounding(*of_f32)
        if c is not None:
            product = product + c.astype(np.float64)
            bound = with_rounding(*of_f32)
        return product, with_rounding(*of_d)

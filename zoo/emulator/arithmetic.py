"""How a tensor core adds: D = A * B^T + C for one instruction, in two modes.

`exact`: products and sum in float64 (BLAS), one rounding to the result type, to nearest even.

`hw`: what the hardware does (models checked bit for bit against GPUs; docs/emulator.md says which
of them were seen here).  For one element of D, over the K products of one instruction and C together:

1. every product is exact, with the exponent ea + eb (of its factors, not renormalised);
2. all terms are aligned to the largest exponent of all terms and *truncated* (toward zero) to
   `fraction_bits` fractional bits;
3. the aligned terms are added exactly;
4. the sum is truncated (f32, e8m13) or rounded to nearest even (f16); a zero result is +0.

The arrays: A is (M, K), B is (N, K), C and D are (M, N), or stacks of them along a first axis.  Elements come in as codes, C and D as register bits.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy

from zoo.emulator import number_formats
from zoo.emulator.number_formats import Format

U32 = numpy.uint32
U64 = numpy.uint64

# Exponent given to a zero factor or a zero accumulator: so low that it never is the largest.
_ZERO_EXPONENT = -2000
# The place of the lowest bit of a zero: so high that it never is the lowest.
_ZERO_LOWEST = 2000
_FEW_TERMS = 1 << 12  # of so few, adding them one way costs less than asking whether a faster way gives the same
_TERMS_AT_ONCE = 1 << 15  # up to so many, one operation on all is cheaper than one for each k


@dataclass(frozen=True)
class SumRule:
    """One tensor-core datapath: alignment width and result type ("f32", "e8m13", "f16")."""

    fraction_bits: int
    result: str


HOPPER_FP8_F32 = SumRule(13, "e8m13")
HOPPER_FP8_F16 = SumRule(13, "f16")
WIDE_F32 = SumRule(25, "f32")
WIDE_F16 = SumRule(25, "f16")


class Operand:
    """A matrix (R, K) as float64 values and, for the `hw` mode, the exponent of every element.

    The exponent is the one in the element's code; subnormals have their format's smallest, zeros one that never is the largest.
    `lowest` is the exponent of the last bit that is set, or None where no table gives it.
    """

    __slots__ = ("values", "_exponents", "_codes", "_format")

    def __init__(self, values, *, exponents=None, codes=None, format=None):
        self.values, self._exponents, self._codes, self._format = values, exponents, codes, format

    @property
    def exponents(self) -> numpy.ndarray:
        if self._exponents is None:
            if self._format.bits <= 16:
                self._exponents = _exponent_table(self._format).take(self._codes)
            else:
                field = ((self._codes >> 23) & 0xFF).astype(numpy.int16)
                exponents = numpy.maximum(field, numpy.int16(1)) - numpy.int16(127)
                self._exponents = numpy.where(self.values == 0, numpy.int16(_ZERO_EXPONENT), exponents)
        return self._exponents

    @property
    def lowest(self) -> numpy.ndarray | None:
        if self._format is None or self._format.bits > 16:
            return None
        return _lowest_table(self._format).take(self._codes)


@functools.cache
def _lowest_table(format: Format) -> numpy.ndarray:
    values = number_formats.decode_table(format)
    significands, exponents = numpy.frexp(numpy.where(numpy.isfinite(values), values, 0.0))
    digits = numpy.abs(significands * 2.0**52).astype(numpy.int64)
    trailing = numpy.frexp((digits & -digits).astype(numpy.float64))[1] - 1
    return numpy.where(digits == 0, _ZERO_LOWEST, exponents - 52 + trailing).astype(numpy.int16)


@functools.cache
def _exponent_table(format: Format) -> numpy.ndarray:
    codes = numpy.arange(1 << format.bits, dtype=numpy.int64)
    field = (codes >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1)
    exponents = (numpy.maximum(field, 1) - format.bias).astype(numpy.int16)
    exponents[number_formats.decode_table(format) == 0] = _ZERO_EXPONENT
    return exponents


def operand(format: Format, codes: numpy.ndarray, negate: bool = False) -> Operand:
    """The matrix of an array of element codes."""
    if format.bits <= 16:
        codes = codes & ((1 << format.bits) - 1)
        values = number_formats.decode_table(format).take(codes)
    else:
        values = number_formats.decode(format, codes)
    return Operand(-values if negate else values, codes=codes, format=format)


@dataclass(frozen=True)
class BlockScale:
    """Scales of one operand for one instruction: codes (R, blocks) of ue8m0 or ue4m3."""

    format: Format
    codes: numpy.ndarray


# ---------------------------------------------------------------------------------------------
# results


def truncate_to_f32(values: numpy.ndarray, fraction_bits: int = 23) -> numpy.ndarray:
    """float64 -> f32 bits, toward zero, keeping `fraction_bits` of the 23; overflow gives infinity."""
    values = numpy.ascontiguousarray(values)
    kept = (values.view(U64) & U64(0xFFFFFFFFFFFFFFFF ^ ((1 << (52 - fraction_bits)) - 1))).view(numpy.float64)
    magnitude = numpy.abs(values)
    small = (magnitude < 2.0**-126) & (magnitude > 0)
    if small.any():
        step = 2.0 ** (-126 - fraction_bits)
        kept = numpy.where(small, numpy.trunc(values / step) * step, kept)
    with numpy.errstate(over="ignore", under="ignore"):
        return kept.astype(numpy.float32).view(U32)


def _round_result(values: numpy.ndarray, result: str) -> numpy.ndarray:
    """The last step; a result that becomes zero is +0, whatever the signs of its terms (seen on sm_90)."""
    if result == "f32":
        return (truncate_to_f32(values).view(numpy.float32) + numpy.float32(0)).view(U32)
    if result == "e8m13":
        return (truncate_to_f32(values, 13).view(numpy.float32) + numpy.float32(0)).view(U32)
    if result == "f16":
        codes = number_formats.encode(number_formats.F16, values, "rn").astype(U32)
        return numpy.where(codes == U32(0x8000), U32(0), codes)
    raise ValueError(f"unknown result type {result!r}")


def _round_exact(values: numpy.ndarray, result: str) -> numpy.ndarray:
    if result == "f16":
        return number_formats.encode(number_formats.F16, values, "rn").astype(U32)
    with numpy.errstate(over="ignore", under="ignore"):
        codes = values.astype(numpy.float32).view(U32)
    nan = numpy.isnan(values)
    return numpy.where(nan, U32(0x7FFFFFFF), codes) if nan.any() else codes


def _accumulator(c: numpy.ndarray | None, shape: tuple[int, int], result: str) -> numpy.ndarray:
    if c is None:
        return numpy.zeros(shape)
    return number_formats.decode(number_formats.F16 if result == "f16" else number_formats.F32, c)


def _accumulator_exponents(values: numpy.ndarray, result: str) -> numpy.ndarray:
    smallest = -14 if result == "f16" else -126
    exponents = numpy.frexp(values)[1] - 1
    return numpy.where(values == 0, _ZERO_EXPONENT, numpy.maximum(exponents, smallest))


# ---------------------------------------------------------------------------------------------
# the two modes


def exact_sum(
    a: Operand,
    b: Operand,
    c: numpy.ndarray | None,
    result: str,
    scale_a: BlockScale | None = None,
    scale_b: BlockScale | None = None,
) -> numpy.ndarray:
    """A * B^T + C in float64 with one rounding; block scales multiply the elements (exact in float64)."""
    left, right = _scaled(a.values, scale_a), _scaled(b.values, scale_b)
    with numpy.errstate(invalid="ignore", over="ignore"):
        total = left @ right.swapaxes(-1, -2) + _accumulator(c, (*left.shape[:-1], right.shape[-2]), result)
    return _round_exact(total, result)


def _scaled(values: numpy.ndarray, scale: BlockScale | None) -> numpy.ndarray:
    if scale is None:
        return values
    factors = number_formats.decode_table(scale.format)[scale.codes]
    return values * numpy.repeat(factors, values.shape[1] // factors.shape[1], axis=1)


def hw_sum(
    a: Operand,
    b: Operand,
    c: numpy.ndarray | None,
    rule: SumRule,
    scale_a: BlockScale | None = None,
    scale_b: BlockScale | None = None,
) -> numpy.ndarray:
    """One instruction by the hardware rule; ue8m0 scales (one per row) add to the product exponents."""
    rows, columns, depth = a.values.shape[-2], b.values.shape[-2], a.values.shape[-1]
    addend = _accumulator(c, (*a.values.shape[:-1], columns), rule.result)
    left, left_exponents, left_shift = _with_power_scale(a, scale_a)
    right, right_exponents, right_shift = _with_power_scale(b, scale_b)
    special = None
    if not (numpy.isfinite(left).all() and numpy.isfinite(right).all() and numpy.isfinite(addend).all()):
        left, right, addend, special = _set_specials_aside(left, right, addend)
    top = _accumulator_exponents(addend, rule.result).astype(numpy.int16)
    if rows * columns * depth > _FEW_TERMS and a.lowest is not None and b.lowest is not None:
        left_lowest, right_lowest = a.lowest + left_shift, b.lowest + right_shift
        highest = numpy.maximum(top, _of_pairs(left_exponents.max(axis=-1), right_exponents.max(axis=-1)))
        if _keeps_every_bit(addend, highest, _of_pairs(left_lowest.min(axis=-1), right_lowest.min(axis=-1)), rule.fraction_bits):
            codes = _round_result(left @ right.swapaxes(-1, -2) + addend, rule.result)
            return codes if special is None else _insert_specials(codes, special, rule.result)
    columns_of_left, exponents_of_left = _by_depth(left)[..., None], _by_depth(left_exponents)[..., None]
    columns_of_right, exponents_of_right = _by_depth(right)[..., None, :], _by_depth(right_exponents)[..., None, :]
    together = depth if addend.size * depth <= _TERMS_AT_ONCE else 1
    parts = [slice(k, k + together) for k in range(0, depth, together)]
    exponents = numpy.empty((together, *addend.shape), numpy.int16)
    for part in parts:
        numpy.add(exponents_of_left[part], exponents_of_right[part], out=exponents)
        numpy.maximum(top, exponents[0] if together == 1 else exponents.max(axis=0), out=top)
    # All terms zero: any scale will do.
    top = numpy.where(top < -1000, numpy.int16(0), top)
    scale = numpy.ldexp(1.0, rule.fraction_bits - top.astype(numpy.int32))
    total = numpy.trunc(addend * scale)
    terms = numpy.empty((together, *addend.shape))
    for part in parts:
        numpy.multiply(columns_of_left[part], columns_of_right[part], out=terms)
        numpy.multiply(terms, scale, out=terms)
        numpy.trunc(terms, out=terms)
        numpy.add(total, terms[0] if together == 1 else terms.sum(axis=0), out=total)
    # |total| < 2^(fraction_bits + 2) * (K + 1) < 2^53: integers were added, exactly.
    codes = _round_result(total * numpy.ldexp(1.0, top.astype(numpy.int32) - rule.fraction_bits), rule.result)
    return codes if special is None else _insert_specials(codes, special, rule.result)


def _by_depth(matrix: numpy.ndarray) -> numpy.ndarray:
    """The columns of a matrix, or of each in a stack."""
    return numpy.ascontiguousarray(matrix.transpose(matrix.ndim - 1, *range(matrix.ndim - 1)))


def _of_pairs(rows: numpy.ndarray, columns: numpy.ndarray) -> numpy.ndarray:
    return rows[..., :, None] + columns[..., None, :]


def _keeps_every_bit(addend: numpy.ndarray, highest: numpy.ndarray, lowest: numpy.ndarray, fraction_bits: int) -> bool:
    """Whether nothing is cut off any term: no exponent is above `highest`, no product has a bit below `lowest`.

    Then the terms are integers of one unit below 2^(fraction_bits + 2), which float64 adds exactly in any order.
    """
    if not (lowest >= highest - numpy.int16(fraction_bits)).all():
        return False
    aligned = numpy.ldexp(addend, fraction_bits - numpy.maximum(highest, -1000).astype(numpy.int32))
    return bool((aligned == numpy.trunc(aligned)).all())


def _with_power_scale(matrix: Operand, scale: BlockScale | None) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray | int]:
    """Values, their exponents, and what the scales add to every exponent."""
    if scale is None:
        return matrix.values, matrix.exponents, 0
    if scale.format is not number_formats.UE8M0 or scale.codes.shape[1] != 1:
        raise ValueError("this datapath takes one ue8m0 scale per row")
    shift = scale.codes.astype(numpy.int16) - numpy.int16(127)
    return _scaled(matrix.values, scale), matrix.exponents + shift, shift


def hw_sum_fp4(
    a: Operand,
    b: Operand,
    c: numpy.ndarray | None,
    scale_a: BlockScale,
    scale_b: BlockScale,
) -> numpy.ndarray:
    """kind::mxf4 and kind::mxf4nvf4 (K = 64, e2m1 elements).

    Sums of 16 products are exact (multiples of 1/4 below 2^10) and are multiplied by the significands of their
    two scales; the exponent of such a term is the sum of the scales' exponents alone.  The terms and C are
    truncated to 35 fractional bits below the largest exponent, added, truncated to f32.
    Assumed: a sum of 16 that is zero counts with its scales' exponent, and C may be infinite.
    """
    rows, columns, depth = len(a.values), len(b.values), a.values.shape[1]
    addend = _accumulator(c, (rows, columns), "f32")
    significand_a, exponent_a, nan_a = _scale_parts(scale_a, depth)
    significand_b, exponent_b, nan_b = _scale_parts(scale_b, depth)
    nan = nan_a[:, None] | nan_b[None, :] | numpy.isnan(addend)
    infinite = numpy.isinf(addend) & ~nan
    finite_addend = numpy.where(numpy.isfinite(addend), addend, 0.0)
    groups = depth // 16
    top = _accumulator_exponents(finite_addend, "f32")
    exponents = [exponent_a[:, g : g + 1] + exponent_b[:, g] for g in range(groups)]
    for exponent in exponents:
        top = numpy.maximum(top, exponent)
    total = numpy.trunc(finite_addend * numpy.ldexp(1.0, 35 - top))
    for g in range(groups):
        part = slice(16 * g, 16 * g + 16)
        term = (a.values[:, part] * significand_a[:, g : g + 1]) @ (b.values[:, part] * significand_b[:, g : g + 1]).T
        total += numpy.trunc(term * numpy.ldexp(1.0, 35 + exponents[g] - top))
    codes = _round_result(total * numpy.ldexp(1.0, top - 35), "f32")
    codes = numpy.where(infinite, number_formats.encode(number_formats.F32, addend).astype(U32), codes)
    return numpy.where(nan, U32(0x7FFFFFFF), codes)


def _scale_parts(scale: BlockScale, depth: int) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """(significand, exponent) per group of 16 elements, and per row whether any scale is NaN."""
    values = number_formats.decode_table(scale.format)[scale.codes]
    nan = numpy.isnan(values).any(axis=1)
    values = numpy.where(numpy.isnan(values), 1.0, values)
    if scale.format is number_formats.UE8M0:
        exponents = scale.codes.astype(numpy.int32) - 127
    else:
        exponents = numpy.maximum((scale.codes.astype(numpy.int32) & 0x7F) >> 3, 1) - 7
    significands = numpy.ldexp(values, -exponents)
    repeat = depth // 16 // scale.codes.shape[1]
    return numpy.repeat(significands, repeat, axis=1), numpy.repeat(exponents, repeat, axis=1), nan


def _set_specials_aside(left, right, addend):
    """Replace NaN and infinity by zero; the IEEE outcome of what they touch, NaN elsewhere zero."""
    with numpy.errstate(invalid="ignore", over="ignore"):
        ieee = left @ right.swapaxes(-1, -2) + addend
    special = numpy.where(numpy.isfinite(ieee), 0.0, ieee)
    clean = [numpy.where(numpy.isfinite(x), x, 0.0) for x in (left, right, addend)]
    return (*clean, special)


def _insert_specials(codes: numpy.ndarray, special: numpy.ndarray, result: str) -> numpy.ndarray:
    format = number_formats.F16 if result == "f16" else number_formats.F32
    return numpy.where(special != 0, number_formats.encode(format, special).astype(U32), codes)


# ---------------------------------------------------------------------------------------------
# integer matrices


def integer_sum(a: numpy.ndarray, b: numpy.ndarray, c: numpy.ndarray | None, saturate: bool) -> numpy.ndarray:
    """s32 register bits of A * B^T + C for signed or unsigned 8-bit values given as int64; wraps or saturates."""
    total = (a.astype(numpy.float64) @ b.astype(numpy.float64).T).astype(numpy.int64)  # < 2^53: exact
    if c is not None:
        total = total + numpy.ascontiguousarray(c, dtype=U32).view(numpy.int32)
    if saturate:
        total = numpy.clip(total, -(1 << 31), (1 << 31) - 1)
    return (total & 0xFFFFFFFF).astype(U32)


# ---------------------------------------------------------------------------------------------
# which rule an instruction follows


def wgmma_sum(a: Operand, b: Operand, c: numpy.ndarray | None, result: str, *, fp8: bool, mode: str) -> numpy.ndarray:
    """One wgmma of sm_90a on floating-point types."""
    if mode == "exact":
        return exact_sum(a, b, c, result)
    if fp8:
        return hw_sum(a, b, c, HOPPER_FP8_F32 if result == "f32" else HOPPER_FP8_F16)
    return hw_sum(a, b, c, WIDE_F32 if result == "f32" else WIDE_F16)


def mma_sync_sum(a: Operand, b: Operand, c: numpy.ndarray, result: str, *, fp8: bool, native_fp8: bool, mode: str) -> numpy.ndarray:
    """One mma.sync on floating-point types.

    Only sm_120 has fp8 in this datapath (`native_fp8`).  On sm_90 and sm_100 the compiler turns an fp8 mma.sync into
    two f16 instructions of half the depth: the first takes the elements k with k % 4 < 2 and starts from zero, the
    second takes the others and continues; C is added afterwards by an ordinary rounded addition.  (Read from the
    machine code of nvcc 13.5 and seen on hardware.)
    """
    if mode == "exact":
        return exact_sum(a, b, c, result)
    rule = WIDE_F32 if result == "f32" else WIDE_F16
    if not fp8 or native_fp8:
        return hw_sum(a, b, c, rule)
    first = numpy.arange(a.values.shape[1]) % 4 < 2
    total = None
    for part in (first, ~first):
        total = hw_sum(_as_f16(a, part), _as_f16(b, part), total, rule)
    if result == "f32":
        return number_formats.add(total, c)
    return number_formats.half_add(number_formats.F16, total, c)


def _as_f16(matrix: Operand, columns: numpy.ndarray) -> Operand:
    """Those columns as f16 (exact): subnormals of e4m3 are normal numbers there, which changes the alignment."""
    return Operand(matrix.values[:, columns], exponents=_f16_exponents(matrix._format).take(matrix._codes[:, columns]))


@functools.cache
def _f16_exponents(format: Format) -> numpy.ndarray:
    """Code -> exponent of its value in f16."""
    values = number_formats.decode(format, numpy.arange(1 << format.bits))
    with numpy.errstate(invalid="ignore"):
        exponents = numpy.maximum(numpy.frexp(values)[1] - 1, -14).astype(numpy.int16)
    return numpy.where(values == 0, numpy.int16(_ZERO_EXPONENT), exponents)


def tcgen05_sum(
    a: Operand,
    b: Operand,
    c: numpy.ndarray | None,
    result: str,
    mode: str,
    scale_a: BlockScale | None = None,
    scale_b: BlockScale | None = None,
    *,
    fp4: bool = False,
) -> numpy.ndarray:
    """One tcgen05.mma on floating-point types, or one block-scaled mma.sync of sm_120 (`fp4`: kinds mxf4, mxf4nvf4)."""
    if mode == "exact":
        return exact_sum(a, b, c, result, scale_a, scale_b)
    if fp4:
        return hw_sum_fp4(a, b, c, scale_a, scale_b)
    return hw_sum(a, b, c, WIDE_F32 if result == "f32" else WIDE_F16, scale_a, scale_b)

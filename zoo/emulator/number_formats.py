"""Number formats, bit for bit, and f32 and 16-bit arithmetic with a single rounding.

* `Format` records (E4M3, E5M2, E2M1, E2M3, E3M2, UE8M0, UE4M3, F16, BF16, TF32, F32, F64) with
  `decode(format, codes)` (codes -> float64 values) and `encode(format, values, rounding, ...)`
  (float64 values -> codes).  Every value of every other format is exact in float64, so one encoder
  serves all sources.  What `cvt` makes of them is in conversions.py.
* `fma`, `add`, `multiply` for f32 (and `half_*` for f16/bf16) with one rounding, in all four PTX
  rounding modes; `*_f32x2` for the packed forms.

Exactness of the arithmetic: a product of two f32 is exact in float64 (48 bits).  A sum is rounded
*to odd* in float64 (the error term of the two-sum says in which direction the last bit lies); a value
rounded to odd with at least two more bits than the target rounds a second time without harm.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy

U32 = numpy.uint32
U64 = numpy.uint64


@dataclass(frozen=True, eq=False)  # each is there once, and tables are looked up by it in every matrix instruction
class Format:
    """One binary floating-point format; `largest` is the code of the largest finite magnitude."""

    name: str
    bits: int
    exponent_bits: int
    mantissa_bits: int
    bias: int
    largest: int
    infinity: int | None
    nan: int | None
    signed: bool = True

    @property
    def sign_bit(self) -> int:
        return 1 << (self.exponent_bits + self.mantissa_bits) if self.signed else 0

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal number, and of all subnormals."""
        return 1 - self.bias

    @property
    def maximum(self) -> float:
        return float(decode(self, numpy.array([self.largest]))[0])


E4M3 = Format("e4m3", 8, 4, 3, 7, 0x7E, None, 0x7F)
E5M2 = Format("e5m2", 8, 5, 2, 15, 0x7B, 0x7C, 0x7F)
E2M1 = Format("e2m1", 4, 2, 1, 1, 0x7, None, None)
E2M3 = Format("e2m3", 6, 2, 3, 1, 0x1F, None, None)
E3M2 = Format("e3m2", 6, 3, 2, 3, 0x1F, None, None)
UE4M3 = Format("ue4m3", 8, 4, 3, 7, 0x7E, None, 0x7F, signed=False)
UE8M0 = Format("ue8m0", 8, 8, 0, 127, 0xFE, None, 0xFF, signed=False)
F16 = Format("f16", 16, 5, 10, 15, 0x7BFF, 0x7C00, 0x7FFF)
BF16 = Format("bf16", 16, 8, 7, 127, 0x7F7F, 0x7F80, 0x7FFF)
# tf32 lives in the upper 19 bits of a 32-bit register.
TF32 = Format("tf32", 32, 8, 23, 127, 0x7F7FE000, 0x7F800000, 0x7FFFE000)
F32 = Format("f32", 32, 8, 23, 127, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF)
F64 = Format("f64", 64, 11, 52, 1023, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FFFFFFFFFFFFFFF)

# The NaN of elements out of bounds, in f16 and bf16; wider types hold it in each half. The manual does not give its bits. An H200 has these.
OUT_OF_BOUNDS_NAN = 0x7FF7

FORMATS = {f.name: f for f in (E4M3, E5M2, E2M1, E2M3, E3M2, UE4M3, UE8M0, F16, BF16, TF32, F32, F64)}

# ---------------------------------------------------------------------------------------------
# codes -> values


@functools.cache
def decode_table(format: Format) -> numpy.ndarray:
    """float64 value of every code of a format of at most 16 bits."""
    if format.bits > 16:
        raise ValueError(f"{format.name} has too many codes for a table")
    codes = numpy.arange(1 << format.bits, dtype=numpy.int64)
    if format is UE8M0:
        values = numpy.ldexp(1.0, codes - 127)
        values[0xFF] = numpy.nan
        return values
    magnitude = codes & ((1 << (format.exponent_bits + format.mantissa_bits)) - 1)
    exponent = magnitude >> format.mantissa_bits
    mantissa = magnitude & ((1 << format.mantissa_bits) - 1)
    significand = mantissa + (numpy.minimum(exponent, 1) << format.mantissa_bits)
    values = numpy.ldexp(
        significand.astype(numpy.float64),
        numpy.maximum(exponent, 1) - format.bias - format.mantissa_bits,
    )
    if format.infinity is not None:
        values[magnitude == format.infinity] = numpy.inf
        values[magnitude > format.infinity] = numpy.nan
    elif format.nan is not None:
        values[magnitude == format.nan] = numpy.nan
    if format.signed:
        values = numpy.where(codes & format.sign_bit, -values, values)
    elif format is UE4M3:
        # bit 7 must be 0; hardware is not specified for such a scale, so it decodes to NaN here.
        values[codes >> 7 == 1] = numpy.nan
    return values


@functools.cache
def decode_table_f32(format: Format) -> numpy.ndarray:
    """The same as float32 (exact for every format of at most 16 bits)."""
    return decode_table(format).astype(numpy.float32)


def decode(format: Format, codes: numpy.ndarray) -> numpy.ndarray:
    """float64 values of an array of codes (unsigned integers of any width; upper bits ignored)."""
    if format is F64:
        return numpy.ascontiguousarray(codes, dtype=U64).view(numpy.float64)
    if format is F32:
        return _widen(numpy.ascontiguousarray(codes, dtype=U32))
    if format is TF32:
        return _widen(numpy.ascontiguousarray(codes, dtype=U32) & U32(0xFFFFE000))
    return decode_table(format)[codes & ((1 << format.bits) - 1)]


def _widen(bits: numpy.ndarray) -> numpy.ndarray:
    with numpy.errstate(invalid="ignore"):  # a signalling NaN is no event here
        return bits.view(numpy.float32).astype(numpy.float64)


# ---------------------------------------------------------------------------------------------
# values -> codes

ROUNDINGS = ("rn", "rna", "rz", "rm", "rp")

_F64_MANTISSA = U64((1 << 52) - 1)


def encode(
    format: Format,
    values: numpy.ndarray,
    rounding: str = "rn",
    *,
    satfinite: bool = False,
    relu: bool = False,
    nan: int | None = None,
) -> numpy.ndarray:
    """Round float64 `values` to `format`; returns uint64 codes.

    `satfinite`: finite or infinite values beyond the largest magnitude become that magnitude.
    `relu`: negative results become +0.  NaN becomes `nan` (default: the format's canonical NaN; formats
    without NaN give the largest positive number, as `.satfinite` does in PTX).
    Formats without infinity need `satfinite`, as in PTX.
    """
    if rounding not in ROUNDINGS:
        raise ValueError(f"rounding {rounding!r} is none of {ROUNDINGS}")
    if format is UE8M0:
        raise ValueError("ue8m0 has its own rule: use encode_ue8m0")
    if format.infinity is None and not satfinite:
        raise ValueError(f"{format.name} has no infinity: it can only be encoded with satfinite")
    values = numpy.ascontiguousarray(values, dtype=numpy.float64)
    bits = values.view(U64)
    negative = bits >> U64(63) != 0
    if format is TF32:
        mantissa_bits, step = 10, 13  # a 19-bit format in the upper part of the register
    else:
        mantissa_bits, step = format.mantissa_bits, 0
    field = ((bits >> U64(52)) & U64(0x7FF)).astype(numpy.int64)
    exponent = numpy.maximum(field, 1) - 1023
    significand = (bits & _F64_MANTISSA) | (numpy.minimum(field, 1).astype(U64) << U64(52))
    target = numpy.maximum(exponent, format.smallest_exponent)
    # the target's last place is 2^(target - mantissa_bits), the source's is 2^(exponent - 52).
    shift = numpy.minimum(target - mantissa_bits - exponent + 52, 62).astype(U64)
    quotient = significand >> shift
    remainder = significand & ((U64(1) << shift) - U64(1))
    half = (U64(1) << shift) >> U64(1)
    if rounding == "rn":
        up = (remainder > half) | ((remainder == half) & (quotient & U64(1) != 0) & (shift != 0))
    elif rounding == "rna":
        up = (remainder >= half) & (shift != 0)
    elif rounding == "rz":
        up = numpy.zeros(values.shape, dtype=bool)
    else:
        up = (remainder != 0) & (negative == (rounding == "rm"))
    # Exponent field and mantissa are one integer, so a carry out of the mantissa moves the exponent.
    lift = (target - format.smallest_exponent).astype(U64)
    code = ((lift << U64(mantissa_bits)) + quotient + up) << U64(step)
    infinite = numpy.isinf(values)
    largest = U64(format.largest)
    over = (code > largest) | infinite
    if satfinite:
        limit = numpy.full(values.shape, largest)
    else:
        toward_zero = (rounding == "rz") | (negative if rounding == "rp" else ~negative if rounding == "rm" else False)
        limit = numpy.where(toward_zero & ~infinite, largest, U64(format.infinity))
    code = numpy.where(over, limit, code)
    if format.signed:
        code |= numpy.where(negative, U64(format.sign_bit), U64(0))
        if relu:
            code = numpy.where(negative, U64(0), code)
    else:
        code = numpy.where(negative, U64(0), code)
    if nan is None:
        nan = format.nan if format.nan is not None else format.largest
    return numpy.where(numpy.isnan(values), U64(nan), code)


def encode_ue8m0(bits: numpy.ndarray, rounding: str, satfinite: bool) -> numpy.ndarray:
    """ue8m0 codes of f32 bit patterns: the sign is ignored, there is no zero (0 -> 2^-127)."""
    bits = numpy.ascontiguousarray(bits, dtype=U32)
    exponent = (bits >> U32(23)) & U32(0xFF)
    mantissa = bits & U32(0x7FFFFF)
    code = exponent.copy()
    if rounding == "rp":
        # A subnormal above 2^-127 (mantissa field 0x400000) rounds up to code 1 = 2^-126.
        code += (mantissa > U32(0)) & ((exponent > 0) | (mantissa > U32(0x400000)))
    elif rounding != "rz":
        raise ValueError(f"ue8m0 rounds with rz or rp, not {rounding!r}")
    nan = (exponent == 255) & (mantissa != 0)
    code = numpy.minimum(code, U32(254 if satfinite else 255))
    return numpy.where(nan, U32(255), code)


@functools.cache
def short_table(format: Format, relu: bool) -> numpy.ndarray:
    """RN satfinite codes of all f32 values by their upper 16 bits and a sticky bit for the lower 16.

    A format with at most 6 mantissa bits looks at no more than 1 + 6 + 1 upper significand bits and at
    whether anything below is set, and the upper 16 bits of an f32 hold 7 fraction bits.
    """
    index = numpy.arange(1 << 17, dtype=U32)
    bits = ((index >> U32(1)) << U32(16)) | (index & U32(1))
    with numpy.errstate(invalid="ignore"):
        values = bits.view(numpy.float32).astype(numpy.float64)
    return encode(format, values, "rn", satfinite=True, relu=relu).astype(U32)


def encode_short(format: Format, bits: numpy.ndarray, relu: bool = False) -> numpy.ndarray:
    """cvt.rn.satfinite of f32 bit patterns to an 8, 6 or 4-bit format, through a table."""
    bits = numpy.asarray(bits, dtype=U32)
    index = ((bits >> U32(16)) << U32(1)) | ((bits & U32(0xFFFF)) != 0)
    return short_table(format, relu)[index]


def f32_to_bf16(bits: numpy.ndarray) -> numpy.ndarray:
    """cvt.rn.bf16.f32 on bit patterns (uint32 -> uint32)."""
    bits = numpy.asarray(bits, dtype=U32)
    rounded = (bits + (U32(0x7FFF) + ((bits >> U32(16)) & U32(1)))) >> U32(16)
    nan = (bits & U32(0x7FFFFFFF)) > U32(0x7F800000)
    return numpy.where(nan, U32(0x7FFF), rounded) if nan.any() else rounded


def f32_to_f16(bits: numpy.ndarray) -> numpy.ndarray:
    """cvt.rn.f16.f32 on bit patterns (uint32 -> uint32)."""
    values = numpy.ascontiguousarray(bits, dtype=U32).view(numpy.float32)
    with numpy.errstate(all="ignore"):
        rounded = values.astype(numpy.float16).view(numpy.uint16).astype(U32)
    nan = numpy.isnan(values)
    return numpy.where(nan, U32(0x7FFF), rounded) if nan.any() else rounded


def flush_subnormals(bits: numpy.ndarray) -> numpy.ndarray:
    """f32 bit patterns with subnormals replaced by zeros of the same sign (.ftz)."""
    bits = numpy.asarray(bits, dtype=U32)
    return numpy.where(bits & U32(0x7F800000) == 0, bits & U32(0x80000000), bits)


def clamp_to_unit(format: Format, codes: numpy.ndarray) -> numpy.ndarray:
    """.sat on a floating-point result: [0, 1], NaN to +0."""
    values = decode(format, codes)
    one = encode(format, numpy.array([1.0]))[0]
    clamped = numpy.where(values >= 1.0, one, codes.astype(U64))
    return numpy.where(numpy.isnan(values) | (values <= 0.0), U64(0), clamped)


# ---------------------------------------------------------------------------------------------
# arithmetic with one rounding


def round_sum_to_odd(x: numpy.ndarray, y: numpy.ndarray) -> numpy.ndarray:
    """x + y in float64, rounded to odd: inexact results have their last bit set."""
    with numpy.errstate(invalid="ignore", over="ignore"):
        total = x + y
        back = total - x
        error = (x - (total - back)) + (y - back)
    bits = total.view(U64)
    fix = (error != 0) & (bits & U64(1) == 0) & numpy.isfinite(total) & numpy.isfinite(error)
    if not fix.any():
        return total
    # An even last bit: the exact value lies on the error's side, between `total` and its odd neighbour.
    outward = (error > 0) == (total > 0)
    return numpy.where(fix, numpy.where(outward, bits + U64(1), bits - U64(1)), bits).view(numpy.float64)


def _fma(format: Format, a, b, c, rounding: str, ftz: bool, sat: bool, relu: bool = False) -> numpy.ndarray:
    x, y, z = decode(format, a), decode(format, b), decode(format, c)
    with numpy.errstate(invalid="ignore", over="ignore"):
        product = x * y
    total = round_sum_to_odd(product, z)
    if rounding in ("rm", "rp"):
        # An exact zero sum of opposite signs is -0 when rounding down (float64 made it +0).
        opposite = (total == 0) & (numpy.signbit(product) != numpy.signbit(z))
        total = numpy.where(opposite, -0.0 if rounding == "rm" else 0.0, total)
    if rounding == "rn" and format is F32:
        with numpy.errstate(over="ignore", under="ignore", invalid="ignore"):
            result = total.astype(numpy.float32)
        codes = result.view(U32)
        nan = numpy.isnan(result)
        if nan.any():
            codes = numpy.where(nan, U32(0x7FFFFFFF), codes)
    else:
        codes = encode(format, total, rounding, relu=relu).astype(U32)
    if ftz and format is F32:
        codes = flush_subnormals(codes)
    return clamp_to_unit(format, codes).astype(U32) if sat else codes


def fma(a, b, c, rounding: str = "rn", *, ftz: bool = False, sat: bool = False) -> numpy.ndarray:
    """fma.{rn,rz,rm,rp}{.ftz}{.sat}.f32 on bit patterns: a * b + c with a single rounding."""
    if ftz:
        a, b, c = flush_subnormals(a), flush_subnormals(b), flush_subnormals(c)
    return _fma(F32, a, b, c, rounding, ftz, sat)


def add(a, b, rounding: str = "rn", *, ftz: bool = False, sat: bool = False) -> numpy.ndarray:
    """add.{rn,rz,rm,rp}{.ftz}{.sat}.f32 on bit patterns."""
    ones = numpy.full(numpy.shape(a), 0x3F800000, dtype=U32)
    return fma(a, ones, b, rounding, ftz=ftz, sat=sat)


def multiply(a, b, rounding: str = "rn", *, ftz: bool = False, sat: bool = False) -> numpy.ndarray:
    """mul.{rn,rz,rm,rp}{.ftz}{.sat}.f32 on bit patterns."""
    if ftz:
        a, b = flush_subnormals(a), flush_subnormals(b)
    with numpy.errstate(invalid="ignore", over="ignore"):
        product = decode(F32, a) * decode(F32, b)
    codes = encode(F32, product, rounding).astype(U32)
    if ftz:
        codes = flush_subnormals(codes)
    return clamp_to_unit(F32, codes).astype(U32) if sat else codes


def half_quickly(format: Format, name: str, a, b, c=None) -> numpy.ndarray | None:
    """add, mul or fma (RN) of f16 or bf16 codes, or None where two roundings could differ from one.

    A tie of the format is a float32, so rounding to float64 and float32 first keeps every value on its side of it. What
    comes out as a tie may have been a neighbour of it, and f16 numbers below the normal range have ties elsewhere.
    """
    table = decode_table(format)
    x = table[a]
    with numpy.errstate(all="ignore"):
        if name == "fma":
            total = x * table[b] + table[c]
        else:
            total = x * table[b] if name == "mul" else x + table[b]
        narrow = total.astype(numpy.float32)
    bits = narrow.view(U32)
    if format is BF16:
        risky = (bits & U32(0xFFFF)) == U32(0x8000)
    else:
        risky = ((bits & U32(0x1FFF)) == U32(0x1000)) | ((bits & U32(0x7FFFFFFF)) - U32(1) < U32(0x387FFFFF))
    if b"\1" in risky.tobytes():
        return None
    return f32_to_bf16(bits) if format is BF16 else f32_to_f16(bits)


def half_fma(format: Format, a, b, c, rounding: str = "rn", *, sat: bool = False, relu: bool = False) -> numpy.ndarray:
    """fma of one f16 or bf16 value per element (codes in, uint32 codes out), one rounding."""
    return _fma(format, a, b, c, rounding, False, sat, relu)


def half_add(format: Format, a, b, rounding: str = "rn", *, sat: bool = False) -> numpy.ndarray:
    """add of one f16 or bf16 value per element."""
    one = numpy.full(numpy.shape(a), 0x3C00 if format is F16 else 0x3F80, dtype=U32)
    return _fma(format, a, one, b, rounding, False, sat)


def half_multiply(format: Format, a, b, rounding: str = "rn", *, sat: bool = False) -> numpy.ndarray:
    """mul of one f16 or bf16 value per element."""
    with numpy.errstate(invalid="ignore"):
        product = decode(format, a) * decode(format, b)
    codes = encode(format, product, rounding).astype(U32)
    return clamp_to_unit(format, codes).astype(U32) if sat else codes


def _f32x2(operation, operands, **options) -> numpy.ndarray:
    """Apply an f32 operation to both halves of 64-bit registers."""
    registers = [numpy.ascontiguousarray(o, dtype=U64) for o in operands]
    shape = registers[0].shape
    split = [r.reshape(-1).view(U32) for r in registers]  # low word first: both halves at once
    return numpy.ascontiguousarray(operation(*split, **options)).view(U64).reshape(shape)


def fma_f32x2(a, b, c, rounding: str = "rn", *, ftz: bool = False) -> numpy.ndarray:
    """fma{.rn..}{.ftz}.f32x2: both f32 halves of 64-bit registers."""
    return _f32x2(fma, (a, b, c), rounding=rounding, ftz=ftz)


def add_f32x2(a, b, rounding: str = "rn", *, ftz: bool = False) -> numpy.ndarray:
    """add{.rn..}{.ftz}.f32x2."""
    return _f32x2(add, (a, b), rounding=rounding, ftz=ftz)


def multiply_f32x2(a, b, rounding: str = "rn", *, ftz: bool = False) -> numpy.ndarray:
    """mul{.rn..}{.ftz}.f32x2."""
    return _f32x2(multiply, (a, b), rounding=rounding, ftz=ftz)

"""What `cvt` computes: `conversion("cvt.rn.satfinite.e4m3x2.f32")` is a function from operand registers to the destination register.

It exists for every `cvt` between numbers that the PTX manual defines and this file knows; anything else is an `UnsupportedConversion`,
never a guess.  The functions take and return unsigned integer arrays: uint32 for types of 32 bits or less, uint64 for 64-bit types.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy

from . import stochastic_rounding
from .number_formats import (
    BF16,
    E2M1,
    E2M3,
    E3M2,
    E4M3,
    E5M2,
    F16,
    F32,
    F64,
    ROUNDINGS,
    TF32,
    UE8M0,
    Format,
    clamp_to_unit,
    decode,
    decode_table,
    decode_table_f32,
    encode,
    encode_short,
    encode_ue8m0,
    f32_to_bf16,
    f32_to_f16,
    flush_subnormals,
    short_table,
)  # fmt: skip

U32 = numpy.uint32
U64 = numpy.uint64


class UnsupportedConversion(Exception):
    """A cvt form that PTX does not define or that this emulator does not know."""


_INTEGERS = {
    "u8": (8, False), "u16": (16, False), "u32": (32, False), "u64": (64, False),
    "s8": (8, True), "s16": (16, True), "s32": (32, True), "s64": (64, True),
}  # fmt: skip
_SCALARS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
_SHORTS = {"e4m3": E4M3, "e5m2": E5M2, "e2m1": E2M1, "e2m3": E2M3, "e3m2": E3M2}
_SHORT_PAIRS = {f"{name}x2": format for name, format in _SHORTS.items()}
_INTEGER_ROUNDINGS = {"rni": numpy.rint, "rzi": numpy.trunc, "rmi": numpy.floor, "rpi": numpy.ceil}
_MODIFIERS = {"ftz", "sat", "satfinite", "relu", *ROUNDINGS, *_INTEGER_ROUNDINGS}


def _register(code: numpy.ndarray, bits: int) -> numpy.ndarray:
    return code.astype(U64 if bits == 64 else U32)


def float_to_integer(values: numpy.ndarray, target: str, rounding: str, nan_is_zero: bool) -> numpy.ndarray:
    """Clamped float64 -> integer; the result is a register, sign-extended for signed targets."""
    width, signed = _INTEGERS[target]
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    with numpy.errstate(invalid="ignore"):
        rounded = _INTEGER_ROUNDINGS[rounding](values)
        nan = numpy.isnan(rounded)
        # float(high) is 2^63 or 2^64 for 64-bit targets: clamp by comparison, convert what fits.
        over, under = rounded >= float(high), rounded <= float(low)
        fits = numpy.where(nan | over | under, 0.0, rounded)
        result = fits.astype(numpy.int64).view(U64) if signed or width < 64 else fits.astype(U64)
    result = numpy.where(over, U64(high), numpy.where(under, U64(low & 0xFFFFFFFFFFFFFFFF), result))
    result = numpy.where(nan, U64(0 if nan_is_zero else 1 << (width - 1)), result)
    return result if width == 64 else (result & U64(0xFFFFFFFF)).astype(U32)


def _integer_values(register: numpy.ndarray, source: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    """(magnitude as uint64, negative) of an integer register."""
    width, signed = _INTEGERS[source]
    raw = numpy.asarray(register).astype(U64)
    if width < 64:
        raw = raw & U64((1 << width) - 1)
    negative = (raw >> U64(width - 1)) != 0 if signed else numpy.zeros(raw.shape, dtype=bool)
    modulus = U64((1 << width) - 1)
    return numpy.where(negative, (~raw + U64(1)) & modulus, raw), negative


def _directed(magnitude: numpy.ndarray, negative: numpy.ndarray, rounding: str) -> numpy.ndarray:
    """float64 of a magnitude of up to 64 bits, whose sign says which way .rm and .rp go."""
    values = magnitude.astype(numpy.float64)
    whole = numpy.where(values < 2.0**64, values, 0.0).astype(U64)
    above, below = (values == 2.0**64) | (whole > magnitude), (values < 2.0**64) & (whole < magnitude)
    away = negative if rounding == "rm" else ~negative if rounding == "rp" else numpy.zeros_like(negative)
    values = numpy.where(above & ~away, numpy.nextafter(values, 0.0), values)
    return numpy.where(below & away, numpy.nextafter(values, numpy.inf), values)


def integer_to_float(register: numpy.ndarray, source: str, format: Format, rounding: str) -> numpy.ndarray:
    magnitude, negative = _integer_values(register, source)
    if format is F64:
        values = magnitude.astype(numpy.float64) if rounding == "rn" else _directed(magnitude, negative, rounding)
        return numpy.where(negative, -values, values).view(U64)
    # Keep 53 significant bits: what lies below bit 11 of a large number is folded into bit 11 (odd).
    large = magnitude >> U64(53) != 0
    folded = (magnitude & ~U64(0x7FF)) | (((magnitude & U64(0x7FF)) != 0).astype(U64) << U64(11))
    values = numpy.where(large, folded, magnitude).astype(numpy.float64)
    return encode(format, numpy.where(negative, -values, values), rounding)


def conversion(mnemonic: str) -> Callable[..., numpy.ndarray]:
    """The function of a `cvt` mnemonic with all its modifiers, e.g. "cvt.rn.satfinite.e4m3x2.f32".

    Operands are passed in PTX order.  Packed destinations take the first operand into the upper part.
    """
    parts = mnemonic.split(".")
    if parts[0] != "cvt" or len(parts) < 3:
        raise UnsupportedConversion(f"{mnemonic}: not a cvt with two types")
    modifiers, target, source = parts[1:-2], parts[-2], parts[-1]
    if "rs" in modifiers:
        return _stochastic(mnemonic, modifiers, target, source)
    unknown = [m for m in modifiers if m not in _MODIFIERS]
    if unknown:
        raise UnsupportedConversion(f"{mnemonic}: modifier .{unknown[0]} is not supported")
    if len(set(modifiers)) != len(modifiers):
        raise UnsupportedConversion(f"{mnemonic}: a modifier is given twice")
    roundings = [m for m in modifiers if m in ROUNDINGS]
    integer_roundings = [m for m in modifiers if m in _INTEGER_ROUNDINGS]
    if len(roundings) + len(integer_roundings) > 1:
        raise UnsupportedConversion(f"{mnemonic}: more than one rounding")
    rounding = roundings[0] if roundings else None
    options = _Options(
        mnemonic,
        rounding,
        integer_roundings[0] if integer_roundings else None,
        "ftz" in modifiers,
        "sat" in modifiers,
        "satfinite" in modifiers,
        "relu" in modifiers,
    )
    if target in _SHORT_PAIRS:
        return _to_short_pair(options, _SHORT_PAIRS[target], source)
    if source in _SHORT_PAIRS:
        return _from_short_pair(options, target, _SHORT_PAIRS[source])
    if target == "ue8m0x2":
        return _to_ue8m0_pair(options, source)
    if source == "ue8m0x2":
        return _from_ue8m0_pair(options, target)
    if target in ("f16x2", "bf16x2"):
        return _to_half_pair(options, F16 if target == "f16x2" else BF16, source)
    if target == "tf32":
        return _to_tf32(options, source)
    return _scalar(options, target, source)


@dataclass(frozen=True)
class _Options:
    mnemonic: str
    rounding: str | None
    integer_rounding: str | None
    ftz: bool
    sat: bool
    satfinite: bool
    relu: bool

    def demand(self, condition: bool, why: str) -> None:
        if not condition:
            raise UnsupportedConversion(f"{self.mnemonic}: {why}")

    def plain(self) -> None:
        self.demand(not self.ftz and not self.sat and self.integer_rounding is None, "modifier not allowed here")


def _halves(register: numpy.ndarray, format: Format) -> tuple[numpy.ndarray, numpy.ndarray]:
    """f32 bit patterns of the (upper, lower) 16-bit values of a packed register."""
    register = numpy.asarray(register, dtype=U32)
    if format is BF16:
        return register & U32(0xFFFF0000), register << U32(16)
    table = decode_table_f32(F16).view(U32)
    return table[register >> U32(16)], table[register & U32(0xFFFF)]


def _to_short_pair(options: _Options, format: Format, source: str):
    options.plain()
    options.demand(options.rounding == "rn" and options.satfinite, "needs .rn.satfinite")
    width = 4 if format is E2M1 else 8
    shift, relu = U32(width), options.relu
    table = short_table(format, relu)
    if source == "f32":

        def from_f32(a, b):
            a, b = numpy.asarray(a, dtype=U32), numpy.asarray(b, dtype=U32)
            upper = table[((a >> U32(16)) << U32(1)) | ((a & U32(0xFFFF)) != 0)]
            return (upper << shift) | table[((b >> U32(16)) << U32(1)) | ((b & U32(0xFFFF)) != 0)]

        return from_f32
    options.demand(source in ("f16x2", "bf16x2"), f"source {source} is not supported")
    half = F16 if source == "f16x2" else BF16

    def from_halves(a):
        upper, lower = _halves(a, half)
        return (encode_short(format, upper, relu) << shift) | encode_short(format, lower, relu)

    return from_halves


@functools.cache
def _short_to_half(format: Format, target: Format, satfinite: bool, relu: bool) -> numpy.ndarray:
    """Codes of f16 or bf16 of the codes of an 8-bit container; the upper bits of 4 and 6-bit codes are ignored."""
    values = decode(format, numpy.arange(256))
    # A NaN keeps no sign: hardware writes 0x7FFF.
    return encode(target, values, "rn", satfinite=satfinite, relu=relu).astype(U32)


def _from_short_pair(options: _Options, target: str, format: Format):
    options.plain()
    options.demand(target in ("f16x2", "bf16x2"), f"target {target} is not supported")
    options.demand(options.rounding == "rn" and not (options.satfinite and target == "f16x2"), "needs .rn, and .satfinite is for .bf16x2")
    table = _short_to_half(format, F16 if target == "f16x2" else BF16, options.satfinite, options.relu)
    width, mask = (U32(4), U32(0xF)) if format is E2M1 else (U32(8), U32(0xFF))

    def unpack(a):
        a = numpy.asarray(a, dtype=U32)
        return (table[(a >> width) & mask] << U32(16)) | table[a & mask]

    return unpack


def _to_ue8m0_pair(options: _Options, source: str):
    options.plain()
    options.demand(options.rounding in ("rz", "rp") and not options.relu, "needs .rz or .rp and no .relu")
    rounding, satfinite = options.rounding, options.satfinite
    if source == "f32":

        def from_f32(a, b):
            return (encode_ue8m0(a, rounding, satfinite) << U32(8)) | encode_ue8m0(b, rounding, satfinite)

        return from_f32
    options.demand(source == "bf16x2", f"source {source} is not supported")

    def from_bf16(a):
        upper, lower = _halves(a, BF16)
        return (encode_ue8m0(upper, rounding, satfinite) << U32(8)) | encode_ue8m0(lower, rounding, satfinite)

    return from_bf16


def _stochastic(mnemonic: str, modifiers: list[str], target: str, source: str):
    if source != "f32" or target not in stochastic_rounding.TARGETS:
        raise UnsupportedConversion(f"{mnemonic}: .rs converts .f32 to .f16x2, .bf16x2 or four smaller floats")
    if sorted(modifiers) != sorted({"rs"} | {"relu", "satfinite"} & set(modifiers)):
        raise UnsupportedConversion(f"{mnemonic}: modifier not allowed here")
    if target.endswith("x4") and "satfinite" not in modifiers:
        raise UnsupportedConversion(f"{mnemonic}: needs .satfinite")
    return stochastic_rounding.converter(target, "satfinite" in modifiers, "relu" in modifiers)


def _from_ue8m0_pair(options: _Options, target: str):
    options.plain()
    options.demand(target == "bf16x2", f"target {target} is not supported")
    options.demand(options.rounding == "rn" and not options.satfinite and not options.relu, "needs .rn alone")
    table = encode(BF16, decode_table(UE8M0), "rn").astype(U32)

    def unpack(a):
        a = numpy.asarray(a, dtype=U32)
        return (table[(a >> U32(8)) & U32(0xFF)] << U32(16)) | table[a & U32(0xFF)]

    return unpack


def _half_encoder(options: _Options, format: Format):
    """f32 bit patterns -> 16-bit codes, with the fast RN paths."""
    rounding, satfinite, relu = options.rounding, options.satfinite, options.relu
    if rounding == "rn" and not satfinite and not relu:
        return f32_to_bf16 if format is BF16 else f32_to_f16
    return lambda bits: encode(format, decode(F32, bits), rounding, satfinite=satfinite, relu=relu).astype(U32)


def _to_half_pair(options: _Options, format: Format, source: str):
    options.plain()
    options.demand(source == "f32", f"source {source} is not supported")
    options.demand(options.rounding in ("rn", "rz"), "needs .rn or .rz")
    one = _half_encoder(options, format)
    return lambda a, b: (one(a) << U32(16)) | one(b)


def _to_tf32(options: _Options, source: str):
    options.plain()
    options.demand(source == "f32", f"source {source} is not supported")
    options.demand(options.rounding in ("rn", "rna", "rz"), "needs .rn, .rna or .rz")
    options.demand(not (options.rounding == "rna" and options.relu), ".relu needs .rn or .rz")
    rounding, satfinite, relu = options.rounding, options.satfinite, options.relu
    if rounding != "rna":
        return lambda a: encode(TF32, decode(F32, a), rounding, satfinite=satfinite, relu=relu).astype(U32)

    def nearest_away(a):
        # Integer arithmetic on the bits: a NaN loses its lower 13 bits (and may so become an infinity), and
        # .satfinite steps one place back from everything at or above infinity, NaN included.  Seen on sm_90.
        a = numpy.asarray(a, dtype=U32)
        special = a & U32(0x7F800000) == U32(0x7F800000)
        kept = numpy.where(special, a, a + U32(0x1000)) & U32(0xFFFFE000)
        if satfinite:
            kept = kept - (kept & U32(0x7F800000) == U32(0x7F800000)) * U32(0x2000)
        return kept

    return nearest_away


def _scalar(options: _Options, target: str, source: str):
    options.demand(target in _SCALARS or target in _INTEGERS, f"target {target} is not supported")
    options.demand(source in _SCALARS or source in _INTEGERS, f"source {source} is not supported")
    if target in _INTEGERS and source in _INTEGERS:
        return _integer_to_integer(options, target, source)
    if target in _INTEGERS:
        return _scalar_to_integer(options, target, source)
    if source in _INTEGERS:
        options.demand(options.rounding is not None, "an integer-to-float conversion needs a rounding")
        options.demand(options.rounding != "rna" and options.integer_rounding is None, "wrong rounding")
        options.demand(not (options.satfinite or options.relu), "modifier not allowed here")
        options.demand(not options.ftz or target == "f32", ".ftz is for .f32")  # where no integer is subnormal
        format, rounding, sat = _SCALARS[target], options.rounding, options.sat

        def from_integer(a):
            codes = integer_to_float(a, source, format, rounding)
            return _register(clamp_to_unit(format, codes) if sat else codes, format.bits)

        return from_integer
    return _float_to_float(options, _SCALARS[target], _SCALARS[source])


def _integer_to_integer(options: _Options, target: str, source: str):
    options.demand(options.rounding is None and options.integer_rounding is None, "rounding between integers")
    options.demand(not (options.ftz or options.satfinite or options.relu), "modifier not allowed here")
    width, signed = _INTEGERS[target]
    sat = options.sat

    def convert(a):
        magnitude, negative = _integer_values(a, source)
        value = numpy.where(negative, ~magnitude + U64(1), magnitude)
        if sat:
            high = U64((1 << (width - 1)) - 1 if signed else (1 << width) - 1)
            low_magnitude = U64(1 << (width - 1) if signed else 0)
            value = numpy.where(~negative & (magnitude > high), high, value)
            value = numpy.where(negative & (magnitude > low_magnitude), ~low_magnitude + U64(1), value)
        if width == 64:
            return value
        if signed:  # sign-extended into the 32-bit register
            low = (value & U64((1 << width) - 1)).astype(numpy.int64)
            low = low - ((low >> (width - 1)) << width)
            return low.astype(U64).astype(U32) if width < 32 else (value & U64(0xFFFFFFFF)).astype(U32)
        return (value & U64((1 << width) - 1)).astype(U32)

    return convert


def _scalar_to_integer(options: _Options, target: str, source: str):
    options.demand(options.integer_rounding is not None, "a float-to-integer conversion needs .rni/.rzi/.rmi/.rpi")
    options.demand(not (options.satfinite or options.relu), "modifier not allowed here")
    options.demand(not options.ftz or source == "f32", ".ftz is for .f32")
    format, rounding, ftz = _SCALARS[source], options.integer_rounding, options.ftz
    nan_is_zero = source != "f64" and target not in ("s64", "u64")

    def convert(a):
        if ftz:
            a = flush_subnormals(a)
        return float_to_integer(decode(format, a), target, rounding, nan_is_zero)

    return convert


def _nan_with_payload(target: Format, source: Format, a: numpy.ndarray) -> numpy.ndarray:
    """Conversions from or to f64 keep a NaN's sign and the upper bits of its payload, and make it quiet (seen on sm_90)."""
    a = numpy.asarray(a).astype(U64) & U64((1 << source.bits) - 1)
    sign = (a >> U64(source.bits - 1)) << U64(target.bits - 1)
    payload = a & U64((1 << source.mantissa_bits) - 1)
    shift = target.mantissa_bits - source.mantissa_bits
    payload = payload << U64(shift) if shift >= 0 else payload >> U64(-shift)
    return sign | U64(target.infinity) | U64(1 << (target.mantissa_bits - 1)) | payload


def _float_to_float(options: _Options, target: Format, source: Format):
    if options.integer_rounding:
        options.demand(target is source and not (options.satfinite or options.relu), "an integer rounding keeps the type")
        rounder = _INTEGER_ROUNDINGS[options.integer_rounding]
    else:
        rounder = None
        widening = target.mantissa_bits >= source.mantissa_bits and target.exponent_bits >= source.exponent_bits
        nearest = {target, source} == {F16, BF16}  # neither contains the other, and ptxas takes .rn
        options.demand(options.rounding is not None or widening or nearest, "a rounding modifier is required")
        options.demand(options.rounding is None or not widening or target is not source, "rounding between equal types")
    options.demand(options.rounding != "rna", ".rna is for tf32")
    options.demand(not options.ftz or F32 in (target, source), ".ftz is for .f32")
    rounding, ftz, sat = options.rounding or "rn", options.ftz, options.sat
    if target in (F16, BF16) and source is F32 and not ftz and not sat and rounder is None:
        options.demand(rounding in ("rn", "rz") or not (options.relu or options.satfinite), "rounding not allowed here")
        return _half_encoder(options, target)
    options.demand(not (options.relu or options.satfinite), "modifier not allowed here")
    if source is BF16 and target is F32 and not ftz and not sat:
        return lambda a: (numpy.asarray(a, dtype=U32) & U32(0xFFFF)) << U32(16)
    if source is F16 and target is F32 and not ftz and not sat:
        table = encode(F32, decode_table(F16)).astype(U32)
        return lambda a: table[numpy.asarray(a, dtype=U32) & U32(0xFFFF)]

    def convert(a):
        if ftz and source is F32:
            a = flush_subnormals(a)
        values = decode(source, a)
        if rounder is not None:
            values = rounder(values)
        codes = encode(target, values, rounding)
        if rounder is None and F64 in (source, target) and source.bits + target.bits > 64:
            nan = numpy.isnan(values)
            if nan.any():
                codes = numpy.where(nan, _nan_with_payload(target, source, a), codes)
        if ftz and target is F32:
            codes = flush_subnormals(codes.astype(U32)).astype(U64)
        if sat:
            codes = clamp_to_unit(target, codes)
        return _register(codes, target.bits)

    return convert

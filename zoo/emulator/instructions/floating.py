"""Floating-point functions with one operand, conversions, and what has no integer counterpart."""

import numpy as np

from .. import byte_passes, conversions, number_formats
from ..directed_rounding import directed
from ..lanes import assign
from ..parser import Immediate, Register
from . import instruction
from .arithmetic import ROUNDINGS, canonical, flush_half, flushed_and_clamped, on_halves
from .elementwise import compute, table


def _approximate(function):
    """Hardware is within 1-2 ulp of the real value; here it is the float64 value rounded once."""
    return lambda a: canonical(function(a.astype(np.float64)).astype(np.float32))


def _half_function(ins, function, type, ftz):
    """The function on f16 or bf16 codes, one or two to a register."""
    packed = type.endswith("x2")
    if packed:
        byte_passes.of_parts(ins, 2)
    format = number_formats.F16 if type.startswith("f16") else number_formats.BF16
    if ftz and format is number_formats.F16:
        ins.unsupported(".ftz on this type")

    def one(codes):
        codes = flush_half(format, codes.astype(np.uint32)) if ftz else codes.astype(np.uint32)
        found = number_formats.encode(format, function(number_formats.decode(format, codes)), "rn").astype(np.uint32)
        return flush_half(format, found) if ftz else found

    return table(ins, on_halves(one, packed), "b32" if packed else "b16", 1)


def _one_operand(ins, function, exact=None, types=("f32",)):
    """`exact(rounding)` is the function of the forms with a rounding, in the operand's own type."""
    type = ins.type()
    form = ins.choice("approx", *(ROUNDINGS if exact is not None else ()))
    ftz = ins.flag("ftz")
    if type == "f64" and form != "approx":
        return table(ins, exact(form), "f64", 1)
    if type in ("f16", "bf16", "f16x2", "bf16x2") and type in types:
        return _half_function(ins, function, type, ftz)
    if type == "f64" and type in types:
        return table(ins, _upper_half(function, ftz), "f64", 1)
    if type != "f32":
        ins.unsupported(f"type {type}")
    plain = _approximate(function) if form == "approx" else lambda a: canonical(exact(form)(a))
    return table(ins, flushed_and_clamped(plain, ftz, False), "f32", 1)


def _upper_half(function, ftz):
    """.approx of f64 reads and writes the upper 32 bits alone, which hold 20 bits of the fraction."""

    def flushed(a):
        return np.where(np.abs(a) < 2.0**-1022, np.copysign(0.0, a), a) if ftz else a

    def run(a):
        upper = a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)
        found = flushed(function(flushed(upper.view(np.float64)))).view(np.uint64)
        return ((found + np.uint64(0x80000000)) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)

    return run


def _rounded(name, nearest):
    return lambda rounding: nearest if rounding == "rn" else directed(name, nearest, rounding)


@instruction("rcp")
def reciprocal(ins):
    """d = 1 / a"""
    quotient = _rounded("div", np.divide)
    return _one_operand(ins, lambda a: 1.0 / a, lambda rounding: lambda a: quotient(rounding)(np.ones_like(a), a), types=("f32", "f64"))


@instruction("sqrt")
def square_root(ins):
    """d = sqrt(a)"""
    return _one_operand(ins, np.sqrt, _rounded("sqrt", np.sqrt))


@instruction("rsqrt")
def reciprocal_square_root(ins):
    """d = 1 / sqrt(a)"""
    return _one_operand(ins, lambda a: 1.0 / np.sqrt(a), types=("f32", "f64"))


@instruction("ex2")
def exponential(ins):
    """d = 2 ** a"""
    return _one_operand(ins, np.exp2, types=("f16", "bf16", "f16x2", "bf16x2"))


@instruction("lg2")
def logarithm(ins):
    """d = log2(a)"""
    return _one_operand(ins, np.log2)


@instruction("sin")
def sine(ins):
    """d = sin(a)"""
    return _one_operand(ins, np.sin)


@instruction("cos")
def cosine(ins):
    """d = cos(a)"""
    return _one_operand(ins, np.cos)


@instruction("tanh")
def hyperbolic_tangent(ins):
    """d = tanh(a)"""
    return _one_operand(ins, np.tanh, types=("f16", "bf16", "f16x2", "bf16x2"))


@instruction("copysign")
def copy_sign(ins):
    """d = the magnitude of b with the sign of a"""
    type = ins.type()
    return table(ins, lambda a, b: np.copysign(b, a), type, 2)


@instruction("testp")
def test_property(ins):
    """p = a has the property"""
    type = ins.type()
    name = ins.choice("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    if type not in ("f32", "f64"):
        ins.unsupported(f"type .{type}")
    tiny = {"f32": np.float32(2.0**-126), "f64": np.float64(2.0**-1022)}[type]
    function = {
        "finite": np.isfinite, "infinite": np.isinf, "number": lambda a: ~np.isnan(a), "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny), "subnormal": lambda a: (a != 0) & (np.abs(a) < tiny),
    }[name]  # fmt: skip
    return compute(ins, function, ins.write(0, "pred"), [ins.read(1, type)])


_U32 = np.uint32


def _bf16_codes(bits):
    """f32 bits to bf16, round to nearest even; any NaN becomes 0x7fff."""
    codes = (bits + (_U32(0x7FFF) + ((bits >> _U32(16)) & _U32(1)))) >> _U32(16)
    nan = (bits & _U32(0x7FFFFFFF)) > _U32(0x7F800000)
    return np.where(nan, _U32(0x7FFF), codes) if b"\1" in nan.tobytes() else codes


def _f16_codes(bits):
    values = bits.view(np.float32)
    codes = values.astype(np.float16).view(np.uint16)
    nan = values != values
    return np.where(nan, np.uint16(0x7FFF), codes) if b"\1" in nan.tobytes() else codes


def _to_integer(rounding, dtype):
    low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)

    def function(bits):
        values = rounding(bits.view(np.float32).astype(np.float64))
        values = np.minimum(np.maximum(values, low), high)
        return np.where(values == values, values, 0.0).astype(np.int64).astype(_U32)

    return function


def _clamped(bits):
    values = np.fmax(bits.view(np.float32), np.float32(0))  # NaN becomes 0
    np.minimum(values, np.float32(1), out=values)
    values += np.float32(0)  # and -0 becomes +0
    return values.view(_U32)


def _short_pair(format, width):
    """Both operands of cvt.rn.satfinite.<short>x2.f32 through one table, see number_formats.short_table."""
    table, shift = number_formats.short_table(format, False).astype(np.uint16), np.uint16(width)

    def function(a, b):
        both = np.concatenate((a, b))
        index = both >> _U32(16)
        index <<= _U32(1)
        index |= (both & _U32(0xFFFF)) != 0
        codes = table.take(index)
        return (codes[: a.size] << shift) | codes[a.size :]

    return function


# The conversions that kernels spend their time in: mnemonic -> (function of bits, destination bits, source bits).
# Each gives what conversions.conversion gives, which the tests compare.
FAST = {
    "cvt.rn.f32.s32": (lambda a: a.view(np.int32).astype(np.float32).view(_U32), 32, 32),
    "cvt.rn.f32.u32": (lambda a: a.astype(np.float32).view(_U32), 32, 32),
    "cvt.rn.bf16x2.f32": (lambda a, b: (_bf16_codes(a) << _U32(16)) | _bf16_codes(b), 32, 32),
    "cvt.rn.f16x2.f32": (lambda a, b: (_f16_codes(a).astype(_U32) << _U32(16)) | _f16_codes(b), 32, 32),
    "cvt.rn.bf16.f32": (lambda a: _bf16_codes(a).astype(np.uint16), 16, 32),
    "cvt.rn.f16.f32": (_f16_codes, 16, 32),
}
FAST["cvt.sat.f32.f32"] = (_clamped, 32, 32)
FAST["cvt.ftz.sat.f32.f32"] = (lambda a: _clamped(number_formats.flush_subnormals(a)), 32, 32)
for _format in (number_formats.E4M3, number_formats.E5M2, number_formats.E2M3, number_formats.E3M2):
    FAST[f"cvt.rn.satfinite.{_format.name}x2.f32"] = (_short_pair(_format, 8), 16, 32)
FAST["cvt.rn.satfinite.e2m1x2.f32"] = (_short_pair(number_formats.E2M1, 4), 16, 32)
for _name, _rounding in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
    FAST[f"cvt.{_name}.s32.f32"] = (_to_integer(_rounding, np.int32), 32, 32)
    FAST[f"cvt.{_name}.u32.f32"] = (_to_integer(_rounding, np.uint32), 32, 32)

_SIZES = {"u8": 1, "s8": 1, "u16": 2, "s16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8}


@instruction("cvt")
def convert(ins):
    """d = a in another type; the rules are conversions.conversion's"""
    if ins.flag("pack"):
        return _pack(ins)
    types = ins.types()
    modifiers = [*ins.modifiers, *types]  # ptxas takes the types between other modifiers, too
    ins.modifiers.clear()
    target, source = modifiers[-2:]
    if target in _SIZES and source in _SIZES and len(modifiers) == 2:
        return _integer_to_integer(ins, target, source)
    byte_passes.of_pairs(ins, target, source)
    mnemonic = ".".join(["cvt", *modifiers])
    if (
        mnemonic in FAST
        and ins.register_bits(0) == FAST[mnemonic][1]
        and all(ins.register_bits(operand) == FAST[mnemonic][2] for operand in ins.operands[1:])
    ):
        function, width, given = FAST[mnemonic]
        return compute(ins, function, ins.write(0, f"b{width}"), [ins.read(operand, f"b{given}") for operand in ins.operands[1:]])
    try:
        function = conversions.conversion(mnemonic)
    except conversions.UnsupportedConversion as reason:
        ins.unsupported(str(reason))
    operands = ins.operands[1:]
    if target.endswith("x4"):  # four numbers in a vector, and random bits
        if len(operands) != 2 or len(ins.items(1)) != 4:
            ins.unsupported("it needs {a, b, e, f} and random bits")
        operands = [*ins.items(1), operands[1]]
    slots = [ins.read(operand, _raw(ins, operand), wide=True) for operand in operands]
    width = ins.register_bits(0)
    if width is None:
        ins.unsupported("the destination must be a register")
    d = ins.write(0, f"b{width}")
    wide = np.uint64 if source.endswith("64") else np.uint32
    dtype = np.dtype(f"u{width // 8}")

    def run(warp, lanes):
        result = function(*[warp.values[slot].astype(wide) for slot in slots])
        assign(warp.values[d], result.astype(dtype), lanes)

    return run


def _raw(ins, operand):
    """The bits of a register, or an immediate as its own width."""
    if isinstance(operand, Immediate):
        return {"f64": "b64"}.get(operand.form, "b32")
    return f"b{ins.register_bits(operand) or 32}"


def _integer_to_integer(ins, target, source):
    """Truncate or extend; a destination register wider than the type is filled by extension of the type."""
    operand = ins.operands[1]
    a = ins.read(1, _raw(ins, operand)) if isinstance(operand, Register) else ins.read(1, f"u{8 * max(_SIZES[source], 2)}")
    d = ins.write(0, f"b{ins.register_bits(0)}")
    source_dtype = np.dtype(("i" if source[0] == "s" else "u") + str(_SIZES[source]))
    target_dtype = np.dtype(("i" if target[0] == "s" else "u") + str(_SIZES[target]))
    register_dtype = np.dtype(f"u{ins.register_bits(0) // 8}")

    def function(value):
        return value.astype(source_dtype).astype(target_dtype).astype(register_dtype)

    byte_passes.of_integer_conversion(ins, _SIZES[source], source[0] == "s", _SIZES[target], target[0] == "s")
    return compute(ins, function, d, [a])


def _pack(ins):
    """cvt.pack.sat: two integers clamped into the low end of a register, whose rest comes from c"""
    if not ins.flag("sat"):
        ins.unsupported("only cvt.pack.sat exists")
    target, *rest = ins.modifiers
    ins.modifiers.clear()
    if rest not in (["s32"], ["s32", "b32"]):
        ins.unsupported("cvt.pack takes .s32 and perhaps .b32")
    bits = {"u16": 16, "s16": 16, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "u2": 2, "s2": 2}[target]
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if target[0] == "s" else (0, (1 << bits) - 1)
    a, b, d = ins.read(1, "s32"), ins.read(2, "s32"), ins.write(0, "b32")
    c = ins.read(3, "b32") if ins.has_operand(3) else None
    mask = np.int64((1 << bits) - 1)

    def function(x, y, *rest):
        upper, lower = (np.clip(v.astype(np.int64), low, high) & mask for v in (x, y))
        packed = (upper << bits) | lower
        if rest:
            packed |= rest[0].astype(np.int64) << (2 * bits)
        return (packed & 0xFFFFFFFF).astype(np.uint32)

    return compute(ins, function, d, [a, b] + ([c] if c is not None else []))

"""add sub mul mad fma div rem min max abs neg and friends, for integers (wrapping) and floating point (one rounding)."""

from fractions import Fraction

import numpy as np

from .. import byte_passes, number_formats
from ..directed_rounding import directed
from . import assign, instruction, mask_of
from .elementwise import compute, table

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
PACKED_INTEGERS = ("u16x2", "s16x2")
HALVES = {"f16": number_formats.F16, "bf16": number_formats.BF16}
PACKED_HALVES = {"f16x2": number_formats.F16, "bf16x2": number_formats.BF16}
ROUNDINGS = ("rn", "rz", "rm", "rp")
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_NUMPY = {"u16": np.uint16, "s16": np.int16, "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64}

_NAN = np.uint32(0x7FFFFFFF)
_EXPONENT, _SIGN = np.uint32(0x7F800000), np.uint32(0x80000000)


# ---- floating point, f32 fast paths ---------------------------------------------------------------------------------
def canonical(result):
    """f32 results with every NaN replaced by the one NaN hardware makes."""
    bad = result != result
    if b"\1" in bad.tobytes():
        result.view(np.uint32)[bad] = _NAN
    return result


def flush(values):
    """f32 values with subnormals replaced by zero of the same sign."""
    bits = values.view(np.uint32)
    return np.where(bits & _EXPONENT == 0, bits & _SIGN, bits).view(np.float32)


def fma_f32(a, b, c):
    """a * b + c rounded once. The product is exact in float64; the sum is exact but for its last bit, which only matters
    when a rounded float64 sum sits on a float32 rounding boundary (or below the normal range): those go the exact way."""
    product = a.astype(np.float64)
    product *= b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    result = total.astype(np.float32)
    risky = (total.view(np.uint64) & _BELOW_F32) == _HALF_STEP
    if b"\1" in risky.tobytes():
        kept = total - product
        lost = (product - (total - kept)) + (addend - kept)  # what the float64 sum rounded off
        if b"\1" in ((lost != 0) & risky).tobytes():
            return _fma_exact(a, b, c)
    tiny = np.abs(total) <= _SMALLEST_NORMAL  # there the steps of float32 are as wide as anywhere below
    if b"\1" in tiny.tobytes() and total[tiny].any():
        return _fma_exact(a, b, c)
    return canonical(result)


_BELOW_F32 = np.uint64(0x1FFFFFFF)  # the 29 bits a float64 has more than a float32
_HALF_STEP = np.uint64(0x10000000)
_SMALLEST_NORMAL = 2.0**-126


def _fma_exact(a, b, c):
    return number_formats.fma(a.view(np.uint32), b.view(np.uint32), c.view(np.uint32)).view(np.float32)


_NEAREST_F32 = {
    "add": lambda a, b: canonical(a + b), "sub": lambda a, b: canonical(a - b), "mul": lambda a, b: canonical(a * b), "fma": fma_f32,
}  # fmt: skip


def maximum_f32(a, b, propagate, smaller=False):
    choose = (np.minimum if smaller else np.maximum) if propagate else (np.fmin if smaller else np.fmax)
    result = choose(a, b)
    equal = a == b
    if b"\1" in equal.tobytes():  # +0 and -0 compare equal: the maximum is +0, the minimum -0
        both = (a.view(np.uint32) | b.view(np.uint32)) if smaller else (a.view(np.uint32) & b.view(np.uint32))
        result = np.where(equal, both.view(np.float32), result)
    return canonical(result)


def _f32(ins, name, count):
    """A float32 operation with its modifiers: rounding, .ftz, .sat."""
    rounding = ins.choice(*ROUNDINGS, default="rn")
    ftz, sat = ins.flag("ftz"), ins.flag("sat")
    if rounding != "rn":
        exact = {"add": number_formats.add, "sub": number_formats.add, "mul": number_formats.multiply, "fma": number_formats.fma}[name]

        def function(*arguments):
            codes = [argument.view(np.uint32) for argument in arguments]
            if name == "sub":
                codes[1] = codes[1] ^ _SIGN
            return exact(*codes, rounding, ftz=ftz, sat=sat).view(np.float32)

        return function
    return flushed_and_clamped(_NEAREST_F32[name], ftz, sat)


def flushed_and_clamped(plain, ftz, sat):
    if not ftz and not sat:
        return plain

    def function(*arguments):
        if ftz:
            arguments = [flush(argument) for argument in arguments]
        result = plain(*arguments)
        if sat:  # clamp to [0, 1], NaN becomes 0
            result = np.where(result > 0, np.minimum(result, np.float32(1)), np.float32(0))
        return flush(result) if ftz else result

    return function


def _f64(ins, name):
    rounding = ins.choice(*ROUNDINGS, default="rn")
    nearest = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "fma": fma_f64}[name]
    if rounding == "rn":
        return nearest
    if name == "sub":
        plus = directed("add", np.add, rounding)
        return lambda a, b: plus(a, -b)
    return directed(name, nearest, rounding)


_TOO_LARGE = 2**1024 - 2**970  # what rounds to infinity


_LEAST, _MOST = 2.0**-450, 2.0**450  # between these no part of a product, nor of a sum with it, leaves the range of exact steps
_SPLIT = 2.0**27 + 1


def fma_f64(a, b, c):
    """a * b + c rounded once. The product has two parts, and its sum with c three: the lesser two are added first, rounded to odd, which
    leaves the last rounding right (Boldo and Melquiond, Emulation of FMA). Rare magnitudes go by rational arithmetic, lane by lane."""
    product = a * b
    result = product + c
    high, low = _halves(a)
    other_high, other_low = _halves(b)
    error = ((high * other_high - product) + high * other_low + low * other_high) + low * other_low
    sum_, rest = _exact_sum(c, error)
    sum_, more = _exact_sum(product, sum_)
    quick = sum_ + number_formats.round_sum_to_odd(rest, more)
    sizes = np.abs([a, b])
    size = np.abs(c)
    safe = ((sizes > _LEAST) & (sizes < _MOST)).all(axis=0) & ((c == 0) | (size > _LEAST**2)) & (size < _MOST**2)
    result[safe] = quick[safe]
    rare = ~safe & (sizes > 0).all(axis=0) & np.isfinite([a, b, c]).all(axis=0)
    for lane in np.nonzero(rare)[0]:
        total = Fraction(float(a[lane])) * Fraction(float(b[lane])) + Fraction(float(c[lane]))
        if abs(total) >= _TOO_LARGE:
            result[lane] = np.inf if total > 0 else -np.inf
        elif total:
            result[lane] = total.numerator / total.denominator  # int / int is correctly rounded
    return result


def _halves(x):
    """Two numbers of 26 bits whose sum is x."""
    scaled = x * _SPLIT
    high = scaled - (scaled - x)
    return high, x - high


def _exact_sum(x, y):
    """(x + y rounded, what rounding took)"""
    total = x + y
    back = total - x
    return total, (x - (total - back)) + (y - back)


def _half(ins, name, type):
    """f16, bf16 and their pairs."""
    packed = type in PACKED_HALVES
    if packed:
        byte_passes.of_parts(ins, 2)
    format = PACKED_HALVES[type] if packed else HALVES[type]
    ins.choice("rn", default="rn")
    ftz, sat, relu = ins.flag("ftz"), ins.flag("sat"), name == "fma" and ins.flag("relu")
    clears = name == "fma" and ins.flag("oob")
    if clears and ftz:
        ins.unsupported(".oob and .ftz exclude each other")
    sign = np.uint32(0x8000)

    def exact(*codes):
        if name == "fma":
            return number_formats.half_fma(format, *codes, sat=sat, relu=relu)
        if name == "mul":
            return number_formats.half_multiply(format, *codes, sat=sat)
        return number_formats.half_add(format, *codes, sat=sat)

    def one(*codes):
        codes = [code.astype(np.uint32) for code in codes]
        if name == "sub":
            codes[1] ^= sign
        if ftz:
            codes = [flush_half(format, code) for code in codes]
        result = None if sat or relu else number_formats.half_quickly(format, name, *codes)
        if result is None:
            result = exact(*codes)
        if clears:  # a factor out of bounds makes zero of the whole sum
            result = np.where((codes[0] == number_formats.OUT_OF_BOUNDS_NAN) | (codes[1] == number_formats.OUT_OF_BOUNDS_NAN), 0, result)
        return flush_half(format, result) if ftz else result

    return on_halves(one, packed)


def on_halves(one, packed):
    if not packed:
        return lambda *registers: one(*[register.view(np.uint16) for register in registers]).astype(np.uint16)

    return lambda *registers: one(*[register.view(np.uint16) for register in registers]).astype(np.uint16).view(np.uint32)


def flush_half(format, codes):
    exponent, sign = codes.dtype.type(0x7C00 if format is number_formats.F16 else 0x7F80), codes.dtype.type(0x8000)
    return np.where(codes & exponent == 0, codes & sign, codes)


def _in_order(codes):
    """16-bit codes of sign and magnitude to integers in the same order, -0 before +0; the function is its own inverse."""
    signed = codes.view(np.int16)
    return signed ^ ((signed >> np.int16(15)) & np.int16(0x7FFF))


def _slot_type(type):
    """Half-precision codes are handled as bits."""
    return {"f16": "b16", "bf16": "b16"}.get(type, type)


def _float(ins, name, type, count):
    if type == "f32":
        return table(ins, _f32(ins, name, count), "f32", count)
    if type == "f64":
        return table(ins, _f64(ins, name), "f64", count)
    if type == "f32x2":
        byte_passes.of_parts(ins, 4)
        rounding, ftz = ins.choice(*ROUNDINGS, default="rn"), ins.flag("ftz")
        if rounding == "rn":
            plain = flushed_and_clamped(_NEAREST_F32[name], ftz, False)
            return table(ins, lambda *pairs: plain(*[pair.view(np.float32) for pair in pairs]).view(np.uint64), "b64", count)
        if name == "sub":
            negate = np.uint64(0x8000000080000000)
            return table(ins, lambda a, b: number_formats.add_f32x2(a, b ^ negate, rounding, ftz=ftz), "b64", 2)
        function = {"add": number_formats.add_f32x2, "mul": number_formats.multiply_f32x2, "fma": number_formats.fma_f32x2}[name]
        return table(ins, lambda *arguments: function(*arguments, rounding, ftz=ftz), "b64", count)
    return table(ins, _half(ins, name, type), _slot_type(type), count)


def _mixed(ins, name, count):
    """f32 operations whose operands but the last are f16 or bf16; None of others."""
    kinds = [modifier for modifier in ins.modifiers if modifier in ("f32", "f16", "bf16")]
    if kinds not in (["f32", "f16"], ["f32", "bf16"]):
        return None
    ins.types()
    ins.expect_operands(1 + count)
    format = HALVES[kinds[1]]
    function = _f32(ins, name, count)
    sources = [ins.read(1 + i, "b16") for i in range(count - 1)] + [ins.read(count, "f32")]

    def widened(*arguments):
        halves = [number_formats.decode_table_f32(format)[half.view(np.uint16)] for half in arguments[:-1]]
        return function(*halves, arguments[-1])

    return compute(ins, widened, ins.write(0, "f32"), sources)


# ---- integers --------------------------------------------------------------------------------------------------------
def _saturate(function, type):
    limits = np.iinfo(_NUMPY[type])
    return lambda *arguments: np.clip(function(*[a.astype(np.int64) for a in arguments]), limits.min, limits.max)


def _packed16(function, signed):
    """A function of 16-bit arrays applied to both halves of 32-bit registers."""
    dtype = np.int16 if signed else np.uint16

    def packed(*registers):
        return np.ascontiguousarray(function(*[register.view(dtype) for register in registers])).view(np.uint32)

    return packed


def high_product(a, b):
    """Upper half of the product, same type."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    product = a.astype(object) * b.astype(object) >> 64
    return np.array([int(value) & 0xFFFFFFFFFFFFFFFF for value in product], np.uint64).view(a.dtype)


def wide_product(a, b):
    wide = {2: "4", 4: "8"}[a.dtype.itemsize]
    dtype = np.dtype(a.dtype.kind + wide)
    return np.multiply(a, b, dtype=dtype)


@instruction("add", "sub")
def add(ins):
    """d = a + b, d = a - b"""
    name = ins.mnemonic
    if mixed := _mixed(ins, name, 2):
        return mixed
    type = ins.type()
    if type in INTEGERS:
        function = np.add if name == "add" else np.subtract
        if ins.flag("cc"):
            return _carry(ins, name, type, False)
        saturate = ins.flag("sat")
        ins.carries = not saturate
        return table(ins, _saturate(function, type) if saturate else function, type, 2)
    if type in PACKED_INTEGERS:
        byte_passes.of_parts(ins, 2)
        return table(ins, _packed16(np.add if name == "add" else np.subtract, type == "s16x2"), "b32", 2)
    return _float(ins, name, type, 2)


def _carry(ins, name, type, use):
    """Extended-precision add and subtract through the condition code register (one carry bit per lane)."""
    ins.expect_operands(3)
    write = use == "set" or not use
    bits = 64 if type.endswith("64") else 32
    unsigned = f"u{bits}"
    d, a, b = ins.write(0, unsigned), ins.read(1, unsigned), ins.read(2, unsigned)

    def run(warp, lanes):
        x, y = warp.values[a], warp.values[b]
        carry = warp.state.get("carry")
        if carry is None:
            carry = warp.state["carry"] = np.zeros(32, bool)
        before = carry.astype(x.dtype) if use else x.dtype.type(0)
        if name == "add":
            first = x + y
            total = first + before
            out = (first < x) | (total < first)
        else:
            first = x - y
            total = first - before
            out = (x < y) | (first < before)
        if write:
            np.copyto(carry, out, where=mask_of(lanes))
        assign(warp.values[d], total, lanes)

    return run


@instruction("addc", "subc")
def addc(ins):
    """d = a + b + carry, d = a - b - borrow"""
    return _carry(ins, ins.mnemonic[:3], ins.type(), "set" if ins.flag("cc") else "keep")


@instruction("mul")
def mul(ins):
    """d = a * b: .lo, .hi or .wide for integers"""
    type = ins.type()
    if type in INTEGERS:
        part = ins.choice("lo", "hi", "wide")
        if part == "wide":
            return table(ins, wide_product, type, 2, destination_type=WIDER[type])
        ins.carries = part == "lo"
        return table(ins, np.multiply if part == "lo" else high_product, type, 2)
    return _float(ins, "mul", type, 2)


@instruction("mad")
def mad(ins):
    """d = a * b + c"""
    type = ins.type()
    if type not in INTEGERS:
        return _float(ins, "fma", type, 3)
    part = ins.choice("lo", "hi", "wide")
    if ins.flag("cc"):
        return _mad_carry(ins, type, part, False, True)
    saturate = ins.flag("sat")
    if saturate and (part, type) != ("hi", "s32"):
        ins.unsupported(".sat is for .hi.s32")
    ins.expect_operands(4)
    ins.carries = part == "lo"
    a, b = ins.read(1, type), ins.read(2, type)
    result = WIDER[type] if part == "wide" else type
    c, d = ins.read(3, result), ins.write(0, result)
    product = {"lo": np.multiply, "hi": high_product, "wide": wide_product}[part]
    return compute(ins, lambda x, y, z: (_saturated_sum if saturate else np.add)(product(x, y), z), d, [a, b, c])


def _saturated_sum(a, b):
    limits = np.iinfo(np.int32)
    return np.clip(a.astype(np.int64) + b, limits.min, limits.max).astype(np.int32)


def _mad_carry(ins, type, part, use, write):
    ins.expect_operands(4)
    d, (a, b, c) = ins.write(0, type), [ins.read(k, type) for k in (1, 2, 3)]
    product = {"lo": np.multiply, "hi": high_product}[part]
    unsigned = np.dtype(f"u{np.dtype(_NUMPY[type]).itemsize}")

    def run(warp, lanes):
        values = warp.values
        x, y = product(values[a], values[b]).view(unsigned), values[c].view(unsigned)
        carry = warp.state.setdefault("carry", np.zeros(32, bool))
        first = x + y
        total = first + (carry.astype(unsigned) if use else unsigned.type(0))
        if write:
            np.copyto(carry, (first < x) | (total < first), where=mask_of(lanes))
        assign(values[d].view(unsigned), total, lanes)

    return run


@instruction("madc")
def madc(ins):
    """d = a * b + c + carry"""
    type = ins.type()
    return _mad_carry(ins, type, ins.choice("lo", "hi"), True, ins.flag("cc"))


@instruction("mul24", "mad24")
def mul24(ins):
    """24-bit product, low or high 32 bits of the 48-bit result"""
    type, part = ins.type(), ins.choice("lo", "hi")

    def product(a, b):
        shift = np.int64(40)
        wide = [(v.astype(np.int64) << shift) >> shift if type == "s32" else v.astype(np.int64) & np.int64(0xFFFFFF) for v in (a, b)]
        return (wide[0] * wide[1] >> np.int64(0 if part == "lo" else 16)).astype(a.dtype)

    if ins.mnemonic == "mul24":
        return table(ins, product, type, 2)
    saturate = ins.flag("sat")
    if saturate and (part, type) != ("hi", "s32"):
        ins.unsupported(".sat is for .hi.s32")
    return table(ins, lambda a, b, c: (_saturated_sum if saturate else np.add)(product(a, b), c), type, 3)


@instruction("fma")
def fma(ins):
    """d = a * b + c with one rounding"""
    return _mixed(ins, "fma", 3) or _float(ins, "fma", ins.type(), 3)


def _divide(a, b):
    """Truncating integer division; by zero gives all ones, as hardware does."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        quotient = a // safe
        quotient = quotient + ((a - quotient * safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, a.dtype.type(-1) if a.dtype.kind == "i" else ~a.dtype.type(0), quotient)


def _remainder(a, b):
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, a - _divide(a, safe) * safe)


@instruction("div")
def div(ins):
    """d = a / b; .approx and .full are rounded correctly here, hardware is within 2 ulp"""
    type = ins.type()
    if type in INTEGERS:
        return table(ins, _divide, type, 2)
    if type not in ("f32", "f64"):
        ins.unsupported(f"type .{type}")
    form = ins.choice(*ROUNDINGS) if type == "f64" else ins.choice(*ROUNDINGS, "approx", "full", default="rn")
    quotient = _approximate_quotient if form == "approx" else np.divide
    if form in ROUNDINGS and form != "rn":
        quotient = directed("div", np.divide, form)
    if type == "f64":
        return table(ins, quotient, type, 2)
    return table(ins, flushed_and_clamped(lambda a, b: canonical(quotient(a, b)), ins.flag("ftz"), False), "f32", 2)


def _approximate_quotient(a, b):
    """a times the reciprocal of b, which is zero for |b| above 2^126."""
    far = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    return canonical(np.where(far, a * np.copysign(np.float32(0), b), a / b))


@instruction("rem")
def rem(ins):
    """d = a % b with the sign of a"""
    type = ins.type()
    if type not in INTEGERS:
        ins.unsupported(f"type .{type}")
    return table(ins, _remainder, type, 2)


@instruction("abs")
def absolute(ins):
    """d = |a|"""
    type = ins.type()
    if type in INTEGERS:
        return table(ins, np.abs, type, 1)
    return _sign_operation(ins, type, clear=True)


@instruction("neg")
def negate(ins):
    """d = -a"""
    type = ins.type()
    if type in INTEGERS:
        return table(ins, np.negative, type, 1)
    return _sign_operation(ins, type, clear=False)


def _sign_operation(ins, type, clear):
    ftz = ins.flag("ftz")
    slot, sign = {
        "f32": ("b32", 0x80000000), "f64": ("b64", 1 << 63), "f16": ("b16", 0x8000), "bf16": ("b16", 0x8000), "f16x2": ("b32", 0x80008000), "bf16x2": ("b32", 0x80008000),
    }.get(type) or ins.unsupported(f"type {type}")  # fmt: skip
    dtype = {"b16": np.uint16, "b32": np.uint32, "b64": np.uint64}[slot]
    if type in PACKED_HALVES:
        byte_passes.of_parts(ins, 2)
    bit, keep = dtype(sign), dtype(((1 << (dtype().itemsize * 8)) - 1) ^ sign)
    if ftz and type not in ("f32", "f16", "f16x2"):
        ins.unsupported(".ftz on this type")

    def function(a):
        result = a & keep if clear else a ^ bit
        if not ftz:
            return result
        if type == "f32":
            return flush(result.view(np.float32)).view(np.uint32)
        return flush_half(number_formats.F16, result.view(np.uint16)).view(dtype)

    return table(ins, function, slot, 1)


@instruction("min", "max")
def minimum(ins):
    """The smaller / larger operand; of a number and a NaN the number, unless .NaN"""
    type = ins.type()
    smaller = ins.mnemonic == "min"
    if type in INTEGERS:
        relu = ins.flag("relu")
        choose = np.minimum if smaller else np.maximum
        return table(ins, (lambda a, b: np.maximum(choose(a, b), a.dtype.type(0))) if relu else choose, type, 2)
    if type in PACKED_INTEGERS:
        byte_passes.of_parts(ins, 2)
        relu = ins.flag("relu")
        choose = np.minimum if smaller else np.maximum
        return table(
            ins, _packed16((lambda a, b: np.maximum(choose(a, b), a.dtype.type(0))) if relu else choose, type == "s16x2"), "b32", 2
        )
    if type == "f64":
        return table(ins, np.fmin if smaller else np.fmax, type, 2)
    propagate, ftz = ins.flag("NaN"), ins.flag("ftz")
    sign_of_xor = ins.flag("xorsign")
    if sign_of_xor and not ins.flag("abs"):
        ins.unsupported(".xorsign needs .abs")
    magnitude = sign_of_xor or ins.flag("abs")
    count = len(ins.operands) - 1

    def two(a, b):
        x, y = (np.abs(a), np.abs(b)) if magnitude else (a, b)
        result = maximum_f32(x, y, propagate, smaller)
        if sign_of_xor:
            sign = (a.view(np.uint32) ^ b.view(np.uint32)) & _SIGN
            result = np.where(np.isnan(result), result.view(np.uint32), result.view(np.uint32) | sign).view(np.float32)
        return result

    if type == "f32":
        plain = two if count == 2 else lambda a, b, c: two(two(a, b), c)
        return table(ins, flushed_and_clamped(plain, ftz, False), "f32", count)
    packed = type in PACKED_HALVES
    format = PACKED_HALVES[type] if packed else HALVES[type]
    if packed:
        byte_passes.of_parts(ins, 2)

    if count != 2:
        ins.unsupported("three operands of this type")
    choose, infinity, sign = np.minimum if smaller else np.maximum, format.infinity, np.uint16(0x8000)

    def one(a, b):
        if ftz:
            a, b = flush_half(format, a), flush_half(format, b)
        x, y = a & ~sign, b & ~sign
        bad_a, bad_b = x > infinity, y > infinity
        signs = (a ^ b) & sign
        if not magnitude:
            x, y = _in_order(a), _in_order(b)
        result = choose(x, y)
        if not magnitude:
            result = _in_order(result.view(np.uint16)).view(np.uint16)
        if sign_of_xor:
            result = result | signs
        bad = bad_a | bad_b
        if b"\1" in bad.tobytes():
            if propagate:
                return np.where(bad, np.uint16(0x7FFF), result)
            number = np.where(
                bad_a,
                b & ~sign | signs if sign_of_xor else b & ~sign if magnitude else b,
                a & ~sign | signs if sign_of_xor else a & ~sign if magnitude else a,
            )
            result = np.where(bad, np.where(bad_a & bad_b, np.uint16(0x7FFF), number), result)
        return result

    return table(ins, on_halves(one, packed), _slot_type(type), count)


@instruction("sad")
def sad(ins):
    """d = c + |a - b|"""
    return table(ins, lambda a, b, c: c + (np.maximum(a, b) - np.minimum(a, b)), ins.type(), 3)

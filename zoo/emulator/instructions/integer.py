"""Bits, shifts, comparisons, selection and packing: everything about integer registers that is not arithmetic."""

import numpy as np

from .. import byte_passes
from ..parser import SINK, Immediate, Negated, PredicatePair, Register, Special, Vector
from . import FULL, assign, instruction, mask_of
from .arithmetic import flush
from .elementwise import compute, table

_WIDTH = {"b16": 16, "u16": 16, "s16": 16, "b32": 32, "u32": 32, "s32": 32, "b64": 64, "u64": 64, "s64": 64}


# ---- logic -----------------------------------------------------------------------------------------------------------
@instruction("and", "or", "xor")
def logic(ins):
    """Bitwise operations, also on predicates"""
    function = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[ins.mnemonic]
    type = ins.type()
    if type not in ("pred", "b16", "b32", "b64"):
        ins.unsupported(f"type .{type}")
    run = table(ins, function, type, 2)
    if type == "pred":
        byte_passes.of_predicates(ins)
    else:
        byte_passes.of_logic(ins, {"and": 0xC0, "or": 0xFC, "xor": 0x3C}[ins.mnemonic])
    return run


@instruction("not")
def logical_not(ins):
    """d = ~a"""
    type = ins.type()
    return table(ins, np.logical_not if type == "pred" else np.invert, type, 1)


@instruction("cnot")
def cnot(ins):
    """d = (a == 0)"""
    return table(ins, lambda a: (a == 0).astype(a.dtype), ins.type(), 1)


@instruction("lop3")
def lop3(ins):
    """Any function of three bits by truth table; the .BoolOp form also combines (result != 0) with a predicate"""
    combine = ins.choice("or", "and", default=None)
    if ins.type() != "b32":
        ins.unsupported("this instruction is .b32")
    table_bits = ins.operands[4].value
    destination = ins.operands[0]

    def function(a, b, c):
        result = np.zeros_like(a)
        for index in range(8):
            if table_bits >> index & 1:
                term = (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
                result |= term
        return result

    a, b, c = (ins.read(k, "b32") for k in (1, 2, 3))
    if combine is None:
        ins.expect_operands(5)
        byte_passes.of_logic(ins, table_bits)
        return compute(ins, function, ins.write(0, "b32"), [a, b, c])
    d, p, q = ins.write(destination.first, "b32"), ins.write(destination.second, "pred"), ins.read(5, "pred")

    def run(warp, lanes):
        values = warp.values
        result = function(values[a], values[b], values[c])
        other = values[q].copy()
        if d is not None:
            assign(values[d], result, lanes)
        if p is not None:
            assign(values[p], (result != 0) | other if combine == "or" else (result != 0) & other, lanes)

    return run


# ---- shifts and fields -----------------------------------------------------------------------------------------------
@instruction("shl", "shr")
def shift(ins):
    """Shift; amounts past the width give zero, or the sign for signed right shifts"""
    type = ins.type()
    width = _WIDTH[type]
    ins.expect_operands(3)
    left, signed = ins.mnemonic == "shl", type[0] == "s"
    if isinstance(ins.operands[2], Immediate) and 0 <= ins.operands[2].value < width:
        byte_passes.of_shift(ins, -ins.operands[2].value if left else ins.operands[2].value, width, signed and not left)
        return table(ins, np.left_shift if left else np.right_shift, type, 2)  # the usual case
    a, amount, d = ins.read(1, type), ins.read(2, "u32"), ins.write(0, type)

    def function(value, by):
        dtype = value.dtype
        if signed and not left:
            return value >> np.minimum(by, width - 1).astype(dtype)
        inside = by < width
        by = np.where(inside, by, 0).astype(dtype)
        result = value << by if left else value >> by
        return result if b"\0" not in inside.tobytes() else np.where(inside, result, dtype.type(0))

    return compute(ins, function, d, [a, amount])


@instruction("shf")
def funnel_shift(ins):
    """Funnel shift of the 64-bit value b:a, the upper (.l) or lower (.r) half"""
    left = ins.choice("l", "r") == "l"
    clamp = ins.choice("clamp", "wrap") == "clamp"
    if ins.type() != "b32":
        ins.unsupported("this instruction is .b32")
    amount = getattr(ins.operands[3], "value", 32) & 31 if clamp is False else getattr(ins.operands[3], "value", 32)
    if 0 < amount < 32:  # the usual case: a literal
        up, down = (np.uint32(amount), np.uint32(32 - amount)) if left else (np.uint32(32 - amount), np.uint32(amount))
        ins.expect_operands(4)
        return compute(ins, lambda low, high: (high << up) | (low >> down), ins.write(0, "b32"), [ins.read(1, "b32"), ins.read(2, "b32")])

    def function(low, high, by):
        by = np.minimum(by, 32) if clamp else by & np.uint32(31)
        value = (high.astype(np.uint64) << np.uint64(32)) | low
        shifted = (value << by.astype(np.uint64)) >> np.uint64(32) if left else value >> by.astype(np.uint64)
        return shifted.astype(np.uint32)

    return table(ins, function, "b32", 3)


@instruction("bfe")
def bit_field_extract(ins):
    """d = the c bits of a from bit b, sign-extended for signed types"""
    type = ins.type()
    width = _WIDTH[type]
    a, b, c, d = ins.read(1, type), ins.read(2, "u32"), ins.read(3, "u32"), ins.write(0, type)
    if all(isinstance(operand, Immediate) for operand in ins.operands[2:4]):
        position, count = (operand.value & 255 for operand in ins.operands[2:4])
        byte_passes.of_shift(ins, position, min(position + count, width), type[0] == "s" and count > 0)

    def function(value, start, length):
        position, count = (start & np.uint32(255)).astype(np.int64), (length & np.uint32(255)).astype(np.int64)
        bits = value.view(f"u{width // 8}").astype(np.uint64)
        used = np.clip(width - position, 0, count)  # bits of the field that the value has
        field = np.where(position < width, bits >> np.minimum(position, 63).astype(np.uint64), np.uint64(0)) & _ones(used)
        if type[0] == "s":
            top = np.minimum(position + np.maximum(count, 1), width) - 1
            negative = (bits >> top.astype(np.uint64) & np.uint64(1) != 0) & (count > 0)
            field = np.where(negative, field | ~_ones(used), field)
        return field.astype(f"u{width // 8}").view(value.dtype)

    return compute(ins, function, d, [a, b, c])


def _ones(counts):
    """uint64 with so many low bits set, 0 to 64."""
    return np.where(counts >= 64, ~np.uint64(0), (np.uint64(1) << np.minimum(counts, 63).astype(np.uint64)) - np.uint64(1))


@instruction("bfi")
def bit_field_insert(ins):
    """f = b with the d bits from bit c replaced by the low bits of a"""
    type = ins.type()
    a, b, c, d = ins.read(1, type), ins.read(2, type), ins.read(3, "u32"), ins.read(4, "u32")
    width = _WIDTH[type]

    def function(value, into, start, length):
        wide = np.uint64
        start, length = start & np.uint32(255), length & np.uint32(255)
        ones = _ones(np.minimum(length, width))
        inside = start < width
        at = np.where(inside, start, 0).astype(wide)
        mask = np.where(inside, ones << at, wide(0))
        result = (into.astype(wide) & ~mask) | ((value.astype(wide) << at) & mask)
        return result.astype(into.dtype)

    return compute(ins, function, ins.write(0, type), [a, b, c, d])


@instruction("bmsk")
def bit_mask(ins):
    """d = b ones from bit a"""
    clamp = ins.choice("clamp", "wrap") == "clamp"
    ins.type()

    def function(start, length):
        start, length = (np.minimum(start, 32), np.minimum(length, 32)) if clamp else (start & 31, length & 31)
        ones = (np.uint64(1) << length.astype(np.uint64)) - np.uint64(1)
        return (ones << start.astype(np.uint64)).astype(np.uint32)

    return table(ins, function, "b32", 2)


@instruction("szext")
def sign_or_zero_extend(ins):
    """d = the low b bits of a, extended"""
    clamp = ins.choice("clamp", "wrap") == "clamp"
    type = ins.type()

    def function(value, bits):
        bits = np.minimum(bits.view(np.uint32), 32) if clamp else bits.view(np.uint32) & 31
        up = (64 - bits.astype(np.int64)).astype(np.uint64)
        wide = value.view(np.uint32).astype(np.uint64) << up
        return ((wide.view(np.int64) >> up.view(np.int64)) if type == "s32" else (wide >> up)).astype(value.dtype)

    return table(ins, function, type, 2)


# ---- counting --------------------------------------------------------------------------------------------------------
@instruction("popc")
def population_count(ins):
    """The number of set bits"""
    type = ins.type()
    return compute(ins, lambda a: np.bitwise_count(a).astype(np.uint32), ins.write(0, "u32"), [ins.read(1, type)])


def _leading_zeros(value, width):
    return np.array([width - int(v).bit_length() for v in value], np.uint32)


@instruction("clz")
def leading_zeros(ins):
    """The number of leading zero bits"""
    type = ins.type()
    return compute(ins, lambda a: _leading_zeros(a, _WIDTH[type]), ins.write(0, "u32"), [ins.read(1, type)])


@instruction("bfind")
def find_leading(ins):
    """The position of the highest bit that differs from the sign, or all ones"""
    amount = ins.flag("shiftamt")
    type = ins.type()
    width = _WIDTH[type]

    def function(value):
        magnitude = np.where(value < 0, ~value, value) if type[0] == "s" else value
        position = (width - 1 - _leading_zeros(magnitude, width).astype(np.int64)).astype(np.int64)
        found = position >= 0
        return np.where(found, (width - 1 - position) if amount else position, 0xFFFFFFFF).astype(np.uint32)

    return compute(ins, function, ins.write(0, "u32"), [ins.read(1, type)])


@instruction("brev")
def reverse_bits(ins):
    """Bits in reverse order"""
    type = ins.type()
    width = _WIDTH[type]
    return table(ins, lambda a: np.array([int(f"{int(v):0{width}b}"[::-1], 2) for v in a], a.dtype), type, 1)


@instruction("fns")
def find_nth_set(ins):
    """The position of the n-th set bit from a base"""
    ins.type()
    a, b, c, d = ins.read(1, "b32"), ins.read(2, "u32"), ins.read(3, "s32"), ins.write(0, "b32")

    def function(mask, base, offset):
        result = np.full(32, 0xFFFFFFFF, np.uint32)
        for lane in range(32):
            bits, start, n = int(mask[lane]), int(base[lane]), int(offset[lane])
            if n == 0:
                if bits >> start & 1:
                    result[lane] = start
                continue
            step = 1 if n > 0 else -1
            position, left = start, abs(n)
            while 0 <= position < 32:
                if bits >> position & 1:
                    left -= 1
                    if left == 0:
                        result[lane] = position
                        break
                position += step
        return result

    return compute(ins, function, d, [a, b, c])


# ---- bytes and dot products ------------------------------------------------------------------------------------------
@instruction("prmt")
def permute_bytes(ins):
    """Four bytes chosen from eight; the default mode takes selector nibbles (bit 3 replicates the sign)"""
    mode = ins.choice("f4e", "b4e", "rc8", "ecl", "ecr", "rc16", default=None)
    if ins.type() != "b32":
        ins.unsupported("this instruction is .b32")
    if mode is None and hasattr(ins.operands[3], "value"):
        return _permute_constant(ins, ins.operands[3].value)
    steps = {
        "f4e": lambda s: (s, s + 1, s + 2, s + 3), "b4e": lambda s: (s, s - 1, s - 2, s - 3), "rc8": lambda s: (s, s, s, s),
        "ecl": lambda s: (s, np.maximum(s, 1), np.maximum(s, 2), np.maximum(s, 3)), "ecr": lambda s: (np.minimum(s, 0), np.minimum(s, 1), np.minimum(s, 2), s),
        "rc16": lambda s: ((s & 1) * 2, (s & 1) * 2 + 1, (s & 1) * 2, (s & 1) * 2 + 1),
    }  # fmt: skip

    def function(a, b, selector):
        both = np.stack((a, b), axis=1).view(np.uint8)  # the eight bytes of a lane, lowest first
        if mode is None:
            nibbles = (selector[:, None] >> _NIBBLES) & np.uint32(15)
            bytes = np.take_along_axis(both, (nibbles & np.uint32(7)).astype(np.intp), axis=1)
            if (nibbles & np.uint32(8)).any():
                bytes = np.where(nibbles & np.uint32(8), (bytes >> np.uint8(7)) * np.uint8(255), bytes)
        else:
            positions = np.stack(steps[mode]((selector & np.uint32(3)).astype(np.intp)), axis=1) & 7
            bytes = np.take_along_axis(both, positions, axis=1)
        return np.ascontiguousarray(bytes).view(np.uint32).reshape(32)

    return table(ins, function, "b32", 3)


_NIBBLES = np.arange(0, 16, 4, dtype=np.uint32)


def _permute_constant(ins, selector):
    """The usual case: the selector is a literal."""
    chosen = [(selector >> (4 * index) & 7, selector >> (4 * index) & 8) for index in range(4)]

    def function(a, b):
        result = np.zeros(32, np.uint32)
        for index, (position, sign) in enumerate(chosen):
            word = a if position < 4 else b
            byte = (word >> np.uint32(8 * (position & 3))) & np.uint32(255)
            if sign:
                byte = (byte >> np.uint32(7)) * np.uint32(255)
            result |= byte << np.uint32(8 * index)
        return result

    ins.expect_operands(4)
    byte_passes.note(ins, [ins.operands[1 + (position >= 4)] for position, _ in chosen], [position & 3 for position, _ in chosen])
    return compute(ins, function, ins.write(0, "b32"), [ins.read(1, "b32"), ins.read(2, "b32")])


@instruction("dp4a")
def dot4(ins):
    """d = c + sum of four byte products"""
    first, second = ins.types()
    types = {"u32": np.uint8, "s32": np.int8}
    if first not in types or second not in types:
        ins.unsupported("dp4a takes .u32 and .s32")

    def function(a, b, c):
        x = a.view(types[first]).reshape(32, 4).astype(np.int64)
        y = b.view(types[second]).reshape(32, 4).astype(np.int64)
        return (c.astype(np.int64) + (x * y).sum(axis=1)).astype(np.uint32)

    return table(ins, function, "b32", 3)


@instruction("dp2a")
def dot2(ins):
    """d = c + sum of two products of 16-bit and 8-bit values"""
    half = ins.choice("lo", "hi")
    first, second = ins.types()

    def function(a, b, c):
        x = a.view({"u32": np.uint16, "s32": np.int16}[first]).reshape(32, 2).astype(np.int64)
        y = b.view({"u32": np.uint8, "s32": np.int8}[second]).reshape(32, 4).astype(np.int64)
        y = y[:, :2] if half == "lo" else y[:, 2:]
        return (c.astype(np.int64) + (x * y).sum(axis=1)).astype(np.uint32)

    return table(ins, function, "b32", 3)


# ---- moves -----------------------------------------------------------------------------------------------------------
_CLOCKS = ("%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")


@instruction("mov")
def move(ins):
    """d = a, also packing {..} into a wider register and unpacking it"""
    type = ins.type()
    ins.expect_operands(2)
    destination, source = ins.operands
    if isinstance(source, Special) and source.name in _CLOCKS:
        return _read_clock(ins, type, source.name)
    if isinstance(destination, Vector) or isinstance(source, Vector):
        return _repack(ins, type)
    if type == "b128":
        d, a = ins.write(0, "b128"), ins.read(1, "b128")
        run = _plain_move_128(d, a)
    else:
        kind = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}.get(type, type)
        a, d = ins.read(1, kind), ins.write(0, kind)
        run = _plain_move(d, a)
    if isinstance(source, Register):
        _note_move(ins, destination, [source])
    return run


def _number(ins, register):
    return ins.layout.place_of(register)[0]


def _note_move(ins, destination, sources):
    """The instruction only moves: unit k of each source to unit k of the destination."""
    ins.copies = [(_number(ins, destination), [_number(ins, source) for source in sources])]
    ins.unit_copies = [(units[0], list(units[1:])) for units in zip(ins.layout.units_of(destination), *map(ins.layout.units_of, sources))]


def _plain_move(d, a):
    def run(warp, lanes):
        values = warp.values
        if lanes == FULL:
            values[d][...] = values[a]
        else:
            np.copyto(values[d], values[a], where=mask_of(lanes), casting="unsafe")

    return run


def _plain_move_128(d, a):
    def run(warp, lanes):
        mask = mask_of(lanes)
        warp.values[d][mask] = warp.values[a][mask]

    return run


def _read_clock(ins, type, name):
    d = ins.write(0, type)
    shift = 32 if name.endswith("_hi") else 0

    def run(warp, lanes):
        now = warp.machine.clock() >> shift
        assign(warp.values[d], now & (0xFFFFFFFF if type.endswith("32") else 0xFFFFFFFFFFFFFFFF), lanes)

    return run


def _repack(ins, type):
    """mov.b32/.b64/.b128 between one register and a vector of equal parts (b8 parts live in 16-bit registers)."""
    destination, source = ins.operands
    total = {"b16": 2, "b32": 4, "b64": 8, "b128": 16, "u32": 4, "u64": 8, "f32": 4, "f64": 8}[type]
    packing = isinstance(source, Vector)
    parts = source.items if packing else destination.items
    size = total // len(parts)
    part_type = {1: "b8", 2: "b16", 4: "b32", 8: "b64"}[size]
    dtype = np.dtype(f"u{size}")
    whole_dtype = {2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.uint64}[total]
    width = max(total // 8, 1)
    if packing:
        slots = [ins.read(item, part_type) for item in parts]
        d = ins.write(0, f"b{total * 8}")
        ins.copies = [(_number(ins, destination), [_number(ins, item) for item in parts if isinstance(item, Register)])]
        ins.unit_copies = _units_moved(ins, destination, parts, size, packing=True)

        def run(warp, lanes):
            whole = np.empty((32, len(slots)), dtype)
            for index, slot in enumerate(slots):
                whole[:, index] = warp.values[slot]
            value = whole.view(whole_dtype)
            assign_whole(warp.values[d], value, lanes, width)

        return run
    a = ins.read(1, f"b{total * 8}")
    slots = [(index, ins.write(item, part_type)) for index, item in enumerate(parts) if item is not SINK]
    if isinstance(source, Register):
        ins.copies = [(_number(ins, item), [_number(ins, source)]) for item in parts if item is not SINK]
        ins.unit_copies = _units_moved(ins, source, parts, size, packing=False)
    count = len(parts)

    def run(warp, lanes):
        whole = np.ascontiguousarray(warp.values[a]).view(dtype).reshape(32, count)
        for index, slot in slots:
            assign(warp.values[slot], whole[:, index], lanes)

    return run


def _units_moved(ins, whole, parts, size, packing):
    """Copies of bytes between a register and its parts of `size` bytes. A part of one byte is the low one of a 16-bit register."""
    wide, moved = ins.layout.units_of(whole), []
    for index, part in enumerate(parts):
        narrow = ins.layout.units_of(part) if isinstance(part, Register) else ()
        places = wide[index * size : (index + 1) * size]
        if packing:
            moved += [(place, list(narrow[k : k + 1])) for k, place in enumerate(places)]
        elif part is not SINK:
            moved += [(unit, list(places[k : k + 1])) for k, unit in enumerate(narrow)]
    return moved


def assign_whole(array, value, lanes, width):
    if width == 2:
        mask = mask_of(lanes)
        array[mask] = value[mask]
    else:
        assign(array, value.reshape(32), lanes)


@instruction("selp")
def select(ins):
    """d = p ? a : b"""
    type = ins.type()
    kind = {"f32": "b32", "f64": "b64", "f16": "b16", "bf16": "b16"}.get(type, type)
    ins.expect_operands(4)
    a, b, p, d = ins.read(1, kind), ins.read(2, kind), ins.read(3, "pred"), ins.write(0, kind)
    sources = [item for item in ins.operands[1:3] if isinstance(item, Register)]
    if sources:
        _note_move(ins, ins.operands[0], sources)
        (predicate,) = ins.layout.units_of(ins.operands[3])
        ins.unit_copies = [(unit, [*places, predicate]) for unit, places in ins.unit_copies]
        ins.chosen_by = p
        ins.chosen_from = tuple(place for place in (0, 1) if isinstance(ins.operands[1 + place], Register))
    return compute(ins, lambda x, y, c: np.where(c, x, y), d, [a, b, p])


@instruction("slct")
def select_by_sign(ins):
    """d = (c >= 0) ? a : b"""
    ftz = ins.flag("ftz")
    types = ins.types()
    if ftz and types[1] != "f32":
        ins.unsupported(".ftz is for .f32")
    kind = {"f32": "b32", "f64": "b64"}.get(types[0], types[0])
    a, b, c, d = ins.read(1, kind), ins.read(2, kind), ins.read(3, types[1]), ins.write(0, kind)

    def function(x, y, z):
        return np.where((z >= 0) | (np.abs(z) < 2.0**-126) if ftz else z >= 0, x, y)  # .ftz: a subnormal c counts as zero

    return compute(ins, function, d, [a, b, c])


# ---- comparisons -----------------------------------------------------------------------------------------------------
_COMPARE = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_UNORDERED = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}
_BOOLEAN = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _comparison(ins, type):
    """(function of two arrays to bool, slot type)"""
    is_float = type in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
    unordered = ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan") if is_float else ()
    ordered = {"b": ("eq", "ne"), "f": ("eq", "ne", "lt", "le", "gt", "ge"), "s": ("eq", "ne", "lt", "le", "gt", "ge")}
    name = ins.choice(*(ordered["f"] if is_float else ordered.get(type[0], _COMPARE)), *unordered)
    ftz = ins.flag("ftz")
    if name == "num":
        function = lambda a, b: (a == a) & (b == b)  # noqa: E731
    elif name == "nan":
        function = lambda a, b: (a != a) | (b != b)  # noqa: E731
    elif name == "ne" and is_float:
        function = lambda a, b: (a != b) & (a == a) & (b == b)  # noqa: E731  ordered and unequal
    elif name == "neu":
        function = np.not_equal
    elif name in _UNORDERED:
        opposite = _COMPARE[_UNORDERED[name]]
        function = lambda a, b: ~opposite(a, b) if name != "equ" else (a == b) | (a != a) | (b != b)  # noqa: E731
    else:
        function = _COMPARE[name]
    if ftz:
        flushed = {"f32": flush, "f16": _flushed_f16, "f16x2": _flushed_f16}.get(type) or ins.unsupported(".ftz on this type")
        inner = function
        function = lambda a, b: inner(flushed(a), flushed(b))  # noqa: E731
    return function


def _flushed_f16(values):
    return np.where(np.abs(values) < np.float16(2.0**-14), np.copysign(np.float16(0), values), values)


def _bf16_values(register):
    return (register.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _boolean_operand(ins, boolean):
    """([slot of the predicate c] or [], function(result, *[c]) -> result boolop c)"""
    if boolean is None:
        return [], lambda result: result
    ins.expect_operands(4)
    operand, combine = ins.operands[3], _BOOLEAN[boolean]
    if isinstance(operand, Negated):
        return [ins.read(operand.operand, "pred")], lambda result, c: combine(result, ~c)
    return [ins.read(operand, "pred")], combine


@instruction("setp")
def set_predicate(ins):
    """p = a cmp b {boolop c}, q = !(a cmp b) {boolop c}"""
    type = ins.type()
    boolean = ins.choice(*_BOOLEAN, default=None)
    function = _comparison(ins, type)
    if type in ("f16x2", "bf16x2"):
        return _set_predicate_pair(ins, type, function, boolean)
    destination = ins.operands[0]
    a, b = ins.read(1, type), ins.read(2, type)
    if type == "bf16":
        plain = function
        function = lambda x, y: plain(_bf16_values(x), _bf16_values(y))  # noqa: E731
    if boolean is None and not isinstance(destination, PredicatePair):
        ins.expect_operands(3)
        return compute(ins, function, ins.write(0, "pred"), [a, b])
    pair = isinstance(destination, PredicatePair)
    p = ins.write(destination.first if pair else destination, "pred")
    q = ins.write(destination.second, "pred") if pair else None
    third, combined = _boolean_operand(ins, boolean)

    def run(warp, lanes):
        values = warp.values
        result = function(values[a], values[b])
        yes, no = (combined(found, *[values[slot] for slot in third]) for found in (result, ~result))
        if p is not None:
            assign(values[p], yes, lanes)
        if q is not None:
            assign(values[q], no, lanes)

    return run


def _set_predicate_pair(ins, type, function, boolean):
    """Packed halves give two predicates, low half first."""
    destination = ins.operands[0]
    third, combined = _boolean_operand(ins, boolean)
    a, b = ins.read(1, "b32"), ins.read(2, "b32")
    p, q = ins.write(destination.first, "pred"), ins.write(destination.second, "pred")

    def values_of(register, high):
        codes = (register >> np.uint32(16 if high else 0)).astype(np.uint16)
        return codes.view(np.float16) if type == "f16x2" else _bf16_values(codes)

    def run(warp, lanes):
        values = warp.values
        c = [values[slot] for slot in third]
        found = [combined(function(values_of(values[a], high), values_of(values[b], high)), *c) for high in (False, True)]
        for slot, result in zip((p, q), found):
            if slot is not None:
                assign(values[slot], result, lanes)

    return run


@instruction("set")
def set_value(ins):
    """d = (a cmp b) as all ones / 1.0 or zero; packed halves give 1.0 or 0xffff per half"""
    target, *rest = ins.types()
    type = rest[0] if rest else ins.unsupported("it needs two types")
    third, combined = _boolean_operand(ins, ins.choice(*_BOOLEAN, default=None))
    function = _comparison(ins, type)
    if type in ("f16x2", "bf16x2"):
        one = {"f16x2": 0x3C00, "bf16x2": 0x3F80}.get(target, 0xFFFF)
        if not third:
            byte_passes.of_parts(ins, 2)

        def packed(a, b, *c):
            result = np.zeros(32, np.uint32)
            for shift in (0, 16):
                codes = [(r >> np.uint32(shift)).astype(np.uint16) for r in (a, b)]
                wide = [c.view(np.float16) if type == "f16x2" else _bf16_values(c) for c in codes]
                result |= np.where(combined(function(*wide), *c), np.uint32(one << shift), np.uint32(0))
            return result

        return compute(ins, packed, ins.write(0, "b32"), [ins.read(1, "b32"), ins.read(2, "b32"), *third])
    a, b = ins.read(1, type), ins.read(2, type)
    yes = {
        "f32": np.float32(1),
        "u32": np.uint32(0xFFFFFFFF),
        "s32": np.int32(-1),
        "f16": np.float16(1),
        "bf16": np.uint16(0x3F80),
        "u16": np.uint16(0xFFFF),
        "s16": np.int16(-1),
    }.get(target)
    if yes is None:
        ins.unsupported(f"set to {target} from {type}")
    if type == "bf16":
        plain = function
        function = lambda x, y: plain(_bf16_values(x), _bf16_values(y))  # noqa: E731

    def function_of_lanes(x, y, *c):
        return np.where(combined(function(x, y), *c), yes, type_zero(yes))

    return compute(ins, function_of_lanes, ins.write(0, target), [a, b, *third])


def type_zero(value):
    return type(value)(0)

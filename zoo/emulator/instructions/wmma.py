"""wmma: matrices as fragments, whose layout the manual leaves open and only wmma itself knows.

Here element e of a matrix, row by row, is element e / 32 of lane e % 32; small elements share a register, low bits first. f16 factors
have twice the room that they need, as on every GPU, and lie there twice. Elements of 4 bits and of 1 bit move as bytes.
"""

import numpy as np

from .. import arithmetic, memory, number_formats
from ..memory import SHARED_BASE
from . import instruction, mma_double, need_all
from .mma_sync import bit_operation, codes_of, integers_of, unequal_bits

_SHAPES = {
    "f16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)), "bf16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "s8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)), "u8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)), "tf32": ((16, 16, 8),), "f64": ((8, 8, 4),),
    "s4": ((8, 8, 32),), "u4": ((8, 8, 32),), "b1": ((8, 8, 128),),
}  # fmt: skip
_PACKED = {"s4": 2, "u4": 2, "b1": 8}  # elements of a byte
# bits of what moves together
_BITS = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "s4": 8, "u4": 8, "b1": 8, "tf32": 32, "f32": 32, "s32": 32, "f64": 64}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def _shape(ins):
    m, n, k = (int(x) for x in ins.pattern(r"m(\d+)n(\d+)k(\d+)").groups())
    return m, n, k


def _extent(name, type, shape):
    """Rows and columns of a matrix, of bytes if elements are smaller."""
    m, n, k = shape
    k //= _PACKED.get(type, 1)
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[name]


def _count(name, type, shape):
    """Registers of a fragment."""
    if name in "ab" and type == "f16":
        return 8
    rows, columns = _extent(name, type, shape)
    return rows * columns // 32 if type == "f64" else rows * columns * _BITS[type] // 1024


def _fragment(ins, k, name, type, shape, destination=False):
    """(function of a warp that gives the codes of a fragment's elements, function (warp, codes) that sets them)."""
    if len(ins.items(k)) != _count(name, type, shape):
        ins.unsupported(f"the fragment of .{name} needs {_count(name, type, shape)} registers")
    if type == "f64":
        slots = ins.write_list(k, "b64") if destination else ins.read_list(k, "b64")

        def set_doubles(warp, codes):
            for slot, elements in zip(slots, codes.reshape(-1, 32)):
                if slot is not None:
                    warp.values[slot][...] = elements

        return lambda warp: np.stack([warp.values[slot] for slot in slots]).reshape(_extent(name, type, shape)), set_doubles
    rows = ins.rows(k, destination=destination)

    def set_words(warp, codes):
        warp.words[rows] = _words(codes, name, type, shape)

    return lambda warp: _matrix(warp.words[rows], name, type, shape), set_words


def _matrix(words, name, type, shape):
    """(rows, columns) element codes of a fragment's registers (n, 32)."""
    rows, columns = _extent(name, type, shape)
    elements = np.ascontiguousarray(words.T).view(_UNSIGNED[_BITS[type]])  # (lane, element)
    return elements.T.reshape(-1)[: rows * columns].reshape(rows, columns)


def _words(matrix, name, type, shape):
    elements = matrix.reshape(-1, 32)
    copies = _count(name, type, shape) * 32 // (_BITS[type] * len(elements))
    return np.ascontiguousarray(np.tile(elements, (copies, 1)).T).view(np.uint32).T


def _type_of(ins, name, shape):
    type = ins.type()
    if (name in "ab" and shape not in _SHAPES.get(type, ())) or (name in "cd" and not _sums(type, shape)):
        ins.unsupported(f"a matrix .{name} of .{type} with this shape is not covered")
    return type


def _sums(type, shape):
    """Whether C and D of this shape may have the type."""
    return type == "f64" if shape == (8, 8, 4) else type in ("f16", "f32", "s32")


def _moving(ins, name):
    """What a load and a store share: (shape, type, function (warp, lanes) -> addresses of the elements in rows, accessors' space)."""
    ins.flag("sync"), ins.flag("aligned")
    shape = _shape(ins)
    by_row = ins.choice("row", "col") == "row"
    space = ins.choice("global", "shared", "shared::cta", default="generic").split("::")[0]
    type = _type_of(ins, name, shape)
    packed = _PACKED.get(type, 1)
    if packed > 1 and by_row != (name == "a"):
        ins.unsupported(f"a matrix .{name} of .{type} in this order")
    rows, columns = _extent(name, type, shape)
    row, column = np.divmod(np.arange(rows * columns), columns)
    size = _BITS[type] // 8
    address = ins.address(0 if name == "d" else 1)
    stride = ins.read(2, "u32") if ins.has_operand(2) else None
    narrow = columns if by_row else rows

    def places(warp):
        pitch = int(warp.values[stride][0]) // packed if stride is not None else narrow
        offsets = row * pitch + column if by_row else column * pitch + row
        return int(address(warp)[0]) + size * offsets.astype(np.int64)

    return shape, type, places, space, size


@instruction("wmma.load.a", "wmma.load.b", "wmma.load.c")
def load(ins):
    """A fragment from memory"""
    name = ins.opcode.split(".")[2]
    shape, type, places, space, size = _moving(ins, name)
    _, put = _fragment(ins, 0, name, type, shape, destination=True)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        put(warp, _access(ins, warp, lanes, space, places(warp), size))

    return run


@instruction("wmma.store.d")
def store(ins):
    """A fragment to memory"""
    shape, type, places, space, size = _moving(ins, "d")
    codes, _ = _fragment(ins, 1, "d", type, shape)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        _access(ins, warp, lanes, space, places(warp), size, codes(warp).reshape(-1))

    return run


def _access(ins, warp, lanes, space, addresses, size, values=None):
    if space == "generic":
        key = memory.window_of(addresses[0])
        space = "shared" if key == SHARED_BASE >> 40 else "global"
        addresses = addresses - memory.WINDOWS.get(key, (0,))[0]
    if values is None:
        return (memory.read_shared if space == "shared" else memory.read_global)(ins, warp, lanes, addresses, size)
    return (memory.write_shared if space == "shared" else memory.write_global)(ins, warp, lanes, addresses, size, values)


@instruction("wmma.mma")
def mma(ins):
    """D = A * B + C"""
    ins.flag("sync"), ins.flag("aligned")
    shape = _shape(ins)
    ins.modifiers[:] = [modifier for modifier in ins.modifiers if modifier not in ("row", "col")]  # the fragments' loads saw to them
    saturate = ins.flag("satfinite")
    rounding = ins.choice("rn", "rz", "rm", "rp", default=None)
    types = ins.types()
    if len(types) == 2:  # of f16 factors: D and C
        types = [types[0], "f16", "f16", types[1]]
    result, a, b, c = types
    allowed = {"f16": {"f16", "f32"}, "bf16": {"f32"}, "tf32": {"f32"}, "f64": {"f64"}}.get(a, {"s32"})
    differ = a == "b1" and bit_operation(ins) == "xor"
    if a != b or shape not in _SHAPES.get(a, ()) or not {result, c} <= allowed or (saturate and (result != "s32" or a == "b1")):
        ins.unsupported(f".{'.'.join(types)} with this shape is not covered")
    if rounding not in (None, "rn" if a == "f64" else None):
        ins.unsupported("only .rn is covered, for f64")
    (_, put), (left_of, _) = _fragment(ins, 0, "d", result, shape, destination=True), _fragment(ins, 1, "a", a, shape)
    (right_of, _), (addend_of, _) = _fragment(ins, 2, "b", b, shape), _fragment(ins, 3, "c", c, shape)

    def total_of(machine, left, right, addend):
        if result == "f64":
            return mma_double.product(left.view(np.float64), right.view(np.float64), addend.view(np.float64)).view(np.uint64)
        right, addend = np.ascontiguousarray(right.T), addend.astype(np.uint32)
        if result == "s32":
            factors = (integers_of(codes_of(matrix, a, False), a) for matrix in (left, right))
            return arithmetic.integer_sum(*(unequal_bits(*factors) if differ else factors), addend, saturate)
        if c == "f16" != result:
            addend = number_formats.encode(number_formats.F32, number_formats.decode(number_formats.F16, addend), "rn").astype(np.uint32)
        format = number_formats.FORMATS[a]
        factors = arithmetic.operand(format, left), arithmetic.operand(format, right)
        sums = c if result == "f16" else result
        total = arithmetic.mma_sync_sum(*factors, addend, sums, fp8=False, native_fp8=False, mode=machine.arithmetic)
        if c == "f32" != result:  # a sum of f32, rounded once more
            total = number_formats.encode(number_formats.F16, number_formats.decode(number_formats.F32, total), "rn")
        return total

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        total = total_of(warp.machine, left_of(warp), right_of(warp), addend_of(warp))
        put(warp, total.astype(_UNSIGNED[_BITS[result]]))

    return run

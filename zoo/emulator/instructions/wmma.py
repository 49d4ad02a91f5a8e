"""wmma: matrices as fragments, whose layout the manual leaves open and only wmma itself knows.

Here element e of a matrix, row by row, is element e / 32 of lane e % 32; small elements share a register, low bits first. f16 factors
have twice the room that they need, as on every GPU, and lie there twice.
"""

import numpy as np

from .. import arithmetic, memory, number_formats
from ..memory import SHARED_BASE
from . import instruction, need_all
from .mma_sync import integers_of

_SHAPES = {
    "f16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)), "bf16": ((16, 16, 16), (32, 8, 16), (8, 32, 16)),
    "s8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)), "u8": ((16, 16, 16), (32, 8, 16), (8, 32, 16)), "tf32": ((16, 16, 8),),
}  # fmt: skip
_BITS = {"f16": 16, "bf16": 16, "s8": 8, "u8": 8, "tf32": 32, "f32": 32, "s32": 32}
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32}


def _shape(ins):
    m, n, k = (int(x) for x in ins.pattern(r"m(\d+)n(\d+)k(\d+)").groups())
    return m, n, k


def _extent(name, shape):
    """Rows and columns of a matrix."""
    m, n, k = shape
    return {"a": (m, k), "b": (k, n), "c": (m, n), "d": (m, n)}[name]


def _count(name, type, shape):
    """Registers of a fragment."""
    if name in "ab" and type == "f16":
        return 8
    rows, columns = _extent(name, shape)
    return rows * columns * _BITS[type] // 1024


def _register_rows(ins, k, name, type, shape, destination=False):
    rows = ins.rows(k, destination=destination)
    if len(rows) != _count(name, type, shape):
        ins.unsupported(f"the fragment of .{name} needs {_count(name, type, shape)} registers")
    return rows


def _matrix(words, name, type, shape):
    """(rows, columns) element codes of a fragment's registers (n, 32)."""
    rows, columns = _extent(name, shape)
    elements = np.ascontiguousarray(words.T).view(_UNSIGNED[_BITS[type]])  # (lane, element)
    return elements.T.reshape(-1)[: rows * columns].reshape(rows, columns)


def _words(matrix, name, type, shape):
    elements = matrix.reshape(-1, 32)
    copies = _count(name, type, shape) * 32 // (_BITS[type] * len(elements))
    return np.ascontiguousarray(np.tile(elements, (copies, 1)).T).view(np.uint32).T


def _type_of(ins, name, shape):
    type = ins.type()
    if (name in "ab" and shape not in _SHAPES.get(type, ())) or (name in "cd" and type not in ("f16", "f32", "s32")):
        ins.unsupported(f"a matrix .{name} of .{type} with this shape is not covered")
    return type


def _moving(ins, name):
    """What a load and a store share: (shape, type, function (warp, lanes) -> addresses of the elements in rows, accessors' space)."""
    ins.flag("sync"), ins.flag("aligned")
    shape = _shape(ins)
    by_row = ins.choice("row", "col") == "row"
    space = ins.choice("global", "shared", "shared::cta", default="generic").split("::")[0]
    type = _type_of(ins, name, shape)
    rows, columns = _extent(name, shape)
    row, column = np.divmod(np.arange(rows * columns), columns)
    size = _BITS[type] // 8
    address = ins.address(0 if name == "d" else 1)
    stride = ins.read(2, "u32") if ins.has_operand(2) else None
    narrow = columns if by_row else rows

    def places(warp):
        pitch = int(warp.values[stride][0]) if stride is not None else narrow
        offsets = row * pitch + column if by_row else column * pitch + row
        return int(address(warp)[0]) + size * offsets.astype(np.int64)

    return shape, type, places, space, size


@instruction("wmma.load.a", "wmma.load.b", "wmma.load.c")
def load(ins):
    """A fragment from memory"""
    name = ins.opcode.split(".")[2]
    shape, type, places, space, size = _moving(ins, name)
    registers = _register_rows(ins, 0, name, type, shape, destination=True)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        data = _access(ins, warp, lanes, space, places(warp), size)
        warp.words[registers] = _words(data, name, type, shape)

    return run


@instruction("wmma.store.d")
def store(ins):
    """A fragment to memory"""
    shape, type, places, space, size = _moving(ins, "d")
    registers = _register_rows(ins, 1, "d", type, shape)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        _access(ins, warp, lanes, space, places(warp), size, _matrix(warp.words[registers], "d", type, shape).reshape(-1))

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
    types = ins.types()
    if len(types) == 2:  # of f16 factors: D and C
        types = [types[0], "f16", "f16", types[1]]
    result, a, b, c = types
    if (
        a != b
        or shape not in _SHAPES.get(a, ())
        or (result == "s32") != (a in ("s8", "u8"))
        or (saturate and result != "s32")
        or result != c
    ):
        ins.unsupported(f".{'.'.join(types)} with this shape is not covered")
    d_rows, a_rows = _register_rows(ins, 0, "d", result, shape, destination=True), _register_rows(ins, 1, "a", a, shape)
    b_rows, c_rows = _register_rows(ins, 2, "b", b, shape), _register_rows(ins, 3, "c", c, shape)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        words = warp.words
        left, right = _matrix(words[a_rows], "a", a, shape), np.ascontiguousarray(_matrix(words[b_rows], "b", b, shape).T)
        addend = _matrix(words[c_rows], "c", c, shape).astype(np.uint32)
        if result == "s32":
            total = arithmetic.integer_sum(integers_of(left, a), integers_of(right, b), addend, saturate)
        else:
            format = number_formats.FORMATS[a]
            total = arithmetic.mma_sync_sum(
                arithmetic.operand(format, left), arithmetic.operand(format, right), addend, result, fp8=False, native_fp8=False, mode=warp.machine.arithmetic
            )  # fmt: skip
        words[d_rows] = _words(total.astype(_UNSIGNED[_BITS[result]]), "d", result, shape)

    return run

"""mma.sync: one warp multiplies small matrices held in registers.

Every element type uses the same fragments when counted in bytes. With a row of A or B as a row of 32-bit words along K:
    A register i of lane l: row l / 4 + 8 * (i % 2), word l % 4 + 4 * (i / 2)        (m8: one register, row l / 4)
    B register i of lane l: column l / 4 of B, word l % 4 + 4 * i
    C and D element j of lane l: row l / 4 + 8 * (j / 2), column 2 * (l % 4) + j % 2 (f16: elements 2i and 2i+1 in register i)
"""

import functools

import numpy as np

from .. import arithmetic, number_formats
from ..products import Product
from . import instruction, need_all, put_rows
from .mma_double import mma_f64
from .mma_halves import mma_halves

_LANE = np.arange(32)
_C_ROWS = np.stack([_LANE // 4 + 8 * (j // 2) for j in range(4)])
_C_COLUMNS = np.stack([2 * (_LANE % 4) + j % 2 for j in range(4)])
# where the elements of D's registers are in D, and the elements of C in its registers
_PLACES_OF_D = 8 * _C_ROWS + _C_COLUMNS
_PLACES_OF_C = {m: np.argsort(_PLACES_OF_D[: m // 4].reshape(-1)).reshape(m, 8) for m in (8, 16)}
# element type -> the shapes (M, K) with N = 8 -> bits of an element in a register
_SHAPES = {
    type: shapes
    for types, shapes in {
        "f16 bf16": {(16, 8): 16, (16, 16): 16},
        "tf32": {(16, 4): 32, (16, 8): 32},
        "e4m3 e5m2": {(16, 16): 8, (16, 32): 8},
        "e2m3 e3m2": {(16, 32): 8},
        "e2m1": {(16, 32): 8, (16, 64): 4},
        "s8 u8": {(8, 16): 8, (16, 16): 8, (16, 32): 8},
        "s4 u4": {(8, 32): 4, (16, 32): 4, (16, 64): 4},
        "b1": {(8, 128): 1, (16, 128): 1, (16, 256): 1},
    }.items()
    for type in types.split()
}
INTEGERS = ("s8", "u8", "s4", "u4", "b1")
_SIGN_BIT = {"s8": 0x80, "s4": 8}
_SCALE_VECTORS = {
    "mxf8f6f4": {("ue8m0", 1)},
    "mxf4": {("ue8m0", 2)},
    "mxf4nvf4": {("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4)},
}


@functools.cache
def _places_of_a(registers, m):
    """Where each word of A, row by row, is among the registers of all lanes."""
    row, word = np.divmod(np.arange(32 * registers), 32 * registers // m)
    return (32 * (m // 8 * (word // 4) + row // 8) + 4 * (row % 8) + word % 4).reshape(m, -1)


def words_of_a(words, m=16):
    """(..., m, row words) from A's registers (..., n, 32)."""
    return words.reshape(*words.shape[:-2], -1).take(_places_of_a(words.shape[-2], m), axis=-1)


def words_of_b(words):
    """(..., 8, row words) from B's registers (..., n, 32)."""
    before = words.shape[:-2]
    return words.reshape(*before, -1, 8, 4).swapaxes(-3, -2).reshape(*before, 8, -1)


def c_matrix(words, result):
    """(..., 16, 8) register words of C, or (..., 8, 8) of two registers; f16 values in the low half."""
    if result != "f16":
        return words.reshape(*words.shape[:-2], -1).take(_PLACES_OF_C[4 * words.shape[-2]], axis=-1)
    matrix = np.empty((*words.shape[:-2], 16, 8), np.uint32)
    matrix[..., _C_ROWS[0::2], _C_COLUMNS[0::2]] = words & 0xFFFF
    matrix[..., _C_ROWS[1::2], _C_COLUMNS[1::2]] = words >> 16
    return matrix


def d_registers(matrix, result):
    """The registers (..., n, 32) of D from (..., 16, 8) or (..., 8, 8) words."""
    if result == "f16":
        return matrix[..., _C_ROWS[0::2], _C_COLUMNS[0::2]] | matrix[..., _C_ROWS[1::2], _C_COLUMNS[1::2]] << 16
    return matrix.reshape(*matrix.shape[:-2], -1).take(_PLACES_OF_D[: matrix.shape[-2] // 4], axis=-1)


def codes_of(words, type_name, containers):
    """Element codes along K of a matrix of words; `containers`: 4 and 6-bit floats lie in bytes (e2m1 in bits 2-5)."""
    words = np.ascontiguousarray(words)
    if type_name == "tf32":
        return words
    if type_name in ("f16", "bf16"):
        return words.view(np.uint16)
    data = words.view(np.uint8)
    if type_name == "b1":
        return np.unpackbits(data, axis=-1, bitorder="little")
    if type_name in ("s4", "u4"):
        return nibbles(data)
    if type_name == "e2m1":
        if containers:
            return (data >> 2) & 0xF
        return nibbles(data)
    return data & 0x3F if type_name in ("e2m3", "e3m2") else data


def nibbles(data):
    """(rows, 2 n) 4-bit codes of (rows, n) bytes, low nibble first."""
    codes = np.empty((data.shape[0], 2 * data.shape[1]), np.uint8)
    codes[:, 0::2], codes[:, 1::2] = data & 0xF, data >> 4
    return codes


def integers_of(codes, type_name):
    """int64 values of the codes of integers."""
    sign = _SIGN_BIT.get(type_name, 0)
    return (codes.astype(np.int64) ^ sign) - sign


def unequal_bits(a, b):
    """Factors of 0 and 1 whose product counts where the bits of A and B differ."""
    return np.concatenate([a, 1 - a], axis=1), np.concatenate([1 - b, b], axis=1)


@instruction("mma")
def mma(ins):
    if not (ins.flag("sync") and ins.flag("aligned")):
        ins.unsupported("mma needs .sync.aligned")
    shape = ins.pattern(r"m(\d+)n(\d+)k(\d+)")
    m, n, depth = (int(x) for x in shape.groups())
    if (m, n, depth) == (8, 8, 4) and "f16" in ins.modifiers:
        layouts = [modifier for modifier in ins.modifiers if modifier in ("row", "col")]
        ins.modifiers = [modifier for modifier in ins.modifiers if modifier not in ("row", "col")]
        if len(layouts) != 2:
            ins.unsupported("it needs two layouts, each .row or .col")
        return mma_halves(ins, ins.types(), layouts)
    if not (ins.flag("row") and ins.flag("col")):
        ins.unsupported("only .row.col is covered")
    kind = ins.pattern(r"kind::(\w+)", required=False)
    kind = kind.group(1) if kind else None
    scaled = ins.flag("block_scale")
    vector = ins.pattern(r"scale_vec::([124])X", required=False)
    saturate = ins.flag("satfinite")
    types = ins.types()
    if types == ["f64"] * 4:
        return mma_f64(ins, m, n, depth)
    if len(types) != (5 if scaled else 4):
        ins.unsupported(f"it names {len(types)} types")
    result, a, b, c = types[:4]
    bits = _SHAPES.get(a, {}).get((m, depth))
    if n != 8 or bits is None or bits != _SHAPES.get(b, {}).get((m, depth)):
        ins.unsupported(f"the shape m{m}n{n}k{depth} with .{a}.{b} is not covered")
    if result != c:
        ins.unsupported("C and D of different types are not covered")
    integer = result == "s32"
    if any(integer != (type in INTEGERS) for type in (a, b)) or (bits > 8 and a != b) or result not in ("f32", "f16", "s32"):
        ins.unsupported(f".{a}.{b} does not go with the result type .{result}")
    if saturate and (not integer or bits == 1):
        ins.unsupported(f".satfinite does not go with .{a}")
    differ = bits == 1 and bit_operation(ins) == "xor"
    if scaled:
        return _block_scaled(ins, kind, a, b, depth, result, types[4], int(vector.group(1)) if vector else None)
    if kind not in (None, "f8f6f4") or vector:
        ins.unsupported(f"kind::{kind} without .block_scale")
    if depth == 64 and not integer:
        ins.unsupported("K = 64 needs a block-scaled kind")
    sub_byte = {a, b} & {"e2m3", "e3m2", "e2m1"}
    if sub_byte and kind is None:
        ins.unsupported("4 and 6-bit types need a .kind")
    d_rows, a_rows, b_rows, c_rows = ins.rows(0, destination=True), ins.rows(1), ins.rows(2), ins.rows(3)
    _check_counts(ins, (m, depth, bits), result, d_rows, a_rows, b_rows, c_rows)
    fp8 = a in ("e4m3", "e5m2") or kind is not None
    containers = kind is not None

    def product(machine, of_a, of_b, of_c):
        """The registers of D from those of A, B and C, or stacks of them."""
        left, right = codes_of(words_of_a(of_a, m), a, containers), codes_of(words_of_b(of_b), b, containers)
        addend = c_matrix(of_c, result)
        if integer:
            left, right = integers_of(left, a), integers_of(right, b)
            total = arithmetic.integer_sum(*(unequal_bits(left, right) if differ else (left, right)), addend, saturate)
        else:
            native = machine.device.arch.startswith("sm_12")
            left, right = arithmetic.operand(number_formats.FORMATS[a], left), arithmetic.operand(number_formats.FORMATS[b], right)
            total = arithmetic.mma_sync_sum(left, right, addend, result, fp8=fp8, native_fp8=native, mode=machine.arithmetic)
        return d_registers(total, result)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        words = warp.words
        put_rows(warp, d_rows, product(warp.machine, words[a_rows], words[b_rows], words[c_rows]), lanes)

    if a in ("f16", "bf16"):
        ins.product = Product((a, b, result, depth), product, a_rows, b_rows, c_rows, d_rows)
    return run


def bit_operation(ins):
    """What a product of bits counts: where A "and" B are set, or where they differ ("xor")."""
    if not ins.flag("popc"):
        ins.unsupported(".b1 needs .popc")
    return ins.choice("and", "xor")


def checked_scales(ins, kind, a, b, depth, result, scale_type, vector):
    """The number of scales of a row, or a refusal; `depth` is a dense K."""
    if kind not in _SCALE_VECTORS:
        ins.unsupported(f".block_scale does not go with kind::{kind}")
    if vector is None:
        if kind == "mxf4nvf4":
            ins.unsupported("kind::mxf4nvf4 needs .scale_vec::2X or ::4X")
        vector = 2 if kind == "mxf4" else 1
    fp4 = kind != "mxf8f6f4"
    if (scale_type, vector) not in _SCALE_VECTORS[kind] or result != "f32" or depth != (64 if fp4 else 32):
        ins.unsupported(f"kind::{kind} with {vector} .{scale_type} scales, K = {depth}, .{result}")
    if (fp4 and (a, b) != ("e2m1", "e2m1")) or a in ("f16", "bf16", "tf32", *INTEGERS):
        ins.unsupported(f"kind::{kind} does not take .{a}.{b}")
    return vector


def block_scales(ins, first, vector, scale_type):
    """function(warp, lanes) -> the BlockScales of A and B, or None after a report; their operands are `first` and the next three."""
    scale_a, scale_b = ins.rows(first), ins.rows(first + 2)
    selector_a, selector_b = ins.read_list(first + 1, "u16"), ins.read_list(first + 3, "u16")
    scale_format = number_formats.FORMATS[scale_type]

    def read(warp, lanes):
        words = warp.words
        byte_a, thread_a = (int(warp.values[slot][0]) for slot in selector_a)
        byte_b, thread_b = (int(warp.values[slot][0]) for slot in selector_b)
        for name, byte, thread, threads in (("a", byte_a, thread_a, 2), ("b", byte_b, thread_b, 4)):
            if byte % vector or byte > 3 or thread >= threads:
                ins.report(
                    warp,
                    lanes,
                    "arithmetic",
                    f"byte-id-{name} = {byte}, thread-id-{name} = {thread} are not allowed with {vector} scales per row",
                )
                return None
        # Row r of A: lane 4 (r % 8) + 2 * thread-id + r / 8.  Column n of B: lane 4 n + thread-id.
        row = np.arange(16)
        bytes_a = words[scale_a[0]].view(np.uint8).reshape(32, 4)[4 * (row % 8) + 2 * thread_a + row // 8]
        bytes_b = words[scale_b[0]].view(np.uint8).reshape(32, 4)[4 * np.arange(8) + thread_b]
        return (
            arithmetic.BlockScale(scale_format, bytes_a[:, byte_a : byte_a + vector]),
            arithmetic.BlockScale(scale_format, bytes_b[:, byte_b : byte_b + vector]),
        )

    return read


def _block_scaled(ins, kind, a, b, depth, result, scale_type, vector):
    vector = checked_scales(ins, kind, a, b, depth, result, scale_type, vector)
    fp4 = kind != "mxf8f6f4"
    d_rows, a_rows, b_rows, c_rows = ins.rows(0, destination=True), ins.rows(1), ins.rows(2), ins.rows(3)
    _check_counts(ins, (16, depth, 4 if fp4 else 8), result, d_rows, a_rows, b_rows, c_rows)
    scales = block_scales(ins, 4, vector, scale_type)

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        words = warp.words
        found = scales(warp, lanes)
        if found is None:
            return
        total = arithmetic.tcgen05_sum(
            arithmetic.operand(number_formats.FORMATS[a], codes_of(words_of_a(words[a_rows]), a, not fp4)),
            arithmetic.operand(number_formats.FORMATS[b], codes_of(words_of_b(words[b_rows]), b, not fp4)),
            c_matrix(words[c_rows], result), result, warp.machine.arithmetic, *found, fp4=fp4,
        )  # fmt: skip
        put_rows(warp, d_rows, d_registers(total, result), lanes)

    return run


def _check_counts(ins, shape, result, d_rows, a_rows, b_rows, c_rows):
    m, depth, bits = shape
    words = depth * bits // 32  # of one row
    results = m // 8 if result == "f16" else m // 4
    expected = (results, m * words // 32, words // 4, results)
    found = tuple(map(len, (d_rows, a_rows, b_rows, c_rows)))
    if found != expected:
        ins.unsupported(f"it has {found} registers in D, A, B, C; the shape needs {expected}")

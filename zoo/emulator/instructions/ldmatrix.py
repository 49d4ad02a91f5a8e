"""ldmatrix, stmatrix, movmatrix: 8x8 matrices of 16-bit elements (and 8-bit forms of sm_100 and sm_120) between shared memory and registers.

An 8x8 matrix of 16-bit elements is 8 rows of 16 bytes. Lane l holds the 32-bit word l % 4 of row l / 4, so the four words of eight rows, in
memory order, are the register's 32 lanes. The address of row i of matrix k comes from lane 8k + i.
"""

import numpy as np

from ..memory import SHARED_BASE
from . import FULL, instruction, put_rows

_COUNTS = {"x1": 1, "x2": 2, "x4": 4}


def _space(ins):
    """Consumes the state space; True when addresses are generic."""
    return ins.choice("shared", "shared::cta", default=None) is None


def _row_offsets(ins, warp, lanes, addresses, rows, generic):
    """Byte offsets in the CTA's shared memory of the `rows` row addresses (lanes 0 .. rows-1), or None after a report."""
    if lanes != FULL:
        ins.report(warp, lanes, "divergent-aligned", f"lanes {FULL & ~lanes:#010x} do not take part: the result is undefined")
    addresses = addresses[:rows].astype(np.int64)
    if generic:
        addresses = addresses - SHARED_BASE
    first, last, rank = int(addresses.min()), int(addresses.max()), warp.cta.rank
    if first >> 24 != rank or last >> 24 != rank:
        bad = int(addresses[addresses >> 24 != rank][0])
        ins.report(warp, lanes, "out-of-bounds", f"the row address {bad:#x} is not in this CTA's shared memory", bad)
        return None
    offsets = addresses - (rank << 24) if rank else addresses
    if int(np.bitwise_or.reduce(offsets)) & 15:
        bad = int(offsets[offsets & 15 != 0][0])
        ins.report(warp, lanes, "misaligned", f"the row at shared offset {bad:#x} is not 16-byte aligned", bad)
        return None
    low, high = first & 0xFFFFFF, (last & 0xFFFFFF) + 16
    if not warp.cta.shared.in_bounds(ins, warp, lanes, low, high, f"`{ins.mnemonic}` addresses"):
        return None
    return offsets


@instruction("ldmatrix")
def ldmatrix(ins):
    ins.flag("sync"), ins.flag("aligned")
    shape = ins.choice("m8n8", "m16n16", "m8n16")
    count = _COUNTS[ins.choice("x1", "x2", "x4")]
    transposed = ins.flag("trans")
    generic = _space(ins)
    types = ins.types()
    if shape == "m8n8":
        if types != ["b16"]:
            ins.unsupported(".m8n8 needs .b16")
        arrange = _transposed_16 if transposed else _rows_of_words
        matrix_rows, registers = 8, 1
    elif shape == "m16n16":
        if not transposed or count == 4:
            ins.unsupported(".m16n16 needs .trans and .x1 or .x2")
        arrange = _decompressing(ins, types, _transposed_8)
        matrix_rows, registers = 16, 2
    else:
        if transposed or types == ["b8"]:
            ins.unsupported(".m8n16 takes .b8x16.b6x16_p32 or .b8x16.b4x16_p64 without .trans")
        arrange = _decompressing(ins, types, _rows_of_words_8)
        matrix_rows, registers = 8, 1
    rows = ins.rows(0, destination=True)
    if len(rows) != count * registers:
        ins.unsupported(f"it needs {count * registers} destination registers")
    address = ins.address(1)
    read_bytes = {"b4x16_p64": 8, "b6x16_p32": 12}.get(types[-1], 16)

    def run(warp, lanes):
        offsets = _row_offsets(ins, warp, lanes, address(warp), count * matrix_rows, generic)
        if offsets is None:
            return
        shared = warp.cta.shared
        if read_bytes == 16:
            shared.before_read(ins, warp, lanes, offsets, 16)
        else:
            for first in range(0, read_bytes, 4):  # the padding may be uninitialised
                shared.before_read(ins, warp, lanes, offsets + first, 4)
        data = shared.bytes[: shared.bytes.size // 16 * 16].reshape(-1, 16)[offsets >> 4]
        put_rows(warp, rows, arrange(data, count), lanes)

    return run


def _rows_of_words(data, count):
    return data.view(np.uint32).reshape(count, 32)


def _transposed_16(data, count):
    square = data.view(np.uint16).reshape(count, 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(square).view(np.uint32).reshape(count, 32)


def _rows_of_words_8(data, count):
    """8 rows of 16 bytes: lane l holds bytes 4 * (l % 4) .. +3 of row l / 4."""
    return np.ascontiguousarray(data).view(np.uint32).reshape(count, 32)


def _transposed_8(data, count):
    """16x16 bytes, column-major: register j of lane l holds elements 4 * (l % 4) .. +3 of row l / 4 + 8 j of the transposed matrix."""
    square = np.ascontiguousarray(data.reshape(count, 16, 16).transpose(0, 2, 1))
    return square.view(np.uint32).reshape(count * 2, 32)


def _decompressing(ins, types, arrange):
    if types == ["b8"]:
        return arrange
    if types == ["b8x16", "b4x16_p64"]:
        return lambda data, count: arrange(decompress_4(data), count)
    if types == ["b8x16", "b6x16_p32"]:
        return lambda data, count: arrange(decompress_6(data), count)
    ins.unsupported("it needs .b8, .b8x16.b6x16_p32 or .b8x16.b4x16_p64")
    return None


def decompress_4(rows):
    """(n, 16) bytes, 16 nibbles and 8 bytes of padding each -> 16 bytes with the nibble in bits 2-5."""
    packed = rows[:, :8]
    result = np.empty_like(rows)
    result[:, 0::2] = (packed & 0xF) << 2
    result[:, 1::2] = (packed >> 4) << 2
    return result


def decompress_6(rows):
    """(n, 16) bytes, 16 six-bit codes and 4 bytes of padding each -> 16 bytes with the code in bits 0-5."""
    triples = rows[:, :12].reshape(-1, 4, 3).astype(np.uint32)
    words = triples[..., 0] | triples[..., 1] << 8 | triples[..., 2] << 16
    codes = np.stack([(words >> shift) & 63 for shift in (0, 6, 12, 18)], axis=-1)
    return np.ascontiguousarray(codes.reshape(len(rows), 16).astype(np.uint8))


def _words_of_rows(words, count):
    return words.view(np.uint8).reshape(count * 8, 16)


def _untransposed_16(words, count):
    square = words.view(np.uint16).reshape(count, 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(square).view(np.uint8).reshape(count * 8, 16)


def _untransposed_8(words, count):
    """16x8 bytes, column-major: byte i of lane l is byte l / 4 + 8 * (i / 2) of memory row 2 * (l % 4) + i % 2."""
    lane = np.arange(32)[:, None]
    byte = np.arange(4)[None, :]
    matrix = np.empty((count, 8, 16), np.uint8)
    matrix[:, 2 * (lane % 4) + byte % 2, lane // 4 + 8 * (byte // 2)] = words.view(np.uint8).reshape(count, 32, 4)
    return matrix.reshape(count * 8, 16)


@instruction("stmatrix")
def stmatrix(ins):
    ins.flag("sync"), ins.flag("aligned")
    shape = ins.choice("m8n8", "m16n8")
    count = _COUNTS[ins.choice("x1", "x2", "x4")]
    transposed = ins.flag("trans")
    generic = _space(ins)
    types = ins.types()
    if shape == "m8n8":
        if types != ["b16"]:
            ins.unsupported(".m8n8 needs .b16")
        arrange = _untransposed_16 if transposed else _words_of_rows
    else:
        if types != ["b8"] or not transposed:
            ins.unsupported(".m16n8 needs .trans and .b8")
        arrange = _untransposed_8
    rows = ins.rows(1)
    if len(rows) != count:
        ins.unsupported(f"it needs {count} source registers")
    address = ins.address(0)

    def run(warp, lanes):
        offsets = _row_offsets(ins, warp, lanes, address(warp), count * 8, generic)
        if offsets is None:
            return
        shared = warp.cta.shared
        stored = arrange(warp.words[rows], count)
        shared.before_write(ins, warp, lanes, offsets, 16, values=stored)
        shared.bytes[: shared.bytes.size // 16 * 16].reshape(-1, 16)[offsets >> 4] = stored

    return run


@instruction("movmatrix")
def movmatrix(ins):
    ins.flag("sync"), ins.flag("aligned")
    ins.choice("m8n8")
    ins.choice("trans")
    if ins.types() != ["b16"]:
        ins.unsupported("movmatrix needs .b16")
    destination, source = ins.rows(0, destination=True), ins.rows(1)

    def run(warp, lanes):
        if lanes != FULL:
            ins.report(warp, lanes, "divergent-aligned", f"lanes {FULL & ~lanes:#010x} do not take part: the result is undefined")
        square = warp.words[source].view(np.uint16).reshape(8, 8)
        put_rows(warp, destination, np.ascontiguousarray(square.T).view(np.uint32).reshape(1, 32), lanes)

    return run

"""Formats, layouts and swizzles of the proof kernels' references: numpy only, written from the definitions, not from zoo."""

import numpy as np


def _e4m3_value(code):
    sign, exponent, mantissa = -1.0 if code & 0x80 else 1.0, (code >> 3) & 15, code & 7
    if code & 0x7F == 0x7F:
        return np.nan
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


E4M3_VALUES = np.array([_e4m3_value(code) for code in range(256)])
E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])


def e4m3_codes(values):
    """The codes of values that e4m3 holds exactly."""
    codes = {value: code for code, value in reversed(list(enumerate(E4M3_VALUES[:0x7F])))}
    codes |= {-value: code | 0x80 for value, code in codes.items() if value != 0}
    return np.vectorize(codes.__getitem__, otypes=[np.uint8])(np.asarray(values, np.float64))


def bf16_bits(values):
    """float32 -> bf16 bits, round to nearest even (finite values)."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_values(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def pack_nibbles(codes):
    """4-bit codes along the last axis, the even one in the low half of its byte."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def exact_f32(values):
    """float64 results as float32, which must hold them exactly: the kernel's order of summation then cannot matter."""
    result = values.astype(np.float32)
    assert np.array_equal(result.astype(np.float64), values), "the reference is not exactly representable: choose smaller inputs"
    return result


def blocked_scales(scales):
    """Row-major (rows, scales) bytes -> the 128x4 tile layout: byte (r%32)*16 + (r%128)/32*4 + c%4 of tile (r/128, c/4)."""
    rows, columns = scales.shape
    padded = np.zeros((-(-rows // 128) * 128, -(-columns // 4) * 4), np.uint8)
    padded[:rows, :columns] = scales
    tiles = padded.reshape(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)  # row tile, r%128/32, r%32, column tile, c%4
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(-1)


def swizzled_offset(offset, swizzle):
    """Where byte `offset` of a tile that starts on a 1024-byte boundary goes."""
    line = offset >> 7  # number of the 128-byte line
    if swizzle == "none":
        return offset
    if swizzle == "32B":
        return offset ^ ((line & 1) << 4)
    if swizzle == "64B":
        return offset ^ ((line & 3) << 4)
    if swizzle == "128B":
        return offset ^ ((line & 7) << 4)
    if swizzle == "128B_atom_32B":
        return offset ^ ((line & 3) << 5)
    if swizzle == "128B_atom_32B_flip_8B":
        return offset ^ ((line & 3) << 5) ^ ((line & 1) << 3)
    if swizzle == "128B_atom_64B":
        return offset ^ ((line & 1) << 6)
    raise ValueError(swizzle)

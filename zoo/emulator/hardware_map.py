"""Tensor maps in the form that the hardware reads, which CuTe DSL's host functions write themselves. 64-bit words, low bits first:

    0   address
    1   4 bits: 2 | 3: rank - 1 | 4: type | 2: interleave | 2: swizzle | 1 | 1: tf32 | 2: L2 promotion | 2: swizzle's atom | 1: L2 | 10
        32: low bits of stride 1
    2   low bits of strides 2 and 3
    3   32: low bits of stride 4 | four times 4: high bits of strides 1 to 4          strides are in units of 16 bytes
    4   extents 0 and 1, less 1
    5   extents 2 and 3, less 1
    6   32: extent 4, less 1 | 24: element strides, less 1 | 8: box 0, less 1
    7   four times 8: boxes 1 to 4, less 1

These fields were found by encoding many maps with CuTe DSL 4.8. No GPU has read one of ours.
"""

import struct

from zoo.contract.tensor_map import TensorMap

_TYPES = {
    0: "u8",
    1: "u16",
    2: "u32",
    4: "u64",
    6: "f16",
    7: "f32",
    9: "f64",
    10: "bf16",
    11: "u4_align8",
    12: "u4_align16",
    13: "u6_align16",
}
_SWIZZLES = {(0, 0): "none", (1, 0): "32B", (2, 0): "64B", (3, 0): "128B", (3, 1): "128B_atom_32B"}
_FORM = 2


def decoded(data: bytes) -> bytes:
    """The same map in the emulator's form; the bytes themselves where they are no map, or have a field that is not known here."""
    address, control, middle, last, *extents = struct.unpack("<7Q", data[:56])
    boxes = [extents[2] >> 56, *data[56:60]]

    def field(start, bits):
        return control >> start & (1 << bits) - 1

    rank, kind, swizzle = field(4, 3) + 1, _TYPES.get(field(7, 4)), _SWIZZLES.get((field(13, 2), field(19, 2)))
    unknown = field(0, 4) != _FORM or field(11, 2) or field(15, 1) or field(22, 10) or extents[2] >> 32 & 0xFFFFFF
    if unknown or rank > 5 or kind is None or swizzle is None:
        return data
    low = [control >> 32, middle & 0xFFFFFFFF, middle >> 32, last & 0xFFFFFFFF]
    strides = [(bits | (last >> 32 + 4 * number & 15) << 32) * 16 for number, bits in enumerate(low)]
    dims = [(extents[number // 2] >> 32 * (number % 2) & 0xFFFFFFFF) + 1 for number in range(5)]
    return TensorMap(
        "tf32" if field(16, 1) and kind == "f32" else kind, address, tuple(dims[:rank]), tuple(strides[: rank - 1]),
        tuple(box + 1 for box in boxes[:rank]), swizzle=swizzle,
    ).to_bytes()  # fmt: skip

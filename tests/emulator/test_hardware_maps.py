"""Tensor maps in the hardware's form are read as what they were asked to be."""

import struct

import pytest

from zoo.contract.tensor_map import TensorMap
from zoo.emulator.hardware_map import decoded

# What CuTe DSL 4.8 wrote: (words, the map that it was asked for).
MAPS = [
    (
        (0x1234567800, 0x1000046312, 0, 0, 0xFF0000007F, 0, 0x3F00000000000000, 0x3F),
        TensorMap("f16", 0x1234567800, (128, 256), (256,), (64, 64), swizzle="128B"),
    ),
    (
        (0x1234567800, 0x1000240342, 0x500000001000, 0x23000, 0xFF0000007F, 0x600000004, 0xF00000000000008, 0x1020307),
        TensorMap("f16", 0x1234567800, (128, 256, 5, 7, 9), (256, 1 << 16, 5 << 16, 35 << 16), (16, 8, 4, 3, 2)),
    ),
    (
        (0x1234567800, 0x4000000240322, 0x45C00000, 0x4000000000, 0x1116F001FFFFF, 2, 0xF00000000000000, 0x13F),
        TensorMap("f16", 0x1234567800, (1 << 21, 70000, 3), (1 << 22, 70000 << 22), (16, 64, 2)),
    ),
    (
        (0x1234567800, 0x800046612, 0, 0, 0xFF000000FF, 0, 0x7F00000000000000, 0x3F),
        TensorMap("u4_align16", 0x1234567800, (256, 256), (128,), (128, 64), swizzle="128B"),
    ),
    (
        (0x1234567800, 0x20002D6392, 0, 0, 0xFF0000007F, 0, 0x1F00000000000000, 0x3F),
        TensorMap("tf32", 0x1234567800, (128, 256), (512,), (32, 64), swizzle="128B_atom_32B"),
    ),
]


@pytest.mark.parametrize(("words", "wanted"), MAPS, ids=lambda value: getattr(value, "dtype", ""))
def test_a_map_of_the_hardware_is_read(words, wanted):
    assert TensorMap.from_bytes(decoded(struct.pack("<16Q", *words, *[0xABCD] * 8))) == wanted


@pytest.mark.parametrize("bit", [1, 11, 15, 22, 31])
def test_a_map_with_an_unknown_field_is_left_alone(bit):
    words = list(MAPS[0][0])
    words[1] ^= 1 << bit
    data = struct.pack("<16Q", *words, *[0] * 8)
    assert decoded(data) == data

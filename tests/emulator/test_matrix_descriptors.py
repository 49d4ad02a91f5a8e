"""Matrix and instruction descriptors: the layouts of the PTX manual's worked examples, and refusal of what hardware does not define."""

import itertools

import numpy
import pytest

from zoo.emulator import descriptors, number_formats
from zoo.emulator.descriptors import SWIZZLE_32, SWIZZLE_64, SWIZZLE_128, SWIZZLE_128_ATOM_32, SWIZZLE_NONE, MatrixDescriptor


def nested(shape, stride, index):
    """Offset of a coordinate in one mode of a nested layout such as (8,4,2):(1,8,256)."""
    total = 0
    for extent, step in zip(shape, stride, strict=True):
        total += index % extent * step
        index //= extent
    return total


def xor_swizzle(bits, address):
    """Swizzle<bits,4,3> on a byte address."""
    return address ^ ((address >> 7 & ((1 << bits) - 1)) << 4)


# The worked examples of the PTX manual: (major, swizzle, bits of the swizzle, element bytes, LBO, SBO in elements, exact layout in elements)
EXAMPLES = [
    ("k", SWIZZLE_NONE, 0, 4, 64, 32, (((8, 2), (4, 32)), ((4, 4), (1, 64)))),
    ("k", SWIZZLE_32, 1, 4, 1, 64, (((8, 2), (8, 64)), ((4, 4), (1, 4)))),
    ("mn", SWIZZLE_NONE, 0, 2, 128, 64, (((8, 1, 2), (1, 8, 64)), ((8, 2), (8, 128)))),
    ("mn", SWIZZLE_32, 1, 2, 128, 256, (((8, 2, 2), (1, 8, 128)), ((8, 2), (16, 256)))),
    ("mn", SWIZZLE_64, 2, 2, 256, 512, (((8, 4, 2), (1, 8, 256)), ((8, 2), (32, 512)))),
]


@pytest.mark.parametrize(("major", "mode", "xor_bits", "size", "leading", "stride", "layout"), EXAMPLES)
def test_elements_lie_where_the_manual_puts_them(major, mode, xor_bits, size, leading, stride, layout):
    (mn_shape, mn_stride), (k_shape, k_stride) = layout
    mn_extent, k_extent = int(numpy.prod(mn_shape)), int(numpy.prod(k_shape))
    start = 0x2400
    if mode == SWIZZLE_32 and major == "k":
        k_extent = 8  # one 32-byte row; the manual's example runs over two atoms along K, which is two instructions
    descriptor = MatrixDescriptor(start, leading * size, stride * size, mode)
    for mn, k in itertools.product(range(mn_extent), range(k_extent)):
        expected = xor_swizzle(xor_bits, start + size * (nested(mn_shape, mn_stride, mn) + nested(k_shape, k_stride, k)))
        if major == "k":
            seen = descriptor.k_major_chunks(mn_extent, k_extent * size)[mn, k * size // 16] + k * size % 16
        else:
            seen = descriptor.mn_major_chunks(mn_extent, k_extent, size)[k, mn * size // 16] + mn * size % 16
        assert seen == expected, (mn, k)


@pytest.mark.parametrize("mode", [SWIZZLE_NONE, SWIZZLE_32, SWIZZLE_64, SWIZZLE_128, SWIZZLE_128_ATOM_32])
def test_swizzles_only_exchange_chunks_within_their_repeat(mode):
    repeat = {SWIZZLE_NONE: 16, SWIZZLE_32: 256, SWIZZLE_64: 512, SWIZZLE_128: 1024, SWIZZLE_128_ATOM_32: 512}[mode]
    addresses = numpy.arange(4096)
    moved = descriptors.swizzle(addresses, mode)
    assert (numpy.sort(moved) == addresses).all()
    assert (moved // repeat == addresses // repeat).all()
    assert (descriptors.swizzle(moved, mode) == addresses).all()


def test_the_k_advance_inside_a_128_byte_row_keeps_the_row_pattern():
    whole = MatrixDescriptor(0x4000, 0, 1024, SWIZZLE_128).k_major_chunks(16, 128)
    for step in range(4):
        part = MatrixDescriptor(0x4000 + 32 * step, 0, 1024, SWIZZLE_128).k_major_chunks(16, 32)
        assert (part == whole[:, 2 * step : 2 * step + 2]).all()


@pytest.mark.parametrize("mode", [SWIZZLE_32, SWIZZLE_64, SWIZZLE_128])
def test_a_matrix_may_start_in_any_row_of_the_pattern(mode):
    width = int(mode[:-1])
    whole = MatrixDescriptor(0x4000, 0, 8 * width, mode).k_major_chunks(32, width)
    for first in range(0, 8, 128 // width):
        part = MatrixDescriptor(0x4000 + first * width, 0, 8 * width, mode).k_major_chunks(16, width)
        assert (part == whole[first : first + 16]).all()


def wgmma_bits(start=0x2000, leading=0, stride=1024, mode=1):
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | mode << 62


def tcgen05_bits(start=0x2000, leading=0, stride=1024, mode=2):
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | mode << 61


def test_the_two_descriptor_kinds_number_their_swizzles_differently():
    for mode, swizzle in enumerate((SWIZZLE_NONE, SWIZZLE_128, SWIZZLE_64, SWIZZLE_32)):
        assert descriptors.decode_wgmma(wgmma_bits(mode=mode)).swizzle == swizzle
    for mode, swizzle in {0: SWIZZLE_NONE, 1: SWIZZLE_128_ATOM_32, 2: SWIZZLE_128, 4: SWIZZLE_64, 6: SWIZZLE_32}.items():
        descriptor = descriptors.decode_tcgen05(tcgen05_bits(mode=mode))
        assert (descriptor.swizzle, descriptor.problems) == (swizzle, ())


@pytest.mark.parametrize(
    ("decode", "bits", "word"),
    [
        (descriptors.decode_wgmma, wgmma_bits() | 1 << 14, "reserved"),
        (descriptors.decode_wgmma, wgmma_bits() | 1 << 46, "reserved"),
        (descriptors.decode_wgmma, wgmma_bits() | 1 << 55, "reserved"),
        (descriptors.decode_wgmma, wgmma_bits() | 1 << 49, "base offset"),
        (descriptors.decode_tcgen05, tcgen05_bits() ^ 1 << 46, "0b001"),
        (descriptors.decode_tcgen05, tcgen05_bits() | 1 << 47, "0b001"),
        (descriptors.decode_tcgen05, tcgen05_bits(mode=3), "layout 3"),
        (descriptors.decode_tcgen05, tcgen05_bits() | 1 << 52, "bit 52"),
        (descriptors.decode_tcgen05, tcgen05_bits() | 1 << 53, "53-60"),
        (descriptors.decode_tcgen05, tcgen05_bits() | 1 << 30, "reserved"),
    ],
)
def test_an_undefined_descriptor_is_a_problem_with_a_reason(decode, bits, word):
    assert any(word in problem for problem in decode(bits).problems)


@pytest.mark.parametrize(
    "bits", [wgmma_bits(), wgmma_bits(start=0x2060), wgmma_bits(start=0x2480), wgmma_bits(mode=0, start=0x2090, leading=128, stride=256)]
)
def test_a_well_formed_descriptor_has_no_problems(bits):
    assert descriptors.decode_wgmma(bits).problems == ()


def dense(m=128, n=64, a=0, b=0, d=1, **flags):
    extra = {"negate_a": 13, "negate_b": 14, "transpose_a": 15, "transpose_b": 16, "sparse": 2, "saturate": 3}
    return d << 4 | a << 7 | b << 10 | n >> 3 << 17 | m >> 4 << 24 | sum(1 << extra[name] for name in flags)


def scaled(m=128, n=64, a=0, b=0, power_scales=1, id_a=0, id_b=0):
    return id_b << 4 | a << 7 | b << 10 | n >> 3 << 17 | power_scales << 23 | m >> 7 << 27 | id_a << 29


def decode(bits, kind, group=1, vector=None):
    return descriptors.decode_instruction(bits, kind, group, vector)


def test_fields_of_an_instruction_descriptor():
    what = decode(dense(128, 200, 1, 4, 0, negate_b=1, transpose_a=1), "f8f6f4")
    assert (what.a, what.b, what.result, what.m, what.n, what.k) == (number_formats.E5M2, number_formats.E3M2, "f16", 128, 200, 32)
    assert (what.negate_a, what.negate_b, what.a_mn_major, what.b_mn_major) == (False, True, True, False)
    assert what.problems == ()
    what = decode(scaled(256, 240, 0, 5, id_a=3, id_b=2), "mxf8f6f4", 2, 1)
    assert (what.a, what.b, what.m, what.n, what.scale_a_id, what.scale_b_id) == (number_formats.E4M3, number_formats.E2M1, 256, 240, 3, 2)
    assert (what.scale_format, what.problems) == (number_formats.UE8M0, ())
    what = decode(scaled(128, 8, 1, 1, power_scales=0), "mxf4nvf4", 1, 4)
    assert (what.a, what.scale_format, what.k, what.problems) == (number_formats.E2M1, number_formats.UE4M3, 64, ())


@pytest.mark.parametrize(
    ("bits", "kind", "group", "vector", "word"),
    [
        (dense(m=256), "f16", 1, None, "M = 256"),
        (dense(m=64), "f16", 2, None, "M = 64"),
        (dense(n=12 * 8 + 4), "f16", 1, None, None),  # N is stored in eights: 100 reads as 96
        (dense(n=24), "f16", 2, None, "N = 24"),
        (dense(n=0), "f16", 1, None, "N = 0"),
        (dense(n=264), "f16", 1, None, "N = 264"),
        (dense(n=40, a=1, b=1, d=2), "i8", 1, None, "N = 40"),
        (dense(a=0, b=1), "f16", 1, None, "same type"),
        (dense(a=1, b=1, d=0), "f16", 1, None, "f16 result"),
        (dense(a=2, b=2, d=0), "tf32", 1, None, "result type"),
        (dense(a=2, b=0), "f8f6f4", 1, None, "type 2 of A"),
        (dense(sparse=1), "f16", 1, None, "sparsity"),
        (dense(saturate=1), "f16", 1, None, "saturation"),
        (dense(a=5, transpose_a=1), "f8f6f4", 1, None, "cannot be transposed"),
        (dense(n=24, transpose_b=1), "f8f6f4", 1, None, "N = 24"),
        (scaled(a=1, b=1), "mxf4nvf4", 1, 2, None),
        (scaled(a=1, b=1, power_scales=0), "mxf4nvf4", 1, 2, "ue4m3"),
        (scaled(a=1, b=1, power_scales=0), "mxf4", 1, 2, "ue4m3"),
        (scaled(a=1, b=1, id_a=1), "mxf4", 1, 2, "scale id 1 of A"),
        (scaled(a=1, b=1, power_scales=0, id_b=2), "mxf4nvf4", 1, 4, "scale id 2 of B"),
        (scaled(power_scales=0), "mxf8f6f4", 1, 1, "ue4m3"),
        (scaled(m=256), "mxf8f6f4", 1, 1, "M = 256"),
        (scaled() | 1 << 31, "mxf8f6f4", 1, 1, "bit 31"),
        (scaled() | 1 << 24, "mxf8f6f4", 1, 1, "24-26"),
    ],
)
def test_undefined_instruction_descriptors_are_named(bits, kind, group, vector, word):
    problems = decode(bits, kind, group, vector).problems
    if word is None:
        assert problems == ()
    else:
        assert any(word in problem for problem in problems), problems

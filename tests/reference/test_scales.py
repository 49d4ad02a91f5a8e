"""Rearranged scales against offsets computed one by one, and back."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.cases import same_bits
from zoo.reference.layouts import blocked_shape
from zoo.reference.scales import (
    blocked_column_groups_shape,
    blocked_row_groups_shape,
    columns_of_groups,
    from_blocked_column_groups,
    from_blocked_row_groups,
    mn_major_stride,
    pack_ue8m0,
    to_blocked_column_groups,
    to_blocked_row_groups,
    unpack_ue8m0,
)  # fmt: skip
from zoo.reference.small_floats import decode_e8m0

sizes_of_groups = st.lists(st.one_of(st.just(0), st.integers(0, 300), st.sampled_from([128, 256])), min_size=1, max_size=6)


def byte_of(row, column, padded_columns):
    """The blocked layout, written out: tiles of 128 x 4, 32 lines of 16 bytes."""
    tile = row // 128 * (padded_columns // 4) + column // 4
    return tile * 512 + row % 32 * 16 + row % 128 // 32 * 4 + column % 4


@settings(max_examples=30, deadline=None)
@given(sizes_of_groups, st.integers(0, 9), st.integers(0, 200))
def test_row_groups_start_at_tiles_of_their_own(sizes, columns, rest):
    offsets, rows = np.cumsum(sizes).astype(np.int32), sum(sizes) + rest
    plain = np.random.default_rng(1).integers(1, 256, (rows, columns), dtype=np.uint8)
    expected = np.zeros(np.prod(blocked_row_groups_shape(rows, columns, len(sizes))), np.uint8)
    start = row = 0
    for size in sizes:
        for i in range(size):
            for column in range(columns):
                expected[byte_of(start + i, column, -(-columns // 4) * 4)] = plain[row, column]
            row += 1
        start += -(-size // 128) * 128
    blocked = to_blocked_row_groups(plain, offsets, rows)
    assert np.array_equal(blocked, expected)
    assert np.array_equal(from_blocked_row_groups(blocked, offsets, rows, columns), plain[: offsets[-1]])


@settings(max_examples=30, deadline=None)
@given(sizes_of_groups, st.integers(0, 150), st.integers(0, 200), st.sampled_from([16, 32]))
def test_column_groups_are_matrices_one_after_the_other(sizes, rows, rest, block):
    counts = columns_of_groups(np.array(sizes), block)
    assert counts.tolist() == [len(range(0, size, block)) for size in sizes]
    plain = np.random.default_rng(2).integers(1, 256, (rows, sum(counts)), dtype=np.uint8)
    size = np.prod(blocked_column_groups_shape(rows, sum(sizes) + rest, len(sizes), block))
    expected = np.zeros(size, np.uint8)
    base = first = 0
    for count in counts:
        padded = -(-count // 4) * 4
        for row in range(rows):
            for column in range(count):
                expected[base + byte_of(row, column, padded)] = plain[row, first + column]
        base, first = base + -(-rows // 128) * 128 * padded, first + count
    blocked = to_blocked_column_groups(plain, counts, size)
    assert np.array_equal(blocked, expected)
    assert np.array_equal(from_blocked_column_groups(blocked, rows, counts), plain)


def test_scales_keep_their_dtype():
    plain = np.arange(12, dtype=np.uint8).reshape(3, 4).view(ml_dtypes.float8_e8m0fnu)
    assert to_blocked_row_groups(plain, np.array([3], np.int32), 3).dtype == plain.dtype
    assert to_blocked_column_groups(plain, np.array([4]), 512).dtype == plain.dtype


def test_columns_of_mn_major_scales_begin_at_whole_16_bytes():
    assert [mn_major_stride(rows) for rows in (0, 1, 4, 5)] == [0, 4, 4, 8]


def test_packed_words_hold_four_scales_of_a_row_the_first_in_the_lowest_byte():
    powers = np.ldexp(np.float32(1), [[0, 1, 2, -1, 127], [-126, -127, 3, 4, 5]])
    words = pack_ue8m0(powers.astype(np.float32))
    assert words.dtype == np.uint32 and words.shape == (2, 2)
    assert [hex(word) for word in words.reshape(-1)] == ["0x7e81807f", "0x83820001", "0xfe", "0x84"]
    assert unpack_ue8m0(words, 5).tolist() == [[127, 128, 129, 126, 254], [1, 0, 130, 131, 132]]


def test_every_ue8m0_survives_packing():
    scales = decode_e8m0(np.arange(256, dtype=np.uint8).reshape(32, 8))
    assert unpack_ue8m0(pack_ue8m0(scales), 8).reshape(-1).tolist() == list(range(256))


@pytest.mark.parametrize(
    ("scale", "byte"),
    [(0.0, 0), (-0.0, 255), (3.0, 255), (-2.0, 255), (np.inf, 255), (-np.inf, 255), (np.nan, 255), (2.0**-128, 255),
     (2.0**-149, 255), (np.nextafter(np.float32(1), np.float32(2)), 255), (np.finfo(np.float32).max, 255)],
)  # fmt: skip
def test_what_is_no_power_of_two_packs_as_nan_and_zero_padding_as_zero(scale, byte):
    assert pack_ue8m0(np.array([[scale]], np.float32)).tolist() == [[byte]]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_no_scales_at_all(shape):
    assert pack_ue8m0(np.zeros(shape, np.float32)).shape == (-(-shape[1] // 4), shape[0])
    assert blocked_shape(*shape)[0] == -(-shape[0] // 128) * 128


def test_unpacked_blocked_groups_round_trip_with_their_dtype():
    plain = np.random.default_rng(3).integers(0, 256, (40, 6), dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    offsets = np.array([7, 7, 40], np.int32)
    assert same_bits(from_blocked_row_groups(to_blocked_row_groups(plain, offsets, 44), offsets, 44, 6), plain)

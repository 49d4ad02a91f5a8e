"""Ragged and padded groups, against each group quantised alone and placed by hand; gathered rows."""

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import FORMATS, any_bits, bytes_of, every_blocked_format, every_format, every_layout, same_bits
from zoo.reference.block_formats import block_format
from zoo.reference.groups import gather, padded_bounds
from zoo.reference.layouts import blocked_offset, to_blocked
from zoo.reference.quantize import quantize_both, quantize_cols, quantize_rows
from zoo.reference.small_floats import pack_e2m1, unpack_e2m1

SIZES = {  # of the groups, and how many rows after them belong to nobody
    "one owns everything": ([0, 300, 0], 0),
    "many empty": ([0, 0, 1, 0, 0, 129, 0], 0),
    "aligned": ([128, 256], 0),
    "odd, last offset short of M": ([33, 1, 0, 127, 130], 45),
    "nobody owns anything": ([0, 0], 70),
    "no rows at all": ([0], 0),
}
every_size = pytest.mark.parametrize(("sizes", "rest"), SIZES.values(), ids=SIZES)


def example(format, sizes, rest):
    """x, its offsets, and its groups; NaN in some blocks and in the rows of nobody."""
    offsets = np.cumsum(sizes).astype(np.int32)
    x = any_bits((sum(sizes) + rest, 2 * format.block), ml_dtypes.bfloat16, seed=len(sizes), finite=False)
    x[offsets[-1] :] = np.nan
    return x, offsets, [x[end - size : end] for end, size in zip(offsets, sizes, strict=True)]


def unpacked(result, format):
    return unpack_e2m1(result.q) if format.packed else bytes_of(result.q)


@every_format
@every_size
def test_ragged_rows_are_the_rows_of_all_groups_and_no_others(format, sizes, rest):
    x, offsets, _ = example(format, sizes, rest)
    result, expected = quantize_rows(x, format, offsets=offsets), quantize_rows(x[: offsets[-1]], format)
    assert same_bits(result.q, expected.q) and same_bits(result.scales, expected.scales)


@every_format
@every_size
def test_ragged_cols_start_anew_with_every_group(format, sizes, rest):
    x, offsets, groups = example(format, sizes, rest)
    result, alone = quantize_cols(x, format, offsets=offsets), [quantize_cols(group, format) for group in groups]
    codes = np.concatenate([unpacked(one, format)[:, : len(group)] for one, group in zip(alone, groups, strict=True)], axis=1)
    assert np.array_equal(unpacked(result, format)[:, : offsets[-1]], codes)
    assert (unpacked(result, format)[:, offsets[-1] :] == 0).all()  # the half of a last byte
    assert same_bits(result.scales, np.concatenate([one.scales for one in alone], axis=1))


@every_format
def test_cols_of_groups_of_whole_blocks_are_the_cols_of_the_matrix(format):
    sizes = np.array([2, 0, 1, 3]) * format.block
    x, offsets, _ = example(format, sizes, 0)
    found, expected = quantize_cols(x, format, offsets=offsets.astype(np.int32)), quantize_cols(x, format)
    assert same_bits(found.q, expected.q) and same_bits(found.scales, expected.scales)


@every_layout
@every_size
def test_padded_rows_lie_at_multiples_of_128_in_zeros(format, layout, sizes, rest):
    x, offsets, groups = example(format, sizes, rest)
    rows, scale_columns = len(x) + 128 * len(sizes), x.shape[1] // format.block
    codes = np.zeros((rows, x.shape[1]), np.uint8)
    scales = np.zeros((rows, scale_columns), quantize_rows(x, format).scales.dtype)
    start = 0
    for group in groups:
        alone = quantize_rows(group, format)
        codes[start : start + len(group)] = unpacked(alone, format)
        scales[start : start + len(group)] = alone.scales
        start += -(-len(group) // 128) * 128
    result = quantize_rows(x, format, layout, offsets, padded=True)
    assert np.array_equal(bytes_of(result.q), pack_e2m1(codes) if format.packed else codes)
    arranged = {"plain": lambda s: s, "blocked": to_blocked, "mn_major": lambda s: s}[layout](scales)
    assert same_bits(result.scales, arranged)


@every_layout
@every_size
def test_padded_cols_lie_at_multiples_of_128_in_zeros(format, layout, sizes, rest):
    x, offsets, groups = example(format, sizes, rest)
    length, lines = len(x) + 128 * len(sizes), x.shape[1]
    scale_columns = -(-length // format.block)
    codes = np.zeros((lines, length + length % 2), np.uint8)
    scales = np.zeros((lines, scale_columns), quantize_cols(x, format).scales.dtype)
    blocked, start = [], 0
    for group in groups:
        alone = quantize_cols(group, format)
        codes[:, start : start + len(group)] = unpacked(alone, format)[:, : len(group)]
        first = start // format.block
        scales[:, first : first + alone.scales.shape[1]] = alone.scales
        padded = -(-len(group) // 128) * 128
        if layout == "blocked":
            blocked.append(to_blocked(scales[:, first : first + padded // format.block]))
        start += padded
    result = quantize_cols(x, format, layout, offsets, padded=True)
    assert np.array_equal(bytes_of(result.q), pack_e2m1(codes) if format.packed else codes[:, :length])
    if layout == "blocked":
        used = np.concatenate(blocked)
        size = -(-lines // 128) * 128 * (-(-scale_columns // 4) * 4)
        assert result.scales.shape == (size,) and same_bits(result.scales[: len(used)], used)
        assert (bytes_of(result.scales)[len(used) :] == 0).all()
    else:
        assert same_bits(result.scales, scales)


@every_blocked_format
@every_size
def test_blocked_scales_of_ragged_rows_keep_groups_in_tiles_of_their_own(format, sizes, rest):
    x, offsets, _ = example(format, sizes, rest)
    plain = bytes_of(quantize_rows(x, format, offsets=offsets).scales)
    result = quantize_rows(x, format, "blocked", offsets)
    # at least the padded rows; whole tiles; known from M and G alone
    padded_rows = -(-len(x) // 128) * 128 + 128 * len(sizes)
    expected = np.zeros(padded_rows * 4, np.uint8)
    start = row = 0
    for size in sizes:
        for i in range(size):
            for column in range(2):
                expected[blocked_offset(start + i, column, 4)] = plain[row, column]
            row += 1
        start += -(-size // 128) * 128
    assert np.array_equal(bytes_of(result.scales), expected)
    assert same_bits(result.q, quantize_rows(x, format, offsets=offsets).q)


@every_blocked_format
@every_size
def test_blocked_scales_of_ragged_cols_are_each_groups_own_matrix(format, sizes, rest):
    x, offsets, groups = example(format, sizes, rest)
    result = quantize_cols(x, format, "blocked", offsets)
    used = np.concatenate([quantize_cols(group, format, "blocked").scales for group in groups])
    assert same_bits(result.scales[: len(used)], used) and (bytes_of(result.scales)[len(used) :] == 0).all()
    lines = -(-x.shape[1] // 128) * 128
    assert result.scales.size == lines * (-(-len(x) // (4 * format.block)) + len(sizes)) * 4


def test_mn_major_scales_of_ragged_groups_have_the_shape_and_numbers_of_plain_ones():
    x, offsets, _ = example(block_format("fp8b128"), [33, 0, 200], 5)
    for quantize in (quantize_rows, quantize_cols):
        plain, mn_major = (quantize(x, block_format("fp8b128"), layout, offsets).scales for layout in ("plain", "mn_major"))
        assert same_bits(mn_major, plain)


@pytest.mark.parametrize("padded", [False, True])
def test_nvfp4_groups_have_tensor_scales_of_their_own(padded):
    x, offsets, groups = example(block_format("nvfp4", tensor_scale=1.0), [33, 0, 130], 7)
    x[:163] = np.random.default_rng(1).standard_normal((163, 32))
    tensor_scales = np.array([0.001, 1.0, 0.1], np.float32)
    rows, cols = quantize_both(x, block_format("nvfp4", tensor_scale=tensor_scales), "plain", offsets, padded)
    for group, scale, start in ((groups[0], 0.001, 0), (groups[2], 0.1, 128 if padded else 33)):
        one_rows, one_cols = quantize_both(group, block_format("nvfp4", tensor_scale=scale))
        part = slice(start, start + len(group))
        assert same_bits(rows.q[part], one_rows.q) and same_bits(rows.scales[part], one_rows.scales)
        codes = unpack_e2m1(cols.q)[:, part]
        assert np.array_equal(codes, unpack_e2m1(one_cols.q)[:, : len(group)])
        first = 8 if start == 128 else 3 if start else 0
        assert same_bits(cols.scales[:, first : first + one_cols.scales.shape[1]], one_cols.scales)


def test_padding_is_zero_next_to_a_nan_block_and_differs_from_a_quantised_zero():
    x = np.full((40, 256), np.nan, np.float32)
    for format in FORMATS.values():
        for quantize, axis in ((quantize_rows, 0), (quantize_cols, 1)):
            result = quantize(x, format, "plain", np.array([40], np.int32), padded=True)
            codes = np.take(unpacked(result, format), range(40, 168), axis=axis)
            assert (codes == 0).all()
            used = -(-40 // format.block) if axis else 40
            assert (bytes_of(result.scales).swapaxes(0, axis)[used:] == 0).all()


def test_padded_bounds_by_hand():
    starts, ends = padded_bounds(np.array([0, 1, 129, 129, 258], np.int32))
    assert starts.tolist() == [0, 0, 128, 256, 256] and ends.tolist() == [0, 128, 256, 256, 512]
    assert starts.dtype == ends.dtype == np.int32


@every_format
def test_gathered_rows_are_rows_of_x_and_minus_one_is_a_row_of_zeros(format):
    x = any_bits((50, 2 * format.block), ml_dtypes.bfloat16, seed=8, finite=False)
    index = np.array([3, -1, 49, 3, 0, -1], np.int32)
    result, whole = quantize_rows(gather(x, index), format), quantize_rows(x, format)
    zero = quantize_rows(np.zeros((1, x.shape[1]), x.dtype), format)
    for row, source in enumerate(index):
        expected, source = (zero, 0) if source < 0 else (whole, source)
        assert np.array_equal(bytes_of(result.q)[row], bytes_of(expected.q)[source])
        assert np.array_equal(bytes_of(result.scales)[row], bytes_of(expected.scales)[source])


@pytest.mark.parametrize("index", [[-2], [5], [2**31 - 1]])
def test_gather_refuses_rows_that_x_does_not_have(index):
    with pytest.raises(ValueError, match=r"\[-1, 5\)"):
        gather(np.zeros((5, 32)), np.array(index, np.int32))


def test_gather_of_nothing_and_from_nothing():
    assert gather(np.ones((5, 32)), np.zeros(0, np.int32)).shape == (0, 32)
    assert (gather(np.ones((0, 32)), np.array([-1, -1], np.int32)) == np.zeros((2, 32))).all()

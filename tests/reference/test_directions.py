"""Rows, cols, both, squares and stacks of matrices, against blocks quantised one by one."""

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import (
    any_bits,
    bytes_of,
    every_blocked_format,
    every_format,
    every_layout,
    every_packed_format,
    same_bits,
)  # fmt: skip
from tests.reference.exact import block as exact_block
from tests.reference.test_block_formats import rule_of
from zoo.reference.block_formats import block_format
from zoo.reference.layouts import to_blocked
from zoo.reference.quantize import (
    quantize_both,
    quantize_cols,
    quantize_rows,
    quantize_squares_both,
    quantize_squares_cols,
    quantize_squares_rows,
)  # fmt: skip
from zoo.reference.small_floats import unpack_e2m1


def codes_of(result, format, columns):
    return unpack_e2m1(result.q)[:, :columns] if format.packed else bytes_of(result.q)


@every_format
@pytest.mark.parametrize("rows", [1, 31, 32, 33, 127, 128, 257])
def test_cols_are_blocks_down_the_columns_with_a_short_last_one(format, rows):
    x = any_bits((rows, 2 * format.block), ml_dtypes.bfloat16, seed=rows)[:, :7]
    result = quantize_cols(x, format)
    codes = codes_of(result, format, rows)
    blocks = -(-rows // format.block)
    assert result.q.shape == (7, (rows + 1) // 2 if format.packed else rows) and result.scales.shape == (7, blocks)
    rule, options = rule_of(format)
    for column in range(7):
        for i in range(blocks):
            part = slice(i * format.block, (i + 1) * format.block)
            scale, expected = exact_block(x[part, column], rule, **options)
            stored = result.scales[column, i]
            assert (stored if result.scales.dtype == np.float32 else bytes_of(result.scales)[column, i]) == scale
            assert codes[column, part].tolist() == expected


@every_packed_format
def test_odd_length_leaves_the_last_high_nibble_zero(format):
    result = quantize_cols(np.full((33, 4), -6, np.float32), format)
    assert result.q.shape == (4, 17) and (result.q[:, :16] >> 4 == result.q[:, :16] & 15).all()
    assert (result.q[:, 16] >> 4 == 0).all() and (result.q[:, 16] & 15 == result.q[:, 0] & 15).all()


@pytest.mark.parametrize("pow2", [False, True])
@pytest.mark.parametrize("columns", [1, 16, 127, 129, 576])
def test_fp8b128_rows_may_end_in_a_short_block(pow2, columns):
    x = any_bits((3, columns), np.float32, seed=columns)
    result = quantize_rows(x, block_format("fp8b128", scaling="pow2" if pow2 else "exact"))
    assert result.q.shape == x.shape and result.scales.shape == (3, -(-columns // 128))
    for row in range(3):
        for i in range(result.scales.shape[1]):
            part = slice(128 * i, 128 * i + 128)
            scale, codes = exact_block(x[row, part], "fp8b128", pow2=pow2)
            assert result.scales[row, i] == np.float32(scale) and bytes_of(result.q)[row, part].tolist() == codes


@every_format
def test_both_is_rows_and_cols(format):
    x = any_bits((96, 256), ml_dtypes.bfloat16, seed=1, finite=False)
    rows, cols = quantize_both(x, format)
    for found, expected in ((rows, quantize_rows(x, format)), (cols, quantize_cols(x, format))):
        assert same_bits(found.q, expected.q) and same_bits(found.scales, expected.scales)


@every_layout
@pytest.mark.parametrize("shape", [(0, 256), (5, 0), (0, 0)])
def test_nothing_in_nothing_out(format, layout, shape):
    for quantize in (quantize_rows, quantize_cols, quantize_squares_rows, quantize_squares_cols):
        result = quantize(np.zeros(shape, np.float32), format, layout)
        assert result.q.size == 0 and result.scales.size == 0


@every_format
def test_squares_share_the_scale_of_their_largest_element(format):
    block = format.block
    x = any_bits((2 * block + 3, 2 * block), np.float32, seed=2)
    result = quantize_squares_rows(x, format)
    assert result.scales.shape == (3, 2)
    codes = codes_of(result, format, 2 * block)
    rule, options = rule_of(format)
    for i in range(3):
        for j in range(2):
            square = x[i * block : (i + 1) * block, j * block : (j + 1) * block]
            scale, expected = exact_block(square.reshape(-1), rule, **options)
            stored = result.scales[i, j] if result.scales.dtype == np.float32 else bytes_of(result.scales)[i, j]
            assert stored == scale
            found = codes[i * block : (i + 1) * block, j * block : (j + 1) * block]
            assert found.reshape(-1).tolist() == expected


@every_format
def test_squares_in_both_directions_are_the_same_numbers(format):
    x = any_bits((3 * format.block, 2 * format.block), np.float32, seed=3, finite=False)
    rows, cols = quantize_squares_both(x, format)
    assert np.array_equal(codes_of(rows, format, x.shape[1]), codes_of(cols, format, x.shape[0]).T)
    assert np.array_equal(bytes_of(rows.scales), bytes_of(cols.scales).T)


@every_blocked_format
def test_blocked_scales_of_squares_are_repeated_for_every_row(format):
    x = any_bits((2 * format.block + 5, 4 * format.block), np.float32, seed=4)
    plain, blocked = quantize_squares_rows(x, format), quantize_squares_rows(x, format, "blocked")
    row = np.arange(len(x)) // format.block
    assert same_bits(blocked.scales, to_blocked(plain.scales[row])) and same_bits(plain.q, blocked.q)


@every_format
@pytest.mark.parametrize("quantize", [quantize_rows, quantize_cols, quantize_squares_rows, quantize_squares_cols])
def test_a_stack_is_its_matrices_one_by_one(format, quantize):
    x = any_bits((3, 2 * format.block, 3 * format.block), ml_dtypes.bfloat16, seed=5, finite=False)
    for layout in format.layouts:
        stack = quantize(x, format, layout)
        for i, matrix in enumerate(x):
            one = quantize(matrix, format, layout)
            assert same_bits(stack.q[i], one.q) and same_bits(stack.scales[i], one.scales)


@pytest.mark.parametrize("quantize", [quantize_rows, quantize_cols, quantize_squares_rows, quantize_squares_cols])
def test_nvfp4_stack_has_a_tensor_scale_for_each_matrix(quantize):
    x = np.random.default_rng(6).standard_normal((3, 32, 48)).astype(np.float32)
    tensor_scales = np.array([0.001, 0.01, 1.0], np.float32)
    stack = quantize(x, block_format("nvfp4", tensor_scale=tensor_scales))
    for i in range(3):
        one = quantize(x[i], block_format("nvfp4", tensor_scale=tensor_scales[i]))
        assert same_bits(stack.q[i], one.q) and same_bits(stack.scales[i], one.scales)
    assert not np.array_equal(quantize(x, block_format("nvfp4", tensor_scale=0.001)).q, stack.q)


@every_format
def test_strided_x_is_the_same_x(format):
    wide = any_bits((40, 5 * format.block), np.float32, seed=7)
    x = wide[::2, format.block : 3 * format.block]
    for quantize in (quantize_rows, quantize_cols):
        assert same_bits(quantize(x, format).q, quantize(x.copy(), format).q)


@pytest.mark.parametrize(
    ("shape", "format", "options", "message"),
    [
        ((2, 48), block_format("mxfp8"), {}, "K = 48 is not a multiple of 32"),
        ((2, 24), block_format("nvfp4", tensor_scale=1.0), {}, "K = 24 is not a multiple of 16"),
        ((2, 128), block_format("fp8b128"), {"layout": "blocked"}, "'plain' or 'mn_major', not 'blocked'"),
        ((2, 64), block_format("nvfp4", tensor_scale=1.0), {"layout": "mn_major"}, "'plain' or 'blocked', not 'mn_major'"),
        ((64,), block_format("mxfp8"), {}, "not of 1 dimensions"),
        ((2, 64), block_format("mxfp8"), {"padded": True}, "padded needs offsets"),
        ((2, 2, 64), block_format("mxfp8"), {"offsets": np.array([2], np.int32)}, "no ragged groups"),
        ((2, 64), block_format("nvfp4", tensor_scale=[1.0, 2.0]), {}, "one for each of 1 groups"),
        ((3, 2, 64), block_format("nvfp4", tensor_scale=[1.0, 2.0]), {}, "one for each of 3 groups"),
        ((2, 64), block_format("mxfp8"), {"offsets": np.array([2, 1], np.int32)}, "must rise"),
        ((2, 64), block_format("mxfp8"), {"offsets": np.array([-1, 1], np.int32)}, "must rise"),
        ((2, 64), block_format("mxfp8"), {"offsets": np.array([3], np.int32)}, "at most the 2 rows"),
        ((2, 64), block_format("mxfp8"), {"offsets": np.array([2])}, "int32"),
        ((2, 64), block_format("mxfp8"), {"offsets": np.zeros(0, np.int32)}, "at least one group"),
    ],
)
def test_what_is_not_defined_is_refused(shape, format, options, message):
    with pytest.raises(ValueError, match=message):
        quantize_rows(np.zeros(shape, np.float32), format, **options)


def test_mxfp8_element_is_an_8_bit_one():
    with pytest.raises(ValueError, match="'e4m3' or 'e5m2', not 'e2m1'"):
        block_format("mxfp8", "e2m1")

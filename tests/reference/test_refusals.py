"""What the reference is not defined for, it refuses in a sentence: wrong words, shapes, dtypes and places, each by itself."""

import numpy as np
import pytest

from zoo.reference.block_formats import Float32, block_format, nvfp4_tensor_scale
from zoo.reference.groups import gather, group_sizes, padded_bounds, padded_rows, places
from zoo.reference.layouts import from_blocked
from zoo.reference.quantize import quantize_cols, quantize_rows, quantize_squares_cols, quantize_squares_rows
from zoo.reference.small_floats import E2M1, E4M3, encode_e2m1, encode_fp8
from zoo.reference.swiglu import swiglu
from zoo.reference.ue8m0 import scale_bytes

MX, NV = block_format("mxfp8"), block_format("nvfp4", tensor_scale=1.0)
TWO_SCALES = block_format("nvfp4", tensor_scale=[1.0, 2.0])


def zeros(*shape):
    return np.zeros(shape, np.float32)


def i32(*numbers):
    return np.array(numbers, np.int32)


REFUSED = [
    (lambda: group_sizes(np.array([1, 2]), 4), "offsets are int32, one for each of at least one group, not int64 (2,)"),
    (lambda: group_sizes([1, 2], 4), "offsets are int32, one for each of at least one group, not int64 (2,)"),
    (lambda: group_sizes(i32([1, 2]), 4), "offsets are int32, one for each of at least one group, not int32 (1, 2)"),
    (lambda: group_sizes(i32(), 4), "offsets are int32, one for each of at least one group, not int32 (0,)"),
    (lambda: group_sizes(i32(2, 1), 4), "offsets must rise from 0 to at most the 4 rows of x, not [2, 1]"),
    (lambda: group_sizes(i32(1, 5), 4), "offsets must rise from 0 to at most the 4 rows of x, not [1, 5]"),
    (lambda: group_sizes(i32(-1, 2), 4), "offsets must rise from 0 to at most the 4 rows of x, not [-1, 2]"),
    (lambda: gather(zeros(5, 2), np.array([1, 2])), "index is int32, one for each row of the result, not int64 (2,)"),
    (lambda: gather(zeros(5, 2), i32([1, 2])), "index is int32, one for each row of the result, not int32 (1, 2)"),
    (lambda: gather(zeros(5, 2), i32(0, -2)), "index must lie in [-1, 5), the rows of x"),
    (lambda: gather(zeros(5, 2), i32(5, 0)), "index must lie in [-1, 5), the rows of x"),
    (lambda: from_blocked(np.zeros(1023, np.uint8), 128, 5), "blocked scales of (128, 5) take 128 * 8 bytes, got 1023"),
    (lambda: encode_fp8(zeros(1), E2M1), "encode_fp8 encodes e4m3 and e5m2, not e2m1"),
    (lambda: encode_e2m1(np.float32([1, np.nan])), "e2m1 has no NaN: replace NaN by what the quantisation rule says before encoding"),
    (lambda: swiglu(zeros(2, 3)), "x has 3 columns, expected a multiple of 2: as many gates as ups"),
    (lambda: swiglu(zeros(2, 4), "quarters"), "order is 'halves', 'interleaved' or 'packed', not 'quarters'"),
    (lambda: scale_bytes(zeros(1), E4M3, "up"), "rounding is 'floor', 'rceil', 'even' or 'ceil', not 'up'"),
    (lambda: Float32("half").scales(zeros(1), E4M3), "scaling is 'exact' or 'pow2', not 'half'"),
    (lambda: block_format("nvfp4"), "nvfp4 takes a tensor_scale: its scales are relative to it"),
    (lambda: block_format("nvfp4", tensor_scale=1.0, rounding="floor"), "nvfp4 takes tensor_scale and smallest_scale, not rounding"),
    (lambda: block_format("mxfp8", scaling="pow2"), "mxfp8 takes rounding, not scaling"),
    (lambda: block_format("mxfp8", tensor_scale=1.0), "mxfp8 takes rounding, not tensor_scale"),
    (lambda: block_format("fp8b128", rounding="floor"), "fp8b128 takes scaling, not rounding"),
    (lambda: block_format("mxfp4", "e4m3"), "element is 'e2m1', not 'e4m3'"),
    (lambda: quantize_rows(zeros(2, 64), MX, "mn_major"), "layout is 'plain' or 'blocked', not 'mn_major'"),
    (lambda: quantize_cols(zeros(64), MX), "x is (M, K) or (E, N, K), not of 1 dimensions"),
    (lambda: quantize_rows(zeros(1, 1, 1, 64), MX), "x is (M, K) or (E, N, K), not of 4 dimensions"),
    (lambda: quantize_cols(zeros(2, 2, 64), MX, offsets=i32(2)), "x with offsets is (M, K): a stack of matrices has no ragged groups"),
    (lambda: quantize_cols(zeros(2, 64), MX, padded=True), "padded needs offsets: the groups to pad"),
    (lambda: quantize_rows(zeros(2, 64), TWO_SCALES), "tensor_scale is one number or one for each of 1 groups, not (2,)"),
    (lambda: quantize_rows(zeros(2, 64), TWO_SCALES, offsets=i32(1, 2, 2)), "tensor_scale is one number or one for each of 3 groups, not (2,)"),
    (lambda: quantize_rows(zeros(3, 2, 64), TWO_SCALES), "tensor_scale is one number or one for each of 3 groups, not (2,)"),
    (lambda: quantize_rows(zeros(2, 40), MX), "K = 40 is not a multiple of 32"),
    (lambda: quantize_squares_rows(zeros(32, 40), MX), "K = 40 is not a multiple of 32"),
    (lambda: quantize_squares_cols(zeros(32, 32), MX, "mn_major"), "layout is 'plain' or 'blocked', not 'mn_major'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[words[:60] for _, words in REFUSED])
def test_what_is_not_defined_is_refused_in_its_words(call, words):
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        call()
    assert str(refusal.value) == words


def test_what_lies_just_within_is_taken():
    assert group_sizes(i32(0, 4, 4), 4).tolist() == [0, 4, 0] and group_sizes(i32(3), 4).tolist() == [3]
    x = np.arange(1, 11, dtype=np.float32).reshape(5, 2)
    assert gather(x, i32(-1, 0, 4)).tolist() == [[0, 0], [1, 2], [9, 10]] and gather(x, i32()).shape == (0, 2)
    assert quantize_rows(zeros(2, 64), TWO_SCALES, offsets=i32(1, 2)).q.shape == (2, 32)
    assert quantize_rows(zeros(2, 2, 64), TWO_SCALES).q.shape == (2, 2, 32)
    assert quantize_rows(zeros(2, 64), block_format("nvfp4", tensor_scale=[1.0])).q.shape == (2, 32)
    assert quantize_rows(zeros(2, 100), block_format("fp8b128")).scales.shape == (2, 1)
    assert quantize_rows(zeros(3, 48), NV).scales.shape == (3, 3)


def test_padded_groups_start_and_end_at_multiples_of_128():
    starts, ends = padded_bounds(i32(0, 1, 129, 257, 386))
    assert (starts.tolist(), ends.tolist()) == ([0, 0, 128, 256, 384], [0, 128, 256, 384, 640])
    assert starts.dtype == ends.dtype == np.int32 and padded_rows(7, 3) == 7 + 3 * 128
    assert places(np.array([0, 10, 20]), np.array([2, 0, 3])).tolist() == [0, 1, 20, 21, 22]


def test_a_tensor_scale_reaches_the_largest_product_of_a_scale_and_an_element():
    assert nvfp4_tensor_scale([0, 2688, 5376, 1]).tolist() == [1, 1, 2, float(np.float32(1) / np.float32(2688))]

"""The rules on the CPU, where the numbers in a caller's arrays contradict the arrays, or an output lies on something else."""

from __future__ import annotations

import numpy
import pytest

import zoo
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.kernels import run


def zeros(dtype, *shape):
    return numpy.zeros(shape, numpy_dtype(dtype))


def product(**changes):
    """Two groups of rows by their weights: fp8b128, 8 rows, K = 128, N = 128."""
    arrays = dict(a=zeros("e4m3", 8, 128), a_scale=zeros("f32", 8, 1), b=zeros("e4m3", 2, 128, 128), b_scale=zeros("f32", 2, 1, 1))
    arrays |= dict(d=zeros("f32", 8, 128), offsets=numpy.array([4, 8], numpy.int32))
    run("gemm.fp8b128.m_grouped_contiguous", arrays | changes)


def masked(rows):
    arrays = dict(a=zeros("e4m3", 2, 4, 128), a_scale=zeros("f32", 2, 4, 1), b=zeros("e4m3", 2, 128, 128), b_scale=zeros("f32", 2, 1, 1))
    run("gemm.fp8b128.m_grouped_masked", arrays | dict(d=zeros("f32", 2, 4, 128), rows=numpy.array(rows, numpy.int32)))


def test_numbers_that_fit_are_taken():
    product()
    product(offsets=numpy.array([0, 0], numpy.int32))
    masked([0, 4])


@pytest.mark.parametrize("offsets", [[4, 3], [-1, 8], [8, 0], [-(2**31), 2**31 - 1]], ids=str)
def test_offsets_that_decrease_are_refused(offsets):
    with pytest.raises(zoo.ArgumentError, match="offsets: expected numbers that never decrease, from 0 on, got "):
        product(offsets=numpy.array(offsets, numpy.int32))


def test_offsets_past_the_last_row_are_refused():
    with pytest.raises(
        zoo.ArgumentError, match=r"gemm\.fp8b128\.m_grouped_contiguous: the numbers in its arrays do not fit them: .*8 rows"
    ):
        product(offsets=numpy.array([4, 9], numpy.int32))


@pytest.mark.parametrize("rows", [[-1, 4], [0, 5], [2**31 - 1, 0]], ids=str)
def test_more_rows_than_a_group_has_are_refused(rows):
    with pytest.raises(zoo.ArgumentError, match="rows: expected numbers of 0 to R = 4, got "):
        masked(rows)


def test_a_long_list_of_numbers_is_told_by_its_beginning():
    x, offsets = zeros("f32", 4, 128), numpy.full(1000, 2, numpy.int32)
    offsets[-1] = 1
    outputs = dict(q=zeros("e4m3", 4, 128), scales=zeros("f32", 4, 1))
    with pytest.raises(zoo.ArgumentError, match=r"got \[2, 2, 2, 2, 2, 2, 2, 2\], and more$"):
        run("quantize.fp8b128.rows.m_grouped_contiguous", dict(x=x, offsets=offsets) | outputs)


def test_an_index_past_the_rows_is_refused():
    arrays = dict(x=zeros("f32", 4, 128), q=zeros("e4m3", 4, 128), scales=zeros("f32", 4, 1), offsets=numpy.array([4], numpy.int32))
    with pytest.raises(zoo.ArgumentError, match="do not fit them: index must lie in"):
        run("quantize.fp8b128.rows.m_grouped_contiguous", arrays | dict(index=numpy.array([0, 1, 4, 2], numpy.int32)))


def test_an_output_that_lies_on_an_input_or_another_output_is_refused():
    x = zeros("f32", 4, 128)
    q, scales = zeros("e4m3", 4, 128), zeros("f32", 4, 1)
    with pytest.raises(zoo.ArgumentError, match=r"q: overlaps x, and the kernel writes q"):
        run("quantize.fp8b128.rows", dict(x=x, q=x.view(numpy_dtype("e4m3")).reshape(-1)[:512].reshape(4, 128), scales=scales))
    with pytest.raises(zoo.ArgumentError, match=r"scales: overlaps q, and the kernel writes scales"):
        run("quantize.fp8b128.rows", dict(x=x, q=q, scales=q.view(numpy.float32).reshape(-1)[:4].reshape(4, 1)))


def test_outputs_side_by_side_in_one_buffer_are_taken():
    x = numpy.ones((4, 128), numpy.float32)
    both = zeros("u8", 4, 256)
    for columns in (slice(0, 128), slice(128, 256)):
        run("quantize.fp8b128.rows", dict(x=x, q=both[:, columns], scales=zeros("f32", 4, 1)))
    assert both.all()

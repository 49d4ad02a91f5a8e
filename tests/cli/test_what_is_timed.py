"""Zeros take less power than numbers, so a kernel that is timed on them looks faster than it is."""

import numpy
import pytest

import zoo
from zoo.benchmark import measure

READ = sorted(
    {
        dtype
        for kernel in zoo.find()
        for argument in kernel.arguments.values()
        if argument.kind == "array" and not argument.written
        for dtype in argument.dtypes
    }
)


@pytest.mark.parametrize("dtype", READ)
def test_whatever_a_kernel_reads_is_drawn_or_places_in_memory(dtype):
    if dtype in ("i32", "i64"):
        return  # places and counts, which the sizes of a problem say
    numbers = measure._RANDOM[dtype](numpy.random.default_rng(0), 1000)
    assert len(numpy.unique(numbers)) > 6

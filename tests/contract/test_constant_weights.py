"""Weights are loaded before the kernel ahead has ended only where the caller says that they are constants."""

import struct

import pytest

from zoo.benchmark.arguments import describe_arguments, resolve_without_device
from zoo.contract.array import Array, contiguous_strides
from zoo.errors import ZooError
from zoo.packaged import packaged

FORMATS = ("fp8b128", "mxfp8", "nvfp4", "mxfp8_mxfp4")


def word_of_b(M, N, K, formats="fp8b128", **settings):
    """Of the parameter block: whether b is a constant."""
    kernel = packaged.kernel(f"gemm.{formats}.dense")
    arrays, keywords = describe_arguments(kernel, {"M": M, "N": N, "K": K}, settings)
    arrays = {
        name: Array((1 + place) << 40, one.dtype, one.shape, contiguous_strides(one.shape))
        for place, (name, one) in enumerate(arrays.items())
    }
    launch = resolve_without_device(kernel, {**arrays, **keywords}, None)
    (place,) = [one for one in launch.variant.launch.parameters if one.name == "b_is_constant"]
    assert place.size == 4
    return struct.unpack_from("<i", launch.logical_block(), place.offset)[0]


SIZES = [(1, 576, 7168), (16, 24576, 1536), (64, 7168, 16384), (128, 32768, 512), (4096, 4096, 7168)]  # each way of launching


@pytest.mark.parametrize("sizes", SIZES)
def test_weights_that_a_kernel_ahead_may_still_write_are_waited_for(sizes):
    assert word_of_b(*sizes) == word_of_b(*sizes, b_constant="no") == 0


@pytest.mark.parametrize("formats", FORMATS)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_promise_reaches_the_kernel(sizes, formats):
    assert word_of_b(*sizes, formats, b_constant="yes") == 1


def test_a_promise_in_other_words_is_refused():
    with pytest.raises(ZooError, match="b_constant"):
        word_of_b(1, 576, 7168, b_constant="maybe")

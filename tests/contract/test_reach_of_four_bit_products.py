"""Products with 4-bit weights up to the last size that their kernels can count, and refused in words from the next on."""

import re

import pytest

from zoo.benchmark.arguments import check_call, size_symbols
from zoo.benchmark.groups import Groups
from zoo.errors import ConstraintError
from zoo.packaged import packaged

KERNELS = {kernel.name: kernel for formats in ("nvfp4", "mxfp4") for kernel in packaged.find(f"gemm.*_{formats}.*", arch="sm_90a")}
FARTHEST = {"f32": 2**29, "bf16": 2**30}  # rows of b whose biases' bytes 31 bits count
OUT_OF_REACH = "a bias in f32 is for at most 2^29 rows of b, one in bf16 for 2^30: multiply in parts"
UNIT = 64  # rows of b: 32 gates and 32 ups, which packed weights count


def call(name, M, N, **settings):
    sizes = {"M": M, "R": M, "T": M, "N": N, "K": 64, "CODES": 32, "I": N // 2, "G": 1}
    kernel = KERNELS[name]
    check_call(kernel, {one: sizes[one] for one in size_symbols(kernel)}, settings, groups=Groups(1))


@pytest.mark.parametrize("name", KERNELS)
def test_a_bias_whose_bytes_no_kernel_could_count_is_refused(name):
    """Its address is worked out in 32 bits, so that a column further on would read what lies before it."""
    for dtype, most in FARTHEST.items():
        call(name, 8, most, bias=dtype)
        with pytest.raises(ConstraintError, match=re.escape(OUT_OF_REACH)):
            call(name, 8, most + UNIT, bias=dtype)
    call(name, 8, FARTHEST["bf16"] + UNIT)


@pytest.mark.parametrize("name", [name for name in KERNELS if ".dense" in name])
def test_more_tiles_than_are_counted_are_refused_by_the_result_that_the_caller_knows(name):
    """Where gates end in their activation 128 of them and ups are 64 columns of the result."""
    words = "the result is at most 2^27 tiles of 8 x 64" if "swiglu" in name else "d is at most 2^27 tiles of 8 x 128"
    call(name, 2**30 - 8, 128)
    with pytest.raises(ConstraintError, match=re.escape(words)):
        call(name, 2**30, 128)

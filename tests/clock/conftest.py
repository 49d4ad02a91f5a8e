"""Recordings of small calls, and their clocks: made once."""

import pytest

from zoo.benchmark.arguments import named_sizes
from zoo.clock.chip import chip_for
from zoo.clock.prediction import lengths, predicted
from zoo.clock.recorded import call_of, record
from zoo.packaged import packaged


def predicted_call(name, shape, arch, variant=None):
    kernel, chip = packaged.kernel(name), chip_for(arch)
    call = call_of(packaged, kernel, named_sizes(kernel, shape), arch, chip, variant)
    return predicted(call, [record(call, tiles) for tiles in lengths(call)])


@pytest.fixture(scope="session")
def hopper():
    """A ring of copies and two warpgroups, by an epilogue of their own."""
    return predicted_call("gemm.fp8b128.dense", (256, 128, 1024), "sm_90a", "t256_ahead")


@pytest.fixture(scope="session")
def blackwell():
    """A pair of CTAs with tensor memory."""
    return predicted_call("gemm.mxfp8.dense", (512, 256, 512), "sm_100f", "t256_w256")

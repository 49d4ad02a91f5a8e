"""Layers of published weights by the kernels, in each way that tokens and weights may take, against the published formula in float64."""

import math
from types import SimpleNamespace

import pytest

import zoo
from tests.checkpoints.kernels import UNDER_SCALES_OF_BLOCKS, WAYS, BlockLate, Layer, error
from tests.checkpoints.mistakes import through_kernels
from tests.checkpoints.published import KINDS, MARGIN, Sizes
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
GPU = SimpleNamespace(array=zoo.to_device, empty=zoo.empty)
SIZES = Sizes(intermediate=160)  # more than one block of 128, as hidden is
MISTAKEN = [pytest.param(name, made, id=f"{name}-{made.__name__}") for name in KINDS for made in through_kernels(name)]


@pytest.fixture(autouse=True)
def hopper():
    if driver.device(0).capability[0] != 9:
        pytest.skip("tokens of these formats times 4-bit weights are Hopper's")


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("name", KINDS)
def test_a_published_checkpoint_gives_the_published_layer(name, way):
    assert 0.2 < error(Layer(GPU, *way), name, SIZES) <= MARGIN


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize(("name", "mistake"), MISTAKEN)
def test_a_loader_with_a_mistake_is_out_of_the_bound(name, mistake, way):
    assert 1.5 < error(Layer(GPU, *way), name, SIZES, mistake) < math.inf


@pytest.mark.parametrize("way", UNDER_SCALES_OF_BLOCKS, ids="-".join)
@pytest.mark.parametrize("name", [name for name in KINDS if name != "gpt-oss"])  # whose limits make the largest of all blocks of h the same
def test_scales_of_tokens_that_come_a_block_late_are_out_of_the_bound(name, way):
    assert 1.5 < error(BlockLate(GPU, *way), name, SIZES) < math.inf

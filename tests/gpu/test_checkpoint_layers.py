"""Layers of published weights by the kernels, in each way that tokens and weights may take, against the published formula in float64."""

import math
from types import SimpleNamespace

import pytest

import zoo
from tests.checkpoints.kernels import WAYS, Layer, error
from tests.checkpoints.mistakes import through_kernels
from tests.checkpoints.published import KINDS, MARGIN, Sizes
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
GPU = SimpleNamespace(array=zoo.to_device, empty=zoo.empty)
MISTAKEN = [pytest.param(name, made, id=f"{name}-{made.__name__}") for name in KINDS for made in through_kernels(name)]


@pytest.fixture(autouse=True)
def hopper():
    if driver.device(0).capability[0] != 9:
        pytest.skip("tokens of these formats times 4-bit weights are Hopper's")


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("name", KINDS)
def test_a_published_checkpoint_gives_the_published_layer(name, way):
    assert 0.2 < error(Layer(GPU, *way), name, Sizes()) <= MARGIN


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize(("name", "mistake"), MISTAKEN)
def test_a_loader_with_a_mistake_is_out_of_the_bound(name, mistake, way):
    assert 1.5 < error(Layer(GPU, *way), name, Sizes(), mistake) < math.inf

"""Layers of published weights by the kernels, in each way that tokens and weights may take, against the published formula in float64."""

from types import SimpleNamespace

import pytest

import zoo
from tests.checkpoints.kernels import WAYS, Layer, error, other_order_of_gates
from tests.checkpoints.published import KINDS, MARGIN, Sizes
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
GPU = SimpleNamespace(array=zoo.to_device, empty=zoo.empty)


@pytest.fixture(autouse=True)
def hopper():
    if driver.device(0).capability[0] != 9:
        pytest.skip("tokens of these formats times 4-bit weights are Hopper's")


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("name", KINDS)
def test_a_published_checkpoint_gives_the_published_layer(name, way):
    assert 0.2 < error(Layer(GPU, *way), name, Sizes()) <= MARGIN


@pytest.mark.parametrize("way", WAYS, ids="-".join)
@pytest.mark.parametrize("name", KINDS)
def test_gates_in_another_order_are_out_of_the_bound(name, way):
    assert not error(Layer(GPU, *way), name, Sizes(), other_order_of_gates) <= 1.5

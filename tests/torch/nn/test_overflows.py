"""Counts of calls with infinities and NaN, and of the largest numbers of layers."""

from __future__ import annotations

import pytest
import torch

from tests.torch.nn.expert_layers import problem
from tests.torch.nn.test_gradients import normal
from tests.torch.nn.test_training import model
from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, Linear, count_overflows

NONE = {"x": 0, "y": 0, "dy": 0}


def test_the_layer_that_overflows_is_named_and_later_calls_do_not_hide_it():
    layers = model()
    counts = count_overflows(layers)
    for factor in (1.0, torch.inf, torch.nan, 1.0):
        (layers(normal(2, 8, 64)) * factor).sum().backward()
    assert counts.calls == {"0": {"x": 0, "y": 0, "dy": 2}, "2": {"x": 0, "y": 0, "dy": 2}}
    with torch.no_grad():
        layers(torch.full((1, 64), torch.inf))
    assert counts.calls == {"0": {"x": 1, "y": 1, "dy": 2}, "2": {"x": 1, "y": 1, "dy": 2}}
    last = str(counts).splitlines()[-1].split()
    assert last[0] == "2" and last[-4:] == ["inf", "1", "1", "2"]
    counts.reset()
    assert counts.calls == {"0": NONE, "2": NONE}


def test_the_largest_numbers_are_those_of_all_calls():
    layer, x = Linear(64, 32, dtype=torch.float16), normal(8, 64, dtype=torch.float16)
    counts = count_overflows(layer)
    ys = [layer(factor * x) for factor in (1, 3, 2)]
    ys[1].backward(torch.full_like(ys[1], 5))
    found = counts.largest[""]
    assert found == {"x": (3 * x).abs().max().item(), "y": ys[1].abs().max().item(), "dy": 5}
    counts.remove()
    layer(100 * x)
    assert counts.largest[""] == found


def test_a_result_in_f16_that_is_too_large_is_counted():
    layer = Linear(64, 32, bias=False, dtype=torch.float16)
    counts = count_overflows(layer)
    layer(x=torch.full((8, 64), 60000.0, dtype=torch.float16) * layer.weight.detach()[:1].sign())
    assert counts.calls[""] == {"x": 0, "y": 1, "dy": 0}


def test_experts_count_as_one_layer_and_their_gradients_stay():
    p = problem()
    layer = Experts.from_float(p.gate_up("halves"), p.down, "fp8b128")
    layer(p.x, p.ids, p.weights).sum().backward()
    expected, layer.down.weight.grad = layer.down.weight.grad, None
    counts = count_overflows(torch.nn.ModuleList([layer]))
    layer(p.x, p.ids, p.weights).sum().backward()
    assert counts.calls == {"0": NONE} and counts.largest["0"]["dy"] == 1
    assert torch.equal(layer.down.weight.grad, expected)


def test_counting_waits_for_no_device():
    """torch raises where the host would wait for a meta tensor's numbers."""
    layer = Linear(64, 32, device="meta")
    counts = count_overflows(layer)
    layer(torch.empty(8, 64, device="meta")).sum().backward()
    with pytest.raises((NotImplementedError, RuntimeError)):
        print(counts.calls)


def test_a_compiled_model_counts_too():
    torch._dynamo.reset()
    layers = model()
    counts = count_overflows(layers)
    compiled = torch.compile(layers, backend="aot_eager")
    for factor in (1.0, torch.inf):
        (compiled(normal(2, 8, 64)) * factor).sum().backward()
    assert counts.calls == {name: {"x": 0, "y": 0, "dy": 1} for name in ("0", "2")} and counts.largest["0"]["x"] > 1


def test_a_model_without_layers_is_refused():
    with pytest.raises(ArgumentError, match="has no layer of zoo"):
        count_overflows(torch.nn.Linear(4, 4))


def test_counts_follow_a_layer_that_gets_memory_after_counting_began():
    layer = Linear(64, 32, device="meta")
    counts = count_overflows(layer)
    layer(normal(4, 64).to("meta"))
    layer.to_empty(device="cpu").reset_parameters()
    layer(torch.full((1, 64), torch.inf))
    assert counts.calls == {"": {"x": 1, "y": 1, "dy": 0}} and counts.largest[""]["x"] == torch.inf

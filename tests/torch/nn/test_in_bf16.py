"""A layer that is switched to bf16 and back, in the middle of training."""

from __future__ import annotations

import pytest
import torch

from tests.torch.nn.expert_layers import in_float64, joined, problem
from tests.torch.nn.test_gradients import normal
from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, GroupedLinear, Linear

grouped = pytest.mark.skipif(not hasattr(torch.nn.functional, "grouped_mm"), reason="this torch has no grouped_mm")
ENDS = torch.tensor([10, 10, 20], dtype=torch.int32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_in_bf16_has_the_bits_of_torch_and_comes_back(dtype):
    layer, x = Linear(50, 30, dtype=dtype), normal(4, 6, 50, dtype=dtype)
    quantised = layer(x)
    layer.in_bf16 = True
    expected = torch.nn.functional.linear(x.bfloat16(), layer.weight.bfloat16(), layer.bias.bfloat16())
    y = layer(x)
    y.sum().backward()
    assert y.dtype == dtype and torch.equal(y, expected.to(dtype)) and not torch.equal(y, quantised)
    assert layer.weight.grad.dtype == dtype and layer._kept._forms is None
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    layer.in_bf16 = False
    assert torch.equal(layer(x), quantised)


@grouped
def test_rows_after_the_last_group_reach_nothing_in_bf16():
    layer, x = GroupedLinear(3, 50, 30), normal(24, 50)
    x[20:] = torch.nan
    x.requires_grad_()
    layer.in_bf16 = True
    y = layer(x, ENDS)
    y.square().sum().backward()
    for group, some in ((0, slice(0, 10)), (2, slice(10, 20))):
        exact = torch.nn.functional.linear(x[some], layer.weight[group], layer.bias[group])
        assert (y[some] - exact).norm() < 2.0**-7 * exact.norm()
        dw = (2 * y[some].detach()).mT @ x[some].detach()
        assert (layer.weight.grad[group] - dw).norm() < 2.0**-6 * dw.norm()
    assert not y[20:].any() and not x.grad[20:].any() and x.grad[:20].isfinite().all() and not layer.weight.grad[1].any()


def test_rows_and_offsets_that_do_not_fit_are_refused_in_bf16_as_in_the_format():
    layer, x = GroupedLinear(3, 50, 30), normal(24, 50)
    layer.in_bf16 = True
    for given, words in (
        ((x, ENDS.long()), "offsets: expected torch.int32"),
        ((x.view(2, 12, 50), ENDS), r"x: expected a matrix \(M, K\)"),
    ):
        with pytest.raises(ArgumentError, match=words):
            layer(*given)
    layer.bias = torch.nn.Parameter(torch.zeros(4, 30))
    with pytest.raises(ArgumentError, match=r"bias: expected \(3, 30\), got \(4, 30\)"):
        layer(x, ENDS)
    dense = Linear(50, 30)
    dense.in_bf16, dense.bias = True, torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(ArgumentError, match=r"bias: expected \(30,\), got \(1,\)"):
        dense(x)


@grouped
@pytest.mark.parametrize("model", [{}, {"activation": "gpt_oss", "limit": 7.0}], ids=["silu", "gpt_oss"])
def test_experts_in_bf16_are_nearer_to_float_than_their_format(model):
    p = problem(**model)
    layer = Experts.from_float(p.gate_up("halves"), p.down, "fp8b128", activation=p.activation, limit=p.limit, **p.biases("halves"))
    exact, errors = in_float64(p).float(), []
    for on in (False, True):
        layer.in_bf16 = on
        errors.append(float((layer(p.x, p.ids, p.weights).detach().float() - exact).norm() / exact.norm()))
    assert errors[1] < 0.01 < errors[0]
    layer(p.x, p.ids, p.weights).sum().backward()
    assert layer.gate_up.weight.grad[0].any() and not layer.gate_up.weight.grad[1].any()


def test_a_frozen_layer_in_bf16_is_refused():
    p = problem()
    experts = Experts.from_float(joined(p.gate, p.up, "halves"), p.down, "fp8b128", frozen=True)
    for layer, given in ((Linear(64, 32).freeze(), (normal(4, 64),)), (experts, (p.x, p.ids, p.weights))):
        layer.in_bf16 = True
        with pytest.raises(ArgumentError, match="a frozen layer has no weight in bf16; set in_bf16 = False"):
            layer(*given)


def test_a_compiled_layer_sees_the_switch():
    torch._dynamo.reset()
    layer, x = Linear(64, 32), normal(8, 64)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    quantised = compiled(x)
    layer.in_bf16 = True
    assert torch.equal(compiled(x), layer(x)) and not torch.equal(layer(x), quantised)

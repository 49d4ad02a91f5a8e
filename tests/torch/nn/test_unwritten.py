"""What kernels leave unwritten is zero on the CPU and anything on a GPU, such as NaN. No result and no gradient may depend on it."""

from __future__ import annotations

import pytest
import torch

from tests.torch.nn.expert_layers import problem
from tests.torch.nn.test_gradients import ENDS, normal
from zoo.torch import on_cpu
from zoo.torch.nn import Experts, GroupedLinear, Linear
from zoo.torch.nn.formats import FORMATS, TRAINING

every_training_format = pytest.mark.parametrize("format", TRAINING)
OFFSETS = torch.tensor(ENDS, dtype=torch.int32)


def equal_whatever_is_unwritten(monkeypatch, results) -> bool:
    found = []
    for bits in (0, -1):  # all ones are NaN in every format that has one
        monkeypatch.setattr(on_cpu, "_UNWRITTEN", bits)
        found.append(results())
    return len(found[0]) == len(found[1]) and all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def trained(layer, x: torch.Tensor, *more: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = layer(x, *more)
    return [y, *torch.autograd.grad(y, (x, *layer.parameters()), normal(*y.shape, dtype=y.dtype, seed=1))]


def experts(format: str, gates: str, frozen: bool, **model) -> tuple[Experts, tuple[torch.Tensor, ...]]:
    p = problem(**model)
    options = {"activation": p.activation, "limit": p.limit, **p.biases(gates)}
    return Experts.from_float(p.gate_up(gates), p.down, format, frozen, gates=gates, **options), (p.x, p.ids, p.weights)


@every_training_format
def test_linear_layers_train_without_it(monkeypatch, format):
    linear, grouped = Linear(100, 36, format=format), GroupedLinear(4, 100, 36, format=format)
    assert equal_whatever_is_unwritten(monkeypatch, lambda: trained(linear, normal(9, 100)))
    assert equal_whatever_is_unwritten(monkeypatch, lambda: trained(grouped, normal(48, 100), OFFSETS))


@pytest.mark.parametrize("model", [{}, {"activation": "gpt_oss", "limit": 7.0}], ids=["silu", "gpt_oss"])
@pytest.mark.parametrize("gates", ["halves", "interleaved"])
@every_training_format
def test_experts_train_without_it(monkeypatch, format, gates, model):
    layer, given = experts(format, gates, False, **model)
    assert equal_whatever_is_unwritten(monkeypatch, lambda: trained(layer, *given))


@torch.no_grad()
@pytest.mark.parametrize("format", FORMATS)
def test_frozen_layers_serve_without_it(monkeypatch, format):
    linear, grouped = Linear(100, 36, format=format), GroupedLinear(4, 100, 36, format=format)
    assert equal_whatever_is_unwritten(monkeypatch, lambda: [linear.freeze()(normal(9, 100)), grouped.freeze()(normal(48, 100), OFFSETS)])

    def served() -> list[torch.Tensor]:
        layers = (experts(format, gates, True, tokens=tokens) for gates in ("halves", "interleaved") for tokens in (20, 140))
        return [layer(*given) for layer, given in layers]  # with 140 tokens, sums of FP8 and 4 bits are not promoted

    assert equal_whatever_is_unwritten(monkeypatch, served)

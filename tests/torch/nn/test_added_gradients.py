"""Gradients of weights that GEMMs add to `weight.grad`: the numbers of autograd, without its tensors."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from tests.torch.nn.expert_layers import problem
from tests.torch.nn.test_gradients import normal
from zoo.torch.nn import Experts, GroupedLinear, Linear
from zoo.torch.nn.formats import TRAINING

every_format = pytest.mark.parametrize("format", TRAINING)
ENDS = torch.tensor([10, 10, 24], dtype=torch.int32)  # the second group has no rows


class Additions(TorchDispatchMode):
    """Counts the tensors of more than one axis that torch adds to others, as autograd does to gradients."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, given=(), named=None):
        self.count += function is torch.ops.aten.add_.Tensor and given[0].dim() > 1
        return function(*given, **(named or {}))


def layers(format: str, dtype: torch.dtype):
    """Name -> layer, and how it is run on one micro-batch."""
    p = problem()
    experts = Experts.from_float(p.gate_up("halves"), p.down, format).to(dtype)
    return {
        "Linear": (Linear(64, 96, False, format, dtype=dtype), lambda layer, seed: layer(normal(24, 64, dtype=dtype, seed=seed))),
        "GroupedLinear": (
            GroupedLinear(3, 64, 32, False, format, dtype=dtype),
            lambda layer, seed: layer(normal(24, 64, dtype=dtype, seed=seed), ENDS),
        ),
        "Experts": (experts, lambda layer, seed: layer(p.x * seed, p.ids, p.weights)),
    }


def trained(layer, run, adds: bool, batches: int = 3) -> tuple[list[torch.Tensor], int]:
    """The gradients after some micro-batches, and how many tensors torch has added."""
    layer = copy.deepcopy(layer)
    layer.add_gradients = adds
    with Additions() as additions:
        for seed in range(1, batches + 1):
            run(layer, seed).float().square().sum().backward()
    return [one.grad for one in layer.parameters()], additions.count


@pytest.mark.parametrize("kind", ["Linear", "GroupedLinear", "Experts"])
@every_format
def test_added_gradients_have_the_bits_of_autograd_in_f32_without_its_additions(format, kind):
    layer, run = layers(format, torch.float32)[kind]
    expected, by_torch = trained(layer, run, False)
    found, left = trained(layer, run, True)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert by_torch == 2 * len(found) and left == 0


@pytest.mark.parametrize("kind", ["Linear", "GroupedLinear", "Experts"])
@every_format
def test_added_gradients_in_bf16_are_rounded_once_a_micro_batch(format, kind):
    layer, run = layers(format, torch.bfloat16)[kind]
    alone = []
    for seed in range(1, 4):
        one = copy.deepcopy(layer)
        run(one, seed).float().square().sum().backward()
        alone.append([weight.grad.float() for weight in one.parameters()])
    found, left = trained(layer, run, True)
    assert left == 0
    for some, one in zip(zip(*alone, strict=True), found, strict=True):
        # the parts are rounded in `alone`, the sums twice in `one`
        allowed = 2.0**-8 * (sum(part.abs() for part in some) + 2 * sum(some[:2]).abs() + 2 * one.float().abs())
        assert one.dtype == torch.bfloat16 and ((one.float() - sum(some)).abs() <= allowed).all()


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no grad_dtype")
@pytest.mark.parametrize("kind", ["Linear", "GroupedLinear", "Experts"])
def test_weights_in_bf16_have_gradients_in_f32_where_they_ask_for_it(kind):
    layer, run = layers("fp8b128", torch.bfloat16)[kind]
    for one in layer.parameters():
        one.grad_dtype = torch.float32
    layer.add_gradients = True
    for seed in (1, 2):
        run(layer, seed).float().square().sum().backward()
    for one in layer.parameters():
        assert one.grad.dtype == torch.float32 and not torch.equal(one.grad, one.grad.bfloat16().float())


def test_an_empty_group_keeps_the_gradient_of_earlier_micro_batches():
    layer, x = GroupedLinear(3, 64, 32, False), normal(24, 64)
    layer.add_gradients = True
    layer(x, torch.tensor([8, 16, 24], dtype=torch.int32)).sum().backward()
    before = layer.weight.grad.clone()
    layer(x, ENDS).sum().backward()
    assert before[1].any() and torch.equal(layer.weight.grad[1], before[1]) and not torch.equal(layer.weight.grad[0], before[0])
    before = layer.weight.grad.clone()
    layer(x[:0], torch.zeros(3, dtype=torch.int32)).sum().backward()
    assert torch.equal(layer.weight.grad, before)


def test_memory_of_the_gradient_stays_and_a_batch_after_zero_grad_begins_again():
    layer, run = layers("fp8b128", torch.float32)["Linear"]
    layer.add_gradients = True
    run(layer, 1).sum().backward()
    first, memory = layer.weight.grad.clone(), layer.weight.grad.data_ptr()
    run(layer, 1).sum().backward()
    assert layer.weight.grad.data_ptr() == memory and torch.equal(layer.weight.grad, 2 * first)
    for to_none in (False, True):
        layer.zero_grad(set_to_none=to_none)
        run(layer, 1).sum().backward()
        assert torch.equal(layer.weight.grad, first)


def test_hooks_that_wait_for_a_gradient_still_get_it():
    layer, run = layers("fp8b128", torch.float32)["Linear"]
    other, sums, parts = copy.deepcopy(layer), [], []
    layer.weight.register_post_accumulate_grad_hook(lambda one: sums.append(one.grad.clone()))
    other.weight.register_hook(lambda gradient: parts.append(gradient.clone()))
    for one in (layer, other):
        one.add_gradients = True
        for seed in (1, 2):
            run(one, seed).sum().backward()
    assert torch.equal(sums[0], parts[0]) and torch.equal(sums[1], parts[0] + parts[1])


@pytest.mark.parametrize("kind", ["Linear", "GroupedLinear", "Experts"])
def test_a_pass_that_asks_for_other_gradients_leaves_those_of_weights_alone(kind):
    layer, run = layers("fp8b128", torch.float32)[kind]
    layer.add_gradients, factor = True, torch.ones((), requires_grad=True)
    layer.register_forward_pre_hook(lambda _, given: (given[0] * factor, *given[1:]))
    run(layer, 1).sum().backward()
    before, of_factor = [one.grad.clone() for one in layer.parameters()], factor.grad.clone()
    (asked,) = torch.autograd.grad(run(layer, 1).sum(), factor)
    run(layer, 1).sum().backward(inputs=[factor])
    assert torch.equal(asked, of_factor) and torch.equal(factor.grad, 2 * of_factor)
    assert all(torch.equal(one.grad, wanted) for one, wanted in zip(layer.parameters(), before, strict=True))
    weights = list(layer.parameters())
    asked = torch.autograd.grad(run(layer, 1).sum(), weights)
    assert all(torch.equal(one, wanted) for one, wanted in zip(asked, before, strict=True))
    run(layer, 1).sum().backward(inputs=weights[:1])
    assert torch.equal(weights[0].grad, 2 * before[0]) and all(
        torch.equal(one.grad, wanted) for one, wanted in zip(weights[1:], before[1:], strict=True)
    )


def test_gradients_that_no_gemm_can_add_to_are_added_by_autograd():
    def gradient(dtype: torch.dtype, size: int, adds: bool) -> torch.Tensor:
        torch.manual_seed(0)
        layer = Linear(50, size, False, dtype=dtype)
        layer.add_gradients = adds
        for seed in (1, 2):
            layer(normal(24, 50, dtype=dtype, seed=seed)).float().square().sum().backward()
        return layer.weight.grad

    for dtype in (torch.float32, torch.float16):  # 50 is no multiple of 16; no GEMM writes f16
        assert torch.equal(gradient(dtype, 32, True), gradient(dtype, 32, False))


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_layer_adds_once(reentrant):
    layer, run = layers("fp8b128", torch.float32)["Linear"]
    expected, _ = trained(layer, run, False)

    def checkpointed(one, seed):
        return checkpoint(one, normal(24, 64, seed=seed).requires_grad_(), use_reentrant=reentrant)

    found, left = trained(layer, checkpointed, True)
    assert torch.equal(found[0], expected[0]) and left == 0


def test_a_compiled_layer_returns_its_gradient_to_autograd():
    torch._dynamo.reset()
    layer, run = layers("fp8b128", torch.float32)["Linear"]
    expected, _ = trained(layer, run, False)
    layer.add_gradients = True
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for seed in range(1, 4):
        run(compiled, seed).float().square().sum().backward()
    assert torch.equal(layer.weight.grad, expected[0])

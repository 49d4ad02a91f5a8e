"""Transforms that layers have no rule for: each is a sentence, and no derivative is zero in silence."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch.autograd import forward_ad

from tests.torch.nn.test_gradients import normal
from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, GroupedLinear, Linear

IDS, SHARES, ENDS = torch.arange(16).view(8, 2) % 4, normal(8, 2), torch.tensor([3, 8], dtype=torch.int32)
LAYERS = {
    "linear": lambda: Linear(64, 64),
    "frozen linear": lambda: Linear(64, 64).freeze(),
    "grouped": lambda: GroupedLinear(2, 64, 64),
    "experts": lambda: Experts(4, 64, 64),
    "frozen experts": lambda: Experts(4, 64, 64, gates="interleaved").freeze(),
}


def call(layer, x, shares=SHARES):
    if isinstance(layer, Experts):
        return layer(x, IDS, shares)
    return layer(x, ENDS) if isinstance(layer, GroupedLinear) else layer(x)


def batched(layer):
    return torch.func.vmap(lambda x: call(layer, x))(normal(3, 8, 64))


def dual(layer):
    with torch.no_grad(), forward_ad.dual_level():
        call(layer, forward_ad.make_dual(normal(8, 64), normal(8, 64, seed=1)))


def rows_of_a_jacobian(layer):
    x = normal(8, 64).requires_grad_()
    y = call(layer, x)
    torch.autograd.grad(y, x, torch.ones(2, *y.shape), is_grads_batched=True)


TRANSFORMS = {
    "vmap": (batched, r"torch\.func\.vmap has no rule for layers; pass a batch as more rows"),
    "grad": (lambda one: torch.func.grad(lambda x: call(one, x).sum())(normal(8, 64)), r"torch\.func\.grad or vjp .*torch\.autograd\.grad"),
    "jvp": (
        lambda one: torch.func.jvp(lambda x: call(one, x), (normal(8, 64),), (normal(8, 64),)),
        "a forward-mode derivative has no rule",
    ),
    "dual numbers": (dual, "a forward-mode derivative has no rule"),
    "batched gradients": (rows_of_a_jacobian, r"the gradient of .*: torch\.func\.vmap has no rule"),
}


# Frozen experts give x no gradient to ask for.
@pytest.mark.parametrize(
    ("name", "transform"), [one for one in product(LAYERS, TRANSFORMS) if one != ("frozen experts", "batched gradients")]
)
def test_a_transform_of_torch_func_is_a_sentence(name, transform):
    transformed, words = TRANSFORMS[transform]
    with pytest.raises(ArgumentError, match=words):
        transformed(LAYERS[name]())


def test_a_tangent_of_a_parameter_or_of_a_routing_weight_is_not_lost():
    layer, linear = Experts(4, 64, 64), Linear(64, 64)
    with torch.no_grad(), forward_ad.dual_level():
        shares = forward_ad.make_dual(SHARES, normal(8, 2, seed=1))
        bias = forward_ad.make_dual(linear.bias.detach(), normal(64))
        for layers in (
            lambda: call(layer, normal(8, 64), shares),
            lambda: torch.func.functional_call(linear, {"bias": bias}, normal(8, 64)),
        ):
            with pytest.raises(ArgumentError, match="a forward-mode derivative has no rule"):
                layers()


def test_a_functional_call_uses_the_weights_that_it_is_given():
    layer, x = Linear(64, 32, bias=False), normal(8, 64)
    found = torch.func.functional_call(layer, {"weight": 2 * layer.weight.detach()}, x)
    assert torch.equal(found, 2 * layer(x))

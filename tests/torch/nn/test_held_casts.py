"""Casts of weights that stay in their memory: what compiled layers and CUDA graphs read after each step of an optimiser."""

from __future__ import annotations

import copy

import pytest
import torch

from tests.torch.nn.expert_layers import problem
from tests.torch.nn.test_gradients import normal
from tests.torch.nn.test_training import casts, equal, model, step  # noqa: F401
from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, GroupedLinear, Linear
from zoo.torch.nn import kept as keeping
from zoo.torch.nn.formats import FORMATS, TRAINING, Format

FORM = FORMATS["fp8b128"]
every_format = pytest.mark.parametrize("format", TRAINING)


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()


@pytest.fixture
def casts_again(monkeypatch) -> list[str]:
    found: list[str] = []
    right = Format.cast_again
    monkeypatch.setattr(Format, "cast_again", lambda *given: (found.append("again"), right(*given))[1])
    return found


def memory(layer) -> list[int]:
    return [one.data_ptr() for form in layer._kept._forms for one in (form.elements, form.scales)]


def hold(layers) -> None:
    for one in layers:
        if isinstance(one, Linear):
            one.hold_casts = True


@every_format
def test_a_compiled_model_reads_casts_that_follow_each_step(format, casts, casts_again):  # noqa: F811
    layers, x = model(format), normal(2, 8, 64)
    hold(layers)
    other, places = copy.deepcopy(layers), [memory(layers[0]), memory(layers[2])]
    compiled = torch.compile(layers, fullgraph=True, backend="aot_eager")
    optimisers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (layers, other)]
    casts.clear()
    for _ in range(2):
        for _ in range(2):
            made = list(casts)
            found = step(compiled, x, list(layers.parameters()))
            assert casts == made, "a compiled layer casts"
            assert equal(found, step(other, x, list(other.parameters())))
        for optimiser in optimisers:
            optimiser.step()
    assert [memory(layers[0]), memory(layers[2])] == places and casts_again == ["again"] * 4  # two steps of two layers


@pytest.mark.parametrize("kind", ["GroupedLinear", "Experts"])
@every_format
def test_compiled_groups_and_experts_read_held_casts(format, kind, casts):  # noqa: F811
    p = problem()
    if kind == "Experts":
        layer, x, more = Experts.from_float(p.gate_up("halves"), p.down, format), p.x, (p.ids, p.weights)
    else:
        layer, x, more = GroupedLinear(3, 64, 32, format=format), normal(24, 64), (torch.tensor([10, 10, 20], dtype=torch.int32),)
    expected = step(lambda x: layer(x, *more), x, list(layer.parameters()))
    layer.hold_casts = True
    casts.clear()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert equal(step(lambda x: compiled(x, *more), x, list(layer.parameters())), expected) and not casts


WRITES = {
    "in place": lambda layer: layer.weight.mul_(2),
    "a state": lambda layer: layer.load_state_dict({"weight": 2 * layer.weight.detach()}),
    "other memory": lambda layer: setattr(layer.weight, "data", 2 * layer.weight.detach()),
    "another parameter": lambda layer: setattr(layer, "weight", torch.nn.Parameter(2 * layer.weight.detach())),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_layer_that_is_not_compiled_sees_every_write(write):
    layer, x = Linear(64, 32, bias=False), normal(8, 64)
    layer.hold_casts = True
    with torch.no_grad():
        before = layer(x)
        WRITES[write](layer)
        assert torch.equal(layer(x), 2 * before)


@pytest.mark.parametrize("write", WRITES)
def test_a_compiled_layer_sees_writes_of_modules_at_once_and_others_when_it_is_told(write):
    layer, x = Linear(64, 32, bias=False), normal(8, 64)
    layer.hold_casts = True
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        before = compiled(x)
        WRITES[write](layer)
        if write in ("in place", "other memory"):
            layer.hold_casts = True
        assert torch.equal(compiled(x), 2 * before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_casts_that_an_evaluation_has_read_still_follow_each_step(mode):
    layer, x = Linear(64, 32), normal(8, 64)
    layer.hold_casts = True
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(x).sum().backward()
    with mode():
        layer(x)
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    assert torch.equal(compiled(x), Linear.from_float(layer)(x))


@pytest.mark.parametrize("by_name", [False, True])
def test_a_closure_reads_casts_of_the_weights_that_its_optimiser_has_just_written(by_name):
    losses = {}
    for held in (False, True):
        layer, x = model()[0], normal(8, 64)
        layer.hold_casts = held
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        optimiser = torch.optim.LBFGS(layer.parameters(), lr=0.5, max_iter=3)
        found = losses[held] = []

        def closure(layer=layer, compiled=compiled, optimiser=optimiser, found=found, x=x):
            optimiser.zero_grad()
            loss = compiled(x).square().mean()
            loss.backward()
            found.append(loss.item())
            return loss

        optimiser.step(closure=closure) if by_name else optimiser.step(closure)
    assert losses[True] == losses[False] and len(set(losses[True])) == 3


@pytest.mark.parametrize("lent_to", ["eager", "compiled"])
@pytest.mark.parametrize("kind", ["linear", "experts"])
def test_weights_that_a_functional_call_lends_do_not_replace_held_casts(kind, lent_to):
    p = problem(hidden=64, intermediate=64)
    layer = Linear(64, 64) if kind == "linear" else Experts(4, 64, 64, gates="interleaved")
    given = (p.x.float(),) if kind == "linear" else (p.x.float(), p.ids, p.weights)
    layer.hold_casts = True
    lent = {name: 2 * one.detach() for name, one in layer.named_parameters()}
    other = copy.deepcopy(layer)
    other.load_state_dict(lent)

    def borrow(lent, *given):
        return torch.func.functional_call(layer, lent, given)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    before = compiled(*given)
    if lent_to == "compiled":
        borrow = torch.compile(borrow, backend="aot_eager")
    with torch.no_grad():
        assert torch.equal(borrow(lent, *given), other(*given))
    assert torch.equal(compiled(*given), before)
    before.sum().backward()
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    assert torch.equal(compiled(*given), copy.deepcopy(layer)(*given)) and not torch.equal(compiled(*given), before)


def test_a_step_between_forward_and_backward_is_refused():
    layer, x = Linear(64, 32), normal(8, 64).requires_grad_()
    layer.hold_casts = True
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    compiled(x).sum().backward()
    y = compiled(x)
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_step_that_graphs_replay_casts_into_held_memory(monkeypatch):
    layer, x = Linear(64, 32), normal(8, 64)

    def captured_step():
        with monkeypatch.context() as capturing:
            capturing.setattr(keeping, "capturing", lambda: True)
            layer(x).sum().backward()
            torch.optim.SGD(layer.parameters(), lr=0.1).step()

    def fresh():
        return Linear.from_float(layer)(x)

    layer.hold_casts = True
    place = memory(layer)
    captured_step()
    layer.weight.data += 1  # as a replay writes: it changes no version and calls no hook
    FORM.cast_again(layer.weight.detach(), layer._kept._forms)
    assert torch.equal(layer(x), fresh()) and memory(layer) == place and layer._kept.held_forms(FORM, layer.weight) is not None
    layer.hold_casts = False
    layer.weight.data += 1
    assert torch.equal(layer(x), fresh())
    layer.hold_casts = True  # too late for the graph that was captured
    layer.weight.data += 1
    assert torch.equal(layer(x), fresh()) and layer._kept.held_forms(FORM, layer.weight) is None


def test_a_copy_and_a_layer_let_go_cast_for_themselves():
    layer = Linear(64, 32)
    layer.hold_casts = True
    assert not copy.deepcopy(layer).hold_casts and layer._kept.held_forms(FORM, layer.weight) is not None
    layer.in_bf16 = True
    layer.in_bf16 = False
    assert layer._kept.held_forms(FORM, layer.weight) is not None
    layer.hold_casts = False
    assert layer._kept.held_forms(FORM, layer.weight) is None
    with pytest.raises(ArgumentError, match="is frozen, and casts no weight"):
        layer.freeze().hold_casts = True

"""What a training loop does to layers: several micro-batches, optimisers, checkpointing, autocast, compilation."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import zoo.torch as zt
from tests.torch.nn.test_gradients import normal
from zoo.torch.nn import Experts, GroupedLinear, Linear
from zoo.torch.nn import kept as keeping
from zoo.torch.nn.formats import TRAINING, Format

every_format = pytest.mark.parametrize("format", TRAINING)


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()  # it counts what it has compiled of all tests


def model(format: str = "fp8b128", dtype: torch.dtype = torch.float32) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(Linear(64, 96, format=format, dtype=dtype), torch.nn.GELU(), Linear(96, 32, False, format, dtype=dtype))


def step(run, x: torch.Tensor, parameters) -> list[torch.Tensor]:
    """The output and all gradients."""
    for one in parameters:
        one.grad = None
    x = x.clone().requires_grad_()
    y = run(x)
    y.float().square().sum().backward()
    return [y.detach(), x.grad, *(one.grad.clone() for one in parameters)]


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(some) == len(others) and all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.fixture
def casts(monkeypatch) -> list[str]:
    """A name for each cast of a weight."""
    found: list[str] = []
    for name in ("both_ways", "squares"):
        right = getattr(Format, name)
        monkeypatch.setattr(Format, name, lambda *given, _name=name, _right=right: (found.append(_name), _right(*given))[1])
    return found


def test_weights_are_cast_once_for_all_micro_batches_of_a_step(casts):
    layers, x = model(), normal(2, 8, 64)
    optimiser = torch.optim.SGD(layers.parameters(), lr=0.1)
    for _ in range(2):
        for _ in range(3):
            layers(x.clone().requires_grad_()).sum().backward()
        optimiser.step()
        optimiser.zero_grad()
    assert casts == ["both_ways"] * 4  # two steps of two layers


@pytest.mark.parametrize("grouped", [False, True])
def test_an_evaluation_casts_once_and_leaves_the_casts_of_the_step(casts, grouped):
    layer, x = (GroupedLinear(2, 64, 32) if grouped else Linear(64, 32)), normal(8, 64).requires_grad_()
    given = (x, torch.tensor([3, 8], dtype=torch.int32)) if grouped else (x,)
    for mode in (torch.no_grad, torch.inference_mode):
        for _ in range(2):
            with mode():
                layer(*given)
    assert casts == ["squares"] * 2  # tensors of inference do not train
    for _ in range(2):
        layer(*given).sum().backward()
        with torch.no_grad():
            layer(*given)
    assert casts == ["squares"] * 2 + ["both_ways"]


WRITES = {
    "in place": lambda layer: layer.weight.mul_(2),
    "another parameter": lambda layer: setattr(layer, "weight", torch.nn.Parameter(2 * layer.weight.detach())),
    "a state": lambda layer: layer.load_state_dict({"weight": 2 * layer.weight.detach()}),
    "an assigned state": lambda layer: layer.load_state_dict({"weight": 2 * layer.weight.detach()}, assign=True),
    "other memory": lambda layer: setattr(layer.weight, "data", 2 * layer.weight.detach()),
    "a module's cast": lambda layer: layer.to(torch.float64).to(torch.float32).weight.mul_(2),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_changed_weight_is_cast_again(write):
    layer, x = Linear(64, 32, bias=False), normal(8, 64)
    with torch.no_grad():
        before = layer(x)
        WRITES[write](layer)
        assert torch.equal(layer(x), 2 * before)


@torch.no_grad()
def test_other_memory_at_the_address_of_the_last_is_cast_again():
    layer, x = Linear(64, 32, bias=False), normal(8, 64)
    numbers = layer.weight.numpy().copy()
    layer.weight.data = torch.from_numpy(numbers)
    before = layer(x)
    numbers *= 2
    layer.weight.data = torch.from_numpy(numbers)  # as an allocator gives freed memory to the next tensor
    assert torch.equal(layer(x), 2 * before)


@torch.no_grad()
def test_the_transpose_in_the_memory_of_a_weight_is_cast_again():
    layer, x = Linear(64, 64, bias=False), normal(8, 64)
    layer(x)
    layer.weight.data = layer.weight.data.t()
    assert torch.equal(layer(x), Linear.from_float(layer)(x))


def test_an_optimiser_that_writes_past_versions_is_seen():
    class Copies(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            for one in self.param_groups[0]["params"]:
                one.data.copy_(torch.zeros_like(one))  # as optimisers with copies of the weights do; no version counts it

    layer, x = Linear(64, 32, bias=False), normal(8, 64)
    layer(x).sum().backward()
    Copies(layer.parameters(), lr=0.1).step()
    assert not layer(x).any()


def test_a_teacher_that_is_averaged_after_a_step_is_cast_again():
    (teacher, student), x = (Linear(64, 32, bias=False) for _ in range(2)), normal(8, 64)
    teacher.weight.requires_grad_(False)
    optimiser = torch.optim.SGD(student.parameters(), lr=0.1)
    before = teacher(x)
    student(x).sum().backward()
    optimiser.step()
    teacher.weight.data *= 2  # no version counts it
    assert torch.equal(teacher(x), 2 * before)


@pytest.mark.parametrize("held", [False, True])
@torch.no_grad()
def test_a_merge_into_a_weight_that_does_not_train_is_cast_again(held):
    layer, x = Linear(64, 32, bias=False), normal(8, 64)
    layer.weight.requires_grad_(False)  # as below an adapter
    layer.hold_casts = held
    before = layer(x)
    layer.weight.data *= 2  # no version counts it
    zt.nn.renew_casts()
    assert torch.equal(layer(x), 2 * before)


def test_all_layers_watch_optimisers_by_one_hook():
    from torch.optim.optimizer import _global_optimizer_post_hooks as hooks

    counts = [(Linear(16, 16), len(hooks))[1] for _ in range(2)]
    assert counts[0] == counts[1] > 0


def test_a_step_that_graphs_replay_leaves_no_old_cast(monkeypatch):
    layer, x = Linear(32, 16), normal(4, 32)
    layer(x).sum().backward()
    with monkeypatch.context() as capturing:
        capturing.setattr(keeping, "capturing", lambda: True)
        torch.optim.SGD(layer.parameters(), lr=0.1).step()
    layer(x)
    layer.weight.data += 1  # as a replay writes: it changes no version and calls no hook
    assert torch.equal(layer(x), Linear.from_float(layer)(x))


def test_weights_made_in_inference_mode_are_refused_as_torch_refuses_them():
    with torch.inference_mode():
        layers = Linear(64, 32), Experts(2, 64, 128)
    x = normal(8, 64).requires_grad_()
    for layer, more in zip(layers, ((), (torch.zeros(8, 1).int(), torch.ones(8, 1))), strict=True):
        with pytest.raises(RuntimeError, match=r"Inference tensors cannot be saved for backward.* make a clone"):
            layer(x, *more)


def test_what_inference_mode_has_cast_does_not_reach_training():
    layers, x = model(), normal(8, 64)
    expected = step(layers, x, list(layers.parameters()))
    with torch.inference_mode():
        layers(x)
    assert equal(step(layers, x, list(layers.parameters())), expected)
    with torch.inference_mode():
        fresh = model()
        assert torch.equal(fresh(x), expected[0])
        fresh[0].weight.zero_()
        assert not torch.equal(fresh(x), expected[0])


def test_a_kept_cast_belongs_to_one_weight():
    one = keeping.Kept()
    form = zt.nn.formats.FORMATS["fp8b128"]
    first, second = normal(32, 64), normal(32, 64, seed=1)
    found = one(form, first, True)
    assert one(form, first, False) is found and one(form, second, False) is not found
    assert one(form, first, False)[1] is None and one(form, first, True)[1] is not None


def test_another_stream_casts_for_itself(casts, monkeypatch):
    """It would not wait for the cast that the first stream has queued."""
    layer, x = Linear(64, 32), normal(8, 64)
    for stream in (1, 1, 2, 2):
        monkeypatch.setattr(keeping, "_stream", lambda weight, stream=stream: stream)
        layer(x).sum().backward()
    assert casts == ["squares"] * 2
    monkeypatch.undo()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=f"a stream of {device}"))
    assert keeping._stream(SimpleNamespace(is_cuda=True, device="cuda:1")) == "a stream of cuda:1"


@every_format
def test_gradients_of_micro_batches_add_up(format):
    layers, parts = model(format), [normal(8, 64, seed=seed) for seed in range(2)]
    parameters = list(layers.parameters())
    alone = [step(layers, x, parameters)[2:] for x in parts]
    for one in parameters:
        one.grad = None
    for x in parts:
        layers(x).float().square().sum().backward()
    assert equal([one.grad for one in parameters], [a + b for a, b in zip(*alone, strict=True)])


@pytest.mark.parametrize("reentrant", [False, True])
@every_format
def test_a_checkpointed_layer_has_the_same_bits(format, reentrant):
    layers, x = model(format), normal(2, 8, 64)
    parameters = list(layers.parameters())
    again = step(lambda x: checkpoint(layers, x, use_reentrant=reentrant), x, parameters)
    assert equal(again, step(layers, x, parameters))


@pytest.mark.parametrize(("saved", "compiled"), [("gemm", False), ("", False), ("gemm", True)], ids=["GEMMs", "all", "GEMMs, compiled"])
@every_format
def test_a_selective_checkpoint_has_the_bits_of_groups_whose_results_it_saves(format, saved, compiled):
    layers = torch.nn.ModuleList(GroupedLinear(3, 64, 64, bias, format) for bias in (True, False))
    x, ends = normal(24, 64), torch.tensor([10, 10, 20], dtype=torch.int32)

    def run(x):
        return layers[1](layers[0](x, ends).tanh(), ends).tanh()

    def policy(_, function, *given, **named):
        return CheckpointPolicy.MUST_SAVE if saved in str(function) else CheckpointPolicy.PREFER_RECOMPUTE

    def selective(x):
        return checkpoint(run, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy))

    parameters = list(layers.parameters())
    found, expected = step(torch.compile(selective, fullgraph=True) if compiled else selective, x, parameters), step(run, x, parameters)
    near = {"rtol": 0.02, "atol": 0.02} if compiled else {"rtol": 0, "atol": 0}  # code of tanh
    assert all(torch.allclose(one, other, **near) for one, other in zip(found, expected, strict=True))


def test_casts_are_kept_for_all_micro_batches_of_a_checkpointed_layer(casts):
    """A checkpoint's backward pass reads a copy of the weight."""
    x, ids, weights = normal(8, 64), torch.arange(16).view(8, 2) % 4, normal(8, 2)
    for layer, more, count in ((Linear(64, 32), (), 1), (zt.nn.Experts(4, 64, 128), (ids, weights), 2)):
        for _ in range(3):
            checkpoint(layer, x.clone().requires_grad_(), *more, use_reentrant=False).sum().backward()
        assert casts == ["both_ways"] * count
        casts.clear()


@pytest.mark.parametrize("renews", [False, True])
@every_format
def test_a_cast_in_one_of_two_forward_passes_takes_no_result_that_a_selective_checkpoint_saves(format, renews):
    layer, x = Linear(72, 40, format=format), normal(24, 72)  # one operator fills up x and the weight

    def selective(x):
        def policy(*_, **named):
            return CheckpointPolicy.MUST_SAVE

        y = checkpoint(layer, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy))
        if renews:
            zt.nn.renew_casts()
        return y

    parameters = list(layer.parameters())
    found = step(selective, x, parameters), step(selective, x, parameters)
    assert all(equal(one, step(layer, x, parameters)) for one in found)


@every_format
def test_a_compiled_layer_has_the_same_bits(format):
    layers, x = model(format), normal(2, 8, 64)
    parameters, expected = list(layers.parameters()), None
    compiled = torch.compile(layers, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        found, expected = step(compiled, x, parameters), step(layers, x, parameters)
        assert equal(found, expected)
        with torch.no_grad():  # a compiled layer sees that weights change
            layers[0].weight.mul_(0.5)
    layers[0].freeze(), layers[2].freeze()
    assert equal(step(compiled, x, []), step(layers, x, []))


@every_format
def test_a_compiled_grouped_layer_has_the_same_bits(format):
    layer, x, ends = GroupedLinear(3, 64, 32, format=format), normal(24, 64), torch.tensor([10, 10, 20], dtype=torch.int32)
    parameters = list(layer.parameters())
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert equal(step(lambda x: compiled(x, ends), x, parameters), step(lambda x: layer(x, ends), x, parameters))


@pytest.mark.parametrize(("format", "trains"), [("mxfp8", True), *((one, False) for one in ("mxfp8", "mxfp4", "mxfp8_mxfp4"))])
def test_a_grouped_layer_with_scales_in_ue8m0_is_compiled_to_code(format, trains):
    layer, x, ends = GroupedLinear(3, 64, 32, format=format), normal(24, 64), torch.tensor([10, 10, 20], dtype=torch.int32)
    compiled = torch.compile(layer, fullgraph=True)
    if trains:
        parameters = list(layer.parameters())
        assert equal(step(lambda x: compiled(x, ends), x, parameters), step(lambda x: layer(x, ends), x, parameters))
    with torch.no_grad():
        layer.freeze()
        assert torch.equal(compiled(x, ends), layer(x, ends))


def test_a_layer_compiled_to_code_for_any_number_of_rows_has_the_same_bits():
    layers = model()
    parameters = list(layers.parameters())
    compiled = torch.compile(lambda x: checkpoint(layers, x, use_reentrant=False), fullgraph=True, dynamic=True)
    for rows in (16, 24):
        x = normal(rows, 64)
        found, expected = step(compiled, x, parameters), step(layers, x, parameters)
        assert all(torch.allclose(one, other, rtol=1e-3, atol=1e-3) for one, other in zip(found, expected, strict=True))  # code of GELU


@pytest.mark.parametrize("compiled", [False, True])
@every_format
def test_autocast_gives_its_dtype_and_masters_their_gradients(format, compiled):
    layers, x = model(format), normal(2, 8, 64)
    run = torch.compile(layers, fullgraph=True, backend="aot_eager") if compiled else layers
    with torch.autocast("cpu", torch.bfloat16):
        y = run(x)
        exact = torch.nn.functional.linear(x, layers[0].weight, layers[0].bias)
    y.sum().backward()
    assert y.dtype == exact.dtype == torch.bfloat16 and layers[0].weight.grad.dtype == torch.float32
    assert model(format, torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16 and model(format)(x).dtype == torch.float32


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}], ids=["fused", "foreach"])
@every_format
def test_a_model_learns_with_clipped_gradients_and_optimisers_of_one_kernel(format, options):
    layers, teacher, x = model(format, torch.bfloat16), torch.nn.Linear(64, 32), normal(64, 64)
    wanted = teacher(x).detach()
    optimiser, losses = torch.optim.AdamW(layers.parameters(), lr=1e-2, **options), []
    for _ in range(12):
        loss = (layers(x.bfloat16()).float() - wanted).square().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    assert norm.isfinite() and losses[-1] < 0.5 * losses[0]


def test_an_output_may_be_changed_in_place():
    layer, x = Linear(64, 64), normal(2, 8, 64).requires_grad_()
    y = layer(x)
    y += x
    y.sum().backward()
    assert not y._is_view() and x.grad.isfinite().all()


def test_a_weight_changed_between_forward_and_backward_is_refused():
    layer, x = Linear(64, 32), normal(8, 64).requires_grad_()
    y = layer(x)
    with torch.no_grad():
        layer.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_importing_zoo_torch_imports_no_layer():
    code = "import sys, zoo.torch; print('zoo.torch.nn' in sys.modules, zoo.torch.nn.Linear.__name__, zoo.torch.quantize_.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "Linear", "quantize_"]

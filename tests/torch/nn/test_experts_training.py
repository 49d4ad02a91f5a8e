"""Experts that train: gradients beside float64, and what training code does with layers."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.expert_layers import Problem, joined, problem  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch.nn import Experts, experts_serving, experts_training  # noqa: E402
from zoo.torch.nn.formats import TRAINING  # noqa: E402

# The relative error of a normal number: measured by the quantiser's rule on normal numbers, in two digits. Each gradient is a product of
# factors with at most ROUNDINGS roundings of their own, such as dw1 = (dy w2) silu'(x w1) x: dy, w2, x, w1, the product d_h, and x.
ERROR = {"fp8b128": 0.027, "mxfp8": 0.028, "nvfp4": 0.10}
ROUNDINGS, MARGIN = 6, 1.25


def layer_of(p: Problem, format="fp8b128", gates="halves", **options):
    options = {"activation": p.activation, "limit": p.limit, **options}
    return Experts.from_float(p.gate_up(gates), p.down, format, gates=gates, **p.biases(gates), **options)


def parameters(layer):
    found = {"gate_up": layer.gate_up.weight, "down": layer.down.weight}
    return found if layer.down.bias is None else {**found, "gate_up_bias": layer.gate_up.bias, "down_bias": layer.down.bias}


def gradients(layer, p: Problem, dy):
    x, weights = p.x.clone().requires_grad_(), p.weights.clone().requires_grad_()
    given = {"x": x, "weights": weights, **parameters(layer)}
    return dict(zip(given, torch.autograd.grad(layer(x, p.ids, weights), tuple(given.values()), dy), strict=True))


def in_float64(p: Problem, dy, gates="halves"):
    given = {"x": p.x, "weights": p.weights, "gate": p.gate, "up": p.up, "down": p.down}
    biases = {"gate_bias": p.gate_bias, "up_bias": p.up_bias, "down_bias": p.down_bias}
    given |= {name: one for name, one in biases.items() if one is not None}
    given = {name: one.double().requires_grad_() for name, one in given.items()}
    q = replace(p, **given)
    g, u = (q.x @ one.mT for one in (q.gate, q.up))
    if q.gate_bias is not None:
        g, u = g + q.gate_bias[:, None], u + q.up_bias[:, None]
    if q.limit is not None:
        g, u = g.clamp(max=q.limit), u.clamp(-q.limit, q.limit)
    h = g * torch.sigmoid(1.702 * g) * (u + 1) if q.activation == "gpt_oss" else torch.nn.functional.silu(g) * u
    d = h @ q.down.mT + (0 if q.down_bias is None else q.down_bias[:, None])
    chosen = d[q.ids.clamp(min=0), torch.arange(len(q.x))[:, None]]
    y = (torch.where(q.ids >= 0, q.weights, 0)[..., None] * chosen).sum(1)
    found = dict(zip(given, torch.autograd.grad(y, tuple(given.values()), dy.double()), strict=True))
    found["gate_up"] = joined(found.pop("gate"), found.pop("up"), gates)
    if q.gate_bias is not None:
        found["gate_up_bias"] = joined(found.pop("gate_bias"), found.pop("up_bias"), gates)
    return found


def off(found, wanted):
    return {name: float((found[name].double() - one).norm() / one.norm()) for name, one in wanted.items()}


def drawn(p: Problem):
    return torch.randn(p.x.shape, generator=torch.Generator().manual_seed(1)).bfloat16()


CASES = [
    ("fp8b128", "halves", {}),
    ("fp8b128", "interleaved", {}),
    ("fp8b128", "interleaved", {"activation": "gpt_oss", "limit": 7.0}),
    ("mxfp8", "halves", {"activation": "deepseek_v4", "limit": 10.0}),
    ("nvfp4", "halves", {}),
]


@pytest.mark.parametrize(("format", "gates", "model"), CASES)
def test_gradients_are_off_by_their_roundings_and_by_no_mistake(format, gates, model):
    p = problem(**model)
    dy = drawn(p)
    found = gradients(layer_of(p, format, gates), p, dy)
    allowed = MARGIN * (ROUNDINGS**0.5) * ERROR[format]
    errors = off(found, in_float64(p, dy, gates))
    assert max(errors.values()) <= allowed, errors
    mistakes = {
        "routing weights left out": (replace(p, weights=torch.ones_like(p.weights)), {"x", "gate_up", "down"}),
        "gates and ups swapped": (replace(p, gate=p.up, up=p.gate), {"x", "gate_up", "down", "weights"}),
        "the next expert": (replace(p, ids=torch.where(p.ids < 0, -1, (p.ids + 1) % 4)), {"x", "gate_up", "down", "weights"}),
        "dropped choices kept": (replace(p, ids=p.ids.clamp(min=0)), {"x", "gate_up", "down"}),
    }
    for name, (mutant, touched) in mistakes.items():
        errors = off(found, {one: value for one, value in in_float64(mutant, dy, gates).items() if one in touched})
        assert min(errors.values()) > allowed, (name, errors)


@pytest.mark.parametrize("format", TRAINING)
def test_an_expert_without_tokens_gets_zeros_and_a_dropped_choice_no_gradient(format):
    p = problem()
    found = gradients(layer_of(p, format), p, drawn(p))
    assert not found["gate_up"][1].any() and not found["down"][1].any() and found["down"][0].any()
    assert not found["weights"][p.ids < 0].any() and found["weights"][p.ids >= 0].all()


@pytest.mark.parametrize("format", TRAINING)
def test_no_token_and_no_kept_choice_give_zeros(format):
    p = problem()
    for some in (replace(p, x=p.x[:0], ids=p.ids[:0], weights=p.weights[:0]), replace(p, ids=torch.full_like(p.ids, -1))):
        found = gradients(layer_of(p, format), some, drawn(some))
        assert not any(one.any() for one in found.values())
        assert {name: one.shape for name, one in found.items() if name in ("x", "weights")} == {
            "x": some.x.shape,
            "weights": some.ids.shape,
        }


class Unwritten:
    """Operators whose outputs have NaN in the rows behind the last group, as a GPU may leave them."""

    def __init__(self, ops):
        self.ops = ops

    def __getattr__(self, name):
        operator = getattr(self.ops, name)
        if "_m_grouped_gather" not in name and "_m_grouped_contiguous" not in name:
            return operator

        def poisoned(*given, **named):
            found = operator(*given, **named)
            offsets = named.get("offsets", next((one for one in given if one.dtype == torch.int32 and one.shape == (4,)), None))
            for one in found if isinstance(found, tuple) else (found,):
                if one.shape[0] == 2 * 20:  # rows, and no blocked scales
                    one[int(offsets[-1]) :].view(torch.uint8).fill_(0xFF)  # NaN in every format
            return found

        return poisoned


@pytest.mark.parametrize("gates", ["halves", "interleaved"])
def test_rows_that_no_kernel_wrote_reach_no_result_and_no_gradient(monkeypatch, gates):
    p = problem()
    layer, dy = layer_of(p, gates=gates), drawn(p)
    wanted, y = gradients(layer, p, dy), layer(p.x, p.ids, p.weights)
    for module in (experts_training, experts_serving):
        monkeypatch.setattr(module, "ops", Unwritten(torch.ops.zoo))
    found = gradients(layer, p, dy)
    assert all(torch.equal(found[name], one) for name, one in wanted.items())
    assert torch.equal(layer(p.x, p.ids, p.weights), y)
    frozen = layer_of(p, "fp8b128", gates).freeze()
    wrong = frozen(p.x, p.ids, p.weights)
    monkeypatch.undo()
    assert torch.equal(frozen(p.x, p.ids, p.weights), wrong)


def test_nan_of_a_routing_weight_stays_in_its_token_and_its_experts():
    p = problem()
    weights = p.weights.clone()
    weights[7, 0] = float("nan")
    found = gradients(layer_of(p), replace(p, weights=weights), drawn(p))
    wanted = gradients(layer_of(p), p, drawn(p))
    others = [token for token in range(20) if token != 7]
    assert torch.equal(found["x"][others], wanted["x"][others]) and found["x"][7].isnan().any()
    untouched = [expert for expert in range(4) if expert != int(p.ids[7, 0])]
    assert torch.equal(found["gate_up"][untouched], wanted["gate_up"][untouched])


@pytest.mark.parametrize("format", TRAINING)
def test_a_compiled_layer_has_the_gradients_of_the_layer(format):
    p = problem()
    layer, dy = layer_of(p, format), drawn(p)
    wanted = gradients(layer, p, dy)
    torch._dynamo.reset()
    found = gradients(torch.compile(layer, fullgraph=True, backend="aot_eager"), p, dy)
    assert all(torch.equal(found[name], one) for name, one in wanted.items())


def test_a_checkpointed_layer_has_the_gradients_of_the_layer():
    from torch.utils.checkpoint import checkpoint

    p = problem()
    layer, dy = layer_of(p), drawn(p)
    wanted = gradients(layer, p, dy)
    again = torch.nn.Module()
    again.gate_up, again.down, again.forward = layer.gate_up, layer.down, lambda *given: checkpoint(layer, *given, use_reentrant=False)
    found = gradients(again, p, dy)
    assert all(torch.equal(found[name], one) for name, one in wanted.items())


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_choice_that_flips_when_it_is_recomputed_changes_no_shape(reentrant):
    """Logits that tie, of which a recomputed router picks others."""
    from torch.utils.checkpoint import checkpoint

    p, calls = problem(), []
    layer, x = layer_of(p), p.x.float().requires_grad_()
    flipped = torch.where(p.ids < 0, p.ids, 3 - p.ids)

    def block(x):
        calls.append(None)
        return layer(x, p.ids if len(calls) == 1 else flipped, p.weights)

    y = checkpoint(block, x, use_reentrant=reentrant)
    assert torch.equal(y, layer(x, p.ids, p.weights)) and not torch.equal(y, layer(x, flipped, p.weights))
    y.sum().backward()
    found, x.grad = [x.grad, layer.down.weight.grad.clone()], None
    layer.zero_grad()
    layer(x, flipped, p.weights).sum().backward()
    assert len(calls) == 2 and torch.equal(found[0], x.grad) and torch.equal(found[1], layer.down.weight.grad)


def test_weights_are_cast_anew_after_each_step_and_gradients_add_up():
    p = problem()
    layer, dy = layer_of(p), drawn(p)
    for _ in range(2):
        layer(p.x, p.ids, p.weights).backward(dy)
    once = gradients(layer, p, dy)
    assert torch.equal(layer.down.weight.grad, 2 * once["down"]) and torch.equal(layer.gate_up.weight.grad, 2 * once["gate_up"])
    before = layer(p.x, p.ids, p.weights)
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    fresh = Experts.from_float(layer.gate_up.weight, layer.down.weight)
    after = layer(p.x, p.ids, p.weights)
    assert torch.equal(after, fresh(p.x, p.ids, p.weights)) and not torch.equal(after, before)


@pytest.mark.parametrize("frozen", ["gate_up", "down", "both"])
def test_weights_without_gradients_cost_none_and_change_no_other(frozen):
    p = problem()
    layer, dy = layer_of(p), drawn(p)
    wanted = gradients(layer, p, dy)
    for name in ("gate_up", "down") if frozen == "both" else (frozen,):
        getattr(layer, name).weight.requires_grad_(False)
    x, weights = p.x.clone().requires_grad_(), p.weights.clone().requires_grad_()
    layer(x, p.ids, weights).backward(dy)
    assert torch.equal(x.grad, wanted["x"]) and torch.equal(weights.grad, wanted["weights"])
    assert getattr(layer, "down" if frozen == "both" else frozen).weight.grad is None


@pytest.mark.parametrize("format", ["fp8b128", "mxfp8"])
def test_gradients_have_the_dtypes_of_their_tensors(format):
    p = problem()
    layer = layer_of(p, format).to(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(layer, replace(p, x=p.x.float(), weights=p.weights.bfloat16()), drawn(p))
    assert found["x"].dtype == torch.float32
    assert {found[name].dtype for name in ("weights", "gate_up", "down")} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(("format", "model"), [("fp8b128", {}), ("fp8b128", {"activation": "gpt_oss", "limit": 7.0}), ("mxfp8", {})])
def test_tokens_of_every_dtype_train_alike(format, model, dtype):
    p = problem(**model)
    layer, dy = layer_of(p, format), drawn(p)
    wanted = gradients(layer, p, dy)
    found = gradients(layer, replace(p, x=p.x.to(dtype)), dy.to(dtype))
    assert found["x"].dtype == dtype and torch.equal(found["x"].bfloat16(), wanted["x"])
    assert all(torch.equal(found[name], one) for name, one in wanted.items() if name != "x")
    with torch.autocast("cpu", torch.float16):
        assert layer(p.x.float(), p.ids, p.weights).dtype == torch.float16


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stays_in_its_token_and_its_experts(bad):
    p = problem(activation="gpt_oss", limit=7.0)
    layer, dy = layer_of(p), drawn(p)
    wanted = gradients(layer, p, dy)
    dy[7, 3] = bad
    found = gradients(layer, p, dy)
    others = [token for token in range(20) if token != 7]
    untouched = [expert for expert in range(4) if expert not in p.ids[7].tolist()]
    assert untouched and all(torch.equal(found[name][others], wanted[name][others]) for name in ("x", "weights"))
    assert all(torch.equal(found[name][untouched], one[untouched]) for name, one in wanted.items() if name not in ("x", "weights"))


def test_a_shared_expert_trains_beside_the_others():
    p = problem()
    shared = torch.nn.Linear(128, 128, bias=False, dtype=torch.bfloat16)
    layer, dy = layer_of(p, shared=shared), drawn(p)
    found, alone = gradients(layer, p, dy), gradients(layer_of(p), p, dy)
    layer(p.x, p.ids, p.weights).backward(dy)
    assert torch.equal(shared.weight.grad, dy.mT @ p.x)
    assert torch.equal(found["gate_up"], alone["gate_up"]) and not torch.equal(found["x"], alone["x"])


def test_the_ranks_of_an_expert_parallel_layer_have_the_gradients_of_their_experts():
    p = problem()
    dy, whole = drawn(p), gradients(layer_of(p), p, drawn(p))
    for first in (0, 2):
        here = replace(p, gate=p.gate[first : first + 2], up=p.up[first : first + 2], down=p.down[first : first + 2])
        found = gradients(layer_of(here, first=first, total=4), p, dy)
        assert torch.equal(found["gate_up"], whole["gate_up"][first : first + 2])
        kept = (p.ids >= first) & (p.ids < first + 2)
        assert torch.equal(found["weights"], torch.where(kept, whole["weights"], 0))


def test_nothing_is_saved_of_the_second_product():
    """x and h in bf16, and a few numbers of each row: no row of y, no activation."""
    p, saved = problem(), []
    layer = layer_of(p)
    with torch.autograd.graph.saved_tensors_hooks(lambda one: saved.append(one) or one, lambda one: one):
        layer(p.x, p.ids, p.weights.clone().requires_grad_())
    own = {one.data_ptr() for one in layer.parameters()}
    bytes_ = sum(one.nbytes for one in saved if one.data_ptr() not in own)
    rows = p.ids.numel()
    assert bytes_ <= 2 * 20 * 128 + 2 * rows * 2 * 128 + 16 * rows + 64


@pytest.mark.parametrize("model", [{}, {"activation": "deepseek_v4", "limit": 10.0}])
def test_a_second_derivative_is_a_sentence(model):
    p = problem(**model)
    x = p.x.clone().requires_grad_()
    with pytest.raises(ArgumentError, match="no second derivative; call backward"):
        torch.autograd.grad(layer_of(p)(x, p.ids, p.weights).sum(), x, create_graph=True)


def test_a_trained_layer_resumes_from_its_state_dict_and_freezes():
    p = problem()
    layer, other = layer_of(p), Experts(4, 128, 128)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(p.x, p.ids, p.weights), layer(p.x, p.ids, p.weights))
    served = Experts(4, 128, 128).freeze()
    served.load_state_dict(layer.freeze().state_dict())
    assert torch.equal(served(p.x, p.ids, p.weights), layer(p.x, p.ids, p.weights))


@pytest.mark.parametrize("model", [{}, {"activation": "gpt_oss", "limit": 7.0}])
def test_tokens_in_f32_train_as_their_bf16_numbers(model):
    p = problem(**model)
    dy = torch.randn(p.x.shape, generator=torch.Generator().manual_seed(5)).bfloat16()
    wanted = gradients(layer_of(p), p, dy)
    found = gradients(layer_of(p), replace(p, x=p.x.float()), dy.float())
    assert found["x"].dtype == torch.float32
    assert all(torch.equal(found[name].to(one.dtype), one) for name, one in wanted.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("model", [{}, {"activation": "gpt_oss", "limit": 7.0}])
def test_a_call_without_gradients_has_the_bits_of_the_step_that_trains(model, dtype):
    p = problem(**model)
    layer, x = layer_of(p), torch.randn(p.x.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    trained = layer(x, p.ids, p.weights)
    with torch.no_grad():  # as a reentrant checkpoint runs a layer for the first time
        assert torch.equal(layer(x, p.ids, p.weights), trained)

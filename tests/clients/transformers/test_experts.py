"""experts_implementation="zoo": float experts of transformers, beside float64, with other mistakes told apart; training, compiling, defaults."""

from __future__ import annotations

import copy
import inspect
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

from tests.clients.transformers.models import MIXTURES, calls_of, config, model, relative, tokens  # noqa: E402
from tests.torch.nn.expert_layers import MARGIN, deviation, in_float64, mutants, problem  # noqa: E402
from tests.torch.nn.test_experts_serving import h_rounding, rounding  # noqa: E402
from zoo.transformers import experts as of_zoo  # noqa: E402
from zoo.transformers.gating import NAMES, gate_of  # noqa: E402


def experts_of(name: str, p):
    """The experts' module of an architecture with the weights of a problem."""
    sizes = {"hidden_size": p.x.shape[1], "experts_implementation": "zoo"}
    inner = "intermediate_size" if name == "gpt_oss" else "moe_intermediate_size"
    layers = model(name, **sizes, **{inner: p.gate.shape[1]}).model.layers
    module = layers[-1].mlp.experts
    gates = "interleaved" if name == "gpt_oss" else "halves"
    with torch.no_grad():
        for one, weight in ((module.gate_up_proj, p.gate_up(gates)), (module.down_proj, p.down)):
            one.copy_(weight.mT if module.is_transposed else weight)
        for key, bias in p.biases(gates).items():
            getattr(module, key.replace("_bias", "_proj_bias")).copy_(bias)
    return module


def drawn(name: str):
    p = problem(activation="gpt_oss", limit=7.0) if name == "gpt_oss" else problem()
    return p, experts_of(name, p)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", MIXTURES)
def test_experts_are_those_of_float64(name, gradients):
    p, module = drawn(name)
    ids = torch.where(p.ids < 0, len(p.gate), p.ids)  # what transformers gives for experts of other ranks
    with torch.set_grad_enabled(gradients):
        found = module(p.x, ids, p.weights).double()
    allowed = MARGIN * deviation(p, rounding("fp8b128", p.x), h_rounding("fp8b128", p.x), 0.027)
    assert (found - in_float64(p)).norm() <= allowed
    for mistake, mutant in mutants(p).items():
        if mistake != "no limit":  # which no number reaches
            assert (found - in_float64(mutant)).norm() > allowed, mistake


@pytest.mark.parametrize("name", MIXTURES)
def test_each_layer_of_a_model_is_that_of_float32(name):
    one = model(name, experts_implementation="zoo")
    calls = calls_of(one, tokens(), type(one.model.layers[-1].mlp.experts))
    assert len(calls) == (1 if name == "deepseek_v3" else 2)
    one.set_experts_implementation("eager")
    for layer, module, given, found in calls:
        with torch.no_grad():
            assert 0.01 < relative(found, module(*given)) < 0.08, layer


@pytest.mark.parametrize("name", MIXTURES)
def test_generate_takes_the_tokens_of_a_step_by_step_argmax(name):
    one, ids = model(name, experts_implementation="zoo"), tokens(5)
    found = one.generate(ids, max_new_tokens=4, do_sample=False)
    for _ in range(found.shape[1] - 5):
        with torch.no_grad():
            ids = torch.cat([ids, one(ids).logits[:, -1:].argmax(-1)], 1)
    running = (found[:, 5:] != one.config.eos_token_id).all()
    assert running and torch.equal(found, ids)


@pytest.mark.parametrize("name", MIXTURES)
def test_compiled_experts_have_the_same_bits(name):
    p, module = drawn(name)
    ids = p.ids.clamp(min=0)
    gate_of.cache_clear()  # found while compiling
    with torch.no_grad():
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")(p.x, ids, p.weights)
        assert torch.equal(compiled, module(p.x, ids, p.weights))


@pytest.mark.parametrize("name", ["gpt_oss", "qwen3_moe"])
def test_training_follows_float32(name):
    losses, gradients = {}, {}
    for implementation in ("eager", "zoo"):
        one, ids = model(name, experts_implementation=implementation).train(), tokens(16)
        optimiser = torch.optim.SGD(one.parameters(), lr=0.1)
        for step in range(3):
            loss = one(ids, labels=ids).loss
            loss.backward()
            if not step:
                gradients[implementation] = one.model.layers[-1].mlp.experts.gate_up_proj.grad.clone()
            losses.setdefault(implementation, []).append(loss.item())
            optimiser.step()
            optimiser.zero_grad()
    assert losses["zoo"][2] < losses["zoo"][1] < losses["zoo"][0]
    assert losses["zoo"][0] == pytest.approx(losses["eager"][0], rel=0.02)  # later ones are of other weights
    assert relative(gradients["zoo"], gradients["eager"]) < 0.25


@pytest.mark.parametrize("name", MIXTURES)
def test_a_weight_that_changed_is_quantised_again(name):
    p, module = drawn(name)
    ids = p.ids.clamp(min=0)
    with torch.no_grad():
        before = module(p.x, ids, p.weights)
        module.down_proj.mul_(2)
        module.gate_up_proj.copy_(module.gate_up_proj.flip(0))
        again = module(p.x, ids, p.weights)
        fresh = copy.deepcopy(module)(p.x, ids, p.weights)
    assert torch.equal(again, fresh) and not torch.equal(again, before)


@pytest.mark.parametrize("name", MIXTURES)
def test_a_weight_whose_memory_was_replaced_is_quantised_again(name):
    p, module = drawn(name)
    ids = p.ids.clamp(min=0)
    with torch.no_grad():
        before = module(p.x, ids, p.weights)
        for one in (module.gate_up_proj, module.down_proj):
            one.data = one.data.flip(0)
        again = module(p.x, ids, p.weights)
        module.down_proj.mul_(2)
        twice = module(p.x, ids, p.weights)
        fresh = copy.deepcopy(module)(p.x, ids, p.weights)
    assert torch.equal(twice, fresh) and not torch.equal(again, before) and not torch.equal(again, twice)


@pytest.mark.parametrize("name", MIXTURES)
def test_weights_are_quantised_once_while_they_stay(name, monkeypatch):
    p, module = drawn(name)
    casts = []
    quantise = of_zoo.format_of("fp8b128").__class__.squares
    monkeypatch.setattr(of_zoo.format_of("fp8b128").__class__, "squares", lambda self, weight: casts.append(1) or quantise(self, weight))
    with torch.no_grad():
        for _ in range(3):
            module(p.x, p.ids.clamp(min=0), p.weights)
    assert len(casts) == 2


@pytest.mark.parametrize("name", MIXTURES)
def test_two_micro_batches_share_the_casts_of_a_step(name, monkeypatch):
    p, module = drawn(name)
    form, casts = of_zoo.format_of("fp8b128"), []
    cast = type(form).both_ways
    monkeypatch.setattr(type(form), "both_ways", lambda self, *given: casts.append(1) or cast(self, *given))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    given = p.x.clone().requires_grad_(), p.ids.clamp(min=0), p.weights
    for step in (1, 2):
        for _ in range(2):
            module(*given).square().mean().backward()
        assert len(casts) == 2 * step
        optimiser.step()
    module(*given)
    module.gate_up_proj = torch.nn.Parameter(module.gate_up_proj.detach().flip(0))
    found = module(*given)
    assert len(casts) == 7 and torch.equal(found, copy.deepcopy(module)(*given))


def act(name):
    return type(transformers.activations.ACT2FN[name])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("act_fn", "activation"),
        ("gate", "activation"),
        ("sizes", "multiples"),
        ("no gate", "gates"),
        ("own gate", "gate that its class lacks"),
        ("tensor", "activation"),
    ],
)
def test_what_zoo_does_not_know_stays_with_transformers(change, reason):
    p, module = drawn("qwen3_moe")
    if change == "act_fn":
        module.act_fn = transformers.activations.ACT2FN["gelu"]
    elif change == "gate":
        type(module)._apply_gate, kept = (
            lambda self, rows: self.act_fn(rows.chunk(2, -1)[1]) * rows.chunk(2, -1)[0],
            type(module)._apply_gate,
        )
    elif change == "sizes":
        module = model("qwen3_moe", moe_intermediate_size=120, experts_implementation="zoo").model.layers[0].mlp.experts
        p = problem(hidden=64, intermediate=120)
    elif change == "own gate":
        module._apply_gate = lambda rows: rows.chunk(2, -1)[0]
    elif change == "tensor":
        module = model("gpt_oss", experts_implementation="zoo").model.layers[0].mlp.experts
        module.limit, p = torch.tensor(7.0), problem(hidden=64, intermediate=96)
    else:
        module.has_gate, module.up_proj = False, torch.nn.Parameter(module.gate_up_proj[:, :128].clone())
    gate_of.cache_clear()
    x, ids = p.x.float(), p.ids.clamp(min=0)
    try:
        with torch.no_grad(), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = [module(x, ids, p.weights) for _ in range(2)][1]
            wanted = transformers.integrations.moe.ALL_EXPERTS_FUNCTIONS["grouped_mm"](module, x, ids, p.weights)
    finally:
        if change == "gate":
            type(module)._apply_gate = kept
        gate_of.cache_clear()
    messages = [str(one.message) for one in said if "zoo.transformers" in str(one.message)]
    assert torch.equal(found, wanted) and len(messages) == 1 and reason in messages[0] and "default" in messages[0]


def test_an_activation_may_be_a_function():
    given = transformers.Lfm2MoeConfig(hidden_size=64, moe_intermediate_size=128, num_experts=4)
    module = transformers.models.lfm2_moe.modeling_lfm2_moe.Lfm2MoeExperts(given)
    assert inspect.isfunction(module.act_fn) and of_zoo.arrangement(module) == ("silu", None, "halves")


def test_the_gate_is_found_by_what_it_computes():
    class Wrong:
        def _apply_gate(self, rows):
            gate, up = rows.chunk(2, -1)
            return torch.nn.functional.silu(gate.clamp(max=self.limit)) * up  # its ups have no limit

    from transformers.integrations.moe import _default_apply_gate

    plain = type("Plain", (), {"_apply_gate": _default_apply_gate})
    assert gate_of(plain, act("silu"), ()) == ("silu", None, "halves")
    assert gate_of(plain, torch.nn.functional.silu, ()) == ("silu", None, "halves")
    assert gate_of(plain, torch.nn.functional.gelu, ()) is None
    assert gate_of(plain, act("gelu"), ()) is None and gate_of(plain, None, ()) is None and gate_of(object, None, ()) is None
    assert gate_of(Wrong, None, (("limit", 7.0),)) is None
    oss = transformers.models.gpt_oss.modeling_gpt_oss.GptOssExperts
    assert gate_of(oss, None, (("limit", 7.0), ("alpha", 1.702))) == ("gpt_oss", 7.0, "interleaved")
    assert gate_of(oss, None, (("limit", 7.0), ("alpha", 1.5))) is None
    fp8 = transformers.integrations.finegrained_fp8.FP8Experts
    numbers = {name: 10.0 if name in ("limit", "swiglu_limit") else None for name in NAMES}
    assert gate_of(fp8, act("silu"), tuple(numbers.items())) == ("deepseek_v4", 10.0, "halves")
    if "gate_softcap" in inspect.getsource(fp8):  # of newer versions
        assert gate_of(fp8, act("silu"), tuple({**numbers, "gate_softcap": 5.0, "up_softcap": 5.0}.items())) is None


def test_an_activation_with_a_number_of_its_own_is_not_taken_for_its_default():
    from transformers.integrations.moe import _default_apply_gate

    class Swish(torch.nn.Module):
        def __init__(self, beta=1.0):
            super().__init__()
            self.beta = beta

        def forward(self, x):
            return x * torch.sigmoid(self.beta * x)

    plain = type("Plain", (), {"_apply_gate": _default_apply_gate})
    assert gate_of(plain, Swish, ()) is None and gate_of(plain, type(torch.tanh), ()) is None
    assert gate_of(plain, torch.nn.SiLU, ()) == ("silu", None, "halves")


@pytest.mark.parametrize("limit", [0.5, 7.0, 40.0, 1000.0])
def test_no_limit_of_a_gate_is_too_large_or_small_to_be_seen(limit):
    class Fixed:
        def _apply_gate(self, rows):
            gate, up = rows.chunk(2, -1)
            return torch.nn.functional.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)

    class Step:
        def _apply_gate(self, rows):
            gate, up = rows.chunk(2, -1)
            return torch.nn.functional.silu(gate).clamp(max=self.limit) * up.clamp(-self.limit, self.limit)

    assert gate_of(Fixed, None, ()) is None  # its number has no name
    assert gate_of(Fixed, None, (("limit", limit),)) == ("deepseek_v4", limit, "halves")
    if limit < 20:  # beyond, silu is the identity
        assert gate_of(Step, None, (("limit", limit),)) is None


@pytest.mark.parametrize("weights", ["float", "FP8"])
def test_experts_whose_results_are_normalised_stay_with_transformers(weights, monkeypatch):
    """As Muse Spark's, of which a newer transformers multiplies the norm in its own function."""
    one = model("qwen3_moe")
    experts = one.model.layers[0].mlp.experts
    assert not isinstance(of_zoo.arrangement(experts), str)
    experts.has_post_expert_norm = True
    assert "normalises" in of_zoo.arrangement(experts)
    calls = []
    monkeypatch.setattr(of_zoo, "_default", lambda registry: lambda self, x, *more: calls.append(registry) or x)
    forward, module = (of_zoo.experts_forward, experts) if weights == "float" else (of_zoo.fp8_experts_forward, Fp8WithNorm())
    with pytest.warns(UserWarning, match="normalises"):
        forward(module, torch.ones(2, 64), None, None)
    assert len(calls) == 1


class Fp8WithNorm(torch.nn.Module):
    gate_up_proj = gate_up_proj_scale_inv = down_proj = down_proj_scale_inv = block_size = activation_scheme = None
    has_post_expert_norm = True


def test_the_gate_of_a_model_that_is_made_in_bf16_on_meta_is_found():
    before = torch.get_default_dtype()
    gate_of.cache_clear()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            module = transformers.AutoModelForCausalLM.from_config(config("qwen3_moe")).model.layers[0].mlp.experts
            assert of_zoo.arrangement(module) == ("silu", None, "halves")
    finally:
        torch.set_default_dtype(before)


def test_no_token_gives_nothing():
    p, module = drawn("qwen3_moe")
    assert module(p.x[:0], p.ids[:0], p.weights[:0]).shape == (0, p.x.shape[1])

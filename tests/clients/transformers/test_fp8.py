"""Models of fine-grained FP8 checkpoints: linears and experts on zoo, and what is left to transformers."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

from transformers.integrations import finegrained_fp8  # noqa: E402
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer  # noqa: E402

import zoo.transformers  # noqa: E402
from tests.clients.transformers.models import calls_of, config, model, relative, tokens  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch import quantize  # noqa: E402

KINDS = (finegrained_fp8.FP8Linear, finegrained_fp8.FP8Experts)
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


@pytest.fixture(autouse=True)
def fp8_without_gpu(monkeypatch):
    """transformers makes bf16 of FP8 weights where there is no GPU."""
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda self, *arguments, **named: None)


def checkpoint(float_model):
    """Tensors of an FP8 checkpoint. The model gets their numbers."""
    found = {}
    for name, tensor in float_model.state_dict().items():
        linear = "_proj" in name and name.endswith(".weight")
        if linear or name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            q = quantize(tensor, "fp8b128", direction="squares")
            found[name] = q.elements
            found[name.removesuffix(".weight") + (".weight_scale_inv" if linear else "_scale_inv")] = q.scales
            tensor.copy_(q.dequantize("f32"))
        else:
            found[name] = tensor
    return found


def loaded(name: str, stored, **changes):
    given = config(name, **changes)
    given.quantization_config = dict(FP8)
    kind = transformers.AutoModelForCausalLM._model_mapping[type(given)]
    return kind.from_pretrained(None, config=given, state_dict=stored, dtype=torch.float32, experts_implementation="zoo").eval()


def said_by(run):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = run()
    return found, [str(one.message) for one in said if "zoo.transformers" in str(one.message)]


@pytest.mark.parametrize(("name", "linears"), [("qwen3_moe", 8), ("deepseek_v3", 16), ("llama", 14)])
def test_each_layer_is_that_of_float32(name, linears):
    float_model = model(name)
    one = loaded(name, checkpoint(float_model))
    calls, said = said_by(lambda: calls_of(one, tokens(), KINDS))
    assert not said and sum(isinstance(call[1], KINDS[0]) for call in calls) == linears
    float_model.set_experts_implementation("eager")
    for layer, module, given, found in calls:
        with torch.no_grad():
            exact = float_model.get_submodule(layer)(*given)
        limit = 0.032 if isinstance(module, KINDS[0]) else 0.055
        assert 0.01 < relative(found, exact) < limit, layer


@pytest.mark.parametrize(("name", "alpha"), [("limit", None), ("swiglu_limit", 1.702)], ids=["deepseek_v4", "gpt_oss"])
def test_experts_with_limits_are_those_of_float32(name, alpha):
    float_model = model("qwen3_moe")
    experts = loaded("qwen3_moe", checkpoint(float_model)).model.layers[0].mlp.experts
    exact, x, ids = float_model.model.layers[0].mlp.experts, 8 * torch.randn(6, 64), torch.arange(12).view(6, 2) % 4
    with torch.no_grad():
        rows = torch.einsum("tk,tjnk->tjn", x, exact.gate_up_proj[ids])
        unlimited = experts._apply_gate(rows)
        setattr(experts, name, float(rows.std()))
        experts.swiglu_alpha = alpha
        limited = experts._apply_gate(rows)
        found, said = said_by(lambda: experts(x, ids, torch.full((6, 2), 0.5)))
        near, far = (relative(found, torch.einsum("tji,tjki->tk", 0.5 * h, exact.down_proj[ids])) for h in (limited, unlimited))
    assert not said and 0.01 < near < 0.06 < far


def test_compiled_linears_have_the_same_bits():
    one = loaded("llama", checkpoint(model("llama"))).model.layers[0].mlp
    x = torch.randn(5, 64)
    with torch.no_grad():
        assert torch.equal(torch.compile(one, fullgraph=True, backend="aot_eager")(x), one(x))


def test_an_input_of_a_linear_has_its_gradient():
    float_model = model("llama")
    layer = loaded("llama", checkpoint(float_model)).model.layers[0].mlp.up_proj
    x = torch.randn(6, 64, requires_grad=True)
    dy = torch.randn(6, 128)
    layer(x).backward(dy)
    assert relative(x.grad, dy @ float_model.model.layers[0].mlp.up_proj.weight) < 0.05


def test_experts_that_would_lose_a_gradient_refuse():
    experts = loaded("qwen3_moe", checkpoint(model("qwen3_moe"))).model.layers[0].mlp.experts
    with pytest.raises(ArgumentError, match="no gradient"):
        experts(torch.randn(3, 64, requires_grad=True), torch.zeros(3, 2, dtype=torch.long), torch.ones(3, 2))


@pytest.mark.parametrize("change", ["static", "blocks", "scales", "bytes", "rows"])
def test_a_linear_that_zoo_does_not_read_stays_with_transformers(change, monkeypatch):
    zoo.transformers.unregister()
    monkeypatch.setattr(finegrained_fp8, "fp8_linear", fp8_linear_of_transformers)
    zoo.transformers.register()
    w = quantize(torch.randn(120 if change == "rows" else 128, 64), "fp8b128", direction="squares")
    scales = w.scales[:, :0] if change == "scales" else w.scales
    scales = scales.to(torch.uint8) if change == "bytes" else scales
    blocks = (64, 64) if change == "blocks" else (128, 128)
    still = torch.ones(()) if change == "static" else None
    found, said = said_by(lambda: finegrained_fp8.fp8_linear(torch.randn(3, 64), w.elements, scales, blocks, None, still))
    assert found == "theirs" and len(said) == 1 and said[0].startswith("zoo.transformers: FP8Linear")


def fp8_linear_of_transformers(input, weight, weight_scale_inv, block_size=None, bias=None, activation_scale=None, allow_deepgemm=True):
    return "theirs"


@pytest.mark.parametrize("change", ["activation_scheme", "block_size", "act_fn", "scales", "four bits"])
def test_experts_that_zoo_does_not_read_stay_with_transformers(change, monkeypatch):
    experts = loaded("qwen3_moe", checkpoint(model("qwen3_moe"))).model.layers[0].mlp.experts
    if change == "act_fn":
        experts.act_fn = transformers.activations.ACT2FN["gelu"]
    elif change == "scales":
        experts.down_proj_scale_inv = torch.nn.Parameter(experts.down_proj_scale_inv[:, :, :0], requires_grad=False)
    elif change == "four bits":
        experts.gate_up_proj = torch.nn.Parameter(experts.gate_up_proj.view(torch.int8), requires_grad=False)
    else:
        setattr(experts, change, "static" if change == "activation_scheme" else (64, 64))
    monkeypatch.setitem(finegrained_fp8.ALL_FP8_EXPERTS_FUNCTIONS._global_mapping, "grouped_mm", lambda *given: "theirs")
    ids = torch.zeros(3, 2, dtype=torch.long)
    found, said = said_by(lambda: experts(torch.randn(3, 64), ids, torch.ones(3, 2)))
    assert found == "theirs" and len(said) == 1 and "FP8Experts" in said[0]

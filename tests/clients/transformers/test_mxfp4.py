"""gpt-oss checkpoints in MXFP4 on zoo's experts."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

import safetensors.torch  # noqa: E402
from transformers.distributed import DistributedConfig  # noqa: E402

import zoo.transformers  # noqa: E402
from tests.clients.transformers.models import calls_of, config, model, refused, relative, tokens  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch import quantize  # noqa: E402
from zoo.torch.nn import Experts  # noqa: E402


def checkpoint():
    """Tensors by name, and the model of their numbers."""
    float_model, found = model("gpt_oss"), {}
    for name, tensor in float_model.state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            q = quantize(tensor.mT.contiguous(), "mxfp4", layout="plain", rounding="rceil")
            found[f"{name}_blocks"] = q.elements.view(torch.uint8).unflatten(-1, (-1, 16))
            found[f"{name}_scales"] = q.scales.view(torch.uint8)
            tensor.copy_(q.dequantize("f32").mT)
        else:
            found[name] = tensor
    return found, float_model


def loaded(stored, distributed_config=None, changes=None, **quantized):
    given = config("gpt_oss", **(changes or {}))
    if distributed_config is not None:
        given.distributed_config = distributed_config
    given.quantization_config = {"quant_method": "mxfp4", **quantized}
    return transformers.GptOssForCausalLM.from_pretrained(None, config=given, state_dict=stored, dtype=torch.float32).eval()


def test_each_layer_is_that_of_float32():
    stored, float_model = checkpoint()
    one = loaded(stored)
    calls = calls_of(one, tokens(), Experts)
    assert [call[1].format for call in calls] == ["fp8_mxfp4"] * 2
    for layer, _, given, found in calls:
        with torch.no_grad():
            assert 0.01 < relative(found, float_model.get_submodule(layer)(*given)) < 0.055, layer


def test_the_limit_is_that_of_the_config():
    stored, float_model = checkpoint()
    calls = calls_of(loaded(stored, changes={"swiglu_limit": 0.5}), tokens(), Experts)
    for layer, _, given, found in calls:
        experts = float_model.get_submodule(layer)
        experts.limit = 0.5  # some versions of transformers read it from the config
        with torch.no_grad():
            assert relative(found, experts(*given)) < 0.055, layer


def test_experts_with_another_activation_stay_with_transformers(monkeypatch, recwarn):
    monkeypatch.setattr(zoo.transformers.mxfp4, "arrangement", lambda module: "no kernel of zoo has its activation")
    one = loaded(checkpoint()[0])
    assert not any(isinstance(module, Experts) for module in one.modules())
    assert sum("no kernel of zoo has its activation" in str(warning.message) for warning in recwarn.list) == 1


def test_generate():
    one, ids = loaded(checkpoint()[0]), tokens(4)
    found = one.generate(ids, max_new_tokens=2, do_sample=False)
    for _ in range(2):
        with torch.no_grad():
            ids = torch.cat([ids, one(ids).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, ids)


@pytest.mark.parametrize("part", ["gate_up_proj_blocks", "down_proj_scales", "down_proj_bias"])
@pytest.mark.parametrize("what", ["missing", "expected"])
def test_a_file_that_lacks_a_tensor_is_refused(part, what):
    stored, _ = checkpoint()
    name = f"model.layers.1.mlp.experts.{part}"
    if what == "missing":
        del stored[name]
    else:
        stored[name] = stored[name][:, :32].clone()
    with refused(name, what):
        loaded(stored)


@pytest.mark.parametrize("kind", ["tp", "fsdp"])
def test_a_model_over_ranks_is_refused(kind):
    with pytest.raises(ArgumentError, match="over ranks"):
        loaded(checkpoint()[0], DistributedConfig(**{f"{kind}_size": 2}))


def test_what_is_to_be_dequantised_stays_with_transformers(recwarn):
    stored, float_model = checkpoint()
    one = loaded(stored, dequantize=True)
    for mine, theirs in zip(one.model.layers, float_model.model.layers, strict=True):
        assert type(mine.mlp.experts) is type(theirs.mlp.experts)
        assert torch.equal(mine.mlp.experts.gate_up_proj.float(), theirs.mlp.experts.gate_up_proj)
    assert sum("dequantize=True" in str(warning.message) for warning in recwarn.list) == 1


def test_a_saved_model_has_the_tensors_of_its_checkpoint(tmp_path):
    stored, _ = checkpoint()
    loaded(stored).save_pretrained(tmp_path)
    found = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert found.keys() == stored.keys() and all(torch.equal(found[key], one) for key, one in stored.items())
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(again.model.layers[0].mlp.experts, Experts)


def test_unregistered_the_checkpoint_is_transformers_own():
    zoo.transformers.unregister()
    assert transformers.quantizers.auto.AUTO_QUANTIZER_MAPPING["mxfp4"] is transformers.quantizers.quantizer_mxfp4.Mxfp4HfQuantizer

"""Models on several devices, where accelerate's hooks hold the forward of each layer. A layer `cpu` beside another device is moved in each call."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

import safetensors.torch  # noqa: E402

from tests.clients.transformers.models import model, tokens  # noqa: E402
from tests.clients.transformers.test_mxfp4 import checkpoint  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch.nn import Experts, Linear  # noqa: E402
from zoo.transformers import ZooConfig  # noqa: E402

AutoModel = transformers.AutoModelForCausalLM
PLACES = {
    "model.embed_tokens": torch.device("cpu"), "model.rotary_emb": torch.device("cpu"), "model.norm": torch.device("cpu"),
    "model.layers.0": torch.device("cpu"), "model.layers.1": "cpu", "lm_head": torch.device("cpu"),
}  # fmt: skip
pytest.importorskip("accelerate")


def placed(path, **named):
    one = AutoModel.from_pretrained(path, dtype=torch.float32, device_map=dict(PLACES), **named).eval()
    assert hasattr(one.model.layers[0].self_attn.q_proj, "_hf_hook")  # or accelerate has not placed it
    return one


def logits(one):
    with torch.no_grad():
        return one(tokens()).logits


@pytest.mark.parametrize("name", ["llama", "qwen3_moe", "gpt_oss"])
@pytest.mark.parametrize("frozen", [True, False])
def test_layers_on_several_devices_are_zoos(name, frozen, tmp_path):
    """A hook that still called torch's forward would multiply in float32, or find no weight."""
    model(name).save_pretrained(tmp_path / "float")
    given = ZooConfig("fp8b128", "fp8_nvfp4" if frozen and name == "gpt_oss" else None, frozen=frozen)
    exact = AutoModel.from_pretrained(tmp_path / "float", dtype=torch.float32, quantization_config=given).eval()
    one = placed(tmp_path / "float", quantization_config=given)
    assert torch.equal(logits(one), logits(exact))
    layer = one.model.layers[1].self_attn.q_proj
    assert (layer.elements if frozen else layer.weight).is_meta  # and there in a call only


@pytest.mark.parametrize("name", ["llama", "qwen3_moe"])
def test_a_saved_model_is_loaded_to_several_devices_and_saved_from_them(name, tmp_path):
    model(name).save_pretrained(tmp_path / "float")
    exact = AutoModel.from_pretrained(tmp_path / "float", dtype=torch.float32, quantization_config=ZooConfig("fp8_nvfp4")).eval()
    exact.save_pretrained(tmp_path / "quantised")
    one = placed(tmp_path / "quantised")
    assert torch.equal(logits(one), logits(exact))
    assert one.model.layers[1].self_attn.q_proj.elements.is_meta and not one.model.layers[0].self_attn.q_proj.elements.is_meta
    one.save_pretrained(tmp_path / "again")
    again = AutoModel.from_pretrained(tmp_path / "again").eval()
    assert torch.equal(logits(again), logits(exact)) and isinstance(again.model.layers[1].self_attn.q_proj, Linear)


def test_a_tensor_that_a_file_lacks_is_missed_where_accelerate_takes_tensors_away(tmp_path):
    model("llama").save_pretrained(tmp_path / "float")
    AutoModel.from_pretrained(tmp_path / "float", quantization_config=ZooConfig("fp8b128")).save_pretrained(tmp_path / "quantised")
    file = tmp_path / "quantised" / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    del tensors["model.layers.1.mlp.up_proj.scales"]
    safetensors.torch.save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ArgumentError, match=r"scales.*13 are there|up_proj\.scales is missing"):
        placed(tmp_path / "quantised")


@pytest.mark.parametrize("lacks", [False, True])
def test_experts_of_a_checkpoint_in_mxfp4_are_zoos_on_several_devices(lacks, tmp_path):
    stored, float_model = checkpoint()
    float_model.config.quantization_config = {"quant_method": "mxfp4"}
    float_model.config.save_pretrained(tmp_path)
    if lacks:
        del stored["model.layers.1.mlp.experts.down_proj_scales"]
    safetensors.torch.save_file({name: one.contiguous() for name, one in stored.items()}, tmp_path / "model.safetensors", {"format": "pt"})
    if lacks:
        with pytest.raises(ArgumentError, match=r"down_proj_scales.*1 are there|down_proj_scales is missing"):
            placed(tmp_path)
        return
    exact, one = AutoModel.from_pretrained(tmp_path, dtype=torch.float32).eval(), placed(tmp_path)
    assert sum(isinstance(layer, Experts) for layer in one.modules()) == 2 and torch.equal(logits(one), logits(exact))

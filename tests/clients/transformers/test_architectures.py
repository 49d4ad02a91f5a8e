"""ZooConfig on models whose code or files are unlike Llama's: routers of modules, weights that are read elsewhere, files with joined weights."""

from __future__ import annotations

import json
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

import safetensors.torch  # noqa: E402

from tests.clients.transformers.models import HEADS, WIDE, model, relative, tokens  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch.nn import Linear  # noqa: E402
from zoo.transformers import ZooConfig  # noqa: E402
from zoo.transformers.quantizer import ZooQuantizer, reads_weight  # noqa: E402

SMALL = {**WIDE, **HEADS}
T5 = {"vocab_size": 96, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
BERT = {"vocab_size": 96, "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128}


def drawn(kind: str, **sizes):
    """In float32, with weights that keep the size of what they multiply."""
    torch.manual_seed(0)
    given = getattr(transformers, f"{kind}Config")(**sizes)
    made = {"T5": transformers.AutoModelForSeq2SeqLM, "NomicBert": transformers.AutoModel}.get(kind, transformers.AutoModelForCausalLM)
    one = made.from_config(given, dtype=torch.float32).eval()
    with torch.no_grad():
        for part in one.parameters():
            if part.dim() > 1:
                part.normal_(std=part.shape[-1] ** -0.5)
    return one


def loaded(kind, path, **named):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        one = kind.from_pretrained(path, **named).eval()
    return one, [str(each.message) for each in said if "zoo.transformers" in str(each.message)]


def same_state(one, other) -> bool:
    wanted, found = one.state_dict(), other.state_dict()
    return wanted.keys() == found.keys() and all(torch.equal(part, wanted[name]) for name, part in found.items())


ROUTERS = {
    "HunYuanMoEV1": ({**SMALL, "intermediate_size": 128, "num_experts": 4, "moe_topk": 2}, ".mlp.gate.wg"),
    "SwitchTransformers": ({**T5, "num_experts": 4, "num_sparse_encoder_layers": 2}, ".mlp.router.classifier"),
    "JetMoe": ({**SMALL, "kv_channels": 16, "num_local_experts": 4, "intermediate_size": 128}, ".mlp.router.layer"),
}


@pytest.mark.parametrize("kind", ROUTERS)
def test_a_router_that_is_a_module_of_its_own_stays(kind):
    sizes, router = ROUTERS[kind]
    given = getattr(transformers, f"{kind}Config")(**sizes)
    auto = transformers.AutoModelForSeq2SeqLM if kind == "SwitchTransformers" else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        one = auto.from_config(given)
    linears = {name for name, layer in one.named_modules() if type(layer) is torch.nn.Linear}
    chosen = {name for name, _ in ZooQuantizer(ZooConfig(), pre_quantized=False)._chosen(one)}
    routers = {name for name in linears if name.endswith(router)}
    assert routers and chosen and not [name for name in chosen if "router" in name or ".gate." in name]


def test_a_layer_whose_weight_a_model_reads_itself_stays_with_one_warning(tmp_path):
    float_model = drawn("Mamba", hidden_size=64, num_hidden_layers=2, vocab_size=96, state_size=16)
    float_model.save_pretrained(tmp_path / "mamba")
    kind = transformers.AutoModelForCausalLM
    one, said = loaded(kind, tmp_path / "mamba", dtype=torch.float32, quantization_config=ZooConfig("fp8b128"))
    assert len(said) == 1 and "MambaMixer: reads the weight of dt_proj" in said[0]  # of two mixers
    mixer = one.backbone.layers[0].mixer
    assert isinstance(mixer.in_proj, Linear) and isinstance(mixer.out_proj, Linear) and type(mixer.dt_proj) is torch.nn.Linear
    with torch.no_grad():
        assert 0.01 < relative(one(tokens()).logits, float_model(tokens()).logits) < 0.2
    one.save_pretrained(tmp_path / "quantised")
    assert same_state(one, loaded(kind, tmp_path / "quantised")[0])


def test_a_layer_that_a_model_asks_for_its_weight_first_is_quantised():
    class Careful(torch.nn.Module):
        def forward(self, x):
            if isinstance(self.wo.weight, torch.Tensor) and x.dtype != self.wo.weight.dtype:
                x = x.to(self.wo.weight.dtype)
            return self.wo(x)

    class Careless(Careful):
        def forward(self, x):
            if self.training and x is not None:
                return fused(x, self.wt.weight)  # noqa: F821
            return self.wo(x) @ self.wi.weight if self.training is None else self.wt(x)

    assert not reads_weight(Careful, "wo") and not reads_weight(Careless, "wo")
    assert reads_weight(Careless, "wi") and not reads_weight(Careless, "w")
    assert not reads_weight(Careless, "wt")  # in training alone, as the mixers of Mamba-2


@pytest.mark.parametrize("bias", [False, True])
def test_weights_that_files_join_are_quantised_and_saved_apart(bias, tmp_path):
    float_model = drawn("NomicBert", **BERT, head_dim=16, qkv_bias=bias)
    float_model.save_pretrained(tmp_path / "float")
    names = safetensors.torch.load_file(tmp_path / "float" / "model.safetensors")
    assert any(name.endswith("attn.Wqkv.weight") for name in names)  # or transformers splits nothing
    kind = transformers.AutoModel
    one, said = loaded(kind, tmp_path / "float", dtype=torch.float32, quantization_config=ZooConfig("fp8_nvfp4"))
    layers = {name: layer for name, layer in one.named_modules() if isinstance(layer, Linear)}
    assert not said and len(layers) == 2 * 7
    for name, layer in layers.items():
        assert relative(layer.dequantize(torch.float32), float_model.get_submodule(name).weight.detach()) < 0.12, name
    for path, kept in (("first", one), ("second", None)):  # saved and loaded twice
        (kept or again).save_pretrained(tmp_path / path)  # noqa: F821
        again, said = loaded(kind, tmp_path / path)
        assert not said and same_state(one, again)


@pytest.mark.parametrize("kind", ["T5", "ModernBertDecoder"])
def test_a_model_that_draws_the_weights_of_its_layers_by_name_is_loaded_again(kind, tmp_path):
    sizes = T5 if kind == "T5" else {**BERT, "pad_token_id": 0, "eos_token_id": 95, "bos_token_id": 1, "cls_token_id": 1, "sep_token_id": 1}
    made = transformers.AutoModelForSeq2SeqLM if kind == "T5" else transformers.AutoModelForCausalLM
    drawn(kind, **sizes).save_pretrained(tmp_path / "float")
    one, _ = loaded(made, tmp_path / "float", dtype=torch.float32, quantization_config=ZooConfig("fp8b128"))
    one.save_pretrained(tmp_path / "quantised")
    again, _ = loaded(made, tmp_path / "quantised")
    assert same_state(one, again) and all(layer.frozen for layer in again.modules() if isinstance(layer, Linear))


@pytest.mark.parametrize(("name", "kept"), [("llama", "layers.0.self_attn.o_proj"), ("qwen3_moe", "layers.1.mlp.experts")])
def test_quantised_layers_that_this_model_would_draw_at_random_are_refused(name, kept, tmp_path):
    model(name).save_pretrained(tmp_path / "float")
    kind = transformers.AutoModelForCausalLM
    one, _ = loaded(kind, tmp_path / "float", quantization_config=ZooConfig("fp8b128"))
    one.save_pretrained(tmp_path / "quantised")
    file = tmp_path / "quantised" / "config.json"
    changed = json.loads(file.read_text())
    changed["quantization_config"]["modules_to_not_convert"] = [kept]  # as another version of zoo or transformers may choose
    file.write_text(json.dumps(changed))
    for auto in (kind, transformers.AutoModel):  # whose names have no prefix
        with pytest.raises(ArgumentError, match=rf"{kept}: quantised in the files, and not in this model"):
            loaded(auto, tmp_path / "quantised")


def test_a_model_of_fewer_layers_takes_a_part_of_a_saved_model(tmp_path):
    model("qwen3_moe").save_pretrained(tmp_path / "float")
    kind = transformers.AutoModelForCausalLM
    one, _ = loaded(kind, tmp_path / "float", dtype=torch.float32, quantization_config=ZooConfig("fp8b128"))
    one.save_pretrained(tmp_path / "quantised")
    part, _ = loaded(kind, tmp_path / "quantised", num_hidden_layers=1)
    found = part.state_dict()
    assert len(part.model.layers) == 1 and all(torch.equal(tensor, one.state_dict()[name]) for name, tensor in found.items())

"""from_pretrained with a ZooConfig, and save_pretrained: small models beside their float32 layers, files that are not what they promise."""

from __future__ import annotations

import json
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

import safetensors.torch  # noqa: E402
from transformers.distributed import DistributedConfig  # noqa: E402

import zoo.transformers  # noqa: E402
from tests.clients.transformers.models import DENSE, MIXTURES, calls_of, config, model, refused, relative, tokens  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.torch.nn import Experts, Linear  # noqa: E402
from zoo.transformers import ZooConfig  # noqa: E402
from zoo.transformers.mxfp4 import ZooMxfp4Quantizer  # noqa: E402
from zoo.transformers.quantizer import ZooQuantizer  # noqa: E402

LAYERS = (Linear, Experts)
AutoModel = transformers.AutoModelForCausalLM
LINEARS = {"gpt_oss": 8, "qwen3_moe": 8, "deepseek_v3": 16, "llama": 14, "qwen3": 14}
# Of a linear layer and of experts, beside float32: the weights' rounding is in these. Four bits round with .11 to .13, eight with .026.
ERRORS = {"fp8b128": (0.01, 0.045, 0.08), "fp8_nvfp4": (0.05, 0.16, 0.25), "nvfp4": (0.05, 0.2, 0.32)}


@pytest.fixture
def folder(tmp_path):
    def saved(name: str, **changes):
        made = model(name, **changes)
        made.save_pretrained(tmp_path / name)
        return tmp_path / name, made

    return saved


def loaded(path, *arguments, **named):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = AutoModel.from_pretrained(path, dtype=torch.float32, quantization_config=ZooConfig(*arguments, **named)).eval()
    return found, [str(one.message) for one in said if "zoo.transformers" in str(one.message)]


CASES = [(name, format) for name in (*MIXTURES, *DENSE) for format in ("fp8b128", "fp8_nvfp4")] + [("qwen3_moe", "nvfp4")]


@pytest.mark.parametrize(("name", "format"), CASES)
def test_each_layer_is_that_of_float32_and_survives_a_save(name, format, folder, tmp_path):
    experts_format = "fp8_nvfp4" if name == "gpt_oss" else None  # whose activation frozen experts in fp8b128 may lack
    path, float_model = folder(name)
    one, said = loaded(path, format, experts_format)
    calls = calls_of(one, tokens(), LAYERS)
    mixtures = {"gpt_oss": 2, "qwen3_moe": 2, "deepseek_v3": 1}.get(name, 0)
    assert not said and [sum(isinstance(call[1], kind) for call in calls) for kind in LAYERS] == [LINEARS[name], mixtures]
    for layer, module, given, found in calls:
        with torch.no_grad():
            exact = float_model.get_submodule(layer)(*given)
        low, of_linear, of_experts = ERRORS[module.format]
        assert low < relative(found, exact) < (of_linear if isinstance(module, Linear) else of_experts), layer
    one.save_pretrained(tmp_path / "quantised")
    again = AutoModel.from_pretrained(tmp_path / "quantised").eval()
    assert again.config.quantization_config.format == format
    before = one.state_dict()
    assert before.keys() == again.state_dict().keys() and all(torch.equal(part, before[key]) for key, part in again.state_dict().items())
    with torch.no_grad():
        assert torch.equal(again(tokens()).logits, one(tokens()).logits)


def test_no_float_weight_of_a_layer_is_left(folder):
    path, _ = folder("qwen3_moe")
    one, _ = loaded(path, "fp8_nvfp4")
    left = {name.removesuffix(".weight").rpartition(".")[2] for name, part in one.named_parameters() if part.dim() > 1}
    assert left == {"embed_tokens", "gate", "lm_head"}


@pytest.mark.parametrize("name", ["gpt_oss", "llama"])
def test_generate(name, folder):
    path, _ = folder(name)
    one, _ = loaded(path, "fp8_nvfp4")
    found, ids = one.generate(tokens(4), max_new_tokens=3, do_sample=False), tokens(4)
    for _ in range(3):
        with torch.no_grad():
            ids = torch.cat([ids, one(ids).logits[:, -1:].argmax(-1)], 1)
    assert torch.equal(found, ids)


def test_compile(folder):
    path, _ = folder("qwen3_moe")
    one, _ = loaded(path, "fp8b128")
    with torch.no_grad():
        exact = one(tokens(), use_cache=False).logits
        assert torch.equal(torch.compile(one, backend="aot_eager")(tokens(), use_cache=False).logits, exact)


@pytest.mark.parametrize("name", ["qwen3_moe", "llama"])
def test_a_model_that_trains_is_saved_as_the_model_of_transformers(name, folder, tmp_path):
    path, float_model = folder(name)
    one, said = loaded(path, "fp8b128", frozen=False)
    assert not said and one.config._experts_implementation == ("zoo" if name == "qwen3_moe" else one.config._experts_implementation)
    assert sum(isinstance(layer, Linear) for layer in one.modules()) == LINEARS[name]
    optimiser, losses = torch.optim.SGD(one.train().parameters(), lr=0.1), []
    for _ in range(2):
        loss = one(tokens(), labels=tokens()).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    exact = float_model(tokens(), labels=tokens()).loss.item()
    assert losses[1] < losses[0] == pytest.approx(exact, rel=0.02)
    one.save_pretrained(tmp_path / "trained")
    assert "quantization_config" not in json.loads((tmp_path / "trained" / "config.json").read_text())
    zoo.transformers.unregister()  # as somebody without zoo reads it
    again = AutoModel.from_pretrained(tmp_path / "trained").eval()
    wanted, found = one.state_dict(), again.state_dict()
    assert wanted.keys() == found.keys() and all(torch.equal(wanted[key], part) for key, part in found.items())


def changed(path, change):
    file = next(path.glob("*.safetensors"))
    tensors = safetensors.torch.load_file(file)
    change(tensors)
    safetensors.torch.save_file(tensors, file, {"format": "pt"})


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint8])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_checkpoint_of_codes_that_transformers_would_cast_to_numbers_is_refused(dtype, frozen, folder):
    path, _ = folder("llama")
    tensors = safetensors.torch.load_file(path / "model.safetensors")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors |= {name: tensors[name].to(dtype), name + "_scale": torch.ones(())}
    safetensors.torch.save_file(tensors, path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ArgumentError, match=f"{name} is in .*8.*scales would be lost"):
        loaded(path, "fp8b128", frozen=frozen)


@pytest.mark.parametrize("part", ["layers.0.self_attn.q_proj.elements", "layers.1.mlp.experts.down.scales"])
@pytest.mark.parametrize("what", ["missing", "expected"])
def test_a_saved_file_that_lacks_a_tensor_is_refused(part, what, folder, tmp_path):
    path, _ = folder("qwen3_moe")
    loaded(path, "fp8b128")[0].save_pretrained(tmp_path / "quantised")
    name = f"model.{part}"
    changed(tmp_path / "quantised", lambda tensors: tensors.update({name: tensors.pop(name)[:1].clone()} if what == "expected" else {}) or (
        tensors.pop(name) if what == "missing" else None))  # fmt: skip
    with refused(name, what):
        AutoModel.from_pretrained(tmp_path / "quantised")


def test_a_float_weight_that_no_file_has_is_drawn_and_reported_by_transformers(folder, caplog):
    path, _ = folder("llama")
    changed(path, lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight"))
    one, info = AutoModel.from_pretrained(path, quantization_config=ZooConfig("fp8b128"), output_loading_info=True)
    assert info["missing_keys"] == {"model.layers.0.mlp.up_proj.weight"}
    drawn = one.model.layers[0].mlp.up_proj
    assert drawn.frozen and drawn.dequantize(torch.float32).std() == pytest.approx(one.config.initializer_range, rel=0.1)


@pytest.mark.parametrize("part", ["model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.experts.0.down_proj.weight"])
def test_a_float_weight_of_another_shape_is_refused(part, folder):
    path, _ = folder("qwen3_moe" if "experts" in part else "llama")

    def cut(tensors):
        for name in [one for one in tensors if one == part or ("experts" in part and "layers.0" in one and "down_proj" in one)]:
            tensors[name] = tensors[name][:32].clone()

    changed(path, cut)
    with pytest.raises(RuntimeError, match="issues"):
        AutoModel.from_pretrained(path, quantization_config=ZooConfig("fp8b128"))


def test_experts_that_zoo_does_not_know_stay_with_transformers(folder):
    path, float_model = folder("qwen3_moe", hidden_act="gelu")
    one, said = loaded(path, "fp8b128")
    assert len(said) == 1 and "Qwen3MoeExperts" in said[0] and "activation" in said[0]
    for mine, theirs in zip(one.model.layers, float_model.model.layers, strict=True):
        assert type(mine.mlp.experts) is type(theirs.mlp.experts)
        assert torch.equal(mine.mlp.experts.down_proj, theirs.mlp.experts.down_proj) and isinstance(mine.self_attn.q_proj, Linear)


def test_modules_that_are_named_stay(folder):
    path, _ = folder("llama")
    one, _ = loaded(path, "fp8b128", modules_to_not_convert=["model.layers.0", "o_proj"])
    kept = [name for name, layer in one.named_modules() if type(layer) is torch.nn.Linear]
    assert kept == [*(f"model.layers.0.self_attn.{part}_proj" for part in "qkvo"), *(f"model.layers.0.mlp.{part}_proj" for part in
                    ("gate", "up", "down")), "model.layers.1.self_attn.o_proj", "lm_head"]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "advice"), [("o_porj", "'o_proj'"), ("model.layers.0.self_atn", "'model.layers.0.self_attn'"), ("experts", "")]
)
@pytest.mark.parametrize("frozen", [True, False])
def test_an_entry_that_names_no_module_says_so_and_the_others_count(entry, advice, frozen, folder):
    path, _ = folder("llama")
    one, said = loaded(path, "fp8b128", frozen=frozen, modules_to_not_convert=["q_proj", entry])
    assert len(said) == 1 and f"modules_to_not_convert: {entry!r} names no module of LlamaForCausalLM" in said[0]
    assert said[0].endswith(advice) if advice else "nearest" not in said[0]
    layer = one.model.layers[0].self_attn
    assert type(layer.q_proj) is torch.nn.Linear and isinstance(layer.o_proj, Linear)


def test_an_entry_that_is_no_regular_expression_is_named(folder):
    path, _ = folder("llama")
    with pytest.raises(ArgumentError, match=r"modules_to_not_convert.*'\*\.q_proj'"):
        loaded(path, "fp8b128", modules_to_not_convert=["*.q_proj"])


@pytest.mark.parametrize(("kind", "frozen"), [("tp", True), ("fsdp", True), ("tp", False)])
def test_a_model_over_ranks_is_refused_where_transformers_would_multiply_without_zoo(kind, frozen, folder):
    """transformers puts its own product into layers that it cuts: layers that train showed zoo's format, and multiplied in float32."""
    path, _ = folder("llama")
    given = transformers.AutoConfig.from_pretrained(path)
    given.distributed_config = DistributedConfig(**{f"{kind}_size": 2})
    with pytest.raises(ArgumentError, match="tensor parallelism" if kind == "tp" else "over ranks"):
        AutoModel.from_pretrained(path, config=given, quantization_config=ZooConfig("fp8b128", frozen=frozen))


@pytest.mark.parametrize("kind", [ZooQuantizer, ZooMxfp4Quantizer])
def test_no_method_of_a_quantizer_is_one_that_transformers_does_not_call(kind):
    """A refusal in such a method is silent: transformers 5.24 calls `update_tp_plan` no longer."""
    theirs = kind.__mro__[1]
    called = {name for name, one in vars(kind).items() if callable(one) or isinstance(one, property)} - {"__init__"}
    own = {"take", "experts_format", "_chosen", "_begin_experts", "_check_loaded", "_begin_serving", "_begin_training", "_reason", "_leave"}
    assert {name for name in called - own if not hasattr(theirs, name)} == set()


def test_wrong_configs_say_what_to_do():
    with pytest.raises(ArgumentError, match="no format 'fp7'"):
        ZooConfig("fp7")
    with pytest.raises(ArgumentError, match="frozen=False needs fp8b128"):
        ZooConfig("fp8_mxfp4", frozen=False)
    with pytest.raises(ArgumentError, match="no argument bits"):
        ZooConfig("fp8b128", bits=4)
    with pytest.raises(ArgumentError, match=r"a list of names, such as \['q_proj'\]"):
        ZooConfig("fp8b128", modules_to_not_convert="q_proj")
    with pytest.raises(ArgumentError, match=r"a list of names, such as \['o_proj'\], got \[1\]"):
        ZooConfig("fp8b128", modules_to_not_convert=[1])
    with pytest.raises(ArgumentError, match="frozen: expected True or False, got 'no'"):
        ZooConfig("fp8b128", frozen="no")
    quantizer = ZooQuantizer(ZooConfig())
    with pytest.raises(ArgumentError, match="disk"):
        quantizer.validate_environment(device_map={"": "disk"})


def test_a_config_survives_its_file():
    made = ZooConfig("fp8b128", "fp8_mxfp4", modules_to_not_convert=["lm_head"])
    assert vars(ZooConfig.from_dict(json.loads(made.to_json_string()))) == vars(made)
    assert json.loads(ZooConfig(modules_to_not_convert={"lm_head"}).to_json_string())["modules_to_not_convert"] == ["lm_head"]


def test_a_model_without_layers_says_so():
    given = config("llama")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with torch.device("meta"):
            one = transformers.AutoModel.from_config(given)
        one.layers = torch.nn.ModuleList()
        ZooQuantizer(ZooConfig(), pre_quantized=False)._process_model_before_weight_loading(one)
    assert "has no linear layer" in str(said[-1].message)

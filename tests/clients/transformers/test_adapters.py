"""Adapters of PEFT, whose merges write weights through .data: no merge may leave zoo with casts of the weights before."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")
peft = pytest.importorskip("peft", reason="peft is not installed")

import zoo.transformers  # noqa: E402
from tests.clients.transformers.models import model, relative, tokens  # noqa: E402
from zoo.errors import ArgumentError  # noqa: E402
from zoo.transformers import ZooConfig  # noqa: E402

LINEARS = {"target_modules": ["q_proj", "v_proj"]}
EXPERTS = {"target_modules": [], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}


@pytest.fixture
def saved(tmp_path):
    model("qwen3_moe").save_pretrained(tmp_path)
    return tmp_path


def loaded(saved, where):
    options = {"quantization_config": ZooConfig("fp8b128", frozen=False)} if where is LINEARS else {"experts_implementation": "zoo"}
    return transformers.AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32, **options).eval()


def with_adapters(saved, where):
    """A model with adapters that was called without them, so that zoo keeps casts of its weights."""
    one = loaded(saved, where)
    with torch.no_grad():
        before = one(tokens()).logits
    torch.manual_seed(5)
    made = peft.get_peft_model(one, peft.LoraConfig(r=4, **where)).eval()
    for name, part in made.named_parameters():
        if "lora_" in name:
            part.data.normal_(std=0.3)
    return made, before


@pytest.mark.parametrize("where", [LINEARS, EXPERTS], ids=["linears", "experts"])
@pytest.mark.parametrize("called", [True, False])
@torch.no_grad()
def test_merged_adapters_are_multiplied(where, called, saved):
    made, before = with_adapters(saved, where)
    if called:
        made(tokens())
    merged = made.merge_and_unload()
    fresh = loaded(saved, where)
    fresh.load_state_dict(merged.state_dict())
    found = merged(tokens()).logits
    assert torch.equal(found, fresh(tokens()).logits) and relative(found, before) > 0.5


@pytest.mark.parametrize("where", [LINEARS, EXPERTS], ids=["linears", "experts"])
@torch.no_grad()
def test_adapters_that_are_merged_and_taken_out_again_leave_the_model_as_it_was(where, saved):
    made, before = with_adapters(saved, where)
    made.merge_adapter()
    assert relative(made(tokens()).logits, before) > 0.5
    made.unmerge_adapter()
    with made.disable_adapter():
        found = made(tokens()).logits
        fresh = loaded(saved, where)
        fresh.load_state_dict({name.replace("base_layer.", ""): one for name, one in base_of(made).items()})
        assert torch.equal(found, fresh(tokens()).logits) and relative(found, before) < 0.02


def base_of(made):
    """Parameters without those of the adapters, by their names in a model without adapters."""
    named = made.base_model.model.state_dict()
    return {name: one for name, one in named.items() if "lora_" not in name}


@torch.no_grad()
def test_casts_that_are_held_are_made_again_at_a_merge(saved):
    made, before = with_adapters(saved, LINEARS)
    layers = [one for one in made.modules() if isinstance(one, zoo.torch.nn.Linear)]
    for one in layers:
        one.hold_casts = True
    read = [one._kept.held_forms(zoo.torch.nn.formats.format_of("fp8b128"), one.weight)[0].elements for one in layers]
    kept = [one.clone() for one in read]
    made.merge_adapter()
    changed = [not torch.equal(one.view(torch.uint8), other.view(torch.uint8)) for one, other in zip(read, kept, strict=True)]
    assert sum(changed) == 4 and relative(made(tokens()).logits, before) > 0.5


def frozen(path, format: str = "fp8b128"):
    """A dense model with adapters beside frozen layers."""
    one = transformers.AutoModelForCausalLM.from_pretrained(path, quantization_config=ZooConfig(format), dtype=torch.float32).eval()
    torch.manual_seed(5)
    return peft.get_peft_model(one, peft.LoraConfig(r=4, target_modules="all-linear")).eval()


@pytest.fixture
def dense(tmp_path):
    model("qwen3").save_pretrained(tmp_path)
    return tmp_path


def adapters_of(made):
    return [one for name, one in made.named_parameters() if "lora_" in name]


@pytest.mark.parametrize("format", ["fp8b128", "fp8_nvfp4"])
@torch.no_grad()
def test_adapters_beside_a_frozen_layer_are_added_and_survive_a_save(format, dense, tmp_path):
    made = frozen(dense, format)
    assert len(adapters_of(made)) == 2 * 7 * 2  # A and B of 7 linear layers of 2 blocks
    assert {one.dtype for one in adapters_of(made)} == {torch.float32}
    for one in adapters_of(made):
        one.normal_(std=0.3)
    layer, x = made.base_model.model.model.layers[1].mlp.up_proj, torch.randn(5, 64)
    assert isinstance(layer.base_layer, zoo.torch.nn.Linear) and layer.base_layer.frozen
    wanted = layer.base_layer(x) + layer.scaling["default"] * layer.lora_B["default"](layer.lora_A["default"](x))
    assert relative(layer(x), wanted) < 1e-6 and relative(layer(x), layer.base_layer(x)) > 0.1
    made.save_pretrained(tmp_path / "adapters")
    fresh = transformers.AutoModelForCausalLM.from_pretrained(dense, quantization_config=ZooConfig(format), dtype=torch.float32).eval()
    before = fresh(tokens()).logits
    again = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapters").eval()
    assert torch.equal(again(tokens()).logits, made(tokens()).logits)
    with again.disable_adapter():
        assert torch.equal(again(tokens()).logits, before)


def test_trainer_trains_adapters_beside_frozen_layers_and_nothing_else(dense, tmp_path):
    made = frozen(dense)
    frozen_bytes = {name: one.clone() for name, one in made.named_buffers() if name.endswith(("elements", "scales"))}
    first = [one.detach().clone() for one in adapters_of(made)]
    ids = tokens()[0]
    arguments = transformers.TrainingArguments(
        tmp_path / "runs", max_steps=6, learning_rate=0.02, report_to=[], use_cpu=True, save_strategy="no"
    )
    trainer = transformers.Trainer(made, arguments, train_dataset=[{"input_ids": ids, "labels": ids}] * 48)

    def loss():
        with torch.no_grad():
            return float(made(input_ids=ids[None], labels=ids[None]).loss)

    before = loss()
    trainer.train()
    assert loss() < before - 0.5
    assert all(not torch.equal(one, other) for one, other in zip(adapters_of(made), first, strict=True))
    named = dict(made.named_buffers())
    assert frozen_bytes and all(torch.equal(named[name].view(torch.uint8), one.view(torch.uint8)) for name, one in frozen_bytes.items())


def test_a_frozen_layer_refuses_to_merge_adapters_and_keeps_its_numbers(dense):
    made = frozen(dense)
    with torch.no_grad():
        before = made(tokens()).logits
    for merge in (made.merge_adapter, made.merge_and_unload):
        with pytest.raises(ArgumentError, match=r"is frozen.*frozen=False"):
            merge()
    with torch.no_grad():
        assert torch.equal(made(tokens()).logits, before)


def test_a_product_with_what_peft_sees_of_a_frozen_weight_is_nan():
    layer = zoo.torch.nn.Linear(32, 48).freeze()
    assert layer.qweight.shape == (48, 32) and layer.qweight.is_floating_point() and layer.qweight.isnan().all()
    trains = zoo.torch.nn.Linear(32, 48)
    assert trains.qweight is trains.weight


def test_peft_is_as_it_was_after_unregister():
    from peft.tuners.lora.layer import Linear, ParamWrapper

    def merges():
        return [vars(kind).get(name) for kind in (Linear, ParamWrapper) for name in ("merge", "unmerge")]

    on = merges()
    zoo.transformers.unregister()
    off = merges()
    assert all(one.__wrapped__ is other for one, other in zip(on, off, strict=True)) and not hasattr(off[0], "__wrapped__")
    zoo.transformers.register()
    zoo.transformers.register()
    assert [one.__wrapped__ for one in merges()] == off


def test_another_peft_is_left_alone_and_one_warning_says_what_to_do(monkeypatch):
    from peft.tuners.tuners_utils import BaseTunerLayer

    zoo.transformers.unregister()
    monkeypatch.setattr(BaseTunerLayer, "unmerge", lambda self, something_new: None)
    with pytest.warns(UserWarning, match="PEFT merges: .*something_new.*merge adapters before the first call"):
        assert zoo.transformers.register().states["PEFT merges"].startswith("off: ")

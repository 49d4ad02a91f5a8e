"""Switching zoo on and off: nothing by an import, everything undone, and hooks of another signature left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

from transformers.integrations import finegrained_fp8, moe  # noqa: E402
from transformers.quantizers import auto  # noqa: E402

import zoo.transformers  # noqa: E402
from tests.clients.transformers.models import model, tokens  # noqa: E402
from zoo.errors import ZooError  # noqa: E402
from zoo.transformers.experts import experts_forward, fp8_experts_forward  # noqa: E402


def registries():
    """What transformers looks up, without the stand-in that zoo leaves for models that live longer."""
    mappings = (moe.ALL_EXPERTS_FUNCTIONS._global_mapping, finegrained_fp8.ALL_FP8_EXPERTS_FUNCTIONS._global_mapping)
    found = [dict(one) for one in (*mappings, auto.AUTO_QUANTIZER_MAPPING, auto.AUTO_QUANTIZATION_CONFIG_MAPPING)]
    for one in found[:2]:
        if one.get("zoo") not in (None, experts_forward, fp8_experts_forward):
            assert one.pop("zoo").__qualname__.startswith("after_unregister")
    return [*found, finegrained_fp8.fp8_linear]


def test_importing_zoo_changes_nothing_and_imports_neither():
    program = """
import sys, zoo, zoo.transformers
assert not {"torch", "transformers"} & set(sys.modules)
from transformers.integrations import finegrained_fp8, moe
from transformers.quantizers import auto
before = dict(moe.ALL_EXPERTS_FUNCTIONS._global_mapping), dict(auto.AUTO_QUANTIZER_MAPPING), finegrained_fp8.fp8_linear
import zoo.torch.nn
from zoo.transformers import ZooConfig
assert before == (dict(moe.ALL_EXPERTS_FUNCTIONS._global_mapping), dict(auto.AUTO_QUANTIZER_MAPPING), finegrained_fp8.fp8_linear)
assert "zoo" not in before[0] and "zoo" not in before[1]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_all_hooks_are_on(registered):
    assert set(registered.states.values()) == {"on"} and f"transformers {transformers.__version__}" in str(registered)


def test_what_is_registered_twice_is_undone_once():
    zoo.transformers.unregister()
    before = registries()
    zoo.transformers.register()
    on = registries()
    assert on != before
    zoo.transformers.register()
    assert registries() == on
    zoo.transformers.unregister()
    assert registries() == before


HOOKS = {
    "experts": lambda patch: patch.setitem(moe.ALL_EXPERTS_FUNCTIONS._global_mapping, "grouped_mm", lambda self, x, routing: x),
    "FP8 experts": lambda patch: patch.delitem(finegrained_fp8.ALL_FP8_EXPERTS_FUNCTIONS._global_mapping, "grouped_mm"),
    "FP8 linears": lambda patch: patch.setattr(finegrained_fp8, "fp8_linear", lambda input, weight, scales: input),
    "ZooConfig": lambda patch: patch.setattr(auto.HfQuantizer, "param_needs_quantization", lambda self, name: False),
    "MXFP4 experts": lambda patch: patch.setattr(auto.AUTO_QUANTIZER_MAPPING["mxfp4"], "get_weight_conversions", None),
}


def test_experts_with_an_option_that_zoo_does_not_know_stay_with_transformers(monkeypatch):
    zoo.transformers.unregister()
    monkeypatch.setattr(moe, "use_experts_implementation", lambda experts_class=None, *, has_gate=True, has_something_new=False: None)
    with pytest.warns(UserWarning, match="experts: .*has_something_new, which zoo does not know"):
        found = zoo.transformers.register()
    assert found.states["experts"].startswith("off: ") and found.states["ZooConfig"] == "on"


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_with_another_signature_stays_off_and_one_warning_says_why(name, monkeypatch):
    zoo.transformers.unregister()
    HOOKS[name](monkeypatch)
    before = registries()
    with pytest.warns(UserWarning, match=f"zoo.transformers: {name}: transformers {transformers.__version__}") as said:
        found, _ = (zoo.transformers.register() for _ in range(2))
    assert len([one for one in said if "zoo.transformers" in str(one.message)]) == 1
    assert found.states.pop(name).startswith("off: ") and set(found.states.values()) == {"on"}
    zoo.transformers.unregister()
    assert registries() == before


def test_without_transformers_the_error_says_what_to_install(monkeypatch):
    zoo.transformers.unregister()
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ZooError, match="pip install"):
        zoo.transformers.register()


def test_a_model_that_lives_longer_than_the_registration_calls_transformers_own_experts_and_says_so(recwarn):
    one = model("qwen3_moe")
    one.set_experts_implementation("grouped_mm")
    exact = one(tokens()).logits
    one.set_experts_implementation("zoo")
    served = one(tokens()).logits
    zoo.transformers.unregister()
    with pytest.warns(UserWarning, match=r"Qwen3MoeExperts: .*call zoo.transformers.register\(\)") as said:
        found = [one(tokens()).logits for _ in range(2)]
    assert len([each for each in said if "zoo.transformers" in str(each.message)]) == 1
    assert not torch.equal(served, exact) and all(torch.equal(each, exact) for each in found)
    zoo.transformers.register()
    assert torch.equal(one(tokens()).logits, served)


def test_fp8_experts_that_live_longer_than_the_registration_call_transformers_own(monkeypatch):
    zoo.transformers.unregister()
    asked = []
    monkeypatch.setitem(finegrained_fp8.ALL_FP8_EXPERTS_FUNCTIONS._global_mapping, "grouped_mm", theirs(asked))
    zoo.transformers.register()
    zoo.transformers.unregister()
    with pytest.warns(UserWarning, match=r"call zoo.transformers.register\(\)"):
        finegrained_fp8.ALL_FP8_EXPERTS_FUNCTIONS["zoo"](torch.nn.Module(), 1, 2, 3)
    assert asked == [(1, 2, 3)]


def theirs(asked):
    def forward(self, hidden_states, top_k_index, top_k_weights):
        asked.append((hidden_states, top_k_index, top_k_weights))

    return forward

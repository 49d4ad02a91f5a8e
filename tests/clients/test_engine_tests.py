"""tools/clients/engine_tests.py: what fails with the plugin alone is a fault, what fails without it too has a reason, and hanging tests fail."""

from __future__ import annotations

import json
import sys
import types
from collections import Counter

import pytest

pytest.importorskip("torch")

from tools.clients import engine_tests

SUITE = """
import pytest, time

def test_fine():
    pass

def test_hangs():
    time.sleep(9)

@pytest.mark.xfail(reason="known")
def test_known():
    assert False

def test_skipped():
    pytest.skip("needs CUDA")
"""


def test_only_what_passes_without_the_plugin_can_fail_with_it():
    without = {
        **dict.fromkeys(("fine", "broken", "gone", "unseen"), ("passed", "")),
        **{
            "gpu": ("skipped", "needs SM90"),
            "known": ("skipped", "slow"),
            "mirror": ("failed", "cannot connect: offline"),
            "other": ("failed", "1 != 2"),
        },
    }
    found = {**without, "broken": ("failed", "TypeError"), "gone": ("skipped", "no kernel"), "other": ("passed", "")}
    del found["unseen"]
    passed, failures, lacks = engine_tests.compare(without, found)
    assert passed == 1 and failures == {"broken": "TypeError", "gone": "no kernel", "unseen": "did not run"}
    assert lacks == {"no GPU": 1, "skips itself": 1, "no model or package": 1, "fails without zoo": 1}


def test_outcomes_have_reasons_and_a_test_that_hangs_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_tests, "in_vllm", Counter)
    monkeypatch.setattr(engine_tests, "SECONDS", 0.2)
    file = tmp_path / "test_of_an_engine.py"
    file.write_text(SUITE)
    engine_tests.run("vllm", tmp_path, [str(file)], tmp_path / "outcomes.json")
    seen = {name.rpartition("_")[2]: found for name, found in json.loads((tmp_path / "outcomes.json").read_text()).items()}
    assert seen["fine"] == ["passed", ""] and seen["skipped"] == ["skipped", "needs CUDA"] and seen["known"] == ["skipped", "known"]
    assert seen["hangs"][0] == "failed" and "took over" in seen["hangs"][1]


def test_a_plugin_that_did_not_register_is_not_taken_for_a_plugin_that_breaks_nothing(monkeypatch):
    import zoo.vllm

    for name in ("vllm", "vllm.platforms", "vllm.platforms.cpu"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    sys.modules["vllm.platforms.cpu"].CpuPlatform = object
    sys.modules["vllm"].platforms = sys.modules["vllm.platforms"]
    monkeypatch.setenv("ZOO_VLLM", "cpu")
    monkeypatch.setattr(zoo.vllm, "register", lambda: None)
    monkeypatch.setattr(zoo.vllm, "_registered", set())
    with pytest.raises(AssertionError):
        engine_tests.in_vllm()

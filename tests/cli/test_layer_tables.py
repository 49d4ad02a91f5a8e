"""Whole layers are timed on right results alone, and a case that is timed again replaces its row."""

import importlib
import json

import pytest

from tools import layer_tables
from zoo.benchmark.layer_models import Model
from zoo.benchmark.trace import Span, bars
from zoo.runtime.hardware import Hardware

torch = pytest.importorskip("torch")
importlib.import_module("zoo.torch")  # registers the operators
Seen = importlib.import_module("zoo.benchmark.layer_steps").Seen
SMALL = Model(4, 2, 256, 128, "fp8b128")
PAIRS = Model(4, 2, 192, 192, "fp8b128")  # gates that are no whole blocks
SPANS = [Span("one", 0, 2), Span("two", 3, 1), Span("one", 4, 2)]


class Clock:
    """What would be timed on a GPU: it calls once, and everything takes equally long."""

    def __init__(self, torch, calls, device=0):
        self._calls = calls if isinstance(calls, list) else [calls]
        self._calls[0]()

    def microseconds(self):
        return 5.0

    def close(self):
        pass


@pytest.fixture
def on_a_cpu(monkeypatch, tmp_path):
    """The script with torch's CPU in the GPU's place and small layers; gives a function that runs it: (exit status, record)."""
    monkeypatch.setattr(layer_tables, "WHERE", "cpu")
    monkeypatch.setattr(layer_tables, "torch_with_gpu", lambda: torch)
    monkeypatch.setattr("zoo.benchmark.rivals.torch_with_gpu", lambda: torch)
    for name in ("TorchReplay", "TorchEvents"):
        monkeypatch.setattr(layer_tables, name, Clock)
    monkeypatch.setattr(layer_tables, "peak", lambda *_: 10**9)
    monkeypatch.setattr(layer_tables, "traced", lambda torch, call: SPANS)
    monkeypatch.setattr(layer_tables, "see", lambda torch, name, calls, device: Seen(name, 5.0, bool(calls[0]()), tuple(bars(SPANS))))
    monkeypatch.setattr(layer_tables, "describe", lambda _: Hardware("NVIDIA H200", "9.0", "580 (CUDA 13.0)"))
    monkeypatch.setattr(layer_tables.driver, "device", lambda _: None)
    monkeypatch.setattr(layer_tables, "LINEAR", ((64, 128, 256),))
    monkeypatch.setattr(layer_tables, "linear_sizes", lambda seed: layer_tables.LINEAR)
    monkeypatch.setattr(layer_tables, "EXPERTS", {"small": SMALL, "pairs": PAIRS})
    monkeypatch.setattr(layer_tables, "TRAINED_TOKENS", (24,))
    monkeypatch.setattr(layer_tables, "DISTRIBUTIONS", ("zipf",))
    monkeypatch.setattr(layer_tables, "MICRO_BATCHES", 2)
    models = {"tiny gpt-oss": Model(4, 2, 192, 128), "small": SMALL}
    for name in ("MODELS", "DECODED"):
        monkeypatch.setattr(layer_tables, name, models)
    monkeypatch.setattr(layer_tables, "SERVED_TOKENS", (1, 5))
    monkeypatch.setattr(layer_tables, "DECODED_TOKENS", (3,))
    monkeypatch.setattr(layer_tables, "DECODED_LAYERS", 2)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    file = tmp_path / "layers.json"

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["layer_tables", "--output", str(file), *arguments])
        with pytest.raises(SystemExit) as ended:
            layer_tables.main()
        return ended.value.code, json.loads(file.read_text())

    return run


def test_every_section_runs_and_its_results_are_right(on_a_cpu, capsys):
    code, record = on_a_cpu()
    print(capsys.readouterr().out)
    assert code == 0 and sorted(record) == ["decode", "experts", "kernels", "linear", "serving"]
    (linear,), trained = record["linear"]["rows"], record["experts"]["rows"]
    assert linear["microseconds"] == {"zoo": 5.0, "torch bf16": 5.0} and 0.02 < linear["errors"]["y"] < 0.04
    assert [one["name"] for one in trained] == ["small, 24 tokens, zipf", "pairs, 24 tokens, zipf"]
    for one in trained:
        assert one["four"] == dict.fromkeys(("zoo", "torch bf16", "torch bf16, compiled"), 2.5)
        assert one["peak"] == {"zoo": 10**9, "torch bf16": 10**9} and all(0.03 < error < 0.08 for error in one["errors"].values())
    assert {"zoo", "zoo, ids given", "torch bf16"} == set(record["serving"]["rows"][0]["microseconds"])
    assert record["decode"]["rows"][0]["kernels"] == {"kernels": [5.0, 3], "gaps": [1.0, 1]}
    assert record["kernels"]["rows"][0]["kernels"] == {"one": [4.0, 2], "gap": [1.0, 1], "two": [1.0, 1]}

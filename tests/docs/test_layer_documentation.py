"""Tables of whole layers: torch is compiled where that is faster, the worst case is the slowest, and nothing measured is no table."""

from pathlib import Path

from tools.documentation.layers import page, summary
from tools.generate_docs import pages

ROOT = Path(__file__).resolve().parents[2]
ABOUT = {"about": {"device": "NVIDIA H200", "driver": "580", "libraries": {"torch": "2.11", "vllm": None}}, "date": "2026-01-01"}


def section(*rows):
    return {**ABOUT, "rows": [{"refused": {}, **one} for one in rows]}


def trained(name, times, four, peak=3e9):
    return {"name": name, "microseconds": times, "four": four, "peak": {"zoo": peak, "torch bf16": 4e9}}


RECORD = {
    "experts": section(
        trained("a", {"zoo": 10.0, "torch bf16": 40.0, "torch bf16, compiled": 20.0}, {"zoo": 10.0, "torch bf16": 15.0}),
        trained("b", {"zoo": 20.0, "torch bf16": 10.0}, {"zoo": 10.0, "torch bf16": 15.0}),
        {"name": "c", "microseconds": {}, "refused": {"zoo": "wrong"}},
    ),
    "serving": section(
        {"name": "m, 1 tokens", "model": "m", "tokens": 1, "microseconds": {"zoo": 10.0, "zoo, ids given": 8.0, "triton_kernels": 15.0}},
        {"name": "m, 8 tokens", "model": "m", "tokens": 8, "microseconds": {"zoo": 10.0}, "refused": {"vLLM": "not installed"}},
    ),
    "decode": section({"name": "m", "layers": 2, "microseconds": {"zoo": 40.0}, "kernels": {"kernels": [38.0, 10], "gaps": [2.0, 10]}}),
    "kernels": section({"name": "k", "microseconds": {"zoo": 5.0}, "kernels": {f"kernel_{one}": [1.0, 1] for one in range(16)}}),
}


def test_torch_is_compiled_where_that_is_faster_and_the_worst_case_is_the_slowest():
    lines = summary(RECORD).splitlines()
    assert "| Experts, forward and backward | torch bf16 | 0 % faster | 100 % slower | 25 % less |" in lines
    assert "| Experts, one cast for four micro-batches | torch bf16 | 50 % faster | 50 % faster |  |" in lines
    assert "| Experts, serving | triton_kernels | 50 % faster | 50 % faster |  |" in lines


def test_the_memory_that_training_costs_is_the_worst_case():
    rows = [trained(name, {"zoo": 10.0, "torch bf16": 20.0}, {}, peak) for name, peak in (("a", 3e9), ("b", 6e9), ("c", 5e9))]
    assert "| Linear, forward and backward | torch bf16 | 100 % faster | 100 % faster | 50 % more |" in summary({"linear": section(*rows)})


def test_every_case_is_on_the_page_and_what_was_refused_is_named():
    text = page(RECORD)
    assert "Measured on NVIDIA H200, driver 580, torch 2.11; 2026-01-01." in text
    assert "| a | 10 | 20 | 100 % faster | 50 % faster | 3.00 | 4.00 |" in text and "| c |" not in text
    assert "| m, 1 tokens | 10 | 8 | 50 % faster |" in text and "vLLM has no time: not installed." in text
    assert "| m | 2 | 5 | 40 | 5.0% |" in text and "| 2 others | 2 | 2 |" in text


def test_without_measurements_there_is_no_table_and_no_page(monkeypatch):
    assert summary({}) == ""
    monkeypatch.setattr("tools.generate_docs.read", lambda file: {})
    made = pages(ROOT, None, None)
    assert not any(path.name == "whole_layers.md" for path in made)
    monkeypatch.setattr("tools.generate_docs.read", lambda file: RECORD)
    made = pages(ROOT, None, None)
    assert "(kernels/whole_layers.md)" in made[ROOT / "docs" / "performance.md"] and ROOT / "docs" / "kernels" / "whole_layers.md" in made

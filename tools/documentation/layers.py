"""docs/layers.json: whole layers of zoo beside other libraries, as tools/layer_tables.py measured them on one GPU.

docs/performance.md has a summary, docs/kernels/whole_layers.md every case.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.documentation.comparison import percent
from tools.documentation.text import NOTE, code, table
from zoo.benchmark.trace import short_name

FILE = Path(__file__).resolve().parents[2] / "docs" / "layers.json"
PAGE = "whole_layers.md"
_MOST_KERNELS = 14
_WEIGHTS = (
    "gpt-oss has MXFP4 weights. torch multiplies them in bf16, triton_kernels with bf16 activations. Qwen3 and DeepSeek have FP8 weights."
)
Row = Mapping[str, Any]
Record = Mapping[str, Any]


def read(file: Path = FILE) -> dict[str, Any]:
    """What was measured: nothing where there is no file."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def summary(record: Record) -> str:
    """A row for each kind of layer and rival. Empty where nothing was measured."""
    rows = [
        *_row("Linear, forward and backward", "torch bf16", _ratios(_rows(record, "linear")), _peak(_rows(record, "linear"))),
        *_row("Experts, forward and backward", "torch bf16", _ratios(_rows(record, "experts")), _peak(_rows(record, "experts"))),
        *_row("Experts, one cast for four micro-batches", "torch bf16", _ratios(_rows(record, "experts"), times="four")),
    ]
    served = _rows(record, "serving")
    for rival in _rivals(served):
        rows += _row("Experts, serving", rival, _ratios(served, rival))
    if not rows:
        return ""
    head = ("layer", "beside", "zoo is, geometric mean", "zoo is, worst case", "zoo's peak memory, worst case")
    return "\n\n".join([table(head, rows), f"[All cases](kernels/{PAGE})."])


def page(record: Record) -> str:
    """Every case."""
    parts = ["# Whole layers: every case", NOTE, _measured(record), _WEIGHTS]
    for section, (title, make) in _SECTIONS.items():
        if (rows := _rows(record, section)) and any("zoo" in one["microseconds"] for one in rows):
            parts += [f"## {title}", make(rows)]
    return "\n\n".join(parts) + "\n"


def _rows(record: Record, section: str) -> list[Row]:
    return list(record.get(section, {}).get("rows", []))


def _measured(record: Record) -> str:
    """Sections may be of different runs."""
    seen = dict.fromkeys(
        f"{one['about']['device']}, driver {one['about']['driver']}, "
        + ", ".join(f"{name} {version}" for name, version in one["about"]["libraries"].items() if version)
        + f"; {one['date']}"
        for one in record.values()
    )
    return f"Measured on {' and on '.join(seen)}."


def _rivals(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(name for one in rows for name in one["microseconds"] if not name.startswith("zoo")))


def _beside(times: Mapping[str, float], rival: str) -> float | None:
    """The time of a rival; torch's layer is compiled where that is faster."""
    found = [times[name] for name in (rival, f"{rival}, compiled") if name in times]
    return min(found) if found else None


def _ratios(rows: Iterable[Row], rival: str = "torch bf16", times: str = "microseconds") -> list[float]:
    """zoo's time over the rival's."""
    pairs = [(one[times]["zoo"], _beside(one[times], rival)) for one in rows if "zoo" in one.get(times, {})]
    return [ours / theirs for ours, theirs in pairs if theirs is not None]


def _peak(rows: Iterable[Row]) -> str:
    """zoo's peak memory of a step beside that of torch's bf16, where zoo does worst."""
    ratios = [one["peak"]["zoo"] / one["peak"]["torch bf16"] for one in rows if {"zoo", "torch bf16"} <= set(one.get("peak", {}))]
    if not ratios:
        return ""
    more = 100 * max(ratios) - 100
    return f"{abs(more):.0f} % {'more' if more >= 0 else 'less'}"


def _row(what: str, rival: str, ratios: Sequence[float], peak: str = "") -> list[tuple[str, ...]]:
    return [(what, rival, percent(statistics.geometric_mean(ratios)), percent(max(ratios)), peak)] if ratios else []


def _trained(rows: Sequence[Row]) -> str:
    cells = []
    four = any("four" in one for one in rows)
    for one in rows:
        for ratio in _ratios([one]):
            theirs = _beside(one["microseconds"], "torch bf16") or 0.0
            memory = f"{one['peak']['zoo'] / 1e9:.2f}", f"{one['peak']['torch bf16'] / 1e9:.2f}"
            of_four = [percent(each) for each in _ratios([one], times="four")] if four else []
            cells.append((one["name"], f"{one['microseconds']['zoo']:,.0f}", f"{theirs:,.0f}", percent(ratio), *of_four, *memory))
    column = ("zoo is, one cast for four micro-batches",) if four else ()
    return table(("case", "zoo, us", "torch bf16, us", "zoo is", *column, "zoo's peak, GB", "torch's peak, GB"), cells)


def _serving(rows: Sequence[Row]) -> str:
    rivals, cells = _rivals(rows), []
    for one in rows:
        times = one["microseconds"]
        if "zoo" in times:
            beside = [percent(times["zoo"] / times[name]) if name in times else "" for name in rivals]
            given = f"{times['zoo, ids given']:.0f}" if "zoo, ids given" in times else ""
            cells.append((one["name"], f"{times['zoo']:.0f}", given, *beside))
    absent = {name: why for one in rows for name, why in one["refused"].items() if name not in rivals}
    head = ("case", "zoo, us", "zoo, ids given, us", *(f"zoo is, beside {name}" for name in rivals))
    return "\n\n".join([table(head, cells), *(f"{name} has no time: {why}." for name, why in absent.items())])


def _decode(rows: Sequence[Row]) -> str:
    cells = []
    for one in rows:
        if "gaps" in one.get("kernels", {}):
            (busy, launches), (idle, _) = one["kernels"]["kernels"], one["kernels"]["gaps"]
            whole = f"{one['microseconds']['zoo']:,.0f}"
            cells.append((one["name"], one["layers"], launches // one["layers"], whole, f"{idle / (busy + idle):.1%}"))
    return table(("case", "layers", "kernels of a layer", "us in all", "gaps between kernels"), cells)


def _kernels(rows: Sequence[Row]) -> str:
    parts = []
    for one in rows:
        sums: dict[str, tuple[float, int]] = {}
        for name, (microseconds, launches) in one.get("kernels", {}).items():
            before = sums.get(short_name(name), (0.0, 0))
            sums[short_name(name)] = before[0] + microseconds, before[1] + launches
        longest = sorted(sums.items(), key=lambda pair: -pair[1][0])
        cells = [(code(name[:60]), launches, f"{microseconds:,.0f}") for name, (microseconds, launches) in longest[:_MOST_KERNELS]]
        if rest := [pair for _, pair in longest[_MOST_KERNELS:]]:
            cells.append((f"{len(rest)} others", sum(pair[1] for pair in rest), f"{sum(pair[0] for pair in rest):,.0f}"))
        parts += [f"### {one['name']}", table(("kernel", "launches", "us"), cells)]
    return "\n\n".join(parts)


_SECTIONS = {
    "linear": ("Linear, forward and backward, the weight cast in each step", _trained),
    "experts": ("Experts, forward and backward, weights cast in each step", _trained),
    "serving": ("Experts from the router's logits, in a CUDA graph", _serving),
    "decode": ("Layers of Experts in one CUDA graph", _decode),
    "kernels": ("Kernels of a training step", _kernels),
}

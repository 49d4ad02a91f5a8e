"""docs/layers.json: whole layers of zoo beside other libraries, as tools/layer_tables.py measured them on one GPU."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.documentation.text import table

FILE = Path(__file__).resolve().parents[2] / "docs" / "layers.json"
COMPILED = "torch bf16, compiled"
_MOST_KERNELS = 12
Row = Mapping[str, Any]


def layers_block(record: Mapping[str, Any]) -> str:
    """The tables of the sections that were measured, one after the other."""
    parts = [
        "\n\n".join(filter(None, (title, make(record[name]["rows"]), _measured(record[name]))))
        for name, (title, make) in _SECTIONS.items()
        if record.get(name, {}).get("rows")
    ]
    return "\n\n".join(parts)


def read(file: Path = FILE) -> dict[str, Any]:
    """What was measured: nothing where there is no file."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def faster(ours: float, theirs: float) -> str:
    return f"{theirs / ours:.2f}x"


def best_of_torch(times: Mapping[str, float]) -> float | None:
    """Of torch's bf16 layer, compiled where that is faster."""
    found = [times[name] for name in ("torch bf16", COMPILED) if name in times]
    return min(found) if found else None


def _measured(section: Row) -> str:
    about = section["about"]
    versions = ", ".join(f"{name} {version}" for name, version in about["libraries"].items() if version)
    return f"Measured on {about['device']}, driver {about['driver']}, {versions}; {section['date']}."


def _timed(rows: Sequence[Row]) -> list[Row]:
    return [one for one in rows if "zoo" in one["microseconds"]]


def _linear(rows: Sequence[Row]) -> str:
    cells, ratios = [], []
    for one in _timed(rows):
        ours, theirs, memory = one["microseconds"]["zoo"], one["microseconds"]["torch bf16"], one["peak"]
        ratios.append(theirs / ours)
        cells.append((one["name"], f"{ours:,.0f}", f"{theirs:,.0f}", faster(ours, theirs), f"{memory['zoo'] / memory['torch bf16']:.2f}"))
    return table(("tokens x N x K", "zoo, us", "torch bf16, us", "zoo's speed over torch's", "memory, zoo / torch"), cells) + _mean(ratios)


def _experts(rows: Sequence[Row]) -> str:
    cells, ratios, of_four = [], [], []
    for one in _timed(rows):
        theirs, theirs_of_four = best_of_torch(one["microseconds"]), best_of_torch(one["four"])
        if theirs is None or theirs_of_four is None:
            continue
        ours, four, memory = one["microseconds"]["zoo"], one["four"]["zoo"], one["peak"]
        ratios.append(theirs / ours)
        of_four.append(theirs_of_four / four)
        times = f"{ours / 1e3:.1f}", f"{theirs / 1e3:.1f}", faster(ours, theirs), faster(four, theirs_of_four)
        cells.append((one["name"], *times, f"{memory['zoo'] / memory['torch bf16']:.2f}"))
    head = (
        "experts x hidden / intermediate",
        "zoo, ms",
        "torch bf16, ms",
        "zoo's speed over torch's",
        "four micro-batches a cast",
        "memory, zoo / torch",
    )
    return table(head, cells) + _mean(ratios) + (f" Four micro-batches: {statistics.geometric_mean(of_four):.2f}x." if of_four else "")


def _serving(rows: Sequence[Row]) -> str:
    rivals = list(dict.fromkeys(name for one in rows for name in one["microseconds"] if not name.startswith("zoo")))
    cells = []
    for one in _timed(rows):
        times = one["microseconds"]
        beside = [faster(times["zoo"], times[name]) if name in times else "" for name in rivals]
        given = times.get("zoo, ids given")
        cells.append((one["model"], f"{one['tokens']:,}", f"{times['zoo']:.0f}", "" if given is None else f"{given:.0f}", *beside))
    head = ("model", "tokens", "zoo, us", "zoo, ids given, us", *(f"zoo's speed over {name}'s" for name in rivals))
    absent = {name: why for one in rows for name, why in one["refused"].items() if name not in rivals and not name.startswith("zoo")}
    return "\n\n".join([table(head, cells), *(f"{name} has no time: {why}." for name, why in absent.items())])


def _decode(rows: Sequence[Row]) -> str:
    cells = []
    for one in _timed(rows):
        if {"kernels", "gaps"} <= one["kernels"].keys():
            (busy, launches), (idle, _) = one["kernels"]["kernels"], one["kernels"]["gaps"]
            whole = one["microseconds"]["zoo"]
            cells.append((one["model"], one["tokens"], f"{whole:,.0f}", f"{idle / (busy + idle):.1%}", launches // one["layers"]))
    return table(("model", "tokens", f"{one_graph(rows)} layers, us", "gaps between kernels", "kernels a layer"), cells)


def one_graph(rows: Sequence[Row]) -> int:
    return int(rows[0]["layers"]) if rows and "layers" in rows[0] else 0


def _kernels(rows: Sequence[Row]) -> str:
    tables = []
    for one in rows:
        longest = list(one["kernels"].items())
        cells = [(f"`{name[:60]}`", launches, f"{microseconds:,.0f}") for name, (microseconds, launches) in longest[:_MOST_KERNELS]]
        if rest := longest[_MOST_KERNELS:]:
            cells.append((f"{len(rest)} others", sum(pair[1][1] for pair in rest), f"{sum(pair[1][0] for pair in rest):,.0f}"))
        tables.append(f"{one['name']}:\n\n" + table(("kernel", "launches", "us"), cells))
    return "\n\n".join(tables)


def _mean(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    return f"\n\nzoo's speed over torch's: geometric mean {statistics.geometric_mean(ratios):.2f}x, worst {min(ratios):.2f}x."


_SECTIONS = {
    "linear": ("Linear, forward and backward, weights cast in each step:", _linear),
    "experts": ("Experts, forward and backward, weights cast in each step, torch compiled where that is faster:", _experts),
    "serving": ("Experts from the router's logits, in a CUDA graph:", _serving),
    "decode": ("Decoding layers of Experts in one CUDA graph:", _decode),
    "kernels": ("Kernels of a training step:", _kernels),
}

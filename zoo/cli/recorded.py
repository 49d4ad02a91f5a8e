"""`zoo bench --recorded`: the timings that are shipped with the cubins, as tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from zoo.cli.text import paragraph, table

if TYPE_CHECKING:
    from zoo.benchmark.record import Timing
    from zoo.catalog import Zoo

_TORCH = "torch_product_microseconds"
_OF_TORCH = "torch: its FP8 product of all rows by one matrix with one scale, which is less work"


def recorded_tables(zoo: Zoo, kernels: str, as_json: bool) -> str:
    from dataclasses import asdict

    from zoo.benchmark.record import timings_of
    from zoo.cli.selection import selected
    from zoo.shipped.evidence import evidence_of

    evidence = evidence_of(zoo.directory)
    found = {kernel.name: list(timings_of(kernel, evidence)) for kernel in selected(zoo, kernels)}
    if as_json:
        return json.dumps([asdict(one) for timings in found.values() for one in timings], indent=1)
    parts = [f"{name}\n{_text(timings)}" for name, timings in found.items() if timings]
    return "\n\n".join(parts) or f"nothing of '{kernels}' has a recorded timing; `zoo bench NAME --record` makes one"


def _text(timings: list[Timing]) -> str:
    """A table for each machine, date and setting, by sizes."""
    parts = []
    for machine in dict.fromkeys((one.device, one.driver, one.date) for one in timings):
        mine = [one for one in timings if (one.device, one.driver, one.date) == machine]
        torch = any(_TORCH in one.figures for one in mine)
        words = paragraph(_OF_TORCH) if torch else ""
        tables = [_table([one for one in mine if _with(one) == settings], settings) for settings in sorted({_with(one) for one in mine})]
        parts.append("\n".join(filter(None, (paragraph(f"{machine[0]}, driver {machine[1]}, {machine[2]}"), words, *tables))))
    return "\n\n".join(parts)


def _table(timings: list[Timing], settings: str) -> str:
    product = any("operations" in one.figures for one in timings)
    torch = any(_TORCH in one.figures for one in timings)
    symbols = tuple(dict.fromkeys(symbol for one in timings for symbol in one.sizes))
    rows = []
    for one in sorted(timings, key=lambda one: (tuple(one.sizes.values()), one.variant)):
        cells = [*(str(one.sizes.get(symbol, "")) for symbol in symbols), f"{one.microseconds:.2f}"]
        cells += [f"{one.teraflops:.0f}" if product else f"{one.figures['of_copy']:.3f}", f"{one.terabytes_per_second:.2f}"]
        cells += [f"{one.figures[_TORCH]:.2f}" if _TORCH in one.figures else "-"] * torch
        rows.append((*cells, one.variant))
    header = [*symbols, "us", "TFLOPS" if product else "of copy", "TB/s", *["torch us"] * torch, "variant"]
    return "\n".join(filter(None, (paragraph(f"with {settings}", hanging=2) if settings else "", table(header, rows))))


def _with(timing: Timing) -> str:
    return ", ".join(f"{name} {value}" for name, value in timing.settings.items())

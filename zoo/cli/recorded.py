"""`zoo bench --recorded`: the timings that are shipped with the cubins, as tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoo.benchmark.record import Timing
    from zoo.catalog import Zoo


def shown(zoo: Zoo, kernels: str, as_json: bool) -> str:
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
    """A table for each machine and date, by settings and sizes."""
    from zoo.cli.text import table

    parts = []
    for machine in dict.fromkeys((one.device, one.driver, one.date) for one in timings):
        mine = [one for one in timings if (one.device, one.driver, one.date) == machine]
        product = any("operations" in one.figures for one in mine)
        torch = any("torch_product_microseconds" in one.figures for one in mine)
        besides = any(one.settings for one in mine)
        symbols = tuple(dict.fromkeys(symbol for one in mine for symbol in one.sizes))
        rows = []
        for one in sorted(mine, key=lambda one: (_with(one), tuple(one.sizes.values()), one.variant)):
            cells = [*(str(one.sizes.get(symbol, "")) for symbol in symbols), f"{one.microseconds:.2f}"]
            cells += [f"{one.teraflops:.0f}" if product else f"{one.figures['of_copy']:.3f}", f"{one.terabytes_per_second:.2f}"]
            if torch:
                cells.append(f"{one.figures['torch_product_microseconds']:.2f}" if "torch_product_microseconds" in one.figures else "-")
            rows.append((*cells, *([_with(one)] if besides else []), one.variant))
        header = [*symbols, "us", "TFLOPS" if product else "of copy", "TB/s"]
        header += ["torch us"] * torch + ["with"] * besides + ["variant"]
        words = "\ntorch: its FP8 product of all rows by one matrix with one scale, which is less work" * torch
        parts.append(f"{machine[0]}, driver {machine[1]}, {machine[2]}{words}\n{table(header, rows)}")
    return "\n\n".join(parts)


def _with(timing: Timing) -> str:
    return ", ".join(f"{name} {value}" for name, value in timing.settings.items())

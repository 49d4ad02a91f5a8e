"""The pipeline of a GEMM as text: its stages, and what the emulator counted as a launch passed through them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from zoo.cli.text import can_print, count, paragraph
from zoo.contract.resolve import Launch

_INSTRUCTIONS = {"wgmma.mma_async": ("wgmma", "registers"), "tcgen05.mma": ("tcgen05.mma", "tensor memory")}  # their name, where sums are


def picture(runs: Sequence[tuple[str, Launch, Any]]) -> str:
    """A line for each run: (the arch's name, the launch, the emulator's report)."""
    pretty = can_print("\u25a0\u2500\u25b6")
    arrow, stage = ("\u2500\u25b6", "\u25a0") if pretty else ("->", "o")
    rows, notes = [["", "A and B", "stages", "multiply", "sums in", "D"]], []
    for family, launch, report in runs:
        moved, variant = report.bytes, launch.variant
        copied = moved["tensor copies loaded"] + moved["global read"]
        stored = moved["tensor copies stored"] + moved["global written"]
        rows.append([family, f"{copied:,} B", f"[{stage * variant.constants['STAGES']}]", *_multiplied(report), f"{stored:,} B"])
        blocks = (
            f"{count(math.prod(launch.grid), 'block')} of {launch.threads // 32} warps, {launch.shared // 1024} KB of shared memory each"
        )
        notes.append(paragraph(f"{family:<10} {variant.name}: {blocks}, {count(report.warp_instructions, 'warp instruction')}", hanging=11))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for number, (first, *others) in enumerate(rows):
        between = f" {' ' * len(arrow) if number == 0 else arrow} "
        cells = between.join(cell.ljust(size) for cell, size in zip(others, widths[1:], strict=True))
        lines.append(f"{first:<{widths[0]}}  {cells}".rstrip())
    title = f"The pipeline of {runs[0][1].kernel}, with what the emulator counted:"
    return "\n".join((title, *lines, *notes))


def _multiplied(report: Any) -> tuple[str, str]:
    """How many instructions of tensor cores, and where these leave their sums."""
    for start, (name, sums) in _INSTRUCTIONS.items():
        number = sum(number for opcode, number in report.instructions.items() if opcode.startswith(start))
        if number:
            return f"{number} {name}", sums
    return "-", "-"

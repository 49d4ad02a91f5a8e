"""Text that fits a terminal of 80 columns."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

import click

_GAP = 2
_NARROWEST = 24  # what the last column gets at least


def width() -> int:
    """The terminal's width, at most 100; 80 where there is no terminal."""
    return min(shutil.get_terminal_size((80, 24)).columns, 100)


def table(header: Sequence[str], rows: Sequence[Sequence[object]], indent: int = 0) -> str:
    """Aligned columns under a header; the last one wraps. Columns of numbers are aligned to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    lines = [list(header), *texts]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [bool(texts) and all(_is_number(row[column]) for row in texts) for column in range(len(header))]
    rest = max(width() - indent - sum(widths[:-1]) - _GAP * (len(header) - 1), _NARROWEST)
    start = indent + sum(widths[:-1]) + _GAP * (len(header) - 1)
    out = []
    for line in lines:
        cells = [
            cell.rjust(size) if to_right else cell.ljust(size)
            for cell, size, to_right in zip(line[:-1], widths, right, strict=False)
        ]
        last = line[-1].rjust(widths[-1]) if right[-1] else line[-1]
        wrapped = textwrap.wrap(last, rest, drop_whitespace=not right[-1]) or [""]
        out.append((" " * indent + (" " * _GAP).join([*cells, wrapped[0]])).rstrip())
        out.extend(" " * start + more for more in wrapped[1:])
    return "\n".join(out)


def paragraph(text: str, indent: int = 0, hanging: int = 0) -> str:
    return textwrap.fill(
        text, width(), initial_indent=" " * indent, subsequent_indent=" " * (indent + hanging), break_on_hyphens=False
    )


def fact(label: str, words: str) -> str:
    """`label      words`, wrapped under the words."""
    return paragraph(f"{label:<10} {words}", hanging=11)


def progress(items: Iterable, length: int | None, label: str):
    """A progress bar on the terminal; nothing where the output is no terminal."""
    return click.progressbar(items, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).replace("%", "").strip().isdigit()

"""Text that fits a terminal of 80 columns."""

from __future__ import annotations

import itertools
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
    """Aligned columns under a header, whose words wrap where the terminal is narrow. Columns of numbers are aligned to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    lines = [list(header), *texts]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = [bool(texts) and all(_is_number(row[column]) for row in texts) for column in range(len(header))]
    _fit(widths, lines, width() - indent - _GAP * (len(header) - 1))
    out = []
    for line in lines:
        wrapped = [_wrap(cell, size) for cell, size in zip(line, widths, strict=True)]
        for row in itertools.zip_longest(*wrapped, fillvalue=""):
            cells = [cell.rjust(size) if to_right else cell.ljust(size) for cell, size, to_right in zip(row, widths, right, strict=True)]
            out.append((" " * indent + (" " * _GAP).join(cells)).rstrip())
    return "\n".join(out)


def _fit(widths: list[int], lines: Sequence[Sequence[str]], total: int):
    """Narrows columns until they fit, the last one first; none below its longest word."""
    least = [max((len(word) for line in lines for word in line[column].split()), default=1) for column in range(len(widths))]
    last = len(widths) - 1
    widths[last] = max(min(widths[last], max(total - sum(widths[:last]), _NARROWEST)), least[last])
    while sum(widths) > total:
        column = max(range(len(widths)), key=lambda one: (widths[one] > least[one], widths[one]))
        if widths[column] == least[column]:
            break  # words are not broken: the row is too wide for this terminal
        widths[column] -= 1


def _wrap(text: str, size: int) -> list[str]:
    return textwrap.wrap(text, size, break_long_words=False, break_on_hyphens=False) or [""]


def paragraph(text: str, indent: int = 0, hanging: int = 0) -> str:
    return textwrap.fill(
        text,
        width(),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,  # a path in two pieces is no path
        break_on_hyphens=False,
    )


def fact(label: str, words: str) -> str:
    """`label      words`, wrapped under the words."""
    return paragraph(f"{label:<10} {words}", hanging=11)


def progress(items: Iterable, length: int | None, label: str):
    """A progress bar on the terminal; nothing where the output is no terminal."""
    return click.progressbar(items, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).replace("%", "").strip().isdigit()

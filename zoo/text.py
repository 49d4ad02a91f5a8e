"""Tables, paragraphs and progress bars that fit the terminal."""

from __future__ import annotations

import itertools
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

LONGEST_LINE = 100  # of words that are read, on the widest terminal
_GAP = 2
_NARROWEST = 24  # what the last column gets at least
_T = TypeVar("_T")


def terminal_width() -> int:
    """The terminal's columns, or what the variable COLUMNS says; 80 where the output is no terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def width() -> int:
    """How long a line of words or of a table may be: as the terminal, up to 100."""
    return min(terminal_width(), LONGEST_LINE)


def table(header: Sequence[str], rows: Sequence[Sequence[object]], indent: int = 0) -> str:
    """Aligned columns under a header, whose words wrap where the terminal is narrow. Columns of numbers are aligned to the right.

    Where words are so long that no columns fit, each row is a paragraph."""
    return _aligned([list(header)], rows, indent)


def columns(rows: Sequence[Sequence[object]], indent: int = 0) -> str:
    """Aligned columns without a header."""
    return _aligned([], rows, indent)


def _aligned(header: list[list[str]], rows: Sequence[Sequence[object]], indent: int) -> str:
    texts = [[str(cell) for cell in row] for row in rows]
    lines = [*header, *texts]
    if not lines:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    right = [bool(texts) and all(_is_number(row[column]) for row in texts) for column in range(len(lines[0]))]
    if not _fit(widths, lines, width() - indent - _GAP * (len(lines[0]) - 1)):
        return "\n".join(paragraph(_in_words(header, cells), indent, hanging=2) for cells in texts)
    out = []
    for line in lines:
        wrapped = [_wrap(cell, size) for cell, size in zip(line, widths, strict=True)]
        for row in itertools.zip_longest(*wrapped, fillvalue=""):
            cells = [cell.rjust(size) if to_right else cell.ljust(size) for cell, size, to_right in zip(row, widths, right, strict=True)]
            out.append((" " * indent + (" " * _GAP).join(cells)).rstrip())
    return "\n".join(out)


def _in_words(header: list[list[str]], cells: Sequence[str]) -> str:
    """`name: first header cell, second header cell`, without cells that are empty."""
    names = header[0] if header else [""] * len(cells)
    others = [f"{name} {cell}".strip() for name, cell in zip(names[1:], cells[1:], strict=True) if cell]
    return f"{cells[0]}: {', '.join(others)}" if others else cells[0]


def _fit(widths: list[int], lines: Sequence[Sequence[str]], total: int) -> bool:
    """Narrows columns until they fit, the last one first; none below its longest word. False where that is still too wide."""
    least = [max((len(word) for line in lines for word in line[column].split()), default=1) for column in range(len(widths))]
    last = len(widths) - 1
    widths[last] = max(min(widths[last], max(total - sum(widths[:last]), _NARROWEST)), least[last])
    while sum(widths) > total:
        column = max(range(len(widths)), key=lambda one: (widths[one] > least[one], widths[one]))
        if widths[column] == least[column]:
            return False
        widths[column] -= 1
    return True


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


def progress(items: Iterable[_T], length: int | None, label: str) -> ProgressBar[_T]:
    """A progress bar on the terminal; nothing where the output is no terminal."""
    return click.progressbar(items, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).replace("%", "").strip().isdigit()

"""Text that fits the terminal."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_GAP = 2
_NARROWEST = 24  # what the last column gets at least
_LONGEST_LINE = 100  # of words that are read, on the widest terminal
_T = TypeVar("_T")


def terminal_width() -> int:
    """The terminal's columns, or what the variable COLUMNS says; 80 where the output is no terminal."""
    return shutil.get_terminal_size((80, 24)).columns


def width() -> int:
    """How long a line of words or of a table may be: as the terminal, up to 100."""
    return min(terminal_width(), _LONGEST_LINE)


def count(number: int, noun: str) -> str:
    """`1 cubin`, `2 cubins`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """`one`, `one and two`, `one, two and three`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def cut(text: str, size: int) -> str:
    """As much of the text as fits, with `...` at its end where that is not all."""
    return text if len(text) <= size else text[: max(size - 3, 0)].rstrip(" ,:") + "..."


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
    """`name: first header cell, second header cell`."""
    others = [" ".join(pair) for pair in zip(header[0][1:], cells[1:], strict=True)] if header else cells[1:]
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


def fact(label: str, words: str) -> str:
    """`label      words`, wrapped under the words."""
    return paragraph(f"{label:<10} {words}", hanging=11)


def progress(items: Iterable[_T], length: int | None, label: str) -> ProgressBar[_T]:
    """A progress bar on the terminal; nothing where the output is no terminal."""
    return click.progressbar(items, length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())


class Steps:
    """How far a command of a few long steps is, and how long the rest takes if steps take as long as those before: a line on stderr, which
    what the command prints replaces. Nothing where stderr is no terminal."""

    def __init__(self, total: int):
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._shown = sys.stderr.isatty()

    def begin(self, what: str) -> None:
        if self._shown:
            left = (time.monotonic() - self._began) / self._done * (self._total - self._done) if self._done else None
            estimate = "" if left is None else f", about {f'{left / 60:.0f} min' if left > 90 else f'{left:.0f} s'} left"
            line = cut(f"{self._done + 1} of {self._total}{estimate}: {what}", _stderr_width() - 1)
            click.echo(f"\r\033[K{line}", err=True, nl=False)

    def end(self, text: str) -> None:
        """The step is done, and this is what to print of it."""
        self._done += 1
        if self._shown:
            click.echo("\r\033[K", err=True, nl=False)
        click.echo(text)


def styled(text: str, **style: Any) -> str:
    """The text in a colour. `click.echo` takes colours away where the output is no terminal, and NO_COLOR does here."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **style)


def can_print(text: str) -> bool:
    """Whether the output's encoding has these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True


def printable(text: str) -> str:
    """The same with every character replaced that a terminal would obey."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


def echo_refusal(text: str) -> None:
    """Prints a refusal on stderr: as it is, but on a terminal in lines that fit it."""
    if sys.stderr.isatty():
        room = min(_stderr_width(), _LONGEST_LINE)
        text = "\n".join(line if len(line) <= room else _fold(line, room) for line in text.splitlines())
    click.echo(text.removesuffix("\n"), err=True)


def _fold(line: str, room: int) -> str:
    return textwrap.fill(line, room, break_long_words=False, break_on_hyphens=False)


def _stderr_width() -> int:
    """The columns of the terminal that refusals go to, which need not be that of the output."""
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdecimal() and int(chosen):
        return int(chosen)
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "", 1).replace("%", "").strip().isdigit()

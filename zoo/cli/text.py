"""Words of the command line. Tables and paragraphs are those of zoo.text."""

from __future__ import annotations

import os
import sys
import textwrap
import time
from collections.abc import Sequence
from typing import Any

import click

from zoo.text import LONGEST_LINE
from zoo.text import columns as columns
from zoo.text import paragraph as paragraph
from zoo.text import progress as progress
from zoo.text import table as table
from zoo.text import terminal_width as terminal_width
from zoo.text import width as width


def count(number: int, noun: str) -> str:
    """`1 cubin`, `2 cubins`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(words: Sequence[str]) -> str:
    """`one`, `one and two`, `one, two and three`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def cut(text: str, size: int) -> str:
    """As much of the text as fits, with `...` at its end where that is not all."""
    return text if len(text) <= size else text[: max(size - 3, 0)].rstrip(" ,:") + "..."


def fact(label: str, words: str) -> str:
    """`label      words`, wrapped under the words."""
    return paragraph(f"{label:<10} {words}", hanging=11)


class Steps:
    """How far a command of a few long steps is, and how long the rest takes if steps take as long as those before: a line on stderr, which
    what the command prints replaces. Nothing where stderr is no terminal. `weights`: those of all steps together, where some take longer than others."""

    def __init__(self, total: int, weights: int | None = None):
        self._total, self._done, self._began = total, 0, time.monotonic()
        self._weights, self._weight = weights or total, 0
        self._shown = sys.stderr.isatty()

    def begin(self, what: str) -> None:
        if self._shown:
            left = (time.monotonic() - self._began) / self._weight * (self._weights - self._weight) if self._weight else None
            estimate = "" if left is None else f", about {f'{left / 60:.0f} min' if left > 90 else f'{left:.0f} s'} left"
            line = cut(f"{self._done + 1} of {self._total}{estimate}: {what}", _stderr_width() - 1)
            click.echo(f"\r\033[K{line}", err=True, nl=False)

    def end(self, text: str, weight: int = 1) -> None:
        """The step is done, and this is what to print of it."""
        self._done, self._weight = self._done + 1, self._weight + weight
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
        room = min(_stderr_width(), LONGEST_LINE)
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

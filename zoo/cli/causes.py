"""Causes of findings as `zoo emulate` prints them, and files for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from zoo.cli.text import count, paragraph, printable, styled


def show_cause(cause: Any, more: Sequence[tuple[str, str]] = ()) -> None:
    colours = {"error": "red", "warning": "yellow"}
    click.echo(styled(printable(cause.headline), fg=colours.get(cause.severity), bold=True))
    for line in printable(cause.message).splitlines():
        click.echo(paragraph(line.strip(), 4))
    for label, words in [*more, *cause.facts]:
        click.echo(paragraph(f"{label:<8} {printable(str(words))}", 4, hanging=9))


def severities(causes: list[Any]) -> list[str]:
    """How many errors, warnings and notes there are."""
    found = [cause.severity for cause in causes]
    return [count(found.count(one), one) for one in ("error", "warning", "note") if one in found]


def write_json(path: Path | None, content: Callable[[], object]) -> None:
    if path is not None:
        path.write_text(json.dumps(content(), indent=1) + "\n")

"""The table of docs/clients.md: what was seen of zoo inside other projects."""

from __future__ import annotations

from tools.clients.record import Seen
from tools.documentation.text import table

_HEADER = ("client", "tests", "on", "passed", "failed", "not run")


def clients_table(seen: list[Seen]) -> str:
    if not seen:
        return "Nothing is recorded."
    rows = [(f"{one.client} {one.version}", one.suite, one.device, one.passed, one.failed, _lacks(one.lacks)) for one in seen]
    first, _, *others = table(_HEADER, rows).splitlines()
    return "\n".join([first, "|---" * len(_HEADER) + "|", *others])  # tools/check_docs.py counts words between spaces


def _lacks(lacks: dict[str, int]) -> str:
    return "; ".join(f"{count}: {reason}" for reason, count in lacks.items())

"""Markdown: tables, code, and the part of a page between two markers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

NOTE = "<!-- written by tools/generate_docs.py from the manifest and the evidence; do not edit -->"


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def code(text: str) -> str:
    return f"`{text}`"


def between(page: Path, parts: dict[str, str]) -> str:
    """The page with each named part written anew: `<!-- NAME: written by tools/generate_docs.py -->` to `<!-- end of NAME -->`."""
    text = page.read_text()
    for name, part in parts.items():
        begin, end = f"<!-- {name}: written by tools/generate_docs.py -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            sys.exit(f"{page.name} has lost its markers: {begin} and {end}")
        text = f"{before}{begin}\n{part}\n{end}{after}"
    return text

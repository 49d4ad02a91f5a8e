"""docs/clients.json: what was seen of zoo inside other projects. Tools write it; docs/clients.md has a table made of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "docs" / "clients.json"


@dataclass(frozen=True)
class Seen:
    client: str
    version: str  # of the client, or its commit
    suite: str  # the client's tests, or the tool that ran its models
    device: str
    passed: int
    failed: int
    lacks: dict[str, int] = field(default_factory=dict)  # reason: tests that it does not apply to


def read(file: Path = FILE) -> list[Seen]:
    return [Seen(**one) for one in json.loads(file.read_text())] if file.exists() else []


def write(one: Seen, file: Path = FILE) -> None:
    """Replaces what was seen earlier of this suite on this device."""
    kept = [other for other in read(file) if (other.client, other.suite, other.device) != (one.client, one.suite, one.device)]
    found = sorted([*kept, one], key=lambda other: (other.client, other.suite, other.device))
    file.write_text(json.dumps([asdict(other) for other in found], indent=1) + "\n")

"""The text: the Python standard library's own sources, bytes as tokens. Every machine with torch has it."""

from __future__ import annotations

import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch

VOCABULARY = 256
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
_HELD_OUT = 10  # every tenth file


@dataclass(frozen=True)
class Text:
    train: torch.Tensor  # uint8
    validation: torch.Tensor
    sha256: str

    @property
    def bytes(self) -> int:
        return len(self.train) + len(self.validation)


def standard_library(at_most: int | None = None) -> Text:
    """All .py files without tests, in the order of their paths. Every tenth file is for validation. at_most: the number of files."""
    return joined([path.read_bytes() for path in files()[:at_most]])


def files() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    found = (path for path in root.rglob("*.py") if not _LEFT_OUT.intersection(path.relative_to(root).parts))
    return sorted(found, key=lambda path: path.relative_to(root).as_posix())


def joined(sources: list[bytes]) -> Text:
    held_out = b"".join(sources[_HELD_OUT - 1 :: _HELD_OUT])
    train = b"".join(source for place, source in enumerate(sources, 1) if place % _HELD_OUT)
    parts = (torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in (train, held_out))
    return Text(*parts, hashlib.sha256(train + held_out).hexdigest())


class Batches:
    """Random windows of a text. The generator's state is the position in the data."""

    def __init__(self, text: torch.Tensor, batch: int, window: int, seed: int):
        self.generator = torch.Generator().manual_seed(seed)
        self._batch, self._end = batch, len(text) - window

    def starts(self, steps: int) -> torch.Tensor:
        """The first byte of each window, (steps, batch)."""
        return torch.randint(self._end, (steps, self._batch), generator=self.generator)

"""TOML below the roots of sources: a path is looked for in the first root first, as headers are."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.builder import BuildError


class Documents:
    def __init__(self, *roots: Path) -> None:
        self.roots = roots
        self._read: dict[str, dict[str, Any]] = {}
        self.numbers_read: dict[str, set[tuple[str, str]]] = {}  # file of costs -> its ("chip", number) and (table, tile) that costs read

    def read(self, name: str) -> dict[str, Any]:
        """What the file holds. A path counts from a root: `gemm/parts/operands.toml`."""
        if name not in self._read:
            path = next((root / name for root in self.roots if (root / name).is_file()), None)
            if path is None:
                near = did_you_mean(name, self._names(str(Path(name).parent)))
                raise BuildError(f"no file {name} below {' or '.join(map(str, self.roots))}{near}")
            try:
                self._read[name] = tomllib.loads(path.read_text("utf-8"))
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise BuildError(f"{path}: not TOML: {error}") from None
        return self._read[name]

    def is_own(self, name: str) -> bool:
        """Whether the file is below the first root: that of the tree whose tables are read."""
        return (self.roots[0] / name).is_file()

    def folder(self, name: str) -> dict[str, dict[str, Any]]:
        """Every file of a folder, by its name without `.toml`."""
        return {Path(path).stem: self.read(path) for path in self._names(name)}

    def _names(self, folder: str) -> list[str]:
        return sorted({path.relative_to(root).as_posix() for root in self.roots for path in (root / folder).glob("*.toml")})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, 3)
    return f"; did you mean {' or '.join(near)}?" if near else ""

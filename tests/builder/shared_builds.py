"""build_cubins.py with a compiler that asks a folder first: what one process of a test run has compiled, the others take from there.

What nvcc refuses is never kept, so that a build that fails has always compiled."""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import build_cubins
from tools.builder.compiler import Compiled, Compiler, Text

_Result = TypeVar("_Result", Text, Compiled)


class SharedCompiler(Compiler):
    def __init__(self, folder: Path, packages: dict[str, str]):
        super().__init__(packages)
        self.folder = folder

    def text(self, unit: str, arch: str, roots: list[Path]) -> Text:
        return self._shared(("text", unit, arch), roots, lambda: Compiler.text(self, unit, arch, roots))

    def compiled(self, unit: str, arch: str, roots: list[Path]) -> Compiled:
        return self._shared(("cubin", unit, arch), roots, lambda: Compiler.compiled(self, unit, arch, roots))

    def _shared(self, asked: tuple[str, ...], roots: list[Path], make: Callable[[], _Result]) -> _Result:
        """Known by all that nvcc could read, included or not: the digest of the sources that a build keeps is itself under test."""
        sources = [[(path.relative_to(root).as_posix(), path.read_bytes()) for path in _readable(root)] for root in roots]
        known = self.folder / hashlib.sha256(repr((asked, str(self.nvcc), self.record, sources)).encode()).hexdigest()
        if not known.exists():
            made = make()
            with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as file:
                pickle.dump(made, file)
            os.replace(file.name, known)
        return pickle.loads(known.read_bytes())


def _readable(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".toml")


def main() -> None:
    """`FOLDER ARGUMENTS...`, the arguments being those of build_cubins.py."""
    folder = Path(sys.argv[1])
    sys.argv[:2] = ["build_cubins.py"]
    build_cubins.Compiler = lambda packages: SharedCompiler(folder, packages)
    with build_cubins.refusals_in_words(), build_cubins.ended_in_order():
        build_cubins.main()

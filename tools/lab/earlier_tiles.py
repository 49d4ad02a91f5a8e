"""Tiles that an earlier commit had and today's cubins have in no form, launched by that commit's own loader, to be timed beside today's."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SAME_TILE = ("FORMAT", "GROUPING", "BAND", "NARROWS", "PLACES_ANEW")  # constants that make another form of the same tile


def key_of(variant: Any) -> tuple[Any, ...]:
    return variant.name, tuple(sorted((name, value) for name, value in variant.constants.items() if name not in SAME_TILE))


class Earlier:
    """A checkout of an earlier commit: its package under the names that today's has, for as long as one of its calls takes."""

    def __init__(self, checkout: Path):
        self.checkout, self.modules = checkout, dict[str, Any]()
        with self.imported():
            self.zoo = importlib.import_module("zoo.catalog").Zoo(checkout / "cubins")
            self.refusals = importlib.import_module("zoo.errors").VariantError

    @contextmanager
    def imported(self) -> Iterator[None]:
        todays = _taken()
        sys.modules.update(self.modules)
        sys.path.insert(0, str(self.checkout))
        try:
            yield
        finally:
            sys.path.pop(0)
            self.modules = _taken()
            sys.modules.update(todays)

    def tiles(self, name: str) -> list[Any]:
        with self.imported():
            if name not in self.zoo.manifest.names:
                return []
            return [variant for variant in self.zoo.kernel(name).variants if variant.arch == "sm_90a"]

    def launch(self, name: str, variant: str, given: dict[str, Any]) -> bool:
        """Whether the tile takes these operands; a workspace is left out where the kernel knew of none."""
        with self.imported():
            kernel = self.zoo.kernel(name)
            known = {*(argument.name for argument in kernel.arguments.values()), *kernel.options}
            if not given.keys() - {"workspace"} <= known:
                return False
            try:
                self.zoo.launch(name, **{key: value for key, value in given.items() if key in known}, variant=variant)
            except self.refusals:
                return False
            return True


def _taken() -> dict[str, Any]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name == "zoo" or name.startswith("zoo.")}

"""What hatchling packs, whoever calls it: of a checkout the files that git tracks, of an unpacked sdist all that is there."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.tracked import tracked, untracked

# In a checkout the cubins lie beside the package, where `build_cubins.py` writes them; in a wheel inside it.
_PLACES = {"zoo/": "zoo/", "cubins/": "zoo/cubins/"}
_NOT_INSTALLED = ("cubins/sass.json",)  # for who changes kernels


class TrackedFiles(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # is a path to the checkout, and packs nothing
        root = Path(self.root)
        names = tracked(root)
        left_out = untracked(root, *_PLACES)
        if left_out:
            self.app.display_warning(f"left out, as git does not track them: {', '.join(left_out)}")
        names = list(_walked(root)) if names is None else names
        placed = {name: self._place(name) for name in names}
        chosen = sorted((place, name) for name, place in placed.items() if place is not None)
        for place, name in chosen:
            build_data["force_include"].setdefault(os.path.join(self.root, name), place)

    def _place(self, name: str) -> str | None:
        """Where a file goes, if it does."""
        if self.target_name == "sdist":
            return None if self.build_config.path_is_excluded(name) else name
        if name in _NOT_INSTALLED:
            return None
        return next((place + name.removeprefix(folder) for folder, place in _PLACES.items() if name.startswith(folder)), None)


def _walked(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        for name in files:
            if not name.endswith((".pyc", ".pyo")) and name != "PKG-INFO":
                yield Path(folder, name).relative_to(root).as_posix()

"""Where the packaged cubins lie, whether anybody develops them there, and where what a user records goes."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


def cubins_directory() -> Path:
    """`zoo/cubins` in a wheel, `cubins` beside the package in a checkout."""
    inside = PACKAGE / "cubins"
    return inside if inside.is_dir() else PACKAGE.parent / "cubins"


def in_checkout() -> bool:
    """Whether the packaged cubins are those of a checkout, where build_cubins.py writes them and evidence is recorded for a release."""
    return cubins_directory().parent == PACKAGE.parent and (PACKAGE.parent / "build_cubins.py").is_file()


def is_packaged(directory: Path) -> bool:
    return Path(directory).resolve() == cubins_directory().resolve()


def own_evidence() -> Path:
    """The file that keeps what this user has seen of installed cubins."""
    state = os.environ.get("XDG_STATE_HOME", "")
    folder = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return folder / "zoo" / "evidence.json"

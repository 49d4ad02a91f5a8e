"""What packs a wheel, as wheels made of what is installed here: so that installing them by hash needs no network."""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import zipfile
from pathlib import Path

NAMES = ("hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers")


def make_wheelhouse(folder: Path) -> str:
    """Wheels in `folder`, and the requirements that hold each to its sha256."""
    folder.mkdir(parents=True)
    lines = []
    for name in NAMES:
        wheel = _pack(importlib.metadata.distribution(name), folder)
        version = wheel.name.split("-")[1]
        lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n")
    return "".join(lines)


def offline(folder: Path) -> dict[str, str]:
    """The variables with which pip finds these wheels and no others."""
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": "/dev/null"}


def _pack(found: importlib.metadata.Distribution, folder: Path) -> Path:
    wheel = folder / f"{re.sub(r'[-_.]+', '_', found.metadata['Name'])}-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in sorted(found.files or (), key=str):
            if not str(file).startswith("..") and file.suffix != ".pyc":
                archive.writestr(zipfile.ZipInfo(str(file)), Path(found.locate_file(file)).read_bytes())
    return wheel

"""Builds the wheel twice, in two places, and keeps it if both are the same to the byte.

    python tools/build_wheel.py dist

Needs the `dev` extra: its hatchling builds, so that nothing is downloaded and the same sources give the same wheel later, too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
_PARTS = (
    "zoo",
    "cubins",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    ".gitignore",
)  # what a wheel is made of; the last says what of it is not


class WheelError(click.ClickException):
    """The wheel cannot be built, or not twice the same."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Builds the wheel of this checkout into FOLDER, where two builds of it agree."""
    print(build_twice(ROOT, folder))


def build_twice(tree: Path, folder: Path) -> Path:
    """The wheel of `tree`, in `folder`: built from two copies with other paths and other times, which must not show in it."""
    with tempfile.TemporaryDirectory() as temporary:
        first, second = (_build(tree, Path(temporary) / name) for name in ("one", "the-other-one"))
        if first.name != second.name or first.read_bytes() != second.read_bytes():
            raise WheelError(f"two builds of one tree differ: {', '.join(_differences(first, second)) or 'in how they are packed'}")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(first, folder))


def _build(tree: Path, place: Path) -> Path:
    sources = place / "sources"
    sources.mkdir(parents=True)
    for part in _PARTS:
        copy = shutil.copytree if (tree / part).is_dir() else shutil.copyfile
        copy(tree / part, sources / part)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    result = subprocess.run([*command, "--wheel-dir", str(place), str(sources)], env=_environment(), capture_output=True, text=True)
    wheels = list(place.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        raise WheelError(f"no wheel was built (is the `dev` extra installed?):\n{result.stdout}{result.stderr}")
    return wheels[0]


def _environment() -> dict[str, str]:
    return {"SOURCE_DATE_EPOCH": "1577836800"} | dict(os.environ)  # a release has its commit's time there


def _differences(first: Path, second: Path) -> list[str]:
    one, other = zipfile.ZipFile(first), zipfile.ZipFile(second)
    names = sorted({*one.namelist(), *other.namelist()})
    return [name for name in names if name not in one.namelist() or name not in other.namelist() or one.read(name) != other.read(name)]


if __name__ == "__main__":
    main()

"""Builds the wheel twice, under different circumstances, and keeps it if both are the same to the byte.

    python tools/build_wheel.py dist

It holds what git tracks. What packs it is installed aside, from tools/wheel_requirements.txt, and each file held to its sha256; nothing else that
is installed here can take part.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.tracked import NoListError, tracked

REQUIREMENTS = Path(__file__).with_name("wheel_requirements.txt")
# What a wheel is made of: the rest of a checkout cannot show in it.
_FOLDERS = ("zoo/", "cubins/")
_FILES = ("pyproject.toml", "README.md", "LICENSE", "tools/hatch_hook.py", "tools/tracked.py")
# No site-packages (-S), no variables and no current folder (-I): the tools, and Python itself.
_PACK = "import sys; sys.path.insert(0, sys.argv[1]); from hatchling.build import build_wheel; build_wheel(sys.argv[2])"


class WheelError(click.ClickException):
    """The wheel cannot be built, or not twice the same."""


@dataclass(frozen=True)
class Circumstances:
    """What differs from machine to machine and must not show."""

    name: str
    umask: int
    zone: str
    locale: str
    backwards: bool  # the order in which files are made, which is that of a folder on many file systems
    time: int  # of the files


_ONE = Circumstances("one", 0o022, "UTC", "C.UTF-8", False, 1_000_000_000)
_OTHER = Circumstances("the-other-one", 0o077, "Asia/Kathmandu", "C", True, 1_700_000_001)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    """Builds the wheel of this checkout into FOLDER, where two builds of it agree."""
    with pinned_tools(REQUIREMENTS) as tools:
        wheel = build_twice(ROOT, folder, tools)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    print(f"{wheel}\nsha256 {digest}, compressed by zlib {zlib.ZLIB_RUNTIME_VERSION}")


@contextlib.contextmanager
def pinned_tools(requirements: Path) -> Iterator[Path]:
    """A folder with what the requirements name and nothing else, each file held to its sha256."""
    with tempfile.TemporaryDirectory() as tools:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--require-hashes"]
        command += ["--only-binary", ":all:", "--target", tools, "--requirement", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise WheelError(f"what packs the wheel cannot be installed from {requirements}:\n{done.stderr.strip()}")
        yield Path(tools)


def build_twice(tree: Path, folder: Path, tools: Path) -> Path:
    """The wheel of `tree`, in `folder`: packed by `tools` from two copies, under circumstances that must not show in it."""
    with tempfile.TemporaryDirectory() as temporary:
        first, second = (_build(tree, Path(temporary), tools, circumstances) for circumstances in (_ONE, _OTHER))
        if first.name != second.name or first.read_bytes() != second.read_bytes():
            raise WheelError(f"two builds of one tree differ: {', '.join(_differences(first, second)) or 'in how they are packed'}")
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(first, folder))


def _build(tree: Path, temporary: Path, tools: Path, circumstances: Circumstances) -> Path:
    place = temporary / circumstances.name
    sources = place / "sources"
    for name in sorted(_names(tree), reverse=circumstances.backwards):
        copy = sources / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(tree / name, copy)
        except FileNotFoundError:
            raise WheelError(f"git tracks {name}, which is not there: restore it, or remove it from git too") from None
        os.utime(copy, (circumstances.time, circumstances.time))
    command = [sys.executable, "-I", "-S", "-c", _PACK, str(tools), str(place)]
    done = subprocess.run(command, cwd=sources, env=_environment(circumstances), umask=circumstances.umask, capture_output=True, text=True)
    wheels = list(place.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise WheelError(f"no wheel was built:\n{done.stdout}{done.stderr}")
    return wheels[0]


def _names(tree: Path) -> list[str]:
    try:
        names = tracked(tree)
    except NoListError as error:
        raise WheelError(str(error)) from None
    if names is None:
        raise WheelError(f"{tree} is no checkout: a wheel holds what git tracks; build it from a clone")
    return [name for name in names if name in _FILES or name.startswith(_FOLDERS)]


def _environment(circumstances: Circumstances) -> dict[str, str]:
    time = os.environ.get("SOURCE_DATE_EPOCH", "1577836800")  # a release has its commit's time there
    return {"SOURCE_DATE_EPOCH": time, "TZ": circumstances.zone, "LC_ALL": circumstances.locale}


def _differences(first: Path, second: Path) -> list[str]:
    one, other = zipfile.ZipFile(first), zipfile.ZipFile(second)
    names = sorted({*one.namelist(), *other.namelist()})
    return [name for name in names if name not in one.namelist() or name not in other.namelist() or one.read(name) != other.read(name)]


if __name__ == "__main__":
    main()

"""A wheel holds what git tracks, whoever packs it, and is packed by tools that are held to their hashes."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.release.wheelhouse import NAMES, make_wheelhouse, offline

pytest.importorskip("hatchling", reason="hatchling is of the dev extra")

import hatchling

from tools.build_wheel import REQUIREMENTS, ROOT, WheelError, build_twice, pinned_tools

INSTALLED = Path(hatchling.__file__).parents[1]
FILES = {
    "zoo/__init__.py": '"""zoo"""\n',
    "zoo/old.py": "",
    "cubins/manifest.json": "{}\n",
    "cubins/sass.json": "{}\n",  # packed into no wheel
    "README.md": "zoo\n",
    "LICENSE": "\n",
    ".gitignore": "*.pyc\n",
}
UNTRACKED = ("zoo/id_rsa", "zoo/draft.py", "zoo/deep/er/.env", "cubins/id_rsa", "cubins/.manifest.json.77.new")


def git(folder: Path, *arguments: str):
    identity = ["-c", "user.name=A. Maintainer", "-c", "user.email=maintainer@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A clone with this project's own configuration and hook, a few files, and others that were never added."""
    folder = tmp_path / "checkout"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "tools").mkdir()
    for name in ("pyproject.toml", "tools/hatch_hook.py", "tools/tracked.py"):
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All")
    for name in UNTRACKED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    return folder


def packed(folder: Path, kind: str, place: Path) -> Path:
    """What hatchling makes of a folder when pip or build call it. What it said lies beside it."""
    place.mkdir()
    program = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", program, place], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (place / "said.txt").write_text(done.stderr + done.stdout)
    (made,) = (path for path in place.iterdir() if path.name != "said.txt")
    return made


def names_of(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


ALL = {"zoo/__init__.py", "zoo/old.py", "zoo/cubins/manifest.json"}


def test_an_untracked_key_is_in_no_wheel_and_is_told(checkout, tmp_path):
    assert names_of(build_twice(checkout, tmp_path / "dist", INSTALLED)) == ALL
    assert names_of(packed(checkout, "wheel", tmp_path / "plain")) == ALL
    said = (tmp_path / "plain/said.txt").read_text()
    assert all(name in said for name in UNTRACKED)


def test_an_untracked_key_is_in_no_sdist_nor_in_a_wheel_made_of_one(checkout, tmp_path):
    sdist = packed(checkout, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 has it, 3.11.2 of Debian 12 does not
        archive.extractall(tmp_path / "unpacked")
    assert names == {*FILES, "pyproject.toml", "tools/hatch_hook.py", "tools/tracked.py", "PKG-INFO"}
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert names_of(packed(unpacked, "wheel", tmp_path / "wheel")) == ALL


def test_a_checkout_that_git_will_not_read_is_not_packed_blindly(checkout, tmp_path):
    (checkout / ".git/HEAD").write_text("nothing\n")
    with pytest.raises(WheelError, match=r"git does not say which files of .* are tracked: fatal"):
        build_twice(checkout, tmp_path / "dist", INSTALLED)
    with pytest.raises(AssertionError, match="git does not say"):
        packed(checkout, "wheel", tmp_path / "plain")


def test_no_checkout_and_a_file_that_is_gone_are_said(checkout, tmp_path):
    (checkout / "zoo/old.py").unlink()
    with pytest.raises(WheelError, match=r"git tracks zoo/old\.py, which is not there"):
        build_twice(checkout, tmp_path / "dist", INSTALLED)
    shutil.rmtree(checkout / ".git")
    with pytest.raises(WheelError, match="is no checkout"):
        build_twice(checkout, tmp_path / "dist", INSTALLED)


def test_a_variable_of_a_git_hook_does_not_point_elsewhere(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "none"))
    assert names_of(build_twice(checkout, tmp_path / "dist", INSTALLED)) == ALL


def test_the_machine_does_not_show(checkout, tmp_path, monkeypatch):
    """Modes, times, order, zone, locale, umask, the folder: two clones that differ in all of them give one wheel."""
    first = build_twice(checkout, tmp_path / "one", INSTALLED)
    other = tmp_path / "another folder"
    other.mkdir()
    for path in sorted(checkout.rglob("*"), reverse=True):
        if path.is_file():
            copy = other / path.relative_to(checkout)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            copy.chmod(0o700)
            os.utime(copy, (1, 1))
    for variable, value in {"TZ": "America/St_Johns", "LC_ALL": "C", "PYTHONPATH": str(tmp_path), "PYTHONUTF8": "0"}.items():
        monkeypatch.setenv(variable, value)
    before = os.umask(0o077)
    try:
        second = build_twice(other, tmp_path / "two", INSTALLED)
    finally:
        os.umask(before)
    assert first.name == second.name and first.read_bytes() == second.read_bytes()


def test_nothing_that_is_installed_here_takes_part(checkout, tmp_path, monkeypatch):
    """Only the folder of tools is looked into: an empty one cannot pack, though hatchling is installed here."""
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(INSTALLED))
    with pytest.raises(WheelError, match="No module named 'hatchling'"):
        build_twice(checkout, tmp_path / "dist", tmp_path / "none")


def test_every_tool_is_pinned_by_its_hash():
    lines = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    pinned = {}
    for line in lines:
        found = re.fullmatch(r"([a-z-]+)==([0-9.]+) --hash=sha256:[0-9a-f]{64}", line)
        assert found, line
        pinned[found[1]] = found[2]
    needed, waiting = set(), ["hatchling"]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            wanted = [text for text in importlib.metadata.requires(name) or () if ";" not in text]
            waiting += [re.match(r"[A-Za-z0-9-]+", text)[0].lower() for text in wanted]
    assert set(pinned) == needed == set(NAMES)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["build-system"]["requires"] == [f"hatchling=={pinned['hatchling']}"]
    assert f"hatchling=={pinned['hatchling']}" in project["project"]["optional-dependencies"]["dev"]


def test_a_tool_of_another_hash_packs_nothing(tmp_path, monkeypatch):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(make_wheelhouse(tmp_path / "wheels"))
    for variable, value in offline(tmp_path / "wheels").items():
        monkeypatch.setenv(variable, value)
    with pinned_tools(requirements) as tools:
        assert (tools / "hatchling/build.py").is_file() and (tools / "tomlkit").is_dir()
    assert not tools.exists()
    (wheel,) = (tmp_path / "wheels").glob("pluggy-*")
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("pluggy/more.py", "import os\n")
    with pytest.raises(WheelError, match="DO NOT MATCH THE HASHES"), pinned_tools(requirements):
        pass
    lines = requirements.read_text().splitlines(keepends=True)
    requirements.write_text("".join(line for line in lines if not line.startswith("pluggy")))
    with pytest.raises(WheelError, match="pluggy"), pinned_tools(requirements):
        pass
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() not in requirements.read_text()

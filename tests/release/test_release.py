"""tools/release.py on a repository of a few files: what it must refuse, and what a tag and a wheel hold in the end."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.release.wheelhouse import make_wheelhouse, offline

pytest.importorskip("hatchling", reason="hatchling is of the dev extra")
TOOLS = Path(__file__).resolve().parents[2] / "tools"

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "cubin-zoo"
version = "0.2.0"
[tool.hatch.build.targets.wheel]
packages = ["zoo"]
"""
CHANGELOG = "# Changes\n\n## 0.2.0 (2026-12-24)\n\n### Added\n\n- A kernel.\n\n## 0.1.0 (2026-11-30)\n\n- All else.\n"
FILES = {
    "pyproject.toml": PYPROJECT,
    "zoo/__init__.py": '__version__ = "0.2.0"\n',
    "cubins/manifest.json": "{}",
    "CHANGELOG.md": CHANGELOG,
    ".gitignore": "__pycache__/\n/dist/\n/zoo/left_over.txt\n",
    "README.md": "zoo\n",
    "LICENSE": "\n",
    ".ci/run": "#!/bin/sh\ntest ! -e zoo/left_over.txt\n",
}
RANDOM_HOOK = """\
import uuid
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Hook(BuildHookInterface):
    def initialize(self, version, data):
        with open("zoo/built.txt", "w") as file:
            file.write(uuid.uuid4().hex)
"""


@dataclass
class Repository:
    path: Path

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=A. Maintainer", "-c", "user.email=maintainer@example.org"]
        return subprocess.run(["git", *identity, *arguments], cwd=self.path, check=True, capture_output=True, text=True).stdout

    def commit(self, **changes: str):
        for name, text in changes.items():
            (self.path / name).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A change")

    def release(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "tools/release.py", *options]
        return subprocess.run(command, cwd=self.path, capture_output=True, text=True)

    def refusal(self, *options: str) -> str:
        """What a release is refused with, after which nothing is tagged."""
        tags = self.git("tag")
        result = self.release(*options)
        assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
        assert self.git("tag") == tags
        return result.stderr


@pytest.fixture(scope="module")
def wheelhouse(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("tools") / "wheels"
    return folder, make_wheelhouse(folder)


@pytest.fixture
def repository(tmp_path, monkeypatch, wheelhouse) -> Repository:
    for variable, value in {"AUTHOR": "A. Maintainer", "COMMITTER": "A. Maintainer"}.items():
        monkeypatch.setenv(f"GIT_{variable}_NAME", value)
        monkeypatch.setenv(f"GIT_{variable}_EMAIL", "maintainer@example.org")
    made = Repository(tmp_path / "zoo")
    for name, text in FILES.items():
        file = made.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (made.path / ".ci" / "run").chmod(0o755)
    (made.path / "tools").mkdir()
    for tool in ("release.py", "build_wheel.py", "tracked.py"):
        shutil.copy(TOOLS / tool, made.path / "tools")
    (made.path / "tools" / "wheel_requirements.txt").write_text(wheelhouse[1])
    for variable, value in offline(wheelhouse[0]).items():
        monkeypatch.setenv(variable, value)
    made.git("init", "--quiet", "--initial-branch=main")
    made.git("init", "--quiet", "--bare", str(tmp_path / "origin"))
    made.git("remote", "add", "origin", str(tmp_path / "origin"))
    made.commit()
    return made


def test_a_green_commit_is_tagged_with_the_changelogs_words_and_not_pushed(repository):
    (repository.path / "zoo" / "left_over.txt").write_text("ignored by git, and no part of a release")
    result = repository.release()
    assert result.returncode == 0, result.stderr
    assert repository.git("tag", "--list", "--format=%(objecttype) %(contents)").strip() == "tag zoo 0.2.0\n\n### Added\n\n- A kernel."
    assert repository.git("rev-parse", "v0.2.0^{commit}") == repository.git("rev-parse", "HEAD")
    assert repository.git("ls-remote", "origin") == ""
    (wheel,) = (repository.path / "dist").iterdir()
    names = zipfile.ZipFile(wheel).namelist()
    assert "zoo/__init__.py" in names and "zoo/left_over.txt" not in names


def test_a_dry_run_leaves_no_tag_and_needs_no_green_tests(repository):
    repository.commit(**{".ci/run": "#!/bin/sh\nexit 1\n"})
    result = repository.release("--dry-run")
    assert result.returncode == 0 and "v0.2.0 would be tagged" in result.stdout and "- A kernel." in result.stdout
    assert repository.git("tag") == ""


def test_a_commit_whose_tests_fail_is_not_released(repository):
    repository.commit(**{".ci/run": "#!/bin/sh\nexit 1\n"})
    assert ".ci/run failed" in repository.refusal()


@pytest.mark.parametrize("name", ["zoo/__init__.py", "zoo/new.py"])
def test_what_is_not_committed_is_not_released(repository, name):
    (repository.path / name).write_text('__version__ = "0.2.0"\nchanged = True\n')
    assert "not clean" in repository.refusal("--dry-run")


def test_a_released_version_is_not_made_again(repository):
    repository.git("tag", "v0.2.0")
    assert "tagged already" in repository.refusal("--dry-run")


def test_a_package_that_calls_itself_otherwise_is_not_released(repository):
    repository.commit(**{"zoo/__init__.py": '__version__ = "0.1.0"\n'})
    assert "pyproject.toml says version 0.2.0, zoo/__init__.py says 0.1.0" in repository.refusal("--dry-run")


@pytest.mark.parametrize(
    ("changelog", "words"),
    [
        ("# Changes\n\n## Unreleased\n\n- Another.\n\n" + CHANGELOG.partition("\n\n")[2], "begins with '## Unreleased'"),
        (CHANGELOG.replace("0.2.0 (2026-12-24)", "0.2.0"), "expected '## 0.2.0 (YEAR-MONTH-DAY)'"),
        (CHANGELOG.replace("0.2.0", "0.2.00"), "expected '## 0.2.0"),
        (CHANGELOG.replace("### Added\n\n- A kernel.\n\n", ""), "says nothing of 0.2.0"),
        ("# Changes\n", "begins with ''"),
    ],
)
def test_a_version_that_the_changelog_does_not_tell_of_is_not_released(repository, changelog, words):
    repository.commit(**{"CHANGELOG.md": changelog})
    assert words in repository.refusal("--dry-run")


def test_a_wheel_that_is_different_each_time_is_not_released(repository):
    project = PYPROJECT + '[tool.hatch.build.hooks.custom]\npath = "zoo/hook.py"\n'
    repository.commit(**{"pyproject.toml": project, "zoo/hook.py": RANDOM_HOOK})
    assert "two builds of one tree differ: " in (words := repository.refusal("--dry-run")) and "zoo/built.txt" in words
    assert not (repository.path / "dist").exists()

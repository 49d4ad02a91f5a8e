"""Makes a release of the commit that is checked out: a wheel in dist/ and an annotated tag. It publishes and pushes nothing.

    python tools/release.py --dry-run          check everything but the tests, build the wheel twice, stop before the tag
    python tools/release.py                    the same, after .ci/run has passed on a clean copy; then the tag

The version is written in pyproject.toml and zoo/__init__.py, and heads CHANGELOG.md: `## 0.2.0 (2026-12-24)`. What the changelog
says of it becomes the tag's message.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.build_wheel import REQUIREMENTS, build_twice, pinned_tools


class ReleaseError(click.ClickException):
    """This commit cannot be released; the message says what to do first."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--dry-run", is_flag=True, help="Run neither .ci/run nor git tag.")
def main(dry_run: bool) -> None:
    """Checks the commit that is checked out, builds its wheel twice, and tags it."""
    version = version_of(ROOT)
    tag, words = f"v{version}", changes_of(version, (ROOT / "CHANGELOG.md").read_text())
    if changed := git("status", "--porcelain"):
        raise ReleaseError(f"the checkout is not clean; commit these, or put them away:\n{changed}")
    if git("tag", "--list", tag):
        raise ReleaseError(f"{tag} is tagged already; a released version never changes, so write the next one")
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "zoo"  # what is committed, and nothing else that lies around here
        git("clone", "--quiet", "--shared", str(ROOT), str(copy))
        all_tests = {**os.environ, "ZOO_SHARE": "1"}
        if not dry_run and subprocess.run([str(copy / ".ci" / "run")], cwd=copy, env=all_tests).returncode:
            raise ReleaseError(".ci/run failed on a clean copy of this commit; a release is green")
        os.environ["SOURCE_DATE_EPOCH"] = git("log", "-1", "--format=%ct")
        with pinned_tools(REQUIREMENTS) as tools:
            wheel = build_twice(copy, ROOT / "dist", tools)
    click.echo(f"{wheel}: two builds agree to the byte")
    if dry_run:
        click.echo(f"{tag} would be tagged:\n\n{words}")
        return
    git("tag", "--annotate", tag, "--cleanup=verbatim", "--message", f"zoo {version}\n\n{words}\n")
    click.echo(f"{tag} is tagged; publish it with\n    git push origin {tag}\n    twine upload {wheel}")


def version_of(root: Path) -> str:
    """The version, which the package and its description must agree on."""
    described = str(tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"])
    found = re.search(r'^__version__ = "(.+)"$', (root / "zoo" / "__init__.py").read_text(), re.MULTILINE)
    if found is None or found[1] != described:
        raise ReleaseError(f"pyproject.toml says version {described}, zoo/__init__.py says {found and found[1]}: write the same in both")
    return described


def changes_of(version: str, changelog: str) -> str:
    """What the changelog says of a version. It must be its first heading, with a date."""
    first, *_ = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)[1:] or [""]
    heading, _, words = first.partition("\n")
    if not re.fullmatch(rf"## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading):
        raise ReleaseError(
            f"CHANGELOG.md begins with {heading!r}, expected '## {version} (YEAR-MONTH-DAY)': give the heading its version and its date"
        )
    if not words.strip():
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}: write what changed for those who use it")
    return words.strip()


def git(*arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        raise ReleaseError(f"git {arguments[0]}: {result.stderr.strip()}")
    return result.stdout.strip()


if __name__ == "__main__":
    main()

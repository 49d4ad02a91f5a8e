"""Which files of a checkout git knows: those that are packed. A key or a draft that lies among them is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


class NoListError(Exception):
    """There is a checkout, and git does not say what is in it."""


def tracked(root: Path) -> list[str] | None:
    """The paths below `root` that git tracks, in their order. None where `root` is no checkout, such as an unpacked sdist."""
    listed = _ask(root, "ls-files", "-z")
    return None if listed is None else sorted(listed)


def untracked(root: Path, *folders: str) -> list[str]:
    """What lies in folders of a checkout and is neither tracked nor ignored."""
    return sorted(_ask(root, "ls-files", "-z", "--others", "--exclude-standard", "--", *folders) or ())


def _ask(root: Path, *arguments: str) -> list[str] | None:
    if not (root / ".git").exists():  # a folder; of a worktree or a submodule a file
        return None
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", *arguments], cwd=root, env=environment, capture_output=True)
    except FileNotFoundError:
        raise NoListError(
            f"{root} is a checkout, and there is no git to say which of its files are tracked: install git, or leave .git out of the copy"
        ) from None
    if done.returncode:
        raise NoListError(f"git does not say which files of {root} are tracked: {done.stderr.decode(errors='replace').strip()}")
    return [os.fsdecode(name) for name in done.stdout.split(b"\0") if name]

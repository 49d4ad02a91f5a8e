"""A stand-in for the disk that stops a program at its n-th operation."""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from zoo.errors import ZooError

FULL, CONTROL_C, KILL = HOW = ("a full disk", "Ctrl-C", "a kill")
_MAKE_NO_ROOM = ("unlink", "rmdir")  # work on a full disk, too


class Killed(BaseException):
    """The process is gone: nothing that it still says to the disk happens."""


class Disk:
    def __init__(self, stop_at: int, how: str):
        self.left, self.how = stop_at, how
        self.stopped = ""  # at which operation
        self.renamed = 0

    def step(self, what: str, half: Callable[[], object] = lambda: None) -> None:
        """Before an operation. `half` is what an operation that takes a while has done when it is stopped."""
        if self.stopped and self.how == KILL:
            raise Killed
        if self.stopped and self.how == FULL and what not in _MAKE_NO_ROOM:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.stopped:
            return
        if self.left == 0 and not (self.how == FULL and what in _MAKE_NO_ROOM):
            self.stopped = what
            half()
            raise {FULL: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), CONTROL_C: KeyboardInterrupt(), KILL: Killed()}[self.how]
        self.left = max(0, self.left - 1)
        self.renamed += what == "replace"


class _File:
    """A file open for writing."""

    def __init__(self, file, disk: Disk):
        self._file, self._disk = file, disk

    def __getattr__(self, name: str):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *_: object):
        self._file.close()

    def write(self, data):
        def half():
            self._file.write(data[: len(data) // 2])
            self._file.flush()

        self._disk.step("write", half)
        return self._file.write(data)


@contextlib.contextmanager
def stopping(stop_at: int, how: str) -> Iterator[Disk]:
    """Stops this process's writing at an operation, counted from 0."""
    disk = Disk(stop_at, how)

    def counted(what: str):
        real = getattr(os, what)

        def operation(*arguments, **settings):
            disk.step(what)
            return real(*arguments, **settings)

        return operation

    real_open = open

    def opened(file, mode="r", *arguments, **settings):
        if not set(mode) & set("wxa+"):
            return real_open(file, mode, *arguments, **settings)
        disk.step("open")
        return _File(real_open(file, mode, *arguments, **settings), disk)

    with contextlib.ExitStack() as patches:
        for what in ("replace", "unlink", "mkdir", "rmdir", "fsync"):
            patches.enter_context(mock.patch.object(os, what, counted(what)))
        patches.enter_context(mock.patch.object(builtins, "open", opened))
        patches.enter_context(mock.patch.object(io, "open", opened))
        yield disk


def every_stop(how: str, prepare: Callable[[], object], work: Callable[[], object], check: Callable[[Disk], object]) -> int:
    """Does `work`, stopped at its first operation, then at its second, until nothing stops it. How many there were.

    A full disk may be met by an operation that makes no room only; the others are passed over."""
    number = 0
    with mock.patch.object(os, "fsync"):  # nobody pulls the plug here
        while True:
            prepare()
            with stopping(number, how) as disk:
                try:
                    work()
                except (OSError, KeyboardInterrupt, Killed, ZooError):
                    assert disk.stopped
            if not disk.stopped:
                return number
            check(disk)
            number += 1


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def hidden(files: dict[str, bytes]) -> list[str]:
    return [name for name in files if name.rpartition("/")[2].startswith(".")]

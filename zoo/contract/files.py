"""The files of a zoo: what they may be called, how they are read when they may be anything, and how they are written whole."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
_NAME = re.compile(rf"{_PART}(?:/{_PART})*")
LARGEST_CUBIN = 64 << 20
_LONGEST_NAME = 240
_PARTIAL = re.compile(r"\..+\.[0-9]+\.new")  # hidden, and named for the process that was writing it


def is_file_name(text: str) -> bool:
    """Whether a file below a cubin directory may have this name: a closed alphabet, so that no reader of names (a shell,
    make, a C comment, a terminal) finds a meaning in one, and no part that starts with a dot or a dash."""
    return len(text) <= _LONGEST_NAME and _NAME.fullmatch(text) is not None


def read_file(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most `most` bytes; OSError, in words, for what is none: a pipe would never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        size, data = found.st_size, b""
        while size <= most:
            more = os.read(descriptor, size - len(data) + 1)  # a byte more than it should have: it may be growing
            if not more:
                return data
            data += more
            size = max(size, len(data))
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"it has more than the {most:,} bytes that zoo reads of such a file", str(path))


def write_file(path: Path, data: bytes) -> None:
    """Whole or not at all, whenever the process is killed or the disk is full. What a kill leaves behind, `is_partial` knows."""
    write_files({path: data})


def write_files(files: Mapping[Path, bytes]) -> None:
    """Each whole. All are written beside their places before the first is renamed, so that a full disk changes none of them."""
    partials: dict[Path, Path] = {}
    try:
        for path, data in files.items():
            partials[path] = path.with_name(f".{path.name}.{os.getpid()}.new")
            with named(path), open(partials[path], "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        for path, partial in partials.items():
            os.replace(partial, path)
    except BaseException:
        for partial in partials.values():
            partial.unlink(missing_ok=True)
        raise


def refuse_unwritable(path: Path) -> None:
    """Before an hour of work, not after it: the OSError of a `write_file` that could not."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    probe = path.with_name(f".{path.name}.{os.getpid()}.new")
    with named(path):
        try:
            probe.write_bytes(b"")
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """An OSError inside says of which file it is: a full disk is met by a write, which knows no names."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def remove_partials(folder: Path) -> None:
    for path in folder.glob("**/.*.new"):
        if is_partial(path) and not path.is_dir():
            path.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether a file is what a killed process had written of another: nothing reads it, the next build or record removes it."""
    return _PARTIAL.fullmatch(path.name) is not None

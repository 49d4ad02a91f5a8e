"""The folder of an export: how one export takes the place of another, whatever else lies there and whenever it is stopped.

`zoo_files.txt` names what exports have written. Only what it names, and what the Makefile made of that, is ever removed. It
names the files of the export before and of the new one while the one takes the other's place; zoo_table.c goes first and comes last, so that what
lies there in between does not build, and exporting again repairs it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from zoo.contract.files import is_partial, named, read_file, write_file
from zoo.errors import ArgumentError

LIST = "zoo_files.txt"
LAST = "zoo_table.c"  # without which nothing builds
_HEAD = "# Written by `zoo export`. It removes these files, and what make builds of them, when it writes here again, and no others.\n"
_LARGEST_LIST = 16 << 20
_NAME = re.compile(
    r"zoo\.[ch]|zoo_contract\.h|zoo_table\.[ch]|example\.c|Makefile|CMakeLists\.txt|README\.md|cubins/[A-Za-z0-9_][A-Za-z0-9_.-]*\.[ch]"
)
_BUILT = ("libzoo.a", "example")


def replace(directory: Path, files: Mapping[str, str]) -> None:
    """Writes an export's files, by their names in the directory, in place of those of the export before."""
    directory.mkdir(parents=True, exist_ok=True)
    with _alone(directory):
        before = _listed(directory)
        _refuse_strangers(directory, before, files)
        write_file(directory / LIST, _list({*before, *files}))
        _remove(directory, {*before, *files})
        (directory / "cubins").mkdir(exist_ok=True)
        for name, text in files.items():
            if name != LAST:
                with named(directory / name), open(directory / name, "xb") as file:
                    file.write(text.encode())
        write_file(directory / LAST, files[LAST].encode())
        write_file(directory / LIST, _list(files))


@contextlib.contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two exports into one folder take turns."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _list(names: Collection[str]) -> bytes:
    return (_HEAD + "".join(f"{name}\n" for name in sorted(names))).encode()


def _listed(directory: Path) -> set[str]:
    """What exports have written to a directory. ArgumentError for one that is no export's and not empty."""
    try:
        lines = read_file(directory / LIST, _LARGEST_LIST).decode("ascii", "replace").splitlines()
    except FileNotFoundError:
        if all(_is_left(path, LIST) for path in directory.iterdir()):
            return set()
        raise ArgumentError(
            f"{directory} is neither empty nor an earlier export, which has a {LIST}; choose another directory, or empty this one"
        ) from None
    names = {line for line in lines if not line.startswith("#")}
    for name in names:
        if not _NAME.fullmatch(name):
            raise ArgumentError(f"{directory / LIST} names {name[:80]!r}, which no export writes; export to an empty directory")
    return names


def _refuse_strangers(directory: Path, before: Collection[str], files: Collection[str]) -> None:
    """What somebody else put where the export must write."""
    found = [directory / name for name in sorted(files) if name not in before and os.path.lexists(directory / name)]
    found += [directory / name for name in sorted(before) if (directory / name).is_dir()]
    folder = directory / "cubins"
    if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir()):
        found.append(folder)
    if found:
        raise ArgumentError(f"{found[0]} is not from an export; move it away, or choose another directory")


def _remove(directory: Path, names: Collection[str]) -> None:
    (directory / LAST).unlink(missing_ok=True)
    objects = [f"{name.removesuffix('.c')}.o" for name in names if name.endswith(".c")]
    for path in (directory / name for name in (*_BUILT, *objects, *names)):
        if not path.is_dir():
            path.unlink(missing_ok=True)
    for path in directory.iterdir():
        if _is_left(path, LIST) or _is_left(path, LAST):
            path.unlink(missing_ok=True)


def _is_left(path: Path, name: str) -> bool:
    """Whether this is what a killed export had written of one of its files."""
    return path.name.startswith(f".{name}.") and is_partial(path)

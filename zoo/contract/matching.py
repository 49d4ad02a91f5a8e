"""Which names a name, a part of names or a pattern means: the same in `zoo.find`, in `zoo.load` and in every command."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection

from zoo.contract.whole_numbers import shown
from zoo.errors import UnknownKernelError

_LONGEST = 1000  # characters of what may mean a name: patterns take the square of their length


def is_pattern(written: str) -> bool:
    return any(sign in written for sign in "*?[")


def matching(written: str, names: Collection[str]) -> list[str]:
    """The name itself where it is one; what a pattern matches; else every name that holds what was written."""
    if not issubclass(type(written), str):
        raise UnknownKernelError(f"a kernel's name is a text, got {shown(written)}")
    if len(written) > _LONGEST:
        raise UnknownKernelError(f"{shown(written)} means no kernel: no name or pattern has {len(written):,} characters")
    if not written:
        raise UnknownKernelError("an empty word names no kernel; write a name, a part of names or a pattern: '*' means all")
    if written in names:
        return [written]
    if is_pattern(written):
        return [name for name in names if fnmatch.fnmatchcase(name, written)]
    return [name for name in names if written in name]

"""Which kernels a name, a part of a name or a pattern means: the same in every command."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable

import click

from zoo.catalog import Zoo
from zoo.cli.text import listed
from zoo.contract.manifest import Kernel
from zoo.contract.nearest import suggestion
from zoo.errors import UnknownKernelError


def is_pattern(written: str) -> bool:
    return any(sign in written for sign in "*?[")


def matching(written: str, names: Collection[str]) -> list[str]:
    """The name itself where it is one; what a pattern matches; else every name that holds what was written."""
    if written in names:
        return [written]
    if is_pattern(written):
        return [name for name in names if fnmatch.fnmatchcase(name, written)]
    return [name for name in names if written in name]


def selected(zoo: Zoo, written: str) -> list[Kernel]:
    """The kernels that were meant, at least one."""
    if not written:
        raise UnknownKernelError("an empty word names no kernel; write a name, a part of names or a pattern: '*' means all")
    names = zoo.manifest.names
    found = matching(written, names)
    if not found:
        refusal = f"no kernel matches '{written}'" if is_pattern(written) else f"no kernel is named '{written}'"
        raise UnknownKernelError(f"{refusal}; {suggestion(written, names, f'`zoo list` shows all {len(names)}')}")
    return [zoo.kernel(name) for name in found]


def refuse_unknown(option: str, written: str, known: Iterable[str]) -> None:
    """Refuses what no kernel has, such as an arch that the zoo does not ship."""
    known = list(dict.fromkeys(known))
    if not any(fnmatch.fnmatchcase(one, written) for one in known):
        raise click.ClickException(f"no kernel has {option} {written}; {suggestion(written, known, f'there are {listed(known)}')}")

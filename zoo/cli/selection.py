"""The kernels that were meant on a command line."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import click

from zoo.catalog import Zoo
from zoo.cli.text import listed
from zoo.contract.archs import all_of, arch_of, words_for
from zoo.contract.manifest import Kernel
from zoo.contract.matching import is_pattern, matching
from zoo.contract.nearest import suggestion
from zoo.contract.whole_numbers import LONGEST, shown
from zoo.errors import UnknownKernelError


def selected(zoo: Zoo, written: str) -> list[Kernel]:
    """At least one kernel."""
    names = zoo.manifest.names
    found = matching(written, names)
    if not found:
        refusal = f"no kernel matches '{written}'" if is_pattern(written) else f"no kernel is named '{written}'"
        raise UnknownKernelError(f"{refusal}; {suggestion(written, names, f'`zoo list` shows all {len(names)}')}")
    return [zoo.kernel(name) for name in found]


def refuse_unknown(option: str, written: str, known: Iterable[str]) -> None:
    """Refuses what no kernel has, such as an arch that the zoo does not ship."""
    known = list(dict.fromkeys(known))
    if len(written) > 1000 or not any(fnmatch.fnmatchcase(one, written) for one in known):
        said = written if len(written) <= LONGEST else shown(written)
        raise click.ClickException(f"no kernel has {option} {said}; {suggestion(written, known, f'there are {listed(known)}')}")


def refuse_unknown_arch(written: str, kernels: Iterable[Kernel]) -> None:
    """Refuses an arch that no kernel is shipped for; `hopper` and `b200` are archs, too."""
    archs = list(dict.fromkeys(arch for kernel in kernels for arch in kernel.archs))
    if len(written) > LONGEST or not fnmatch.filter(archs, arch_of(written)):
        hint = suggestion(written, words_for(archs), all_of(archs))
        raise click.ClickException(f"no kernel has --arch {written if len(written) <= LONGEST else shown(written)}; {hint}")


def refuse_unknown_variant(kernel: Kernel, variant: str | None) -> None:
    names = list(dict.fromkeys(one.name for one in kernel.variants))
    if variant is not None and variant not in names:
        known = suggestion(variant, names, f"`zoo show {kernel.name} --variants` shows all {len(names)}")
        raise click.ClickException(f"{kernel.name}: variant '{variant}' does not exist; {known}")

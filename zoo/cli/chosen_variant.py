"""Which variant a call of given sizes would run, on each arch that a kernel is shipped for, and what the next ones would cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.benchmark.arguments import addressed, describe_arguments, size_meanings, takes_groups
from zoo.benchmark.groups import Groups
from zoo.cli.text import count, paragraph
from zoo.contract.archs import family_of
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import resolve
from zoo.errors import ArgumentError, ExpressionError, ZooError

_CHIPS = {"sm_90a": ("H200", 132), "sm_100f": ("B200", 148)}  # on which the choice is shown, and their multiprocessors
_OTHER_MULTIPROCESSORS = 128
_SHOWN = 5  # variants whose costs are shown


def chosen_variants(kernel: Kernel, sizes: Mapping[str, int], groups: Groups) -> tuple[str, bool]:
    """A line for the sizes and one for each arch, and whether any arch takes the call."""
    try:
        return _chosen_variants(kernel, sizes, groups)
    except ExpressionError:
        said = ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
        raise ArgumentError(f"{kernel.name}: arrays of {said} have more bytes than 64 bits count; give smaller sizes") from None


def _chosen_variants(kernel: Kernel, sizes: Mapping[str, int], groups: Groups) -> tuple[str, bool]:
    grouped, taken = takes_groups(kernel), False
    arguments = addressed(*describe_arguments(kernel, sizes, {}, groups if grouped else None))
    more = f", in {count(groups.count, 'group')} of equal size" if grouped else ""
    lines = [f"{', '.join(sizes)} = {', '.join(map(str, sizes.values()))}{more}"]
    for arch in kernel.archs:
        chip, multiprocessors = _CHIPS.get(arch, (arch, _OTHER_MULTIPROCESSORS))
        capability = int(arch[3:-2]), int(arch[-2])
        try:
            launch = resolve(kernel, arguments, capability, multiprocessors)
        except ExpressionError:
            raise
        except ZooError as refusal:
            words, costs = str(refusal).removeprefix(f"{kernel.name}: "), []
        else:
            taken = True
            grid, cluster = (" x ".join(map(str, extents)) for extents in (launch.grid, launch.cluster))
            words = f"{launch.variant.name}: grid {grid}, cluster {cluster}, {count(launch.threads, 'thread')} a block"
            costs = _costs(kernel, arguments, arch, capability, multiprocessors)
        lines.append(paragraph(f"{family_of(arch)} ({chip}): {words}", indent=2, hanging=2))
        if len(costs) > 1:
            cheapest = ", ".join(f"{name} {cost:,}" for name, cost in costs[:_SHOWN])
            lines.append(paragraph(f"costs, {count(len(costs), 'variant')} fit: {cheapest}", indent=4, hanging=2))
    lines += [paragraph(meanings, indent=2, hanging=2)] if (meanings := size_meanings(kernel)) else []
    return "\n".join(lines), taken


def _costs(
    kernel: Kernel, arguments: Mapping[str, Any], arch: str, capability: tuple[int, int], multiprocessors: int
) -> list[tuple[str, int]]:
    """Each variant that takes the call, and its cost; the chosen variant is the first."""
    costs = {}
    for name in dict.fromkeys(variant.name for variant in kernel.variants if variant.arch == arch):
        try:
            launch = resolve(kernel, arguments, capability, multiprocessors, name)
        except ZooError:
            continue
        costs[name] = launch.variant.cost.evaluate(launch.symbols)
    return sorted(costs.items(), key=lambda one: one[1])

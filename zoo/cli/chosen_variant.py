"""Which variant a call of given sizes would run, on each arch that a kernel is shipped for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.benchmark.arguments import describe_arguments, takes_groups
from zoo.benchmark.groups import Groups
from zoo.cli.text import count, paragraph
from zoo.contract.archs import family_of
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import resolve
from zoo.errors import ZooError

_CHIPS = {"sm_90a": ("H200", 132), "sm_100f": ("B200", 148)}  # on which the choice is shown, and their multiprocessors
_OTHER_MULTIPROCESSORS = 128
_SOMEWHERE = 1 << 32  # an address


def chosen_variants(kernel: Kernel, sizes: Mapping[str, int], groups: Groups) -> str:
    """A line for the sizes, and one for each arch."""
    grouped = takes_groups(kernel)
    arrays, keywords = describe_arguments(kernel, sizes, {}, groups if grouped else None)
    address, arguments = _SOMEWHERE, dict[str, Any](keywords)
    for name, array in arrays.items():
        arguments[name] = Array(address, array.dtype, array.shape, contiguous_strides(array.shape))
        address += -(-array.bytes // 4096) * 4096
    more = f", in {count(groups.count, 'group')} of equal size" if grouped else ""
    lines = [f"{', '.join(sizes)} = {', '.join(map(str, sizes.values()))}{more}"]
    for arch in kernel.archs:
        chip, multiprocessors = _CHIPS.get(arch, (arch, _OTHER_MULTIPROCESSORS))
        try:
            launch = resolve(kernel, arguments, (int(arch[3:-2]), int(arch[-2])), multiprocessors)
        except ZooError as refusal:
            words = str(refusal).removeprefix(f"{kernel.name}: ")
        else:
            grid, cluster = (" x ".join(map(str, extents)) for extents in (launch.grid, launch.cluster))
            words = f"{launch.variant.name}: grid {grid}, cluster {cluster}, {count(launch.threads, 'thread')} a block"
        lines.append(paragraph(f"{family_of(arch)} ({chip}): {words}", indent=2, hanging=2))
    return "\n".join(lines)

"""Which GEMM runs on which chip: a row for each epilogue, the formats of each arch. Groupings with equal formats share a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tools.documentation.text import code, table
from zoo.contract.manifest import Kernel

CHIPS = {"sm_90a": "Hopper (H100, H200)", "sm_100f": "Blackwell (B200, B300)"}
FOLDED = {"dense", "m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked"}  # `gemm.*.*` in the table


def chip_table(kernels: Iterable[Kernel]) -> str:
    formats: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: {arch: [] for arch in CHIPS})
    for kernel in kernels:
        if kernel.fields["op"] == "gemm":
            for arch in kernel.archs:
                formats[kernel.fields.get("extra", ""), kernel.fields["grouping"]][arch].append(kernel.fields["formats"])
    groupings: dict[tuple[str, tuple[str, ...]], set[str]] = defaultdict(set)
    for (epilogue, grouping), chips in formats.items():
        groupings[epilogue, tuple(", ".join(sorted(chips[arch])) or "none" for arch in CHIPS)].add(grouping)
    rows = []
    for (epilogue, cells), found in sorted(groupings.items()):
        names = [*sorted(found - FOLDED), "*"] if found >= FOLDED else sorted(found)
        rows += [(code(".".join(filter(None, ("gemm.*", name, epilogue)))), *cells) for name in names]
    return table(("kernel", *CHIPS.values()), rows)

"""Which product runs on which chip: a row for each grouping and epilogue, the formats of each arch."""

from __future__ import annotations

from collections.abc import Iterable

from tools.documentation.text import code, table
from zoo.contract.manifest import Kernel

CHIPS = {"sm_90a": "Hopper (H100, H200)", "sm_100f": "Blackwell (B200, B300)"}


def chip_table(kernels: Iterable[Kernel]) -> str:
    formats: dict[str, dict[str, list[str]]] = {}
    for kernel in kernels:
        if kernel.fields["op"] == "gemm":
            what = ".".join(kernel.fields[field] for field in ("grouping", "extra") if field in kernel.fields)
            chips = formats.setdefault(what, {arch: [] for arch in CHIPS})
            for arch in kernel.archs:
                chips[arch].append(kernel.fields["formats"])
    rows = [(code(f"gemm.*.{what}"), *(", ".join(chips[arch]) or "none" for arch in CHIPS)) for what, chips in sorted(formats.items())]
    return table(("kernel", *CHIPS.values()), rows)

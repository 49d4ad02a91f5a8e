"""Timings as evidence: under the digest of the variant that ran, a line for each size and setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict

from zoo.benchmark.groups import Groups
from zoo.benchmark.measure import Measurement
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import runs_on
from zoo.runtime.hardware import Hardware
from zoo.shipped.evidence import Evidence


def words_of(kernel: Kernel, sizes: Mapping[str, int], settings: Mapping[str, str], groups: Groups | None = None) -> dict[str, str | int]:
    """What a timing is of, beside its variant: sizes, groups, and settings that do not show in the variant's name."""
    besides = {name: chosen for name, chosen in settings.items() if not _shows_in_variant(kernel, name)}
    return {**sizes, **besides, **({} if groups is None else {"groups": groups.count, "sizes": groups.distribution})}


def record(evidence: Evidence, kernel: Kernel, machine: Hardware, measured: Iterable[tuple[Mapping[str, str | int], Measurement]]) -> None:
    """Adds to what was measured on the same device of the same bytes."""
    major, minor = (int(part) for part in machine.capability.split("."))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for words, seen in measured:
        line = " ".join(f"{name}={value}" for name, value in words.items())
        figures = {"microseconds": round(seen.microseconds, 3), "of_copy": round(seen.of_copy, 4), "bytes": seen.bytes}
        if seen.operations:
            figures["operations"] = seen.operations
        if seen.torch_product_microseconds is not None:
            figures["torch_product_microseconds"] = round(seen.torch_product_microseconds, 3)
        found.setdefault(seen.variant, {})[line] = figures
    for variant in kernel.variants:
        if variant.name in found and runs_on(variant.arch, (major, minor)):
            before = evidence.of(variant).get("benchmark", {})
            kept = before.get("shapes", {}) if before.get("device") == machine.device else {}
            evidence.add(variant, "benchmark", {**asdict(machine), "shapes": kept | found[variant.name]})


def _shows_in_variant(kernel: Kernel, name: str) -> bool:
    if name in kernel.options:
        return kernel.options[name].compiled
    return not kernel.arguments[name].optional and kernel.arguments[name].kind == "array"

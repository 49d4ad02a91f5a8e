"""Timings as evidence: under the digest of the variant that ran, a line for each size and setting.

A cubin may be started under several names. Lines of the name that it was built for are sizes and settings alone; those of others begin with
kernel=NAME.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from zoo.benchmark.arguments import elements_in, size_symbols, sizes_of_arguments, symbols_of_arguments
from zoo.benchmark.groups import Groups
from zoo.benchmark.measure import Measurement
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.resolve import runs_on
from zoo.runtime.hardware import Hardware
from zoo.shipped.evidence import Evidence

_KERNEL = "kernel="
# Names that tables of recorded cubins gave to sizes. Q: columns of q, which are gates; COLUMNS: those of gates and ups; N, of packed weights: rows.
_OTHER_SYMBOLS = ("N", "KB", "CODES", "COLUMNS", "Q")


@dataclass(frozen=True)
class Timing:
    """A recorded line: sizes in the order M, N, K, and the options, optional arguments and groups beside them."""

    kernel: str
    arch: str
    variant: str
    device: str
    driver: str
    date: str
    sizes: dict[str, int]
    settings: dict[str, str]
    figures: dict[str, float]

    @property
    def microseconds(self) -> float:
        return self.figures["microseconds"]

    @property
    def teraflops(self) -> float:
        return self.figures.get("operations", 0) / self.microseconds / 1e6

    @property
    def terabytes_per_second(self) -> float:
        return self.figures.get("bytes", 0) / self.microseconds / 1e6


def words_of(kernel: Kernel, sizes: Mapping[str, int], settings: Mapping[str, str], groups: Groups | None = None) -> dict[str, str | int]:
    """What a timing is of, beside its variant: sizes, groups, and settings that do not show in the variant's name."""
    besides = {name: chosen for name, chosen in settings.items() if not _shows_in_variant(kernel, name)}
    return {**sizes, **besides, **({} if groups is None else {"groups": groups.count, "sizes": groups.distribution})}


def line_of(kernel: Kernel, variant: Variant, words: Mapping[str, str | int]) -> str:
    """Sizes come in the order of the arguments, whatever order people read: a timing replaces the older timing of the same sizes."""
    given = size_symbols(kernel)
    counted = sizes_of_arguments(kernel, {name: int(value) for name, value in words.items() if name in given})
    ordered: dict[str, str | int] = {symbol: counted[symbol] for symbol in symbols_of_arguments(kernel) if symbol in counted}
    ordered |= {name: value for name, value in words.items() if name not in given}
    return _beginning(kernel, variant) + " ".join(f"{name}={value}" for name, value in ordered.items())


def timings(evidence: Evidence, kernel: Kernel, variant: Variant) -> dict[str, dict[str, Any]]:
    """What was measured of a variant under this name: sizes and settings -> figures."""
    beginning = _beginning(kernel, variant)
    shapes: dict[str, dict[str, Any]] = evidence.of(variant).get("benchmark", {}).get("shapes", {})
    found = {line.removeprefix(beginning): figures for line, figures in shapes.items() if line.startswith(beginning)}
    return {line: figures for line, figures in found.items() if not line.startswith(_KERNEL)}


def timings_of(kernel: Kernel, evidence: Evidence) -> Iterator[Timing]:
    """Of all variants."""
    for variant in kernel.variants:
        seen = evidence.of(variant).get("benchmark", {})
        for line, figures in timings(evidence, kernel, variant).items():
            words = dict(word.split("=") for word in line.split())
            symbols = (*size_symbols(kernel), *symbols_of_arguments(kernel), *_OTHER_SYMBOLS)
            found = {symbol: int(words.pop(symbol)) for symbol in symbols if symbol in words}
            when, machine = seen.get("date", ""), seen.get("driver", "")
            yield Timing(kernel.name, variant.arch, variant.name, seen["device"], machine, when, _as_given(kernel, found), words, figures)


def _as_given(kernel: Kernel, found: dict[str, int]) -> dict[str, int]:
    """The sizes of a recorded line as people give them, in elements and in the order M, N, K."""
    if "K" not in found and "KB" in found:
        found["K"] = found["KB"] * elements_in(kernel, "KB")
    if "K" not in found and "COLUMNS" in found:
        found["K"] = found["COLUMNS"] // 2
    if "I" not in found and ("Q" in found or "N" in found):
        found["I"] = found["Q"] if "Q" in found else found["N"] // 2
    if "R" not in found and "N" in found:
        found["R"] = found["N"]
    return {symbol: found[symbol] for symbol in size_symbols(kernel) if symbol in found}


def record(evidence: Evidence, kernel: Kernel, machine: Hardware, measured: Iterable[tuple[Mapping[str, str | int], Measurement]]) -> None:
    """Adds to what was measured on the same device of the same bytes."""
    major, minor = (int(part) for part in machine.capability.split("."))
    found: dict[str, list[tuple[Mapping[str, str | int], dict[str, float]]]] = {}
    for words, seen in measured:
        figures = {"microseconds": round(seen.microseconds, 3), "of_copy": round(seen.of_copy, 4), "bytes": seen.bytes}
        if seen.operations:
            figures["operations"] = seen.operations
        if seen.tensor_wise is not None:
            figures["torch_product_microseconds"] = round(seen.tensor_wise, 3)
        found.setdefault(seen.variant, []).append((words, figures))
    for variant in kernel.variants:
        if variant.name in found and runs_on(variant.arch, (major, minor)):
            before = evidence.of(variant).get("benchmark", {})
            kept = before.get("shapes", {}) if before.get("device") == machine.device else {}
            lines = {line_of(kernel, variant, words): figures for words, figures in found[variant.name]}
            evidence.add(variant, "benchmark", {**asdict(machine), "shapes": kept | lines})


def _beginning(kernel: Kernel, variant: Variant) -> str:
    """Of lines under this name: nothing, where the cubin was built for it."""
    return "" if variant.symbol == f"{kernel.name.replace('.', '_')}__{variant.name}" else f"{_KERNEL}{kernel.name} "


def _shows_in_variant(kernel: Kernel, name: str) -> bool:
    if name in kernel.options:
        return kernel.options[name].compiled
    return not kernel.arguments[name].optional and kernel.arguments[name].kind == "array"

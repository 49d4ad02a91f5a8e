"""The timings that `zoo bench` recorded, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zoo.benchmark.arguments import size_symbols
from zoo.benchmark.record import timings
from zoo.contract.manifest import Kernel, Variant
from zoo.shipped.evidence import Evidence

# What a copy takes on an H200: microseconds for each launch, and terabytes a second. Copies of some lengths are slower by half.
COPY_LAUNCH, COPY_TERABYTES_PER_SECOND, SLOW_COPY = 1.6, 4.25, 1.15


@dataclass(frozen=True)
class Timing:
    machine: str
    device: str
    variant: str
    sizes: dict[str, int]
    settings: dict[str, str]  # options, optional arguments, groups
    figures: dict[str, float]

    @property
    def microseconds(self) -> float:
        return self.figures["microseconds"]

    @property
    def teraflops(self) -> float:
        return self.figures["operations"] / self.microseconds / 1e6

    @property
    def terabytes_per_second(self) -> float:
        return self.figures["bytes"] / self.microseconds / 1e6

    @property
    def size_words(self) -> str:
        return " x ".join(map(str, self.sizes.values()))

    @property
    def setting_words(self) -> str:
        return ", ".join(f"{value} {name}" if name == "groups" else value for name, value in self.settings.items())


def timings_of(kernel: Kernel, evidence: Evidence) -> Iterator[Timing]:
    """Those of bf16 and e4m3."""
    for variant in kernel.variants:
        record = evidence.of(variant).get("benchmark")
        if record is None or not _is_shown(variant):
            continue
        for words, figures in timings(evidence, kernel, variant).items():
            settings = dict(word.split("=") for word in words.split())
            sizes = {symbol: int(settings.pop(symbol)) for symbol in size_symbols(kernel) if symbol in settings}
            yield Timing(f"{record['device']}, driver {record['driver']}", record["device"], variant.name, sizes, settings, figures)


def _is_shown(variant: Variant) -> bool:
    elements = {dtype for name, dtype in variant.dtypes.items() if "scale" not in name}
    return not {"f16", "f32", "e5m2"} & elements

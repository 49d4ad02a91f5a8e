"""The dense FP8 GEMM beside torch's product of the same sizes: one ratio for each number of tokens and weight matrix."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from tools.documentation.timings import timings_of
from zoo.contract.manifest import Kernel
from zoo.shipped.evidence import Evidence

DENSE = "gemm.fp8b128.dense"
Weights = tuple[int, int]  # K, N


@dataclass(frozen=True)
class Point:
    tokens: int
    weights: Weights
    zoo: float  # microseconds
    torch: float
    teraflops: float
    terabytes_per_second: float

    @property
    def ratio(self) -> float:
        return self.zoo / self.torch


@dataclass(frozen=True)
class Ratios:
    device: str
    points: tuple[Point, ...]  # by tokens, then by weights

    def of_tokens(self, tokens: int) -> list[Point]:
        return [one for one in self.points if one.tokens == tokens]

    def of_weights(self, weights: Weights) -> list[Point]:
        return [one for one in self.points if one.weights == weights]

    @property
    def tokens(self) -> list[int]:
        return sorted({one.tokens for one in self.points})

    @property
    def weights(self) -> list[Weights]:
        return sorted({one.weights for one in self.points})

    def mean(self, tokens: int) -> float:
        return statistics.geometric_mean(one.ratio for one in self.of_tokens(tokens))


def dense_ratios(kernels: Iterable[Kernel], evidence: Evidence) -> Ratios:
    """Of calls without `c`, factors of rows or other settings; of numbers of tokens at which every weight matrix was timed."""
    dense = next(kernel for kernel in kernels if kernel.name == DENSE)
    found, devices = {}, set()
    for one in timings_of(dense, evidence):
        if not one.settings and "torch_product_microseconds" in one.figures:
            tokens, weights = one.sizes["M"], (one.sizes["K"], one.sizes["N"])
            torch = one.figures["torch_product_microseconds"]
            found[tokens, weights] = Point(tokens, weights, one.microseconds, torch, one.teraflops, one.terabytes_per_second)
            devices.add(one.device)
    if len(devices) != 1:
        sys.exit(
            f"{DENSE} wants timings of one device beside torch, found those of {sorted(devices) or 'none'}: zoo bench {DENSE} --record"
        )
    everywhere = {weights for _, weights in found}
    whole = {tokens for tokens, _ in found if all((tokens, weights) in found for weights in everywhere)}
    return Ratios(devices.pop(), tuple(found[key] for key in sorted(found) if key[0] in whole))

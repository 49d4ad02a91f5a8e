"""Measures the tiles of kernels on one chip: draws calls, times the variants that may be fastest, and fits the numbers of their costs."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from zoo.benchmark.drawn_calls import DrawnCall, drawn_calls
from zoo.benchmark.fit import TimedCall, fitted
from zoo.benchmark.graphs import Replay, in_turns, repeated
from zoo.benchmark.measure import RotatingOperands, cache_bytes
from zoo.catalog import Zoo
from zoo.contract.costs import tunable, with_numbers
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import pick_arch
from zoo.errors import DriverError
from zoo.runtime import driver
from zoo.runtime.streams import stream

_SEED = 1
_FEWEST, _MOST = 8, 40  # calls of a kernel
_ROUNDS = 5  # of timing all variants of a call
_OFFERED = 8  # drawn calls of which the most informative one is timed
_MOST_FAILED = 8  # calls of a kernel
_FOLDS = 4  # each fourth of the calls judges numbers that the other calls determined
_RECENT = 40  # times of variants that say how long the next replays take


class Timer(Protocol):
    def nanoseconds(self, kernel: Kernel, call: DrawnCall) -> Mapping[str, float]:
        """The time of each variant that `call.costs` names."""


class Chip(Protocol):
    """What a `driver.Device` says."""

    @property
    def capability(self) -> tuple[int, int]: ...

    @property
    def multiprocessors(self) -> int: ...


@dataclass(frozen=True)
class Tuned:
    kernel: Kernel  # with the numbers that were found
    calls: int
    failed: int  # calls that the driver refused, for instance because memory is short
    lost_before: float  # by choices with the shipped numbers, over the fastest variants of the timed calls: 0.02 is 2 %
    lost: float  # by choices on calls that the fit of the numbers did not see

    @property
    def better(self) -> bool:
        return self.lost < self.lost_before


def tune(
    kernel: Kernel, chip: Chip, timer: Timer, seconds: float, most: float = math.inf, now: Callable[[], float] = time.monotonic
) -> Tuned | None:
    """A kernel's numbers from as many calls as `seconds` allow. A few calls may take longer, but none begins after `most` seconds.

    None for a kernel without enough calls. Calls that the driver refuses are left out; DriverError if they are too many.
    """
    began, calls, failed = now(), list[TimedCall](), 0
    for call in _balanced(drawn_calls(kernel, chip.capability, chip.multiprocessors, _SEED)):
        passed = now() - began
        if passed > most or len(calls) == _MOST or (len(calls) >= _FEWEST and passed > seconds):
            break
        try:
            times = timer.nanoseconds(kernel, call)
            if strange := [one for one in times.values() if not 0 < one < math.inf]:
                raise DriverError(f"events of the driver measured {strange[0]:.0f} ns")
            calls.append(TimedCall(call.values, times))
        except DriverError:
            failed += 1
            if failed == _MOST_FAILED and len(calls) < _FOLDS:
                raise
            if failed == _MOST_FAILED:
                break
    if len(calls) < _FOLDS:
        return None
    arch = pick_arch(kernel.archs, chip.capability) or ""
    unseen = [ratio for fold in range(_FOLDS) for ratio in _slower_on_unseen(kernel, arch, calls, fold)]
    found = with_numbers(kernel, arch, fitted(kernel, arch, calls))
    return Tuned(found, len(calls), failed, lost(kernel, arch, calls), statistics.geometric_mean(unseen) - 1)


def _slower_on_unseen(kernel: Kernel, arch: str, calls: Sequence[TimedCall], fold: int) -> list[float]:
    seen = [call for index, call in enumerate(calls) if index % _FOLDS != fold]
    return _slower(with_numbers(kernel, arch, fitted(kernel, arch, seen)), arch, calls[fold::_FOLDS])


def lost(kernel: Kernel, arch: str, calls: Sequence[TimedCall]) -> float:
    """How much longer the variants take that costs choose than the fastest ones, on average: 0.02 is 2 %."""
    return statistics.geometric_mean(_slower(kernel, arch, calls)) - 1


def _slower(kernel: Kernel, arch: str, calls: Sequence[TimedCall]) -> list[float]:
    """The time of the variant that costs choose over the time of the fastest one, for each call."""
    variants, ratios = {one.name: one for one in tunable(kernel, arch)}, []
    for call in calls:
        costs = {name: variants[name].cost.evaluate({**call.values, **variants[name].symbols}) for name in call.nanoseconds}
        ratios.append(call.nanoseconds[min(costs, key=costs.__getitem__)] / min(call.nanoseconds.values()))
    return ratios


class GraphTimer:
    """Times variants as `zoo bench` times a kernel, with fewer rounds."""

    def __init__(self, zoo: Zoo, device: driver.Device):
        self._zoo, self._device = zoo, device
        self._over_cost = deque([1.0], _RECENT)  # times over costs

    def nanoseconds(self, kernel: Kernel, call: DrawnCall) -> dict[str, float]:
        with self._device.current():
            ordinal, replays = self._device.ordinal, dict[str, Replay]()
            own, operands = stream(ordinal).handle, RotatingOperands(call.arrays, call.keywords, ordinal, cache_bytes(self._device))
            slowest = max(self._over_cost)
            try:
                for name, cost in call.costs.items():
                    replays[name] = Replay(repeated(operands.plans(self._zoo, kernel.name, name, own), slowest * cost / 1e3), own)
                times = {name: 1e3 * time for name, time in in_turns(replays, _ROUNDS).items()}
                self._over_cost += [time / max(call.costs[name], 1) for name, time in times.items()]
                return times
            finally:
                for replay in replays.values():
                    replay.close()


def shares(variants: Sequence[int], seconds: float) -> Iterator[float]:
    """The seconds of each kernel, by how many variants it has. A kernel's unused seconds go to the kernels after it."""
    began = time.monotonic()
    for done in itertools.accumulate(variants):
        yield began + seconds * done / sum(variants) - time.monotonic()


def _balanced(calls: Iterator[DrawnCall]) -> Iterator[DrawnCall]:
    """Of a few calls at a time the one whose variants were timed least."""
    timed = Counter[str]()
    offered = list(itertools.islice(calls, _OFFERED))
    while offered:
        best = max(offered, key=lambda call: sum(1 / (1 + timed[name]) ** 2 for name in call.costs))
        timed.update(best.costs)
        yield best
        offered.remove(best)
        offered += itertools.islice(calls, 1)

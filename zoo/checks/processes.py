"""Checks of many variants, in one process or in several."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Protocol

from zoo.catalog import Zoo
from zoo.checks import Outcome
from zoo.contract.manifest import Kernel, Variant
from zoo.errors import ZooError


class Place(Protocol):
    """What checks variants: `gpu.OnGpu` or `emulated.Emulation`. Processes are sent one, so it can be pickled."""

    @property
    def together(self) -> bool:
        """Whether all variants of a kernel are checked in one process: they share what the reference works out."""

    def check(self, zoo: Zoo, kernel: Kernel, variants: Sequence[Variant]) -> Iterator[tuple[int, Outcome | None]]:
        """As `checks.check_in_turns` does."""


def outcomes(zoo: Zoo, work: Sequence[tuple[Kernel, Variant]], place: Place, jobs: int = 1) -> Iterator[tuple[int, Outcome]]:
    """(position in `work`, outcome) of each, in so many processes, as they finish."""
    parts = _parts(work, place.together)
    if jobs == 1:
        for numbers in parts:
            kernel, variants = work[numbers[0]][0], [work[number][1] for number in numbers]
            for turn, outcome in place.check(zoo, kernel, variants):
                if outcome is not None:
                    yield numbers[turn], outcome
        return
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # of numpy, in the processes to come
    spawn = multiprocessing.get_context("spawn")  # a fork would share a driver that was opened here
    with ProcessPoolExecutor(max(1, min(jobs, len(parts))), spawn, _start, (zoo.directory, place)) as pool:
        try:
            with deaf_to_interrupts():
                waiting = {
                    pool.submit(_check_in_process, kernel.name, [kernel.variants.index(work[number][1]) for number in numbers]): numbers
                    for numbers in parts
                    for kernel, _ in [work[numbers[0]]]
                }
            for done in as_completed(waiting):
                for turn, outcome in done.result():
                    yield waiting[done][turn], outcome
        except BrokenProcessPool:
            raise ZooError("a process of --jobs ended before its work, perhaps for want of memory; give fewer jobs") from None
        finally:
            pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """Processes that are spawned inside never see Ctrl-C, which would print a traceback of each that is still starting. The process that waits
    for them sees it afterwards, and says that it was interrupted."""
    resource_tracker.ensure_running()  # by the first spawn, it would let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _parts(work: Sequence[tuple[Kernel, Variant]], together: bool) -> list[list[int]]:
    """Places of what is checked in one process: of each variant, or of all that follow each other and are of one kernel."""
    if not together:
        return [[number] for number in range(len(work))]
    of_kernels = itertools.groupby(range(len(work)), lambda number: work[number][0].name)
    return [list(numbers) for _, numbers in of_kernels]


_own: tuple[Zoo, Place]  # of this process


def _start(directory: Path, place: Place) -> None:
    global _own
    _own = (Zoo(directory), place)


def _check_in_process(name: str, places: Sequence[int]) -> list[tuple[int, Outcome]]:
    zoo, place = _own
    kernel = zoo.kernel(name)
    found = place.check(zoo, kernel, [kernel.variants[number] for number in places])
    return [(turn, outcome) for turn, outcome in found if outcome is not None]

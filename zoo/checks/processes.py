"""Checks of many variants, in one process or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Protocol

from zoo.catalog import Zoo
from zoo.checks import Outcome
from zoo.contract.manifest import Kernel, Variant
from zoo.errors import ZooError


class Place(Protocol):
    """What checks a variant: `gpu.OnGpu` or `emulated.Emulation`. Processes are sent one, so it can be pickled."""

    def check(self, zoo: Zoo, kernel: Kernel, variant: Variant) -> Outcome: ...


def outcomes(zoo: Zoo, work: Sequence[tuple[Kernel, Variant]], place: Place, jobs: int = 1) -> Iterator[tuple[int, Outcome]]:
    """(position in `work`, outcome) of each, in so many processes, as they finish."""
    if jobs == 1:
        for number, (kernel, variant) in enumerate(work):
            yield number, place.check(zoo, kernel, variant)
        return
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")  # of numpy, in the processes to come
    spawn = multiprocessing.get_context("spawn")  # a fork would share a driver that was opened here
    with ProcessPoolExecutor(max(1, min(jobs, len(work))), spawn, _start, (zoo.directory, place)) as pool:
        try:
            waiting = {
                pool.submit(_check_in_process, kernel.name, kernel.variants.index(variant)): number
                for number, (kernel, variant) in enumerate(work)
            }
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool:
            raise ZooError("a process of --jobs ended before its work, perhaps for want of memory; give fewer jobs") from None
        finally:
            pool.shutdown(cancel_futures=True)


_own: tuple[Zoo, Place]  # of this process


def _start(directory: Path, place: Place) -> None:
    global _own
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that waits for this one says that it was interrupted
    _own = (Zoo(directory), place)


def _check_in_process(name: str, number: int) -> Outcome:
    zoo, place = _own
    kernel = zoo.kernel(name)
    return place.check(zoo, kernel, kernel.variants[number])

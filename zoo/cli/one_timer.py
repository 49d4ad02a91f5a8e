"""Times products one after another in one process, which loads torch and opens the GPU once.

A product that fails or hangs may leave a GPU's context that runs nothing more, so the next one begins a new process.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.benchmark.measure import Brief

_ENDING = 10  # seconds: a driver may keep a process that was killed
Timings = dict[str, Any]  # what `zoo bench --json` prints of a kernel, or {"error": why there is none}


class Timer:
    """`limit`: seconds after which a product counts as hanging."""

    def __init__(self, cubins: Path, device: int, limit: float):
        self._given, self._limit = (cubins, device), limit
        self._process: Any = None

    def begin(self) -> None:
        """Starts the process, which loads what it will need meanwhile."""
        if self._process is None:
            self._begin()

    def timed(self, name: str, shapes: Sequence[Sequence[int]]) -> Timings:
        """At these sizes, in the order M, N, K."""
        self.begin()
        try:
            self._connection.send((name, shapes))
            if not self._connection.poll(self._limit):
                self.close()
                return {"error": f"no end after {self._limit:.0f} s: it hangs, or needs a larger --limit"}
            found: Timings = self._connection.recv()
        except (EOFError, OSError):  # OSError: it ended within a message
            self._process.join(_ENDING)
            found = {"error": f"its process ended with status {self._process.exitcode}"}
        if "error" in found:
            self.close()
        return found

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join(_ENDING)
            self._connection.close()
            self._process = None

    def _begin(self) -> None:
        from zoo.checks.processes import deaf_to_interrupts

        spawn = multiprocessing.get_context("spawn")  # a fork would share a driver that was opened here
        with deaf_to_interrupts():
            self._connection, its = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(its, *self._given), daemon=True)
            process.start()
            self._process = process
        its.close()


def _serve(connection: Connection, cubins: Path, device: int) -> None:
    from zoo.catalog import Zoo

    zoo, brief = Zoo(cubins), _loaded()
    while True:
        try:
            name, shapes = connection.recv()
        except EOFError:
            return
        try:
            found = _measured(zoo, name, shapes, device, brief)
        except Exception as failure:  # of a driver or a library: whatever it raises is the answer
            found = {"error": f"{type(failure).__name__}: {failure}"}
        connection.send(found)


def _loaded() -> Brief:
    """Loads torch. torch looks for garbage whenever it captures a graph, and finds none among what is there by now."""
    from zoo.benchmark.measure import Brief
    from zoo.benchmark.rivals import Unavailable, imported_torch

    with contextlib.suppress(Unavailable):
        imported_torch()
    gc.freeze()
    return Brief()


def _measured(zoo: Any, name: str, shapes: Sequence[list[int]], device: int, brief: Brief) -> Timings:
    from zoo.benchmark.measure import measure
    from zoo.benchmark.record import words_of
    from zoo.benchmark.rivals import RIVALS
    from zoo.cli.bench import as_data, calls_of
    from zoo.runtime import driver
    from zoo.runtime.hardware import describe

    kernel = zoo.kernel(name)
    seen = [
        (words_of(kernel, sizes, {}, groups), measure(zoo, name, sizes, {}, None, device, groups, RIVALS, brief))
        for sizes, groups in calls_of(kernel, shapes)
    ]
    return as_data(kernel, {}, describe(driver.device(device)), seen)

"""Checks kernels one after another in a process of its own, which opens the GPU once and tells of each variant.

A variant that hangs, or that leaves a GPU's context in which nothing runs any more, ends with the process. The variants that were not done
begin anew in another one.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from zoo.checks import Outcome
from zoo.checks.processes import deaf_to_interrupts
from zoo.contract.manifest import Kernel, Variant

if TYPE_CHECKING:
    from zoo.catalog import Zoo

ENDING = 10  # seconds: a driver may keep a process that was killed
_MOST_HANGS = 2  # of one kernel's variants, before the rest of them are left alone
_ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")}  # of numpy, beside other checks


class Place(Protocol):
    """What checks variants: `gpu.OnGpu`. Processes are sent one, so it can be pickled."""

    def check(self, zoo: Zoo, kernel: Kernel, variants: Sequence[Variant]) -> Iterator[tuple[int, Outcome | None]]: ...

    def broken(self) -> str:
        """Why nothing runs any more in this process; empty where something does."""


class Work:
    """A kernel, the numbers of its variants that are to be checked, and what is known of them by now."""

    def __init__(self, kernel: Kernel, numbers: Sequence[int]):
        self.kernel, self.numbers = kernel, tuple(numbers)
        self.outcomes: dict[int, Outcome] = {}
        self.seconds = 0.0
        self.hangs = 0

    @property
    def left(self) -> list[int]:
        return [number for number in self.numbers if number not in self.outcomes]

    def blame(self, numbers: Sequence[int], words: str, hung: bool) -> None:
        """The process is gone because of one of these variants."""
        self.outcomes |= {number: Outcome(0, words) for number in numbers}
        self.hangs += hung
        if self.hangs >= _MOST_HANGS:
            said = f"not checked: {self.hangs} variants of this kernel hang"
            self.outcomes |= {number: Outcome(0, said) for number in self.left}


class Checker:
    """One process. `limit`: seconds without a sign of life, after which a variant counts as hanging."""

    def __init__(self, cubins: Path, place: Place, limit: float):
        self._given, self._limit = (cubins, place), limit
        self._process: Any = None
        self._turn: int | None = None
        self.work: Work | None = None

    def begin(self, work: Work) -> None:
        if self._process is None:
            self._start()
        self.work, self._turn, self._numbers = work, None, work.left  # whose turn it is: nobody's yet
        self._began = self._alive = time.monotonic()
        with contextlib.suppress(ConnectionError):  # which the next look finds
            self.connection.send((work.kernel.name, self._numbers))

    def look(self) -> Work | None:
        """The work, if there is no more to be known of it in this process; some of it may be left."""
        assert self.work is not None
        work, words, hung = self.work, "", False
        try:
            while self.connection.poll():
                self._alive = time.monotonic()
                said = self.connection.recv()
                if isinstance(said, str):
                    return self._gone(said, False) if said else self._done()
                turn, outcome = said
                self._turn = self._numbers[turn] if outcome is None else None
                if outcome is not None:
                    work.outcomes[self._numbers[turn]] = outcome
        except (EOFError, OSError):  # OSError: it ended within a message
            self._process.join(ENDING)
            words = f"its process ended with status {self._process.exitcode}"
        if not words and time.monotonic() - self._alive <= self._limit:
            return None
        if not words:
            words, hung = f"no end of a problem after {self._limit:.0f} s: it hangs, or needs a larger --limit", True
        return self._gone(words, hung)

    def _gone(self, words: str, hung: bool) -> Work:
        """The process checks nothing more. Where no variant had its turn, one that is wrong was at fault, or all are: nothing is known."""
        assert self.work is not None
        self.close()
        if self._turn is not None:
            self.work.blame([self._turn], words, hung)
        elif len(self.work.left) == len(self._numbers):
            self.work.blame(self._numbers, words, hung)
        return self._done()

    def _done(self) -> Work:
        assert self.work is not None
        work, self.work = self.work, None
        work.seconds += time.monotonic() - self._began
        return work

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        if self._process is not None:
            self.kill()
            self._process.join(ENDING)
            self.connection.close()
            self._process = None

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")  # a fork would share a driver that was opened here
        with _environment(_ONE_THREAD), deaf_to_interrupts():
            self.connection, its = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(its, *self._given), daemon=True)
            process.start()
            self._process = process
        its.close()


@contextlib.contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    """Of the process that is started here: numpy reads it as it is imported."""
    before = {name: os.environ.get(name) for name in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(connection: Connection, cubins: Path, place: Place) -> None:
    from zoo.catalog import Zoo

    zoo = Zoo(cubins)
    with contextlib.suppress(EOFError, ConnectionError):  # nobody waits any more
        while True:
            name, numbers = connection.recv()
            connection.send(_checked(connection, zoo, name, numbers, place))


def _checked(connection: Connection, zoo: Zoo, name: str, numbers: Sequence[int], place: Place) -> str:
    """Tells of each variant as `place` does. Why this process can check nothing more; empty where it can."""
    kernel = zoo.kernel(name)
    try:
        for turn, outcome in place.check(zoo, kernel, [kernel.variants[number] for number in numbers]):
            connection.send((turn, outcome))
            if outcome is not None and outcome.error is not None and (words := place.broken()):
                return words
    except ConnectionError:
        raise
    except Exception as failure:  # of a driver or a reference: whatever it raises is the answer
        return f"{type(failure).__name__}: {failure}"
    return ""

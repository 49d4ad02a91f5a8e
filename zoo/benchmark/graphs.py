"""Timing on the device: many calls in one CUDA graph, so that the host's pace does not count."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from zoo.runtime import driver

_FEWEST_CALLS = 20  # in a graph: starting a graph costs time, which is spread over its calls
_LONG_ENOUGH = 5000  # microseconds of a replay; long calls need no repetition beyond that
_CACHES = 3  # the rotating sets hold this many times the L2 cache
_MOST_SETS = 512
_MOST_MEMORY = 0.3  # of what is free, for the sets of the kernel; each of the copies takes as much again
_WARMUPS, ROUNDS, FEW_ROUNDS = 3, 21, 7
_Step = TypeVar("_Step", bound=Callable[..., object])


class Timed(Protocol):
    def microseconds(self) -> float: ...

    def close(self) -> None: ...


def repeated(calls: Sequence[_Step], microseconds: float = 0) -> list[_Step]:
    """Every call equally often, as often as a replay needs. `microseconds`: what one call takes, where that is known."""
    fewest = min(_FEWEST_CALLS, int(_LONG_ENOUGH / microseconds) + 1) if microseconds else _FEWEST_CALLS
    return list(calls) * -(-fewest // len(calls))


def how_many_sets(one_set: int, cache: int) -> int:
    """Sets of buffers, of `one_set` bytes each, over which calls rotate, so that every call finds its data in memory."""
    free, _ = driver.check(driver.bindings().cuMemGetInfo(), "asking for free memory")
    one_set = max(one_set, 1)
    wanted = min(max(2, -(-_CACHES * cache // one_set)), _MOST_SETS)
    return max(1, min(wanted, int(_MOST_MEMORY * free) // one_set))


def in_turns(replays: Mapping[str, Timed], rounds: int = ROUNDS) -> dict[str, float]:
    """The median time of each. Turns come in another order every round, so that nobody always follows the hottest."""
    seen: dict[str, list[float]] = {what: [] for what in replays}
    for turn in range(_WARMUPS + rounds):
        for what in Random(turn).sample(list(replays), len(replays)):
            microseconds = replays[what].microseconds()
            if turn >= _WARMUPS:
                seen[what].append(microseconds)
    return {what: statistics.median(values) for what, values in seen.items()}


class Replay:
    """Calls captured into a graph on a stream. `microseconds()` replays it and returns the time of one call."""

    def __init__(self, calls: Sequence[Callable[[int], object]], stream: int):
        cuda = driver.bindings()
        self._stream, self._count = stream, len(calls)
        mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        driver.check(cuda.cuStreamBeginCapture(stream, mode), "starting a capture")
        try:
            for call in calls:
                call(stream)
        finally:
            graph = driver.check(cuda.cuStreamEndCapture(stream), "ending a capture")
        try:
            self._graph = driver.check(cuda.cuGraphInstantiate(graph, 0), "instantiating a graph")
        finally:
            driver.check(cuda.cuGraphDestroy(graph), "freeing a graph")
        self._start = driver.check(cuda.cuEventCreate(0), "creating an event")
        self._stop = driver.check(cuda.cuEventCreate(0), "creating an event")

    def microseconds(self) -> float:
        cuda = driver.bindings()
        driver.check(cuda.cuEventRecord(self._start, self._stream), "recording an event")
        driver.check(cuda.cuGraphLaunch(self._graph, self._stream), "replaying a graph")
        driver.check(cuda.cuEventRecord(self._stop, self._stream), "recording an event")
        driver.check(cuda.cuEventSynchronize(self._stop), "waiting for a graph")
        milliseconds = driver.check(cuda.cuEventElapsedTime(self._start, self._stop), "reading the time")
        return 1e3 * float(milliseconds) / self._count

    def close(self) -> None:
        cuda = driver.bindings()
        driver.check(cuda.cuGraphExecDestroy(self._graph), "freeing a graph")
        for event in (self._start, self._stop):
            driver.check(cuda.cuEventDestroy(event), "freeing an event")


def microseconds_of(call: Callable[[int], object], stream: int) -> float:
    """About how long a call takes: a graph of it alone, run a second time."""
    replay = Replay([call], stream)
    try:
        return [replay.microseconds() for _ in range(2)][-1]
    finally:
        replay.close()


class TorchReplay:
    """Calls of torch, in a graph of its own. It holds the calls, and their tensors, while it is timed.

    once: the graph has each call once, also where a replay is short.
    """

    def __init__(self, torch: Any, calls: Sequence[Callable[[], Any]], device: int, once: bool = False):
        self._torch, self._device = torch, device
        with torch.cuda.device(device):
            self._stream, self._graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            self._start, self._stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            with torch.cuda.stream(self._stream):
                for _ in range(2):  # libraries are loaded, kernels compiled and workspaces made before the capture
                    self._start.record()
                    calls[0]()
                    self._stop.record()
            torch.cuda.synchronize()
            self._calls = list(calls) if once else repeated(calls, 1e3 * float(self._start.elapsed_time(self._stop)))
            with torch.cuda.graph(self._graph, stream=self._stream):
                for call in self._calls:
                    call()

    def microseconds(self) -> float:
        with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._stream):
            self._start.record()
            self._graph.replay()
            self._stop.record()
            self._stop.synchronize()
        return 1e3 * float(self._start.elapsed_time(self._stop)) / len(self._calls)

    def close(self) -> None:
        del self._graph, self._calls
        self._torch.cuda.empty_cache()


class TorchEvents:
    """A call of torch between two events, for what no graph can hold."""

    def __init__(self, torch: Any, call: Callable[[], Any]):
        self._call, self._start, self._stop = call, *(torch.cuda.Event(enable_timing=True) for _ in range(2))

    def microseconds(self) -> float:
        self._start.record()
        self._call()
        self._stop.record()
        self._stop.synchronize()
        return 1e3 * float(self._start.elapsed_time(self._stop))

    def close(self) -> None:
        pass

"""Timing on the device: many calls in one CUDA graph, so that the host's pace does not count."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zoo.runtime import driver


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

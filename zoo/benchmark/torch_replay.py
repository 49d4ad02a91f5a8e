"""Calls of torch in a graph of its own, and how many sets of buffers calls rotate over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from zoo.runtime import driver

_FEWEST_CALLS = 20  # in a graph: the cost of starting one is spread over them
_CACHES = 3  # the rotating sets hold this many times the L2 cache
_MOST_SETS = 512
_MOST_MEMORY = 0.3  # of what is free, for the sets of the kernel; each of the copies takes as much again
_Step = TypeVar("_Step", bound=Callable[..., object])


def repeated(calls: Sequence[_Step]) -> list[_Step]:
    return list(calls) * -(-_FEWEST_CALLS // len(calls))


def how_many_sets(one_set: int, cache: int) -> int:
    free, _ = driver.check(driver.bindings().cuMemGetInfo(), "asking for free memory")
    one_set = max(one_set, 1)
    wanted = min(max(2, -(-_CACHES * cache // one_set)), _MOST_SETS)
    return max(1, min(wanted, int(_MOST_MEMORY * free) // one_set))


class TorchReplay:
    """Calls of torch, in a graph of its own. It holds the calls, and their tensors, while it is timed."""

    def __init__(self, torch: Any, calls: list[Callable[[], Any]], device: int):
        self._torch, self._device = torch, device
        with torch.cuda.device(device):
            self._calls = repeated(calls)
            self._stream, self._graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.stream(self._stream):
                calls[0]()  # libraries are loaded and workspaces made before the capture
            torch.cuda.synchronize()
            with torch.cuda.graph(self._graph, stream=self._stream):
                for call in self._calls:
                    call()
            self._start, self._stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

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

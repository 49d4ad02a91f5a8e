"""Streams by protocol: what a caller passes as `stream=`, and the stream to use when nothing is passed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from zoo.contract.whole_numbers import shown, whole
from zoo.errors import DriverError, StreamError
from zoo.runtime import driver

_own: dict[int, Stream] = {}
_lock = threading.Lock()


class Stream:
    """zoo's own stream of a device, for work on DeviceArrays. Made on first use, never destroyed."""

    def __init__(self, device: driver.Device):
        self.device = device
        self.handle = 0
        try:
            with device.current(), driver.relaxed_capture():
                non_blocking = driver.bindings().CUstream_flags.CU_STREAM_NON_BLOCKING
                self.handle = int(driver.check(driver.bindings().cuStreamCreate(non_blocking), "creating a stream"))
        except DriverError:
            if self.handle:  # made, but what was to follow failed: the next who asks makes another
                driver.bindings().cuStreamDestroy(self.handle)
            raise

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)

    def __repr__(self) -> str:
        return f"<zoo stream {self.handle:#x} of device {self.device.ordinal}>"

    def synchronize(self) -> None:
        with self.device.current():
            driver.check(driver.bindings().cuStreamSynchronize(self.handle), "waiting for the stream")


def stream(device: int = 0) -> Stream:
    """zoo's own stream of a device: the default for work on DeviceArrays and JAX arrays."""
    found = _own.get(device) if type(device) is int else None
    if found is None:
        opened = driver.device(device)
        with _lock:
            found = _own.get(device)
            if found is None:
                found = _own[device] = Stream(opened)
    return found


def handle_of(given: object) -> int:
    """The driver's handle of anything that stands for a stream."""
    try:
        return whole(_number_of(given), "stream", 0, 2**64 - 1)
    except Exception:  # what stands for a stream may raise anything
        raise StreamError(
            f"stream: {shown(given)} is no stream; pass an int, a torch, CuPy or numba stream, or anything with __cuda_stream__"
        ) from None


def agreeing(sources: Mapping[Callable[[], int | None], str]) -> Callable[[], int | None]:
    """The one stream that several owners work on, asked of all of them each time. `sources` has the name of an argument of each."""

    def agreed() -> int | None:
        (first, name), *rest = sources.items()
        handle = first()
        for source, other in rest:
            found = source()
            if found != handle:
                streams = " and ".join("none" if one is None else f"{one:#x}" for one in (handle, found))
                raise StreamError(f"the owners of {name} and {other} work on different streams ({streams}); say which with stream=")
        return handle

    return agreed


def none() -> None:
    """The stream of arrays that no framework orders."""


def _number_of(given: Any) -> object:
    protocol = getattr(given, "__cuda_stream__", None)
    if protocol is not None:
        _version, handle = protocol() if callable(protocol) else protocol
        return handle
    for attribute in ("cuda_stream", "ptr"):  # torch before 2.8, CuPy before 14
        handle = getattr(given, attribute, None)
        if isinstance(handle, int):
            return handle
    handle = getattr(given, "handle", None)  # numba
    if handle is not None:
        return getattr(handle, "value", handle) or 0
    return int(given) if type(given).__name__ == "CUstream" else given  # cuda-bindings'


# Where each framework's current stream of a device is asked for: one function an owner and device.


@cache
def of_torch(device: int) -> Callable[[], int]:
    return partial(sys.modules["torch"]._C._cuda_getCurrentRawStream, device)


@cache
def of_cupy(device: int) -> Callable[[], int]:
    return lambda: sys.modules["cupy"].cuda.get_current_stream(device).ptr


@cache
def of_zoo(device: int) -> Callable[[], int]:
    return lambda: stream(device).handle

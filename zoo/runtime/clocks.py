"""A GPU's clock, power, temperature and load, read from the driver's management library (NVML)."""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from zoo.runtime import driver

_LIBRARY = "libnvidia-ml.so.1"
_MULTIPROCESSORS, _DIE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU
_SECONDS = 0.1  # between two readings
_LOADS, _LOAD_SECONDS = 4, 0.5  # readings of the load, and seconds between two: NVML averages over a second at most


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Management:
    """One GPU in NVML. OSError without the library, or where it does not know the GPU."""

    def __init__(self, bus: str, open_library: Callable[[str], Any] = ctypes.CDLL):
        self._nvml, self._handle = open_library(_LIBRARY), ctypes.c_void_p()
        for status in (self._nvml.nvmlInit_v2(), self._nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(self._handle))):
            if status:
                raise OSError(f"NVML gave status {status}")

    def limits(self) -> dict[str, float]:
        """The highest clock, and the power that it keeps to."""
        return self._known({"clock_mhz": ("MaxClockInfo", (_MULTIPROCESSORS,), 1), "watts": ("EnforcedPowerLimit", (), 1000)})

    def reading(self) -> dict[str, float]:
        return self._known(
            {"clock_mhz": ("ClockInfo", (_MULTIPROCESSORS,), 1), "watts": ("PowerUsage", (), 1000), "celsius": ("Temperature", (_DIE,), 1)}
        )

    def load(self) -> int:
        """Percent of the last moments in which a kernel ran; 0 where the GPU does not tell."""
        found = _Utilization()
        return 0 if self._nvml.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(found)) else found.gpu

    def _known(self, wanted: dict[str, tuple[str, tuple[int, ...], int]]) -> dict[str, float]:
        """What the GPU tells: a figure that it refuses is left out."""
        found, number = {}, ctypes.c_uint()
        for name, (what, given, parts) in wanted.items():
            if not getattr(self._nvml, f"nvmlDeviceGet{what}")(self._handle, *given, ctypes.byref(number)):
                found[name] = number.value / parts
        return found


class Watch:
    """Reads while a block runs: `with Watch(management) as watch: ...`, then `watch.summary()`."""

    def __init__(self, management: Management | None):
        self._management, self._seen, self._end = management, list[dict[str, float]](), threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _read(self) -> None:
        while self._management is not None and not self._end.wait(_SECONDS):
            self._seen.append(self._management.reading())

    def summary(self) -> dict[str, dict[str, float]]:
        """Least, median and most of each figure. A process that starts up, or computes on the CPU, leaves the GPU idle."""
        figures: dict[str, list[float]] = {}
        for reading in self._seen:
            for name, value in reading.items():
                figures.setdefault(name, []).append(value)
        return {name: {"least": min(all_), "median": statistics.median(all_), "most": max(all_)} for name, all_ in figures.items()}


def management(device: driver.Device) -> Management | None:
    """None where NVML is not to be had, as in some containers."""
    bus = driver.check(driver.bindings().cuDeviceGetPCIBusId(32, device.handle), "asking for the bus of a GPU")
    try:
        return Management(bytes(bus).split(b"\0")[0].decode())
    except OSError:
        return None


def foreign_load(management: Management | None, pause: Callable[[float], None] = time.sleep) -> int:
    """Percent of the time in which other processes' kernels run. This process must run none meanwhile.

    The smallest of several readings counts, for the first may still contain a program that has just ended.
    """
    least = management.load() if management else 0
    for _ in range(_LOADS - 1):
        if management and least:
            pause(_LOAD_SECONDS)
            least = min(least, management.load())
    return least

"""What this machine is, in the words that evidence and reports use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zoo.runtime import driver


@dataclass(frozen=True)
class Hardware:
    device: str
    capability: str
    driver: str


def describe(device: driver.Device) -> Hardware:
    return Hardware(device.name, "{}.{}".format(*device.capability), driver_version())


def driver_version() -> str:
    """`580.95.05 (CUDA 13.0)`; the first part is missing where the kernel module does not tell it."""
    number = int(driver.check(driver.bindings().cuDriverGetVersion(), "asking for the driver's version"))
    cuda = f"CUDA {number // 1000}.{number % 1000 // 10}"
    try:
        return f"{Path('/sys/module/nvidia/version').read_text().strip()} ({cuda})"
    except OSError:
        return cuda

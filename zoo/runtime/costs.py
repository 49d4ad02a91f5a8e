"""Which numbers the tiles of a kernel have on a device: those of the manifest, or of the file that ZOO_COSTS names."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from threading import Lock

from zoo.contract.costs import Costs, file_in_use, read_costs, refuse_other_chip, tunable
from zoo.contract.resolve import pick_arch
from zoo.contract.schema import Kernel
from zoo.runtime import driver


def kernel_on(kernel: Kernel, device: object) -> Kernel:
    """The kernel with the numbers of this device's chip. An emulated device has no chip, and the numbers of the manifest."""
    place = file_in_use()
    if place is None or not isinstance(device, driver.Device):
        return kernel
    return _on_chip(kernel, pick_arch(kernel.archs, device.capability) or "", place, device.name, device.multiprocessors)


def costs_of(place: Path, chip: str, multiprocessors: int) -> Costs:
    """The content of the file, which must be of the device's chip."""
    with _reading:
        costs = _read(place)
    refuse_other_chip(place, costs, chip, multiprocessors)
    return costs


_reading = Lock()  # or two first calls could read two contents of the file
_read = cache(read_costs)


@cache
def _on_chip(kernel: Kernel, arch: str, place: Path, chip: str, multiprocessors: int) -> Kernel:
    if not tunable(kernel, arch):
        return kernel
    return costs_of(place, chip, multiprocessors).applied(kernel, arch) or kernel

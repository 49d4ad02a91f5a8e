"""Which numbers the tiles of a kernel have on a device: those of the manifest, or of the file that ZOO_COSTS names."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from zoo.contract.costs import Costs, file_in_use, read_costs, refuse_other_chip
from zoo.contract.resolve import pick_arch
from zoo.contract.schema import Kernel
from zoo.runtime import driver


def kernel_on(kernel: Kernel, device: object) -> Kernel:
    """The kernel with the numbers of this device's chip. An emulated device has no chip, and the numbers of the manifest."""
    place = file_in_use()
    if place is None or not isinstance(device, driver.Device):
        return kernel
    costs_of(place, device)
    return _with_numbers(kernel, place, pick_arch(kernel.archs, device.capability))


def costs_of(place: Path, device: driver.Device) -> Costs:
    """The content of the file, which must be of the device's chip."""
    costs = _read_once(place)
    refuse_other_chip(place, costs, device.name, device.multiprocessors)
    return costs


_read_once = cache(read_costs)


@cache
def _with_numbers(kernel: Kernel, place: Path, arch: str | None) -> Kernel:
    return (arch and _read_once(place).applied(kernel, arch)) or kernel

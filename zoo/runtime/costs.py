"""Which numbers the tiles of a kernel have on a device: those of the file that ZOO_COSTS names, or what the manifest's become on its chip."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from threading import Lock

from zoo.contract.chips import Chip, on_chip
from zoo.contract.costs import Costs, file_in_use, read_costs, refuse_other_chip, tunable
from zoo.contract.resolve import pick_arch
from zoo.contract.schema import Kernel
from zoo.runtime import driver


def kernel_on(kernel: Kernel, device: object) -> Kernel:
    """The kernel with the numbers of this device's chip. An emulated device has no chip, and the numbers of the manifest."""
    if not isinstance(device, driver.Device):
        return kernel
    return _on_chip(kernel, pick_arch(kernel.archs, device.capability) or "", file_in_use(), device.name, device.chip)


def costs_of(place: Path, chip: str, multiprocessors: int) -> Costs:
    """The content of the file, which must be of the device's chip."""
    with _reading:
        costs = _read(place)
    refuse_other_chip(place, costs, chip, multiprocessors)
    return costs


_reading = Lock()  # or two first calls could read two contents of the file
_read = cache(read_costs)


@cache
def _on_chip(kernel: Kernel, arch: str, place: Path | None, name: str, chip: Chip) -> Kernel:
    if not tunable(kernel, arch):
        return kernel
    measured = place and costs_of(place, name, chip.multiprocessors).applied(kernel, arch)
    return measured or on_chip(kernel, arch, chip)

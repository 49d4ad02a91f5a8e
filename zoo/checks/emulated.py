"""Runs problems in the emulator, through the loader's public functions. Any finding is a failure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy

from zoo.arrays import Pointer
from zoo.catalog import Zoo
from zoo.checks.problem import Buffer, Executor
from zoo.emulator import Device
from zoo.errors import EmulationError
from zoo.manifest import Kernel, Variant

MOST_ELEMENTS = 20_000  # of the inputs of a problem: larger ones take seconds each
_MULTIPROCESSORS = 3  # few, so that kernels with a grid of the device's size take several turns


def executor(zoo: Zoo, schedules: int = 1) -> Executor:
    """Each problem under so many schedules: all asynchronous work as late as is legal, then at random."""

    def execute(kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], settings: Mapping) -> dict[str, numpy.ndarray]:
        after, first = None, None
        for seed in range(schedules):
            schedule = "random" if seed else "last"
            device = Device(arch=variant.arch, scheduling=schedule, seed=seed, multiprocessors=_MULTIPROCESSORS)
            found = _run(zoo, device, kernel, variant, buffers, settings, f"scheduling {schedule}, seed {seed}")
            if after is None:
                after, first = found, schedule
            for name, image in found.items():
                if not numpy.array_equal(image, after[name]):
                    raise EmulationError(f"{name}: scheduling {schedule}, seed {seed} gives other bits than scheduling {first}")
        return after

    return execute


def _run(zoo: Zoo, device: Device, kernel: Kernel, variant: Variant, buffers, settings, schedule: str) -> dict[str, numpy.ndarray]:
    places = {name: device.alloc(buffer.image) for name, buffer in buffers.items()}
    arguments = {
        name: Pointer(places[name] + buffer.laid.offset, buffer.laid.shape, buffer.laid.dtype, buffer.laid.strides, device)
        for name, buffer in buffers.items()
    }
    plan = zoo.prepare(kernel.name, variant=variant.name, **arguments, **settings)
    if plan.launch.variant is not variant:
        raise AssertionError(f"asked for {variant.symbol} of {variant.arch}, prepared {plan.launch.variant.symbol}")
    report = plan()
    if report is not None and not report.ok:
        raise EmulationError(f"{schedule}: {report}")
    return {name: device.read(places[name], buffer.image.shape, numpy.uint8) for name, buffer in buffers.items()}

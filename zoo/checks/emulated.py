"""Runs problems in the emulator, through the loader's public functions. Any finding is a failure.

The emulator knows which bytes were written. Guards, gaps and poison are memory that nobody wrote, so reading them is a
finding, and afterwards exactly the elements must be written. One poison is therefore enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy

from zoo import checks
from zoo.catalog import Zoo
from zoo.checks import Outcome
from zoo.checks.problem import POISONS, Buffer, Executor, Laid, number_of_multiprocessors
from zoo.contract.array import Pointer
from zoo.contract.manifest import Kernel, Variant
from zoo.emulator import Device
from zoo.errors import EmulationError

MOST_ELEMENTS = 20_000  # of the inputs of a problem: larger ones take seconds each


@dataclass(frozen=True)
class Emulation:
    """Runs a variant's problems, but for the large ones, under so many schedules each."""

    schedules: int = 1
    together: ClassVar[bool] = False  # most of the time goes into the emulator

    def check(self, zoo: Zoo, kernel: Kernel, variants: Sequence[Variant]) -> Iterator[tuple[int, Outcome | None]]:
        return checks.check_in_turns(kernel, variants, executor(zoo, self.schedules), MOST_ELEMENTS, POISONS[:1])


def executor(zoo: Zoo, schedules: int = 1) -> Executor:
    """Each problem under so many schedules: all asynchronous work as late as is legal, then at random."""

    def execute(kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], settings: Mapping[str, Any]) -> dict[str, numpy.ndarray]:
        after: dict[str, numpy.ndarray] = {}
        first, multiprocessors = "", number_of_multiprocessors()
        for seed in range(schedules):
            schedule: Literal["random", "last"] = "random" if seed else "last"
            device = Device(
                arch=variant.arch, scheduling=schedule, seed=seed, arithmetic="hw", multiprocessors=multiprocessors, strict=True
            )
            found = _run(zoo, device, kernel, variant, buffers, settings, f"scheduling {schedule}, seed {seed}")
            if not seed:
                after, first = found, schedule
            for name, image in found.items():
                if kernel.arguments[name].access != "workspace" and not numpy.array_equal(image, after[name]):
                    raise EmulationError(f"{name}: scheduling {schedule}, seed {seed} gives other bits than scheduling {first}")
        return after

    return execute


def _run(
    zoo: Zoo,
    device: Device,
    kernel: Kernel,
    variant: Variant,
    buffers: Mapping[str, Buffer],
    settings: Mapping[str, Any],
    schedule: str,
) -> dict[str, numpy.ndarray]:
    places = {name: device.alloc(buffer.image, written=buffer.laid.owned & buffer.given) for name, buffer in buffers.items()}
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
    for name, buffer in buffers.items():
        wrong = _wrongly_written(buffer.laid, device.written(places[name], buffer.laid.bytes))
        if wrong is not None:
            raise EmulationError(f"{schedule}: {name}: {wrong}")
    return {name: device.read(places[name], buffer.image.shape, numpy.uint8) for name, buffer in buffers.items()}


def _wrongly_written(laid: Laid, written: numpy.ndarray) -> str | None:
    """What is wrong with the bytes that were written: by the host those of the inputs, by the kernel those of the outputs."""
    outside, missing = numpy.flatnonzero(written & ~laid.owned), numpy.flatnonzero(laid.owned & ~written)
    if outside.size:
        return f"{outside.size} bytes that are not the kernel's were written, first the one {outside[0] - laid.offset} bytes from the array's start"
    if missing.size:
        return f"{missing.size} of its {laid.owned.sum()} bytes were never written, first the one {missing[0] - laid.offset} bytes from its start"
    return None

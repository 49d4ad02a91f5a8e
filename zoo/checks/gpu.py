"""Runs problems on a device, in turn on all of its multiprocessors and as if it had few.

A problem is run twice, on two poisons: once each. Where the grid is as large as the device, CTAs then take tile after tile even in
a small problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy

from zoo import checks
from zoo.catalog import Zoo
from zoo.checks import Outcome
from zoo.checks.problem import FEW_MULTIPROCESSORS, Buffer, Executor, number_of_multiprocessors, on_multiprocessors
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.resolve import pick_arch, resolve
from zoo.errors import DriverError
from zoo.runtime import driver
from zoo.runtime.arrays import Call, ptr
from zoo.runtime.device_array import DeviceArray, empty
from zoo.runtime.streams import stream


def runnable(kernel: Kernel, device: driver.Device) -> list[Variant]:
    """The variants that a device runs."""
    arch = pick_arch(kernel.archs, device.capability)
    return [variant for variant in kernel.variants if variant.arch == arch]


@dataclass(frozen=True)
class OnGpu:
    """Runs all problems of variants, which take turns."""

    ordinal: int = 0
    together: ClassVar[bool] = True

    def check(self, zoo: Zoo, kernel: Kernel, variants: Sequence[Variant]) -> Iterator[tuple[int, Outcome | None]]:
        with on_multiprocessors(driver.device(self.ordinal).multiprocessors, FEW_MULTIPROCESSORS):
            yield from checks.check_in_turns(kernel, variants, executor(zoo, self.ordinal), exactly=False)

    def broken(self) -> str:
        """Why nothing runs any more in this process, as after an address that is none; empty where something does."""
        try:
            with driver.device(self.ordinal).current():
                driver.check(driver.bindings().cuCtxSynchronize(), "waiting for the device")
        except DriverError as error:
            return str(error)
        return ""


def executor(zoo: Zoo, ordinal: int = 0) -> Executor:
    device = driver.device(ordinal)
    in_turn = [device.multiprocessors, FEW_MULTIPROCESSORS]

    def execute(kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], settings: Mapping[str, Any]) -> dict[str, numpy.ndarray]:
        held: dict[str, DeviceArray] = {}
        arguments = {}
        for name, buffer in buffers.items():
            held[name] = empty((buffer.laid.bytes,), "u8", ordinal).copy_from(buffer.image)
            address, laid = held[name].address + buffer.laid.offset, buffer.laid
            arguments[name] = ptr(address, laid.shape, laid.dtype, laid.strides, ordinal)
        run(zoo, device, number_of_multiprocessors(in_turn[0]), kernel, variant, {**arguments, **settings})
        in_turn.reverse()
        return {name: array.numpy() for name, array in held.items()}

    return execute


def run(zoo: Zoo, device: driver.Device, multiprocessors: int, kernel: Kernel, variant: Variant, arguments: Mapping[str, Any]) -> None:
    """Starts a variant as if the device had so many multiprocessors, and waits for it. The arrays are `ptr`s."""
    call = Call.read(arguments)
    launch = resolve(kernel, call.values, device.capability, multiprocessors, variant.name)
    if launch.variant is not variant:
        raise AssertionError(f"asked for {variant.symbol} of {variant.arch}, prepared {launch.variant.symbol}")
    own = stream(device.ordinal)
    zoo.plan_of(launch, device, {name: arguments[name] for name in call.arrays}, call.stream_source())(own)
    own.synchronize()

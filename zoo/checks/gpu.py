"""Runs problems on a device, through the loader's public functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy

from zoo import checks, driver
from zoo.arrays import ptr
from zoo.catalog import Zoo
from zoo.checks import Outcome
from zoo.checks.problem import Buffer, Executor
from zoo.device_array import DeviceArray, empty
from zoo.manifest import Kernel, Variant
from zoo.resolve import pick_arch
from zoo.streams import stream


def runnable(kernel: Kernel, device: driver.Device) -> list[Variant]:
    """The variants that a device runs."""
    arch = pick_arch(kernel.archs, device.capability)
    return [variant for variant in kernel.variants if variant.arch == arch]


@dataclass(frozen=True)
class OnGpu:
    """Runs all problems of a variant."""

    ordinal: int = 0

    def check(self, zoo: Zoo, kernel: Kernel, variant: Variant) -> Outcome:
        return checks.check(kernel, variant, executor(zoo, self.ordinal))


def executor(zoo: Zoo, device: int = 0) -> Executor:
    def execute(kernel: Kernel, variant: Variant, buffers: Mapping[str, Buffer], settings: Mapping) -> dict[str, numpy.ndarray]:
        held: dict[str, DeviceArray] = {}
        arguments = {}
        for name, buffer in buffers.items():
            held[name] = empty((buffer.laid.bytes,), "u8", device).copy_from(buffer.image)
            address, laid = held[name].address + buffer.laid.offset, buffer.laid
            arguments[name] = ptr(address, laid.shape, laid.dtype, laid.strides, device)
        own = stream(device)
        plan = zoo.prepare(kernel.name, stream=own, variant=variant.name, **arguments, **settings)
        if plan.launch.variant is not variant:
            raise AssertionError(f"asked for {variant.symbol} of {variant.arch}, prepared {plan.launch.variant.symbol}")
        plan(own)
        own.synchronize()
        return {name: array.numpy() for name, array in held.items()}

    return execute

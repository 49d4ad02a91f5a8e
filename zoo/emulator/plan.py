"""A resolved launch on an emulated device: the loader's own grid and parameter block, run from the PTX of the cubin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zoo.contract.resolve import Launch
from zoo.errors import EmulationError

from .errors import EmulatorError

if TYPE_CHECKING:
    from .device import Device, Module, Report


class EmulatedPlan:
    """`plan()` runs the kernel to its end and returns the emulator's report, or None where nothing is enqueued.

    Takes a stream as a `Plan` does; an emulated device has only one, so it does not matter which.
    """

    form: list[object] | None = None  # of the call that it was made for, where it is remembered
    movable = False  # resolving is nothing beside emulating, and a remembered plan would keep the device's memory

    def __init__(self, launch: Launch, device: Device, module: Module, arrays: Mapping[str, object]):
        self.launch = launch
        self.device = device
        self._module = module
        self._keep = arrays

    def __repr__(self) -> str:
        launch = self.launch
        return f"<plan of {launch.variant.symbol}: grid {launch.grid}, {launch.threads} threads, {self.device}>"

    def __call__(self, stream: object = None) -> Report | None:
        launch = self.launch
        if launch.empty:
            return None
        try:
            return self.device.launch(
                self._module,
                launch.variant.symbol,
                launch.grid,
                launch.threads,
                cluster=None if launch.cluster == (1, 1, 1) else launch.cluster,
                shared_bytes=launch.variant.shared,  # also of a block that is alone: what it asks for beyond is not its own to use
                params=launch.logical_block(),
                programmatic=launch.variant.launch.programmatic,
                constant=self._constant(),
            )
        except EmulatorError as error:
            raise EmulationError(f"{launch.variant.symbol}: {error}") from None

    def _constant(self) -> list[tuple[int, int]]:
        """Address and size of the arguments, and their scales, that the caller calls constant."""
        launch = self.launch
        places = {name: int.from_bytes(launch.block[offset : offset + 8], "little") for offset, name in launch.pointers}
        places.update((name, tensor_map.address) for _, name, tensor_map in launch.tensor_maps)
        promised = [name for name in places if launch.symbols.get(f"{name.removesuffix('_scale')}_constant.yes")]
        return [(places[name], launch.placement.spans[name].bytes) for name in promised]

    def run(self, stream: object = None) -> None:
        """Like a call, and EmulationError with the findings where there are any."""
        report = self(stream)
        if report is not None and not report.ok:
            raise EmulationError(str(report))

"""A resolved launch on an emulated device: the loader's own grid and parameter block, run from the PTX of the cubin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.contract.manifest import Manifest, Variant
from zoo.contract.resolve import Launch
from zoo.errors import EmulationError
from zoo.shipped.ptx import Texts

if TYPE_CHECKING:
    from zoo.emulator import Device, Module, Report


class EmulatedModules:
    """The PTX of one cubin directory, parsed once a variant but for those that were used long ago: each takes some 10 MB."""

    MOST = 16

    def __init__(self, directory: Path):
        self._texts = Texts(directory)
        self._modules: dict[str, Module] = {}  # by the cubin's digest

    def of(self, variant: Variant, manifest: Manifest) -> Module:
        from zoo.emulator import Module

        module = self._modules.pop(variant.sha256, None) or Module(self._texts.of(variant, manifest))
        self._modules[variant.sha256] = module  # the last used is the last
        if len(self._modules) > self.MOST:
            del self._modules[next(iter(self._modules))]
        return module


class EmulatedPlan:
    """`plan()` runs the kernel to its end and returns the emulator's report, or None where nothing is enqueued.

    Takes a stream as a `Plan` does; an emulated device has only one, so it does not matter which.
    """

    def __init__(self, launch: Launch, device: Device, module: Module, arrays: Mapping[str, object]):
        self.launch = launch
        self.device = device
        self._module = module
        self._keep = arrays

    def __repr__(self) -> str:
        launch = self.launch
        return f"<plan of {launch.variant.symbol}: grid {launch.grid}, {launch.threads} threads, {self.device}>"

    def __call__(self, stream=None) -> Report | None:
        from zoo.emulator import EmulatorError

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
                shared_bytes=launch.shared,
                params=launch.logical_block(),
            )
        except EmulatorError as error:
            raise EmulationError(f"{launch.variant.symbol}: {error}") from None

    def run(self):
        """Like a call, and EmulationError with the findings where there are any."""
        report = self()
        if report is not None and not report.ok:
            raise EmulationError(str(report))

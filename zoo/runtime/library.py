"""Cubins in the driver: read once, verified by digest before the driver sees a byte, loaded once per process and device."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.contract.files import LARGEST_CUBIN, read_file
from zoo.contract.manifest import Manifest, Variant
from zoo.contract.resolve import Launch
from zoo.errors import CaptureError, IntegrityError
from zoo.runtime import driver
from zoo.runtime.plan import Plan

if TYPE_CHECKING:
    from zoo.emulator.module_store import ModuleStore

_PORTABLE_SHARED_MEMORY = 48 * 1024


def read_verified(directory: Path, variant: Variant) -> bytes:
    """The cubin's bytes, exactly those of the manifest."""
    path = directory / variant.file
    try:
        data = read_file(path, LARGEST_CUBIN)
    except OSError as error:
        raise IntegrityError(f"cannot read the cubin {path}: {error.strerror}; reinstall zoo") from None
    if len(data) != variant.bytes:
        raise IntegrityError(f"the cubin {path} has {len(data)} bytes, the manifest says {variant.bytes}; reinstall zoo")
    if hashlib.sha256(data).hexdigest() != variant.sha256:
        raise IntegrityError(f"the cubin {path} was altered: its sha256 is not the manifest's; reinstall zoo")
    return data


class Library:
    """One directory of cubins, as devices take from it: functions that the driver has loaded, modules of PTX for the emulator."""

    def __init__(self, directory: Path, manifest_sha256: str | None = None):
        self.directory = directory
        self._manifest_sha256 = manifest_sha256
        self._lock = threading.Lock()
        self._libraries: dict[str, object] = {}  # by digest
        self._functions: dict[tuple[str, int], object] = {}  # by digest and device

    @cached_property
    def manifest(self) -> Manifest:
        return Manifest(self.directory / "manifest.json", self._manifest_sha256)

    @cached_property
    def modules(self) -> ModuleStore:
        from zoo.emulator.module_store import ModuleStore  # only with arrays of an emulated device

        return ModuleStore(self.directory, self.manifest)

    def plan(
        self,
        launch: Launch,
        device: driver.Device,
        arrays: Mapping[str, object],
        stream_source: Callable[[], int | None],
        stream: int | None = None,
    ) -> Plan:
        """A plan of a launch on a device, loading its cubin unless `stream` is being captured."""
        device.adopt_thread()
        return Plan(launch, device, self.function(launch.variant, device, stream), arrays, stream_source)

    def is_loaded(self, variant: Variant, device: driver.Device) -> bool:
        return (variant.sha256, device.ordinal) in self._functions

    def function(self, variant: Variant, device: driver.Device, stream: int | None = None) -> object:
        """The driver's function of a variant on a device, loading it unless `stream` is being captured."""
        found = self._functions.get((variant.sha256, device.ordinal))
        if found is not None:
            return found
        with device.current():
            capturing = stream is not None and driver.is_capturing(stream)
        if capturing:
            raise CaptureError(
                f"{variant.symbol} is not loaded on device {device.ordinal}, and its stream is being captured; "
                "call zoo.load(name) or launch it once before the capture"
            )
        with self._lock:
            found = self._functions.get((variant.sha256, device.ordinal))
            if found is None:
                found = self._load(variant, device)
                self._functions[(variant.sha256, device.ordinal)] = found
        return found

    def _load(self, variant: Variant, device: driver.Device) -> object:
        cuda = driver.bindings()
        with device.current(), driver.relaxed_capture():
            library = self._libraries.get(variant.sha256)
            if library is None:
                data = read_verified(self.directory, variant)
                loaded = cuda.cuLibraryLoadData(data, [], [], 0, [], [], 0)
                library = driver.check(loaded, f"loading {variant.file} on {device.name}")
                self._libraries[variant.sha256] = library
            kernel = driver.check(cuda.cuLibraryGetKernel(library, variant.symbol.encode()), f"finding {variant.symbol} in {variant.file}")
            function = driver.check(cuda.cuKernelGetFunction(kernel), f"preparing {variant.symbol} on {device.name}")
            attributes = cuda.CUfunction_attribute
            dynamic = device.shared_memory - variant.static_shared
            if (variant.shared or variant.launch.alone.text != "0") and dynamic > _PORTABLE_SHARED_MEMORY:
                attribute = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                driver.check(cuda.cuFuncSetAttribute(function, attribute, dynamic), f"giving {variant.symbol} shared memory")
            if any(extent.text != "1" for extent in variant.launch.cluster):
                attribute = attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                driver.check(cuda.cuFuncSetAttribute(function, attribute, 1), f"allowing {variant.symbol} its cluster")
            # The driver may load lazily, at the first launch: under a capture that would be too late.
            driver.check(cuda.cuFuncLoad(function), f"loading {variant.symbol} on {device.name}")
            return function

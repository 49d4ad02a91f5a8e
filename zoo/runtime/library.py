"""Cubins in the driver: read once, verified by digest before the driver sees a byte, loaded once per process and device."""

from __future__ import annotations

import threading
from pathlib import Path

from zoo.contract.manifest import Variant
from zoo.errors import CaptureError
from zoo.runtime import driver
from zoo.shipped.verified import read_verified

_PORTABLE_SHARED_MEMORY = 48 * 1024


class Library:
    """The functions that the driver has loaded from one directory of cubins."""

    def __init__(self, directory: Path):
        self._directory = directory
        self._lock = threading.Lock()
        self._libraries: dict[str, object] = {}  # by digest
        self._functions: dict[tuple[str, int], object] = {}  # by digest and device

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
                data = read_verified(self._directory, variant)
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

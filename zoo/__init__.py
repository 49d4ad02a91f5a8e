"""zoo: block-scaled low-precision GPU kernels, compiled ahead of time, started by name.

    zoo.launch("quantize.mxfp8.rows", x=x, q=q, scales=scales)

Importing zoo touches no driver and imports no framework: names are loaded on first use.
"""

from __future__ import annotations

import importlib

_HOME = {
    "Zoo": "zoo.catalog",
    "DeviceArray": "zoo.runtime.device_array",
    "to_device": "zoo.runtime.device_array",
    "empty": "zoo.runtime.device_array",
    "Pointer": "zoo.contract.array",
    "ptr": "zoo.runtime.arrays",
    "view": "zoo.runtime.arrays",
    "Plan": "zoo.runtime.plan",
    "multiprocessors": "zoo.runtime.multiprocessors",
    "Stream": "zoo.runtime.streams",
    "stream": "zoo.runtime.streams",
    "launch": "zoo.packaged",
    "call": "zoo.packaged",
    "shapes": "zoo.packaged",
    "prepare": "zoo.packaged",
    "find": "zoo.packaged",
    "load": "zoo.packaged",
    "kernel": "zoo.packaged",
}
_ERRORS = (
    "ZooError", "ArchitectureError", "ArgumentError", "CaptureError", "ConstraintError", "DriverError", "EmulationError",
    "ExpressionError",
    "ForkError", "IntegrityError", "ManifestError", "RankError", "StreamError", "UnknownKernelError", "VariantError",
)  # fmt: skip
_HOME |= dict.fromkeys(_ERRORS, "zoo.errors")

_MODULES = ("emulator", "reference")

__all__ = ["__version__", *_MODULES, *_HOME]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"zoo.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'zoo' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

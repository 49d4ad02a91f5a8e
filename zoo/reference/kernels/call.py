"""A call on numpy arrays, resolved: its arrays in the dtypes that the kernel takes them in, its settings, and the variant that runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from zoo.contract.array import Array, View
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import called, numpy_dtype
from zoo.contract.resolve import Launch, resolve
from zoo.errors import ArgumentError

_APART = 1 << 45  # bytes between arrays that only seem to have addresses: what `resolve` asks of those holds


class Machine(NamedTuple):
    """What the choice of a variant depends on."""

    capability: tuple[int, int]
    multiprocessors: int


H200 = Machine((9, 0), 132)
B200 = Machine((10, 0), 148)


def usual_machine(kernel: Kernel) -> Machine:
    """The one whose results are computed where nobody names another."""
    return H200 if any(arch.startswith("sm_9") for arch in kernel.archs) else B200


@dataclass(frozen=True)
class Call:
    kernel: Kernel
    arrays: Mapping[str, np.ndarray]  # those that are there; two e2m1 are a byte
    given: Mapping[str, Any]  # numbers and options that are there
    launch: Launch

    @property
    def on_blackwell(self) -> bool:
        return self.launch.variant.arch.startswith("sm_10")

    @property
    def splits(self) -> int:
        """Into how many shares the launch cuts K."""
        variant = self.launch.variant
        if "SPLITS" in variant.constants:
            return variant.constants["SPLITS"]
        if any("SPLITS" in extent.names for extent in variant.launch.cluster):
            return self.launch.symbols["SPLITS"]
        return 1

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every option and every number."""
        found: dict[str, Any] = {name: option.default for name, option in self.kernel.options.items()}
        found |= {name: argument.default for name, argument in self.kernel.arguments.items() if argument.kind == "scalar"}
        return found | {name: value for name, value in self.given.items() if value is not None}

    def dtype(self, name: str) -> str:
        """zoo's name of the dtype that an argument has in this call."""
        return next(one for one in self.kernel.arguments[name].dtypes if self.launch.symbols[f"{name}.{one}"])

    def rows(self, name: str) -> np.ndarray:
        """Columns in fragment order, (..., columns / 64, 64), in rows of all columns."""
        array = self.arrays[name]
        return array.reshape(*array.shape[:-2], array.shape[-2] * array.shape[-1])

    def gates_and_ups(self, name: str, axis: int) -> np.ndarray:
        """An array whose axes `axis` and the next are gates and ups, (2, I) or (I, 2), with one axis of 2 I in their place."""
        array = self.arrays[name]
        axis %= array.ndim
        return array.reshape(*array.shape[:axis], array.shape[axis] * array.shape[axis + 1], *array.shape[axis + 2 :])

    def put(self, name: str, values: np.ndarray, place: Any = ...) -> None:
        """Writes the elements at `place` of an argument or, where there are more than values, the first of each dimension; if it is there."""
        target = self.arrays.get(name)
        if target is None:
            return
        target = target[place]
        if values.ndim != target.ndim:
            values = values.reshape(-1 if values.size else 0, *target.shape[1:])
        first = target[tuple(map(slice, values.shape))]
        bits = f"u{target.dtype.itemsize}"  # a NaN keeps its own
        first.view(bits)[...] = np.ascontiguousarray(values).view(bits)


def resolved(kernel: Kernel, arguments: Mapping[str, Any], machine: Machine | None, variant: str | None) -> Call:
    arrays: dict[str, np.ndarray] = {}
    values: dict[str, Any] = {}
    value: Any
    for number, (name, value) in enumerate(arguments.items(), 1):
        dtype = None
        if isinstance(value, View):
            dtype, value = value.dtype, value.base
        if not isinstance(value, np.ndarray):
            values[name] = value
            continue
        if type(value) is not np.ndarray:
            raise ArgumentError(f"{kernel.name}: {name}: the rule takes a numpy.ndarray, got a {type(value).__name__}")
        itemsize = value.dtype.itemsize
        if any(stride % itemsize for stride in value.strides):
            raise ArgumentError(f"{kernel.name}: {name}: its elements are no whole number of elements apart; copy it first")
        arrays[name] = value
        strides = tuple(stride // itemsize for stride in value.strides)
        values[name] = Array(number * _APART, dtype or called(value.dtype.name), value.shape, strides, readonly=not value.flags.writeable)
    launch = resolve(kernel, values, *(machine or usual_machine(kernel)), variant)
    _apart(launch, arrays)
    _fitting(launch, {name: array for name, array in arrays.items() if not kernel.arguments[name].written})
    call = Call(kernel, {}, {name: value for name, value in values.items() if name not in arrays}, launch)
    seen = {name: array.view(numpy_dtype(call.dtype(name))) for name, array in arrays.items()}
    return Call(kernel, seen, call.given, launch)


def _apart(launch: Launch, arrays: Mapping[str, np.ndarray]) -> None:
    """What is written lies where nothing else does."""
    broken = launch.placement.overlap({name: array.ctypes.data for name, array in arrays.items()})
    if broken is not None:
        name, other, written = broken
        raise ArgumentError(f"{launch.kernel}: {name}: overlaps {other}, and the kernel writes {written}")


def _fitting(launch: Launch, arrays: Mapping[str, np.ndarray]) -> None:
    """Numbers of inputs that say which rows are whose: a GPU believes them."""
    if "offsets" in arrays and (np.diff(arrays["offsets"].astype(np.int64), prepend=0) < 0).any():
        raise ArgumentError(f"{launch.kernel}: offsets: expected numbers that never decrease, from 0 on, got {_some(arrays['offsets'])}")
    if "rows" in arrays:
        rows, R = arrays["rows"], launch.symbols["R"]
        of_groups = rows.ndim == 1  # how many rows each group uses; else the row of each choice of a token
        if ((rows < (0 if of_groups else -1)) | (rows > (R if of_groups else R - 1))).any():
            expected = f"0 to R = {R}" if of_groups else f"-1 to R - 1 = {R - 1}"
            raise ArgumentError(f"{launch.kernel}: rows: expected numbers of {expected}, got {_some(rows)}")


def _some(numbers: np.ndarray) -> str:
    return f"{numbers[:8].tolist()}{', and more' if len(numbers) > 8 else ''}"

"""Arrays in an emulated device's memory, which zoo.launch takes like any other array."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from zoo.contract.array import contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.numpy_dtypes import dtype_name, plain_numpy
from zoo.contract.whole_numbers import whole_tuple
from zoo.runtime.own_array import OwnArray

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from .device import Device


class EmulatedArray(OwnArray):
    """A contiguous array or a view of one. Its memory is the device's and lives as long as that does."""

    def _read(self, size: int) -> np.ndarray:
        return self.device.read(self.address, size, np.uint8)


def from_numpy(device: Device, values: np.ndarray) -> EmulatedArray:
    plain_numpy(values, "array")
    name = dtype_name(values.dtype, "array")
    native = np.asarray(values, values.dtype.newbyteorder("="), order="C")
    return EmulatedArray(device.alloc(native), values.shape, name, contiguous_strides(values.shape), device)


def uninitialised(device: Device, shape: tuple[int, ...], dtype: str | DTypeLike) -> EmulatedArray:
    shape, name = whole_tuple(shape, "shape"), dtype_name(dtype, "empty")
    size = DTYPES[name].bytes * math.prod(shape)
    return EmulatedArray(device.alloc(size), shape, name, contiguous_strides(shape), device)

"""Arrays in an emulated device's memory, which zoo.launch takes like any other array."""

from __future__ import annotations

import numpy as np

from zoo.contract.dtypes import DTYPES
from zoo.errors import ArgumentError
from zoo.runtime.arrays import Pointer, contiguous_strides
from zoo.runtime.device_array import numpy_dtype

_NAMES = {dtype.numpy: dtype.name for dtype in DTYPES.values() if dtype.name != "e2m1x2"}


class EmulatedArray(Pointer):
    """A contiguous array. Its memory is the device's and lives as long as that does."""

    def numpy(self) -> np.ndarray:
        """A copy on the host; 4-bit codes come as bytes."""
        return self.device.read(self.address, self.shape, numpy_dtype(self.dtype))


def from_numpy(device, values: np.ndarray) -> EmulatedArray:
    name = _NAMES.get(values.dtype.name)
    if name is None:
        raise ArgumentError(f"array: zoo has no dtype for numpy's {values.dtype.name}; it knows {', '.join(_NAMES)}")
    return EmulatedArray(device.alloc(values), values.shape, name, contiguous_strides(values.shape), device)


def uninitialised(device, shape: tuple[int, ...], dtype: str) -> EmulatedArray:
    if dtype not in DTYPES:
        raise ArgumentError(f"empty: unknown dtype '{dtype}'; zoo knows {', '.join(DTYPES)}")
    shape = tuple(int(extent) for extent in shape)
    size = DTYPES[dtype].bytes * int(np.prod(shape, dtype=np.int64))
    return EmulatedArray(device.alloc(size), shape, dtype, contiguous_strides(shape), device)

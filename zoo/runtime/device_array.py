"""Device memory for people with numpy alone: numpy in, numpy out."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from zoo.contract.array import contiguous_strides
from zoo.contract.dtypes import CARRIED_BY_BYTES, DTYPES
from zoo.contract.numpy_dtypes import BY_NUMPY_NAME, dtype_name, plain_numpy
from zoo.contract.own_array import OwnArray
from zoo.contract.whole_numbers import whole, whole_tuple
from zoo.errors import ArgumentError
from zoo.runtime import driver
from zoo.runtime.dlpack import make_capsule
from zoo.runtime.streams import of_zoo, stream

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.typing import DTypeLike


class DeviceArray(OwnArray):
    """A contiguous array in device memory that zoo allocated and frees with this object, or a view of one.

    Kernels on DeviceArrays run on zoo's own stream of the device unless told otherwise. `numpy()`, DLPack and the CUDA
    array interface wait for all work of the device first, so what they hand out is finished whatever stream wrote it.
    """

    stream_source = staticmethod(of_zoo)

    def __init__(self, shape: tuple[int, ...], dtype: str | DTypeLike, device: int = 0):
        shape = whole_tuple(shape, "shape")
        super().__init__(0, shape, dtype_name(dtype, "empty"), contiguous_strides(shape), device)
        size = whole(self.nbytes, f"the bytes of {self.shape} of {self.dtype}")
        if size:
            opened = driver.device(device)
            _free_late()
            with opened.current(), driver.relaxed_capture():
                result = driver.bindings().cuMemAlloc(size)
                self.address = int(driver.check(result, f"allocating {size} bytes on device {device}"))
                weakref.finalize(self, _free, opened, self.address).atexit = False

    def numpy(self) -> ndarray[Any, Any]:
        """A copy on the host, contiguous, after waiting for all work of the device. 4-bit codes come as bytes."""
        return super().numpy()

    def _read(self, size: int) -> ndarray[Any, Any]:
        import numpy

        self._wait()
        data = numpy.empty(size, numpy.uint8)
        with driver.device(self.device).current():
            driver.check(driver.bindings().cuMemcpyDtoH(data.ctypes.data, self.address, size), "copying to the host")
        return data

    def copy_from(self, array: ndarray[Any, Any]) -> DeviceArray:
        """Fills this array from a host array of the same shape and dtype."""
        import numpy

        plain_numpy(array, "copy_from")
        allowed = (self.dtype, "u8" if self.dtype in CARRIED_BY_BYTES else self.dtype)
        if array.shape != self.shape or BY_NUMPY_NAME.get(array.dtype.name) not in allowed:
            raise ArgumentError(f"copy_from: expected {self.shape} of {self.dtype}, got {array.shape} of {array.dtype}")
        if not self.is_contiguous():
            raise ArgumentError(f"copy_from: a view with strides {self.strides} is not contiguous; copy into the array it shows")
        array = numpy.asarray(array, array.dtype.newbyteorder("="), order="C")
        if self.nbytes:
            own = stream(self.device)
            with own.device.current():
                copy = driver.bindings().cuMemcpyHtoDAsync(self.address, array.ctypes.data, self.nbytes, own.handle)
                driver.check(copy, "copying to the device")
            own.synchronize()
        return self

    def _wait(self) -> None:
        with driver.device(self.device).current():
            driver.check(driver.bindings().cuCtxSynchronize(), "waiting for the device")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._wait()
        typestr = {"bf16": "<V2", "f16": "<f2", "f32": "<f4", "i32": "<i4", "i64": "<i8"}.get(self.dtype, "|u1")
        size = DTYPES[self.dtype].bytes
        strides = None if self.is_contiguous() else tuple(stride * size for stride in self.strides)
        return {"shape": self.shape, "typestr": typestr, "data": (self.address, False), "version": 3, "strides": strides}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None) -> object:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a DeviceArray gives out its own memory: no copy, and no other device")
        if stream != -1:
            self._wait()
        strides = None if self.is_contiguous() else self.strides
        return make_capsule(self, self.address, DTYPES[self.dtype].dlpack, self.shape, strides, self.device)


# Memory of arrays that are gone, which could not be freed because its device could not be made current; freed before the next is allocated.
_late: list[tuple[driver.Device, int]] = []


def _free(device: driver.Device, address: int) -> None:
    if driver.forked():
        return  # the parent's memory
    _late.append((device, address))
    with device.current(), driver.relaxed_capture():
        _late.remove((device, address))  # the driver is asked once: what it refuses to free is lost
        driver.check(driver.bindings().cuMemFree(address), "freeing device memory")


def _free_late() -> None:
    if _late:
        _free(*_late.pop())


def to_device(array: ndarray[Any, Any], device: int = 0) -> DeviceArray:
    """Copies a numpy array (with ml_dtypes' small floats too) to the device."""
    plain_numpy(array, "to_device")
    return DeviceArray(array.shape, dtype_name(array.dtype, "to_device"), device).copy_from(array)


def empty(shape: tuple[int, ...], dtype: str | DTypeLike, device: int = 0) -> DeviceArray:
    """Uninitialised device memory. The dtype is one of zoo's by name, or numpy's or ml_dtypes' own."""
    return DeviceArray(shape, dtype, device)

"""Device memory for people with numpy alone: numpy in, numpy out."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from zoo.contract.dtypes import CARRIED_BY_BYTES, DTYPES
from zoo.contract.whole_numbers import whole, whole_tuple
from zoo.errors import ArgumentError
from zoo.runtime import driver
from zoo.runtime.arrays import contiguous_strides
from zoo.runtime.dlpack import make_capsule
from zoo.runtime.streams import stream

if TYPE_CHECKING:
    import numpy


class DeviceArray:
    """A contiguous array in device memory that zoo allocated and frees with this object.

    Kernels on DeviceArrays run on zoo's own stream of the device unless told otherwise. `numpy()`, DLPack and the CUDA
    array interface wait for all work of the device first, so what they hand out is finished whatever stream wrote it.
    """

    def __init__(self, shape: tuple[int, ...], dtype: str, device: int = 0):
        if dtype not in DTYPES:
            raise ArgumentError(f"unknown dtype '{dtype}'; zoo knows {', '.join(DTYPES)}")
        self.shape = whole_tuple(shape, "shape")
        self.dtype = dtype
        self.strides = contiguous_strides(self.shape)
        self.device = device
        self.nbytes = DTYPES[dtype].bytes
        for extent in self.shape:
            self.nbytes *= extent
        whole(self.nbytes, f"the bytes of {self.shape} of {dtype}")
        self.address = 0
        if self.nbytes:
            opened = driver.device(device)
            with opened.current(), driver.relaxed_capture():
                result = driver.bindings().cuMemAlloc(self.nbytes)
                self.address = int(driver.check(result, f"allocating {self.nbytes} bytes on device {device}"))
            weakref.finalize(self, _free, opened, self.address).atexit = False

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype!r}, device={self.device})"

    def numpy(self) -> numpy.ndarray:
        """A copy on the host, after waiting for all work of the device. 4-bit codes come as bytes."""
        import numpy

        result = numpy.empty(self.shape, numpy_dtype(self.dtype))
        if self.nbytes:
            self._wait()
            with driver.device(self.device).current():
                driver.check(driver.bindings().cuMemcpyDtoH(result.ctypes.data, self.address, self.nbytes), "copying to the host")
        return result

    def copy_from(self, array: numpy.ndarray) -> DeviceArray:
        """Fills this array from a host array of the same shape and dtype."""
        import numpy

        if array.shape != self.shape or _zoo_dtype(array.dtype) not in (self.dtype, "u8" if self.dtype in CARRIED_BY_BYTES else None):
            raise ArgumentError(f"copy_from: expected {self.shape} of {self.dtype}, got {array.shape} of {array.dtype}")
        array = numpy.asarray(array, array.dtype.newbyteorder("="), order="C")
        if self.nbytes:
            own = stream(self.device)
            with own.device.current():
                copy = driver.bindings().cuMemcpyHtoDAsync(self.address, array.ctypes.data, self.nbytes, own.handle)
                driver.check(copy, "copying to the device")
            own.synchronize()
        return self

    def _wait(self):
        with driver.device(self.device).current():
            driver.check(driver.bindings().cuCtxSynchronize(), "waiting for the device")

    @property
    def __cuda_array_interface__(self) -> dict:
        self._wait()
        typestr = {"bf16": "<V2", "f16": "<f2", "f32": "<f4", "i32": "<i4", "i64": "<i8"}.get(self.dtype, "|u1")
        return {"shape": self.shape, "typestr": typestr, "data": (self.address, False), "version": 3, "strides": None}

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.device)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None) -> object:
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a DeviceArray gives out its own memory: no copy, and no other device")
        if stream != -1:
            self._wait()
        return make_capsule(self, self.address, DTYPES[self.dtype].dlpack, self.shape, self.device)


def _free(device: driver.Device, address: int):
    if driver.forked():
        return  # the parent's memory
    with device.current(), driver.relaxed_capture():
        driver.check(driver.bindings().cuMemFree(address), "freeing device memory")


_BY_NUMPY_NAME = {known.numpy: known.name for known in DTYPES.values() if known.name != "e2m1x2"}


def _zoo_dtype(dtype: numpy.dtype) -> str | None:
    return _BY_NUMPY_NAME.get(dtype.name)


def numpy_dtype(name: str) -> numpy.dtype:
    """numpy's dtype for one of zoo's, with ml_dtypes for the small floats."""
    import ml_dtypes
    import numpy

    spelled = DTYPES[name].numpy
    return numpy.dtype(getattr(ml_dtypes, spelled, None) or spelled)


def to_device(array: numpy.ndarray, device: int = 0) -> DeviceArray:
    """Copies a numpy array (with ml_dtypes' small floats too) to the device."""
    if not hasattr(array, "__array_interface__"):
        raise ArgumentError(f"to_device: a {type(array).__name__} is no numpy array")
    name = _zoo_dtype(array.dtype)
    if name is None:
        raise ArgumentError(f"to_device: zoo has no dtype for numpy's {array.dtype.name}; it knows {', '.join(_BY_NUMPY_NAME)}")
    return DeviceArray(array.shape, name, device).copy_from(array)


def empty(shape: tuple[int, ...], dtype: str, device: int = 0) -> DeviceArray:
    """Uninitialised device memory."""
    return DeviceArray(shape, dtype, device)

"""Stands in for CuPy where the documentation's examples run without it: arrays of real shapes, dtypes and addresses."""

from types import SimpleNamespace

import numpy

float16, uint8 = numpy.float16, numpy.uint8


class ndarray:
    def __init__(self, shape, dtype):
        self._values = numpy.zeros(shape, dtype)
        self.shape, self.dtype, self.strides = self._values.shape, self._values.dtype, self._values.strides
        self.data = SimpleNamespace(ptr=self._values.ctypes.data, device_id=0)


ones = empty = ndarray
cuda = SimpleNamespace(get_current_stream=lambda device: SimpleNamespace(ptr=0))

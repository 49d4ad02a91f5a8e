"""Stands in for torch where the documentation's examples run without it: tensors of real shapes, strides, dtypes and addresses.

Memory is the host's and holds zeros or what a caller asked for; nothing random is drawn. The device is the one of the stand-in driver.
"""

import contextlib
from types import SimpleNamespace

import ml_dtypes
import numpy

ALIGNMENT = 256  # bytes, as the real one's allocator


class dtype:
    def __init__(self, name, of_numpy):
        self.name, self.of_numpy = name, numpy.dtype(of_numpy)

    def __repr__(self):
        return f"torch.{self.name}"


bfloat16, float16, float32 = dtype("bfloat16", ml_dtypes.bfloat16), dtype("float16", "f2"), dtype("float32", "f4")
float8_e4m3fn, float8_e8m0fnu = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn), dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu)
uint8, int32, int64 = dtype("uint8", "u1"), dtype("int32", "i4"), dtype("int64", "i8")
_DTYPES = {one.of_numpy: one for one in (bfloat16, float16, float32, float8_e4m3fn, float8_e8m0fnu, uint8, int32, int64)}


class Tensor:
    def __init__(self, values):
        self._values = values

    @property
    def shape(self):
        return self._values.shape

    @property
    def dtype(self):
        return _DTYPES[self._values.dtype]

    def stride(self):
        return tuple(step // self._values.itemsize for step in self._values.strides)

    def is_contiguous(self):
        return self._values.flags.c_contiguous

    def data_ptr(self):
        return self._values.ctypes.data

    def is_neg(self):
        return False

    def get_device(self):
        return 0

    def t(self):
        return Tensor(self._values.T)

    def view(self, *shape):
        return Tensor(self._values.reshape(shape))

    def unflatten(self, axis, sizes):
        axis %= len(self.shape)
        return self.view(*self.shape[:axis], *sizes, *self.shape[axis + 1 :])

    def to(self, kind):
        return _on_device(self._values.astype(kind.of_numpy))

    def __getitem__(self, key):
        return Tensor(self._values[key])

    def __iter__(self):
        return (Tensor(row) for row in self._values)

    def __mul__(self, factor):
        return _on_device(self._values * self._values.dtype.type(factor))

    def __floordiv__(self, divisor):
        return _on_device(self._values // self._values.dtype.type(divisor))


def empty(*shape, device, dtype=float32):
    """On the device, at an address that its allocator could have given."""
    assert device == "cuda", "the examples' tensors lie on the GPU"
    shape = shape[0] if isinstance(shape[0], tuple) else shape
    count = int(numpy.prod(shape)) * dtype.of_numpy.itemsize
    memory = numpy.zeros(count + ALIGNMENT, numpy.uint8)
    begin = -memory.ctypes.data % ALIGNMENT
    return Tensor(memory[begin : begin + count].view(dtype.of_numpy).reshape(shape))


zeros = randn = empty


def empty_strided(shape, strides, device, dtype=float32):
    reach = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    values, size = empty(reach, device=device, dtype=dtype)._values, dtype.of_numpy.itemsize
    return Tensor(numpy.lib.stride_tricks.as_strided(values, shape, [stride * size for stride in strides]))


def _on_device(values):
    found = empty(values.shape, device="cuda", dtype=_DTYPES[values.dtype])
    found._values[...] = values
    return found


def full(shape, value, device, dtype=float32):
    found = empty(shape, device=device, dtype=dtype)
    found._values[...] = value
    return found


def ones(*shape, device, dtype=float32):
    return full(shape, 1, device, dtype)


def arange(*bounds, device, dtype=int64):
    return _on_device(numpy.arange(*bounds, dtype=dtype.of_numpy))


def randint(high, shape, device):
    return _on_device(numpy.arange(numpy.prod(shape), dtype="i8").reshape(shape) % high)


def argsort(tensor, stable):
    return _on_device(numpy.argsort(tensor._values, kind="stable"))


def bincount(tensor, minlength):
    return _on_device(numpy.bincount(tensor._values, minlength=minlength))


def cumsum(tensor, axis):
    return _on_device(numpy.cumsum(tensor._values, axis))


def device(kind, ordinal):
    assert (kind, ordinal) == ("cuda", 0)
    return kind


class _CudaGraph:
    def replay(self):
        """What was captured ran when it was captured."""


_C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0)
autograd = SimpleNamespace(Function=object)
cuda = SimpleNamespace(
    CUDAGraph=_CudaGraph,
    graph=lambda graph: contextlib.nullcontext(),
    current_stream=lambda: SimpleNamespace(cuda_stream=0, __cuda_stream__=lambda: (0, 0)),
)

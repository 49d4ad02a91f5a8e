"""Where a call's outputs come from: the framework that owns its inputs allocates them, on their device.

A framework is found by the kind of its arrays, as `zoo.runtime.arrays` has it; none is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from zoo.contract.array import View, contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.contract.own_array import OwnArray
from zoo.contract.shapes import Made
from zoo.errors import ArgumentError
from zoo.runtime.device_array import DeviceArray
from zoo.runtime.torch_dtypes import torch_dtype


@dataclass(frozen=True, eq=False)
class Allocator:
    """`maker` of an array is what makes one like it, anew each time it is called; `address` of such an array is where it lies. Memory
    that is made within `on(device, stream)` may be used by work on that stream."""

    maker: Callable[[Made, Any], Callable[[], Any]]
    address: Callable[[Any], int]
    on: Callable[[Any, int], AbstractContextManager[object]] = lambda device, stream: nullcontext()
    workspaces_kept: bool = False  # whether making one costs so much that each stream keeps its own


def allocator_of(value: object) -> Allocator:
    """That of the framework that an array belongs to."""
    while isinstance(value, View):
        value = value.base
    module = str(type(value).__module__).partition(".")[0]
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return Allocator(_torch_maker, torch.Tensor.data_ptr, _on_torch)
    if module == "cupy":
        return Allocator(_cupy_maker, attrgetter("data.ptr"), _on_cupy)
    if module in ("jax", "jaxlib"):
        raise ArgumentError("JAX's arrays are immutable, so no kernel can write one; zoo.jax.call gives JAX's arrays back")
    if isinstance(value, OwnArray) and not isinstance(value, DeviceArray):
        return Allocator(_emulated_maker, attrgetter("address"))
    return Allocator(_own_maker, attrgetter("address"), workspaces_kept=True)


def _torch_maker(made: Made, device: int) -> Callable[[], Any]:
    torch: Any = sys.modules["torch"]
    shape, strides = made.returned()
    dtype = torch_dtype(made.dtype)
    allocated = torch.uint8 if made.dtype == "e2m1x2" else dtype  # deterministic algorithms of torch fill memory, but not of 4-bit codes
    where = dict(dtype=allocated, device=torch.device("cuda", device))
    empty = partial(torch.empty, shape) if strides == contiguous_strides(shape) else partial(torch.empty_strided, shape, strides)
    make = partial(empty, **where)
    return make if allocated == dtype else lambda: make().view(dtype)


def _on_torch(device: int, stream: int) -> AbstractContextManager[object]:
    torch: Any = sys.modules["torch"]
    context: AbstractContextManager[object] = torch.cuda.stream(torch.cuda.ExternalStream(stream, device=device))
    return context


def _cupy_maker(made: Made, device: int) -> Callable[[], Any]:
    cupy: Any = sys.modules["cupy"]
    shape, strides = made.returned()
    dtype = numpy_dtype(made.dtype)
    dtype = dtype if dtype.isbuiltin == 1 else numpy_dtype("u8")  # CuPy has none of ml_dtypes', which numpy counts as built in, too: by 2
    if dtype.itemsize != DTYPES[made.dtype].bytes:
        raise ArgumentError(f"{made.name}: CuPy has no {made.dtype}; pass an array, or another dtype, by {made.name}=")

    def make() -> Any:
        with cupy.cuda.Device(device):
            return cupy.ndarray(shape, dtype, strides=tuple(stride * dtype.itemsize for stride in strides))

    return make


def _on_cupy(device: int, stream: int) -> AbstractContextManager[object]:
    context: AbstractContextManager[object] = sys.modules["cupy"].cuda.ExternalStream(stream, device)
    return context


def _own_maker(made: Made, device: int) -> Callable[[], Any]:
    return lambda: _shown(DeviceArray((_reach(made),), made.dtype, device), made)


def _emulated_maker(made: Made, device: Any) -> Callable[[], Any]:
    import numpy

    if made.access == "workspace":  # a kernel may read one before it writes it, which the emulator reports
        return lambda: _shown(device.array(numpy.zeros((_reach(made),), numpy_dtype(made.dtype))), made)
    return lambda: _shown(device.empty((_reach(made),), made.dtype), made)


def _reach(made: Made) -> int:
    """Elements from the first to behind the last."""
    return 0 if 0 in made.shape else 1 + sum((extent - 1) * stride for extent, stride in zip(made.shape, made.strides, strict=True))


def _shown(memory: OwnArray, made: Made) -> OwnArray:
    return memory._view(memory.address, *made.returned())


_workspaces: dict[tuple[Any, int | None], list[DeviceArray]] = {}


def kept_workspace(made: Made, device: int) -> Callable[[int | None], Any]:
    """What gives a stream's own memory. It is never freed, for a captured graph may use it, and each is at least twice the one before."""
    size = DTYPES[made.dtype].bytes * _reach(made)

    def give(stream: int | None) -> DeviceArray:
        kept = _workspaces.setdefault((device, stream), [])
        if not kept or kept[-1].nbytes < size:
            kept.append(DeviceArray((max(size, 2 * kept[-1].nbytes if kept else 0),), "u8", device))
        return kept[-1]

    return give

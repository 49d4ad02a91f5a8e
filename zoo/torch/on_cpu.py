"""A kernel's call on tensors of the CPU, by the written rule: slow, and bit for bit what a GPU gives wherever the rule says every bit."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from zoo.contract.array import View
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.errors import ArgumentError
from zoo.reference.kernels import run as run_rule
from zoo.torch.allocation import _NAMES, memory, settled

_UNWRITTEN = 0  # the bits of what a kernel leaves unwritten
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def run(kernel: Kernel, given: Mapping[str, Any], outputs: tuple[str, ...]) -> list[torch.Tensor]:
    """Those of `outputs` that the caller did not bring. Bytes that are nobody's are 0."""
    call, device = settled(kernel, given)
    # a workspace is among them, which a rule does not look at
    made = {name: memory(one, device) for name, one in call.made.items()}
    values: dict[str, Any] = dict(call.others)
    for name, tensor in made.items():
        one = call.made[name]
        tensor.view(_BITS[tensor.element_size()]).fill_(_UNWRITTEN)  # the bits: ue8m0 has no number 0
        values[name] = _as_numpy(tensor, one.dtype, one.shape, one.strides)
    for name, array in call.arrays.items():
        tensor = given[name]
        if tensor.dtype not in _NAMES:
            takes = " or ".join(kernel.arguments[name].dtypes)
            raise ArgumentError(f"{kernel.name}: {name}: expected {takes}, got {tensor.dtype}")
        values[name] = _as_numpy(tensor.detach(), array.dtype, array.shape, array.strides)
    run_rule(kernel, values)
    return [made[name] for name in outputs if name in made]


def _as_numpy(tensor: torch.Tensor, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """The same memory as an array of numpy's; of two dtypes that bytes carry, it says which.

    By its address, while the caller holds the tensor: Tensor.numpy() forbids a storage ever to be resized, which FSDP2 does to weights."""
    size = DTYPES[dtype].bytes
    bits = tensor.view(_BITS[size]).as_strided(shape, strides, tensor.storage_offset())
    reach = size * (1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))) if bits.numel() else 0
    memory: Any = (ctypes.c_byte * reach).from_address(bits.data_ptr())
    array: Any = numpy.ndarray(shape, numpy_dtype(dtype), memory, strides=[size * stride for stride in strides])
    return View(array, dtype) if dtype == "e2m1x2" else array

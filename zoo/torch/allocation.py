"""Tensors as the manifest describes arrays: what a call has, what it lacks, and tensors of such shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from zoo import calls
from zoo.contract.array import Array
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.contract.shapes import Made, Settled
from zoo.errors import ArgumentError
from zoo.runtime.torch_dtypes import torch_dtype

_NAMES = {getattr(torch, one.torch, None): one.name for one in DTYPES.values()}


def settled(kernel: Kernel, given: Mapping[str, Any]) -> tuple[Settled, torch.device]:
    """The call in order and the device of its tensors. Extents may be symbolic."""
    device: torch.device | None = None
    values: dict[str, Any] = {}
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            if device is not None and value.device != device:
                raise ArgumentError(f"{kernel.name}: {name}: lies on {value.device}, another argument on {device}; move it there first")
            device = value.device
            value = Array(0, _NAMES.get(value.dtype, str(value.dtype)), tuple(value.shape), tuple(value.stride()))
        values[name] = value
    if device is None:
        raise ArgumentError(f"{kernel.name}: no tensor was given")
    return calls.settled(kernel, values), device


def memory(made: Made, device: torch.device) -> torch.Tensor:
    """`like` with memory. Deterministic algorithms of torch fill what is empty, which torch cannot do to 4-bit codes."""
    shape, strides = made.returned()
    dtype = torch_dtype(made.dtype)
    allocated = torch.uint8 if made.dtype == "e2m1x2" else dtype
    return torch.empty_strided(shape, strides, dtype=allocated, device=device).view(dtype)


def like(made: Made, device: torch.device) -> torch.Tensor:
    shape, strides = made.returned()
    return torch.empty_strided(shape, strides, dtype=torch_dtype(made.dtype), device=device)

"""One way into zoo's kernels: on a GPU zoo.launch, which remembers plans; on the CPU and while torch compiles, zoo's operators."""

from __future__ import annotations

from functools import partial
from typing import Any, NoReturn

import torch

import zoo.torch  # noqa: F401 registers torch.ops.zoo
from zoo.compat.deep_gemm import settings
from zoo.errors import ArgumentError
from zoo.packaged import launch

compiling = torch.compiler.is_compiling


def starter(d: torch.Tensor) -> Any:
    """What starts a kernel that writes d: called with the kernel's name and its arguments by name."""
    try:
        if not d.is_cuda or compiling():
            return _operate
        return launch if settings.sms is None else partial(launch, multiprocessors=settings.sms)
    except AttributeError:
        raise ArgumentError(f"d: expected a tensor that the product is written into, got a {type(d).__name__}") from None


def _operate(kernel: str, **arguments: Any) -> None:
    getattr(torch.ops.zoo, kernel.replace(".", "_")).out(**arguments)


def refuse_pairs(name: str, a: Any, b: Any) -> NoReturn:
    """What could not be read as two pairs of tensors."""
    for which, one in (("a", a), ("b", b)):
        if not isinstance(one, tuple | list) or len(one) != 2:
            raise ArgumentError(f"{name}: {which}: expected a pair (elements, scales), got a {type(one).__name__}")
        for part, tensor in zip(("elements", "scales"), one, strict=True):
            if not isinstance(tensor, torch.Tensor):
                raise ArgumentError(f"{name}: {which}: expected a tensor of {part}, got a {type(tensor).__name__}")
    raise ArgumentError(f"{name}: expected scales with an axis for each axis of the elements, got {shapes(a)} and {shapes(b)}")


def shapes(operand: Any) -> str:
    return " with ".join(str(tuple(one.shape)) for one in operand)


def overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors may share memory. Those of different storages do not; while torch compiles there is no memory to ask about."""
    return x is y or compiling() or x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()


def same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors of one shape are the same elements. While torch compiles, only a tensor itself is."""
    if x is y:
        return True
    return not compiling() and x.dtype == y.dtype and x.stride() == y.stride() and x.data_ptr() == y.data_ptr()

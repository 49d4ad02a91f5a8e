"""Calls whose arrays are matrices, with torch's tensors, as kernels name them: columns in fragment order, gates and ups have dimensions of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from zoo.catalog import Zoo
from zoo.checks.layouts import view_of
from zoo.contract.manifest import Kernel

if TYPE_CHECKING:
    import torch


def viewed(kernel: Kernel, arguments: dict[str, Any]) -> dict[str, Any]:
    """The same call. A tensor that has the kernel's dimensions stays as it is."""
    settings = {name: value for name, value in arguments.items() if isinstance(value, (str, int, float))}
    return {name: _viewed(kernel, name, value, settings) if hasattr(value, "as_strided") else value for name, value in arguments.items()}


def _viewed(kernel: Kernel, name: str, tensor: torch.Tensor, settings: dict[str, Any]) -> torch.Tensor:
    shape, strides = tuple(tensor.shape), tensor.stride()
    if name not in kernel.arguments:
        return tensor
    view = view_of(kernel, name, shape, None if tensor.is_contiguous() else strides, settings)
    if view.shape == shape:
        return tensor
    return tensor.view(view.shape) if view.strides is None else tensor.as_strided(view.shape, view.strides, tensor.storage_offset())


def of_matrices(zoo: Any) -> Zoo:
    """The same zoo, in whose calls operands may be matrices."""
    return cast(Zoo, _OfMatrices(zoo))


class _OfMatrices:
    def __init__(self, zoo: Any):
        self._zoo = zoo

    def __getattr__(self, name: str) -> Any:
        return getattr(self._zoo, name)

    def launch(self, name: str, *, variant: str | None = None, **arguments: Any) -> None:
        self._zoo.launch(name, variant=variant, **viewed(self._zoo.kernel(name), arguments))

    def prepare(self, name: str, *, variant: str | None = None, stream: Any = None, **arguments: Any) -> Any:
        return self._zoo.prepare(name, variant=variant, stream=stream, **viewed(self._zoo.kernel(name), arguments))

"""The sizes a kernel is timed at when nobody names any: those of models that people run."""

from __future__ import annotations

from zoo.errors import ArgumentError
from zoo.manifest import Kernel

_ACTIVATIONS = ((8192, 2048), (8192, 7168), (32768, 2048), (32768, 7168), (131072, 2048), (131072, 7168))
_BY_OP = {"quantize": _ACTIVATIONS}


def usual_shapes(kernel: Kernel) -> list[list[int]]:
    if kernel.fields["op"] not in _BY_OP:
        raise ArgumentError(f"{kernel.name}: has no usual shapes; give --shape")
    return [list(shape) for shape in _BY_OP[kernel.fields["op"]]]

"""zoo's kernels as torch's operators, and matrices that know how they are quantised.

    import zoo.torch

    q, scales = torch.ops.zoo.quantize_mxfp8_rows(x)                 # an operator for every kernel: compiled, exported, on CPU too
    w = zoo.torch.quantize(weights, "fp8b128", direction="squares")  # elements and scales as one
    y = zoo.torch.matmul(zoo.torch.quantize(x, "fp8b128"), w.t())
    layer = zoo.torch.nn.Linear(1024, 4096, format="fp8b128")        # forward and backward; docs/layers.md
    report = zoo.torch.quantize_(model, "fp8b128")                   # every linear layer of a model, in place

docs/torch.md tells the rest. Operators and layers are made when they are first asked for, so importing this costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zoo.torch.checkpoints import load, save
from zoo.torch.folded import fold_scales
from zoo.torch.operators import install, register
from zoo.torch.quantized import Quantized, kernel_of, matmul, quantize

if TYPE_CHECKING:
    from zoo.torch import nn
    from zoo.torch.nn import quantize_

__all__ = ["Quantized", "fold_scales", "kernel_of", "load", "matmul", "nn", "quantize", "quantize_", "register", "save"]

install()


def __getattr__(name: str) -> Any:
    if name not in ("nn", "quantize_"):
        raise AttributeError(f"module 'zoo.torch' has no attribute '{name}'")
    import importlib

    layers = importlib.import_module("zoo.torch.nn")
    return layers if name == "nn" else layers.quantize_


def __dir__() -> list[str]:
    return sorted(__all__)

"""zoo's kernels as torch's operators, and matrices that know how they are quantised.

    import zoo.torch

    q, scales = torch.ops.zoo.quantize_mxfp8_rows(x)                 # an operator for every kernel: compiled, exported, on CPU too
    w = zoo.torch.quantize(weights, "fp8b128", direction="squares")  # elements and scales as one
    y = zoo.torch.matmul(zoo.torch.quantize(x, "fp8b128"), w.t())

docs/torch.md tells the rest. An operator is registered when it is first asked for, so importing this costs next to nothing.
"""

from __future__ import annotations

from zoo.torch.checkpoints import load, save
from zoo.torch.operators import install, register
from zoo.torch.quantized import Quantized, kernel_of, matmul, quantize

__all__ = ["Quantized", "kernel_of", "load", "matmul", "quantize", "register", "save"]

install()


def __dir__() -> list[str]:
    return sorted(__all__)

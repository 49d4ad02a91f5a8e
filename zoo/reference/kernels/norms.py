"""The rule of `norm.*`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.fragments import permuted_columns
from zoo.reference.kernels import quantisers
from zoo.reference.kernels.call import Call
from zoo.reference.norm import rms_norm, rms_norm_backward, rounded, sum_of_parts
from zoo.reference.quantize import quantize_rows
from zoo.reference.token_rows import quantize_token_rows


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    if "gradient" in kernel.fields:
        return _sum_of_parts if kernel.fields.get("extra") == "weight" else _backward
    return {None: _rows, "fp8token": _tokens}.get(kernel.fields.get("formats"), _blocks)


def _rows(call: Call) -> None:
    _normed(call)


def _blocks(call: Call) -> None:
    result = quantize_rows(_normed(call), quantisers.format_of(call, "q"), call.settings["layout"])
    if call.settings["order"] == "fragments":
        result = replace(result, q=permuted_columns(result.q))
    quantisers.put(call, result, "q", "scales")


def _tokens(call: Call) -> None:
    quantisers.put(call, quantize_token_rows(_normed(call), call.settings["order"]), "q", "scales")


def _normed(call: Call) -> np.ndarray:
    """y before it is rounded; all but what is quantised is written."""
    x = call.arrays["x"]
    found = rms_norm(x, call.arrays["weight"], call.settings["eps"], call.arrays.get("residual"))
    call.put("y", rounded(found.y, x.dtype))
    call.put("sum", found.s)
    call.put("rstd", found.rstd)
    return found.y


def _backward(call: Call) -> None:
    dy, x, weight, rstd = (call.arrays[name] for name in ("dy", "x", "weight", "rstd"))
    parts = call.arrays.get("dweight_parts")
    dx, sums = rms_norm_backward(dy, x, weight, rstd, len(x) if parts is None else len(parts), call.arrays.get("dsum"))
    call.put("dx", dx)
    call.put("dweight_parts", sums)


def _sum_of_parts(call: Call) -> None:
    call.put("dweight", sum_of_parts(call.arrays["dweight_parts"], call.arrays["dweight"].dtype))

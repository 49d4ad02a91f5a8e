"""The rule of `dequantize.*`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from zoo.contract.manifest import Kernel
from zoo.reference.dequantize import dequantize
from zoo.reference.kernels.call import Call
from zoo.reference.kernels.quantisers import format_of
from zoo.reference.layouts import from_blocked


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return _dequantize


def _dequantize(call: Call) -> None:
    q, out = call.arrays["q"], call.arrays["out"]
    format = format_of(call, "q")
    rows, columns = out.shape[-2:]
    blocks = -(-columns // format.block)
    scales, layout = call.arrays["scales"], call.settings.get("layout", "plain")
    if layout == "blocked":  # of squares, too, there is one for each row
        matrices = scales if scales.ndim == 5 else scales[None]
        found = np.empty((len(matrices), rows, blocks), scales.dtype)
        for number, matrix in enumerate(matrices):
            found[number] = from_blocked(matrix, rows, blocks)
        scales = found.reshape(*q.shape[:-2], rows, blocks)
    call.put("out", dequantize(q, scales, format, columns, call.dtype("out")))

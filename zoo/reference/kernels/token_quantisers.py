"""The rule of `quantize.fp8token.*`: a scale for each row."""

from __future__ import annotations

from collections.abc import Callable

from zoo.contract.manifest import Kernel
from zoo.reference.groups import gather
from zoo.reference.kernels.call import Call
from zoo.reference.swiglu import swiglu
from zoo.reference.token_rows import quantize_token_rows


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return _rows


def _rows(call: Call) -> None:
    x, index = call.arrays["x"], call.arrays.get("index")
    x = x if index is None else gather(x, index)
    if "gates" in call.settings:
        x = swiglu(call.gates_and_ups("x", 1), call.settings["gates"])
    result = quantize_token_rows(x, call.settings["order"])
    call.put("q", result.q)
    call.put("scales", result.scales)

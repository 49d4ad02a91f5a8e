"""The rule of `requantize.*`."""

from __future__ import annotations

from collections.abc import Callable

from zoo.contract.manifest import Kernel
from zoo.reference.gemm_powers_of_two import ue8m0_of_powers
from zoo.reference.kernels.call import Call
from zoo.reference.requantize import requantize_rows, requantize_squares


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    requantize = {"rows": requantize_rows, "squares": requantize_squares}[kernel.fields["direction"]]

    def rule(call: Call) -> None:
        result = requantize(call.arrays["q"], call.arrays["scales"])
        call.put("q_out", result.q)
        call.put("scales_out", result.scales if call.dtype("scales_out") == "f32" else ue8m0_of_powers(result.scales))

    return rule

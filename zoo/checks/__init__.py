"""Is a kernel right? Problems with known answers, run by whatever can run a kernel, compared byte for byte.

A family of kernels has a module here with `problems(kernel, variant) -> Iterator[Problem]`. What runs them is an
*executor*: that of `zoo.checks.gpu` on a device, that of `zoo.checks.emulated` without one; the tests have others.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from zoo.checks.problem import POISONS, Executor, Problem, difference
from zoo.contract.manifest import Kernel, Variant
from zoo.errors import DriverError, EmulationError, VariantError, ZooError

# The module that knows a kernel's problems: the first whose fields are those of the kernel's name. More particular ones go first.
_FAMILIES = (
    ({"op": "quantize", "extra": "swiglu"}, "zoo.checks.quantize_swiglu"),
    ({"op": "quantize", "direction": "squares"}, "zoo.checks.quantize_squares"),
    ({"op": "quantize", "direction": "cols", "grouping": "experts"}, "zoo.checks.quantize_experts"),
    ({"op": "quantize", "direction": "rows", "grouping": "m_grouped_contiguous"}, "zoo.checks.quantize_groups"),
    ({"op": "quantize", "direction": "rows", "grouping": "m_grouped_padded"}, "zoo.checks.quantize_groups"),
    ({"op": "quantize", "extra": "amax", "direction": "rows"}, "zoo.checks.quantize_nvfp4"),
    ({"op": "quantize", "extra": "amax"}, "zoo.checks.amax"),
    ({"op": "gemm", "formats": "fp8b128", "extra": "swiglu"}, "zoo.checks.gemm_swiglu"),
    ({"op": "gemm", "formats": "fp8b128", "extra": "swiglu_fp8b128"}, "zoo.checks.gemm_swiglu"),
    ({"op": "gemm", "formats": "fp8b128"}, "zoo.checks.gemm_fp8b128"),
    ({"op": "quantize", "direction": "rows", "formats": "fp8b128"}, "zoo.checks.quantize_fp8b128"),
    ({"op": "quantize", "direction": "rows", "formats": "mxfp4"}, "zoo.checks.quantize_mxfp4"),
    ({"op": "quantize", "direction": "rows", "formats": "mxfp8"}, "zoo.checks.quantize_mxfp8"),
    ({"op": "quantize", "direction": "cols", "grouping": "m_grouped_contiguous"}, "zoo.checks.quantize_column_groups"),
    ({"op": "quantize", "direction": "cols", "grouping": "m_grouped_padded"}, "zoo.checks.quantize_column_groups"),
    ({"op": "quantize", "direction": "cols"}, "zoo.checks.quantize_directions"),
    ({"op": "quantize", "direction": "both"}, "zoo.checks.quantize_directions"),
    ({"op": "quantize", "direction": "rows", "formats": "nvfp4"}, "zoo.checks.quantize_nvfp4"),
    ({"op": "dequantize"}, "zoo.checks.dequantize"),
    ({"op": "scales"}, "zoo.checks.scales"),
)

__all__ = ["Outcome", "check", "problems"]


@dataclass(frozen=True)
class Outcome:
    checks: int  # problems that ran
    error: str | None  # the first that went wrong
    left_out: int = 0  # problems that were larger than asked for


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    """The problems of a variant. Their arrays are large: take them one by one."""
    for fields, module in _FAMILIES:
        if fields.items() <= kernel.fields.items():
            return importlib.import_module(module).problems(kernel, variant)
    raise ZooError(f"{kernel.name}: nobody has written checks for it; add a module to zoo/checks")


def check(kernel: Kernel, variant: Variant, execute: Executor, most_elements: int | None = None, poisons=POISONS) -> Outcome:
    """Runs a variant's problems, or those whose inputs have at most so many elements, until one goes wrong."""
    ran = left_out = 0
    for problem in problems(kernel, variant):
        if most_elements is not None and sum(placed.values.size for placed in problem.inputs.values()) > most_elements:
            left_out += 1
            continue
        try:
            error = difference(problem, kernel, variant, execute, poisons)
        except VariantError:
            continue  # sizes that this variant does not take; another one does
        except (DriverError, EmulationError) as failure:
            error = str(failure)
        ran += 1
        if error is not None:
            return Outcome(ran, f"{problem.name}: {error}", left_out)
    return Outcome(ran, None if ran else "no problem has sizes that this variant takes; add one to its checks", left_out)

"""Is a kernel right? Problems with known answers, run by whatever can run a kernel, compared byte for byte.

A family of kernels has a module here with `problems(kernel, variant) -> Iterator[Problem]`. What runs them is an
*executor*: `zoo.checks.gpu.run` on a device; the tests have others, and so may an emulator.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass

from zoo.checks.problem import Executor, Problem, difference
from zoo.errors import DriverError, VariantError, ZooError
from zoo.manifest import Kernel, Variant

# (op, formats) of a kernel's name -> the module that knows its problems
_FAMILIES = {("quantize", "mxfp8"): "zoo.checks.quantize_mxfp8"}

__all__ = ["Outcome", "check", "problems"]


@dataclass(frozen=True)
class Outcome:
    checks: int  # problems that ran
    error: str | None  # the first that went wrong


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    """The problems of a variant. Their arrays are large: take them one by one."""
    family = (kernel.fields["op"], kernel.fields["formats"])
    if family not in _FAMILIES:
        raise ZooError(f"{kernel.name}: nobody has written checks for {'.'.join(family)}; add a module to zoo/checks")
    return importlib.import_module(_FAMILIES[family]).problems(kernel, variant)


def check(kernel: Kernel, variant: Variant, execute: Executor) -> Outcome:
    """Runs a variant's problems until one goes wrong."""
    ran = 0
    for problem in problems(kernel, variant):
        try:
            error = difference(problem, kernel, variant, execute)
        except VariantError:
            continue  # sizes that this variant does not take; another one does
        except DriverError as failure:
            error = str(failure)
        ran += 1
        if error is not None:
            return Outcome(ran, f"{problem.name}: {error}")
    return Outcome(ran, None if ran else "no problem has sizes that this variant takes; add one to its checks")

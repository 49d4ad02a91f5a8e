"""What every kernel of the zoo computes, on numpy arrays: a call by name, as `zoo.launch` takes it, carried out by the written rule.

    run("quantize.fp8b128.rows", {"x": x, "q": q, "scales": scales})

The arrays that a kernel writes are the caller's. They are written in place, and exactly the elements that the kernel owns: rows of
nobody stay as they are. So whoever can allocate the outputs of a call has a CPU implementation of it.

The call is resolved as the loader does it, with the same refusals; the alignment of host memory does not count. Which variant a GPU
would run decides how K is shared, and on which arch, how a tensor core adds. So results are those of a `Machine`, to the bit where
the rule of that machine is known to the bit: on Hopper, and in all that quantises, everywhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from zoo.contract.manifest import Kernel
from zoo.errors import ArgumentError, UnknownKernelError
from zoo.reference.kernels.call import B200, H200, Call, Machine, resolved, usual_machine

__all__ = ["B200", "H200", "Call", "Machine", "rule_of", "run", "usual_machine"]

_RULES = {  # op -> module
    "quantize": "quantisers",
    "dequantize": "dequantisers",
    "requantize": "requantisers",
    "scales": "arrangements",
    "pack": "arrangements",
    "unpack": "fragments",
    "gemm": "products",
    "experts": "experts",
    "norm": "norms",
}


def run(kernel: Kernel | str, arguments: Mapping[str, Any], machine: Machine | None = None, variant: str | None = None) -> None:
    """Carries out a call. Arguments are those of `zoo.launch`: numpy arrays, numbers and options; workspaces are not looked at.

    Elements of fp8, of ue8m0 and two e2m1 may come as bytes where an argument has only one such dtype; `zoo.view(bytes, "e5m2")`
    says which of several. Without a machine: an H200, or for kernels that Hopper has not, a B200.
    """
    if isinstance(kernel, str):
        from zoo.packaged import packaged

        kernel = packaged.kernel(kernel)
    rule, call = rule_of(kernel), resolved(kernel, arguments, machine, variant)
    try:
        rule(call)
    except (ValueError, IndexError) as error:
        raise ArgumentError(f"{kernel.name}: the numbers in its arrays do not fit them: {error}") from error


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    """What carries out a resolved call of this kernel."""
    module = _RULES.get(kernel.fields["op"])
    if module is None:
        raise UnknownKernelError(
            f"{kernel.name}: zoo/reference/kernels has no rule for '{kernel.fields['op']}'; add a module with one, and name it in its __init__.py"
        )
    found: Callable[[Kernel], Callable[[Call], None]] = importlib.import_module(f"zoo.reference.kernels.{module}").rule_of
    return found(kernel)

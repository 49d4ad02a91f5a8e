"""The rules of `experts.*`."""

from __future__ import annotations

from collections.abc import Callable

from zoo.contract.manifest import Kernel
from zoo.reference import experts
from zoo.reference.kernels.call import Call


def rule_of(kernel: Kernel) -> Callable[[Call], None]:
    return {
        ("route", None): _route,
        ("combine", None): _combine,
        ("combine", "backward"): _combine_backward,
    }[kernel.fields["step"], kernel.fields.get("pass")]


def _route(call: Call) -> None:
    arrays, settings = call.arrays, call.settings
    found = experts.route(
        arrays["ids"], len(arrays["offsets"]), len(arrays["index"]), arrays.get("weights"), settings["first"], settings["padding"]
    )
    for name, values in found._asdict().items():
        call.put(name, values)


def _combine(call: Call) -> None:
    arrays = call.arrays
    call.put("y", experts.combine(arrays["d"], arrays["rows"], arrays.get("weights"), arrays.get("residual")))


def _combine_backward(call: Call) -> None:
    arrays, rows = call.arrays, call.arrays["rows"]
    d = arrays.get("d") if "d_weights" in arrays else None
    d_rows, d_weights = experts.combine_backward(arrays["dy"], rows, arrays.get("weights"), d)
    arrays["d_rows"].view("u2")[rows[rows >= 0]] = d_rows.view("u2")  # a NaN keeps its bits
    if d_weights is not None:
        call.put("d_weights", d_weights)

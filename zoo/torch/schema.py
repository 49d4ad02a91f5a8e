"""The schemas of a kernel's operators, from its entry in the manifest.

Arrays that a kernel must have come first and by place; all else goes by keyword. The functional form returns what the kernel writes and
takes, under an output's own name, its dtype where there is a choice; `.all` returns optional outputs as well; `.out` writes into tensors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from zoo.contract.manifest import Argument, Kernel
from zoo.contract.shapes import sizes

FORMS = ("", "all", "out")


@dataclass(frozen=True)
class Form:
    """One operator of a kernel: its overload's name, the arrays that it returns or writes, and its schema."""

    overload: str
    outputs: tuple[str, ...]
    schema: str


def operator_name(kernel_name: str) -> str:
    return kernel_name.replace(".", "_")


def forms(kernel: Kernel) -> list[Form]:
    written = [one for one in kernel.arguments.values() if one.access in ("write", "read_write")]
    required = [one for one in written if not one.optional]
    found = [_functional(kernel, "", required)]
    if len(required) < len(written):
        found.append(_functional(kernel, "all", written))
    return [*found, _out(kernel, written)]


def _functional(kernel: Kernel, overload: str, outputs: list[Argument]) -> Form:
    dtypes = [f"str {one.name}={json.dumps(one.dtypes[0])}" for one in outputs if len(one.dtypes) > 1]
    told = [f"SymInt? {symbol}=None" for symbol in sizes(kernel)]
    adds = any(one.access == "read_write" for one in outputs)  # to what is there, which only the form that writes in place can do
    named = [*dtypes, *_named(kernel, without=("accumulate",) if adds else ()), *told]
    returned = ", ".join(f"Tensor {one.name}" for one in outputs)
    return _form(kernel, overload, outputs, named, f"({returned})" if len(outputs) > 1 else "Tensor")


def _out(kernel: Kernel, outputs: list[Argument]) -> Form:
    marks = (f"({chr(ord('a') + place)}!)" for place in range(len(outputs)))
    named = [
        f"Tensor{mark}? {one.name}=None" if one.optional else f"Tensor{mark} {one.name}" for one, mark in zip(outputs, marks, strict=False)
    ]
    return _form(kernel, "out", outputs, [*named, *_named(kernel)], "()")


def _form(kernel: Kernel, overload: str, outputs: list[Argument], named: list[str], returned: str) -> Form:
    places = [f"Tensor {one.name}" for one in _inputs(kernel) if not one.optional]
    dot = f".{overload}" if overload else ""
    schema = f"{operator_name(kernel.name)}{dot}({', '.join([*places, *(['*', *named] if named else [])])}) -> {returned}"
    return Form(overload, tuple(one.name for one in outputs), schema)


def _inputs(kernel: Kernel) -> list[Argument]:
    return [one for one in kernel.arguments.values() if one.kind == "array" and one.access == "read"]


def _named(kernel: Kernel, without: tuple[str, ...] = ()) -> list[str]:
    optional = [f"Tensor? {one.name}=None" for one in _inputs(kernel) if one.optional]
    numbers = [_number(one) for one in kernel.arguments.values() if one.kind == "scalar"]
    options = [f"str {name}={json.dumps(one.default)}" for name, one in kernel.options.items() if name not in without]
    return [*optional, *numbers, *options]


def _number(argument: Argument) -> str:
    kind = "float" if argument.dtypes[0] == "f32" else "SymInt"
    return f"{kind} {argument.name}" + ("" if argument.default is None else f"={argument.default!r}")

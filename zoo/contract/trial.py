"""What `resolve` says of a call before its arrays lie anywhere: whether it would be taken, and which workspaces it would not look at."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from zoo.contract.array import Array, contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import resolve
from zoo.contract.shapes import Settled
from zoo.errors import ConstraintError, ZooError

_ROW = 16  # bytes that rows must start at multiples of, where a kernel asks for any such thing
_PAGE = 4096
_MULTIPROCESSORS = 132  # of an H100, where a rule asks for them


def fitting(kernel: Kernel, call: Settled, movable: Collection[str], variant: str | None = None) -> Settled:
    """The call as the kernel takes it, with rows of the `movable` inputs further apart where they must start at multiples of 16 bytes and
    would not. Raises what every machine would."""
    try:
        check(kernel, call, variant)
    except ConstraintError:
        apart = {
            name: _apart(array, name in call.by_columns)
            for name, array in call.arrays.items()
            if name in movable and _may_be_apart(kernel, name, array, name in call.by_columns)
        }
        if not apart:
            raise
        call = call._replace(arrays={**call.arrays, **apart})
        check(kernel, call, variant)
    return call


def check(kernel: Kernel, call: Settled, variant: str | None = None) -> None:
    """Raises the refusal of the first machine that the kernel has a cubin for, if all of them refuse."""
    values = _anywhere(call)
    refusal: ZooError | None = None
    for arch in kernel.archs:
        capability = int(arch[3:-2]), int(arch[-2])
        try:
            resolve(kernel, values, capability, _MULTIPROCESSORS, variant)
            return
        except ZooError as error:
            refusal = refusal or error
    if refusal is not None:
        raise refusal


def without_idle_workspaces(
    kernel: Kernel,
    call: Settled,
    capability: tuple[int, int],
    multiprocessors: int,
    variant: str | None,
    limit: int | None = None,
) -> Settled:
    """The call without the workspaces that may be left out and that the variant chosen for it takes no notice of."""
    spare = [name for name, one in call.made.items() if one.access == "workspace" and kernel.arguments[name].optional]
    if not spare:
        return call
    try:
        chosen = resolve(kernel, _anywhere(call), capability, multiprocessors, variant, limit).variant
    except ZooError:
        return call  # the call itself says it
    idle = [name for name in spare if f"{name}.present" not in chosen.when.names]
    return call._replace(made={name: one for name, one in call.made.items() if name not in idle})


def without_workspaces_idle_everywhere(kernel: Kernel, call: Settled, variant: str | None) -> Settled:
    """The same where nobody knows yet which machine it will be: those stay that one machine would use."""
    capabilities = [(int(arch[3:-2]), int(arch[-2])) for arch in kernel.archs]
    used = [without_idle_workspaces(kernel, call, capability, _MULTIPROCESSORS, variant).made for capability in capabilities]
    return call._replace(made={name: one for name, one in call.made.items() if any(name in made for made in used)})


def _anywhere(call: Settled) -> dict[str, Any]:
    """The values of a call whose arrays lie one after the other."""
    arrays = {**call.arrays, **{name: Array(0, one.dtype, one.shape, one.strides) for name, one in call.made.items()}}
    values, address = dict(call.others), _PAGE
    for name, array in arrays.items():
        values[name] = replace(array, address=address, device=0)
        address += -(-_bytes(array) // _PAGE) * _PAGE
    return values


def _bytes(array: Array) -> int:
    last = sum((max(extent, 1) - 1) * max(stride, 0) for extent, stride in zip(array.shape, array.strides, strict=True))
    return (last + 1) * (DTYPES[array.dtype].bytes if array.dtype in DTYPES else _ROW)


def _may_be_apart(kernel: Kernel, name: str, array: Array, by_columns: bool = False) -> bool:
    """Whether rows of an array start at odd places, the kernel reads them at any distance, and it asks something of that distance. The same
    of columns, where those are contiguous."""
    inner, outer = (-2, -1) if by_columns else (-1, -2)
    if len(array.shape) < 2 or array.dtype not in DTYPES or array.shape[inner] * DTYPES[array.dtype].bytes % _ROW == 0:
        return False
    asked = {name for rule, _ in kernel.constraints if any(opcode == "modulo" for opcode, _ in rule.code) for name in rule.names}
    forms = [form.strides for form in kernel.arguments[name].forms if form.strides is not None and len(form.strides) == len(array.shape)]
    return any(_is_symbol(strides[outer]) and strides[outer].text in asked for strides in forms)


def _is_symbol(expression: Expression) -> bool:
    return expression.names == (expression.text,)


def _apart(array: Array, by_columns: bool = False) -> Array:
    unit, storage, inner = _ROW // DTYPES[array.dtype].bytes, list(array.shape), -2 if by_columns else -1
    storage[inner] = -(-storage[inner] // unit) * unit
    return replace(array, strides=contiguous_strides(tuple(storage), by_columns))

"""Calls that return: outputs and workspaces are allocated as the manifest says, the kernel is started, and the outputs come back by name."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from zoo.contract.array import Array, contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import dtype_name
from zoo.contract.shapes import Settled, settle
from zoo.contract.trial import fitting
from zoo.contract.whole_numbers import shown, whole_tuple
from zoo.errors import ArgumentError, ExpressionError, ZooError
from zoo.runtime.allocation import Allocator, kept_workspace
from zoo.runtime.arrays import kind_of, plain_number
from zoo.runtime.streams import handle_of

if TYPE_CHECKING:
    from zoo.emulator.plan import EmulatedPlan
    from zoo.runtime.plan import Plan


class Shape(NamedTuple):
    """An array that `zoo.call` would make, as it would return it. Strides are in elements."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    access: str  # write, read_write or workspace


def shapes(kernel: Kernel, arguments: Mapping[str, object]) -> dict[str, Shape]:
    """What a call with these inputs makes; an input is an array, or (shape, dtype) of one, whose rows may start at multiples of 16 bytes.
    What no machine would take is refused, in the words of the call."""
    given = {name: _described(kernel, name, value) for name, value in arguments.items() if value is not None}
    pairs = {name for name, value in arguments.items() if type(value) is tuple}
    call = settled(kernel, given)
    by_columns = {
        name: replace(call.arrays[name], strides=contiguous_strides(call.arrays[name].shape, True)) for name in pairs & call.by_columns
    }
    made = fitting(kernel, call._replace(arrays={**call.arrays, **by_columns}), pairs).made
    return {name: Shape(one.returned()[0], one.dtype, one.returned()[1], one.access) for name, one in made.items()}


def settled(kernel: Kernel, given: Mapping[str, Any]) -> Settled:
    """The call in order, with what it lacks. Of an output, `given` may hold any framework's dtype."""
    try:
        return settle(kernel, {name: _named(kernel, name, value) for name, value in given.items() if value is not None})
    except ExpressionError as error:
        raise ArgumentError(f"{kernel.name}: {error}") from None


def _named(kernel: Kernel, name: str, value: Any) -> Any:
    """A dtype under an output's name becomes zoo's word for it."""
    argument = kernel.arguments.get(name)
    if argument is None or not argument.written or type(value) in (Array, bool):
        return value
    said = shown(value)
    if said.startswith("torch."):
        words = {one.torch: one.name for one in DTYPES.values()}
        return words.get(said.removeprefix("torch."), said)
    return dtype_name(value, f"{kernel.name}: {name}")


def _described(kernel: Kernel, name: str, value: Any) -> Any:
    argument = kernel.arguments.get(name)
    of_arrays = argument is not None and argument.kind == "array"
    if of_arrays and type(value) is tuple and len(value) == 2 and isinstance(value[0], (tuple, list)):
        shape = whole_tuple(value[0], f"{kernel.name}: {name}: shape")
        return Array(0, dtype_name(value[1], f"{kernel.name}: {name}"), shape, contiguous_strides(shape))
    try:
        kind = kind_of(value) if of_arrays else None
        return kind.describe(*kind.read(value)) if kind is not None else value if of_arrays else plain_number(value)
    except ZooError as error:
        reason = str(error)
    except Exception as error:
        reason = f"a {type(value).__name__} that cannot be read: {shown(error)}"
    raise ArgumentError(f"{kernel.name}: {name}: {reason}{'; a pair (shape, dtype) will do' if of_arrays else ''}")


class Repeated:
    """A call that was made before: makes its arrays anew and starts its plan. Belongs to one thread, as a plan that is moved does."""

    __slots__ = ("_address", "_kept", "_makers", "_names", "_on", "_plan", "_result", "_simple", "_source", "form")

    def __init__(self, kernel: Kernel, settled: Settled, allocator: Allocator, device: Any, source: Callable[[], int | None]):
        made = sorted(settled.made.values(), key=lambda one: one.access == "workspace")
        keeps = [one for one in made if one.access == "workspace" and allocator.workspaces_kept]
        self._makers = [allocator.maker(one, device) for one in made if one not in keeps]
        self._kept = [kept_workspace(one, device) for one in keeps]
        self._names = [one.name for one in made]
        self._address = allocator.address
        self._on = partial(allocator.on, device)
        self._source = source
        outputs = [name for name, one in kernel.arguments.items() if one.access in ("write", "read_write")]
        outputs = [name for name in outputs if name in settled.made or name in settled.arrays]
        self._simple = outputs == self._names[: len(outputs)]  # nothing that the caller brought
        self._result = result_type(tuple(outputs))
        self._plan: Plan | EmulatedPlan | None = None
        self.form: list[Any] | None = None  # of the call, where it is remembered

    @property
    def movable(self) -> bool:
        return self._plan is not None and self._plan.movable

    def first(self, arguments: Mapping[str, object], planned: Callable[[Mapping[str, int]], Plan | EmulatedPlan], stream: object) -> Any:
        """The call itself. `planned` takes the addresses of what was made."""
        arrays, addresses = self._made(stream)
        self._plan = planned(dict(zip(self._names, addresses, strict=True)))
        self._plan.run(stream)
        return self._returned(arrays, arguments)

    def __call__(self, addresses: list[int], arguments: Mapping[str, object], stream: object) -> Any:
        """The same on other arrays; None where they may not lie where they do."""
        if stream is None and not self._kept:  # `_made`, written out: it is what most calls are
            address = self._address
            arrays = [make() for make in self._makers]
            for array in arrays:
                addresses.append(address(array))
        else:
            arrays, more = self._made(stream)
            addresses += more
        plan: Any = self._plan
        if not plan.move(addresses):
            return None
        plan.run(stream)
        return self._returned(arrays, arguments)

    def _made(self, stream: object) -> tuple[list[Any], list[int]]:
        handle = self._source() if stream is None else handle_of(stream)
        with nullcontext() if stream is None or handle is None else self._on(handle):
            arrays = [make() for make in self._makers]
        arrays += [give(handle) for give in self._kept]
        return arrays, [self._address(array) for array in arrays]

    def _returned(self, arrays: list[Any], arguments: Mapping[str, object]) -> Any:
        if self._simple:
            return self._result._make(arrays[: len(self._result._fields)])
        named = dict(zip(self._names, arrays, strict=True))
        return self._result._make([named[name] if name in named else arguments[name] for name in self._result._fields])


@cache
def result_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Result", names)

"""The arguments of one call: read from any framework, and the shortcut for calling again with other addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zoo.arrays import Kind, kind_of
from zoo.errors import ArgumentError, StreamError
from zoo.manifest import Kernel
from zoo.plan import Plan
from zoo.resolve import HOST, Array


@dataclass(frozen=True)
class Call:
    """`values` is what `resolve` takes; `owners` are the (kind, signature) of the arrays, in the caller's order."""

    values: dict[str, Array | int | float | str | None]
    owners: dict[str, tuple[Kind, tuple]]

    @classmethod
    def read(cls, arguments: Mapping[str, object]) -> Call:
        values, owners = {}, {}
        for name, value in arguments.items():
            kind = kind_of(value)
            if kind is None:
                values[name] = value
            else:
                address, signature = kind.read(value)
                values[name] = kind.describe(address, signature)
                owners[name] = (kind, signature)
        return cls(values, owners)

    @property
    def device(self) -> int:
        """The device of the first array that has one; resolving finds any disagreement."""
        for value in self.values.values():
            if isinstance(value, Array) and value.device != HOST:
                return value.device
        return 0

    def check_kinds(self, kernel: Kernel):
        """Arrays where the kernel takes arrays, and nothing else there."""
        for name, value in self.values.items():
            argument = kernel.arguments.get(name)
            if argument is None or value is None:
                continue
            if (argument.kind == "array") != isinstance(value, Array):
                got = self.owners and name in self.owners and "an array" or type(value).__name__
                wanted = "an array in device memory" if argument.kind == "array" else f"a number ({argument.dtypes[0]})"
                raise ArgumentError(f"{kernel.name}: {name}: expected {wanted}, got {got}")

    def stream(self) -> int | None:
        """The stream that the owners of the arrays work on now; None if none of them has one."""
        return agreed_stream(list(self.owners.items()))


def agreed_stream(owners: list[tuple[str, tuple[Kind, tuple]]]) -> int | None:
    fallback, found = None, None
    for name, (kind, signature) in owners:
        handle = kind.current_stream(signature)
        if handle is None:
            continue
        if not kind.binding:
            fallback = handle
        elif found is None:
            found = (name, handle)
        elif found[1] != handle:
            raise StreamError(
                f"the owners of {found[0]} and {name} work on different streams ({found[1]:#x} and {handle:#x}); "
                "say which with stream="
            )
    return found[1] if found else fallback


class Repeated:
    """A call seen before: its plan, moved to the addresses of the next one. Belongs to one thread."""

    def __init__(self, plan: Plan, call: Call, kernel: Kernel):
        launch = plan.launch
        order = {name: index for index, name in enumerate(call.owners)}
        self.plan = plan
        self.addresses = [call.values[name].address for name in order]
        self._cells = tuple((offset // 8, order[name]) for offset, name in launch.pointers)
        self._maps = tuple((offset, order[name]) for offset, name, _ in launch.tensor_maps)
        self._alignments = tuple((order[name], kernel.arguments[name].alignment - 1) for name in launch.spans)
        spans = list(launch.spans.items())
        self._apart = tuple(
            (order[name], span.bytes, order[other], other_span.bytes)
            for index, (name, span) in enumerate(spans)
            for other, other_span in spans[:index]
            if kernel.arguments[name].written or kernel.arguments[other].written
        )
        owners = {(kind, kind.current_stream(signature) is None): (name, (kind, signature)) for name, (kind, signature) in call.owners.items()}
        self._owners = [owner for (_, streamless), owner in owners.items() if not streamless]

    def stream(self) -> int | None:
        if len(self._owners) == 1:
            kind, signature = self._owners[0][1]
            return kind.current_stream(signature)
        return agreed_stream(self._owners)

    def fits(self, addresses: list[int]) -> bool:
        """Whether nothing that was checked of the first call can differ at these addresses."""
        for index, mask in self._alignments:
            if addresses[index] & mask or not addresses[index]:
                return False
        for one, one_bytes, other, other_bytes in self._apart:
            if addresses[one] < addresses[other] + other_bytes and addresses[other] < addresses[one] + one_bytes:
                return False
        return True

    def move(self, addresses: list[int]):
        self.plan.point(self._cells, self._maps, addresses)
        self.addresses = addresses

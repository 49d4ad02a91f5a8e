"""The arguments of one call: read from any framework, and the shortcut for calling again with other addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from zoo.contract.manifest import Kernel
from zoo.contract.resolve import HOST, Array, Launch
from zoo.errors import ArgumentError, StreamError
from zoo.runtime.arrays import TORCH, Kind, kind_of
from zoo.runtime.driver import Device
from zoo.runtime.plan import Plan


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
                values[name] = value.item() if type(value).__module__ == "numpy" else value  # numpy's numbers become Python's
            else:
                address, signature = kind.read(value)
                values[name] = kind.describe(address, signature)
                owners[name] = (kind, signature)
        return cls(values, owners)

    @property
    def form(self) -> tuple:
        """All that calls of one form have in common: names, numbers, options, signatures; hashable where those are."""
        return tuple((name, *self.owners.get(name, (type(value), _exactly(value)))) for name, value in self.values.items())

    @property
    def device(self) -> int:
        """The device of the first array that has one; resolving finds any disagreement."""
        for value in self.values.values():
            if isinstance(value, Array) and value.device != HOST:
                return value.device
        return 0

    @property
    def emulated(self) -> bool:
        """Whether that device is an emulated one, which stands for itself; the driver's have a number."""
        return not isinstance(self.device, int)

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
        return stream_source(self.owners)()


def _exactly(value: object) -> object:
    """A number or option such that equal means the same bits: -0.0 is not 0.0, and a NaN is itself."""
    return value.hex() if isinstance(value, float) else value


def stream_source(owners: dict[str, tuple[Kind, tuple]]) -> Callable[[], int | None]:
    """What gives the stream of a call with these arrays, each time anew."""
    binding, others = {}, {}
    for name, (kind, signature) in owners.items():
        source = kind.stream_source(signature)
        if source is not None:
            (binding if kind.binding else others).setdefault(source, name)
    if len(binding) <= 1:
        return next(iter(binding or others), _nothing)

    def agreed() -> int:
        (first, name), *rest = binding.items()
        handle = first()
        for source, other in rest:
            if source() != handle:
                raise StreamError(
                    f"the owners of {name} and {other} work on different streams ({handle:#x} and {source():#x}); say which with stream="
                )
        return handle

    return agreed


def _nothing() -> None:
    return None


class Repeated:
    """A call seen before, ready to be made again with arrays of the same form elsewhere. Belongs to one thread."""

    def __init__(
        self, kernel: Kernel, call: Call, arguments: Mapping[str, object], variant: str | None, launch: Launch, device: Device, function
    ):
        self.stream = stream_source(call.owners)
        self._variant = variant
        self._count = len(arguments)
        tensors = [name for name, (kind, _) in call.owners.items() if kind is TORCH]
        arrays = [name for name in call.owners if name not in tensors]
        self._tensors = [(name, type(arguments[name]), *call.owners[name][1]) for name in tensors]
        self._arrays = [(name, type(arguments[name]), *call.owners[name]) for name in arrays]
        self._values = [(name, type(value), _exactly(value)) for name, value in arguments.items() if name not in call.owners]
        order = {name: index for index, name in enumerate((*tensors, *arrays))}
        self.order = tuple(order)
        self.plan = Plan(launch, device, function, dict.fromkeys(order))
        self._addresses: list[int] | None = [call.values[name].address for name in order]
        self._maps = tuple((offset, order[name]) for offset, name, _ in launch.tensor_maps)
        alignments = {name: kernel.arguments[name].alignment for name in launch.spans}
        for _, name, tensor_map in launch.tensor_maps:
            alignments[name] = max(alignments.get(name, 1), tensor_map.alignment)  # empty arrays have no span
        self._aligned = tuple((order[name], alignment - 1) for name, alignment in alignments.items() if alignment > 1)
        self._all_have_elements = len(launch.spans) == len(order)
        spans = list(launch.spans.items())
        self._apart = tuple(
            (order[name], order[other], -span.bytes, other_span.bytes)
            for index, (name, span) in enumerate(spans)
            for other, other_span in spans[:index]
            if kernel.arguments[name].written or kernel.arguments[other].written
        )

    def match(self, variant: str | None, arguments: Mapping[str, object]) -> list[int] | None:
        """The arrays' addresses in `order`, if the call is of this form."""
        if len(arguments) != self._count or variant != self._variant:
            return None
        addresses = []
        # `arrays.Kind.read` of torch, written out: calling it three times would cost a tenth of the whole launch
        for name, cls, dtype, shape, strides, device in self._tensors:
            tensor = arguments.get(name)
            if (
                type(tensor) is not cls
                or tensor.shape != shape
                or tensor.stride() != strides
                or tensor.dtype is not dtype
                or tensor.get_device() != device
            ):
                return None
            addresses.append(tensor.data_ptr())
        for name, cls, kind, form in self._arrays:
            value = arguments.get(name)
            if type(value) is not cls:
                return None
            address, found = kind.read(value)
            if found != form:
                return None
            addresses.append(address)
        for name, cls, known in self._values:
            value = arguments.get(name, self)
            if type(value) is not cls or _exactly(value) != known:
                return None
        return addresses

    def fits(self, addresses: list[int]) -> bool:
        """Whether nothing that was checked of the first call can differ at these addresses."""
        if addresses == self._addresses:
            return True
        if not self._all_have_elements or 0 in addresses:
            return False
        for index, mask in self._aligned:
            if addresses[index] & mask:
                return False
        for one, other, before, after in self._apart:
            if before < addresses[one] - addresses[other] < after:
                return False
        return True

    def launch(self, addresses: list[int], stream):
        if addresses != self._addresses:
            self._addresses = None  # neither the old nor the new ones, should the move fail half-way
            self.plan.move(addresses, self._maps)
            self._addresses = addresses
        self.plan(stream)

"""A call made from sizes alone: what every argument of a kernel is for, say, M = 8192 and K = 2048."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from zoo.benchmark import routing
from zoo.benchmark.groups import Groups, shuffled
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Argument, Form, Kernel
from zoo.contract.nearest import suggestion
from zoo.contract.resolve import Launch, resolve
from zoo.contract.shapes import lies_by_columns
from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError, ZooError

if TYPE_CHECKING:
    from zoo.runtime.driver import Device

_SOMEWHERE, _MULTIPROCESSORS = 1 << 32, 128  # an address and a device that stand for any
_MOST_NUMBERS = 1 << 27  # of offsets, or of an index: more fill the machine's memory before the loader refuses the call


@dataclass(frozen=True)
class Described:
    """An array argument, its rows one after the other; of scales that the kernel takes by columns, its columns."""

    shape: tuple[int, ...]
    dtype: str
    written: bool
    content: numpy.ndarray | None = None  # what must lie there; None: any numbers will do
    by_columns: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        return contiguous_strides(self.shape, self.by_columns)

    @property
    def bytes(self) -> int:
        size = DTYPES[self.dtype].bytes
        for extent in self.shape:
            size *= extent
        return size


# The order in which people give and read sizes: matrices of a stack, rows, columns of the result, what is summed over.
SIZES = ("E", "G", "M", "R", "N", "I", "K", "C", "T")
_MEANINGS = {
    "E": "matrices",
    "G": "groups",
    "M": "rows",
    "R": "rows of each matrix",
    "N": "columns of the result",
    "I": "gates and as many ups, so columns of the result",
    "K": "elements that a product sums along",
    "T": "rows of a, from which the index takes",
}
_BYTES = ("KB", "CODES")  # what manifests call the bytes of a row of elements
_TENSOR_SCALE = "tensor_scale"
_WITH_CONTENT = ("offsets", "index", "m_indices", "ids", "rows")  # for other inputs, any numbers will do


def takes_groups(kernel: Kernel) -> bool:
    """Whether offsets are among the inputs."""
    return "offsets" in kernel.arguments and not kernel.arguments["offsets"].written


def size_symbols(kernel: Kernel) -> tuple[str, ...]:
    """The sizes a caller gives, in elements and in the order M, N, K. `Groups` describes groups, and a tensor scale is one number."""
    order: Sequence[str] = SIZES
    if kernel.fields["op"] == "experts":
        order = ("T", "top_k", "E", "R", "N")
    elif "index" in kernel.arguments and kernel.fields["op"] == "gemm":
        order = ("T", *SIZES[:-1])  # T: the rows that are gathered
    counted, ones = _counted(kernel), _tensor_scales(kernel)
    found = dict.fromkeys(counted[one][0] if one in counted else one for one in symbols_of_arguments(kernel) if one not in ones)
    return tuple(sorted(found, key=lambda one: order.index(one) if one in order else len(order)))


def size_meanings(kernel: Kernel) -> str:
    """`M rows, N columns of the result, ...`, of a GEMM; nothing of other kernels, whose sizes have other meanings."""
    if kernel.fields["op"] != "gemm":
        return ""
    return "; ".join(f"{symbol}: {_MEANINGS[symbol]}" for symbol in size_symbols(kernel) if symbol in _MEANINGS)


def symbols_of_arguments(kernel: Kernel) -> tuple[str, ...]:
    """The sizes as the arguments name and order them, bytes of rows among them: the keys of recorded timings."""
    counted = {symbol: name for symbol, (name, _) in _counted(kernel).items() if symbol not in _BYTES}
    found: dict[str, None] = {}
    for argument in kernel.arguments.values():
        for form in argument.forms if not argument.optional else ():
            if _without_optional_arguments(form):
                found |= dict.fromkeys(counted.get(symbol, symbol) for symbol in _bare(form))
    of_groups = {symbol for form in kernel.arguments["offsets"].forms for symbol in _bare(form)} if takes_groups(kernel) else ()
    return tuple(symbol for symbol in found if symbol not in of_groups)


def sizes_of_arguments(kernel: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes, and what follows from them: bytes of rows, and one tensor scale."""
    found = dict(sizes)
    for symbol, (name, count) in _counted(kernel).items():
        if name in sizes and symbol not in sizes:
            if symbol in _BYTES and sizes[name] % count:
                raise ArgumentError(f"{kernel.name}: {name} = {sizes[name]} is odd, and a byte holds two elements")
            found[symbol] = -(-sizes[name] // count)
    return dict.fromkeys(_tensor_scales(kernel), 1) | found


def elements_in(kernel: Kernel, symbol: str) -> int:
    """How many elements a byte of a row holds, of the size that a manifest calls KB or CODES."""
    return _counted(kernel).get(symbol, ("", 1))[1]


def _counted(kernel: Kernel) -> dict[str, tuple[str, int]]:
    """An extent that people give in elements and a kernel counts in pieces or bytes: symbol -> (what people give, elements of a piece)."""
    found = {}
    for name, expression in kernel.derived:
        left, _, right = expression.text.rpartition(" else ")[2].partition(" * ")
        count, symbol = (left, right) if left.isdigit() else (right, left)
        if count.isdigit() and name in SIZES and symbol in expression.names and symbol not in SIZES:
            found[symbol] = name, int(count)
    for argument in kernel.arguments.values():
        if argument.dtypes == ("e2m1x2",):
            found |= {form.shape[-1].text: ("K", 2) for form in argument.forms if form.shape[-1].text in _BYTES}
    return found


def _pieces_by_options(kernel: Kernel, values: Mapping[str, int]) -> dict[str, int]:
    """Extents in pieces, where an option sets how many elements a piece has: symbol -> number of pieces."""
    found, derived = {}, dict(kernel.derived)
    for symbol, (name, _) in _counted(kernel).items():
        others = [one for one in derived[name].names if one != symbol] if name in derived else []
        if name in values and others and all(one.partition(".")[0] in kernel.options for one in others):
            found[symbol] = -(-values[name] // derived[name].evaluate({**values, symbol: 1}))
    return found


def _tensor_scales(kernel: Kernel) -> set[str]:
    """What counts tensor scales: one for all groups or matrices, or one for each."""
    return (
        {symbol for form in kernel.arguments[_TENSOR_SCALE].forms for symbol in _bare(form)} if _TENSOR_SCALE in kernel.arguments else set()
    )


def _without_optional_arguments(form: Form) -> bool:
    if not form.when.names or any(not name.endswith(".present") for name in form.when.names):
        return True
    return bool(form.when.evaluate(dict.fromkeys(form.when.names, 0)))


def named_sizes(kernel: Kernel, numbers: Sequence[int]) -> dict[str, int]:
    symbols = size_symbols(kernel)
    if len(numbers) != len(symbols):
        raise ArgumentError(f"{kernel.name}: a shape is {','.join(symbols)}, got {','.join(map(str, numbers[: 2 * len(SIZES)]))}")
    return dict(zip(symbols, numbers, strict=True))


def describe_arguments(
    kernel: Kernel, sizes: Mapping[str, int], settings: Mapping[str, str], groups: Groups | None = None
) -> tuple[dict[str, Described], dict[str, str | int | float]]:
    """(arrays, options and scalars). `settings` chooses by name: an option's value, a scalar, or the dtype of an argument.

    An optional argument is left out unless its dtype is chosen, but offsets, which only a group for each row replaces. Groups of rows in places
    use all of them, and are expected to.
    """
    values = sizes_of_arguments(kernel, sizes)
    dtypes: dict[str, str] = {}
    keywords: dict[str, str | int | float] = {}
    known = (*kernel.arguments, *kernel.options)
    unknown = next((name for name in settings if name not in known), None)
    if unknown is not None:
        hint = suggestion(unknown, known, f"it takes {', '.join(known)}")
        raise ArgumentError(f"{kernel.name}: nothing to set is named {shown(unknown)}; {hint}")
    for name, option in kernel.options.items():
        chosen = _one_of(kernel, name, option.values, settings.get(name, option.default))
        keywords[name] = chosen
        values |= {f"{name}.{value}": int(value == chosen) for value in option.values}
    values |= _pieces_by_options(kernel, values)
    arguments = kernel.arguments.items()
    present = {name for name, argument in arguments if argument.kind == "array" and (name in settings or not argument.optional)}
    if takes_groups(kernel) and "m_indices" not in settings:
        present.add("offsets")
    for name, argument in kernel.arguments.items():
        if argument.kind == "scalar":
            if name in settings:
                keywords[name] = number = _number(kernel, argument, settings[name])
                if isinstance(number, int):
                    values[name] = number
            elif name == "expected_rows":
                values[name] = keywords[name] = values["R"]
            elif isinstance(argument.default, int):
                values[name] = argument.default
            elif argument.default is None and not argument.optional:
                keywords[name] = 1.0  # such as eps, which changes no time
            continue
        dtype = dtypes[name] = _one_of(kernel, name, argument.dtypes, settings.get(name, argument.dtypes[0]))
        values |= {f"{name}.{other}": int(other == dtype) for other in argument.dtypes}
        values |= {f"{name}.itemsize": DTYPES[dtype].bytes, f"{name}.present": int(name in present)}
    groups = groups or Groups()
    if takes_groups(kernel):
        values |= dict.fromkeys(_bare(_form(kernel.arguments["offsets"], values)), groups.count)
    if "index" in present and "x" in kernel.arguments:
        values = dict.fromkeys(_bare(_form(kernel.arguments["x"], values)), values["M"]) | values  # as many rows as are taken
    for name, expression in kernel.derived:
        if set(expression.names) <= set(values):  # one that reads strides is the loader's alone
            values[name] = expression.evaluate(values)
    if values.get("I") != sizes.get("I", values.get("I")):
        raise ArgumentError(f"{kernel.name}: of I = {sizes['I']}, no multiple of 32, columns is I: set columns={sizes['I']}")
    arrays: dict[str, Described] = {}
    for name, argument in kernel.arguments.items():
        if name in present:
            form = _form(argument, values)
            shape = tuple(extent.evaluate(values) for extent in form.shape)
            content = None
            if not argument.written and name in _WITH_CONTENT:
                _refuse_too_many(kernel, name, max(math.prod(shape), groups.count if name == "m_indices" else 0))
            if argument.written:
                pass
            elif name == "offsets":
                content = _ends(kernel, groups, _grouped_extent(kernel, values))
            elif name == "index":
                rows = arrays["x" if "x" in arrays else "a"].shape[0]
                content = shuffled(_grouped_extent(kernel, values)) % min(max(rows, 1), _MOST_NUMBERS)  # of no rows, one that is not there
            elif name == "m_indices":
                ends = _ends(kernel, groups, values["M"])
                content = numpy.repeat(numpy.arange(groups.count, dtype=numpy.int32), numpy.diff(ends, prepend=0))
            elif name == "ids":
                content = routing.ids(shape[0], shape[1], values["E"]).astype(DTYPES[dtypes[name]].numpy)
            elif name == "rows":
                in_places = len(shape) == 1
                content = numpy.full(shape, values["R"], numpy.int32) if in_places else routing.rows(shape[0], shape[1], values["R"])
            arrays[name] = Described(shape, dtypes[name], argument.written, content, lies_by_columns(form))
    return arrays, keywords


def resolve_without_device(kernel: Kernel, arguments: Mapping[str, Any], variant: str | None = None) -> Launch:
    """The launch on some device that the kernel is shipped for. Raises what every one of them would refuse, as the first does."""
    refusals = []
    for arch in kernel.archs:
        try:
            return resolve(kernel, arguments, (int(arch[3:-2]), int(arch[-2])), _MULTIPROCESSORS, variant)
        except ZooError as error:
            refusals.append(error)
    raise refusals[0] if refusals else ArgumentError(f"{kernel.name}: has no variants")


def check_call(
    kernel: Kernel,
    sizes: Mapping[str, int],
    settings: Mapping[str, str],
    variant: str | None = None,
    groups: Groups | None = None,
    device: Device | None = None,
) -> None:
    """Raises what the loader would raise on this device, or on every device, and for sizes at which nothing would run."""
    arguments = addressed(*describe_arguments(kernel, sizes, settings, groups))
    if device is None:
        launch = resolve_without_device(kernel, arguments, variant)
    else:
        launch = resolve(kernel, arguments, device.capability, device.multiprocessors, variant)
    if launch.empty:
        raise ArgumentError(f"{kernel.name}: nothing is launched at {', '.join(f'{symbol} = {size}' for symbol, size in sizes.items())}")


def addressed(arrays: Mapping[str, Described], keywords: Mapping[str, str | int | float]) -> dict[str, Any]:
    """The arguments of a call whose arrays lie one after the other, nowhere."""
    address, arguments = _SOMEWHERE, dict[str, Any](keywords)
    for name, array in arrays.items():
        arguments[name] = Array(address, array.dtype, array.shape, array.strides)
        address += -(-array.bytes // 4096) * 4096
    return arguments


def _refuse_too_many(kernel: Kernel, name: str, count: int) -> None:
    if count > _MOST_NUMBERS:
        raise ArgumentError(f"{kernel.name}: {name} would have {count:,} numbers, at most {_MOST_NUMBERS:,} are made: give smaller sizes")


def _bare(form: Form) -> list[str]:
    """The symbols that this form binds."""
    return [extent.text for extent in form.shape if extent.names == (extent.text,)]


def _grouped_extent(kernel: Kernel, values: Mapping[str, int]) -> int:
    """How much it is that offsets cut into groups."""
    if kernel.fields.get("grouping") != "k_grouped":
        return values["M"]
    if "C" not in values:
        return values["K"]
    block = kernel.arguments["block"].default if "block" not in values else values["block"]
    assert isinstance(block, int), "a scalar of a table, of i32"
    return (values["C"] - values["G"]) * block  # columns of scales: the last of each group may be short


def _ends(kernel: Kernel, groups: Groups, extent: int) -> numpy.ndarray:
    """Groups begin at multiples of a step: those along K of a product at 16 bytes, where a tensor copy can begin."""
    most = numpy.iinfo(numpy.int32).max
    if extent > most:
        raise ArgumentError(f"{kernel.name}: groups end at {extent:,}, offsets have 32 bits: give at most {most:,}")
    return groups.offsets(extent, 16 if kernel.fields["op"] == "gemm" and kernel.fields.get("grouping") == "k_grouped" else 1)


def _form(argument: Argument, values: Mapping[str, int]) -> Form:
    return next(form for form in argument.forms if form.when.evaluate(values))


def _one_of(kernel: Kernel, name: str, allowed: Sequence[str], chosen: str) -> str:
    if chosen not in allowed:
        raise ArgumentError(f"{kernel.name}: {name} is one of {', '.join(allowed)}, not {shown(chosen)}")
    return chosen


def _number(kernel: Kernel, argument: Argument, text: str) -> int | float:
    try:
        return float(text) if argument.dtypes[0] == "f32" else int(text)
    except ValueError:
        raise ArgumentError(f"{kernel.name}: {argument.name} is a number ({argument.dtypes[0]}), not {shown(text)}") from None

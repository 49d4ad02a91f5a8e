"""From a kernel's manifest entry and described arguments to one launch: shape, parameter block, tensor maps.

Knows no driver and no framework. The steps, their order and their messages are those of docs/how_it_works.md; zoo.c follows
them too, and the tests hold the two together byte by byte and word by word.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from zoo.contract import limits
from zoo.contract.array import HOST, Array
from zoo.contract.dtypes import CARRIED_BY_BYTES, DTYPES
from zoo.contract.expressions import LARGEST, Expression
from zoo.contract.manifest import Argument, Form, Kernel, MapRecipe, Variant
from zoo.contract.placement import Placement, Span
from zoo.contract.tensor_map import TensorMap
from zoo.contract.whole_numbers import LONGEST, shown
from zoo.errors import ArchitectureError, ArgumentError, ConstraintError, ExpressionError, VariantError


@dataclass(frozen=True)
class Launch:
    kernel: str
    variant: Variant
    symbols: dict[str, int]
    grid: tuple[int, ...]  # three, as is the cluster
    cluster: tuple[int, ...]
    threads: int
    shared: int
    block: bytes  # tensor maps still zero
    pointers: tuple[tuple[int, str], ...]  # (offset in the block, argument)
    tensor_maps: tuple[tuple[int, str, TensorMap], ...]
    placement: Placement

    @property
    def empty(self) -> bool:
        """Nothing to do: nothing is enqueued."""
        return 0 in self.grid

    def logical_block(self) -> bytes:
        """The parameter block with tensor maps as their logical records: what readers compare and emulators run."""
        block = bytearray(self.block)
        for offset, _, tensor_map in self.tensor_maps:
            record = tensor_map.to_bytes()
            block[offset : offset + len(record)] = record
        return bytes(block)


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    major, minor, feature = int(arch[3:-2]), int(arch[-2]), arch[-1]
    if feature == "f":
        return major == capability[0] and minor <= capability[1]
    return (major, minor) == capability


def pick_arch(archs: Sequence[str], capability: tuple[int, int]) -> str | None:
    """The best of `archs` for a device: the exact one, else the latest of its family."""
    fitting = [arch for arch in archs if runs_on(arch, capability)]
    return max(fitting, key=lambda arch: (arch[-1] == "a", arch), default=None)


def resolve(
    kernel: Kernel,
    arguments: Mapping[str, Array | int | float | str | None],
    capability: tuple[int, int],
    multiprocessors: int,
    variant: str | None = None,
    limit: int | None = None,
) -> Launch:
    """The launch of a call. `arguments` holds arrays, scalars and options by keyword; None is an absent argument.

    A `limit` is less than the device's multiprocessors. Rules that ask for multiprocessors then read the limit, and a grid that depends
    on them has at most one CTA for each: two would be spread over twice as many multiprocessors.
    """
    try:
        return _Resolution(kernel, arguments, capability, multiprocessors, limit).launch(variant)
    except ExpressionError as error:
        raise ConstraintError(f"{kernel.name}: {error}") from None


class _Resolution:
    """The state of one resolution: `values` is what expressions read."""

    def __init__(self, kernel: Kernel, arguments: Mapping[str, Any], capability: tuple[int, int], multiprocessors: int, limit: int | None):
        self.kernel = kernel
        self.capability = capability
        self.limit = limit
        self.values: dict[str, int] = {"sms": multiprocessors if limit is None else limit}
        self.arrays: dict[str, Array] = {}
        self.scalars: dict[str, float] = {}  # whole numbers are among `values`
        self.options: dict[str, str] = {}
        self.dtypes: dict[str, str] = {}
        self.strides: dict[str, tuple[int, ...]] = {}  # with those of short dimensions made contiguous
        self.stride_symbols: set[str] = set()
        self._sort(arguments)

    def launch(self, pinned: str | None) -> Launch:
        self._flags_and_forms()
        for name, array in self.arrays.items():
            self._bind(name, array)
        self._absent_symbols()
        self._one_device()
        for name, expression in self.kernel.derived:
            self.values[name] = expression.evaluate(self.values)
        of_strides = [one for one in self.kernel.constraints if self.stride_symbols.intersection(one[0].names)]
        self._constraints([one for one in self.kernel.constraints if one not in of_strides])
        for name, array in self.arrays.items():
            self._same(name, "", self.forms[name].shape, array.shape, array.shape)
        self._constraints(of_strides)
        self.placement = self._placement()
        for name, array in self.arrays.items():
            self._fit(name, array)
        self._overlaps()
        variant = self._variant(pinned)
        return self._launch(variant)

    def _fail(self, reason: str, kind: type[Exception] = ArgumentError) -> NoReturn:
        raise kind(f"{self.kernel.name}: {reason}")

    # 1. names
    def _sort(self, given: Mapping[str, Any]) -> None:
        kernel = self.kernel
        for name in given:
            if name not in kernel.arguments and name not in kernel.options:
                takes = ", ".join((*kernel.arguments, *kernel.options))
                self._fail(f"no argument is named {shown(name)}; it takes {takes}")
        for name, argument in kernel.arguments.items():
            value: Any = given.get(name)
            if value is None:
                value = argument.default
            if value is None and not argument.optional:
                self._fail(f"{name}: missing; {argument.help}")
            if argument.kind == "scalar":
                self._scalar(argument, value)
            elif value is not None:
                self.arrays[name] = value
        for name, option in kernel.options.items():
            value = given.get(name)
            value = option.default if value is None else value
            if not issubclass(type(value), str) or value not in option.values:
                self._fail(f"{name}: expected {_either(option.values)}, got '{_text(value)}'")
            self.options[name] = value

    def _scalar(self, argument: Argument, value: Any) -> None:
        dtype = argument.dtypes[0]
        if dtype == "f32":
            try:
                if isinstance(value, (str, bool)):
                    raise TypeError
                struct.pack("<f", value)
            except (TypeError, OverflowError, struct.error):
                self._fail(f"{argument.name}: expected a number that fits 32 bits, got {_text(value)}")
            self.scalars[argument.name] = float(value)
            return
        bits = 8 * DTYPES[dtype].bytes
        if isinstance(value, bool) or not isinstance(value, int) or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            self._fail(f"{argument.name}: expected a whole number of {bits} bits, got {_text(value)}")
        self.values[argument.name] = value

    # 2. arrays one by one
    def _flags_and_forms(self) -> None:
        for name, option in self.kernel.options.items():
            for value in option.values:
                self.values[f"{name}.{value}"] = int(self.options[name] == value)
        for name, argument in self.kernel.arguments.items():
            if argument.kind == "scalar":
                continue
            array = self.arrays.get(name)
            dtype = self.dtypes[name] = self._dtype(argument, array)
            self.values[f"{name}.present"] = int(array is not None)
            self.values[f"{name}.itemsize"] = DTYPES[dtype].bytes
            for other in argument.dtypes:
                self.values[f"{name}.{other}"] = int(other == dtype)
        self.forms: dict[str, Form] = {
            name: next(form for form in self.kernel.arguments[name].forms if form.when.evaluate(self.values)) for name in self.arrays
        }

    def _dtype(self, argument: Argument, array: Array | None) -> str:
        if array is None:
            return argument.dtypes[0]
        if array.device == HOST:
            self._fail(f"{argument.name}: lies in host memory; copy it to the device first")
        if array.readonly and argument.written:
            self._fail(f"{argument.name}: read-only, and the kernel writes it; pass memory of your own")
        if array.dtype in argument.dtypes:
            return array.dtype
        carried = [dtype for dtype in argument.dtypes if dtype in CARRIED_BY_BYTES]
        if array.dtype == "u8" and len(carried) == 1:
            return carried[0]
        if array.dtype in CARRIED_BY_BYTES and "u8" in argument.dtypes:
            return "u8"
        hint = "; bytes could be either, so pass an array that says which" if array.dtype == "u8" and carried else ""
        self._fail(f"{argument.name}: expected {_either(argument.dtypes)}, got {array.dtype}{hint}")

    def _bind(self, name: str, array: Array) -> None:
        form = self.forms[name]
        if len(array.shape) != len(form.shape):
            wanted, hint = ", ".join(expression.text for expression in form.shape), self.kernel.arguments[name].in_short
            self._fail(f"{name}: expected {len(form.shape)} dimensions ({wanted}), got {len(array.shape)}{hint}")
        if any(extent < 0 for extent in array.shape):
            self._fail(f"{name}: a negative extent in {_tuple(array.shape)}")
        if any(stride < 0 for stride in array.strides):
            self._fail(f"{name}: a negative stride in {_tuple(array.strides)}")
        empty = 0 in array.shape
        if array.address == 0 and not empty:
            self._fail(f"{name}: a null address")
        strides, contiguous, farthest, fits = [], 1, 0, True
        for extent, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
            stride = contiguous if empty or extent <= 1 else stride
            strides.append(stride)
            contiguous = stride * max(extent, 1)
            farthest += (extent - 1) * stride
            fits &= max(extent, stride, contiguous) <= LARGEST
        self.strides[name] = tuple(reversed(strides))
        end = array.address + (0 if empty else (farthest + 1) * DTYPES[self.dtypes[name]].bytes)
        if not fits or end > LARGEST:  # from here on, no sum of extents and strides overflows in C
            self._fail(f"{name}: an extent of {_tuple(array.shape)} with such strides does not fit 64 bits")
        self._bind_symbols(form.shape, array.shape)
        if form.strides is not None:
            self.stride_symbols |= self._bind_symbols(form.strides, self.strides[name])

    def _bind_symbols(self, expressions: Sequence[Expression], got: Sequence[int]) -> set[str]:
        """Gives bare names their first value. Returns those that had none."""
        found = set()
        for expression, value in zip(expressions, got, strict=True):
            if expression.names == (expression.text,) and expression.text not in self.values:
                self.values[expression.text] = value
                found.add(expression.text)
        return found

    # 3. one device
    def _one_device(self) -> None:
        first = next(iter(self.arrays), "")
        for name, array in self.arrays.items():
            if array.device != self.arrays[first].device:
                self._fail(f"{name}: lies on device {array.device}, {first} on device {self.arrays[first].device}")

    def _absent_symbols(self) -> None:
        """A symbol that only absent optional arguments would bind is 0."""
        for name, argument in self.kernel.arguments.items():
            if argument.kind == "array" and name not in self.arrays:
                for form in argument.forms:
                    for expression in (*form.shape, *(form.strides or ())):
                        if expression.names == (expression.text,):
                            self.values.setdefault(expression.text, 0)

    # 4. constraints; 5. shapes; 6. constraints that name strides: an array of a wrong shape is not to be told of its strides
    def _constraints(self, constraints: Sequence[tuple[Expression, str]]) -> None:
        for expression, words in constraints:
            if not expression.evaluate(self.values):
                solved = ", ".join(f"{name} = {self.values[name]}" for name in expression.names if name in self.values)
                self._fail(f"{words} ({expression.text}, with {solved})", ConstraintError)

    # 7. strides and alignment
    def _fit(self, name: str, array: Array) -> None:
        form, argument = self.forms[name], self.kernel.arguments[name]
        if 0 in array.shape:
            return
        if form.strides is not None:
            self._same(name, "strides ", form.strides, self.strides[name], array.shape)
        else:
            contiguous = 1
            for extent, stride in zip(reversed(array.shape), reversed(self.strides[name]), strict=True):
                if stride != contiguous:
                    self._fail(f"{name}: expected a contiguous array, got strides {_tuple(self.strides[name])}")
                contiguous *= extent
        if self.placement.misaligned(name, array.address):
            self._fail(f"{name}: the address {array.address:#x} must be a multiple of {argument.alignment} bytes")

    def _same(self, name: str, what: str, expressions: Sequence[Expression], got: Sequence[int], shape: Sequence[int]) -> None:
        expected = tuple(expression.evaluate(self.values) for expression in expressions)
        free = what != ""  # a stride over at most one element is free
        for extent, wanted, found in zip(shape, expected, got, strict=True):
            if wanted != found and not (free and extent <= 1):
                texts = ", ".join(expression.text for expression in expressions)
                hint = "" if what else self.kernel.arguments[name].in_short
                self._fail(f"{name}: expected {what}{_tuple(expected)} = ({texts}), got {_tuple(got)}{hint}")

    # 8. overlaps
    def _overlaps(self) -> None:
        broken = self.placement.overlap({name: array.address for name, array in self.arrays.items()})
        if broken is not None:
            name, other, written = broken
            read = other if written == name else name
            whole = (
                f"; {read} may be {written} itself, with its dtype, shape and strides" if (read, written) in self.kernel.in_place else ""
            )
            self._fail(f"{name}: overlaps {other}, and the kernel writes {written}{whole}")

    def _placement(self) -> Placement:
        """The rules for addresses that follow from arguments alone; those of tensor maps come with the variant."""
        arguments = self.kernel.arguments
        spans = {name: self._span(name, array) for name, array in self.arrays.items() if 0 not in array.shape}
        names = list(spans)
        pairs = ((name, other) for index, name in enumerate(names) for other in names[:index])
        written = ((pair, [name for name in pair if arguments[name].written]) for pair in pairs)
        apart = tuple((name, other, those[0]) for (name, other), those in written if those)
        in_place = self.kernel.in_place
        may_be_one = frozenset(
            (name, other) for name, other, _ in apart if {(name, other), (other, name)} & in_place and self._are_alike(name, other)
        )
        return Placement(spans, {name: arguments[name].alignment for name in spans}, apart, may_be_one)

    def _are_alike(self, name: str, other: str) -> bool:
        """Whether two arrays differ in nothing but the address."""
        of_both = [(self.dtypes[one], self.arrays[one].shape, self.strides[one]) for one in (name, other)]
        return of_both[0] == of_both[1]

    def _span(self, name: str, array: Array) -> Span:
        itemsize = DTYPES[self.dtypes[name]].bytes
        steps = [(extent - 1) * stride for extent, stride in zip(array.shape, self.strides[name], strict=True)]
        rows, pitch = (array.shape[0], self.strides[name][0]) if len(steps) > 1 else (1, 0)
        return Span((sum(steps) + 1) * itemsize, rows, pitch * itemsize, (sum(steps[1:]) + 1) * itemsize)

    # 9. the variant
    def _variant(self, pinned: str | None) -> Variant:
        kernel = self.kernel
        arch = pick_arch(kernel.archs, self.capability)
        if arch is None:
            major, minor = self.capability
            shipped = ", ".join(kernel.archs)
            reason = f"no cubin for compute capability {major}.{minor}; the zoo ships {shipped}"
            self._fail(reason, ArchitectureError)
        chosen = {name: self.dtypes[name] for name in self.arrays if len(kernel.arguments[name].dtypes) > 1}
        best: Variant | None = None
        fitting: Variant | None = None
        best_cost = 0
        for variant in kernel.variants:
            if variant.arch != arch or (pinned is not None and variant.name != pinned):
                continue
            if any(variant.dtypes.get(name, dtype) != dtype for name, dtype in chosen.items()) or any(
                self.options[name] != value for name, value in variant.options.items()
            ):
                continue
            fitting = variant
            values = {**self.values, **variant.symbols}
            if variant.when.evaluate(values):
                try:
                    cost = variant.cost.evaluate(values)
                except ExpressionError as error:  # shipped numbers are too small for that
                    raise ExpressionError(f"{error}{'; run `zoo tune` again, or unset ZOO_COSTS' if variant.numbers else ''}") from None
                if best is None or cost < best_cost:
                    best, best_cost = variant, cost
        if best is not None:
            return best
        if pinned is not None and not any(variant.name == pinned and variant.arch == arch for variant in kernel.variants):
            self._fail(f"variant '{pinned}' does not exist for {arch}", VariantError)
        refuses = f"no variant for {arch} takes" if pinned is None else f"variant '{pinned}' for {arch} does not take"
        if fitting is None:
            settings = ", ".join(f"{name} = {value}" for name, value in {**chosen, **self.options}.items())
            self._fail(f"{refuses} {settings}", VariantError)
        sizes = ", ".join(f"{name} = {value}" for name, value in self.values.items() if "." not in name)
        wanted = "" if pinned is None else f"; it takes calls with {fitting.when.text}"
        self._fail(f"{refuses} these sizes: {sizes}{wanted}", VariantError)

    # 10. the launch
    def _launch(self, variant: Variant) -> Launch:
        rule, values = variant.launch, {**self.values, **variant.symbols}
        grid = tuple(expression.evaluate(values) for expression in rule.grid)
        for axis, extent, limit in zip("xyz", grid, limits.GRID, strict=True):
            if not 0 <= extent <= limit:
                self._fail(f"the grid's {axis} would be {extent}, outside 0 to {limit}", ConstraintError)
        cluster = tuple(expression.evaluate(values) for expression in rule.cluster)
        if not all(1 <= extent <= limits.CLUSTER for extent in cluster):
            self._fail(f"cannot start clusters of {_tuple(cluster)}", ConstraintError)
        if self.limit is not None and "sms" in rule.grid[0].names:
            grid = (min(grid[0], self.limit - self.limit % cluster[0]), *grid[1:])
        block = bytearray(rule.parameter_bytes)
        pointers: list[tuple[int, str]] = []
        tensor_maps: list[tuple[int, str, TensorMap]] = []
        launch_is_empty = 0 in grid
        for parameter in rule.parameters:
            name = parameter.argument or ""
            if parameter.kind == "pointer":
                array = self.arrays.get(name)
                struct.pack_into("<Q", block, parameter.offset, array.address if array else 0)
                if array:
                    pointers.append((parameter.offset, name))
            elif parameter.kind == "f32":
                struct.pack_into("<f", block, parameter.offset, self.scalars[name])
            elif parameter.recipe is not None:
                if name in self.arrays and not launch_is_empty:
                    tensor_maps.append((parameter.offset, name, self._tensor_map(name, parameter.recipe, values)))
            elif parameter.value is not None:
                value = parameter.value.evaluate(values)
                bits = 8 * parameter.size
                if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                    self._fail(f"{parameter.value.text} = {value} does not fit {bits} bits", ConstraintError)
                block[parameter.offset : parameter.offset + parameter.size] = value.to_bytes(parameter.size, "little", signed=True)
        alignments = dict(self.placement.alignments)
        for _, name, tensor_map in tensor_maps:
            alignments[name] = math.lcm(alignments.get(name, 1), tensor_map.alignment)
        return Launch(
            kernel=self.kernel.name,
            variant=variant,
            symbols=values,
            grid=grid,
            cluster=cluster,
            threads=variant.threads,
            shared=limits.SHARED - variant.static_shared if rule.alone.evaluate(values) else variant.shared,
            block=bytes(block),
            pointers=tuple(pointers),
            tensor_maps=tuple(tensor_maps),
            placement=replace(self.placement, alignments=alignments),
        )

    def _tensor_map(self, name: str, recipe: MapRecipe, values: dict[str, int]) -> TensorMap:
        def all_of(expressions: Sequence[Expression]) -> tuple[int, ...]:
            return tuple(expression.evaluate(values) for expression in expressions)

        tensor_map = TensorMap(
            dtype=recipe.dtype,
            address=self.arrays[name].address,
            dims=all_of(recipe.dims),
            strides=all_of(recipe.strides),
            box=all_of(recipe.box),
            element_strides=all_of(recipe.element_strides),
            swizzle=recipe.swizzle,
            l2_promotion=recipe.l2_promotion,
            fill=recipe.fill,
        )
        reason = tensor_map.refusal()
        if reason:
            self._fail(f"{name}: tensor map: {reason}", ConstraintError)
        return tensor_map


def _tuple(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _text(value: object) -> str:
    """What a caller gave; what has no text (a number of thousands of digits) is called by its type."""
    try:
        text = str(value)
    except Exception:
        return f"a {type(value).__name__} without a text"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _either(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"

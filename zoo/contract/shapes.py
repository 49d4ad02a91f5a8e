"""What a call makes: of each array that a kernel writes or works in, and that the caller does not bring, its dtype, shape and strides.

Knows no driver and no framework. Extents may be symbolic, as torch's and JAX's are while they trace. A leading dimension that an array
lacks is one of extent 1, and a matrix with contiguous rows may come as its transposed view: `forgiven` puts both in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from zoo.contract.array import Array
from zoo.contract.dtypes import CARRIED_BY_BYTES, DTYPES
from zoo.contract.expressions import LARGEST, Expression
from zoo.contract.manifest import Argument, Form, Kernel
from zoo.contract.nearest import afterthought
from zoo.contract.whole_numbers import shown, whole
from zoo.errors import ArgumentError

_ROW = 16  # bytes that rows start at multiples of, where a kernel asks for any such thing: what copy engines and products read


class Made(NamedTuple):
    """An array to be made. Shape and strides are in elements, as the manifest has them; `returned` is how a caller gets it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    access: str  # write, read_write or workspace
    squeezed: bool = False  # the input that says how many of the leading dimension there are has none

    def returned(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape and strides of the view that a caller gets."""
        return (self.shape[1:], self.strides[1:]) if self.squeezed else (self.shape, self.strides)


class Settled(NamedTuple):
    """A call with its arrays in order and what it lacks."""

    arrays: dict[str, Array]  # those that are there, as the manifest names their dimensions
    made: dict[str, Made]
    others: dict[str, Any]  # numbers and options
    by_columns: frozenset[str] = frozenset()  # arrays whose columns the kernel wants contiguous: mn_major scales


def settle(kernel: Kernel, given: Mapping[str, Any]) -> Settled:
    """`given` holds Array records, numbers and options by keyword; of an array that the kernel writes it may hold a dtype (`d="f32"`: make it
    of that) or True (make it, though it is optional), and by its symbol a size that no input tells (`M=300`)."""
    call = _Call(kernel, given)
    call.bind()
    made = {name: call.made(name) for name in call.wanted}
    return Settled(call.arrays, made, call.others, frozenset(name for name, form in call.forms.items() if lies_by_columns(form)))


def made(kernel: Kernel, given: Mapping[str, Any]) -> dict[str, Made]:
    """The arrays that a call lacks: outputs, and all workspaces."""
    return settle(kernel, given).made


def forgiven(kernel: Kernel, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same call with each array in the one orientation and number of dimensions that it can be meant in. Whatever is wrong with the call
    stays as it is, for resolving to say."""
    if not any(
        type(value) is Array and name in kernel.arguments and _unusual(kernel.arguments[name], value) for name, value in given.items()
    ):
        return given
    try:
        call = _Call(kernel, given)
        call.bind()
    except Exception:  # what stands for a number here may be anything: resolving looks at it
        return given
    return {**given, **call.arrays}


def _unusual(argument: Argument, array: Array) -> bool:
    return any(
        len(form.shape) != len(array.shape) or (len(form.shape) == 2 and _by_rows(form) and array.strides[1] != 1)
        for form in argument.forms
    )


def _by_rows(form: Form) -> bool:
    """Whether the rows of a matrix are contiguous, some distance apart."""
    return form.strides is not None and form.strides[-1].text == "1"


def lies_by_columns(form: Form) -> bool:
    """Whether the columns of a matrix are contiguous. Its strides alone tell it from one of contiguous rows."""
    return form.strides is not None and len(form.strides) > 1 and form.strides[-2].text == "1"


def _tells_a_layout(form: Form) -> bool:
    """Whether a matrix with one more dimension has another layout: an axis of 2 for gates and ups, a last axis of 64 for columns in fragment order.
    A matrix of plain rows, which has a dimension less, is not taken for one that lacks its leading dimension."""
    return any(extent.text == "2" for extent in form.shape) or form.shape[-1].text == "64"


def accumulates(kernel: Kernel, options: Mapping[str, Any]) -> bool:
    """Whether a read_write array is read: it is where the option `accumulate` is "yes", and written only where it is "no"."""
    return "accumulate" not in kernel.options or options.get("accumulate", kernel.options["accumulate"].default) == "yes"


def sizes(kernel: Kernel) -> tuple[str, ...]:
    """The symbols that a caller may say in numbers: those of extents of what the kernel writes that no input tells for sure, as one that may
    be left out does not."""
    required = (argument for argument in kernel.arguments.values() if argument.access == "read" and not argument.optional)
    inputs = {one.text for argument in required for one in _extents(argument) if _is_symbol(one)}
    known = inputs | {name for name, _ in kernel.derived} | {name for name, one in kernel.arguments.items() if one.kind == "scalar"}
    written = (one for argument in kernel.arguments.values() if argument.written for one in _extents(argument))
    return tuple(dict.fromkeys(name for one in written for name in one.names if "." not in name and name not in known))


def _extents(argument: Argument) -> list[Expression]:
    return [expression for form in argument.forms for expression in form.shape]


def _is_symbol(expression: Expression) -> bool:
    return expression.names == (expression.text,)


def _of_two_codes(argument: Argument, expression: Expression) -> str | None:
    """The symbol whose 4-bit codes, two a byte, an extent counts: it is even unless the caller says another."""
    (symbol, *more) = expression.names or ("",)
    return symbol if argument.dtypes == ("e2m1x2",) and not more and expression.text == f"ceil_div({symbol}, 2)" else None


class _Values(dict[str, Any]):
    """The symbols of a call; derived ones are worked out where something needs them, since most decide no shape."""

    def __init__(self, kernel: Kernel):
        self.derived = dict(kernel.derived)

    def __missing__(self, name: str) -> Any:
        self[name] = self.derived[name].evaluate(self)
        return self[name]


class _Call:
    def __init__(self, kernel: Kernel, given: Mapping[str, Any]):
        self.kernel = kernel
        self.values = _Values(kernel)
        self.arrays: dict[str, Array] = {}
        self.others: dict[str, Any] = {}
        self.wanted: dict[str, str] = {}  # what is to be made, and of which dtype
        self.squeezed: set[str] = set()  # symbols of leading dimensions that the array that says them lacks
        known = sizes(kernel)
        for name, value in given.items():
            if name not in kernel.arguments and name not in kernel.options:
                if name not in known:
                    self._refuse_unknown(name, known)
                self.values[name] = _whole(f"{kernel.name}: {name}", value, 0, LARGEST)
        self._options(given)
        self._arguments(given)
        self.forms = {
            name: next(form for form in kernel.arguments[name].forms if form.when.evaluate(self.values))
            for name in (*self.arrays, *self.wanted)
        }

    def _refuse_unknown(self, name: str, sizes: tuple[str, ...]) -> None:
        known = (*self.kernel.arguments, *self.kernel.options, *sizes)
        raise ArgumentError(
            f"{self.kernel.name}: no argument is named {shown(name)}; it takes {', '.join(known)}{afterthought(name, known)}"
        )

    def _options(self, given: Mapping[str, Any]) -> None:
        for name, option in self.kernel.options.items():
            value = given.get(name)
            if value is None:
                value = option.default
            else:
                self.others[name] = value
            if not issubclass(type(value), str) or value not in option.values:
                raise ArgumentError(f"{self.kernel.name}: {name}: expected {_either(option.values)}, got {shown(value)}")
            for one in option.values:
                self.values[f"{name}.{one}"] = int(value == one)

    def _arguments(self, given: Mapping[str, Any]) -> None:
        for name, argument in self.kernel.arguments.items():
            value = given.get(name)
            if argument.kind == "scalar":
                self._scalar(argument, value)
                continue
            dtype = argument.dtypes[0]
            if type(value) is Array:
                self.arrays[name] = value
                dtype = _carried(argument, value.dtype)
            elif self._makes(argument, value):
                dtype = self.wanted[name] = self._chosen(argument, value)
            self.values[f"{name}.present"] = int(name in self.arrays or name in self.wanted)
            self.values[f"{name}.itemsize"] = DTYPES[dtype].bytes
            for other in argument.dtypes:
                self.values[f"{name}.{other}"] = int(other == dtype)

    def _scalar(self, argument: Argument, value: Any) -> None:
        if type(value) is Array:
            raise ArgumentError(f"{self.kernel.name}: {argument.name}: expected a number ({argument.dtypes[0]}), got an array")
        if value is not None:
            if argument.dtypes[0] != "f32":
                half = 2 ** (8 * DTYPES[argument.dtypes[0]].bytes - 1)
                value = _whole(f"{self.kernel.name}: {argument.name}", value, -half, half - 1)
            self.others[argument.name] = value
        elif argument.default is None:
            raise ArgumentError(f"{self.kernel.name}: {argument.name}: missing; {argument.help}")
        self.values[argument.name] = argument.default if value is None else value

    def _makes(self, argument: Argument, value: Any) -> bool:
        name, kernel = argument.name, self.kernel
        if not argument.written:
            if value is not None:
                raise ArgumentError(f"{kernel.name}: {name}: expected an array, got {shown(value)}")
            if not argument.optional:
                raise ArgumentError(f"{kernel.name}: {name}: missing; {argument.help}")
            return False
        if argument.access == "read_write" and accumulates(kernel, self.others):
            raise ArgumentError(f"{kernel.name}: {name}: missing; the kernel adds to what is there, so it must be given")
        if value is None:
            return argument.access == "workspace" or not argument.optional
        return value is not False or (argument.access == "workspace" and not argument.optional)

    def _chosen(self, argument: Argument, value: Any) -> str:
        if value is None or value is True or value is False:
            return argument.dtypes[0]
        if value not in argument.dtypes:
            takes = f"an array, or one of its dtypes: {_either(argument.dtypes)}"
            raise ArgumentError(f"{self.kernel.name}: {argument.name}: expected {takes}; got {shown(value)}")
        return str(value)

    def bind(self) -> None:
        """Symbols by the arrays that are there, in the manifest's order; each array in the order of dimensions that fits. One that may lie
        transposed tells no symbol before all others have."""
        for name, array in sorted(self.arrays.items(), key=lambda one: _rows_apart(one[1])):
            form = self.forms[name]
            if len(array.shape) == len(form.shape) - 1 and not _tells_a_layout(form) and self._may_be_one(form.shape[0]):
                leading = form.shape[0]
                if _is_symbol(leading) and leading.text not in self.values:
                    self.squeezed.add(leading.text)
                array = self.arrays[name] = replace(array, shape=(1, *array.shape), strides=(0, *array.strides))
            if len(array.shape) != len(form.shape):
                wanted, hint = ", ".join(expression.text for expression in form.shape), self.kernel.arguments[name].in_short
                words = f"{name}: expected {len(form.shape)} dimensions ({wanted}), got {len(array.shape)}{hint}"
                raise ArgumentError(f"{self.kernel.name}: {words}")
            if self._is_transposed(array, form):
                array = self.arrays[name] = replace(array, shape=array.shape[::-1], strides=array.strides[::-1])
            for expression, extent in zip(form.shape, array.shape, strict=True):
                if _is_symbol(expression):
                    self.values.setdefault(expression.text, extent)
        for name, array in self.arrays.items():
            for expression, extent in zip(self.forms[name].shape, array.shape, strict=True):
                symbol = _of_two_codes(self.kernel.arguments[name], expression)
                if symbol is not None and symbol not in self.values:
                    self.values[symbol] = 2 * extent

    def _may_be_one(self, leading: Expression) -> bool:
        """As far as it is known yet. An array without a dimension of two groups is refused in the shape that it was given in."""
        return not all(self._known(name) for name in leading.names) or bool(leading.evaluate(self.values) == 1)

    def _is_transposed(self, array: Array, form: Form) -> bool:
        """Whether a matrix can only be meant as the view of what the form names. A square one is taken as it is; its strides are refused."""
        if len(form.shape) != 2 or not _by_rows(form) or array.strides[0] != 1:
            return False
        if not all(self._known(name) for expression in form.shape for name in expression.names):
            return False
        wanted = tuple(expression.evaluate(self.values) for expression in form.shape)
        return array.shape != wanted and array.shape[::-1] == wanted

    def _known(self, name: str) -> bool:
        derived = self.values.derived.get(name)
        return name in self.values or (derived is not None and all(self._known(one) for one in derived.names))

    def made(self, name: str) -> Made:
        argument, form = self.kernel.arguments[name], self.forms[name]
        for missing in dict.fromkeys(one for expression in form.shape for one in expression.names if not self._known(one)):
            texts = ", ".join(expression.text for expression in form.shape)
            raise ArgumentError(f"{self.kernel.name}: {name}: no input tells {missing} of its shape ({texts}); pass {missing}=")
        shape = tuple(expression.evaluate(self.values) for expression in form.shape)
        leading = form.shape[0].text if len(form.shape) > 1 else ""
        return Made(
            name,
            self.wanted[name],
            shape,
            self._strides(argument, form, shape),
            argument.access,
            squeezed=leading in self.squeezed,
        )

    def _strides(self, argument: Argument, form: Form, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Contiguous where the kernel takes that; else rows that start at multiples of 16 bytes, or of what their address must be one of."""
        strides: dict[int, int] = {}
        step: int = 1
        unit = max(_ROW, argument.alignment) // DTYPES[self.wanted[argument.name]].bytes
        axes = list(reversed(range(len(shape))))
        if lies_by_columns(form):
            axes[:2] = axes[1::-1]
        for axis in axes:
            extent = shape[axis]
            if form.strides is not None:
                expression = form.strides[axis]
                if _is_symbol(expression) and expression.text not in self.values:
                    # of a step that is still symbolic, whether it is a multiple is not asked: the answer would hold for that multiple alone
                    self.values[expression.text] = step if isinstance(step, int) else 1
                    taken = not strides or self._takes(expression.text)
                    self.values[expression.text] = step if taken else -(-step // unit) * unit
                step = expression.evaluate(self.values)
            strides[axis] = step
            step = step * (max(extent, 1) if isinstance(extent, int) else extent)
        return tuple(strides[axis] for axis in range(len(shape)))

    def _takes(self, stride: str) -> bool:
        """Whether what the kernel asks of a stride's remainder holds; not, where something else that it names is not known yet."""
        rules = [rule for rule, _ in self.kernel.constraints if stride in rule.names and any(opcode == "modulo" for opcode, _ in rule.code)]
        return all(all(self._known(name) for name in rule.names) and rule.evaluate(self.values) for rule in rules)


def _whole(what: str, value: Any, smallest: int, largest: int) -> Any:
    """A number that the caller says. While torch traces it may be symbolic, of which no int can be made yet."""
    if type(value).__name__ == "SymInt" and not isinstance(value, int):
        return value
    return whole(value, what, smallest, largest)


def _rows_apart(array: Array) -> bool:
    """Whether a matrix's rows are not contiguous, so that it may be a transposed view."""
    return len(array.shape) == 2 and bool(array.strides[1] != 1)


def _carried(argument: Argument, dtype: str) -> str:
    """What an array's dtype means for an argument; one that it does not take is refused when the call is resolved."""
    carried = [one for one in argument.dtypes if one in CARRIED_BY_BYTES]
    if dtype in argument.dtypes:
        return dtype
    return carried[0] if dtype == "u8" and len(carried) == 1 else argument.dtypes[0]


def _either(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"

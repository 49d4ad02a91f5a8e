"""A problem of any kernel that quantises, dequantises or rearranges scales, drawn at random.

Somebody chooses: hypothesis, which finds the smallest failure, or a generator of random numbers, for long runs on a GPU.
The answers are those of zoo.reference, and arrays have the shapes that the kernel's table declares for the sizes drawn.
What of a declared shape the reference leaves out belongs to no group and must stay as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy

from zoo.checks import amax, dequantize, quantize_tokens, scales
from zoo.checks.block_inputs import random_bits, spread
from zoo.checks.checked_format import finite, format_of
from zoo.checks.layouts import in_rows
from zoo.checks.problem import Placed, Problem, dtype_of, values_of
from zoo.checks.rounding import cast
from zoo.contract.array import contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.manifest import Argument, Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.contract.shapes import lies_by_columns
from zoo.reference.amax import group_amax, tensor_amax
from zoo.reference.block_formats import NAN, BlockFormat, nvfp4_tensor_scale
from zoo.reference.fragments import permuted_columns
from zoo.reference.groups import gather, padded_bounds
from zoo.reference.quantize import Quantized, quantize_both, quantize_cols, quantize_rows, quantize_squares_both
from zoo.reference.swiglu import swiglu

_OPS = ("quantize", "dequantize", "scales")
_MOST_ELEMENTS = 6000  # of x


T = TypeVar("T")


class Choose(Protocol):
    def integer(self, low: int, high: int) -> int: ...

    def of(self, values: Sequence[T]) -> T: ...


class ByNumbers:
    """Chooses by a generator of random numbers."""

    def __init__(self, random: numpy.random.Generator):
        self._random = random

    def integer(self, low: int, high: int) -> int:
        return int(self._random.integers(low, high + 1))

    def of(self, values: Sequence[T]) -> T:
        return values[self.integer(0, len(values) - 1)]


def can_sample(kernel: Kernel) -> bool:
    """Groups quantised along both dimensions are not drawn: zoo/checks/quantize_grouped_both.py has their problems."""
    return kernel.fields["op"] in _OPS and not (kernel.fields.get("direction") == "both" and "grouping" in kernel.fields)


def sample(kernel: Kernel, variant: Variant, choose: Choose) -> Problem:
    if kernel.fields.get("grouping") == "k_grouped":
        length = choose.integer(0, 2500)
        sizes = _group_sizes(choose, length)
        rows, block, gap = choose.integer(0, 300), choose.of((16, 32)), choose.of((0, 1, 3, 16))
        words = f"{rows} rows, groups of {list(sizes)} of {length}, {block} elements a scale, rows {gap} apart"
        rest = length - sum(sizes)
        return scales.column_problem(kernel.fields["arrangement"], _numbers(choose), rows, sizes, block, rest, gap, words)
    if kernel.fields["op"] == "scales":
        rows, columns = choose.integer(0, 300), choose.integer(1, 70)
        sizes = _group_sizes(choose, rows) if "grouping" in kernel.fields else ()
        gap = choose.of((0, 1, 3, 16))
        words = f"{rows} x {columns}, groups of {list(sizes)}, rows {gap} apart"
        return scales.problem(kernel.fields["arrangement"], _numbers(choose), rows, columns, sizes, gap, words)
    if kernel.fields["op"] == "dequantize":
        shape = choose.integer(0, 150), choose.integer(1, 300)
        layout = choose.of(values_of(kernel, "layout")) if "layout" in kernel.options else "plain"
        experts = choose.integer(1, 3) if kernel.fields["direction"] == "squares" else None
        gap = choose.of((0, 1, 16))
        words = f"{experts or 1} x {shape[0]} x {shape[1]}, {layout}, rows {gap} apart"
        return dequantize.problem(kernel, variant, _numbers(choose), shape, layout, gap, words, experts)
    if "formats" not in kernel.fields:
        rows = choose.integer(0, 200)
        x = _values(choose, (rows, choose.integer(1, _MOST_ELEMENTS // max(rows, 1))), dtype_of(kernel, variant, "x"), 16)
        groups = _group_sizes(choose, rows) if "grouping" in kernel.fields else None
        gap = choose.of((0, 1, 16))
        return amax.problem(_numbers(choose), x, groups, gap, f"{x.shape}, groups of {groups}, rows {gap} apart")
    if kernel.fields["formats"] == "fp8token":
        return _token_rows(kernel, variant, choose)
    return _Quantiser(kernel, variant, choose).problem()


def _token_rows(kernel: Kernel, variant: Variant, choose: Choose) -> Problem:
    settings: dict[str, str | float] = {name: choose.of(option.values) for name, option in kernel.options.items()}
    if "limit" in kernel.arguments and choose.of((True, False)):
        settings["limit"] = choose.of((0.5, 7.0))
    rows, gap = choose.integer(0, 60), choose.of((0, 1, 3))
    columns = 16 * choose.integer(0, min(160, _MOST_ELEMENTS // max(rows, 1) // 16))
    index = None
    if "index" in kernel.arguments and choose.of((True, False)):
        index = _numbers(choose).integers(-1, max(rows, 1), choose.integer(0, 40), dtype=numpy.int32)
        rows = max(rows, 1)
    x = _values(choose, (rows, columns * (2 if "gates" in settings else 1)), dtype_of(kernel, variant, "x"), 16)
    offsets = alpha = None
    if "offsets" in kernel.arguments and choose.of((True, False)):
        sizes = _group_sizes(choose, rows)
        offsets = numpy.cumsum(sizes).astype(numpy.int32)
        if choose.of((True, False)):
            alpha = _numbers(choose).standard_normal((len(sizes), 2)).astype(numpy.float32)
    words = ("" if index is None else f", {len(index)} gathered") + ("" if offsets is None else f", groups end at {offsets.tolist()}")
    name = f"x {x.shape}, {settings}, rows {gap} apart{words}"
    return quantize_tokens.problem(name, x, settings, gap, index, offsets, alpha)


def _numbers(choose: Choose) -> numpy.random.Generator:
    return numpy.random.default_rng(choose.integer(0, 2**32 - 1))


def _group_sizes(choose: Choose, rows: int) -> tuple[int, ...]:
    """Of one to five groups, often empty ones, and as many empty ones before, between and after them as take a warp or a CTA
    another turn. They need not reach the last row.
    """
    sizes, left = [], rows
    for _ in range(choose.integer(1, 5)):
        sizes.append(choose.of((0, min(1, left), min(32, left), min(128, left), choose.integer(0, left), left)))
        left -= sizes[-1]
    for _ in range(choose.integer(0, 3)):
        place = choose.integer(0, len(sizes))
        sizes[place:place] = [0] * choose.of((1, 31, 95))
    return tuple(sizes)


def _values(choose: Choose, shape: tuple[int, ...], dtype: str, block: int) -> numpy.ndarray:
    random, flat = _numbers(choose), (int(numpy.prod(shape[:-1])), shape[-1])
    kind = choose.of(("normal", "spread", "bits", "zeros"))
    if kind == "spread":
        return spread(flat, dtype, block, random).reshape(shape)
    if kind == "bits":
        return random_bits(flat, dtype, random).reshape(shape)
    return cast(random.standard_normal(shape) * (kind == "normal"), dtype)


@dataclass(frozen=True)
class _Groups:
    offsets: numpy.ndarray | None = None
    index: numpy.ndarray | None = None
    padded: bool = False


class _Quantiser:
    """One drawing: sizes first, then what lies at them."""

    def __init__(self, kernel: Kernel, variant: Variant, choose: Choose):
        self.kernel, self.variant, self.choose = kernel, variant, choose
        self.fields, self.own = kernel.fields, format_of(kernel, variant)
        self.settings = {name: variant.options.get(name) or choose.of(option.values) for name, option in kernel.options.items()}
        if dtype_of(kernel, variant, "x") == "f32" and "order" in self.settings:
            self.settings["order"] = "plain"  # refused otherwise
        self.layout = self.settings.get("layout", "plain")
        self.gates = 2 if self.fields.get("extra") == "swiglu" else 1

    def problem(self) -> Problem:
        inputs: dict[str, numpy.ndarray] = {}
        outputs: dict[str, numpy.ndarray] = {}
        workspaces: dict[str, numpy.ndarray] = {}
        stack = self.fields["direction"] == "squares" or self.fields.get("grouping") == "experts"
        x, groups = self._stack() if stack else self._matrix()
        rows_of_x = x.shape[-2]
        inputs["x"] = x
        if groups.offsets is not None:
            inputs["offsets"] = groups.offsets
        if groups.offsets is not None and groups.index is not None:
            inputs["index"] = groups.index
            rows_of_x = len(groups.index)
            x = _gathered(x, groups.index, groups.offsets)
        if self.gates == 2:
            x = swiglu(x, self.settings["gates"])

        tensor_scale = self._tensor_scale(x, groups, inputs, outputs)
        format = self.own.made(self.settings, tensor_scale)
        outputs |= self._answers(x, format, groups)
        if self.settings.get("order") == "fragments":
            outputs["q"] = in_rows(permuted_columns(outputs["q"]))
        if groups.padded and groups.offsets is not None:
            outputs["padded_starts"], outputs["padded_ends"] = padded_bounds(groups.offsets)
        for name in self.kernel.arguments:
            if self.kernel.arguments[name].access == "workspace":
                workspaces[name] = _numbers(self.choose).integers(-(2**31), 2**31, 2, dtype=numpy.int64).astype(numpy.int32)
        values = self._symbols(inputs, outputs, rows_of_x, groups)
        name = ", ".join([f"x {inputs['x'].shape}", *self.settings.values()])
        if groups.offsets is not None:
            name += f", offsets {groups.offsets.tolist()}"
        return Problem(
            name,
            {argument: self._placed(argument, array, values) for argument, array in inputs.items()},
            {argument: self._placed(argument, array, values) for argument, array in outputs.items()},
            self.settings,
            {argument: Placed(array) for argument, array in workspaces.items()},
        )

    # ---- what is quantised
    def _unit(self) -> int:
        """What the table wants the columns of x to be a multiple of."""
        found = [re.fullmatch(r"K % (\d+|\(.+\)) == 0", expression.text) for expression, _ in self.kernel.constraints]
        return self.gates * next(Expression(match[1]).evaluate({}) for match in found if match)

    def _columns(self, rows: int) -> int:
        unit = self._unit()
        fewest = int(self.fields.get("grouping") == "m_grouped_padded")  # without columns nothing runs that could say where groups lie
        return unit * self.choose.integer(fewest, max(1, min(1100, _MOST_ELEMENTS // max(rows, 1)) // unit))

    def _stack(self) -> tuple[numpy.ndarray, _Groups]:
        experts, rows = self.choose.integer(0, 3), self.choose.integer(0, 140)
        return self._x((experts, rows, self._columns(experts * rows))), _Groups()

    def _matrix(self) -> tuple[numpy.ndarray, _Groups]:
        rows = self.choose.integer(0, 260)
        columns = self._columns(rows)
        if "grouping" not in self.fields:
            return self._x((rows, columns)), _Groups()
        offsets = numpy.cumsum(_group_sizes(self.choose, rows)).astype(numpy.int32)
        padded = self.fields["grouping"] == "m_grouped_padded"
        if "index" not in self.kernel.arguments or self.choose.of((True, False)):
            return self._x((rows, columns)), _Groups(offsets, None, padded)
        tokens = self.choose.integer(1, 40)
        index = _numbers(self.choose).integers(-1, tokens, rows, dtype=numpy.int32)
        index[offsets[-1] :] = 2**31 - 1  # not to be looked up
        return self._x((tokens, columns)), _Groups(offsets, index, padded)

    def _x(self, shape: tuple[int, ...]) -> numpy.ndarray:
        return _values(self.choose, shape, dtype_of(self.kernel, self.variant, "x"), 16)

    # ---- what must come of it
    def _tensor_scale(
        self, x: numpy.ndarray, groups: _Groups, inputs: dict[str, numpy.ndarray], outputs: dict[str, numpy.ndarray]
    ) -> numpy.ndarray | None:
        """Puts the argument that gives it among the inputs, and what comes back of it among the outputs."""
        if not self.own.relative:
            return None
        numbers = finite(x)
        argument = self.kernel.arguments.get("amax_before") or self.kernel.arguments["tensor_scale"]
        shape = argument.forms[0].shape
        if shape[0].text == "T" and len(x) and self.choose.of((True, False)):
            if groups.offsets is None:
                largest = numpy.array([tensor_amax(matrix).item() for matrix in numbers], numpy.float32)
            else:
                largest = group_amax(numbers, groups.offsets)
        else:
            largest = tensor_amax(numbers)
        if self.fields.get("extra") != "amax":
            with numpy.errstate(over="ignore", invalid="ignore", under="ignore"):
                times = self.choose.of((1, 1, 0.37, 3, 0, 1e-38, 1e38, numpy.inf, numpy.nan))
                inputs["tensor_scale"] = nvfp4_tensor_scale(largest) * numpy.float32(times)
            return inputs["tensor_scale"]
        with numpy.errstate(over="ignore"):
            inputs["amax_before"] = largest * numpy.float32(self.choose.of((1, 0.5, 0, 3)))
        outputs["amax"] = tensor_amax(x)
        tensor_scale = nvfp4_tensor_scale(inputs["amax_before"])
        tensor_scale = numpy.where(numpy.isnan(tensor_scale), NAN, tensor_scale)
        if self.choose.of((True, False)):
            outputs["tensor_scale"] = tensor_scale
        return tensor_scale

    def _answers(self, x: numpy.ndarray, format: BlockFormat, groups: _Groups) -> dict[str, numpy.ndarray]:
        given = (x, format, self.layout, groups.offsets, groups.padded)
        if self.fields["direction"] == "rows":
            return _named(quantize_rows(*given))
        if self.fields["direction"] == "cols":
            return _named(quantize_cols(*given))
        if self.fields["direction"] == "both":
            along_k, along_m = quantize_both(*given)
            return _named(along_k, "_rows") | _named(along_m, "_cols")
        plain, transposed = quantize_squares_both(x, format, self.layout)
        return _named(plain) | (_named(transposed, "_cols") if self.choose.of((True, False)) else {})

    # ---- where it lies
    def _symbols(
        self, inputs: Mapping[str, numpy.ndarray], outputs: Mapping[str, numpy.ndarray], rows: int, groups: _Groups
    ) -> dict[str, int]:
        x = inputs["x"]
        values = {"M": rows, "N": x.shape[-2], "K": x.shape[-1] // self.gates, "TOKENS": x.shape[-2]}
        values |= {"E": x.shape[0]} if x.ndim == 3 else {}
        values |= {"G": len(groups.offsets)} if groups.offsets is not None else {}
        values |= {"T": inputs["tensor_scale"].size} if "tensor_scale" in inputs else {}
        for name, option in self.kernel.options.items():
            values |= {f"{name}.{value}": int(self.settings[name] == value) for value in option.values}
        for name, argument in self.kernel.arguments.items():
            dtype = self._dtype(argument)
            values[f"{name}.present"] = int(name in inputs or name in outputs)
            values[f"{name}.itemsize"] = DTYPES[dtype].bytes
            values |= {f"{name}.{other}": int(other == dtype) for other in argument.dtypes}
        for name, expression in self.kernel.derived:
            if set(expression.names) <= set(values):
                values[name] = expression.evaluate(values)
        return values

    def _dtype(self, argument: Argument) -> str:
        return self.variant.dtypes.get(argument.name, argument.dtypes[0])

    def _placed(self, name: str, array: numpy.ndarray, values: Mapping[str, int]) -> Placed:
        argument = self.kernel.arguments[name]
        form = next(form for form in argument.forms if form.when.evaluate(values))
        shape, dtype = tuple(extent.evaluate(values) for extent in form.shape), self._dtype(argument)
        array = array.view(numpy_dtype(dtype))
        if array.ndim == 2 and len(shape) == 3 and form.strides is not None:  # of another layout: a problem names the matrix
            return Placed(array, self._strides(name, array.shape, dtype), dtype)
        strides = None
        if lies_by_columns(form):
            *outer, row, column = self._strides(name, (*shape[:-2], shape[-1], shape[-2]), dtype)
            strides = (*outer, column, row)
        elif form.strides is not None:
            strides = self._strides(name, shape, dtype)
        if array.size == numpy.prod(shape):
            return Placed(array.reshape(shape), strides, dtype)
        whole, untouched = numpy.zeros(shape, array.dtype), numpy.ones(shape, bool)
        owned = tuple(slice(extent) for extent in array.shape)
        whole[owned], untouched[owned] = array, False
        return Placed(whole, strides, dtype, untouched)

    def _strides(self, name: str, shape: tuple[int, ...], dtype: str) -> tuple[int, ...]:
        """Rows and matrices without a gap where they may be, or at multiples of 16 elements, near each other or not."""
        unit = (4 if self.layout == "mn_major" else 1) if name.startswith("scales") else 16 // DTYPES[dtype].bytes
        if shape[-1] % unit == 0 and self.choose.of((True, False)):
            return contiguous_strides(shape)
        row = -(-shape[-1] // 16) * 16 + 16 * self.choose.integer(0, 2)
        if len(shape) == 2:
            return row, 1
        return shape[1] * row + 16 * self.choose.integer(0, 1), row, 1


def _named(result: Quantized, suffix: str = "") -> dict[str, numpy.ndarray]:
    return {f"q{suffix}": result.q, f"scales{suffix}": result.scales}


def _gathered(x: numpy.ndarray, index: numpy.ndarray, offsets: numpy.ndarray) -> numpy.ndarray:
    used = index.copy()
    used[offsets[-1] :] = -1
    return gather(x, used)

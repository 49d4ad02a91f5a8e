"""Problems for SwiGLU fused with quantisation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy

from zoo.checks.block_inputs import as_largest, every_pattern, random_bits, some_as_largest, specials, spread
from zoo.checks.checked_format import KernelFormat, format_of, scale_of_tensor
from zoo.checks.placing import placed, up_to
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.quantize import quantize_rows
from zoo.reference.swiglu import swiglu

# Of the result, in blocks of 32: around a block, a warp's piece and share of a row, a tile of 128 rows x 4 blocks.
_SHAPES = (
    (1, 32), (1, 64), (3, 96), (31, 160), (33, 128), (127, 288), (128, 128), (129, 992), (257, 1056), (5, 7168),
    (2, 32 * 257), (1000, 224),
)  # fmt: skip
_SHAPES_OF_16 = ((1, 16), (2, 48), (3, 144), (33, 272), (129, 1008), (2, 32 * 257 + 16), (200, 16))  # where K is a multiple of 16
_TENSOR_SCALES = (1.0, 1e-3, 3.1e-39, 2.0**-128, 1.2e35, numpy.inf, numpy.nan, 0.0)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    """Each pair of gates and ups in both orders and layouts, under one rule for scales and then under the other."""
    own, turn = format_of(kernel, variant), 0
    for name, gate, up, gap, tensor_scale in _inputs(dtype_of(kernel, variant, "x"), own):
        pair = _whole_blocks(gate, own.unit), _whole_blocks(up, own.unit)
        for order, layout in product(("halves", "interleaved"), values_of(kernel, "layout")):
            settings = {"layout": layout, "gates": order, **own.choices[turn % len(own.choices)]}
            yield _problem(own, f"{name}, {order}, {layout}", pair, settings, gap, tensor_scale)
            turn += 1
        turn += 1


def _whole_blocks(x: numpy.ndarray, unit: int) -> numpy.ndarray:
    """As many columns as a format takes: the first ones again where they do not fill a block."""
    return x[:, numpy.arange(up_to(x.shape[1], unit)) % x.shape[1]] if x.shape[1] % unit else x


def _inputs(dtype: str, own: KernelFormat) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray, int, float | None]]:
    """Name, gates, ups, how far apart rows are, and the tensor scale, where it is not the one that the data asks for."""
    random = numpy.random.default_rng(22)

    def usual(shape: tuple[int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:  # gates where silu bends, ups of all magnitudes
        return cast(random.standard_normal(shape) * 4, dtype), spread(shape, dtype, 32, random)

    for shape in _SHAPES + _SHAPES_OF_16 if own.unit == 16 else _SHAPES:
        yield f"shape {shape[0]} x {shape[1]}", *usual(shape), 0, None
    for shape in ((129, 992), (3, 32), (200, 4128)):
        yield f"strided rows, {shape[0]} x {shape[1]}", *usual(shape), 1, None
    yield "no rows", *usual((0, 256)), 0, None
    yield "random bits", random_bits((129, 1056), dtype, random), random_bits((129, 1056), dtype, random), 0, None
    yield "all exponents in gates, usual ups", spread((129, 1056), dtype, 32, random), usual((129, 1056))[0], 0, None
    marks = specials(dtype, 32)
    ordinary = cast(random.standard_normal(marks.shape), dtype)
    yield "zeros, infinities, NaNs and subnormals as gates", marks, ordinary, 0, None
    yield "zeros, infinities, NaNs and subnormals as ups", ordinary, marks, 0, None
    patterns = every_pattern(dtype)
    ones = numpy.ones((len(patterns) // 256, 256), patterns.dtype)
    yield "every pattern as a gate", patterns.reshape(-1, 256), ones, 0, None
    yield "every pattern as a gate, shuffled ups", patterns.reshape(-1, 256), random.permutation(patterns).reshape(-1, 256), 0, None
    alone = as_largest(patterns, 32, 1.0)
    yield "every pattern as the largest gate", alone, numpy.ones_like(alone), 0, None
    yield "where the exponential ends", *_far_gates(dtype, random), 0, None
    # Few enough that the emulator runs them, too.
    few, others = marks[::5], random.permutation(ordinary[::5])
    yield "some zeros, infinities, NaNs and subnormals as gates", few, others, 0, None
    yield "some zeros, infinities, NaNs and subnormals as ups", others, few, 0, None
    yield "some random bits", random_bits((17, 288), dtype, random), random_bits((17, 288), dtype, random), 0, None
    alone = some_as_largest(patterns, 32, 1.0)
    yield "some patterns as the largest gate", alone, numpy.ones_like(alone), 0, None
    if own.relative:
        for scale in _TENSOR_SCALES:
            yield f"tensor scale {scale:g}", *usual((65, 1056)), 0, scale
            yield f"few elements, tensor scale {scale:g}", *usual((9, 288)), 0, scale


def _far_gates(dtype: str, random: numpy.random.Generator) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Gates around those where exp(-|gate|) becomes subnormal and then 0, and halfway between powers of two."""
    kind = numpy_dtype(dtype)
    powers = numpy.concatenate([numpy.arange(0, 130, 0.5), [125.9, 126.1, 126.9, 127.1, 200, 1000]]) * numpy.log(2)
    middle = cast(powers, dtype)
    steps = [middle]
    for _ in range(3):
        steps = [numpy.nextafter(steps[0], kind.type(0)), *steps, numpy.nextafter(steps[-1], kind.type(numpy.inf))]
    gates = numpy.concatenate(steps)
    gates = numpy.resize(numpy.concatenate([gates, -gates]), (-(-2 * len(gates) // 32), 32))
    return gates, cast(random.standard_normal(gates.shape), dtype)


def _problem(
    own: KernelFormat, name: str, pair: tuple[numpy.ndarray, numpy.ndarray], settings: dict[str, str], gap: int, tensor_scale: float | None
) -> Problem:
    gate, up = pair
    (rows, columns), order, layout = gate.shape, settings["gates"], settings["layout"]
    x = numpy.concatenate(pair, axis=1) if order == "halves" else numpy.stack(pair, axis=2).reshape(rows, 2 * columns)
    inputs, given = {"x": Placed(x, (2 * columns + gap * 16 // x.dtype.itemsize, 1))}, None
    if own.relative:
        given = (
            scale_of_tensor(_activated(Shared(gate), Shared(up))) if tensor_scale is None else numpy.array([tensor_scale], numpy.float32)
        )
        inputs["tensor_scale"] = Placed(given)

    def outputs() -> dict[str, Placed]:
        result, format = _activated(Shared(gate), Shared(up)), own.made(settings, given)
        quantized = quantize_rows(result, format, layout)
        width = quantized.q.shape[1]
        return placed(quantized, ("q", "scales"), result.shape, format, layout, up_to(width, 16) + 16 * gap if gap else width, gap)

    return Problem(name, inputs, Later(outputs), settings)


class Shared:
    """An array as a key of a cache, equal to those with its bytes."""

    def __init__(self, values: numpy.ndarray):
        self.values, self.bytes = values, (values.dtype.name, values.shape, values.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shared) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(self.bytes)


@lru_cache(maxsize=100)
def _activated(gate: Shared, up: Shared) -> numpy.ndarray:
    """The reference takes longest, and variants share it."""
    return swiglu(numpy.concatenate((gate.values, up.values), axis=1))

"""Problems for SwiGLU fused with quantisation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product

import numpy

from zoo.checks.block_inputs import as_largest, cast, every_pattern, random_bits, some, specials, spread
from zoo.checks.problem import Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.amax import tensor_amax
from zoo.reference.block_formats import BlockFormat, Fp8b128, Mxfp8, Nvfp4, nvfp4_tensor_scale
from zoo.reference.layouts import blocked_shape
from zoo.reference.quantize import quantize_rows
from zoo.reference.scales import mn_major_stride
from zoo.reference.swiglu import swiglu

# Of the result, in blocks of 32: around a block, a warp's piece and share of a row, a tile of 128 rows x 4 blocks.
_SHAPES = (
    (1, 32), (1, 64), (3, 96), (31, 160), (33, 128), (127, 288), (128, 128), (129, 992), (257, 1056), (5, 7168),
    (2, 32 * 257), (1000, 224),
)  # fmt: skip
_SHAPES_OF_16 = ((1, 16), (2, 48), (3, 144), (33, 272), (129, 1008), (2, 32 * 257 + 16), (200, 16))  # mxfp8 takes none of them
_ROUNDING, _SCALING = ("floor", "rceil"), ("exact", "pow2")
_TENSOR_SCALES = (1.0, 1e-3, 3.1e-39, 2.0**-128, 1.2e35, numpy.inf, numpy.nan, 0.0)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    """Each pair of gates and ups in both orders and layouts, under one rule for scales and then under the other."""
    rules = {"mxfp8": _ROUNDING, "fp8b128": _SCALING, "nvfp4": (None,)}[kernel.fields["formats"]]
    turn = 0
    for name, gate, up, settings in _inputs(variant.dtypes["x"], kernel.fields["formats"]):
        for order, layout in product(("halves", "interleaved"), kernel.options["layout"].values):
            words = f"{name}, {order}, {layout}"
            yield _problem(kernel, variant, words, (gate, up), order, layout, rules[turn % len(rules)], **settings)
            turn += 1
        turn += 1


def _inputs(dtype: str, format: str) -> Iterator[tuple[str, numpy.ndarray, numpy.ndarray, dict]]:
    """Name, gates, ups, and what else the problem is to be made with."""
    random = numpy.random.default_rng(22)

    def usual(shape):  # gates where silu bends, ups of all magnitudes
        return cast(random.standard_normal(shape) * 4, dtype), spread(shape, dtype, 32, random)

    for shape in _SHAPES if format == "mxfp8" else _SHAPES + _SHAPES_OF_16:
        yield f"shape {shape[0]} x {shape[1]}", *usual(shape), {}
    for shape in ((129, 992), (3, 32), (200, 4128)):
        yield f"strided rows, {shape[0]} x {shape[1]}", *usual(shape), {"gap": 1}
    yield "no rows", *usual((0, 256)), {}
    yield "random bits", random_bits((129, 1056), dtype, random), random_bits((129, 1056), dtype, random), {}
    yield "all exponents in gates, usual ups", spread((129, 1056), dtype, 32, random), usual((129, 1056))[0], {}
    marks = specials(dtype, 32)
    ordinary = cast(random.standard_normal(marks.shape), dtype)
    yield "zeros, infinities, NaNs and subnormals as gates", marks, ordinary, {}
    yield "zeros, infinities, NaNs and subnormals as ups", ordinary, marks, {}
    patterns = every_pattern(dtype)
    ones = numpy.ones((len(patterns) // 256, 256), patterns.dtype)
    yield "every pattern as a gate", patterns.reshape(-1, 256), ones, {}
    yield "every pattern as a gate, shuffled ups", patterns.reshape(-1, 256), random.permutation(patterns).reshape(-1, 256), {}
    alone = as_largest(patterns, 32, 1.0)
    yield "every pattern as the largest gate", alone, numpy.ones_like(alone), {}
    yield "where the exponential ends", *_far_gates(dtype, random), {}
    # Few enough that the emulator runs them, too.
    few, others = marks[::5], random.permutation(ordinary[::5])
    yield "some zeros, infinities, NaNs and subnormals as gates", few, others, {}
    yield "some zeros, infinities, NaNs and subnormals as ups", others, few, {}
    yield "some random bits", random_bits((17, 288), dtype, random), random_bits((17, 288), dtype, random), {}
    alone = as_largest(some(patterns, 32), 32, 1.0)
    yield "some patterns as the largest gate", alone, numpy.ones_like(alone), {}
    if format == "nvfp4":
        for scale in _TENSOR_SCALES:
            yield f"tensor scale {scale:g}", *usual((65, 1056)), {"tensor_scale": scale}
            yield f"few elements, tensor scale {scale:g}", *usual((9, 288)), {"tensor_scale": scale}


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


def _problem(kernel, variant, name, pair, order, layout, rule, gap: int = 0, tensor_scale: float | None = None) -> Problem:
    result = _activated(*(Shared(part) for part in pair))
    rows, columns = result.shape
    settings, inputs = {"layout": layout, "gates": order}, {}
    format: BlockFormat
    if kernel.fields["formats"] == "fp8b128":
        format, settings["scaling"] = Fp8b128(rule == "pow2"), rule
    elif kernel.fields["formats"] == "mxfp8":
        format, settings["rounding"] = Mxfp8(variant.dtypes["q"], rule), rule
    else:
        if tensor_scale is None:
            tensor_scale = nvfp4_tensor_scale(tensor_amax(numpy.where(numpy.isfinite(result), result, 0)))[0]
        format = Nvfp4(numpy.float32(tensor_scale))
        inputs["tensor_scale"] = Placed(numpy.array([tensor_scale], numpy.float32))

    x = numpy.concatenate(pair, axis=1) if order == "halves" else numpy.stack(pair, axis=2).reshape(rows, 2 * columns)
    inputs["x"] = Placed(x, (2 * columns + gap * 16 // x.dtype.itemsize, 1))
    quantized = quantize_rows(result, format, layout)
    scales = quantized.scales
    if layout == "blocked":
        placed_scales = Placed(scales.reshape(blocked_shape(rows, columns // format.block)))
    elif layout == "mn_major":
        placed_scales = Placed(scales, (mn_major_stride(rows) + 4 * gap, 1))
    else:
        placed_scales = Placed(scales, (scales.shape[1] + gap, 1))
    q_columns = columns // 2 if format.packed else columns
    q = Placed(quantized.q, (-(-q_columns // 16) * 16 + 16 * gap, 1) if gap else None, "e2m1x2" if format.packed else None)
    return Problem(name, inputs, {"q": q, "scales": placed_scales}, settings)


class Shared:
    """An array as a key of a cache, equal to those with its bytes."""

    def __init__(self, values: numpy.ndarray):
        self.values, self.bytes = values, (values.dtype.name, values.shape, values.tobytes())

    def __eq__(self, other):
        return self.bytes == other.bytes

    def __hash__(self):
        return hash(self.bytes)


@lru_cache(maxsize=100)
def _activated(gate: Shared, up: Shared) -> numpy.ndarray:
    """The reference takes longest, and variants share it."""
    return swiglu(numpy.concatenate((gate.values, up.values), axis=1))

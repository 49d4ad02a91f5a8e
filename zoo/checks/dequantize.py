"""Problems for dequantisation: every byte as an element and as a scale, in every layout; every answer is that of zoo.reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from zoo.checks.checked_format import KernelFormat, format_of
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.block_formats import BlockFormat
from zoo.reference.dequantize import dequantize
from zoo.reference.layouts import blocked_shape, to_blocked
from zoo.reference.scales import mn_major_stride

# Around a store of 4 or 8 elements, a block of 16, 32, 128, a warp's 128 or 256 columns, and its eight turns of them.
_SHAPES = (
    (1, 1), (1, 7), (2, 8), (3, 15), (4, 16), (5, 33), (31, 130), (33, 64), (7, 127), (128, 128), (129, 20), (6, 257), (2, 1024),
    (17, 520), (3, 2049), (200, 300), (257, 1056),
)  # fmt: skip
_EXPERTS = (1, 3)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    random = numpy.random.default_rng(8)
    squares = kernel.fields["direction"] == "squares"
    layouts = values_of(kernel, "layout") if "layout" in kernel.options else ("plain",)
    for layout in layouts:
        for number, shape in enumerate(_SHAPES):
            experts = _EXPERTS[number % len(_EXPERTS)] if squares else None
            for gap in (0, 16) if number % 2 else (0, 1):  # rows further apart than they are long, aligned or not
                name = f"{shape[0]} x {shape[1]}, {layout}, rows {gap} apart"
                yield problem(kernel, variant, random, shape, layout, gap, name, experts)
        yield problem(kernel, variant, random, (0, 64), layout, 0, f"no rows, {layout}", 2 if squares else None)


def problem(
    kernel: Kernel, variant: Variant, random: numpy.random.Generator, shape: tuple[int, int], layout: str, gap: int, name: str,
    experts: int | None = None,
) -> Problem:  # fmt: skip
    """Random bytes as elements and scales, so NaN, infinity and the ends of every range are among them."""
    rows, columns = shape
    stack = () if experts is None else (experts,)
    tensor_scale = _tensor_scale(random, experts)
    own = format_of(kernel, variant)
    format = own.made({}, tensor_scale)
    elements = variant.dtypes.get("q", kernel.arguments["q"].dtypes[0])
    row_bytes = -(-columns // format.element.per_byte)
    q = random.integers(0, 256, (*stack, rows, row_bytes), dtype=numpy.uint8).view(numpy_dtype(elements))
    scale_rows = rows if experts is None else -(-rows // format.block)
    plain = _scales(random, (*stack, scale_rows, -(-columns // format.block)), own)

    scales, scale_strides = _laid(plain, rows, format, layout, gap, experts)
    inputs = {
        "q": Placed(q, _strides(q.shape, gap), elements),
        "scales": Placed(scales, scale_strides),
    }
    if own.relative:
        inputs["tensor_scale"] = Placed(tensor_scale)
    strides = _strides((*stack, rows, columns), gap)
    outputs = Later(lambda: {"out": Placed(dequantize(q, plain, format, columns, dtype_of(kernel, variant, "out")), strides)})
    return Problem(name, inputs, outputs, {"layout": layout} if "layout" in kernel.options else {})


def _tensor_scale(random: numpy.random.Generator, experts: int | None) -> numpy.ndarray:
    """Now and then one whose products are subnormal or infinite, or NaN; for a stack one each, or one for all."""
    usual = numpy.exp2(random.uniform(-20, 4, 1 if experts is None else random.choice([1, experts]))).astype(numpy.float32)
    odd = random.choice(numpy.array([1e-45, 1e-38, 3e38, numpy.inf, numpy.nan, 0, 1], numpy.float32), usual.shape)
    return numpy.where(random.random(usual.shape) < 0.3, odd, usual)


def _scales(random: numpy.random.Generator, shape: tuple[int, ...], own: KernelFormat) -> numpy.ndarray:
    if own.record.scales == "f32":
        return random.integers(0, 2**32, shape, dtype=numpy.uint32).view(numpy.float32)
    return random.integers(0, 256, shape, dtype=numpy.uint8).view(numpy_dtype(own.record.scales))


def _laid(
    plain: numpy.ndarray, rows: int, format: BlockFormat, layout: str, gap: int, experts: int | None
) -> tuple[numpy.ndarray, tuple[int, ...] | None]:
    """(scales as the kernel reads them, their strides)"""
    if layout == "mn_major":
        return plain, (1, mn_major_stride(rows) + 4 * gap)
    if layout == "plain":
        return plain, None if experts is not None else (plain.shape[-1] + gap, 1)
    if experts is None:
        return to_blocked(plain).reshape(blocked_shape(*plain.shape)), None
    every_row = numpy.repeat(plain, format.block, axis=-2)[:, :rows]
    shape = blocked_shape(*every_row.shape[1:])
    blocked = numpy.empty((experts, *shape), plain.dtype)
    for number, matrix in enumerate(every_row):
        blocked[number] = to_blocked(matrix).reshape(shape)
    return blocked, None


def _strides(shape: tuple[int, ...], gap: int) -> tuple[int, ...] | None:
    if not gap:
        return None
    row = shape[-1] + gap if gap == 1 else -(-shape[-1] // gap) * gap + gap
    return (row, 1) if len(shape) == 2 else (shape[1] * row + 3 * gap, row, 1)

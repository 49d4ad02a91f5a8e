"""Where the elements and scales of a quantiser lie in a problem."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy

from zoo.checks.checked_format import KernelFormat, scales_of_matrices, stored_as
from zoo.checks.problem import Placed
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import BlockFormat
from zoo.reference.layouts import blocked_shape
from zoo.reference.quantize import Quantized
from zoo.reference.scales import MN_MAJOR_ALIGNMENT, mn_major_stride


def every_settings(kernel: Kernel, variant: Variant) -> Iterator[dict[str, str]]:
    """The variant's options with every choice of those that a launch reads."""
    read = {name: option.values for name, option in kernel.options.items() if name not in variant.options}
    for values in itertools.product(*read.values()):
        yield {**variant.options, **dict(zip(read, values, strict=True))}


def up_to(count: int, unit: int) -> int:
    """The next multiple of the unit."""
    return -(-count // unit) * unit


def placed(
    result: Quantized, names: tuple[str, str], shape: tuple[int, ...], format: BlockFormat, layout: str, step: int, gap: int
) -> dict[str, Placed]:
    """Elements and scales of a matrix of this shape, blocks along its rows: rows of q `step` bytes apart, `gap` between those of scales."""
    rows, columns = shape
    blocks = -(-columns // format.block)
    q = Placed(result.q, (step, 1), stored_as(format))
    if layout == "blocked":
        return {names[0]: q, names[1]: Placed(result.scales.reshape(blocked_shape(rows, blocks)))}
    return {names[0]: q, names[1]: Placed(result.scales, strides_of_scales(rows, blocks, layout, gap))}


def strides_of_scales(rows: int, blocks: int, layout: str, gap: int) -> tuple[int, int]:
    """Of a matrix of f32 scales, plain or mn_major, whose rows or columns are so much further apart than they must be."""
    return (1, mn_major_stride(rows) + MN_MAJOR_ALIGNMENT * gap) if layout == "mn_major" else (blocks + gap, 1)


def placed_apart(
    result: Quantized, names: tuple[str, str], shape: tuple[int, ...], format: BlockFormat, layout: str, gap: int
) -> dict[str, Placed]:
    """The same; rows of q start at multiples of 16 bytes, so many of them further on than they must."""
    return placed(result, names, shape, format, layout, up_to(result.q.shape[1], 16) + 16 * gap, gap)


def longer(values: numpy.ndarray, length: int, strides: int | tuple[int, int], dtype: str | None = None, axis: int = 0) -> Placed:
    """Results that are the first along an axis of an array that has more; the others are left alone. One stride is that of rows."""
    shape = tuple(length if number == axis else extent for number, extent in enumerate(values.shape))
    whole, untouched = numpy.zeros(shape, values.dtype), numpy.ones(shape, bool)
    owned = tuple(map(slice, values.shape))
    whole[owned], untouched[owned] = values, False
    strides = (strides, 1) if isinstance(strides, int) else strides
    return Placed(whole, strides, dtype, untouched if untouched.any() else None)


def strides_of_matrices(shape: tuple[int, ...], gap: int, unit: int) -> tuple[int, int, int]:
    """Rows start at multiples of `unit` elements, `gap` units further on than they must, matrices likewise."""
    row = up_to(shape[2], unit) + gap * unit
    return shape[1] * row + gap * unit, row, 1


def given_matrices(
    x: numpy.ndarray, own: KernelFormat, gap: int, tensor_scales: Sequence[float] | None
) -> tuple[dict[str, Placed], numpy.ndarray | None]:
    """Matrices to quantise, with the scale of each if the format takes one, and those scales: what x asks for unless others are given."""
    inputs = {"x": Placed(x, strides_of_matrices(x.shape, gap, 16 // x.dtype.itemsize))}
    if not own.relative:
        return inputs, None
    given = scales_of_matrices(x) if tensor_scales is None else numpy.array(tensor_scales, numpy.float32)
    return {**inputs, "tensor_scale": Placed(given)}, given


def placed_matrices(
    result: Quantized, names: tuple[str, str], rows: int, format: BlockFormat, settings: Mapping[str, str], gap: int
) -> dict[str, Placed]:
    """Elements and scales of matrices of so many rows, blocks along them. Rows of q start at multiples of 16 bytes."""
    q = Placed(result.q, strides_of_matrices(result.q.shape, gap, 16), stored_as(format))
    layout = settings.get("layout", "plain")
    if layout == "blocked":
        blocks = -(-result.q.shape[2] * format.element.per_byte // format.block)
        return {names[0]: q, names[1]: Placed(result.scales.reshape(len(result.q), *blocked_shape(rows, blocks)))}
    matrices, rows, columns = result.scales.shape
    if layout == "mn_major":
        matrix, column, row = strides_of_matrices((matrices, columns, rows), gap, MN_MAJOR_ALIGNMENT)
        return {names[0]: q, names[1]: Placed(result.scales, (matrix, row, column))}
    return {names[0]: q, names[1]: Placed(result.scales, strides_of_matrices(result.scales.shape, gap, 1))}

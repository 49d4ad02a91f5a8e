"""Stacks of matrices in problems: how they lie in memory, and their tensor scales."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy

from zoo.checks.problem import Placed
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.amax import tensor_amax
from zoo.reference.block_formats import BlockFormat, nvfp4_tensor_scale
from zoo.reference.layouts import blocked_shape
from zoo.reference.quantize import Quantized
from zoo.reference.scales import MN_MAJOR_ALIGNMENT


def every_settings(kernel: Kernel, variant: Variant) -> Iterator[dict[str, str]]:
    """The variant's options with every choice of those that a launch reads."""
    read = {name: option.values for name, option in kernel.options.items() if name not in variant.options}
    for values in itertools.product(*read.values()):
        yield {**variant.options, **dict(zip(read, values, strict=True))}


def strides_of_matrices(shape: tuple[int, int, int], gap: int, unit: int) -> tuple[int, int, int]:
    """Rows start at multiples of `unit` elements, `gap` units further on than they must, matrices likewise."""
    row = -(-shape[2] // unit) * unit + gap * unit
    return shape[1] * row + gap * unit, row, 1


def scales_of_matrices(x: numpy.ndarray) -> numpy.ndarray:
    """NVFP4's tensor scale of each matrix, as the finite numbers in it ask for."""
    with numpy.errstate(invalid="ignore"):
        finite = numpy.where(numpy.isfinite(x.astype(numpy.float32)), x, x.dtype.type(0))
    return numpy.array([nvfp4_tensor_scale(tensor_amax(matrix))[0] for matrix in finite] or [1], numpy.float32)


def placed_matrices(
    result: Quantized, names: tuple[str, str], rows: int, format: BlockFormat, settings: dict[str, str], gap: int
) -> dict[str, Placed]:
    """Elements and scales of matrices of so many rows, blocks along them. Rows of q start at multiples of 16 bytes."""
    q = Placed(result.q, strides_of_matrices(result.q.shape, gap, 16), "e2m1x2" if format.packed else None)
    layout = settings.get("layout", "plain")
    if layout == "blocked":
        blocks = -(-result.q.shape[2] * (1 + format.packed) // format.block)
        return {names[0]: q, names[1]: Placed(result.scales.reshape(len(result.q), *blocked_shape(rows, blocks)))}
    unit = MN_MAJOR_ALIGNMENT if layout == "mn_major" else 1
    return {names[0]: q, names[1]: Placed(result.scales, strides_of_matrices(result.scales.shape, gap, unit))}

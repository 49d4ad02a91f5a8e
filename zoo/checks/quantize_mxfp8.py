"""Problems for MXFP8 quantisation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.problem import Placed, Problem
from zoo.checks.stacks import every_settings
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.layouts import blocked_shape
from zoo.reference.mxfp8 import BLOCK, quantize_mxfp8_rows
from zoo.reference.small_floats import ELEMENTS

# Around the units of the kernels: a block of 32, a line of 512 bytes, a tile of 128 rows x 4 blocks.
_SHAPES = (
    (1, 32), (1, 64), (3, 96), (31, 160), (33, 128), (127, 288), (128, 128), (129, 128), (129, 992), (257, 1056),
    (3, 1056), (5, 7168), (2, 32 * 1025), (4099, 32), (1000, 2112),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    for options in every_settings(kernel, variant):
        yield from _problems(variant.dtypes["x"], variant.dtypes["q"], options)


def _problems(x_dtype: str, element: str, options: Mapping[str, str]) -> Iterator[Problem]:
    def problem(name: str, x: numpy.ndarray, padded: bool = False) -> Problem:
        q, scales = _answer(x, element, **options)
        columns = x.shape[1]
        strides = {}
        if padded:  # rows further apart than they are long; x and q by 16 bytes, plain scales by one
            strides["x"] = (columns + 16 // x.dtype.itemsize, 1)
            strides["q"] = (columns + 48, 1)
            if options["layout"] == "plain":
                strides["scales"] = (columns // BLOCK + 1, 1)
        outputs = {"q": Placed(q, strides.get("q")), "scales": Placed(scales, strides.get("scales"))}
        return Problem(f"{name}, {options['rounding']}", {"x": Placed(x, strides.get("x"))}, outputs, options)

    random = numpy.random.default_rng(20)
    for shape in _SHAPES:
        yield problem(f"shape {shape[0]} x {shape[1]}", spread(shape, x_dtype, BLOCK, random))
    for shape in ((129, 992), (3, 32), (37, 352), (200, 4128)):
        yield problem(f"strided rows, {shape[0]} x {shape[1]}", spread(shape, x_dtype, BLOCK, random), padded=True)
    yield problem("no rows", spread((0, 256), x_dtype, BLOCK, random))
    for name, x in hazards(x_dtype, BLOCK, ELEMENTS[element].dtype):
        yield problem(name, x)


def _answer(x: numpy.ndarray, element: str, rounding: str, layout: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    q, scales = quantize_mxfp8_rows(x, element=element, rounding=rounding, layout=layout)
    if layout == "blocked":
        scales = scales.reshape(blocked_shape(x.shape[0], x.shape[1] // BLOCK))
    return q, scales

"""Problems for MXFP4 quantisation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.problem import Placed, Problem
from zoo.checks.stacks import every_settings
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import Mxfp4
from zoo.reference.layouts import blocked_shape
from zoo.reference.quantize import quantize_rows
from zoo.reference.small_floats import E2M1

BLOCK = Mxfp4.block

# Around the units of the kernels: a block of 32, a line of 512 bytes, a tile of 128 rows x 4 blocks.
_SHAPES = (
    (1, 32), (1, 64), (3, 96), (31, 160), (33, 128), (127, 288), (128, 128), (129, 128), (129, 992), (257, 1056),
    (3, 1056), (5, 7168), (2, 32 * 1025), (4099, 32), (1000, 2112),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if kernel.fields["direction"] != "rows":
        raise NotImplementedError(f"{kernel.name}: zoo/checks/quantize_mxfp4.py knows the direction rows only")
    for options in every_settings(kernel, variant):
        yield from _problems(variant.dtypes["x"], options)


def _problems(dtype: str, options: Mapping[str, str]) -> Iterator[Problem]:
    def problem(name: str, x: numpy.ndarray, padded: bool = False) -> Problem:
        result = quantize_rows(x, Mxfp4(options["rounding"]), options["layout"])
        rows, columns = x.shape
        blocked = options["layout"] == "blocked"
        scales = result.scales.reshape(blocked_shape(rows, columns // BLOCK)) if blocked else result.scales
        strides = {}
        if padded:  # rows further apart than they are long; x and q by 16 bytes or more, plain scales by one
            strides = {"x": (columns + 16 // x.dtype.itemsize, 1), "q": ((columns // 2 + 31) // 16 * 16, 1)}
            if not blocked:
                strides["scales"] = (columns // BLOCK + 1, 1)
        outputs = {"q": Placed(result.q, strides.get("q"), "e2m1x2"), "scales": Placed(scales, strides.get("scales"))}
        return Problem(f"{name}, {options['rounding']}", {"x": Placed(x, strides.get("x"))}, outputs, options)

    random = numpy.random.default_rng(20)
    for shape in _SHAPES:
        yield problem(f"shape {shape[0]} x {shape[1]}", spread(shape, dtype, BLOCK, random))
    for shape in ((129, 992), (3, 32), (37, 352), (200, 4128)):
        yield problem(f"strided rows, {shape[0]} x {shape[1]}", spread(shape, dtype, BLOCK, random), padded=True)
    yield problem("no rows", spread((0, 256), dtype, BLOCK, random))
    for name, x in hazards(dtype, BLOCK, E2M1.dtype):
        yield problem(name, x)

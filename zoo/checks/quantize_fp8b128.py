"""Problems for quantisation to e4m3 with a float32 scale for 128 elements; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.problem import Placed, Problem
from zoo.checks.stacks import every_settings
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import Fp8b128
from zoo.reference.quantize import quantize_rows
from zoo.reference.scales import mn_major_stride
from zoo.reference.small_floats import E4M3

BLOCK = Fp8b128.block

# Around the units of the kernels: 16 columns, a block of 128 and its short ends, a line of 512 bytes, 4 and 8 rows.
_SHAPES = (
    (1, 16), (1, 128), (2, 144), (3, 112), (4, 256), (5, 272), (7, 384), (8, 1008), (9, 1024), (31, 1040), (33, 528), (129, 992),
    (257, 1056), (3, 1040), (5, 7168), (2, 128 * 257 + 16), (4099, 16), (1000, 2112), (65, 576),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if kernel.fields["direction"] != "rows":
        raise NotImplementedError(f"{kernel.name}: zoo/checks/quantize_fp8b128.py knows the direction rows only")
    for options in every_settings(kernel, variant):
        yield from _problems(variant.dtypes["x"], options)


def _problems(dtype: str, options: Mapping[str, str]) -> Iterator[Problem]:
    def problem(name: str, x: numpy.ndarray, padded: bool = False) -> Problem:
        result = quantize_rows(x, Fp8b128(options["scaling"] == "pow2"), options["layout"])
        rows, columns = x.shape
        strides = {}
        if options["layout"] == "mn_major":
            strides["scales"] = (mn_major_stride(rows) + 4 * padded, 1)
        elif padded:
            strides["scales"] = (-(-columns // BLOCK) + 1, 1)
        if padded:  # rows further apart than they are long
            strides |= {"x": (columns + 16 // x.dtype.itemsize, 1), "q": (columns + 48, 1)}
        outputs = {"q": Placed(result.q, strides.get("q")), "scales": Placed(result.scales, strides.get("scales"))}
        return Problem(f"{name}, {options['scaling']}", {"x": Placed(x, strides.get("x"))}, outputs, options)

    random = numpy.random.default_rng(20)
    for shape in _SHAPES:
        yield problem(f"shape {shape[0]} x {shape[1]}", spread(shape, dtype, BLOCK, random))
    for shape in ((129, 992), (3, 16), (37, 400), (200, 4112)):
        yield problem(f"strided rows, {shape[0]} x {shape[1]}", spread(shape, dtype, BLOCK, random), padded=True)
    yield problem("no rows", spread((0, 256), dtype, BLOCK, random))
    for name, x in hazards(dtype, BLOCK, E4M3.dtype):
        yield problem(name, x)
    every = random.integers(0x3F800000, 0x40000000, (4096, 128), dtype=numpy.uint32).view(numpy.float32)
    yield problem("many mantissas of the largest", every.astype(x.dtype))

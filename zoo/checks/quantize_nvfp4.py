"""Problems for NVFP4 quantisation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from zoo.checks.block_inputs import cast, hazards, spread
from zoo.checks.problem import Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.amax import tensor_amax
from zoo.reference.block_formats import NAN, Nvfp4, nvfp4_tensor_scale
from zoo.reference.layouts import blocked_shape
from zoo.reference.quantize import quantize_rows
from zoo.reference.small_floats import E2M1

BLOCK = Nvfp4.block

# Around the units of the kernels: a block of 16, a store of 32 elements, a line of 512 bytes, a tile of 128 rows x 4
# blocks. Odd numbers of blocks end in the middle of a store, and their rows of q start at multiples of 8 bytes only.
_SHAPES = (
    (1, 16), (1, 32), (2, 48), (3, 96), (31, 144), (33, 64), (127, 272), (128, 128), (129, 80), (129, 1008), (257, 1056),
    (3, 1040), (5, 7168), (2, 16 * 2049), (4099, 16), (1000, 2112),
)  # fmt: skip

# Scales of tensors: what the data asks for is tried everywhere; these are wrong for the data, or no scale at all.
_TENSOR_SCALES = (1.0, 1e-3, 0.3, 3.1e-39, 1e-45, 2.0**-126, 2.0**-128, 1.2e35, 3.4e38, numpy.inf, numpy.nan, 0.0)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if kernel.fields["direction"] != "rows":
        raise NotImplementedError(f"{kernel.name}: zoo/checks/quantize_nvfp4.py knows the direction rows only")
    dtype, layouts = variant.dtypes["x"], kernel.options["layout"].values
    finds_amax = "extra" in kernel.fields

    def problem(name: str, x: numpy.ndarray, tensor_scale: float | None = None, padded: int = 0) -> Iterator[Problem]:
        for layout in [variant.options["layout"]] if "layout" in variant.options else layouts:
            yield of_layout(name, x, {"layout": layout}, tensor_scale, padded)

    def of_layout(name: str, x: numpy.ndarray, options: dict[str, str], tensor_scale: float | None, padded: int) -> Problem:
        if tensor_scale is None:
            with numpy.errstate(invalid="ignore"):
                finite = numpy.where(numpy.isfinite(x.astype(numpy.float32)), x, x.dtype.type(0))
            tensor_scale = nvfp4_tensor_scale(tensor_amax(finite))[0]
        given = numpy.array([tensor_scale], numpy.float32)
        if finds_amax:
            with numpy.errstate(over="ignore"):
                amax_before = given * numpy.float32(2688)
            given = nvfp4_tensor_scale(amax_before)
            given = numpy.where(numpy.isnan(given), NAN, given)
        result = quantize_rows(x, Nvfp4(given[0]), options["layout"])
        rows, columns = x.shape
        blocked = options["layout"] == "blocked"
        scales = result.scales.reshape(blocked_shape(rows, columns // BLOCK)) if blocked else result.scales
        strides = {}
        if padded:  # rows further apart than they are long; q by multiples of `padded` bytes
            strides = {"x": (columns + 16 // x.dtype.itemsize, 1), "q": ((columns // 2 // padded + 3) * padded, 1)}
            if not blocked:
                strides["scales"] = (columns // BLOCK + 1, 1)
        inputs = {"x": Placed(x, strides.get("x"))}
        outputs = {"q": Placed(result.q, strides.get("q"), "e2m1x2"), "scales": Placed(scales, strides.get("scales"))}
        if not finds_amax:
            return Problem(name, inputs | {"tensor_scale": Placed(given)}, outputs, options)
        inputs["amax_before"], outputs["amax"] = Placed(amax_before), Placed(tensor_amax(x))
        if not padded:  # an optional result
            outputs["tensor_scale"] = Placed(given)
        workspace = random.integers(-(2**31), 2**31, 2, dtype=numpy.int64).astype(numpy.int32)
        return Problem(name, inputs, outputs, options, {"workspace": Placed(workspace)})

    random = numpy.random.default_rng(20)
    for shape in _SHAPES:
        yield from problem(f"shape {shape[0]} x {shape[1]}", cast(random.standard_normal(shape), dtype))
        yield from problem(f"shape {shape[0]} x {shape[1]}, over all exponents", spread(shape, dtype, BLOCK, random))
    for shape in ((129, 992), (3, 16), (37, 336), (200, 4112)):
        for padded in (8, 16):
            name = f"strided rows, {shape[0]} x {shape[1]}, multiples of {padded} bytes"
            yield from problem(name, spread(shape, dtype, BLOCK, random), padded=padded)
    yield from problem("no rows", spread((0, 256), dtype, BLOCK, random))
    for name, x in hazards(dtype, BLOCK, E2M1.dtype):
        for tensor_scale in (None, 1.0, 1e-5):
            yield from problem(f"{name}, tensor scale {tensor_scale or 'of the data'}", x, tensor_scale)
    for tensor_scale in _TENSOR_SCALES:
        yield from problem(f"tensor scale {tensor_scale:g}", spread((65, 1040), dtype, BLOCK, random), tensor_scale)
        name, x = f"zeros and specials under tensor scale {tensor_scale:g}", dict(hazards(dtype, BLOCK, E2M1.dtype))
        yield from problem(name, list(x.values())[-1], tensor_scale)
    for exponent in range(-40, 8, 3):
        exactly = numpy.float32(random.uniform(1, 2) * 2.0**exponent)
        x = random.standard_normal((257, 1056)) * exactly * 500
        yield from problem(f"tensor scale {exactly:g}", cast(x, dtype), exactly)

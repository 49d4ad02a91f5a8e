"""Problems for quantisers along K of one matrix; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.checked_format import format_of, scale_of_tensor
from zoo.checks.layouts import in_rows
from zoo.checks.placing import every_settings, placed
from zoo.checks.problem import Later, Placed, Problem, dtype_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.amax import tensor_amax
from zoo.reference.block_formats import NAN, nvfp4_tensor_scale
from zoo.reference.fragments import permuted_columns
from zoo.reference.quantize import quantize_rows

# By the block. Around the units of the kernels: a block and, of 128, its short ends; a line of 512 bytes, 4 and 8 rows, a tile of
# 128 rows x 4 blocks. Odd numbers of blocks of 16 end in the middle of a store, and their rows of q start at multiples of 8 bytes only.
_SHAPES = {
    16: (
        (1, 16), (1, 32), (2, 48), (3, 96), (31, 144), (33, 64), (127, 272), (128, 128), (129, 80), (129, 1008), (257, 1056),
        (3, 1040), (5, 7168), (2, 16 * 2049), (4099, 16), (1000, 2112),
    ),
    32: (
        (1, 32), (1, 64), (3, 96), (31, 160), (33, 128), (127, 288), (128, 128), (129, 128), (129, 992), (257, 1056),
        (3, 1056), (5, 7168), (2, 32 * 1025), (4099, 32), (1000, 2112),
    ),
    128: (
        (1, 16), (1, 128), (2, 144), (3, 112), (4, 256), (5, 272), (7, 384), (8, 1008), (9, 1024), (31, 1040), (33, 528), (129, 992),
        (257, 1056), (3, 1040), (5, 7168), (2, 128 * 257 + 16), (4099, 16), (1000, 2112), (65, 576),
    ),
}  # fmt: skip
_STRIDED = {
    16: ((129, 992), (3, 16), (37, 336), (200, 4112)),
    32: ((129, 992), (3, 32), (37, 352), (200, 4128)),
    128: ((129, 992), (3, 16), (37, 400), (200, 4112)),
}

# Scales of tensors: what the data asks for is tried everywhere; these are wrong for the data, or no scale at all.
_TENSOR_SCALES = (1.0, 1e-3, 0.3, 3.1e-39, 1e-45, 2.0**-126, 2.0**-128, 1.2e35, 3.4e38, numpy.inf, numpy.nan, 0.0)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    dtype, own, random = dtype_of(kernel, variant, "x"), format_of(kernel, variant), numpy.random.default_rng(20)
    block, finds_amax = own.block, kernel.fields.get("extra") == "amax"
    written = [chosen for chosen in every_settings(kernel, variant) if dtype != "f32" or chosen.get("order") != "fragments"]

    def under_each(name: str, x: numpy.ndarray, tensor_scale: float | None = None, unit: int = 0) -> Iterator[Problem]:
        """`unit`: rows further apart than they are long, those of q by a multiple of so many bytes."""
        given = numpy.array([tensor_scale], numpy.float32)
        if own.relative and tensor_scale is None:
            given = scale_of_tensor(x)
        for chosen in written:
            words = ", ".join([name, *(value for option, value in chosen.items() if option != "layout")])
            yield problem(words, x, chosen, given, unit)

    def problem(name: str, x: numpy.ndarray, chosen: dict[str, str], given: numpy.ndarray, unit: int) -> Problem:
        inputs, found, workspaces = {"x": Placed(x, (x.shape[1] + 16 // x.dtype.itemsize, 1) if unit else None)}, {}, {}
        if finds_amax:
            with numpy.errstate(over="ignore"):
                inputs["amax_before"] = Placed(given * numpy.float32(2688))
            given = nvfp4_tensor_scale(inputs["amax_before"].values)
            given = numpy.where(numpy.isnan(given), NAN, given)
            if not unit:  # an optional result
                found["tensor_scale"] = Placed(given)
            workspaces["workspace"] = Placed(random.integers(-(2**31), 2**31, 2, dtype=numpy.int64).astype(numpy.int32))
        elif own.relative:
            inputs["tensor_scale"] = Placed(given)

        def outputs() -> dict[str, Placed]:
            format, layout = own.made(chosen, given), chosen["layout"]
            result = quantize_rows(x, format, layout)
            if chosen.get("order") == "fragments":
                result = replace(result, q=in_rows(permuted_columns(result.q)))
            width = result.q.shape[1]
            step = (width // unit + 3) * unit if unit else width
            answers = placed(result, ("q", "scales"), x.shape, format, layout, step, 1 if unit else 0)
            return answers | found | ({"amax": Placed(tensor_amax(x))} if finds_amax else {})

        return Problem(name, inputs, Later(outputs), chosen, workspaces)

    for rows, columns in dict.fromkeys((rows, own.columns(columns)) for rows, columns in own.among(_SHAPES)):
        if own.relative:
            yield from under_each(f"shape {rows} x {columns}", cast(random.standard_normal((rows, columns)), dtype))
        words = f"shape {rows} x {columns}" + ", over all exponents" * own.relative
        yield from under_each(words, spread((rows, columns), dtype, block, random))
    units = dict.fromkeys((own.row_unit, 16))
    for rows, columns in own.among(_STRIDED):
        shape = rows, own.columns(columns)
        for unit in units:
            words = f"strided rows, {shape[0]} x {shape[1]}" + f", multiples of {unit} bytes" * (len(units) > 1)
            yield from under_each(words, spread(shape, dtype, block, random), unit=unit)
    yield from under_each("no rows", spread((0, 256), dtype, block, random))
    special = dict(hazards(dtype, block, own.element.dtype))
    for name, x in special.items():
        for scale in (None, 1.0, 1e-5) if own.relative else (None,):
            yield from under_each(name + f", tensor scale {scale or 'of the data'}" * own.relative, x, scale)
    if own.record.scales == "f32":
        every = random.integers(0x3F800000, 0x40000000, (4096, block), dtype=numpy.uint32).view(numpy.float32)
        yield from under_each("many mantissas of the largest", every.astype(numpy_dtype(dtype)))
    for scale in _TENSOR_SCALES if own.relative else ():
        yield from under_each(f"tensor scale {scale:g}", spread((65, 1040), dtype, block, random), scale)
        yield from under_each(f"zeros and specials under tensor scale {scale:g}", list(special.values())[-1], scale)
    for exponent in range(-40, 8, 3) if own.relative else ():
        exactly = float(numpy.float32(random.uniform(1, 2) * 2.0**exponent))
        x = random.standard_normal((257, 1056)) * numpy.float32(exactly) * 500
        yield from under_each(f"tensor scale {exactly:g}", cast(x, dtype), exactly)

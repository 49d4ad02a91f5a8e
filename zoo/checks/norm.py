"""Problems for RMSNorm; every answer is that of zoo.reference.norm, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle

import numpy

from zoo.checks.block_inputs import random_bits, specials, spread
from zoo.checks.checked_format import format_of
from zoo.checks.layouts import in_rows
from zoo.checks.placing import every_settings, placed, up_to
from zoo.checks.problem import Later, Placed, Problem, dtype_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.fragments import permuted_columns
from zoo.reference.norm import rms_norm, rounded
from zoo.reference.quantize import Quantized, quantize_rows
from zoo.reference.token_rows import quantize_token_rows

# Around a lane's 8 columns, a block of 128, a piece of 256, a warp's 1024, and the columns of each tile; few and many rows a CTA.
_SHAPES = (
    (1, 16), (3, 128), (2, 144), (33, 240), (5, 272), (9, 1008), (4, 1024), (3, 1040), (7, 2048), (2, 2880), (1, 4096), (2, 4112), (1, 5008), (1, 6000), (1, 7168),
    (1, 8192), (1, 8208), (1, 8320),
    (1, 9232), (1, 9984), (1, 16_384), (300, 2880), (129, 7168), (4099, 64), (37, 16_384),
)  # fmt: skip
_STRIDED = ((37, 336), (3, 2896), (1, 9232))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    make = _Forward(kernel, variant)
    dtype, random = make.dtype, numpy.random.default_rng(60)
    for rows, columns in _SHAPES:
        yield from make.each(f"shape {rows} x {columns}", cast(random.standard_normal((rows, columns)), dtype))
    for rows, columns in _STRIDED:
        yield from make.each(f"strided rows, {rows} x {columns}", cast(random.standard_normal((rows, columns)), dtype), gap=1)
    yield from make.each("no rows", cast(numpy.zeros((0, 256)), dtype))
    yield from make.each("no columns", cast(numpy.zeros((5, 0)), dtype))
    for name, x, eps in hazards(dtype, random):
        yield from make.each(name, x, eps=eps)
    for columns in (6000, 9008):
        long = cast(random.standard_normal((1, columns)), dtype)
        yield from make.each(f"blocks over all exponents in a row of {columns}", spread((1, columns), dtype, 128, random))
        long[0, columns - 2] = numpy.nan
        yield from make.each(f"NaN at the end of a row of {columns}", long)


def hazards(dtype: str, random: numpy.random.Generator) -> Iterator[tuple[str, numpy.ndarray, float]]:
    """Rows, and what is added to their mean of squares."""
    ordinary = cast(random.standard_normal((8, 1296)), dtype)
    for eps in (0.0, 1e-30, 1.0, float("inf")):
        yield f"eps {eps:g}, a row of zeros", numpy.where(numpy.arange(8)[:, None] == 3, ordinary.dtype.type(0), ordinary), eps
    for special in (numpy.nan, numpy.inf, -numpy.inf):
        place = ordinary.copy()
        place[numpy.arange(0, 8, 2), numpy.arange(0, 8, 2) * 160] = special
        yield f"one {special} at a place of every other row", place, 1e-6
    yield "every row over all exponents: squares overflow and underflow", spread((16, 1296), dtype, 1296, random), 1e-6
    yield "blocks over all exponents", spread((8, 1296), dtype, 128, random), 1e-6
    yield "rows of equal squares at the ends of the exponents", _ends(dtype), 0.0
    yield "random bits", random_bits((8, 1296), dtype, random), 1e-6
    yield "zeros, infinities, NaNs and subnormals", specials(dtype, 32).reshape(-1, 32)[:120], 1e-6


def _ends(dtype: str) -> numpy.ndarray:
    """Sums of squares next to the largest and to the smallest float32, and beyond."""
    powers = (-14, -24, 7, 15) if dtype == "f16" else (-63, -64, -74, -75, -76, 58, 59, 60, 63, 64)
    return cast(numpy.full((1, 272), 1.0) * numpy.ldexp(1.0, numpy.array(powers))[:, None], dtype)


class _Forward:
    """By turns with a residual and without, and with all optional results or none."""

    def __init__(self, kernel: Kernel, variant: Variant):
        self.kernel, self.variant = kernel, variant
        self.dtype, self.weight_dtype = dtype_of(kernel, variant, "x"), dtype_of(kernel, variant, "weight")
        self.random, self.formats = numpy.random.default_rng(61), kernel.fields.get("formats")
        self.turns = cycle(((True, True), (False, False), (True, False), (False, True), (True, True)))

    def each(self, name: str, x: numpy.ndarray, gap: int = 0, eps: float = 1e-6) -> Iterator[Problem]:
        for chosen in every_settings(self.kernel, self.variant) if self.formats else [{}, {}]:
            with_residual, with_all = next(self.turns)
            words = ", ".join([name, *chosen.values(), *["residual"] * with_residual, *["all results"] * with_all])
            yield self.problem(words, x, chosen, gap, eps, with_residual, with_all)

    def problem(
        self, name: str, x: numpy.ndarray, chosen: dict[str, str], gap: int, eps: float, with_residual: bool, with_all: bool
    ) -> Problem:
        columns = x.shape[1]
        steps = up_to(columns, 8) + 8 * gap, 1
        weight = cast(numpy.asarray(1 + self.random.standard_normal(columns) / 2), self.weight_dtype)
        inputs = {"x": Placed(x, steps), "weight": Placed(weight)}
        residual = None
        if with_residual:  # not of the size of x: one of them would be lost in the other
            with numpy.errstate(all="ignore"):
                residual = cast(x.astype(numpy.float32)[::-1] * self.random.uniform(-1, 1, x.shape).astype(numpy.float32), self.dtype)
            inputs["residual"] = Placed(residual, steps)

        def outputs() -> dict[str, Placed]:
            found = rms_norm(x, weight, eps, residual)
            answers = {"y": Placed(rounded(found.y, x.dtype), steps)} if with_all or not self.formats else {}
            if with_all:
                answers |= {"sum": Placed(found.s, steps), "rstd": Placed(found.rstd)}
            return answers | self.quantized(found.y, chosen, gap)

        return Problem(name, inputs, Later(outputs), {**chosen, "eps": eps})

    def quantized(self, y: numpy.ndarray, chosen: dict[str, str], gap: int) -> dict[str, Placed]:
        if not self.formats:
            return {}
        if self.formats == "fp8token":
            result = quantize_token_rows(y, chosen["order"])
            q = in_rows(result.q) if chosen["order"] == "fragments" else result.q
            return {"q": Placed(q, (up_to(q.shape[1], 16) + 16 * gap, 1)), "scales": Placed(result.scales)}
        format = format_of(self.kernel, self.variant).made(chosen)
        found: Quantized = quantize_rows(y, format, chosen["layout"])
        if chosen["order"] == "fragments":
            found = replace(found, q=in_rows(permuted_columns(found.q)))
        step = up_to(found.q.shape[1], 16) + 16 * gap
        return placed(found, ("q", "scales"), y.shape, format, chosen["layout"], step, gap)

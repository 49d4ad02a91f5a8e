"""Problems for the backward pass of RMSNorm; every answer is that of zoo.reference.norm, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any

import numpy

from zoo.checks.block_inputs import spread
from zoo.checks.norm import hazards
from zoo.checks.problem import Later, Placed, Problem, dtype_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.norm import rms_norm, rms_norm_backward, sum_of_parts


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if "weight" in kernel.fields.values():
        return _weight_problems(kernel, variant)
    return _backward_problems(kernel, variant)


# Also more rows than partial sums: 2112 of at most 1024 columns, 264 of more than 4096, 132 of more than 8192.
_BACKWARD = (
    (1, 8), (3, 128), (2, 136), (33, 240), (9, 1000), (4, 1024), (3, 1040), (7, 2048), (2, 2880), (1, 7168), (1, 8192), (1, 8200), (1, 16_384),
    (2113, 8), (4300, 8), (600, 2880), (529, 4104), (300, 7168), (140, 8200), (265, 16_384),
)  # fmt: skip


def _backward_problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    dtype, weight_dtype, random = dtype_of(kernel, variant, "x"), dtype_of(kernel, variant, "weight"), numpy.random.default_rng(62)
    turns = cycle((True, False, False, True))

    def each(name: str, x: numpy.ndarray, dy: numpy.ndarray, gap: int = 0, eps: float = 1e-6) -> Iterator[Problem]:
        for with_parts in (True, False):
            with_sum = next(turns)
            words = ", ".join([name, *["with the weight's"] * with_parts, *["with dsum"] * with_sum])
            yield problem(words, x, dy, gap, eps, with_parts, with_sum)

    def problem(name: str, x: numpy.ndarray, dy: numpy.ndarray, gap: int, eps: float, with_parts: bool, with_sum: bool) -> Problem:
        rows, columns = x.shape
        steps = columns + 8 * gap, 1
        weight = cast(numpy.asarray(1 + random.standard_normal(columns) / 2), weight_dtype)
        rstd = rms_norm(x, weight, eps).rstd
        inputs = {"dy": Placed(dy, steps), "x": Placed(x, steps), "weight": Placed(weight), "rstd": Placed(rstd)}
        dsum: Any = cast(random.standard_normal(x.shape), dtype) if with_sum else None
        if with_sum:
            inputs["dsum"] = Placed(dsum, steps)

        def outputs() -> dict[str, Placed]:
            dx, sums = rms_norm_backward(dy, x, weight, rstd, number_of_parts(rows, columns), dsum)
            return {"dx": Placed(dx, steps)} | ({"dweight_parts": Placed(sums)} if with_parts else {})

        return Problem(name, inputs, Later(outputs))

    for rows, columns in _BACKWARD:
        x, dy = (cast(random.standard_normal((rows, columns)), dtype) for _ in range(2))
        yield from each(f"shape {rows} x {columns}", x, dy)
    for rows, columns in ((37, 336), (3, 2896), (1, 9232)):
        x, dy = (cast(random.standard_normal((rows, columns)), dtype) for _ in range(2))
        yield from each(f"strided rows, {rows} x {columns}", x, dy, gap=1)
    yield from each("no rows", cast(numpy.zeros((0, 256)), dtype), cast(numpy.zeros((0, 256)), dtype))
    for name, x, eps in hazards(dtype, random):
        ordinary = cast(random.standard_normal(x.shape), dtype)
        yield from each(f"{name}, in x", x, ordinary, eps=eps)
        if x.shape[1] > 300:
            yield from each(f"{name}, in dy", ordinary, x, eps=eps)


def number_of_parts(rows: int, columns: int) -> int:
    """The rows of dweight_parts."""
    return min(rows, 264 * (8 // max(-(-columns // 1024), 1)) if columns <= 8192 else 132)


def _weight_problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    dtype, random = variant.dtypes.get("dweight", "f32"), numpy.random.default_rng(63)

    def problem(name: str, parts: numpy.ndarray) -> Problem:
        outputs = Later(lambda: {"dweight": Placed(sum_of_parts(parts, numpy_dtype(dtype)))})
        return Problem(name, {"dweight_parts": Placed(parts)}, outputs)

    for rows, columns in (
        (0, 40),
        (1, 8),
        (7, 32),
        (8, 33),
        (9, 31),
        (63, 65),
        (64, 96),
        (65, 160),
        (72, 100),
        (264, 64),
        (2112, 8),
        (264, 7168),
    ):
        yield problem(f"shape {rows} x {columns}", random.standard_normal((rows, columns)).astype(numpy.float32))
    yield problem("no columns", numpy.zeros((5, 0), numpy.float32))
    bits = random.integers(0, 1 << 32, (70, 96), dtype=numpy.uint32).view(numpy.float32)
    yield problem("random bits", bits)
    yield problem("over all exponents", spread((70, 96), "f32", 1, random))
    place = random.standard_normal((70, 96)).astype(numpy.float32)
    place[numpy.arange(0, 70, 3), numpy.arange(0, 70, 3)] = numpy.nan
    yield problem("NaN in some columns", place)

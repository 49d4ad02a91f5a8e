"""Problems for the largest magnitude of a matrix or of groups of its rows; every answer is that of zoo.reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy

from zoo.checks.block_inputs import every_pattern, random_bits, specials
from zoo.checks.problem import Placed, Problem, dtype_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.amax import group_amax, tensor_amax
from zoo.reference.block_formats import nvfp4_tensor_scale

# Around a vector of 16 bytes, a warp's piece of 1024 or 2048 elements, a CTA's eight pieces, two CTAs.
_SHAPES = (
    (1, 1), (1, 7), (3, 5), (1, 16), (2, 1024), (1, 2047), (1, 2049), (5, 3000), (9, 1025), (8, 2048), (17, 1024), (17, 1030), (1, 19999),
    (4099, 4), (60, 2100), (1000, 2112), (33, 40000),
)  # fmt: skip
# Rows, columns, sizes of the groups. What the sizes leave of the rows belongs to nobody.
_GROUPS = (
    (1, 3, (1,)), (5, 16, (0, 5)), (7, 100, (3, 0, 4)), (64, 18, (0, 0, 0)), (130, 8, (129, 1)), (9, 2049, (1, 0, 2, 6)), (2000, 9, (1999,)),
    (600, 1, (1,) * 599), (40, 320, (1,) * 40), (300, 16, (1,) * 260 + (0,) * 20 + (30,)), (20, 999, (7, 7)), (18, 1025, (9, 9)),
    (7, 16, (3,) + (0,) * 300 + (4,)),  # one CTA meets more groups than it has threads
    (1000, 2112, (300, 0, 17, 500)), (5000, 90, (4000, 0, 900)),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    dtype, grouped = dtype_of(kernel, variant, "x"), "grouping" in kernel.fields
    random = numpy.random.default_rng(9)
    of_groups: Sequence[tuple[int, int, tuple[int, ...] | None]] = _GROUPS if grouped else [(*shape, None) for shape in _SHAPES]
    for number, (rows, columns, sizes) in enumerate(of_groups):
        x = cast(random.standard_normal((rows, columns)) * 2.0 ** random.integers(-30, 14, (rows, 1)), dtype)
        words = f"{rows} x {columns}" + (f", groups of {list(sizes)}" if sizes is not None else "")
        for gap in (0, 1, 16):  # between rows, which then start anywhere, or at multiples of 32 bytes
            yield problem(random, x, sizes, gap, f"{words}, rows {gap} apart")
        for special in _specials(dtype):
            yield problem(random, _with(x, special, random), sizes, number % 3, f"{words}, {special!r} somewhere")
    for name, x in (
        ("random bits", random_bits((65, 257), dtype, random)),
        ("finite random bits", _finite(random_bits((65, 257), dtype, random))),
        ("every finite bit pattern", _finite(every_pattern(dtype)).reshape(128, -1)),
        ("zeros, infinities, NaNs and subnormals", specials(dtype, 16)),
    ):
        yield problem(random, x, (3, 0, 17, 40) if grouped else None, 0, name)
    if grouped:
        patterns = every_pattern(dtype)
        yield problem(random, patterns[:, None], (1,) * len(patterns), 0, "every bit pattern, each a group")
    for shape in ((0, 64), (5, 0)):
        yield problem(random, cast(numpy.zeros(shape), dtype), (0, 0) if grouped else None, 0, f"{shape[0]} x {shape[1]}")


def problem(random: numpy.random.Generator, x: numpy.ndarray, sizes: Sequence[int] | None, gap: int, name: str) -> Problem:
    """The workspace holds anything. Rows that belong to no group are NaN where they may be."""
    row = x.shape[1] + gap if gap != 16 else -(-x.shape[1] // 16) * 16 + 16
    inputs, workspace = {}, random.integers(-(2**31), 2**31, 2, dtype=numpy.int64).astype(numpy.int32)
    if sizes is None:
        answer = tensor_amax(x)
    else:
        offsets = numpy.cumsum(sizes).astype(numpy.int32)
        x = x.copy()
        x[offsets[-1] :] = numpy.nan
        inputs["offsets"], answer = Placed(offsets), group_amax(x, offsets)
    inputs["x"] = Placed(x, (row, 1) if gap else None)
    outputs = {"amax": Placed(answer)}
    if random.integers(2):  # optional
        outputs["tensor_scale"] = Placed(nvfp4_tensor_scale(answer))
    return Problem(name, inputs, outputs, workspaces={"workspace": Placed(workspace)})


def _specials(dtype: str) -> list[numpy.floating]:
    kind = numpy_dtype(dtype)
    smallest = numpy.array(1, f"u{kind.itemsize}").view(kind)[()]
    return [kind.type(numpy.nan), -kind.type(numpy.nan), -kind.type(numpy.inf), smallest]


def _with(x: numpy.ndarray, special: numpy.floating, random: numpy.random.Generator) -> numpy.ndarray:
    """x with one element replaced; where the special is the smallest number, all others are 0."""
    tiny = 0 < float(special) < 1e-4
    x = numpy.zeros_like(x) if tiny else x.copy()
    x[tuple(random.integers(0, extent) for extent in x.shape)] = special
    return x


def _finite(x: numpy.ndarray) -> numpy.ndarray:
    return numpy.where(numpy.isfinite(x.astype(numpy.float32)), x, x.dtype.type(0))

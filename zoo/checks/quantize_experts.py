"""Problems for quantising weights (E, N, K) along N; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.checked_format import format_of
from zoo.checks.placing import every_settings, given_matrices, placed_matrices
from zoo.checks.problem import Later, Placed, Problem, dtype_of
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.quantize import quantize_cols

# Around 16 bytes of a row of q, blocks along N, tiles of 256 x 64: boxes end in matrices that others follow.
_SHAPES = (
    (1, 1, 8), (3, 15, 16), (2, 16, 24), (5, 17, 40), (3, 31, 72), (2, 32, 64), (3, 33, 56), (2, 64, 136), (9, 3, 8), (3, 65, 64),
    (2, 127, 72), (1, 128, 128), (3, 129, 40), (2, 255, 24), (2, 256, 32), (2, 257, 24), (3, 511, 72), (2, 1025, 152),
    (70, 40, 72), (300, 33, 8), (2, 3, 4104), (4, 512, 192),
)  # fmt: skip
_TENSOR_SCALES = (1.0, 1e-3, 3.1e-39, 2.0**-128, 3.4e38, numpy.inf, numpy.nan, 0.0)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    dtype, own, random = dtype_of(kernel, variant, "x"), format_of(kernel, variant), numpy.random.default_rng(23)
    choices = list(every_settings(kernel, variant))

    def problem(
        what: str, x: numpy.ndarray, settings: dict[str, str], gap: int = 0, tensor_scales: Sequence[float] | None = None
    ) -> Problem:
        inputs, given = given_matrices(x, own, gap, tensor_scales)

        def outputs() -> dict[str, Placed]:
            format = own.made(settings, given)
            return placed_matrices(quantize_cols(x, format, settings["layout"]), ("q", "scales"), x.shape[2], format, settings, gap)

        return Problem(f"{what}, {', '.join(settings.values())}", inputs, Later(outputs), settings)

    def matrices(shape: tuple[int, int, int]) -> numpy.ndarray:
        """Blocks along N, each at a scale of its own."""
        E, N, K = shape
        return numpy.ascontiguousarray(spread((E * K, N), dtype, own.block, random).reshape(E, K, N).swapaxes(1, 2))

    turns = cycle(choices)
    for shape in _SHAPES:
        for _ in range(len(choices) // 2 + 1):
            yield problem(f"shape {' x '.join(map(str, shape))}", matrices(shape), next(turns))
    for shape in ((2, 33, 72), (3, 130, 40), (2, 256, 64), (3, 300, 200)):
        for gap in (1, 3):
            yield problem(f"strided, shape {' x '.join(map(str, shape))}, gap {gap}", matrices(shape), next(turns), gap)
    for shape in ((0, 32, 128), (2, 0, 128), (2, 32, 0)):
        yield problem(f"nothing: {shape}", matrices(shape), next(turns))
    layouts = cycle(("plain", choices[-1]["layout"]))
    for (name, blocks), layout in zip(hazards(dtype, own.block, own.element.dtype), layouts, strict=False):
        length = blocks.shape[1]
        every = numpy.resize(blocks, (-(-len(blocks) // 16) * 16, length)).reshape(2, -1, length)  # two matrices
        for settings in choices:
            if settings["layout"] == layout:
                yield problem(name, numpy.ascontiguousarray(every.swapaxes(1, 2)), settings)
    if own.relative:
        for tensor_scale in _TENSOR_SCALES:
            yield problem(f"tensor scale {tensor_scale:g}", matrices((1, 65, 48)), next(turns), tensor_scales=[tensor_scale])
        x = matrices((len(_TENSOR_SCALES), 33, 32))
        yield problem("a tensor scale for each matrix", x, next(turns), tensor_scales=_TENSOR_SCALES)

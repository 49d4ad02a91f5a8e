"""Problems for quantisation along M and along both dimensions at once; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.checked_format import format_of, scale_of_tensor
from zoo.checks.placing import placed_apart
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.quantize import quantize_both, quantize_cols

# Around 16 bytes of a row of q, blocks along M, tiles of 128 or 256 x 64 or 128, tiles of blocked scales.
_COLS_SHAPES = (
    (1, 8), (15, 16), (16, 24), (17, 40), (31, 32), (32, 56), (33, 64), (63, 72), (64, 8), (65, 136), (96, 120), (127, 128),
    (128, 136), (129, 72), (129, 200), (160, 192), (255, 264), (257, 56), (1023, 96), (1025, 152), (1152, 64), (2100, 328),
    (3, 4104), (16389, 8),
)  # fmt: skip
_BOTH_SHAPES = (  # M, and K by 32
    (1, 1), (15, 2), (16, 3), (17, 1), (31, 5), (32, 4), (33, 9), (64, 2), (65, 5), (127, 6), (128, 4), (129, 3), (129, 31), (160, 2),
    (255, 3), (257, 1), (1023, 2), (1025, 5), (1152, 2), (2100, 11), (3, 129), (16389, 1),
)  # fmt: skip
# Where K is a multiple of 16: half of what the copy engine stores, and short blocks of 128 along K.
_BOTH_HALVES = {
    16: ((1, 16), (17, 16), (33, 48), (5, 144), (130, 272)),
    128: ((1, 16), (3, 16), (31, 48), (33, 144), (130, 272)),
}
_TENSOR_SCALES = (1.0, 0.3, 1e-45, 2.0**-128, 3.4e38, numpy.inf, numpy.nan, 0.0)


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    both, own = kernel.fields["direction"] == "both", format_of(kernel, variant)

    def problem(
        name: str, x: numpy.ndarray, choice: dict[str, str], layout: str, gap: int = 0, tensor_scale: float | None = None
    ) -> Problem:
        given = scale_of_tensor(x) if tensor_scale is None else numpy.array([tensor_scale], numpy.float32)
        format = own.made(choice, given)
        inputs = {"x": Placed(x, (x.shape[1] + gap * 16 // x.dtype.itemsize, 1))}
        if own.relative:
            inputs["tensor_scale"] = Placed(given)

        def outputs() -> dict[str, Placed]:
            if not both:
                return placed_apart(quantize_cols(x, format, layout), ("q", "scales"), x.shape[::-1], format, layout, gap)
            along_k, along_m = quantize_both(x, format, layout)
            rows = placed_apart(along_k, ("q_rows", "scales_rows"), x.shape, format, layout, gap)
            return rows | placed_apart(along_m, ("q_cols", "scales_cols"), x.shape[::-1], format, layout, gap)

        settings = {"layout": layout, **choice}
        return Problem(", ".join((name, *settings.values())), inputs, Later(outputs), settings)

    dtype, block, random = dtype_of(kernel, variant, "x"), own.block, numpy.random.default_rng(21)
    layouts, choices = values_of(kernel, "layout"), cycle(own.choices)
    shapes: Sequence[tuple[int, int]] = _COLS_SHAPES
    if both:
        shapes = [(rows, own.columns(32 * across)) for rows, across in _BOTH_SHAPES]
        shapes += own.among(_BOTH_HALVES) if own.unit == 16 else ()
    for shape in dict.fromkeys(shapes):
        x = numpy.ascontiguousarray(spread(shape[::-1], dtype, block, random).T)
        choice = next(choices)
        yield from (problem(f"shape {shape[0]} x {shape[1]}", x, choice, layout) for layout in layouts)
    for rows, across in ((129, 31), (3, 1), (129, 3), (200, 13), (256, 2)):
        shape = rows, own.columns(32 * across) if both else 32 * across
        x, choice = spread(shape, dtype, block, random), next(choices)
        yield from (problem(f"strided rows, {shape[0]} x {shape[1]}", x, choice, layout, gap=3) for layout in layouts)
    yield from (problem("no rows", spread((0, 256), dtype, block, random), next(choices), layout) for layout in layouts)
    for name, blocks in hazards(dtype, block, own.element.dtype):  # a row of blocks there is a column here
        every = numpy.resize(blocks, (-(-len(blocks) // 32) * 32, blocks.shape[1]))
        for choice, layout in product(own.choices, layouts):
            yield problem(name, numpy.ascontiguousarray(every.T), choice, layout)
    for tensor_scale in _TENSOR_SCALES if own.relative else ():
        x = numpy.ascontiguousarray(spread((48, 272), dtype, block, random).T)
        yield from (problem(f"tensor scale {tensor_scale:g}", x, {}, layout, tensor_scale=tensor_scale) for layout in layouts)

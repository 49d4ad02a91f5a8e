"""Problems for quantisation along M where groups of rows lie along M, ragged or padded; every answer is that of zoo.reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

import numpy

from zoo.checks.block_inputs import every_pattern, random_bits, spread
from zoo.checks.checked_format import format_of, scale_of_tensor, stored_as
from zoo.checks.placing import longer, placed_apart, strides_of_scales, up_to
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import BlockFormat
from zoo.reference.groups import group_sizes, padded_bounds, padded_rows
from zoo.reference.quantize import quantize_cols
from zoo.reference.scales import blocked_column_groups_shape, columns_of_groups

# (sizes of groups, rows after the last one, K). Around 16 bytes of q, halves of a byte, blocks of 16, 32 and 128, tiles of
# 128 rows, 32 groups that a warp looks at together.
_GROUPS = (
    ((1,), 0, 8), ((5,), 3, 16), ((0,), 7, 24), ((0, 0, 0), 0, 8), ((17,), 0, 40), ((128,), 0, 8), ((129,), 31, 64),
    ((16, 32, 48), 0, 72), ((1, 1, 1, 1, 1), 0, 64), ((3, 0, 0, 5, 0, 2), 1, 56), ((0, 33, 0, 31), 0, 136),
    ((31, 1, 95, 1), 5, 64),
    ((127, 129), 0, 24), ((128, 0, 128, 128), 0, 32), ((255, 1, 0, 2), 0, 48), ((64, 96, 16), 16, 64), ((7,) * 33, 0, 16),
    ((0,) * 40 + (9, 0, 4), 2, 8), ((0, 3) * 35, 0, 8), ((130, 0, 0, 383), 100, 40), ((1000, 1, 0, 1047), 0, 200),
    ((2048,), 0, 328),
    (tuple(range(70)), 30, 128), ((4099, 0, 5003), 7, 64),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    own, padded = format_of(kernel, variant), kernel.fields["grouping"] == "m_grouped_padded"
    dtype, block, random = dtype_of(kernel, variant, "x"), own.block, numpy.random.default_rng(22)
    layouts, choices, gaps = cycle(values_of(kernel, "layout")), cycle(own.choices), cycle((0, 3))

    def problem(name: str, x: numpy.ndarray, sizes: Sequence[int], layout: str, one_scale: bool = True) -> Problem:
        choice, gap, offsets = next(choices), next(gaps), numpy.cumsum(sizes).astype(numpy.int32)
        inputs = {"x": Placed(x, (x.shape[1] + gap * 16 // x.dtype.itemsize, 1)), "offsets": Placed(offsets)}
        given = scale_of_tensor(x) * (1 if one_scale else numpy.linspace(0.5, 2, len(sizes), dtype=numpy.float32))
        if own.relative:
            inputs["tensor_scale"] = Placed(given.astype(numpy.float32))
        format, lay = own.made(choice, given.astype(numpy.float32)), _padded if padded else _ragged
        outputs = Later(lambda: lay(x, format, layout, offsets, gap))
        return Problem(f"{name}, {layout}", inputs, outputs, {"layout": layout, **choice})

    for sizes, after, columns in _GROUPS:
        x = numpy.ascontiguousarray(spread((columns, sum(sizes) + after), dtype, block, random).T)
        x[sum(sizes) :] = numpy.nan  # nobody's
        first = ", ".join(map(str, sizes[:6])) + (", .." if len(sizes) > 6 else "")
        words = f"groups of {first}, {after} rows after them, {columns} columns"
        for layout in values_of(kernel, "layout"):
            yield problem(words, x, sizes, layout, one_scale=after == 0)
    for between in (numpy.nan, numpy.inf):
        x = numpy.ascontiguousarray(spread((64, 41 + 2 + 33 + 51), dtype, block, random).T)
        x[41:43] = between
        yield problem(f"a group of {between} between others", x, (41, 2, 33, 51), next(layouts))
    for layout in values_of(kernel, "layout"):
        yield problem("no rows", spread((0, 64), dtype, block, random), (0, 0), layout)
        yield problem("random bits", random_bits((261, 64), dtype, random), (101, 33, 127), layout, one_scale=False)
    patterns = every_pattern(dtype)
    x = numpy.ascontiguousarray(patterns.reshape(-1, block).T)
    yield problem("every bit pattern among its neighbours", x, (block,), next(layouts))
    for layout in values_of(kernel, "layout"):
        x = random.permutation(patterns).reshape(4 * block, -1)
        yield problem("every bit pattern, shuffled", x, (block + 1, 0, block - 5, 2 * block + 4), layout)


def _ragged(x: numpy.ndarray, format: BlockFormat, layout: str, offsets: numpy.ndarray, gap: int) -> dict[str, Placed]:
    """Rows of x keep their place in q; scales are as long as the sizes of the groups may ask."""
    rows, columns = x.shape
    result, per_byte = quantize_cols(x, format, layout, offsets), format.element.per_byte
    step = up_to(rows, 16 * per_byte) // per_byte + 16 * gap
    outputs = {"q": longer(result.q, -(-rows // per_byte), step, stored_as(format), axis=1)}
    if layout == "blocked":
        shape = blocked_column_groups_shape(columns, rows, len(offsets), format.block)
        return outputs | {"scales": Placed(result.scales.reshape(shape))}
    blocks = -(-rows // format.block) + len(offsets)
    assert columns_of_groups(group_sizes(offsets, rows), format.block).sum() <= blocks
    return outputs | {"scales": longer(result.scales, blocks, strides_of_scales(columns, blocks, layout, gap), axis=1)}


def _padded(x: numpy.ndarray, format: BlockFormat, layout: str, offsets: numpy.ndarray, gap: int) -> dict[str, Placed]:
    starts, ends = padded_bounds(offsets)
    shape = (x.shape[1], padded_rows(len(x), len(offsets)))
    outputs = placed_apart(quantize_cols(x, format, layout, offsets, padded=True), ("q", "scales"), shape, format, layout, gap)
    return outputs | {"padded_starts": Placed(starts), "padded_ends": Placed(ends)}

"""Problems for quantisation of groups of rows along both dimensions, gathered or not; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product

import numpy

from zoo.checks.block_inputs import random_bits, some_as_largest, specials, spread
from zoo.checks.checked_format import KernelFormat, format_of, scale_of_tensor, stored_as
from zoo.checks.placing import longer, placed_apart, strides_of_scales, up_to
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import BlockFormat
from zoo.reference.groups import gather, padded_bounds, padded_rows
from zoo.reference.quantize import quantize_cols, quantize_rows
from zoo.reference.scales import blocked_column_groups_shape, blocked_row_groups_shape

# (sizes of groups, rows after the last group, K before it is rounded down to a multiple that the format supports). Sizes around
# 16 bytes of q, tiles of 128 x 128, and the 32 groups that a warp searches at once.
_GROUPS = (
    ((1,), 0, 16), ((5,), 3, 144), ((0,), 7, 32), ((0, 0, 0), 0, 16), ((17,), 0, 128), ((128,), 0, 48), ((129,), 31, 112), ((16, 32), 0, 272),
    ((1, 1, 1), 0, 64), ((3, 0, 0, 5, 0, 2), 1, 160), ((0, 33, 0, 31), 0, 16), ((7,) * 33, 0, 96), ((0,) * 40 + (9, 0, 4), 2, 16),
    ((127, 129), 0, 80), ((128, 0, 128, 128), 0, 144), ((130, 0, 0, 383), 100, 256), ((1000, 1, 0, 1047), 0, 400), (tuple(range(70)), 30, 128),
)  # fmt: skip
_FAR_APART = numpy.array([1.0, 1e-45, 2.0**-80, 3.4e38, 0.5, numpy.nan, 2.0**-128, 1.0, 0.0, numpy.inf], numpy.float32)  # tensor scales


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    own, padded, dtype = format_of(kernel, variant), kernel.fields["grouping"] == "m_grouped_padded", dtype_of(kernel, variant, "x")
    random, rules = numpy.random.default_rng(24), [*product(values_of(kernel, "layout"), own.choices)]
    # Lengths without a common factor: every rule meets every gap.
    turns, gaps = cycle([*rules, *rules[: 1 - len(rules) % 2]]), cycle((0, 3, 1))
    scale_of_each_group = cycle((False, True, True, False))

    def problem(name: str, x: numpy.ndarray, sizes: Sequence[int], gathered: bool, given: numpy.ndarray | None = None) -> Problem:
        (layout, choice), gap, offsets = next(turns), next(gaps), numpy.cumsum(sizes).astype(numpy.int32)
        inputs = {"offsets": Placed(offsets)}
        rows, used = len(x), sum(sizes)
        if gathered:  # rows of nobody have an index that must not be looked up
            index = random.integers(-1, len(x), rows, numpy.int32)
            taken = gather(x, index)
            index[used:] = 2**31 - 1
            inputs["index"] = Placed(index)
        else:
            taken = x
            x = x.copy()
            x[used:] = numpy.nan
        inputs["x"] = Placed(x, (x.shape[1] + 8 * gap, 1))
        if own.relative:
            if given is None:
                given = (scale_of_tensor(taken) * numpy.linspace(0.5, 2, len(sizes) if next(scale_of_each_group) else 1)).astype(
                    numpy.float32
                )
            inputs["tensor_scale"] = Placed(given)

        def outputs() -> dict[str, Placed]:
            format = own.made(choice, given)
            found = along_rows(taken[:used], rows, format, layout, ("q_rows", "scales_rows"), gap, offsets)
            found |= along_columns(taken[:used], rows, format, layout, ("q_cols", "scales_cols"), gap, offsets, padded)
            return found | bounds(offsets, padded)

        words = ", ".join((f"{name}, gathered" if gathered else name, layout, *choice.values()))
        return Problem(words, inputs, Later(outputs), {"layout": layout, **choice})

    for sizes, after, most in _GROUPS:
        columns = max(most // own.unit, 1) * own.unit
        words = f"groups of {', '.join(map(str, sizes[:6]))}{', ..' if len(sizes) > 6 else ''}, {after} rows after them, {columns} columns"
        for gathered in (False, True):
            yield problem(words, spread((sum(sizes) + after, columns), dtype, 16, random), sizes, gathered)
    for gathered in (False, True):
        yield problem("no rows", spread((0, 64), dtype, 16, random), (0, 0), gathered)
        yield problem("random bits", random_bits((131, 144 // own.unit * own.unit), dtype, random), (101, 0, 27), gathered)
        for name, x in _hazards(dtype, own, random):
            yield problem(name, x, (len(x) // 3, 0, len(x) - len(x) // 3), gathered)
        if own.relative:
            x = spread((37, 80), dtype, 16, random)
            yield problem("neighbours with tensor scales far apart", x, (1,) * 37, gathered, numpy.resize(_FAR_APART, 37))


def _hazards(dtype: str, own: KernelFormat, random: numpy.random.Generator) -> Iterator[tuple[str, numpy.ndarray]]:
    marks = specials(dtype, own.block)
    yield "zeros, infinities, NaNs and subnormals at each place of a block", marks
    few = random.permutation(marks.reshape(-1, own.block))[:130]
    yield "zeros, infinities, NaNs and subnormals at some places", few
    yield "zeros, infinities, NaNs and subnormals below each other", numpy.ascontiguousarray(few[:128].T)
    patterns = random_bits((1 << 14,), dtype, random)
    yield "some bit patterns as the largest of a block", some_as_largest(patterns, own.block, 1.0)


def along_rows(
    x: numpy.ndarray,
    rows: int,
    format: BlockFormat,
    layout: str,
    names: tuple[str, str],
    gap: int,
    offsets: numpy.ndarray,
) -> dict[str, Placed]:
    """x quantised along its rows: the first rows of outputs with `rows` rows."""
    result = quantize_rows(_followed_by_zeros(x, rows), format, layout, offsets)
    found = {names[0]: longer(result.q, rows, up_to(result.q.shape[1], 16) + 16 * gap, stored_as(format))}
    if layout == "blocked":
        return found | {names[1]: Placed(result.scales.reshape(blocked_row_groups_shape(rows, x.shape[1] // format.block, len(offsets))))}
    return found | {names[1]: longer(result.scales, rows, strides_of_scales(rows, result.scales.shape[1], layout, gap))}


def along_columns(
    x: numpy.ndarray,
    rows: int,
    format: BlockFormat,
    layout: str,
    names: tuple[str, str],
    gap: int,
    offsets: numpy.ndarray,
    padded: bool,
) -> dict[str, Placed]:
    """x quantised along its columns: its rows become the first columns of outputs for `rows` rows. Groups follow each other along a row of q."""
    result, per_byte = quantize_cols(_followed_by_zeros(x, rows), format, layout, offsets, padded), format.element.per_byte
    if padded:
        return placed_apart(result, names, (x.shape[1], padded_rows(rows, len(offsets))), format, layout, gap)
    step = up_to(rows, 16 * per_byte) // per_byte + 16 * gap
    found = {names[0]: longer(result.q, -(-rows // per_byte), step, stored_as(format), axis=1)}
    if layout == "blocked":
        shape = blocked_column_groups_shape(x.shape[1], rows, len(offsets), format.block)
        return found | {names[1]: Placed(result.scales.reshape(shape))}
    blocks = -(-rows // format.block) + len(offsets)
    return found | {names[1]: longer(result.scales, blocks, strides_of_scales(x.shape[1], blocks, layout, gap), axis=1)}


def _followed_by_zeros(x: numpy.ndarray, rows: int) -> numpy.ndarray:
    every = numpy.zeros((rows, x.shape[1]), x.dtype)
    every[: len(x)] = x
    return every


def bounds(offsets: numpy.ndarray, padded: bool) -> dict[str, Placed]:
    return dict(zip(("padded_starts", "padded_ends"), map(Placed, padded_bounds(offsets)), strict=True)) if padded else {}

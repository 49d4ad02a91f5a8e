"""Problems for quantisers of groups of rows, ragged and padded, with and without a gather; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle, product

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.checked_format import format_of, scale_of_tensor, stored_as
from zoo.checks.placing import longer, strides_of_scales, up_to
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import BlockFormat
from zoo.reference.groups import gather, padded_bounds, padded_rows
from zoo.reference.quantize import quantize_rows
from zoo.reference.scales import blocked_row_groups_shape

# Sizes of the groups, and how many rows of x belong to none. Around a row, a warp's rows, 32 and 128 rows, 32 and 128 groups.
_GROUPS = (
    ("one row", [1], 0),
    ("an empty group alone", [0], 0),
    ("no row in any group", [0, 0, 0], 5),
    ("no rows and no groups with any", [0, 0], 0),
    ("ragged sizes", [5, 33, 1, 17], 0),
    ("rows after the last offset", [5, 2], 3),
    ("more than a tile of rows after the last offset", [7], 135),
    ("empty groups between, before and behind", [0, 0, 3, 0, 9, 0, 0], 1),
    ("whole tiles", [128, 256], 0),
    ("one row less and one more than a tile", [127, 129, 1], 2),
    ("one group has everything", [0, 0, 200, 0], 0),
    ("a group over several tiles", [300, 3], 0),
    ("a group for every row", [1] * 40, 0),
    ("many groups, nearly all empty", [0] * 70 + [3] + [0] * 70 + [40] + [0] * 11, 2),
    ("sizes of a long tail", [90, 45, 30, 22, 18, 15, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1], 0),
    ("more groups than rows", [1, 0, 0, 0] * 33, 0),
)  # fmt: skip
# By the block. Blocks across: one, an odd number, more than 512 bytes of a row of x; of 128 some are short.
_COLUMNS = {16: (16, 48, 272), 32: (32, 96, 288), 128: (16, 144, 272)}
_LARGE = ((8, 1000, 2112), (64, 3000, 1056), (256, 2500, 512), (1500, 4000, 128), (3, 700, 7168))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    make = _Maker(kernel, variant)
    own, random = make.own, make.random
    columns = cycle(map(own.columns, own.among(_COLUMNS)))
    if own.relative:
        for rows, width in ((9, 48), (37, 272)):
            yield make.neighbours_with_scales_far_apart(rows, width)
    for rule in make.rules:
        for name, sizes, behind in _GROUPS:
            x = make.spread(sum(sizes) + behind, next(columns))
            yield make.problem(name, x, sizes, behind, rule)
            yield make.problem(f"{name}, gathered", x, sizes, behind, rule, tokens=max(len(x) // 2, 1))
        for gap, name in ((1, "strided rows"), (2, "rows strided further apart")):
            yield make.problem(name, make.spread(61, next(columns)), [30, 0, 29], 2, rule, gap=gap)
        yield make.problem("every row gathered is -1", make.spread(20, next(columns)), [3, 17], 0, rule, tokens=0)
        for groups, rows, width in _LARGE:
            many = random.multinomial(rows, random.dirichlet(numpy.full(groups, 0.5))).tolist()
            x = make.spread(rows + 9, own.columns(width))
            yield make.problem(f"{groups} groups of {rows} x {width}", x, many, 9, rule)
            yield make.problem(f"{groups} groups of {rows} x {width}, gathered", x, many, 9, rule, tokens=rows // 3)
        for name, x in hazards(dtype_of(kernel, variant, "x"), own.block, own.element.dtype):
            rows = len(x)
            yield make.problem(name, x, [rows // 3, 0, rows - rows // 3 - rows // 5], rows // 5, rule)


class _Maker:
    def __init__(self, kernel: Kernel, variant: Variant):
        self.own = format_of(kernel, variant)
        self.padded = kernel.fields["grouping"] == "m_grouped_padded"
        self.dtype, layouts = dtype_of(kernel, variant, "x"), values_of(kernel, "layout")
        # What a caller may choose besides layouts: roundings and scalings, or how many tensor scales.
        rules = ({"of": "all groups"}, {"of": "each group"}) if self.own.relative else self.own.choices
        self.rules = [{"layout": layout} | rule for rule, layout in product(rules, layouts)]
        self.random = numpy.random.default_rng(30)

    def spread(self, rows: int, columns: int) -> numpy.ndarray:
        return spread((rows, columns), self.dtype, self.own.block, self.random)

    def neighbours_with_scales_far_apart(self, rows: int, columns: int) -> Problem:
        """Neighbouring rows whose multipliers are infinite, NaN and usual: zeros of either sign tell whose multiplier was taken."""
        x = self.spread(rows, columns)
        x[:, ::3] = numpy.where(self.random.integers(2, size=x[:, ::3].shape), 0.0, -0.0)
        scales = numpy.array([1.0, 1e-45, 2.0**-80, 3.4e38, 0.5, numpy.nan, 2.0**-128, 1.0, 0.0, numpy.inf], numpy.float32)
        rule = self.rules[-1]
        return self.problem("neighbours with tensor scales far apart", x, [1] * rows, 0, rule, tensor_scales=numpy.resize(scales, rows))

    def problem(
        self,
        name: str,
        x: numpy.ndarray,
        sizes: Sequence[int],
        behind: int,
        rule: Mapping[str, str],
        gap: int = 0,
        tokens: int | None = None,
        tensor_scales: numpy.ndarray | None = None,
    ) -> Problem:
        """`tokens`: x has so many rows, through an index; rows after the last offset have one that must not be looked up."""
        rows, columns, offsets = len(x), x.shape[1], numpy.cumsum(sizes, dtype=numpy.int32)
        inputs, taken = {}, x
        if tokens is not None:
            x = x[:tokens]
            index = self.random.integers(-1, tokens, rows, numpy.int32)
            taken = gather(x, index)
            index[offsets[-1] :] = 2**31 - 1
            inputs["index"] = Placed(index)
        inputs["x"] = Placed(x, (columns + gap * 16 // x.dtype.itemsize, 1))
        inputs["offsets"] = Placed(offsets)
        given = None
        if self.own.relative:
            given = self._tensor_scales(taken, offsets) if tensor_scales is None else tensor_scales
            given = given[:1] if rule["of"] == "all groups" else given
            inputs["tensor_scale"] = Placed(given)
        format = self.own.made(rule, given)
        words = ", ".join(f"{key} {value}" for key, value in rule.items())
        settings = {key: value for key, value in rule.items() if key != "of"}
        return Problem(f"{name} ({words})", inputs, Later(lambda: self._outputs(taken, format, rule["layout"], offsets, gap)), settings)

    def _outputs(self, x: numpy.ndarray, format: BlockFormat, layout: str, offsets: numpy.ndarray, gap: int) -> dict[str, Placed]:
        (rows, columns), groups, unit = x.shape, len(offsets), self.own.row_unit
        result = quantize_rows(x, format, layout, offsets, self.padded)
        length = padded_rows(rows, groups) if self.padded else rows
        outputs = {"q": longer(result.q, length, up_to(result.q.shape[1], unit) + unit * gap, stored_as(format))}
        if layout == "blocked":
            shape = blocked_row_groups_shape(rows, columns // format.block, groups)
            outputs["scales"] = Placed(result.scales.reshape(shape))
        else:
            outputs["scales"] = longer(result.scales, length, strides_of_scales(length, result.scales.shape[1], layout, gap))
        if self.padded:
            starts, ends = padded_bounds(offsets)
            outputs |= {"padded_starts": Placed(starts), "padded_ends": Placed(ends)}
        return outputs

    def _tensor_scales(self, x: numpy.ndarray, offsets: numpy.ndarray) -> numpy.ndarray:
        """What the data asks for; every fifth group has one that is wrong for its data, or no scale at all."""
        wrong = cycle((0.3, 1e-45, 2.0**-128, 3.4e38, numpy.inf, numpy.nan, 0.0))
        begins = numpy.concatenate(([0], offsets[:-1]))
        scales = [
            next(wrong) if group % 5 == 4 else scale_of_tensor(x[begin:end]).item()
            for group, (begin, end) in enumerate(zip(begins, offsets, strict=True))
        ]
        return numpy.array(scales, numpy.float32)

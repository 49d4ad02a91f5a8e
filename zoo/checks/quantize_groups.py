"""Problems for quantisers of groups of rows, ragged and padded, with and without a gather; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product

import numpy

from zoo.checks.block_inputs import hazards, spread
from zoo.checks.problem import Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.amax import tensor_amax
from zoo.reference.block_formats import BlockFormat, Fp8b128, Mxfp4, Mxfp8, Nvfp4, nvfp4_tensor_scale
from zoo.reference.groups import gather, padded_bounds
from zoo.reference.quantize import quantize_rows
from zoo.reference.scales import mn_major_stride
from zoo.reference.small_floats import E2M1, ELEMENTS

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
# Blocks across: one, an odd number, more than 512 bytes of a row of x. Multiples of every block; of fp8b128 some are short.
_COLUMNS = {16: (16, 48, 272), 32: (32, 96, 288), 128: (16, 144, 272)}
_LARGE = ((8, 1000, 2112), (64, 3000, 1056), (256, 2500, 512), (1500, 4000, 128), (3, 700, 7168))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if kernel.fields["direction"] != "rows":
        raise NotImplementedError(f"{kernel.name}: zoo/checks/quantize_groups.py knows the direction rows only")
    make = _Maker(kernel, variant)
    random = make.random
    columns = cycle(_COLUMNS[make.block])
    if make.kind == "nvfp4":
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
            sizes = random.multinomial(rows, random.dirichlet(numpy.full(groups, 0.5)))
            x = make.spread(rows + 9, width)
            yield make.problem(f"{groups} groups of {rows} x {width}", x, sizes, 9, rule)
            yield make.problem(f"{groups} groups of {rows} x {width}, gathered", x, sizes, 9, rule, tokens=rows // 3)
        for name, x in hazards(variant.dtypes["x"], make.block, make.element):
            rows = len(x)
            yield make.problem(name, x, [rows // 3, 0, rows - rows // 3 - rows // 5], rows // 5, rule)


class _Maker:
    def __init__(self, kernel: Kernel, variant: Variant):
        self.kind = kernel.fields["formats"]
        self.padded = kernel.fields["grouping"] == "m_grouped_padded"
        self.dtype, layouts = variant.dtypes["x"], kernel.options["layout"].values
        self.q_dtype = variant.dtypes.get("q")
        self.block = {"mxfp8": Mxfp8, "mxfp4": Mxfp4, "nvfp4": Nvfp4, "fp8b128": Fp8b128}[self.kind].block
        self.element = ELEMENTS[self.q_dtype or "e4m3"].dtype if self.kind in ("mxfp8", "fp8b128") else E2M1.dtype
        # What a caller may choose besides: layouts, roundings and scalings, and how many tensor scales.
        rules: Sequence = {
            "mxfp8": ({"rounding": "floor"}, {"rounding": "rceil"}),
            "mxfp4": ({"rounding": "floor"}, {"rounding": "rceil"}),
            "fp8b128": ({"scaling": "exact"}, {"scaling": "pow2"}),
            "nvfp4": ({"of": "all groups"}, {"of": "each group"}),
        }[self.kind]
        self.rules = [{"layout": layout} | rule for rule, layout in product(rules, layouts)]
        self.random = numpy.random.default_rng(30)

    def spread(self, rows: int, columns: int) -> numpy.ndarray:
        return spread((rows, columns), self.dtype, self.block, self.random)

    def neighbours_with_scales_far_apart(self, rows: int, columns: int) -> Problem:
        """Neighbouring rows whose multipliers are infinite, NaN and usual: zeros of either sign tell whose multiplier was taken."""
        x = self.spread(rows, columns)
        x[:, ::3] = numpy.where(self.random.integers(2, size=x[:, ::3].shape), 0.0, -0.0)
        given = numpy.resize(numpy.float32([1.0, 1e-45, 2.0**-80, 3.4e38, 0.5, numpy.nan, 2.0**-128, 1.0, 0.0, numpy.inf]), rows)
        rule = self.rules[-1]
        return self.problem("neighbours with tensor scales far apart", x, [1] * rows, 0, rule, tensor_scales=given)

    def problem(self, name, x, sizes, behind, rule, gap: int = 0, tokens: int | None = None, tensor_scales=None) -> Problem:
        """`tokens`: x has so many rows, through an index; rows after the last offset have one that must not be looked up."""
        rows, columns, offsets, layout = len(x), x.shape[1], numpy.cumsum(sizes, dtype=numpy.int32), rule["layout"]
        owned, groups = int(offsets[-1]), len(offsets)
        inputs, taken = {}, x
        if tokens is not None:
            x = x[:tokens]
            index = self.random.integers(-1, tokens, rows, numpy.int32)
            taken = gather(x, index)
            index[owned:] = 2**31 - 1
            inputs["index"] = Placed(index)
        inputs["x"] = Placed(x, (columns + gap * 16 // x.dtype.itemsize, 1))
        inputs["offsets"] = Placed(offsets)

        format, settings = self._format(rule, taken, offsets, inputs, tensor_scales)
        result = quantize_rows(taken, format, layout, offsets, self.padded)
        result_rows = rows + 128 * groups if self.padded else rows
        width, unit = result.q.shape[1], 8 if self.kind == "nvfp4" else 16  # bytes: rows of q start at multiples
        q_stride = -(-width // unit) * unit + unit * gap
        dtype = "e2m1x2" if format.packed else None
        outputs = {"q": _rows(result.q, result_rows, q_stride, dtype)}
        if layout == "blocked":
            shape = (-(-rows // 128) * 128 + 128 * groups, -(-(columns // self.block) // 4) * 4)
            outputs["scales"] = Placed(result.scales.reshape(shape))
        elif layout == "plain":
            outputs["scales"] = _rows(result.scales, result_rows, result.scales.shape[1] + gap)
        else:
            across = _rows(result.scales.T, result_rows, 1)
            untouched = None if across.untouched is None else across.untouched.T
            outputs["scales"] = Placed(across.values.T, (mn_major_stride(result_rows) + 4 * gap, 1), untouched=untouched)
        if self.padded:
            starts, ends = padded_bounds(offsets)
            outputs |= {"padded_starts": Placed(starts), "padded_ends": Placed(ends)}
        words = ", ".join(f"{key} {value}" for key, value in rule.items())
        return Problem(f"{name} ({words})", inputs, outputs, settings)

    def _format(self, rule, taken, offsets, inputs, given) -> tuple[BlockFormat, dict[str, str]]:
        if self.kind == "mxfp8":
            return Mxfp8(self.q_dtype or "e4m3", rule["rounding"]), rule
        if self.kind == "mxfp4":
            return Mxfp4(rule["rounding"]), rule
        if self.kind == "fp8b128":
            return Fp8b128(rule["scaling"] == "pow2"), rule
        if given is None:
            given = self._tensor_scales(taken, offsets)
        if rule["of"] == "all groups":
            given = given[:1]
        inputs["tensor_scale"] = Placed(given)
        return Nvfp4(given if len(given) > 1 else given[0]), {"layout": rule["layout"]}

    def _tensor_scales(self, x: numpy.ndarray, offsets: numpy.ndarray) -> numpy.ndarray:
        """What the data asks for; every fifth group has one that is wrong for its data, or no scale at all."""
        wrong = cycle((0.3, 1e-45, 2.0**-128, 3.4e38, numpy.inf, numpy.nan, 0.0))
        begins = numpy.concatenate(([0], offsets[:-1]))
        scales = []
        for group, (begin, end) in enumerate(zip(begins, offsets, strict=True)):
            values = x[begin:end].astype(numpy.float32)
            finite = numpy.where(numpy.isfinite(values), values, numpy.float32(0))
            scales.append(next(wrong) if group % 5 == 4 else nvfp4_tensor_scale(tensor_amax(finite))[0] if finite.size else 1.0)
        return numpy.array(scales, numpy.float32)


def _rows(values: numpy.ndarray, rows: int, stride: int, dtype: str | None = None) -> Placed:
    """Results of the first rows of an array that has more; the others are left alone."""
    full = numpy.zeros((rows, values.shape[1]), values.dtype)
    full[: len(values)] = values
    untouched = numpy.zeros(full.shape, bool)
    untouched[len(values) :] = True
    return Placed(full, (stride, 1), dtype, untouched if untouched.any() else None)

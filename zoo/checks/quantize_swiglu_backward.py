"""Problems for SwiGLU's backward with quantisation; every answer is that of zoo.reference, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle, product

import numpy

from zoo.checks.block_inputs import as_largest, every_pattern, random_bits, specials
from zoo.checks.checked_format import format_of
from zoo.checks.placing import longer
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.checks.quantize_grouped_both import along_columns, along_rows, bounds
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.block_formats import BlockFormat
from zoo.reference.swiglu_backward import PART, Gradients, swiglu_backward

# (sizes of groups, rows after the last one, pairs in eighths: of halves 16 times as many). Around 16 bytes of q, tiles of 128 rows, tiles of
# 64 and 128 pairs, 32 groups that a warp looks at together.
_GROUPS = (
    ((1,), 0, 1), ((5,), 3, 2), ((0,), 7, 1), ((0, 0, 0), 0, 1), ((17,), 0, 1), ((128,), 0, 1), ((129,), 31, 1), ((16, 16), 0, 1),
    ((1, 1, 1, 1, 1), 0, 2), ((3, 0, 0, 5, 0, 2), 1, 1), ((0, 33, 0, 11), 0, 1), ((7,) * 33, 0, 5), ((0,) * 40 + (9, 0, 4), 2, 1),
    ((127, 129), 0, 9), ((128, 0, 128, 128), 0, 8), ((64, 96, 16), 16, 17), ((130, 0, 0, 383), 100, 3), ((1000, 1, 0, 1047), 0, 25),
    (tuple(range(70)), 30, 16), ((256, 128), 0, 31),
)  # fmt: skip
_EXPONENTS = (0, 20, 60, 110)  # how far apart the magnitudes of rows of d_act are


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    make = _Maker(kernel, variant)
    for index, (sizes, after, eighths) in enumerate(_GROUPS):
        words = f"groups of {', '.join(map(str, sizes[:6]))}{', ..' if len(sizes) > 6 else ''}, {after} rows after them"
        for gates in make.orders:
            pairs = eighths * 8 if gates == "interleaved" else -(-eighths // 8) * 128
            operands = make.usual(sum(sizes) + after, pairs, _EXPONENTS[index % 4])
            yield make.problem(f"{words}, {pairs} pairs", operands, sizes, gates)
    for gates in make.orders:
        pairs = 128 if gates == "halves" else 24
        for activation in make.activations:
            yield make.problem(
                "gates and ups around the limits", make.around(1.5, 21, pairs), (21,), gates, activation=activation, limit=1.5
            )
        yield make.problem("no limit given", make.around(3e38, 13, pairs), (13,), gates, activation="gpt_oss")
        yield make.problem("without row weights and dots", make.usual(19, pairs, 0), (3, 16), gates, weighted=False)
        yield make.problem("rows of weight 0 that hold NaN", make.without_weight(23, pairs), (20, 3), gates)
        yield make.problem("random bits", make.random_bits(37, pairs), (30, 4), gates)
        yield make.problem("no rows", make.usual(0, pairs, 0), (0, 0), gates)
        for place in range(3):
            yield make.problem(
                f"zeros, infinities, NaNs and subnormals, some in array {place}", make.marked(place, 40, pairs), (40,), gates, limit=7.0
            )
            yield make.problem(f"every bit pattern in array {place}", make.every_pattern(place), (300, 200, 12), gates, limit=7.0)


class _Maker:
    def __init__(self, kernel: Kernel, variant: Variant):
        self.own, self.dtype = format_of(kernel, variant), dtype_of(kernel, variant, "h")
        self.padded = kernel.fields["grouping"] == "m_grouped_padded"
        self.orders, self.activations = values_of(kernel, "gates"), values_of(kernel, "activation")
        self.random = numpy.random.default_rng(23)
        rules = [*product(values_of(kernel, "layout"), self.own.choices)]
        # Lengths without a common factor: every choice meets every other.
        self.usual_activations = cycle(self.activations)
        self.rules, self.gaps = cycle([*rules, *rules[: 1 - len(rules) % 2]]), cycle((0, 2, 1, 0, 3, 0, 1))

    def normal(self, rows: int, pairs: int, factor: float = 1) -> numpy.ndarray:
        return cast(self.random.standard_normal((rows, pairs)) * factor, self.dtype)

    def usual(self, rows: int, pairs: int, exponents: int) -> list[numpy.ndarray]:
        """d_act, gates, ups."""
        step = self.random.integers(-exponents, exponents + 1, (rows, 1))
        d = cast(numpy.ldexp(self.random.standard_normal((rows, pairs)), step), self.dtype)
        return [d, self.normal(rows, pairs, 4), self.normal(rows, pairs, 2)]

    def around(self, limit: float, rows: int, pairs: int) -> list[numpy.ndarray]:
        """Gates and ups at a limit of both signs, one step to either side, and beyond."""
        middle = cast(numpy.array([limit, -limit]), self.dtype)
        below, above = numpy.nextafter(middle, middle.dtype.type(0)), numpy.nextafter(middle, middle.dtype.type(numpy.inf) * middle)
        with numpy.errstate(over="ignore"):
            values = numpy.concatenate([middle, below, above, middle * middle.dtype.type(2), middle * middle.dtype.type(0.5)])
        return [self.normal(rows, pairs), self.random.choice(values, (rows, pairs)), self.random.choice(values, (rows, pairs))]

    def without_weight(self, rows: int, pairs: int) -> list[numpy.ndarray]:
        operands = self.usual(rows, pairs, 0)
        for number, operand in enumerate(operands):
            operand[number::4] = numpy.nan
        return [*operands, numpy.where(numpy.arange(rows) % 4 < 3, numpy.float32(0), numpy.float32(0.7))]

    def random_bits(self, rows: int, pairs: int) -> list[numpy.ndarray]:
        return [random_bits((rows, pairs), self.dtype, self.random) for _ in range(3)]

    def marked(self, place: int, rows: int, pairs: int) -> list[numpy.ndarray]:
        operands = self.usual(rows, pairs, 0)
        marks = self.random.permutation(specials(self.dtype, 32).reshape(-1))
        chosen = self.random.random((rows, pairs)) < 0.02
        operands[place][chosen] = numpy.resize(marks, chosen.sum())
        return operands

    def every_pattern(self, place: int) -> list[numpy.ndarray]:
        patterns = as_largest(every_pattern(self.dtype), 128, 1.0).reshape(-1, 128)[::128]
        return [patterns if number == place else self.normal(*patterns.shape) for number in range(3)]

    def problem(
        self,
        name: str,
        operands: Sequence[numpy.ndarray],
        sizes: Sequence[int],
        gates: str,
        activation: str | None = None,
        limit: float | None = None,
        weighted: bool = True,
    ) -> Problem:
        """`operands`: d_act, gates, ups, and weights unless usual ones will do. Rows after the groups hold NaN."""
        usual, (layout, choice), gap = next(self.usual_activations), next(self.rules), next(self.gaps)
        activation = activation or usual
        d, gate, up = (operand.copy() for operand in operands[:3])
        rows, pairs = d.shape
        used, offsets = sum(sizes), numpy.cumsum(sizes).astype(numpy.int32)
        for operand in (d, gate, up):
            operand[used:] = numpy.nan
        h = numpy.concatenate((gate, up), axis=1) if gates == "halves" else numpy.stack((gate, up), axis=2).reshape(rows, 2 * pairs)
        weights = operands[3] if len(operands) > 3 else numpy.asarray(self.random.uniform(-0.1, 1, rows), numpy.float32)
        inputs = {"d_act": Placed(d, (pairs + 8 * gap, 1)), "h": Placed(h, (2 * pairs + 8 * gap, 1)), "offsets": Placed(offsets)}
        if weighted:
            inputs["row_weights"] = Placed(weights)
        settings: dict[str, str | float] = {"gates": gates, "activation": activation, "layout": layout, **choice}
        if limit is not None:
            settings["limit"] = limit
        given = numpy.finfo(numpy.float32).max if limit is None else limit

        def outputs() -> dict[str, Placed]:
            found = swiglu_backward(d[:used], h[:used], gates, activation, float(given), weights[:used] if weighted else None)
            return self._outputs(found, rows, self.own.made(choice), layout, offsets, gap, weighted)

        words = ", ".join((name, *map(str, settings.values())))
        return Problem(words, inputs, Later(outputs), settings)

    def _outputs(
        self, found: Gradients, rows: int, format: BlockFormat, layout: str, offsets: numpy.ndarray, gap: int, with_dots: bool
    ) -> dict[str, Placed]:
        outputs = along_rows(found.d_h, rows, format, layout, ("q_rows", "scales_rows"), gap, offsets) | bounds(offsets, self.padded)
        for name, values in (("cols", found.d_h), ("act", found.act)):
            outputs |= along_columns(values, rows, format, layout, (f"q_{name}", f"scales_{name}"), gap, offsets, self.padded)
        if with_dots:
            outputs["dots"] = longer(found.dots, rows, -(-found.act.shape[1] // PART) + gap)
        return outputs

"""Problems for quantisers with a scale for each row; every answer is that of zoo.reference.token_rows, to the bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import cycle

import numpy

from zoo.checks.block_inputs import every_pattern, hazards, random_bits, some_as_largest, specials, spread
from zoo.checks.layouts import in_rows
from zoo.checks.placing import longer, up_to
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.groups import gather
from zoo.reference.small_floats import E4M3
from zoo.reference.token_rows import GatedRows, quantize_token_rows

# Around a lane's 32 columns, the 64 of register fragments, a warp's 1024, all of a CTA's (16384) and twice that; few and many rows a CTA.
_SHAPES = (
    (1, 16), (1, 32), (2, 48), (3, 64), (17, 80), (33, 96), (5, 1008), (4, 1024), (3, 1040), (7, 2048), (2, 2880), (1, 7168), (3, 5136), (1, 8208), (1, 8256),
    (1, 16_384), (1, 16_400), (1, 16_448), (300, 2880), (129, 7168), (4099, 64), (3, 32_768), (2, 40_000), (2, 65_552),
)  # fmt: skip
_STRIDED = ((37, 336), (5, 2896), (2, 16_432))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    make = _Activated(kernel, variant) if kernel.fields.get("extra") == "swiglu" else _Plain(kernel, variant)
    dtype, random = make.dtype, numpy.random.default_rng(40)
    for rows, columns in _SHAPES:
        yield from make.both_orders(f"shape {rows} x {columns}", spread((rows, columns), dtype, columns, random))
    for rows, columns in _STRIDED:
        yield from make.both_orders(f"strided rows, {rows} x {columns}", spread((rows, columns), dtype, columns, random), gap=1)
    yield from make.both_orders("no rows", spread((0, 256), dtype, 256, random))
    yield from make.both_orders("no columns", numpy.zeros((5, 0), spread((1, 16), dtype, 16, random).dtype))
    for name, x in _rows_of_hazards(dtype, random):
        yield from make.both_orders(name, x)
    yield from make.special()


def _rows_of_hazards(dtype: str, random: numpy.random.Generator) -> Iterator[tuple[str, numpy.ndarray]]:
    """A row for what elsewhere is a block of 128: a part of them small enough for the emulator, and all."""
    for name, x in hazards(dtype, 128, E4M3.dtype):
        rows = x.reshape(-1, 128)
        yield name, rows
        if x.size >> 14:
            yield f"some of: {name}", rows[:: -(-len(rows) // 100)]
    every = some_as_largest(every_pattern(dtype), 128, 1.0).reshape(-1, 128)
    yield "some patterns as the largest of a row of zeros", numpy.where(numpy.arange(128) == 0, every, every.dtype.type(0))
    place = numpy.zeros((16, 1040), every.dtype)
    place[numpy.arange(16), numpy.arange(16) * 69] = numpy.nan  # in each of the warps that share a row
    yield "one NaN at a place of a long row", place
    yield "an infinity at a place of a long row", numpy.where(numpy.isnan(place), place.dtype.type(-numpy.inf), place)
    yield "random bits in long rows", random_bits((5, 2896), dtype, random)


class _Plain:
    """x as it is, or rows of it that an index names."""

    def __init__(self, kernel: Kernel, variant: Variant):
        self.dtype, self.orders = dtype_of(kernel, variant, "x"), values_of(kernel, "order")
        self.random = numpy.random.default_rng(41)

    def both_orders(self, name: str, x: numpy.ndarray, gap: int = 0) -> Iterator[Problem]:
        for order in self.orders:
            yield problem(f"{name}, {order}", x, {"order": order}, gap)

    def special(self) -> Iterator[Problem]:
        """Gathers: rows taken twice, rows that nobody takes, rows of zeros, and no row at all."""
        turns = cycle(self.orders)
        for tokens, rows, columns in (
            (7, 20, 96),
            (1, 33, 272),
            (40, 3, 1056),
            (12, 0, 64),
            (3, 9, 2880),
            (2, 5, 20_000),
            (300, 1000, 2880),
        ):
            x = spread((tokens, columns), self.dtype, columns, self.random)
            index = self.random.integers(-1, tokens, rows, numpy.int32)
            for words, taken in (("gathered", index), ("every row gathered is -1", numpy.full_like(index, -1))):
                order = next(turns)
                yield problem(f"{words}, {rows} of {tokens} rows of {columns}, {order}", x, {"order": order}, index=taken)


class _Activated(_Plain):
    """activation(gate) * up: the problems of `_Plain` with its x as ups, beside random gates."""

    def __init__(self, kernel: Kernel, variant: Variant):
        super().__init__(kernel, variant)
        activations = values_of(kernel, "activation")
        # The lengths have no common factor, so every choice meets every other choice.
        self.turns, self.gates, self.activations = (
            cycle(self.orders),
            cycle(values_of(kernel, "gates")),
            cycle((*activations, *activations[:2])),
        )

    def both_orders(self, name: str, x: numpy.ndarray, gap: int = 0) -> Iterator[Problem]:
        gate = self.normal(x.shape, 4)
        for order in self.orders:
            yield self.pair(name, gate, x, order, next(self.gates), gap, next(self.activations), 1.0)

    def normal(self, shape: tuple[int, ...], factor: float = 1) -> numpy.ndarray:
        return cast(self.random.standard_normal(shape) * factor, self.dtype)

    def pair(
        self,
        name: str,
        gate: numpy.ndarray,
        up: numpy.ndarray,
        order: str,
        gates: str,
        gap: int = 0,
        activation: str = "silu",
        limit: float | None = None,
        offsets: numpy.ndarray | None = None,
        alpha: numpy.ndarray | None = None,
    ) -> Problem:
        settings: dict[str, str | float] = {"order": order, "gates": gates, "activation": activation}
        if limit is not None:
            settings["limit"] = limit
        words = ", ".join((name, *map(str, settings.values())))
        return problem(words, laid(gate, up, gates), settings, gap, offsets=offsets, alpha=alpha)

    def special(self) -> Iterator[Problem]:
        marks = specials(self.dtype, 32)
        marks = marks.reshape(-1, 32)[:120]
        ordinary = self.normal(marks.shape)
        bits = random_bits((9, 1072), self.dtype, self.random)
        for order, gates in (("plain", "interleaved"), ("fragments", "halves"), ("plain", "packed"), ("fragments", "packed")):
            for activation in ("silu", "gpt_oss", "deepseek_v4"):
                yield self.pair("zeros, infinities, NaNs and subnormals as gates", marks, ordinary, order, gates, 0, activation, 7.0)
                yield self.pair("zeros, infinities, NaNs and subnormals as ups", ordinary, marks, order, gates, 0, activation, 7.0)
                gate, up = self.around(1.5, 21, 48)
                yield self.pair("gates and ups around the limit, which silu has not", gate, up, order, gates, 0, activation, 1.5)
                yield self.pair("no limit given", self.normal((5, 80), 60), self.normal((5, 80), 1e5), order, gates, 0, activation)
            yield self.pair("random bits as gates and ups", bits, bits[::-1], order, gates)
        yield from self.of_groups()

    def around(self, limit: float, rows: int, columns: int) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Gates and ups drawn from: the limit and its negative, their neighbours on both sides, and twice the limit."""
        middle = cast(numpy.array([limit, -limit]), self.dtype)
        steps = [numpy.nextafter(middle, middle.dtype.type(0)), numpy.nextafter(middle, middle.dtype.type(numpy.inf) * middle)]
        values = numpy.concatenate([middle, *steps, middle * middle.dtype.type(2)])
        return self.random.choice(values, (rows, columns)), self.random.choice(values, (rows, columns))

    def of_groups(self) -> Iterator[Problem]:
        """Groups of several sizes: none empty, empty ones at each place, one group, and more groups than a warp has lanes. Rows after them hold NaN."""
        choices = cycle(("silu", "gpt_oss", "deepseek_v4"))
        several = ((3, 5, 2), (0, 0, 7, 0, 1, 0), (13,), (0,), (0,) * 31 + (4,) + (0,) * 40 + (9, 0), (1,) * 70)
        for sizes, columns in (*((sizes, 80) for sizes in several), ((2, 3), 2880), ((1, 1, 1), 7168), ((1, 2), 9216)):
            ends = numpy.cumsum(sizes).astype(numpy.int32)
            for rest in (0, 6):
                rows = int(ends[-1]) + rest
                gate, up = self.normal((rows, columns), 4), self.normal((rows, columns))
                gate[ends[-1] :], up[ends[-1] :] = numpy.nan, numpy.nan
                alpha = numpy.asarray(self.random.uniform(0.2, 3, (len(sizes), 2)), numpy.float32)
                words = f"groups of {str(list(sizes[:8]))[1:-1]}, {len(sizes)} in all, then {rest} rows"
                for factors in (None, alpha):
                    order, gates, activation = next(self.turns), next(self.gates), next(choices)
                    name = words if factors is None else f"{words}, alpha"
                    yield self.pair(name, gate, up, order, gates, 0, activation, 1.0, ends, factors)
        strange = numpy.array([[0, 1], [1, -0.0], [numpy.inf, 1], [1, numpy.nan], [2.0**-126, 1], [-1, -2]], numpy.float32)
        ends = numpy.arange(2, 14, 2, dtype=numpy.int32)
        yield self.pair(
            "alpha of any value", self.normal((12, 96)), self.normal((12, 96)), "fragments", "packed", offsets=ends, alpha=strange
        )


def laid(gate: numpy.ndarray, up: numpy.ndarray, gates: str) -> numpy.ndarray:
    """x (M, 2 K) of gates and ups (M, K), in one of the orders of the option `gates`."""
    rows, columns = gate.shape
    if gates == "halves":
        return numpy.concatenate((gate, up), axis=1)
    unit = 8 if gates == "packed" else 1
    units = [one.reshape(rows, columns // unit, unit) for one in (gate, up)]
    return numpy.stack(units, axis=2).reshape(rows, 2 * columns)


def problem(
    name: str,
    x: numpy.ndarray,
    settings: Mapping[str, str | float],
    gap: int = 0,
    index: numpy.ndarray | None = None,
    offsets: numpy.ndarray | None = None,
    alpha: numpy.ndarray | None = None,
) -> Problem:
    """With `gates` among the settings x is gates and ups. `gap`: rows are so many pieces of 16 bytes further apart than they must be."""

    def outputs() -> dict[str, Placed]:
        taken = x if index is None else gather(x, index)
        if "gates" in settings:
            limit = numpy.float32(settings.get("limit", numpy.finfo(numpy.float32).max))
            of = GatedRows(str(settings["gates"]), str(settings.get("activation", "silu")), limit, offsets, alpha)
            taken = of.h(taken)
        result = quantize_token_rows(taken, str(settings["order"]))
        q = in_rows(result.q) if settings["order"] == "fragments" else result.q
        rows = len(x) if index is None else len(index)
        return {"q": longer(q, rows, up_to(q.shape[1], 16) + 16 * gap), "scales": longer_vector(result.scales, rows)}

    inputs = {"x": Placed(x, (x.shape[1] + gap * 16 // x.dtype.itemsize, 1))}
    inputs |= {name: Placed(one) for name, one in (("index", index), ("offsets", offsets), ("alpha", alpha)) if one is not None}
    return Problem(name, inputs, Later(outputs), settings)


def longer_vector(values: numpy.ndarray, length: int) -> Placed:
    """`values` as the first of `length` numbers. A kernel must not write the others."""
    whole = numpy.zeros(length, values.dtype)
    whole[: len(values)] = values
    untouched = numpy.arange(length) >= len(values)
    return Placed(whole, untouched=untouched if untouched.any() else None)

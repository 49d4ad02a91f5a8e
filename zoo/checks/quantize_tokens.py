"""Problems for quantisers with a scale for each row; every answer is that of zoo.reference.token_rows, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import numpy

from zoo.checks.block_inputs import cast, every_pattern, hazards, random_bits, some_as_largest, specials, spread
from zoo.checks.layouts import in_rows
from zoo.checks.placing import up_to
from zoo.checks.problem import Later, Placed, Problem, dtype_of, values_of
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.groups import gather
from zoo.reference.small_floats import E4M3
from zoo.reference.swiglu import swiglu
from zoo.reference.token_rows import quantize_token_rows

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
    """silu(gate) * up: what is said of x holds of the ups, gates bend."""

    def both_orders(self, name: str, x: numpy.ndarray, gap: int = 0) -> Iterator[Problem]:
        gate = cast(self.random.standard_normal(x.shape) * 4, self.dtype)
        for order, gates in zip(self.orders, ("halves", "interleaved"), strict=True):
            yield self.pair(f"{name}, {order}, {gates}", gate, x, order, gates, gap)

    def pair(self, name: str, gate: numpy.ndarray, up: numpy.ndarray, order: str, gates: str, gap: int = 0) -> Problem:
        rows, columns = gate.shape
        x = numpy.concatenate((gate, up), axis=1) if gates == "halves" else numpy.stack((gate, up), axis=2).reshape(rows, 2 * columns)
        return problem(name, x, {"order": order, "gates": gates}, gap)

    def special(self) -> Iterator[Problem]:
        marks = specials(self.dtype, 32)
        marks = marks.reshape(-1, 32)[:120]
        ordinary = cast(self.random.standard_normal(marks.shape), self.dtype)
        bits = random_bits((9, 1072), self.dtype, self.random)
        for order, gates in (("plain", "interleaved"), ("fragments", "halves")):
            yield self.pair(f"zeros, infinities, NaNs and subnormals as gates, {order}", marks, ordinary, order, gates)
            yield self.pair(f"zeros, infinities, NaNs and subnormals as ups, {order}", ordinary, marks, order, gates)
            yield self.pair(f"random bits as gates and ups, {order}", bits, bits[::-1], order, gates)


def problem(name: str, x: numpy.ndarray, settings: dict[str, str], gap: int = 0, index: numpy.ndarray | None = None) -> Problem:
    """With `gates` among the settings x is gates and ups. `gap`: rows are so many pieces of 16 bytes further apart than they must be."""

    def outputs() -> dict[str, Placed]:
        taken = x if index is None else gather(x, index)
        result = quantize_token_rows(swiglu(taken, settings["gates"]) if "gates" in settings else taken, settings["order"])
        q = in_rows(result.q) if settings["order"] == "fragments" else result.q
        return {"q": Placed(q, (up_to(q.shape[1], 16) + 16 * gap, 1)), "scales": Placed(result.scales)}

    inputs = {"x": Placed(x, (x.shape[1] + gap * 16 // x.dtype.itemsize, 1))}
    return Problem(name, inputs | ({} if index is None else {"index": Placed(index)}), Later(outputs), settings)

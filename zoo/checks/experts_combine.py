"""Problems for sums of a token's rows, and their gradients; every answer is that of zoo.reference.experts, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

import numpy

from zoo.checks.block_inputs import random_bits
from zoo.checks.problem import Later, Placed, Problem, dtype_of
from zoo.checks.rounding import cast
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.experts import combine, combine_backward

# Tokens, choices of a token, columns, rows of nobody. Around a cell of 8 columns, a warp's 256, a CTA's 2048; rounds of 2, 4 and 8 choices.
_SIZES = (
    (1, 1, 8, 0), (1, 2, 16, 1), (2, 3, 248, 2), (3, 4, 256, 0), (2, 8, 264, 3), (5, 1, 1032, 1), (1, 9, 512, 0), (1, 8, 2048, 0),
    (1, 2, 2056, 5), (3, 17, 264, 1), (1, 4, 2880, 0), (33, 2, 40, 0), (40, 4, 64, 7), (129, 8, 8, 20), (1, 33, 24, 0),
    (300, 4, 2880, 10), (256, 8, 2048, 0), (700, 2, 1024, 3), (64, 8, 7168, 100),
)  # fmt: skip

# Tokens enough for tiles with several cells a lane, around their 512 and 1024 columns; the last three have a residual. The last one has
# enough for the widest tile of a GPU with 148 multiprocessors.
_MANY = (
    (24, 1, 520, 0), (12, 1, 1032, 1), (13, 1, 1016, 0), (60, 4, 24, 3), (50, 3, 72, 0), (70, 2, 40, 5), (25, 2, 264, 0), (1200, 2, 24, 3),
)  # fmt: skip


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    backward = "gradient" in kernel.fields
    make = _Maker(dtype_of(kernel, variant, "dy" if backward else "d"), backward, "dots" in variant.name)
    options = cycle(Call(*choice) for choice in ((True, True, 0), (False, False, 8), (True, False, 0), (False, True, 16), (True, True, 24)))
    for tokens, top_k, columns, spare in _SIZES:
        yield make.problem(f"{tokens} x {top_k} of {columns} columns", make.rows(tokens, top_k, spare), columns, next(options))
    for number, (tokens, top_k, columns, spare) in enumerate(_MANY):
        call = Call(number % 2 == 0, number > 4, 8)
        yield make.problem(f"{tokens} x {top_k} of {columns} columns", make.rows(tokens, top_k, spare), columns, call)
    weighted = Call(True, True, 8)
    yield make.problem("no tokens", make.rows(0, 4, 3), 64, weighted)
    yield make.problem("no rows, all dropped", numpy.full((5, 2), -1), 64, weighted, rows=0)
    yield make.problem("no columns", make.rows(5, 2, 1), 0, Call(True, True, 0))
    yield make.problem("all dropped", numpy.full((5, 9), -1), 264, weighted, rows=3)
    for share in (0.2, 0.8):
        yield make.problem(f"{share} of the choices dropped", make.rows(40, 6, 2, share), 24, weighted)
        yield make.problem(f"{share} of the choices dropped, no weights", make.rows(20, 3, 9, share), 56, Call(False, False, 0))
    yield make.problem("random bits: NaN, infinity and subnormals", make.rows(24, 4, 0, 0.1), 48, weighted, bits=True)
    yield make.problem("random bits, no weights", make.rows(24, 4, 0, 0.1), 48, Call(False, True, 0), bits=True)
    yield make.problem("weights of zero beside infinity and NaN", make.rows(30, 3, 0, 0.2), 16, weighted, bits=True, zeros=True)
    if not backward:
        yield make.problem("a row of several tokens", make.random.integers(-1, 4, (30, 5)).astype(numpy.int32), 72, weighted, rows=4)


@dataclass(frozen=True)
class Call:
    weighted: bool
    residual: bool
    gap: int  # columns between rows


class _Maker:
    def __init__(self, dtype: str, backward: bool, dots: bool):
        self._dtype, self._backward, self._dots = dtype, backward, dots
        self.random = numpy.random.default_rng(51)

    def rows(self, tokens: int, top_k: int, spare: int, dropped: float = 0.0) -> numpy.ndarray:
        """Each row belongs to one choice at most."""
        rows = self.random.permutation(tokens * top_k + spare)[: tokens * top_k].reshape(tokens, top_k).astype(numpy.int32)
        rows[self.random.random(rows.shape) < dropped] = -1
        return rows

    def problem(
        self,
        name: str,
        of_choices: numpy.ndarray,
        columns: int,
        call: Call,
        rows: int | None = None,
        bits: bool = False,
        zeros: bool = False,
    ) -> Problem:
        """`rows`: of d, where some belong to no choice or to several."""
        of_choices = of_choices.astype(numpy.int32)
        tokens = len(of_choices)
        rows = max(of_choices.size, of_choices.max(initial=-1) + 1) if rows is None else rows
        self._gap, self._bits = call.gap, bits
        weights = None
        if call.weighted:
            weights = self.random.standard_normal(of_choices.shape).astype(numpy.float32)
            drawn = self.random.random(weights.shape)
            weights[drawn < (0.5 if zeros else 0)] = 0
            weights[(drawn > 0.9) & bits | (of_choices < 0)] = numpy.nan  # in some tokens, and where nobody looks
        d = self._matrix(rows, columns)
        d[numpy.setdiff1d(numpy.arange(rows), of_choices)] = numpy.nan  # rows of nobody
        given = {"rows": Placed(of_choices)} | ({} if weights is None else {"weights": Placed(weights)})
        words = f"{name}{', weighted' if call.weighted else ''}, rows {call.gap} apart"
        if self._backward:
            dy = self._matrix(tokens, columns)
            inputs = {"dy": self._placed(dy), **given} | ({"d": self._placed(d)} if self._dots else {})
            return Problem(words, inputs, Later(lambda: self._gradients(dy, of_choices, weights, d, call.gap)))
        residual = self._matrix(tokens, columns) if call.residual else None
        inputs = {"d": self._placed(d), **given} | ({} if residual is None else {"residual": self._placed(residual)})
        words += ", residual" if call.residual else ""
        return Problem(words, inputs, Later(lambda: {"y": self._placed(combine(d, of_choices, weights, residual), call.gap)}))

    def _gradients(
        self, dy: numpy.ndarray, of_choices: numpy.ndarray, weights: numpy.ndarray | None, d: numpy.ndarray, gap: int
    ) -> dict[str, Placed]:
        written, d_weights = combine_backward(dy, of_choices, weights, d if self._dots else None)
        d_rows, untouched = numpy.zeros_like(d), numpy.ones(d.shape, bool)
        kept = of_choices[of_choices >= 0]
        d_rows.view("u2")[kept] = written.view("u2")
        untouched[kept] = False
        outputs = {"d_rows": self._placed(d_rows, gap, untouched)}
        return outputs if d_weights is None else outputs | {"d_weights": Placed(d_weights)}

    def _matrix(self, rows: int, columns: int) -> numpy.ndarray:
        if self._bits:
            return random_bits((rows, columns), self._dtype, self.random)
        return cast(self.random.standard_normal((rows, columns)), self._dtype)

    def _placed(self, values: numpy.ndarray, gap: int | None = None, untouched: numpy.ndarray | None = None) -> Placed:
        return Placed(values, (values.shape[1] + (self._gap if gap is None else gap), 1), untouched=untouched)

"""Problems for the routing of tokens to experts; every answer is that of zoo.reference.experts, to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy

from zoo.checks.problem import Later, Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.experts import enough_rows, route

# Tokens, choices of a token, experts. Around a warp, what clusters of one, two, four and eight CTAs rank, and what a warp keeps in
# registers (65536 choices).
_SIZES = (
    (1, 1, 1), (1, 8, 256), (31, 1, 4), (32, 1, 4), (33, 1, 33), (128, 4, 128), (128, 8, 256), (341, 3, 31), (205, 5, 60), (683, 3, 255),
    (513, 8, 64), (1030, 8, 256), (5461, 3, 8), (8192, 8, 256), (65_537, 1, 256), (11_000, 6, 7), (65_536, 16, 128),
)  # fmt: skip
_MANY_EXPERTS = ((1, 1, 257), (40, 8, 1024), (350, 3, 1000), (1025, 4, 300), (1500, 16, 1024), (8192, 8, 512), (70_000, 2, 1024))
_FEW = 2000  # choices; more are slow in the emulator, so these problems differ in all that a call may have at once


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    most = variant.constants["EXPERTS"]
    make = _Maker(numpy.random.default_rng(50))
    sizes = _SIZES if most == 256 else (*_MANY_EXPERTS, *_SIZES[:4])
    for number, (tokens, top_k, experts) in enumerate(sizes):
        plain = Call(experts, i64=number % 2 == 1)
        padded = Call(experts, padding=128, weighted=True, counted=True, i64=number % 2 == 0, spare=number % 3)
        for call in (plain, padded) if tokens * top_k <= _FEW else (padded,):
            words = f"{tokens} x {top_k} of {experts}{', padded and weighted' if call.weighted else ''}"
            yield make.problem(words, make.distinct(tokens, top_k, experts), call)
    yield from make.hazards(most)


@dataclass(frozen=True)
class Call:
    experts: int
    first: int = 0
    padding: int = 1
    i64: bool = False
    weighted: bool = False
    counted: bool = False
    spare: int = 0  # rows more than suffice


class _Maker:
    def __init__(self, random: numpy.random.Generator):
        self._random = random

    def distinct(self, tokens: int, top_k: int, experts: int) -> numpy.ndarray:
        """Choices as routers make them: no expert twice in a token, popular experts."""
        if top_k > experts:
            return self._random.integers(0, experts, (tokens, top_k))
        popular = self._random.standard_normal(experts) * 1.5
        scores = numpy.empty((tokens, top_k), numpy.int64)
        for start in range(0, tokens, 4096):  # the noise of all tokens is large
            part = scores[start : start + 4096]
            noise = self._random.gumbel(size=(len(part), experts))
            part[...] = numpy.argsort(-(popular + noise), axis=1, kind="stable")[:, :top_k]
        return scores

    def hazards(self, most: int) -> Iterator[Problem]:
        random = self._random
        for rows in (0, 5):
            yield self.problem("no tokens", numpy.zeros((0, 4)), Call(6, padding=128, weighted=True, counted=True, spare=rows))
        yield self.problem("all dropped", numpy.full((50, 3), -1), Call(9, weighted=True, counted=True, spare=40))
        yield self.problem("experts without rows", numpy.array([[3], [60], [3]]), Call(most, padding=128, weighted=True, counted=True))
        yield self.problem("one expert has everything", numpy.full((700, 2), 5), Call(7, padding=128, weighted=True, counted=True))
        yield self.problem("repeated ids in a token", random.integers(0, 3, (200, 6)), Call(3, weighted=True, counted=True))
        sizes = [0, 1, 127, 128, 129, 0, 255, 256, 257, 31, 32, 33, 0]
        ids = random.permutation(numpy.repeat(numpy.arange(len(sizes)), sizes))[:, None]
        for padding in (1, 128):
            call = Call(len(sizes), padding=padding, weighted=True, counted=True, spare=700)
            yield self.problem(f"groups around 128 rows, padding {padding}", ids, call)
        ids = self.distinct(130, 8, 256)
        for first, experts in ((0, 32), (96, 32), (224, 64)):
            call = Call(experts, first, weighted=True, counted=True, i64=first == 96)
            yield self.problem(f"a range of experts from {first} on", ids, call)
            yield self.problem(f"a range of experts from {first} on, padded", ids, Call(experts, first, 128, counted=True))
        near = numpy.array([[-1, 0, 1, 6, 7, 8, -2, 9, 5, 4]] * 7)
        narrow = numpy.where(random.random((7, 10)) < 0.5, near, numpy.resize([-(2**31), 2**31 - 1, 2**31 - 8], (7, 10)))
        for first in (0, 1, 2**31 - 9):
            yield self.problem(f"ids out of range, from {first} on", narrow, Call(8, first, weighted=True, counted=True))
        wide = numpy.where(
            random.random((7, 10)) < 0.5, near, numpy.resize([2**32, 2**32 + 3, -(2**32) + 3, 2**63 - 1, -(2**63), -(2**63) + 3], (7, 10))
        )
        for first in (0, 1, 5):
            yield self.problem(f"64-bit ids out of range, from {first} on", wide, Call(8, first, i64=True, weighted=True, counted=True))

    def problem(self, name: str, ids: numpy.ndarray, call: Call) -> Problem:
        ids = ids.astype(numpy.int64 if call.i64 else numpy.int32)
        inputs = {"ids": Placed(ids)}
        weights = None
        if call.weighted:
            weights = self._random.standard_normal(ids.shape).astype(numpy.float32)
            weights[self._random.random(ids.shape) < 0.02] = numpy.nan
            inputs["weights"] = Placed(weights)
        rows = enough_rows(ids.size, call.experts, call.padding) + call.spare

        def outputs() -> dict[str, Placed]:
            found = route(ids, call.experts, rows, weights, call.first, call.padding)._asdict()
            left_out = {*([] if call.weighted else ["row_weights"]), *([] if call.counted else ["counts"])}
            return {name: Placed(values) for name, values in found.items() if name not in left_out}

        words = f"{name} ({'i64' if call.i64 else 'i32'})"
        return Problem(words, inputs, Later(outputs), {"first": call.first, "padding": call.padding})

"""Which of its possible values does each property of a problem have? Drawn, so that any two values of two properties soon meet in a problem.

Properties that follow one counter do not meet in every way: what one changes then hides what another breaks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy

_CANDIDATES = 50  # for each problem, of which the one with the most pairs that were not there yet is taken

Drawn = Mapping[str, Any]  # values that can be keys


class Pairs:
    """Draws of these properties, the same for the same seed. `idle` names those that change nothing beside the others of a draw."""

    def __init__(self, properties: Mapping[str, Sequence[Any]], seed: int, idle: Callable[[Drawn], Collection[str]]) -> None:
        self._properties, self._idle = properties, idle
        self._random = numpy.random.default_rng(seed)
        self._seen: set[tuple[tuple[str, Any], ...]] = set()

    def draw(self, only: Mapping[str, Sequence[Any]], seen: bool = True) -> Drawn:
        """Where properties have `only` some of their values; not `seen`: of a problem in which nothing comes of them."""
        properties = {**self._properties, **only}
        numbers = self._random.integers(0, [len(values) for values in properties.values()], (_CANDIDATES, len(properties)))
        candidates = [{name: properties[name][number] for name, number in zip(properties, row, strict=True)} for row in numbers.tolist()]
        best = max(candidates, key=lambda drawn: len(self._pairs(drawn) - self._seen))
        if seen:
            self._seen |= self._pairs(best)
        return best

    def _pairs(self, drawn: Drawn) -> set[tuple[tuple[str, Any], ...]]:
        idle = self._idle(drawn)
        return set(itertools.combinations([one for one in drawn.items() if one[0] not in idle], 2))

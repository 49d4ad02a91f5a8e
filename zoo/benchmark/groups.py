"""Groups of rows as models make them, for kernels that take `offsets`, and an index for those that gather."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line names the distributions without loading numpy
    import numpy

DISTRIBUTIONS = ("uniform", "zipf", "empty")


@dataclass(frozen=True)
class Groups:
    """How many groups, and how rows spread over them: evenly, like 1 / rank, or all in one group of eight."""

    count: int = 64
    distribution: str = "uniform"

    def offsets(self, rows: int, step: int = 1) -> numpy.ndarray:
        """Cumulative end rows, of all rows; all but the last end at multiples of `step`."""
        import numpy

        random = numpy.random.default_rng(self.count)
        if self.distribution == "uniform":
            share = numpy.ones(self.count)
        elif self.distribution == "zipf":
            share = random.permutation(1 / numpy.arange(1, self.count + 1))
        else:
            share = numpy.zeros(self.count)
            share[random.permutation(self.count)[: -(-self.count // 8)]] = 1
        ends: numpy.ndarray = numpy.rint(numpy.cumsum(share) / share.sum() * rows / step).astype(numpy.int32) * step
        ends[-1] = rows
        smaller: numpy.ndarray = numpy.minimum(ends, rows)
        return smaller


def shuffled(rows: int) -> numpy.ndarray:
    """An index that takes every row once, none next to its neighbour."""
    import numpy

    return numpy.random.default_rng(rows).permutation(rows).astype(numpy.int32)

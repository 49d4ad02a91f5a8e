"""The clock of one CTA as rows of a picture: its units, and a warp of each role."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from zoo.clock.prediction import Prediction
from zoo.clock.replay import MATH, MEMORY, NEXT_TILE, OTHER_CTAS, RUNNING, SCALES, TENSOR_CORE, TENSOR_MEMORY, Lane, Span, Unit

OTHER_WARPS = "other warps"
CAUSES = (RUNNING, MEMORY, TENSOR_CORE, SCALES, TENSOR_MEMORY, OTHER_WARPS, OTHER_CTAS, NEXT_TILE)
_WARPS_OF_GROUP = 4


@dataclass(frozen=True)
class Row:
    """A unit, whose spans are busy, or warps, whose spans run or wait for a cause. Times are cycles."""

    name: str
    unit: bool
    spans: tuple[Span, ...]

    def total(self, what: str) -> float:
        return sum(span.end - span.start for span in self.spans if span.what == what)

    @property
    def busy(self) -> float:
        return self.total(self.name if self.unit else RUNNING)


def rows(prediction: Prediction) -> list[Row]:
    """Of the CTA of rank 0. Warps that do as little as to set barriers up are left out."""
    sm = prediction.replay.multiprocessors[0]
    units = (sm.memory, sm.scales, sm.tensor_cores[0], sm.sums[0])
    found = [Row(unit.name, True, tuple(unit.spans)) for unit in units if unit.spans]
    return found + list(_of_warps([lane for lane in prediction.replay.lanes if lane.stream.place[1] == 0]))


def issue_slots(prediction: Prediction) -> float:
    """Cycles in which a partition issues instructions, the mean of the four."""
    return _mean(prediction.replay.multiprocessors[0].issue)


def _mean(units: Sequence[Unit]) -> float:
    return sum(unit.busy for unit in units) / len(units)


def _of_warps(lanes: Sequence[Lane]) -> Iterator[Row]:
    groups: dict[tuple[str, int], list[Lane]] = {}
    for lane in lanes:
        if lane.role != "others":
            warpgroup = lane.stream.warp // _WARPS_OF_GROUP if lane.role in (MATH, "epilogue") else 0
            groups.setdefault((lane.role, warpgroup), []).append(lane)
    for (role, _), group in groups.items():
        numbers = sorted({lane.stream.warp for lane in group})
        first = [lane for lane in group if lane.stream.warp == numbers[0]]
        name = f"{role} {numbers[0]}" + (f"-{numbers[-1]}" if len(numbers) > 1 else "")
        yield Row(name, False, tuple(_named(span) for lane in first for span in lane.spans))


def _named(span: Span) -> Span:
    """A wait for warps of some role is one for other warps."""
    return span if span.what in CAUSES else Span(span.start, span.end, OTHER_WARPS)

"""Where the arrays of a call may lie. Of all that is checked of a call, these rules alone depend on addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zoo.contract.expressions import LARGEST


@dataclass(frozen=True)
class Span:
    """The bytes of an array from its address on: `rows` runs of `row` bytes, `pitch` apart."""

    bytes: int
    rows: int
    pitch: int
    row: int

    def meets(self, address: int, other: Span, other_address: int) -> bool:
        """Whether an array of this span at `address` shares a byte with one of `other` at `other_address`."""
        if address + self.bytes <= other_address or other_address + other.bytes <= address:
            return False
        if self.rows > 1 and other.rows > 1 and self.pitch == other.pitch and max(self.row, other.row) <= self.pitch:
            # columns of one larger buffer: they meet only if their places within the pitch do
            ahead = (other_address - address) % self.pitch
            return ahead < self.row or ahead + other.row > self.pitch
        return True


@dataclass(frozen=True)
class Placement:
    """The rules of one call's arrays, which hold wherever arrays of these shapes and strides lie."""

    spans: dict[str, Span]  # of the arrays that have elements; these may not be null
    alignments: dict[str, int]  # what an address must be a multiple of, in bytes
    apart: tuple[tuple[str, str, str], ...]  # two arrays that may not share a byte, and the one of them that is written

    def misaligned(self, name: str, address: int) -> bool:
        return address % self.alignments.get(name, 1) != 0

    def overlap(self, addresses: Mapping[str, int]) -> tuple[str, str, str] | None:
        """The first of `apart` that is broken."""
        for pair in self.apart:
            one, other, _ = pair
            if self.spans[one].meets(addresses[one], self.spans[other], addresses[other]):
                return pair
        return None

    def in_order(self, names: Sequence[str]) -> PlacementCheck:
        return PlacementCheck(self, {name: index for index, name in enumerate(names)})


class PlacementCheck:
    """All rules of a placement at once, for addresses in a fixed order: what a repeated call is asked."""

    def __init__(self, placement: Placement, order: Mapping[str, int]):
        self._bounds = []  # index, alignment, lowest and highest address
        for name, index in order.items():
            span = placement.spans.get(name)
            bounds = (0, LARGEST) if span is None else (1, LARGEST - span.bytes)
            self._bounds.append((index, placement.alignments.get(name, 1), *bounds))
        self._apart = []  # the distances between which spans are so near that they may meet
        for one, other, _ in placement.apart:
            span, other_span = placement.spans[one], placement.spans[other]
            self._apart.append((order[one], order[other], -span.bytes, other_span.bytes, span, other_span))

    def holds(self, addresses: Sequence[int]) -> bool:
        for index, alignment, lowest, highest in self._bounds:
            address = addresses[index]
            if address % alignment or not lowest <= address <= highest:
                return False
        for one, other, before, after, span, other_span in self._apart:
            if before < addresses[one] - addresses[other] < after and span.meets(addresses[one], other_span, addresses[other]):
                return False
        return True

"""Where the arrays of a call may lie. Of all that is checked of a call, these rules alone depend on addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    may_be_one: frozenset[tuple[str, str]] = frozenset()  # those of them that may be one array: nothing differs but the address

    def misaligned(self, name: str, address: int) -> bool:
        return address % self.alignments.get(name, 1) != 0

    def overlap(self, addresses: Mapping[str, int]) -> tuple[str, str, str] | None:
        """The first of `apart` that is broken."""
        for pair in self.apart:
            one, other, _ = pair
            if addresses[one] == addresses[other] and (one, other) in self.may_be_one:
                continue
            if self.spans[one].meets(addresses[one], self.spans[other], addresses[other]):
                return pair
        return None

    def in_order(self, names: Sequence[str]) -> Callable[[Sequence[int]], bool]:
        """All rules at once for addresses in this order: what a repeated call is asked."""
        order = {name: index for index, name in enumerate(names)}
        # Nearly every call passes by a glance: no address is null or odd, and no two arrays lie so near that they may meet. Where one
        # does not, the rules themselves decide. An array of 2^62 bytes ends within 63 bits, wherever memory is.
        odd_bits = [(order[name], alignment - 1) for name, alignment in self.alignments.items() if alignment > 1]
        if any(span.bytes > 2**62 for span in self.spans.values()):
            odd_bits = [(0, -1)]
        near = [(order[one], order[other], -self.spans[one].bytes, self.spans[other].bytes) for one, other, _ in self.apart]

        def hold(addresses: Sequence[int]) -> bool:
            if 0 in addresses:
                return self._hold(dict(zip(names, addresses, strict=True)))
            for index, bits in odd_bits:
                if addresses[index] & bits:
                    return self._hold(dict(zip(names, addresses, strict=True)))
            for one, other, before, after in near:
                if before < addresses[one] - addresses[other] < after:
                    return self._hold(dict(zip(names, addresses, strict=True)))
            return True

        return hold

    def _hold(self, addresses: Mapping[str, int]) -> bool:
        for name, address in addresses.items():
            span = self.spans.get(name)
            lowest, highest = (0, LARGEST) if span is None else (1, LARGEST - span.bytes)
            if self.misaligned(name, address) or not lowest <= address <= highest:
                return False
        return self.overlap(addresses) is None

"""Where arrays may lie, held against the bytes that they have: two that share one are found, two that share none are let be."""

import itertools
import random

import pytest

from zoo.contract.expressions import LARGEST
from zoo.contract.placement import Placement, Span

SPANS = [
    Span((rows - 1) * pitch + row, rows, pitch, row)
    for pitch in (0, 1, 3, 5)
    for rows in ((1,) if pitch == 0 else (1, 2, 3))
    for row in (1, 2, 5, 7)
]  # fmt: skip


def bytes_of(span, address):
    return {address + run * span.pitch + byte for run in range(span.rows) for byte in range(span.row)}


def test_columns_of_one_buffer_meet_where_they_share_a_byte_and_all_else_where_it_lies_in_one_another():
    for one, other in itertools.product(SPANS, SPANS):
        columns = one.rows > 1 and other.rows > 1 and one.pitch == other.pitch and max(one.row, other.row) <= one.pitch
        for place in range(24):
            near = place < 12 + one.bytes and place + other.bytes > 12
            shared = bool(bytes_of(one, 12) & bytes_of(other, place))
            assert one.meets(12, other, place) == (shared if columns else near), (one, other, place)


def test_all_rules_at_once_say_what_each_says():
    """The glance that a repeated call is given must never let pass what the rules refuse, nor refuse what they allow."""
    pick = random.Random(3)
    outcomes = set()
    for _ in range(3000):
        names = list("abc")
        spans = {name: pick.choice(SPANS) for name in pick.sample(names, pick.choice((2, 3)))}
        alignments = {name: pick.choice((1, 2, 4, 8)) for name in spans}
        pairs = [(one, other, one) for one, other in itertools.combinations(spans, 2) if pick.random() < 0.7]
        placement = Placement(spans, alignments, tuple(pairs))
        addresses = {name: pick.choice((0, 1, 12, pick.randrange(40), pick.randrange(0, 96, 12))) for name in names}
        allowed = (
            all(addresses[name] for name in spans)
            and not any(addresses[name] % alignment for name, alignment in alignments.items())
            and not any(spans[one].meets(addresses[one], spans[other], addresses[other]) for one, other, _ in pairs)
        )
        assert placement.in_order(names)(list(addresses.values())) == allowed, (placement, addresses)
        assert allowed == (all(addresses[name] for name in spans) and not any(placement.misaligned(*one) for one in addresses.items())
                           and placement.overlap(addresses) is None)  # fmt: skip
        outcomes.add((allowed, 0 in addresses.values()))
    assert len(outcomes) == 4


@pytest.mark.parametrize("size", [1, 2**62, 2**62 + 1, LARGEST])
def test_an_array_ends_within_63_bits(size):
    hold = Placement({"a": Span(size, 1, 0, size)}, {}, ()).in_order(["a"])
    last = min(LARGEST - size, 2**61)
    assert [hold([address]) for address in (0, max(last, 1), last + 1)] == [False, last > 0, last == 2**61]


def test_of_several_broken_rules_the_first_is_named():
    span = Span(4, 1, 0, 4)
    placement = Placement(dict.fromkeys("abc", span), {}, (("b", "a", "b"), ("c", "a", "a"), ("c", "b", "c")))
    assert placement.overlap({"a": 0, "b": 3, "c": 1}) == ("b", "a", "b")
    assert placement.overlap({"a": 0, "b": 4, "c": 3}) == ("c", "a", "a")
    assert placement.overlap({"a": 0, "b": 4, "c": 8}) is None


def test_an_input_that_may_be_the_output_may_lie_nowhere_else_in_it():
    span = Span(4, 1, 0, 4)
    placement = Placement(dict.fromkeys("cd", span), {}, (("d", "c", "d"),), frozenset({("d", "c")}))
    hold = placement.in_order("cd")
    for c, d, allowed in ((8, 8, True), (8, 9, False), (11, 8, False), (8, 12, True)):
        assert (placement.overlap({"c": c, "d": d}) is None, hold([c, d])) == (allowed, allowed)
    assert Placement(dict.fromkeys("cd", span), {}, (("d", "c", "d"),)).overlap({"c": 8, "d": 8}) == ("d", "c", "d")

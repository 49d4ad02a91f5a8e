"""Numbers and shapes that callers give: taken to the edge of what is asked for, refused one past it, shown in little."""

import numpy
import pytest

from zoo.contract.whole_numbers import MOST_DIMENSIONS, shown, whole, whole_tuple
from zoo.errors import ArgumentError


class Raises:
    def __index__(self):
        raise ValueError("no number")

    def __iter__(self):
        raise ValueError("no end")

    def __repr__(self):
        return "R"


class Textless:
    def __repr__(self):
        raise ValueError


@pytest.mark.parametrize("number", [0, 1, 2**63 - 1, numpy.int8(7), numpy.uint64(9)])
def test_a_whole_number_is_taken_whatever_its_type(number):
    assert whole(number, "x") == int(number) and type(whole(number, "x")) is int


@pytest.mark.parametrize(
    ("given", "got"),
    [(-1, "-1"), (2**63, "9223372036854775808"), (True, "True"), (1.0, "1.0"), ("1", "'1'"), (None, "None"), (2**70, str(2**70))],
)
def test_what_is_no_whole_number_in_range_is_refused(given, got):
    with pytest.raises(ArgumentError) as refusal:
        whole(given, "x")
    assert str(refusal.value) == f"x: expected a whole number of 0 to 9223372036854775807, got {got}"


def test_an_index_that_raises_is_told():
    with pytest.raises(ArgumentError) as refusal:
        whole(Raises(), "x")
    assert str(refusal.value) == "x: expected a whole number, got R, which raises ValueError('no number')"


def test_bounds_are_taken_and_one_more_is_refused():
    assert [whole(number, "x", -3, 5) for number in (-3, 5)] == [-3, 5]
    for number in (-4, 6):
        with pytest.raises(ArgumentError, match=f"^x: expected a whole number of -3 to 5, got {number}$"):
            whole(number, "x", -3, 5)


def test_a_shape_has_as_many_dimensions_as_numpys():
    assert whole_tuple([1, numpy.int32(0), 3], "x") == (1, 0, 3) and whole_tuple((), "x") == () and whole_tuple((-1,), "x", -1) == (-1,)
    assert whole_tuple((1,) * 64, "x") == (1,) * 64 and MOST_DIMENSIONS == 64
    for given in ((1,) * 65, iter(int, 1)):
        with pytest.raises(ArgumentError, match="x: more than 64 dimensions"):
            whole_tuple(given, "x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (7, "expected a tuple of whole numbers, got 7"),
        ("12", "expected a tuple of whole numbers, got '12'"),
        (b"12", "expected a tuple of whole numbers, got b'12'"),
        (Raises(), "expected a tuple of whole numbers, got R, which raises ValueError('no end')"),
        ((1, -1), "expected a whole number of 0 to 9223372036854775807, got -1"),
    ],
)
def test_what_is_no_shape_is_refused(given, words):
    with pytest.raises(ArgumentError) as refusal:
        whole_tuple(given, "x")
    assert str(refusal.value) == f"x: {words}"


def test_what_is_shown_is_bounded_and_never_an_error():
    assert shown("a" * 198) == repr("a" * 198) and shown("a" * 199) == "'" + "a" * 199 + "..."
    assert shown(Textless()) == "a Textless" and shown(10**5000) == "a int"

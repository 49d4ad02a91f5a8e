"""Whole numbers that callers give: Python's, numpy's, anything with __index__, but no truth values."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from operator import index
from typing import Any, cast

from zoo.errors import ArgumentError

MOST_DIMENSIONS = 64  # of an array, as numpy has it; a caller's tuple may have no end
LONGEST = 200  # of what a message shows


def whole(given: Any, what: str, smallest: int = 0, largest: int = 2**63 - 1) -> int:
    """`given` as an int; ArgumentError naming `what` it was for."""
    try:
        number = None if isinstance(given, bool) else index(given)
    except TypeError:
        number = None
    except Exception as error:  # an __index__ may raise anything
        raise ArgumentError(f"{what}: expected a whole number, got {shown(given)}, which raises {shown(error)}") from None
    if number is None or not smallest <= number <= largest:
        raise ArgumentError(f"{what}: expected a whole number of {smallest} to {largest}, got {shown(given)}")
    return number


def whole_tuple(given: object, what: str, smallest: int = 0) -> tuple[int, ...]:
    """A shape or strides."""
    if issubclass(type(given), (str, bytes)) or not hasattr(type(given), "__iter__"):
        raise ArgumentError(f"{what}: expected a tuple of whole numbers, got {shown(given)}")
    try:
        numbers = tuple(islice(cast(Iterable[object], given), MOST_DIMENSIONS + 1))
    except Exception as error:
        raise ArgumentError(f"{what}: expected a tuple of whole numbers, got {shown(given)}, which raises {shown(error)}") from None
    if len(numbers) > MOST_DIMENSIONS:
        raise ArgumentError(f"{what}: more than {MOST_DIMENSIONS} dimensions")
    return tuple(whole(number, what, smallest) for number in numbers)


def shown(given: object) -> str:
    """What a caller gave, for a message: bounded, and never itself an error (numbers of thousands of digits have no text)."""
    try:
        text = repr(given)
    except Exception:
        return f"a {type(given).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."

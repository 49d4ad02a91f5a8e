"""Whole numbers that callers give: Python's, numpy's, anything with __index__, but no truth values."""

from __future__ import annotations

from operator import index
from typing import Any

from zoo.errors import ArgumentError


def whole(given: Any, what: str, smallest: int = 0, largest: int = 2**63 - 1) -> int:
    """`given` as an int; ArgumentError naming `what` it was for."""
    try:
        number = None if isinstance(given, bool) else index(given)
    except TypeError:
        number = None
    if number is None or not smallest <= number <= largest:
        raise ArgumentError(f"{what}: expected a whole number of {smallest} to {largest}, got {given!r}")
    return number


def whole_tuple(given: object, what: str, smallest: int = 0) -> tuple[int, ...]:
    """A shape or strides."""
    if isinstance(given, (str, bytes)) or not hasattr(given, "__iter__"):
        raise ArgumentError(f"{what}: expected a tuple of whole numbers, got {given!r}")
    return tuple(whole(number, what, smallest) for number in given)

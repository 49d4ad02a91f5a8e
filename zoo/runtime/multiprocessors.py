"""The limit of multiprocessors that calls of a thread observe where they give none themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from zoo.contract.limits import PERSISTENT_CLUSTER
from zoo.contract.whole_numbers import whole

_MOST = 2**31 - 1  # more than any device has
_limit: ContextVar[int | None] = ContextVar("zoo.multiprocessors", default=None)
limit_here = _limit.get


@contextmanager
def multiprocessors(number: int | None) -> Iterator[None]:
    """Persistent kernels that this thread starts within fill so many multiprocessors and leave the others to other streams. None: all.

    A thread that begins within has no limit, and neither have autograd's threads.
    """
    before = _limit.set(None if number is None else whole(number, "multiprocessors", 1, _MOST))
    try:
        yield
    finally:
        _limit.reset(before)


def limit_of(given: object) -> int | None:
    """The limit of a call that was given `multiprocessors=`. `checked` refuses what its device has not."""
    if given is None:
        return limit_here()
    return given if type(given) is int else whole(given, "multiprocessors", 1, _MOST)


def checked(limit: int | None, kernel: str, present: int) -> int | None:
    """The limit of a call on a device of so many multiprocessors, None where it is no limit."""
    if limit is None:
        return None
    whole(limit, f"{kernel}: multiprocessors", min(PERSISTENT_CLUSTER, present), present)
    return limit if limit < present else None

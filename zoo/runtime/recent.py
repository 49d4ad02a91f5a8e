"""A bounded memory of what was used lately, which costs no more to look into than a dictionary."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypeVar

Value = TypeVar("Value")


class Recent(dict[Hashable, Value]):
    """The last `most` different keys that were used, and at most as many from before those.

    In two generations: what is found in the younger one costs one look-up and leaves no note. When that is full it becomes
    the older one, in place of what was, and whatever is used again comes back from there. So a key stays as long as fewer
    than `most` others are used between two of its uses.

    `latest_form` and `latest` are its user's: the key that was used last, as a list, and its value. Comparing with that one
    first is cheaper than a look-up, for which the list must become a tuple and be hashed.
    """

    def __init__(self, most: int):
        super().__init__()
        self.latest_form: list[Any] | None = None
        self.latest: Value | None = None
        self._most = most
        self._older: dict[Hashable, Value] = {}

    def __missing__(self, key: Hashable) -> Value:
        value = self._older.pop(key)
        self[key] = value
        return value

    def __setitem__(self, key: Hashable, value: Value) -> None:
        if len(self) >= self._most and key not in self:
            self._older = dict(self)
            self.clear()
        super().__setitem__(key, value)

    @property
    def remembered(self) -> int:
        return len(self) + len(self._older)

"""What the first instance of a class is must not decide what the others are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import zoo
from zoo.runtime import arrays
from zoo.runtime.arrays import kind_of

FIELDS = {"shape": (4, 64), "typestr": "<f4", "data": (0, False), "version": 3, "strides": None}
INTERFACE, DLPACK = arrays._PROTOCOLS.values()


class Fickle:
    """An interface that some instances refuse, as frameworks do for dtypes that it cannot say."""

    def __init__(self, refuses: bool):
        self.refuses = refuses

    @property
    def __cuda_array_interface__(self):
        if self.refuses:
            raise AttributeError("no interface of this dtype")
        return FIELDS


class Both(Fickle):
    def __dlpack__(self, **settings):
        raise BufferError("never called here")


class Forwarding:
    __slots__ = ("held",)

    def __init__(self, held: object):
        self.held = held

    def __getattr__(self, name: str):
        return getattr(self.held, name)


WITH, WITHOUT = SimpleNamespace(__cuda_array_interface__=FIELDS), SimpleNamespace(a=1)


@pytest.mark.parametrize(
    ("first", "then", "kind"),
    [
        (WITHOUT, WITH, INTERFACE),
        (WITH, WITHOUT, None),
        (WITH, SimpleNamespace(__dlpack__=Both.__dlpack__), DLPACK),
        (Fickle(True), Fickle(False), INTERFACE),
        (Both(False), Both(True), DLPACK),
        (Both(True), Both(False), INTERFACE),
        (Forwarding(3), Forwarding(WITH), INTERFACE),
        (Forwarding(WITH), Forwarding(3), None),
    ],
    ids=lambda one: type(one).__name__,
)
def test_the_first_instance_of_a_class_does_not_decide_for_the_others(first, then, kind, monkeypatch):
    monkeypatch.setattr(arrays, "_kinds", dict(arrays._kinds))
    kind_of(first)
    assert kind_of(then) is kind


def test_what_a_class_decides_is_looked_up_once(monkeypatch):
    asked = []
    monkeypatch.setattr(arrays, "_kinds", {kind: found for kind, found in arrays._kinds.items() if kind not in (bool, range)})
    monkeypatch.setattr(arrays, "_find_kind", lambda value, find=arrays._find_kind: asked.append(type(value)) or find(value))
    for value in (Fickle(False), True, range(3), zoo.ptr(4096, (4,), "f32", device=0)) * 2:
        kind_of(value)
    assert asked == [Fickle, bool, range]

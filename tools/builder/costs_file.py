"""The files that costs are made of, the file of a GPU and the file of formulas: which keys they have, and of which types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tools.builder import BuildError
from tools.builder.documents import did_you_mean

_Check = Callable[[str, Any], None]


def _refuse(where: str, value: Any, expected: str) -> None:
    raise BuildError(f"{where} is {value!r}, expected {expected}")


def _text(where: str, value: Any) -> None:
    if not isinstance(value, str):
        _refuse(where, value, "a text")


def _number(where: str, value: Any) -> None:
    if type(value) is not int or value < 0:
        _refuse(where, value, "a whole number that is not negative")


def _table_of(check: _Check) -> _Check:
    def table(where: str, value: Any) -> None:
        if not isinstance(value, dict):
            _refuse(where, value, "a table")
        for key, one in value.items():
            check(f"{where}.{key}", one)

    return table


def _texts(where: str, value: Any) -> None:
    """A text, or a list of such: what a formula changes in a launch."""
    if isinstance(value, list):
        for index, one in enumerate(value):
            _texts(f"{where}[{index}]", one)
    else:
        _text(where, value)


def _formula(where: str, value: Any) -> None:
    _table_of(lambda where, one: None)(where, value)
    if "cost" not in value:
        raise BuildError(f"{where} has no cost")
    for key, one in value.items():
        {"derives": _table_of(_text), "launch": _table_of(_texts)}.get(key, _text)(f"{where}.{key}", one)


OF_A_GPU: Mapping[str, _Check] = {
    "formulas": _text,
    "experiment": _table_of(_text),
    "chip": _table_of(_number),
    "tile": _table_of(_table_of(_table_of(_number))),
}
OF_FORMULAS: Mapping[str, _Check] = {
    "experiment": _table_of(_text),
    "formula": _table_of(_formula),
    "part": _table_of(_text),
    "table": _table_of(_table_of(_text)),
    "same": _table_of(_text),
    "tensor": _table_of(_text),
    "rates": _table_of(_text),
}


def check_file(name: str, data: Mapping[str, Any], keys: Mapping[str, _Check]) -> None:
    """Refuses a key that nobody reads, and a value of another type."""
    for key, value in data.items():
        if key not in keys:
            known = did_you_mean(key, keys) or f"; known here: {', '.join(keys)}"
            raise BuildError(f"{name}: has the unknown key '{key}'{known}")
        keys[key](f"{name}: {key}", value)

"""What one field of the contract may hold, where it stands, and how a record's fields are read.

zoo/contract/schema.py declares every record of the contract with these words. Three readers follow the declaration: `read`
takes a record from a manifest, `lowered` from a table that a person wrote, and the documentation prints it.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple, NoReturn

from zoo.contract.expressions import Expression
from zoo.contract.files import is_file_name
from zoo.errors import ExpressionError

REQUIRED: Any = object()  # a default of none: whoever writes a table must say it
SEVERAL = range(1, 1 << 16)
LONGEST_TEXT = 1000  # characters: whatever shows one, and every compiler of the tables of an export, has room for it
TABLE, MANIFEST, BOTH = "tables", "the manifest", "both"


class Malformed(Exception):
    """A value that the contract does not allow: where it stands, what it is and what was expected."""

    def __init__(self, said: str):
        super().__init__(said)
        self.said, self.path = said, ""

    def __str__(self) -> str:
        return (self.path.removeprefix(".") or "it") + self.said

    def inside(self, step: str) -> Malformed:
        self.path = step + self.path
        return self


def refuse(value: object, expected: str) -> NoReturn:
    raise Malformed(f" is {reprlib.repr(value)}, expected {expected}")


@contextmanager
def inside(step: str) -> Iterator[None]:
    """Whatever is refused within stands at `step`, such as `.default` or `[2]`."""
    try:
        yield
    except Malformed as error:
        raise error.inside(step) from None


class Kind:
    """What a field may hold. `words` end the sentence "expected ..."."""

    words: str

    def read(self, value: Any) -> Any:
        """The manifest's value as the record holds it; Malformed for any other."""
        raise NotImplementedError

    def lowered(self, value: Any) -> Any:
        """A table's value as the manifest holds it. What is of another kind stays as it is, and `read` refuses it."""
        return value


class Text(Kind):
    def __init__(self, words: str = "a text", pattern: re.Pattern[str] | None = None):
        self.words, self.pattern = words, pattern

    def read(self, value: Any) -> str:
        if type(value) is not str or (self.pattern is not None and not self.pattern.fullmatch(value)) or not value.isprintable():
            refuse(value, self.words)
        if len(value) > LONGEST_TEXT:
            refuse(value, f"{self.words}, of at most {LONGEST_TEXT:,} characters")
        return value


class FileName(Kind):
    """Of a file below the manifest's directory, or below a tree of tables."""

    words = "a path of letters, digits, _ . and -, no part of which starts with a dot or a dash"

    def read(self, value: Any) -> str:
        if type(value) is not str or not is_file_name(value):
            refuse(value, self.words)
        return value


class OneOf(Kind):
    def __init__(self, allowed: Collection[str]):
        self.allowed = tuple(allowed)
        self.words = one_of(self.allowed)

    def read(self, value: Any) -> str:
        if type(value) is not str or value not in self.allowed:
            refuse(value, self.words)
        return value


def one_of(allowed: Collection[str]) -> str:
    return f"{'' if len(allowed) == 1 else 'one of '}{', '.join(allowed) or 'none'}"


class Whole(Kind):
    """A whole number; True is none."""

    def __init__(self, least: int, most: int, words: str = ""):
        self.least, self.most = least, most
        self.words = words or f"a whole number of {least} to {most}"

    def read(self, value: Any) -> int:
        if type(value) is not int or not self.least <= value <= self.most:
            refuse(value, self.words)
        return value


class PowerOfTwo(Kind):
    def __init__(self, most: int):
        self.most = most
        self.words = f"a power of two up to {most}"

    def read(self, value: Any) -> int:
        if type(value) is not int or not 1 <= value <= self.most or value & (value - 1):
            refuse(value, self.words)
        return value


class Truth(Kind):
    words = "true or false"

    def read(self, value: Any) -> bool:
        if type(value) is not bool:
            refuse(value, self.words)
        return value


class NumberOrNull(Kind):
    words = "a number or null"

    def read(self, value: Any) -> int | float | None:
        fits = value is None or (type(value) is int and -(1 << 63) <= value < 1 << 63) or (type(value) is float and math.isfinite(value))
        if not fits:
            refuse(value, "a number of 64 bits")
        return value  # type: ignore[no-any-return]


class Formula(Kind):
    """An expression. Tables may write a whole number for one."""

    words = "an expression"

    def read(self, value: Any) -> Expression:
        if type(value) is not str or not value.isprintable():
            refuse(value, self.words)
        try:
            return Expression(value)
        except ExpressionError as error:
            raise Malformed(f": {error}") from None

    def lowered(self, value: Any) -> Any:
        return str(value) if type(value) is int else value


class ListOf(Kind):
    """A list of values of one kind: as many as `count` says, and none twice where they are names."""

    def __init__(self, kind: Kind, words: str, count: range | None = None, distinct: bool = False):
        self.kind, self.count, self.distinct = kind, count, distinct
        self.words = (f"a list of {how_many(count)} {words}" if count else f"a list of {words}") + (", none twice" if distinct else "")

    def read(self, value: Any) -> tuple[Any, ...]:
        if type(value) is not list or (self.count is not None and len(value) not in self.count):
            refuse(value, self.words)
        made = []
        for index, item in enumerate(value):
            try:
                made.append(self.kind.read(item))
            except Malformed as error:
                raise error.inside(f"[{index}]") from None
        if self.distinct and len(set(made)) != len(made):
            refuse(value, self.words)
        return tuple(made)

    def lowered(self, value: Any) -> Any:
        return [self.kind.lowered(item) for item in value] if type(value) is list else value


def how_many(count: range) -> str:
    if len(count) == 1:
        return str(count[0])
    return f"{count[0]} to {count[-1]}" if count.stop < SEVERAL.stop else "one or more"


class OrNull(Kind):
    def __init__(self, kind: Kind, words: str):
        self.kind, self.words = kind, f"{kind.words}, or {words}"

    def read(self, value: Any) -> Any:
        return None if value is None else self.kind.read(value)

    def lowered(self, value: Any) -> Any:
        return None if value is None else self.kind.lowered(value)


class TableOf(Kind):
    """A table that gives each of its keys a value of one kind."""

    def __init__(self, kind: Kind, words: str, keys: Kind | None = None):
        self.kind, self.keys, self.words = kind, keys or Text(), f"a table of {words}"

    def read(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            refuse(value, self.words)
        made = {}
        for key, item in value.items():
            try:
                self.keys.read(key)
            except Malformed:
                raise Malformed(f" has the key {reprlib.repr(key)}, expected {self.keys.words}") from None
            try:
                made[key] = self.kind.read(item)
            except Malformed as error:
                raise error.inside(f".{key}") from None
        return made

    def lowered(self, value: Any) -> Any:
        return {key: self.kind.lowered(item) for key, item in value.items()} if type(value) is dict else value


class Anything(Kind):
    """What no reader looks into."""

    words = "anything"

    def read(self, value: Any) -> Any:
        return value


class Subtable(Kind):
    """The table of one record, whose own fields say what is in it."""

    def __init__(self, record: str):
        self.record = record
        self.words = f"a table: {record}"

    def read(self, value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            refuse(value, self.words)
        return value


class Field(NamedTuple):
    """What a record says of one of its fields."""

    kind: Kind
    meaning: str
    default: Any = REQUIRED  # in a table: what the manifest then holds, or a function of the record's fields before it
    default_words: str = ""  # where the default itself does not say it
    stands: str = BOTH
    of: tuple[str, ...] = ()  # the kinds of argument or parameter that have it; () is all
    otherwise: Any = REQUIRED  # what the manifest holds for those that have it not; REQUIRED: nothing
    table_key: str = ""  # where a table has another word for it

    def is_of(self, of: str | None) -> bool:
        return of is None or not self.of or of in self.of


def says(kind: Kind, meaning: str, **more: Any) -> Mapping[str, Field]:
    """The metadata of a record's attribute."""
    return {"contract": Field(kind, meaning, **more)}


@cache
def fields_of(record: type) -> dict[str, Field]:
    """What a record declares: of its attributes, then what only tables have."""
    declared = {one.name: one.metadata["contract"] for one in fields(record) if "contract" in one.metadata}
    return declared | getattr(record, "only_in_tables", {})


@cache
def _manifest_fields(record: type, of: str | None) -> dict[str, Kind]:
    found = fields_of(record).items()
    return {name: one.kind for name, one in found if one.stands != TABLE and (one.is_of(of) or one.otherwise is not REQUIRED)}


def read(record: type, data: Any, of: str | None = None, but: Collection[str] = ()) -> dict[str, Any]:
    """The fields of one record in a manifest. Keys that the record has not are refused, except those of `but`."""
    if type(data) is not dict:
        refuse(data, "a table")
    declared, made = _manifest_fields(record, of), {}
    for name, kind in declared.items():
        if name not in data:
            raise Malformed(" is missing").inside(f".{name}")
        try:
            made[name] = kind.read(data[name])
        except Malformed as error:
            raise error.inside(f".{name}") from None
    if len(data) != len(made):
        refuse_unknown(data, (*declared, *but))
    return made


def lowered(record: type, data: Any, of: str | None = None) -> dict[str, Any]:
    """The fields that a table gives one record, as the manifest will hold them: checked, and with the defaults filled in."""
    if type(data) is not dict:
        refuse(data, "a table")
    declared = {name: one for name, one in fields_of(record).items() if one.stands != MANIFEST}
    refuse_unknown(data, [one.table_key or name for name, one in declared.items() if one.is_of(of)])
    made: dict[str, Any] = {}
    for name, one in declared.items():
        key = one.table_key or name
        if one.is_of(of) and key in data:
            made[name] = one.kind.lowered(data[key])
            with inside(f".{key}"):
                one.kind.read(made[name])
            continue
        value = one.default if one.is_of(of) else one.otherwise
        if value is not REQUIRED:
            made[name] = value(made) if callable(value) else value
        elif one.is_of(of):
            raise Malformed(" is missing").inside(f".{key}")
    return made


def refuse_unknown(data: Mapping[str, Any], known: Sequence[str]) -> None:
    """A misspelt `l2_promotoin` must not silently mean `none`."""
    for key in data:
        if key not in known:
            import difflib  # only a refusal pays for it

            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise Malformed(f" has the unknown key {reprlib.repr(key)}; {hint}known here: {', '.join(sorted(known))}")

"""The parameters of a kernel: a signature declares them once, and launches give their values by name.

[signature.gated]                        # in the order of the kernel's parameters
parameters = [
    "map tokens",                        # a tensor map
    "const float* row_scale = nullptr",  # with a default
    "int N",
    "Activation activation",             # an enumeration
    { stored = ["map weights", "int64_t weight_stride"] },  # only in cubins with the feature `stored`
]

[enum.Activation]                        # `enum class Activation` of the sources: its values from 0 on
values = ["silu", "gpt_oss"]
constants = ["ACTIVATION"]               # constants of tiles that are named by such a value: ACTIVATION = "gpt_oss"

[launch.default]
signature = "gated stored"               # a signature and its features
parameters = ["operands"]                # pieces [parameter.x]: tables of values
values = { N = "2 * I" }                 # the values of this launch alone

| parameter | its value |
|---|---|
| integer | an expression |
| tensor map | a recipe, or `{ use = "x" }` for a piece [map.x] |
| pointer, float | the name of an argument |
| enumeration | one of its values, or the name of an option or of an argument with dtypes |

A parameter without a value is the argument, symbol or option of the same name, else its default.

The source declares `ZOO_KERNEL(ZOO_PARAMETERS)`. The kernel of a signature with features begins with `ZOO_ABSENT_PARAMETERS`, which makes
each parameter of a missing feature a constant, 0 or a null pointer: one source serves cubins with and without the feature. For a feature
that is there, `ZOO_WITH_<FEATURE>` is defined.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tools.builder import BuildError
from tools.builder.documents import did_you_mean
from zoo.contract.fields import Malformed, inside
from zoo.contract.schema import signature_digest

_DECLARATION = re.compile(r"(?P<type>[A-Za-z_][\w: ]*\w\**|\w+) (?P<name>[A-Za-z_]\w*)(?: = (?P<default>\w+))?")
_SCALARS = {"int": "i32", "int32_t": "i32", "uint32_t": "i32", "int64_t": "i64", "uint64_t": "i64", "float": "f32"}
_Table = dict[str, Any]


@dataclass(frozen=True)
class Declared:
    """One parameter of a signature."""

    name: str
    kind: str  # as in the manifest
    type: str  # as in C++
    default: str | None
    values: tuple[str, ...] = ()  # of an enumeration

    @property
    def constant(self) -> str:
        """The line that replaces the parameter in cubins without its feature."""
        cpp, value = ("int", "0") if self.kind == "tensor_map" else (self.type, "nullptr" if self.kind == "pointer" else f"{self.type}(0)")
        return f"[[maybe_unused]] constexpr {cpp} {self.name} = {value};"


@dataclass(frozen=True)
class Signature:
    """The parameters of a cubin."""

    parameters: tuple[Declared, ...]
    lacking: tuple[Declared, ...]  # of missing features
    features: tuple[str, ...]

    @property
    def digest(self) -> str:
        return signature_digest((one.kind, one.name) for one in self.parameters)

    def head(self) -> list[str]:
        """The lines of a translation unit before its source."""
        listed = ", ".join(f"{one.type} {one.name}" for one in self.parameters)
        with_features = [f"#define ZOO_WITH_{feature.upper()}" for feature in self.features]
        absent = " ".join(one.constant for one in self.lacking)
        return [*with_features, f"#define ZOO_PARAMETERS {listed}", f"#define ZOO_ABSENT_PARAMETERS {absent}".rstrip()]

    @property
    def enums(self) -> set[str]:
        return {one.type.removeprefix("zoo::") for one in self.parameters if one.values}


@dataclass(frozen=True)
class Enums:
    """The enumerations of a table."""

    values: Mapping[str, tuple[str, ...]]
    constants: Mapping[str, str]  # a tile's constant -> its enumeration

    @classmethod
    def of(cls, pieces: Mapping[str, Any]) -> Enums:
        for name, piece in pieces.items():
            lists = [piece.get("values"), piece.get("constants", [])] if isinstance(piece, dict) else [None]
            if not all(isinstance(one, list) and all(isinstance(word, str) for word in one) for one in lists) or not piece.keys() <= {
                "values",
                "constants",
            }:
                raise BuildError(f"enum '{name}' must have a list of names 'values', and may have one of 'constants'")
        constants: dict[str, str] = {}
        for name, piece in pieces.items():
            for constant in piece.get("constants", []):
                if constant in constants:
                    raise BuildError(f"enum '{name}': the constant {constant} is already of the enum '{constants[constant]}'")
                constants[constant] = name
        return cls({name: tuple(piece["values"]) for name, piece in pieces.items()}, constants)

    def number(self, constant: str, value: Any) -> Any:
        """The integer of a tile's constant, which may name a value."""
        if constant not in self.constants:
            return value
        values = self.values[self.constants[constant]]
        if value not in values:
            raise Malformed(f" is {value!r}, expected one of {', '.join(values)}").inside(f".constants.{constant}")
        return values.index(value)

    def assertions(self, names: set[str]) -> list[str]:
        """The lines of a translation unit after its source, which defines the enumerations."""
        return [
            f"static_assert(int(zoo::{name}::{value}) == {number});"
            for name in sorted(names)
            for number, value in enumerate(self.values[name])
        ]


def signature(words: str, pieces: Mapping[str, Any], enums: Enums) -> Signature:
    """`words`: a name and features; `pieces`: the tables [signature.<name>]."""
    if not words.split():
        raise Malformed(f".signature is missing; there are: {', '.join(pieces) or 'none'}")
    name, *features = words.split()
    if name not in pieces:
        raise BuildError(f"no signature is named '{name}'{did_you_mean(name, pieces)}")
    with_features, known = list(_declared(name, pieces[name], enums)), {feature for feature, _ in _declared(name, pieces[name], enums)}
    for feature in features:
        if feature not in known:
            raise BuildError(f"signature '{name}' has no feature '{feature}'{did_you_mean(feature, (one for one in known if one))}")
    has = [one for feature, one in with_features if feature is None or feature in features]
    names = [one.name for one in has]
    if twice := next((one for one in names if names.count(one) > 1), None):
        raise BuildError(f"signature '{words}' has two parameters named '{twice}'")
    lacking = {one.name: one for feature, one in with_features if feature is not None and feature not in features and one.name not in names}
    return Signature(tuple(has), tuple(lacking.values()), tuple(features))


def _declared(name: str, piece: Any, enums: Enums) -> Iterator[tuple[str | None, Declared]]:
    """Every parameter with its feature."""
    items = piece.get("parameters") if isinstance(piece, dict) else None
    if not isinstance(items, list) or piece.keys() != {"parameters"}:
        raise BuildError(
            f"signature '{name}' must have a list of 'parameters' and no other key; other keys stand above the first [section]"
        )
    for item in items:
        for feature, texts in item.items() if isinstance(item, dict) else [(None, item)]:
            for text in texts if isinstance(texts, list) else [texts]:
                yield feature, _declaration(name, text, enums)


def _declaration(name: str, text: Any, enums: Enums) -> Declared:
    found = _DECLARATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise BuildError(f"signature '{name}': {text!r} is not a parameter; write `const float* row_scale` or `int N = 1`")
    kind, cpp, default = _SCALARS.get(found["type"]), found["type"], found["default"]
    values: tuple[str, ...] = ()
    if found["type"] == "map":
        kind, cpp = "tensor_map", "const __grid_constant__ zoo::TensorMap"
    elif found["type"].endswith("*"):
        kind = "pointer"
    elif "::" in found["type"]:
        kind = "i64"  # a type of the source: 8 bytes that are a number or, for some formats, an address
    elif found["type"] in enums.values:
        kind, cpp, values = "i32", f"zoo::{found['type']}", enums.values[found["type"]]
    if kind is None:
        raise BuildError(f"signature '{name}': {text!r} has an unknown type{did_you_mean(found['type'], (*_SCALARS, *enums.values))}")
    allowed = {"pointer": ("nullptr",), "tensor_map": ()}.get(kind, values or None)
    if default is not None and allowed is not None and default not in (*allowed, *map(str, range(len(values)))):
        raise BuildError(f"signature '{name}': the default of {text!r} must be {' or '.join(allowed) or 'left out'}")
    return Declared(found["name"], kind, cpp, default, values)


@dataclass(frozen=True)
class Scope:
    """The names of a table that are default values of parameters."""

    arrays: Mapping[str, tuple[str, ...]]  # with their dtypes
    floats: frozenset[str]  # f32 scalars
    symbols: frozenset[str]
    options: Mapping[str, tuple[str, ...]]
    others: Mapping[str, str]  # names that no parameter takes by itself, each with what it is: a default would hide them


def passed(signature: Signature, given: list[_Table], scope: Scope) -> list[_Table]:
    """A launch's parameters in the order of the signature, each `{ name = ..., <kind> = ... }`."""
    values: _Table = {}
    for table in given:
        for name, value in table.items():
            if name in values:
                raise Malformed(f".{name}: has two values")
            values[name] = value
    made = []
    for one in signature.parameters:
        with inside(f".{one.name}"):
            made.append({**_value(one, values.pop(one.name, None), scope), "name": one.name})
    if values:
        name = next(iter(values))
        raise Malformed(f": the signature has no parameter '{name}'{did_you_mean(name, (one.name for one in signature.parameters))}")
    return made


def _value(one: Declared, given: Any, scope: Scope) -> _Table:
    if one.kind == "tensor_map":
        if given is None:
            raise Malformed(': the launch has no recipe for this tensor map; write one, or { use = "a piece of [map]" }')
        if not isinstance(given, dict):
            raise Malformed(f" is {given!r}, expected a recipe of a tensor map")
        return given
    if type(given) is int:
        given = str(given)
    if given is not None and not isinstance(given, str):
        raise Malformed(f" is {given!r}, expected a text")
    if one.kind == "pointer":
        argument = one.name if given is None and one.name in scope.arrays else given
        return {"i64": _default(one, scope)} if argument is None else {"i64": "0"} if argument == "nullptr" else {"pointer": argument}
    if one.kind == "f32":
        argument = one.name if given is None and one.name in scope.floats else given
        return {"i32": _bits(_default(one, scope))} if argument is None else {"f32": argument}
    if one.values:
        return {one.kind: _number_of(one, given, scope)}
    if "::" in one.type and given in scope.arrays:
        return {"pointer": given}
    return {one.kind: given if given is not None else one.name if one.name in scope.symbols else _default(one, scope)}


def _default(one: Declared, scope: Scope) -> str:
    if one.default is None:
        raise Malformed(": the launch gives no value, and no argument or symbol has this name")
    if one.name in scope.others:
        raise Malformed(f": the default {one.default} would hide {scope.others[one.name]} of this name; give a value, or rename one")
    return "0" if one.default == "nullptr" else one.default


def _bits(number: str) -> str:
    """The bits of a float32, which enters the block as an integer."""
    try:
        return str(struct.unpack("<i", struct.pack("<f", float(number)))[0])
    except (ValueError, OverflowError):
        raise Malformed(f": the default '{number}' is not a number of float") from None


def _number_of(one: Declared, given: str | None, scope: Scope) -> str:
    """The value of an enumeration that an option or a dtype names, as an expression of flags."""
    if given in one.values:
        return str(one.values.index(given))
    name = one.name if given is None else given
    chosen = scope.options.get(name) or scope.arrays.get(name)
    if chosen is None:
        if given is None:
            default = _default(one, scope)
            return str(one.values.index(default)) if default in one.values else default
        raise Malformed(f" is {given!r}, expected an option, an argument with dtypes, or one of {', '.join(one.values)}")
    if unknown := [value for value in chosen if value not in one.values]:
        raise Malformed(f": {name} may be {unknown[0]}, which is not a value of the enumeration: {', '.join(one.values)}")
    flags = [(one.values.index(value), f"{name}.{value}") for value in chosen]
    return " + ".join(flag if number == 1 else f"{number} * {flag}" for number, flag in sorted(flags) if number) or "0"

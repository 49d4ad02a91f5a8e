"""Does every expression of a table read only what exists when a reader evaluates it?

`and`, `or` and `if` evaluate only the side they need, so `stride if layout.plain else 0` may name a symbol that the
other layout never binds. Each combination of dtypes, options and present arguments is therefore walked on its own,
along the branches that its known flags leave open.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from tools.builder import BuildError
from tools.builder.expand import Variant, expand
from tools.builder.table import Table, check_constant_box
from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.errors import ArgumentError


def check_scope(table: Table) -> None:
    try:
        _Scope(table).check()
    except _Wrong as error:
        raise BuildError(f"{table.path}: {error}") from None


class _Wrong(Exception):
    pass


def reachable_names(expression: Expression, known: Mapping[str, int]) -> set[str]:
    """The names that may be read when `known` holds: a branch that a known value closes is not walked."""
    if all(opcode not in ("jump", "jump_if_zero") for opcode, _ in expression.code):
        return set(expression.names)
    names: set[str] = set()
    seen: set[tuple[int, tuple[Any, ...]]] = set()
    open_paths: list[tuple[int, tuple[Any, ...]]] = [(0, ())]
    while open_paths:
        path = open_paths.pop()
        position, stack = path
        if path in seen or position >= len(expression.code):
            continue
        seen.add(path)
        opcode, operand = expression.code[position]
        after = position + 1
        if opcode == "constant":
            open_paths.append((after, (*stack, operand)))
        elif opcode == "load":
            names.add(operand)
            open_paths.append((after, (*stack, known.get(operand))))
        elif opcode == "jump":
            open_paths.append((operand, stack))
        elif opcode == "jump_if_zero":
            *rest, condition = stack
            if condition is None or condition == 0:
                open_paths.append((operand, tuple(rest)))
            if condition is None or condition != 0:
                open_paths.append((after, tuple(rest)))
        elif opcode in ("negate", "not", "truth"):
            *rest, value = stack
            results: dict[str, Callable[[Any], int]] = {
                "negate": lambda v: -v,
                "not": lambda v: int(v == 0),
                "truth": lambda v: int(v != 0),
            }
            open_paths.append((after, (*rest, None if value is None else results[opcode](value))))
        else:
            # two operands; flags are compared through `not`, `and`, `or`, so other results may stay unknown
            open_paths.append((after, (*stack[:-2], None)))
    return names


_OF_A_MAP = ("dims", "strides", "box", "element_strides")


class _MapReads:
    """The names that a tensor map's expressions read."""

    def __init__(self, parameter: Mapping[str, Any], constants: Collection[str]):
        self.parameter = parameter
        self.every = _names_in(text for key in _OF_A_MAP for text in parameter[key])
        self.names = self.every.difference(constants)
        self.of_box = sorted(_names_in((*parameter["box"], *parameter["element_strides"])))


class _Reads:
    """The names that a variant's expressions read: `every`, and those that are not its own constants; its tensor maps apart, for one of
    an array that is absent reads nothing."""

    def __init__(self, variant: Variant, launch: Mapping[str, Any]):
        values = (parameter["value"] for parameter in launch["parameters"] if "value" in parameter)
        self.every = _names_in((variant.tile.when, variant.tile.cost, *launch["grid"], *launch["cluster"], launch["alone"], *values))
        self.always = self.every.difference(variant.symbols)
        self.maps = [_MapReads(one, variant.symbols) for one in launch["parameters"] if one["kind"] == "tensor_map"]


def _names_in(texts: Iterable[str]) -> frozenset[str]:
    return frozenset(name for text in texts for name in Expression(text).names)


class _Scope:
    def __init__(self, table: Table):
        self.table, self.entry = table, table.entry
        self.arguments = table.entry["arguments"]
        self.arrays = [argument for argument in self.arguments if argument["kind"] == "array"]
        self.scalars = [a["name"] for a in self.arguments if a["kind"] == "scalar" and a["dtypes"] != ["f32"]]
        self.variants = expand(table)
        self._reads: dict[int, _Reads] = {}  # by the variant's id
        self._fitting: set[tuple[object, ...]] = set()  # boxes that were looked at, by what decides them
        self.read: set[str] = set()  # every name that some expression reads
        self.bound: set[str] = set()  # every symbol that some shape, stride or derivation binds

    def check(self) -> None:
        for flags in self._combinations():
            self._check_combination(flags)
        self._check_names()
        self._check_use()

    def _combinations(self) -> Iterator[dict[str, int]]:
        """The flags of every call there can be."""
        optional = [argument["name"] for argument in self.arrays if argument["optional"]]
        for dtypes in itertools.product(*(argument["dtypes"] for argument in self.arrays)):
            for values in itertools.product(*(option["values"] for option in self.entry["options"].values())):
                for present in itertools.product((1, 0), repeat=len(optional)):
                    absent = {name for name, there in zip(optional, present, strict=True) if not there}
                    yield self._flags(dtypes, values, absent)

    def _flags(self, dtypes: Iterable[str], values: Iterable[str], absent: set[str]) -> dict[str, int]:
        flags = {}
        for (name, option), chosen in zip(self.entry["options"].items(), values, strict=True):
            flags.update({f"{name}.{value}": int(value == chosen) for value in option["values"]})
        for argument, chosen in zip(self.arrays, dtypes, strict=True):
            name = argument["name"]
            flags.update({f"{name}.{dtype}": int(dtype == chosen) for dtype in argument["dtypes"]})
            flags[f"{name}.present"] = int(name not in absent)
            flags[f"{name}.itemsize"] = DTYPES[chosen].bytes
        return flags

    def _check_combination(self, flags: dict[str, int]) -> None:
        scope = {*flags, "sms", *self.scalars}
        forms = [(argument["name"], self._form(argument, flags)) for argument in self.arrays if flags[f"{argument['name']}.present"]]
        for argument in self.arrays:
            chosen = dict(forms).get(argument["name"])
            for form in [chosen] if chosen else argument["forms"]:  # what only absent arguments bind is 0
                scope |= _bare(form)
        for name, text in self.entry["derived"]:
            self._names(f"derived.{name}", text, flags, scope)
            scope.add(name)
        self.bound |= scope
        for index, constraint in enumerate(self.entry["constraints"]):
            self._names(f"constraints[{index}].expression", constraint["expression"], flags, scope)
        for name, form in forms:
            for text in (*form["shape"], *(form["strides"] or ())):
                self._names(f"arguments[{name}]", text, flags, scope, bare=True)
        for variant in self.variants:
            if all(flags[flag] for flag in variant.flags) and not self._is_right(variant, flags, scope):
                self._check_variant(variant, flags, scope)

    def _form(self, argument: dict[str, Any], flags: dict[str, int]) -> dict[str, Any]:
        where = f"arguments[{argument['name']}].forms"
        forms: list[dict[str, Any]] = argument["forms"]
        for form in forms:
            expression = Expression(form["when"])
            for name in expression.names:
                if name not in flags:
                    near = self._near(name, flags)
                    raise _Wrong(f"{where}: when '{expression.text}' reads '{name}'; forms are chosen by flags alone{near}")
            self.read |= set(expression.names)
            if expression.evaluate(flags):
                return form
        on = ", ".join(name for name, value in flags.items() if value == 1 and not name.endswith(".itemsize"))
        raise _Wrong(f"{where}: no form's 'when' holds with {on}")

    def _is_right(self, variant: Variant, flags: dict[str, int], scope: set[str]) -> bool:
        """Whether a variant reads bound names only, whatever is reachable: told at once, as of nearly all there are, of hundreds of
        thousands. Of another, `_check_variant` says what is wrong, if anything."""
        if not scope.isdisjoint(variant.symbols):
            return False
        reads = self._reads.get(id(variant))
        if reads is None:
            reads = self._reads[id(variant)] = _Reads(variant, self.entry["launches"][variant.tile.launch])
        maps = [one for one in reads.maps if flags[f"{one.parameter['argument']}.present"]]
        if not scope.issuperset(reads.always) or not all(scope.issuperset(one.names) for one in maps):
            return False
        for one in maps:
            decided_by = id(one.parameter), *(variant.constants.get(name, flags.get(name)) for name in one.of_box)
            if decided_by not in self._fitting:
                try:
                    check_constant_box(one.parameter, {**flags, **variant.constants})
                except ArgumentError:
                    return False
                self._fitting.add(decided_by)
        self.read.update(reads.every, *(one.every for one in maps))
        return True

    def _check_variant(self, variant: Variant, flags: dict[str, int], scope: set[str]) -> None:
        where = f"tiles[{variant.tile.name}]"
        for what, names in (("constant", variant.constants), ("number", variant.tile.numbers)):
            for name in names:
                if name in scope:
                    raise _Wrong(f"variants.{where}: the {what} {name} is also a symbol of the table")
        known = {**flags, **variant.constants}
        scope = scope | set(variant.symbols)
        for key in ("when", "cost"):
            self._names(f"variants.{where}.{key}", getattr(variant.tile, key), known, scope)
        launch = self.entry["launches"][variant.tile.launch]
        where = f"launch.{variant.tile.launch}"
        for key in ("grid", "cluster"):
            for index, text in enumerate(launch[key]):
                self._names(f"{where}.{key}[{index}]", text, known, scope)
        self._names(f"{where}.alone", launch["alone"], known, scope)
        for parameter in launch["parameters"]:
            place = f"{where}.parameters.{parameter['name']}"
            if "value" in parameter:
                self._names(place, parameter["value"], known, scope)
            if parameter["kind"] == "tensor_map" and flags[f"{parameter['argument']}.present"]:
                for key in _OF_A_MAP:
                    for axis, text in enumerate(parameter[key]):
                        self._names(f"{place}.{key}[{axis}]", text, known, scope)
                try:
                    check_constant_box(parameter, known)
                except ArgumentError as error:
                    raise _Wrong(f"{place}: {error} (tile {variant.tile.name})") from None

    def _names(self, where: str, text: str, known: dict[str, int], scope: set[str], bare: bool = False) -> None:
        expression = Expression(text)
        if not (bare and expression.names == (text,)):  # a bare symbol binds, it does not read
            self.read.update(expression.names)
        if scope.issuperset(expression.names):
            return  # whatever is reachable: most expressions, of millions
        for name in sorted(reachable_names(expression, known) - scope):
            chosen = ", ".join(flag for flag, value in known.items() if value == 1 and "." in flag and not flag.endswith(".itemsize"))
            with_flags = f" with {chosen}" if chosen else ""
            raise _Wrong(f"{where}: '{text}' reads '{name}', which nothing binds{with_flags}{self._near(name, scope)}")

    @staticmethod
    def _near(name: str, scope: Collection[str]) -> str:
        """The nearest name, and all there are: symbols and tile constants first, then the flags."""
        near = difflib.get_close_matches(name, scope, 1)
        known = sorted(scope, key=lambda one: ("." in one, one == "sms", one))
        hint = f"did you mean '{near[0]}'? " if near else ""
        return f"; {hint}known here: {', '.join(known) or 'nothing'}"

    def _check_names(self) -> None:
        """Symbols share one space with arguments and options."""
        others = {argument["name"]: "an argument" for argument in self.arrays}
        others |= {a["name"]: "an f32 scalar" for a in self.arguments if a["kind"] == "scalar" and a["dtypes"] == ["f32"]}
        others |= dict.fromkeys(self.entry["options"], "an option")
        for symbol in sorted(self.bound):
            if symbol in others:
                raise _Wrong(f"the symbol '{symbol}' is also {others[symbol]}; rename one")
        shapes = set().union(*(_bare(form) for argument in self.arrays for form in argument["forms"]))
        for name, _ in self.entry["derived"]:
            if name in shapes or name in self.scalars:
                raise _Wrong(f"derived.{name}: a shape or a scalar already binds '{name}'")

    def _check_use(self) -> None:
        used = {p["argument"] for launch in self.entry["launches"].values() for p in launch["parameters"] if "argument" in p}
        for argument in self.arguments:
            name = argument["name"]
            if name not in used and name not in self.read:
                raise _Wrong(f"arguments[{name}]: no launch passes it to the kernel; remove it or add a parameter")
        for name, _ in self.entry["derived"]:
            if name not in self.read:
                raise _Wrong(f"derived.{name}: nothing reads it; remove it")


def _bare(form: dict[str, Any]) -> set[str]:
    texts = (*form["shape"], *(form["strides"] or ()))
    return {text for text in texts if Expression(text).names == (text,) and "." not in text}

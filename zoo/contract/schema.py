"""What a kernel's manifest entry must look like before anything is made of it: docs/manifest.md, as checks.

A manifest without a pin may hold anything. What passes here can be parsed, and a call of it resolved, without meeting
a value of the wrong kind: every reader of the manifest goes through `refuse_malformed` first.
"""

from __future__ import annotations

import itertools
import re
import reprlib
from collections.abc import Iterator
from pathlib import PurePosixPath

from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.tensor_map import DTYPES as MAP_DTYPES
from zoo.contract.tensor_map import L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES
from zoo.errors import ExpressionError, ManifestError

ACCESS = ("read", "write", "read_write", "workspace")
SCALAR_DTYPES = ("i32", "i64", "f32")
# parameter kind -> (bytes, alignment)
PARAMETERS = {"pointer": (8, 8), "i32": (4, 4), "i64": (8, 8), "f32": (4, 4), "tensor_map": (128, 64)}
NAME = re.compile(r"[a-z][a-z0-9_]*")  # of arguments, options and their values
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ARCH = re.compile(r"sm_[0-9]{2,3}[af]")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LARGEST_ALIGNMENT = 1 << 20
_MOST_FLAGS = 4096  # combinations of flags that the forms of one argument may depend on


class _Malformed(Exception):
    pass


def refuse_malformed(name: str, entry):
    """Raises ManifestError, saying where, for an entry that docs/manifest.md does not allow."""
    try:
        _check_entry(entry)
    except (_Malformed, ExpressionError) as error:
        raise ManifestError(f"the manifest's entry '{name}' is malformed: {error}") from None


def block_layout(kinds) -> tuple[list[int], int]:
    """The offsets of parameters of these kinds, and the bytes of the block: a C struct's, less the padding at its end."""
    offsets, end = [], 0
    for kind in kinds:
        size, alignment = PARAMETERS[kind]
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + size
    return offsets, end


def _fail(where: str, value):
    raise _Malformed(f"{where} is {reprlib.repr(value)}")


def _take(data: dict, key: str, kind: type, where: str):
    """data[key], which must be exactly of this kind: True is no integer here."""
    if key not in data:
        raise _Malformed(f"{where}.{key} is missing" if where else f"{key} is missing")
    value = data[key]
    if type(value) is not kind:
        _fail(f"{where}.{key}" if where else key, value)
    return value


def _text(data: dict, key: str, where: str, pattern: re.Pattern | None = None) -> str:
    value = _take(data, key, str, where)
    if pattern is not None and not pattern.fullmatch(value) or not _is_unicode(value):
        _fail(f"{where}.{key}" if where else key, value)
    return value


def _is_unicode(text: str) -> bool:
    """Half of a surrogate pair, which JSON can spell, cannot be printed."""
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _one_of(data: dict, key: str, allowed, where: str) -> str:
    value = _take(data, key, str, where)
    if value not in allowed:
        _fail(f"{where}.{key}", value)
    return value


def _texts(data: dict, key: str, where: str, count: range | None = None, distinct: bool = False) -> list[str]:
    """A list of strings; expressions, where `distinct` is not asked for."""
    values = _take(data, key, list, where)
    wrong = any(type(value) is not str for value in values) or (count is not None and len(values) not in count)
    if wrong or distinct and (not values or len(set(values)) != len(values)):
        _fail(f"{where}.{key}", values)
    return values


def _tables(data: dict, key: str) -> Iterator[tuple[str, dict]]:
    """(where, table) of a list of tables."""
    for index, value in enumerate(_take(data, key, list, "")):
        if type(value) is not dict:
            _fail(f"{key}[{index}]", value)
        yield f"{key}[{index}]", value


def _check_entry(entry):
    if type(entry) is not dict:
        _fail("it", entry)
    for key in ("summary", "table", "source"):
        _text(entry, key, "")
    for promise, kept in _take(entry, "promises", dict, "").items():
        if type(kept) is not bool or not _is_unicode(promise):
            _fail(f"promises.{promise}", kept)
    options = _check_options(entry)
    arguments = _check_arguments(entry, options)
    _check_forms(arguments, options)
    for index, pair in enumerate(_take(entry, "derived", list, "")):
        if type(pair) is not list or len(pair) != 2 or any(type(text) is not str for text in pair) or not SYMBOL.fullmatch(pair[0]):
            _fail(f"derived[{index}]", pair)
    for where, constraint in _tables(entry, "constraints"):
        _take(constraint, "expression", str, where)
        _text(constraint, "words", where)
    compiled = {name: values for name, values in options.items() if entry["options"][name]["compiled"]}
    launches = _take(entry, "launches", dict, "")
    for key in launches:
        _check_launch(_take(launches, key, dict, "launches"), f"launches.{key}", arguments)
    for where, variant in _tables(entry, "variants"):
        _check_variant(variant, where, compiled, arguments, launches)


def _check_options(entry: dict) -> dict[str, list[str]]:
    options = _take(entry, "options", dict, "")
    for name in options:
        where = f"options.{name}"
        option = _take(options, name, dict, "options")
        values = _texts(option, "values", where, distinct=True)
        if not all(map(NAME.fullmatch, (name, *values))):
            _fail(where, option)
        _one_of(option, "default", values, where)
        _take(option, "compiled", bool, where)
        _text(option, "help", where)
    return {name: option["values"] for name, option in options.items()}


def _check_arguments(entry: dict, options: dict) -> dict[str, dict]:
    arguments: dict[str, dict] = {}
    for where, argument in _tables(entry, "arguments"):
        name = _text(argument, "name", where, NAME)
        if name in arguments or name in options:
            raise _Malformed(f"{where}.name is '{name}', which is already taken")
        arguments[name] = argument
        is_array = _one_of(argument, "kind", ("array", "scalar"), where) == "array"
        dtypes = _texts(argument, "dtypes", where, None if is_array else range(1, 2), distinct=True)
        if any(dtype not in (DTYPES if is_array else SCALAR_DTYPES) for dtype in dtypes):
            _fail(f"{where}.dtypes", dtypes)
        _take(argument, "compiled", bool, where)
        _one_of(argument, "access", ACCESS if is_array else ("read",), where)
        alignment = _take(argument, "alignment", int, where)
        if not 1 <= alignment <= _LARGEST_ALIGNMENT or alignment & (alignment - 1):
            raise _Malformed(f"{where}.alignment is {alignment}, expected a power of two up to {_LARGEST_ALIGNMENT}")
        optional = _take(argument, "optional", bool, where)
        _text(argument, "help", where)
        forms = _take(argument, "forms", list, where)
        default = argument.get("default", argument)
        if bool(forms) != is_array:
            _fail(f"{where}.forms", forms)
        if optional and not is_array:
            _fail(f"{where}.optional", optional)
        numbers = (int, float) if dtypes == ["f32"] else (int,)
        if default is not None and (is_array or type(default) not in numbers or (type(default) is int and abs(default) >= 1 << 63)):
            _fail(f"{where}.default", default)
    return arguments


def _check_forms(arguments: dict[str, dict], options: dict[str, list[str]]):
    """Shapes and strides belong together, and in every call one form holds."""
    flags = {f"{name}.{value}": (name, value) for name, values in options.items() for value in values}
    for name, argument in arguments.items():
        if argument["kind"] == "array":
            flags |= {f"{name}.{dtype}": (name, dtype) for dtype in argument["dtypes"]}
            flags[f"{name}.present"] = (f"{name}.present", "present")
            flags |= {f"{name}.itemsize": (name, None)}
    choices = {**options, **{name: argument["dtypes"] for name, argument in arguments.items()}}
    for place, argument in enumerate(arguments.values()):
        conditions = []
        for index, form in enumerate(argument["forms"]):
            where = f"arguments[{place}].forms[{index}]"
            if type(form) is not dict:
                _fail(where, form)
            conditions.append(Expression(_take(form, "when", str, where)))
            shape = _texts(form, "shape", where)
            if form.get("strides", form) is not None:
                _texts(form, "strides", where, range(len(shape), len(shape) + 1))
        _check_conditions(f"arguments[{place}].forms", conditions, flags, choices)


def _check_conditions(where: str, conditions: list[Expression], flags: dict, choices: dict[str, list[str]]):
    names = {name for condition in conditions for name in condition.names}
    if not names and any(condition.text == "1" for condition in conditions) or not conditions:
        return
    for name in sorted(names - set(flags)):
        raise _Malformed(f"{where} are chosen by '{name}', which is no flag")
    deciding = {flags[name][0]: None for name in sorted(names)}
    possible = [choices.get(one, ["present", "absent"]) for one in deciding]
    count = 1
    for values in possible:
        count *= len(values)
    if count > _MOST_FLAGS:
        raise _Malformed(f"{where} depend on {count} combinations of flags, expected at most {_MOST_FLAGS}")
    for chosen in itertools.product(*possible):
        chosen = dict(zip(deciding, chosen, strict=True))
        values = {}
        for name in names:
            one, value = flags[name]
            values[name] = DTYPES[chosen[one]].bytes if value is None else int(chosen[one] == value)
        if not any(condition.evaluate(values) for condition in conditions):
            raise _Malformed(f"none of {where} holds with {', '.join(f'{one} = {value}' for one, value in chosen.items()) or 'any call'}")


def _check_launch(launch: dict, where: str, arguments: dict[str, dict]):
    for key in ("threads", "shared"):
        _take(launch, key, str, where)
    for key in ("grid", "cluster"):
        _texts(launch, key, where, range(3, 4))
    _take(launch, "programmatic", bool, where)
    parameters = _take(launch, "parameters", list, where)
    for index, parameter in enumerate(parameters):
        if type(parameter) is not dict:
            _fail(f"{where}.parameters[{index}]", parameter)
        _check_parameter(parameter, f"{where}.parameters[{index}]", arguments)
    offsets, end = block_layout(parameter["kind"] for parameter in parameters)
    for index, (parameter, offset) in enumerate(zip(parameters, offsets, strict=True)):
        said = (
            _take(parameter, "offset", int, f"{where}.parameters[{index}]"),
            _take(parameter, "size", int, f"{where}.parameters[{index}]"),
        )
        size = PARAMETERS[parameter["kind"]][0]
        if said != (offset, size):
            raise _Malformed(
                f"{where}.parameters[{index}] ({parameter['kind']}) has {reprlib.repr(said[1])} bytes at offset {reprlib.repr(said[0])}, "
                f"in a struct it has {size} at {offset}"
            )
    if _take(launch, "parameter_bytes", int, where) != end:
        said = reprlib.repr(launch["parameter_bytes"])
        raise _Malformed(f"{where}.parameter_bytes is {said}, its parameters take {end}")


def _check_parameter(parameter: dict, where: str, arguments: dict[str, dict]):
    kind = _one_of(parameter, "kind", PARAMETERS, where)
    if kind in ("i32", "i64"):
        _take(parameter, "value", str, where)
        if "argument" in parameter:
            _fail(f"{where}.argument", parameter["argument"])
        return
    name = _one_of(parameter, "argument", arguments, where)
    fits = (
        arguments[name]["dtypes"] == ["f32"] and arguments[name]["kind"] == "scalar"
        if kind == "f32"
        else arguments[name]["kind"] == "array"
    )
    if not fits or "value" in parameter:
        _fail(where, parameter)
    if kind == "tensor_map":
        rank = len(_texts(parameter, "dims", where, range(1, 6)))
        for key, count in (("strides", rank - 1), ("box", rank), ("element_strides", rank)):
            _texts(parameter, key, where, range(count, count + 1))
        for key, allowed in (("dtype", MAP_DTYPES), ("swizzle", SWIZZLES), ("l2_promotion", L2_PROMOTIONS), ("fill", OUT_OF_BOUNDS_FILLS)):
            _one_of(parameter, key, allowed, where)


def _check_variant(variant: dict, where: str, compiled: dict[str, list[str]], arguments: dict[str, dict], launches: dict):
    for key in ("when", "cost"):
        _take(variant, key, str, where)
    _text(variant, "name", where)
    _text(variant, "arch", where, ARCH)
    _text(variant, "symbol", where, SYMBOL)
    for key in ("sha256", "source_sha256"):
        _text(variant, key, where, _DIGEST)
    for key in ("bytes", "registers", "static_shared", "stack", "spill_stores", "spill_loads"):
        if not 0 <= _take(variant, key, int, where) < 1 << 31:
            _fail(f"{where}.{key}", variant[key])
    path = PurePosixPath(_take(variant, "file", str, where))
    if path.is_absolute() or ".." in path.parts or not path.parts or not variant["file"].isprintable():
        _fail(f"{where}.file", variant["file"])
    for constant, value in _take(variant, "constants", dict, where).items():
        if type(value) is not int or not -(1 << 31) <= value < 1 << 31 or not SYMBOL.fullmatch(constant):
            _fail(f"{where}.constants.{constant}", value)
    several = {
        name: one["dtypes"] for name, one in arguments.items() if one["kind"] == "array" and len(one["dtypes"]) > 1 and one["compiled"]
    }
    for key, allowed in (("options", compiled), ("dtypes", several)):
        chosen = _take(variant, key, dict, where)
        if chosen.keys() != allowed.keys():
            _fail(f"{where}.{key}", chosen)
        for name, value in chosen.items():
            if type(value) is not str or value not in allowed[name]:
                _fail(f"{where}.{key}.{name}", value)
    _one_of(variant, "launch", launches, where)

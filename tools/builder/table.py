"""One kernel's table (TOML) as checked data. docs/manifest.md says what may stand in it.

Unknown keys are refused: a misspelt `l2_promotoin` must not silently mean `none`. Whether the expressions make
sense together is scope.py's question.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools.builder import BuildError
from tools.builder.per_format import instances
from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.names import parse_name
from zoo.contract.schema import ACCESS, ARCH, NAME, PARAMETERS, SCALAR_DTYPES, SYMBOL, block_layout
from zoo.contract.tensor_map import DTYPES as MAP_DTYPES
from zoo.contract.tensor_map import L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES, TensorMap
from zoo.errors import ArgumentError, ExpressionError, ManifestError

_REQUIRED = object()
_RESERVED = ("sms", "min", "max", "ceil_div", "round_up", "if", "else", "and", "or", "not")


@dataclass(frozen=True)
class Tile:
    name: str
    constants: dict[str, int]
    launch: str
    when: str
    cost: str
    archs: tuple[str, ...]
    dtypes: dict[str, tuple[str, ...]]  # argument -> those this tile is for
    options: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Table:
    path: Path
    root: Path  # the tree of tables: unit and manifest paths count from here
    name: str
    source: Path
    entry: dict  # the manifest's entry, without variants
    archs: tuple[str, ...]
    tiles: tuple[Tile, ...]


def read_tables(root: Path) -> list[Table]:
    paths = sorted(root.glob("*/*.toml"))
    if not paths:
        raise BuildError(f"no table matches {root}/*/*.toml")
    tables: dict[str, Table] = {}
    for path in paths:
        for table in _read_file(path, root):
            if table.name in tables:
                raise BuildError(f"{path}: {table.name} is already the kernel of {tables[table.name].path}")
            tables[table.name] = table
    return [tables[name] for name in sorted(tables)]


def _read_file(path: Path, root: Path) -> list[Table]:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
        return [_read(_Fields(one, ""), path, root) for one in instances(data)]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BuildError(f"{path}: not TOML: {error}") from None
    except (_Wrong, BuildError, ManifestError, ExpressionError, ArgumentError) as error:
        raise BuildError(f"{path}: {error}") from None


class _Wrong(Exception):
    pass


class _Fields:
    """A TOML table of which every key must be asked for."""

    def __init__(self, data: dict, where: str):
        self.data, self.where, self.asked = data, where, set()

    def fail(self, reason: str):
        raise _Wrong(f"{self.where}: {reason}" if self.where else reason)

    def take(self, key: str, kind: type | tuple[type, ...], default=_REQUIRED):
        self.asked.add(key)
        if key not in self.data:
            if default is _REQUIRED:
                self.fail(f"'{key}' is missing")
            return default
        value = self.data[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            self.fail(f"'{key}' must be {' or '.join(k.__name__ for k in kinds)}, got {value!r}")
        return value

    def one_of(self, key: str, allowed, default=_REQUIRED) -> str:
        value = self.take(key, str, default)
        if value not in allowed:
            self.fail(f"'{key}' is '{value}', expected one of {', '.join(allowed)}")
        return value

    def texts(self, key: str, default=_REQUIRED) -> list[str]:
        values = self.take(key, list, default)
        if not all(isinstance(value, str) for value in values):
            self.fail(f"'{key}' must be a list of strings, got {values!r}")
        if len(set(values)) != len(values):
            self.fail(f"'{key}' says something twice: {values!r}")
        return values

    def expression(self, key: str, default=_REQUIRED) -> str:
        return _expression(self.take(key, (str, int), default), self, key)

    def expressions(self, key: str, default=_REQUIRED, count: range | None = None) -> list[str]:
        values = self.take(key, list, default)
        if count is not None and len(values) not in count:
            wanted = str(count[0]) if len(count) == 1 else f"{count[0]} to {count[-1]}"
            self.fail(f"'{key}' has {len(values)} entries, expected {wanted}")
        return [_expression(value, self, f"{key}[{index}]") for index, value in enumerate(values)]

    def fields(self, key: str, default=_REQUIRED) -> list[tuple[str, _Fields]]:
        """The sub-tables of a table of tables."""
        tables = self.take(key, dict, default)
        for name, value in tables.items():
            if not isinstance(value, dict):
                self.fail(f"'{key}.{name}' must be a table, got {value!r}")
        return [(name, _Fields(value, self._path(f"{key}.{name}"))) for name, value in tables.items()]

    def items(self, key: str, default=_REQUIRED) -> list[_Fields]:
        values = self.take(key, list, default)
        if not all(isinstance(value, dict) for value in values):
            self.fail(f"'{key}' must be a list of tables, got {values!r}")
        return [_Fields(value, self._path(f"{key}[{value.get('name', index)}]")) for index, value in enumerate(values)]

    def done(self):
        unknown = [key for key in self.data if key not in self.asked]
        if unknown:
            self.fail(f"unknown key '{unknown[0]}'; known here: {', '.join(sorted(self.asked))}")

    def _path(self, step: str) -> str:
        return f"{self.where}.{step}" if self.where else step


def _expression(value, fields: _Fields, key: str) -> str:
    where = _Fields({}, fields._path(key))
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        where.fail(f"expected an expression, got {value!r}")
    try:
        return Expression(value).text
    except ExpressionError as error:
        where.fail(str(error))


def _identifier(name: str, pattern: re.Pattern, fields: _Fields, taken: dict[str, str], what: str) -> str:
    """Names live in one space, so that an expression can mean one thing only."""
    if not pattern.fullmatch(name):
        fields.fail(f"{what} '{name}' is not a name; expected {pattern.pattern}")
    if name in _RESERVED:
        fields.fail(f"{what} '{name}' is a word of the expression language")
    if name in taken:
        fields.fail(f"{what} '{name}' is already {taken[name]}")
    taken[name] = f"the name of {what}"
    return name


def _read(fields: _Fields, path: Path, root: Path) -> Table:
    name = fields.take("name", str)
    parse_name(name)
    source = path.parent / fields.take("source", str)
    if not source.is_file():
        fields.fail(f"the source {source} does not exist")
    taken: dict[str, str] = {}
    promises = fields.take("promises", dict, {})
    for promise, kept in promises.items():
        if not isinstance(kept, bool):
            fields.fail(f"promises.{promise} must be true or false, got {kept!r}")
    options = _options(fields, taken)
    arguments = [_argument(item, taken) for item in fields.items("arguments")]
    derived = []
    for symbol, text in fields.take("derived", dict, {}).items():
        _identifier(symbol, SYMBOL, fields, taken, "a derived symbol")
        derived.append([symbol, _expression(text, fields, f"derived.{symbol}")])
    constraints = []
    for item in fields.items("constraints", []):
        constraints.append({"expression": item.expression("expression"), "words": item.take("words", str)})
        item.done()
    launches = {key: _launch(item, arguments) for key, item in fields.fields("launch")}
    entry = {
        "summary": fields.take("summary", str),
        "table": path.relative_to(root).as_posix(),
        "source": source.relative_to(root).as_posix(),
        "promises": promises,
        "options": options,
        "arguments": arguments,
        "derived": derived,
        "constraints": constraints,
        "launches": launches,
    }
    variants = _Fields(fields.take("variants", dict), "variants")
    fields.done()
    archs = tuple(variants.texts("arch"))
    for arch in archs:
        if not ARCH.fullmatch(arch):
            variants.fail(f"arch '{arch}' is not sm_<number> with a or f, such as sm_90a")
    tiles = tuple(_tile(item, archs, entry) for item in variants.items("tiles"))
    variants.done()
    if not archs or not tiles:
        variants.fail("needs at least one arch and one tile")
    for key in launches:
        if key not in (tile.launch for tile in tiles):
            fields.fail(f"launch.{key}: no tile is started this way; remove it")
    return Table(path, root, name, source, entry, archs, tiles)


def _options(fields: _Fields, taken: dict[str, str]) -> dict[str, dict]:
    options = {}
    for name, item in fields.fields("options", {}):
        _identifier(name, NAME, item, taken, "an option")
        values = item.texts("values")
        for value in values:
            if not NAME.fullmatch(value):
                item.fail(f"value '{value}' is not a name; expected {NAME.pattern}")
        if not values:
            item.fail("'values' is empty")
        default = item.one_of("default", values)
        compiled = item.take("compiled", bool, True)
        options[name] = {"values": values, "default": default, "compiled": compiled, "help": item.take("help", str, "")}
        item.done()
    return options


def _argument(item: _Fields, taken: dict[str, str]) -> dict:
    name = _identifier(item.take("name", str), NAME, item, taken, "an argument")
    kind = item.one_of("kind", ("array", "scalar"), "array")
    allowed = SCALAR_DTYPES if kind == "scalar" else tuple(DTYPES)
    dtypes = item.texts("dtypes")
    for dtype in dtypes:
        if dtype not in allowed:
            item.fail(f"dtype '{dtype}' is not one of {', '.join(allowed)}")
    if not dtypes or (kind == "scalar" and len(dtypes) > 1):
        item.fail(f"'dtypes' needs {'exactly' if kind == 'scalar' else 'at least'} one dtype")
    if kind == "scalar":
        forms, access, alignment, optional, compiled = [], "read", DTYPES[dtypes[0]].bytes, False, True
        default = item.take("default", (int, float) if dtypes == ["f32"] else int, None)
        bits = 8 * DTYPES[dtypes[0]].bytes
        if isinstance(default, int) and dtypes != ["f32"] and not -(2 ** (bits - 1)) <= default < 2 ** (bits - 1):
            item.fail(f"default {default} does not fit {bits} bits")
    else:
        forms, default = _forms(item), None
        access = item.one_of("access", ACCESS)
        alignment = item.take("alignment", int, max(DTYPES[dtype].bytes for dtype in dtypes))
        optional = item.take("optional", bool, False)
        compiled = item.take("compiled", bool, True)
        if not compiled and len(dtypes) == 1:
            item.fail("'compiled' is false, but there is only one dtype")
        if alignment < 1 or alignment & (alignment - 1):
            item.fail(f"alignment {alignment} is not a power of two")
    result = {
        "name": name, "kind": kind, "dtypes": dtypes, "compiled": compiled, "forms": forms, "access": access,
        "alignment": alignment, "optional": optional, "default": default, "help": item.take("help", str, ""),
    }  # fmt: skip
    item.done()
    return result


def _forms(item: _Fields) -> list[dict]:
    if "forms" not in item.data:
        return [{"when": "1", **_form(item)}]
    if "shape" in item.data or "strides" in item.data:
        item.fail("has 'forms' beside 'shape' or 'strides'; say it in one place")
    forms = []
    for form in item.items("forms"):
        forms.append({"when": form.expression("when"), **_form(form)})
        form.done()
    if not forms:
        item.fail("'forms' is empty")
    return forms


def _form(item: _Fields) -> dict:
    shape, strides = item.expressions("shape"), None
    if item.take("strides", list, None) is not None:
        strides = item.expressions("strides", count=range(len(shape), len(shape) + 1))
    return {"shape": shape, "strides": strides}


def _launch(item: _Fields, arguments: list[dict]) -> dict:
    parameters = []
    for index, parameter in enumerate(item.items("parameters")):
        kinds = [kind for kind in PARAMETERS if kind in parameter.data]
        if len(kinds) != 1:
            parameter.fail(f"a parameter has exactly one of {', '.join(PARAMETERS)}, got {', '.join(kinds) or 'none'}")
        parameter.where = f"{item.where}.parameters[{index}]"
        parameters.append({"kind": kinds[0], "offset": 0, "size": PARAMETERS[kinds[0]][0], **_parameter(parameter, kinds[0], arguments)})
        parameter.done()
    offsets, size = block_layout(parameter["kind"] for parameter in parameters)
    for parameter, offset in zip(parameters, offsets, strict=True):
        parameter["offset"] = offset
    result = {
        "threads": item.expression("threads"),
        "grid": item.expressions("grid", count=range(3, 4)),
        "cluster": item.expressions("cluster", ["1", "1", "1"], range(3, 4)),
        "shared": item.expression("shared", "0"),
        "programmatic": item.take("programmatic", bool, False),
        "parameter_bytes": size,
        "parameters": parameters,
    }
    item.done()
    return result


def _parameter(item: _Fields, kind: str, arguments: list[dict]) -> dict:
    if kind in ("i32", "i64"):
        return {"value": item.expression(kind)}
    name = item.take(kind, str)
    wanted = "an f32 scalar" if kind == "f32" else "an array argument"
    fitting = [
        argument["name"]
        for argument in arguments
        if (argument["kind"] == "array" if kind != "f32" else argument["dtypes"] == ["f32"] and argument["kind"] == "scalar")
    ]
    if name not in fitting:
        item.fail(f"'{name}' is not {wanted}; those are: {', '.join(fitting) or 'none'}")
    if kind != "tensor_map":
        return {"argument": name}
    recipe = _map_recipe(item)
    _check_map_alignment(item, next(argument for argument in arguments if argument["name"] == name), recipe["dtype"])
    return {"argument": name, **recipe}


def _check_map_alignment(item: _Fields, argument: dict, dtype: str):
    """What the argument promises of its address must be enough for the map, or calls that fit the table would fail."""
    needed = TensorMap(dtype=dtype, address=0, dims=(1,), strides=(), box=(1,)).alignment
    if argument["alignment"] < needed:
        name, said = argument["name"], argument["alignment"]
        item.fail(
            f"a tensor map of {dtype} needs addresses at multiples of {needed} bytes, '{name}' has alignment {said}; write alignment = {needed} in it"
        )


def _map_recipe(item: _Fields) -> dict:
    dims = item.expressions("dims", count=range(1, 6))
    rank = len(dims)
    recipe = {
        "dtype": item.one_of("dtype", MAP_DTYPES),
        "dims": dims,
        "strides": item.expressions("strides", [], range(rank - 1, rank)),
        "box": item.expressions("box", count=range(rank, rank + 1)),
        "element_strides": item.expressions("element_strides", ["1"] * rank, range(rank, rank + 1)),
        "swizzle": item.one_of("swizzle", SWIZZLES, "none"),
        "l2_promotion": item.one_of("l2_promotion", L2_PROMOTIONS, "none"),
        "fill": item.one_of("fill", OUT_OF_BOUNDS_FILLS, "zero"),
    }
    return recipe


def check_constant_box(recipe: dict, values: dict[str, int]):
    """Raises ArgumentError for a map that no call could encode, where the tile's constants alone decide its box."""
    box, steps = ([Expression(text) for text in recipe[key]] for key in ("box", "element_strides"))
    if any(name not in values for expression in (*box, *steps) for name in expression.names):
        return
    rank = len(box)
    TensorMap(
        dtype=recipe["dtype"], address=0, dims=(2**20,) * rank, strides=(2**20,) * (rank - 1),
        box=tuple(expression.evaluate(values) for expression in box),
        element_strides=tuple(expression.evaluate(values) for expression in steps),
        swizzle=recipe["swizzle"], l2_promotion=recipe["l2_promotion"], fill=recipe["fill"],
    ).check()  # fmt: skip


def _tile(item: _Fields, archs: tuple[str, ...], entry: dict) -> Tile:
    name = item.take("name", str)
    if not re.fullmatch(r"[a-z0-9_]+", name):
        item.fail(f"tile name '{name}' is not [a-z0-9_]+: it becomes part of the symbol")
    constants = item.take("constants", dict, {})
    for constant, value in constants.items():
        if not SYMBOL.fullmatch(constant) or constant in _RESERVED:
            item.fail(f"constant '{constant}' is not a name")
        if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
            item.fail(f"constant {constant} must be an integer of 32 bits, got {value!r}")
    arrays = {
        argument["name"]: argument["dtypes"] for argument in entry["arguments"] if argument["kind"] == "array" and argument["compiled"]
    }
    options = {option: rule["values"] for option, rule in entry["options"].items() if rule["compiled"]}
    tile = Tile(
        name=name,
        constants=constants,
        launch=item.one_of("launch", entry["launches"], "default"),
        when=item.expression("when", "1"),
        cost=item.expression("cost", "0"),
        archs=tuple(item.texts("arch", list(archs))),
        dtypes=_choices(item, "dtypes", arrays),
        options=_choices(item, "options", options),
    )
    for arch in tile.archs:
        if arch not in archs:
            item.fail(f"arch '{arch}' is not one of {', '.join(archs)}")
    item.done()
    return tile


def _choices(item: _Fields, key: str, allowed: dict[str, list[str]]) -> dict[str, tuple[str, ...]]:
    """`{ a = ["e4m3"] }`: what a tile is for, out of what the table allows."""
    inner = _Fields(item.take(key, dict, {}), f"{item.where}.{key}")
    result = {}
    for name in inner.data:
        if name not in allowed:
            inner.fail(f"nothing is named '{name}'; known: {', '.join(allowed) or 'none'}")
        values = inner.texts(name)
        for value in values:
            if value not in allowed[name]:
                inner.fail(f"{name} is never '{value}', only {', '.join(allowed[name])}")
        result[name] = tuple(values)
    return result

"""One kernel's table (TOML) as the manifest's entry of it. docs/adding_a_kernel.md describes its language.

What each key may hold and what it is where it is left out is declared in zoo/contract/schema.py; the rules that several keys make
together are those of a manifest's reader. Here is what only tables have: sources beside them, shorthands, names in one space. Whether
the expressions make sense together is scope.py's question.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tools.builder import BuildError
from tools.builder.costs import refuse_unread, with_costs
from tools.builder.documents import Documents
from tools.builder.include import included, refuse_idle, refuse_unused
from tools.builder.per_format import instances
from tools.builder.sections import sections
from tools.builder.signature import Enums, Scope, Signature, passed, signature
from zoo.contract.expressions import RESERVED, Expression
from zoo.contract.fields import Formula, Malformed, inside, lowered, one_of, refuse, refuse_unknown
from zoo.contract.names import Vocabulary
from zoo.contract.reading import argument as read_argument
from zoo.contract.reading import check_fits
from zoo.contract.reading import form as read_form
from zoo.contract.reading import launch as read_launch
from zoo.contract.reading import option as read_option
from zoo.contract.schema import PARAMETERS, Argument, Constraint, Form, Kernel, LaunchRule, MapRecipe, Option, Tile, Variants, block_layout
from zoo.contract.tensor_map import TensorMap
from zoo.errors import ExpressionError, ManifestError

_FORMULA = Formula()


@dataclass(frozen=True)
class Table:
    path: Path
    root: Path  # the tree of tables: unit and manifest paths count from here
    name: str
    source: Path
    entry: dict[str, Any]  # the manifest's entry, without variants
    archs: tuple[str, ...]
    tiles: tuple[Tile, ...]
    signatures: dict[str, Signature]  # of each launch
    enums: Enums


def read_tables(root: Path, *others: Path) -> list[Table]:
    """The tables below `root`; what they include may lie below the others, too."""
    paths = sorted(root.glob("**/tables/*.toml"))
    if not paths:
        raise BuildError(f"no table matches {root}/**/tables/*.toml")
    try:
        words = Vocabulary.of_tree(root)
    except ManifestError as error:
        raise BuildError(str(error)) from None
    documents = Documents(root, *others)
    tables: dict[str, Table] = {}
    for path in paths:
        for table in _read_file(path, root, documents, words):
            if table.name in tables:
                raise BuildError(f"{path}: {table.name} is already the kernel of {tables[table.name].path}")
            tables[table.name] = table
    refuse_unread(documents)
    return [tables[name] for name in sorted(tables)]


def _read_file(path: Path, root: Path, documents: Documents, words: Vocabulary) -> list[Table]:
    try:
        data = tomllib.loads(path.read_text("utf-8"))
        made = [included(one, documents) for one in sections(data)]
        refuse_unused(made)
        refuse_idle(data.get("grouping", {}), made)
        tables = [with_costs(one.table, documents) for one in made]
        return [_read(one, path, root, words) for table in tables for one in instances(table, documents)]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BuildError(f"{path}: not TOML: {error}") from None
    except (Malformed, BuildError, ManifestError, ExpressionError) as error:
        raise BuildError(f"{path}: {error}") from None


def _read(data: dict[str, Any], path: Path, root: Path, words: Vocabulary) -> Table:
    signatures, enums = data.pop("signature", {}), Enums.of(data.pop("enum", {}))
    table = lowered(Kernel, data)
    fields = words.fields(table["name"])
    source = source_path(table["source"], path, root)
    taken: dict[str, str] = {}
    options = {name: _option(name, one, taken) for name, one in table["options"].items()}
    read: list[Argument] = []
    arguments = []
    for index, one in enumerate(table["arguments"]):
        with inside(f".arguments[{one.get('name', index)}]"):
            arguments.append(_argument(one, taken))
            read.append(read_argument(arguments[-1]))
    for symbol in table["symbols"]:
        with inside(".derived"):
            _take_name(symbol, "a derived symbol", taken)
    constraints = []
    for index, one in enumerate(table["constraints"]):
        with inside(f".constraints[{index}]"):
            constraints.append(lowered(Constraint, one))
    scope = _scope(read, options, table["symbols"])
    constants = _constants(table["expansion"])
    launches, taken_by = {}, {}
    for name, one in table["launches"].items():
        with inside(f".launch.{name}"):
            taken_by[name] = signature(one.pop("signature", ""), signatures, enums)
            others = {**scope.others, **dict.fromkeys(constants.get(name, ()), "the constant of a tile")}
            launches[name] = _launch(one, read, taken_by[name], replace(scope, others=others))
    entry = {
        "fields": fields,
        "summary": table["summary"],
        "table": path.relative_to(root).as_posix(),
        "source": source.relative_to(root).as_posix(),
        "promises": table["promises"],
        "options": options,
        "arguments": arguments,
        "derived": [[symbol, text] for symbol, text in table["symbols"].items()],
        "constraints": constraints,
        "launches": launches,
    }
    with inside(".variants"):
        variants = lowered(Variants, table["expansion"])
        tiles = tuple(_tile(one, index, variants["arch"], entry, enums) for index, one in enumerate(variants["tiles"]))
    for name in launches:
        if name not in (tile.launch for tile in tiles):
            raise BuildError(f"launch.{name}: no tile is started this way; remove it")
    for tile in tiles:
        if tile.source is not None:
            source_path(tile.source, path, root)
    return Table(path, root, table["name"], source, entry, tuple(variants["arch"]), tiles, taken_by, enums)


def _constants(variants: Any) -> dict[str, set[str]]:
    """Of each launch, the constants of the tiles that are started by it, before anything is known to be of the right type."""
    tiles = variants.get("tiles") if isinstance(variants, dict) else None
    found: dict[str, set[str]] = {}
    for tile in tiles if isinstance(tiles, list) else ():
        if isinstance(tile, dict) and isinstance(tile.get("constants"), dict):
            found.setdefault(str(tile.get("launch", "default")), set()).update(tile["constants"])
    return found


def source_path(name: str, table: Path, root: Path) -> Path:
    """A source of the table's own room, `dense.cu` for `<room>/kernels/dense.cu`; or of another, by its path from the root."""
    source = root / name if "/" in name else table.parent.parent / "kernels" / name
    if not source.is_file():
        raise BuildError(f"the source {source} does not exist")
    return source


def _take_name(name: str, what: str, taken: dict[str, str]) -> None:
    """Names live in one space, so that an expression can mean one thing only."""
    if name in RESERVED:
        raise Malformed(f": {what} '{name}' is a word of the expression language")
    if name in taken:
        raise Malformed(f": {what} '{name}' is already {taken[name]}")
    taken[name] = f"the name of {what}"


def _option(name: str, data: object, taken: dict[str, str]) -> dict[str, Any]:
    with inside(f".options.{name}"):
        _take_name(name, "an option", taken)
        option = lowered(Option, data)
        read_option(option)
        return option


def _argument(data: dict[str, Any], taken: dict[str, str]) -> dict[str, Any]:
    kind = data.get("kind", "array")
    argument = lowered(Argument, data, kind if kind in ("array", "scalar") else None)
    _take_name(argument["name"], "an argument", taken)
    shape, strides = argument.pop("shape", None), argument.pop("strides", None)
    if argument["kind"] == "array":
        if argument["forms"] is None and shape is None:
            raise Malformed(" has neither 'shape' nor 'forms'")
        if argument["forms"] is not None and (shape is not None or strides is not None):
            raise Malformed(" has 'forms' beside 'shape' or 'strides'; say it in one place")
        argument["forms"] = [_form({"shape": shape, "strides": strides})] if argument["forms"] is None else _forms(argument["forms"])
    return argument


def _forms(items: list[object]) -> list[dict[str, Any]]:
    forms = []
    for index, one in enumerate(items):
        with inside(f".forms[{index}]"):
            forms.append(_form(lowered(Form, one)))
    return forms


def _form(form: dict[str, Any]) -> dict[str, Any]:
    form = {"when": "1", **form}
    read_form(form)
    return form


def _scope(arguments: list[Argument], options: Mapping[str, Mapping[str, Any]], derived: Iterable[str]) -> Scope:
    arrays = [one for one in arguments if one.kind == "array"]
    extents = {
        text.text for one in arrays for form in one.forms for text in (*form.shape, *(form.strides or ())) if text.names == (text.text,)
    }
    numbers = {one.name for one in arguments if one.kind == "scalar"}
    floats = {one.name for one in arguments if one.kind == "scalar" and one.dtypes == ("f32",)}
    others = {"sms": "the number of multiprocessors", **dict.fromkeys(options, "the option")}
    others |= dict.fromkeys({*extents, *derived}, "the symbol") | {one.name: "the argument" for one in arguments}
    return Scope(
        {one.name: tuple(one.dtypes) for one in arrays},
        frozenset(floats),
        frozenset({*extents, *derived, *numbers} - floats),
        {name: tuple(one["values"]) for name, one in options.items()},
        others,
    )


def _launch(data: Any, arguments: list[Argument], taken: Signature, scope: Scope) -> dict[str, Any]:
    launch = lowered(LaunchRule, data)
    parameters = []
    with inside(".parameters"):
        for one in passed(taken, launch["parameters"], scope):
            with inside(f".{one['name']}"):
                parameters.append(_parameter(one, arguments))
    offsets, size = block_layout(parameter["kind"] for parameter in parameters)
    for parameter, offset in zip(parameters, offsets, strict=True):
        parameter["offset"] = offset
    launch = {**{key: value for key, value in launch.items() if key != "parameters"}, "parameter_bytes": size, "parameters": parameters}
    read_launch(launch, {argument.name: argument for argument in arguments})
    return launch


def _parameter(data: dict[str, Any], arguments: list[Argument]) -> dict[str, Any]:
    kinds = [kind for kind in PARAMETERS if kind in data]
    if len(kinds) != 1:
        raise Malformed(f": a parameter has exactly one of {', '.join(PARAMETERS)}, got {', '.join(kinds) or 'none'}")
    kind = kinds[0]
    rest = {key: value for key, value in data.items() if key not in (kind, "name")}
    made: dict[str, Any] = {"name": data["name"], "kind": kind, "offset": None, "size": PARAMETERS[kind][0]}
    if kind in ("i32", "i64"):
        refuse_unknown(rest, ())
        with inside(f".{kind}"):
            value = _FORMULA.lowered(data[kind])
            _FORMULA.read(value)
        return made | {"value": value}
    with inside(f".{kind}"):
        check_fits(kind, data[kind], arguments)
    made["argument"] = data[kind]
    if kind != "tensor_map":
        refuse_unknown(rest, ())
        return made
    recipe = lowered(MapRecipe, rest)
    _check_map_alignment(next(argument for argument in arguments if argument.name == data[kind]), recipe["dtype"])
    return made | recipe


def _check_map_alignment(argument: Argument, dtype: str) -> None:
    """What the argument promises of its address must be enough for the map, or calls that fit the table would fail."""
    needed = TensorMap(dtype=dtype, address=0, dims=(1,), strides=(), box=(1,)).alignment
    if argument.alignment < needed:
        said = (
            f"a tensor map of {dtype} needs addresses at multiples of {needed} bytes, '{argument.name}' has alignment {argument.alignment}"
        )
        raise Malformed(f": {said}; write alignment = {needed} in it")


def check_constant_box(recipe: Mapping[str, Any], values: Mapping[str, int]) -> None:
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


def _tile(data: dict[str, Any], index: int, archs: list[str], entry: dict[str, Any], enums: Enums) -> Tile:
    with inside(f".tiles[{data.get('name', index)}]"):
        if isinstance(data.get("constants"), dict):
            data = {**data, "constants": {name: enums.number(name, value) for name, value in data["constants"].items()}}
        tile = Tile(**lowered(Tile, {"arch": archs, **data}))
        for constant in tile.constants:
            if constant in RESERVED:
                raise Malformed(f": constant '{constant}' is a word of the expression language").inside(".constants")
        if tile.launch not in entry["launches"]:
            with inside(".launch"):
                refuse(tile.launch, one_of(entry["launches"]))
        for arch in tile.arch:
            if arch not in archs:
                with inside(".arch"):
                    refuse(arch, one_of(archs))
        arrays = {one["name"]: one for one in entry["arguments"] if one["kind"] == "array"}
        _check_choices("dtypes", tile.dtypes, {name: one["dtypes"] for name, one in arrays.items()})
        for name, chosen in tile.dtypes.items():
            if len(chosen) != 1 and not arrays[name]["compiled"]:
                with inside(f".dtypes.{name}"):
                    refuse(chosen, "one dtype, as the argument is not compiled")
        several = [name for name, one in arrays.items() if one["compiled"] and len(one["dtypes"]) > 1 and name not in tile.dtypes]
        for name in tile.uncompiled:
            if name not in several:
                with inside(".uncompiled"):
                    refuse(
                        name,
                        f"a compiled argument of several dtypes, which 'dtypes' does not name: {', '.join(several) or 'there is none'}",
                    )
        _check_choices("options", tile.options, {name: one["values"] for name, one in entry["options"].items() if one["compiled"]})
        return tile


def _check_choices(key: str, chosen: Mapping[str, list[str]], allowed: Mapping[str, list[str]]) -> None:
    """`{ a = ["e4m3"] }`: what a tile is for, out of what the table allows."""
    for name, values in chosen.items():
        if name not in allowed:
            raise Malformed(f": nothing is named '{name}'; known: {', '.join(allowed) or 'none'}").inside(f".{key}")
        for value in values:
            if value not in allowed[name]:
                raise Malformed(f": {name} is never '{value}', only {', '.join(allowed[name])}").inside(f".{key}")

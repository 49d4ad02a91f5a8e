"""A table with the pieces that it uses, its own and those of included files, in place of their names.

include = ["gemm/parts/operands.toml"]     # paths from the root; such a file holds pieces and words, and is not a table
arguments = ["a", { use = "c", optional = true }, { name = "rows", dtypes = ["i32"], shape = ["G"], access = "read" }]

[argument.c]                               # a piece: also [option.x], [constraint.x], [parameter.x], [symbols.x] and [map.x]
dtypes = ["f32"]

[launch.few]
like = "many"                              # a launch of this table, or one of the included files
grid = ["1", "1", "1"]

variants = "t256"                          # instead of [variants]: [variants.t256] of an included file

[[variants]]                               # or several, also for the same arch
use = "hopper"                             # a group of an included file, or [tiles.hopper]; keys here replace its keys
arch = ["sm_90a"]
when = "not d.f32"                         # of all tiles of the group, besides their own `when`

columns = ["name", "launch", "TOKENS", "CTAS", "cost"]    # tiles as rows: a column in capitals is a constant, an empty cell "" is left out
tiles = [
    ["t128", "many", 128, 1, "waves"],
    ["few8", "few", 8, 2, "streams", { when = "M <= 8" }],  # a table at the end has the keys without a column
]

A name in a list is replaced by the piece, `{ use = "name", ... }` by the piece with changed keys. A piece may itself be `{ use = ... }`
or a list of pieces. `constants`, `dtypes`, `source`, `pipeline`, `cubins_of`, `uncompiled`, `launch`, `cost`, `costs` and `only` of [variants]
are defaults of its tiles.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from tools.builder import BuildError
from tools.builder.documents import Documents, did_you_mean

LISTS = {"arguments": "argument", "options": "option", "constraints": "constraint", "parameters": "parameter", "derived": "symbols"}
PIECES = (*LISTS.values(), "map", "signature", "enum")
# By [variants] for its tiles.
SHARED = ("constants", "dtypes", "source", "pipeline", "cubins_of", "uncompiled", "launch", "cost", "costs", "when", "only")
KINDS = (*PIECES, "launch", "variants")
_Table = dict[str, Any]


class Included(NamedTuple):
    table: _Table  # with the keys of zoo/contract/schema.py, without pieces
    used: frozenset[str]  # the names of pieces, launches and files
    unused: dict[str, str]  # a piece, a launch or a file that the table does not use -> the refusal
    bases: frozenset[str]  # launches that others are like


def refuse_unused(tables: list[Included]) -> None:
    """Refuses a piece, a launch or an included file that no table of a file uses."""
    used = frozenset[str]().union(*(one.used for one in tables))
    for one in tables:
        for name, said in one.unused.items():
            if name not in used:
                raise BuildError(said)


def refuse_idle(groupings: _Table, tables: list[Included]) -> None:
    """Refuses a piece or a launch that a [grouping.x] has for itself and does not use: shared ones may be for the other groupings."""
    for (grouping, own), table in zip(groupings.items(), tables, strict=False):
        for kind in (*PIECES, "launch"):
            for name in own[kind] if isinstance(own.get(kind), dict) else ():
                if f"{kind}.{name}" in table.unused and not (kind == "launch" and name in table.bases):
                    raise BuildError(f"grouping.{grouping}.{kind}.{name}: this grouping does not use it; remove it")


def included(data: _Table, documents: Documents) -> Included:
    pieces = _Pieces(data, documents)
    made = {key: value for key, value in data.items() if key not in ("include", "tiles", *PIECES)}
    if pieces.words:
        made["included_words"] = pieces.words
    for key in ("arguments", "constraints"):
        if isinstance(data.get(key), list):
            made[key] = pieces.all(key)
    if isinstance(data.get("options"), list):
        made["options"] = {option.pop("name"): option for option in pieces.all("options")}
    if isinstance(data.get("derived"), list):
        made["derived"] = _merged(pieces.all("derived"))
    if isinstance(data.get("variants"), str):
        made["variants"] = pieces.take("variants", data["variants"], "variants")
    if isinstance(made.get("variants"), list):
        made["variants"] = _of_several([pieces.variants(group) for group in made["variants"]])
    elif isinstance(made.get("variants"), dict):
        made["variants"] = _with_shared(made["variants"])
    idle: set[str] = set()
    if isinstance(data.get("launch"), dict):
        idle = _idle(data["launch"], made.get("variants"))
        made["launch"] = {name: pieces.launch(launch, (name,)) for name, launch in data["launch"].items() if name not in idle}
    if launches := made.get("launch"):
        made["signature"] = pieces.signatures(launches)
        made["enum"] = pieces.every("enum")
    unused = pieces.unused() | {f"launch.{name}": f"launch.{name}: no tile is started this way; remove it" for name in idle}
    own_launches = {f"launch.{name}" for name in made.get("launch", {})}
    launches = data["launch"] if isinstance(data.get("launch"), dict) else {}
    bases = frozenset(launch["like"] for launch in launches.values() if isinstance(launch, dict) and isinstance(launch.get("like"), str))
    return Included(made, (pieces.names() | own_launches) - unused.keys(), unused, bases)


def _idle(launches: _Table, variants: Any) -> set[str]:
    """Launches that no tile of this table is started by: they are for another grouping of the file."""
    tiles = variants.get("tiles") if isinstance(variants, dict) else None
    if not isinstance(tiles, list) or not all(isinstance(tile, dict) for tile in tiles):
        return set()
    started = {str(tile.get("launch", "default")) for tile in tiles}
    return launches.keys() - started if started <= launches.keys() else set()


class _Pieces:
    """The pieces that may be used by name, and those that are used."""

    def __init__(self, data: _Table, documents: Documents) -> None:
        self.data = data
        self.words: list[_Table] = []
        self.found: dict[tuple[str, str], Any] = {}  # (kind, name) -> the piece
        self.places: dict[tuple[str, str], str] = {}  # -> where it stands
        self.used: set[tuple[str, str]] = set()
        self.files = data.get("include", [])
        if not isinstance(self.files, list) or not all(isinstance(name, str) for name in self.files):
            raise BuildError(f"'include' must be a list of paths, got {self.files!r}")
        for name in self.files:
            part = documents.read(name)
            unknown = [key for key in part if key not in (*KINDS, "words")]
            if unknown:
                raise BuildError(f"{name}: '{unknown[0]}' is no kind of piece; those are: {', '.join(KINDS)} and words")
            self.words += _list_of_tables(part, "words", name)
            self._add(part, KINDS, name)
        self._add(data, PIECES, "this table")
        self._add({"variants": data.get("tiles", {})}, ("variants",), "this table")

    def _add(self, document: _Table, kinds: Iterable[str], place: str) -> None:
        for kind in kinds:
            pieces = document.get(kind, {})
            if not isinstance(pieces, dict):
                raise BuildError(f"{place}: '{kind}' must be a table of pieces, got {pieces!r}")
            for name, piece in pieces.items():
                if (kind, name) in self.found:
                    raise BuildError(f"{place}: {kind} '{name}' is also a piece of {self.places[kind, name]}; rename one")
                if not isinstance(piece, dict) and not (kind in LISTS.values() and isinstance(piece, list)):
                    raise BuildError(f"{place}: {kind} '{name}' must be a table, got {piece!r}")
                self.found[kind, name], self.places[kind, name] = piece, place

    def all(self, key: str, items: list[Any] | None = None) -> list[_Table]:
        """The tables that a list of the table stands for."""
        kind = LISTS[key]
        made: list[_Table] = []
        for item in self.data[key] if items is None else items:
            made += self._tables(kind, item, key, ())
        if kind in ("argument", "option") and (nameless := [item for item in made if "name" not in item]):
            raise BuildError(f"{key}: {nameless[0]!r} has no name")
        return made

    def variants(self, group: Any, seen: tuple[str, ...] = ()) -> Any:
        """One of several [[variants]]: its keys, in place of those of the group that it uses."""
        if not isinstance(group, dict) or "use" not in group:
            return group
        name = str(group["use"])
        if name in seen:
            raise BuildError(f"variants '{name}' uses itself: {' -> '.join((*seen, name))}")
        changes = {key: value for key, value in group.items() if key != "use"}
        base = self.variants(self.take("variants", name, "variants"), (*seen, name))
        return {**base, **changes} if changes else base

    def launch(self, launch: Any, seen: tuple[str, ...]) -> _Table:
        if not isinstance(launch, dict):
            raise BuildError(f"launch.{seen[0]}: must be a table, got {launch!r}")
        if "like" in launch:
            name, launch = launch["like"], {key: value for key, value in launch.items() if key != "like"}
            if name in seen:
                raise BuildError(f"launch.{seen[0]} is like itself: {' -> '.join((*seen, name))}")
            own = self.data["launch"]
            base = own[name] if name in own else self.take("launch", name, f"launch.{seen[0]}.like", own)
            launch = {**self.launch(base, (*seen, name)), **launch}
        made: _Table = {**launch}
        if isinstance(made.get("parameters", []), list):
            values = made.pop("values", {})
            if not isinstance(values, dict):
                raise BuildError(f"launch.{seen[0]}.values: must be a table, got {values!r}")
            tables = [*self.all("parameters", made.get("parameters", [])), values]
            made["parameters"] = [{name: self._map(value, name) for name, value in one.items()} for one in tables if one]
        return made

    def _map(self, value: Any, name: str) -> Any:
        """A parameter's value, with the piece that a tensor map names."""
        seen: list[object] = []
        while isinstance(value, dict) and "use" in value:
            if value["use"] in seen:
                raise BuildError(f"map '{value['use']}' uses itself: {' -> '.join(map(str, (*seen, value['use'])))}")
            seen.append(value["use"])
            changes = {key: one for key, one in value.items() if key != "use"}
            value = {**self.take("map", value["use"], f"parameter {name}"), **changes}
        return value

    def signatures(self, launches: _Table) -> _Table:
        """The signatures that launches name, or all if a name depends on the format. A launch without a name has the only one of its table."""
        own = [name for (kind, name), place in self.places.items() if kind == "signature" and place == "this table"]
        for name, launch in launches.items():
            if "signature" not in launch:
                if len(own) > 1:
                    raise BuildError(f"launch.{name}: name its signature, one of {', '.join(own)}")
                launch |= {"signature": own[0]} if own else {}
        names = {str(launch.get("signature", "")).split(" ")[0] for launch in launches.values()} - {""}
        if any("{" in name for name in names):
            return self.every("signature")
        return {name: self.take("signature", name, "launch") for name in sorted(names)}

    def every(self, kind: str) -> _Table:
        of_kind = {name: piece for (other, name), piece in self.found.items() if other == kind}
        self.used |= {(kind, name) for name in of_kind}
        return of_kind

    def _tables(self, kind: str, item: Any, where: str, seen: tuple[str, ...]) -> list[_Table]:
        if isinstance(item, str):
            return self._of_piece(kind, item, where, seen)
        if not isinstance(item, dict):
            raise BuildError(f"{where}: expected the name of a piece or a table, got {item!r}")
        if "use" not in item:
            return [item]
        changes = {key: value for key, value in item.items() if key != "use"}
        pieces = self._of_piece(kind, item["use"], where, seen)
        if changes and len(pieces) != 1:
            raise BuildError(f"{where}: {kind} '{item['use']}' is {len(pieces)} tables, of which no key can be changed")
        return [{**piece, **changes} for piece in pieces]

    def _of_piece(self, kind: str, name: str, where: str, seen: tuple[str, ...]) -> list[_Table]:
        piece = self.take(kind, name, where)
        if name in seen:
            raise BuildError(f"{self.places[kind, name]}: {kind} '{name}' uses itself: {' -> '.join((*seen, name))}")
        items = piece if isinstance(piece, list) else [piece]
        made = [table for item in items for table in self._tables(kind, item, f"{kind}.{name}", (*seen, name))]
        return [{"name": name, **table} for table in made] if kind in ("argument", "option") else made

    def take(self, kind: str, name: Any, where: str, besides: Iterable[str] = ()) -> Any:
        if (kind, name) not in self.found:
            known = [*besides, *(other for of_kind, other in self.found if of_kind == kind)]
            hint = did_you_mean(str(name), known) or f"; there are: {', '.join(known) or 'none'}"
            raise BuildError(f"{where}: no {kind} is named '{name}' in {', '.join(('this table', *self.files))}{hint}")
        self.used.add((kind, name))
        return self.found[kind, name]

    def names(self) -> frozenset[str]:
        """All pieces of the table itself and all included files."""
        return frozenset((*(f"{kind}.{name}" for (kind, name), place in self.places.items() if place == "this table"), *self.files))

    def unused(self) -> dict[str, str]:
        own = [key for key, place in self.places.items() if place == "this table" and key not in self.used]
        found = {f"{kind}.{name}": f"{kind}.{name}: nothing uses this piece; remove it" for kind, name in own}
        return found | {name: f"include: nothing of {name} is used; remove it" for name in self.files if not self._serves(name)}

    def _serves(self, name: str) -> bool:
        pieces = [key for key, place in self.places.items() if place == name]
        return not pieces or any(key in self.used for key in pieces)


def _merged(tables: list[_Table]) -> _Table:
    """Symbols of a piece for some formats keep its condition: `per_format` reads it."""
    merged: _Table = {}
    for table in tables:
        condition = {key: table[key] for key in ("only", "except") if key in table}
        for name, value in table.items():
            if name in merged:
                raise BuildError(f"derived: '{name}' is there twice")
            if name not in condition:
                merged[name] = {**condition, "is": value} if condition else value
    return merged


def _list_of_tables(document: _Table, key: str, place: str) -> list[_Table]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BuildError(f"{place}: '{key}' must be a list of tables, got {tables!r}")
    return tables


def _with_rows(variants: _Table) -> _Table:
    """Tiles that are rows under columns as tables."""
    if "columns" not in variants:
        return variants
    columns, tiles = variants["columns"], variants.get("tiles")
    if not isinstance(columns, list) or not all(isinstance(one, str) and columns.count(one) == 1 for one in columns):
        raise BuildError(f"variants: 'columns' must be a list of different names, got {columns!r}")
    if not isinstance(tiles, list) or not all(isinstance(row, list) for row in tiles):
        raise BuildError(f"variants: with 'columns', 'tiles' must be a list of rows, got {tiles!r}")
    return {**{key: value for key, value in variants.items() if key != "columns"}, "tiles": [_tile_of(row, columns) for row in tiles]}


def _tile_of(row: list[Any], columns: list[str]) -> _Table:
    cells, rest = row[: len(columns)], row[len(columns) :]
    if len(cells) < len(columns) or len(rest) > 1 or not all(isinstance(one, dict) for one in rest):
        raise BuildError(f"variants: the row {row!r} must have {len(columns)} cells ({', '.join(columns)}) and at most a table after them")
    said = {name: cell for name, cell in zip(columns, cells, strict=True) if cell != ""}
    tile: _Table = {name: value for name, value in said.items() if not name.isupper()}
    constants = {name: value for name, value in said.items() if name.isupper()}
    own = dict(rest[0]) if rest else {}
    constants |= own.pop("constants", {})
    return {**tile, **own, **({"constants": constants} if constants else {})}


def _with_shared(variants: _Table) -> _Table:
    """Every tile with the defaults of [variants], whose constants come first."""
    variants = _with_rows(variants)
    shared, tiles = {key: variants[key] for key in SHARED if key in variants}, variants.get("tiles", [])
    tables = all(isinstance(shared.get(key, {}), dict) for key in ("constants", "dtypes"))
    if shared and not (tables and isinstance(tiles, list) and all(isinstance(tile, dict) for tile in tiles)):
        raise BuildError("variants: 'constants' and 'dtypes' must be tables and 'tiles' a list of tables")
    made = [{**shared, **tile, **_both(shared, tile)} for tile in tiles] if shared else tiles
    return {key: made if key == "tiles" else value for key, value in variants.items() if key not in SHARED}


def _both(shared: _Table, tile: _Table) -> _Table:
    both: _Table = {key: {**shared[key], **tile.get(key, {})} for key in ("constants", "dtypes", "only") if key in shared}
    return {**both, "when": f"({shared['when']}) and ({tile['when']})"} if "when" in shared and "when" in tile else both


def _of_several(groups: list[Any]) -> _Table:
    """One [variants] of several: each tile has its archs."""
    archs: dict[str, None] = {}
    tiles = []
    for index, group in enumerate(groups):
        if isinstance(group, dict):
            group = _with_rows(group)
        if not isinstance(group, dict) or not isinstance(group.get("arch"), list) or not isinstance(group.get("tiles"), list):
            raise BuildError(f"variants[{index}]: must be a table with lists 'arch' and 'tiles', got {group!r}")
        unknown = [key for key in group if key not in ("arch", "tiles", *SHARED)]
        if unknown:
            raise BuildError(f"variants[{index}]: has the unknown key '{unknown[0]}'; known here: arch, tiles, {', '.join(SHARED)}")
        archs |= dict.fromkeys(group["arch"])
        tiles += [{"arch": group["arch"], **tile} for tile in _with_shared(group)["tiles"]]
    return {"arch": list(archs), "tiles": tiles}

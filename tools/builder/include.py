"""A table with everything in place that it takes by name from other files, or from itself.

include = ["gemm/parts/operands.toml"]     # paths from the root; such a file holds pieces and words, and is no table
arguments = ["a", { use = "c", optional = true }, { name = "rows", dtypes = ["i32"], shape = ["G"], access = "read" }]

[argument.c]                               # a piece: also [option.x], [constraint.x], [parameter.x] and [symbols.x]
dtypes = ["f32"]

[launch.few]
like = "many"                              # a launch of this table, or one of the included files
grid = ["1", "1", "1"]

variants = "t256"                          # instead of [variants]: a file's [variants.t256]

[[variants]]                               # or several, each for archs of its own; `use = "t256"`: a file's, whose archs others may have, too
arch = ["sm_90a"]

A name in a list stands for the piece, `{ use = "name", ... }` for the piece with some of its keys anew. A piece may itself be
`{ use = ... }`, a parameter also a list of several. `constants`, `dtypes`, `source`, `way`, `cubins_of`, `uncompiled` and `costs` of [variants] are those
that a tile does not state.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tools.builder import BuildError
from tools.builder.documents import Documents, did_you_mean

LISTS = {"arguments": "argument", "options": "option", "constraints": "constraint", "parameters": "parameter", "derived": "symbols"}
SHARED = ("constants", "dtypes", "source", "way", "cubins_of", "uncompiled", "costs")  # of [variants], what its tiles may leave out
KINDS = (*LISTS.values(), "launch", "variants")
_Table = dict[str, Any]


def included(data: _Table, documents: Documents) -> _Table:
    """`data` in the language of docs/manifest.md without pieces."""
    pieces = _Pieces(data, documents)
    made = {key: value for key, value in data.items() if key not in ("include", *LISTS.values())}
    if pieces.words:
        made["included_words"] = pieces.words
    for key in ("arguments", "constraints"):
        if isinstance(data.get(key), list):
            made[key] = pieces.all(key)
    if isinstance(data.get("options"), list):
        made["options"] = {option.pop("name"): option for option in pieces.all("options")}
    if isinstance(data.get("derived"), list):
        made["derived"] = _merged(pieces.all("derived"))
    if isinstance(data.get("launch"), dict):
        made["launch"] = {name: pieces.launch(launch, (name,)) for name, launch in data["launch"].items()}
    if isinstance(data.get("variants"), str):
        made["variants"] = pieces.take("variants", data["variants"], "variants")
    if isinstance(made.get("variants"), list):
        made["variants"] = _of_several([(pieces.variants(group), _is_piece(group)) for group in made["variants"]])
    elif isinstance(made.get("variants"), dict):
        made["variants"] = _with_shared(made["variants"])
    pieces.refuse_unused()
    return made


class _Pieces:
    """What may be used by name, and what was."""

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
        self._add(data, LISTS.values(), "this table")

    def _add(self, document: _Table, kinds: Iterable[str], place: str) -> None:
        for kind in kinds:
            pieces = document.get(kind, {})
            if not isinstance(pieces, dict):
                raise BuildError(f"{place}: '{kind}' must be a table of pieces, got {pieces!r}")
            for name, piece in pieces.items():
                if (kind, name) in self.found:
                    raise BuildError(f"{place}: {kind} '{name}' is also a piece of {self.places[kind, name]}; rename one")
                if not isinstance(piece, dict) and not (kind == "parameter" and isinstance(piece, list)):
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

    def variants(self, group: Any) -> Any:
        """One of several [[variants]], which may be a file's."""
        return self.take("variants", group["use"], "variants") if _is_piece(group) else group

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
        made: _Table = launch
        if isinstance(made.get("parameters"), list):
            made = {**made, "parameters": self.all("parameters", made["parameters"])}
        return made

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

    def refuse_unused(self) -> None:
        for (kind, name), place in self.places.items():
            if place == "this table" and (kind, name) not in self.used:
                raise BuildError(f"{kind}.{name}: nothing uses this piece; remove it")
        for name in self.files:
            if not self._serves(name):
                raise BuildError(f"include: nothing of {name} is used; remove it")

    def _serves(self, name: str) -> bool:
        pieces = [key for key, place in self.places.items() if place == name]
        return not pieces or any(key in self.used for key in pieces)


def _merged(tables: list[_Table]) -> _Table:
    merged: _Table = {}
    for table in tables:
        for name, value in table.items():
            if name in merged:
                raise BuildError(f"derived: '{name}' is there twice")
            merged[name] = value
    return merged


def _list_of_tables(document: _Table, key: str, place: str) -> list[_Table]:
    tables = document.get(key, [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise BuildError(f"{place}: '{key}' must be a list of tables, got {tables!r}")
    return tables


def _with_shared(variants: _Table) -> _Table:
    """Every tile with what it does not state itself; the constants of [variants] first."""
    shared, tiles = {key: variants[key] for key in SHARED if key in variants}, variants.get("tiles", [])
    tables = all(isinstance(shared.get(key, {}), dict) for key in ("constants", "dtypes"))
    if shared and not (tables and isinstance(tiles, list) and all(isinstance(tile, dict) for tile in tiles)):
        raise BuildError("variants: 'constants' and 'dtypes' must be tables and 'tiles' a list of tables")
    made = [{**shared, **tile, **_both(shared, tile)} for tile in tiles] if shared else tiles
    return {key: made if key == "tiles" else value for key, value in variants.items() if key not in SHARED}


def _both(shared: _Table, tile: _Table) -> _Table:
    return {key: {**shared[key], **tile.get(key, {})} for key in ("constants", "dtypes") if key in shared}


def _is_piece(group: Any) -> bool:
    return isinstance(group, dict) and group.keys() == {"use"}


def _of_several(groups: list[tuple[Any, bool]]) -> _Table:
    """One [variants] of them all, each of which may be a file's: each tile says its archs."""
    archs: dict[str, None] = {}
    own: set[str] = set()  # of which the table itself has variants
    tiles = []
    for index, (group, is_piece) in enumerate(groups):
        if not isinstance(group, dict) or not isinstance(group.get("arch"), list) or not isinstance(group.get("tiles"), list):
            raise BuildError(f"variants[{index}]: must be a table with lists 'arch' and 'tiles', got {group!r}")
        unknown = [key for key in group if key not in ("arch", "tiles", *SHARED)]
        if unknown:
            raise BuildError(f"variants[{index}]: has the unknown key '{unknown[0]}'; known here: arch, tiles, {', '.join(SHARED)}")
        if not is_piece:
            if taken := [arch for arch in group["arch"] if arch in own]:
                raise BuildError(f"variants[{index}]: {taken[0]} has variants above; put the tiles there")
            own |= set(group["arch"])
        archs |= dict.fromkeys(group["arch"])
        tiles += [{"arch": group["arch"], **tile} for tile in _with_shared(group)["tiles"]]
    return {"arch": list(archs), "tiles": tiles}

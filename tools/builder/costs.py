"""A tile's cost by the name of a formula, with the numbers that one file has of a GPU.

[[variants]]
arch = ["sm_90a"]
costs = "gemm/costs/h200.toml"           # a path from the root
tiles = [{ name = "t128", cost = "waves", ... }]

The file of a GPU:

formulas = "gemm/costs/formulas.toml"
[experiment]                             # of each name below, what gave its numbers; the file of formulas may say it for several files
block = "K of 1 to 64 blocks, three tiles on the chip: the slope"
[chip]
memory = 4200
[tile."gemm.fp8b128.dense"]              # a table by its name, and its tiles
t128 = { block = 505, end = 975 }
f32_t128 = { block = 643, end = 1489 }   # of the tile t128 with dtypes = { d = ["f32"] }; without this line it has the numbers of t128

The file of formulas:

[formula.waves]
cost = "{compute} + {end}"               # the expression
tiles = "ceil_div(M, {TOKENS})"          # what this formula calls so
[table."gemm.fp8b128.m_grouped_masked"]  # what all formulas call so in this table; a formula's own text comes first
tiles = "G * ceil_div(EXPECTED, {TOKENS})"
[part]                                   # what formulas have in common
compute = "ceil_div({tiles}, sms) * BLOCKS * {block}"
[same]                                   # a table whose tiles have the numbers of another's
"gemm.fp8b128.m_grouped_masked" = "gemm.fp8b128.m_grouped_contiguous"
[tensor]                                 # nanoseconds of tensor cores in numbers of this name, of constants and numbers of a tile
block = "{TOKENS} * 16"
[rates]                                  # the rate of a chip to which numbers of this name are proportional (zoo/contract/chips.py)
memory = "memory"

[formula.waves.derives]                  # what the table derives for it, too
"TILES_{TOKENS}" = "ceil_div(M, {TOKENS})"
[formula.waves.launch]                   # what a tile's launch is besides the one it names; it then has the tile's name,
                                         # and that of the formats that the tile is only for
grid = ["TILES_{TOKENS}", "1", "1"]

A word in braces is a number of the tile or of the chip, a constant of the tile, another of these texts, or one of the `words` of the table and of
what it includes (per_format.py), which is put in later; in `derives`, a constant of the tile. What comes out is an expression like any other, which
reads numbers by name: the tile's `numbers` hold their values, and `zoo tune` measures other values. A cost that names no formula stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from tools.builder import BuildError
from tools.builder.costs_file import OF_A_GPU, OF_FORMULAS, check_file
from tools.builder.documents import Documents, did_you_mean
from zoo.contract.expressions import Expression

_WORD = re.compile(r"\{(\w+)\}")
_Table = dict[str, Any]


def with_costs(data: _Table, documents: Documents) -> _Table:
    """`data`, which has everything in place that it includes, with expressions for the names of formulas; `costs` is gone."""
    variants = data.get("variants")
    if not isinstance(variants, dict) or not isinstance(variants.get("tiles"), list):
        return data
    data = {**data, "derived": dict(data.get("derived", {})), "launch": dict(data.get("launch", {}))}
    made = [_with_cost(tile, data, documents) if isinstance(tile, dict) else tile for tile in variants["tiles"]]
    before, after = ({_launch_of(tile) for tile in tiles if isinstance(tile, dict)} for tiles in (variants["tiles"], made))
    for name in (before - after) & data["launch"].keys():
        del data["launch"][name]  # all that named it have one of their own
    return {**data, "variants": {**variants, "tiles": made}}


def _with_cost(tile: _Table, data: _Table, documents: Documents) -> _Table:
    """A tile with the expression of its cost; what its formula derives and launches is put into `data`."""
    made = {key: value for key, value in tile.items() if key != "costs"}
    if "costs" not in tile or not _is_readable(tile):
        return made
    gpu = Gpu(tile["costs"], documents)
    if (formula := gpu.formulas.get(tile.get("cost", ""))) is None:
        return made
    made["cost"], made["numbers"] = gpu.cost(tile["cost"], str(data.get("name")), tile, words_of(data))
    made["tensor"], made["rates"] = gpu.of_chips(tile["cost"], str(data.get("name")), tile, made["numbers"])
    constants = tile.get("constants", {})
    for symbol, text in _filled_in(formula.get("derives", {}), constants, f"what {tile['cost']} derives for {tile['name']}").items():
        if data["derived"].setdefault(symbol, text) != text:
            raise BuildError(
                f"{tile['cost']} derives '{symbol}' for {tile['name']}, and '{symbol}' has another expression already: {data['derived'][symbol]}"
            )
    if "launch" in formula:
        named = _launch_of(tile)
        if named not in data["launch"]:
            meant = did_you_mean(named, data["launch"])
            raise BuildError(
                f"tile {tile['name']}: {tile['cost']} changes the launch that the tile names, and there is no {named!r}{meant}"
            )
        base, only = data["launch"][named], tile.get("only", {})
        for key, value in base.get("only", {}).items():
            if not set(_each(only.get(key, value))) <= set(_each(value)):
                raise BuildError(f"tile {tile['name']} is only for {key} = {only[key]}, and {named}, the launch that it names, for {value}")
        anew = {**base, **gpu.launch(tile["cost"], str(data.get("name")), tile, words_of(data))}
        if only:
            anew["only"] = {**base.get("only", {}), **only}
        name = "_".join(str(word) for value in (tile["name"], *only.values()) for word in _each(value))
        if data["launch"].setdefault(name, anew) != anew:
            raise BuildError(f"the launch that {tile['cost']} makes is named {name}, after the tile, and there is another of that name")
        made["launch"] = name
    return made


def _is_readable(tile: _Table) -> bool:
    """Whether a tile has what costs read of it, in the right types; of another, the manifest's schema says what is wrong."""
    types = {"name": str, "cost": str, "constants": dict, "dtypes": dict, "only": dict}
    return "name" in tile and all(isinstance(tile.get(key, kind()), kind) for key, kind in types.items())


def refuse_unread(documents: Documents) -> None:
    """Refuses a number that no tile's cost reads, and a tile that no table has, in the files of the tree that is built: what it reads of
    other trees may be for other tables."""
    for name, read in documents.numbers_read.items():
        data = documents.read(name) if documents.is_own(name) else {}
        for number in data.get("chip", {}):
            if ("chip", number) not in read:
                raise BuildError(f"{name}: no cost reads {number} of [chip]; remove it")
        for table, tiles in data.get("tile", {}).items():
            for tile in tiles:
                if (table, tile) not in read:
                    raise BuildError(f"{name}: no tile of {table} that has its costs here is named {tile}; remove it")


def manifest_name(tile: _Table) -> str:
    """A tile's name in the manifest: the dtypes that the tile is only for come first."""
    return "_".join((*(dtype for allowed in tile.get("dtypes", {}).values() for dtype in allowed[:1]), tile["name"]))


def words_of(data: _Table) -> set[str]:
    """What the words of a table are called, in whatever case they are meant."""
    cases = [case for key in ("included_words", "words") if isinstance(data.get(key), list) for case in data[key] if isinstance(case, dict)]
    return {name for case in cases for name in case} - {"only", "except"}


def _launch_of(tile: _Table) -> str:
    return str(tile.get("launch", "default"))


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _filled_in(what: Mapping[str, str], constants: _Table, where: str) -> dict[str, str]:
    """The same with a tile's constants for words in braces."""

    def constant(match: re.Match[str]) -> str:
        if match[1] not in constants:
            raise BuildError(f"{where}: {match[0]} is no constant of the tile{did_you_mean(match[1], constants)}")
        return str(constants[match[1]])

    return {_WORD.sub(constant, key): _WORD.sub(constant, value) for key, value in what.items()}


class Gpu:
    """What a file has measured of a GPU, and the formulas that it is for."""

    def __init__(self, name: Any, documents: Documents) -> None:
        if not isinstance(name, str):
            raise BuildError(f"'costs' must be a path, got {name!r}")
        self.name, data = name, documents.read(name)
        if name not in documents.numbers_read:
            check_file(name, data, OF_A_GPU)
            if "formulas" not in data:
                raise BuildError(f'{name}: does not name its file of formulas; write formulas = "..."')
            check_file(data["formulas"], documents.read(data["formulas"]), OF_FORMULAS)
        formulas = documents.read(data["formulas"])
        self.read: set[tuple[str, str]] = documents.numbers_read.setdefault(name, set())
        self.formulas: dict[str, dict[str, Any]] = formulas.get("formula", {})
        self.parts: dict[str, str] = formulas.get("part", {})
        self.chip: dict[str, int] = data.get("chip", {})
        self.tiles: dict[str, dict[str, dict[str, int]]] = data.get("tile", {})
        self.same: dict[str, str] = formulas.get("same", {})
        self.tensor: dict[str, str] = formulas.get("tensor", {})
        self.rates: dict[str, str] = formulas.get("rates", {})
        self.tables: dict[str, dict[str, str]] = formulas.get("table", {})
        self.experiments: dict[str, str] = {**formulas.get("experiment", {}), **data.get("experiment", {})}
        for of, numbers in (("chip", self.chip), *((tile, one) for tiles in self.tiles.values() for tile, one in tiles.items())):
            for number in numbers:
                if number not in self.experiments:
                    raise BuildError(f"{name}: nothing says what gave {number} of {of}; add it to [experiment]")

    def cost(self, formula: str, table: str, tile: _Table, words: Collection[str] = ()) -> tuple[str, dict[str, int]]:
        """The expression of a tile's cost, with words of the table in their braces, and the numbers that the cost and the launch read."""
        numbers = self._numbers(table, tile)
        of = f"tile {tile['name']} of {table}"
        if numbers is None:
            raise BuildError(f"{self.name}: has no numbers of {of}; tools/measure_costs.py takes them from times")
        made, used = self.expression(formula, self._known(table, tile), of, words, table)
        self._have_read(used - numbers.keys())
        self.read |= {(self.same.get(table, table), one) for one in (manifest_name(tile), tile["name"])}
        if unused := sorted(numbers.keys() - used):
            raise BuildError(f"{self.name}: {of} has {unused[0]}, which {formula} does not read; remove it")
        values = {**self.chip, **numbers}
        return made, {name: values[name] for name in values if name in used}

    def of_chips(self, formula: str, table: str, tile: _Table, numbers: Mapping[str, int]) -> tuple[dict[str, int], dict[str, str]]:
        """What changes these numbers on other chips: nanoseconds of tensor cores in them, and rates. Nothing for a chip that does not say
        how much its tensor cores multiply."""
        if "multiplications" not in self.chip:
            return {}, {}
        known, tensor = {**tile.get("constants", {}), **self.chip, **numbers}, {}
        for name in [name for name in numbers if name in self.tensor]:
            made, used = self._filled_in(self.tensor[name], f"tensor.{name}", formula, known, f"tile {tile['name']} of {table}", (), table)
            tensor[name] = Expression(made).evaluate({})
            self._have_read(used)
        return tensor, {name: rate for name, rate in self.rates.items() if name in numbers}

    def launch(self, formula: str, table: str, tile: _Table, words: Collection[str] = ()) -> _Table:
        """What a tile's launch is besides the one it names."""
        known, where = self._known(table, tile), f"the launch of {tile['name']}"
        own = (self._numbers(table, tile) or {}).keys()

        def filled(what: Any) -> Any:
            if isinstance(what, list):
                return [filled(one) for one in what]
            made, used = self._filled_in(what, "launch", formula, known, where, words, table)
            self._have_read(used - own)
            return made

        return {key: filled(what) for key, what in self.formulas[formula]["launch"].items()}

    def _have_read(self, names: set[str]) -> None:
        self.read |= {("chip", name) for name in names if name in self.chip}

    def _numbers(self, table: str, tile: _Table) -> dict[str, int] | None:
        tiles = self.tiles.get(self.same.get(table, table), {})
        return tiles.get(manifest_name(tile), tiles.get(tile["name"]))

    def _known(self, table: str, tile: _Table) -> dict[str, Any]:
        numbers = (*self.chip, *(self._numbers(table, tile) or {}))
        return {**tile.get("constants", {}), **{name: name for name in numbers}}

    def expression(
        self, formula: str, numbers: Mapping[str, object], of: str, words: Collection[str] = (), table: str = ""
    ) -> tuple[str, set[str]]:
        """A formula with these for its words, and which of them it reads."""
        return self._filled_in(self.formulas[formula]["cost"], "cost", formula, numbers, of, words, table)

    def _filled_in(
        self, text: str, key: str, formula: str, numbers: Mapping[str, object], of: str, words: Collection[str], table: str
    ) -> tuple[str, set[str]]:
        own = {key: one for key, one in self.formulas[formula].items() if isinstance(one, str)}
        texts, used = {**self.parts, **self.tables.get(table, {}), **own}, set()

        def made(text: str, within: tuple[str, ...]) -> str:
            def replaced(match: re.Match[str]) -> str:
                inner = match[1]
                if inner in numbers:
                    used.add(inner)
                    return str(numbers[inner])
                if inner in within:
                    raise BuildError(f"{self.name}: {formula} is made of itself: {' -> '.join((*within, inner))}")
                if inner in words and inner not in texts:
                    return f"({match[0]})"
                if inner not in texts:
                    near = did_you_mean(inner, (*numbers, *texts, *words))
                    raise BuildError(f"{self.name}: {of} has no {inner}, which {within[-1]} of {formula} reads{near}")
                return f"({made(texts[inner], (*within, inner))})"

            return _WORD.sub(replaced, text)

        return made(text, (key,)), used

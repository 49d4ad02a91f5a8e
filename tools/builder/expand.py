"""A table's variants, and the translation unit of each."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.builder import BuildError
from tools.builder.signature import Signature
from tools.builder.table import Table, source_path
from zoo.contract.schema import Tile


@dataclass(frozen=True)
class Variant:
    table: Table
    tile: Tile
    arch: str
    dtypes: dict[str, str]  # of arguments that have several: the one that this cubin takes
    options: dict[str, str]  # the compiled ones

    @property
    def constants(self) -> dict[str, int]:
        return self.tile.constants

    @property
    def symbols(self) -> dict[str, int]:
        return {**self.constants, **self.tile.numbers}

    @property
    def name(self) -> str:
        compiled = [argument["name"] for argument in self.table.entry["arguments"] if argument.get("compiled")]
        dtypes = [dtype for name, dtype in self.dtypes.items() if name in compiled]
        return "_".join((*dtypes, *self.options.values(), self.tile.name))

    @property
    def source(self) -> Path:
        return self.table.source if self.tile.source is None else source_path(self.tile.source, self.table.path, self.table.root)

    @property
    def made_of(self) -> tuple[object, ...]:
        """What the compiler sees besides dtypes and options."""
        return self.source, self.tile.pipeline, tuple(sorted(self.constants.items())), self.signature

    @property
    def owner(self) -> str:
        """The kernel whose cubin this is, which may be started under several names."""
        return self.tile.cubins_of or self.table.name

    @property
    def symbol(self) -> str:
        return f"{self.owner.replace('.', '_')}__{self.name}"

    @property
    def file(self) -> str:
        return f"{self.arch}/{self.symbol}.cubin"

    @property
    def words(self) -> str:
        return f"{self.table.name} {self.name} ({self.arch})"

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that are 1 in every call of this variant."""
        return tuple(f"{name}.{value}" for name, value in (*self.dtypes.items(), *self.options.items()))

    @property
    def signature(self) -> Signature:
        return self.table.signatures[self.tile.launch]

    @property
    def _enums(self) -> set[str]:
        """Those whose values the source gets as numbers."""
        return self.signature.enums | {name for constant, name in self.table.enums.constants.items() if constant in self.constants}

    def unit(self) -> str:
        """The translation unit: what the table says, and then the source."""
        lines = ['#include "common/variant.cuh"', "struct Variant {"]
        for argument in self.table.entry["arguments"]:
            if argument["kind"] == "array" and (argument["name"] in self.dtypes or len(argument["dtypes"]) == 1):
                dtype = self.dtypes.get(argument["name"], argument["dtypes"][0])
                lines.append(f"    using {argument['name']} = zoo::{dtype};")
        for option, value in self.options.items():
            lines.append(f"    static constexpr auto {option} = zoo::{_camel_case(option)}::{value};")
        lines += [f"    static constexpr int {name} = {value};" for name, value in self.constants.items()]
        lines += ["};", f"#define ZOO_KERNEL {self.symbol}", *self.signature.head()]
        if self.tile.pipeline is not None:
            lines.append(f"#define ZOO_PIPELINE {_camel_case(self.tile.pipeline)}")
        lines += [f'#include "{self.source.relative_to(self.table.root).as_posix()}"', *self.table.enums.assertions(self._enums), ""]
        return "\n".join(lines)


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def expand(table: Table) -> list[Variant]:
    """arch x dtypes x compiled options x tiles, in the table's order."""
    several = {
        argument["name"]: argument["dtypes"]
        for argument in table.entry["arguments"]
        if argument["kind"] == "array" and len(argument["dtypes"]) > 1 and argument["compiled"]
    }
    options = {name: option["values"] for name, option in table.entry["options"].items() if option["compiled"]}
    only = {argument["name"]: argument["dtypes"][0] for argument in table.entry["arguments"] if argument["kind"] == "array"}
    arrays = [argument for argument in table.entry["arguments"] if argument["kind"] == "array"]
    several_at_run_time = [argument["name"] for argument in arrays if len(argument["dtypes"]) > 1 and not argument["compiled"]]
    variants: list[Variant] = []
    for arch, *choices in itertools.product(table.archs, *several.values(), *options.values()):
        dtypes = dict(zip(several, choices[: len(several)], strict=True))
        values = dict(zip(options, choices[len(several) :], strict=True))
        for tile in table.tiles:
            own = {name: dtype for name, dtype in dtypes.items() if name not in tile.uncompiled}
            own |= {name: allowed[0] for name, allowed in tile.dtypes.items() if name in several_at_run_time}
            fits = all({**only, **own}[name] in allowed for name, allowed in tile.dtypes.items())
            fits = fits and all(values[name] in allowed for name, allowed in tile.options.items())
            fits = fits and all(dtypes[name] == several[name][0] for name in tile.uncompiled)  # once
            if fits and arch in tile.arch:
                variants.append(Variant(table, tile, arch, own, values))
    _refuse_duplicates(table, variants)
    for tile in table.tiles:
        if all(variant.tile is not tile for variant in variants):
            raise BuildError(f"{table.path}: variants.tiles[{tile.name}]: fits no arch, dtypes and options; remove it")
    return variants


def _refuse_duplicates(table: Table, variants: list[Variant]) -> None:
    files: dict[str, Variant] = {}
    compiled: dict[tuple[Any, ...], Variant] = {}
    for variant in variants:
        if variant.file in files:
            raise BuildError(f"{table.path}: two variants of {variant.arch} are named {variant.name}; rename a tile")
        files[variant.file] = variant
        # what the compiler sees, and how it is started: two of these would be one kernel under two names
        key = (variant.arch, variant.flags, variant.made_of, variant.tile.launch)
        if key in compiled:
            twin = compiled[key]
            names = f"{twin.name} and {variant.name}"
            raise BuildError(f"{table.path}: duplicate variants {names}: same source, pipeline, constants and launch on {variant.arch}")
        compiled[key] = variant

"""Reads cubins/manifest.json into plain records. docs/manifest.md is the schema."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from zoo.contract.expressions import Expression
from zoo.contract.names import parse_name
from zoo.contract.schema import refuse_malformed
from zoo.errors import ExpressionError, ManifestError

SCHEMA = 1


@dataclass(frozen=True)
class Option:
    values: tuple[str, ...]
    default: str
    compiled: bool  # a variant for each value; otherwise launches read it
    help: str


@dataclass(frozen=True)
class Form:
    when: Expression
    shape: tuple[Expression, ...]
    strides: tuple[Expression, ...] | None  # None: contiguous


@dataclass(frozen=True)
class Argument:
    name: str
    kind: str
    dtypes: tuple[str, ...]
    compiled: bool  # a cubin for each of several dtypes
    forms: tuple[Form, ...]
    access: str
    alignment: int
    optional: bool
    default: int | float | None
    help: str

    @property
    def written(self) -> bool:
        return self.access != "read"


@dataclass(frozen=True)
class MapRecipe:
    """How a tensor map follows from the symbols; `zoo.contract.tensor_map.TensorMap` is what it becomes."""

    dtype: str
    dims: tuple[Expression, ...]
    strides: tuple[Expression, ...]
    box: tuple[Expression, ...]
    element_strides: tuple[Expression, ...]
    swizzle: str
    l2_promotion: str
    fill: str


@dataclass(frozen=True)
class Parameter:
    kind: str
    offset: int
    size: int
    argument: str | None = None
    value: Expression | None = None
    recipe: MapRecipe | None = None


@dataclass(frozen=True)
class LaunchRule:
    threads: Expression
    grid: tuple[Expression, ...]
    cluster: tuple[Expression, ...]
    shared: Expression
    programmatic: bool
    parameters: tuple[Parameter, ...]
    parameter_bytes: int


@dataclass(frozen=True)
class Variant:
    name: str
    arch: str
    dtypes: dict[str, str]
    options: dict[str, str]  # the compiled ones
    constants: dict[str, int]
    launch: LaunchRule
    when: Expression
    cost: Expression
    file: str
    bytes: int
    sha256: str
    source_sha256: str
    symbol: str
    registers: int
    static_shared: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Kernel:
    name: str
    fields: dict[str, str]
    summary: str
    promises: dict[str, bool]
    options: dict[str, Option]
    arguments: dict[str, Argument]
    derived: tuple[tuple[str, Expression], ...]
    constraints: tuple[tuple[Expression, str], ...]
    variants: tuple[Variant, ...]
    table: str
    source: str

    @cached_property
    def archs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(variant.arch for variant in self.variants))


class Manifest:
    """The kernels of one cubin directory, parsed one by one as they are asked for."""

    def __init__(self, path: Path, sha256: str | None = None):
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ManifestError(f"cannot read the manifest {path}: {error.strerror}; reinstall zoo or run build_cubins.py") from None
        found = hashlib.sha256(text).hexdigest()
        if sha256 is not None and found != sha256:
            raise ManifestError(
                f"the manifest {path} was edited: its sha256 is {found}, zoo was released with {sha256}; "
                "reinstall zoo, or run build_cubins.py if you changed a table"
            )
        try:
            data = json.loads(text)
            if type(data) is not dict or any(type(data[key]) is not dict for key in ("compiler", "kernels")):
                raise TypeError("it must be a table that holds the tables 'compiler' and 'kernels'")
            if data["schema"] != SCHEMA:
                raise ManifestError(f"the manifest {path} has schema {data['schema']}, this zoo reads {SCHEMA}")
            self.compiler: dict = data["compiler"]
            self.ptx_sha256: str | None = data.get("ptx")  # of what zoo.shipped.ptx.FILE holds; None where there is none
            self._entries: dict[str, dict] = data["kernels"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ManifestError(f"the manifest {path} is malformed: {error!r}") from None
        self.path = path
        self.sha256 = found
        self._kernels: dict[str, Kernel] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def kernel(self, name: str) -> Kernel | None:
        kernel = self._kernels.get(name)
        if kernel is None and name in self._entries:
            kernel = self._kernels[name] = parse_kernel(name, self._entries[name])
        return kernel


def parse_kernel(name: str, entry: dict) -> Kernel:
    refuse_malformed(name, entry)
    try:
        return _parse_kernel(name, entry)
    except (KeyError, TypeError, ValueError, AttributeError, ExpressionError) as error:
        raise ManifestError(f"the manifest's entry '{name}' is malformed: {error!r}") from None


def _expressions(texts) -> tuple[Expression, ...]:
    return tuple(Expression(text) for text in texts)


def _parse_kernel(name: str, entry: dict) -> Kernel:
    launches = {key: _parse_launch(rule) for key, rule in entry["launches"].items()}
    return Kernel(
        name=name,
        fields=parse_name(name),
        summary=entry["summary"],
        promises=dict(entry["promises"]),
        options={key: Option(tuple(o["values"]), o["default"], o["compiled"], o["help"]) for key, o in entry["options"].items()},
        arguments={argument["name"]: _parse_argument(argument) for argument in entry["arguments"]},
        derived=tuple((key, Expression(text)) for key, text in entry["derived"]),
        constraints=tuple((Expression(c["expression"]), c["words"]) for c in entry["constraints"]),
        variants=tuple(_parse_variant(variant, launches) for variant in entry["variants"]),
        table=entry["table"],
        source=entry["source"],
    )


def _parse_argument(entry: dict) -> Argument:
    return Argument(
        name=entry["name"],
        kind=entry["kind"],
        dtypes=tuple(entry["dtypes"]),
        compiled=entry["compiled"],
        forms=tuple(
            Form(
                Expression(form["when"]),
                _expressions(form["shape"]),
                None if form["strides"] is None else _expressions(form["strides"]),
            )
            for form in entry["forms"]
        ),
        access=entry["access"],
        alignment=entry["alignment"],
        optional=entry["optional"],
        default=entry["default"],
        help=entry["help"],
    )


def _parse_launch(rule: dict) -> LaunchRule:
    return LaunchRule(
        threads=Expression(rule["threads"]),
        grid=_expressions(rule["grid"]),
        cluster=_expressions(rule["cluster"]),
        shared=Expression(rule["shared"]),
        programmatic=rule["programmatic"],
        parameters=tuple(_parse_parameter(parameter) for parameter in rule["parameters"]),
        parameter_bytes=rule["parameter_bytes"],
    )


def _parse_parameter(entry: dict) -> Parameter:
    recipe = None
    if entry["kind"] == "tensor_map":
        recipe = MapRecipe(
            dtype=entry["dtype"],
            dims=_expressions(entry["dims"]),
            strides=_expressions(entry["strides"]),
            box=_expressions(entry["box"]),
            element_strides=_expressions(entry["element_strides"]),
            swizzle=entry["swizzle"],
            l2_promotion=entry["l2_promotion"],
            fill=entry["fill"],
        )
    return Parameter(
        kind=entry["kind"],
        offset=entry["offset"],
        size=entry["size"],
        argument=entry.get("argument"),
        value=Expression(entry["value"]) if "value" in entry else None,
        recipe=recipe,
    )


def _parse_variant(entry: dict, launches: dict[str, LaunchRule]) -> Variant:
    expressions = {key: Expression(entry[key]) for key in ("when", "cost")}
    return Variant(**{**entry, **expressions, "launch": launches[entry["launch"]]})

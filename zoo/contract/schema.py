"""Every record of the contract, declared once: its fields, what each may hold and means, and what a table may leave out.

From these declarations tables are read (tools/builder/table.py), manifests checked and parsed (zoo/contract/reading.py), and the
numbers of zoo/capi/zoo_contract.h written. `python -m tools.documentation.contract` prints them as tables.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from zoo.contract import limits
from zoo.contract.dtypes import DTYPES
from zoo.contract.expressions import Expression
from zoo.contract.fields import (
    MANIFEST,
    SEVERAL,
    TABLE,
    Anything,
    Field,
    FileName,
    Formula,
    ListOf,
    NumberOrNull,
    OneOf,
    OrNull,
    PowerOfTwo,
    Subtable,
    TableOf,
    Text,
    Truth,
    Whole,
    says,
)
from zoo.contract.names import FIELDS
from zoo.contract.tensor_map import DTYPES as MAP_DTYPES
from zoo.contract.tensor_map import L2_PROMOTIONS, OUT_OF_BOUNDS_FILLS, SWIZZLES

SCHEMA = 6  # of the manifest; a reader refuses another

ACCESS = ("read", "write", "read_write", "workspace")
SCALAR_DTYPES = ("i32", "i64", "f32")
# parameter kind -> (bytes, alignment)
PARAMETERS = {"pointer": (8, 8), "i32": (4, 4), "i64": (8, 8), "f32": (4, 4), "tensor_map": (128, 64)}
NAME = re.compile(r"[a-z][a-z0-9_]*")  # of arguments, options and their values
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ARCH = re.compile(r"sm_[0-9]{2,3}[af]")
_DIGEST = re.compile(r"[0-9a-f]{64}")

_A_NAME = Text(f"a name ({NAME.pattern})", NAME)
_A_SYMBOL = Text(f"a name ({SYMBOL.pattern})", SYMBOL)
_AN_ARCH = Text("sm_<number> with a or f, such as sm_90a", ARCH)
_A_SIGNATURE = Text("16 hexadecimal digits", re.compile("[0-9a-f]{16}"))
_A_DIGEST = Text("a sha256 in 64 hexadecimal digits", _DIGEST)
_INT32 = Whole(-(1 << 31), (1 << 31) - 1, "an integer of 32 bits")
_COUNT = Whole(0, (1 << 31) - 1, "a whole number of 31 bits")
_THREADS = Whole(1, limits.THREADS, f"a whole number from 1 to {limits.THREADS}")
_DTYPE_NAMES = ListOf(OneOf(DTYPES), "dtypes", SEVERAL, distinct=True)
_FORMULAS = ListOf(Formula(), "expressions")
_OF_THREE = ListOf(Formula(), "expressions", range(3, 4))
_UP_TO_FIVE = ListOf(Formula(), "expressions", range(1, 6))
_HELP = "One sentence for the caller."
_MAY_BE = "_may_be_"  # in the promise that an input may be an output


def block_layout(kinds: Iterable[str]) -> tuple[list[int], int]:
    """The offsets of parameters of these kinds, and the bytes of the block: a C struct's, less the padding at its end."""
    offsets, end = [], 0
    for kind in kinds:
        size, alignment = PARAMETERS[kind]
        offsets.append(-(-end // alignment) * alignment)
        end = offsets[-1] + size
    return offsets, end


def signature_digest(parameters: Iterable[tuple[str, str]]) -> str:
    """Of sizes and names of parameters, in their order: what a cubin was compiled with, and what a launch must pass."""
    words = "\n".join(f"{PARAMETERS[kind][0]} {name}" for kind, name in parameters)
    return hashlib.sha256(words.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False, repr=False)
class Option:
    """A choice that the caller makes by keyword."""

    values: tuple[str, ...] = field(metadata=says(ListOf(_A_NAME, "names", SEVERAL, True), "What may be chosen."))
    default: str = field(metadata=says(Text("one of the option's values"), "The value of a call that does not choose."))
    compiled: bool = field(
        metadata=says(
            Truth(), "`true`: there is a variant for each value. `false`: one cubin, whose launch reads `<option>.<value>`.", default=True
        )
    )
    help: str = field(metadata=says(Text(), _HELP, default=""))


@dataclass(frozen=True, eq=False, repr=False)
class Form:
    """One shape that an array may have."""

    when: Expression = field(
        metadata=says(Formula(), "The form is for calls where this holds; the first that holds counts. Reads flags only.")
    )
    shape: tuple[Expression, ...] = field(
        metadata=says(_FORMULAS, "The extents. A bare symbol is bound by the first argument that has it.")
    )
    strides: tuple[Expression, ...] | None = field(  # None: contiguous
        metadata=says(
            OrNull(_FORMULAS, "null"), "In elements, one for each extent, likewise.", default=None, default_words="null: contiguous"
        )
    )


def _largest(argument: dict[str, Any]) -> int:
    """The bytes of the largest of an argument's dtypes."""
    return max(DTYPES[dtype].bytes for dtype in argument["dtypes"])


@dataclass(frozen=True, eq=False, repr=False)
class Argument:
    """What the caller passes by keyword: an array or a number."""

    name: str = field(metadata=says(_A_NAME, "The keyword."))
    kind: str = field(
        metadata=says(OneOf(("array", "scalar")), "Integer scalars are symbols of that name; f32 only enters the block.", default="array")
    )
    dtypes: tuple[str, ...] = field(metadata=says(_DTYPE_NAMES, "The element types that are taken; of a scalar one of i32, i64 and f32."))
    compiled: bool = field(
        metadata=says(
            Truth(),
            "`true`: there is a variant for each of several dtypes. `false`: one cubin, whose launch reads `<argument>.<dtype>`.",
            default=True,
            of=("array",),
            otherwise=True,
        )
    )
    forms: tuple[Form, ...] = field(
        metadata=says(
            ListOf(Subtable("form"), "forms"),
            "The shapes it may have; in a table `shape` and `strides` beside `name` are one form for all calls.",
            default=None,
            default_words="one form of `shape` and `strides`",
            of=("array",),
            otherwise=[],
        )
    )
    access: str = field(metadata=says(OneOf(ACCESS), "What the kernel does with it.", of=("array",), otherwise="read"))
    alignment: int = field(
        metadata=says(
            PowerOfTwo(1 << 20),
            "Of the address, in bytes. One that a tensor map reads needs 16, for `u4_align16` and `u6_align16` 32.",
            default=_largest,
            default_words="the bytes of the largest dtype",
            of=("array",),
            otherwise=_largest,
        )
    )
    optional: bool = field(metadata=says(Truth(), "Whether a call may leave it out.", default=False, of=("array",), otherwise=False))
    default: int | float | None = field(
        metadata=says(
            NumberOrNull(),
            "The number of a call that leaves it out.",
            default=None,
            default_words="null: every call must say it",
            of=("scalar",),
            otherwise=None,
        )
    )
    help: str = field(metadata=says(Text(), _HELP, default=""))

    only_in_tables: ClassVar[dict[str, Field]] = {
        "shape": Field(
            _FORMULAS, "The shape of the only form.", default=None, default_words="`forms` says it", stands=TABLE, of=("array",)
        ),
        "strides": Field(_FORMULAS, "The strides of the only form.", default=None, default_words="contiguous", stands=TABLE, of=("array",)),
    }

    @property
    def written(self) -> bool:
        return self.access != "read"

    @property
    def in_short(self) -> str:
        """What a refusal of its shape ends with: the first clause of its help. The C library has the same (`say_in_short`)."""
        clause = re.split("[.;:] ", self.help, maxsplit=1)[0]
        return f"; {clause}" if clause else ""


@dataclass(eq=False, repr=False)
class Constraint:
    """What must hold of every call."""

    expression: Expression = field(metadata=says(Formula(), "Holds where it is not 0."))
    words: str = field(metadata=says(Text(), "What the refusal of another call says."))


@dataclass(frozen=True, eq=False, repr=False)
class MapRecipe:
    """How a tensor map follows from the symbols; `zoo.contract.tensor_map.TensorMap` is what it becomes."""

    dtype: str = field(metadata=says(OneOf(MAP_DTYPES), "The driver's element type."))
    dims: tuple[Expression, ...] = field(metadata=says(_UP_TO_FIVE, "Extents in elements, the innermost first."))
    strides: tuple[Expression, ...] = field(
        metadata=says(
            _FORMULAS, "In bytes, for the second dimension and up: one fewer than `dims`.", default=[], default_words="[], of one dimension"
        )
    )
    box: tuple[Expression, ...] = field(metadata=says(_UP_TO_FIVE, "What one copy moves, one extent for each dimension."))
    element_strides: tuple[Expression, ...] = field(
        metadata=says(
            _UP_TO_FIVE, "One for each dimension.", default=lambda recipe: ["1"] * len(recipe["dims"]), default_words='"1" for each'
        )
    )
    swizzle: str = field(metadata=says(OneOf(SWIZZLES), "How rows of the box lie in shared memory.", default="none"))
    l2_promotion: str = field(metadata=says(OneOf(L2_PROMOTIONS), "The size of reads from L2.", default="none"))
    fill: str = field(metadata=says(OneOf(OUT_OF_BOUNDS_FILLS), "What elements outside the array read as.", default="zero"))


_ONE_KIND = "one of the five must be there"
_WITH_ARGUMENT, _WITH_VALUE = ("pointer", "f32", "tensor_map"), ("i32", "i64")


@dataclass(frozen=True, eq=False, repr=False)
class Parameter:
    """One of the kernel's parameters, in their order. The pointer of an absent optional argument is null."""

    name: str = field(metadata=says(_A_SYMBOL, "The parameter of the kernel's source.", stands=MANIFEST))
    kind: str = field(metadata=says(OneOf(PARAMETERS), "What lies in the block.", stands=MANIFEST))
    offset: int = field(metadata=says(_COUNT, "Of the block, in bytes: as in a C struct.", stands=MANIFEST))
    size: int = field(metadata=says(_COUNT, "In bytes.", stands=MANIFEST))
    argument: str | None = field(
        default=None,
        metadata=says(Text("an argument's name"), "Whose address, number or tensor map it is.", stands=MANIFEST, of=_WITH_ARGUMENT),
    )
    value: Expression | None = field(
        default=None,
        metadata=says(Formula(), "The integer; a call that does not fit its bits is refused.", stands=MANIFEST, of=_WITH_VALUE),
    )
    recipe: MapRecipe | None = None  # of a tensor map; its fields stand beside the others

    only_in_tables: ClassVar[dict[str, Field]] = {
        "pointer": Field(Text("an array argument"), "The array whose address it is.", default_words=_ONE_KIND, stands=TABLE),
        "i32": Field(Formula(), "An integer of 32 bits.", default_words=_ONE_KIND, stands=TABLE),
        "i64": Field(Formula(), "An integer of 64 bits.", default_words=_ONE_KIND, stands=TABLE),
        "f32": Field(Text("an f32 scalar argument"), "The scalar whose number it is.", default_words=_ONE_KIND, stands=TABLE),
        "tensor_map": Field(
            Text("an array argument"), "The array that it maps; the recipe's fields stand beside it.", default_words=_ONE_KIND, stands=TABLE
        ),
    }


@dataclass(frozen=True, eq=False, repr=False)
class LaunchRule:
    """How one kind of variant is started."""

    grid: tuple[Expression, ...] = field(metadata=says(_OF_THREE, "Blocks along x, y and z; none, where one is 0."))
    cluster: tuple[Expression, ...] = field(metadata=says(_OF_THREE, "Blocks of a cluster.", default=["1", "1", "1"]))
    alone: Expression = field(
        metadata=says(
            Formula(),
            "Where it is not 0, a block asks for all shared memory that it may have: no other shares its multiprocessor.",
            default="0",
        )
    )
    programmatic: bool = field(metadata=says(Truth(), "Programmatic stream serialization.", default=False))
    parameter_bytes: int = field(metadata=says(_COUNT, "The size of the parameter block.", stands=MANIFEST))
    parameters: tuple[Parameter, ...] = field(metadata=says(ListOf(Subtable("parameter"), "parameters"), "In the order of the kernel's."))

    @cached_property
    def signature(self) -> str:
        return signature_digest((one.kind, one.name) for one in self.parameters)


_CONSTANTS = TableOf(_INT32, "integers", _A_SYMBOL)
_NUMBERS = TableOf(Whole(0, (1 << 31) - 1), "whole numbers", _A_SYMBOL)
RATES = ("memory", "multiprocessors", "tensor")
_TENSOR_MEANS = "Nanoseconds of an H200's tensor cores in a number, of which slower tensor cores take more."
_RATES = TableOf(OneOf(RATES), "words", _A_SYMBOL)
_RATES_MEAN = "The rate of a chip to which a number is proportional."
_WHEN = says(Formula(), "The variant is for calls where this holds.", default="1")
_COST = says(Formula(), "The smallest wins among variants that hold, the first among equals.", default="0")


@dataclass(frozen=True, eq=False, repr=False)
class Variant:
    """One cubin and when it is taken."""

    stands_in: ClassVar[str] = MANIFEST

    name: str = field(metadata=says(Text(), "The chosen dtypes and compiled options and the tile's name, joined by `_`."))
    arch: str = field(metadata=says(_AN_ARCH, "What it was compiled for."))
    dtypes: dict[str, str] = field(
        metadata=says(
            TableOf(Text(), "dtypes"), "Of arguments that have several, the one that it takes; an argument that is not here may have any."
        )
    )
    options: dict[str, str] = field(metadata=says(TableOf(Text(), "values"), "The value of each compiled option."))
    constants: dict[str, int] = field(metadata=says(_CONSTANTS, "The tile's."))
    numbers: dict[str, int] = field(metadata=says(_NUMBERS, "What `cost` and the launch read by name: measured on a GPU."))
    tensor: dict[str, int] = field(metadata=says(_NUMBERS, _TENSOR_MEANS))
    rates: dict[str, str] = field(metadata=says(_RATES, _RATES_MEAN))
    launch: LaunchRule = field(metadata=says(Text("the name of a launch"), "How it is started: the name of one of `launches`."))
    when: Expression = field(metadata=_WHEN)
    cost: Expression = field(metadata=_COST)
    file: str = field(metadata=says(FileName(), "The cubin's path in the manifest's directory."))
    bytes: int = field(metadata=says(_COUNT, "The cubin's size."))
    sha256: str = field(metadata=says(_A_DIGEST, "Of the cubin."))
    source_sha256: str = field(metadata=says(_A_DIGEST, "Of the translation unit and everything it includes, without comments."))
    symbol: str = field(metadata=says(_A_SYMBOL, "The kernel in the cubin."))
    signature: str = field(metadata=says(_A_SIGNATURE, "Of the names and sizes of the parameters that the cubin was compiled with."))
    threads: int = field(metadata=says(_THREADS, "Of a block: the kernel's `__launch_bounds__`."))
    registers: int = field(metadata=says(_COUNT, "Of a thread."))
    static_shared: int = field(metadata=says(_COUNT, "Static shared memory in bytes."))
    shared: int = field(metadata=says(_COUNT, "Dynamic shared memory in bytes: the source's `zoo::DYNAMIC_SHARED_BYTES`."))
    stack: int = field(metadata=says(_COUNT, "Of a thread, in bytes."))
    spill_stores: int = field(metadata=says(_COUNT, "Bytes of registers that the compiler had to store elsewhere."))
    spill_loads: int = field(metadata=says(_COUNT, "Bytes of them that it reads back."))

    @cached_property
    def symbols(self) -> dict[str, int]:
        """What this variant's expressions read besides what the call says."""
        return {**self.constants, **self.numbers}

    def __repr__(self) -> str:
        return f"<variant {self.name} for {self.arch}>"


@dataclass(eq=False, repr=False)
class Tile:
    """Variants of one set of constants, in a table: one for each arch, dtype and compiled option that it is for. `constants`,
    `source`, `pipeline`, `cubins_of`, `dtypes` and `uncompiled` may stand in `[variants]` for all of its tiles."""

    stands_in: ClassVar[str] = TABLE

    name: str = field(
        metadata=says(
            Text("a name ([a-z0-9_]+), which becomes part of the symbol", re.compile("[a-z0-9_]+")), "The end of the variants' names."
        )
    )
    constants: dict[str, int] = field(
        metadata=says(_CONSTANTS, "`static constexpr int` of the translation unit, and symbols of this tile's expressions.", default={})
    )
    numbers: dict[str, int] = field(
        metadata=says(_NUMBERS, "What `cost` and the launch read by name. A file of `costs` gives them.", default={})
    )
    tensor: dict[str, int] = field(metadata=says(_NUMBERS, _TENSOR_MEANS, default={}))
    rates: dict[str, str] = field(metadata=says(_RATES, _RATES_MEAN, default={}))
    launch: str = field(metadata=says(Text("the name of a launch"), "How its variants are started: `[launch.<name>]`.", default="default"))
    when: str = field(metadata=_WHEN)
    cost: str = field(metadata=_COST)
    arch: list[str] = field(
        metadata=says(ListOf(_AN_ARCH, "archs", None, True), "Only for these.", default=None, default_words="those of `variants`")
    )
    source: str | None = field(
        metadata=says(FileName(), "The CUDA source of its variants, beside the table.", default=None, default_words="the table's")
    )
    pipeline: str | None = field(
        metadata=says(
            Text("a name ([a-z][a-z0-9_]*)", re.compile("[a-z][a-z0-9_]*")),
            "By which of the source's class templates a tile is computed: `ZOO_PIPELINE` of the translation unit is its name in CamelCase.",
            default=None,
            default_words="the source has one",
        )
    )
    cubins_of: str | None = field(
        metadata=says(
            Text("the name of a kernel"),
            "Whose cubins its variants are started from: those of that kernel's variants of the same names, source, pipeline and constants.",
            default=None,
            default_words="the table's own",
        )
    )
    dtypes: dict[str, list[str]] = field(
        metadata=says(
            TableOf(ListOf(Text(), "dtypes", None, True), "lists of dtypes"),
            "Only for these dtypes of these arguments; of one that is not compiled, one.",
            default={},
        )
    )
    uncompiled: list[str] = field(
        metadata=says(
            ListOf(_A_NAME, "names", None, True),
            "Compiled arguments of which its cubins take every dtype: the launch reads `<argument>.<dtype>`.",
            default=[],
        )
    )
    options: dict[str, list[str]] = field(
        metadata=says(
            TableOf(ListOf(Text(), "values", None, True), "lists of values"), "Only for these values of these options.", default={}
        )
    )


@dataclass(eq=False, repr=False)
class Variants:
    """What a table's variants are: every arch with every dtype, compiled option and tile. A list of such tables, where archs differ."""

    stands_in: ClassVar[str] = TABLE

    arch: list[str] = field(metadata=says(ListOf(_AN_ARCH, "archs", SEVERAL, True), "What to compile for."))
    tiles: list[dict[str, object]] = field(metadata=says(ListOf(Subtable("tile"), "tiles", SEVERAL), "The sets of constants."))


@dataclass(frozen=True, eq=False, repr=False)
class Kernel:
    """A kernel as callers know it."""

    name: str = field(metadata=says(Text(), "Words joined by `.`; in the manifest it is the key of the entry.", stands=TABLE))
    fields: dict[str, str] = field(
        metadata=says(
            TableOf(_A_NAME, "words", OneOf(FIELDS)), "What the words of the name mean, in their order: `op` first.", stands=MANIFEST
        )
    )
    summary: str = field(metadata=says(Text(), "One line."))
    table: str = field(metadata=says(FileName(), "The path of the table in the tree of tables.", stands=MANIFEST))
    source: str = field(metadata=says(FileName(), "The CUDA source: in a table beside it, in the manifest a path in the tree of tables."))
    promises: dict[str, bool] = field(
        metadata=says(
            TableOf(Truth(), "true or false"),
            "What holds of every call; each has a test. `x_may_be_y`: what is read of x may be what is written of y, in one memory.",
            default={},
        )
    )
    options: dict[str, Option] = field(
        metadata=says(TableOf(Subtable("option"), "options", _A_NAME), "What the caller may choose.", default={})
    )
    arguments: dict[str, Argument] = field(metadata=says(ListOf(Subtable("argument"), "arguments"), "What the caller passes."))
    derived: tuple[tuple[str, Expression], ...] = field(
        metadata=says(
            ListOf(ListOf(Text(), "texts", range(2, 3)), "[symbol, expression]"),
            "Further symbols, in order.",
            default=[],
            default_words="none",
            stands=MANIFEST,
        )
    )
    constraints: tuple[tuple[Expression, str], ...] = field(
        metadata=says(ListOf(Subtable("constraint"), "constraints"), "What must hold.", default=[])
    )
    launches: dict[str, LaunchRule] = field(
        metadata=says(TableOf(Subtable("launch"), "launches"), "The ways in which its variants are started.", table_key="launch")
    )
    variants: tuple[Variant, ...] = field(metadata=says(ListOf(Subtable("variant"), "variants"), "Its cubins.", stands=MANIFEST))

    only_in_tables: ClassVar[dict[str, Field]] = {
        "symbols": Field(
            TableOf(Formula(), "expressions", _A_SYMBOL), "Further symbols, in order.", default={}, stands=TABLE, table_key="derived"
        ),
        "expansion": Field(Subtable("variants of a table"), "What to compile.", stands=TABLE, table_key="variants"),
    }

    @cached_property
    def archs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(variant.arch for variant in self.variants))

    @cached_property
    def in_place(self) -> frozenset[tuple[str, str]]:
        """(input, output) that may be one array: where an element of the input is read, the same threads write the output's later."""
        pairs = (name.partition(_MAY_BE) for name, kept in self.promises.items() if kept and _MAY_BE in name)
        return frozenset((one, other) for one, _, other in pairs)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


@dataclass(eq=False, repr=False)
class ManifestFile:
    """The file itself."""

    schema: int = field(metadata=says(Whole(0, 1 << 31), f"{SCHEMA}; a reader refuses another.", stands=MANIFEST))
    compiler: dict[str, object] = field(
        metadata=says(
            TableOf(Anything(), "facts"),
            "`nvcc` (its version), `packages` (name: version), `flags`, the standard of reproducibility.",
            stands=MANIFEST,
        )
    )
    ptx: str | None = field(
        metadata=says(
            OrNull(_A_DIGEST, "null where there is none"),
            "sha256 of the texts in `ptx.tar.xz`, in the order of their names: name, newline, length, newline, text.",
            stands=MANIFEST,
        )
    )
    kernels: dict[str, dict[str, object]] = field(
        metadata=says(TableOf(Subtable("kernel"), "kernels"), "The entries, by name.", stands=MANIFEST)
    )


# The order in which the documentation shows them. Those of a table alone, of a manifest alone, and of both.
RECORDS: dict[str, type] = {
    "kernel": Kernel, "option": Option, "argument": Argument, "form": Form, "constraint": Constraint, "launch": LaunchRule,
    "parameter": Parameter, "tensor map": MapRecipe, "variants of a table": Variants, "tile": Tile, "variant": Variant, "manifest": ManifestFile,
}  # fmt: skip

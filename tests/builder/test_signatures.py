"""Signatures of kernels: a launch must pass every parameter by name, in the order that the cubin was compiled with."""

import re
from pathlib import Path

import pytest

from tests.builder.build_trees import ROOT, SOURCE, TABLE, VARIANT_HEADER, edited, needs_nvcc, write_tree
from tools.builder import BuildError
from tools.builder.expand import expand
from tools.builder.scope import check_scope
from tools.builder.signature import Enums, signature
from tools.builder.table import read_tables
from zoo.contract.manifest import Manifest
from zoo.contract.schema import signature_digest

LAST = '"const float* bias"]'
ENUM = '[enum.Mode]\nvalues = ["once", "twice"]\n\n[variants]'
RUN_TIME = ('default = "once"', 'default = "once"\ncompiled = false')  # the launch passes the option, not the cubin


def read(folder: Path, *changes: tuple[str, str]):
    (table,) = read_tables(write_tree(folder, edited(TABLE, *changes)))
    check_scope(table)
    return table


def launch_of(folder: Path, *changes: tuple[str, str]) -> dict[str, dict]:
    """The parameters of the table's launch, by name."""
    return {one["name"]: one for one in read(folder, *changes).entry["launches"]["default"]["parameters"]}


def with_last(parameter: str, value: str = "") -> list[tuple[str, str]]:
    """The changes of a table whose signature ends with another parameter."""
    said = [("values = {", f"values = {{ {value},")] if value else []
    return [(LAST, f'"const float* bias", {parameter}]'), *said]


def refused(folder: Path, *changes: tuple[str, str]) -> str:
    with pytest.raises(BuildError) as error:
        read(folder, *changes)
    return str(error.value).removeprefix(f"{folder / 'quantize/tables/copy.toml'}: ")


# ---- order and names


def test_the_cpp_list_the_launch_and_the_digest_have_the_order_of_the_signature(tmp_path):
    table = read(tmp_path)
    names = ["x", "y", "count", "stride", "alpha", "bias"]
    (listed,) = re.findall("#define ZOO_PARAMETERS (.*)", expand(table)[0].unit())
    assert [one.split()[-1] for one in listed.split(", ")] == names
    launched = table.entry["launches"]["default"]["parameters"]
    assert [one["name"] for one in launched] == names
    kinds = ("pointer", "pointer", "i32", "i64", "f32", "pointer")
    assert table.signatures["default"].digest == signature_digest(zip(kinds, names, strict=True))


def test_another_order_of_the_signature_is_another_digest(tmp_path):
    swapped = read(tmp_path / "swapped", ('"const float* x", "float* y"', '"float* y", "const float* x"'))
    assert swapped.signatures["default"].digest != read(tmp_path / "table").signatures["default"].digest
    assert [one["argument"] for one in swapped.entry["launches"]["default"]["parameters"][:2]] == ["y", "x"]


def test_the_order_of_values_does_not_count(tmp_path):
    one = launch_of(tmp_path / "one", ("values = {", 'values = { count = "2 * count",'))
    two = launch_of(tmp_path / "two", (' else K" }', ' else K", count = "2 * count" }'))
    assert one == two and one["count"]["value"] == "2 * count"


@needs_nvcc
def test_the_manifest_has_the_names_and_the_digest_of_what_was_compiled(shared_build, tmp_path):
    shared_build("--source", write_tree(tmp_path / "source"), "--output", tmp_path / "cubins")
    for variant in Manifest(tmp_path / "cubins/manifest.json").kernel("quantize.mxfp8.rows").variants:
        parameters = variant.launch.parameters
        assert [one.name for one in parameters] == ["x", "y", "count", "stride", "alpha", "bias"]
        assert variant.signature == signature_digest((one.kind, one.name) for one in parameters)


def test_no_source_has_a_list_of_parameters_of_its_own():
    """Such a list could swap two pointers, and neither sizes nor names would show it."""
    own = [
        path.relative_to(ROOT).as_posix()
        for tree in ("src_cu", "tests/zoo_src")
        for path in (ROOT / tree).rglob("*.cu*")
        for line in path.read_text().splitlines()
        if not line.lstrip().startswith("//") and "ZOO_KERNEL" in line and "ZOO_KERNEL(ZOO_PARAMETERS)" not in line
    ]
    assert own == []


# ---- features

STORED = '{ stored = ["float* stored", "int64_t stored_stride", "map stored_map", "Mode stored_mode", "float factor"] }'
USE = """\
    ZOO_ABSENT_PARAMETERS
    if (stored != nullptr) stored[stored_stride] = factor + static_cast<float>(int(stored_mode));
    const int twice"""
TWO_LAUNCHES = (
    ("[launch.default]\n", '[launch.stored]\nlike = "default"\nsignature = "copy stored"\nvalues = { stored = "y", stored_stride = "K", '
     'stored_map = { tensor_map = "x", dtype = "f32", dims = ["K"], box = ["32"] }, stored_mode = "twice", factor = "alpha" }\n\n[launch.default]\n'),
    (LAST, f'"const float* bias", {STORED}]'),
    ("[variants]", ENUM),
    ("constants = { THREADS = 128 }", 'constants = { THREADS = 128 }\nlaunch = "stored"'),
)  # fmt: skip


def test_parameters_of_a_missing_feature_are_constants(tmp_path):
    table = read(tmp_path, *TWO_LAUNCHES)
    units = {variant.tile.name: variant.unit() for variant in expand(table)}
    absent = {tile: re.findall("#define ZOO_ABSENT_PARAMETERS(.*)", unit) for tile, unit in units.items()}
    constants = (
        "float* stored = nullptr", "int64_t stored_stride = int64_t(0)", "int stored_map = 0", "zoo::Mode stored_mode = zoo::Mode(0)",
        "float factor = float(0)",
    )  # fmt: skip
    assert absent == {"t64": ["".join(f" [[maybe_unused]] constexpr {one};" for one in constants)], "t128": [""]}
    assert "#define ZOO_WITH_STORED\n" in units["t128"] and "ZOO_WITH" not in units["t64"]
    assert "const float* bias, float* stored, int64_t stored_stride, const __grid_constant__ zoo::TensorMap stored_map" in units["t128"]
    assert table.signatures["default"].digest != table.signatures["stored"].digest


@needs_nvcc
def test_one_source_compiles_with_a_feature_and_without(shared_build, tmp_path):
    source = write_tree(tmp_path / "source", edited(TABLE, *TWO_LAUNCHES), edited(SOURCE, ("    const int twice", USE)))
    header = source / "common/variant.cuh"
    header.write_text(edited(VARIANT_HEADER, ("enum class", "struct alignas(64) TensorMap {\n    char bytes[128];\n};\nenum class")))
    shared_build("--source", source, "--output", tmp_path / "cubins", "--arch", "sm_90a")
    variants = Manifest(tmp_path / "cubins/manifest.json").kernel("quantize.mxfp8.rows").variants
    assert {one.name: len(one.launch.parameters) for one in variants if "once" in one.name} == {"once_t64": 6, "once_t128": 11}


def test_a_parameter_may_have_one_type_for_each_of_two_features():
    pieces = {"k": {"parameters": [{"plain": "const float* scale", "blocked": "map scale"}, "int N"]}}
    made = {feature: signature(f"k {feature}", pieces, Enums({}, {})) for feature in ("plain", "blocked")}
    assert [one.kind for one in made["plain"].parameters] == ["pointer", "i32"]
    assert [one.kind for one in made["blocked"].parameters] == ["tensor_map", "i32"]
    assert made["plain"].lacking == made["blocked"].lacking == ()
    with pytest.raises(BuildError, match="signature 'k plain blocked' has two parameters named 'scale'"):
        signature("k plain blocked", pieces, Enums({}, {}))


# ---- values and defaults


@pytest.mark.parametrize(
    ("parameter", "expected"),
    [
        ('"int times = 3"', {"kind": "i32", "value": "3"}),
        ('"int64_t times = 0"', {"kind": "i64", "value": "0"}),
        ('"const float* more = nullptr"', {"kind": "i64", "value": "0"}),
        ('"float factor = 0"', {"kind": "i32", "value": "0"}),
        ('"float factor = 1"', {"kind": "i32", "value": str(0x3F800000)}),  # the bits of 1.0f
        ('"int M"', {"kind": "i32", "value": "M"}),  # a symbol
        ('"int64_t x_stride"', {"kind": "i64", "value": "x_stride"}),
        ('"int64_t SIZE"', {"kind": "i64", "value": "SIZE"}),  # a derived symbol
    ],
)
def test_a_parameter_without_a_value_is_the_name_of_the_table_or_the_default(tmp_path, parameter, expected):
    *_, last = launch_of(tmp_path, *with_last(parameter)).values()
    assert {key: last[key] for key in expected} == expected


def test_a_value_goes_before_the_argument_of_the_same_name_and_before_the_default(tmp_path):
    made = launch_of(tmp_path, *with_last('"int times = 3", "const float* none"', 'times = "count", count = 5, none = "nullptr"'))
    assert (made["times"]["value"], made["count"]["value"]) == ("count", "5")
    assert (made["none"]["kind"], made["none"]["value"], made["none"]["size"]) == ("i64", "0", 8)


def test_a_launch_without_values_passes_the_arguments_of_the_same_names(tmp_path):
    made = launch_of(tmp_path, ('values = { stride = "y_stride if mode.once else K" }\n', ""), ('"int64_t stride"', '"int64_t x_stride"'), ("= [\"y_stride", '= ["K'))  # fmt: skip
    assert list(made) == ["x", "y", "count", "x_stride", "alpha", "bias"]


def test_a_type_of_the_source_is_a_number_or_an_address(tmp_path):
    number = launch_of(tmp_path / "number", *with_last('"Scales::Base scales"', 'scales = "M * K"'))["scales"]
    address = launch_of(tmp_path / "address", *with_last('"Scales::Base scales"', 'scales = "bias"'))["scales"]
    assert (number["kind"], number["value"]) == ("i64", "M * K")
    assert (address["kind"], address["argument"]) == ("pointer", "bias")
    assert (number["size"], number["offset"]) == (address["size"], address["offset"])


# ---- enumerations


def test_an_option_and_a_dtype_are_passed_as_the_number_of_the_enumeration(tmp_path):
    """The launch of one cubin for all values of the option passes an expression of flags."""
    several = ('dtypes = ["f32"]\nshape', 'compiled = false\ndtypes = ["f32", "bf16", "f16"]\nshape')
    kinds = ("[variants]", '[enum.Element]\nvalues = ["bf16", "f32", "f16"]\n\n' + ENUM)
    made = launch_of(tmp_path, RUN_TIME, several, kinds, *with_last('"Mode mode", "Element element"', 'element = "x"'))
    assert (made["mode"]["kind"], made["mode"]["value"]) == ("i32", "mode.twice")
    assert made["element"]["value"] == "x.f32 + 2 * x.f16"


@pytest.mark.parametrize(("parameter", "value"), [('"Mode how = twice"', ""), ('"Mode how"', 'how = "twice"'), ('"Mode how = 1"', "")])
def test_a_value_of_the_enumeration_is_its_number(tmp_path, parameter, value):
    assert launch_of(tmp_path, ("[variants]", ENUM), *with_last(parameter, value))["how"]["value"] == "1"


CONSTANT = (
    ("[variants]", ENUM.replace('"twice"]\n', '"twice"]\nconstants = ["MODE"]\n')),
    ("{ THREADS = 64 }", '{ THREADS = 64, MODE = "twice" }'),
    ("{ THREADS = 128 }", '{ THREADS = 128, MODE = "once" }'),
)


def test_a_constant_of_a_tile_may_name_a_value(tmp_path):
    variants = expand(read(tmp_path, *CONSTANT))
    assert {variant.tile.name: variant.constants["MODE"] for variant in variants} == {"t64": 1, "t128": 0}
    assert "static constexpr int MODE = 1;" in variants[0].unit()


@pytest.mark.parametrize("changes", [CONSTANT, [("[variants]", ENUM), *with_last('"Mode how = once"')]], ids=["constant", "parameter"])
def test_the_unit_asserts_the_numbers_of_its_enumerations_after_the_source(tmp_path, changes):
    unit = expand(read(tmp_path, *changes))[0].unit().splitlines()
    at = unit.index('#include "quantize/kernels/copy.cu"')
    assert unit[at + 1 :] == ["static_assert(int(zoo::Mode::once) == 0);", "static_assert(int(zoo::Mode::twice) == 1);"]


def test_a_unit_without_numbers_of_an_enumeration_asserts_nothing(tmp_path):
    assert "static_assert" not in expand(read(tmp_path, ("[variants]", ENUM)))[0].unit()


@needs_nvcc
def test_another_order_in_the_source_does_not_compile(shared_build, tmp_path):
    source = write_tree(tmp_path / "source", edited(TABLE, *CONSTANT))
    shared_build("--source", source, "--output", tmp_path / "cubins", "--arch", "sm_90a", "--only", "* once_t64")
    (source / "common/variant.cuh").write_text(edited(VARIANT_HEADER, ("once, twice", "twice, once")))
    said = shared_build("--source", source, "--output", tmp_path / "cubins", "--arch", "sm_90a", status=1)
    assert "static assertion failed" in said


# ---- refusals

ONE_MORE = '"const float* bias", '
MISTAKES = {
    "a parameter without a value": (with_last('"int times"'),
        "launch.default.parameters.times: the launch gives no value, and no argument or symbol has this name"),
    "a pointer without a value": (with_last('"const float* more"'), "launch.default.parameters.more: the launch gives no value"),
    "a float that is an integer argument": (with_last('"float M"'), "launch.default.parameters.M: the launch gives no value"),
    "an enumeration without a value": ([("[variants]", ENUM), *with_last('"Mode how"')], "launch.default.parameters.how: the launch gives no value"),
    "a map without a recipe": (with_last('"map of_x"'), "launch.default.parameters.of_x: the launch has no recipe for this tensor map"),
    "a map by its argument's name": (with_last('"map of_x"', 'of_x = "x"'), "launch.default.parameters.of_x is 'x', expected a recipe of a tensor map"),
    "a misspelt value": ([("{ stride =", "{ strid =")], "launch.default.parameters.stride: the launch gives no value"),
    "a value of no parameter": ([("values = {", 'values = { cuont = "M",')],
        "launch.default.parameters: the signature has no parameter 'cuont'; did you mean count?"),
    "two values": ([("values = {", 'parameters = [{ count = "M" }]\nvalues = { count = "K",')], "launch.default.parameters.count: has two values"),
    "a value beside that of the launch it is like": (
        [("[variants]", '[launch.other]\nlike = "default"\nvalues = { stride = "M" }\n\n[variants]'), ('name = "t64"', 'name = "t64"\nlaunch = "other"')],
        "launch.other.parameters.stride: has two values"),
    "a value that is no text": ([("values = {", "values = { count = 1.5,")], "launch.default.parameters.count is 1.5, expected a text"),
    "an unknown type": (with_last('"flaot factor"', 'factor = "alpha"'), "signature 'copy': 'flaot factor' has an unknown type; did you mean float?"),
    "a type of a foreign size": (with_last('"double factor"'), "signature 'copy': 'double factor' has an unknown type"),
    "a misspelt enumeration": ([("[variants]", ENUM), *with_last('"Mod mode"')], "'Mod mode' has an unknown type; did you mean Mode?"),
    "a parameter without a name": (with_last('"int"'), "signature 'copy': 'int' is not a parameter; write `const float* row_scale` or `int N = 1`"),
    "a parameter that is a number": (with_last("3"), "signature 'copy': 3 is not a parameter"),
    "a name twice": (with_last('"int count"'), "signature 'copy' has two parameters named 'count'"),
    "a default that is no number": (with_last('"float factor = one"'), "parameters.factor: the default 'one' is not a number"),
    "an unknown signature": ([("[launch.default]\n", '[launch.default]\nsignature = "cpoy"\n')], "launch: no signature is named 'cpoy'"),
    "an unknown feature": ([("[launch.default]\n", '[launch.default]\nsignature = "copy stord"\n'), (LAST, f'{ONE_MORE}{{ stored = "int N" }}]')],
        "signature 'copy' has no feature 'stord'; did you mean stored?"),
    "no signature": ([(TABLE[TABLE.index("[signature.copy]") : TABLE.index("[variants]")], "")], "launch.default.signature is missing; there are: none"),
    "a choice between two signatures": ([("[signature.copy]", "[signature.other]\nparameters = []\n\n[signature.copy]")],
        "launch.default: name its signature, one of other, copy"),
    "a signature without parameters": ([("[signature.copy]\nparameters", "[signature.copy]\nparameter")], "signature 'copy' must have a list of 'parameters'"),
    "an option with a value that the enumeration lacks": ([RUN_TIME, ("[variants]", ENUM.replace("twice", "thrice")), *with_last('"Mode mode"')],
        "launch.default.parameters.mode: mode may be twice, which is not a value of the enumeration: once, thrice"),
    "an enumeration by an unknown name": ([("[variants]", ENUM), *with_last('"Mode how"', 'how = "thrice"')],
        "launch.default.parameters.how is 'thrice', expected an option, an argument with dtypes, or one of once, twice"),
    "a constant that the enumeration lacks": ([*CONSTANT, ('MODE = "twice"', 'MODE = "thrice"')],
        "variants.tiles[t64].constants.MODE is 'thrice', expected one of once, twice"),
    "an enumeration without values": ([("[variants]", '[enum.Mode]\nvalue = ["once"]\n\n[variants]')], "enum 'Mode' must have a list of names 'values'"),
    "a text in place of a list of constants": ([("[variants]", '[enum.Mode]\nvalues = ["once"]\nconstants = "MODE"\n\n[variants]')],
        "enum 'Mode' must have a list of names 'values'"),
    "a constant of two enumerations": ([("[variants]", '[enum.A]\nvalues = ["x"]\nconstants = ["MODE"]\n[enum.B]\nvalues = ["x"]\nconstants = ["MODE"]\n\n[variants]')],
        "the constant MODE is already of the enum 'A'"),
    "a key of the table below a signature": ([("[signature.copy]\n", "[signature.copy]\nconstraints = []\n")], "and no other key"),
    "a default that hides an option": ([RUN_TIME, *with_last('"int mode = 3"')],
        "launch.default.parameters.mode: the default 3 would hide the option of this name; give a value, or rename one"),
    "a default that hides the multiprocessors": (with_last('"int sms = 1"'), "parameters.sms: the default 1 would hide the number of multiprocessors"),
    "a default that hides the constant of a tile": (with_last('"int THREADS = 1"'), "parameters.THREADS: the default 1 would hide the constant of a tile"),
    "a default that hides an array": ([('"const float* x"', '"int x = 1"')], "parameters.x: the default 1 would hide the argument"),
    "a default of a float that hides a symbol": (with_last('"float M = 1"'), "parameters.M: the default 1 would hide the symbol"),
    "a default of a pointer that hides a number": ([('"float alpha"', '"const float* alpha = nullptr"')], "parameters.alpha: the default nullptr would hide the argument"),
    "a default of a pointer that hides an option": (with_last('"const float* mode = nullptr"'), "parameters.mode: the default nullptr would hide the option"),
    "a default of an enumeration that hides a symbol": ([("[variants]", ENUM), *with_last('"Mode K = once"')], "parameters.K: the default once would hide the symbol"),
    "a number as a pointer": ([('"const float* bias"', '"const float* bias = 1"')], "must be nullptr"),
    "a map that uses itself": ([("[signature.copy]", '[map.x]\nuse = "x"\n\n[signature.copy]'), *with_last('"map z"', 'z = { use = "x" }')],
        "map 'x' uses itself: x -> x"),
}  # fmt: skip


def test_a_value_goes_before_a_default_that_would_hide_something(tmp_path):
    assert launch_of(tmp_path, *with_last('"int sms = 1"', 'sms = "sms"'))["sms"]["value"] == "sms"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_refused(tmp_path, mistake):
    changes, words = MISTAKES[mistake]
    assert words in refused(tmp_path, *changes)

"""One declaration of the contract: what is printed and generated of it says the same, and no reader has a list of its own."""

import json
import re
from dataclasses import fields

import pytest

from tests.builder.build_trees import TABLE, edited, write_tree
from tests.contract.entries import entry
from tools.builder import BuildError
from tools.builder.expand import expand
from tools.builder.table import read_tables
from tools.documentation.contract import contract_tables
from zoo.capi.contract_header import HEADER, header_text
from zoo.contract.dtypes import DTYPES
from zoo.contract.fields import MANIFEST, fields_of
from zoo.contract.fields import TABLE as IN_TABLES
from zoo.contract.formats import FORMATS, NAMES, PAIRS
from zoo.contract.manifest import SCHEMA, Manifest, parse_kernel
from zoo.contract.names import GRAMMAR, Vocabulary
from zoo.contract.schema import PARAMETERS, RECORDS, Kernel, MapRecipe, Parameter
from zoo.errors import ManifestError, ZooError


def test_every_attribute_of_a_record_is_declared():
    """One without a declaration would be read from no manifest and be in no documentation."""
    for record in RECORDS.values():
        undeclared = {one.name for one in fields(record)} - set(fields_of(record))
        assert undeclared == ({"recipe"} if record is Parameter else set())


def test_kernels_and_variants_are_printed_by_their_names():
    found = parse_kernel("quantize.mxfp8.rows", entry("quantize.mxfp8.rows"))
    assert repr(found) == "<kernel quantize.mxfp8.rows>"
    assert repr(found.variants[0]) == f"<variant {found.variants[0].name} for {found.variants[0].arch}>"


def test_a_table_is_lowered_to_every_field_of_the_manifest_and_to_no_other(tmp_path):
    (table,) = read_tables(write_tree(tmp_path))
    wanted = {name for name, field in fields_of(Kernel).items() if field.stands != IN_TABLES} - {"variants"}
    assert set(table.entry) == wanted
    kernel = parse_kernel("quantize.mxfp8.rows", {**table.entry, "variants": []})
    assert kernel.fields == {"op": "quantize", "formats": "mxfp8", "direction": "rows"}
    assert kernel.arguments["y"].alignment == 4 and kernel.arguments["count"].default == 1
    assert [one.kind for one in kernel.launches["default"].parameters] == ["pointer", "pointer", "i32", "i64", "f32", "pointer"]


def test_a_default_that_a_table_leaves_out_is_one_that_the_manifest_allows():
    for record in RECORDS.values():
        for name, field in fields_of(record).items():
            if field.stands != MANIFEST and type(field.default) in (str, int, bool, list, dict) and not field.of:
                field.kind.read(field.kind.lowered(field.default))  # raises Malformed
            assert field.meaning.endswith((".", "`")), f"{record.__name__}.{name}: {field.meaning}"


def test_the_header_of_the_c_library_is_what_the_contract_says():
    text = HEADER.read_text()
    assert text == header_text()
    said = re.findall(r'dtype\("(\w+)", (\d+), (\d+), (\d+), (\d+), (?:true|false)\)', text)
    assert [(name, *map(int, numbers)) for name, *numbers in said] == [(one.name, one.bytes, *one.dlpack) for one in DTYPES.values()]
    assert re.findall(r"ZOO_(POINTER|I32|I64|F32|TENSOR_MAP) = (\d)", text) == [
        (kind.upper(), str(at)) for at, kind in enumerate(PARAMETERS)
    ]


def test_the_documentation_names_every_field_and_every_word_that_it_may_hold():
    text = contract_tables()
    for record in RECORDS.values():
        for name, field in fields_of(record).items():
            assert f"| `{field.table_key or name}`" in text or f"| `{name}`" in text
    for name in (*MapRecipe.__dataclass_fields__, "128B_atom_32B_flip_8B", "u6_align16", "workspace"):
        assert name in text


def test_formats_are_of_dtypes_and_of_formats_that_there_are():
    for one in FORMATS.values():
        assert set(one.elements) <= set(DTYPES) and (one.scales is None or one.scales in DTYPES)
    for pair in PAIRS.values():
        assert set(pair.a) | {pair.b} <= set(FORMATS)
    assert set(NAMES) == {"fp8b128", "mxfp8", "mxfp4", "nvfp4", "fp8token", *PAIRS}


@pytest.mark.parametrize("op", GRAMMAR)
def test_every_word_of_the_lists_makes_a_name(op):
    for form in GRAMMAR[op]:
        shortest = [words[0] for _, words, may_lack in form if not may_lack]
        assert list(Vocabulary({}).fields(".".join([op, *shortest])).values()) == [op, *shortest]
        longest = [words[0] for _, words, _ in form]
        assert list(Vocabulary({}).fields(".".join([op, *longest])).values()) == [op, *longest]


def test_a_manifest_of_another_schema_says_what_to_do(tmp_path):
    path = tmp_path / "manifest.json"
    for schema, words in ((SCHEMA - 1, "build it again"), (SCHEMA + 1, "install a newer zoo")):
        path.write_text(json.dumps({"schema": schema, "compiler": {}, "ptx": None, "kernels": {}}))
        with pytest.raises(ManifestError, match=f"has schema {schema}, this zoo reads {SCHEMA}; {words}"):
            Manifest(path)


# words of its own -> a name made of them and the fields it has
OWN = {
    'formats = ["int6"]': ("quantize.int6.rows", {"op": "quantize", "formats": "int6", "direction": "rows"}),
    'grouping = ["by_hand"]\nformats = ["int6"]': ("gemm.int6.by_hand", {"op": "gemm", "formats": "int6", "grouping": "by_hand"}),
    'extra = ["gelu"]': ("gemm.mxfp8.dense.gelu", {"op": "gemm", "formats": "mxfp8", "grouping": "dense", "extra": "gelu"}),
    'op = ["permute"]': ("permute.mxfp8", {"op": "permute", "formats": "mxfp8"}),
    'op = ["wrap"]\nextra = ["tight"]': ("wrap.mxfp8.tight", {"op": "wrap", "formats": "mxfp8", "extra": "tight"}),
}  # fmt: skip


@pytest.mark.parametrize("words", OWN)
def test_a_tree_names_kernels_by_words_of_its_own(tmp_path, words):
    name, expected = OWN[words]
    root = write_tree(tmp_path, edited(TABLE, ("quantize.mxfp8.rows", name)))
    with pytest.raises(BuildError, match=r"names\.toml at the root of the tables"):
        read_tables(root)
    (root / "names.toml").write_text(words)
    (table,) = read_tables(root)
    assert table.name == name and table.entry["fields"] == expected and list(table.entry["fields"]) == list(expected)
    assert parse_kernel(name, {**table.entry, "variants": []}).fields == expected  # which knows nothing of names.toml


WRONG_WORDS = {
    'format = ["int6"]': "names have no field 'format'; they have op, formats",
    'formats = "int6"': "formats is 'int6', expected a list of words",
    'formats = ["int.6"]': "expected a list of words",
    'formats = ["Int6"]': "expected a list of words",
    'formats = ["mxfp8"]': "formats: 'mxfp8' is already a word of the field formats",
    'grouping = ["swiglu"]': "grouping: 'swiglu' is already a word of the field extra",
    'formats = ["int6"]\ngrouping = ["int6"]': "grouping: 'int6' is already a word of the field formats",
    'formats = ["int6"': "not TOML",
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG_WORDS)
def test_words_that_no_name_could_be_made_of_are_refused(tmp_path, words):
    root = write_tree(tmp_path)
    (root / "names.toml").write_text(words)
    with pytest.raises(BuildError) as error:
        read_tables(root)
    assert str(root / "names.toml") in str(error.value) and WRONG_WORDS[words] in str(error.value)


def test_a_zoo_with_words_of_its_own_is_found_listed_and_shown_by_the_installed_package(tmp_path):
    """Its manifest is what a build makes of its tables, but for the compiler's facts."""
    from click.testing import CliRunner

    from zoo.catalog import Zoo
    from zoo.cli import main

    name = "gemm.int6.by_hand"
    root = write_tree(tmp_path / "tree", edited(TABLE, ("quantize.mxfp8.rows", name)))
    (root / "names.toml").write_text('formats = ["int6"]\ngrouping = ["by_hand"]')
    (table,) = read_tables(root)
    compiled = entry()["variants"][0]
    own = {"name", "arch", "dtypes", "options", "constants", "file", "symbol"}
    variants = [compiled | {key: getattr(one, key) for key in own} | {"signature": one.signature.digest} for one in expand(table)]
    manifest = {"schema": SCHEMA, "compiler": {}, "ptx": None, "kernels": {name: {**table.entry, "variants": variants}}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))

    (found,) = Zoo(tmp_path).find(formats="int6", arch="sm_90a")
    assert found.name == name and len(found.variants) == 8
    assert [one.name for one in Zoo(tmp_path).find(grouping="by_hand")] == [name]
    assert Zoo(tmp_path).find(formats="mxfp8") == []
    for command in (["list"], ["list", "--formats", "int6"], ["show", name], ["show", name, "--json"]):
        result = CliRunner().invoke(main, ["--cubins", str(tmp_path), *command])
        assert result.exit_code == 0 and name in result.output, result.output


WRONG_FIELDS = {
    "of another name": {"op": "gemm", "formats": "mxfp8", "grouping": "dense"},
    "in another order": {"formats": "mxfp8_mxfp4", "op": "gemm", "grouping": "dense"},
    "that no zoo asks for": {"op": "gemm", "formats": "mxfp8_mxfp4", "tile": "dense"},
    "too few": {"op": "gemm", "formats": "mxfp8_mxfp4"},
    "none": {},
    "of no text": {"op": "gemm", "formats": "mxfp8_mxfp4", "grouping": 3},
    "that are a list": ["gemm", "mxfp8_mxfp4", "dense"],
}


@pytest.mark.parametrize("fields_", WRONG_FIELDS)
def test_fields_that_do_not_spell_the_name_are_refused(fields_):
    with pytest.raises(ZooError, match="is malformed: fields"):
        parse_kernel("gemm.mxfp8_mxfp4.dense", entry() | {"fields": WRONG_FIELDS[fields_]})


@pytest.mark.parametrize(("schema", "words"), [(5, "build it again with this zoo's build_cubins.py"), (7, "install a newer zoo")])
def test_a_manifest_of_another_schema_says_which_of_the_two_is_old(tmp_path, schema, words):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"schema": schema}))
    with pytest.raises(ManifestError) as refusal:
        Manifest(path)
    assert str(refusal.value) == f"the manifest {path} has schema {schema}, this zoo reads 6; {words}" and SCHEMA == 6


@pytest.mark.parametrize("schema", [True, 2.0, "2", None])
def test_a_schema_is_a_number(tmp_path, schema):
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps({"schema": schema, "compiler": {}, "ptx": None, "kernels": {}}))
    with pytest.raises(ManifestError, match="is malformed: schema is "):
        Manifest(path)


def test_a_manifest_has_as_many_kernels_as_a_reader_takes(tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.contract.manifest.MOST_KERNELS", 2)
    path = tmp_path / "manifest.json"
    for count in (2, 3):
        kernels = {f"k{number}": {} for number in range(count)}
        path.write_text(json.dumps({"schema": SCHEMA, "compiler": {}, "ptx": None, "kernels": kernels}))
        if count == 2:
            assert Manifest(path).names == ("k0", "k1")
    with pytest.raises(ManifestError, match="has 3 kernels, this zoo reads at most 2"):
        Manifest(path)

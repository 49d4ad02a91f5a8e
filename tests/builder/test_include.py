"""Tables that take pieces from other files: what stands in their place, and what is said where a name is wrong."""

import pytest

from tests.builder.build_trees import TABLE, edited, write_tree
from tools.builder import BuildError
from tools.builder.documents import Documents
from tools.builder.include import included, refuse_unused
from tools.builder.table import read_tables

PART = """\
[option.mode]
values = ["once", "twice"]
default = "once"

[argument.x]
dtypes = ["f32"]
shape = ["M", "K"]
access = "read"

[argument.y]
use = "x"
name = "y"
access = "write"

[constraint]
fours = { expression = "K % 4 == 0", words = "K must be a multiple of 4" }

[symbols.size]
SIZE = "M * K"

[map]
of_x = { tensor_map = "x", dims = ["K"], box = ["32"] }
of_y = { use = "of_x", tensor_map = "y" }

[parameter]
maps = { x = { use = "of_x" }, y = { use = "of_y", box = ["16"] } }
sizes = [{ rows = "M" }, { columns = "K" }]
all = ["maps", "sizes", { size = "SIZE" }]

[signature]
plain = { parameters = ["map x", "map y", "int rows", "int columns", "int64_t size"] }
other = { parameters = ["const float* x"] }

[launch.plain]
programmatic = true
grid = ["1", "1", "1"]
signature = "plain"
parameters = ["all"]

[variants.two]
arch = ["sm_90a"]
constants = { THREADS = 64, ROWS = 1 }
tiles = [{ name = "one" }, { name = "two", constants = { ROWS = 2, EXTRA = 3 } }]
"""


@pytest.fixture
def documents(tmp_path):
    for name, text in {"family/parts/part.toml": PART, "family/parts/other.toml": '[argument.x]\ndtypes = ["bf16"]\n'}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return Documents(tmp_path)


def read(documents, **table) -> dict:
    made = included({"include": ["family/parts/part.toml"], "arguments": ["x"], **table}, documents)
    refuse_unused([made])
    return made.table


X = {"name": "x", "dtypes": ["f32"], "shape": ["M", "K"], "access": "read"}


def test_a_name_stands_for_the_piece_in_the_order_of_the_table(documents):
    own = {"name": "n", "dtypes": ["i32"]}
    made = read(documents, arguments=["y", own, "x"], constraints=["fours"], options=["mode"], derived=["size", {"HALF": "SIZE // 2"}])
    assert made == {
        "arguments": [{**X, "name": "y", "access": "write"}, own, X],
        "constraints": [{"expression": "K % 4 == 0", "words": "K must be a multiple of 4"}],
        "options": {"mode": {"values": ["once", "twice"], "default": "once"}},
        "derived": {"SIZE": "M * K", "HALF": "SIZE // 2"},
    }


def test_keys_may_be_changed_where_a_piece_is_used(documents):
    made = read(documents, arguments=[{"use": "x", "shape": ["G"], "optional": True}, {"use": "x", "name": "z"}])
    assert made["arguments"] == [{**X, "shape": ["G"], "optional": True}, {**X, "name": "z"}]
    assert read(documents)["arguments"] == [X], "the piece itself stays"


def test_a_piece_of_the_table_itself_may_be_made_of_an_included_one(documents):
    made = read(documents, arguments=["wide"], argument={"wide": {"use": "x", "name": "x", "dtypes": ["f64"]}})
    assert made == {"arguments": [{**X, "dtypes": ["f64"]}]}


def test_a_piece_of_values_may_stand_for_several_and_its_maps_be_changed(documents):
    launch = {"default": {"signature": "plain", "parameters": ["all"], "values": {"own": "M + 1"}}}
    made = read(documents, launch=launch)["launch"]["default"]
    of_x = {"tensor_map": "x", "dims": ["K"], "box": ["32"]}
    assert made["parameters"] == [
        {"x": of_x, "y": {**of_x, "tensor_map": "y", "box": ["16"]}}, {"rows": "M"}, {"columns": "K"}, {"size": "SIZE"}, {"own": "M + 1"},
    ]  # fmt: skip
    assert "values" not in made


@pytest.mark.parametrize(
    ("kind", "key", "pieces", "expected"),
    [
        ("argument", "arguments", {"both": ["x", "y"]}, ["x", "y"]),
        ("constraint", "constraints", {"both": ["fours", {"expression": "M", "words": "rows"}]}, ["K % 4 == 0", "M"]),
        ("option", "options", {"both": ["mode", {"name": "order", "values": ["a"]}]}, ["mode", "order"]),
        ("symbols", "derived", {"both": ["size", {"HALF": "SIZE // 2"}]}, ["SIZE", "HALF"]),
    ],
)
def test_a_piece_of_every_kind_may_be_a_list(documents, kind, key, pieces, expected):
    made = read(documents, **{kind: pieces, key: ["both"]})[key]
    names = [one.get("name", one.get("expression")) for one in made] if isinstance(made, list) else list(made)
    assert names == expected


def test_a_launch_is_like_one_of_a_file_or_of_the_table(documents):
    launch = {"many": {"like": "plain"}, "few": {"like": "many", "grid": ["2", "1", "1"], "parameters": [{"rows": "1"}]}}
    made = read(documents, launch=launch)["launch"]
    assert list(made) == ["many", "few"], "what files have is no launch of the table"
    assert made["many"]["grid"] == ["1", "1", "1"] and len(made["many"]["parameters"]) == 4
    assert made["few"] == {"programmatic": True, "grid": ["2", "1", "1"], "signature": "plain", "parameters": [{"rows": "1"}]}


def test_a_launch_that_is_like_another_passes_its_values_beside_those_of_the_other(documents):
    launch = {"default": {"like": "plain", "values": {"more": "M"}}}
    made = read(documents, launch=launch)["launch"]["default"]
    assert [name for one in made["parameters"] for name in one] == ["x", "y", "rows", "columns", "size", "more"]


def test_the_table_has_the_signatures_that_its_launches_name(documents):
    launch = {"one": {"like": "plain"}, "two": {"signature": "own feature", "parameters": []}}
    made = read(documents, launch=launch, signature={"own": {"parameters": ["int N"]}})
    assert {name: one["parameters"] for name, one in made["signature"].items()} == {
        "plain": ["map x", "map y", "int rows", "int columns", "int64_t size"],
        "own": ["int N"],
    }


def test_a_launch_may_leave_out_the_only_signature_of_its_table(documents):
    launch = {"one": {"parameters": []}, "two": {"signature": "plain"}}
    made = read(documents, launch=launch, signature={"own": {"parameters": []}})["launch"]
    assert {name: one["signature"] for name, one in made.items()} == {"one": "own", "two": "plain"}
    several = {"own": {"parameters": []}, "another": {"parameters": []}}
    with pytest.raises(BuildError, match=r"launch\.one: name its signature, one of own, another"):
        read(documents, launch=launch, signature=several)


def test_tiles_have_the_constants_that_they_do_not_state(documents):
    one, two = read(documents, variants="two")["variants"]["tiles"]
    assert list(one["constants"].items()) == [("THREADS", 64), ("ROWS", 1)]
    assert list(two["constants"].items()) == [("THREADS", 64), ("ROWS", 2), ("EXTRA", 3)]
    assert "constants" not in read(documents, variants="two")["variants"]


def test_tiles_have_the_source_and_dtypes_that_they_do_not_state(documents):
    tiles = [{"name": "a"}, {"name": "b", "source": "b.cu", "dtypes": {"x": ["bf16"], "y": ["f32"]}, "uncompiled": []}]
    made = read(documents, variants={"arch": ["sm_90a"], "source": "s.cu", "dtypes": {"x": ["f32"]}, "uncompiled": ["d"], "tiles": tiles})
    assert made["variants"] == {
        "arch": ["sm_90a"],
        "tiles": [
            {"name": "a", "source": "s.cu", "dtypes": {"x": ["f32"]}, "uncompiled": ["d"]},
            {"name": "b", "source": "b.cu", "dtypes": {"x": ["bf16"], "y": ["f32"]}, "uncompiled": []},
        ],
    }


def test_variants_of_several_archs_are_one_list_of_tiles_that_say_theirs(documents):
    hopper = {"arch": ["sm_90a"], "constants": {"A": 1}, "tiles": [{"name": "a"}, {"name": "b", "constants": {"A": 2}}]}
    both = {"arch": ["sm_100f", "sm_120a"], "source": "s.cu", "tiles": [{"name": "a", "arch": ["sm_120a"]}, {"name": "c"}]}
    assert read(documents, variants=[hopper, both])["variants"] == {
        "arch": ["sm_90a", "sm_100f", "sm_120a"],
        "tiles": [
            {"arch": ["sm_90a"], "name": "a", "constants": {"A": 1}},
            {"arch": ["sm_90a"], "name": "b", "constants": {"A": 2}},
            {"arch": ["sm_120a"], "name": "a", "source": "s.cu"},
            {"arch": ["sm_100f", "sm_120a"], "name": "c", "source": "s.cu"},
        ],
    }


def test_one_of_several_variants_may_be_a_files(documents):
    other = {"arch": ["sm_100f"], "tiles": [{"name": "a"}]}
    alone = read(documents, variants="two")["variants"]["tiles"]
    both = read(documents, variants=[other, {"use": "two"}])["variants"]
    assert both["arch"] == ["sm_100f", "sm_90a"]
    assert both["tiles"] == [{"arch": ["sm_100f"], "name": "a"}, *({"arch": ["sm_90a"], **tile} for tile in alone)]


def test_a_table_may_add_tiles_to_those_of_a_file(documents):
    own = {"arch": ["sm_90a"], "constants": {"A": 1}, "tiles": [{"name": "three"}]}
    (*of_file, three) = read(documents, variants=[{"use": "two"}, own])["variants"]["tiles"]
    assert [tile["name"] for tile in of_file] == ["one", "two"]
    assert three == {"arch": ["sm_90a"], "name": "three", "constants": {"A": 1}}
    assert read(documents, variants=[own, {"use": "two"}])["variants"]["arch"] == ["sm_90a"]


def test_a_table_without_names_is_itself():
    plain = {"arguments": [X], "options": {"mode": {}}, "derived": {"SIZE": "M"}, "variants": {"arch": [], "tiles": []}}
    assert included(plain, Documents()).table == plain


MISTAKES = {
    "an argument that no file has": (
        {"arguments": ["x", "xx"]},
        "arguments: no argument is named 'xx' in this table, family/parts/part.toml; did you mean x?",
    ),
    "a name that is like no other": (
        {"constraints": ["nonsense"]},
        "constraints: no constraint is named 'nonsense' in this table, family/parts/part.toml; there are: fours",
    ),
    "a change of what no file has": (
        {"arguments": [{"use": "yy"}]},
        "arguments: no argument is named 'yy' in this table, family/parts/part.toml; did you mean y?",
    ),
    "a piece made of nothing": (
        {"arguments": ["z"], "argument": {"z": {"use": "xz"}}},
        "argument.z: no argument is named 'xz' in this table, family/parts/part.toml; did you mean z or x?",
    ),
    "a piece made of itself": (
        {"arguments": ["p"], "argument": {"p": {"use": "q"}, "q": {"use": "p"}}},
        "this table: argument 'p' uses itself: p -> q -> p",
    ),
    "a launch like none": (
        {"launch": {"default": {"like": "plan"}}},
        "launch.default.like: no launch is named 'plan' in this table, family/parts/part.toml; did you mean plain?",
    ),
    "a map that no file has": (
        {"launch": {"default": {"values": {"x": {"use": "of_z"}}}}},
        "parameter x: no map is named 'of_z' in this table, family/parts/part.toml; did you mean of_y or of_x?",
    ),
    "a signature that no file has": (
        {"launch": {"default": {"signature": "plane stored"}}},
        "launch: no signature is named 'plane' in this table, family/parts/part.toml; did you mean plain?",
    ),
    "a launch that is no table": ({"launch": {"default": ["plain"]}}, "launch.default: must be a table, got ['plain']"),
    "a launch like itself": (
        {"launch": {"a": {"like": "b"}, "b": {"like": "a"}}},
        "launch.a is like itself: a -> b -> a",
    ),
    "a changed list": (
        {"launch": {"default": {"parameters": [{"use": "sizes", "rows": "M"}]}}},
        "parameters: parameter 'sizes' is 2 tables, of which no key can be changed",
    ),
    "a number for a name": ({"arguments": [3]}, "arguments: expected the name of a piece or a table, got 3"),
    "a file that is not there": (
        {"include": ["family/parts/parts.toml"]},
        "no file family/parts/parts.toml below {root}; did you mean family/parts/part.toml or family/parts/other.toml?",
    ),
    "two pieces of one name": (
        {"include": ["family/parts/part.toml", "family/parts/other.toml"]},
        "family/parts/other.toml: argument 'x' is also a piece of family/parts/part.toml; rename one",
    ),
    "a file of which nothing is used": ({"arguments": [X]}, "include: nothing of family/parts/part.toml is used; remove it"),
    "an own piece that nothing uses": ({"argument": {"z": {}}}, "argument.z: nothing uses this piece; remove it"),
    "one symbol twice": ({"derived": ["size", {"SIZE": "M"}]}, "derived: 'SIZE' is there twice"),
    "variants that no file has": (
        {"variants": "three"},
        "variants: no variants is named 'three' in this table, family/parts/part.toml; there are: two",
    ),
    "constants that are none": (
        {"variants": {"arch": [], "constants": 3, "tiles": []}},
        "variants: 'constants' and 'dtypes' must be tables and 'tiles' a list of tables",
    ),
    "a group of variants that uses itself": (
        {"tiles": {"p": {"use": "q"}, "q": {"use": "p"}}, "variants": [{"use": "p"}]},
        "variants 'p' uses itself: p -> q -> p",
    ),
    "variants of no arch": (
        {"variants": [{"tiles": []}]},
        "variants[0]: must be a table with lists 'arch' and 'tiles', got {{'tiles': []}}",
    ),
    "a misspelt key of one of several variants": (
        {"variants": [{"arch": ["sm_90a"], "tiles": [], "constant": {}}]},
        "variants[0]: has the unknown key 'constant'; known here: arch, tiles, constants, dtypes, source, pipeline, cubins_of, uncompiled, launch, cost, costs, when, only",
    ),
    "include that is no list": ({"include": "family/parts/part.toml"}, "'include' must be a list of paths, got 'family/parts/part.toml'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_refused(mistake, documents):
    table, words = MISTAKES[mistake]
    with pytest.raises(BuildError) as caught:
        read(documents, **table)
    assert str(caught.value) == words.format(root=documents.roots[0])


def test_a_key_that_is_no_kind_of_piece_is_refused_with_its_file(documents):
    (documents.roots[0] / "family/parts/wrong.toml").write_text("[arguments.x]\n")
    with pytest.raises(BuildError, match=r"family/parts/wrong\.toml: 'arguments' is no kind of piece; those are: argument, option"):
        read(documents, include=["family/parts/wrong.toml"])


def test_what_is_wrong_with_an_included_file_is_told_with_its_path(documents):
    (documents.roots[0] / "family/parts/broken.toml").write_text("[argument\n")
    with pytest.raises(BuildError, match=r"family/parts/broken.toml: not TOML: "):
        read(documents, include=["family/parts/broken.toml"])


def test_another_tree_may_include_this_ones_files_and_have_its_own_go_first(tmp_path):
    ours, theirs = write_tree(tmp_path / "ours"), tmp_path / "theirs"
    table = edited(TABLE, ("[promises]", 'include = ["quantize/parts/x.toml"]\narguments = ["x"]\n[promises]'))
    table = edited(table, (table[table.index("[[arguments]]") : table.index("[derived]")], ""))
    table = edited(
        table, (table[table.index("values = {") : table.index("[variants]")], '\n[signature.copy]\nparameters = ["const float* x"]\n\n')
    )
    (ours / "quantize" / "tables" / "copy.toml").write_text(edited(table, ('SIZE = "M * K"', 'SIZE = "M * K * mode.once"')))
    (theirs / "quantize" / "parts").mkdir(parents=True)
    piece = '[argument.x]\ndtypes = ["f32"]\nshape = ["M", "K"]\naccess = "read"\nhelp = "{}"\n'
    (theirs / "quantize" / "parts" / "x.toml").write_text(piece.format("theirs"))
    assert read_tables(ours, theirs)[0].entry["arguments"][0]["help"] == "theirs"
    (ours / "quantize" / "parts").mkdir()
    (ours / "quantize" / "parts" / "x.toml").write_text(piece.format("ours"))
    assert read_tables(ours, theirs)[0].entry["arguments"][0]["help"] == "ours"


def test_groups_of_variants_may_share_an_arch_and_have_defaults(documents):
    launches = {"launch": {"a": {}, "b": {}}}
    first = {
        "arch": ["sm_90a"],
        "when": "M > 1",
        "launch": "a",
        "cost": "waves",
        "tiles": [{"name": "x"}, {"name": "y", "when": "N > 1", "launch": "b"}],
    }
    made = read(documents, **launches, variants=[first, {"arch": ["sm_90a"], "tiles": [{"name": "z", "launch": "a"}]}])["variants"]
    assert made == {
        "arch": ["sm_90a"],
        "tiles": [
            {"arch": ["sm_90a"], "launch": "a", "cost": "waves", "when": "M > 1", "name": "x"},
            {"arch": ["sm_90a"], "launch": "b", "cost": "waves", "when": "(M > 1) and (N > 1)", "name": "y"},
            {"arch": ["sm_90a"], "launch": "a", "name": "z"},
        ],
    }


def test_a_group_of_variants_may_be_for_some_formats_alone(documents):
    group = {"arch": ["sm_90a"], "only": {"TYPE": "fp8"}, "tiles": [{"name": "x"}, {"name": "y", "only": {"WEIGHTS": "nvfp4"}}]}
    x, y = read(documents, variants=[group])["variants"]["tiles"]
    assert x["only"] == {"TYPE": "fp8"}
    assert y["only"] == {"TYPE": "fp8", "WEIGHTS": "nvfp4"}


def test_groupings_may_name_a_group_of_variants_of_their_own_file(documents):
    groups = {"wide": {"arch": ["sm_90a"], "columns": ["name", "TOKENS"], "tiles": [["x", 64]]}}
    made = read(documents, tiles=groups, variants=[{"use": "wide"}, {"arch": ["sm_90a"], "tiles": [{"name": "z"}]}])
    assert "tiles" not in made
    assert made["variants"]["tiles"] == [{"arch": ["sm_90a"], "name": "x", "constants": {"TOKENS": 64}}, {"arch": ["sm_90a"], "name": "z"}]


def test_a_group_of_variants_keeps_its_own_keys_over_those_of_the_group_that_it_uses(documents):
    groups = {"hopper": {"arch": ["sm_90a"], "cost": "waves", "source": "s.cu"}, "in_turn": {"use": "hopper", "cost": "turns"}}
    own = {"use": "in_turn", "source": "t.cu", "tiles": [{"name": "x"}]}
    made = read(documents, tiles=groups, variants=[own, {"use": "hopper", "tiles": [{"name": "y"}]}])["variants"]
    assert made == {
        "arch": ["sm_90a"],
        "tiles": [
            {"arch": ["sm_90a"], "source": "t.cu", "cost": "turns", "name": "x"},
            {"arch": ["sm_90a"], "source": "s.cu", "cost": "waves", "name": "y"},
        ],
    }


def test_a_launch_that_only_another_grouping_starts_is_left_out(documents):
    table = {
        "launch": {"a": {"grid": ["1"]}, "b": {"grid": ["2"]}},
        "variants": {"arch": ["sm_90a"], "tiles": [{"name": "x", "launch": "a"}]},
    }
    one = included(table, documents)
    assert one.table["launch"].keys() == {"a"}
    with pytest.raises(BuildError, match=r"launch\.b: no tile is started this way; remove it"):
        refuse_unused([one])
    other = included({**table, "variants": {"arch": ["sm_90a"], "tiles": [{"name": "x", "launch": "b"}]}}, documents)
    refuse_unused([one, other])

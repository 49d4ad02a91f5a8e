"""Tables that share a file: each grouping reads its own table, and no piece stays unread. Tiles as rows: no cell is lost."""

import tomllib

import pytest

from tests.builder.build_trees import TABLE, edited, write_tree
from tools.builder import BuildError
from tools.builder.documents import Documents
from tools.builder.expand import expand
from tools.builder.include import included
from tools.builder.scope import check_scope
from tools.builder.sections import sections
from tools.builder.table import read_tables

SHARED = {
    "name": "gemm.{grouping}",
    "options": ["order"],
    "launch": {"plain": {"grid": ["1", "1", "1"], "values": {"M": "M"}}},
    "words": [{"ROWS": "M"}],
}


# ---- joining


def test_a_file_without_groupings_is_one_table():
    assert sections(SHARED) == [SHARED], "and {grouping} stays"


def test_a_table_is_joined_with_the_shared_one_key_by_key():
    masked = {"launch": {"plain": {"grid": ["2", "1", "1"]}, "few": {"like": "plain"}}, "promises": {"deterministic": True}}
    dense, joined = sections({**SHARED, "grouping": {"dense": {}, "masked": masked}})
    assert dense == {**SHARED, "name": "gemm.dense"}
    assert joined["launch"] == {"plain": {"grid": ["2", "1", "1"], "values": {"M": "M"}}, "few": {"like": "plain"}}
    assert joined["promises"] == {"deterministic": True}
    assert "grouping" not in dense and "grouping" not in joined


@pytest.mark.parametrize(
    ("key", "own"),
    [("options", ["mode"]), ("options", []), ("words", [{"COLUMNS": "N"}]), ("launch", "none"), ("options", {"mode": {}})],
)
def test_anything_but_two_tables_replaces_what_is_shared(key, own):
    (made,) = sections({**SHARED, "grouping": {"dense": {key: own}}})
    assert made[key] == own


def test_one_groupings_table_does_not_change_anothers():
    data = {**SHARED, "grouping": {name: {"launch": {"plain": {"cluster": [size, "1", "1"]}}} for name, size in (("a", "1"), ("b", "2"))}}
    one, two = sections(data)
    assert one["launch"]["plain"]["cluster"] == ["1", "1", "1"] and two["launch"]["plain"]["cluster"] == ["2", "1", "1"]
    assert "cluster" not in SHARED["launch"]["plain"]


def test_the_name_of_the_grouping_is_put_into_every_text():
    data = {
        "source": "{grouping}.cu",
        "include": ["parts/{grouping}.toml"],
        "launch": {"x": {"values": {"kind": "{grouping} + 1"}}},
        "variants": {"columns": ["name", "SIZE"], "tiles": [["{grouping}_64", 64, {"when": "{grouping}.{grouping}"}]]},
        "words": [{"ROWS": "{format}"}],
        "grouping": {"dense": {"summary": "the {grouping} product"}},
    }
    (made,) = sections(data)
    assert made == {
        "source": "dense.cu",
        "include": ["parts/dense.toml"],
        "launch": {"x": {"values": {"kind": "dense + 1"}}},
        "variants": {"columns": ["name", "SIZE"], "tiles": [["dense_64", 64, {"when": "dense.dense"}]]},
        "words": [{"ROWS": "{format}"}],
        "summary": "the dense product",
    }


@pytest.mark.parametrize("groupings", ["dense", ["dense"], {"dense": "x"}, {}])
def test_groupings_that_are_no_tables_are_refused(groupings):
    with pytest.raises(BuildError, match="'grouping' must be a table of tables, got"):
        sections({**SHARED, "grouping": groupings})


# ---- a whole file

GROUPED = edited(
    TABLE,
    ('name = "quantize.mxfp8.rows"', 'name = "quantize.mxfp8.{grouping}"'),
    ("[variants]", '[grouping.rows]\n\n[grouping.cols]\nsummary = "{grouping}"\n\n[grouping.cols.launch.default]\ncluster = ["2", "1", "1"]\n\n[variants]'),
)  # fmt: skip


def read(folder, *changes):
    tables = read_tables(write_tree(folder, edited(GROUPED, *changes)))
    for table in tables:
        check_scope(table)
    return {table.name: table for table in tables}


def test_every_grouping_of_a_file_is_a_kernel(tmp_path):
    tables = read(tmp_path)
    assert list(tables) == ["quantize.mxfp8.cols", "quantize.mxfp8.rows"]
    cols, rows = (table.entry for table in tables.values())
    assert cols["table"] == rows["table"] == "quantize/tables/copy.toml"
    assert (cols["summary"], rows["summary"]) == ("cols", "a test")
    assert (cols["launches"]["default"]["cluster"][0], rows["launches"]["default"]["cluster"][0]) == ("2", "1")
    assert {variant.symbol for table in tables.values() for variant in expand(table)} >= {
        "quantize_mxfp8_cols__once_t64", "quantize_mxfp8_rows__once_t64",
    }  # fmt: skip


def test_two_groupings_of_one_name_are_refused(tmp_path):
    with pytest.raises(BuildError, match=r"quantize\.mxfp8\.rows is already the kernel of"):
        read(tmp_path, ("{grouping}", "rows"))


PIECE = '[constraint.{name}]\nexpression = "M > 0"\nwords = "rows"\n\n'
ROWS = "[grouping.rows]\n"


def piece(at: str, name: str) -> str:
    return PIECE.replace("[constraint.{name}]", f"[{at}constraint.{name}]")


def inline(constraints: str = "") -> list[tuple[str, str]]:
    """The changes of a file whose constraints are pieces."""
    return [('[[constraints]]\nexpression = "K % 4 == 0"\nwords = "K must be a multiple of 4"\n\n', ""), ("[promises]", f"constraints = [{constraints}]\n\n[promises]")]  # fmt: skip


def test_a_piece_that_one_grouping_uses_is_used(tmp_path):
    one_uses = (ROWS, piece("", "rows") + ROWS + 'constraints = ["rows"]\n')
    rows, cols = (read(tmp_path, *inline(), one_uses)[f"quantize.mxfp8.{name}"].entry["constraints"] for name in ("rows", "cols"))
    assert len(rows) == 1 and cols == []


@pytest.mark.parametrize("at", ["", "grouping.rows.", "grouping.cols."])
def test_a_piece_that_no_grouping_uses_is_refused(tmp_path, at):
    with pytest.raises(BuildError, match=r"constraint\.unread: nothing uses this piece; remove it"):
        read(tmp_path, (ROWS, piece(at, "unread") + ROWS))


FEW = '[launch.few]\nlike = "default"\n\n'
ROWS_ALONE = (
    ROWS + '[grouping.rows.variants]\narch = ["sm_90a"]\ntiles = [{ name = "t64", launch = "few", constants = { THREADS = 64 } }]\n'
)


def test_a_launch_that_a_grouping_changes_and_does_not_use_is_refused(tmp_path):
    """Shared by another grouping, which uses it, the launch would be read there, and what this grouping changes in it nowhere."""
    read(tmp_path / "shared", ("[grouping.rows]\n\n", FEW + ROWS_ALONE))
    changed = "[grouping.cols.launch.few]\ngird = 3\n\n[grouping.cols.launch.default]"
    with pytest.raises(BuildError, match=r"grouping\.cols\.launch\.few: this grouping does not use it; remove it"):
        read(tmp_path / "changed", ("[grouping.rows]\n\n", FEW + ROWS_ALONE), ("[grouping.cols.launch.default]", changed))


def test_a_piece_that_a_grouping_has_for_itself_and_does_not_use_is_refused(tmp_path):
    own = piece("grouping.cols.", "rows") + ROWS + 'constraints = ["rows"]\n'
    with pytest.raises(BuildError, match=r"grouping\.cols\.constraint\.rows: this grouping does not use it; remove it"):
        read(tmp_path, *inline(), (ROWS, piece("", "rows") + own))


@pytest.mark.parametrize("used", [True, False])
def test_a_file_of_pieces_is_included_for_a_grouping_that_uses_it(tmp_path, used):
    (tmp_path / "parts.toml").write_text(piece("", "rows"))
    constraints = '\nconstraints = ["rows"]' if used else ""
    changes = [*inline(), ("[promises]", 'include = ["parts.toml"]\n\n[promises]'), (ROWS, f"[grouping.rows]{constraints}\n")]
    if used:
        assert len(read(tmp_path, *changes)["quantize.mxfp8.rows"].entry["constraints"]) == 1
    else:
        with pytest.raises(BuildError, match=r"include: nothing of parts\.toml is used; remove it"):
            read(tmp_path, *changes)


# ---- rows under columns


def tiles_of(text: str) -> list[dict]:
    made = included(tomllib.loads(f"[variants]\narch = ['sm_90a']\n{text}"), Documents()).table["variants"]
    assert "columns" not in made
    return made["tiles"]


def test_capitals_are_constants_and_an_empty_cell_is_left_out():
    assert tiles_of(
        """
        columns = ["name", "launch", "TOKENS", "CTAS_2", "cost"]
        tiles = [["a", "many", 128, 1, "waves"], ["b", "", 8, "", ""], ["c", "", "", "", 0]]
        """
    ) == [
        {"name": "a", "launch": "many", "cost": "waves", "constants": {"TOKENS": 128, "CTAS_2": 1}},
        {"name": "b", "constants": {"TOKENS": 8}},
        {"name": "c", "cost": 0},
    ]


def test_a_table_after_the_cells_has_the_other_keys_and_more_constants():
    (tile,) = tiles_of('columns = ["name", "TOKENS"]\ntiles = [["a", 8, { when = "M <= 8", constants = { EXTRA = 1 } }]]')
    assert tile == {"name": "a", "when": "M <= 8", "constants": {"TOKENS": 8, "EXTRA": 1}}


def test_a_row_has_the_defaults_of_its_variants():
    (tile,) = tiles_of('columns = ["name", "TOKENS"]\nconstants = { TOKENS = 1, CTAS = 2 }\nsource = "s.cu"\ntiles = [["a", 8]]')
    assert tile == {"name": "a", "source": "s.cu", "constants": {"TOKENS": 8, "CTAS": 2}}


def test_one_of_several_variants_may_have_rows():
    text = """
    [[variants]]
    arch = ["sm_90a"]
    columns = ["name", "TOKENS"]
    tiles = [["a", 8]]
    [[variants]]
    arch = ["sm_100f"]
    tiles = [{ name = "b" }]
    """
    made = included(tomllib.loads(text), Documents()).table["variants"]["tiles"]
    assert made == [{"arch": ["sm_90a"], "name": "a", "constants": {"TOKENS": 8}}, {"arch": ["sm_100f"], "name": "b"}]


COLUMNS = 'columns = ["name", "launch", "TOKENS"]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            COLUMNS + 'tiles = [["a", "many"]]',
            "the row ['a', 'many'] must have 3 cells (name, launch, TOKENS) and at most a table after them",
        ),
        (COLUMNS + 'tiles = [["a", "many", 8, 9]]', "the row ['a', 'many', 8, 9] must have 3 cells"),
        (COLUMNS + 'tiles = [["a", "many", 8, {}, {}]]', "must have 3 cells"),
        (COLUMNS + 'tiles = [{ name = "a" }]', "with 'columns', 'tiles' must be a list of rows, got [{'name': 'a'}]"),
        (COLUMNS, "with 'columns', 'tiles' must be a list of rows, got None"),
        ('columns = "name"\ntiles = [["a"]]', "'columns' must be a list of different names, got 'name'"),
        ('columns = ["name", 3]\ntiles = [["a", 3]]', "'columns' must be a list of different names, got ['name', 3]"),
        ('columns = ["name", "A", "A"]\ntiles = [["a", 1, 2]]', "'columns' must be a list of different names"),
    ],
)
def test_a_row_that_does_not_fit_its_columns_is_refused(text, words):
    with pytest.raises(BuildError) as refused:
        tiles_of(text)
    assert words in str(refused.value)


def test_a_table_may_have_its_tiles_as_rows(tmp_path):
    rows = 'columns = ["name", "THREADS", "cost", "when"]\ntiles = [\n    ["t64", 64, "THREADS", ""],\n    ["t128", 128, "", "M > 1"],\n]\n'
    as_rows = edited(TABLE, (TABLE[TABLE.index("[[variants.tiles]]") :], rows))
    made, expected = (
        [
            (one.name, one.constants, one.tile.cost, one.tile.when, one.unit())
            for one in expand(*read_tables(write_tree(tmp_path / name, text)))
        ]
        for name, text in (("rows", as_rows), ("tables", TABLE))
    )
    assert made == expected

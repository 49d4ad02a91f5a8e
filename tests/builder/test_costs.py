"""Costs by the name of a formula: a number nobody measured, or that nobody reads, would be a number that nobody can explain."""

import re

import pytest

from tools.builder import BuildError
from tools.builder.costs import with_costs
from tools.builder.documents import Documents
from tools.builder.include import included

GPU = """\
formulas = "family/costs/formulas.toml"

[experiment]
start = "an empty product"
memory = "a long one"
block = "the slope of K"

[chip]
start = 2000
memory = 4

[tile."gemm.fp8b128.dense"]
one = { block = 505 }
two = { block = 1010 }
"""
FORMULAS = """\
[formula.waves]
cost = "{start} + max({compute}, N // {memory})"
all = "{TOKENS} + BLOCKS"

[formula.streaming]
cost = "{start} + {compute} // {memory}"
all = "SPLITS"

[part]
compute = "{all} * {block}"
"""
TILES = {
    "arch": ["sm_90a"],
    "costs": "family/costs/h200.toml",
    "constants": {"TOKENS": 64},
    "tiles": [{"name": "one", "cost": "waves"}, {"name": "two", "cost": "N * 7"}],
}


def costs(path, gpu=GPU, formulas=FORMULAS, **variants):
    """The costs of the tiles, as a build reads them."""
    for name, text in {"h200.toml": gpu, "formulas.toml": formulas}.items():
        (path / "family" / "costs").mkdir(parents=True, exist_ok=True)
        (path / "family" / "costs" / name).write_text(text)
    documents = Documents(path)
    made = with_costs(included({"name": "gemm.fp8b128.dense", "variants": TILES | variants}, documents).table, documents)
    assert all("costs" not in tile for tile in made["variants"]["tiles"]), "nothing that the manifest's schema does not know is left"
    return [filled(tile) for tile in made["variants"]["tiles"]]


def filled(tile):
    """The cost with its numbers in the places of their names."""
    cost = tile.get("cost")
    for name, number in tile.get("numbers", {}).items():
        cost, count = re.subn(rf"\b{name}\b", str(number), cost)
        assert count, f"the cost does not read {name}"
    return cost


def test_a_formula_has_the_numbers_of_its_tile_and_of_the_chip(tmp_path):
    assert costs(tmp_path) == ["2000 + max(((64 + BLOCKS) * 505), N // 4)", "N * 7"]
    assert costs(tmp_path, tiles=[{"name": "two", "cost": "streaming"}, {"name": "one"}]) == ["2000 + ((SPLITS) * 1010) // 4", None]


def test_a_word_of_the_table_is_left_for_its_format(tmp_path):
    """What a tile counts may differ by the table, and by the format that it is read for: neither is known where numbers are put in."""
    formulas = FORMULAS.replace('"{TOKENS} + BLOCKS"', '"{ROWS} + BLOCKS"')
    costs(tmp_path, formulas=formulas, tiles=[])  # writes the files
    documents = Documents(tmp_path)
    table = {
        "name": "gemm.fp8b128.dense",
        "words": [{"only": {"A": 1}, "ROWS": "M"}, {"except": {"A": 1}, "ROWS": "M + 1"}],
        "variants": TILES,
    }
    made = with_costs(included(table, documents).table, documents)
    assert filled(made["variants"]["tiles"][0]) == "2000 + max(((({ROWS}) + BLOCKS) * 505), N // 4)"
    with pytest.raises(BuildError, match=r"tile one of gemm.fp8b128.dense has no ROWS, which all of waves reads; did you mean ROW\?"):
        with_costs(included(table | {"words": [{"ROW": "M"}]}, documents).table, documents)


def test_a_text_of_one_table_is_read_by_every_formula(tmp_path):
    formulas = FORMULAS.replace("[part]", '[table."gemm.fp8b128.dense"]\nall = "G * {TOKENS}"\ncompute = "{all} + {block}"\n\n[part]')
    assert costs(tmp_path, formulas=formulas, tiles=[{"name": "two", "cost": "streaming"}]) == ["2000 + ((SPLITS) + 1010) // 4"], (
        "a formula's own"
    )
    assert costs(tmp_path, formulas=formulas.replace('all = "{TOKENS} + BLOCKS"\n', ""))[0] == "2000 + max(((G * 64) + 505), N // 4)"


def test_a_tile_of_one_dtype_may_have_numbers_of_its_own(tmp_path):
    tiles = [{"name": "two", "cost": "streaming", "dtypes": {"d": ["f32"]}}]
    shared = costs(tmp_path, tiles=tiles)
    gpu = GPU + "f32_two = { block = 7 }\n"
    assert shared == ["2000 + ((SPLITS) * 1010) // 4"]
    assert costs(tmp_path, gpu=gpu, tiles=tiles) == ["2000 + ((SPLITS) * 7) // 4"]


def test_a_number_has_the_multiplications_and_the_rate_that_its_name_says(tmp_path):
    formulas = FORMULAS.replace(
        "[part]", '[tensor]\nblock = "{TOKENS} * {width} // {multiplications}"\n\n[rates]\nmemory = "memory"\n\n[part]\nwidth = "12"'
    )
    gpu = GPU.replace("[chip]", "[chip]\nmultiplications = 5").replace("[chip]", 'multiplications = "a cycle"\n\n[chip]')

    def tiles(gpu):
        costs(tmp_path, gpu, formulas, tiles=[])  # writes the files
        documents = Documents(tmp_path)
        made = with_costs(included({"name": "gemm.fp8b128.dense", "variants": TILES}, documents).table, documents)["variants"]["tiles"]
        return [(tile.get("numbers"), tile.get("tensor"), tile.get("rates")) for tile in made]

    numbers = {"start": 2000, "memory": 4, "block": 505}
    assert tiles(gpu) == [(numbers, {"block": 64 * 12 // 5}, {"memory": "memory"}), (None, None, None)]
    assert tiles(GPU) == [(numbers, {}, {}), (None, None, None)], "a chip that is no Hopper"


def test_two_archs_have_numbers_of_their_own(tmp_path):
    """Tiles of one name on two archs: what was measured of one must not become the other's."""
    documents = Documents(tmp_path)
    costs(tmp_path)  # writes the files
    other = {"arch": ["sm_100f"], "tiles": [{"name": "one", "cost": "BLOCKS"}]}
    made = with_costs(included({"name": "gemm.fp8b128.dense", "variants": [TILES, other]}, documents).table, documents)["variants"]
    assert [(tile["arch"], filled(tile)[:6]) for tile in made["tiles"]] == [
        (["sm_90a"], "2000 +"),
        (["sm_90a"], "N * 7"),
        (["sm_100f"], "BLOCKS"),
    ]


@pytest.mark.parametrize(
    ("gpu", "formulas", "tile", "said"),
    [
        (GPU.replace('block = "the slope of K"\n', ""), FORMULAS, "one", "nothing says what gave block of one"),
        (GPU.replace("[chip]\n", "[chip]\nwatts = 700\n"), FORMULAS, "one", "nothing says what gave watts of chip"),
        (GPU, FORMULAS, "three", "has no numbers of tile three of gemm.fp8b128.dense"),
        (GPU.replace("memory = 4\n", ""), FORMULAS, "one", "tile one of gemm.fp8b128.dense has no memory, which cost of waves reads"),
        (GPU, FORMULAS.replace("+ BLOCKS", "{compute}"), "one", "waves is made of itself: cost -> compute -> all -> compute"),
        (
            GPU.replace("{ block = 505 }", "{ block = 505, start = 9 }"),
            FORMULAS.replace("{start} +", "1 +"),
            "one",
            "has start, which waves does not read",
        ),
        (GPU.replace('"family/costs/formulas.toml"', '"family/costs/formula.toml"'), FORMULAS, "one", "no file family/costs/formula.toml"),
    ],
)
def test_a_number_without_an_experiment_or_a_reader_is_refused(tmp_path, gpu, formulas, tile, said):
    with pytest.raises(BuildError) as refused:
        costs(tmp_path, gpu, formulas, tiles=[{"name": tile, "cost": "waves"}])
    assert said in str(refused.value)


DERIVING = FORMULAS.replace(
    "[part]",
    """\
[formula.waves.derives]
"TILES_{TOKENS}" = "ceil_div(M, {TOKENS})"

[formula.waves.launch]
grid = ["TILES_{TOKENS}", "1", "1"]

[part]""",
)
LAUNCHES = {"whole": {"grid": ["1", "1", "1"], "parameters": [{"rows": "M"}]}}


def derived(path, formulas=DERIVING, launches=LAUNCHES, tiles=({"name": "one", "cost": "waves", "launch": "whole"},)):
    """The table that a build reads, whose tiles' formulas derive something and change a launch."""
    costs(path, formulas=FORMULAS)  # writes the files
    (path / "family" / "costs" / "formulas.toml").write_text(formulas)
    documents = Documents(path)
    table = {"name": "gemm.fp8b128.dense", "derived": {"BLOCKS": "K"}, "launch": launches, "variants": TILES | {"tiles": list(tiles)}}
    return with_costs(included(table, documents).table, documents)


def test_a_formula_derives_what_it_reads_and_changes_the_launch_of_its_tile(tmp_path):
    made = derived(tmp_path)
    assert made["derived"] == {"BLOCKS": "K", "TILES_64": "ceil_div(M, 64)"}
    assert made["launch"] == {"one": {"grid": ["TILES_64", "1", "1"], "parameters": [{"rows": "M"}]}}
    assert [tile["launch"] for tile in made["variants"]["tiles"]] == ["one"]


def test_a_launch_may_depend_on_what_was_measured(tmp_path):
    by_numbers = DERIVING.replace("[formula.waves.launch]", '[formula.waves.launch]\nalone = "{compute} < {start}"')
    assert derived(tmp_path, by_numbers)["launch"]["one"]["alone"] == "((64 + BLOCKS) * block) < start"


def test_tiles_of_one_name_share_the_launch_that_their_formula_makes(tmp_path):
    tiles = [{"name": "one", "cost": "waves", "launch": "whole", "dtypes": {"d": dtype}} for dtype in ("bf16", "f16")]
    assert derived(tmp_path, tiles=tiles)["launch"] == derived(tmp_path)["launch"]


def test_tiles_of_one_name_for_several_formats_have_launches_of_their_own(tmp_path):
    tiles = [{"name": "one", "cost": "waves", "launch": "whole", "only": {"TYPE": kind}} for kind in ("fp8", ["bf16", "f16"])]
    launches = {"whole": LAUNCHES["whole"] | {"only": {"TYPE": ["fp8", "bf16", "f16"], "LAID": "packed"}}}
    made = derived(tmp_path, launches=launches, tiles=tiles)
    assert {name: launch["only"] for name, launch in made["launch"].items()} == {
        "one_fp8": {"TYPE": "fp8", "LAID": "packed"},
        "one_bf16_f16": {"TYPE": ["bf16", "f16"], "LAID": "packed"},
    }
    assert [tile["launch"] for tile in made["variants"]["tiles"]] == ["one_fp8", "one_bf16_f16"]
    with pytest.raises(BuildError, match="only for TYPE = fp4, and whole, the launch that it names, for"):
        derived(tmp_path, launches=launches, tiles=[tiles[0] | {"only": {"TYPE": "fp4"}}])


def test_a_launch_may_read_words_of_the_table(tmp_path):
    costs(tmp_path)
    by_words = FORMULAS.replace("[part]", '[formula.waves.launch]\ngrid = ["{ACROSS} * {TOKENS}", "1", "1"]\n\n[part]')
    (tmp_path / "family" / "costs" / "formulas.toml").write_text(by_words)
    table = {"name": "gemm.fp8b128.dense", "words": [{"ACROSS": "UNITS"}], "launch": LAUNCHES}
    tiles = {"tiles": [{"name": "one", "cost": "waves", "launch": "whole"}]}
    made = with_costs(included(table | {"variants": TILES | tiles}, Documents(tmp_path)).table, Documents(tmp_path))
    assert made["launch"]["one"]["grid"][0] == "({ACROSS}) * 64", "the format's are put in later"


@pytest.mark.parametrize(
    ("formulas", "launches", "said"),
    [
        (DERIVING.replace("M, {TOKENS}", "M, {TOKENZ}"), LAUNCHES, "{TOKENZ} is no constant of the tile; did you mean TOKENS?"),
        (
            DERIVING.replace('["TILES_{TOKENS}"', '["TILES_{TOKENZ}"'),
            LAUNCHES,
            "launch of one has no TOKENZ, which launch of waves reads; did you mean TOKENS?",
        ),
        (DERIVING, {"hole": LAUNCHES["whole"]}, "there is no 'whole'; did you mean hole?"),
    ],
)
def test_a_word_or_a_launch_that_is_not_there_is_refused(tmp_path, formulas, launches, said):
    with pytest.raises(BuildError) as refused:
        derived(tmp_path, formulas, launches)
    assert said in str(refused.value)


def test_a_launch_with_the_name_of_a_formulas_launch_is_refused(tmp_path):
    launches = LAUNCHES | {"one": {"grid": ["7", "1", "1"]}}
    tiles = [{"name": "one", "cost": "waves", "launch": "whole"}, {"name": "other", "launch": "one", "cost": "7"}]
    with pytest.raises(BuildError, match="there is another of that name"):
        derived(tmp_path, launches=launches, tiles=tiles)


def test_a_file_of_numbers_must_be_named_by_a_path(tmp_path):
    with pytest.raises(BuildError, match="'costs' must be a path"):
        costs(tmp_path, costs=["family/costs/h200.toml"])

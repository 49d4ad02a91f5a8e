"""Costs by the name of a formula: a number nobody measured, or that nobody reads, would be a number that nobody can explain."""

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
    made = with_costs(included({"name": "gemm.fp8b128.dense", "variants": TILES | variants}, documents), documents)
    assert all("costs" not in tile for tile in made["variants"]["tiles"]), "nothing that the manifest's schema does not know is left"
    return [tile.get("cost") for tile in made["variants"]["tiles"]]


def test_a_formula_has_the_numbers_of_its_tile_and_of_the_chip(tmp_path):
    assert costs(tmp_path) == ["2000 + max(((64 + BLOCKS) * 505), N // 4)", "N * 7"]
    assert costs(tmp_path, tiles=[{"name": "two", "cost": "streaming"}, {"name": "one"}]) == ["2000 + ((SPLITS) * 1010) // 4", None]


def test_two_archs_have_numbers_of_their_own(tmp_path):
    """Tiles of one name on two archs: what was measured of one must not become the other's."""
    documents = Documents(tmp_path)
    costs(tmp_path)  # writes the files
    other = {"arch": ["sm_100f"], "tiles": [{"name": "one", "cost": "BLOCKS"}]}
    made = with_costs(included({"name": "gemm.fp8b128.dense", "variants": [TILES, other]}, documents), documents)["variants"]
    assert [(tile["arch"], tile["cost"][:6]) for tile in made["tiles"]] == [
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


def test_a_file_of_numbers_must_be_named_by_a_path(tmp_path):
    with pytest.raises(BuildError, match="'costs' must be a path"):
        costs(tmp_path, costs=["family/costs/h200.toml"])

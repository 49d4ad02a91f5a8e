"""Costs of which every number was measured: what stands in a table, in the file of the GPU and in the manifest is one thing."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from tools.builder.costs import with_costs
from tools.builder.documents import Documents
from tools.builder.include import included
from tools.builder.table import read_tables
from zoo.contract.expressions import Expression

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src_cu"
GPU = "gemm/costs/h200.toml"
TABLE = "gemm.fp8b128.dense"
ONCE = ["t256_once", "t256_once_blocks", "t256_once_never"]  # of products with 4-bit weights
FILES = (GPU, *(f"gemm/costs/h200_four_bit{of}.toml" for of in ("", "_bf16", "_stored_gates", "_bf16_stored_gates")))

# Tiles for sm_90a of tables that name a file of a GPU whose costs are fitted to choices still, so that nobody can say what a number of theirs
# means: docs/lab/fp8_gemm_rules.md. This list only gets shorter. Tiles that decode once, but for one matrix's, are fitted to their own times, by a
# formula that no other tile has: docs/lab/w4a8_choices.md.
FITTED = {
    TABLE: [
        "few8_w64",
        "few8_w64_10_stages",
        "few8_w64_split2",
        "few8_w64_split4",
        "few8_w64_split8",
        "few8_w64_in_turn",
        "few16_w64",
        "few16_w64_4_stages",
        "few16_w64_7_stages",
        "few16_w64_split2",
        "few16_w64_split8",
        "few32_w64",
        "few32_w64_split2",
        "few32_w64_split3",
        "few32_w64_split4",
        "few32_w64_split8",
        "few32_w64_in_turn",
        "few64_w64",
        "few64_w64_shared4",
        "few64_w64_split2_12_stages",
        "few64_w64_split2_shared2",
        "few64_w64_split3",
        "few64_w64_split6",
        "few64_w192",
        "few96_w64",
        "few96_w64_split4",
        "few128_w64",
        "few128_w64_shared4",
        "few128_w64_split2",
        "few128_w64_split3",
        "f32_t128",
        "f32_t192",
        "f32_t256",
        "f32_few8_w64",
        "f32_few8_w64_split4",
        "f32_few32_w64",
        "f32_few32_w64_split4",
        "f32_few64_w64",
        "f32_few64_w64_split3",
        "f32_few128_w64",
    ],
    **{f"gemm.{{format}}.{grouping}": ONCE for grouping in ("dense", "m_grouped_contiguous", "m_grouped_masked")},
}


def tiles_of(path: Path) -> tuple[str, list[dict]]:
    """A table's name, and its tiles that may have a cost by name, as the table says it."""
    table = included(tomllib.loads(path.read_text()), Documents(SOURCES))
    return table["name"], [tile for tile in table.get("variants", {}).get("tiles", []) if "costs" in tile]


def named(tile: dict) -> str:
    """As the manifest calls it."""
    dtype = tile.get("dtypes", {}).get("d")
    return f"{dtype[0]}_{tile['name']}" if dtype else tile["name"]


@pytest.fixture(scope="module")
def formulas():
    return tomllib.loads((SOURCES / "gemm/costs/formulas.toml").read_text())["formula"]


@pytest.fixture(scope="module")
def tables():
    return {table.name: table for table in read_tables(SOURCES)}


def test_a_cost_with_numbers_is_one_that_is_known_to_be_fitted(formulas):
    found = {}
    for path in sorted(SOURCES.glob("*/*.toml")):
        name, tiles = tiles_of(path)
        if fitted := [named(tile) for tile in tiles if tile.get("cost") not in formulas]:
            found[name] = [*found.get(name, []), *fitted]  # tables of FP8 and of bf16 tokens have the same name
    assert found == FITTED


@pytest.mark.parametrize("file", FILES)
def test_every_number_has_an_experiment_and_a_tile_that_reads_it(file, formulas):
    gpu = tomllib.loads((SOURCES / file).read_text())
    chip = gpu.get("chip", {}).keys()
    numbers = {name for tiles in gpu["tile"].values() for tile in tiles.values() for name in tile} | chip
    assert numbers == gpu["experiment"].keys()
    assert all(len(said.split()) >= 5 for said in gpu["experiment"].values()), "in words"
    measured = {}
    for name, tiles in map(tiles_of, SOURCES.glob("*/*.toml")):
        if read := {tile["name"] for tile in tiles if tile["costs"] == file and tile.get("cost") in formulas}:
            measured[name] = read
    found = {table: set(tiles) for table, tiles in gpu["tile"].items()}
    text = (SOURCES / "gemm/costs/formulas.toml").read_text()
    same = {table: found[other] for table, other in tomllib.loads(text)["same"].items() if other in found}
    assert found | same == measured
    assert chip <= set(re.findall(r"\{(\w+)\}", text)), "a number of the chip that no formula reads"


def test_the_manifest_has_the_expressions_that_the_file_makes(tables):
    manifest = json.loads((ROOT / "cubins" / "manifest.json").read_text())["kernels"]
    for name in (
        "gemm.fp8b128.dense",
        *(
            f"gemm.{tokens}_{weights}.{grouping}{ending}"
            for tokens in ("fp8", "bf16")
            for weights in ("nvfp4", "mxfp4")
            for grouping in ("dense", "m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked")
            for ending in ("", ".stored", ".swiglu", ".swiglu_stored", ".swiglu_fp8b128", ".swiglu_fp8b128_stored")
        ),
    ):
        made = {(named(vars(tile)), arch): tile.cost for tile in tables[name].tiles for arch in tile.arch}
        shipped = {(variant["name"], variant["arch"]): variant["cost"] for variant in manifest[name]["variants"]}
        assert shipped == made


@pytest.mark.parametrize("sms", [78, 132])
@pytest.mark.parametrize("tokens", [0, 1, 127, 128, 129, 2**31 - 513])
@pytest.mark.parametrize("width", [0, 8, 2**31 - 520])
@pytest.mark.parametrize(
    ("name", "path", "columns", "groups"),
    [
        (TABLE, "gemm/fp8b128_dense.toml", 64, 0),
        ("gemm.fp8_nvfp4.dense", "gemm/four_bit_dense.toml", 128, 0),
        ("gemm.fp8_nvfp4.m_grouped_contiguous", "gemm/four_bit_contiguous.toml", 128, 1),
        ("gemm.bf16_mxfp4.m_grouped_gather", "gemm/four_bit_bf16_gather.toml", 128, 2**27),
        ("gemm.fp8_mxfp4.dense.swiglu_fp8b128", "gemm/four_bit_dense_swiglu_fp8b128.toml", 128, 0),
        ("gemm.bf16_nvfp4.m_grouped_contiguous.swiglu_stored", "gemm/four_bit_contiguous_swiglu.toml", 128, 2**27),
        ("gemm.fp8_nvfp4.m_grouped_gather.stored", "gemm/four_bit_gather_stored.toml", 128, 1),
        ("gemm.fp8_nvfp4.m_grouped_masked.swiglu_fp8b128", "gemm/four_bit_masked_swiglu_fp8b128.toml", 128, 2**20),
    ],
)
def test_a_cost_is_a_number_of_64_bits_for_every_call_that_is_taken(formulas, tables, name, path, columns, groups, tokens, width, sms):
    """A cost that divided by zero or outgrew 64 bits would refuse a call that its constraints allow."""
    if (-(-tokens // 8) + groups) * -(-width // columns) >= (2**31 - 512 if groups else 2**27) or groups * width >= 2**31 - 512:
        pytest.skip("the table refuses such a D")
    table = tables[name]
    values = {
        "M": tokens,
        "N": width,
        "G": groups,
        "K": 2**31 - 528,
        "sms": sms,
        "R": tokens // max(groups, 1),
        "expected_rows": 0,
        "batch_invariant.no": 1,
        "b_constant.no": 1,
        "b_constant.yes": 0,
        "FOURS": 30,
        "EIGHTS": 13,
        "I": width // 2,
        "Q": width // 2,
        "columns": 0,
        "q_scale.present": 0,
    }
    for derived, text in table.entry["derived"].items() if isinstance(table.entry["derived"], dict) else table.entry["derived"]:
        if derived != "SHARES":
            values[derived] = Expression(text).evaluate({"batch_invariant.yes": 0, **values})
    _, tiles = tiles_of(SOURCES / path)
    measured = {tile["name"] for tile in tiles if tile.get("cost") in formulas}
    for tile in table.tiles:
        if tile.name in measured and tile.arch == ["sm_90a"]:
            assert Expression(tile.cost).evaluate(values | tile.constants) > 0


@pytest.fixture
def measure():
    spec = importlib.util.spec_from_file_location("measure_costs", ROOT / "tools" / "measure_costs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_are_found_again_in_times_that_were_made_of_them(measure, monkeypatch, tmp_path, capsys):
    """And no others move: what is measured of one tile must not become another's, nor the chip's."""
    for part in (
        "gemm/fp8b128_dense.toml",
        GPU,
        "gemm/costs/formulas.toml",
        *(f"gemm/parts/{path.name}" for path in (SOURCES / "gemm/parts").iterdir()),
    ):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_bytes((SOURCES / part).read_bytes())
    before = tomllib.loads((tmp_path / GPU).read_text())
    documents = Documents(tmp_path)
    table = included(tomllib.loads((tmp_path / "gemm/fp8b128_dense.toml").read_text()), documents)
    problems = measure.Problems(with_costs(table, documents), 132)
    (tile,) = (one for one in table["variants"]["tiles"] if one["name"] == "t192" and one.get("cost") == "waves")
    one = measure.Tile(tile, table, measure.Gpu(tile["costs"], documents), documents)
    true = {"block": 700, "end": 900, "warm": 600}
    rows = []
    for m, n in ((192, 384), (2112, 1536), (4224, 3072), (8448, 6144)):
        for blocks in (4, 16, 64):
            values = problems.values(m, n, 128 * blocks) | one.constants
            rows.append(["wave", "t192", m, n, 128 * blocks, "no", one.costs[""].evaluate(values | before["chip"] | true) / 1e3])
    numbers = tmp_path / "numbers.json"
    numbers.write_text(json.dumps({"sms": 132, "rows": rows}))
    monkeypatch.setattr(
        "sys.argv", ["measure_costs.py", str(tmp_path / "gemm/fp8b128_dense.toml"), "--numbers", str(numbers), "--write", "--rounds", "1"]
    )
    assert measure.main() == 0
    after = tomllib.loads((tmp_path / GPU).read_text())
    found = after["tile"][TABLE].pop("t192")
    assert found == pytest.approx(true, rel=0.03)
    before["tile"][TABLE].pop("t192")
    assert after == before
    assert "t192: block" in capsys.readouterr().out


def test_a_tile_that_was_never_near_the_fastest_counts_only_where_it_is_asked_to(measure, monkeypatch, tmp_path, capsys):
    table = included(tomllib.loads((SOURCES / "gemm/four_bit_dense.toml").read_text()), Documents(SOURCES))
    (few64,) = (one for one in table["variants"]["tiles"] if one["name"] == "few64")
    tile = measure.Tile(few64, table, measure.Gpu(few64["costs"], Documents(SOURCES)), Documents(SOURCES))
    problems = measure.Problems(with_costs(table, Documents(SOURCES)), 132)
    true = {name: 2 * number for name, number in tile.numbers.items()}
    sweep = [
        {
            "shape": (64, N, K),
            "options": {},
            "times": {"few32": 1.0, "few64": tile.costs[""].evaluate(problems.values(64, N, K) | tile.constants | true) / 1e3},
        }
        for N in (1024, 16384, 65536)
        for K in (1024, 8192)
    ]
    file = tmp_path / "sweep.json"
    file.write_text(json.dumps(sweep))
    for far, counted in (("0", False), ("0.06", True)):
        monkeypatch.setattr("sys.argv", ["measure_costs.py", str(SOURCES / "gemm/four_bit_dense.toml"), "--sweep", str(file), "--far", far])
        assert measure.main() == 0
        assert ("few64: " in capsys.readouterr().out) == counted


def test_numbers_are_not_looked_for_in_no_times(measure, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["measure_costs.py", str(SOURCES / "gemm/four_bit_dense.toml")])
    with pytest.raises(SystemExit):
        measure.main()
    assert "--numbers or --sweep" in capsys.readouterr().err

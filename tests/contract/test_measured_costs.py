"""Costs: tables name formulas, files of GPUs have the numbers, and each number says which experiment gave it."""

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from tools.builder.costs import manifest_name, with_costs
from tools.builder.documents import Documents
from tools.builder.include import included
from tools.builder.sections import sections
from tools.builder.table import read_tables
from zoo.contract.expressions import Expression

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "src_cu"
PATHS = sorted(SOURCES.glob("**/tables/*.toml"))
TABLE = "gemm.fp8b128.dense"
GPU = "gemm/costs/h200/fp8_product.toml"
FORMULAS = "gemm/costs/formulas.toml"
FILES = sorted(path.relative_to(SOURCES).as_posix() for path in SOURCES.glob("*/costs/**/*.toml") if path.name != "formulas.toml")


def tables_of(path: Path, root: Path = SOURCES) -> list[dict]:
    """The tables of a file, one for each grouping."""
    return [included(one, Documents(root)).table for one in sections(tomllib.loads(path.read_text()))]


def tiles_of(path: Path) -> list[tuple[str, list[dict]]]:
    """The name of each table of a file, and its tiles."""
    return [(table["name"], table["variants"]["tiles"]) for table in tables_of(path)]


def table_named(name: str) -> tuple[Path, dict]:
    """The table of this name with measured costs, and its file. A format in the name may stay open."""
    found = ((path, table) for path in PATHS for table in tables_of(path) if table["name"] == name)
    return next((path, table) for path, table in found if any("/h200" in tile.get("costs", "") for tile in table["variants"]["tiles"]))


@pytest.fixture(scope="module")
def formulas():
    return tomllib.loads((SOURCES / FORMULAS).read_text())["formula"]


@pytest.fixture(scope="module")
def tables():
    return {table.name: table for table in read_tables(SOURCES)}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(SOURCES).as_posix())
def test_no_table_has_an_expression_for_a_cost(path):
    for name, tiles in tiles_of(path):
        for tile in tiles:
            cost = tile.get("cost", "0")
            assert cost == "0" or cost in formulas_of(tile), (
                f"{name}: the cost of {tile['name']} is an expression, not the name of a formula"
            )


def formulas_of(tile: dict) -> dict:
    return tomllib.loads((SOURCES / tomllib.loads((SOURCES / tile["costs"]).read_text())["formulas"]).read_text())["formula"]


@pytest.mark.parametrize("file", FILES)
def test_every_number_has_an_experiment_and_a_tile_that_reads_it(file):
    gpu = tomllib.loads((SOURCES / file).read_text())
    chip = gpu.get("chip", {}).keys()
    numbers = {name for tiles in gpu["tile"].values() for tile in tiles.values() for name in tile} | chip
    text = (SOURCES / gpu["formulas"]).read_text()
    shared, own = tomllib.loads(text).get("experiment", {}), gpu.get("experiment", {})
    assert own.keys() <= numbers <= own.keys() | shared.keys()
    assert all(len(said.split()) >= 5 for said in (*own.values(), *shared.values())), "in words"
    read = {}
    for name, tiles in (one for path in PATHS for one in tiles_of(path)):
        for tile in tiles:
            if tile.get("costs") == file:
                read.setdefault(name, []).append({manifest_name(tile), tile["name"]})
    found = {table: set(tiles) for table, tiles in gpu["tile"].items()}
    same = {table: found[other] for table, other in tomllib.loads(text).get("same", {}).items() if other in found}
    tables = found | same
    assert tables.keys() == read.keys()
    for table, tiles in read.items():
        assert all(tables[table] & names for names in tiles), f"{table}: a tile has no numbers"
        assert found.get(table, set()) <= set().union(*tiles), f"{table}: numbers of a tile that is not in the table"
    assert chip <= set(re.findall(r"\{(\w+)\}", text)), "a number of the chip that no formula reads"


def test_every_formula_has_a_tile(formulas):
    used = {tile["cost"] for path in PATHS for _, tiles in tiles_of(path) for tile in tiles if "cost" in tile}
    assert formulas.keys() <= used


def test_the_manifest_has_the_expressions_that_the_file_makes(tables):
    manifest = json.loads((ROOT / "cubins" / "manifest.json").read_text())["kernels"]
    for name in (
        *(
            f"gemm.fp8b128.{grouping}{ending}"
            for grouping in ("dense", "m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked")
            for ending in ("", ".swiglu", ".swiglu_fp8b128")
        ),
        *(
            f"gemm.{tokens}_{weights}.{grouping}{ending}"
            for tokens in ("fp8", "bf16")
            for weights in ("nvfp4", "mxfp4")
            for grouping in ("dense", "m_grouped_contiguous", "m_grouped_gather", "m_grouped_masked")
            for ending in ("", ".stored", ".swiglu", ".swiglu_stored", ".swiglu_fp8b128", ".swiglu_fp8b128_stored")
        ),
    ):
        made = {(manifest_name(vars(tile)), arch): (tile.cost, tile.numbers) for tile in tables[name].tiles for arch in tile.arch}
        shipped = {(variant["name"], variant["arch"]): (variant["cost"], variant["numbers"]) for variant in manifest[name]["variants"]}
        assert shipped == made


@pytest.mark.parametrize("sms", [78, 132])
@pytest.mark.parametrize("tokens", [0, 1, 127, 128, 129, 2**31 - 513])
@pytest.mark.parametrize("width", [0, 8, 2**31 - 520])
@pytest.mark.parametrize(
    ("name", "columns", "groups"),
    [
        (TABLE, 64, 0),
        ("gemm.fp8b128.dense.swiglu_fp8b128", 128, 0),
        ("gemm.fp8b128.m_grouped_contiguous", 128, 1),
        ("gemm.fp8b128.m_grouped_contiguous.swiglu", 128, 2**20),
        ("gemm.fp8b128.m_grouped_gather.swiglu", 128, 1),
        ("gemm.fp8b128.m_grouped_masked", 64, 2**20),
        ("gemm.fp8_nvfp4.dense", 128, 0),
        ("gemm.fp8_nvfp4.m_grouped_contiguous", 128, 1),
        ("gemm.bf16_mxfp4.m_grouped_gather", 128, 2**27),
        ("gemm.fp8_mxfp4.dense.swiglu_fp8b128", 128, 0),
        ("gemm.bf16_nvfp4.m_grouped_contiguous.swiglu_stored", 128, 2**27),
        ("gemm.fp8_nvfp4.m_grouped_gather.stored", 128, 1),
        ("gemm.fp8_nvfp4.m_grouped_masked.swiglu_fp8b128", 128, 2**20),
    ],
)
def test_a_cost_is_a_number_of_64_bits_for_every_call_that_is_taken(formulas, tables, name, columns, groups, tokens, width, sms):
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
        "offsets.present": 1,
        "workspace.present": 1,
        "gates.interleaved": 0,
        "FOURS": 30,
        "EIGHTS": 13,
        "I": width // 2,
        "K_CHUNKS": (2**31 - 528) // 64,
        "TILES_OF_B": -(-width // 64),
        "columns": 0,
        "q_scale.present": 0,
        **dict.fromkeys(("a_stride", "d_stride"), 1),
        **dict.fromkeys(("a_group", "d_group"), max(tokens // max(groups, 1), 1)),
    }
    for derived, text in table.entry["derived"].items() if isinstance(table.entry["derived"], dict) else table.entry["derived"]:
        if derived != "SHARES":
            values[derived] = Expression(text).evaluate({"batch_invariant.yes": 0, **values})
    measured = {tile["name"] for _, tiles in tiles_of(table.path) for tile in tiles if tile.get("cost") in formulas}
    for tile in table.tiles:
        if tile.name in measured and tile.arch == ["sm_90a"]:
            for numbers in (tile.numbers, dict.fromkeys(tile.numbers, 1)):  # another chip's may be as small
                assert Expression(tile.cost).evaluate(values | tile.constants | numbers) >= 0


@pytest.fixture
def measure():
    spec = importlib.util.spec_from_file_location("measure_costs", ROOT / "tools" / "measure_costs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_numbers_are_found_again_in_times_that_were_made_of_them(measure, monkeypatch, tmp_path, capsys):
    """And no others move: what is measured of one tile must not become another's, nor the chip's."""
    path, table = table_named(TABLE)
    file = tmp_path / path.relative_to(SOURCES)
    (tmp_path / "common").mkdir()  # names the root of the tables
    included_files = {name for one in sections(tomllib.loads(path.read_text())) for name in one.get("include", [])}
    for part in (path.relative_to(SOURCES).as_posix(), FORMULAS, *FILES, *sorted(included_files)):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / part).write_bytes((SOURCES / part).read_bytes())
    before = tomllib.loads((tmp_path / GPU).read_text())
    documents = Documents(tmp_path)
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
        "sys.argv", ["measure_costs.py", str(file), "--grouping", "dense", "--numbers", str(numbers), "--write", "--rounds", "1"]
    )
    assert measure.main() == 0
    after = tomllib.loads((tmp_path / GPU).read_text())
    found = after["tile"][TABLE].pop("t192")
    assert found == pytest.approx(true, rel=0.03)
    before["tile"][TABLE].pop("t192")
    assert after == before
    assert "t192: block" in capsys.readouterr().out


def test_a_tile_that_was_never_near_the_fastest_counts_only_where_it_is_asked_to(measure, monkeypatch, tmp_path, capsys):
    path, table = table_named("gemm.{OF}.dense")
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
        monkeypatch.setattr("sys.argv", ["measure_costs.py", str(path), "--grouping", "dense", "--sweep", str(file), "--far", far])
        assert measure.main() == 0
        assert ("few64: " in capsys.readouterr().out) == counted


def test_numbers_are_not_looked_for_in_no_times(measure, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["measure_costs.py", str(PATHS[0])])
    with pytest.raises(SystemExit):
        measure.main()
    assert "--numbers or --sweep" in capsys.readouterr().err

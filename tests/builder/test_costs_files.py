"""Files of costs and of times that are not what they must be: a sentence that names the file and the key, and no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builder.test_costs import FORMULAS, GPU, TILES, costs
from tools.builder import BuildError
from tools.builder.costs import refuse_unread, with_costs
from tools.builder.documents import Documents
from tools.builder.include import included

ROOT = Path(__file__).resolve().parents[2]
OF_A_GPU = {
    "a number that is a text": (
        "memory = 4",
        'memory = "4"',
        "h200.toml: chip.memory is '4', expected a whole number that is not negative",
    ),
    "a number that is true": ("memory = 4", "memory = true", "chip.memory is True, expected a whole number"),
    "a number below zero": ("block = 505", "block = -505", "tile.gemm.fp8b128.dense.one.block is -505, expected a whole number"),
    "a tile that is a number": ("one = { block = 505 }", "one = 505", "tile.gemm.fp8b128.dense.one is 505, expected a table"),
    "a chip that is a list": ("[chip]\nstart = 2000\nmemory = 4", "[[chip]]", "chip is [{}], expected a table"),
    "an experiment that is a number": ('start = "an empty product"', "start = 1", "experiment.start is 1, expected a text"),
    "formulas that are no path": ('formulas = "family/costs/formulas.toml"', "formulas = 3", "formulas is 3, expected a text"),
    "no formulas": ('formulas = "family/costs/formulas.toml"', "", "h200.toml: does not name its file of formulas"),
    "a misspelt section": ("[chip]", "[chips]", "has the unknown key 'chips'; did you mean chip?"),
    "a section that nobody reads": (
        "[chip]",
        "[notes]\na = 1\n[chip]",
        "has the unknown key 'notes'; known here: formulas, experiment, chip, tile",
    ),
}
OF_FORMULAS = {
    "a cost that is a number": (
        'cost = "{start} + max({compute}, N // {memory})"',
        "cost = 3",
        "formulas.toml: formula.waves.cost is 3, expected a text",
    ),
    "a formula without a cost": ('cost = "{start} + max({compute}, N // {memory})"\n', "", "formulas.toml: formula.waves has no cost"),
    "a formula that is a text": ("[part]", '[formula]\nodd = "N"\n[part]', "formulas.toml: "),
    "a part that is a list": ('compute = "{all} * {block}"', "compute = [1]", "part.compute is [1], expected a text"),
    "derives that are a text": ('all = "SPLITS"', 'all = "SPLITS"\nderives = "N"', "formula.streaming.derives is 'N', expected a table"),
    "a launch of numbers": (
        'all = "SPLITS"',
        'all = "SPLITS"\nlaunch = { grid = [1] }',
        "formula.streaming.launch.grid[0] is 1, expected a text",
    ),
    "a misspelt section": ("[part]", "[parts]", "has the unknown key 'parts'; did you mean part or rates?"),
}


@pytest.mark.parametrize("what", OF_A_GPU)
def test_a_file_of_a_gpu_that_is_not_what_it_must_be_is_refused(what, tmp_path):
    old, new, words = OF_A_GPU[what]
    assert old in GPU
    with pytest.raises(BuildError) as refused:
        costs(tmp_path, gpu=GPU.replace(old, new))
    assert words in str(refused.value)


@pytest.mark.parametrize("what", OF_FORMULAS)
def test_a_file_of_formulas_that_is_not_what_it_must_be_is_refused(what, tmp_path):
    old, new, words = OF_FORMULAS[what]
    assert old in FORMULAS
    with pytest.raises(BuildError) as refused:
        costs(tmp_path, formulas=FORMULAS.replace(old, new))
    assert words in str(refused.value)


UNREAD = {
    "a number of the chip": ("memory = 4", "memory = 4\nblock = 3", "family/costs/h200.toml: no cost reads block of [chip]; remove it"),
    "a tile": (
        "one = {",
        "three = { block = 1 }\none = {",
        "no tile of gemm.fp8b128.dense that has its costs here is named three; remove it",
    ),
    "a table": (
        "[tile.",
        '[tile."gemm.fp8b128.sparse"]\none = { block = 1 }\n[tile.',
        "no tile of gemm.fp8b128.sparse that has its costs here is named one",
    ),
}


@pytest.mark.parametrize("what", UNREAD)
def test_a_number_that_no_cost_reads_is_refused(what, tmp_path):
    old, new, words = UNREAD[what]
    tiles = [{"name": "one", "cost": "waves"}, {"name": "two", "cost": "waves"}]

    def read(gpu: str) -> None:
        costs(tmp_path, gpu=gpu, tiles=[])  # writes the files
        documents = Documents(tmp_path)
        with_costs(included({"name": "gemm.fp8b128.dense", "variants": TILES | {"tiles": tiles}}, documents).table, documents)
        refuse_unread(documents)

    read(GPU)
    with pytest.raises(BuildError) as refused:
        read(GPU.replace(old, new, 1))
    assert words in str(refused.value)


def refused_by(tool: str, *words: object) -> str:
    ran = subprocess.run([sys.executable, ROOT / "tools" / tool, *map(str, words)], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and "Traceback" not in ran.stderr, ran.stderr
    return ran.stderr.splitlines()[-1]


TABLE = ROOT / "src_cu/gemm/hopper_fp8/tables/product.toml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file or directory"),
        (b"not JSON", "not JSON; it must be a file that a program in tools/lab has written"),
        (b"\xff", "not JSON"),
        (b"3", "not a list of results"),
        (b"[3]", "not a list of results"),
        (b"[{}]", "a result has no '"),
    ],
)
def test_a_sweep_that_cannot_be_read_is_told_in_a_sentence(text, words, tmp_path):
    sweep = tmp_path / "sweep.json"
    if text is not None:
        sweep.write_bytes(text)
    for said in (refused_by("regret.py", sweep), refused_by("measure_costs.py", TABLE, "--sweep", sweep)):
        assert str(sweep) in said and words in said


def test_what_costs_cannot_be_measured_of_is_told_in_a_sentence(tmp_path):
    numbers = tmp_path / "numbers.json"
    assert "No such file or directory" in refused_by("measure_costs.py", tmp_path / "none.toml", "--numbers", numbers)
    assert "No such file or directory" in refused_by("measure_costs.py", TABLE, "--numbers", numbers)
    numbers.write_text(json.dumps({"rows": []}))
    assert "has no 'sms' and 'rows'" in refused_by("measure_costs.py", TABLE, "--numbers", numbers)
    numbers.write_text(json.dumps({"rows": [], "sms": 132}))
    assert "no table of the grouping none" in refused_by("measure_costs.py", TABLE, "--grouping", "none", "--numbers", numbers)
    assert "no file gemm/none.toml" in refused_by("measure_costs.py", TABLE, "--costs", "gemm/none.toml", "--numbers", numbers)
    (tmp_path / "odd.toml").write_text("name = ")
    assert "not TOML" in refused_by("measure_costs.py", tmp_path / "odd.toml", "--numbers", numbers)
    (tmp_path / "odd.toml").write_text('name = "gemm.fp8b128.dense"')
    assert "has a folder `common`" in refused_by("measure_costs.py", tmp_path / "odd.toml", "--numbers", numbers)
    (tmp_path / "common").mkdir()
    assert "names a file of costs" in refused_by("measure_costs.py", tmp_path / "odd.toml", "--numbers", numbers)

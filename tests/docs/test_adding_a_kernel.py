"""docs/adding_a_kernel.md: its kernel builds and is right, and each example of the language changes its table into another one that builds."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.builder.build_trees import ROOT, needs_nvcc, run_build
from tools.builder.expand import expand
from tools.builder.scope import check_scope
from tools.builder.table import Table, read_tables

PAGE = (ROOT / "docs/adding_a_kernel.md").read_text()
BLOCK = re.compile(r"^```(toml|c\+\+|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"(?:#|//) my_kernels/(\S+)\n")
TABLE, CHECK = "scale_rows/tables/scale_rows.toml", "scale_rows/check.py"
HOW_IT_WORKS = (ROOT / "docs/how_it_works.md").read_text()
BEGINNING, LANGUAGE = PAGE.split("## The language of tables")
EXAMPLES = dict(re.findall(r"^### (.*?)\n(.*?)(?=^### |\Z)", LANGUAGE, re.MULTILINE | re.DOTALL))


def files_of(text: str) -> dict[str, str]:
    """The files that a text shows, by their paths in my_kernels."""
    return {found[1]: block[found.end() :] for _, block in BLOCK.findall(text) if (found := PATH.match(block))}


def changes_of(text: str) -> list[dict[str, Any]]:
    """What a text says of the table, in blocks that are no files."""
    return [tomllib.loads(block) for language, block in BLOCK.findall(text) if language == "toml" and not PATH.match(block)]


def toml(value: Any) -> str:
    """A value in TOML; tables are inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@needs_nvcc
def test_the_kernel_builds_and_its_program_finds_it_right(tmp_path):
    files = files_of(BEGINNING)
    assert files.keys() == {"names.toml", TABLE, "scale_rows/kernels/scale_rows.cu", CHECK}
    run_build("--source", written(tmp_path / "my_kernels", files), "--output", tmp_path / "my_cubins", "--arch", "sm_90a")
    check = [sys.executable, f"my_kernels/{CHECK}"]
    subprocess.run(check, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)

    shown = json.loads("{" + next(block for block in re.findall(r"```json\n(.*?)```", HOW_IT_WORKS, re.DOTALL)) + "}")
    assert_part_of(shown, json.loads((tmp_path / "my_cubins/manifest.json").read_text())["kernels"])


def assert_part_of(shown: Any, whole: Any) -> None:
    """What docs/how_it_works.md shows of the manifest's entry is what the build writes; lists may be shown in part."""
    if isinstance(shown, dict):
        assert shown.keys() <= whole.keys()
        for name, value in shown.items():
            assert_part_of(value, whole[name])
    elif isinstance(shown, list):
        for one, other in zip(shown, whole, strict=False):
            assert_part_of(one, other)
    else:
        assert shown == whole


@needs_nvcc
def test_a_check_of_a_wrong_kernel_fails(tmp_path):
    """The factor is left out for each second column."""
    files = files_of(BEGINNING)
    wrong = files | {"scale_rows/kernels/scale_rows.cu": files["scale_rows/kernels/scale_rows.cu"].replace("two.y * scale", "two.y")}
    run_build("--source", written(tmp_path / "my_kernels", wrong), "--output", tmp_path / "my_cubins", "--arch", "sm_90a")
    done = subprocess.run(
        [sys.executable, f"my_kernels/{CHECK}"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 1 and "AssertionError: (1, 2, 't256')" in done.stderr


def test_zoo_new_kernel_writes_what_the_page_shows(tmp_path):
    command = [sys.executable, "-m", "zoo", "new-kernel", "scale_rows.bf16"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    root = tmp_path / "my_kernels"
    assert {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()} == files_of(BEGINNING)


def tables_of(folder: Path, example: str) -> list[Table]:
    """Those of the page's table, in which each section of an example replaces the one with the same heading."""
    files = files_of(BEGINNING)
    changed = tomllib.loads(files[TABLE])
    for change in changes_of(EXAMPLES[example]):
        for name, value in change.items():
            sections = isinstance(value, dict) and all(isinstance(one, dict) for one in value.values())
            changed[name] = {**changed.get(name, {}), **value} if sections else value
    lines = "".join(f"{name} = {toml(value)}\n" for name, value in changed.items())
    tables = read_tables(written(folder, {**files, **files_of(EXAMPLES[example]), TABLE: lines}), ROOT / "src_cu")
    for table in tables:
        check_scope(table)
        expand(table)
    return tables


NAMES = {
    "Formats and words": ["scale_rows.fp8b128", "scale_rows.mxfp8"],
    "Groupings": ["scale_rows.bf16.dense", "scale_rows.bf16.m_grouped_masked"],
}


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_language_is_a_table(tmp_path, example):
    assert changes_of(EXAMPLES[example]), "no example"
    tables = tables_of(tmp_path, example)
    assert [table.name for table in tables] == NAMES.get(example, ["scale_rows.bf16"])


def test_costs_by_a_formula_are_expressions(tmp_path):
    (table,) = tables_of(tmp_path, "Formulas")
    assert [(tile.cost, tile.numbers) for tile in table.tiles] == [
        ("start + (ceil_div(N, 2 * 256)) * turn", {"start": 1400, "turn": 300}),
        ("start + (ceil_div(N, 2 * 32)) * turn", {"start": 1400, "turn": 100}),
    ]

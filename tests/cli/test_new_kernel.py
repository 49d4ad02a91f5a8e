"""`zoo new-kernel` writes a kernel that builds and is right before anything is edited, and never writes over anything."""

import json
import os
import subprocess
import sys

import pytest

from tests.builder.build_trees import ROOT, needs_nvcc, run_build
from tests.docs.test_adding_a_kernel import BEGINNING, files_of


@pytest.fixture
def made(zoo_command, tmp_path):
    def make(name):
        return zoo_command("new-kernel", name, "--into", tmp_path / "my_kernels")

    return make


@needs_nvcc
def test_a_new_kernel_builds_and_passes_and_two_share_a_tree(made, tmp_path):
    """Built for both archs; the check runs in the emulator, and finds a kernel that is wrong."""
    for name in ("twice.bf16", "thrice.mxfp8"):
        assert made(name).exit_code == 0
    run_build("--source", tmp_path / "my_kernels", "--output", tmp_path / "my_cubins")
    assert set(json.loads((tmp_path / "my_cubins/manifest.json").read_text())["kernels"]) == {"twice.bf16", "thrice.mxfp8"}

    def check(op):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, f"my_kernels/{op}/check.py"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    for op in ("twice", "thrice"):
        assert check(op).returncode == 0, check(op).stderr
    source = tmp_path / "my_kernels/twice/kernels/twice.cu"
    source.write_text(source.read_text().replace("two.x * scale", "two.x + scale"))
    run_build("--source", tmp_path / "my_kernels", "--output", tmp_path / "my_cubins")
    assert "AssertionError" in check("twice").stderr and check("thrice").returncode == 0


def test_its_files_are_those_of_the_page(made, tmp_path):
    assert made("scale_rows.bf16").exit_code == 0
    tree = tmp_path / "my_kernels"
    written = {str(path.relative_to(tree)): path.read_text() for path in tree.rglob("*") if path.is_file()}
    assert written == files_of(BEGINNING)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("twice", "has two words"),
        ("a.b.c", "has two words"),
        ("Twice.bf16", "has two words"),
        ("../x.bf16", "a word has small letters, digits and _, and begins with a letter"),
        ("gemm.bf16", "'gemm' is a word of zoo's own names"),
        ("rows.bf16", "'rows' is a word of zoo's own names"),
        ("twice.dense", "'dense' is no format"),
        ("twice.twice", "'twice' is no format"),
    ],
)
def test_a_name_that_the_build_would_refuse_is_refused_before_anything_is_written(made, tmp_path, name, words):
    result = made(name)
    assert result.exit_code == 2 and words in " ".join(result.output.split()) and not (tmp_path / "my_kernels").exists()


def test_nothing_is_written_over(made, tmp_path):
    made("twice.bf16")
    before = {path: path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()}
    result = made("twice.fp8b128")
    assert result.exit_code == 1 and "is there already: new-kernel overwrites no file" in result.output
    assert {path: path.read_text() for path in tmp_path.rglob("*.*") if path.is_file()} == before


def test_words_that_a_tree_has_stay(made, tmp_path):
    (tmp_path / "my_kernels").mkdir()
    (tmp_path / "my_kernels/names.toml").write_text('op = ["other"]\nextra = ["fast"]\n')
    made("twice.fp8b128")
    assert (tmp_path / "my_kernels/names.toml").read_text() == 'op = ["other", "twice"]\nextra = ["fast"]\n'


def test_comments_of_a_tree_stay(made, tmp_path):
    names = tmp_path / "my_kernels/names.toml"
    names.parent.mkdir()
    names.write_text('# ours\nop = [\n    "other",  # of last year\n    "more",\n]\nextra = ["fast"]  # tiles\n')
    assert made("twice.fp8b128").exit_code == 0
    assert names.read_text() == '# ours\nop = [\n    "other",  # of last year\n    "more", "twice"\n]\nextra = ["fast"]  # tiles\n'


def test_a_list_that_cannot_be_added_to_is_refused_with_the_line_to_write(made, tmp_path):
    names = tmp_path / "my_kernels/names.toml"
    names.parent.mkdir()
    names.write_text('op = [\n    "other"  # ]\n]\n')
    result = made("twice.fp8b128")
    assert result.exit_code == 1 and 'write op = ["other", "twice"] into it first' in " ".join(result.output.split())
    assert names.read_text() == 'op = [\n    "other"  # ]\n]\n' and not (tmp_path / "my_kernels/twice").exists()

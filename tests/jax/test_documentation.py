"""What docs/jax.md shows runs and prints what it says it prints; so does the example."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys

import pytest

from tests.docs.test_documentation import DOCS, blocks
from tests.recorder import ROOT

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")

PROGRAMS = blocks(DOCS / "jax.md", "python")


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_prints_what_the_page_says(number, device):
    said = re.findall(r"^ *print\(.*\)  # (.*)$", PROGRAMS[number], re.MULTILINE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(PROGRAMS[number], f"docs/jax.md, program {number}", "exec"), {"__name__": "__main__"})
    assert said, "the program shows nothing"
    for line, words in zip(printed.getvalue().splitlines(), said, strict=True):
        assert line == words or words.startswith(f"{line}: ")


def test_the_example_is_as_near_to_float32_as_eight_bits_are(device):
    path = ROOT / "examples" / "jax_mixture_of_experts.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert 0.01 < example.main() < 0.08


def test_zoo_is_imported_without_jax():
    program = "import sys, zoo; zoo.find; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_without_jax_the_import_says_what_to_install(tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('No module named jax')\n")
    run = subprocess.run(
        [sys.executable, "-c", "import zoo.jax"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True, text=True,
    )  # fmt: skip
    assert "zoo.jax works inside JAX, which is not installed here; pip install jax" in run.stderr

"""tools/deep_gemm_tests.py on a checkout of a few lines: every case is counted, a failure hides no other, and a lack is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.docs.test_documentation import DOCS, programs_of
from tests.recorder import ROOT

FILES = {
    "deep_gemm/testing/__init__.py": "def calc_diff(x, y): return float((x - y).abs().max())\n",
    "deep_gemm/utils/math.py": "def per_token_cast_to_fp4(x): return 'theirs'\ndef per_token_cast_to_fp8(x): raise AssertionError\n",
    "tests/generators.py": "def enumerate_normal(dtype):\n    yield from (1, 2, 3)\ndef enumerate_nothing(): yield from ()\n",
    "tests/test_products.py": """
import torch
import deep_gemm
from deep_gemm.testing import calc_diff
from deep_gemm.utils import per_token_cast_to_fp4, per_token_cast_to_fp8, per_block_cast_to_fp8
from generators import enumerate_normal, enumerate_nothing

def test_gemm():
    for m in enumerate_normal(torch.float32):
        assert per_token_cast_to_fp4(None) == "theirs"
        d = torch.empty(m, 8)
        ones = torch.ones(m, 128), torch.ones(8, 128)
        deep_gemm.fp8_fp4_gemm_nt(per_token_cast_to_fp8(ones[0], False), per_block_cast_to_fp8(ones[1], False), d)
        bench = lambda: deep_gemm.cublaslt_gemm_nt(d)
        assert m != 2 and calc_diff(d, torch.full_like(d, 128.0)) < 0.1, f"{m=}"

def test_none():
    print(" > Skipped (not on this GPU)")
    for _ in enumerate_nothing():
        pass

def test_lacking():
    deep_gemm.einsum("bhr,hdr->bhd")

def test_named_at_run_time():
    for m in enumerate_normal(torch.float32):
        getattr(deep_gemm, f"bf16_gemm_{'n' + 't'}")(m)
""",
}


def test_cases_are_counted_one_by_one(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    made = tmp_path / "made.json"
    done = subprocess.run(
        [sys.executable, "tools/deep_gemm_tests.py", str(tmp_path), "--json", str(made)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    found = {one["test"].partition("::")[2]: one for one in json.loads(made.read_text())["tests"]}
    assert (found["test_gemm"]["passed"], found["test_gemm"]["cases"]) == (2, 3) and "m=2" in found["test_gemm"]["failures"][0]
    assert found["test_none"]["cases"] == 0 and "Skipped" in found["test_none"]["lacks"]
    assert found["test_lacking"]["lacks"] == "zoo has no einsum"
    assert found["test_named_at_run_time"]["lacks"] == "zoo has no bf16_gemm_nt" and not found["test_named_at_run_time"]["failures"]
    assert "| `test_products.py::test_gemm` | 2 of 3 |" in done.stdout


def test_a_folder_that_is_no_checkout_is_refused_in_a_sentence(tmp_path):
    done = subprocess.run([sys.executable, "tools/deep_gemm_tests.py", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "give the folder of its clone" in done.stderr


@pytest.mark.parametrize("program", programs_of(DOCS / "deep_gemm.md"))
def test_the_program_of_the_page_runs_after_the_install_of_the_page(program):
    program = f"from zoo.compat.deep_gemm import finder\nfinder.provide()\n{program}"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})

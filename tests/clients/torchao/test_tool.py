"""tools/clients/torchao_tests.py on a small stand-in of a checkout: failures fail, skipped tests have reasons, and foreign functions are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")

from tests.recorder import ROOT
from tools.clients.torchao_tests import BACKEND, TESTS

CAPABILITIES = """
from types import SimpleNamespace
import deep_gemm

def _get_deepgemm_capabilities():
    return SimpleNamespace(module=deep_gemm, m_grouped_gemm={m_grouped}, k_grouped_gemm=deep_gemm.k_grouped_fp8_gemm_nt_contiguous)
"""
SUITE = """
import deep_gemm, pytest

def test_names():
    assert deep_gemm.__version__.count("+zoo")

@pytest.mark.parametrize("one", [1, 2])
def test_gpu(one):
    pytest.skip("needs a GPU")

def test_last():
    assert {last}
"""


def run(folder, last="True", m_grouped="deep_gemm.m_grouped_fp8_gemm_nt_contiguous"):
    backend = folder.joinpath(*BACKEND.split(".")).with_suffix(".py")
    for file, text in ((backend, CAPABILITIES.format(m_grouped=m_grouped)), (folder / TESTS, SUITE.format(last=last))):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [sys.executable, ROOT / "tools/clients/torchao_tests.py", folder, "--version", "1a2b", "--record", folder / "seen.json"]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    return found, json.loads((folder / "seen.json").read_text())


def test_what_passed_and_what_did_not_run_is_recorded(tmp_path):
    found, (seen,) = run(tmp_path)
    assert found.returncode == 0 and "m_grouped_gemm: zoo.compat.deep_gemm" in found.stdout
    assert "| `test_gpu` | 0 | 0 | 2: needs a GPU |" in found.stdout
    assert (seen["client"], seen["version"], seen["passed"], seen["failed"], seen["lacks"]) == ("torchao", "1a2b", 2, 0, {"needs a GPU": 2})


def test_a_failure_fails(tmp_path):
    found, (seen,) = run(tmp_path, last="2 == 3")
    assert found.returncode == 1 and (seen["passed"], seen["failed"]) == (1, 1) and "| `test_last` | 0 | 1 | " in found.stdout


def test_a_function_that_is_not_zoos_fails(tmp_path):
    assert run(tmp_path, m_grouped="lambda *given: None")[0].returncode == 1


def test_a_folder_without_the_tests_is_refused(tmp_path):
    command = [sys.executable, ROOT / "tools/clients/torchao_tests.py", tmp_path]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 2 and "expected a clone of torchao" in found.stderr

"""The programs of docs/clients.md that need transformers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

from tests.docs.test_documentation import DOCS, programs_of
from tests.recorder import ROOT


def test_the_program_of_the_page_runs():
    (program,) = (text for text in programs_of(DOCS / "clients.md") if "import zoo.transformers" in text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    for word in ("ZooConfig                    on", "format=fp8b128, frozen", "Experts(", "tensor([["):
        assert word in run.stdout

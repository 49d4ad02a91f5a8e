"""Every program of the documentation that uses zoo.torch runs, with real torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.docs.test_documentation import DOCS, PAGES, programs_of
from tests.recorder import ROOT

PROGRAMS = [
    pytest.param(text, id=f"{page.name}-{index}")
    for page in PAGES
    for index, text in enumerate(programs_of(page))
    if page.name == "torch.md" or "import zoo.torch" in text
]


def test_the_pages_have_programs():
    assert len(programs_of(DOCS / "torch.md")) >= 5 and len(PROGRAMS) > len(programs_of(DOCS / "torch.md"))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_a_page_runs(program):
    if "safetensors" in program or "zt.save" in program:
        pytest.importorskip("safetensors")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]

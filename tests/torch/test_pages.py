"""docs/torch.md: each of its programs runs, with real torch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "torch.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_page_has_programs():
    assert len(PROGRAMS) >= 6


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(program):
    if "safetensors" in program or "zt.save" in program:
        pytest.importorskip("safetensors")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]

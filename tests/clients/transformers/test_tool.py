"""tools/clients/transformers_models.py, which a GPU runs at full size, with small models."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install 'cubin-zoo[transformers]'")

from tests.recorder import ROOT  # noqa: E402


def test_small_models_are_within_their_limits_and_recorded(tmp_path):
    command = [sys.executable, ROOT / "tools/clients/transformers_models.py", "--tiny", "--record", tmp_path / "seen.json"]
    found = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert found.stdout.count("all layers within their limits") == 3 and "zoo Experts" in found.stdout
    (seen,) = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["version"], seen["passed"], seen["failed"]) == (transformers.__version__, 3, 0)

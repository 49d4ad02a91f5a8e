"""AOTInductor: a compiled package finds zoo's operators in the program that loads it, if that has registered them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import zoo.torch  # noqa: F401

ROOT = Path(__file__).parents[2]
LOADS = """
import sys, torch, zoo.torch
if "registered" in sys.argv:
    zoo.torch.register("quantize.mxfp8.rows", "dequantize.mxfp8.rows")
model = torch._inductor.aoti_load_package(sys.argv[1])
print(bool((model(torch.ones(16, 256, dtype=torch.bfloat16)) == 2).all()))
"""


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, scales = torch.ops.zoo.quantize_mxfp8_rows(x)
        return torch.ops.zoo.dequantize_mxfp8_rows(q, scales) * 2


@pytest.mark.skipif(shutil.which("c++") is None, reason="AOTInductor compiles with a C++ compiler")
@pytest.mark.skipif(torch.__version__ < "2.7", reason="torch 2.6 loads the package and fails when it runs; docs/torch.md says how")
def test_a_package_runs_where_its_operators_are_registered_and_is_refused_where_not(tmp_path):
    program = torch.export.export(Doubled(), (torch.ones(16, 256, dtype=torch.bfloat16),))
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "model.pt2"))

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", LOADS, package, *more], cwd=ROOT, capture_output=True, text=True, check=False)

    assert run("registered").stdout.strip() == "True"
    assert "Could not find schema for zoo::" in run().stderr

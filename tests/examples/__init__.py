"""Runs the examples as a user starts them, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recorder import ROOT
from zoo.runtime import driver

EXAMPLES = ROOT / "examples"
DEVICES = ["host", pytest.param("gpu", marks=pytest.mark.gpu)]


def environment(device: str) -> dict[str, str]:
    """Of a program that runs on the GPU, or on the host although there may be a GPU."""
    found = {**os.environ, "PYTHONPATH": str(ROOT)}
    return found if device == "gpu" else found | {"CUDA_VISIBLE_DEVICES": ""}


def needs_hopper() -> None:
    if driver.device(0).capability[0] != 9:
        pytest.skip("the kernels of this example are Hopper's")


def run_example(name: str, device: str, *launcher: str) -> list[str]:
    """The lines that it prints. launcher: a program of Python that starts it, with its options."""
    command: list[str | Path] = [sys.executable, *launcher, EXAMPLES / name]
    done = subprocess.run(command, env=environment(device), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return done.stdout.splitlines()


def percentages(lines: list[str]) -> list[float]:
    """Of the lines that end in one."""
    return [float(line.split()[-2]) for line in lines if line.endswith(" %")]

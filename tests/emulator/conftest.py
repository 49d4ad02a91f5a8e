"""What the emulator's tests share: the compiler of the proof kernels, and how many schedules to try."""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "kernels"))
sys.path.insert(0, str(Path(__file__).parent / "mutants"))

from proof_compiler import NO_NVCC, Compiler, find_nvcc

# Random schedules per proof kernel. The full proof is 20: ZOO_EMULATOR_SCHEDULES=20 pytest tests/emulator/test_kernels.py
SCHEDULES = int(os.environ.get("ZOO_EMULATOR_SCHEDULES", "2"))


def pytest_generate_tests(metafunc):
    if "schedule_seed" in metafunc.fixturenames:
        metafunc.parametrize("schedule_seed", range(SCHEDULES))


@pytest.fixture(scope="session")
def compiler(folder_of_the_run):
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip(NO_NVCC)
    folder = folder_of_the_run / "proof kernels"
    folder.mkdir(exist_ok=True)
    return Compiler(nvcc, folder)


@pytest.fixture(scope="session")
def compile_ptx(compiler):
    """compile_ptx(path, arch) -> PTX text; every source is compiled once per session."""
    return compiler.ptx

"""The examples that need no framework do what examples/README.md says, and no example is missing there or too long to read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.builder.build_trees import needs_nvcc, run_build
from tests.examples import DEVICES, EXAMPLES, environment, needs_hopper, percentages, run_example
from tests.recorder import ROOT, build, program

README = (EXAMPLES / "README.md").read_text()
SOURCES = [path for path in sorted(EXAMPLES.rglob("*.*")) if path.suffix in {".py", ".cpp", ".cu", ".toml"} and "package" not in path.parts]
CHECK = "own_kernel/rms_norm/check.py"
LAUNCHES = 8 * 4 * 3  # of the decode loop: steps, layers, kernels of a layer


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_an_example_is_read_at_a_glance(source):
    assert len(source.read_text().splitlines()) < 80


def test_every_example_is_listed_with_a_command_and_no_command_names_a_file_that_is_gone():
    linked = {Path(target).parts[0] for target in re.findall(r"\]\(([\w/]+\.\w+)\)", README)}
    started = [Path(path) for path in re.findall(r"(?:python |--nproc-per-node \d |-C |--source )(\S+?)[` ]", README)]
    assert linked == {source.relative_to(EXAMPLES).parts[0] for source in SOURCES}
    assert linked == {path.parts[1] for path in started if path.parts[0] == "examples"}
    assert not [path for path in started if not (ROOT / path).exists()]
    assert not [target for target in re.findall(r"\]\(([^)#]+)", README) if not (EXAMPLES / target).exists()]


@pytest.mark.parametrize("device", DEVICES)
def test_a_gemm_on_numpy_arrays_is_as_near_to_float32_as_eight_bits_are(device):
    errors = percentages(run_example("numpy_gemm.py", device))
    assert len(errors) == 3 and all(2 < error < 5 for error in errors)


@pytest.fixture(scope="module")
def decode_loop(tmp_path_factory) -> Path:
    if shutil.which("c++") is None or shutil.which("make") is None:
        pytest.skip("needs a C++ compiler and make")
    work = tmp_path_factory.mktemp("decode_loop")
    for name in ("main.cpp", "Makefile"):
        shutil.copy(EXAMPLES / "decode_loop" / name, work)
    command = work / "bin" / "zoo"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m zoo "$@"\n')
    command.chmod(0o755)
    settings = environment("host") | {"PATH": f"{command.parent}:{os.environ['PATH']}", "CXX": "c++ -Wpedantic -Werror"}
    subprocess.run(["make", "-s", "-j2"], cwd=work, env=settings, check=True)
    return work / "main"


def test_without_a_gpu_the_decode_loop_plans_every_kernel_of_every_layer(decode_loop):
    done = subprocess.run([decode_loop], env=environment("host"), capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, len(lines)) == (0, "", LAUNCHES // 8)
    assert [line.partition("__")[0] for line in lines[:3]] == [
        "quantize_fp8b128_rows", "gemm_fp8b128_dense_swiglu_fp8b128", "gemm_fp8b128_dense",
    ]  # fmt: skip


def test_the_decode_loop_enqueues_its_plans_in_each_step_and_notices_that_nothing_was_computed(decode_loop, tmp_path):
    run = program(build(tmp_path), [decode_loop], check=False)
    assert (run.faults, run.stderr, run.returncode, len(run.launches)) == ([], "", 1, LAUNCHES)


@pytest.mark.gpu
def test_the_decode_loop_computes_what_the_host_does(decode_loop):
    needs_hopper()
    done = subprocess.run([decode_loop], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("step ") == 8, done.stdout + done.stderr


@needs_nvcc
def test_ones_own_kernel_builds_and_its_check_finds_it_right_and_a_wrong_kernel_wrong(tmp_path):
    def check():
        run_build("--source", tmp_path / "own_kernel", "--output", tmp_path / "my_cubins", "--arch", "sm_90a")
        command = [sys.executable, EXAMPLES / CHECK, tmp_path / "my_cubins"]
        return subprocess.run(command, env=environment("host"), capture_output=True, text=True)

    source = shutil.copytree(EXAMPLES / "own_kernel", tmp_path / "own_kernel") / "rms_norm/kernels/rms_norm.cu"
    right = check()
    assert right.returncode == 0 and len(right.stdout.splitlines()) == 5, right.stderr
    source.write_text(source.read_text().replace("distance > 0", "distance > 1"))  # each lane has the sum of every second
    assert "AssertionError: rounding to bf16" in check().stderr

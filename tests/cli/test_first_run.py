"""`zoo first-run` leaves a file that says what was seen, whatever the kernels do."""

import json
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from tests.recorder import program
from zoo.cli import first_run
from zoo.packaged import packaged

NAME = "gemm.fp8b128.k_grouped"


def words(text):
    return " ".join(text.split())


def test_a_kernel_that_is_wrong_is_said_so_timed_all_the_same_and_in_the_file(with_stand_in, tmp_path):
    file = tmp_path / "seen.json"
    run = with_stand_in("first-run", NAME, "--output", file, "--jobs", "1", "--shape", "64,128,256")
    assert file.exists(), run.stderr
    found = json.loads(file.read_text())
    assert run.returncode == 1 and f"WRONG {NAME}" in words(run.stderr) and "0 of 1 kernel right" in words(run.stdout)
    assert found["device"] == "Recorder 9.0" and found["digest"] == packaged.digest
    checked, timed = found["checks"][NAME], found["timings"][NAME]
    assert not checked["right"] and "FAILED" in checked["said"]
    (measured,) = timed["measurements"]
    assert measured["sizes"]["M"] == 64 and measured["microseconds"] > 0
    assert "torch block-wise" in measured["rivals"] and all(isinstance(why, str) and why for why in measured["rivals"].values())


def test_a_library_that_is_not_there_is_a_reason_and_no_failure(with_stand_in):
    run = with_stand_in("bench", "gemm.fp8b128.dense", "--shape", "64,128,256", "--json")
    assert run.returncode == 0, run.stderr
    (measured,) = json.loads(run.stdout)["measurements"]
    assert all(isinstance(why, str) and why for why in measured["rivals"].values())
    shown = with_stand_in("bench", "gemm.fp8b128.dense", "--shape", "64,128,256")
    assert "block-wise us" not in words(shown.stdout)
    assert all(f"{name}" in words(shown.stdout) and why in words(shown.stdout) for name, why in measured["rivals"].items())


def test_nothing_that_runs_here_is_refused(without_gpu, with_stand_in):
    assert without_gpu("first-run").returncode == 1
    run = with_stand_in("first-run", "gemm.mxfp8.dense")
    assert run.returncode == 1 and "nothing of 'gemm.mxfp8.dense' runs on Recorder 9.0" in words(run.stderr)


@pytest.fixture
def instead_of_zoo(monkeypatch, tmp_path):
    """Another program in the place of the interpreter that would run zoo."""

    def put(text):
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o700)
        monkeypatch.setattr(first_run.sys, "executable", str(program))

    return put


def test_a_kernel_that_hangs_is_ended_with_what_it_started_and_said_so(instead_of_zoo, monkeypatch, tmp_path):
    instead_of_zoo(f"trap '' TERM\nsleep 600 & echo $! > {tmp_path}/child\nwait\nsleep 600")
    monkeypatch.setattr(first_run, "_ENDING", 1)
    began = time.monotonic()
    ((_, checked),) = first_run._checks(None, [SimpleNamespace(name=NAME, variants=())], 0, 1, 1)
    assert time.monotonic() - began < 30
    assert not checked["right"] and "no end after 1 s" in checked["said"] and checked["evidence"] == {}
    child = (tmp_path / "child").read_text().strip()
    time.sleep(0.2)
    state = subprocess.run(["ps", "-o", "stat=", "-p", child], capture_output=True, text=True).stdout.strip()
    assert not state or state.startswith("Z")


def test_a_product_that_is_not_timed_says_why_and_the_next_one_is(stand_in, tmp_path):
    """A hang, a process that dies, an error: each ends with the process, and the next product begins another."""
    file = tmp_path / "timing.py"
    file.write_text(
        "import json, os, signal\n"
        "from zoo.cli.one_timer import Timer\n"
        "from zoo.packaged import packaged\n"
        "if __name__ == '__main__':\n"
        "    timer = Timer(packaged.directory, 0, 60)\n"
        f"    timed = lambda *sizes: timer.timed('{NAME}', [list(sizes)])\n"
        "    said = [timed(64, 128), timed(64, 128, 256)]\n"
        "    os.kill(timer._process.pid, signal.SIGKILL)\n"
        "    said += [timed(64, 128, 256), timed(64, 128, 256)]\n"
        "    timer.close()\n"
        "    hanging = Timer(packaged.directory, 0, 0.01)\n"
        f"    said += [hanging.timed('{NAME}', [[64, 128, 256]])]\n"
        "    print(json.dumps(said))\n"
    )
    run = program(stand_in, [sys.executable, str(file)])
    refused, measured, killed, again, hanging = json.loads(run.stdout.splitlines()[-1])
    assert "ArgumentError" in refused["error"] and killed["error"] == "its process ended with status -9"
    assert measured["measurements"][0]["microseconds"] > 0 and again["measurements"][0]["sizes"] == measured["measurements"][0]["sizes"]
    assert hanging["error"] == "no end after 0 s: it hangs, or needs a larger --limit"
    assert first_run._table(refused).startswith("not timed: ArgumentError")


def test_the_file_is_whole_at_any_time(tmp_path):
    file = tmp_path / "seen.json"
    first_run._write(file, {"checks": {}})
    first_run._write(file, {"checks": {"a": 1}})
    assert json.loads(file.read_text()) == {"checks": {"a": 1}} and [path.name for path in tmp_path.iterdir()] == ["seen.json"]

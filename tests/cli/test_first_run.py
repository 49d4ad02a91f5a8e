"""`zoo first-run` leaves a file that says what was seen, whatever the kernels do."""

import json
import sys

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
    assert not checked["right"] and "never written" in checked["said"]
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


def test_a_run_whose_cubins_are_missing_says_so_before_anything_runs(with_stand_in, cubins, tmp_path):
    """A checkout without them, or a wheel for another GPU: each kernel would be wrong after minutes."""
    file, gone = tmp_path / "seen.json", sorted((cubins / "sm_90a").glob("gemm_fp8b128_k_grouped*"))
    for cubin in gone[1:]:
        cubin.unlink()
    run = with_stand_in("--cubins", cubins, "first-run", NAME, "--output", file)
    said = words(run.stderr)
    assert run.returncode == 1 and not file.exists() and run.stdout == ""
    assert f"{len(gone) - 1} of the {len(gone)} cubins for Recorder 9.0 are missing in {cubins}: sm_90a/{gone[1].name}" in said
    assert "reinstall zoo, or restore the folder in a checkout" in said
    for cubin in (cubins / "sm_100f").glob("gemm_fp8b128_k_grouped*"):
        cubin.unlink()
    for cubin in gone[1:]:
        cubin.write_bytes(gone[0].read_bytes())  # there, but not what the manifest means
    run = with_stand_in("--cubins", cubins, "first-run", NAME, "--output", file, "--shape", "64,128,256")
    said = json.loads(file.read_text())["checks"][NAME]["said"]
    assert run.returncode == 1 and said.count("never written") == 1 and said.count("reinstall zoo") == len(gone) - 1


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


def test_another_librarys_job_is_timed_once_for_all_products_and_long_calls_are_not_repeated(stand_in, tmp_path):
    """torch's product of bf16 takes as long whatever zoo's formats are; at four sizes of a hundred products it was half of a first run."""
    file = tmp_path / "timing.py"
    file.write_text(
        "import json\n"
        "from zoo.benchmark import measure as m\n"
        "from zoo.benchmark.rivals import RIVALS, Unavailable\n"
        "from zoo.packaged import packaged\n"
        "timed, rounds, calls = [], [], []\n"
        "class Clock:\n"
        "    def __init__(self, calls, own): self.calls = calls\n"
        "    def microseconds(self): return 7.0\n"
        "    def close(self): pass\n"
        "def replay(made, own):\n"
        "    calls.append(len(made)); return Clock(made, own)\n"
        "def replayed(make, product, device, cache):\n"
        "    name = next(name for name, rival in RIVALS.items() if rival.make is make)\n"
        "    timed.append((product.formats, name))\n"
        "    if name == 'DeepGEMM': raise Unavailable('absent')\n"
        "    return Clock([], 0)\n"
        "def in_turns(replays, rounds_of): rounds.append((sorted(replays), rounds_of)); return dict.fromkeys(replays, 7.0)\n"
        "m.Replay, m.replayed, m.in_turns, m.microseconds_of = replay, replayed, in_turns, lambda call, own: 9000.0\n"
        "rivals = {name: RIVALS[name] for name in ('torch bf16', 'DeepGEMM')}\n"
        "brief, seen = m.Brief(), []\n"
        "for name in ('gemm.fp8b128.dense', 'gemm.bf16_mxfp4.dense', 'gemm.bf16_mxfp4.dense'):\n"
        "    found = m.measure(packaged, name, {'M': 4096, 'N': 24576, 'K': 1536}, {}, None, 0, None, rivals, brief)\n"
        "    seen.append(dict(found.rivals))\n"
        "m.measure(packaged, 'gemm.fp8b128.dense', {'M': 4096, 'N': 24576, 'K': 1536}, {}, None, 0, None, rivals)\n"
        "print(json.dumps([timed, rounds, calls, seen]))\n"
    )
    run = program(stand_in, [sys.executable, str(file)])
    timed, rounds, calls, seen = json.loads(run.stdout.splitlines()[-1])
    both = {"torch bf16": 7.0, "DeepGEMM": "absent"}
    assert seen == [both] * 3
    assert timed[:3] == [["fp8b128", "torch bf16"], ["fp8b128", "DeepGEMM"], ["bf16_mxfp4", "DeepGEMM"]] and len(timed) == 5
    assert rounds == [
        [["copy", "kernel", "torch bf16"], 7],
        [["copy", "kernel"], 7],
        [["copy", "kernel"], 7],
        [["copy", "kernel", "torch bf16"], 21],
    ]
    assert calls[:6] == [2] * 6 and calls[6:] == [20, 20]

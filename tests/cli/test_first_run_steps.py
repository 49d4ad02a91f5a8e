"""What `zoo first-run` asks for step by step, and what it makes of the answers; the GPU, and the processes that use it, are stand-ins."""

import importlib.metadata
import json
import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from zoo.benchmark import shapes
from zoo.checks import gpu
from zoo.cli import first_run, one_timer, selection
from zoo.runtime import clocks, clusters, driver, hardware
from zoo.runtime.hardware import Hardware

GEMM, QUANTIZE = (SimpleNamespace(name=f"{op}.a", fields={"op": op}) for op in ("gemm", "quantize"))


def right(name):
    return {"right": True, "seconds": 12.3, "said": "", "evidence": {"seen of": name}}


MEASURED = {
    "measurements": [
        {
            "sizes": {"M": 64, "N": 128},
            "rivals": {"one": 5.0, "other": "is not there"},
            "microseconds": 2.5,
            "teraflops": 12.6,
            "variant": "t128",
        },
        {
            "sizes": {"M": 8, "N": 128},
            "rivals": {"one": "too small", "other": "is not there"},
            "microseconds": 1.25,
            "teraflops": 2.0,
            "variant": "few",
        },
    ]
}


@pytest.fixture
def run(monkeypatch, tmp_path, zoo_command):
    """run(*arguments, checks=..., timings=...) -> what the command said, what it asked other processes for, and the file that it wrote."""
    file = tmp_path / "seen.json"
    asked = []

    def written():
        return json.loads(file.read_text())

    def first(*arguments, checks=right, timings=lambda name: MEASURED, runs=("one", "two")):
        def checked(cubins, kernels, device, jobs, limit):
            for kernel in kernels:
                asked.append((kernel.name, cubins, device, jobs, limit, list(written()["checks"])))
                yield kernel, checks(kernel.name)

        class Timer:
            def __init__(self, directory, device, limit):
                self.given = directory, device, limit

            def timed(self, name, shapes):
                asked.append((f"timing {name}", *self.given, shapes, list(written()["checks"])))
                return timings(name)

            def close(self):
                asked.append("closed")

        def chosen(zoo, words):
            assert zoo.digest == "d1" and words in ("*", "some*")
            return [QUANTIZE, GEMM, SimpleNamespace(name="other")]

        monkeypatch.setattr(first_run, "_checks", checked)
        monkeypatch.setattr(one_timer, "Timer", Timer)
        monkeypatch.setattr(shapes, "usual_shapes", lambda kernel: [[size] for size in range(11)])
        monkeypatch.setattr(first_run, "collection", lambda context: SimpleNamespace(digest="d1", directory="cubins"))
        monkeypatch.setattr(first_run, "_libraries", lambda: {"numpy": "2"})
        monkeypatch.setattr(driver, "device", lambda ordinal: SimpleNamespace(name=f"device {ordinal}", multiprocessors=132))
        monkeypatch.setattr(clocks, "management", lambda opened: None)
        monkeypatch.setattr(first_run, "_clusters", lambda zoo, products, opened: {1: 132, 16: 0})
        monkeypatch.setattr(hardware, "describe", lambda opened: Hardware(opened.name, "9.0", "1"))
        monkeypatch.setattr(selection, "selected", chosen)
        monkeypatch.setattr(gpu, "runnable", lambda kernel, opened: [] if kernel.name == "other" else list(runs))
        monkeypatch.setenv("COLUMNS", "100")
        return zoo_command("first-run", "--output", file, *arguments)

    return first, asked, file


def test_all_is_checked_and_then_products_are_timed_and_the_file_is_written_after_each(run):
    first, asked, file = run
    said = first("--jobs", 3)
    assert said.exit_code == 0 and said.stderr == ""
    assert asked == [
        ("quantize.a", None, 0, 3, 900, []),
        ("gemm.a", None, 0, 3, 900, ["quantize.a"]),
        ("timing gemm.a", "cubins", 0, 900, [[0], [3], [7], [10]], ["quantize.a", "gemm.a"]),
        "closed",
    ]
    expected = {
        "digest": "d1", "finished": True, "device": "device 0", "capability": "9.0", "driver": "1", "multiprocessors": 132, "libraries": {"numpy": "2"},
        "checks": {"quantize.a": right("quantize.a"), "gemm.a": right("gemm.a")},
        "timings": {"gemm.a": {**MEASURED, "chip": {}}}, "limits": {}, "clusters": {"1": 132, "16": 0},
    }  # fmt: skip
    assert file.read_text() == json.dumps(expected, indent=1) + "\n"
    assert said.stdout == (
        f"device 0: 2 kernels; written to {file} as it goes\n"
        "clusters   at once 132 of 1 and 0 of 16, a multiprocessor for each block\n"
        "right      quantize.a: 2 variants, 12 s\n"
        "right      gemm.a: 2 variants, 12 s\n"
        f"\ngemm.a\n{first_run._table(MEASURED)}\n"
    ) + first_run_words(f"written    {file}: 2 of 2 kernels right. Please attach it to an issue")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 24])
def test_a_few_sizes_are_different_ones_and_both_ends(count):
    few = first_run._a_few([[size] for size in range(count)])
    assert few[0] == [0] and few[-1] == [count - 1] and len({size for (size,) in few}) == len(few) == min(count, 4)


def first_run_words(words):
    from zoo.cli.text import fact

    return fact(words[:10].strip(), words[11:]) + "\n"


def test_what_is_wrong_is_said_at_once_and_again_at_the_end_and_is_the_exit_status(run):
    first, asked, file = run
    wrong = {"right": False, "seconds": 0.4, "said": "many words", "evidence": {}}
    said = first(
        "--device", 2, "--limit", 1, "--shape", "1,2,3", "--shape", "4,5,6",
        checks=lambda name: wrong if name == "gemm.a" else right(name), timings=lambda name: {"error": "said"},
    )  # fmt: skip
    assert said.exit_code == 1
    assert "right      quantize.a: 2 variants, 12 s\nWRONG      gemm.a: 2 variants, 0 s\n" in said.stdout
    assert "\ngemm.a\nnot timed: said\n" in said.stdout and "1 of 2 kernels right" in " ".join(said.stdout.split())
    assert said.stderr == "WRONG      gemm.a: many words\n"
    found = json.loads(file.read_text())
    assert found["checks"]["gemm.a"] == wrong and found["timings"] == {"gemm.a": {"error": "said", "chip": {}}}
    assert asked[-2] == ("timing gemm.a", "cubins", 2, 1, [[1, 2, 3], [4, 5, 6]], ["quantize.a", "gemm.a"])
    assert asked[0][2:5] == (2, min(16, os.cpu_count()), 1)


def test_where_no_kernel_runs_nothing_is_written(run):
    first, asked, file = run
    said = first("some*", runs=())
    assert said.exit_code == 1 and "nothing of 'some*' runs on device 0" in said.stderr and not file.exists() and asked == []


@pytest.mark.parametrize(("at", "words"), [("checks", "0 of 2 checks and 0 of 1 timings"), ("timings", "2 of 2 checks and 0 of 1 timings")])
@pytest.mark.parametrize(("end", "status"), [(KeyboardInterrupt(), 1), (SystemExit(143), 143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_run_that_is_ended_early_says_what_its_file_has(run, at, words, end, status):
    """The first minutes of a new GPU are not lost to Ctrl-C or to a queue's time limit."""
    first, _, file = run

    def ended(name):
        raise end

    said = first(**{at: ended})
    assert said.exit_code == status and f"{file} has {words}" in " ".join(said.stderr.split())
    found = json.loads(file.read_text())
    assert found["finished"] is False and found["clusters"] == {"1": 132, "16": 0} and len(found["checks"]) == int(words[0])


@pytest.mark.parametrize("shape", ["abc", "1,,2", "64,128,-1"])
def test_a_misspelt_shape_is_refused_before_anything_is_checked(run, shape):
    first, asked, file = run
    said = first("--shape", "1,2,3", "--shape", shape)
    assert said.exit_code == 2 and "--shape" in said.stderr and asked == [] and not file.exists()


@pytest.mark.parametrize("arguments", [("--jobs", 0), ("--limit", 0.5), ("--output", "/")])
def test_numbers_of_nothing_and_folders_are_refused(run, arguments):
    first, asked, _ = run
    assert first(*arguments).exit_code == 2 and asked == []
    assert first("--jobs", 1, "--limit", 1).exit_code == 0


def test_what_is_left_out_is_said_in_the_help(zoo_command):
    said = " ".join(zoo_command("first-run", "--help").stdout.split())
    for default in ("first_run.json", "0", f"{min(16, os.cpu_count())}; x>=1", "900; x>=1"):
        assert f"[default: {default}]" in said
    (kernels, *_) = first_run.command.params
    assert kernels.default == "*"


def test_a_table_of_times_has_the_ratios_and_below_it_why_there_are_none():
    assert first_run._table(MEASURED).splitlines() == [
        " M    N    us  TFLOPS  one / zoo  other / zoo  variant",
        "64  128  2.50      13  2.00       -            t128",
        " 8  128  1.25       2  -          -            few",
        "other: is not there",
        "one: too small",
    ]
    (first, _) = MEASURED["measurements"]
    assert first_run._table({"measurements": [first]}).splitlines()[2:] == ["other: is not there"]
    assert first_run._table({"error": "words"}) == "not timed: words"


@pytest.fixture
def program(monkeypatch, tmp_path):
    """In the place of the interpreter."""

    def put(text):
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        monkeypatch.setattr(first_run.sys, "executable", str(path))

    return put


def checked(*names, jobs=1, limit=60, cubins=None):
    kernels = [SimpleNamespace(name=name, variants=range(number)) for number, name in enumerate(names)]
    return {kernel.name: seen for kernel, seen in first_run._checks(cubins, kernels, 5, jobs, limit)}


def test_a_check_is_asked_by_its_arguments_and_leads_a_session_of_its_own(program, tmp_path):
    program('echo "$@" $OMP_NUM_THREADS; ps -o sid= -p $$; exit 4')
    (seen,) = checked("a", cubins=tmp_path).values()
    *given, threads, session = seen["said"].split()
    assert given[:-1] == ["-m", "zoo", "--cubins", str(tmp_path), "verify", "a", "--gpu", "--device", "5", "--record-to"]
    assert threads == "1" and int(session) != os.getsid(0) and not seen["right"] and 0 <= seen["seconds"] < 60


def test_what_a_check_wrote_on_stderr_is_what_it_said_and_its_evidence_is_kept(program):
    program('for last; do :; done; echo \'{"seen": 1}\' > "$last"; echo out; echo words >&2; exit 0')
    assert checked("a") == {"a": {"right": True, "seconds": pytest.approx(0, abs=30), "said": "", "evidence": {"seen": 1}}}
    program("echo out; echo words >&2; exit 1")
    assert checked("a")["a"]["said"] == "words"


def test_kernels_are_checked_at_once_and_those_with_most_variants_first(program, tmp_path):
    """Two that wait for each other end only where they run at once."""
    program(f'echo "$4" >> {tmp_path}/began; touch {tmp_path}/at_$4; for i in $(seq 200); do [ $(ls {tmp_path}/at_* | wc -l) = 2 ] && exit 0; sleep .1; done; exit 1')  # fmt: skip
    seen = checked("few", "many", jobs=2)
    assert all(one["right"] for one in seen.values())
    program(f'echo "$4" >> {tmp_path}/order')
    checked("few", "many", jobs=1)
    assert (tmp_path / "order").read_text().split() == ["many", "few"]


def test_checks_that_are_left_are_ended(program, tmp_path):
    program(f"echo $$ > {tmp_path}/pid_$4; exec sleep 600")
    left = first_run._checks(None, [SimpleNamespace(name=name, variants=range(2 - number)) for number, name in enumerate("ab")], 0, 1, 1)
    kernel, seen = next(left)
    assert kernel.name == "a" and seen["said"].startswith("no end after 1 s")
    left.close()
    pids = [int(file.read_text()) for file in tmp_path.glob("pid_*")]
    assert pids
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_checks_that_run_when_the_command_is_ended_are_ended(program, tmp_path):
    program(f'[ "$4" = a ] && exit 0; echo $$ > {tmp_path}/pid; exec sleep 600')
    left = first_run._checks(None, [SimpleNamespace(name=name, variants=()) for name in "ab"], 0, 2, 60)
    assert next(left)[0].name == "a"
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        time.sleep(0.02)
    left.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


class Process:
    """Ends at the so-manyth signal, or when it is looked for."""

    pid = 77

    def __init__(self, at, monkeypatch, gone=False):
        self.at, self.seen, self.waited = at, [], []
        self.gone = gone
        monkeypatch.setattr(first_run.os, "killpg", self.killed)

    def poll(self):
        return 0 if len(self.seen) >= self.at else None

    def killed(self, group, number):
        assert group == self.pid
        self.seen.append(number)
        if self.gone:
            raise ProcessLookupError

    def wait(self, timeout):
        self.waited.append(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("a", timeout)


def test_a_process_is_asked_to_end_before_it_is_made_to(monkeypatch):
    for at, signals in ((0, []), (1, [signal.SIGTERM]), (2, [signal.SIGTERM, signal.SIGKILL]), (3, [signal.SIGTERM, signal.SIGKILL])):
        process = Process(at, monkeypatch)
        first_run._end(process)
        assert process.seen == signals and process.waited == [10] * len(signals)
    first_run._end(Process(1, monkeypatch, gone=True))


def test_of_long_words_the_last_are_kept(program):
    program("printf '%2001s' | tr ' ' a; echo b; exit 1")
    assert checked("a")["a"]["said"] == "a" * 1999 + "b"


def test_libraries_are_told_by_their_versions_and_missing_ones_are_none(monkeypatch):
    def version(name):
        if name.startswith("nvidia"):
            raise importlib.metadata.PackageNotFoundError(name)
        return f"{name} 1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert first_run._libraries() == {
        "cubin-zoo": "cubin-zoo 1", "torch": "torch 1", "nvidia-cublas": None, "nvidia-cublas-cu12": None,
        "cuda-bindings": "cuda-bindings 1", "numpy": "numpy 1",
    }  # fmt: skip


def test_a_driver_that_cannot_count_clusters_does_not_end_the_run(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "runnable", lambda kernel, device: ["variant"])
    monkeypatch.setattr(clusters, "clusters_at_once", lambda *given: driver.check((1,), "counting"))
    monkeypatch.setattr(driver, "bindings", lambda: SimpleNamespace())
    assert first_run._clusters(SimpleNamespace(library=None), [GEMM], None) == {}
    assert "clusters were not counted: counting" in capsys.readouterr().err

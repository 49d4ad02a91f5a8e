"""What `zoo first-run` asks for step by step, and what it makes of the answers; the GPU, and the processes that use it, are stand-ins."""

import importlib.metadata
import json
import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from zoo.checks import gpu
from zoo.cli import first_run, selection
from zoo.runtime import clocks, clusters, driver, hardware
from zoo.runtime.hardware import Hardware

GEMM, QUANTIZE = (SimpleNamespace(name=f"{op}.a", fields={"op": op}) for op in ("gemm", "quantize"))
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
    """run(*arguments, answers=...) -> what the command said, what it asked other processes for, and the file that it wrote."""
    file = tmp_path / "seen.json"
    asked = []

    def first(*arguments, answers=None, runs=("one", "two")):
        def answer(cubins, given, limit):
            asked.append((cubins, [str(one) for one in given], limit, json.loads(file.read_text()) if file.exists() else None))
            said = answers(given) if answers else None
            if given[0] == "verify" and said is None:
                given[-1].write_text(json.dumps({"seen of": given[1]}))
            return said or (0, json.dumps(MEASURED), "some words", 12.345)

        def chosen(zoo, words):
            assert zoo.digest == "d1" and words in ("*", "some*")
            return [QUANTIZE, GEMM, SimpleNamespace(name="other")]

        monkeypatch.setattr(first_run, "_run", answer)
        monkeypatch.setattr(first_run, "collection", lambda context: SimpleNamespace(digest="d1"))
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


def test_all_is_checked_and_then_products_are_timed_and_the_file_is_written_after_each(run, tmp_path):
    first, asked, file = run
    said = first("--jobs", 3)
    assert said.exit_code == 0 and said.stderr == ""
    assert [(cubins, given[:2], limit) for cubins, given, limit, _ in asked] == [
        (None, ["verify", "quantize.a"], 900), (None, ["verify", "gemm.a"], 900), (None, ["bench", "gemm.a"], 900),
    ]  # fmt: skip
    verified, _, timed = (given for _, given, _, _ in asked)
    assert verified[2:-1] == ["--gpu", "--device", "0", "--jobs", "3", "--record-to"]
    assert timed[2:] == ["--json", "--device", "0"]
    assert len({given[-1] for _, given, _, _ in asked[:2]}) == 2
    checked = {
        name: {"right": True, "seconds": 12.3, "said": "", "evidence": {"seen of": name}} for name in ("quantize.a", "gemm.a")
    }  # fmt: skip
    assert [before and list(before["checks"]) for _, _, _, before in asked] == [[], ["quantize.a"], ["quantize.a", "gemm.a"]]
    assert not any(before["finished"] for _, _, _, before in asked)
    expected = {
        "digest": "d1", "finished": True, "device": "device 0", "capability": "9.0", "driver": "1", "multiprocessors": 132, "libraries": {"numpy": "2"},
        "checks": checked, "timings": {"gemm.a": {**MEASURED, "chip": {}}}, "limits": {}, "clusters": {"1": 132, "16": 0},
    }  # fmt: skip
    assert file.read_text() == json.dumps(expected, indent=1) + "\n"
    assert said.stdout == (
        f"device 0: 2 kernels; written to {file} as it goes\n"
        "clusters   at once 132 of 1 and 0 of 16, a multiprocessor for each block\n"
        "right      quantize.a: 2 variants, 12 s\n"
        "right      gemm.a: 2 variants, 12 s\n"
        f"\ngemm.a\n{first_run._table(MEASURED)}\n"
    ) + first_run_words(f"written    {file}: 2 of 2 kernels right. Please attach it to an issue")


def first_run_words(words):
    from zoo.cli.text import fact

    return fact(words[:10].strip(), words[11:]) + "\n"


def test_what_is_wrong_is_said_at_once_and_again_at_the_end_and_is_the_exit_status(run):
    first, asked, file = run
    said = first(
        "--device", 2, "--limit", 1, "--shape", "1,2,3", "--shape", "4,5,6",
        answers=lambda given: (3, "said", "  many words\n" if given[0] == "verify" else "", 0.44) if given[1] == "gemm.a" else None,
    )  # fmt: skip
    assert said.exit_code == 1
    assert "right      quantize.a: 2 variants, 12 s\nWRONG      gemm.a: 2 variants, 0 s\n" in said.stdout
    assert "\ngemm.a\nnot timed: said\n" in said.stdout and "1 of 2 kernels right" in " ".join(said.stdout.split())
    assert said.stderr == "WRONG      gemm.a: many words\n"
    found = json.loads(file.read_text())
    assert found["checks"]["gemm.a"] == {"right": False, "seconds": 0.4, "said": "many words", "evidence": {}}
    assert found["timings"] == {"gemm.a": {"error": "said", "chip": {}}}
    assert [given for _, given, _, _ in asked][-1][2:] == [
        "--json", "--device", "2", "--shape", "1,2,3", "--shape", "4,5,6",
    ]  # fmt: skip
    assert {limit for _, _, limit, _ in asked} == {1}


def test_where_no_kernel_runs_nothing_is_written(run):
    first, asked, file = run
    said = first("some*", runs=())
    assert said.exit_code == 1 and "nothing of 'some*' runs on device 0" in said.stderr and not file.exists() and asked == []


@pytest.mark.parametrize(("at", "words"), [("verify", "0 of 2 checks and 0 of 1 timings"), ("bench", "2 of 2 checks and 0 of 1 timings")])
@pytest.mark.parametrize(("end", "status"), [(KeyboardInterrupt(), 1), (SystemExit(143), 143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_run_that_is_ended_early_says_what_its_file_has(run, at, words, end, status):
    """The first minutes of a new GPU are not lost to Ctrl-C or to a queue's time limit."""
    first, _, file = run

    def answers(given):
        if given[0] == at:
            raise end

    said = first(answers=answers)
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
    for default in ("first_run.json", "0", f"{min(8, os.cpu_count())}; x>=1", "900; x>=1"):
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


def test_a_process_is_asked_by_its_arguments_and_leads_a_session_of_its_own(program):
    program('echo "$@"; echo words >&2; ps -o sid= -p $$ >&2; exit 4')
    status, said, errors, seconds = first_run._run(None, ("verify", "a", 3), 60)
    assert (status, said) == (4, "-m zoo verify a 3\n") and 0 <= seconds < 60
    assert errors.split()[0] == "words" and int(errors.split()[1]) != os.getsid(0)


def test_a_process_without_end_is_a_failure_that_says_after_how_long(program, monkeypatch):
    ended = []
    monkeypatch.setattr(first_run, "_end", ended.append)
    program("exec sleep 60")
    status, said, errors, seconds = first_run._run(None, ("verify",), 0.3)
    assert (status, said) == (1, "") and errors == "no end after 0 s: it hangs, or needs a larger --limit" and 0.3 <= seconds < 30
    (process,) = ended
    process.kill()
    process.communicate()


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

    def communicate(self, timeout):
        self.waited.append(timeout)
        if self.poll() is None:
            raise subprocess.TimeoutExpired("a", timeout)


def test_a_process_is_asked_to_end_before_it_is_made_to(monkeypatch):
    for at, signals in ((0, []), (1, [signal.SIGTERM]), (2, [signal.SIGTERM, signal.SIGKILL]), (3, [signal.SIGTERM, signal.SIGKILL])):
        process = Process(at, monkeypatch)
        first_run._end(process)
        assert process.seen == signals and process.waited == [10] * len(signals)
    first_run._end(Process(1, monkeypatch, gone=True))


def test_of_long_words_the_last_are_kept():
    words = "".join(chr(97 + index % 26) for index in range(2001))
    assert first_run._tail(f"\n {words} \n") == words[1:] and first_run._tail(words[:2000]) == words[:2000]


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

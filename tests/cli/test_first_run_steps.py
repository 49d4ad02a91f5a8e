"""What `zoo first-run` asks for step by step, and what it makes of the answers; the GPU, and the processes that use it, are stand-ins."""

import importlib.metadata
import json
import os
from types import SimpleNamespace

import pytest

from zoo.benchmark import shapes
from zoo.checks import Outcome, gpu
from zoo.checks.gpu import OnGpu
from zoo.cli import first_run, one_checker, one_timer, selection
from zoo.cli.one_checker import Work
from zoo.runtime import clocks, clusters, driver, hardware
from zoo.runtime.hardware import Hardware

ONE, TWO = (SimpleNamespace(name=name, file=f"{name}.cubin", sha256=f"digest of {name}") for name in ("one", "two"))
GEMM, QUANTIZE, OTHER = (SimpleNamespace(name=f"{op}.a", fields={"op": op}, variants=(ONE, TWO)) for op in ("gemm", "quantize", "other"))
KERNELS = {kernel.name: kernel for kernel in (GEMM, QUANTIZE, OTHER)}


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

    def first(*arguments, checks=right, timings=lambda name: MEASURED, runs=(ONE, TWO), unsound=None):
        def checked(checkers, work):
            for one in list(work):
                work.remove(one)
                asked.append((one.kernel.name, one.numbers, checkers, list(written()["checks"])))
                one.seconds = 12.3
                yield one

        class Timer:
            def __init__(self, directory, device, limit):
                self.given = directory, device, limit

            def timed(self, name, shapes):
                asked.append((f"timing {name}", *self.given, shapes, list(written()["checks"])))
                return timings(name)

            def begin(self):
                asked.append("begins")

            def close(self):
                asked.append("closed")

        def chosen(zoo, words):
            assert zoo.digest == "d1" and words in ("*", "some*")
            return [QUANTIZE, GEMM, OTHER]

        def unsound_files(directory, variants, kernels, device):
            assert directory == "cubins" and [variants[kernel.name] for kernel in kernels] == [list(runs)] * 2
            return unsound or {}

        monkeypatch.setattr(first_run, "_checks", checked)
        monkeypatch.setattr(first_run, "_checked", lambda done, variants, unsound, machine: checks(done.kernel.name))
        monkeypatch.setattr(first_run, "_unsound", unsound_files)
        monkeypatch.setattr(one_checker, "Checker", lambda *given: given)
        monkeypatch.setattr(one_timer, "Timer", Timer)
        monkeypatch.setattr(shapes, "usual_shapes", lambda kernel: [[size] for size in range(11)])
        monkeypatch.setattr(first_run, "collection", lambda context: SimpleNamespace(digest="d1", directory="cubins", kernel=KERNELS.get))
        monkeypatch.setattr(first_run, "_libraries", lambda: {"numpy": "2"})
        monkeypatch.setattr(driver, "device", lambda ordinal: SimpleNamespace(name=f"device {ordinal}", multiprocessors=132))
        monkeypatch.setattr(clocks, "management", lambda opened: None)
        monkeypatch.setattr(first_run, "_clusters", lambda zoo, variant, opened: {1: 132, 16: 0})
        monkeypatch.setattr(hardware, "describe", lambda opened: Hardware(opened.name, "9.0", "1"))
        monkeypatch.setattr(selection, "selected", chosen)
        monkeypatch.setattr(gpu, "runnable", lambda kernel, opened: [] if kernel is OTHER else list(runs))
        monkeypatch.setenv("COLUMNS", "100")
        return zoo_command("first-run", "--output", file, *arguments)

    return first, asked, file


def test_all_is_checked_and_then_products_are_timed_and_the_file_is_written_after_each(run):
    first, asked, file = run
    said = first("--jobs", 3)
    assert said.exit_code == 0 and said.stderr == ""
    checkers = [("cubins", OnGpu(0), 180)] * 2  # no more than there are kernels
    assert asked == [
        ("quantize.a", (0, 1), checkers, []),
        ("gemm.a", (0, 1), checkers, ["quantize.a"]),
        "begins",
        ("timing gemm.a", "cubins", 0, 180, [[0], [3], [7], [10]], ["quantize.a", "gemm.a"]),
        "closed",
    ]
    expected = {
        "digest": "d1", "finished": True, "device": "device 0", "capability": "9.0", "driver": "1", "multiprocessors": 132, "libraries": {"numpy": "2"},
        "shapes": [], "limits": {}, "checks": {"quantize.a": right("quantize.a"), "gemm.a": right("gemm.a")},
        "timings": {"gemm.a": {**MEASURED, "chip": {}}}, "foreign_load_percent": 0, "clusters": {"1": 132, "16": 0},
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
    assert asked[0][2] == [("cubins", OnGpu(2), 1)] * min(2, os.cpu_count())


def test_where_no_kernel_runs_nothing_is_written(run):
    first, asked, file = run
    said = first("some*", runs=())
    assert (
        said.exit_code == 1
        and "nothing of 'some*' runs on device 0, compute capability 9.0" in said.stderr
        and not file.exists()
        and asked == []
    )


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


def test_a_run_that_was_ended_goes_on_where_it_was(run):
    first, asked, file = run

    def ended(name):
        raise KeyboardInterrupt

    first(timings=ended)
    asked.clear()
    said = first()
    assert said.exit_code == 0 and f"{file} has 2 checks and 0 timings; remove it to begin anew" in " ".join(said.stdout.split())
    assert [one[0] for one in asked if one not in ("begins", "closed")] == ["timing gemm.a"]
    assert json.loads(file.read_text())["finished"] is True
    asked.clear()
    said = " ".join(first().stdout.split())
    assert (
        "goes on" not in said
        and f"begins anew {file} is of a run that was finished; what it had is written over" in said
        and len(asked) == 5
    )


@pytest.mark.parametrize("changed", ["digest", "device", "driver", "libraries", "shapes", "text"])
def test_what_other_cubins_or_another_machine_showed_is_not_gone_on_with(run, changed):
    """A file would mix what was seen of two builds, two GPUs or two versions of a library."""
    first, asked, file = run

    def ended(name):
        raise KeyboardInterrupt

    first(timings=ended)
    before = json.loads(file.read_text())
    file.write_text("[]" if changed == "text" else json.dumps({**before, changed: "another"}))
    asked.clear()
    said = " ".join(first().stdout.split())
    assert "goes on" not in said and asked[0][0] == "quantize.a"
    assert f"begins anew {file} is " + ("no file of a first run" if changed == "text" else f"of a run with another {changed};") in said


@pytest.mark.parametrize(
    "edit",
    [
        {"checks": []}, {"checks": None}, {"checks": {"gemm.a": {}}}, {"checks": {"gemm.a": {"right": "yes", "said": ""}}},
        {"checks": {"gemm.a": {"right": False}}}, {"timings": "none"}, {"timings": {"gemm.a": None}}, {"foreign_load_percent": None}, "[" * 100_000,
    ],
    ids=lambda edit: str(edit)[:40],
)  # fmt: skip
def test_a_file_that_somebody_edited_does_not_end_the_next_run(run, edit):
    """A run would end with a traceback at its last line, ten minutes later."""
    first, asked, file = run

    def ended(name):
        raise KeyboardInterrupt

    first(timings=ended)
    file.write_text(edit if isinstance(edit, str) else json.dumps(json.loads(file.read_text()) | edit))
    asked.clear()
    said = first()
    assert said.exit_code == 0 and f"begins anew {file} is no file of a first run, or was edited;" in " ".join(said.stdout.split())
    assert asked[0][0] == "quantize.a"


def test_a_product_whose_checks_hang_is_not_timed(run):
    """It would hang in its timings as well, for as long."""
    first, asked, file = run
    said = first(checks=lambda name: {**right(name), "right": False, "said": "hangs", "hangs": True})
    assert "not timed: its checks hang" in said.stdout and not any(one[0].startswith("timing") for one in asked)
    assert json.loads(file.read_text())["timings"] == {"gemm.a": {"error": "its checks hang", "chip": {}}}


def test_a_cubin_that_is_not_sound_is_not_run(run):
    first, asked, _ = run
    first(unsound={"one.cubin": "altered"})
    assert asked[0][:2] == ("quantize.a", (1,))


def test_the_file_says_of_a_kernel_what_was_seen_of_each_cubin():
    """A cubin under two names counts once; one that never ran has no evidence; all that is wrong is said."""
    again = SimpleNamespace(name="again", file="one.cubin", sha256=ONE.sha256)
    broken = SimpleNamespace(name="broken", file="broken.cubin", sha256="digest of broken")
    work = Work(SimpleNamespace(name="k", variants=(ONE, TWO, again, broken)), (0, 1, 2))
    work.outcomes, work.seconds = {0: Outcome(3, None), 1: Outcome(0, "no end"), 2: Outcome(2, "p: wrong")}, 1.26
    found = first_run._checked(work, work.kernel.variants, {"broken.cubin": "altered"}, {"device": "d"})
    record = found["evidence"].pop(ONE.sha256)["gpu"]
    assert record.pop("date") and record == {"device": "d", "checks": 5, "error": "p: wrong"}
    assert found == {"right": False, "seconds": 1.3, "said": "two: no end; again: p: wrong; broken: altered", "evidence": {}}
    work.hangs = 1
    assert first_run._checked(work, (ONE,), {}, {"device": "d"})["hangs"] is True


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
    for default in ("first_run.json", "0", f"{min(16, os.cpu_count())}; x>=1", "180; x>=1"):
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
    monkeypatch.setattr(clusters, "clusters_at_once", lambda *given: driver.check((1,), "counting"))
    monkeypatch.setattr(driver, "bindings", lambda: SimpleNamespace())
    assert first_run._clusters(SimpleNamespace(library=None), ONE, None) == {}
    assert "clusters were not counted: counting" in capsys.readouterr().err

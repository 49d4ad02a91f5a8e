"""Checks in processes of their own: each variant once, by the place that was given, and an end that nobody asked for is told."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.recorder import ROOT
from zoo.checks import Outcome, processes
from zoo.errors import ZooError
from zoo.packaged import packaged

KERNEL = packaged.kernel("scales.blocked")


def threads():
    return [os.environ.get(f"{library}_NUM_THREADS") for library in ("OMP", "OPENBLAS", "MKL")]


@dataclass
class Saying:
    """A place that says what it was asked, whether Ctrl-C is for somebody else, and how many threads numpy may start."""

    word: str
    process: int
    together: bool = False

    def check(self, zoo, kernel, variants):
        deaf = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
        words = f"{self.word} {kernel.name} {zoo.directory} {os.getpid() == self.process} {deaf} {threads()}"
        yield 0, None
        for turn in reversed(range(len(variants))):
            yield turn, Outcome(kernel.variants.index(variants[turn]), words)


@dataclass
class Ending:
    together: bool = False

    def check(self, zoo, kernel, variants):
        os._exit(3)


WORK = [(KERNEL, variant) for variant in reversed(KERNEL.variants)]


def test_a_process_answers_for_the_variant_that_it_was_sent(monkeypatch):
    monkeypatch.setattr(processes, "_own", None, raising=False)
    processes._start(packaged.directory, Saying("here", os.getpid()))
    assert processes._check_in_process(KERNEL.name, [1]) == [
        (0, Outcome(1, f"here {KERNEL.name} {packaged.directory} True False {threads()}"))
    ]


INTERRUPTED = """
import multiprocessing, os, signal, time
from zoo.checks.processes import deaf_to_interrupts

if __name__ == "__main__":
    with deaf_to_interrupts():
        process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
        process.start()
    try:
        os.killpg(0, signal.SIGINT)
    except KeyboardInterrupt:
        process.join()
        print("interrupted, status", process.exitcode)
"""


def test_ctrl_c_while_a_process_starts_is_its_parents_alone(tmp_path):
    """A terminal sends it to both, and a process that still imports would show where it was."""
    (tmp_path / "interrupted.py").write_text(INTERRUPTED)
    command = [sys.executable, tmp_path / "interrupted.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, start_new_session=True, capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr) == ("interrupted, status 0\n", "")


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("jobs", [1, 2])
def test_each_outcome_is_that_of_its_place_in_the_work(jobs, together, monkeypatch):
    """Nor does numpy start as many threads in each of many processes as there are cores, unless somebody asked for it."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "3")  # which is taken back afterwards, and what was set meanwhile with it
    for library in ("OMP", "OPENBLAS"):
        del os.environ[f"{library}_NUM_THREADS"]
    found = dict(processes.outcomes(packaged, WORK, Saying("there", os.getpid(), together), jobs))
    alone = jobs == 1
    words = f"there {KERNEL.name} {packaged.directory} {alone} {not alone} {[None, None, '3'] if alone else ['1', '1', '3']}"
    assert found == {place: Outcome(len(WORK) - 1 - place, words) for place in range(len(WORK))}


def test_a_process_that_ends_before_its_work_is_a_refusal():
    with pytest.raises(ZooError, match="a process of --jobs ended before its work, perhaps for want of memory; give fewer jobs"):
        list(processes.outcomes(packaged, WORK, Ending(), 2))


@dataclass
class Slow:
    """A place that leaves a mark of each variant; all but the first of them take a while."""

    folder: Path
    together: bool = False

    def check(self, zoo, kernel, variants):
        number = kernel.variants.index(variants[0])
        time.sleep(0.5 * (number > 0))
        (self.folder / f"{number} {time.monotonic_ns()}").touch()
        yield 0, Outcome(number, "done")


def test_who_wants_no_more_outcomes_does_not_wait_for_all_of_the_work(tmp_path):
    """Ctrl-C would seem to do nothing until the last variant is checked."""
    first, second = KERNEL.variants[:2]
    work = [(KERNEL, first), *[(KERNEL, second)] * 15]
    found = processes.outcomes(packaged, work, Slow(tmp_path), 2)
    assert next(found)[1] == Outcome(0, "done")
    found.close()
    assert 1 <= len(os.listdir(tmp_path)) < len(work)


@dataclass
class Counting:
    """How many variants each process is given at once."""

    together: bool

    def check(self, zoo, kernel, variants):
        return ((turn, Outcome(len(variants), kernel.name)) for turn in range(len(variants)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_variants_of_a_kernel_share_a_process_where_that_is_asked_and_never_with_another_kernels(jobs):
    other = packaged.kernel("scales.unblocked")
    work = [*WORK, *[(other, variant) for variant in other.variants]]
    found = dict(processes.outcomes(packaged, work, Counting(True), jobs))
    assert found == {place: Outcome(len(kernel.variants), kernel.name) for place, (kernel, _) in enumerate(work)}
    assert {one.checks for one in dict(processes.outcomes(packaged, work, Counting(False), jobs)).values()} == {1}

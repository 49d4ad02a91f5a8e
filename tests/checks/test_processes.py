"""Checks in processes of their own: each variant once, by the place that was given, and an end that nobody asked for is told."""

import os
import signal
from dataclasses import dataclass

import pytest

from zoo.checks import Outcome, processes
from zoo.errors import ZooError
from zoo.shipped.packaged import packaged

KERNEL = packaged.kernel("scales.blocked")


@dataclass
class Saying:
    """A place that says what it was asked, and whether Ctrl-C is for somebody else."""

    word: str
    process: int

    def check(self, zoo, kernel, variant):
        ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        return Outcome(kernel.variants.index(variant), f"{self.word} {kernel.name} {zoo.directory} {os.getpid() == self.process} {ignored}")


@dataclass
class Ending:
    def check(self, zoo, kernel, variant):
        os._exit(3)


WORK = [(KERNEL, variant) for variant in reversed(KERNEL.variants)]


def test_a_process_answers_for_the_variant_that_it_was_sent(monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(processes, "_own", None, raising=False)
    try:
        processes._start(packaged.directory, Saying("here", os.getpid()))
        assert processes._check_in_process(KERNEL.name, 1) == Outcome(1, f"here {KERNEL.name} {packaged.directory} True True")
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_outcome_is_that_of_its_place_in_the_work(jobs):
    found = dict(processes.outcomes(packaged, WORK, Saying("there", os.getpid()), jobs))
    alone = jobs == 1
    words = f"there {KERNEL.name} {packaged.directory} {alone} {not alone}"
    assert found == {place: Outcome(len(WORK) - 1 - place, words) for place in range(len(WORK))}


def test_a_process_that_ends_before_its_work_is_a_refusal():
    with pytest.raises(ZooError, match="a process of --jobs ended before its work, perhaps for want of memory; give fewer jobs"):
        list(processes.outcomes(packaged, WORK, Ending(), 2))

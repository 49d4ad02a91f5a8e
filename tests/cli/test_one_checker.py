"""A process that checks kernel after kernel: what hangs, dies or breaks it is the variant's that had its turn, and nobody else's."""

import multiprocessing
import os
import struct
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from zoo.checks import Outcome
from zoo.cli import first_run, one_checker
from zoo.cli.one_checker import Checker, Work
from zoo.packaged import packaged

KERNEL = packaged.kernel("quantize.mxfp8.rows")
HERE = [number for number, variant in enumerate(KERNEL.variants) if variant.arch == "sm_90a"][:4]


@dataclass(frozen=True)
class Acting:
    """Two problems a variant, all variants in turns; variants of some names do something else at their second one."""

    acts: dict[str, str] = field(default_factory=dict)

    def check(self, zoo, kernel, variants):
        if "all" in self.acts:
            raise ValueError("no problems")
        for problem in (1, 2):
            for place, variant in enumerate(variants):
                yield place, None
                act = self.acts.get(variant.name) if problem == 2 else None
                if act == "hangs":
                    time.sleep(600)
                if act == "dies":
                    os._exit(3)
                if act == "raises":
                    raise ValueError("odd")
                if act == "wrong" or act == "breaks":
                    yield place, Outcome(2, act)
                elif problem == 2:
                    said = os.environ["OMP_NUM_THREADS"], os.getsid(0)
                    yield place, Outcome(2, None if said[0] == "1" else said)

    def broken(self):
        return "nothing runs" if "breaks" in self.acts.values() else ""


def checked(acts, numbers=HERE, jobs=1, limit=60, kernels=1):
    """The work, as it is done, of so many times the same kernel."""
    checkers = [
        Checker(packaged.directory, Acting({KERNEL.variants[number].name: act for number, act in acts.items()}), limit) for _ in range(jobs)
    ]
    try:
        return list(first_run._checks(checkers, [Work(KERNEL, numbers) for _ in range(kernels)]))
    finally:
        assert all(checker._process is None for checker in checkers)


RIGHT = Outcome(2, None)


def test_all_variants_are_told_and_numpy_starts_one_thread_in_each_process():
    before = os.environ.get("OMP_NUM_THREADS")
    found = checked({}, jobs=2, kernels=3)
    assert [one.outcomes for one in found] == [dict.fromkeys(HERE, RIGHT)] * 3 and all(one.seconds > 0 for one in found)
    assert os.environ.get("OMP_NUM_THREADS") == before


@pytest.mark.parametrize(
    ("act", "words"),
    [("dies", "its process ended with status 3"), ("raises", "ValueError: odd"), ("hangs", "no end of a problem after 5 s: it hangs, or needs a larger --limit")],
)  # fmt: skip
def test_who_ends_a_process_is_named_and_the_others_are_checked_in_another(act, words):
    (found,) = checked({HERE[1]: act}, limit=5 if act == "hangs" else 60)
    assert found.outcomes == {**dict.fromkeys(HERE, RIGHT), HERE[1]: Outcome(0, words)}
    assert found.hangs == (act == "hangs") and not found.left


@pytest.mark.parametrize("sent", [0, 2, 4, 12], ids=["nothing", "half of a length", "a length", "half of a message"])
def test_a_process_that_is_killed_while_it_speaks_is_one_that_ended(sent):
    """The half of a message that it leaves is no end of file to the reader."""
    checker = Checker(packaged.directory, Acting(), 60)
    checker.connection, its = multiprocessing.Pipe()
    checker._process = SimpleNamespace(exitcode=-9, join=lambda seconds: None, kill=lambda: None)
    checker.begin(Work(KERNEL, HERE[:1]))
    its.recv()  # a socket with something unread is reset, not ended
    its.send((0, None))
    os.write(its.fileno(), (struct.pack("!i", 1000) + bytes(8))[:sent])
    its.close()
    work = checker.look()
    assert work.outcomes == {HERE[0]: Outcome(0, "its process ended with status -9")} and checker._process is None


def test_processes_are_all_killed_before_the_first_is_waited_for():
    """A driver keeps a killed process for seconds: sixteen of them, one after the other, for minutes."""
    acts = []

    class Noted(Checker):
        def kill(self):
            acts.append("kill")

        def close(self):
            acts.append("close")

    assert not list(first_run._checks([Noted(packaged.directory, Acting(), 60) for _ in range(2)], []))
    assert acts == ["kill", "kill", "close", "close"]


def test_after_a_variant_that_breaks_the_context_the_others_begin_anew():
    """An address that is none: whatever runs next in the same context fails, too."""
    (found,) = checked({HERE[0]: "breaks"})
    assert found.outcomes == {**dict.fromkeys(HERE, RIGHT), HERE[0]: Outcome(2, "breaks")}


def test_a_variant_that_is_wrong_ends_nothing():
    (found,) = checked({HERE[2]: "wrong"})
    assert {number: one.error for number, one in found.outcomes.items()} == {**dict.fromkeys(HERE), HERE[2]: "wrong"}


def test_a_kernel_without_problems_is_said_to_be_and_the_next_one_is_checked():
    checker = Checker(packaged.directory, Acting({"all": ""}), 60)
    found = list(first_run._checks([checker], [Work(KERNEL, HERE), Work(KERNEL, HERE)]))
    assert [one.outcomes for one in found] == [dict.fromkeys(HERE, Outcome(0, "ValueError: no problems"))] * 2


def test_after_two_variants_that_hang_the_rest_of_a_kernel_is_left_alone(monkeypatch):
    """A kernel whose 30 variants all hang would take an hour and a half."""
    monkeypatch.setattr(one_checker, "_MOST_HANGS", 1)
    (found,) = checked({HERE[0]: "hangs"}, limit=5)
    assert [found.outcomes[number].error for number in HERE[1:]] == ["not checked: 1 variants of this kernel hang"] * 3
    assert found.outcomes[HERE[0]].error.startswith("no end of a problem after 5 s")


def test_kernels_with_most_variants_begin_first_and_what_has_none_is_done_at_once():
    begun = []

    class Noted(Checker):
        def begin(self, work):
            begun.append(len(work.left))
            super().begin(work)

    found = list(first_run._checks([Noted(packaged.directory, Acting(), 60)], [Work(KERNEL, HERE[:count]) for count in (1, 3, 0, 2)]))
    assert begun == [3, 2, 1] and len(found) == 4 and not found[0].numbers


def test_a_run_that_is_ended_leaves_no_process():
    checkers = [Checker(packaged.directory, Acting({KERNEL.variants[HERE[0]].name: "hangs"}), 60) for _ in range(2)]
    found = first_run._checks(checkers, [Work(KERNEL, HERE[:1]), Work(KERNEL, HERE[1:2])])
    next(found)
    pids = [checker._process.pid for checker in checkers]
    found.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

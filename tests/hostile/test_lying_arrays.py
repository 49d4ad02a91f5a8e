"""Whatever a caller's array may claim: a refusal in a sentence, before anything is enqueued, at first and after honest calls of its form."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests import recorder
from tests.hostile.lying_arrays import CASES, EQUAL, OUTPUTS

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for libcuda needs a C compiler")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    library = recorder.build(tmp_path_factory.mktemp("recorder"))
    run = recorder.program(library, [sys.executable, "-m", "tests.hostile.lying_arrays"])
    assert run.stderr == "" and run.faults == []
    return json.loads(run.stdout)


def refused(words, answer):
    kind, _, sentence = answer.partition(": ")
    return kind.endswith("Error") and " " not in kind and len(sentence) > 20 and any(one in answer for one in words.split("|"))


@pytest.mark.parametrize("lie", CASES)
def test_an_input_that_lies_is_refused_in_a_sentence(answers, lie):
    launched, prepared, enqueued, launched_later, prepared_later, enqueued_later = answers["x"][lie]
    words = CASES[lie][1]
    assert refused(words, launched) and refused(words, prepared) and refused(words, prepared_later), (launched, prepared, prepared_later)
    assert enqueued == 0
    if lie != EQUAL:
        assert refused(words, launched_later) and enqueued_later == 0, launched_later


@pytest.mark.parametrize("lie", OUTPUTS)
def test_an_output_that_cannot_be_written_is_refused(answers, lie):
    assert [one if one == 0 else refused(OUTPUTS[lie][1], one) for one in answers["q"][lie]] == [True, True, 0] * 2, answers["q"][lie]


def test_honest_arrays_of_the_same_kinds_are_launched(answers):
    assert len(answers["honest"]) == 19
    assert {name: set(all_of) for name, all_of in answers["honest"].items()} == {name: {"ACCEPTED"} for name in answers["honest"]}

"""Evidence belongs to exact bytes, and says no more than was seen."""

import json
from types import SimpleNamespace

import pytest

from zoo.errors import ManifestError, ZooError
from zoo.shipped.evidence import Evidence, summary

ONE, TWO = (SimpleNamespace(sha256=digit * 64) for digit in "12")
PASSED = {"device": "NVIDIA H200", "driver": "580 (CUDA 13.0)", "checks": 20, "error": None}


def test_no_file_is_no_evidence(tmp_path):
    assert summary(Evidence(tmp_path), [ONE, TWO]) == "never run on a GPU"


def test_what_was_written_is_read_back_and_kinds_do_not_erase_each_other(tmp_path):
    evidence = Evidence(tmp_path)
    evidence.add(ONE, "gpu", PASSED)
    evidence.add(ONE, "benchmark", {"device": "NVIDIA H200", "shapes": {}})
    evidence.write()
    again = Evidence(tmp_path)
    assert set(again.of(ONE)) == {"gpu", "benchmark"} and again.of(TWO) == {}
    assert again.of(ONE)["gpu"].items() >= PASSED.items() and again.of(ONE)["gpu"]["date"]
    assert summary(again, [ONE, TWO]) == "1 passed on NVIDIA H200, 1 never run on a GPU"


def test_the_file_is_sorted_so_that_a_diff_shows_what_changed(tmp_path):
    for order in ((ONE, TWO), (TWO, ONE)):
        evidence = Evidence(tmp_path / "none")
        evidence.path = tmp_path / f"{order[0].sha256[0]}.json"
        for variant in order:
            evidence.add(variant, "gpu", PASSED)
        evidence.write()
    assert (tmp_path / "1.json").read_text() == (tmp_path / "2.json").read_text()


def test_variants_that_come_one_by_one_are_counted_once_for_each_line(tmp_path):
    evidence, own = Evidence(tmp_path), Evidence(tmp_path / "mine.json", whose="by you: ")
    own.add(TWO, "gpu", PASSED)
    evidence.own = own
    assert summary(evidence, (variant for variant in (ONE, TWO))) == "never run on a GPU; by you: 1 passed on NVIDIA H200"


def test_a_failure_is_never_counted_as_a_pass(tmp_path):
    evidence = Evidence(tmp_path)
    evidence.add(ONE, "gpu", {**PASSED, "error": "q: 1 of 32 elements are wrong"})
    assert summary(evidence, [ONE]) == "1 FAILED on a GPU"


def test_the_emulator_is_not_hardware(tmp_path):
    evidence = Evidence(tmp_path)
    evidence.add(ONE, "emulator", {"error": None})
    assert summary(evidence, [ONE]) == "never run on a GPU, 1 passed in the emulator"


@pytest.mark.parametrize("text", [
    "[]", "{", "[" * 100_000, '{"x": 1}', "\xff", json.dumps({"1" * 64: {"rumour": {}}}), json.dumps({"1" * 64: {"gpu": 3}}),
    json.dumps({"1" * 64: {"gpu": {"error": None}}}), json.dumps({"1" * 64: {"gpu": {"device": "a", "error": 1}}}),
    json.dumps({"1" * 64: {"gpu": {"device": "a"}}}), json.dumps({"1" * 64: {"benchmark": {"device": "a", "shapes": {"M=1": {}}}}}),
])  # fmt: skip
def test_malformed_evidence_is_refused(tmp_path, text):
    (tmp_path / "evidence.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ManifestError, match="malformed"):
        Evidence(tmp_path)


def test_evidence_that_cannot_be_written_says_so(tmp_path):
    evidence = Evidence(tmp_path / "missing")
    with pytest.raises(ZooError, match="cannot write the evidence"):
        evidence.write()

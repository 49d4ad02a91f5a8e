"""Evidence belongs to exact bytes, and says no more than was seen."""

import json
from types import SimpleNamespace

import pytest

from zoo.errors import ManifestError, ZooError
from zoo.shipped.evidence import Evidence, pin_text, problem, seen, summary

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


DEVICE = {"device": "a"}


@pytest.mark.parametrize(
    ("record", "whole"),
    [
        ({}, True),
        ({"gpu": DEVICE}, False),  # an error that is left out
        ({"gpu": {**DEVICE, "error": None}}, True),
        ({"gpu": {**DEVICE, "error": "words"}}, True),
        ({"gpu": {**DEVICE, "error": False}}, False),
        ({"gpu": {"device": None, "error": None}}, False),
        ({"emulator": {}}, False),
        ({"emulator": {"error": None}}, True),
        ({"emulator": {"error": 0}}, False),
        ({"emulator": []}, False),
        ({"benchmark": {**DEVICE, "shapes": {}}}, True),
        ({"benchmark": {"shapes": {}}}, False),
        ({"benchmark": DEVICE}, False),
        ({"benchmark": {**DEVICE, "shapes": []}}, False),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": 1, "of_copy": 0.5}}}}, True),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": 9.9e299, "of_copy": 0.5}}}}, True),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": 1e300, "of_copy": 0.5}}}}, False),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": 1, "of_copy": -1e300}}}}, False),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": True, "of_copy": 0.5}}}}, False),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": 1, "of_copy": "1"}}}}, False),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": 1}}}}, False),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": [1, 2]}}}, False),
        ({"benchmark": {**DEVICE, "shapes": {"M=1": {"microseconds": 1, "of_copy": 1}, "M=2": {}}}}, False),
        ({"gpu": {**DEVICE, "error": None}, "rumour": {}}, False),
        ([], False),
    ],
)
def test_a_record_has_what_every_reader_takes_for_granted(tmp_path, record, whole):
    (tmp_path / "evidence.json").write_text(json.dumps({ONE.sha256: record}))
    if whole:
        assert Evidence(tmp_path).of(ONE) == record and problem(tmp_path) is None
        summary(Evidence(tmp_path), [ONE])
    else:
        assert "is malformed; delete it and run `zoo verify --gpu --record`" in problem(tmp_path)


def test_what_was_seen_is_counted_and_said_by_its_kind(tmp_path):
    evidence = Evidence(tmp_path)
    variants = [SimpleNamespace(sha256=digit * 64) for digit in "123456789"]
    for variant, device in zip(variants, ("B", "A", "B"), strict=False):
        evidence.add(variant, "gpu", {"device": device, "error": None})
    for variant in variants[3:5]:
        evidence.add(variant, "gpu", {"device": "A", "error": "wrong"})
    for variant, error in zip(variants[2:7], (None, None, None, "wrong", "wrong"), strict=True):
        evidence.add(variant, "emulator", {"error": error})
    found = seen(evidence, variants)
    assert (found.passed, found.failed, found.never_run, found.emulated, list(found.devices.items())) == (3, 2, 4, 3, [("A", 1), ("B", 2)])
    words = "1 passed on A, 2 passed on B, 2 FAILED on a GPU, 3 passed in the emulator"
    assert summary(evidence, variants) == f"{words}, 4 never run on a GPU" and summary(evidence, variants[:5]) == words
    evidence.whose = "unpinned: "
    assert summary(evidence, variants[3:4]) == "unpinned: 1 FAILED on a GPU, 1 passed in the emulator"
    assert summary(evidence, variants[2:3]) == "unpinned: 1 passed on B, 1 passed in the emulator"
    assert summary(evidence, variants[5:]) == "never run on a GPU"
    evidence.add(variants[5], "emulator", {"error": None})
    assert summary(evidence, variants[5:]) == "unpinned: never run on a GPU, 1 passed in the emulator"


def test_timings_of_other_sizes_stay_and_those_of_another_device_go(tmp_path):
    row = {"microseconds": 1.0, "of_copy": 0.5}
    for device, shape in (("A", "M=1"), ("A", "M=2"), ("B", "M=3"), ("B", "M=3")):
        evidence = Evidence(tmp_path)
        evidence.add(ONE, "benchmark", {"device": device, "shapes": {shape: {**row, "of_copy": 0.25}}})
        evidence.add(ONE, "benchmark", {"device": device, "shapes": {shape: row}})
        evidence.write()
        if shape == "M=2":
            assert evidence.of(ONE)["benchmark"]["shapes"] == {"M=1": row, "M=2": row}
    assert Evidence(tmp_path).of(ONE)["benchmark"]["shapes"] == {"M=3": row}


def test_a_kind_that_is_none_is_a_mistake_of_the_caller(tmp_path):
    with pytest.raises(ValueError, match="evidence is one of gpu, emulator, benchmark, not 'rumour'"):
        Evidence(tmp_path).add(ONE, "rumour", {})


def test_cubins_that_are_shipped_no_more_are_forgotten_here_and_in_the_file(tmp_path):
    evidence = Evidence(tmp_path)
    evidence.add(ONE, "gpu", PASSED)
    evidence.add(TWO, "gpu", PASSED)
    evidence.write()
    evidence.keep_only([TWO])
    assert evidence.of(ONE) == {} and evidence.of(TWO)
    evidence.write()
    assert Evidence(tmp_path).of(ONE) == {} and evidence.of(TWO) == Evidence(tmp_path).of(TWO) != {}


def test_the_pin_is_a_module_that_holds_the_digest():
    names = {}
    exec(pin_text(b"{}\n"), names)
    assert names["EVIDENCE_SHA256"] == "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"

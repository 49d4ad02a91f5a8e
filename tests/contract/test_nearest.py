"""A refusal names what may have been meant: never everything, never something far away."""

import numpy
import pytest

import zoo
import zoo.emulator
from zoo.contract.nearest import a_few, nearest, suggestion
from zoo.packaged import packaged

NAMES = packaged.manifest.names


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ("quantise.mxfp8.rows", "quantize.mxfp8.rows"),
        ("QUANTIZE.MXFP8.ROWS", "quantize.mxfp8.rows"),
        ("gemm.fp8b128.desne", "gemm.fp8b128.dense"),
        ("quantize.*.row", None),  # all formats are as near
        ("mn_major", "scales.mn_major"),
        ("swigla", "gemm.bf16_mxfp4.dense.swiglu"),
    ],
)
def test_a_slip_of_the_pen_finds_the_name(written, first):
    found = nearest(written, NAMES)
    assert 1 <= len(found) <= 3 and set(found) <= set(NAMES)
    assert first is None or found[0] == first


@pytest.mark.parametrize("written", ["", "*", "xyzzy", "???"])
def test_what_is_near_nothing_suggests_nothing(written):
    assert nearest(written, NAMES) == []
    assert suggestion(written, NAMES, "look") == "look"


def test_a_near_name_keeps_farther_ones_away():
    assert nearest("sm_90", ["sm_90a", "sm_100f"]) == ["sm_90a"]
    assert suggestion("lits", ["list", "show"], "there are two") == "did you mean list? There are two"


def test_all_names_are_no_suggestion():
    assert suggestion("sm_70", ["sm_90a", "sm_100f"], "there are two") == "there are two"


def test_a_few_names_are_said_to_be_a_few():
    assert a_few(["a", "b", "c"]) == "a, b, c" and a_few(list("abcdef")) == "a, b, c and 3 more"


@pytest.mark.parametrize("name", ["quantize.mxfp8.row", "nothing at all"])
def test_an_unknown_kernel_in_python_is_refused_without_a_page_of_names(name):
    with pytest.raises(zoo.UnknownKernelError) as refusal:
        zoo.kernel(name)
    words = str(refusal.value)
    assert words.startswith(f"no kernel is named '{name}'; ") and f"`zoo list` shows all {len(NAMES)}" in words
    assert sum(known in words.replace(",", "").replace("?", "").split() for known in NAMES) <= 3
    assert ("did you mean quantize.mxfp8.rows" in words) == (name == "quantize.mxfp8.row")


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"op": "gem"}, "find: no op is 'gem'; did you mean gemm? There are quantize, "),
        ({"arch": "sm_90"}, "find: no arch is 'sm_90'; did you mean sm_90a? There are "),
        ({"formats": "mxfp"}, "find: no formats is 'mxfp'; did you mean mxfp"),
        ({"op": "gemm", "grouping": "dens"}, "find: no grouping is 'dens'; did you mean dense? "),
        ({"format": "mxfp8"}, "find: names have no field 'format'; did you mean formats? They have op, "),
        ({"opp": "gemm"}, "find: names have no field 'opp'; did you mean op? They have op, "),
        ({"op": 3}, "find: no op is 3; there are quantize, "),
    ],
    ids=str,
)
def test_a_search_for_what_is_misspelt_does_not_just_find_nothing(search, words):
    with pytest.raises(zoo.ArgumentError) as refusal:
        zoo.find(**search)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(
    "search", [{"arch": "sm_120a"}, {"op": "scales", "formats": "mxfp8"}, {"op": "gemm", "extra": "amax"}, {"pattern": "gemm.nope"}]
)
def test_a_search_that_makes_sense_may_find_nothing(search):
    assert zoo.find(**search) == []


def test_loading_a_misspelt_kernel_is_refused_for_its_name_and_not_for_a_missing_driver(monkeypatch):
    monkeypatch.setattr("zoo.runtime.driver.device", lambda ordinal: pytest.fail("the driver was asked first"))
    with pytest.raises(zoo.UnknownKernelError, match=r"no kernel matches 'gemm\.fp8b128\.desne'; did you mean gemm\.fp8b128\.dense"):
        zoo.load("gemm.fp8b128.desne")


@pytest.mark.parametrize("function", ["launch", "prepare"])
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"scale": 1}, zoo.ArgumentError, "no argument is named 'scale'; it takes x, q, scales, .*; did you mean scales\\?$"),
        ({"roundin": "rne"}, zoo.ArgumentError, "no argument is named 'roundin'; it takes .*; did you mean rounding\\?$"),
        ({"xyzzy": 1}, zoo.ArgumentError, "no argument is named 'xyzzy'; it takes [a-z_, ]*$"),
        ({"variant": "t25"}, zoo.VariantError, "variant 't25' does not exist for sm_90a; did you mean .*_t256.*\\? `zoo show quantize.mxfp8.rows --variants` shows"),
        ({"variant": "nope"}, zoo.VariantError, "variant 'nope' does not exist for sm_90a; `zoo show quantize.mxfp8.rows --variants` shows all [0-9]+$"),
        ({"variant": "t25", "rounding": "up"}, zoo.ArgumentError, "rounding: expected [a-z, ]* or [a-z]*, got 'up'$"),  # of what was refused alone
    ],
    ids=str,
)  # fmt: skip
def test_a_call_with_a_misspelt_argument_or_variant_is_told_what_was_meant(function, change, kind, words):
    gpu = zoo.emulator.Device("sm_90a")
    call = {"x": gpu.array(numpy.zeros((4, 64), numpy.float16)), "q": gpu.empty((4, 64), "e4m3"), "scales": gpu.empty((4, 2), "ue8m0")}
    with pytest.raises(kind, match=words) as refusal:
        getattr(zoo, function)("quantize.mxfp8.rows", **call, **change)
    assert type(refusal.value) is kind

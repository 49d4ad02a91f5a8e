"""A refusal names what may have been meant: never everything, never something far away."""

import pytest

import zoo
from zoo.contract.nearest import a_few, nearest, suggestion
from zoo.shipped.packaged import packaged

NAMES = packaged.manifest.names


@pytest.mark.parametrize(
    ("written", "first"),
    [
        ("quantise.mxfp8.rows", "quantize.mxfp8.rows"),
        ("QUANTIZE.MXFP8.ROWS", "quantize.mxfp8.rows"),
        ("gemm.fp8b128.desne", "gemm.fp8b128.dense"),
        ("quantize.*.row", None),  # all formats are as near
        ("mn_major", "scales.mn_major"),
        ("swigla", "gemm.fp8b128.dense.swiglu"),
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

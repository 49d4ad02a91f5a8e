"""The README's picture shows every timing, in place, and does not hide where another library is faster or does less."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tools.documentation.comparison import Comparison
from tools.documentation.picture import LEAST_GAP, caption, picture
from tools.documentation.svg import THEMES

ZOO, SAME, LESS = "zoo", "torch block-wise", "torch tensor-wise"


def problem(tokens, **microseconds):
    return {"sizes": {"M": tokens, "N": 512, "K": 512}, "microseconds": {ZOO: 10.0, **microseconds}, "refused": {}}


@pytest.fixture
def found() -> Comparison:
    dense = [problem(4, **{SAME: 20.0, LESS: 10.0}), problem(64, **{SAME: 16.0, LESS: 8.0}), problem(1000, **{SAME: 5.0, LESS: 4.0})]
    layers = [
        {"model": "gpt-oss-20b", "tokens": tokens, "microseconds": {ZOO: 10.0 * tokens, "triton_kernels": 10.1 * tokens}, "refused": {}}
        for tokens in (1, 8, 512)
    ]
    libraries = {"torch": "2.11.0", "deep_gemm": None}
    words = {
        "device": "NVIDIA H200",
        "driver": "580",
        "date": "2026-11-29",
        "libraries": libraries,
        "less": {LESS: "one scale for each matrix"},
    }
    return Comparison({**words, "dense": dense, "layers": layers})


def shapes(drawn: str, colour: str, kind: str) -> list[ElementTree.Element]:
    return [
        one for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith(kind) and colour in (one.get("stroke"), one.get("fill"))
    ]


def places(line: ElementTree.Element) -> list[tuple[float, float]]:
    return [tuple(map(float, place.split(","))) for place in line.get("points").split()]


@pytest.mark.parametrize("theme", THEMES)
def test_a_mean_lies_above_one_where_zoo_is_faster_and_below_where_it_is_slower(found, theme):
    colours = THEMES[theme]
    drawn = picture(found, theme)
    (one,) = (
        line for line in map(places, shapes(drawn, colours.zoo, "polyline")) if line[0][1] == line[1][1] and line[1][0] - line[0][0] > 100
    )
    (means,) = (line for line in map(places, shapes(drawn, colours.rivals[0], "polyline")) if len(line) == 3 and line[0][0] < 372)
    assert [y < one[0][1] for _, y in means] == [True, True, False]  # y grows downwards
    (less,) = (line for line in shapes(drawn, colours.quiet, "polyline") if line.get("stroke-dasharray") and len(places(line)) == 3)
    assert places(less)[0][1] == pytest.approx(one[0][1], abs=0.1), "a rival of equal speed lies on zoo's line"


@pytest.mark.parametrize("theme", THEMES)
def test_every_problem_is_a_point_of_each_rival(found, theme):
    drawn = ElementTree.fromstring(picture(found, theme))
    faint = [one for one in drawn.iter() if one.get("opacity")]
    assert len(faint) == 6


def test_labels_of_close_lines_can_be_read(found):
    drawn = ElementTree.fromstring(picture(found, "light"))
    labels = sorted(float(one.get("y")) for one in drawn.iter() if one.tag.endswith("text") and one.text in ("5,120", "5,171"))
    assert len(labels) == 2 and all(below - above >= LEAST_GAP - 0.2 for above, below in itertools.pairwise(labels))


def test_device_axes_libraries_and_what_does_less_are_named(found):
    words = " ".join(re.findall(r">([^<]+)<", picture(found, "light")))
    for name in (
        "NVIDIA H200",
        "torch 2.11.0",
        "microseconds",
        "tokens, M",
        "gpt-oss-20b",
        SAME,
        "less work",
        "triton_kernels",
        "2026-11-29",
    ):
        assert name in words
    assert "deep_gemm" not in words


def test_themes_differ_in_nothing_but_colours(found):
    light, dark = (re.sub(r"#[0-9a-f]{6}", "", picture(found, theme)) for theme in THEMES)
    assert light == dark


def test_the_caption_says_the_means_and_where_zoo_is_slower(found):
    first, last, worst, layer = re.findall(r"[^.]+\.", caption(found))
    assert "At 1 to 16 tokens" in first and "is 100 % faster than torch block-wise (geometric mean of 1 problems)" in first
    assert "At 129 to 2,048 tokens" in last and "is 100 % slower than torch block-wise" in last
    assert "is 100 % slower than torch block-wise" in worst and LESS not in caption(found)
    assert "At 1 to 512 tokens" in layer and "with FP8 activations is 1 % faster than triton_kernels (bf16 activations)" in layer

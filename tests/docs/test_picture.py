"""The README's picture shows every timing, in place, and does not hide where torch is faster."""

import itertools
import re
import xml.etree.ElementTree as ElementTree

import pytest

from tools.documentation.dense_ratios import Point, Ratios
from tools.documentation.picture import LEAST_GAP, THEMES, caption, picture

TOKENS, WEIGHTS = (1, 64, 4096), ((1024, 512), (2048, 512))
TIMES = {(1, 1024): (2, 4), (64, 1024): (6, 6), (4096, 1024): (90, 60), (1, 2048): (4, 8), (64, 2048): (10, 10), (4096, 2048): (150, 100)}


@pytest.fixture
def ratios() -> Ratios:
    points = [Point(tokens, (K, N), *TIMES[tokens, K], 1.0, 1.0) for tokens in TOKENS for K, N in WEIGHTS]
    return Ratios("NVIDIA H200", tuple(points))


def lines(drawn: str, colour: str) -> list[list[tuple[float, float]]]:
    """The lines of this colour that have a point for each number of tokens."""
    found = [one for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("polyline") and one.get("stroke") == colour]
    places = [[tuple(map(float, place.split(","))) for place in one.get("points").split()] for one in found]
    return [one for one in places if len(one) == len(TOKENS)]


@pytest.mark.parametrize("theme", THEMES)
def test_a_time_lies_where_it_belongs(ratios, theme):
    colours = THEMES[theme]
    (torch,) = lines(picture(ratios, theme), colours.torch)
    zoo, mean = lines(picture(ratios, theme), colours.zoo)
    assert zoo[0][1] > torch[0][1] and zoo[1] == torch[1] and zoo[2][1] < torch[2][1]  # y grows downwards: twice as fast, as fast, slower
    assert [place[0] for place in zoo] == [place[0] for place in torch]
    one, many = mean[0][1], mean[2][1]
    assert one - mean[1][1] == pytest.approx(mean[1][1] - many, abs=0.2)  # 0.5, 1.0 and 1.5 of torch's time


@pytest.mark.parametrize("theme", THEMES)
def test_every_weight_matrix_has_a_line_and_a_label_that_can_be_read(ratios, theme):
    drawn = picture(ratios, theme)
    assert len(lines(drawn, THEMES[theme].quiet)) == len(WEIGHTS)
    labels = {one.text: float(one.get("y")) for one in ElementTree.fromstring(drawn).iter() if one.tag.endswith("text")}
    places = sorted(labels[words] for words in ("1024 x 512", "2048 x 512", "mean"))
    assert all(below - above >= LEAST_GAP - 0.2 for above, below in itertools.pairwise(places))


def test_device_axes_and_units_are_named(ratios):
    words = " ".join(re.findall(r">([^<]+)<", picture(ratios, "light")))
    for name in ("NVIDIA H200", "microseconds", "tokens, M", "K = 2048, N = 512", "torch", "zoo", "above 1: torch is faster"):
        assert name in words


def test_themes_differ_in_nothing_but_colours(ratios):
    light, dark = (re.sub(r"#[0-9a-f]{6}", "", picture(ratios, theme)) for theme in THEMES)
    assert light == dark


def test_the_caption_says_the_means(ratios):
    assert caption(ratios).endswith("0.50 at 1, 1.00 at 64, 1.50 at 4096 tokens")

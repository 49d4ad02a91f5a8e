"""The words in a plot's SVG: whole, escaped, and where the lines and marks are that they name."""

import itertools
import xml.etree.ElementTree as ElementTree

import pytest

from zoo.benchmark.measure import Measurement
from zoo.benchmark.plot import plot
from zoo.cli.svg_plot import _text, as_svg

SVG = "{http://www.w3.org/2000/svg}"
SHAPES = ((1, 2112, 7168, 6.6), (64, 4096, 7168, 12.8), (8192, 8192, 8192, 927.7))


@pytest.fixture(scope="module")
def drawn():
    measured = []
    for m, n, k, microseconds in SHAPES:
        size = m * k + n * k + 2 * m * n
        measured.append(Measurement("t", microseconds, size, size / 4.2e6, None, True, 2 * m * n * k))
    return plot("gemm.fp8b128.dense", "NVIDIA H200", measured)


@pytest.fixture(scope="module")
def root(drawn):
    return ElementTree.fromstring(as_svg(drawn))


def texts(root):
    return [(one.text, float(one.get("x")), float(one.get("y")), one.get("text-anchor")) for one in root.iter(f"{SVG}text")]


def test_words_are_words_whatever_characters_they_have():
    root = ElementTree.fromstring(f'<svg xmlns="http://www.w3.org/2000/svg">{_text(3, 5, "a < b & <script>", "end", 7)}</svg>')
    (one,) = root
    assert one.text == "a < b & <script>" and len(one) == 0
    assert (one.get("x"), one.get("y"), one.get("text-anchor"), one.get("font-size")) == ("3", "5", "end", "7")


def test_a_number_stands_at_the_line_that_it_names(drawn, root):
    lines = [
        tuple(float(one.get(name)) for name in ("x1", "y1", "x2", "y2"))
        for one in root.iter(f"{SVG}line")
        if one.get("stroke") == "#dddddd"
    ]
    down = {x: bottom for x, _, other, bottom in lines if x == other}
    across = {y: left for left, y, _, other in lines if y == other}
    words = texts(root)
    assert len(down) == len(list(drawn.x.ticks())) and len(across) == len(list(drawn.y.ticks()))
    for (x, bottom), tick in zip(sorted(down.items()), sorted(drawn.x.ticks()), strict=True):
        assert (f"{tick:g}", x, bottom + 18, "middle") in words
    for (y, left), tick in zip(sorted(across.items(), reverse=True), sorted(drawn.y.ticks()), strict=True):
        assert (f"{tick:g}", left - 8, y + 4, "end") in words


def test_titles_labels_series_and_notes_are_all_written_once_and_apart(drawn, root):
    words = texts(root)
    below = [*(series.name for series in drawn.series), drawn.line_name, *drawn.notes]
    for one in (drawn.title, drawn.x.label, drawn.y.label, *below):
        assert [text for text, *_ in words].count(one) == 1, one
    places = [(x, y) for _, x, y, _ in words]
    assert len(set(places)) == len(places)
    rows = [next(y for text, _, y, _ in words if text == one) for one in below]
    assert [later - earlier for earlier, later in itertools.pairwise(rows)] == [18] * (len(rows) - 1)
    width, height = float(root.get("width")), float(root.get("height"))
    assert all(0 <= x <= width and 0 < y <= height for x, y in places)

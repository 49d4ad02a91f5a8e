"""What the clock is held to: pairs of calls whose recorded times differ."""

import re

import pytest

from tests.clock.conftest import predicted_call
from tests.recorder import ROOT
from tools import trace_validation
from tools.trace_validation import KERNELS, SHAPES, right_orders, validate
from zoo.cli.trace_svg import svg
from zoo.clock.chip import chip_for
from zoo.clock.lanes import rows


def test_pairs_that_hardly_differ_are_not_judged():
    assert right_orders([(2.0, 10.0), (1.0, 10.9), (3.0, 20.0)]) == (2, 2)


def test_a_wrong_order_counts_against_the_clock():
    assert right_orders([(3.0, 10.0), (2.0, 20.0), (4.0, 40.0)]) == (2, 3)


def test_a_call_without_a_recorded_time_is_named_and_the_others_are_judged(monkeypatch, capsys):
    """Cubins that were built anew have no times until a GPU has run them."""
    timed = trace_validation.timed
    monkeypatch.setattr(trace_validation, "SHAPES", SHAPES[1:2])
    monkeypatch.setattr(trace_validation, "KERNELS", ("gemm.fp8b128.dense", "gemm.mxfp8.dense"))
    monkeypatch.setattr(trace_validation, "timed", lambda name, shape: timed(name, shape) if "fp8b128" in name else None)
    monkeypatch.setattr(trace_validation, "predicted_microseconds", lambda timing, chip: 1.5 * timing.microseconds)
    validate(chip_for("sm_90a"))
    said = capsys.readouterr().out
    assert "gemm.mxfp8.dense at 512 x 7168 x 2048: no time is recorded" in said and "mean error 50.0%" in said


@pytest.mark.parametrize("name", KERNELS)
def test_the_page_has_a_figure_for_each_judged_call(name):
    """A kernel that another one has replaced leaves figures that nobody can reproduce."""
    page = (ROOT / "docs/lab/clock.md").read_text()
    rows = {row[1]: row[0].count("|") - 2 for row in re.finditer(r"^\| `(gemm\.\S+)` \|.*$", page, re.MULTILINE)}
    assert set(rows) == set(KERNELS) and rows[name] == len(SHAPES)


def test_the_page_has_the_picture_that_its_command_draws():
    """Else a rebuilt cubin or another rule of the clock leaves an old picture beside new figures."""
    page = (ROOT / "docs/lab/clock.md").read_text()
    kernel, shape = re.search(r"`zoo trace (\S+) --shape ([\d,]+) --svg docs/lab/clock.svg`", page).groups()
    prediction = predicted_call(kernel, [int(size) for size in shape.split(",")], "sm_90a")
    assert (ROOT / "docs/lab/clock.svg").read_text() == svg(prediction, rows(prediction))

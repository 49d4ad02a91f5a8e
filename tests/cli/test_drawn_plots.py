"""Two plots as they were when somebody last looked at them: a mark, a line or a number out of its place is a difference.

After a change that is meant, `python -m tests.cli.test_drawn_plots` writes them anew; look at them before they are kept.
"""

from pathlib import Path

import pytest

from zoo.benchmark.plot import Axis, Plot, Series
from zoo.cli.svg_plot import as_svg
from zoo.cli.terminal_plot import as_text

HERE = Path(__file__).parent / "drawn"
POINTS = ((1.0, 4.0), (3.0, 40.0), (31.6, 17.5), (100.0, 0.0))
PLOTS = {
    "roofline": Plot(
        "a <title> & more", Axis("operations a byte", 1.0, 100.0, True), Axis("TFLOPS", 0.0, 50.0, False),
        tuple(Series(name, name[0], tuple((x, y + up) for x, y in POINTS)) for up, name in enumerate(("zoo", "torch", "product", "zoo's second"))),
        ((1.0, 10.0), (20.0, 50.0), (100.0, 50.0)), "the best arithmetic & copies", ("a note", "another of <several>"),
    ),
    "copies": Plot("bytes alone", Axis("MB", 16.0, 9000.0, True), Axis("GB/s", 10.0, 4000.0, True), (Series("zoo", "z", ((20.0, 900.0), (8000.0, 3500.0))),), (), "", ()),
}  # fmt: skip
RENDERERS = {"svg": as_svg, "txt": as_text}


@pytest.mark.parametrize("name", PLOTS)
@pytest.mark.parametrize("kind", RENDERERS)
def test_a_plot_is_drawn_as_it_was_when_somebody_looked_at_it(monkeypatch, name, kind):
    monkeypatch.setenv("COLUMNS", "72")
    assert RENDERERS[kind](PLOTS[name]).rstrip("\n") == (HERE / f"{name}.{kind}").read_text().rstrip("\n")


if __name__ == "__main__":
    import os

    os.environ["COLUMNS"] = "72"
    for plot_name, plot in PLOTS.items():
        for suffix, renderer in RENDERERS.items():
            (HERE / f"{plot_name}.{suffix}").write_text(renderer(plot).rstrip("\n") + "\n")

"""`zoo bench --plot`: points lie where the figures (the lab book's) say, the limit above them, and what is missing is said."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from zoo.benchmark.measure import Measurement
from zoo.benchmark.plot import BEST_SEEN, plot
from zoo.cli.svg_plot import as_svg
from zoo.cli.terminal_plot import as_text

H200, CROSS = "NVIDIA H200", "l8 8 m0 -8"
# M, N, K, microseconds, tw: an H200, as the lab book of FP8 GEMMs once had them
SEEN = (
    (1, 2112, 7168, 6.6, 10.0), (16, 4096, 7168, 10.8, 13.1), (64, 4096, 7168, 12.8, 10.6), (128, 24576, 1536, 20.4, 14.5),
    (4096, 4096, 7168, 207.7, 190.1), (8192, 8192, 8192, 927.7, 916.1),
)  # fmt: skip


def products(torch=True, past_cache=True):
    for m, n, k, microseconds, tw in SEEN:
        size = m * k + n * k + 2 * m * n
        theirs = (size / 4.3e6, tw) if torch else (None, None)
        yield Measurement(
            "t",
            microseconds,
            size,
            size / 4.2e6,
            theirs[0],
            past_cache,
            2 * m * n * k,
            {} if theirs[1] is None else {"torch tensor-wise": theirs[1]},
        )


def discs(drawn):
    """The (x, y) that the discs in an SVG's area stand for."""
    root = ElementTree.fromstring(as_svg(drawn))
    space = "{http://www.w3.org/2000/svg}"
    frame = next(one.get("d") for one in root.iter(f"{space}path") if one.get("stroke") == "black")
    left, top, bottom, right = map(float, re.fullmatch(r"M(\S+) (\S+) V(\S+) H(\S+)", frame).groups())
    found = []
    for one in root.iter(f"{space}circle"):
        x, y = float(one.get("cx")), float(one.get("cy"))
        if y <= bottom:  # not the legend's
            shares = (x - left) / (right - left), (bottom - y) / (bottom - top)
            found.append(tuple(axis.low * (axis.high / axis.low) ** share for axis, share in zip((drawn.x, drawn.y), shares, strict=True)))
    return found


def test_a_product_lies_at_its_operations_a_byte_and_its_rate():
    drawn = plot("gemm.fp8b128.dense", H200, products())
    expected = [(2 * m * n * k / (m * k + n * k + 2 * m * n), 2 * m * n * k / time / 1e6) for m, n, k, time, _ in SEEN]
    for (x, y), (wanted_x, wanted_y) in zip(discs(drawn), expected, strict=True):
        assert x == pytest.approx(wanted_x, rel=0.01) and y == pytest.approx(wanted_y, rel=0.01)
    assert 1180 < expected[-1][1] < 1190


def test_torch_lies_beside_it():
    ours, theirs = plot("gemm.fp8b128.dense", H200, products()).series
    assert [y / other for (_, y), (_, other) in zip(ours.points, theirs.points, strict=True)] == pytest.approx(
        [tw / us for *_, us, tw in SEEN]
    )
    assert [x for x, _ in ours.points] == [x for x, _ in theirs.points]
    assert as_svg(plot("gemm.fp8b128.dense", H200, products())).count(CROSS) == len(SEEN) + 1  # that of the legend


def test_the_limit_bends_where_memory_feeds_the_best_rate_and_no_point_is_above_it():
    drawn = plot("gemm.fp8b128.dense", H200, products())
    (low, at_low), (bend, at_bend), (high, at_high) = drawn.line
    arithmetic, bandwidth = BEST_SEEN[H200]
    assert at_low == pytest.approx(bandwidth * low) and at_bend == pytest.approx(bandwidth * bend) and at_bend == at_high == arithmetic
    for x, y in drawn.series[0].points:
        assert low < x < high and y < min(bandwidth * x, arithmetic)


def test_a_device_nobody_measured_gets_no_invented_rate():
    drawn = plot("gemm.fp8b128.dense", "NVIDIA H100 PCIe", products())
    assert (
        [y / x for x, y in drawn.line] == pytest.approx([4.3, 4.3])
        and "not known here" in " ".join(drawn.notes)
        and "not known here" in as_svg(drawn)
    )


def test_a_copy_within_the_cache_is_no_limit():
    inside = Measurement("t", 2.0, 10**6, 0.1, None, False, 10**8)
    assert [y / x for x, y in plot("gemm.fp8b128.dense", "other", [*products(), inside]).line] == pytest.approx([4.3, 4.3])


def test_without_torch_its_points_are_missing_and_that_is_said():
    drawn = plot("gemm.fp8b128.dense", H200, products(torch=False))
    text = " ".join(as_text(drawn).split())
    assert [one.name for one in drawn.series] == ["zoo"] and CROSS not in as_svg(drawn)
    assert "without 6 points of torch._scaled_mm: torch is not installed here, or sees no GPU" in text
    assert "torch._scaled_mm: torch is not installed" not in as_text(plot("gemm.fp8b128.dense", H200, products()))


def test_on_a_terminal_every_point_has_its_place_and_lines_fit():
    drawn = plot("gemm.fp8b128.dense", H200, products())
    lines = as_text(drawn).splitlines()
    assert max(map(len, lines)) <= 80
    area = [line.split("|", 1)[1].ljust(70) for line in lines if "|" in line]
    assert len(area) == 20
    (x, y), *_ = drawn.series[0].points
    row, column = 19 - round(drawn.y.place(y) * 19), round(drawn.x.place(x) * 69)
    assert area[row][column] in "o*"
    points = sum(sum(map(line.count, "ox")) + 2 * line.count("*") for line in area)
    assert points == 12 and any("several of them" in line for line in lines)
    assert any("1000 |" in line for line in lines) and any(re.fullmatch(r" +10 +100 +1000", line) for line in lines)


def test_what_multiplies_nothing_is_drawn_as_bandwidth_beside_copies():
    measured = [Measurement("t", size / 3.9e6, size, size / 4.2e6, size / 4.0e6, True) for size in (10**6, 10**7, 10**8)]
    drawn = plot("quantize.mxfp8.rows", H200, measured)
    assert [series.points[1][1] for series in drawn.series] == pytest.approx([3900, 4200, 4000])
    assert drawn.x.label == "megabytes moved" and not drawn.line and not drawn.notes
    assert "GB/s" in as_text(drawn) and ElementTree.fromstring(as_svg(drawn)) is not None


def test_a_single_measurement_has_axes_too():
    (only, *_) = products()
    assert "o" in as_text(plot("gemm.fp8b128.dense", H200, [only])) and len(discs(plot("gemm.fp8b128.dense", H200, [only]))) == 1


@pytest.mark.parametrize("name", ["quantize.mxfp8.rows", "gemm.fp8b128.dense"])
def test_the_command_draws_what_it_measured(with_stand_in, tmp_path, name):
    shapes = [part for shape in ("256,1024", "512,1024") for part in ("--shape", shape + ",512" * name.startswith("gemm"))]
    run = with_stand_in("bench", name, *shapes, "--plot")
    assert run.returncode == 0, run.stderr
    assert f"{name} on Recorder 9.0" in run.stdout and ("operations a byte" in run.stdout) == name.startswith("gemm")
    file = tmp_path / "plot.svg"
    run = with_stand_in("bench", name, *shapes, "--plot", file, "--json")
    assert run.returncode == 0 and run.stdout.startswith("{") and f"drawn {file}" in run.stderr
    assert file.read_text().count("<circle") == 3  # with that of the legend


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--plot", "gemm.fp8b128.dense"), "into a file named *.svg"),
        (("gemm.fp8b128.dense", "--plot", "figure.png"), "into a file named *.svg"),
        (("gemm.fp8b128.dense", "--plot", "--json"), "name a file, --plot FILE.svg"),
    ],
)
def test_a_misplaced_plot_is_refused_in_words(without_gpu, arguments, reason):
    run = without_gpu("bench", *arguments)
    assert run.returncode == 2 and reason in " ".join(run.stderr.replace("\u2502", " ").split())


def test_a_drawing_that_cannot_be_written_is_told_before_a_gpu_is_looked_for(zoo_command):
    result = zoo_command("bench", "quantize.mxfp8.rows", "--plot", "/proc/zoo/drawn.svg")
    assert result.exit_code == 1 and "/proc/zoo/drawn.svg" in result.output and "GPU" not in result.output

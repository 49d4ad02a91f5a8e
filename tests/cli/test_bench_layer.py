"""`zoo bench layer`: bars lie where kernels ran, gaps are what is between them, wrong results are not timed, refusals come first."""

import contextlib
import importlib
import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
from click.testing import CliRunner

from zoo.benchmark import trace
from zoo.benchmark.layer_models import Model
from zoo.benchmark.trace import Bar, Span, bars, last_of, merged, short_name
from zoo.cli import main

# The third kernel starts 5 us before the second ends, and waits for it; the last begins 4 us after all have ended.
SPANS = [Span("second", 110, 10), Span("first", 100, 10), Span("waiting", 115, 15), Span("last", 134, 6)]


def run(*arguments):
    return CliRunner().invoke(main, ["bench", "layer", *arguments])


def test_gaps_are_the_times_in_which_nothing_ran():
    found = bars(SPANS)
    assert found == [Bar("first", 0, 10), Bar("second", 10, 10), Bar("waiting", 20, 10), Bar("gap", 30, 4), Bar("last", 34, 6)]
    assert trace.length(found) == 40 and trace.of_gaps(found) == 4 and trace.of_kernels(found) == 36
    assert list(trace.by_name([*found, Bar("last", 40, 9)]).items())[:2] == [("last", (15, 2)), ("first", (10, 1))]
    assert bars([Span("long", 0, 9), Span("hidden", 2, 3)])[1] == Bar("hidden", 9, 0)
    assert bars([]) == [] and trace.length([]) == 0


def test_the_last_of_two_calls_does_not_begin_in_the_first():
    first, second = Bar("a", 0, 2), Bar("b", 5, 1)
    found = [first, Bar("gap", 2, 3), second, Bar("gap", 6, 1), Bar("a", 7, 2), Bar("gap", 9, 3), Bar("b", 12, 1)]
    assert last_of(found, 2) == [first, Bar("gap", 2, 3), second] and last_of(found, 1) == found and last_of([], 2) == []


def test_short_neighbours_share_a_bar_and_long_ones_keep_theirs():
    found = [Bar("a", 0, 1), Bar("gap", 1, 1), Bar("b", 2, 1), Bar("long", 3, 9), Bar("c", 12, 1)]
    assert merged(found, 2) == [Bar("2 short kernels, gaps", 0, 3), Bar("long", 3, 9), Bar("c", 12, 1)]
    assert merged(found, 0.5) == found


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        ("gemm_fp8b128_t128_w256", "gemm_fp8b128_t128_w256"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::F<float>(int)>(int, float*)", "vectorized_elementwise_kernel"),
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16>(A, B)", "indexSelectLargeIndex"),
        ("_ZN7cutlass13device_kernelIN2at4cuda6detailEEEvv", "device_kernel"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD"),
    ],
)
def test_a_kernels_name_is_found_in_its_signature(whole, short):
    assert short_name(whole) == short


def seen(name="zoo", spans=SPANS):
    pytest.importorskip("torch")
    from zoo.benchmark.layer_steps import Seen

    return Seen(name, 42.5, True, tuple(bars(spans)))


def test_a_bar_lies_at_its_place_and_all_libraries_have_one_scale(monkeypatch):
    from zoo.cli.layer_bars import as_text

    monkeypatch.setenv("COLUMNS", "80")
    text = as_text("title", [seen(), seen("torch bf16", [Span("half", 7, 20)])])
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80 and "zoo: 42.5 us in a CUDA graph; traced: 4 kernels 36.0 us, gaps 4.0 us" in text
    places = {match[1]: (match.start(2), match.end(2)) for line in lines if (match := re.search(r"% (\w+) +([█░#.]+)$", line))}
    left, right = places["first"][0], places["last"][1]
    assert abs(places["second"][0] - left - (right - left) / 4) <= 1 and abs(places["waiting"][1] - left - (right - left) * 0.75) <= 1
    assert abs(places["half"][1] - left - (right - left) / 2) <= 1
    assert any("░" in line or "." in line[20:] for line in lines if " gap " in line)


@pytest.mark.parametrize("columns", [40, 80])
def test_a_slow_step_of_a_long_name_fits_the_terminal(monkeypatch, columns):
    from zoo.benchmark.layer_steps import Seen
    from zoo.cli.layer_bars import as_text

    monkeypatch.setenv("COLUMNS", str(columns))
    slow = Seen("triton_kernels", 12345.6, False, (Bar("kernel_" + 90 * "x", 0, 12345.6),))
    text = as_text("gpt-oss-120b, 128 experts of 2880 x 2880, top 4, fp8_mxfp4, 16,384 tokens, forward and backward, NVIDIA H200", [slow])
    assert max(map(len, text.splitlines())) <= columns


def test_a_step_without_a_trace_says_why_it_has_no_bars():
    from zoo.cli.layer_bars import as_svg, as_text

    for drawn in (as_text, as_svg):
        assert "traced: 1 kernel 9.0 us" in drawn("title", [seen(spans=[Span("only", 0, 9)])])
        assert "traced: nothing, because torch's profiler saw no kernel" in " ".join(drawn("title", [seen(spans=[])]).split())


def test_the_picture_has_every_kernel_and_gap_with_its_whole_name():
    from zoo.cli.layer_bars import as_svg

    root = ElementTree.fromstring(as_svg("a < b", [seen(spans=[*SPANS, Span("void f<int>(int)", 140, 10)])]))
    space = "{http://www.w3.org/2000/svg}"
    drawn = [(one.find(f"{space}title").text, one) for one in root.iter(f"{space}rect") if one.find(f"{space}title") is not None]
    assert [words.split(":")[0] for words, _ in drawn] == ["first", "second", "waiting", "gap", "last", "void f<int>(int)"]
    widths = [float(one.get("width")) for _, one in drawn]
    assert widths[1] == pytest.approx(2.5 * widths[3], rel=0.01) and float(drawn[-1][1].get("x")) + widths[-1] == pytest.approx(
        1080, abs=0.1
    )


def test_a_misused_command_is_refused_before_a_gpu_is_asked_for():
    for arguments, words in (
        (("linear", "--shape", "1,2,3"), "--shape of linear: expected N,K, got 3 numbers"),
        (("linear", "--shape", "1,x"), "expected whole numbers above 0"),
        (("experts", "--shape", "4,8,256,128"), "at most as many experts as there are, 4, got 8"),
        (("deepseek-v3", "--shape", "4,2,256,128"), "has sizes of its own"),
        (("linear", "--svg", "bars.png"), "expected a file named *.svg"),
        (("dense",), "'dense' is not one of 'linear', 'experts'"),
    ):
        found = run(*arguments)
        assert found.exit_code == 2 and words in found.output, found.output


def test_formats_that_a_layer_lacks_are_refused_before_a_gpu_is_asked_for():
    pytest.importorskip("torch")
    for arguments, words in (
        (("linear", "--format", "fp8"), "no format 'fp8' of layers"),
        (("experts", "--format", "fp8_mxfp4", "--backward"), "format 'fp8_mxfp4' has no gradients"),
        (("experts", "--shape", "4,2,250,128"), "hidden: fp8b128 needs a multiple of 16, got 250"),
    ):
        found = run(*arguments)
        assert found.exit_code == 1 and words in found.output, found.output


@pytest.fixture
def on_a_cpu(monkeypatch):
    """The command with torch's CPU in the GPU's place; every step is run once and leaves the same trace."""
    torch = pytest.importorskip("torch")
    importlib.import_module("zoo.torch")  # registers the operators
    from zoo.benchmark import layer_steps

    real = layer_steps.steps
    monkeypatch.setattr("zoo.benchmark.rivals.torch_with_gpu", lambda: torch)
    monkeypatch.setattr(layer_steps, "steps", lambda torch, asked, device, alone: real(torch, asked, "cpu", alone))
    monkeypatch.setattr(layer_steps, "see", lambda torch, name, calls, device: (calls[-1](), seen(name))[1])
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    for name, small in (("MODELS", {"gpt-oss-20b": Model(4, 2, 192, 128)}),):
        monkeypatch.setattr(layer_steps, name, small)
        monkeypatch.setattr("zoo.cli.bench_layer.MODELS", small)
    return torch


@pytest.mark.parametrize(
    "arguments",
    [
        ("linear", "--shape", "128,256"),
        ("linear", "--shape", "128,256", "--backward"),
        ("linear", "--shape", "128,256", "--format", "bf16_mxfp4"),
        ("experts", "--shape", "4,2,256,128"),
        ("experts", "--shape", "4,2,256,128", "--format", "fp8_nvfp4"),
        ("experts", "--shape", "4,2,192,192", "--backward"),
        ("gpt-oss-20b",),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_zoo_and_torch_are_shown_and_their_results_agree(on_a_cpu, arguments):
    found = run(*arguments, "--tokens", "24", "--json")
    assert found.exit_code == 0, found.output
    shown = json.loads(found.output)
    assert {"zoo", "torch bf16"} <= {one["name"] for one in shown["steps"]} and "wrong" not in str(shown["refused"])


def test_a_wrong_layer_is_refused(on_a_cpu, monkeypatch):
    from zoo.torch.nn import Linear

    right = Linear.forward
    monkeypatch.setattr(Linear, "forward", lambda self, x: right(self, x.roll(1, 0)))
    found = run("linear", "--shape", "128,256", "--tokens", "24")
    assert found.exit_code == 1 and "wrong: its error is 1.4" in found.output


def test_the_file_is_drawn(on_a_cpu, tmp_path):
    found = run("linear", "--shape", "128,256", "--tokens", "24", "--svg", str(tmp_path / "bars.svg"))
    assert found.exit_code == 0 and "linear, N 128, K 256, fp8b128, 24 tokens, forward, NVIDIA H200" in found.output
    assert ElementTree.parse(tmp_path / "bars.svg").getroot().tag.endswith("svg")

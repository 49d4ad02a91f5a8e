"""`zoo trace`: what is drawn fits the terminal, Blackwell is marked as predicted everywhere, and a call that cannot be traced is refused."""

import json
import xml.etree.ElementTree as ElementTree

import pytest

HOPPER = ("trace", "gemm.fp8b128.dense", "--shape", "64,256,512")
BLACKWELL = ("trace", "gemm.mxfp8.dense", "--shape", "128,128,256", "--arch", "b200")


def test_the_picture_and_its_tables_fit_the_terminal(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    result = zoo_command(*HOPPER)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 60
    assert "predicted" not in result.output.lower()
    for words in ("memory", "tensor core", "math 0-3", "copies", "wait for, us", "busy us", "the busiest unit is"):
        assert words in result.output


@pytest.mark.parametrize(("arch", "said"), [("H100", "zoo has no figures of the H100: the prediction is for the H200\n"), ("h200", "")])
def test_a_prediction_for_another_chip_says_so(zoo_command, arch, said):
    result = zoo_command("trace", "gemm.fp8b128.dense", "--shape", "8,128,128", "--arch", arch, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["chip"] == "H200"
    assert result.stderr == said


def test_blackwell_is_marked_as_predicted_everywhere(zoo_command, tmp_path):
    picture = tmp_path / "clock.svg"
    result = zoo_command(*BLACKWELL, "--svg", picture)
    assert result.exit_code == 0, result.output
    head, *parts = result.output.split("\n\n")
    head = " ".join(head.split())
    assert "PREDICTED, held to no GPU" in head and "predicted: " in head
    assert [part.partition(":")[0] for part in parts[-3:]] == ["predicted"] * 3  # both tables, and what follows from them
    assert "PREDICTED, held to no GPU" in picture.read_text()
    data = json.loads(zoo_command(*BLACKWELL, "--json").stdout)
    assert data["held_to_measured_times"] is False and data["chip"] == "B200"
    assert all(number["source"] for number in data["numbers"].values())


@pytest.mark.parametrize(
    ("call", "problem", "groups"),
    [
        (HOPPER, "M x N x K = 64 x 256 x 512", None),
        (("trace", "gemm.mxfp8_mxfp4.m_grouped_contiguous.swiglu_mxfp8", "--shape", "8,128,256", "--groups", "2"), "M x I x K = 8 x 128 x 256 in 2 groups", 2),
    ],
    ids=["dense", "groups and a long name"],
)  # fmt: skip
def test_a_picture_says_of_which_call_it_is(zoo_command, tmp_path, call, problem, groups):
    """A file that is attached somewhere has no command line beside it."""
    picture = tmp_path / "clock.svg"
    result = zoo_command(*call, "--svg", picture)
    assert result.exit_code == 0 and problem in " ".join(result.output.split()), result.output
    tree = ElementTree.parse(picture).getroot()
    name, launch = (text.text for text in tree.findall("{*}text")[:2])
    assert call[1] in name and launch.startswith(f"{problem}: ") and "us a launch; drawn: 1 of 1 tile of a CTA" in launch
    assert all(len(line) * 8.5 < float(tree.get("width")) for line in (name, launch))  # pixels of a letter
    data = json.loads(zoo_command(*call, "--json").stdout)
    assert " x ".join(map(str, data["sizes"].values())) in problem and data["groups"] == groups


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("quantize.mxfp8.rows", "--shape", "64,64"), 1, "quantize.mxfp8.rows has no pipeline of copies and tensor cores"),
        (("gemm.fp8b128.dens", "--shape", "64,64,128"), 1, "no kernel is named"),
        (("gemm.fp8b128.dense",), 2, "Missing option '--shape'"),
        (("gemm.fp8b128.dense", "--shape", "64,64"), 1, "a shape is M,N,K, got 64,64"),
        (("gemm.fp8b128.dense", "--shape", "0,128,128"), 1, "nothing is launched at M = 0"),
        (("gemm.fp8_nvfp4.dense", "--shape", "8,128,256", "--arch", "b200"), 1, "no kernel has --arch b200"),
        (("gemm.fp8b128.dense", "--shape", "8,128,128", "--variant", "t129"), 1, "did you mean t192"),
        (("gemm.fp8b128.dense", "--shape", "8,128,128", "--svg", "picture.png"), 2, "*.svg"),
        (("gemm.fp8b128.dense", "--shape", "8,128,128", "--groups", "4"), 2, "leave out --groups"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_what_cannot_be_traced_is_refused_in_words(zoo_command, arguments, status, words):
    result = zoo_command("trace", *arguments)
    assert result.exit_code == status and words in " ".join(result.output.split()), result.output


@pytest.mark.parametrize(
    ("kernel", "arguments", "words"),
    [
        ("gemm.mxfp8.m_grouped_gather", ("--shape", "128,134217729,128,128"), "index would have 134,217,729 numbers"),
        ("gemm.mxfp8.m_grouped_masked", ("--shape", "10000000000,128,128,128"), "rows would have 10,000,000,000 numbers"),
        ("gemm.mxfp8.m_grouped_contiguous", ("--shape", "1,128,128", "--groups", "1000000000"), "offsets would have 1,000,000,000 numbers"),
    ],
)
def test_groups_and_rows_beyond_memory_are_refused_before_their_ends_are_made(zoo_command, kernel, arguments, words):
    """Their array is real where others are only described: a traceback, or a machine without memory."""
    result = zoo_command("trace", kernel, *arguments, "--arch", "b200")
    said = " ".join(result.output.split())
    assert result.exit_code == 1 and said == f"Error: {kernel}: {words}, at most 134,217,728 are made: give smaller sizes"


@pytest.mark.parametrize("grouping", ["m_grouped_contiguous", "k_grouped"])
def test_an_end_of_a_group_that_has_no_32_bits_is_refused_in_words(zoo_command, grouping):
    rows = "2147483648,128,128" if grouping == "m_grouped_contiguous" else "128,128,2147483648"
    result = zoo_command("trace", f"gemm.mxfp8.{grouping}", "--shape", rows, "--arch", "b200")
    assert result.exit_code == 1 and "groups end at 2,147,483,648, offsets have 32 bits: give at most 2,147,483,647" in " ".join(
        result.output.split()
    )


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", [0, 2**31, 2**63 - 1])
def test_an_index_of_any_number_of_rows_is_made(zoo_command, rows):
    """No rows are the divisor of nothing, and 2^31 of them are none of its type."""
    result = zoo_command("trace", "gemm.mxfp8.m_grouped_gather", "--shape", f"{rows},128,128,128", "--arch", "b200")
    assert isinstance(result.exception, SystemExit) and result.output.startswith("Error: gemm.mxfp8.m_grouped_gather: ")


def test_columns_that_fill_no_piece_of_a_quantised_result_need_no_option(zoo_command):
    """The refusal said to set one that this command does not have."""
    result = zoo_command("trace", "gemm.bf16_mxfp4.dense.swiglu_fp8b128", "--shape", "1,144,128", "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["sizes"] == {"M": 1, "I": 144, "K": 128}, result.output


def test_arrays_that_would_fill_the_machine_are_refused(zoo_command):
    result = zoo_command("trace", "gemm.fp8b128.dense", "--shape", "100000,100000,100000")
    assert result.exit_code == 1 and "the arrays of this shape have" in " ".join(result.output.split())

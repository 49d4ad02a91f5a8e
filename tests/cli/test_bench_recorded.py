"""`zoo bench --recorded`: what is shipped is printed whole, by the name it was timed under, and no GPU is looked for."""

import json
import re

import pytest

from zoo.benchmark.arguments import size_symbols
from zoo.benchmark.record import timings_of
from zoo.packaged import packaged
from zoo.shipped.evidence import evidence_of

NAME = "gemm.fp8b128.dense"
EVIDENCE = evidence_of(packaged.directory)


def test_every_recorded_line_is_in_the_json(zoo_command):
    evidence, kernel = evidence_of(packaged.directory), packaged.kernel(NAME)
    lines = [line for variant in kernel.variants for line in evidence.of(variant).get("benchmark", {}).get("shapes", {})]
    own = [line for line in lines if not line.startswith("kernel=")]
    found = json.loads(zoo_command("bench", "--recorded", NAME, "--json").stdout)
    assert own and len(found) >= len(own)
    for one in found:
        assert list(one["sizes"]) == ["M", "N", "K"] and one["device"] and re.fullmatch(r"\d{4}-\d\d-\d\d", one["date"])
        assert one["driver"] and one["figures"]["microseconds"] > 0


def test_the_table_says_machine_date_sizes_and_times(zoo_command):
    (first, *_) = timings_of(packaged.kernel(NAME), evidence_of(packaged.directory))
    text = zoo_command("bench", "--recorded", NAME).stdout
    assert f"{first.device}, driver {first.driver}, {first.date}" in text
    row = next(line for line in text.splitlines() if line.endswith(first.variant) and f"{first.microseconds:.2f}" in line)
    assert row.split()[:3] == [str(first.sizes[symbol]) for symbol in ("M", "N", "K")]


def test_a_pattern_prints_each_kernel_under_its_name(zoo_command):
    text = zoo_command("bench", "--recorded", "scales.blocked*").stdout
    assert [line for line in text.splitlines() if line.startswith("scales.")] == [
        kernel.name for kernel in packaged.find("scales.blocked*")
    ]


def test_a_kernel_that_was_never_timed_says_how_to_time_it(zoo_command):
    result = zoo_command("bench", "--recorded", "gemm.mxfp8.k_grouped")
    assert result.exit_code == 0 and "`zoo bench NAME --record` makes one" in result.stdout


@pytest.mark.parametrize(
    "asked", [("--shape", "512,2048,7168"), ("--plot",), ("--variant", "t128"), ("--set", "b_constant=yes"), ("--record",)]
)
def test_an_option_that_the_shipped_timings_do_not_follow_is_refused(zoo_command, asked):
    result = zoo_command("bench", NAME, "--recorded", *asked)
    assert result.exit_code == 2 and f"leave out {asked[0]}" in " ".join(result.output.split())


def test_without_a_name_nothing_is_timed_and_the_question_is_answered(zoo_command):
    result = zoo_command("bench")
    assert result.exit_code == 2 and "`zoo list` shows them" in " ".join(result.output.split())


@pytest.mark.parametrize("columns", [80, 100])
def test_recorded_tables_fit_the_terminal_and_have_no_empty_column(zoo_command, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = zoo_command("bench", "--recorded").stdout
    assert all(len(line) <= columns for line in text.splitlines())
    assert ", us " not in text and "with ," not in text


def test_a_recorded_gated_product_names_its_gates_in_the_order_of_sizes(zoo_command):
    for name in ("gemm.fp8b128.m_grouped_gather.swiglu_fp8b128", "gemm.fp8b128.m_grouped_gather.swiglu"):
        text = zoo_command("bench", "--recorded", name).stdout
        header, row, *_ = text.partition("with groups 64, sizes uniform\n")[2].splitlines()
        assert header.split()[:4] == ["T", "M", "I", "K"] and row.split()[:4] == ["128", "1024", "2048", "2048"]
    assert all(set(one.sizes) == set(size_symbols(kernel)) for kernel in packaged.find() for one in timings_of(kernel, EVIDENCE))

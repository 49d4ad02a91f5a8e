"""`zoo list` and `zoo show`: complete, narrow enough, and the same for people and programs."""

import json

import pytest

from zoo.packaged import packaged

NAME = "quantize.mxfp8.rows"


def test_list_names_every_kernel_arch_and_state(zoo_command, cubins):
    result = zoo_command("--cubins", cubins, "list")
    assert result.exit_code == 0
    for kernel in packaged.find():
        assert kernel.name in result.output
        for arch in kernel.archs:
            assert arch in result.output
    assert "never run on a GPU" in result.output


def test_list_filters(zoo_command):
    assert NAME in zoo_command("list", "--op", "quantize", "--formats", "mxfp8", "quantize.*").output
    only = zoo_command("list", NAME, "--arch", "sm_9*").output
    assert "sm_90a" in only and "sm_100f" not in only


@pytest.mark.parametrize("arguments", [("--op", "gemmm"), ("nothing.*",), ("--arch", "sm_70")])
def test_list_of_nothing_fails_and_names_what_there_is(zoo_command, arguments):
    result = zoo_command("list", *arguments)
    assert result.exit_code == 1 and f"the zoo holds {', '.join(packaged.manifest.names)}" in result.output


def test_list_as_json_counts_the_variants(zoo_command):
    (entry,) = json.loads(zoo_command("list", NAME, "--json").output)
    kernel = packaged.kernel(NAME)
    assert entry["name"] == NAME
    assert entry["choices"]["layout"] == ["plain", "blocked"]
    assert {arch: row["variants"] for arch, row in entry["archs"].items()} == {
        arch: sum(variant.arch == arch for variant in kernel.variants) for arch in kernel.archs
    }


def test_show_has_every_argument_option_parameter_and_constraint(zoo_command):
    text = zoo_command("show", NAME).output
    words = " ".join(text.split())
    kernel = packaged.kernel(NAME)
    for needed in (*kernel.arguments, *kernel.options, *kernel.archs, kernel.source, kernel.table):
        assert needed in text
    for _, rule in kernel.constraints:
        assert rule in words
    for parameter in kernel.variants[0].launch.parameters:
        assert f"{parameter.offset} {parameter.size} {parameter.kind}" in words


def test_show_as_json_is_the_manifest_entry(zoo_command):
    data = json.loads(zoo_command("show", NAME, "--json").output)
    kernel = packaged.kernel(NAME)
    assert [argument["name"] for argument in data["arguments"]] == list(kernel.arguments)
    assert data["launches"][0]["parameter_bytes"] == kernel.variants[0].launch.parameter_bytes
    assert [variant["sha256"] for variant in data["variants"]] == [variant.sha256 for variant in kernel.variants]
    assert data["sizes"] == ["M", "K"]


def test_show_of_a_misspelt_kernel_says_which_was_meant(zoo_command):
    result = zoo_command("show", "quantise.mxfp8.rows")
    assert result.exit_code == 1
    assert result.output.strip() == "Error: no kernel is named 'quantise.mxfp8.rows'; did you mean quantize.mxfp8.rows?"


@pytest.mark.parametrize("arguments", [("list",), ("show", NAME), ("verify",), ("--help",), ("verify", "--help"), ("bench", "--help")])
def test_tables_fit_80_columns(zoo_command, arguments):
    result = zoo_command(*arguments)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80

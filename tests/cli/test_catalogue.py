"""`zoo list` and `zoo show`: complete, narrow enough, and the same for people and programs."""

import json

import pytest

from zoo.shipped.packaged import packaged

NAME = "quantize.mxfp8.rows"


def test_list_counts_every_cubin_and_its_state(zoo_command, cubins):
    lines = zoo_command("--cubins", cubins, "list").output.splitlines()
    counts = [int(word) for line in lines[1:] for word in line.split() if word.isdigit()]
    assert sum(counts) == sum(len(kernel.variants) for kernel in packaged.find())
    for formats in ("fp8b128", "mxfp4", "mxfp8", "nvfp4"):
        assert any(formats in line for line in lines)


def test_list_folds_kernels_that_differ_in_formats_only():
    from types import SimpleNamespace

    from zoo.cli.list_kernels import families

    names = ("quantize.mxfp8.rows", "quantize.nvfp4.rows", "quantize.mxfp8.cols", "scales.blocked")
    kernels = [SimpleNamespace(name=name, fields={"formats": name.split(".")[1]} if name.startswith("q") else {}) for name in names]
    folded = {name: [kernel.name for kernel in members] for name, members in families(kernels).items()}
    assert folded == {"quantize.*.rows": list(names[:2]), "quantize.mxfp8.cols": [names[2]], "scales.blocked": [names[3]]}


def test_long_list_names_every_kernel_arch_and_state(zoo_command, cubins):
    result = zoo_command("--cubins", cubins, "list", "--long")
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


def test_list_as_json_has_the_evidence_as_numbers(zoo_command, cubins):
    from zoo.shipped.evidence import Evidence

    evidence, variants = Evidence(cubins), [variant for variant in packaged.kernel(NAME).variants if variant.arch == "sm_90a"]
    for index, variant in enumerate(variants[:5]):
        evidence.add(variant, "gpu", {"device": f"GPU {index % 2}", "error": "wrong" if index == 4 else None})
    for variant in variants[:3]:
        evidence.add(variant, "emulator", {"error": None})
    evidence.write()
    (entry,) = json.loads(zoo_command("--cubins", cubins, "list", NAME, "--json").output)
    rest = len(variants) - 5
    assert entry["archs"]["sm_90a"]["evidence"] == {
        "passed": 4, "failed": 1, "never_run": rest, "emulated": 3, "devices": {"GPU 0": 2, "GPU 1": 2},
        "summary": f"2 passed on GPU 0, 2 passed on GPU 1, 1 FAILED on a GPU, 3 passed in the emulator, {rest} never run on a GPU",
    }  # fmt: skip
    other = entry["archs"]["sm_100f"]
    assert other["evidence"]["never_run"] == other["variants"] and other["evidence"]["summary"] == "never run on a GPU"


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
    assert result.output.startswith("Error: no kernel is named 'quantise.mxfp8.rows'; did you mean quantize.mxfp8.rows")


@pytest.mark.parametrize("arguments", [("list",), ("show", NAME), ("verify",), ("--help",), ("verify", "--help"), ("bench", "--help")])
def test_tables_fit_80_columns(zoo_command, arguments):
    result = zoo_command(*arguments)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80


@pytest.mark.parametrize("columns", [60, 72])
@pytest.mark.parametrize("arguments", [("list",), ("show", NAME), ("verify",)])
def test_tables_fit_a_narrow_terminal(zoo_command, monkeypatch, arguments, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    result = zoo_command(*arguments)
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= columns


@pytest.mark.parametrize("columns", [50, 60, 80])
def test_a_table_narrows_its_widest_columns_and_breaks_no_word(monkeypatch, columns):
    from zoo.cli.text import table

    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [
        ("a first cell of many words", "and a second that is longer still", 12345, "the last one/of/all-with-a-path goes on and on"),
        ("b", "c", 6, "d"),
    ]
    text = table(("first", "second", "number", "last"), rows, indent=2)
    assert max(map(len, text.splitlines())) <= columns
    for cell in rows[0]:
        for word in str(cell).split():
            assert word in text.split()

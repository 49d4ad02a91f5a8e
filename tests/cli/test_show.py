"""`zoo show`: a screen that says how to call a kernel, a call that runs, and the whole contract for whoever asks."""

import json
from dataclasses import replace

import pytest

import zoo
from zoo.cli import contract
from zoo.cli.example_call import example_call
from zoo.cli.overview import overview
from zoo.contract.expressions import Expression
from zoo.contract.manifest import parse_kernel
from zoo.packaged import packaged
from zoo.shipped.evidence import Evidence

NAME = "quantize.mxfp8.rows"
NAMES = packaged.manifest.names
# One of each kind of input: plain, scales of a tensor and workspace, offsets, an index, places of rows, packed 4-bit codes.
CHEAP = (
    NAME, "quantize.nvfp4.rows.amax", "quantize.fp8b128.rows.m_grouped_contiguous", "gemm.fp8b128.m_grouped_gather",
    "gemm.fp8b128.m_grouped_masked", "dequantize.mxfp4.rows", "scales.mn_major",
)  # fmt: skip


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("columns", [80, 100])
def test_every_kernel_fits_a_screen_and_names_all_that_a_caller_gives(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    evidence = Evidence(packaged.directory)
    for kernel in packaged.find():
        text = overview(kernel, evidence)
        lines = text.splitlines()
        assert len(lines) <= 42, f"{kernel.name}: {len(lines)} lines"
        given = [line.split() for line in lines if line.startswith("  ")]
        for argument in kernel.arguments.values():
            assert [argument.name, argument.access, *argument.dtypes[:1]] in [line[:3] for line in given], (kernel.name, argument.name)
        for name, option in kernel.options.items():
            assert [name, "option", option.default] in [line[:3] for line in given], (kernel.name, name)
        for arch in kernel.archs:
            assert any(line.startswith(f"{arch} ") for line in lines)
        assert "--arguments" in text and lines[-1].startswith("print(")


def test_rules_that_find_no_room_are_counted(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    hidden = 0
    for kernel in packaged.find():
        text, rules = words(overview(kernel, Evidence(packaged.directory))), [rule for _, rule in kernel.constraints]
        needs = text.partition("needs ")[2].partition(" promises ")[0].partition(" sm_")[0]
        if needs.startswith(f"{len(rules)} rule"):
            hidden += len(rules)
            continue
        said = next(shown for shown in range(len(rules), -1, -1) if needs.startswith("; ".join(rules[:shown])))
        hidden += len(rules) - said
        assert needs == "; ".join(rules) if said == len(rules) else needs.endswith(f"; {len(rules) - said} more, which --arguments prints")
    assert hidden, "all rules fit: this test saw nothing"


def test_the_call_of_every_kernel_is_one_that_the_loader_takes(monkeypatch):
    """Resolved, checked and with its PTX found, but not run."""
    prepared = []
    monkeypatch.setattr(zoo, "launch", lambda name, **arguments: prepared.append(zoo.prepare(name, **arguments)))
    for kernel in packaged.find():
        program, _, last = example_call(kernel, 80).rpartition("\n")
        exec(program, {})
        assert last.startswith("print(") and prepared[-1].launch.variant in kernel.variants and 0 not in prepared[-1].launch.grid
    assert len(prepared) == len(NAMES)


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("name", CHEAP)
def test_what_show_prints_last_runs_when_it_is_pasted(zoo_command, monkeypatch, capsys, name, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    text = zoo_command("show", name).output
    exec(text[text.index("# a call") :], {})
    assert "[" in capsys.readouterr().out


def test_the_call_says_how_it_is_made_on_a_gpu_with_names_that_exist(zoo_command):
    text = zoo_command("show", NAME).output
    assert "on a GPU: zoo.to_device, zoo.empty" in text and callable(zoo.to_device) and callable(zoo.empty)


def test_the_call_of_another_zoo_is_of_that_zoo(zoo_command, cubins, capsys):
    text = zoo_command("--cubins", cubins, "show", "scales.mn_major").output
    assert f"own = zoo.Zoo({str(cubins)!r})" in text and "zoo.launch" not in text
    exec(text[text.index("# a call") :], {})
    assert "[" in capsys.readouterr().out


def test_a_kernel_of_unknown_sizes_is_shown_without_a_call():
    from tests.contract.entries import entry

    known = parse_kernel("gemm.mxfp8_mxfp4.dense", entry())
    assert "zoo.launch(" in example_call(known, 80)
    data = entry()
    data["constraints"] = [{"expression": "K == 77", "words": "K must be 77"}]
    text = example_call(parse_kernel("gemm.mxfp8_mxfp4.dense", data), 80)
    assert text.startswith("# no example: ") and "K must be 77" in words(text.replace("#", "")) and "launch" not in text
    assert all(line.startswith("# ") for line in text.splitlines())


def test_an_odd_manifest_is_shown_or_refused_and_nothing_else():
    import random

    from tests.contract.test_malformed_entries import NAME as of
    from tests.contract.test_malformed_entries import mutated
    from zoo.errors import ManifestError

    pick, shown = random.Random(7), 0
    for _ in range(600):
        try:
            kernel = parse_kernel(of, mutated(pick))
        except ManifestError:
            continue
        assert overview(kernel, Evidence(packaged.directory)).startswith(of)
        shown += 1
    assert shown > 20


def test_the_whole_contract_has_every_argument_option_parameter_and_constraint(zoo_command):
    text = zoo_command("show", NAME, "--arguments", "--parameters", "--variants").output
    kernel = packaged.kernel(NAME)
    for needed in (*kernel.arguments, *kernel.options, *kernel.archs, kernel.source, kernel.table):
        assert needed in text
    for expression, rule in kernel.constraints:
        assert rule in words(text) and expression.text in words(text)
    for parameter in kernel.variants[0].launch.parameters:
        assert f"{parameter.offset} {parameter.size} {parameter.kind}" in words(text)
    for argument in kernel.arguments.values():
        assert words(argument.help)[:20] in words(text)


def test_a_launch_rule_that_finds_no_room_goes_on_under_its_first_extent(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    rule = packaged.kernel(NAME).variants[0].launch
    extents = tuple(Expression(f"first_{name} + second_{name}") for name in "abc")
    text = contract.launch_text(replace(rule, grid=extents, cluster=extents))
    assert text.startswith(
        "  grid     first_a + second_a, first_b +\n"
        "           second_b, first_c + second_c\n"
        "  cluster  first_a + second_a, first_b +\n"
        "           second_b, first_c + second_c\n"
    )


@pytest.mark.parametrize(
    ("option", "there", "not_there"),
    [
        ("--arguments", "constraints", "parameter block"),
        ("--parameters", "parameter block", "constraints"),
        ("--variants", "registers", "constraints"),
    ],
)
def test_a_part_of_the_contract_comes_alone(zoo_command, option, there, not_there):
    text = zoo_command("show", NAME, option).output
    assert text.startswith(NAME) and there in text and not_there not in text and "zoo.launch" not in text


def test_json_is_the_manifest_entry(zoo_command):
    data = json.loads(zoo_command("show", NAME, "--json").output)
    kernel = packaged.kernel(NAME)
    assert [argument["name"] for argument in data["arguments"]] == list(kernel.arguments)
    assert data["launches"][0]["parameter_bytes"] == kernel.variants[0].launch.parameter_bytes
    assert [variant["sha256"] for variant in data["variants"]] == [variant.sha256 for variant in kernel.variants]
    assert data["sizes"] == ["M", "K"]


def test_json_is_indented_by_one(zoo_command):
    assert zoo_command("show", NAME, "--json").output.startswith('{\n "')


def test_a_name_gives_one_object_and_anything_else_a_list_even_of_one(zoo_command):
    several = json.loads(zoo_command("show", "quantize.*.rows", "--json").output)
    assert [one["name"] for one in several] == [
        f"quantize.{formats}.rows" for formats in ("fp8b128", "fp8token", "mxfp4", "mxfp8", "nvfp4")
    ]
    (only,) = json.loads(zoo_command("show", "mxfp8.rows.swiglu", "--json").output)
    assert only["name"] == "quantize.mxfp8.rows.swiglu"


def test_a_misspelt_kernel_is_told_which_was_meant(zoo_command):
    result = zoo_command("show", "quantise.mxfp8.rows")
    assert result.exit_code == 1
    assert result.output.startswith("Error: no kernel is named 'quantise.mxfp8.rows'; did you mean quantize.mxfp8.rows")


def test_the_lines_of_a_constraint_stand_below_their_heading_alike():
    text = contract.arguments_text(packaged.manifest.kernel("gemm.fp8b128.dense"))
    below = text.partition("\nconstraints\n")[2].partition("\n\n")[0].splitlines()
    assert len(below) > 3 and {len(line) - len(line.lstrip()) for line in below} == {2, 4}  # 4: what goes on


def test_numbers_that_are_all_alike_are_no_range():
    assert contract._range([3, 3]) == "3" and contract._range([5, 3, 4]) == "3-5"


def test_rules_take_the_lines_that_are_left_of_a_screen_and_not_one_more(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    evidence = Evidence(packaged.directory)
    for name in ("quantize.mxfp8.rows", "scales.mn_major"):
        kernel = packaged.kernel(name)
        rule, lines = kernel.constraints[0][0], overview(replace(kernel, constraints=()), evidence).count("\n") + 1
        for count, shown in ((40 - lines, 40 - lines), (41 - lines, 40 - lines), (60, 40 - lines)):
            text = overview(replace(kernel, constraints=tuple((rule, f"{n:02}".ljust(40, ".")) for n in range(count))), evidence)
            assert text.count("\n") + 1 == lines + shown and text.count("\n\n") == 3
            assert ("more, which --arguments" in words(text)) is (count > shown)


def test_a_call_by_groups_has_two():
    for name, ends in (("quantize.fp8b128.rows.m_grouped_contiguous", "[32, 64]"), ("gemm.fp8b128.k_grouped", "[128, 256]")):
        assert f"offsets = array(numpy.array({ends}, numpy.int32))" in example_call(packaged.kernel(name), 80)

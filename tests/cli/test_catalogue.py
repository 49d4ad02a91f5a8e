"""`zoo list`: complete, short, and the same for people and programs."""

import json
from types import SimpleNamespace

import pytest

from tests.contract.entries import entry
from zoo.cli import list_kernels
from zoo.contract.manifest import parse_kernel
from zoo.packaged import packaged

NAME = "quantize.mxfp8.rows"


def test_list_is_a_line_for_each_kernel_and_a_total(zoo_command):
    listed, _, total = zoo_command("list").output.partition("\n\n")
    assert [line.split()[0] for line in listed.splitlines()] == list(packaged.manifest.names)
    for line, kernel in zip(listed.splitlines(), packaged.find(), strict=True):
        shown = line.removeprefix(kernel.name).strip()
        assert len(shown) > 10 and kernel.summary.startswith(shown.removesuffix("...")), line
    cubins = {variant.file: variant for kernel in packaged.find() for variant in kernel.variants}  # of which some have several names
    assert len(cubins) < sum(len(kernel.variants) for kernel in packaged.find())
    megabytes = sum(variant.bytes for variant in cubins.values()) / 1e6
    assert total.startswith(f"{len(packaged.manifest.names)} kernels, {len(cubins)} cubins, {megabytes:.1f} MB\n")
    for arch in ("sm_90a", "sm_100f"):
        assert f"{arch}: {sum(variant.arch == arch for variant in cubins.values())} cubins, " in " ".join(total.split())


def test_the_total_is_of_what_is_listed(zoo_command, cubins):
    words = " ".join(zoo_command("--cubins", cubins, "list", NAME, "--arch", "sm_100*").output.split())
    variants = [variant for variant in packaged.kernel(NAME).variants if variant.arch == "sm_100f"]
    assert f"1 kernel, {len(variants)} cubins, " in words and f"sm_100f: {len(variants)} cubins, never run on a GPU" in words
    assert "sm_90a" not in words


def test_the_evidence_counts_every_cubin_and_its_state(zoo_command, cubins):
    lines = zoo_command("--cubins", cubins, "list", "--evidence").output.splitlines()
    counts = [int(word) for line in lines for word in line.split() if word.isdigit()]
    of_rows = {  # formats in one row may share a cubin
        ("".join("*" if word == kernel.fields.get("formats") else word for word in kernel.name.split(".")), variant.file)
        for kernel in packaged.find()
        for variant in kernel.variants
    }
    assert sum(counts) == len(of_rows)
    assert all("never run on a GPU" in line for line in lines if line.startswith("  sm_"))
    for formats in ("fp8b128", "mxfp4", "mxfp8", "nvfp4"):
        assert any(formats in line for line in lines)


def test_list_folds_kernels_that_differ_in_formats_only():
    from types import SimpleNamespace

    from zoo.cli.list_kernels import families

    names = ("quantize.mxfp8.rows", "quantize.nvfp4.rows", "quantize.mxfp8.cols", "scales.blocked")
    kernels = [SimpleNamespace(name=name, fields={"formats": name.split(".")[1]} if name.startswith("q") else {}) for name in names]
    folded = {name: [kernel.name for kernel in members] for name, members in families(kernels).items()}
    assert folded == {"quantize.*.rows": list(names[:2]), "quantize.mxfp8.cols": [names[2]], "scales.blocked": [names[3]]}


def test_list_filters(zoo_command):
    assert NAME in zoo_command("list", "--op", "quantize", "--formats", "mxfp8", "quantize.*").output
    only = zoo_command("list", NAME, "--arch", "sm_9*").output
    assert "sm_90a" in only and "sm_100f" not in only


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--op", "gemmm"), "no kernel has --op gemmm; did you mean gemm? There are "),
        (("--formats", "mxfp9"), "no kernel has --formats mxfp9; did you mean "),
        (("--arch", "sm_90"), "no kernel has --arch sm_90; did you mean sm_90a? There are sm_90a and sm_100f"),
        (("--arch", "sm_70"), "no kernel has --arch sm_70; there are sm_90a and sm_100f"),
        (("nothing.*",), "no kernel matches 'nothing.*'; `zoo list` shows all "),
        (
            ("swiglu", "--op", "scales"),
            f"none of the {len(packaged.find('swiglu'))} kernels that 'swiglu' means has all that the options ask for",
        ),
    ],
)
def test_list_of_nothing_fails_and_says_what_is_near(zoo_command, arguments, words):
    result = zoo_command("list", *arguments)
    assert result.exit_code == 1 and result.output.startswith(f"Error: {words}") and result.output.count("\n") == 1


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
        "summary": f"unpinned: 2 passed on GPU 0, 2 passed on GPU 1, 1 FAILED on a GPU, 3 passed in the emulator, {rest} never run on a GPU",
    }  # fmt: skip
    other = entry["archs"]["sm_100f"]
    assert other["evidence"]["never_run"] == other["variants"] and other["evidence"]["summary"] == "never run on a GPU"


@pytest.mark.parametrize(("columns", "name_width"), [(200, 28), (60, 28), (56, 28), (55, 27), (40, 20)])
def test_names_take_up_to_half_the_terminal_and_a_summary_that_would_be_short_is_left_out(monkeypatch, columns, name_width):
    monkeypatch.setenv("COLUMNS", str(columns))
    kernels = [SimpleNamespace(name=name, summary="word " * 50) for name in ("a" * 28, "b" * 5)]
    assert list_kernels._name_width(kernels) == name_width
    for kernel in kernels:
        for width in (20, 28):
            line, begins = list_kernels._line(kernel, width), max(len(kernel.name), width) + 2
            if columns - begins >= list_kernels._SHORTEST_SUMMARY:
                assert line.startswith(kernel.name) and line.endswith("...") and columns - 5 < len(line) <= columns
                assert line[begins - 2 : begins + 4] == "  word"
            else:
                assert line == kernel.name
    exact = columns - list_kernels._SHORTEST_SUMMARY - 2
    assert list_kernels._line(kernels[1], exact) != "bbbbb" and list_kernels._line(kernels[1], exact + 1) == "bbbbb"


def test_a_caller_chooses_among_several_dtypes_and_options():
    kernel = parse_kernel("gemm.mxfp8_mxfp4.dense", entry())
    assert list_kernels.choices(kernel) == {
        "a": ["e4m3", "e5m2"], "c": ["f32", "bf16"], "d": ["bf16", "f32"], "layout": ["plain", "blocked"], "order": ["forward", "backward"],
    }  # fmt: skip


def test_the_evidence_is_indented_under_its_kernels(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = zoo_command("list", "--evidence", NAME).output.splitlines()
    assert lines[0] == NAME and [line[:5] for line in lines[1:]] == ["  sm_"] * (len(lines) - 1)


def test_formats_that_do_not_fit_a_line_hang_under_their_name(monkeypatch):
    from zoo.shipped import evidence

    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(evidence, "summary", lambda seen, variants: "never run")
    kernels = [
        SimpleNamespace(
            name=f"quantize.{format}.rows",
            fields={"formats": format},
            archs=archs,
            variants=[SimpleNamespace(arch=arch, file=f"{arch}/{format}.cubin") for arch in archs],
        )
        for format, archs in (("mxfp8", ["sm_90a"]), ("nvfp4", ["sm_90a", "sm_100f"]), ("fp8b128", ["sm_100f"]))
    ]
    assert list_kernels._folded(kernels, None, "*") == (
        "quantize.*.rows: mxfp8, nvfp4,\n"
        "  fp8b128\n"
        "  sm_90a   2 cubins  never run\n"
        "  sm_100f  2 cubins  never run"
    )  # fmt: skip
    assert list_kernels._folded(kernels[:1], None, "sm_9*") == "quantize.mxfp8.rows\n  sm_90a  1 cubin  never run"

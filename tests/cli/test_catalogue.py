"""`zoo list`: complete, short, and the same for people and programs."""

import json
from types import SimpleNamespace

import pytest

from tests.contract.entries import entry
from zoo.cli import list_kernels, text
from zoo.cli.in_short import in_short, in_short_together, short_formats
from zoo.contract.manifest import parse_kernel
from zoo.contract.matching import matching
from zoo.packaged import packaged
from zoo.shipped.evidence import Evidence

NAME = "quantize.mxfp8.rows"


def rows_of(output):
    """The table's rows, without its header; lines that go on belong to the row above."""
    found = []
    for line in output.partition("\n\n")[0].splitlines()[1:]:
        if line.startswith(" "):
            found[-1] += " " + line.strip()
        else:
            found.append(line)
    return [line.split(maxsplit=3) for line in found]


def test_all_is_a_line_for_each_kernel_and_no_two_kernels_have_the_same_words(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    rows = rows_of(zoo_command("list", "--all").output)
    assert [name for name, *_ in rows] == list(packaged.manifest.names)
    for kernel, (_, _, _, words) in zip(packaged.find(), rows, strict=True):
        assert words == in_short(kernel) and "..." not in words
    families_of_words = {}
    for kernel in packaged.find():
        same = (
            in_short(kernel),
            kernel.fields["op"],
            kernel.fields.get("direction"),
            kernel.fields.get("arrangement"),
            kernel.fields.get("formats"),
        )
        families_of_words.setdefault(same, []).append(kernel.name)
    assert [names for names in families_of_words.values() if len(names) > 1] == []


def test_many_kernels_fit_a_screen_and_every_one_is_in_a_line(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    output = zoo_command("list").output
    assert len(output.splitlines()) <= 35 and "..." not in output and max(map(len, output.splitlines())) <= 100
    for kernel in packaged.find():
        fitting = [row for row in rows_of(output) if kernel.name in matching(row[0], packaged.manifest.names)]
        wanted = kernel.fields.get("formats", "")
        left, _, right = wanted.partition("_")
        assert any(
            wanted in (*row[3].replace(":", "").split(), *row[0].split(".")) or (left in row[3] and right in row[3]) for row in fitting
        )


def test_a_mark_says_what_was_seen_of_all_cubins_and_of_some(zoo_command, cubins):
    """No evidence, then what is added of all cubins of an arch but one, then of that."""
    from zoo.shipped.evidence import Evidence

    def marks():
        (row,) = rows_of(zoo_command("--cubins", cubins, "list", NAME).output)
        return row[1:3]

    variants = [variant for variant in packaged.kernel(NAME).variants if variant.arch == "sm_90a"]
    assert marks() == ["?", "?"]
    for kind, record, some, every in (
        ("emulator", {"error": None}, "?", "\u25cb"),
        ("gpu", {"device": "GPU", "error": None}, "\u25d0", "\u25cf"),
    ):
        for variant in variants:
            assert variant != variants[-1] or marks() == [some, "?"]
            evidence = Evidence(cubins)
            evidence.add(variant, kind, record)
            evidence.write()
        assert marks() == [every, "?"]
    evidence.add(variants[0], "gpu", {"device": "GPU", "error": "wrong"})
    evidence.write()
    assert marks() == ["!", "?"] and "! FAILED" in zoo_command("--cubins", cubins, "list", NAME).output


def test_kernels_that_ran_share_no_line_with_others(zoo_command, cubins):
    from zoo.shipped.evidence import Evidence

    evidence, kinds = Evidence(cubins), {"gemm.fp8b128.dense": "gpu", "gemm.fp8b128.m_grouped_masked": "emulator"}
    for name, kind in kinds.items():
        for variant in packaged.kernel(name).variants:
            evidence.add(variant, kind, {"device": "GPU", "error": None})
    evidence.write()
    rows = rows_of(zoo_command("--cubins", cubins, "list").output)
    assert [row[1:3] for row in rows if row[0] == "gemm.*.*" and row[3].endswith("fp8b128")] == [["\u25d0", "\u25d0"], ["?", "?"]]


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    shown = list_kernels.listing(packaged.find(NAME), Evidence(packaged.directory))
    assert "\033[" in shown
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[" not in list_kernels.listing(packaged.find(NAME), Evidence(packaged.directory))
    monkeypatch.setattr(text, "can_print", lambda signs: False)
    assert list_kernels.listing(packaged.find(NAME), Evidence(packaged.directory)).isascii()


def test_a_pipe_gets_no_colours(zoo_command):
    assert "\033" not in zoo_command("list").output


def test_a_kernel_of_another_zoo_keeps_its_summary():
    other = SimpleNamespace(name="twist.bf16", fields={"op": "twist", "formats": "bf16"}, summary="turns x")
    assert in_short(other) == in_short_together([other, other]) == "turns x"


@pytest.mark.parametrize(
    ("formats", "words"),
    [
        (["mxfp8", "nvfp4"], "mxfp8 nvfp4"),
        (["a_x", "a_y", "b_x", "b_y", "c"], "c {a,b}_{x,y}"),
        (["a_x", "b_y"], "a_x b_y"),
        (["a_x", "a_y"], "a_x a_y"),
    ],
)
def test_pairs_of_formats_are_folded_only_where_all_of_them_are_there(formats, words):
    assert short_formats(formats) == words


def test_the_total_counts_each_cubin_once(zoo_command):
    cubins = {variant.file: variant for kernel in packaged.find() for variant in kernel.variants}  # some have several names
    assert len(cubins) < sum(len(kernel.variants) for kernel in packaged.find())
    megabytes = sum(variant.bytes for variant in cubins.values()) / 1e6
    words = " ".join(zoo_command("list").output.split())
    assert f"{len(packaged.manifest.names)} kernels, {len(cubins):,} cubins, {megabytes:.1f} MB: " in words
    for arch, family in (("sm_90a", "Hopper"), ("sm_100f", "Blackwell")):
        assert f"{sum(variant.arch == arch for variant in cubins.values())} for {family} ({arch})" in words


def test_the_total_is_of_what_is_listed(zoo_command):
    words = " ".join(zoo_command("list", NAME, "--arch", "sm_100*").output.split())
    variants = [variant for variant in packaged.kernel(NAME).variants if variant.arch == "sm_100f"]
    assert f"1 kernel, {len(variants)} cubins, " in words and "Hopper" not in words


def test_the_evidence_counts_every_cubin_and_its_state(zoo_command, cubins):
    lines = zoo_command("--cubins", cubins, "list", "--evidence").output.partition("\n\n")[0].splitlines()
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
        (
            ("--arch", "sm_90"),
            "no kernel has --arch sm_90; did you mean sm_90a? There are sm_90a (hopper, h100, h200) and sm_100f (blackwell, b200, b300)",
        ),
        (("--arch", "sm_70"), "no kernel has --arch sm_70; did you mean sm_90a or sm_100f? There are sm_90a (hopper"),
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


def test_a_caller_chooses_among_several_dtypes_and_options():
    kernel = parse_kernel("gemm.mxfp8_mxfp4.dense", entry())
    assert list_kernels.choices(kernel) == {
        "a": ["e4m3", "e5m2"], "c": ["f32", "bf16"], "d": ["bf16", "f32"], "layout": ["plain", "blocked"], "order": ["forward", "backward"],
    }  # fmt: skip


def test_the_evidence_is_indented_under_its_kernels(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = zoo_command("list", "--evidence", NAME).output.partition("\n\n")[0].splitlines()
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

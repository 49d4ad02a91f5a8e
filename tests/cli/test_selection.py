"""A name, a part of names or a pattern means the same kernels in every command and in zoo.find."""

import json
import re

import pytest

import zoo
from zoo.cli.list_kernels import families
from zoo.contract.matching import matching
from zoo.errors import ArgumentError, UnknownKernelError
from zoo.packaged import packaged

NAMES = packaged.manifest.names


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("quantize.mxfp8.rows", ["quantize.mxfp8.rows"]),  # though other names begin with it
        ("mxfp8.rows.swiglu", ["quantize.mxfp8.rows.swiglu"]),
        ("scales.mn", ["scales.mn_major"]),
        ("quantize.*.rows", [f"quantize.{formats}.rows" for formats in ("fp8b128", "fp8token", "mxfp4", "mxfp8", "nvfp4")]),
        ("*.m?_major", ["scales.mn_major"]),
        ("quantize.[n]vfp4.both", ["quantize.nvfp4.both"]),
        ("swiglu*", []),  # a pattern is of the whole name
        ("Swiglu", []),
    ],
)
def test_what_is_written_means_these_kernels(written, found):
    assert matching(written, NAMES) == [kernel.name for kernel in packaged.find(written)] == found


def test_a_bare_word_finds_every_name_that_holds_it():
    assert matching("swiglu", NAMES) == [name for name in NAMES if "swiglu" in name] and len(matching("swiglu", NAMES)) > 3
    assert [kernel.name for kernel in packaged.find("swiglu", op="gemm")] == [name for name in matching("swiglu", NAMES) if "gemm." in name]


def test_searching_in_python_does_not_take_an_empty_word_for_every_kernel():
    with pytest.raises(UnknownKernelError, match="an empty word names no kernel"):
        packaged.find("")


def listed(zoo_command, written):
    return [one["name"] for one in json.loads(zoo_command("list", written, "--json").output)]


def test_every_pattern_that_list_prints_is_one_that_all_commands_take(zoo_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    folds = [line.split()[0] for line in zoo_command("list").output.partition("\n\n")[0].splitlines()[1:] if not line.startswith(" ")]
    lines = zoo_command("list", "--evidence").output.partition("\n\n")[0].splitlines()
    printed = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    assert printed == list(families(packaged.find())) and any("*" in one for one in printed)
    for patterns in (folds, printed):
        assert {name for one in patterns for name in matching(one, NAMES)} == set(NAMES)


@pytest.mark.parametrize("written", ["scales.*blocked", "mn_major", "quantize.mxfp8.rows"])
def test_list_show_verify_and_export_mean_the_same(zoo_command, tmp_path, written):
    names = listed(zoo_command, written)
    shown = json.loads(zoo_command("show", written, "--json").output)
    assert [one["name"] for one in (shown if type(shown) is list else [shown])] == names
    cubins = sum(len(packaged.kernel(name).variants) for name in names)
    assert f"integrity  {cubins} cubins, " in zoo_command("verify", written).output
    exported = " ".join(zoo_command("export", tmp_path / "package", "--select", written).output.split())
    assert f"kernels: {', '.join(names)} build" in exported


def test_bench_times_each_kernel_that_was_meant(with_stand_in):
    run = with_stand_in("bench", "scales.*blocked", "--shape", "256,64", "--json")
    assert run.returncode == 0, run.stderr
    assert [one["kernel"] for one in json.loads(run.stdout)] == ["scales.blocked", "scales.unblocked"]
    run = with_stand_in("bench", "scales.*blocked", "--shape", "256,64")
    assert run.returncode == 0 and [line for line in run.stdout.splitlines() if line.startswith("scales")] == [
        "scales.blocked", "scales.unblocked",
    ]  # fmt: skip


def test_bench_refuses_a_plot_of_several_kernels(zoo_command):
    result = zoo_command("bench", "swiglu", "--plot")
    assert result.exit_code == 2 and "a plot is of one kernel, 'swiglu' means" in result.output


def test_bench_of_several_refuses_what_one_of_them_does_not_take_before_any_runs(without_gpu):
    run = without_gpu("bench", "rows.swiglu", "--shape", "64,100")
    assert run.returncode == 1 and "rows.swiglu: " in run.stderr and "driver" not in run.stderr


@pytest.mark.parametrize("command", ["list", "show", "verify", "bench"])
@pytest.mark.parametrize(("written", "meant"), [("quantize.mxfp8.rwos", "quantize.mxfp8.rows"), ("scales.*_mjaor", "scales.mn_major")])
def test_a_slip_of_the_pen_is_told_what_was_meant(zoo_command, command, written, meant):
    result = zoo_command(command, written)
    assert result.exit_code == 1 and f"did you mean {meant}" in result.output and result.output.count("\n") == 1
    assert f"`zoo list` shows all {len(NAMES)}" in result.output


def test_export_refuses_near_archs_and_kernels_with_what_was_meant(zoo_command, tmp_path):
    result = zoo_command("export", tmp_path / "p", "--select", "scales.*", "--arch", "sm_90")
    assert result.exit_code == 1 and "did you mean sm_90a?" in result.output
    result = zoo_command("export", tmp_path / "p", "--select", "scales.mn_mjaor")
    assert result.exit_code == 1 and "did you mean scales.mn_major?" in result.output and not (tmp_path / "p").exists()


@pytest.mark.parametrize("command", ["list", "show", "verify", "bench"])
def test_an_empty_word_is_not_taken_for_every_kernel(zoo_command, command):
    result = zoo_command(command, "")
    assert result.exit_code == 1 and result.output.startswith("Error: an empty word names no kernel; ") and result.output.count("\n") == 1


def test_export_does_not_take_an_empty_word_for_every_kernel(zoo_command, tmp_path):
    result = zoo_command("export", tmp_path / "p", "--select", "")
    assert result.exit_code == 1 and "an empty word names no kernel" in result.output and not (tmp_path / "p").exists()


def test_bench_suggests_near_variants(zoo_command):
    result = zoo_command("bench", "quantize.mxfp8.rows", "--variant", "bf16_e4m3_plain_t25")
    assert result.exit_code == 1 and "did you mean bf16_e4m3_plain_t256" in result.output and "--variants` shows all" in result.output


@pytest.mark.parametrize("more", ["--json", "list", "nothing"])
def test_a_misspelt_command_is_told_what_was_meant_whatever_stands_behind_it(zoo_command, more):
    result = zoo_command("lits", more)
    assert result.exit_code == 2 and "no command is named 'lits'; did you mean list?" in result.output


@pytest.mark.parametrize(
    ("search", "words"),
    [
        (dict(arch=9), "find: no arch is 9; did you mean sm_90a? There are sm_90a (hopper, h100, h200) "),
        (dict(arch="sm_9x"), "find: no arch is 'sm_9x'; did you mean sm_90a?"),
        (dict(arch=b"sm_90a"), "find: no arch is b'sm_90a'; "),
        (dict(op="gem"), "find: no op is 'gem'; did you mean gemm?"),
        (dict(op=7), "find: no op is 7; there are quantize"),
        (dict(zop="gemm", colour="red"), "find: names have no field 'colour'; they have "),
        (dict(groupin="dense"), "find: names have no field 'groupin'; did you mean grouping?"),
    ],
)
def test_a_search_for_what_no_kernel_can_have_is_refused_whatever_its_type(search, words):
    with pytest.raises(ArgumentError) as refusal:
        packaged.find(**search)
    assert str(refusal.value).startswith(words)


@pytest.mark.parametrize(
    ("word", "arch"),
    [("hopper", "sm_90a"), ("H100", "sm_90a"), ("h200", "sm_90a"), ("b200", "sm_100f"), ("B300", "sm_100f"), ("Blackwell", "sm_100f")],
)
def test_an_arch_is_found_by_what_people_call_it(zoo_command, tmp_path, word, arch):
    assert packaged.find("gemm", arch=word) == packaged.find("gemm", arch=arch) != []
    assert zoo.emulator.Device(word).arch == arch
    assert zoo_command("list", "gemm", "--arch", word).output == zoo_command("list", "gemm", "--arch", arch).output
    exported = zoo_command("export", tmp_path / "package", "--select", "scales.mn_major", "--arch", word)
    assert exported.exit_code == 0 and " 1 variant, " in " ".join(exported.output.split())


@pytest.mark.parametrize("word", ["hoper", "h10", "a100", "", "h200 "])
def test_a_chip_that_is_none_is_told_which_there_are(zoo_command, word):
    known = "There are sm_90a (hopper, h100, h200) and sm_100f (blackwell, b200, b300)"
    result = zoo_command("list", "--arch", word)
    assert result.exit_code == 1 and known.lower() in result.output.lower()
    with pytest.raises(ArgumentError, match="(?i)" + re.escape(known)):
        packaged.find(arch=word)
    with pytest.raises(zoo.emulator.EmulatorError, match=r"is not covered; .*hopper"):
        zoo.emulator.Device(word)


def test_a_search_that_finds_nothing_may_be_one_that_could_have():
    assert packaged.find(arch="sm_75a") == [] and packaged.find("nothing") == [] and packaged.find(op="gemm", arch="sm_75a") == []
    assert packaged.find("scales.mn_major", grouping=None) == packaged.find("scales.mn_major")


def test_a_misspelt_command_or_option_is_misuse_and_told_what_was_meant(zoo_command):
    result = zoo_command("lits")
    assert result.exit_code == 2 and "no command is named 'lits'; did you mean list?" in result.output
    result = zoo_command("xyzzy")
    assert (
        result.exit_code == 2
        and "there are demo, doctor, list, show, verify, emulate, trace, bench, tune, first-run, export, new-kernel and digest"
        in result.output
    )
    result = zoo_command("list", "--evidnce")
    assert result.exit_code == 2 and "--evidence" in result.output


def test_a_search_that_need_not_be_explained_asks_no_kernel_what_it_is(monkeypatch):
    """Words of fields are held against those of every kernel only where a search by them found nothing."""
    from zoo.catalog import Zoo

    zoo, asked = Zoo(packaged.directory), []
    whole = Zoo.kernel
    monkeypatch.setattr(Zoo, "kernel", lambda self, name: (asked.append(name), whole(self, name))[1])
    assert zoo.find("nothing") == [] and asked == []
    (found,) = zoo.find("scales.mn_major", arch="sm_90a", op="scales")
    assert found.name == "scales.mn_major" and asked == ["scales.mn_major"]
    assert zoo.find("scales.mn_major", op="gemm") == [] and set(asked) == set(NAMES)

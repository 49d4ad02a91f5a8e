"""`zoo emulate`: what a user gets wrong is refused in a line, and what a kernel gets wrong fails the command."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"

# x[i] = 2 x[i] + add, n elements
DOUBLE = """
.visible .entry double(.param .u64 x, .param .u32 n, .param .f32 add) {
    .reg .b32 %r<3>; .reg .b64 %a<2>; .reg .f32 %f<3>; .reg .pred %p;
    ld.param.u64 %a0, [x];
    ld.param.u32 %r1, [n];
    ld.param.f32 %f1, [add];
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p, %r0, %r1;
    @%p ret;
    mad.wide.u32 %a1, %r0, 4, %a0;
    ld.global.f32 %f0, [%a1];
    fma.rn.f32 %f2, %f0, 0f40000000, %f1;
    st.global.f32 [%a1], %f2;
    ret;
}
"""
# the second half of the threads reads what the first half wrote
RACE = """
.file 1 "race.cu"
.visible .entry race(.param .u64 x) {
    .reg .b32 %r<4>; .reg .b64 %a<2>;
    .shared .align 4 .b8 row[256];
    mov.u32 %r0, %tid.x;
    mov.u32 %r2, row;
    mad.lo.u32 %r3, %r0, 4, %r2;
    .loc 1 7 0
    st.shared.u32 [%r3], %r0;
    sub.u32 %r0, 63, %r0;
    mad.lo.u32 %r3, %r0, 4, %r2;
    .loc 1 9 0
    ld.shared.u32 %r1, [%r3];
    ld.param.u64 %a0, [x];
    st.global.u32 [%a0], %r1;
    ret;
}
"""
TABLES = """
[[args]]
name = "x"
dtype = "f32"
shape = [8]
fill = "arange"
[[args]]
value = 8
[[args]]
value = 0.5
"""


@pytest.fixture
def emulate(zoo_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(ptx, *arguments, spec=None):
        if ptx is not None:
            (tmp_path / "k.ptx").write_text(ptx)
        if spec is not None:
            (tmp_path / "spec.toml").write_text(spec)
            arguments += ("--args", "spec.toml")
        file = () if "--triton" in arguments else ("k.ptx",)
        return zoo_command("emulate", *file, "--grid", "1", *arguments)

    return run


def test_a_right_kernel_passes_with_its_values(emulate, tmp_path):
    np.save(tmp_path / "right.npy", np.arange(8, dtype=np.float32) * 2 + 0.5)
    spec = TABLES.replace('"arange"', '"arange"\nexpected = "right.npy"\nshow = true')
    result = emulate(HEAD + DOUBLE, "--block", "32", "--save", "out", spec=spec)
    assert result.exit_code == 0, result.output
    assert "[ 0.5  2.5" in result.output and "no findings" in result.output
    assert np.load("out/x.npy").tolist() == [0.5, 2.5, 4.5, 6.5, 8.5, 10.5, 12.5, 14.5]


def test_a_wrong_value_fails_and_names_the_first(emulate, tmp_path):
    np.save(tmp_path / "right.npy", np.array([0.5, 2.5, 4.5, 6, 8.5, 10.5, 12.5, 14], np.float32))
    result = emulate(HEAD + DOUBLE, "--block", "32", spec=TABLES.replace('"arange"', '"arange"\nexpected = "right.npy"'))
    assert result.exit_code == 1
    assert "2 of 8 elements are not as expected under every schedule; the first, [3], is 6.5, expected 6.0" in " ".join(
        result.output.split()
    )


def test_one_schedule_runs_alone(emulate):
    result = emulate(HEAD + DOUBLE, "--block", "32", "--only", "random:7", "--json", "r.json", spec=TABLES)
    assert result.exit_code == 0 and ", 1 schedule, 11 warp instructions" in result.output
    assert [run["schedule"] for run in json.loads(Path("r.json").read_text())["runs"]] == ["random, seed 7"]
    result = emulate(HEAD + DOUBLE, "--block", "32", "--only", "late", spec=TABLES)
    assert result.exit_code == 2 and "'late' is no schedule; it is last, issue or random:SEED" in result.output


def test_a_tolerance_covers_a_small_difference(emulate, tmp_path):
    np.save(tmp_path / "right.npy", np.arange(8, dtype=np.float32) * 2 + 0.51)
    spec = TABLES.replace('"arange"', '"arange"\nexpected = "right.npy"\natol = 0.02')
    assert emulate(HEAD + DOUBLE, "--block", "32", spec=spec).exit_code == 0


def test_an_npz_gives_arrays_and_scalars_in_its_order(emulate, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(8, np.float32), n=np.uint32(8), add=np.float32(1))
    result = emulate(HEAD + DOUBLE, "--block", "32", "--args", "a.npz", "--save", "out")
    assert result.exit_code == 0, result.output
    assert np.load("out/x.npy").tolist() == [3] * 8


def test_a_recursion_fits_the_stack_that_is_given(emulate):
    down = (
        ".func down(.param .u32 n) { .reg .pred %p; .reg .b32 %n; ld.param.u32 %n, [n]; setp.eq.u32 %p, %n, 0; @%p ret; sub.u32 %n, %n, 1; "
    )
    down += "{ .param .u32 m; st.param.u32 [m], %n; call down, (m); } ret; }\n"
    kernel = ".visible .entry k() { { .param .u32 n; st.param.u32 [n], 100; call down, (n); } ret; }"
    result = emulate(HEAD + down + kernel, "--block", "32")
    assert result.exit_code == 1 and "stack-overflow" in result.output and "cudaLimitStackSize" in result.output
    assert emulate(HEAD + down + kernel, "--block", "32", "--stack", "2048").exit_code == 0
    assert emulate(HEAD + down + kernel, "--block", "32", "--stack", "1000000").exit_code == 2


def test_a_launch_that_may_begin_early_waits_for_the_one_ahead(emulate):
    result = emulate(HEAD + DOUBLE, "--block", "32", "--programmatic", spec=TABLES)
    assert result.exit_code == 1 and "missing-dependency-wait" in result.output
    waiting = DOUBLE.replace("    @%p ret;", "    @%p ret;\n    griddepcontrol.wait;")
    assert emulate(HEAD + waiting, "--block", "32", "--programmatic", spec=TABLES).exit_code == 0


def test_a_missing_barrier_is_one_cause_with_both_places(emulate):
    result = emulate(HEAD + RACE, "--block", "64", "--json", "r.json", "--sarif", "r.sarif", spec='args = [{dtype = "u32", shape = [1]}]')
    assert result.exit_code == 1
    found = json.loads(Path("r.json").read_text())
    races = found["causes"]
    assert [cause["kind"] for cause in races] == ["race"] and not found["ok"]
    assert races[0]["also"] == ["error: uninitialised-shared at race.cu:9 (2 times)"]
    assert races[0]["here"]["source"] == "race.cu:7" and races[0]["others"][0]["source"] == "race.cu:9"
    assert "race at race.cu:7" in result.output and "read     race.cu:9" in result.output and "Memory Consistency Model" in result.output
    log = json.loads(Path("r.sarif").read_text())["runs"][0]
    of_race = next(one for one in log["results"] if one["ruleId"] == "race")
    assert of_race["level"] == "error" and log["tool"]["driver"]["rules"][of_race["ruleIndex"]]["id"] == "race"
    place = of_race["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "race.cu" and place["region"]["startLine"] == 7
    assert of_race["relatedLocations"][0]["physicalLocation"]["region"]["startLine"] == 9


def test_jobs_divide_ctas_that_do_not_talk_and_say_which_do(emulate):
    apart = emulate(HEAD + DOUBLE, "--block", "4", "--grid", "2", "--jobs", "4", spec=TABLES)
    said = "it reads global memory at byte 0 of the argument x, which another CTA wrote, and nothing orders two CTAs of this launch"
    assert apart.exit_code == 1 and said in " ".join(apart.output.split()) and "no barrier orders CTAs" in " ".join(apart.output.split())
    atomic = DOUBLE.replace("st.global.f32 [%a1]", "red.global.add.f32 [%a1]")
    together = emulate(HEAD + atomic, "--block", "4", "--grid", "2", "--jobs", "4", spec=TABLES)
    assert together.exit_code == 0 and "CTAs may talk by `red.global.add.f32 [%a1], %f2` (PTX line 16)" in " ".join(together.output.split())


def test_without_source_lines_sarif_shows_the_ptx(emulate):
    text = HEAD + "\n".join(line for line in RACE.splitlines() if ".loc" not in line and ".file" not in line)
    emulate(text, "--block", "64", "--sarif", "r.sarif", spec='args = [{dtype = "u32", shape = [1]}]')
    places = [one["locations"][0]["physicalLocation"] for one in json.loads(Path("r.sarif").read_text())["runs"][0]["results"]]
    assert {place["artifactLocation"]["uri"] for place in places} == {"k.ptx"}
    assert {text.splitlines()[place["region"]["startLine"] - 1].split()[0] for place in places} <= {"ld.shared.u32", "st.shared.u32"}


MISUSED = {
    "a missing entry": (HEAD + DOUBLE + RACE, ["--block", "32", "--entry", "doubel"], TABLES, "no entry is named 'doubel'; did you mean double?"),
    "several entries": (HEAD + DOUBLE + RACE, ["--block", "32"], TABLES, "has 2 entries, name one by --entry: double, race"),
    "no entry": (HEAD, ["--block", "32"], TABLES, "the file has no entry"),
    "too few arguments": (HEAD + DOUBLE, ["--block", "32"], 'args = [{dtype = "u8", shape = [1]}]', "takes 3 parameters, 1 were given: x (8 bytes)"),
    "too many arguments": (HEAD + DOUBLE, ["--block", "32"], TABLES + "[[args]]\nvalue = 1\n", "takes 3 parameters, 4 were given"),
    "no arguments": (HEAD + DOUBLE, ["--block", "32"], None, "takes 3 parameters, 0 were given"),
    "no block": (HEAD + DOUBLE, [], TABLES, "--block is missing"),
    "a float for an integer": (HEAD + DOUBLE, ["--block", "32"], TABLES.replace("value = 8", "value = 8.5"), "parameter 1 of double is no float"),
    "a number that does not fit": (HEAD + DOUBLE, ["--block", "32"], TABLES.replace("value = 8", "value = 5000000000"), "does not fit 4 bytes"),
    "a block of no thread": (HEAD + DOUBLE, ["--block", "0"], TABLES, "'0' is not of the form X, X,Y or X,Y,Z"),
    "a block of many threads": (HEAD + DOUBLE, ["--block", "4096"], TABLES, "a block has 1 to 1024 threads"),
    "a grid of many digits": (HEAD + DOUBLE, ["--block", "32", "--grid", "9" * 5000], TABLES, "is not of the form"),
    "a grid beyond the limit": (HEAD + DOUBLE, ["--block", "32", "--grid", "1,70000"], TABLES, "a grid has at most"),
    "a cluster that does not divide": (HEAD + DOUBLE, ["--block", "32", "--cluster", "2"], TABLES, "is not a multiple of the cluster"),
    "much shared memory": (HEAD + DOUBLE, ["--block", "32", "--shared", "9999999"], TABLES, "a CTA has 232448"),
    "another arch": (HEAD + DOUBLE, ["--block", "32", "--arch", "blackwell"], TABLES, "PTX for sm_90a does not run on sm_100"),
    "an unknown arch": (HEAD + DOUBLE, ["--block", "32", "--arch", "sm_1\x1b"], TABLES, "is not covered"),
    "no TOML": (HEAD + DOUBLE, ["--block", "32"], "args = [", "spec.toml: "),
    "a table of another name": (HEAD + DOUBLE, ["--block", "32"], TABLES + "[other]\n", "the table [other] of the arguments is unknown"),
    "an array for a number": (
        HEAD + DOUBLE, ["--block", "32"], TABLES.replace("value = 8", 'name = "n"\ndtype = "u32"\nshape = [1]'), "n is an array, and the parameter n has 4 bytes",
    ),
    "a block for Triton": (None, ["--triton", "dot.py:dot", "--block", "32"], None, "--block is not for --triton"),
    "an ESC in a name": (HEAD + DOUBLE, ["--block", "32"], TABLES.replace('"x"', '"\\u001b[2J"'), "the name '\\x1b[2J' is not of letters"),
    "an ESC in an entry": (HEAD + DOUBLE, ["--block", "32", "--entry", "\x1b[2J"], TABLES, "no entry is named '\\x1b[2J'"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISUSED)
def test_misuse_is_status_2_and_says_what_to_do(emulate, what):
    ptx, arguments, spec, words = MISUSED[what]
    result = emulate(ptx, *arguments, spec=spec)
    assert result.exit_code == 2, result.output
    assert words in result.output and "\x1b" not in result.output and "Traceback" not in result.output


BROKEN = {
    "no .version": (DOUBLE.join(["\n".join(HEAD.splitlines()[1:]), ""]), "a .version is missing"),
    "no .target": (".version 8.5" + DOUBLE, "its .version and .target"),
    "an empty file": ("", "k.ptx is no PTX"),
    "CUDA source": ("__global__ void double(float* x) { x[0] *= 2; }\n", "nvcc -ptx writes the PTX of CUDA source"),
    "half a file": (HEAD + DOUBLE[: len(DOUBLE) // 2], "the text ends in the middle of a function"),
    "an unknown instruction": (HEAD + DOUBLE.replace("fma.rn.f32", "frobnicate"), "frobnicate"),
    "an ESC in the text": (HEAD + '.file 1 "\x1b[2J"\n' + DOUBLE, "a text with characters that no terminal prints"),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_ptx_that_cannot_run_is_status_1_and_a_line(emulate, what):
    ptx, words = BROKEN[what]
    result = emulate(ptx, "--block", "32", spec=TABLES)
    assert result.exit_code == 1, result.output
    assert words in result.output and result.output.startswith("Error: ") and result.output.count("\n") == 1 and "\x1b" not in result.output


def test_a_binary_is_no_ptx(emulate, tmp_path):
    (tmp_path / "k.ptx").write_bytes(b"\x7fELF\xff\xfe\x00")
    result = emulate(None, "--block", "32")
    assert result.exit_code == 1 and "cuobjdump -ptx" in result.output


def test_a_file_and_a_triton_kernel_exclude_each_other(zoo_command):
    assert zoo_command("emulate", "--grid", "1").exit_code == 2


def test_other_entries_of_the_file_are_not_read(emulate):
    """Here: not even understood."""
    others = "".join(f".visible .entry other{n}() {{ {{ not an instruction }} }}\n" for n in range(3))
    assert emulate(HEAD + others + DOUBLE, "--block", "32", "--entry", "double", spec=TABLES).exit_code == 0


# The CTA may exit before its bulk store has read shared memory: a warning.
STORE = """
.visible .entry store(.param .u64 x) {
    .reg .b32 %r<2>; .reg .b64 %a0;
    .shared .align 16 .b8 row[16];
    ld.param.u64 %a0, [x];
    mov.u32 %r0, 1;
    mov.u32 %r1, row;
    st.shared.v4.u32 [%r1], {%r0, %r0, %r0, %r0};
    fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r1], 16;
    cp.async.bulk.commit_group;
    ret;
}
"""


def test_a_warning_fails_only_with_strict(emulate):
    arguments = ["--block", "1", "--json", "r.json"]
    for strict in ([], ["--strict"]):
        result = emulate(HEAD + STORE, *arguments, *strict, spec='args = [{dtype = "u32", shape = [4]}]')
        assert (
            result.exit_code == len(strict)
            and "warning: pending-at-exit at exit" in result.output
            and "result     1 warning" in result.output
        )
        assert json.loads(Path("r.json").read_text())["ok"] == (not strict)


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed")
def test_without_triton_its_option_says_what_to_install(zoo_command):
    result = zoo_command("emulate", "--triton", "dot.py:dot", "--grid", "1")
    assert result.exit_code == 2 and "--triton needs Triton: pip install triton" in result.output


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_triton_kernel_has_its_defaults_and_no_option_that_triton_does_not_know(zoo_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    source = "import triton\nimport triton.language as tl\n@triton.jit\ndef twice(x, add=1.5, BIAS=None, N: tl.constexpr = 32):\n"
    Path("k.py").write_text(f"{source}    i = tl.arange(0, N)\n    tl.store(x + i, tl.load(x + i) * 2 + add)\n")
    np.save("right.npy", np.arange(32, dtype=np.float32) * 2 + 1.5)
    spec = 'args = [{ name = "x", dtype = "f32", shape = [32], fill = "arange", expected = "right.npy" }]\n'

    def emulate(more=""):
        Path("spec.toml").write_text(spec + more)
        return zoo_command("emulate", "--triton", "k.py:twice", "--grid", "1", "--args", "spec.toml")

    result = emulate()
    assert result.exit_code == 0, result.output
    assert "block 64" in emulate("[triton]\nnum_warps = 2\n").output
    result = emulate("[triton]\nnum_warp = 2\n")
    assert result.exit_code == 2 and "'num_warp' is unknown; did you mean num_warps" in " ".join(result.output.split())


@pytest.mark.parametrize("option", ["--json", "--sarif", "--save"])
def test_a_place_that_cannot_be_written_is_a_line(emulate, option):
    result = emulate(HEAD + DOUBLE, "--block", "32", option, "/proc/nowhere/x", spec=TABLES)
    assert result.exit_code == 1 and result.output.splitlines()[-1].startswith("Error: /proc/nowhere")

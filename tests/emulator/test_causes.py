"""Findings by cause: what one change removes is one cause, and what it does not is another."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from zoo.emulator import Device, EmulatorError, Finding, Module, parser
from zoo.emulator.causes import causes, shortened
from zoo.emulator.written import as_json, as_sarif

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"

# Shared memory written by st.shared reaches bulk copies at three places of two source lines, in two basic blocks.
FENCE = """
.file 1 "k.cu"
.file 2 "copy.cuh"
.visible .entry k(.param .u64 x) {{
    .reg .b32 %r<4>; .reg .b64 %a<2>; .reg .pred %p;
    .shared .align 16 .b8 row[64];
    ld.param.u64 %a0, [x];
    mov.u32 %r0, %tid.x;
    mov.u32 %r2, row;
    {location}
    st.shared.v4.u32 [%r2], {{%r0, %r0, %r0, %r0}};
    {location2}
    st.shared.v4.u32 [%r2+16], {{%r0, %r0, %r0, %r0}};
    {fence}
    setp.ne.u32 %p, %r0, 0;
    {copy}
    cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r2], 16;
    cp.async.bulk.global.shared::cta.bulk_group [%a0+16], [%r2+16], 16;
    @%p bra next;
next:
    {copy}
    cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r2], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
    ret;
}}
"""
LINES = {
    "location": ".loc 1 10 0",
    "location2": ".loc 1 10 0",
    "copy": ".loc 1 20 0\n.loc 2 5 3, function_name f, inlined_at 1 20 0",
}


def run(text, block=1, values=64, scheduling="last", seed=0):
    device = Device("sm_90a", scheduling, seed)
    x = device.alloc(np.zeros(values, np.int32))
    module = Module(HEAD + text)
    return device.launch(module, module.entries[0], 1, block, params=[x])


def found(text, **settings):
    return causes([("last", run(text, **settings))])


def test_one_missing_fence_is_one_cause_with_the_writer_and_the_caller():
    (cause,) = found(FENCE.format(fence="", **LINES))
    assert cause.kind == "missing-proxy-fence" and cause.count == 3 and len(cause.lines) == 3
    assert cause.headline == "error: missing-proxy-fence at k.cu:20 (3 times, 3 PTX lines)"
    assert cause.place.source == "copy.cuh:5" and cause.place.callers == ("k.cu:20",)
    assert [(access, place.source) for access, place in cause.others] == [("written", "k.cu:10")]
    assert "fence.proxy.async" in cause.add and cause.manual in str(cause) and "copy.cuh:5, called at k.cu:20" in str(cause)
    assert not found(FENCE.format(fence="fence.proxy.async;", **LINES))


def test_headers_of_others_are_named_as_they_are_included():
    folder = "/opt/cuda/bin/../targets/x86_64-linux/include"
    text = FENCE.format(fence="", **LINES)
    shown = []
    for path in (f"{folder}/cute/copy.hpp", "/home/kernels/copy.cuh"):
        device = Device("sm_90a", "last", 0)
        module = Module(HEAD + text.replace("copy.cuh", path))
        report = device.launch(module, module.entries[0], 1, 1, params=[device.alloc(np.zeros(64, np.int32))])
        (cause,) = causes([("last", report)])
        shown.append(str(cause))
    assert "here     cute/copy.hpp:5, called at k.cu:20" in shown[0] and folder not in shown[0]
    assert "/home/kernels/copy.cuh:5, called at k.cu:20" in shown[1]


def test_each_line_of_the_source_is_shown_once_and_a_few_of_many():
    text = FENCE.format(fence="", **LINES)
    for number in range(6):
        copy = "cp.async.bulk.global.shared::cta.bulk_group [%a0], [%r2], 16;\n"
        text = text.replace("    setp.ne", f"    .loc 1 {30 + number} 0\n    {copy}    {copy}    setp.ne")
    (cause,) = found(text)
    assert [place.source for place in cause.places] == [*(f"k.cu:{30 + number}" for number in range(6)), "copy.cuh:5"]
    assert [label for label, _ in cause.facts] == ["here"] * 4 + ["", "written", "manual", "add"] and "and 3 more places" in str(cause)


def test_without_source_lines_what_meets_one_write_is_one_cause():
    """Two reads are in one basic block, and the third in another."""
    text = FENCE.format(fence="", **dict.fromkeys(LINES, ""))
    assert [cause.lines for cause in found(text)] == [[20, 21, 25]]


def test_without_source_lines_one_missing_barrier_is_one_race():
    """The write races with reads in two blocks, and is found at each of the three."""
    text = """
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<6>; .reg .pred %p;
    .shared .align 4 .b8 word[4];
    mov.u32 %r0, %tid.x;
    mov.u32 %r2, word;
    setp.ge.u32 %p, %r0, 32;
    @!%p st.shared.u32 [%r2], %r0;
    bar.sync 0;
    ld.shared.u32 %r1, [%r2];
    setp.ne.u32 %p, %r1, 77;
    @%p bra MORE;
MORE:
    ld.shared.u32 %r3, [%r2];
    setp.ge.u32 %p, %r0, 32;
    @%p st.shared.u32 [%r2], %r0;
    ret;
}
"""
    reports = [(str(seed), run(text, block=64, scheduling="random", seed=seed)) for seed in range(8)]
    assert len({finding.line for _, report in reports for finding in report.findings}) == 3
    assert [(cause.kind, len(cause.lines)) for cause in causes(reports)] == [("race", 3)]


UNDEFINED = """
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<30>; .reg .b64 %a<2>;
    ld.param.u64 %a0, [x];
""" + "".join(f"    st.global.u32 [%a0+{4 * n}], %r{n};\n" for n in range(20)) + "    ret;\n}\n"  # fmt: skip


def test_many_registers_are_one_cause_that_names_eight():
    (cause,) = found(UNDEFINED)
    assert cause.count == 20
    assert cause.message.startswith("%r0 is used") and cause.message.endswith("; so are %r1, %r2, %r3, %r4, %r5, %r6, %r7 and 12 more")


def test_a_list_of_registers_is_shortened():
    many = ", ".join(f"%r{n}" for n in range(32))
    assert shortened(f"wgmma {{{many}}}, %a0, {{%r1, %r2}}") == "wgmma {%r0, ..., %r31}, %a0, {%r1, %r2}"
    assert len(shortened("x" * 10_000)) < 200


def test_registers_of_a_quoted_instruction_are_not_what_a_message_is_about():
    def of(line, message):
        return Finding("missing-wait", message, kernel="k", line=line, text="", block=1)

    both = [of(1, "it needs what `wgmma {%r1}, %a0` wrote"), of(2, "it needs what `wgmma {%r2}, %a1` wrote")]
    (cause,) = causes([("last", SimpleNamespace(findings=both))])
    assert cause.message == "it needs what `wgmma {%r1}, %a0` wrote" and cause.count == 2


def test_different_mistakes_at_one_place_stay_apart():
    text = FENCE.format(fence="", **LINES).replace("st.shared.v4.u32 [%r2+16], {%r0, %r0, %r0, %r0};", "")
    assert sorted(cause.kind for cause in found(text)) == ["missing-proxy-fence", "uninitialised-shared"]


def test_a_race_names_the_read_that_a_write_overtakes():
    text = """
.file 1 "k.cu"
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<5>; .reg .pred %p;
    .shared .align 4 .b8 word[4];
    mov.u32 %r0, %tid.x;
    mov.u32 %r2, word;
    setp.ge.u32 %p, %r0, 32;
    .loc 1 3 0
    @%p st.shared.u32 [%r2], %r0;
    bar.sync 0;
    .loc 1 5 0
    @%p ld.shared.u32 %r1, [%r2];
    .loc 1 6 0
    @!%p st.shared.u32 [%r2], %r0;
    ret;
}
"""
    (cause,) = found(text, block=64)
    assert cause.kind == "race" and cause.place.source == "k.cu:6"
    assert [(access, place.source) for access, place in cause.others] == [("read", "k.cu:5")]


# Thread 0 sets the word in each round, all warps read it, and one barrier a round is too few.
ROUNDS = """
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<4>; .reg .pred %p<3>;
    .shared .align 4 .b8 word[4];
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p0, %r0, 0;
    mov.u32 %r1, 0;
loop:
    @%p0 st.shared.u32 [word], %r1;
    bar.sync 0;
    ld.shared.u32 %r2, [word];
    setp.eq.u32 %p1, %r2, 77;
    @%p1 trap;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 4;
    @%p1 bra loop;
    ret;
}
"""
WRITE, READ = "st.shared.u32 [word], %r0;", "ld.shared.u32 %r2, [word]; setp.eq.u32 %p1, %r2, 77; @%p1 trap;"


def one_warp_each(first, second):
    return f"""
.visible .entry k(.param .u64 x) {{
    .reg .b32 %r<4>; .reg .pred %p<3>;
    .shared .align 4 .b8 word[4];
    mov.u32 %r0, %tid.x;
    setp.lt.u32 %p0, %r0, 32;
    @%p0 st.shared.u32 [word+0], %r0;
    bar.sync 0;
    @%p0 bra FIRST;
    {second}
    ret;
FIRST:
    {first}
    ret;
}}
"""


def lines_of_text(cause):
    return [int(re.search(r"PTX line (\d+)", str(place))[1]) for label, place in cause.facts if label in ("here", "read", "written")]


def lines_of_json(cause):
    (found,) = as_json(SimpleNamespace(reports=[], causes=[cause], wrong=[]))["causes"]
    return [one["ptx_line"] for one in (found["here"], *found["here_too"], *found["others"])]


def lines_of_sarif(cause):
    (found,) = as_sarif(SimpleNamespace(causes=[cause]), "k.ptx", "1")["runs"][0]["results"]
    return [one["physicalLocation"]["region"]["startLine"] for one in found["locations"] + found["relatedLocations"]]


@pytest.mark.parametrize("lines_of", [lines_of_text, lines_of_json, lines_of_sarif])
@pytest.mark.parametrize(
    ("text", "block"),
    [(one_warp_each(WRITE, READ), 64), (one_warp_each(READ, WRITE), 64), (one_warp_each(WRITE, WRITE), 64), (ROUNDS, 256)],
    ids=["a write and a read", "a read and a write", "two writes", "a read by many and a write"],
)
def test_a_race_shows_both_instructions_where_there_are_no_source_lines(text, block, lines_of):
    """The order of the two depends on the seed. The last reader of a word is not always one that the write overtakes."""
    both = [number for number, line in enumerate((HEAD + text).splitlines(), 1) if "[word]" in line]
    for seed in range(6):
        (cause,) = [cause for cause in found(text, block=block, scheduling="random", seed=seed) if cause.kind == "race"]
        assert sorted(lines_of(cause)) == both, str(cause)


ASYNCHRONOUS = """
.visible .entry k(.param .u64 x) {{
    .reg .b32 %r<4>; .reg .b64 %a; .reg .pred %p<3>;
    .shared .align 16 .b8 word[16];
    .shared .align 8 .b64 bar;
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, word;
    mov.u32 %r3, bar;
    ld.param.u64 %a, [x];
    setp.eq.u32 %p0, %r0, 0;
    {body}
    bar.sync 0;
    ld.shared.u32 %r2, [word];
    setp.eq.u32 %p1, %r2, 77;
    @%p1 trap;
    {behind}
    ret;
}}
"""


@pytest.mark.parametrize(
    ("body", "behind", "add"),
    [
        ("@%p0 cp.async.ca.shared.global [%r1], [%a], 16;", "cp.async.wait_all;", "cp.async.wait_group for this copy"),
        ("@%p0 st.shared.u32 [word], 1;", "@%p0 st.shared.u32 [word], 2;", "a barrier between the two accesses"),
        (
            "@%p0 st.shared.u32 [word], 1;\n@%p0 mbarrier.init.shared.b64 [%r3], 1;\n@%p0 fence.proxy.async;",
            "@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16;\n"
            "@%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%a], 16, [%r3];\n"
            "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra W;",
            "a wait for the mbarrier of the copy before its bytes are used, and for their readers' before the next copy",
        ),
    ],
    ids=["cp.async", "st", "cp.async.bulk"],
)
def test_what_a_race_needs_depends_on_what_wrote(body, behind, add):
    causes = [
        cause
        for seed in range(6)
        for cause in found(ASYNCHRONOUS.format(body=body, behind=behind), block=64, scheduling="random", seed=seed)
    ]
    races = [cause for cause in causes if cause.kind == "race"]
    assert races and all(cause.add.startswith(add) for cause in races), "\n".join(map(str, causes))


def test_a_grid_that_waits_for_itself_in_a_plain_launch_says_so():
    text = """
.visible .entry k(.param .u64 x) {
    .reg .b32 %r; .reg .pred %p;
    mov.u32 %r, %envreg2;
    setp.eq.u32 %p, %r, 0;
    @%p trap;
    ret;
}
"""
    (cause,) = found(text)
    assert cause.kind == "trap" and cause.message.endswith("it waits for the whole grid, and the launch is not cooperative")


def test_two_warps_that_write_by_one_instruction_show_it_on_both_sides():
    text = one_warp_each("", "").replace("@%p0 st.shared", "st.shared")
    (cause,) = found(text, block=64)
    line = next(number for number, line in enumerate((HEAD + text).splitlines(), 1) if "st.shared" in line)
    assert lines_of_text(cause) == [line, line] and [access for access, _ in cause.others] == ["written"]


def test_callers_of_callers_are_followed():
    text = """
.file 1 "k.cu"
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<2>; .reg .b64 %a;
    ld.param.u64 %a, [x];
    .loc 1 50 2
    .loc 1 30 4, function_name g, inlined_at 1 50 2
    .loc 1 10 8, function_name f, inlined_at 1 30 4
    st.global.u32 [%a], %r0;
    ret;
}
"""
    (cause,) = found(text)
    assert (cause.place.source, cause.place.callers) == ("k.cu:10", ("k.cu:30", "k.cu:50"))
    assert cause.headline.startswith("error: uninitialised-register at k.cu:50 ")


def test_a_location_that_calls_itself_ends():
    text = '.file 1 "k.cu"\n.visible .entry k() {\n' + ".loc 1 1 0, function_name f, inlined_at 1 1 0\n" * 200 + "ret;\n}\n"
    module = Module(HEAD + text)
    assert len(module.functions["k"].statements[0].callers) <= 16


@pytest.mark.parametrize("whole", [True, False])
def test_an_outline_reads_what_the_entry_calls(whole):
    text = """
.func (.param .b32 y) twice(.param .b32 x) {
    .reg .b32 %r<2>;
    ld.param.u32 %r0, [x];
    add.u32 %r1, %r0, %r0;
    st.param.b32 [y], %r1;
    ret;
}
.func unused() { "}" ; /* } */ }
.visible .entry other() { // }
    nonsense!
}
.visible .entry k(.param .u64 x) {
    .reg .b32 %r<2>; .reg .b64 %a;
    ld.param.u64 %a, [x];
    mov.u32 %r0, 21;
    { .param .b32 in; .param .b32 out;
      st.param.b32 [in], %r0;
      call.uni (out), twice, (in);
      ld.param.b32 %r1, [out]; }
    st.global.u32 [%a], %r1;
    ret;
}
"""
    if whole:
        text = "\n".join(line for line in text.splitlines() if "unused" not in line).replace("nonsense!", "ret;")
    module = Module(HEAD + text, whole)
    device = Device("sm_90a")
    x = device.alloc(4)
    assert device.launch(module, "k", 1, 1, params=[x]).ok and device.read(x, 1, np.int32)[0] == 42
    assert module.functions["k"].statements[-1].line == text.splitlines().index("    st.global.u32 [%a], %r1;") + 5


def test_an_outline_is_bounded(monkeypatch):
    text = HEAD + ".visible .entry k() { ret; }\n"
    monkeypatch.setattr(parser, "MOST_PASSED_OVER", len(text))
    monkeypatch.setattr(parser, "MOST_CHARACTERS", 7)
    module = Module(text, whole=False)
    assert module.entries == ["k"]
    with pytest.raises(EmulatorError, match="k has 8 characters, at most 7 are read"):
        module.program("k")
    with pytest.raises(EmulatorError, match=r"characters, at most [\d,]+ are looked at"):
        Module(text + "//", whole=False)
    monkeypatch.setattr(parser, "MOST_TOKENS", 8)
    with pytest.raises(EmulatorError, match="there are more than 8 words"):
        Module(text, whole=False)


def test_the_manual_has_a_rule_for_every_kind():
    from zoo.emulator.findings import KINDS
    from zoo.emulator.manual import RULES

    assert RULES.keys() == KINDS.keys()

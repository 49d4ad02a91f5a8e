"""A load of shared memory that nobody wrote, or that a write races with, is an error once its value is used."""

import numpy as np
import pytest
from core_support import kernel, launch, only

from zoo import emulator

SHARED = ".shared .align 16 .b8 tile[1024];"
LOAD = "mov.u32 %r1, tile; ld.shared.u32 %r2, [%r1];"
STORE = "st.global.u32 [%rd0], {};"


def run(body, shared=SHARED, **options):
    gpu = emulator.Device(scheduling=options.pop("scheduling", "issue"))
    return launch(kernel(body, parameters=1, shared=shared), device=gpu, params=[gpu.alloc(np.zeros(512, np.uint8))], **options)


UNUSED = {
    "nothing follows": "",
    "it is replaced": "mov.u32 %r2, 1;" + STORE.format("%r2"),
    "it is not chosen": "setp.eq.u32 %p1, 0, 0; selp.b32 %r3, %r0, %r2, %p1;" + STORE.format("%r3"),
    "its lanes do not store": "setp.eq.u32 %p1, %r0, 3; @%p1 mov.u32 %r2, 5; @%p1 " + STORE.format("%r2"),
    "it is computed with": "add.u32 %r3, %r2, 1; cvt.rn.f32.u32 %f1, %r3;",
    "it is kept in shared memory": "st.shared.u32 [%r1+64], %r2; ld.shared.u32 %r3, [%r1+64];",
    "another predicate decides alone": "setp.eq.u32 %p1, %r2, 7; setp.eq.u32 %p2, 0, 0; or.pred %p3, %p1, %p2; @%p3 " + STORE.format("%r0"),
    "it goes to a lane that does not store": "setp.eq.u32 %p1, %r0, 0; @!%p1 mov.u32 %r2, 1; shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;"
    "setp.eq.u32 %p2, %r0, 2; @%p2 " + STORE.format("%r3"),
}
USED = {
    "stored": STORE.format("%r2"),
    "stored in a sum": "add.u32 %r3, %r2, 1; mul.lo.u32 %r3, %r3, 3;" + STORE.format("%r3"),
    "an address": "and.b32 %r3, %r2, 4; add.u32 %r3, %r1, %r3; st.shared.u32 [%r3], 0;",
    "branched on": "setp.eq.u32 %p1, %r2, 7; @%p1 bra END; END:",
    "a guard": "setp.eq.u32 %p1, %r2, 7; @%p1 " + STORE.format("%r0"),
    "stored by another lane": "setp.eq.u32 %p1, %r0, 0; @!%p1 mov.u32 %r2, 1; shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;"
    "setp.eq.u32 %p2, %r0, 1; @%p2 " + STORE.format("%r3"),
    "kept in shared memory and stored": "st.shared.u32 [%r1+64], %r2; ld.shared.u32 %r3, [%r1+64];" + STORE.format("%r3"),
    "another predicate does not decide": "setp.eq.u32 %p1, %r2, 7; setp.eq.u32 %p2, 0, 1; or.pred %p3, %p1, %p2; @%p3 "
    + STORE.format("%r0"),
    "added to memory": "red.global.add.u32 [%rd0], %r2;",
    "used in a later round": """mov.u32 %r3, 0; mov.u32 %r4, 0;
        LOOP: ld.shared.u32 %r2, [%r1+32]; setp.eq.u32 %p1, %r3, 2; @%p1 mov.u32 %r4, %r2;
        add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 3; @%p2 bra LOOP; st.global.u32 [%rd0], %r4;""",
}


@pytest.mark.parametrize("name", UNUSED)
def test_an_unwritten_value_that_nobody_uses_is_a_note(name):
    report = run(LOAD + UNUSED[name])
    assert report.ok and {(finding.kind, finding.severity) for finding in report.findings} == {("uninitialised-shared", "note")}


@pytest.mark.parametrize("name", USED)
def test_an_unwritten_value_that_is_used_is_an_error_of_its_load(name):
    report = run(LOAD + USED[name])
    errors = [finding for finding in report.findings if finding.severity == "error"]
    assert [finding.kind for finding in errors] == ["uninitialised-shared"] and errors[0].text.startswith("ld.shared.u32")


LOCAL = ".local .align 16 .b8 frame[64]; .shared .align 16 .b8 tile[1024];"


@pytest.mark.parametrize("space", ["shared", "local", "generic"])
@pytest.mark.parametrize(("use", "severities"), [
    ("", []), ("ld.v2.u32 {%r4, %r5}, [%r1];", ["note"]), ("ld.u32 %r4, [%r1]; st.global.u32 [%rd0], %r4;", []),
    ("ld.u32 %r4, [%r1+4]; st.global.u32 [%rd0], %r4;", ["error"]), ("ld.u8 %h2, [%r1+7]; st.global.u8 [%rd0], %h2;", ["error"]),
])  # fmt: skip
def test_a_register_that_nobody_wrote_is_unwritten_memory_where_it_is_kept(space, use, severities):
    """CUB exchanges a block's last items with the registers that hold none, and C++ copies structs with what lies between their members."""
    body = f"mov.u32 %r1, {'frame' if space == 'local' else 'tile'};\n"
    if space == "generic":
        body += "cvt.u64.u32 %rd1, %r1; cvta.shared.u64 %rd1, %rd1;\n"
    text = body + f"st.v2.u32 [%r1], {{%r0, %r30}};\n{use}"
    text = text.replace("[%r1", "[%rd1") if space == "generic" else text.replace("st.v2", f"st.{space}.v2").replace("ld.", f"ld.{space}.")
    report = run(text, shared=LOCAL)
    kind = "uninitialised-local" if space == "local" else "uninitialised-shared"
    assert [(finding.kind, finding.severity) for finding in report.findings] == [(kind, severity) for severity in severities]


def test_a_register_that_nobody_wrote_is_used_by_a_store_to_global_memory():
    for more in ("", "cvta.to.global.u64 %rd0, %rd0;"):
        assert only(run(f"{more} st.u32 [%rd0], %r30;"), "uninitialised-register").severity == "error"


def test_a_store_of_nothing_is_shown_to_its_reader():
    (found,) = run("mov.u32 %r1, tile;\nst.shared.u32 [%r1], %r30;\nld.shared.u32 %r2, [%r1];" + STORE.format("%r2")).findings
    assert [(one.access, one.text) for one in found.others] == [("written", "st.shared.u32 [%r1], %r30")]


def test_a_later_load_of_the_same_bytes_is_judged_by_its_own_use():
    """The first load must not make the bytes count as written."""
    report = run(LOAD + "\nld.shared.u32 %r3, [%r1];" + STORE.format("%r3"))
    assert [(finding.severity, finding.text.split()[1]) for finding in report.findings] == [("note", "%r2,"), ("error", "%r3,")]


def test_the_use_of_a_register_is_the_use_of_all_that_its_lanes_loaded():
    loads = "setp.lt.u32 %p1, %r0, 16; mov.u32 %r1, tile;\n@%p1 ld.shared.u32 %r2, [%r1];\n@!%p1 ld.shared.u32 %r2, [%r1+4];\n"
    for use in (STORE.format("%r2"), "add.u32 %r3, %r2, %r0;" + STORE.format("%r3")):
        assert [finding.severity for finding in run(loads + use).findings] == ["error", "error"]


EXCHANGE = """
    mov.u32 %r1, tile; shl.b32 %r2, %r0, 2; add.u32 %r2, %r1, %r2; st.shared.u32 [%r2], %r0;
    xor.b32 %r3, %r0, 32; shl.b32 %r3, %r3, 2; add.u32 %r3, %r1, %r3; ld.shared.u32 %r4, [%r3];
"""


def test_a_racing_read_is_a_warning_until_its_value_is_used():
    for use, severity in (("", "warning"), (STORE.format("%r4"), "error")):
        races = [finding for finding in run(EXCHANGE + use, block=64).findings if finding.message.startswith("it reads")]
        assert [(finding.kind, finding.severity) for finding in races if finding.kind == "race"] == [("race", severity)]


MATRIX = "mov.u32 %r1, tile; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r1];"


def test_the_rows_of_a_matrix_reach_all_lanes():
    use = "setp.eq.u32 %p1, %r0, 31; @%p1 " + STORE.format("%r3")
    for more, severity in (("", "note"), (use, "error")):
        assert only(run(MATRIX + more), "uninitialised-shared").severity == severity


def test_a_copy_that_is_not_waited_for_may_be_loaded_and_left():
    body = """
        mov.u32 %r1, tile; shl.b32 %r2, %r0, 4; add.u32 %r1, %r1, %r2; cvt.u64.u32 %rd2, %r2; add.u64 %rd2, %rd0, %rd2;
        cp.async.cg.shared.global [%r1], [%rd2], 16;
        ld.shared.u32 %r3, [%r1];
    """
    for use, severity in (("", "warning"), ("add.u32 %r4, %r3, %r0; st.global.u32 [%rd0], %r4;", "error")):
        found = [
            finding
            for finding in run(body + use + "cp.async.wait_all;", scheduling="last").findings
            if finding.text.startswith("ld.shared")
        ]
        assert [(finding.kind, finding.severity) for finding in found] == [("pending-destination", severity)]


# ---- loads of bytes that another warp overwrites, and nothing orders the two
SLOTS = """
    mov.u32 %r1, tile; shl.b32 %r2, %r0, 2; add.u32 %r2, %r1, %r2; st.shared.u32 [%r2], %r0;
    xor.b32 %r3, %r0, 32; shl.b32 %r3, %r3, 2; add.u32 %r3, %r1, %r3;
    bar.sync 0;
"""
OTHERS = "ld.shared.u32 %r4, [%r3];\n"
OVERWRITE = "st.shared.u32 [%r2], 0;\n"
AFTERWARDS = OVERWRITE + "bar.sync 0;\n"


def overwritten(body, **options):
    """The severities of races of a write with an earlier read."""
    found = run(SLOTS + body, block=64, **options).findings
    return [
        finding.severity for finding in found if finding.kind == "race" and " read" in finding.message and "reads" not in finding.message
    ]


LEFT = {
    "nothing follows": OTHERS + AFTERWARDS,
    "it is replaced": OTHERS + AFTERWARDS + "mov.u32 %r4, 1;" + STORE.format("%r4"),
    "it is replaced before": OTHERS + "mov.u32 %r4, 1;" + STORE.format("%r4") + AFTERWARDS,
    "it is computed with": OTHERS + "add.u32 %r5, %r4, 1;" + AFTERWARDS,
    "it is loaded ahead of a round that never comes": "mov.u32 %r4, 0; mov.u32 %r6, 0;\nLOOP: "
    + STORE.format("%r4") + "bar.sync 0;" + OTHERS + "add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 3; @%p1 bra LOOP;\n" + AFTERWARDS,
}  # fmt: skip
TAKEN = {
    "stored before": OTHERS + STORE.format("%r4") + AFTERWARDS,
    "stored afterwards": OTHERS + AFTERWARDS + STORE.format("%r4"),
    "stored in a sum of before": OTHERS + "add.u32 %r5, %r4, 1; mov.u32 %r4, 0;" + AFTERWARDS + STORE.format("%r5"),
    "an address before": OTHERS + "and.b32 %r5, %r4, 60; add.u32 %r5, %r1, %r5; ld.shared.u32 %r6, [%r5+512];" + AFTERWARDS,
    "branched on before": OTHERS + "setp.eq.u32 %p1, %r4, 99; @%p1 bra NEXT; NEXT:\n" + AFTERWARDS,
    "replaced in some lanes": OTHERS + "setp.lt.u32 %p1, %r0, 40; @%p1 bra PART; mov.u32 %r4, 0;\nPART: " + AFTERWARDS + STORE.format("%r4"),
    "replaced under a guard": OTHERS + "setp.eq.u32 %p1, %r0, 99; @%p1 mov.u32 %r4, 0;" + AFTERWARDS + STORE.format("%r4"),
    "an earlier load of the loop": LEFT["it is loaded ahead of a round that never comes"].replace("bar.sync 0;ld", "ld"),
    "loaded twice": OTHERS + STORE.format("%r4") + OTHERS + AFTERWARDS,
    "loaded so long ago that nobody knows": OTHERS + "mov.u32 %r6, 0;\nLOOP: add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 300; @%p1 bra LOOP;\n" + AFTERWARDS,
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_overwriting_what_a_warp_loaded_and_leaves_is_a_warning(name):
    assert overwritten(LEFT[name]) == ["warning"]


@pytest.mark.parametrize("name", TAKEN)
def test_overwriting_what_a_warp_loaded_and_uses_is_an_error(name):
    assert "error" in overwritten(TAKEN[name])


def test_a_copy_over_what_a_warp_loaded():
    copy = """
        setp.eq.u32 %p1, %r0, 0; add.u32 %r7, %r1, 512;
        @%p1 mbarrier.init.shared.b64 [%r7], 1;
        @%p1 fence.proxy.async;
        @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd0], 16, [%r7];
        bar.sync 0;
    """
    for use, severity in (("", "warning"), (STORE.format("%r4"), "error")):
        assert overwritten(OTHERS + copy + use) == [severity]

"""A launch whose clusters several processes share is the launch of one process, or says what its CTAs do to each other."""

import numpy as np
import pytest
from core_support import kernel, only
from test_core_tma import with_map

from zoo import emulator

OWN = "mov.u32 %r1, %ctaid.x; mad.lo.u32 %r2, %r1, 32, %r0; mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd0, %rd2;\n"
DOUBLE = OWN + "ld.global.u32 %r3, [%rd2]; add.u32 %r3, %r3, %r3; st.global.u32 [%rd2], %r3;\n"
CTAS = 5


def launched(body, jobs, scheduling="random", **options):
    gpu = emulator.Device(scheduling=scheduling, jobs=jobs)
    x = gpu.alloc(np.arange(32 * CTAS, dtype=np.uint32))
    report = gpu.launch(emulator.Module(kernel(body, parameters=1)), "k", CTAS, 32, params=[x], **options)
    return report, gpu.read(x, 32 * CTAS, np.uint32), gpu


@pytest.mark.parametrize("jobs", [2, 8])
def test_shares_give_the_values_and_the_counts_of_one_process(jobs):
    (one, expected, _), (report, values, _) = launched(DOUBLE, 1), launched(DOUBLE, jobs)
    assert str(report) == str(one) and report.lines == one.lines and report.instructions == one.instructions
    assert (values == expected).all() and (values == 2 * np.arange(32 * CTAS)).all() and report.together is None


def test_what_shares_wrote_counts_as_written():
    body = DOUBLE.replace("[%rd2], %r3", "[%rd2+4096], %r3")
    gpu = emulator.Device(jobs=2)
    x = gpu.alloc(np.arange(4096, dtype=np.uint32), written=np.arange(4 * 4096) < 4096)
    assert gpu.launch(emulator.Module(kernel(body, parameters=1)), "k", CTAS, 32, params=[x]).ok
    assert gpu.written(x, 4 * 4096).nonzero()[0].tolist() == [*range(4096), *range(4096, 4096 + 128 * CTAS)]


def test_findings_of_all_shares_count_once_by_their_place():
    past = DOUBLE.replace("32, %r0", "40, %r0")
    one, report = launched(past, 1)[0], launched(past, 3)[0]
    assert {(finding.kind, finding.count) for finding in report.findings} == {(finding.kind, finding.count) for finding in one.findings}
    assert {finding.kind for finding in report.findings} == {"out-of-bounds"}


RACES = {
    "both write": ("mov.u32 %r1, %ctaid.x;\nst.global.u32 [%rd0], %r1;", "st", "st"),
    "one reads what another writes": (OWN + "st.global.u32 [%rd2], 7;\nld.global.u32 %r4, [%rd0];\nst.global.u32 [%rd0+1024], %r4;", "ld", "st"),
    "one writes what another has read": (
        OWN + "ld.global.u32 %r4, [%rd0+512];\nst.global.u32 [%rd2], 7;\nst.global.u32 [%rd0+1024], %r4;", "st", "ld",
    ),
}  # fmt: skip


@pytest.mark.parametrize("jobs", [1, 2, CTAS])
@pytest.mark.parametrize("scheduling", ["last", "random"])
@pytest.mark.parametrize("name", RACES)
def test_ctas_that_meet_in_global_memory_are_a_race_with_both_instructions(name, scheduling, jobs):
    body, *both = RACES[name]
    gpu = emulator.Device(scheduling=scheduling, jobs=jobs)
    x = gpu.alloc(np.arange(1024, dtype=np.uint32))
    report = gpu.launch(emulator.Module(kernel(body, parameters=1)), "k", CTAS, 32, params=[x])
    races = [finding for finding in report.findings if finding.kind == "race"]
    assert races and not report.ok
    for race in races:
        assert "another CTA" in race.message and "nothing orders two CTAs of this launch" in race.message
    seen = {race.text.split(".")[0] for race in races} | {other.text.split(".")[0] for race in races for other in race.others}
    assert seen == set(both)


@pytest.mark.parametrize("jobs", [1, 3])
def test_ctas_that_use_words_of_their_own_or_set_the_same_value_do_not_race(jobs):
    bytes_ = "mov.u32 %r1, %ctaid.x; cvt.u64.u32 %rd3, %r1; add.u64 %rd3, %rd3, %rd0; setp.eq.u32 %p1, %r0, 0; @%p1 st.global.u8 [%rd3+1024], %r1;\n"
    for body in (DOUBLE, "st.global.u32 [%rd0], 7;", bytes_, OWN + "ld.global.u32 %r3, [%rd0]; st.global.u32 [%rd2+1024], %r3;"):
        gpu = emulator.Device(scheduling="random", jobs=jobs)
        x = gpu.alloc(np.arange(1024, dtype=np.uint32))
        report = gpu.launch(emulator.Module(kernel(body, parameters=1)), "k", CTAS, 32, params=[x])
        assert report.ok and not report.findings, report


def test_a_value_of_another_cta_that_nobody_uses_is_a_warning():
    gpu = emulator.Device(scheduling="last")
    x = gpu.alloc(np.arange(1024, dtype=np.uint32))
    body = OWN + "st.global.u32 [%rd2], 7; ld.global.u32 %r4, [%rd0];"
    report = gpu.launch(emulator.Module(kernel(body, parameters=1)), "k", CTAS, 32, params=[x])
    assert report.ok and only(report, "race").severity == "warning"


SHIFT = """
    mov.u32 %r1, bar; mov.u32 %r2, tile; mov.b64 %rd10, k_map; cvta.param.u64 %rd10, %rd10;
    mov.u32 %r3, %ctaid.x; shl.b32 %r3, %r3, 5; add.u32 %r4, %r3, {by};
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra END;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
    cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd10, {{%r3}}], [%r1];
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    @!%p2 bra W;
    cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd10, {{%r4}}], [%r2];
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
END:
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_copies_of_tensors_are_reads_and_writes(jobs):
    for by, expected in ((32 * CTAS, set()), (0, set()), (32, {"race"})):
        gpu = emulator.Device(jobs=jobs)
        x = gpu.alloc(np.arange(64 * CTAS, dtype=np.uint32), written=np.arange(256 * CTAS) < 128 * CTAS)
        shared = ".shared .align 8 .u64 bar; .shared .align 1024 .b8 tile[128];"
        text = with_map(kernel(SHIFT.format(by=by), parameters=1, shared=shared))
        record = gpu.tensor_map(x, "u32", (64 * CTAS,), (), (32,))
        report = gpu.launch(emulator.Module(text), "k", CTAS, 32, params=[record, x])
        assert {finding.kind for finding in report.findings} == expected, report
        for race in report.findings:
            assert {race.text[:38], race.others[0].text[:38]} == {
                "cp.async.bulk.tensor.1d.shared::cluste", "cp.async.bulk.tensor.1d.global.shared:"
            }  # fmt: skip
        if by == 32 * CTAS:
            assert (gpu.read(x, 64 * CTAS, np.uint32) == [*range(32 * CTAS)] * 2).all() and gpu.written(x, 256 * CTAS).all()


def test_equal_values_from_all_ctas_are_no_race():
    report, values, _ = launched("st.global.u32 [%rd0], 7;", 3)
    assert report.ok and not report.findings and values[0] == 7


TALKING = {
    "atom": "atom.global.add.u32 %r1, [%rd0], 1;",
    "red": "red.global.add.u32 [%rd0], 1;",
    "a generic atomic": "atom.add.u32 %r1, [%rd0], 1;",
    "an acquire": "ld.acquire.gpu.global.u32 %r1, [%rd0];",
    "a volatile store": "st.volatile.global.u32 [%rd0], 1;",
}


@pytest.mark.parametrize("name", TALKING)
def test_ctas_that_may_talk_share_one_process_and_the_report_says_why(name):
    report, values, _ = launched(TALKING[name], 2)
    assert report.together == f"CTAs may talk by `{TALKING[name][:-1]}` (PTX line {report_line(name)})"
    assert launched(TALKING[name], 1)[1].tolist() == values.tolist()


def report_line(name):
    lines = kernel(TALKING[name], parameters=1).splitlines()
    return 1 + lines.index(TALKING[name])


def test_atomics_in_shared_memory_and_loads_within_a_cta_do_not_keep_a_launch_together():
    body = OWN + "mov.u32 %r5, tile; atom.shared.add.u32 %r6, [%r5], 1; ld.relaxed.cta.global.u32 %r3, [%rd2];"
    gpu = emulator.Device(jobs=2)
    module = emulator.Module(kernel(body, parameters=1, shared=".shared .align 16 .b8 tile[64];"))
    x = gpu.alloc(np.zeros(32 * CTAS, np.uint32))
    assert gpu.launch(module, "k", CTAS, 32, params=[x]).together is None


def test_a_cooperative_launch_stays_in_one_process():
    assert launched(DOUBLE, 2, cooperative=True)[0].together == "the launch is cooperative"


def test_an_error_of_a_share_is_the_error_of_the_launch():
    with pytest.raises(emulator.EmulatorError, match=r"brx\.idx index 3 is past the 3 targets"):
        launched("targets: .branchtargets A, A, A;\nmov.u32 %r1, %ctaid.x; min.u32 %r1, %r1, 3; brx.idx %r1, targets;\nA:", 2)

"""The counts of barriers at their edges, by one thread that does as it is told: what is right is no finding, one more is one, in words."""

import numpy as np
import pytest
from core_support import kernel, launch

from zoo import emulator

LIMIT = (1 << 20) - 1
SHARED = ".shared .align 8 .b64 bar[2];"


def run(body, count=2, block=1, init=True):
    """(kinds of findings, their messages) of a body behind the init of one barrier at %r1."""
    begin = f"mov.u32 %r1, bar; mbarrier.init.shared.b64 [%r1], {count};" if init else "mov.u32 %r1, bar;"
    device = emulator.Device(scheduling="issue")
    out = device.alloc(np.zeros(64, np.uint64))
    report = launch(kernel(begin + body, shared=SHARED, parameters=1), device=device, block=block, params=[out])
    return [finding.kind for finding in report.findings], [finding.message for finding in report.findings], device.read(out, 64, np.uint64)


ARRIVE = "mbarrier.arrive.shared.b64 _, [%r1];"
TEST = "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], {};"


@pytest.mark.parametrize(
    ("body", "count", "kind", "words"),
    [
        ("", 1, None, ""),
        ("", LIMIT, None, ""),
        ("", 0, "mbarrier-misuse", f"an mbarrier's count must be 1..{LIMIT}, not 0"),
        ("", LIMIT + 1, "mbarrier-misuse", f"an mbarrier's count must be 1..{LIMIT}, not {LIMIT + 1}"),
        (2 * ARRIVE, 2, None, ""),
        (ARRIVE, 2, "mbarrier-exit", "phase 0, 1 of 2 arrivals pending, tx-count 0"),
        (4 * ARRIVE, 2, "mbarrier-phase", "an arrive in phase 1 while nobody has observed that phase 0 completed"),
        (2 * ARRIVE + TEST.format(0) + 2 * ARRIVE, 2, None, ""),
        ("mbarrier.arrive.shared.b64 _, [%r1], 2;", 2, None, ""),
        ("mbarrier.arrive.shared.b64 _, [%r1], 3;", 2, "mbarrier-misuse", "more arrivals than expected in one phase"),
        ("mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 1;" + ARRIVE, 2, None, ""),
        ("mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 2;", 2, "mbarrier-misuse", "arrive.noComplete completes the phase"),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;", 2, "mbarrier-exit", "2 of 2 arrivals pending, tx-count 16"),
        (
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;" + 2 * ARRIVE,
            2, None, "",
        ),
        (
            "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;" + 2 * ARRIVE + "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
            2, None, "",
        ),
        (
            "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;" + 2 * ARRIVE + "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
            2, None, "",
        ),
        ("mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 8;", 1, "mbarrier-exit", "phase 0, 0 of 1 arrivals pending, tx-count 8"),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048575;", 1, "mbarrier-exit", "tx-count 1048575"),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048576;", 1, "mbarrier-misuse", "the tx-count leaves its range of +-1048575"),
        ("mbarrier.arrive_drop.shared.b64 _, [%r1];" + ARRIVE + TEST.format(0) + ARRIVE, 2, None, ""),
        ("mbarrier.inval.shared.b64 [%r1];", 2, None, ""),
        ("mbarrier.inval.shared.b64 [%r1];" + ARRIVE, 2, "mbarrier-misuse", "an arrive at CTA rank 0 shared offset 0x400, where no mbarrier is initialised"),
        ("mbarrier.init.shared.b64 [%r1+8], 1; mbarrier.arrive.shared.b64 _, [%r1+8];", 2, None, ""),
        ("mbarrier.init.shared.b64 [%r1], 1;", 2, "mbarrier-misuse", "init over a live mbarrier (mbarrier at CTA rank 0 offset 0x400: phase 0, 2 of 2"),
        ("mbarrier.arrive.shared.b64 _, [%r1+8];", 2, "mbarrier-misuse", "an arrive at CTA rank 0 shared offset 0x408, where no mbarrier is initialised"),
        ("mbarrier.arrive.shared.b64 _, [%r1+4];", 2, "misaligned", "an arrive at CTA rank 0 shared offset 0x404, where no mbarrier is initialised"),
        ("mbarrier.init.shared.b64 [%r1+4], 1;", 2, "misaligned", "an mbarrier needs 8-byte alignment, offset 0x4"),
        ("mbarrier.init.shared.b64 [%r1+16], 1;", 2, "out-of-bounds", "mbarrier.init of"),
    ],
)  # fmt: skip
def test_an_mbarrier_counts_to_its_limits(body, count, kind, words):
    kinds, messages, _ = run(body, count)
    assert kinds[:1] == ([] if kind is None else [kind]), messages
    assert kind is None or words in messages[0]


def test_an_arrival_too_many_is_one_finding_and_ends_the_phase_as_the_last_would():
    body = "mbarrier.arrive.shared.b64 _, [%r1], 3;" + TEST.format(0) + "selp.u64 %rd2, 1, 0, %p1; st.global.u64 [%rd0], %rd2;" + 2 * ARRIVE
    kinds, messages, seen = run(body)
    assert kinds == ["mbarrier-misuse"] and seen[0] == 1, messages


def test_a_state_is_the_phase_and_what_was_pending_before_the_arrive():
    body = "mbarrier.arrive.shared.b64 %rd1, [%r1]; st.global.u64 [%rd0], %rd1; mbarrier.arrive.shared.b64 %rd1, [%r1]; st.global.u64 [%rd0+8], %rd1;"
    body += TEST.format(0) + "mbarrier.arrive.shared.b64 %rd1, [%r1], 2; st.global.u64 [%rd0+16], %rd1;"
    kinds, _, states = run(body)
    before = [(int(state) >> 24, int(state) & 0xFFFFFF) for state in states[:3]]
    assert kinds == [] and before == [(0, 2), (0, 1), (1, 2)]


def test_an_arrival_where_no_barrier_is_has_the_state_zero():
    kinds, _, states = run("mbarrier.arrive.shared.b64 %rd1, [%r1+8]; st.global.u64 [%rd0], %rd1;" + 2 * ARRIVE)
    assert kinds == ["mbarrier-misuse"] and states[0] == 0


def test_a_test_of_a_parity_tells_whether_its_phase_is_over():
    store = "selp.u64 %rd2, 1, 0, %p1; st.global.u64 [%rd0+{}], %rd2;"
    body = "".join(TEST.format(parity) + store.format(8 * place) for place, parity in enumerate((0, 1)))
    body += 2 * ARRIVE + "".join(TEST.format(parity) + store.format(16 + 8 * place) for place, parity in enumerate((0, 1)))
    kinds, _, seen = run(body)
    assert kinds == [] and seen[:4].tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize(
    ("body", "block", "words"),
    [
        ("bar.sync 0;", 40, ""),
        ("bar.sync 0, 64;", 64, ""),
        ("bar.arrive 1, 0;", 32, "a named barrier's thread count must be a positive multiple of 32, not 0"),
        ("bar.arrive 1, 48;", 32, "a named barrier's thread count must be a positive multiple of 32, not 48"),
        ("bar.sync 1, 32;", 64, ""),
    ],
)
def test_a_named_barrier_is_of_whole_warps_or_of_the_cta(body, block, words):
    kinds, messages, _ = run(body, block=block, init=False)
    assert (kinds == [] and not words) or (kinds[0] == "barrier-misuse" and messages[0] == words), messages


def test_threads_that_arrive_with_different_counts_are_told_both():
    body = "setp.lt.u32 %p1, %r0, 32; @%p1 bra P; bar.arrive 2, 96; bra END; P: bar.arrive 2, 128; END:"
    kinds, messages, _ = run(body, block=64, init=False)
    assert "barrier-misuse" in kinds
    assert any(
        words in messages
        for words in (
            "threads arrive with different counts at one barrier: 96 and 128 (named barrier 2)",
            "threads arrive with different counts at one barrier: 128 and 96 (named barrier 2)",
        )
    )


INVAL = "mbarrier.inval.shared.b64 [%r1];"


@pytest.mark.parametrize(
    ("body", "right"),
    [
        ("st.shared.u8 [%r1], %r0;", False),
        ("st.shared.u8 [%r1+7], %r0;", False),
        ("ld.shared.u32 %r2, [%r1+4];", False),
        ("st.shared.u8 [%r1+8], %r0; ld.shared.u8 %r2, [%r1+8];", True),
        (INVAL + "st.shared.u64 [%r1], %rd0; ld.shared.u64 %rd1, [%r1];", True),
        (INVAL + "ld.shared.u64 %rd1, [%r1];", False),
        (INVAL + "mbarrier.init.shared.b64 [%r1], 1; ld.shared.u64 %rd1, [%r1];", False),
    ],
)
def test_a_live_barrier_is_opaque_to_its_last_byte_and_its_place_is_free_afterwards(body, right):
    kinds, messages, _ = run("setp.ne.u32 %p1, %r0, 0; @%p1 bra END; " + body + " END:", count=1)
    assert (kinds == []) == right, messages


NAMED, CLUSTERS = "bar.sync 0;", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"
RELAXED = CLUSTERS.replace("arrive.", "arrive.relaxed.")


@pytest.mark.parametrize("body", [3 * NAMED, 3 * CLUSTERS, 3 * RELAXED, "bar.sync 1, 64; bar.sync 2, 64; bar.sync 1, 64;"])
@pytest.mark.parametrize("scheduling", ["issue", *range(6)])
def test_warps_that_meet_again_and_again_are_no_deadlock_in_whatever_order_they_come(body, scheduling):
    order = {"scheduling": "issue"} if scheduling == "issue" else {"scheduling": "random", "seed": scheduling}
    report = launch(kernel(body, parameters=0), block=64, grid=2, cluster=2, **order)
    assert report.completed and not report.findings


PEERS = """
    mov.u32 %r1, bar;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 32;
    {fence}
    {meet}
    mov.u32 %r5, %cluster_ctarank;
    xor.b32 %r6, %r5, 1;
    mapa.shared::cluster.u32 %r7, %r1, %r6;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
W:  mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r1], 0;
    @!%p2 bra W;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""


@pytest.mark.parametrize(
    ("fence", "meet", "right"),
    [
        ("fence.mbarrier_init.release.cluster;", RELAXED, True),
        ("", CLUSTERS, True),
        ("", RELAXED, False),
    ],
)
@pytest.mark.parametrize("scheduling", ["issue", "random"])
def test_a_barrier_is_known_to_another_cta_once_its_init_was_published(fence, meet, right, scheduling):
    text = kernel(PEERS.format(fence=fence, meet=meet), shared=SHARED, parameters=0)
    findings = launch(text, grid=2, cluster=2, scheduling=scheduling).findings
    found = {one.kind for one in findings}
    assert (found == set()) == right and found <= {"mbarrier-misuse"}, found
    needed = "it needs fence.mbarrier_init (or a release at cluster scope) and a cluster barrier in between"
    assert all(needed in one.message for one in findings)


@pytest.mark.parametrize("use", [ARRIVE, INVAL])
@pytest.mark.parametrize("meet", ["", "bar.sync 0;"])
def test_a_barrier_is_known_to_another_warp_of_the_cta_once_they_met(use, meet):
    body = f"""
        mov.u32 %r1, bar;
        setp.eq.u32 %p1, %r0, 0;
        @%p1 mbarrier.init.shared.b64 [%r1], 1;
        {meet}
        setp.eq.u32 %p1, %r0, 32;
        @%p1 {use}
    """
    findings = launch(kernel(body, shared=SHARED, parameters=0), block=64, device=emulator.Device(scheduling="issue")).findings
    words = [one.message.partition(" (mbarrier at")[0] for one in findings]
    assert words == ([] if meet else ["nothing orders the init by warp 0 before this use: it needs a barrier in between"])


def test_a_cluster_meets_a_second_and_a_third_time_as_it_did_the_first():
    """What each CTA wrote before they met is what the other reads, round after round."""
    rounds = "".join(
        f"@%p1 st.global.u32 [%rd1], {word}; {CLUSTERS} @%p1 ld.global.u32 %r3, [%rd2]; sub.u32 %r3, %r3, {word}; or.b32 %r4, %r4, %r3; {CLUSTERS}"
        for word in (7, 8, 9, 10)
    )
    body = f"""
        mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1;
        mul.wide.u32 %rd1, %r5, 4; add.u64 %rd1, %rd1, %rd0; mul.wide.u32 %rd2, %r6, 4; add.u64 %rd2, %rd2, %rd0;
        setp.eq.u32 %p1, %r0, 0; mov.u32 %r3, 0; mov.u32 %r4, 0;
        {rounds}
        @%p1 st.global.u32 [%rd1+8], %r4;
    """
    for order in ({"scheduling": "issue"}, *({"scheduling": "random", "seed": seed} for seed in range(3))):
        device = emulator.Device(**order)
        out = device.alloc(np.full(4, 99, np.uint32))
        report = launch(kernel(body, parameters=1), device=device, params=[out], block=64, grid=2, cluster=2)
        assert report.ok and device.read(out, 4, np.uint32).tolist() == [10, 10, 0, 0], str(report)


def test_a_parity_that_is_no_bit_is_a_warning():
    """Triton passes -1, of which ptxas takes bit 0."""
    device = emulator.Device()
    body = (
        "mov.u32 %r1, bar; mbarrier.init.shared.b64 [%r1], 1; mov.b32 %r2, -1;"
        + TEST.format("%r2")
        + "selp.u32 %r3, 1, 0, %p1; st.global.u32 [%rd0], %r3;"
    )
    out = device.alloc(4)
    report = launch(kernel(body, shared=SHARED, parameters=1), device=device, block=1, params=[out])
    assert report.ok and [finding.severity for finding in report.findings] == ["warning"]
    assert device.read(out, 1, np.uint32) == 1  # of parity 1 is the phase before the first

"""Every hazard of the catalogue, as the smallest kernel that has it and, beside it, the one that does it right."""

import numpy as np
import pytest
from core_support import kernel, kinds, launch, only

from zoo import emulator


def run(body, *, buffers=(256, 256), **options):
    """Launch with buffers of so many bytes (an array is initialised, an int is not); returns (report, device, addresses)."""
    shared = options.pop("shared", "")
    directives = options.pop("directives", "")
    gpu = emulator.Device(
        arch=options.pop("arch", "sm_90a"), scheduling=options.pop("scheduling", "issue"), seed=options.pop("seed", 0),
        instruction_limit=options.pop("limit", 2_000_000),
    )  # fmt: skip
    target = options.pop("target", "sm_90a")
    addresses = [gpu.alloc(buffer) for buffer in buffers]
    text = kernel(body, parameters=len(buffers), shared=shared, target=target, directives=directives)
    return launch(text, device=gpu, params=addresses, **options), gpu, addresses


WORDS = np.arange(64, dtype=np.uint32)
OWN = "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd11, %rd1, %rd10; add.s64 %rd10, %rd0, %rd10;"


# ---- memory ----------------------------------------------------------------------------------------------------------
def test_store_past_the_end_names_the_allocation_and_leaves_the_rest():
    report, gpu, (a, _) = run(OWN + "st.global.u32 [%rd10+132], %r0;")
    finding = only(report, "out-of-bounds")
    assert "past the end of the allocation of 256 bytes" in str(finding) and finding.address == a + 256
    assert finding.lanes == 1 << 31
    assert gpu.written(a, 256).sum() == 31 * 4


@pytest.mark.parametrize(
    ("offset", "words"), [(-1, "1 byte before"), (-8, "8 bytes before"), (256, "right past the end of"), (257, "1 byte past the end of")]
)
def test_an_access_out_of_bounds_says_how_far(offset, words):
    report, _, _ = run(f"ld.global.u8 %h1, [%rd0+{offset}];", block=1)
    assert f": {words} the allocation of 256 bytes" in str(only(report, "out-of-bounds"))


@pytest.mark.parametrize(
    "instruction", ["ld.global.u32 %r1, [%rd10-4];", "st.global.u8 [%rd10-1], %r0;", "red.global.add.u32 [%rd10-4], 1;"]
)
def test_access_before_the_start(instruction):
    report, _, _ = run(OWN + instruction, buffers=(WORDS, WORDS))
    assert kinds(report) == {"out-of-bounds"} and "before the allocation" in str(report.findings[0])


def test_null_pointer():
    report, _, _ = run("mov.u64 %rd3, 0; ld.global.u32 %r1, [%rd3];")
    assert "out-of-bounds" in kinds(report)


@pytest.mark.parametrize(
    "instruction", ["ld.global.u32 %r1, [%rd0+2];", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd0+8];", "st.global.u64 [%rd0+4], %rd0;"]
)
def test_misaligned_global(instruction):
    report, _, _ = run(instruction, buffers=(WORDS, WORDS))
    only(report, "misaligned")


def test_uninitialised_global_is_told_from_initialised():
    report, _, _ = run(OWN + "ld.global.u32 %r1, [%rd10]; ld.global.u32 %r2, [%rd11];", buffers=(WORDS, 256))
    assert "%r2" in only(report, "uninitialised-global").text


def test_bytes_that_are_there_may_count_as_never_written():
    """Guards and poison: the kernel must not read them, whatever they hold."""
    gpu = emulator.Device(arch="sm_90a", scheduling="issue")
    mine = np.arange(256) // 128 == 0
    x, y = gpu.alloc(WORDS, written=mine), gpu.alloc(256)
    assert gpu.read(x, 64, np.uint32).tolist() == WORDS.tolist() and (gpu.written(x, 256) == mine).all()
    report = launch(kernel(OWN + "ld.global.u32 %r1, [%rd10]; st.global.u32 [%rd11], %r1;"), device=gpu, params=[x, y])
    assert report.ok, report
    report = launch(kernel(OWN + "ld.global.u32 %r1, [%rd10+4]; st.global.u32 [%rd11], %r1;"), device=gpu, params=[x, y])
    assert only(report, "uninitialised-global").lanes == 1 << 31


def test_uninitialised_register_used_and_merely_moved():
    report, _, _ = run("mov.b32 %r2, %r1; st.global.u32 [%rd0], %r2;")
    assert "%r2" in only(report, "uninitialised-register").message
    report, _, _ = run("mov.b32 %r2, %r1;")
    assert report.ok


def test_undefined_half_that_is_packed_and_never_used():
    """nvcc packs a value with an undefined one and takes only the defined half out again."""
    good = (
        "mov.b64 %rd5, {%r0, %r1}; mov.b64 {%r2, %r3}, %rd5; mov.b32 {%h1, %h2}, %r2; mov.b32 %r4, {%h1, %h2}; st.global.u32 [%rd0], %r4;"
    )
    assert run(good)[0].ok
    assert "%r3" in only(run(good.replace("[%rd0], %r4", "[%rd0], %r3"))[0], "uninitialised-register").message
    assert "%rd5" in only(run("mov.b64 %rd5, {%r0, %r1}; st.global.u64 [%rd0], %rd5;")[0], "uninitialised-register").message


def test_undefined_register_that_is_not_chosen():
    """nvcc chooses between a value and an undefined one where it knows which it will be."""
    choose = "setp.lt.u32 %p1, %r0, {limit}; selp.b32 %r2, %r0, %r1, %p1; st.global.u32 [%rd0], %r2;"
    assert run(choose.format(limit=32))[0].ok
    assert only(run(choose.format(limit=20))[0], "uninitialised-register").lanes == 0xFFF00000


def test_register_written_in_one_branch_only():
    body = """
        setp.lt.u32 %p1, %r0, 16;
        @%p1 bra A;
        mov.u32 %r1, 5;
    A:  add.u32 %r2, %r1, 1;
        st.global.u32 [%rd0], %r2;
    """
    finding = only(run(body)[0], "uninitialised-register")
    assert finding.lanes == 0xFFFF


SHARED = ".shared .align 16 .b8 tile[1024];"


def test_uninitialised_shared():
    report, _, _ = run("mov.u32 %r1, tile; ld.shared.u32 %r2, [%r1];", shared=SHARED)
    only(report, "uninitialised-shared")


@pytest.mark.parametrize(("offset", "kind"), [(1024, "out-of-bounds"), (-16, "out-of-bounds"), (2, "misaligned")])
def test_shared_bounds_and_alignment(offset, kind):
    report, _, _ = run(f"mov.u32 %r1, tile; st.shared.u32 [%r1+{offset}], %r0;", shared=SHARED)
    only(report, kind)


def test_generic_address_of_no_memory():
    report, _, _ = run("mov.u64 %rd3, 0x1234; st.u32 [%rd3], %r0;")
    only(report, "out-of-bounds")


# ---- races and barriers ----------------------------------------------------------------------------------------------
EXCHANGE = """
    mov.u32 %r1, tile;
    shl.b32 %r2, %r0, 2;
    add.u32 %r2, %r1, %r2;
    st.shared.u32 [%r2], %r0;
    {barrier}
    xor.b32 %r3, %r0, 32;
    shl.b32 %r3, %r3, 2;
    add.u32 %r3, %r1, %r3;
    ld.shared.u32 %r4, [%r3];
"""


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
def test_exchange_between_warps_needs_a_barrier(scheduling):
    report, _, _ = run(EXCHANGE.format(barrier="bar.sync 0;"), shared=SHARED, block=64, scheduling=scheduling)
    assert report.ok, report
    report, _, _ = run(EXCHANGE.format(barrier=""), shared=SHARED, block=64, scheduling=scheduling)
    assert kinds(report) <= {"race", "uninitialised-shared"} and "race" in kinds(report)


def test_write_after_read_needs_a_barrier():
    body = EXCHANGE.format(barrier="bar.sync 0;") + "{barrier} st.shared.u32 [%r2], 7;"
    assert run(body.replace("{barrier}", "bar.sync 0;"), shared=SHARED, block=64)[0].ok
    report = run(body.replace("{barrier}", ""), shared=SHARED, block=64)[0]
    assert kinds(report) == {"race"} and any(
        "it writes shared offset" in f.message and "read, and nothing orders" in f.message for f in report.findings
    )


def test_warps_may_write_neighbouring_bytes():
    body = "mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 1, %r1; and.b32 %r3, %r0, 31; shr.u32 %r4, %r0, 5; mad.lo.u32 %r3, %r3, 2, %r4; add.u32 %r2, %r1, %r3; st.shared.u8 [%r2], %r0;"
    assert run(body, shared=SHARED, block=64)[0].ok


def test_atomics_do_not_race():
    body = "mov.u32 %r1, tile; st.shared.u32 [%r1], 0; bar.sync 0; atom.shared.add.u32 %r2, [%r1], 1;"
    one = "setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, tile; @%p1 st.shared.u32 [%r1], 0; bar.sync 0; atom.shared.add.u32 %r2, [%r1], 1; bar.sync 0; ld.shared.u32 %r3, [%r1]; st.global.u32 [%rd0], %r3;"
    report, gpu, (a, _) = run(one, shared=SHARED, block=128, scheduling="random")
    assert report.ok and gpu.read(a, 1, np.uint32)[0] == 128, report
    assert "race" in kinds(run(body, shared=SHARED, block=64)[0])  # both warps store the first word


def test_deadlock_reports_every_warp():
    body = "setp.lt.u32 %p1, %r0, 32; @%p1 bra END; bar.sync 0, 96; END:"
    report, _, _ = run(body, block=96)
    finding = only(report, "deadlock")
    assert not report.completed and "64 of 96 threads arrived" in finding.message
    assert "warp 1" in finding.message and "warp 2" in finding.message and "bar.sync 0" in finding.message


def test_divergent_bar_sync():
    body = "setp.eq.u32 %p1, %r0, 3; @%p1 bra SKIP; bar.sync 0; bra END; SKIP: bar.sync 0; END:"
    report, _, _ = run(body, block=32)
    assert {"divergent-aligned", "deadlock"} <= kinds(report)


def test_predicated_aligned_instruction():
    report, _, _ = run("setp.lt.u32 %p1, %r0, 16; @%p1 bar.sync 0;")
    assert "divergent-aligned" in kinds(report)


def test_named_barrier_rules():
    assert "barrier-misuse" in kinds(run("bar.arrive 1, 33;", block=64)[0])
    report, _, _ = run("bar.arrive 1, 128;", block=64)
    assert "incomplete barrier" in only(report, "barrier-misuse").message
    producer = "setp.lt.u32 %p1, %r0, 32; @%p1 bra P; bar.sync 2, 64; bra END; P: bar.arrive 2, 64; END:"
    assert run(producer, block=64)[0].ok


def test_shuffle_without_all_members_is_a_deadlock():
    body = "setp.lt.u32 %p1, %r0, 16; @%p1 bra S; bra END; S: shfl.sync.idx.b32 %r1, %r0, 0, 31, -1; spin: bra spin; END: bar.warp.sync -1;"
    report, _, _ = run(body, limit=50_000)
    assert not report.completed


def test_livelock():
    finding = only(run("spin: bra spin;", limit=10_000)[0], "livelock")
    assert "10000" in finding.message


def test_lanes_of_one_warp_may_wait_for_each_other():
    body = """
        mov.u32 %r1, tile;
        setp.eq.u32 %p1, %r0, 0;
        @%p1 st.volatile.shared.u32 [%r1], 0;
        bar.warp.sync -1;
        setp.eq.u32 %p2, %r0, 31;
        @%p2 bra SET;
    spin: ld.volatile.shared.u32 %r2, [%r1];
        setp.eq.u32 %p3, %r2, 0;
        @%p3 bra spin;
        bra END;
    SET: st.volatile.shared.u32 [%r1], 1;
    END:
    """
    assert run(body, shared=SHARED)[0].ok


# ---- mbarriers -------------------------------------------------------------------------------------------------------
BARRIER = ".shared .align 8 .u64 bar;"
INIT = "mov.u32 %r1, bar; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r1], {count}; {sync}"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], {parity}; @!%p2 bra W;"


def barrier_kernel(count=64, arrive="mbarrier.arrive.shared.b64 _, [%r1];", parity=0, sync="bar.sync 0;", more=""):
    return INIT.format(count=count, sync=sync) + arrive + WAIT.format(parity=parity) + more


def test_mbarrier_used_right():
    for scheduling in ("issue", "random"):
        assert run(barrier_kernel(), shared=BARRIER, block=64, scheduling=scheduling)[0].ok


def test_mbarrier_expects_more_than_arrive():
    finding = only(run(barrier_kernel(count=65), shared=BARRIER, block=64)[0], "deadlock")
    assert "1 of 65 arrivals pending" in finding.message


def test_mbarrier_over_arrival():
    assert "mbarrier-misuse" in kinds(run(barrier_kernel(count=63), shared=BARRIER, block=64)[0])


def test_mbarrier_flipped_parity_passes_early_and_leaves_the_phase_unobserved():
    body = barrier_kernel(parity=1, more="mbarrier.arrive.shared.b64 _, [%r1];")
    assert "mbarrier-phase" in kinds(run(body, shared=BARRIER, block=64)[0])


def test_mbarrier_without_init_or_sync():
    assert "mbarrier-misuse" in kinds(run("mov.u32 %r1, bar; mbarrier.arrive.shared.b64 _, [%r1];", shared=BARRIER)[0])
    report = run(barrier_kernel(sync=""), shared=BARRIER, block=64)[0]
    assert any("nothing orders the init" in f.message for f in report.findings)


def test_mbarrier_overwritten_reinitialised_and_left_in_a_phase():
    body = barrier_kernel(more="bar.sync 0; @%p1 st.shared.u32 [%r1], 0;")
    assert "live mbarrier" in only(run(body, shared=BARRIER, block=64)[0], "mbarrier-misuse").message
    body = barrier_kernel(more="bar.sync 0; @%p1 mbarrier.init.shared.b64 [%r1], 1;")
    assert "init over a live mbarrier" in only(run(body, shared=BARRIER, block=64)[0], "mbarrier-misuse").message
    body = barrier_kernel(more="bar.sync 0; @%p1 mbarrier.arrive.shared.b64 _, [%r1];")
    report = run(body, shared=BARRIER, block=64)[0]
    assert report.ok and only(report, "mbarrier-exit").severity == "note"
    body = barrier_kernel(more="bar.sync 0; @%p1 mbarrier.inval.shared.b64 [%r1]; @%p1 mbarrier.init.shared.b64 [%r1], 1;")
    assert run(body, shared=BARRIER, block=64)[0].ok


def test_mbarrier_orders_memory():
    body = """
        mov.u32 %r5, tile;
        shl.b32 %r6, %r0, 2;
        add.u32 %r6, %r5, %r6;
        st.shared.u32 [%r6], %r0;
        mbarrier.arrive{relaxed}.shared.b64 _, [%r1];
    W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
        @!%p2 bra W;
        xor.b32 %r7, %r0, 32;
        shl.b32 %r7, %r7, 2;
        add.u32 %r7, %r5, %r7;
        ld.shared.u32 %r8, [%r7];
    """
    start = INIT.format(count=64, sync="bar.sync 0;")
    assert run(start + body.format(relaxed=""), shared=BARRIER + SHARED, block=64, scheduling="random")[0].ok
    report = run(start + body.format(relaxed=".relaxed.cta"), shared=BARRIER + SHARED, block=64, scheduling="random")[0]
    assert kinds(report) == {"race"}


def test_mbarrier_states_and_counts():
    body = INIT.format(count=64, sync="bar.sync 0;") + (
        "mbarrier.arrive.shared.b64 %rd5, [%r1]; mbarrier.pending_count.b64 %r9, %rd5;"
        "W: mbarrier.test_wait.shared.b64 %p2, [%r1], %rd5; @!%p2 bra W;"
        "setp.ge.u32 %p3, %r0, 32; @%p3 bra STAY; mbarrier.arrive_drop.shared.b64 _, [%r1]; bra END;"
        "STAY: mbarrier.arrive.shared.b64 _, [%r1];"
        "V: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 1; @!%p2 bra V;"
        "mbarrier.arrive.shared.b64 _, [%r1];"  # half dropped out: 32 arrivals complete the third phase
        "X: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra X; END:"
    )
    assert run(body, shared=BARRIER, block=64, scheduling="random")[0].ok


# ---- clusters --------------------------------------------------------------------------------------------------------
CLUSTER = """
    mov.u32 %r1, tile;
    mov.u32 %r5, %cluster_ctarank;
    xor.b32 %r6, %r5, 1;
    mapa.shared::cluster.u32 %r7, %r1, %r6;
    shl.b32 %r8, %r0, 2;
    add.u32 %r9, %r7, %r8;
    add.u32 %r10, %r1, %r8;
    {before}
    st.shared::cluster.u32 [%r9], %r0;
    {between}
    ld.shared.u32 %r11, [%r10];
    {after}
"""
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def test_distributed_shared_memory_with_and_without_a_cluster_barrier():
    good = CLUSTER.format(before=MEET, between=MEET, after="")
    for scheduling in ("issue", "random"):
        assert run(good, shared=SHARED, grid=4, cluster=2, scheduling=scheduling)[0].ok
    relaxed = CLUSTER.format(before=MEET, between=MEET.replace("arrive.", "arrive.relaxed."), after=MEET)
    assert kinds(run(relaxed, shared=SHARED, grid=2, cluster=2)[0]) == {"race"}


def test_peer_that_has_exited():
    body = "mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p1, %r5, 1; @%p1 bra END; W: add.u32 %r20, %r20, 1; " + CLUSTER.format(
        before="", between="", after="END:"
    )
    body = "mov.u32 %r20, 0; " + body.replace(
        "W: add.u32 %r20, %r20, 1;", "W: add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 2000; @%p2 bra W;"
    )
    assert "exited-cta" in kinds(run(body, shared=SHARED, grid=2, cluster=2)[0])


def test_an_arrival_at_a_barrier_of_a_peer_that_has_exited():
    begin = (
        "mov.u32 %r1, tile; mbarrier.init.shared.b64 [%r1], 2; mov.u32 %r5, %cluster_ctarank; setp.eq.u32 %p1, %r5, 1; mov.u32 %r20, 0;"
        + MEET
    )
    wait = "@%p1 bra END; W: add.u32 %r20, %r20, 1; setp.lt.u32 %p2, %r20, 2000; @%p2 bra W; mov.u32 %r6, 1;"
    body = begin + wait + "mapa.shared::cluster.u32 %r7, %r1, %r6; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7]; END:"
    report = run(body, shared=SHARED, grid=2, cluster=2, block=1)[0]
    assert "an arrive addresses CTA rank 1, which has exited" in [finding.message for finding in report.findings]


def test_cluster_barrier_misuse():
    assert "barrier-misuse" in kinds(run("barrier.cluster.wait;", grid=2, cluster=2)[0])
    assert "barrier-misuse" in kinds(run("barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;", grid=2, cluster=2)[0])


def test_remote_barrier_needs_a_published_init():
    body = """
        mov.u32 %r1, bar;
        setp.eq.u32 %p1, %r0, 0;
        @%p1 mbarrier.init.shared.b64 [%r1], 32;
        {fence}
        barrier.cluster.arrive.relaxed.aligned;
        barrier.cluster.wait.acquire.aligned;
        mov.u32 %r5, %cluster_ctarank;
        xor.b32 %r6, %r5, 1;
        mapa.shared::cluster.u32 %r7, %r1, %r6;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
    W:  mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r1], 0;
        @!%p2 bra W;
        barrier.cluster.arrive.aligned;
        barrier.cluster.wait.aligned;
    """
    good = run(body.format(fence="fence.mbarrier_init.release.cluster;"), shared=BARRIER, grid=2, cluster=2)[0]
    assert good.ok, good
    report = run(body.format(fence=""), shared=BARRIER, grid=2, cluster=2)[0]
    assert kinds(report) == {"mbarrier-misuse"} and "nothing orders the init" in report.findings[0].message


PEER = """
    mov.u32 %r1, bar;
    mov.u32 %r2, tile;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    shl.b32 %r3, %r0, 2;
    add.u32 %r4, %r2, %r3;
    mov.u32 %r5, %cluster_ctarank;
    mad.lo.u32 %r6, %r5, 100, %r0;
    st.shared.u32 [%r4], %r6;
    {fence}
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    xor.b32 %r7, %r5, 1;
    mapa.shared::cluster.u32 %r8, %r1, %r7;
    mapa.shared::cluster.u32 %r9, %r2, %r7;
    {send}
W:  mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r1], 0;
    @!%p2 bra W;
    ld.shared.u32 %r10, [%r4+512];
    mad.lo.u32 %r11, %r5, 32, %r0;
    mul.wide.u32 %rd5, %r11, 4;
    add.s64 %rd5, %rd0, %rd5;
    st.global.u32 [%rd5], %r10;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
"""
BULK = """
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
    add.u32 %r12, %r9, 512;
    @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r12], [%r2], 128, [%r8];
"""
SINGLE = """
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 128;
    add.u32 %r12, %r9, 512;
    add.u32 %r12, %r12, %r3;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r6, [%r8];
"""


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
@pytest.mark.parametrize("send", [BULK, SINGLE], ids=["bulk", "st.async"])
def test_data_sent_to_the_peer_with_its_barrier(send, scheduling):
    options = {"shared": BARRIER + SHARED, "grid": 2, "cluster": 2, "scheduling": scheduling, "buffers": (256,)}
    report, gpu, (a,) = run(PEER.format(fence="fence.proxy.async.shared::cta;", send=send), **options)
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(a, (2, 32), np.uint32), [np.arange(32) + 100, np.arange(32)])
    if send is BULK:
        assert kinds(run(PEER.format(fence="", send=send), **options)[0]) == {"missing-proxy-fence"}


# ---- asynchronous copies ---------------------------------------------------------------------------------------------
COPY_SHARED = BARRIER + ".shared .align 128 .b8 stage[512];"
COPY = """
    mov.u32 %r1, bar;
    mov.u32 %r2, stage;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    @!%p1 bra WAIT;
    mbarrier.arrive.expect_tx.shared.b64 _, [%r1], {bytes};
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r1];
WAIT:
    {wait}
    shl.b32 %r3, %r0, 2;
    add.u32 %r3, %r2, %r3;
    ld.shared.u32 %r4, [%r3];
    mul.wide.u32 %rd10, %r0, 4;
    add.s64 %rd10, %rd0, %rd10;
    st.global.u32 [%rd10], %r4;
"""


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
@pytest.mark.parametrize("together", ["", "vote.sync.all.pred %p3, %p3, 15;"], ids=["one by one", "together"])
def test_lanes_that_wait_for_barriers_of_their_own_let_others_go_on(together, scheduling):
    body = f"""
        mov.u32 %r1, bar;
        shl.b32 %r3, %r0, 3;
        add.u32 %r3, %r1, %r3;
        setp.lt.u32 %p1, %r0, 4;
        @%p1 mbarrier.init.shared.b64 [%r3], 1;
        @%p1 fence.mbarrier_init.release.cluster;
        bar.sync 0;
        setp.eq.u32 %p2, %r0, 32;
        mov.u32 %r2, stage;
        @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
        @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r1];
    V:  @%p2 mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0;
        @!%p2 bra WAIT;
        @!%p3 bra V;
        mbarrier.arrive.shared.b64 _, [%r1+24];
        mbarrier.arrive.shared.b64 _, [%r1+16];
        mbarrier.arrive.shared.b64 _, [%r1+8];
    WAIT:
        @!%p1 bra END;
    W:  mbarrier.try_wait.parity.shared.b64 %p3, [%r3], 0;
        {together}
        @!%p3 bra W;
    END:
    """
    shared = ".shared .align 8 .b64 bar[4]; .shared .align 16 .b32 stage[64];"
    report, *_ = run(body, shared=shared, block=64, scheduling=scheduling, buffers=(256, WORDS), limit=20_000)
    assert report.ok, report


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
def test_bulk_copy_waited_for(scheduling):
    report, gpu, (a, _) = run(
        COPY.format(bytes=256, wait=WAIT.format(parity=0)), shared=COPY_SHARED, buffers=(256, WORDS), block=64, scheduling=scheduling
    )
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(a, 64, np.uint32), WORDS)
    assert report.bytes["tensor copies loaded"] == 256


def test_bulk_copy_not_waited_for_reads_poison():
    report, _, _ = run(COPY.format(bytes=256, wait=""), shared=COPY_SHARED, buffers=(256, WORDS), block=64, scheduling="last")
    assert "pending-destination" in kinds(report)


def test_asking_once_is_no_wait():
    once = "mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;"
    report, _, _ = run(COPY.format(bytes=256, wait=once), shared=COPY_SHARED, buffers=(256, WORDS), block=64, scheduling="last")
    assert "pending-destination" in kinds(report)


def test_relaxed_wait_needs_a_fence_before_the_data():
    relaxed = "W: mbarrier.try_wait.parity.relaxed.cta.shared.b64 %p2, [%r1], 0; @!%p2 bra W;"
    for scheduling in ("issue", "last", "random"):
        options = {"shared": COPY_SHARED, "buffers": (256, WORDS), "block": 64, "scheduling": scheduling}
        assert kinds(run(COPY.format(bytes=256, wait=relaxed), **options)[0]) == {"race"}
        assert run(COPY.format(bytes=256, wait=relaxed + "fence.acq_rel.cta;"), **options)[0].ok


def test_data_is_not_seen_without_its_barrier_even_when_it_has_arrived():
    """Executed at issue, the bytes are there; nothing orders the read behind them all the same."""
    report, _, _ = run(COPY.format(bytes=256, wait=""), shared=COPY_SHARED, buffers=(256, WORDS), block=64, scheduling="issue")
    assert "race" in kinds(report)


@pytest.mark.parametrize("wrong", [240, 272])
def test_bulk_copy_with_wrong_byte_count(wrong):
    report, _, _ = run(
        COPY.format(bytes=wrong, wait=WAIT.format(parity=0)), shared=COPY_SHARED, buffers=(256, WORDS), block=64, scheduling="last"
    )
    assert "deadlock" in kinds(report) and "tx-count" in str(report)


def test_bulk_copy_rules():
    body = COPY.format(bytes=256, wait="").replace("256, [%r1]", "250, [%r1]")
    assert "bulk-copy" in kinds(run(body, shared=COPY_SHARED, buffers=(256, WORDS), block=64)[0])


STORE = """
    mov.u32 %r2, stage;
    shl.b32 %r3, %r0, 2;
    add.u32 %r3, %r2, %r3;
    st.shared.u32 [%r3], %r0;
    {fence}
    bar.sync 0;
    {late}
    setp.eq.u32 %p1, %r0, 0;
    @!%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r2], 256;
    cp.async.bulk.commit_group;
    {wait}
    st.shared.u32 [%r2], 99;
    {final}
END:
"""
FENCE = "fence.proxy.async.shared::cta;"
READ, ALL = "cp.async.bulk.wait_group.read 0;", "cp.async.bulk.wait_group 0;"


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
def test_bulk_store_done_right(scheduling):
    for fence, late in ((FENCE, ""), ("", FENCE)):  # by every writer, or by the issuing thread after the barrier
        report, gpu, (a, _) = run(
            STORE.format(fence=fence, late=late, wait=READ, final=ALL), shared=COPY_SHARED, block=64, scheduling=scheduling
        )
        assert report.ok, report
        np.testing.assert_array_equal(gpu.read(a, 64, np.uint32), WORDS)


def test_bulk_store_without_proxy_fence():
    report, _, _ = run(STORE.format(fence="", late="", wait=READ, final=ALL), shared=COPY_SHARED, block=64)
    assert "fence.proxy.async" in only(report, "missing-proxy-fence").message


def test_bulk_store_fenced_by_one_warp_only():
    body = STORE.format(fence="setp.lt.u32 %p2, %r0, 32; @%p2 fence.proxy.async.shared::cta;", late="", wait=READ, final=ALL)
    only(run(body, shared=COPY_SHARED, block=64)[0], "missing-proxy-fence")


def test_bulk_store_source_overwritten():
    report, _, _ = run(STORE.format(fence=FENCE, late="", wait="", final=ALL), shared=COPY_SHARED, block=64, scheduling="last")
    only(report, "source-overwritten")


def test_bulk_store_pending_at_exit():
    body = STORE.format(fence=FENCE, late="", wait="bra END;", final="")
    report, gpu, (a, _) = run(body, shared=COPY_SHARED, block=64, scheduling="last")
    only(report, "pending-at-exit")
    np.testing.assert_array_equal(gpu.read(a, 64, np.uint32), WORDS)


def test_copy_into_bytes_still_being_read():
    """An mbarrier count one too small lets the producer refill while a consumer may still read."""
    body = """
        mov.u32 %r1, bar;
        mov.u32 %r2, stage;
        mov.u32 %r9, empty;
        setp.eq.u32 %p1, %r0, 64;
        @%p1 mbarrier.init.shared.b64 [%r1], 1;
        @%p1 mbarrier.init.shared.b64 [%r9], {count};
        @%p1 fence.mbarrier_init.release.cluster;
        bar.sync 0;
        setp.lt.u32 %p3, %r0, 64;
        @%p3 bra CONSUME;
        setp.ne.u32 %p4, %r0, 64;
        @%p4 bra END;
        mov.u32 %r10, 0;
    LOOP:
        xor.b32 %r11, %r10, 1;
    E:  mbarrier.try_wait.parity.shared.b64 %p2, [%r9], %r11;
        @!%p2 bra E;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r1];
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p5, %r10, 2;
        @%p5 bra LOOP;
        bra END;
    CONSUME:
        mov.u32 %r10, 0;
    NEXT:
    W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r1], %r10;
        @!%p2 bra W;
        shl.b32 %r3, %r0, 2;
        add.u32 %r3, %r2, %r3;
        ld.shared.u32 %r4, [%r3];
        and.b32 %r5, %r0, 31;
        setp.eq.u32 %p6, %r5, 0;
        bar.warp.sync -1;
        @%p6 mbarrier.arrive.shared.b64 _, [%r9];
        add.u32 %r10, %r10, 1;
        setp.lt.u32 %p5, %r10, 2;
        @%p5 bra NEXT;
    END:
    """
    shared = COPY_SHARED + ".shared .align 8 .u64 empty;"
    for scheduling in ("issue", "last", "random"):
        report = run(body.format(count=2), shared=shared, buffers=(256, WORDS), block=96, scheduling=scheduling)[0]
        assert report.ok, report
        found = kinds(run(body.format(count=1), shared=shared, buffers=(256, WORDS), block=96, scheduling=scheduling)[0])
        assert found & {"race", "pending-destination", "mbarrier-misuse", "mbarrier-phase"}


CP_ASYNC = """
    mov.u32 %r2, stage;
    shl.b32 %r3, %r0, 4;
    add.u32 %r4, %r2, %r3;
    mul.wide.u32 %rd10, %r0, 16;
    add.s64 %rd11, %rd1, %rd10;
    cp.async.cg.shared.global [%r4], [%rd11], 16;
    {wait}
    ld.shared.u32 %r5, [%r4];
"""


def test_cp_async_needs_its_wait():
    data = np.arange(128, dtype=np.uint32)
    for wait in ("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"):
        assert run(CP_ASYNC.format(wait=wait), shared=COPY_SHARED, buffers=(16, data), scheduling="last")[0].ok
    report = run(
        CP_ASYNC.format(wait="cp.async.commit_group; cp.async.wait_group 1;"), shared=COPY_SHARED, buffers=(16, data), scheduling="last"
    )[0]
    assert kinds(report) == {"pending-destination", "pending-at-exit"}


def test_small_cp_async_pieces_may_share_a_granule():
    body = """
        mov.u32 %r2, stage;
        and.b32 %r3, %r0, 31;
        shr.u32 %r4, %r0, 5;
        mad.lo.u32 %r5, %r3, 2, %r4;
        shl.b32 %r5, %r5, 2;
        add.u32 %r6, %r2, %r5;
        mul.wide.u32 %rd10, %r0, 4;
        add.s64 %rd11, %rd1, %rd10;
        cp.async.ca.shared.global [%r6], [%rd11], 4, {bytes};
        {wait}
        ld.shared.u32 %r7, [%r6];
        add.s64 %rd12, %rd0, %rd10;
        st.global.u32 [%rd12], %r7;
    """
    options = {"shared": COPY_SHARED, "buffers": (256, WORDS), "block": 64, "scheduling": "last"}
    report, gpu, (a, _) = run(body.format(bytes=4, wait="cp.async.wait_all;"), **options)
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(a, 64, np.uint32), WORDS)
    report, gpu, (a, _) = run(body.format(bytes=2, wait="cp.async.wait_all;"), **options)
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(a, 64, np.uint32), WORDS & 0xFFFF)
    assert "uninitialised-shared" in kinds(run(body.format(bytes=4, wait=""), **options)[0])
    of_lanes = "rem.u32 %r8, %r0, 3; shl.b32 %r8, %r8, 1;" + body.format(bytes="%r8", wait="cp.async.wait_all;")
    report, gpu, (a, _) = run(of_lanes, **options)
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(a, 64, np.uint32), WORDS & np.resize(np.array([0, 0xFFFF, 0xFFFFFFFF], np.uint32), 64))
    nowhere = "setp.eq.u32 %p1, %r8, 0; @%p1 mov.u64 %rd11, 0; cp.async"  # lanes that copy nothing may have any address
    assert run(of_lanes.replace("cp.async", nowhere, 1), **options)[0].ok


# ---- register counts -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("count", "right"), [(216, True), (224, False)])
def test_setmaxnreg_asks_for_more_than_the_cta_began_with(count, right):
    body = f"""setp.ge.u32 %p1, %r0, 128; @%p1 bra TAKE;
        setmaxnreg.dec.sync.aligned.u32 72; bra END;
        TAKE: setmaxnreg.inc.sync.aligned.u32 {count}; END:"""
    report = run(body, block=384)[0]  # 168 a thread are 504 for three, not 512
    assert report.ok == right and {finding.kind for finding in report.findings} == (set() if right else {"deadlock"})


@pytest.mark.parametrize(("count", "right"), [(120, True), (128, False)])
def test_setmaxnreg_waits_until_others_give_registers_back(count, right):
    """Triton's warps increase at the end of a region, behind the barrier at which others are about to decrease."""
    body = f"""setp.ge.u32 %p1, %r0, 128; @%p1 bra OTHERS;
        setmaxnreg.dec.sync.aligned.u32 40; bar.sync 1; setmaxnreg.inc.sync.aligned.u32 256; bra END;
        OTHERS: setmaxnreg.inc.sync.aligned.u32 232; bar.sync 1; setmaxnreg.dec.sync.aligned.u32 {count}; END:"""
    report = run(body, block=384)[0]  # 168 for each of 12 warps are 2,016: 4 * 256 + 8 * 120 are fewer
    assert report.ok == right and kinds(report) == (set() if right else {"deadlock"}), report


def test_setmaxnreg_by_part_of_a_warpgroup():
    assert run("setmaxnreg.dec.sync.aligned.u32 40;", block=128)[0].ok
    body = "setp.ge.u32 %p1, %r0, 96; @%p1 bra END; setmaxnreg.dec.sync.aligned.u32 40; END:"
    assert "warps 3 " in only(run(body, block=128)[0], "register-count").message
    body = "setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.dec.sync.aligned.u32 80;"
    assert "from 40 registers" in only(run(body, block=128)[0], "register-count").message
    with pytest.raises(emulator.UnsupportedInstruction, match="multiple of 8"):
        run("setmaxnreg.dec.sync.aligned.u32 41;", block=128)


# ---- traps and assertions --------------------------------------------------------------------------------------------
def test_trap_ends_its_lanes():
    report, gpu, (a, _) = run(OWN + "setp.eq.u32 %p1, %r0, 5; @%p1 trap; st.global.u32 [%rd10], %r0;")
    assert only(report, "trap").lanes == 1 << 5
    assert gpu.written(a, 128).sum() == 31 * 4


def test_every_finding_names_its_place():
    finding = only(run("mov.u32 %r1, tile; ld.shared.u32 %r2, [%r1];", shared=SHARED, grid=2)[0], "uninitialised-shared")
    assert finding.kernel == "k" and finding.cta in ((0, 0, 0), (1, 0, 0)) and finding.warp == 0
    assert "ld.shared.u32 %r2" in finding.text and finding.line > 0 and finding.count == 2
    assert set(emulator.KINDS) >= {finding.kind}

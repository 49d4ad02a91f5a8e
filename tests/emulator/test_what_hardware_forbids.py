"""What the manual forbids and a GPU may or may not show: the order among the lanes of a warp, scopes, dependent launches, addresses and
descriptors. Beside each mistake stands the kernel that does it right."""

import re

import ml_dtypes
import numpy as np
import pytest
import test_blackwell_pitfalls as pitfalls
import test_core_tma as tma
import test_matrix_findings as matrix
import test_matrix_tcgen05 as tcgen05
from core_support import kernel, kinds, launch, only

import zoo
from zoo import emulator
from zoo.emulator import descriptors
from zoo.packaged import packaged

POLICIES = ["issue", "last", "random"]
FENCE, MEET = "fence.proxy.async.shared::cta;", "bar.warp.sync -1;"
WORDS = np.arange(64, dtype=np.uint32)


# ---- lanes of a warp ---------------------------------------------------------------------------------------------------
WRITE = """
    mov.u32 %r1, row;
    mov.u32 %r8, bar;
    setp.eq.u32 %p1, %r0, 0;
    setp.lt.u32 %p2, %r0, 16;
    @%p1 mbarrier.init.shared.b64 [%r8], {count};
    {first}
    bar.sync 0;
    setp.ge.u32 %p3, %r0, 32;
    @%p3 bra SECOND;
    mad.lo.u32 %r2, %r0, {size}, %r1;
    {store}
    {order}
    @!%p1 bra END;
    {copy}
    bra END;
SECOND:
    {second}
END:
"""
COPY = "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], {bytes}; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
ARRIVE = "mbarrier.arrive.shared.b64 _, [%r8];"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p4, [%r8], 0; @!%p4 bra W; "


def written(
    order, *, size=4, store="st.shared.u32 [%r2], %r0;", bytes=None, copy=COPY, second="", count=1, scheduling="last", shared="", first=""
):
    """A warp writes a row, and one lane (or `second`, the second warp) hands it to a bulk copy."""
    copy, second = (text.format(bytes=bytes or 32 * size) for text in (copy, second))
    body = WRITE.format(order=order, size=size, store=store, copy=copy, second=second, count=count, first=first)
    gpu = emulator.Device(scheduling=scheduling)
    shared = ".shared .align 16 .b8 row[128]; .shared .align 8 .b64 bar;" + shared
    return kinds(launch(kernel(body, parameters=1, shared=shared), device=gpu, block=64, params=[gpu.alloc(np.zeros(64, np.uint32))]))


@pytest.mark.parametrize("scheduling", POLICIES)
def test_lanes_meet_before_one_of_them_hands_their_writes_to_a_copy(scheduling):
    for right in (FENCE + MEET, MEET + FENCE, MEET + "@%p1 " + FENCE):
        assert written(right, scheduling=scheduling) == set()
    assert written(FENCE, scheduling=scheduling) == {"race"}
    assert written(FENCE + "elect.sync _|%p5, -1;", scheduling=scheduling) == {"race"}


@pytest.mark.parametrize(
    ("size", "store"), [(4, "st.shared.u32 [%r2], %r0;"), (1, "st.shared.u8 [%r2], 3;"), (2, "mov.u16 %h1, 3; st.shared.u16 [%r2], %h1;")]
)
def test_a_proxy_fence_by_one_lane_covers_its_own_writes_alone(size, store):
    assert written("@%p1 " + FENCE + MEET, size=size, store=store) == {"missing-proxy-fence"}
    assert written("@!%p1 " + FENCE + MEET, size=size, store=store) == {"missing-proxy-fence"}
    assert written("@%p1 " + FENCE + "@!%p1 " + FENCE + MEET, size=size, store=store) == set()


def test_half_of_a_warp_may_meet_alone():
    half = FENCE + "@%p2 bar.warp.sync 0xffff;"
    assert written(half, bytes=64) == set()
    assert written(half) == {"race"}


def test_an_arrival_by_one_lane_covers_what_it_has_met():
    ring = {"copy": "", "second": WAIT + "setp.eq.u32 %p5, %r0, 32; @!%p5 bra END; " + COPY}
    assert written(FENCE + MEET + "@%p1 " + ARRIVE, **ring) == set()
    assert written(FENCE + "@%p1 " + ARRIVE, **ring) == {"race"}
    # a copy that completes the phase publishes no more than the arrival before it
    load = "mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 16;"
    load += "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r9], [%rd0], 16, [%r8];"
    whole = {**ring, "shared": " .shared .align 16 .b8 other[16];", "first": "mov.u32 %r9, other; fence.mbarrier_init.release.cluster;"}
    assert written(FENCE + MEET + "@!%p1 bra END;" + load, **whole) == set()
    assert written(FENCE + "@!%p1 bra END;" + load, **whole) == {"race"}
    # each lane arrives for itself, at once or in two groups
    assert written(FENCE + ARRIVE, count=32, **ring) == set()
    assert written(FENCE + "@%p1 " + ARRIVE + "@!%p1 " + ARRIVE, count=32, **ring) == set()
    # what one lane releases besides leaves the fences of the others as they were
    other = "@%p1 mbarrier.expect_tx.shared.b64 [%r8], 0; @%p1 st.release.gpu.global.u32 [%rd0], %r0;"
    assert written(FENCE + other + ARRIVE, count=32, **ring) == set()


# ---- scopes ------------------------------------------------------------------------------------------------------------
REMOTE = """
    mov.u32 %r1, bar;
    mov.u32 %r2, %cluster_ctarank;
    setp.eq.u32 %p1, %r2, 0;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    mapa.shared::cluster.u32 %r3, %r1, 0;
    @!%p1 {arrive} _, [%r3];
    @!%p1 bra END;
W:  {wait} %p2, [%r1], 0;
    @!%p2 bra W;
END:
    barrier.cluster.arrive; barrier.cluster.wait;
"""


@pytest.mark.parametrize(("arrive", "wait", "expected"), [
    (".release.cluster", ".acquire.cluster", set()), ("", "", set()), (".relaxed.cluster", ".relaxed.cta", set()),
    (".release.cta", ".acquire.cluster", {"scope"}), (".release.cluster", ".acquire.cta", {"scope"}),
])  # fmt: skip
def test_an_mbarrier_of_another_cta_needs_the_scope_of_the_cluster(arrive, wait, expected):
    body = REMOTE.format(arrive=f"mbarrier.arrive{arrive}.shared::cluster.b64", wait=f"mbarrier.try_wait.parity{wait}.shared::cta.b64")
    text = kernel(body, parameters=0, shared=".shared .align 8 .b64 bar;")
    assert kinds(launch(text, grid=2, cluster=2, block=1)) == expected


FLAG = """
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p1, %r1, {writer};
    @%p1 {release} 1;
    @%p1 bra END;
W:  {acquire}
    setp.eq.u32 %p2, %r2, 1;
    @!%p2 bra W;
END:
"""
STORE, LOAD = "st.release.{}.global.u32 [%rd0],", "ld.acquire.{}.global.u32 %r2, [%rd0];"


@pytest.mark.parametrize(("release", "acquire", "expected"), [
    (STORE.format("gpu"), LOAD.format("gpu"), set()), (STORE.format("gpu"), "ld.relaxed.gpu.global.u32 %r2, [%rd0];", set()),
    ("red.release.gpu.global.add.u32 [%rd0],", "atom.acquire.gpu.global.or.b32 %r2, [%rd0], 0;", set()),
    (STORE.format("cta"), LOAD.format("gpu"), {"scope"}), (STORE.format("gpu"), LOAD.format("cta"), {"scope"}),
    ("red.release.cta.global.add.u32 [%rd0],", LOAD.format("gpu"), {"scope"}), (STORE.format("gpu"), "atom.acq_rel.cta.global.or.b32 %r2, [%rd0], 0;", {"scope"}),
])  # fmt: skip
def test_a_flag_that_another_cta_reads_needs_the_scope_of_the_gpu(release, acquire, expected):
    gpu = emulator.Device()
    text = kernel(FLAG.format(writer=0, release=release, acquire=acquire), parameters=1)
    report = launch(text, device=gpu, grid=2, block=1, params=[gpu.alloc(np.zeros(1, np.uint32))])
    assert report.completed and kinds(report) == expected


# ---- programmatic launches ---------------------------------------------------------------------------------------------
WAIT_FOR_LAUNCH = "griddepcontrol.wait;"
DEPENDENT = """
    mul.wide.u32 %rd10, %r0, 4;
    add.s64 %rd11, %rd1, %rd10;
    add.s64 %rd10, %rd0, %rd10;
    setp.lt.u32 %p1, %r0, 32;
    {before}
    ld.global.u32 %r1, [%rd11];
    st.global.u32 [%rd10], %r1;
    {behind}
"""


@pytest.mark.parametrize(("before", "behind", "expected"), [
    (WAIT_FOR_LAUNCH, "", set()), ("", "", {"missing-dependency-wait"}), ("", WAIT_FOR_LAUNCH, {"missing-dependency-wait"}),
    ("griddepcontrol.launch_dependents;", "", {"missing-dependency-wait"}),
    ("@%p1 griddepcontrol.wait; bar.sync 0;", "", set()), ("@%p1 griddepcontrol.wait;", "", {"missing-dependency-wait"}),
])  # fmt: skip
def test_a_programmatic_launch_waits_before_it_uses_global_memory(before, behind, expected):
    gpu = emulator.Device()
    module = emulator.Module(kernel(DEPENDENT.format(before=before, behind=behind)))
    y, x = gpu.alloc(256), gpu.alloc(WORDS)
    assert kinds(gpu.launch(module, "k", 1, 64, params=[y, x], programmatic=True)) == expected
    assert kinds(gpu.launch(module, "k", 1, 64, params=[y, x])) == set()


def test_memory_that_the_launch_ahead_does_not_write_may_be_read_at_once():
    gpu = emulator.Device()
    body = DEPENDENT.format(before="", behind="").replace("st.global", WAIT_FOR_LAUNCH + "st.global")
    y, x = gpu.alloc(256), gpu.alloc(WORDS)
    for constant, expected in (((), {"missing-dependency-wait"}), ([(x, 256)], set()), ([(x, 252)], {"missing-dependency-wait"})):
        report = gpu.launch(emulator.Module(kernel(body)), "k", 1, 64, params=[y, x], programmatic=True, constant=constant)
        assert kinds(report) == expected


def test_a_kernel_of_the_zoo_without_its_wait_is_reported():
    """As `zoo verify --emulate` launches it."""
    gpu = emulator.Device("b200")
    x = gpu.array(np.ones((1, 128), ml_dtypes.bfloat16))
    plan = zoo.prepare("quantize.mxfp8.rows", x=x, q=gpu.empty((1, 128), "e4m3"), scales=gpu.empty((1, 4), "ue8m0"))
    assert plan().ok
    text = packaged._modules._texts.of(plan.launch.variant, packaged.manifest)
    assert WAIT_FOR_LAUNCH in text
    plan._module = emulator.Module(text.replace(WAIT_FOR_LAUNCH, ""))
    assert kinds(plan()) == {"missing-dependency-wait"}


# ---- tensor maps and copies --------------------------------------------------------------------------------------------
def test_a_prefetched_tensor_map_is_there():
    gpu = tma.device()
    record = gpu.tensor_map(gpu.alloc(64), "u32", (16,), (), (16,))
    body = "mov.b64 %rd10, k_map; cvta.param.u64 %rd10, %rd10; {} prefetch.tensormap [%rd10];"
    for edit, expected in (("", set()), ("mov.u64 %rd10, 0;", {"tensor-map"}), ("add.s64 %rd10, %rd10, 64;", {"tensor-map"})):
        report = launch(tma.with_map(kernel(body.format(edit), parameters=1, target="sm_100a")), device=gpu, params=[record, 0])
        assert kinds(report) == expected


@pytest.mark.parametrize(
    ("dtype", "coordinate", "right"),
    [("u8", 16, True), ("u8", 8, False), ("u32", 4, True), ("u32", 2, False), ("f16", -8, True), ("f16", -4, False)],
)
def test_a_tensor_copy_begins_at_a_multiple_of_16_bytes(dtype, coordinate, right):
    gpu = tma.device()
    size = np.dtype(dtype.replace("u8", "u1").replace("u32", "u4").replace("f16", "f2")).itemsize
    record = gpu.tensor_map(gpu.alloc(np.zeros(64 * size, np.uint8)), dtype, (64,), (), (32 // size,))
    report = tma.load(gpu, record, (coordinate,), 32)[1]
    assert kinds(report) == set() if right else "tensor-map" in kinds(report)


def test_a_copy_for_a_pair_needs_a_pair():
    gpu = tma.device()
    record = gpu.tensor_map(gpu.alloc(np.zeros((4, 64), np.uint8)), "u8", (64, 4), (64,), (64, 1))
    for tile, coordinates, size in ((".tile", (0, 0), 64), (".tile::gather4", (0, 0, 1, 2, 3), 256)):
        assert not tma.load(gpu, record, coordinates, size, tile=tile, count=size)[1].findings
        only(tma.load(gpu, record, coordinates, size, tile=tile + ".cta_group::2", count=size)[1], "bulk-copy")


# ---- descriptors and addresses of tcgen05 ------------------------------------------------------------------------------
MXF4 = 1 << 7 | 1 << 10 | 48 >> 3 << 17 | 1 << 23 | 1 << 27


@pytest.mark.parametrize(("kind", "vector"), [("mxf4", 2), ("mxf4nvf4", 4)])
def test_bit_12_of_an_instruction_descriptor_of_4_bits_is_reserved(kind, vector):
    assert not descriptors.decode_instruction(MXF4, kind, 1, vector).problems
    assert descriptors.decode_instruction(MXF4 | 1 << 12, kind, 1, vector).problems == ("reserved bit 12 is set",)


@pytest.mark.parametrize(("scales", "lane"), [("w", 0), ("w", 1), ("n", 16)])
def test_scales_begin_at_lane_0(scales, lane):
    body = tcgen05.preload(512) + tcgen05.mma_body("mxf4.block_scale.block32", scales=", [w], [n]", columns=64)[len(tcgen05.preload(512)) :]
    place = f"    add.u32 w, column, 200;\n    add.u32 n, column, 300;\n    add.u32 {scales}, {scales}, {lane << 16};\n    setp.ne.u32 p,"
    found = matrix.findings(
        tcgen05.kernel(body.replace("    setp.ne.u32 p,", place)), image=bytes(192 * 128), a=tcgen05.swizzled(0, 0, 1024), b=tcgen05.swizzled(16384, 0, 1024), idesc=MXF4
    )  # fmt: skip
    assert [re.sub(r"^.*names (lane \d+).*$", r"\1", one.message) for one in found] == ([f"lane {lane}"] if lane else [])


def test_a_copy_to_lane_1_of_tensor_memory_is_a_finding():
    body = tcgen05.copy_body("128x128b")
    case = {"image": bytes(4096), "a": tcgen05.no_swizzle(tcgen05.IMAGE, 0, 128)}
    assert matrix.kinds(tcgen05.kernel(body), **case) == set()
    late = body.replace("@one tcgen05.cp", "add.u32 t, column, 0x10000;\n    @one tcgen05.cp").replace("128x128b [column]", "128x128b [t]")
    assert matrix.kinds(tcgen05.kernel(late), **case) == {"tensor-memory-misuse"}


# ---- answers of cluster launch control ---------------------------------------------------------------------------------
@pytest.mark.parametrize("scheduling", POLICIES)
def test_an_answer_is_read_before_a_proxy_fence_and_the_next_request(scheduling):
    body = pitfalls.PERSISTENT.replace("{first}", pitfalls.BY_ANSWER).replace("{decide}", pitfalls.DECIDE)
    assert not pitfalls.run(body, grid=6, block=64, scheduling=scheduling)[0].findings
    finding = only(pitfalls.run(body.replace(FENCE, ""), grid=6, scheduling=scheduling)[0], "missing-proxy-fence")
    assert "clusterlaunchcontrol.try_cancel" in finding.text and finding.others[0].text.startswith("ld.shared.b128")


# ---- addresses of another CTA --------------------------------------------------------------------------------------------
OTHER_CTA = """
    .reg .b128 said;
    mov.u32 %r1, bar;
    mov.u32 %r2, %cluster_ctarank;
    mov.u32 %r4, 0;
    setp.eq.u32 %p1, %r2, 0;
    mbarrier.init.shared.b64 [%r1], 1;
    st.shared.u32 [%r1+16], %r4;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive; barrier.cluster.wait;
    mapa.shared::cluster.u32 %r3, %r1, {rank};
    @%p1 {use}
    barrier.cluster.arrive; barrier.cluster.wait;
"""


USES = [
    "ld.shared::{}.u32 %r5, [%r3+16];", "st.shared::{}.u32 [%r3+16], %r4;", "atom.shared::{}.add.u32 %r5, [%r3+16], 1;",
    "red.shared::{}.add.u32 [%r3+16], 1;", "ld.acquire.cluster.shared::{}.u32 %r5, [%r3+16];", "mbarrier.arrive.shared::{}.b64 _, [%r3];",
    "mbarrier.arrive.expect_tx.shared::{}.b64 _, [%r3], 0;", "mbarrier.expect_tx.relaxed.cluster.shared::{}.b64 [%r3], 0;",
]  # fmt: skip


def in_pairs(use, rank, **options):
    """The first CTA of a pair uses the address %r3 of CTA `rank`."""
    gpu = emulator.Device(arch=options.get("target", "sm_90a"))
    text = kernel(OTHER_CTA.format(use=use, rank=rank), parameters=1, shared=".shared .align 16 .b8 bar[32];", **options)
    return kinds(launch(text, device=gpu, grid=2, cluster=2, block=1, params=[gpu.alloc(np.zeros(16, np.uint8))]))


@pytest.mark.parametrize("use", USES, ids=lambda use: use.split(".shared")[0])
def test_an_instruction_that_names_its_own_cta_has_an_address_there(use):
    """The address of another CTA lies beyond the window of .shared::cta."""
    assert in_pairs(use.format("cta"), 0) == in_pairs(use.format("cluster"), 1) == set()
    assert in_pairs(use.format("cta"), 1) == in_pairs(use.format("cta").replace("::cta", ""), 1) == {"out-of-bounds"}


COPY_OF_16 = "cp.async.bulk.shared::{}.global.mbarrier::complete_tx::bytes [%r3+16], [%rd0], 16, [{}];"


def test_a_copy_to_its_own_cta_and_its_barrier_have_addresses_there():
    for space, barrier, rank, expected in (
        ("cta", "%r1", 0, set()), ("cluster", "%r3", 1, set()), ("cta", "%r3", 1, {"out-of-bounds"}), ("cluster", "%r1", 1, {"bulk-copy"}),
    ):  # fmt: skip
        expect = f"setp.eq.u32 %p2, %r2, {0 if barrier == '%r1' else rank}; @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;"
        wait = "@!%p2 bra PASSED; W: mbarrier.try_wait.parity.shared.b64 %p3, [%r1], 0; @!%p3 bra W; PASSED:"
        use = "bra NEXT; NEXT: " + expect + "@%p1 " + COPY_OF_16.format(space, barrier) + wait
        assert in_pairs(use, rank) == expected, (space, barrier)


@pytest.mark.parametrize("operands", ["[%r2], [%r3]", "[%r3+16], [%r1]"], ids=["barrier", "answer"])
def test_an_answer_comes_to_the_cta_that_asks(operands):
    ask = f"@%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 {operands};"
    expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16; add.u32 %r2, %r1, 16;"
    wait = "@!%p1 bra PASSED; W: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0; @!%p2 bra W; PASSED:"
    for rank, expected in ((0, set()), (1, {"out-of-bounds"})):
        assert in_pairs("bra NEXT; NEXT: " + expect + ask + wait, rank, target="sm_100a") == expected


def test_a_cluster_barrier_is_waited_for_after_an_arrival_without_clusters_too():
    for body, expected in (("barrier.cluster.arrive; barrier.cluster.wait;", set()), ("barrier.cluster.wait;", {"barrier-misuse"})):
        assert kinds(launch(kernel(body, parameters=0), block=1)) == expected


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(
    ("fence", "right"),
    [
        ("@%p1 " + FENCE, False), ("@%p1 " + FENCE + MEET, False), (MEET + "@%p1 " + FENCE, True),
        ("@%p1 " + FENCE + "@!%p1 " + FENCE, True), ("bar.sync 0; @%p1 " + FENCE, True),
    ],
    ids=["one lane", "one lane, then a meeting", "a meeting, then one lane", "each lane", "a barrier, then one lane"],
)  # fmt: skip
def test_each_lane_that_reads_an_answer_needs_a_proxy_fence_behind_it(fence, right, scheduling):
    body = pitfalls.PERSISTENT.replace("{first}", pitfalls.BY_ANSWER).replace("{decide}", pitfalls.DECIDE).replace(FENCE, fence)
    assert kinds(pitfalls.run(body, grid=6, block=32, scheduling=scheduling)[0]) == (set() if right else {"missing-proxy-fence"})


@pytest.mark.parametrize("away", [-0x1000000, 0x90000, 0x1000000])
def test_a_load_of_an_answer_from_nowhere_is_a_finding_at_every_fence(away):
    body = f"""
        .reg .b128 said;
        mov.u32 %r1, bar; add.s32 %r1, %r1, {away}; setp.eq.u32 %p1, %r0, 0;
        ld.shared.b128 said, [%r1]; @%p1 {FENCE} bar.sync 0;
    """
    text = kernel(body, parameters=0, shared=".shared .align 16 .b8 bar[32];", target="sm_100a")
    assert kinds(launch(text, device=emulator.Device(arch="sm_100a"), block=32)) == {"out-of-bounds"}

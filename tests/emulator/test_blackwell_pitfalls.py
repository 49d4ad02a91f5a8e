"""What Blackwell lets pass, or punishes on some runs only: each pitfall as a small kernel that has it, beside the one that does it right.

docs/blackwell.md has the list; those that other tests and the mutants provoke are not repeated here.
"""

import numpy as np
import pytest
import test_matrix_findings as matrix
import test_matrix_tcgen05 as tcgen05
from core_support import kernel, kinds, launch, only

from zoo import emulator
from zoo.emulator import descriptors, number_formats

POLICIES = ["issue", "last", "random"]
SHARED = ".shared .align 16 .b8 answer[32]; .shared .align 8 .b64 bar[2];"
MEET = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def run(body, *, grid=1, block=32, cluster=None, scheduling="last", limit=200_000, buffers=(4096,), directives="", **options):
    gpu = emulator.Device(arch="sm_100a", scheduling=scheduling, instruction_limit=limit, **options)
    text = kernel(body, parameters=len(buffers), shared=SHARED, target="sm_100a", directives=directives)
    places = [gpu.alloc(buffer) for buffer in buffers]
    return launch(text, device=gpu, grid=grid, block=block, cluster=cluster, params=places), gpu, places


# ---- clusters and pairs ----------------------------------------------------------------------------------------------
ASK_FOR_ALL = """
    mov.u32 %r1, bar;
    mov.u32 %r2, answer;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    {meet}
    mov.u32 %r5, %cluster_ctarank;
    setp.eq.u32 %p2, %r5, 1;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
    {leave}
    mov.u32 %r20, 0;
S:  add.u32 %r20, %r20, 1;
    setp.lt.u32 %p3, %r20, 2000;
    @%p3 bra S;
    @%p2 bra W;
    @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r2], [%r1];
W:  mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0;
    @!%p4 bra W;
    {meet}
END:
"""


@pytest.mark.parametrize("scheduling", POLICIES)
def test_an_answer_for_all_when_one_cta_of_the_cluster_has_ended(scheduling):
    options = {"grid": 2, "cluster": 2, "scheduling": scheduling}
    assert run(ASK_FOR_ALL.format(meet=MEET, leave=""), **options)[0].ok
    assert "exited-cta" in kinds(run(ASK_FOR_ALL.format(meet=MEET, leave="@%p2 bra END;"), **options)[0])


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_pair_that_allocates_before_its_other_cta_is_known_to_run(scheduling):
    body = tcgen05.preload(32)
    assert matrix.kinds(matrix.edited(body, group=2), group=2, scheduling=scheduling) == set()
    alone = (f"    {MEET}\n    setp.eq.u32 q, warp, 0;\n    @q tcgen05.alloc", "    setp.eq.u32 q, warp, 0;\n    @q tcgen05.alloc")
    assert matrix.kinds(matrix.edited(body, alone, group=2), group=2, scheduling=scheduling) == {"exited-cta"}


def test_a_commit_to_ctas_that_are_not_there():
    """In a cluster of two pairs the second pair's mask is another than the first's."""
    commit = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [base], {mask};"
    start = "    mov.pred q, one;\n    setp.eq.u32 p, rank, 0;\n    and.pred q, q, p;\n    .reg .b16 mask;\n    mov.u16 mask, {};\n    @q "
    wait = tcgen05.WAIT.format(label=1, parity=0)
    for mask, expected in ((3, set()), (12, {"mbarrier-misuse", "deadlock"})):
        text = start.format(mask) + commit.format(mask="mask") + "\n" + wait
        assert matrix.kinds(matrix.edited(text, group=2), group=2) == expected


# ---- tensor memory ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheduling", ["last", "random"])
def test_the_address_of_tensor_memory_lies_in_a_buffer_of_copies(scheduling):
    """The allocation's store is an ordinary one: a copy on its way to the same bytes replaces it, sooner or later."""
    edits = [
        ("    @one fence.mbarrier_init", "    @one mbarrier.init.shared.b64 [base+8], 1;\n    @one fence.mbarrier_init"),
        (
            "    setp.eq.u32 q, warp, 0;\n    @q tcgen05.alloc",
            "    bar.sync 0;\n    @one mbarrier.arrive.expect_tx.shared.b64 _, [base+8], 16;\n"
            "    @one cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [base+{offset}], [g], 16, [base+8];\n"
            "    setp.eq.u32 q, warp, 0;\n    @q tcgen05.alloc",
        ),
        (
            "    ld.shared.u32 column",
            "LANDED:\n    mbarrier.try_wait.parity.shared.b64 p, [base+8], 0;\n    @!p bra LANDED;\n    ld.shared.u32 column",
        ),
    ]

    def found(offset):
        placed = [(old, new.replace("{offset}", str(offset))) for old, new in edits]
        return matrix.kinds(matrix.edited(tcgen05.preload(32), *placed), image=bytes(64), scheduling=scheduling)

    assert found(32) == set()
    assert found(16) & {"pending-destination", "race"}


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_copy_into_columns_that_products_before_it_still_use(scheduling):
    """A copy before a product runs before it; of a product before a copy nothing is promised without a commit and its wait."""
    copy = "    @q tcgen05.cp.cta_group::1.32x128b.warpx4 [column], da;\n"
    mma, commit = matrix.MMA_LINE, matrix.COMMIT_LINE
    late = matrix.edited(matrix.FRESH, (mma, mma + copy))
    assert matrix.kinds(late, **matrix.dense_case(), scheduling=scheduling) == {"missing-wait"}
    wait = tcgen05.WAIT.format(label=7, parity=0)
    ordered = matrix.edited(
        matrix.FRESH,
        (mma + commit, mma + commit + wait + "    bar.sync 0;\n" + copy + commit),
        ("[base], 0;\n    @!p bra WAIT2", "[base], 1;\n    @!p bra WAIT2"),
    )
    assert matrix.kinds(ordered, **matrix.dense_case(), scheduling=scheduling) == set()


def test_an_allocation_that_nobody_makes_room_for_is_a_deadlock():
    again = "    @q tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base+24], 32;\n"
    body = tcgen05.preload(32)
    assert "deadlock" in matrix.kinds(matrix.edited(body, ("    ld.shared.u32 column", again + "    ld.shared.u32 column")))


# ---- scales ----------------------------------------------------------------------------------------------------------
def scaled_case(n, sf_a=200, sf_b=300, columns=512, edits=()):
    """(module, the arguments of matrix.kinds) of one mxf8f6f4 product whose scales begin at these columns."""
    body = tcgen05.mma_body("mxf8f6f4.block_scale.block32", scales=", [w], [n]").replace(
        "    setp.ne.u32 p,", f"    add.u32 w, column, {sf_a};\n    add.u32 n, column, {sf_b};\n    setp.ne.u32 p,"
    )
    image = np.zeros(128 * 128 + 256 * 128, np.uint8)
    case = {"image": image.tobytes(), "a": tcgen05.swizzled(0, 0, 1024), "b": tcgen05.swizzled(16384, 0, 1024)}
    sizes = (("[base+16], 512;", f"[base+16], {columns};"), ("b32 column, 512;", f"b32 column, {columns};"))
    module = matrix.edited(body, *(sizes if columns != 512 else ()), *edits)
    return module, case | {"idesc": n >> 3 << 17 | 1 << 23 | 1 << 27}


@pytest.mark.parametrize(("sf_a", "sf_b", "expected"), [
    (200, 300, set()), (200, 302, set()), (200, 301, {"tensor-memory-misuse"}), (201, 300, {"tensor-memory-misuse"}), (202, 300, {"tensor-memory-misuse"}),
])  # fmt: skip
def test_columns_at_which_scales_begin(sf_a, sf_b, expected):
    module, case = scaled_case(48, sf_a, sf_b)
    assert matrix.kinds(module, **case) == expected


def test_the_scales_of_64_columns_take_two_columns():
    """CUTLASS reads the last 192 of 256 scales behind a shift by two columns."""
    for n, sf_b, expected in ((192, 506, set()), (192, 508, {"tensor-memory-misuse"}), (128, 508, set()), (48, 510, set())):
        module, case = scaled_case(n, 300, sf_b)
        assert matrix.kinds(module, **case) == expected, (n, sf_b)


def test_a_copy_over_scales_that_products_before_it_read():
    """The manual does not order the two. GPUs run them in order where one thread issues both, and CUTLASS relies on that."""
    commit = matrix.COMMIT_LINE
    for thread, severity in (("q", "warning"), ("other", "error")):
        copy = f"    @{thread} tcgen05.cp.cta_group::1.32x128b.warpx4 [w], da;\n"
        first = "    .reg .pred other;\n    setp.eq.u32 other, tid, 5;\n"
        module, case = scaled_case(48, edits=((commit, first + copy + commit),))
        found = [finding.severity for finding in matrix.findings(module, **case) if finding.kind == "missing-wait"]
        assert found == [severity], thread


def test_block_scaled_products_have_no_64_rows():
    for m, right in ((64, False), (128, True)):
        shape = 128 >> 3 << 17 | 1 << 23 | m >> 4 << 24
        assert (descriptors.decode_instruction(shape, "mxf8f6f4", 1, 1).problems == ()) == right


def test_a_nan_in_the_scales_of_elements_that_are_zero_is_a_nan():
    from zoo.emulator import arithmetic

    scales = np.full((4, 1), 127)
    scales[1] = 0xFF
    zeros = arithmetic.operand(number_formats.E4M3, np.zeros((4, 32), np.uint8))
    block = arithmetic.BlockScale(number_formats.UE8M0, scales), arithmetic.BlockScale(number_formats.UE8M0, np.full((4, 1), 127))
    for mode in ("exact", "hw"):
        total = arithmetic.tcgen05_sum(zeros, zeros, None, "f32", mode, *block).view(np.float32)
        assert np.isnan(total[1]).all() and not np.isnan(np.delete(total, 1, axis=0)).any()


# ---- memory and grids ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("access", ["ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd0+{at}];", "st.global.v8.b32 [%rd0+{at}], {%r1, %r1, %r1, %r1, %r1, %r1, %r1, %r1};"])  # fmt: skip
def test_32_bytes_at_once_that_begin_at_a_multiple_of_16(access):
    zeros = np.zeros(64, np.uint32)
    for at, expected in ((32, set()), (16, {"misaligned"})):
        assert kinds(run("mov.u32 %r1, 0;" + access.replace("{at}", str(at)), buffers=(zeros,))[0]) == expected


def test_a_grid_whose_clusters_wait_for_more_of_them_than_run_at_once():
    """A GPU may grant fewer clusters of a size than its multiprocessors hold CTAs."""
    body = """
        mov.u32 %r1, %nctaid.x;
        setp.eq.u32 %p1, %r0, 0;
        @%p1 atom.global.add.u32 %r2, [%rd0], 1;
    L:  ld.relaxed.gpu.global.u32 %r3, [%rd0];
        setp.lt.u32 %p2, %r3, %r1;
        @%p2 bra L;
    """
    counter = np.zeros(1, np.uint32)
    assert run(body, grid=4, buffers=(counter,), limit=2_000_000, multiprocessors=4)[0].ok
    assert kinds(run(body, grid=4, buffers=(counter,), multiprocessors=3)[0]) & {"deadlock", "livelock"}
    two_each = {"directives": ".maxntid 32, 1, 1\n.minnctapersm 2", "buffers": (counter,), "multiprocessors": 2}
    assert run(body, grid=4, limit=2_000_000, **two_each)[0].ok
    assert kinds(run(body, grid=5, **two_each)[0]) & {"deadlock", "livelock"}


# ---- what is no mistake ----------------------------------------------------------------------------------------------
PERSISTENT = """
    mov.u32 %r1, bar;
    mov.u32 %r2, answer;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    @%p1 fence.mbarrier_init.release.cluster;
    bar.sync 0;
    mov.u32 %r5, %ctaid.x;
    mov.u32 %r6, 0;
    .reg .b128 said;
    .reg .pred taken, outside, use, same;
    .reg .b32 x, y, z, tile;
NEXT:
    mul.wide.u32 %rd10, %r5, 4;
    add.s64 %rd10, %rd0, %rd10;
    @%p1 st.global.u32 [%rd10], %r5;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;
    @%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r2], [%r1];
W:  mbarrier.try_wait.parity.shared.b64 %p4, [%r1], %r6;
    @!%p4 bra W;
    xor.b32 %r6, %r6, 1;
    ld.shared.b128 said, [%r2];
    fence.proxy.async.shared::cta;
    bar.sync 0;
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 taken, said;
    {first}
    // computed before anybody looks whether there was an answer
    shl.b32 tile, x, 1;
    shr.u32 tile, tile, 1;
    mad.lo.s32 %r7, y, 3, tile;
    setp.ge.u32 outside, %r7, 1000;
    not.pred same, outside;
    and.pred use, taken, same;
    {decide}
"""
DECIDE = "@!use bra END; mov.u32 %r5, tile; bra NEXT; END:"
BY_ANSWER = "@taken clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {x, y, z, _}, said;"
ALWAYS = BY_ANSWER.replace("@taken ", "")


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize("first", [BY_ANSWER, ALWAYS], ids=["where it was taken", "always"])
def test_coordinates_of_a_refused_answer_that_nobody_uses(first, scheduling):
    body = PERSISTENT.replace("{first}", first).replace("{decide}", DECIDE)
    report, gpu, (place,) = run(body, grid=6, block=64, scheduling=scheduling)
    assert report.ok, report
    assert gpu.read(place, 6, np.uint32).tolist() == list(range(6))


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize("first", [BY_ANSWER, ALWAYS], ids=["where it was taken", "always"])
@pytest.mark.parametrize(
    "used",
    ["@outside bra END; @!use bra END; mov.u32 %r5, tile; bra NEXT; END:", "st.global.u32 [%rd0+64], tile;" + DECIDE, "st.global.u32 [%rd0+64], x;" + DECIDE],
    ids=["decides", "stored", "stored as it is"],
)  # fmt: skip
def test_coordinates_of_a_refused_answer_that_somebody_uses(first, used, scheduling):
    body = PERSISTENT.replace("{first}", first).replace("{decide}", used)
    assert "get_first_ctaid" in only(run(body, grid=1, block=64, scheduling=scheduling)[0], "cluster-launch-control").message


def test_an_answer_of_zeros_that_the_program_wrote_itself_took_nothing():
    body = """
        mov.u32 %r2, answer;
        .reg .b128 said;
        mov.u32 %r3, 0;
        st.shared.v4.u32 [%r2], {%r3, %r3, %r3, WORD};
        ld.shared.b128 said, [%r2];
        clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, said;
        selp.u32 %r4, 1, 0, %p2;
        st.global.u32 [%rd0], %r4;
    """
    report, gpu, (place,) = run(body.replace("WORD", "%r3"))
    assert report.ok and gpu.read(place, 1, np.uint32) == 0
    only(run(body.replace("WORD", "77"))[0], "cluster-launch-control")


def test_warps_of_a_warpgroup_that_give_registers_back_on_lines_of_their_own():
    body = """
        shr.u32 %r1, %r0, 5;
        setp.eq.u32 %p1, %r1, 1;
        @%p1 bra ONE;
        {rest}
        bra END;
    ONE:
        setmaxnreg.dec.sync.aligned.u32 {count};
    END:
    """
    rest = "setmaxnreg.dec.sync.aligned.u32 40;"
    assert run(body.format(rest=rest, count=40), block=128)[0].ok
    assert "different counts" in only(run(body.format(rest=rest, count=48), block=128)[0], "register-count").message
    assert "no setmaxnreg" in only(run(body.format(rest="", count=40), block=128)[0], "register-count").message


OWN = "mul.wide.u32 %rd10, %r0, 4; add.s64 %rd10, %rd0, %rd10; mov.u32 %r10, 0;"
UNDEFINED_BYTES = {
    "prmt": "prmt.b32 %r2, %r0, %r1, 0x3340; st.global.u8 [%rd10], %r2;",
    "two prmt": "prmt.b32 %r2, %r1, %r0, 0x7104; prmt.b32 %r3, %r2, %r0, 0x5140; st.global.u8 [%rd10], %r3;",
    "mask": "prmt.b32 %r2, %r0, %r1, 0x7610; and.b32 %r3, %r2, 65535; st.global.u32 [%rd10], %r3;",
    "shift": "prmt.b32 %r2, %r1, %r0, 0x7610; shr.u32 %r3, %r2, 16; st.global.u32 [%rd10], %r3;",
    "field": "prmt.b32 %r2, %r1, %r0, 0x3243; bfe.u32 %r3, %r2, 8, 8; st.global.u32 [%rd10], %r3;",
    "conversion": "prmt.b32 %r2, %r0, %r1, 0x7610; cvt.u16.u32 %h2, %r2; cvt.u32.u16 %r3, %h2; st.global.u32 [%rd10], %r3;",
    "bytes of a word": "cvt.u16.u32 %h2, %r0; mov.b32 %r2, {%h2, %h1}; st.global.u8 [%rd10], %r2;",
    "left": "prmt.b32 %r2, %r0, %r1, 0x7610; shl.b32 %r3, %r2, 16; st.global.u32 [%rd10], %r3;",
}
USED_BYTES = {
    "prmt": "prmt.b32 %r2, %r0, %r1, 0x3340; st.global.u16 [%rd10], %r2;",
    "mask": "prmt.b32 %r2, %r0, %r1, 0x7610; and.b32 %r3, %r2, 131071; st.global.u32 [%rd10], %r3;",
    "shift": "prmt.b32 %r2, %r1, %r0, 0x7610; shr.u32 %r3, %r2, 15; st.global.u32 [%rd10], %r3;",
    "signed shift": "prmt.b32 %r2, %r0, %r1, 0x7610; shr.s32 %r3, %r2, 24; st.global.u8 [%rd10+1], %r3;",
    "field": "prmt.b32 %r2, %r1, %r0, 0x3243; bfe.u32 %r3, %r2, 8, 9; st.global.u32 [%rd10], %r3;",
    "conversion": "prmt.b32 %r2, %r1, %r0, 0x7610; cvt.s16.s8 %h2, %r2; st.global.u16 [%rd10], %h2;".replace("cvt.s16.s8 %h2, %r2", "cvt.u16.u32 %h3, %r2; cvt.s16.s8 %h2, %h3"),
    "address": "prmt.b32 %r2, %r0, %r1, 0x3340; cvt.u64.u32 %rd11, %r2; add.s64 %rd11, %rd0, %rd11; st.global.u8 [%rd11], %r0;",
}  # fmt: skip


@pytest.mark.parametrize("name", UNDEFINED_BYTES)
def test_undefined_bytes_that_nobody_uses(name):
    report = run(OWN + UNDEFINED_BYTES[name])[0]
    assert report.ok, report


@pytest.mark.parametrize("name", USED_BYTES)
def test_undefined_bytes_that_somebody_uses(name):
    assert "uninitialised-register" in kinds(run(OWN + USED_BYTES[name])[0])

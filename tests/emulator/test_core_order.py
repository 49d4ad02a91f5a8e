"""Who may rely on what: relaxed and generic synchronisation, fences before their time, bytes of a word, memory of CTAs that may not run yet."""

import numpy as np
import pytest
from core_support import kernel, kinds, lanes, launch, only
from test_core_findings import WORDS, run

from zoo import emulator
from zoo.emulator import number_formats

SHARED = ".shared .align 16 .u32 data[64]; .shared .align 4 .u32 flag;"
POLICIES = ("issue", "last", "random")

# warp 0 writes data and raises the flag; warp 1 waits for the flag and reads
HANDOVER = """
    mov.u32 %r1, data;
    mov.u32 %r2, flag;
    cvta.shared.u64 %rd5, %rd4;
    setp.ge.u32 %p1, %r0, 32;
    setp.eq.u32 %p2, %r0, 0;
    @%p2 st.shared.u32 [%r2], 0;
    bar.sync 0;
    @%p1 bra READ;
    st.shared.u32 [%r1], 7;
    {raise_it}
    bra END;
READ:
    {look}
    setp.eq.u32 %p3, %r3, 0;
    @%p3 bra READ;
    {then}
    ld.shared.u32 %r4, [%r1];
END:
"""
GENERIC = "mov.u64 %rd4, flag;"


def handover(raise_it, look, then="", scheduling="issue"):
    body = GENERIC + HANDOVER.format(raise_it=raise_it, look=look, then=then)
    return run(body, shared=SHARED, block=64, scheduling=scheduling)[0]


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(
    ("raise_it", "look", "then"),
    [
        ("st.release.cta.shared.u32 [%r2], 1;", "ld.acquire.cta.shared.u32 %r3, [%r2];", ""),
        ("st.release.cta.u32 [%rd5], 1;", "ld.acquire.cta.u32 %r3, [%rd5];", ""),
        ("st.release.cta.u32 [%rd5], 1;", "ld.acquire.cta.shared.u32 %r3, [%r2];", ""),
        ("atom.add.release.cta.u32 %r9, [%rd5], 1;", "ld.acquire.cta.u32 %r3, [%rd5];", ""),
        ("atom.exch.acq_rel.cta.shared.b32 %r9, [%r2], 1;", "atom.or.acquire.cta.b32 %r3, [%rd5], 0;", ""),
        ("fence.acq_rel.cta; st.relaxed.cta.shared.u32 [%r2], 1;", "ld.relaxed.cta.shared.u32 %r3, [%r2];", "fence.acq_rel.cta;"),
        ("membar.cta; st.volatile.shared.u32 [%r2], 1;", "ld.volatile.shared.u32 %r3, [%r2];", "membar.cta;"),
        ("fence.release.cta; red.shared.add.u32 [%r2], 1;", "ld.relaxed.cta.u32 %r3, [%rd5];", "fence.acquire.cta;"),
    ],
)
def test_data_behind_a_flag(raise_it, look, then, scheduling):
    report = handover(raise_it, look, then, scheduling)
    assert report.ok, report


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(
    ("raise_it", "look", "then"),
    [
        ("st.relaxed.cta.shared.u32 [%r2], 1;", "ld.relaxed.cta.shared.u32 %r3, [%r2];", ""),
        ("st.volatile.shared.u32 [%r2], 1;", "ld.volatile.shared.u32 %r3, [%r2];", "membar.cta;"),
        ("membar.cta; st.volatile.shared.u32 [%r2], 1;", "ld.volatile.shared.u32 %r3, [%r2];", ""),
        ("red.relaxed.cta.shared.add.u32 [%r2], 1;", "ld.acquire.cta.shared.u32 %r3, [%r2];", ""),
        ("atom.add.release.cta.u32 %r9, [%rd5], 1;", "ld.relaxed.cta.u32 %r3, [%rd5];", ""),
    ],
)
def test_a_relaxed_flag_without_its_fence_is_a_race(raise_it, look, then, scheduling):
    assert "race" in kinds(handover(raise_it, look, then, scheduling))


def test_atomics_on_the_same_offset_of_two_ctas_do_not_order_each_other():
    """Each CTA's warp 0 releases in its own flag; CTA 0's warp 1 acquires in the other's."""
    body = """
        mov.u64 %rd4, flag; cvta.shared.u64 %rd5, %rd4;
        mov.u32 %r1, data; mov.u32 %r2, flag; mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1;
        mapa.u64 %rd6, %rd5, %r6;
        setp.eq.u32 %p2, %r0, 0;
        @%p2 st.shared.u32 [%r2], 0;
        barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
        setp.ge.u32 %p1, %r0, 32;
        @%p1 bra READ;
        st.shared.u32 [%r1], 7;
        atom.add.release.cluster.u32 %r9, [%rd5], 1;
        bra END;
    READ: atom.add.acquire.cluster.u32 %r3, [{where}], 0;
        setp.eq.u32 %p3, %r3, 0;
        @%p3 bra READ;
        ld.shared.u32 %r4, [%r1];
    END: barrier.cluster.arrive; barrier.cluster.wait;
    """
    options = {"shared": SHARED, "block": 64, "grid": 2, "cluster": 2}
    report = run(body.format(where="%rd5"), **options)[0]
    assert report.ok, report
    assert "race" in kinds(run(body.format(where="%rd6"), **options)[0])


# ---- cp.async --------------------------------------------------------------------------------------------------------
COPY = """
    mov.u32 %r1, stage;
    shl.b32 %r2, %r0, 4;
    add.u32 %r3, %r1, %r2;
    cvt.u64.u32 %rd5, %r2;
    add.s64 %rd6, %rd1, %rd5;
    cp.async.cg.shared.global [%r3], [%rd6], 16;
    cp.async.commit_group;
    {order}
    bar.sync 0;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r1], 512;
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_proxy_fence_before_the_copy_has_completed_covers_nothing(scheduling):
    options = {
        "shared": ".shared .align 128 .b8 stage[512];",
        "buffers": (512, np.arange(128, dtype=np.uint32)),
        "scheduling": scheduling,
    }
    report, gpu, (y, _) = run(COPY.format(order="cp.async.wait_group 0; fence.proxy.async;"), **options)
    assert report.ok, report
    assert gpu.read(y, 128, np.uint32).tolist() == list(range(128))
    early = run(COPY.format(order="fence.proxy.async; cp.async.wait_group 0;"), **options)[0]
    assert "missing-proxy-fence" in kinds(early)
    assert kinds(run(COPY.format(order="fence.proxy.async;"), **options)[0]) & {
        "race",
        "pending-destination",
        "missing-proxy-fence",
    }


def test_another_warp_does_not_see_a_copy_that_its_warp_has_not_waited_for():
    body = COPY.partition("bar.sync")[0] + "bar.sync 0; xor.b32 %r4, %r3, 512; ld.shared.u32 %r5, [%r4];"
    options = {
        "shared": ".shared .align 1024 .b8 stage[1024];",
        "buffers": (512, np.arange(256, dtype=np.uint32)),
        "block": 64,
        "scheduling": "issue",
    }
    assert run(body.format(order="cp.async.wait_all;"), **options)[0].ok
    assert "race" in kinds(run(body.format(order=""), **options)[0])


# ---- bytes of a word -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "type"), [(1, "u8"), (2, "u16")])
def test_two_warps_writing_the_same_small_element_race_and_neighbours_do_not(size, type):
    clear = f"mov.u32 %r1, data; mul.lo.u32 %r3, %r0, {size}; add.u32 %r3, %r3, %r1; st.shared.{type} [%r3], 0; bar.sync 0;"
    body = clear + f"cvt.u16.u32 %h1, %r0; {{index}} mul.lo.u32 %r3, %r2, {size}; add.u32 %r3, %r3, %r1; st.shared.{type} [%r3], %h1;"
    shared = ".shared .align 16 .b8 data[256];"
    assert run(body.format(index="mov.u32 %r2, %r0;"), shared=shared, block=64)[0].ok
    # even elements by one warp, odd ones by the other: the same words, other bytes
    apart = "and.b32 %r2, %r0, 31; shl.b32 %r2, %r2, 1; shr.u32 %r4, %r0, 5; add.u32 %r2, %r2, %r4;"
    assert run(body.format(index=apart), shared=shared, block=64)[0].ok
    reads_own = run(body.format(index=apart) + f"ld.shared.{type} %h2, [%r3];", shared=shared, block=64)[0]
    assert reads_own.ok, reads_own
    only(run(body.format(index="and.b32 %r2, %r0, 31;"), shared=shared, block=64)[0], "race")
    only(
        run(body.format(index=apart) + f"xor.b32 %r3, %r3, {size}; ld.shared.{type} %h2, [%r3];", shared=shared, block=64)[0],
        "race",
    )


# ---- lanes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "instruction",
    [
        "shfl.sync.bfly.b32 %r40, %r1, 1, 31, 0x0000ffff;",
        "vote.sync.ballot.b32 %r40, %p1, 1;",
        "redux.sync.add.u32 %r40, %r1, %r2;",
        "bar.warp.sync 3;",
    ],
)
def test_a_warp_operation_by_lanes_that_its_mask_does_not_name(instruction):
    mask = np.full(32, 0xFFFF, np.uint32)
    _, report = lanes("setp.ne.u32 %p1, %r1, 0; mov.u32 %r40, 0;" + instruction, WORDS[:32].copy(), mask)
    assert only(report, "convergence").lanes


# ---- mbarriers and copies --------------------------------------------------------------------------------------------
def test_reading_a_live_mbarrier():
    body = "mov.u32 %r1, bar; setp.eq.u32 %p1, %r0, 0; @%p1 mbarrier.init.shared.b64 [%r1], 1; bar.sync 0; ld.shared.u32 %r2, [%r1+4];"
    assert "live mbarrier" in only(run(body, shared=".shared .align 8 .u64 bar;")[0], "mbarrier-misuse").message


BULK = """
    mov.u32 %r1, bar; mov.u32 %r2, stage;
    setp.eq.u32 %p1, %r0, 0;
    @!%p1 bra END;
    mbarrier.init.shared.b64 [%r1], 1;
    {fence}
    mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r1];
W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    @!%p2 bra W;
END:
"""


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_copy_needs_the_init_of_its_barrier_fenced(scheduling):
    options = {
        "shared": ".shared .align 8 .u64 bar; .shared .align 128 .b8 stage[256];",
        "buffers": (16, WORDS),
        "scheduling": scheduling,
    }
    for fence in ("fence.mbarrier_init.release.cluster;", "fence.proxy.async.shared::cta;"):
        assert run(BULK.format(fence=fence), **options)[0].ok
    found = only(run(BULK.format(fence=""), **options)[0], "mbarrier-misuse")
    assert "fence.mbarrier_init" in found.message and found.severity == "warning"  # ptxas makes a NOP of it


@pytest.mark.parametrize(
    "touch",
    [
        "st.shared::cluster.u32 [%r3], 1;", "cvt.u64.u32 %rd5, %r2; cvta.shared.u64 %rd5, %rd5; mapa.u64 %rd5, %rd5, %r6; st.u32 [%rd5], 1;",
        "ld.shared::cluster.u32 %r4, [%r3];",
    ],
)  # fmt: skip
def test_memory_of_a_cta_that_may_not_have_started(touch):
    body = "mov.u32 %r2, data; st.shared.u32 [%r2], 0; mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r3, %r2, %r6; {sync}"
    end = "barrier.cluster.arrive; barrier.cluster.wait;"
    options = {"shared": SHARED, "grid": 2, "cluster": 2, "block": 32}
    started = run(body.format(sync="barrier.cluster.arrive; barrier.cluster.wait;") + touch + end, **options)[0]
    assert "exited-cta" not in kinds(started)
    report = run(body.format(sync="") + touch + end, **options)[0]
    assert "has started" in next(f for f in report.findings if f.kind == "exited-cta").message


# ---- global memory ---------------------------------------------------------------------------------------------------
def test_a_negative_index_reaches_nothing():
    report, gpu, (a, b) = run("sub.s64 %rd5, %rd0, %rd6; st.global.u32 [%rd5], 1;".replace("%rd6", str(1 << 22)), buffers=(WORDS, WORDS))
    only(report, "out-of-bounds")
    assert gpu.read(a, 64, np.uint32).tolist() == gpu.read(b, 64, np.uint32).tolist() == WORDS.tolist()


def test_a_tile_too_far_hits_no_other_allocation():
    report, _gpu, (_, _b) = run("st.global.u32 [%rd0+8192], 1;", buffers=(np.zeros(1024, np.uint32), np.zeros(1024, np.uint32)))
    only(report, "out-of-bounds")


def test_global_float_addition_flushes_and_shared_does_not():
    tiny = np.full(64, np.float32(1e-40))
    report, gpu, (a, _) = run("mov.f32 %f1, 0f00000001; red.global.add.f32 [%rd0], %f1;", buffers=(tiny, 16), block=1)
    assert gpu.read(a, 1, np.uint32)[0] == 0
    body = "mov.u32 %r1, data; st.shared.u32 [%r1], 71362; mov.f32 %f1, 0f00000001; red.shared.add.f32 [%r1], %f1; ld.shared.u32 %r2, [%r1]; st.global.u32 [%rd0], %r2;"
    report, gpu, (a, _) = run(body, shared=SHARED, buffers=(16, 16), block=1)
    assert report.ok and gpu.read(a, 1, np.uint32)[0] == 71363


def test_a_barrier_of_a_whole_grid():
    """Every CTA waits in global memory for all others, which need not be running yet."""
    body = """
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra DONE;
        atom.global.add.u32 %r1, [%rd1], 1;
        mov.u32 %r3, %nctaid.x;
    SPIN: atom.global.add.u32 %r2, [%rd1], 0;
        setp.lt.u32 %p2, %r2, %r3;
        @%p2 bra SPIN;
    DONE: bar.sync 0;
    """
    gpu = emulator.Device(arch="sm_90a", scheduling="issue", instruction_limit=5_000_000)
    counter = gpu.alloc(np.zeros(1, np.uint32))
    report = launch(kernel(body), device=gpu, grid=132, block=32, params=[0, counter])
    assert report.ok and gpu.read(counter, 1, np.uint32)[0] == 132


# ---- values and forms ------------------------------------------------------------------------------------------------
def one_value(text, *inputs):
    values, report = lanes(text, *[np.full(32, value, np.float32 if isinstance(value, float) else np.uint32) for value in inputs])
    assert report.ok, report
    return int(values[0])


def test_an_approximate_quotient_by_a_huge_number_is_zero():
    quotient = "div.{0}.f32 %f20, %f1, %f2; mov.b32 %r40, %f20;"
    assert one_value(quotient.format("approx"), 2.0**127, -(2.0**127)) == 0x80000000
    assert one_value(quotient.format("approx"), float("inf"), 2.0**127) == 0x7FFFFFFF
    assert one_value(quotient.format("approx"), 2.0**126, 2.0**126) == one_value(quotient.format("full"), 2.0**127, 2.0**127) == 0x3F800000


def test_ex2_of_bf16_flushes():
    assert one_value("cvt.u16.u32 %h1, %r1; ex2.approx.ftz.bf16 %h2, %h1; cvt.u32.u16 %r40, %h2;", 0xC302) == 0  # 2^-130
    assert one_value("cvt.u16.u32 %h1, %r1; ex2.approx.ftz.bf16 %h2, %h1; cvt.u32.u16 %r40, %h2;", 0xC2FC) == 0x0080  # 2^-126


def test_fma_of_f64_overflows_to_infinity():
    values, _ = lanes(
        "mov.f64 %fd1, 0d7FE0000000000000; mov.f64 %fd2, 0d4024000000000000; fma.rn.f64 %fd3, %fd1, %fd2, %fd2; mov.b64 %rd20, %fd3;",
        output=np.uint64,
    )
    assert set(values) == {0x7FF0000000000000}


@pytest.mark.parametrize(
    ("random", "upper", "lower"),
    [
        (0, 0x3F80, 0xBF80),
        (0x0000FFFF, 0x3F80, 0xBF81),
        (0xFFFF0000, 0x3F81, 0xBF80),
        (0x7FFF7FFF, 0x3F80, 0xBF80),
        (0x80008000, 0x3F81, 0xBF81),
    ],
)
def test_stochastic_rounding_to_bf16(random, upper, lower):
    """1 + 2^-8 is half a step above 1: 0x8000 of 0x10000 random values carry."""
    found = one_value("mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rs.bf16x2.f32 %r40, %f1, %f2, %r3;", 0x3F808000, 0xBF808000, random)
    assert found == upper << 16 | lower


def test_stochastic_rounding_to_f16():
    text = "mov.b32 %f1, %r1; cvt.rs.{}f16x2.f32 %r40, %f1, %f1, %r2;"
    assert one_value(text.format(""), 0x3F801000, 0x1000_0FFF) == 0x3C01_3C00
    assert one_value(text.format("satfinite."), 0x47800000, 0) == 0x7BFF_7BFF
    assert one_value(text.format("relu."), 0xBF801000, 0x1FFF_1FFF) == 0
    assert one_value(text.format(""), 0x33000000, 0x1000_0FFF) == 0x0001_0000  # 2^-25 is half of the smallest f16


@pytest.mark.parametrize("random", [0, 0xFFFFFFFF, 0x80808080])
@pytest.mark.parametrize(("name", "width"), [("e2m1", 4), ("e4m3", 8), ("e5m2", 8), ("e2m3", 8), ("e3m2", 8)])
def test_stochastic_rounding_to_four_small_floats(name, width, random):
    """A number of the format stays itself; the middle between two goes up from the upper half of all random values on, the sign apart."""
    format = number_formats.FORMATS[name]
    code = format.largest // 2 + np.arange(4)
    low, high = number_formats.decode(format, code), number_formats.decode(format, code + 1)
    text = "".join(f"mov.b32 %f{i}, %r{i};" for i in range(1, 5))
    text += f"cvt.rs.satfinite.{name}x4.f32 {'%h1' if width == 4 else '%r40'}, {{%f1, %f2, %f3, %f4}}, %r5;"
    text += "cvt.u32.u16 %r40, %h1;" if width == 4 else ""
    for values, expected in ((low, code), (-(low + high) / 2, code + (random > 0) + format.sign_bit)):
        found = one_value(text, *(int(bits) for bits in values.astype(np.float32).view(np.uint32)), random)
        assert found == sum(int(one) << width * (3 - place) for place, one in enumerate(expected))


@pytest.mark.parametrize(
    "instruction",
    [
        "prefetch.globbal.L7 [%rd0];", "createpolicy.fractionall.L3::evict_foo.b64 %rd5;", "nanosleep.f64 20;", "applypriority.glob.L2::evict_bogus [%rd0], 128;",
        "cp.async.bulk.prefetch.L2.globbal [%rd0], 16;", "cp.async.bulk.prefetch.tensor.9d.L2.global.foo [%rd0, {%r1}];", "add.relu.f16x2 %r1, %r2, %r3;",
        "redux.sync.add.abs.NaN.u32 %r1, %r2, -1;", "min.NaN.ftz.f64 %fd1, %fd2, %fd3;", "ex2.approx.ftz.f16 %h1, %h2;", "vote.sync.ballot.u32.f64.b32 %r1, %p1, -1;",
        "bar.sync.u32.f64 0;", "setmaxnreg.inc.sync.aligned.f64 40;", "cvt.pack.sat.u8.s32.b99 %r1, %r2, %r3;", "prmt.f64 %r1, %r2, %r3, 0;",
        "lop3.f32 %r1, %r2, %r3, %r4, 1;", "shf.l.wrap.u64 %r1, %r2, %r3, 1;", "ld.release.gpu.global.u32 %r1, [%rd0];", "st.acquire.gpu.global.u32 [%rd0], %r1;",
        "ld.global.ca.cg.u32 %r1, [%rd0];", "ld.global.gpu.u32 %r1, [%rd0];", "atom.global.inc.s32 %r1, [%rd0], 1;", "atom.global.add.b32 %r1, [%rd0], 1;",
        "setp.gt.b32 %p1, %r1, %r2;", "setp.lo.s32 %p1, %r1, %r2;", "atom.global.and.f32 %f1, [%rd0], %f2;", "and.f32 %f1, %f2, %f3;", "rem.f32 %f1, %f2, %f3;",
        "testp.finite.u32 %p1, %r1;", "dp4a.u32.f32 %r1, %r2, %r3, %r4;", "atom.global.exch.noftz.u32 %r1, [%rd0], 1;",
        "cvt.rs.satfinite.e4m3x4.f32 %r1, {%f1, %f2, %f3}, %r2;", "cvt.rs.e4m3x4.f32 %r1, {%f1, %f2, %f3, %f4}, %r2;", "st.bulk.weak.shared::cta [%r1], 8, 1;", "vabsdiff4.u32.u32 %r1, %r2, %r3;",
        "atom.global.and.b128 %r1, [%rd0], %r2;", "cvt.rn.satfinite.f16x2.e4m3x2 %r1, %h1;", "set.lt.and.u32.s32 %r1, %r2, %r3;",
        "rcp.approx.rz.f64 %fd1, %fd2;", "div.f64 %fd1, %fd2, %fd3;", "tcgen05.shift.cta_group::1.up [%r1];", "mov.u32 %r1, %envreg3;",
        "cvt.u32.u16 %r1, %h1, %r2;", "shfl.sync.bfly.b32 %r1, %r2, 1, 31, -1, 3;", "popc.b32 %r1, %r2, %r3;", "bfind.u32 %r1, %r2, %r3;",
        "cvt.u16 %h1, %h2;", "cvta.u64 %rd5, %rd6;", "dp4a.s32 %r1, %r2, %r3, %r4;", "prmt.b32 %r1, %r2;", "max.NaN.xorsign.abs.f16x2 %r1, %r2;",
    ],
)  # fmt: skip
def test_a_form_that_does_not_exist_is_refused_by_its_line(instruction):
    text = kernel("mov.u32 %r1, 1;\n" + instruction, target="sm_100a")
    line = 1 + text[: text.index(instruction)].count("\n")
    with pytest.raises(emulator.EmulatorError, match=f"PTX line {line}[: ]"):
        launch(text, params=[0, 0], arch="sm_100a")


# ---- the interface ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda gpu, m: gpu.tensor_map(0, "fp8", [16], [], [16]), "dtype 'fp8' is unknown"),
        (lambda gpu, m: gpu.tensor_map(0, "u8", [16], [], [16], "256B"), "swizzle '256B' is unknown"),
        (lambda gpu, m: gpu.tensor_map(0, "u8", [16, 4], [], [16]), "do not go together"),
        (lambda gpu, m: gpu.tensor_map(0, "u8", [16], [], [16], fill="ones"), "fill 'ones' is unknown"),
        (lambda gpu, m: emulator.Module(b"x"), "PTX text"),
        (lambda gpu, m: emulator.Module(""), "PTX text"),
        (lambda gpu, m: gpu.alloc(-5), "-5 bytes cannot be allocated"),
        (lambda gpu, m: gpu.alloc(10**12), "cannot be allocated"),
        (lambda gpu, m: gpu.launch(m, "k", 1, 32, shared_bytes=-5, params=[0, 0]), "shared_bytes"),
        (lambda gpu, m: gpu.launch(m, "k", 1.5, 32, params=[0, 0]), "a grid is"),
        (lambda gpu, m: gpu.launch(m, "k", 1, 32, params=[gpu.array(np.zeros(4, np.float32)), 0]), "its .address"),
        (lambda gpu, m: gpu.symbol(m, "zz"), "no variable 'zz'"),
        (lambda gpu, m: emulator.Device(arch="sm_90aaaf"), "not covered"),
        (
            lambda gpu, m: emulator.Device("sm_90"),
            "architecture 'sm_90' is not covered; did you mean sm_90a. It is one of sm_90a, sm_100a, sm_100f, ",
        ),
        (lambda gpu, m: emulator.Device("sm90"), "did you mean sm_90a"),
        (lambda gpu, m: emulator.Device(90), "architecture 90 is not covered"),
    ],
)
def test_misuse_of_the_interface_is_refused_in_words(call, words):
    with pytest.raises(emulator.EmulatorError, match=words):
        call(emulator.Device(arch="sm_90a"), emulator.Module(kernel("")))


def test_local_memory_that_this_thread_did_not_write():
    body = "mov.u64 %rd5, frame; setp.lt.u32 %p1, %r0, 31; @%p1 st.local.u32 [%rd5], %r0; ld.local.u32 %r2, [%rd5];"
    assert only(run(body, shared=".local .align 8 .b8 frame[16];")[0], "uninitialised-local")


@pytest.mark.parametrize(
    "instruction",
    [
        "ld.global.L2::cache_hint.u32 %r2, [%rd0], %rd5;", "st.global.L1::no_allocate.L2::cache_hint.v2.u32 [%rd0], {%r1, %r1}, %rd5;",
        "red.global.add.L2::cache_hint.u32 [%rd0], 1, %rd5;", "ld.global.nc.L1::evict_last.L2::128B.u32 %r2, [%rd0];", "ld.global.ca.u32 %r2, [%rd0];",
        "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %rd6, 0f3F000000;", "createpolicy.fractional.L2::evict_first.b64 %rd6;",
        "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 %rd6, [%rd0], 64, 128;", "prefetch.global.L2 [%rd0];",
        "prefetchu.L1 [%rd0];", "applypriority.global.L2::evict_normal [%rd0], 128;", "discard.global.L2 [%rd0], 128;",
        "cp.async.bulk.prefetch.L2.global [%rd0], 16;", "cp.async.bulk.prefetch.tensor.2d.L2.global.tile.L2::cache_hint [%rd0, {%r1, %r1}], %rd5;", "nanosleep.u32 20;",
        "fence.proxy.async.global;", "fence.sc.gpu;", "membar.gl;", "redux.sync.max.NaN.abs.f32 %f2, %f1, -1;", "prmt.b32.b4e %r2, %r1, %r1, 3;",
        "mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16;"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%r4], [%rd0], 16, [%r3], %rd5;"
        "W: mbarrier.try_wait.parity.shared.b64 %p1, [%r3], 0, 100; @!%p1 bra W;",
    ],
)  # fmt: skip
def test_a_form_that_does_exist_runs(instruction):
    body = "mov.u32 %r1, 1; mov.f32 %f1, 0f3F800000; mov.u64 %rd5, 0x1234; mov.u32 %r3, bar; mov.u32 %r4, data;" + instruction
    report = run(body, shared=SHARED + ".shared .align 8 .u64 bar;", buffers=(WORDS, 16), block=1)[0]
    assert report.ok, report


# ---- clusters ----------------------------------------------------------------------------------------------------------------------

# CTA i writes how many have begun before it.
BEGIN = """
    setp.ne.u32 %p1, %r0, 0;
    @%p1 bra END;
    atom.global.add.u32 %r1, [%rd1], 1;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ctaid.y;
    mad.lo.u32 %r2, %r3, 7, %r2;
    mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd4, %rd0, %rd4;
    st.global.u32 [%rd4], %r1;
END:
"""


def order_of_clusters(scheduling, seed, **options):
    report, gpu, (ranks, _) = run(BEGIN, buffers=(84, np.zeros(1, np.uint32)), grid=(7, 3), scheduling=scheduling, seed=seed, **options)
    assert report.ok, report
    return gpu.read(ranks, 21, np.uint32).tolist()


@pytest.mark.parametrize("scheduling", ["issue", "last"])
def test_clusters_begin_in_the_grids_order(scheduling):
    assert order_of_clusters(scheduling, 3) == list(range(21))


def test_random_scheduling_begins_clusters_in_an_order_that_follows_from_the_seed():
    orders = [order_of_clusters("random", seed) for seed in range(6)]
    assert all(sorted(order) == list(range(21)) for order in orders)
    assert len({order[0] for order in orders}) > 3 and max(order[0] for order in orders) > 10  # CTA 0 may be late
    assert order_of_clusters("random", 4) == orders[4]

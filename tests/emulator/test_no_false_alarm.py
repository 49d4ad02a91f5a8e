"""Kernels that compilers and libraries write and that are right: no finding. Beside each stands the mistake that it resembles."""

import numpy as np
import pytest
import test_blackwell_pitfalls as pitfalls
import test_core_findings as core
import test_core_tma as tma
import test_matrix_findings as matrix
from core_support import kernel, kinds, launch, only

from zoo import emulator

POLICIES = ["issue", "last", "random"]


def run(body, *, block=32, scheduling="last", buffers=(4096,), **options):
    gpu = emulator.Device(scheduling=scheduling)
    places = [gpu.alloc(buffer) for buffer in buffers]
    report = launch(kernel(body, parameters=len(buffers), **options), device=gpu, block=block, params=places)
    return report, gpu, places


# ---- threads that return early -----------------------------------------------------------------------------------------
RETURN = """
    setp.ge.u32 %p1, %r0, {live};
    @%p1 bra END;
    mov.u32 %r1, row;
    mad.lo.u32 %r2, %r0, 4, %r1;
    st.shared.u32 [%r2], %r0;
    {barrier}
    xor.b32 %r3, %r0, 32;
    mad.lo.u32 %r3, %r3, 4, %r1;
    ld.shared.u32 %r4, [%r3];
    mul.wide.u32 %rd1, %r0, 4;
    add.s64 %rd1, %rd1, %rd0;
    st.global.u32 [%rd1], %r4;
END:
"""
ROW = ".shared .align 4 .b8 row[1024];"


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.sync 0;", "bar.red.popc.u32 %r5, 0, %p1;"])
def test_a_barrier_waits_for_no_thread_that_has_returned(barrier, scheduling):
    """`if (i >= n) return;` before __syncthreads(): 64 of 128 threads go on."""
    report, gpu, (place,) = run(RETURN.format(live=64, barrier=barrier), block=128, scheduling=scheduling, shared=ROW)
    assert report.ok and not report.findings, report
    assert gpu.read(place, 64, np.uint32).tolist() == [lane ^ 32 for lane in range(64)]


def test_threads_that_return_while_others_wait_complete_the_barrier():
    late = "setp.lt.u32 %p1, %r0, 32; @%p1 bra MEET; mov.u32 %r9, 0; S: add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 900; @%p2 bra S; bra END; MEET: bar.sync 0; END:"
    report = run(late, block=96)[0]
    assert report.ok and not report.findings, report


def test_a_barrier_with_a_thread_count_waits_for_that_many():
    assert "deadlock" in kinds(run(RETURN.format(live=64, barrier="bar.sync 0, 128;"), block=128, shared=ROW)[0])
    # half a warp has returned: what is left of it arrives for the warp
    assert not run("setp.lt.u32 %p1, %r0, 16; @%p1 bra END; bar.sync 0; END:", block=64)[0].findings


# ---- tensor maps made on the device ----------------------------------------------------------------------------------
MAKE_A_MAP = """
    {zeros}
    bar.warp.sync -1;
    setp.eq.u32 %p1, %r0, 0;
    @!%p1 bra EDITED;
    tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r7], %rd1;
    tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r7], 1;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r7], 0, 16;
    tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r7], 1, 4;
    {dims}
    tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r7], 1, 3;
    tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r7], 0, 128;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r7], 0, 1;
    tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r7], 1, 1;
    tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r7], 2;
    tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r7], 0;
    tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r7], 0;
    tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r7], 0;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.mbarrier_init.release.cluster;
EDITED:
"""
ZEROS = "mov.u32 %r20, 0; mad.lo.u32 %r8, %r0, 4, %r7; st.shared.u32 [%r8], %r20;"
DIMS = "tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r7], 0, 16;"


def make_a_map(zeros=ZEROS, dims=DIMS, scheduling="last"):
    """One warp makes a map in zeroed shared memory, hands it to global memory and copies a box with it."""
    gpu = tma.device(scheduling=scheduling)
    data = np.arange(4 * 32, dtype=np.uint32).reshape(4, 32)
    y, x, place = gpu.alloc(256), gpu.alloc(data), gpu.alloc(128)
    start = tma.EDIT.index("    bar.sync 0;\n    {release}")
    head = "mov.u32 %r1, bar; mov.u32 %r2, tile; mov.u32 %r7, map;"
    body = (
        head
        + MAKE_A_MAP.format(zeros=zeros, dims=dims)
        + tma.EDIT[start:].format(release=tma.RELEASE, order="bar.sync 0;", acquire=tma.ACQUIRE)
    )
    body = body.replace("setp.eq.u32 %p1, %r0, 32;", "setp.eq.u32 %p1, %r0, 0;").replace(
        "add.u32 %r4, %r2, %r3;", "add.u32 %r4, %r2, %r3;", 1
    )
    shared = tma.SHARED.format(size=256) + ".shared .align 128 .b8 map[128];"
    report = launch(kernel(body, parameters=3, shared=shared, target="sm_100a"), device=gpu, params=[y, x, place])
    return report, gpu.read(y, 32, np.uint32), data


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_map_made_of_zeros_is_a_map(scheduling):
    report, found, data = make_a_map(scheduling=scheduling)
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(found, data[:2, :16].reshape(-1))


def test_a_map_made_of_anything_else_is_reported():
    assert "tensor-map" in kinds(make_a_map(zeros=ZEROS.replace("%r20, 0;", "%r20, 7;"))[0])
    assert "uninitialised-shared" in kinds(make_a_map(zeros="")[0])


# ---- registers of a load, packed -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize("used", [2, 1])
def test_registers_of_a_load_that_were_packed_and_then_used_need_no_wait(used, scheduling):
    """Four registers of a tcgen05.ld become two of 64 bits, which are stored before tensor memory is freed."""
    found = matrix.kinds(pack_and_free(used), scheduling=scheduling)
    assert found == (set() if used == 2 else {"tensor-memory-misuse"})


def pack_and_free(used):
    stores = "".join(f"    st.global.u64 [o+{8 * number}], %rd{number};\n" for number in range(used))
    body = """
    mov.u32 %r0, tid; mov.u32 %r1, tid;
    tcgen05.st.sync.aligned.32x32b.x4.b32 [column], {%r0, %r1, %r0, %r1};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r2, %r3, %r4, %r5}, [column];
    mov.b64 %rd0, {%r2, %r3};
    mov.b64 %rd1, {%r4, %r5};
    mul.wide.u32 s, tid, 16;
    add.u64 o, o, s;
"""
    return matrix.kernel("    .reg .b64 %rd<2>;\n" + body + stores)


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_register_of_a_store_to_tensor_memory_may_be_written_before_its_wait(scheduling):
    """Triton zeroes an accumulator from a register that it loads into next."""
    body = """
    mov.u32 %r0, tid;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [column], {%r0};
    add.u32 %r0, %r0, 7;
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [column];
    tcgen05.wait::ld.sync.aligned;
    mul.wide.u32 s, tid, 8;
    add.u64 o, o, s;
    st.global.v2.u32 [o], {%r0, %r1};
"""
    gpu = emulator.Device("sm_100a", scheduling)
    place = gpu.alloc(8 * 128)
    image, before = gpu.alloc(np.zeros(16, np.uint8)), gpu.alloc(np.zeros((128, 512), np.uint32))
    report = gpu.launch(matrix.kernel(body), "kernel", 1, 128, None, 1040, [image, 4, before, place, 0, 0, 0])
    assert report.ok and not report.findings, report
    assert gpu.read(place, (128, 2), np.uint32).tolist() == [[thread + 7, thread] for thread in range(128)]


# ---- coordinates of a refused answer -----------------------------------------------------------------------------------
@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(
    "discard", ["selp.b32 tile, tile, -1, taken;", "selp.b32 tile, -1, tile, refused;", "selp.b32 tile, tile, %r5, taken;"]
)
def test_coordinates_of_a_refused_answer_that_selp_discards(discard, scheduling):
    decide = f"not.pred refused, taken; {discard} st.global.u32 [%rd0+64], tile; @!taken bra END; mov.u32 %r5, tile; bra NEXT; END:"
    body = ".reg .pred refused;" + pitfalls.PERSISTENT.replace("{first}", pitfalls.ALWAYS).replace("{decide}", decide)
    report = pitfalls.run(body, grid=6, block=64, scheduling=scheduling)[0]
    assert report.ok and not report.findings, report
    wrong = body.replace(discard, discard.replace("taken", "refused") if "taken" in discard else discard.replace("refused", "taken"))
    assert "cluster-launch-control" in kinds(pitfalls.run(wrong, grid=6, block=64, scheduling=scheduling)[0])


# ---- lanes without a value ---------------------------------------------------------------------------------------------
SUM = """
    setp.lt.u32 %p1, %r0, 8;
    mul.wide.u32 %rd10, %r0, 4;
    add.s64 %rd11, %rd1, %rd10;
    add.s64 %rd12, %rd0, %rd10;
    @%p1 ld.global.f32 %f1, [%rd11];
    mul.f32 %f1, %f1, 0f40000000;
    mov.b32 %r1, %f1;
    shfl.sync.bfly.b32 %r2, %r1, 4, 31, -1;
    mov.b32 %f2, %r2;
    add.f32 %f3, %f1, %f2;
    rsqrt.approx.f32 %f4, %f3;
    {use}
"""
VALUES = np.array([1, 2, 3, 4, 7, 14, 29, 60] + [0] * 24, np.float32)


def sum_of_lanes(use):
    return run(SUM.format(use=use), buffers=(128, VALUES))


def test_lanes_without_a_value_may_be_shuffled_and_added_when_nobody_uses_the_sums():
    """Layer normalisation of rows shorter than a warp: 8 lanes load, all of them reduce, 8 lanes store."""
    report, gpu, (place, _) = sum_of_lanes("setp.gt.f32 %p2, %f1, %f2; selp.f32 %f5, %f1, %f2, %p2; @%p1 st.global.f32 [%rd12], %f5;")
    assert report.ok and not report.findings, report  # the place of the largest number, as Triton finds it
    np.testing.assert_array_equal(gpu.read(place, 8, np.float32), 2 * np.tile(VALUES[4:8], 2))
    report, gpu, (place, _) = sum_of_lanes("@%p1 st.global.f32 [%rd12], %f4;")
    assert report.ok and not report.findings, report
    sums = np.float32(2) * (VALUES[:4] + VALUES[4:8])
    np.testing.assert_allclose(gpu.read(place, 8, np.float32), 1 / np.sqrt(np.concatenate([sums, sums])), rtol=1e-6)


@pytest.mark.parametrize(("use", "lanes"), [
    ("st.global.f32 [%rd12], %f4;", 0xFFFFFF00), ("setp.gt.f32 %p2, %f3, %f2; selp.u32 %r5, %r0, 7, %p2; st.global.u32 [%rd12], %r5;", 0xFFFFFF00), ("st.global.f32 [%rd12], %f2;", 0xFFFFFF00),
    ("setp.lt.u32 %p2, %r0, 12; shfl.sync.down.b32 %r2, %r1, 4, 31, -1; @%p2 st.global.u32 [%rd12], %r2;", 0xFF0),
    ("setp.gt.f32 %p2, %f3, 0f00000000; @%p2 bra END; END:", 0xFFFFFF00), ("cvt.rzi.u64.f32 %rd13, %f3; add.s64 %rd13, %rd13, %rd12; st.global.u32 [%rd13], %r0;", 0xFFFFFF00),
])  # fmt: skip
def test_a_sum_with_a_lane_without_a_value_is_reported_where_it_is_used(use, lanes):
    findings = [one for one in sum_of_lanes(use)[0].findings if one.kind == "uninitialised-register"]
    assert [one.lanes for one in findings] == [lanes], findings


# ---- mapa ------------------------------------------------------------------------------------------------------------------
MAP = """
    mov.u32 %r1, row;
    mov.u32 %r2, %cluster_ctarank;
    add.u32 %r3, %r2, {step};
    setp.lt.u32 %p1, %r3, 2;
    {before}mapa.shared::cluster.u32 %r4, %r1, %r3;
    st.shared.u32 [%r1], %r2;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    {use}ld.shared::cluster.u32 %r5, [%r4];
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
"""


@pytest.mark.parametrize(("step", "before", "use", "expected"), [
    (1, "@%p1 ", "@%p1 ", set()), (1, "", "@%p1 ", set()), (255, "", "@%p1 ", set()), (300, "", "@%p1 ", set()),
    (1, "", "", {"out-of-bounds"}), (256, "", "", {"out-of-bounds"}), (1, "@%p1 ", "", {"uninitialised-register", "out-of-bounds"}),
])  # fmt: skip
def test_the_address_of_a_cta_that_is_not_there_may_be_computed_but_not_used(step, before, use, expected):
    text = kernel(MAP.format(step=step, before=before, use=use), parameters=0, shared=ROW)
    found = kinds(launch(text, grid=2, cluster=2, block=1))
    assert found <= expected and bool(found) == bool(expected)


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(("type", "value", "severity"), [("u32", "7", "warning"), ("u8", "7", "warning"), ("v2.u32", "{7, 9}", "warning"),
    ("u32", "%r2", "error"), ("u8", "%r2", "error"), ("v2.u32", "{7, %r2}", "error")])  # fmt: skip
def test_warps_that_write_the_same_value_are_a_warning(type, value, severity, scheduling):
    """Triton's histogram lets every warp clear every bin, and its warp specialisation lets every warp set the state of the others."""
    register = "%h1" if type == "u8" else "%r2"
    body = f"""
        shr.u32 %r2, %r0, 5; cvt.u16.u32 %h1, %r2; mov.u32 %r1, row; and.b32 %r3, %r0, 31; mad.lo.u32 %r1, %r3, 8, %r1;
        {"mov.u16 %h2, 7;" if type == "u8" else ""}
        st.shared.{type} [%r1], {value.replace("%r2", register) if value != "7" or type != "u8" else "%h2"};
    """
    report, _, _ = run(body, block=64, scheduling=scheduling, buffers=(), shared=ROW)
    assert only(report, "race").severity == severity and report.ok == (severity == "warning")


@pytest.mark.parametrize(("value", "severity"), [("7", "warning"), ("%r2", "error")])
def test_warps_that_store_one_matrix_are_a_warning(value, severity):
    """Triton's tiles of 16 by 16: each pair of four warps holds one half, and both store it."""
    body = f"""
        shr.u32 %r2, %r0, 5; mov.b32 %r4, {value}; mov.u32 %r1, row; and.b32 %r3, %r0, 7; mad.lo.u32 %r1, %r3, 16, %r1;
        stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {{%r4}};
    """
    report, _, _ = run(body, block=64, buffers=(), shared=ROW.replace("align 4", "align 16"))
    assert only(report, "race").severity == severity


# ---- bytes of a word -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("logic", "used", "found"), [
    ("lop3.b32 %r5, %r4, 0x7fff7fff, 0, 0xC0;", "{%h2, _}", set()), ("lop3.b32 %r5, %r4, 0x7fff7fff, 0, 0xC0;", "{_, %h2}", {"uninitialised-register"}),
    ("lop3.b32 %r5, %r4, 0xffff, %r0, 0xEA;", "{_, %h2}", set()), ("lop3.b32 %r5, %r4, 0x1ffff, %r0, 0xEA;", "{_, %h2}", {"uninitialised-register"}),
    ("lop3.b32 %r5, %r4, 0xffff0000, 0, 0xFC;", "{_, %h2}", set()), ("lop3.b32 %r5, %r0, %r4, %r0, 0x3C;", "{_, %h2}", {"uninitialised-register"}),
    ("lop3.b32 %r5, %r0, %r0, %r4, 0x3C;", "{_, %h2}", set()),
    ("add.u32 %r5, %r4, %r4;", "{%h2, _}", set()), ("add.u32 %r5, %r4, %r4;", "{_, %h2}", {"uninitialised-register"}),
    ("mad.lo.u32 %r5, %r4, 3, %r4;", "{%h2, _}", set()), ("mul.hi.u32 %r5, %r4, 3;", "{%h2, _}", {"uninitialised-register"}),
    ("sub.sat.s32 %r5, %r4, 3;", "{%h2, _}", {"uninitialised-register"}), ("set.nan.f16x2.f16x2 %r5, %r4, %r4;", "{%h2, _}", set()),
    ("set.nan.f16x2.f16x2 %r5, %r4, %r4;", "{_, %h2}", {"uninitialised-register"}),
])  # fmt: skip
def test_logic_and_sums_pass_on_the_bytes_that_they_depend_on(logic, used, found):
    """Triton converts from and to e5m2 in words of which it fills one number."""
    body = f"cvt.u16.u32 %h1, %r0; mov.b32 %r4, {{%h1, %h9}}; {logic} mov.b32 {used}, %r5; st.global.b16 [%rd0], %h2;"
    assert kinds(run(body)[0]) == found


# ---- one number of two ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("pack", "unpack"), [
    ("cvt.rn.satfinite.e4m3x2.f32 %h1, {};", "cvt.rn.f16x2.e4m3x2 %r5, %h1;"), ("cvt.rn.satfinite.e5m2x2.f32 %h1, {};", "cvt.rn.f16x2.e5m2x2 %r5, %h1;"),
    ("cvt.rn.f16x2.f32 %r4, {};", "cvt.rn.satfinite.e4m3x2.f16x2 %h1, %r4; cvt.rn.f16x2.e4m3x2 %r5, %h1;"), ("cvt.rn.bf16x2.f32 %r5, {};", ""),
])  # fmt: skip
@pytest.mark.parametrize(("first", "used", "found"), [
    ("%f20, %f1", "{%h2, _}", set()), ("%f1, %f20", "{_, %h2}", set()), ("%f20, %f1", "{_, %h2}", {"uninitialised-register"}),
    ("%f1, %f20", "{%h2, _}", {"uninitialised-register"}),
])  # fmt: skip
def test_a_conversion_of_two_numbers_of_which_one_is_used(pack, unpack, first, used, found):
    """Triton packs one number and whatever a register holds, and unpacks the one."""
    body = f"cvt.rn.f32.u32 %f1, %r0; {pack.format(first)} {unpack} mov.b32 {used}, %r5; st.global.b16 [%rd0], %h2;"
    report, _, _ = run(body)
    assert kinds(report) == found


@pytest.mark.parametrize("computing", [
    "add.f16x2 %r5, %r4, %r4;", "fma.rn.f16x2 %r5, %r4, %r4, %r4;", "mul.bf16x2 %r5, %r4, %r4;", "max.f16x2 %r5, %r4, %r4;", "neg.bf16x2 %r5, %r4;",
    "ex2.approx.f16x2 %r5, %r4;", "add.u16x2 %r5, %r4, %r4;", "min.s16x2 %r5, %r4, %r4;",
])  # fmt: skip
@pytest.mark.parametrize(("packed", "used", "found"), [
    ("{%h1, %h9}", "{%h2, _}", set()), ("{%h9, %h1}", "{_, %h2}", set()), ("{%h1, %h9}", "{_, %h2}", {"uninitialised-register"}),
    ("{%h9, %h1}", "{%h2, _}", {"uninitialised-register"}),
])  # fmt: skip
def test_packed_arithmetic_reports_an_undefined_half_only_if_its_result_is_used(computing, packed, used, found):
    """Triton adds one half of a register by a packed addition, whatever the other half holds."""
    body = f"cvt.u16.u32 %h1, %r0; mov.b32 %r4, {packed}; {computing} mov.b32 {used}, %r5; st.global.b16 [%rd0], %h2;"
    report, _, _ = run(body)
    assert kinds(report) == found


def test_an_addition_of_f32x2_reports_an_undefined_number_only_if_its_result_is_used():
    body = "cvt.rn.f32.u32 %f1, %r0; mov.b64 %rd5, {{{}}}; add.f32x2 %rd6, %rd5, %rd5; mov.b64 {{{}}}, %rd6; st.global.f32 [%rd0], %f2;"
    for packed, used, found in (("%f1, %f20", "%f2, %f3", set()), ("%f1, %f20", "%f3, %f2", {"uninitialised-register"})):
        gpu = emulator.Device("sm_100a")
        text = kernel(body.format(packed, used), parameters=1, target="sm_100a")
        assert kinds(launch(text, device=gpu, params=[gpu.alloc(64)])) == found


# ---- severities ------------------------------------------------------------------------------------------------------------
def test_a_bulk_store_that_outlives_its_cta_is_a_warning():
    body = core.STORE.format(fence=core.FENCE, late="", wait="bra END;", final="")
    for strict in (False, True):
        gpu = emulator.Device(scheduling="last", strict=strict)
        report = launch(
            kernel(body, shared=core.COPY_SHARED), device=gpu, block=64, params=[gpu.alloc(256), gpu.alloc(np.arange(64, dtype=np.uint32))]
        )
        finding = only(report, "pending-at-exit")
        assert finding.severity == "warning" and str(finding).startswith("warning, pending-at-exit: ") and report.ok == (not strict)


@pytest.mark.parametrize(("wait", "severities"), [("", {"warning"}), (".relaxed.cluster", {"warning", "error"})])
def test_a_missing_tcgen05_fence_is_an_error_only_behind_a_relaxed_wait(wait, severities):
    """Of the issuing warp it is a warning either way. Triton and CUTLASS wait with acquire, and without fences."""
    edit = matrix.EDITS["no fence after the wait"][0]
    relaxed = ("WAIT2:\n    mbarrier.try_wait.parity", f"WAIT2:\n    mbarrier.try_wait.parity{wait}")
    findings = matrix.findings(matrix.edited(matrix.FRESH, *edit, relaxed), **matrix.dense_case())
    assert {finding.kind for finding in findings} == {"missing-tcgen05-fence"}
    assert {finding.severity for finding in findings} == severities
    assert {finding.severity for finding in findings if finding.warp == 0} == {"warning"}


ADD_TO_STORED = matrix.mma_body("f16", accumulate=1, columns=32)[len(matrix.preload(512)) :]
RELAXED = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(("wait", "sync", "found"), [
    ("tcgen05.wait::st.sync.aligned;", "bar.sync 0;", set()),  # as Triton 3.8 orders them
    ("tcgen05.wait::st.sync.aligned;", RELAXED, {"missing-tcgen05-fence"}), ("", "bar.sync 0;", {"missing-wait"}),
])  # fmt: skip
def test_stores_that_were_waited_for_need_a_barrier_and_no_tcgen05_fences(wait, sync, found, scheduling):
    stored = f"    mov.u32 %r0, tid;\n    tcgen05.st.sync.aligned.32x32b.x32.b32 [column], {{{', '.join(['%r0'] * 32)}}};\n    {wait}\n    {sync}\n"
    reported = matrix.findings(matrix.edited(stored + ADD_TO_STORED), **matrix.dense_case(), scheduling=scheduling)
    kinds_of_errors = {finding.kind for finding in reported if finding.severity == "error"}
    assert found <= kinds_of_errors and (found or not kinds_of_errors), reported


BESIDE_D = """
    add.u32 t, column, {at};
    mov.u32 %r0, tid;
    tcgen05.st.sync.aligned.{shape} [t], {vector};
    tcgen05.wait::st.sync.aligned;
"""


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(("at", "shape", "found"), [
    (16 << 16, "16x64b.x16.b32", set()), (0, "16x64b.x16.b32", {"missing-wait"}), (16 << 16, "16x32bx2.x16.b32", set()),
    (0, "16x32bx2.x16.b32", {"missing-wait"}), (8 << 16, "16x64b.x16.b32", {"missing-wait"}),
])  # fmt: skip
def test_the_lanes_between_those_of_64_rows_hold_another_matrix(at, shape, found, scheduling):
    """A product of 64 rows occupies 16 lanes of every quarter. Triton keeps two matrices in the same columns."""
    vector = f"{'16, ' if 'bx2' in shape else ''}{{{', '.join(['%r0'] * 16)}}}"
    body = BESIDE_D.format(at=at, shape=shape, vector=vector)
    case = {**matrix.dense_case(), "idesc": matrix.dense_idesc(64, 32, 0, 0)}
    reported = matrix.findings(matrix.edited(matrix.FRESH, (matrix.WAIT_LOOP, body + matrix.WAIT_LOOP)), **case, scheduling=scheduling)
    assert found <= {finding.kind for finding in reported} and (found or not reported), reported


@pytest.mark.parametrize(("second", "found"), [(16, set()), (64, set()), (8, {"missing-wait"})])
def test_a_load_of_two_spans_leaves_the_columns_between_them(second, found):
    """16x32bx2 takes 16 columns, and 16 from an offset on: a store to columns 32 to 63 is in nobody's way."""
    spans = f"tcgen05.ld.sync.aligned.16x32bx2.x16.b32 {{{', '.join(f'%r{i}' for i in range(16))}}}, [column], {second};"
    between = (
        f"add.u32 t, column, 16; tcgen05.st.sync.aligned.16x64b.x8.b32 [t], {{{', '.join(['%r20'] * 8)}}}; tcgen05.wait::st.sync.aligned;"
    )
    if second == 16:
        between = between.replace("column, 16", "column, 32")
    body = f"mov.u32 %r20, tid;\n{spans}\n{between}\ntcgen05.wait::ld.sync.aligned;\n"
    start = matrix.preload(512).replace("{sync}", "bar.sync 0;")
    reported = matrix.findings(matrix.edited(start + body))
    assert {finding.kind for finding in reported} == found


ALLOCATE_AND_ARRIVE = """
    mov.u32 %r1, room;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 mbarrier.init.shared.b64 [%r1], 1;
    bar.sync 0;
    setp.ge.u32 %p2, %r0, 32;
    @%p2 bra WAIT;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1+8], 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    setp.eq.u32 %p3, %r0, 7;
    {more}
    @%p1 mbarrier.arrive.shared.b64 _, [%r1];
    bra.uni MEET;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %p4, [%r1], 0;
    @!%p4 bra WAIT;
    ld.shared.u32 %r2, [%r1+8];
    ld.shared.u32 %r3, [%r1+12];
    st.global.u32 [%rd0], %r2;
MEET:
    bar.sync 0;
    @%p2 bra END;
    ld.shared.u32 %r2, [%r1+8];
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
END:
"""


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(("more", "found"), [("@%p1 st.shared.u32 [%r1+12], 5;", set()), ("@%p3 st.shared.u32 [%r1+12], 5;", {"race"})])
def test_any_lane_publishes_the_address_that_its_warp_allocated(more, found, scheduling):
    """A store by another lane than the one that arrives is still a race."""
    gpu = emulator.Device("sm_100a", scheduling=scheduling)
    text = kernel(ALLOCATE_AND_ARRIVE.format(more=more), parameters=1, shared=".shared .align 8 .b8 room[16];", target="sm_100a")
    assert kinds(launch(text, device=gpu, block=64, params=[gpu.alloc(4)])) == found

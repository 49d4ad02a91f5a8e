"""Parsing, decoding, divergence, calls, memories, the launch interface and its report."""

import struct
import textwrap

import numpy as np
import pytest
from core_support import REGISTERS, kernel, lanes, launch

from zoo import emulator
from zoo.emulator.parser import parse


# ---- parsing and decoding --------------------------------------------------------------------------------------------
def test_scopes_have_their_own_registers_and_labels():
    body = """
        mov.u32 %r1, 1;
        { .reg .b32 %r1; .reg .pred P; mov.u32 %r1, 7; setp.eq.u32 P, %r1, 7; @P bra DONE; mov.u32 %r1, 8; DONE: mov.u32 %r5, %r1; }
        { .reg .b32 %r1; .reg .pred P; mov.u32 %r1, 9; setp.eq.u32 P, %r1, 9; @P bra DONE; mov.u32 %r1, 8; DONE: add.u32 %r5, %r5, %r1; }
        add.u32 %r40, %r1, %r5;
    """
    values, report = lanes(body)
    assert report.ok and set(values) == {17}


def test_numbers_of_every_form():
    body = "add.u32 %r1, 0x10, 010; add.u32 %r1, %r1, 0b11; add.u32 %r1, %r1, 5U; sub.u32 %r1, %r1, -1; mov.f32 %f1, 0f40000000; cvt.rzi.u32.f32 %r2, %f1; add.u32 %r40, %r1, %r2;"
    values, report = lanes(body)
    assert report.ok and set(values) == {16 + 8 + 3 + 5 + 1 + 2}


def test_line_information_reaches_the_finding():
    text = (
        kernel(".loc 1 42 7\n mov.u32 %r1, tile; ld.shared.u32 %r2, [%r1];", parameters=0, shared=".shared .b32 tile;")
        + '\n.file 1 "folder/code.cu"\n'
    )
    assert launch(text).findings[0].source == "folder/code.cu:42"


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("mov.u32 %r1, %r2\n add.u32 %r1, %r1, 1;", "PTX line"),
        ("mov.u32 %r1, %undeclared;", "'%undeclared' is not declared"),
        ("bra NOWHERE;", "'NOWHERE' is not declared"),
        (".reg .b32 %x<3;", "PTX line"),
        ("mov.u32 %r1, `;", "unexpected text"),
    ],
)
def test_what_is_not_ptx_is_refused_with_its_line(body, where):
    with pytest.raises(emulator.ParseError, match=where):
        parse(kernel(body))


@pytest.mark.parametrize(
    "instruction",
    [
        "frobnicate.b32 %r1, %r2;", "add.wonderful.s32 %r1, %r2, %r3;", "mul.f16x3 %r1, %r2, %r3;", "ld.global.L3::fast.u32 %r1, [%rd0];",
        "mbarrier.try_wait.shared::cluster.b64 %p1, [%r1], %rd1;", "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd0, {%r1, %r2}], [%r1];",
        "atom.global.add.b128 %r1, [%rd0], %r2;", "tensormap.replace.tile.elemtype.global.b1024.b32 [%rd0], %r1;", "add.u32 %rd0, %r1, %r2;", "setp.lt.and.u32 %p1, %r1, %r2;",
    ],
)  # fmt: skip
def test_unknown_instruction_or_modifier_is_refused_with_its_line(instruction):
    text = kernel("mov.u32 %r1, 1;\n" + instruction)
    line = 1 + text[: text.index(instruction)].count("\n")
    with pytest.raises(emulator.UnsupportedInstruction, match=f"PTX line {line}: "):
        launch(text, params=[0, 0])


def test_debug_sections_and_directives_are_skipped():
    text = (
        kernel('.pragma "nounroll";\n', directives=".maxntid 64, 1, 1 .minnctapersm 2 .maxnreg 64")
        + ".section .debug_str { L: .b8 104, 105, 0 }\n"
    )
    assert launch(text, params=[0, 0]).completed


# ---- control flow ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
def test_lanes_between_two_spinning_groups_go_on(scheduling):
    """A semaphore: lane 1 holds it, lane 0 waits at a lower line and the others wait at a higher line."""
    body = """
        mov.u32 %r1, flag;
        setp.eq.u32 %p1, %r0, 0; @%p1 bra LOW;
        setp.gt.u32 %p1, %r0, 1; @%p1 bra HIGH; bra HOLDER;
    LOW: ld.volatile.shared.u32 %r2, [%r1]; setp.ne.u32 %p2, %r2, 1; @%p2 bra LOW; st.volatile.shared.u32 [%r1], 2; bra END;
    HOLDER: add.u32 %r9, %r9, 1; setp.lt.u32 %p2, %r9, 50; @%p2 bra HOLDER; st.volatile.shared.u32 [%r1], 1; bra END;
    HIGH: ld.volatile.shared.u32 %r2, [%r1]; setp.ne.u32 %p2, %r2, 2; @%p2 bra HIGH;
    END:
    """
    gpu = emulator.Device(scheduling=scheduling, instruction_limit=1_000_000)
    body = "mov.u32 %r1, flag; mov.u32 %r9, 0; st.volatile.shared.u32 [%r1], %r9; bar.warp.sync -1;" + body
    assert launch(kernel(body, parameters=0, shared=".shared .b32 flag;"), device=gpu).completed


def test_divergent_loop_reconverges():
    body = """
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
    LOOP:
        add.u32 %r2, %r2, %r1;
        add.u32 %r1, %r1, 1;
        setp.le.u32 %p1, %r1, %r0;
        @%p1 bra LOOP;
        activemask.b32 %r3;
        setp.eq.u32 %p2, %r3, -1;
        selp.u32 %r40, %r2, 999, %p2;
    """
    values, report = lanes(body)
    assert report.ok
    np.testing.assert_array_equal(values, [lane * (lane + 1) // 2 for lane in range(32)])


def test_indexed_branch():
    body = """
        and.b32 %r1, %r0, 3;
    T:  .branchtargets A, B, C, B;
        brx.idx %r1, T;
    A:  mov.u32 %r40, 10; bra.uni END;
    B:  mov.u32 %r40, 20; bra.uni END;
    C:  mov.u32 %r40, 30;
    END:
    """
    values, report = lanes(body)
    assert report.ok
    np.testing.assert_array_equal(values, [[10, 20, 30, 20][lane & 3] for lane in range(32)])


FUNCTIONS = """
.version 9.0
.target sm_90a
.address_size 64
.func (.param .b32 result) square(.param .b32 x)
{ .reg .b32 %r<4>; .reg .pred %p<2>;
  ld.param.u32 %r1, [x]; setp.gt.u32 %p1, %r1, 20; @%p1 bra BIG;
  mul.lo.u32 %r2, %r1, %r1; st.param.b32 [result+0], %r2; ret;
BIG: mov.u32 %r3, 1; st.param.b32 [result+0], %r3; ret; }
.func (.param .b32 result) twice(.param .b32 x)
{ .reg .b32 %r<4>; ld.param.u32 %r1, [x];
  { .param .b32 param0; st.param.b32 [param0+0], %r1; .param .b32 retval0; call.uni (retval0), square, (param0); ld.param.b32 %r2, [retval0+0]; }
  add.u32 %r2, %r2, %r2; st.param.b32 [result], %r2; ret; }
.visible .entry k(.param .u64 k_0)
{
"""


def test_calls_with_lanes_that_call_different_functions():
    body = """
        ld.param.u64 %rd0, [k_0];
        mov.u32 %r0, %tid.x;
        setp.lt.u32 %p1, %r0, 16;
        @%p1 bra S;
        { .param .b32 param0; st.param.b32 [param0+0], %r0; .param .b32 retval0; call (retval0), twice, (param0); ld.param.b32 %r1, [retval0+0]; }
        bra END;
    S:  { .param .b32 param0; st.param.b32 [param0+0], %r0; .param .b32 retval0; call (retval0), square, (param0); ld.param.b32 %r1, [retval0+0]; }
    END: mul.wide.u32 %rd1, %r0, 4;
        add.s64 %rd1, %rd0, %rd1;
        st.global.u32 [%rd1], %r1;
        ret;
    }
    """
    gpu = emulator.Device(scheduling="random", seed=4)
    out = gpu.alloc(128)
    report = launch(FUNCTIONS + REGISTERS + textwrap.dedent(body), device=gpu, params=[out])
    assert report.ok, report
    square = [lane * lane if lane <= 20 else 1 for lane in range(32)]
    np.testing.assert_array_equal(gpu.read(out, 32, np.uint32), [square[lane] * (1 if lane < 16 else 2) for lane in range(32)])


# ---- memories --------------------------------------------------------------------------------------------------------
def test_struct_parameter_constants_globals_and_local_memory():
    text = (
        """
.version 9.0
.target sm_90a
.address_size 64
.const .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};
.global .align 8 .u64 pointer = generic(table);
.global .align 4 .u32 counter;
.visible .entry k(.param .align 16 .b8 k_0[32], .param .u64 k_1, .param .f32 k_2)
{
    .local .align 4 .b8 depot[64];
    .reg .b64 %SP; .reg .b64 %SPL;
"""
        + REGISTERS
        + """
    mov.u64 %SPL, depot;
    cvta.local.u64 %SP, %SPL;
    ld.param.u64 %rd1, [k_1];
    ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [k_0+16];
    mov.u32 %r0, %tid.x;
    st.local.u32 [%SPL+4], %r0;
    ld.u32 %r5, [%SP+4];
    ld.global.u64 %rd2, [pointer];
    ld.u32 %r6, [%rd2+4];
    ld.const.u32 %r7, [table];
    add.u32 %r8, %r4, %r5;
    add.u32 %r8, %r8, %r6;
    add.u32 %r8, %r8, %r7;
    ld.param.f32 %f1, [k_2];
    cvt.rzi.u32.f32 %r9, %f1;
    add.u32 %r8, %r8, %r9;
    mul.wide.u32 %rd3, %r0, 4;
    add.s64 %rd3, %rd1, %rd3;
    st.global.u32 [%rd3], %r8;
    mov.u64 %rd4, counter;
    red.global.add.u32 [%rd4], 1;
    ret;
}
"""
    )
    gpu = emulator.Device(scheduling="issue")
    module = emulator.Module(text)
    out = gpu.alloc(128)
    report = gpu.launch(module, "k", 1, 32, params=[struct.pack("<8I", *range(100, 108)), out, 1000.5])
    assert report.ok, report
    np.testing.assert_array_equal(gpu.read(out, 32, np.uint32), 107 + np.arange(32) + 2 + 1 + 1000)
    assert gpu.read(gpu.symbol(module, "counter"), 1, np.uint32)[0] == 32


@pytest.mark.parametrize(
    ("operation", "start", "expected"),
    [("add", 5, 5 + 496), ("max", 7, 31), ("min", 7, 0), ("or", 0, 31), ("exch", 9, 31), ("inc", 3, None)],
)
def test_atomics_serialise_the_lanes(operation, start, expected):
    gpu = emulator.Device(scheduling="issue")
    word = gpu.alloc(np.array([start], np.uint32))
    old = gpu.alloc(128)
    body = f"atom.global.{operation}.{'b32' if operation in ('or', 'exch') else 'u32'} %r1, [%rd0], %r0; mul.wide.u32 %rd5, %r0, 4; add.s64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], %r1;"
    report = launch(kernel(body), device=gpu, params=[word, old])
    assert report.ok, report
    value = start
    seen = []
    for lane in range(32):
        seen.append(value)
        value = {
            "add": value + lane,
            "max": max(value, lane),
            "min": min(value, lane),
            "or": value | lane,
            "exch": lane,
            "inc": 0 if value >= lane else value + 1,
        }[operation]
    np.testing.assert_array_equal(gpu.read(old, 32, np.uint32), seen)
    assert gpu.read(word, 1, np.uint32)[0] == value and expected in (None, value)


def test_loads_extend_and_stores_truncate():
    data = np.array([0x80, 0x7F, 0xFF, 0x01] * 8, np.uint8)
    gpu = emulator.Device(scheduling="issue")
    source, out = gpu.alloc(data), gpu.alloc(256)
    body = """
        cvt.u64.u32 %rd5, %r0;
        add.s64 %rd6, %rd0, %rd5;
        ld.global.s8 %r1, [%rd6];
        ld.global.u8 %h1, [%rd6];
        cvt.u32.u16 %r2, %h1;
        mul.wide.u32 %rd7, %r0, 8;
        add.s64 %rd7, %rd1, %rd7;
        st.global.v2.u32 [%rd7], {%r1, %r2};
    """
    assert launch(kernel(body), device=gpu, params=[source, out]).ok
    values = gpu.read(out, (32, 2), np.int32)
    np.testing.assert_array_equal(values[:, 0], data.view(np.int8))
    np.testing.assert_array_equal(values[:, 1], data)


def test_printf_and_assert_are_reported():
    text = (
        """
.version 9.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 $str[12] = {120, 61, 37, 100, 32, 37, 46, 49, 102, 0};
.visible .entry k() {
    .local .align 8 .b8 depot[16];
"""
        + REGISTERS
        + """
    mov.u64 %rd0, depot;
    cvta.local.u64 %rd1, %rd0;
    mov.u32 %r0, %tid.x;
    neg.s32 %r1, %r0;
    st.local.u32 [%rd0], %r1;
    st.local.f64 [%rd0+8], 0d3FF8000000000000;
    mov.u64 %rd2, $str;
    cvta.global.u64 %rd2, %rd2;
    { .param .b64 p0; st.param.b64 [p0], %rd2; .param .b64 p1; st.param.b64 [p1], %rd1; .param .b32 r0; call.uni (r0), vprintf, (p0, p1); }
    ret;
}
"""
    )
    assert launch(text, block=2).printed == ["x=0 1.5", "x=-1 1.5"]


# ---- the launch interface --------------------------------------------------------------------------------------------
SPECIALS = ["%tid.x", "%tid.y", "%ntid.x", "%ctaid.x", "%ctaid.y", "%nctaid.y", "%laneid", "%warpid", "%cluster_ctarank", "%lanemask_lt"]


@pytest.mark.parametrize("name", SPECIALS)
def test_special_registers(name):
    body = f"""
        mov.u32 %r1, {name};
        mov.u32 %r2, %tid.y; mov.u32 %r3, %ntid.x; mad.lo.u32 %r4, %r2, %r3, %r0;
        mov.u32 %r5, %ctaid.y; mov.u32 %r6, %nctaid.x; mov.u32 %r7, %ctaid.x; mad.lo.u32 %r8, %r5, %r6, %r7;
        mov.u32 %r9, %ntid.y; mul.lo.u32 %r10, %r3, %r9; mad.lo.u32 %r11, %r8, %r10, %r4;
        mul.wide.u32 %rd5, %r11, 4; add.s64 %rd5, %rd0, %rd5; st.global.u32 [%rd5], %r1;
    """
    gpu = emulator.Device(scheduling="random", seed=3)
    out = gpu.alloc(4 * 12 * 40)
    report = launch(kernel(body, parameters=1), device=gpu, grid=(4, 3), block=(8, 5), cluster=2, params=[out])
    assert report.ok, report
    found = gpu.read(out, (3, 4, 5, 8), np.uint32)
    cy, cx, ty, tx = np.meshgrid(range(3), range(4), range(5), range(8), indexing="ij")
    thread = ty * 8 + tx
    wanted = {
        "%tid.x": tx, "%tid.y": ty, "%ntid.x": 8, "%ctaid.x": cx, "%ctaid.y": cy, "%nctaid.y": 3, "%laneid": thread % 32, "%warpid": thread // 32,
        "%cluster_ctarank": cx % 2, "%lanemask_lt": (1 << thread % 32) - 1,
    }[name]  # fmt: skip
    np.testing.assert_array_equal(found, np.broadcast_to(wanted, found.shape))


def test_report_counts_instructions_and_bytes():
    gpu = emulator.Device(scheduling="issue")
    a, b = gpu.alloc(np.zeros(64, np.uint32)), gpu.alloc(256)
    body = "mul.wide.u32 %rd5, %r0, 4; add.s64 %rd6, %rd0, %rd5; ld.global.u32 %r1, [%rd6]; add.s64 %rd7, %rd1, %rd5; st.global.u32 [%rd7], %r1;"
    report = launch(kernel(body), device=gpu, block=64, params=[a, b])
    assert report.ok and report.bytes["global read"] == report.bytes["global written"] == 256
    assert report.instructions["ld.global.u32"] == 2 and report.instructions["add.s64"] == 4
    assert report.warp_instructions == sum(report.instructions.values())
    assert "completed" in str(report)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"params": [0]}, "takes 2 parameters, 1 were given"),
        ({"params": [0, 1 << 64]}, "does not fit 8 bytes"),
        ({"params": [0, b"123"]}, "has 8 bytes, 3 were given"),
        ({"params": [0, "x"]}, "not str"),
        ({"block": 1025}, "1 to 1024 threads"),
        ({"block": 0}, "positive"),
        ({"grid": 3, "cluster": 2}, "not a multiple of the cluster"),
        ({"shared_bytes": 300_000}, "bytes of shared memory"),
        ({"arch": "sm_100a"}, "does not run on sm_100a"),
        ({"scheduling": "lazy"}, "is one of issue, last, random"),
    ],
)
def test_launches_that_make_no_sense_are_refused(change, message):
    with pytest.raises(emulator.EmulatorError, match=message):
        launch(kernel(""), **{"params": [0, 0], **change})


def test_a_packed_parameter_block():
    gpu = emulator.Device(scheduling="issue")
    out = gpu.alloc(4)
    module = emulator.Module(kernel("cvt.u32.u64 %r1, %rd1; st.global.u32 [%rd0], %r1;"))
    assert gpu.launch(module, "k", 1, 1, params=struct.pack("<QQ", out, 77)).ok
    assert gpu.read(out, 1, np.uint32)[0] == 77
    with pytest.raises(emulator.EmulatorError, match="has 16 bytes, 8 were given"):
        gpu.launch(module, "k", 1, 1, params=bytes(8))


def test_wrong_entry_names_the_entries():
    with pytest.raises(emulator.EmulatorError, match="it has k"):
        emulator.Device().launch(emulator.Module(kernel("")), "wrong", 1, 32)


def test_reading_outside_an_allocation_is_refused():
    gpu = emulator.Device()
    with pytest.raises(emulator.EmulatorError, match="not inside one allocation"):
        gpu.read(gpu.alloc(16), 5, np.uint32)


def test_random_schedules_differ_and_repeat():
    """Unordered atomics show the order of warps: seeds give different orders, one seed always the same."""
    body = "atom.global.add.u32 %r1, [%rd0], 1; mul.wide.u32 %rd5, %r0, 4; add.s64 %rd5, %rd1, %rd5; st.global.u32 [%rd5], %r1;"
    module = emulator.Module(kernel(body))

    def order(seed):
        gpu = emulator.Device(scheduling="random", seed=seed)
        counter, out = gpu.alloc(np.zeros(1, np.uint32)), gpu.alloc(1024)
        assert gpu.launch(module, "k", 1, 256, params=[counter, out]).ok
        return tuple(gpu.read(out, 256, np.uint32))

    orders = [order(seed) for seed in range(6)]
    assert len(set(orders)) > 1
    assert [order(seed) for seed in range(6)] == orders


def test_a_grid_that_waits_for_its_last_cta_finishes():
    """CTA 0 spins on a flag in global memory that the last CTA sets: CTAs are admitted side by side."""
    body = """
        mov.u32 %r1, %ctaid.x;
        setp.eq.u32 %p1, %r1, 5;
        @%p1 bra SET;
    W:  ld.acquire.gpu.global.u32 %r2, [%rd0];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra W;
        bra END;
    SET: st.release.gpu.global.u32 [%rd0], 1;
    END:
    """
    for scheduling in ("issue", "random"):
        gpu = emulator.Device(scheduling=scheduling)
        report = launch(kernel(body, parameters=1), device=gpu, grid=6, params=[gpu.alloc(np.zeros(1, np.uint32))])
        assert report.ok, report


def test_who_sleeps_on_a_flag_does_not_hold_up_the_copy_that_it_stands_for():
    """Warp 1 sleeps until warp 0 has a copy and sets a flag. Copies come as late as is legal, and sleeping is not for ever."""
    body = """
        mov.u32 %r1, bar;
        mov.u32 %r2, stage;
        setp.ge.u32 %p1, %r0, 32;
        @%p1 bra SLEEP;
        setp.ne.u32 %p1, %r0, 0;
        @%p1 bra END;
        mbarrier.init.shared.b64 [%r1], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 256;
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r1];
    W:  mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
        @!%p2 bra W;
        st.release.gpu.global.u32 [%rd0], 1;
        bra END;
    SLEEP:
        ld.acquire.gpu.global.u32 %r3, [%rd0];
        setp.ne.u32 %p3, %r3, 0;
        @%p3 bra END;
        nanosleep.u32 100;
        bra SLEEP;
    END:
    """
    text = kernel(body, shared=".shared .align 8 .u64 bar; .shared .align 128 .b8 stage[256];")
    gpu = emulator.Device(scheduling="last", multiprocessors=1, instruction_limit=100_000)
    report = launch(text, device=gpu, block=64, params=[gpu.alloc(np.zeros(1, np.uint32)), gpu.alloc(np.zeros(64, np.uint32))])
    assert report.ok, report


def test_speed_of_integer_and_float_code():
    """The target is 100,000 warp instructions a second; a quarter of it fails only when something is badly wrong."""
    import time

    body = """
        mov.u32 %r1, 0; mov.f32 %f1, 0f3F800000;
    L:  mad.lo.u32 %r2, %r1, 1664525, 1013904223; xor.b32 %r2, %r2, %r0; shr.u32 %r3, %r2, 7; cvt.rn.f32.u32 %f2, %r3;
        fma.rn.f32 %f1, %f1, 0f3F000000, %f2; add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 500; @%p1 bra L;
    """
    start = time.perf_counter()
    report = launch(kernel(body), block=128, params=[0, 0])
    assert report.ok and report.warp_instructions / (time.perf_counter() - start) > 25_000

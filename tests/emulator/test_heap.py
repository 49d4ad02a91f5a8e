"""malloc and free in kernels: separate blocks, a limit, wrong calls of free, and accesses to freed blocks."""

import numpy as np
import pytest
from core_support import kernel, kinds

from zoo import emulator
from zoo.emulator.heap import BYTES

HEAP = ".extern .func (.param .b64 result) malloc (.param .b64 size);\n.extern .func free (.param .b64 block);\n"
STORE = "mul.wide.u32 %rd30, %r0, 4; add.u64 %rd30, %rd0, %rd30; st.global.u32 [%rd30], %r40;"


def malloc(register, size):
    text = f"st.param.b64 [a], {size}; call.uni (b), malloc, (a); ld.param.b64 {register}, [b];"
    return f"{{ .param .b64 a; .param .b64 b; {text} }} "


def free(address):
    return f"{{ .param .b64 a; st.param.b64 [a], {address}; call.uni free, (a); }} "


def run(body, ctas=1, **options):
    gpu = emulator.Device("sm_90a", **options)
    out = gpu.alloc(np.zeros(32, np.uint32))
    text = kernel(f"{body}\n{STORE}", parameters=1).replace(".visible", f"{HEAP}.visible", 1)
    report = gpu.launch(emulator.Module(text, whole=False), "k", ctas, 32, params=[out])
    return gpu.read(out, 32, np.uint32), report, gpu


@pytest.mark.parametrize("policy", ["issue", "last", "random"])
def test_each_lane_has_a_block_of_its_own_that_it_reads_back_and_frees(policy):
    body = malloc("%rd1", 16) + "st.u32 [%rd1+12], %r0; bar.warp.sync -1; ld.u32 %r40, [%rd1+12]; " + free("%rd1") + free(0)
    values, report, gpu = run(body, scheduling=policy)
    assert report.ok and not report.findings and values.tolist() == list(range(32))
    assert gpu.heap.allocate(BYTES)  # all was given back


def test_a_block_that_no_kernel_freed_stays_allocated_in_the_next_launch():
    gpu = emulator.Device("sm_90a")
    out = gpu.alloc(np.zeros(1, np.uint64))
    keeps = malloc("%rd1", 8) + "st.u64 [%rd1], 77; st.global.u64 [%rd0], %rd1;"
    reads = "ld.global.u64 %rd1, [%rd0]; ld.u64 %rd2, [%rd1]; st.global.u64 [%rd0], %rd2; " + free("%rd1")
    for body in (keeps, reads):
        text = kernel(body, parameters=1).replace(".visible", f"{HEAP}.visible", 1)
        assert gpu.launch(emulator.Module(text, whole=False), "k", 1, 1, params=[out]).ok
    assert gpu.read(out, 1, np.uint64)[0] == 77


def test_malloc_of_more_than_the_heap_or_of_no_bytes_gives_null():
    asks = f"mov.u64 %rd2, 0; setp.eq.u32 %p1, %r0, 0; @%p1 mov.u64 %rd2, {BYTES + 1}; "
    values, report, _ = run(asks + malloc("%rd1", "%rd2") + "setp.eq.u64 %p2, %rd1, 0; selp.u32 %r40, 1, 2, %p2;")
    assert report.ok and values.tolist() == [1] * 32


def test_a_use_after_free_is_out_of_bounds():
    _, report, _ = run(malloc("%rd1", 8) + "st.u32 [%rd1], 5; " + free("%rd1") + "ld.u32 %r40, [%rd1];")
    assert kinds(report) == {"out-of-bounds"}


def test_a_write_past_the_end_of_a_block_is_out_of_bounds():
    _, report, _ = run(malloc("%rd1", 8) + "st.u32 [%rd1+8], 5; mov.u32 %r40, 0;")
    assert kinds(report) == {"out-of-bounds"}


def test_a_second_free_and_a_free_of_an_address_inside_a_block_are_reported():
    for body in (free("%rd1") + free("%rd1"), "add.u64 %rd2, %rd1, 4; " + free("%rd2"), free("%rd0")):
        _, report, _ = run(malloc("%rd1", 8) + body + "mov.u32 %r40, 0;")
        assert kinds(report) == {"invalid-free"}


def test_ctas_that_share_the_heap_stay_in_one_process():
    values, report, _ = run(malloc("%rd1", 8) + "st.u32 [%rd1], 5; ld.u32 %r40, [%rd1]; " + free("%rd1"), ctas=4, jobs=2)
    assert report.ok and values.tolist() == [5] * 32 and "malloc" in report.together


def test_memory_that_grows_for_blocks_keeps_what_was_written():
    """The arena begins small, so large blocks move it."""
    grows = malloc("%rd1", 4) + "st.u32 [%rd1], %r0; " + malloc("%rd2", 200000) + "st.u32 [%rd2], 1; ld.u32 %r40, [%rd1];"
    values, report, _ = run(grows)
    assert report.ok and values.tolist() == list(range(32))

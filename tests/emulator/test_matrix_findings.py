"""Every way to misuse tensor memory, tcgen05, wgmma and their descriptors must be reported, under every scheduling policy.

Each case edits a working kernel in one place. The unedited kernels are checked to be free of findings by the other tests of these files.
"""

import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from test_matrix_tcgen05 import (
    IMAGE,
    bytes_of,
    copy_body,
    dense_idesc,
    k_major_128,
    kernel,
    mma_body,
    no_swizzle,
    preload,
    random_codes,
    readback,
    swizzled,
)  # fmt: skip

from zoo.emulator import Device, Module, UnsupportedInstruction, number_formats

U32 = numpy.uint32
FOLDER = Path(__file__).parent
POLICIES = ["issue", "last", "random"]


def kinds(text_or_module, **case):
    """The kinds of findings of a run of the test kernel."""
    return {finding.kind for finding in findings(text_or_module, **case)}


def findings(text_or_module, *, image=b"", a=0, b=0, idesc=0, group=1, scheduling="last"):
    size = -(-len(image) // 16) * 16 or 16
    gpu = Device(arch="sm_100a", scheduling=scheduling)
    report = gpu.launch(
        text_or_module, "kernel", group, 128, shared_bytes=1024 + size,
        params=[
            gpu.alloc(numpy.frombuffer(image.ljust(size, b"\0") * group, numpy.uint8)), size // 4, gpu.alloc(numpy.zeros((group, 128, 512), U32)),
            gpu.alloc(group * 128 * 2048), a, b, idesc,
        ],
    )  # fmt: skip
    return report.findings


def edited(body, *edits, group=1, header_edits=()):
    """kernel(body) with text replaced; every replacement must find its text."""
    texts = []
    original = Module.__init__

    def capture(self, text):
        texts.append(text)
        original(self, text)

    Module.__init__ = capture
    try:
        kernel(body, group=group)
    finally:
        Module.__init__ = original
    text = texts[0]
    for old, new in edits:
        assert old in text, f"the kernel has no {old!r}"
        text = text.replace(old, new, 1)
    return Module(text)


def dense_case():
    rng = numpy.random.default_rng(6)
    a, b = random_codes(rng, number_formats.F16, 128, 16), random_codes(rng, number_formats.F16, 32, 16)
    image = numpy.zeros(128 * 128 + 32 * 128, numpy.uint8)
    k_major_128(image, 0, bytes_of(a, 2))
    k_major_128(image, 16384, bytes_of(b, 2))
    return {"image": image.tobytes(), "a": swizzled(0, 0, 1024), "b": swizzled(16384, 0, 1024), "idesc": dense_idesc(128, 32, 0, 0)}


# D is written by the mma alone: nothing is put there before
FRESH = "    .reg .pred other;\n    setp.eq.u32 other, tid, 5;\n" + mma_body("f16", columns=32)[len(preload(512)) :]
MMA_LINE = "    @q tcgen05.mma.cta_group::1.kind::f16 [column], da, db, id, p;\n"
COMMIT_LINE = "    @q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [base];\n"


@pytest.mark.parametrize("scheduling", POLICIES)
def test_the_kernel_that_is_edited_below_has_no_finding(scheduling):
    assert kinds(edited(FRESH), **dense_case(), scheduling=scheduling) == set()


WAIT_LOOP = "WAIT2:\n    mbarrier.try_wait.parity.shared.b64 p, [base], 0;\n    @!p bra WAIT2;\n"
EDITS = {
    "no wait for the commit": ([(WAIT_LOOP, "    bar.sync 0;\n")], {"missing-wait"}),
    "wait for the wrong phase": ([("[base], 0;\n    @!p bra WAIT2", "[base], 1;\n    @!p bra WAIT2")], {"missing-wait"}),
    "no fence after the wait": ([("    @!p bra WAIT2;\n    tcgen05.fence::after_thread_sync;", "    @!p bra WAIT2;")], {"missing-tcgen05-fence"}),
    "no wait for the load": (
        [("    tcgen05.wait::ld.sync.aligned;\n    st.global.u32 [o+0], %r0;\n", "")], {"tensor-memory-misuse"},
    ),
    "all registers of the load used instead of a wait": ([("    tcgen05.wait::ld.sync.aligned;\n", "")], set()),
    "registers of the load used only after tensor memory is freed": (
        [("    tcgen05.wait::ld.sync.aligned;\n    st.global.u32 [o+0], %r0;\n", ""), ("    ret;", "    st.global.u32 [o+0], %r0;\n    ret;")], {"tensor-memory-misuse"},
    ),
    "commit forgotten": ([(COMMIT_LINE, "")], {"deadlock"}),
    "commit before the mma": ([(MMA_LINE + COMMIT_LINE, COMMIT_LINE + MMA_LINE)], {"missing-wait"}),
    "commit by another lane": ([(COMMIT_LINE, COMMIT_LINE.replace("@q", "@other"))], {"missing-wait"}),
    "accumulate into nothing": ([("setp.ne.u32 p, 0, 0;", "setp.ne.u32 p, 1, 0;")], {"uninitialised-tensor-memory"}),
    "never freed": ([("    @q tcgen05.dealloc.cta_group::1.sync.aligned.b32 column, 512;\n", "")], {"tensor-memory-leak"}),
    "half freed": ([("b32 column, 512;", "b32 column, 256;")], {"tensor-memory-misuse"}),
    "too few columns": (
        [("[base+16], 512;", "[base+16], 32;"), ("b32 column, 512;", "b32 column, 32;"), ("add.u32 t, column, 0;", "add.u32 t, column, 4;")], {"tensor-memory-misuse"},
    ),
    "not a power of two": ([("[base+16], 512;", "[base+16], 48;")], {"tensor-memory-misuse"}),
    "allocation after giving up the right": (
        [("    @q tcgen05.alloc", "    @q tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n    @q tcgen05.alloc")], {"tensor-memory-misuse"},
    ),
    "another warp's lanes": ([("shl.b32 t, warp, 21;", "xor.b32 t, warp, 1; shl.b32 t, t, 21;")], {"tensor-memory-misuse"}),
    "freed before the last loads": (
        [("    tcgen05.fence::before_thread_sync;\n    bar.sync 0;\n    setp.eq.u32 q, warp, 0;", "    setp.eq.u32 q, warp, 0;")], {"tensor-memory-misuse"},
    ),
    "freed behind a cluster barrier that others exit instead of reaching": (
        [("    bar.sync 0;\n    setp.eq.u32 q, warp, 0;", "    setp.ne.u32 q, warp, 0; @q exit;\n"
          "    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;\n    setp.eq.u32 q, warp, 0;")], set(),
    ),
    "freed while others may not have exited": (
        [("    bar.sync 0;\n    setp.eq.u32 q, warp, 0;", "    setp.ne.u32 q, warp, 0; @q exit;\n    setp.eq.u32 q, warp, 0;")], {"tensor-memory-misuse"},
    ),
    "operands without a proxy fence": ([("    fence.proxy.async.shared::cta;\n", "")], {"missing-proxy-fence"}),
    "operand overwritten while it is read": (
        [(COMMIT_LINE, COMMIT_LINE + "    @q st.shared.u32 [base+1024], 0;\n")], {"source-overwritten"},
    ),
    "all lanes issue the mma": ([("    mov.pred q, one;", "    setp.eq.u32 q, warp, 0;")], {"divergent-operand"}),
    "D at a lane that its shape does not allow": ([("[column], da, db", "[t], da, db"), ("    mov.pred q, one;", "    mov.pred q, one; add.u32 t, column, 0x100000;")], {"tensor-memory-misuse"}),
}  # fmt: skip


# The kernel copies words w of A (rows of 32 words) and of B (from word 4096 on) to shared memory.
FILL = "    st.shared.u32 [offset+1024], t;\n"
STORE, LAST_COLUMN = "    st.global.u32 [o+", "    st.global.u32 [o+124], %r31;\n"
ADD_ONCE_MORE = MMA_LINE + "    setp.ne.u32 p, 1, 0;\n" + MMA_LINE


def filled(condition):
    return (FILL, f"    shr.u32 %r0, w, 5;\n    {condition}\n    @q{FILL}")


ROWS_BELOW_64, ALL_COLUMNS_BUT_ONE = filled("and.b32 %r0, %r0, 0xC0; setp.ne.u32 q, %r0, 0x40;"), filled("setp.ne.u32 q, %r0, 159;")


@pytest.mark.parametrize(
    ("body", "edits", "expected"),
    [
        (FRESH, [ROWS_BELOW_64], {"uninitialised-tensor-memory"}),
        (
            FRESH.replace(STORE, "    @other st.global.u32 [o+").replace("setp.eq.u32 other, tid, 5", "setp.lt.u32 other, tid, 64"),
            [ROWS_BELOW_64],
            set(),
        ),
        (FRESH, [ALL_COLUMNS_BUT_ONE, (MMA_LINE, ADD_ONCE_MORE)], {"uninitialised-tensor-memory"}),
        (FRESH, [ALL_COLUMNS_BUT_ONE, (MMA_LINE, ADD_ONCE_MORE), (LAST_COLUMN, "")], set()),
        (FRESH, [filled("setp.ge.u32 q, %r0, 128;")], {"uninitialised-tensor-memory"}),
    ],
    ids=["rows used", "rows unused", "a column used", "a column unused", "no row of A"],
)
def test_rows_of_operands_that_nobody_wrote_are_reported_where_their_sums_are_used(body, edits, expected):
    assert kinds(edited(body, *edits), **dense_case()) == expected


def pair_with_a_tail(filled, used):
    """Findings of a pair of CTAs that multiplies 256 x 32: every thread adds 1 to 32 sums, and stores those for which `used` holds.

    Words from 4096 on are B. filled, used: set a predicate from rank, word or column number.
    """
    body = mma_body("f16", group=2, columns=32)[len(preload(512)) :]
    stores = body[body.index("    st.global") :]
    sums = "".join(
        f"    add.u32 %r{i}, %r{i}, 1;\n    mov.u32 n, {i};\n    {used}\n    @q st.global.u32 [o+{4 * i}], %r{i};\n" for i in range(32)
    )
    fill = (FILL, f"    {filled}\n    @q{FILL}")
    return findings(edited(body.replace(stores, sums), fill, group=2), **dense_case() | {"idesc": dense_idesc(256, 32, 0, 0)}, group=2)


ALL, RANK_0 = "setp.eq.u32 q, rank, rank;", "setp.eq.u32 q, rank, 0;"


@pytest.mark.parametrize(("filled", "used", "columns"), [
    # the second CTA's part of B: columns 16 to 31
    ("setp.lt.u32 q, w, 4096; setp.eq.or.u32 q, rank, 0, q;", "setp.lt.u32 q, n, 16;", set()),
    ("setp.lt.u32 q, w, 4096; setp.eq.or.u32 q, rank, 0, q;", ALL, {f"%r{i}" for i in range(16, 32)}),
    # its part of A: its own rows
    ("setp.ge.u32 q, w, 4096; setp.eq.or.u32 q, rank, 0, q;", RANK_0, set()),
    ("setp.ge.u32 q, w, 4096; setp.eq.or.u32 q, rank, 0, q;", ALL, {f"%r{i}" for i in range(32)}),
])  # fmt: skip
def test_what_the_second_cta_of_a_pair_did_not_write_is_reported_where_its_sums_are_used(filled, used, columns):
    found = pair_with_a_tail(filled, used)
    assert {finding.kind for finding in found} <= {"uninitialised-tensor-memory"}
    assert {finding.message.split(",")[0].removeprefix("it uses ") for finding in found} == columns
    assert all("loaded from the result of `@q tcgen05.mma" in finding.message for finding in found)


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize("name", EDITS)
def test_a_misuse_of_tensor_memory_is_reported(name, scheduling):
    edits, expected = EDITS[name]
    if name == "operand overwritten while it is read" and scheduling == "issue":
        expected = set()  # executed at issue there is nothing left to overwrite; the lazy policies exist for this
    found = kinds(edited(FRESH, *edits), **dense_case(), scheduling=scheduling)
    if name == "operand overwritten while it is read" and scheduling == "random":
        assert found <= {"source-overwritten"}  # whether the mma was still pending is up to the seed
    else:
        assert expected <= found, found
        assert expected or not found


HALF_LOADED = """
    // as an accumulator of M = 64 lies: lanes 0 to 15 of each quarter are written, all 32 are loaded
    mov.u32 %r0, tid; mov.u32 %r1, tid;
    tcgen05.st.sync.aligned.16x32bx2.x1.b32 [column], 0, {%r0};
    tcgen05.wait::st.sync.aligned;
    tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r2}, [column];
    tcgen05.wait::ld.sync.aligned;
    mov.b32 %r3, %r2;
    mul.wide.u32 s, tid, 4;
    add.u64 o, o, s;
    setp.lt.u32 p, lane, 16;
    @p st.global.u32 [o], %r3;
"""


@pytest.mark.parametrize("scheduling", POLICIES)
def test_tensor_memory_that_nobody_wrote_may_be_loaded_and_not_used(scheduling):
    assert kinds(kernel(HALF_LOADED), scheduling=scheduling) == set()
    assert kinds(kernel(HALF_LOADED.replace("@p st", "st")), scheduling=scheduling) == {"uninitialised-tensor-memory"}
    overwritten = HALF_LOADED.replace("    mul.wide", "    @!p mov.u32 %r3, 0;\n    mul.wide").replace("@p st", "st")
    assert kinds(kernel("    setp.lt.u32 p, lane, 16;\n" + overwritten), scheduling=scheduling) == set()


@pytest.mark.parametrize(("chosen", "found"), [("%r2, %r4", set()), ("%r4, %r2", {"uninitialised-tensor-memory"})])
def test_of_two_registers_the_one_that_is_not_chosen_may_hold_what_nobody_wrote(chosen, found):
    choosing = f"    mov.b32 %r4, tid;\n    setp.lt.u32 p, lane, 16;\n    selp.b32 %r3, {chosen}, p;\n"
    text = HALF_LOADED.replace("    mov.b32 %r3, %r2;\n", choosing).replace("@p st", "st")
    assert kinds(kernel(text), scheduling="last") == found


@pytest.mark.parametrize(("passing", "stored", "found"), [
    ("shfl.sync.idx.b32 %r3, %r2, 3, 31, -1;", "st", set()), ("shfl.sync.idx.b32 %r3, %r2, 20, 31, -1;", "@p st", {"uninitialised-tensor-memory"}),
    ("add.u32 t, column, 8; tcgen05.st.sync.aligned.32x32b.x1.b32 [t], {%r2}; tcgen05.wait::st.sync.aligned;"
     "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [t]; tcgen05.wait::ld.sync.aligned;", "@p st", set()),
    ("add.u32 t, column, 8; tcgen05.st.sync.aligned.32x32b.x1.b32 [t], {%r2}; tcgen05.wait::st.sync.aligned;"
     "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [t]; tcgen05.wait::ld.sync.aligned;", "st", {"uninitialised-tensor-memory"}),
    ("mul.lo.u32 %r4, %r2, 3; setp.gt.u32 q, %r4, 5; selp.b32 %r3, 1, 2, q;", "@p st", set()),
    ("mul.lo.u32 %r4, %r2, 3; setp.gt.u32 q, %r4, 5; selp.b32 %r3, 1, 2, q;", "st", {"uninitialised-tensor-memory"}),
])  # fmt: skip
def test_a_value_that_nobody_wrote_is_followed_to_its_use(passing, stored, found):
    """Lanes 16 to 31 of %r2 hold nothing."""
    text = HALF_LOADED.replace("    mov.b32 %r3, %r2;\n", f"    {passing}\n").replace("@p st.global", f"{stored}.global")
    assert kinds(kernel(text)) == found


def test_a_seed_gives_the_same_words_in_every_process():
    """Which of several accesses a finding names must not depend on where objects lie in memory."""
    program = (
        f"import sys; sys.path[:0] = {[str(FOLDER), str(FOLDER / 'kernels')]!r}\n"
        "import test_matrix_findings as t\n"
        "from zoo.emulator import Device\n"
        "launch = Device.launch\n"
        "Device.launch = lambda *a, **k: print(r := launch(*a, **k)) or r\n"
        "t.kinds(t.edited(t.FRESH, *t.EDITS['freed before the last loads'][0]), **t.dense_case(), scheduling='random')\n"
    )
    texts = {subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout for _ in range(3)}
    assert len(texts) == 1 and "tensor-memory-misuse" in texts.pop()


DESCRIPTORS = {
    "version bits": {"a": swizzled(0, 0, 1024) ^ 1 << 46},
    "reserved layout": {"b": swizzled(16384, 0, 1024) | 1 << 61},
    "base offset": {"b": swizzled(16384, 0, 1024) | 3 << 49},
    "M": {"idesc": dense_idesc(256, 32, 0, 0)},
    "N": {"idesc": dense_idesc(128, 0, 0, 0)},
    "types": {"idesc": dense_idesc(128, 32, 0, 1)},
    "sparse": {"idesc": dense_idesc(128, 32, 0, 0, extra=4)},
}


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_an_undefined_descriptor_is_reported(name):
    case = dense_case() | DESCRIPTORS[name]
    assert "invalid-descriptor" in kinds(edited(FRESH), **case)


def test_an_operand_outside_shared_memory_is_reported():
    case = dense_case() | {"b": swizzled(0x30000, 0, 1024)}
    assert "out-of-bounds" in kinds(edited(FRESH), **case)


def test_two_cta_group_values_in_one_kernel_are_refused():
    module = edited(FRESH, ("tcgen05.dealloc.cta_group::1", "tcgen05.dealloc.cta_group::2"))
    with pytest.raises(UnsupportedInstruction, match="one cta_group value"):
        kinds(module, **dense_case())


@pytest.mark.parametrize(
    "edit",
    [
        ("kind::f16", "kind::f16.ashift"),
        ("kind::f16", "kind::f16.collector::b0::fill"),
        ("kind::f16", "kind::f17"),
        ("kind::f16", "kind::f16.block_scale"),
        ("kind::f16", "kind::f16.shiny"),
        ("kind::f16", "kind::mxf4nvf4"),
    ],
)
def test_an_unknown_form_of_the_mma_is_refused_by_line(edit):
    with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+"):
        kinds(edited(FRESH, edit), **dense_case())


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_store_read_without_its_wait_is_reported(scheduling):
    body = preload(32).replace("    tcgen05.wait::st.sync.aligned;", "", 1) + readback(32)
    assert "missing-wait" in kinds(edited(body), scheduling=scheduling)


@pytest.mark.parametrize("scheduling", POLICIES)
def test_a_copy_read_without_waiting_for_it_is_reported(scheduling):
    body = copy_body("32x128b.warpx4")
    loop = "WAIT1:\n    mbarrier.try_wait.parity.shared.b64 p, [base], 0;\n    @!p bra WAIT1;\n"
    module = edited(body, (loop, ""))
    assert "missing-wait" in kinds(module, image=bytes(512), a=no_swizzle(IMAGE, 0, 128), scheduling=scheduling)


@pytest.mark.parametrize("scheduling", POLICIES)
def test_overwriting_what_another_warp_has_not_finished_loading_is_reported(scheduling):
    # all warps load D, then warp 0 starts a second mma into it; the barrier before the loads orders nothing after them
    fence = "    tcgen05.fence::after_thread_sync;\n"
    start = FRESH.replace("    @!p bra WAIT2;\n" + fence, "    @!p bra WAIT2;\n" + fence + "    bar.sync 0;\n")
    assert start != FRESH
    body = (
        start
        + """
    setp.ne.u32 p, 0, 0;
    @q tcgen05.mma.cta_group::1.kind::f16 [column], da, db, id, p;
    @q tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [base];
"""
        + "WAIT3:\n    mbarrier.try_wait.parity.shared.b64 p, [base], 1;\n    @!p bra WAIT3;\n    tcgen05.fence::after_thread_sync;\n"
    )
    found = kinds(edited(body), **dense_case(), scheduling=scheduling)
    assert found & {"missing-wait", "missing-tcgen05-fence"}
    ordered = (
        start + "    tcgen05.fence::before_thread_sync;\n    bar.sync 0;\n    tcgen05.fence::after_thread_sync;\n" + body[len(start) :]
    )
    assert kinds(edited(ordered), **dense_case(), scheduling=scheduling) == set()


def test_an_allocation_by_one_cta_of_a_pair_only_is_a_deadlock():
    module = edited(
        preload(32), ("    @q tcgen05.alloc", "    setp.eq.u32 p, rank, 0;\n    and.pred q, q, p;\n    @q tcgen05.alloc"), group=2
    )
    assert "deadlock" in kinds(module, group=2)


# ---- wgmma

WGMMA = """
.version 9.1
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry kernel(.param .u64 out, .param .u64 a_desc, .param .u64 b_desc)
{
    .reg .pred p, q;
    .reg .f32 %f<8>;
    .reg .b32 tid, t, base;
    .reg .b64 o, da, db, s;
    mov.u32 tid, %tid.x;
    mov.b32 base, memory;
    shl.b32 t, tid, 4;
    add.u32 t, t, base;
    st.shared.v4.u32 [t], {0, 0, 0, 0};
    st.shared.v4.u32 [t+2048], {0, 0, 0, 0};
    fence.proxy.async.shared::cta;
    bar.sync 0;
    ld.param.u64 da, [a_desc];
    ld.param.u64 db, [b_desc];
    mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;
    setp.ne.u32 p, 1, 0;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, da, db, p, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ld.param.u64 o, [out];
    mul.wide.u32 s, tid, 16;
    add.u64 o, o, s;
    st.global.v4.f32 [o], {%f0, %f1, %f2, %f3};
    ret;
}
"""


def wgmma_kinds(*edits, a=None, b=None, threads=128, scheduling="last"):
    text = WGMMA
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    gpu = Device(arch="sm_90a", scheduling=scheduling)
    start = 1024 >> 4  # no swizzle: core matrices of 128 bytes, 256 bytes per 8 rows
    default = lambda offset: (start + (offset >> 4)) | 8 << 16 | 16 << 32  # noqa: E731
    report = gpu.launch(
        Module(text),
        "kernel",
        1,
        threads,
        shared_bytes=4096,
        params=[gpu.alloc(threads * 16), default(0) if a is None else a, default(2048) if b is None else b],
    )
    return {finding.kind for finding in report.findings}


@pytest.mark.parametrize("scheduling", POLICIES)
def test_the_wgmma_kernel_that_is_edited_below_has_no_finding(scheduling):
    assert wgmma_kinds(scheduling=scheduling) == set()


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (("    wgmma.wait_group.sync.aligned 0;\n", ""), "missing-wait"),
        (("wait_group.sync.aligned 0", "wait_group.sync.aligned 1"), "missing-wait"),
        (("    wgmma.commit_group.sync.aligned;\n", ""), "missing-wait"),
        (("    wgmma.fence.sync.aligned;\n", ""), "missing-wgmma-fence"),
        (("    wgmma.mma_async", "    mov.f32 %f1, 0f3F800000;\n    wgmma.mma_async"), "missing-wgmma-fence"),
        (("    fence.proxy.async.shared::cta;\n", ""), "missing-proxy-fence"),
        (("    st.shared.v4.u32 [t+2048], {0, 0, 0, 0};\n", ""), "uninitialised-shared"),
        (("    wgmma.commit_group", "    mov.f32 %f1, 0f3F800000;\n    wgmma.commit_group"), "pending-destination"),
        (("    wgmma.mma_async", "    setp.lt.u32 q, tid, 16;\n    @q wgmma.mma_async"), "divergent-aligned"),
    ],
)
def test_a_misuse_of_wgmma_is_reported(edit, kind, scheduling):
    assert kind in wgmma_kinds(edit, scheduling=scheduling)


MULTIPLY = "    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, da, db, p, 1, 1, 0, 0;\n"
GROUP = MULTIPLY + "    wgmma.commit_group.sync.aligned;\n"
WAIT_FOR = "    wgmma.wait_group.sync.aligned {};\n"


@pytest.mark.parametrize("scheduling", POLICIES)
def test_groups_in_flight_that_accumulate_need_one_fence(scheduling):
    pipelined = GROUP * 2 + (WAIT_FOR.format(1) + GROUP) * 2
    assert wgmma_kinds((GROUP, pipelined), scheduling=scheduling) == set()


@pytest.mark.parametrize("scheduling", POLICIES)
@pytest.mark.parametrize("use", ["add.f32 %f1, %f1, %f1;", "st.global.f32 [o], %f1;"])
def test_a_finished_accumulator_that_was_used_needs_a_new_fence(use, scheduling):
    again = "    ld.param.u64 o, [out];\n" + WAIT_FOR.format(0) + f"    {use}\n"
    fence = "    wgmma.fence.sync.aligned;\n"
    for more, expected in ((again + fence, set()), (again, {"missing-wgmma-fence"})):
        assert wgmma_kinds((GROUP, GROUP + more + GROUP), scheduling=scheduling) == expected


def test_a_moved_accumulator_was_not_used():
    """nvcc moves registers between wgmma instructions; ptxas makes them one register."""
    moved = "    mov.f32 %f4, %f0;\n    mov.f32 %f0, %f4;\n"
    assert wgmma_kinds(("    wgmma.mma_async", moved + "    wgmma.mma_async")) == set()


ZEROS = "    mov.f32 %f0, 0f00000000; mov.f32 %f1, 0f00000000; mov.f32 %f2, 0f00000000; mov.f32 %f3, 0f00000000;\n"


def test_accumulating_into_registers_that_nobody_wrote_is_reported():
    assert "uninitialised-register" in wgmma_kinds((ZEROS, ""))


def test_a_first_wgmma_that_does_not_read_its_registers_may_find_them_unwritten():
    assert wgmma_kinds((ZEROS, ""), ("setp.ne.u32 p, 1, 0;", "setp.ne.u32 p, 0, 0;")) == set()


def test_half_a_warpgroup_is_reported():
    assert "divergent-warpgroup" in wgmma_kinds(threads=64)


def test_warps_of_a_group_that_execute_different_wgmmas_are_reported():
    other = "    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, da, db, p, 1, 1, 0, 0;\n"
    first = f"    setp.lt.u32 q, tid, 64;\n    @q bra OTHER;\n{other}    bra BOTH;\nOTHER:\n"
    assert "divergent-warpgroup" in wgmma_kinds((other, first + other + "BOTH:\n"))


def test_an_invalid_wgmma_descriptor_is_reported():
    good = (1024 >> 4) | 8 << 16 | 16 << 32
    assert "invalid-descriptor" in wgmma_kinds(a=good | 1 << 55)
    assert "invalid-descriptor" in wgmma_kinds(b=(1024 >> 4) | 16 << 32 | 1 << 62 | 1 << 49)
    assert "out-of-bounds" in wgmma_kinds(b=good + (0x8000 >> 4))


@pytest.mark.parametrize(
    "edit",
    [
        ("m64n8k16", "m64n8k32"),
        ("m64n8k16", "m64n12k16"),
        ("f32.bf16.bf16", "f16.bf16.bf16"),
        ("p, 1, 1, 0, 0", "p, 1, 2, 0, 0"),
        ("p, 1, 1, 0, 0", "p, 1, 1, 0"),
        ("m64n8k16", "m64n8k16.sp"),
    ],
)
def test_an_unknown_form_of_wgmma_is_refused_by_line(edit):
    with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+"):
        wgmma_kinds(edit)

"""The fixture ptx_check and what it runs: arguments arrive as they were given, and a finding or an open end fails the test."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from zoo.emulator import EmulatorError, Module
from zoo.emulator.arguments import Argument, read
from zoo.emulator.check import arch_for, run, schedules
from zoo.emulator.pytest import check, ptx_check  # noqa: F401  (a fixture)

HEAD = ".version 8.5\n.target sm_90a\n.address_size 64\n"
ADD = """
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n) {
    .reg .b32 %r<4>; .reg .b64 %a<4>; .reg .pred %p;
    ld.param.u64 %a0, [x];
    ld.param.u64 %a1, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r0, %tid.x;
    setp.ge.u32 %p, %r0, %r1;
    @%p ret;
    mad.wide.u32 %a2, %r0, 4, %a0;
    mad.wide.u32 %a3, %r0, 4, %a1;
    ld.global.u32 %r2, [%a2];
    ld.global.u32 %r3, [%a3];
    add.u32 %r3, %r3, %r2;
    st.global.u32 [%a3], %r3;
    ret;
}
"""
# One thread loads a box of 2 x 4 floats through a tensor map and stores it to y.
LOAD = """
.visible .entry load(.param .align 64 .b8 map[128], .param .u64 y) {
    .reg .b32 %r<16>; .reg .b64 %a<3>; .reg .pred %p;
    .shared .align 128 .b8 box[32];
    .shared .align 8 .b64 full;
    ld.param.u64 %a0, [y];
    mov.b64 %a1, map;
    mov.u32 %r0, box;
    mov.u32 %r1, full;
    mov.u32 %r2, 4;
    mov.u32 %r3, 1;
    mbarrier.init.shared.b64 [%r1], 1;
    fence.proxy.async;
    mbarrier.arrive.expect_tx.shared.b64 %a2, [%r1], 32;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r0], [%a1, {%r2, %r3}], [%r1];
again:
    mbarrier.try_wait.parity.shared.b64 %p, [%r1], 0;
    @!%p bra again;
    ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r0];
    ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r0+16];
    st.global.v4.u32 [%a0], {%r4, %r5, %r6, %r7};
    st.global.v4.u32 [%a0+16], {%r8, %r9, %r10, %r11};
    ret;
}
"""
SPIN = ".visible .entry spin() {\nagain:\n nanosleep.u32 100;\n bra again;\n}\n"


def test_arrays_come_back_as_the_kernel_left_them(ptx_check, tmp_path):  # noqa: F811
    x, y = np.arange(8, dtype=np.int32), np.full(8, 100, np.int32)
    text = HEAD + ADD
    (tmp_path / "add.ptx").write_text(text)
    for kernel in (text, tmp_path / "add.ptx", str(tmp_path / "add.ptx")):
        after = ptx_check(kernel, grid=1, block=32, args=[x, y, 8])
        assert [one.tolist() for one in after] == [x.tolist(), (x + 100).tolist()]
    assert y.tolist() == [100] * 8  # the test's own array is not written


# Each CTA adds a number of x to y. Sums of f32 depend on the order of the CTAs.
SUM = """
.visible .entry sum(.param .u64 x, .param .u64 y) {
    .reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %a<3>;
    ld.param.u64 %a0, [x];
    ld.param.u64 %a1, [y];
    mov.u32 %r0, %ctaid.x;
    mad.wide.u32 %a2, %r0, 4, %a0;
    ld.global.f32 %f0, [%a2];
    red.global.add.f32 [%a1], %f0;
    ret;
}
"""


@pytest.mark.parametrize(("given", "fails"), [({}, True), ({"rtol": 1e-5}, False), ({"rtol": 1e-9}, True)])
def test_atomic_sums_in_another_order_pass_where_a_tolerance_is_given(given, fails):
    x = np.random.default_rng(0).random(16, np.float32)
    arguments = [Argument("x", array=x), Argument("y", array=np.zeros(1, np.float32), **given)]
    found = run(Module(HEAD + SUM), "sum", (16, 1, 1), (1, 1, 1), arguments, count=6)
    assert [line for line in found.wrong if "not the same under two schedules" in line and line.startswith("y: ")] == found.wrong
    assert bool(found.wrong) == fails and not found.causes


def test_a_finding_fails_the_test_with_its_cause():
    with pytest.raises(
        pytest.fail.Exception, match=r"error: out-of-bounds at PTX line 15 .*\n.*\n.*here .* 15 .*\n.*here .* 16 .*\n *manual .*\n *add "
    ) as failure:
        check(HEAD + ADD, 1, [np.zeros(8, np.int32), np.zeros(8, np.int32), 9], block=32)
    assert "past the end of the allocation of 32 bytes of the argument 1" in str(failure.value)


def test_what_the_fixture_needs_is_said():
    with pytest.raises(EmulatorError, match="block= is missing"):
        check(HEAD + ADD, 1, [])
    with pytest.raises(EmulatorError, match="entry= is one of add, spin"):
        check(HEAD + ADD + SPIN, 1, [], block=32)
    with pytest.raises(EmulatorError, match="entry= is one of add"):
        check(HEAD + ADD, 1, [], block=32, entry="addd")
    for wrong, why in (([1, 2], "argument 1 is a list"), (np.array([None]), "argument 1 holds objects")):
        with pytest.raises(EmulatorError, match=f"{why}: pass a numpy array"):
            check(HEAD + ADD, 1, [np.zeros(2, "i4"), wrong, 2], block=32)


def test_a_kernel_that_names_its_block_needs_none():
    x, y = (np.arange(40, dtype="i4") for _ in range(2))
    exact = (HEAD + ADD).replace("u32 n) {", "u32 n) .reqntid 64 {")
    assert check(exact, 1, [x, y, 40])[1].tolist() == (2 * x).tolist()


def test_a_cooperative_kernel_is_launched_as_such():
    """Outside a cooperative launch the grid has no barrier to meet at, whose address %envreg2 gives."""
    text = (
        HEAD
        + ".visible .entry k(.param .u64 x) { .reg .b32 %r; .reg .b64 %a; ld.param.u64 %a, [x]; mov.u32 %r, %envreg2; st.global.u32 [%a], %r; ret; }\n"
    )
    (with_, without) = (check(text, 1, [np.zeros(1, "u4")], block=1, cooperative=cooperative)[0][0] for cooperative in (True, False))
    assert with_ and not without


def test_a_tensor_map_of_an_argument_loads_its_box():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    arguments = [
        Argument("x", array=x, tensor_map={"box": [2, 4], "swizzle": "none", "fill": "zero"}),
        Argument("y", array=np.zeros((2, 4), np.float32), written=False, expected=x[1:3, 4:]),
    ]
    result = run(Module(HEAD + LOAD), "load", 1, 1, arguments)
    assert not result.failed(strict=True), result
    arguments[0].tensor_map["box"] = [2, 3]
    with pytest.raises(EmulatorError, match=r"x: tensor map: a box row has 12 bytes"):
        run(Module(HEAD + LOAD), "load", 1, 1, arguments)


STRUCT = """
.visible .entry store(.param .align 8 .b8 all[32]) {
    .reg .b32 %r<3>; .reg .b64 %a0; .reg .f32 %f0;
    ld.param.u64 %a0, [all];
    ld.param.u32 %r0, [all+8];
    ld.param.f32 %f0, [all+12];
    ld.param.u64 %a0, [all+16];
    ld.param.u32 %r1, [all+24];
    st.global.u32 [%a0], %r0;
    st.global.f32 [%a0+4], %f0;
    st.global.u32 [%a0+8], %r1;
    ret;
}
"""


def test_fields_of_a_struct_are_where_the_file_says(tmp_path):
    text = """args = [{name = "all", fields = [
        {offset = 8, value = -7, dtype = "i32"}, {offset = 12, value = 1.5, dtype = "f32"},
        {offset = 16, name = "y", dtype = "u32", shape = [3], fill = "empty"}, %s]}]"""
    (tmp_path / "spec.toml").write_text(text % "")
    result = run(Module(HEAD + STRUCT), "store", 1, 1, read(tmp_path / "spec.toml")[0])
    assert not result.failed(strict=True) and result.arrays["y"].tolist() == [2**32 - 7, 0x3FC00000, 0]
    refused = {
        'offset = 30, value = 1, dtype = "i32"': "all has 32 bytes, the field ends at 34",
        'offset = 24, value = 1.5, dtype = "i32"': "1.5 does not fit int32",
        'offset = 24, value = 1099511627776, dtype = "i32"': "1099511627776 does not fit int32",
    }
    for field, words in refused.items():
        (tmp_path / "spec.toml").write_text(text % f"{{{field}}}")
        with pytest.raises(EmulatorError, match=words):
            run(Module(HEAD + STRUCT), "store", 1, 1, read(tmp_path / "spec.toml")[0])


def test_a_kernel_that_does_not_end_fails(monkeypatch):
    from zoo.emulator import device

    monkeypatch.setitem(device.Device.__init__.__kwdefaults__, "instruction_limit", 1000)
    assert run(Module(HEAD + SPIN), "spin", 1, 1, []).failed()


LAST_WRITER = (
    HEAD
    + """
.visible .entry last(.param .u64 x) {
    .reg .b32 %r0; .reg .b64 %a0;
    ld.param.u64 %a0, [x];
    mov.u32 %r0, %ctaid.x;
    st.global.u32 [%a0], %r0;
    ret;
}
"""
)


def test_values_that_depend_on_the_schedule_are_wrong():
    """The clusters race through global memory: the last writer wins."""
    result = run(Module(LAST_WRITER), "last", 8, 1, [Argument("x", array=np.zeros(1, np.int32))], count=8)
    assert len(result.wrong) == 1 and result.failed()
    said = re.fullmatch(
        r"x: 1 of 1 elements is not the same under two schedules; the first, \[0\], is (\d) under last \(--only last\) and (\d) under "
        r"random, seed (\d) \(--only (random:\3)\)",
        result.wrong[0],
    )
    for only, value in (("last", said[1]), (said[4], said[2])):
        alone = run(Module(LAST_WRITER), "last", 8, 1, [Argument("x", array=np.zeros(1, np.int32))], only=only)
        assert [name for name, _ in alone.reports] == [only.replace(":", ", seed ")]
        assert alone.arrays["x"].tolist() == [int(value)] and not alone.wrong
    of_three = run(Module(LAST_WRITER), "last", 8, 1, [Argument("x", array=np.zeros(1, np.int32))], count=8, jobs=3)
    assert (of_three.wrong, of_three.arrays) == (result.wrong, result.arrays)


def test_a_value_that_one_schedule_gets_wrong_names_the_schedule():
    """The latest CTA in order wins under `last`, so an expected 7 is wrong under a drawn order only."""
    of_last = run(Module(LAST_WRITER), "last", 8, 1, [Argument("x", array=np.zeros(1, np.int32))], only="last").arrays["x"]
    argument = Argument("x", array=np.zeros(1, np.int32), expected=of_last)
    (sentence,) = run(Module(LAST_WRITER), "last", 8, 1, [argument], count=8).wrong
    assert re.search(
        r"not as expected under \d of 8 schedules; the first, \[0\], is \d under random, seed (\d) \(--only random:\1\), expected 7$",
        sentence,
    )
    with pytest.raises(pytest.fail.Exception, match=r'is 7 under last \(only="last"\) and \d under random, seed (\d) \(only="random:\1"\)'):
        check(LAST_WRITER, 8, [np.zeros(1, np.int32)], block=1, schedules=8)


@pytest.mark.parametrize("only", ["first", "last:1", "random:", "random:-1", "random:x", "random:12345678901", ""])
def test_an_unknown_schedule_is_refused(only):
    with pytest.raises(EmulatorError, match="is no schedule; it is last, issue or random:SEED"):
        run(Module(HEAD + ADD), "add", 1, 32, [Argument("x", value=0), Argument("y", value=0), Argument("n", value=0)], only=only)


def test_jobs_change_neither_findings_nor_errors():
    past = ADD.replace("setp.ge.u32", "setp.gt.u32")
    arguments = [Argument("x", array=np.ones(40, np.int32)), Argument("y", array=np.ones(40, np.int32)), Argument("n", value=40)]
    one, two = (run(Module(HEAD + past), "add", 1, 64, arguments, count=3, jobs=jobs) for jobs in (1, 2))
    assert one.failed() and list(map(str, one.causes)) == list(map(str, two.causes))
    assert [(name, str(report)) for name, report in one.reports] == [(name, str(report)) for name, report in two.reports]
    with pytest.raises(EmulatorError, match="a block has 1 to 1024 threads, not 2048"):
        run(Module(HEAD + ADD), "add", 1, 2048, arguments, count=2, jobs=2)


def test_schedules_begin_with_the_latest_and_follow_the_seed():
    assert schedules(3, 5) == [("last", 5), ("random", 6), ("random", 7)]
    assert [schedules(3, 5, only) for only in ("last", "issue", "random:9")] == [[("last", 5)], [("issue", 5)], [("random", 9)]]


@pytest.mark.parametrize(
    ("target", "arch"),
    [("sm_90a", "sm_90a"), ("sm_90", "sm_90a"), ("sm_80", "sm_90a"), ("sm_100", "sm_100a"), ("sm_100f", "sm_100f"), ("sm_120a", "sm_120a")],
)
def test_a_target_runs_on_its_arch(target, arch):
    assert arch_for(target) == arch


def test_a_target_of_no_covered_arch_is_refused():
    with pytest.raises(EmulatorError, match="sm_130a runs on no arch"):
        arch_for("sm_130a")


DOT = """
import triton
import triton.language as tl


@triton.jit
def dot(a, b, c, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr, SUM: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    sums = tl.zeros((M, N), SUM)
    for start in range(0, K, BLOCK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * N + n[None, :])
        sums = tl.dot(x, y, sums)
    tl.store(c + m[:, None] * N + n[None, :], sums)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_kernel_that_triton_compiled_elsewhere_has_lines_of_its_own_file(tmp_path, monkeypatch):
    from zoo.emulator.triton import compiled, function_of

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    text = "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef put(x):\n    tl.store(x, 1)\n"
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text(text)
        argument = Argument("x", array=np.zeros(1, np.int32))
        kernel, _ = compiled(function_of(f"{tmp_path / name}:put"), [argument], "sm_90a", {})
        assert name in kernel.asm["ptx"]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_triton_kernel_is_compiled_and_its_values_are_right(tmp_path, monkeypatch):
    import ml_dtypes

    from zoo.emulator.triton import compiled, function_of, launch_of

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "dot.py").write_text(DOT)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((64, 256), (256, 64)))
    exact = a.astype(np.float64) @ b.astype(np.float64)
    c = Argument("c", array=np.zeros((64, 64), np.float32), written=False, expected=exact.astype(np.float32), atol=1e-3)
    sizes = [Argument(name, value) for name, value in (("K", 256), ("M", 64), ("N", 64), ("BLOCK", 64), ("SUM", "tl.float32"))]
    arguments = [Argument("a", array=a), Argument("b", array=b), c, *sizes]
    kernel, passed = compiled(function_of(f"{tmp_path / 'dot.py'}:dot"), arguments, "sm_90a", {"num_stages": 3})
    text, block, cluster, shared, grid, scratch = launch_of(kernel, 1)
    result = run(Module(text), "dot", grid, block, passed, cluster=cluster, shared_bytes=shared, scratch=scratch)
    assert not result.wrong
    import triton

    if triton.__version__.startswith("3.6."):
        (cause,) = result.causes
        assert cause.kind == "missing-proxy-fence" and cause.place.source == f"{tmp_path / 'dot.py'}:13"
        assert [Path(place.source).name for _, place in cause.others] == ["dot.py:12", "dot.py:11"]

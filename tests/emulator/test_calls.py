"""Calls through pointers, and functions that call themselves: values as Python computes them, and findings of wrong calls."""

import numpy as np
import pytest
from core_support import kernel, kinds, only

from zoo import emulator
from zoo.emulator import UnsupportedInstruction
from zoo.errors import ArgumentError

POLICIES = ("issue", "last", "random")
LANE = np.arange(32)
PROTOTYPE = "P: .callprototype (.param .b32 _) _ (.param .b32 _); "


def invoke(callee, result, argument, signature=""):
    """A call of a function that has one 32-bit parameter and a 32-bit result: by name, or through a register with a signature."""
    signature = f", {signature}" if signature else ""
    return f"{{ .param .b32 a; .param .b32 b; st.param.b32 [a], {argument}; call (b), {callee}, (a){signature}; ld.param.b32 {result}, [b]; }} "


def function(name, body, registers="%r<8>"):
    """The text of a function: its body finds the argument in %r0 and leaves the result there."""
    text = f".reg .pred %p<4>; .reg .b32 {registers}; .reg .b64 %rd<4>;\nld.param.u32 %r0, [x];\n{body}\nst.param.b32 [y], %r0; ret;"
    return f".func (.param .b32 y) {name}(.param .b32 x)\n{{\n{text}\n}}\n"


def module(functions, body, parameters=1):
    """A kernel that calls the functions. Lane l stores %r40 as element l of %rd0."""
    store = "mul.wide.u32 %rd30, %r0, 4; add.u64 %rd30, %rd0, %rd30; st.global.u32 [%rd30], %r40;" if parameters else ""
    return kernel(f"{body}\n{store}", parameters=parameters).replace(".visible", f"{functions}.visible", 1)


def run(functions, body, *, words=32, policy="issue", params=(), **options):
    """(the values of all lanes, the report)"""
    gpu = emulator.Device("sm_90a", scheduling=policy, seed=5, **options)
    out = gpu.alloc(np.zeros(words, np.uint32))
    text = module(functions, body, 1 + len(params))
    report = gpu.launch(emulator.Module(text, whole=False), "k", 1, words, params=[out, *params])
    return gpu.read(out, words, np.uint32), report


def line_of(functions, body, text):
    """The line of the module on which the text begins."""
    return module(functions, body).split(text)[0].count("\n") + 1


# ---- through pointers --------------------------------------------------------------------------------------------------
OPERATIONS = (
    function("triple", "mul.lo.u32 %r0, %r0, 3;") + function("square", "mul.lo.u32 %r0, %r0, %r0;") + function("next", "add.u32 %r0, %r0, 1;")
    + ".global .align 8 .u64 table[4] = {triple, square, 0, next};\n.const .align 8 .u64 fixed[2] = {next, generic(triple)};\n"
)  # fmt: skip
THROUGH_TABLE = (
    "mul.lo.u32 %r1, {index}, 8; cvt.u64.u32 %rd1, %r1; mov.u64 %rd2, {table}; add.u64 %rd1, %rd1, %rd2; ld.{space}.u64 %rd3, [%rd1];"
)


@pytest.mark.parametrize("policy", POLICIES)
def test_lanes_that_call_different_functions_through_one_pointer_each_get_their_own_result(policy):
    body = "setp.lt.u32 %p1, %r0, 10; selp.b32 %r3, 0, 3, %p1; setp.gt.u32 %p1, %r0, 20; selp.b32 %r3, 1, %r3, %p1;"
    body += THROUGH_TABLE.format(index="%r3", table="table", space="global") + PROTOTYPE + invoke("%rd3", "%r40", "%r0", "P")
    values, report = run(OPERATIONS, body, policy=policy)
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(values, np.where(LANE < 10, 3 * LANE, np.where(LANE > 20, LANE**2, LANE + 1)))


def test_constant_tables_global_tables_and_registers_hold_equal_addresses_of_a_function():
    body = "and.b32 %r3, %r0, 1;" + THROUGH_TABLE.format(index="%r3", table="fixed", space="const") + PROTOTYPE
    body += (
        invoke("%rd3", "%r4", "%r0", "P") + "ld.global.u64 %rd4, [table+24]; mov.u64 %rd5, next; setp.ne.u64 %p1, %rd4, %rd5; @%p1 trap;"
    )
    body += "mov.u64 %rd6, square; setp.eq.u64 %p1, %rd5, %rd6; @%p1 trap;" + invoke("%rd6", "%r40", "%r4", "P")
    values, report = run(OPERATIONS, body)
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(values, np.where(LANE % 2, 3 * LANE, LANE + 1) ** 2)


def test_a_predicated_call_through_a_pointer_leaves_the_other_lanes_alone():
    body = (
        PROTOTYPE + "mov.u64 %rd3, square; mov.u32 %r40, 7; setp.gt.u32 %p1, %r0, 20; .param .b32 a; .param .b32 b; st.param.b32 [a], %r0;"
    )
    body += "@%p1 call (b), %rd3, (a), P; @%p1 ld.param.b32 %r40, [b];"
    values, report = run(OPERATIONS, body)
    assert report.ok, report
    np.testing.assert_array_equal(values, np.where(LANE > 20, LANE**2, 7))


@pytest.mark.parametrize(("pointer", "told"), [
    ("mov.u64 %rd3, 0;", "the address is null"),
    ("ld.global.u64 %rd3, [table+16];", "the address is null"),
    ("mov.u64 %rd3, table;", "is the address of no function of this module"),
    ("mov.u64 %rd3, next; add.u64 %rd3, %rd3, 1;", "is the address of no function of this module"),
    ("mov.u64 %rd3, k;", "k is a kernel"),
    ("mov.u64 %rd3, absent;", "absent has no body"),
    ("mov.u64 %rd3, wide;", "wide has results of (8) and parameters of (4) bytes, and the call has results of (4) and parameters of (4) bytes"),
    ("mov.u64 %rd3, none;", "none has results of () and parameters of (4, 16) bytes, and the call has results of (4) and parameters of (4) bytes"),
])  # fmt: skip
def test_a_call_of_no_function_or_of_one_with_another_signature_is_reported_and_ends_its_lanes(pointer, told):
    functions = ".func (.param .b32 y) absent(.param .b32 x);\n.func (.param .b64 y) wide(.param .b32 x) { ret; }\n"
    functions += ".func none(.param .b32 x, .param .align 8 .b8 z[16]) { ret; }\n" + OPERATIONS
    body = f"{pointer} setp.lt.u32 %p1, %r0, 4; mov.u64 %rd4, next; selp.b64 %rd3, %rd3, %rd4, %p1;\n"
    body += PROTOTYPE + invoke("%rd3", "%r40", "%r0", "P") + "bar.sync 0;"
    values, report = run(functions, body)
    found = only(report, "invalid-call")
    assert not report.ok and found.lanes == 0xF and told in found.message and "through %rd3" in found.message
    assert found.text == "call (b), %rd3, (a), P" and found.line == line_of(functions, body, "P: .callprototype")
    np.testing.assert_array_equal(values, np.where(LANE < 4, 0, LANE + 1))


def test_a_call_through_an_unwritten_pointer_is_reported():
    _, report = run(OPERATIONS, PROTOTYPE + invoke("%rd3", "%r40", "%r0", "P"))
    assert kinds(report) == {"uninitialised-register", "invalid-call"}


def test_a_call_may_only_reach_the_functions_of_its_list():
    body = (
        "setp.eq.u32 %p1, %r0, 3; mov.u64 %rd3, next; mov.u64 %rd4, square; selp.b64 %rd3, %rd3, %rd4, %p1; T: .calltargets square, triple;"
    )
    values, report = run(OPERATIONS, body + invoke("%rd3", "%r40", "%r0", "T"))
    found = only(report, "invalid-call")
    assert found.lanes == 8 and "next is not in the list T" in found.message
    np.testing.assert_array_equal(values, np.where(LANE == 3, 0, LANE**2))
    _, report = run(OPERATIONS, body.replace("triple;", "triple, next;") + invoke("%rd3", "%r40", "%r0", "T"))
    assert report.ok and not report.findings


@pytest.mark.parametrize(("body", "told"), [
    (".param .b64 a; .param .b32 b; call (b), next, (a);", r"next has results of \(4\) and parameters of \(4\) bytes, and the call has results of \(4\) and parameters of \(8\) bytes"),
    (".param .b32 a; call next, (a);", r"next has results of \(4\) and parameters of \(4\) bytes, and the call has results of \(\) and parameters of \(4\) bytes"),
    (PROTOTYPE + ".param .b64 a; .param .b32 b; call (b), %rd3, (a), P;", r"its prototype has results of \(4\) and parameters of \(4\) bytes, and the call has results of \(4\) and parameters of \(8\) bytes"),
    (".param .b32 a; .param .b32 b; call (b), %rd3, (a);", "needs a .callprototype or a .calltargets"),
    ("L: .param .b32 a; .param .b32 b; call (b), %rd3, (a), L;", "needs a .callprototype or a .calltargets"),
    (PROTOTYPE + ".param .b32 a; .param .b32 b; call (b), next, (a), P;", "neither a prototype nor a list"),
    (".param .b32 b; call (b), next, (%r0);", "an argument or result that is no .param variable"),
    ("call k, ();", "k is a kernel"),
])  # fmt: skip
def test_a_call_that_disagrees_with_what_it_declares_is_refused_with_its_line(body, told):
    body = f"mov.u64 %rd3, next;\n{body}"
    with pytest.raises(UnsupportedInstruction, match=f"PTX line {line_of(OPERATIONS, body, body) + 1}: `call.*{told}"):
        run(OPERATIONS, body)


def test_a_function_pointer_that_one_kernel_stores_works_in_other_kernels_of_its_module_only():
    """The second kernel names none of the functions, so the candidates of its call must not be limited to functions that it names."""
    make = kernel("mov.u64 %rd1, square; st.global.u64 [%rd0], %rd1;", parameters=1).replace(" k(", " make(").replace("k_0", "make_0")
    use = module("", "ld.global.u64 %rd3, [%rd1];" + PROTOTYPE + invoke("%rd3", "%r40", "%r0", "P"), 2)
    both = make.replace(".visible", OPERATIONS + ".visible", 1) + use[use.index(".visible") :]
    for whole in (True, False):
        gpu, mine = emulator.Device("sm_90a", jobs=2), emulator.Module(both, whole)
        pointer, out = gpu.alloc(8), gpu.alloc(np.zeros(32, np.uint32))
        assert gpu.launch(mine, "make", 1, 1, params=[pointer]).ok
        assert gpu.launch(mine, "k", 2, 32, params=[out, pointer]).ok
        np.testing.assert_array_equal(gpu.read(out, 32, np.uint32), LANE**2)
        report = gpu.launch(emulator.Module(both, whole), "k", 1, 32, params=[out, pointer])
        assert "is the address of no function of this module" in only(report, "invalid-call").message


def test_a_function_with_an_uncovered_instruction_is_refused_only_in_kernels_that_call_it():
    """A class with a virtual destructor has a function in its table that calls cudaFree. All functions of one prototype are candidates of a call."""
    for wrong in ("unheard.u32 %r1, %r0;", "add.u32.sat.wrap %r1, %r0, 1;", ".param .b32 a; call cudaFree, (a);", "bra.sideways END; END:"):
        functions = ".extern .func cudaFree(.param .b32 x);\n" + function("never", wrong) + OPERATIONS.replace("0, next}", "never, next}")
        called = THROUGH_TABLE.format(index="%r3", table="table", space="global") + PROTOTYPE + invoke("%rd3", "%r40", "%r0", "P")
        values, report = run(functions, "and.b32 %r3, %r0, 1;" + called)
        assert report.ok and not report.findings, report
        np.testing.assert_array_equal(values, np.where(LANE % 2, LANE**2, 3 * LANE))
        with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+: `(unheard|add|call cudaFree|bra)"):
            run(functions, "mov.u32 %r3, 2;" + called)
        with pytest.raises(UnsupportedInstruction, match=r"PTX line \d+: `(unheard|add|call cudaFree|bra)"):
            run(functions, "mov.u32 %r40, 0; bra END; " + invoke("never", "%r40", "%r0") + "END:")


def test_an_access_to_the_address_of_a_function_is_out_of_bounds():
    for access in ("ld.u32 %r40, [%rd3];", "ld.global.u32 %r40, [%rd3];", "mov.u32 %r40, 0; st.u32 [%rd3], %r40;"):
        _, report = run(OPERATIONS, f"mov.u64 %rd3, next; {access}")
        assert "out-of-bounds" in kinds(report)


# ---- recursion ---------------------------------------------------------------------------------------------------------
FIBONACCI = function("fib", f"""
setp.lt.u32 %p0, %r0, 2; @%p0 bra END;
sub.u32 %r1, %r0, 1; {invoke("fib", "%r2", "%r1")}
sub.u32 %r1, %r0, 2; {invoke("fib", "%r3", "%r1")}
add.u32 %r0, %r2, %r3;
END:""")  # fmt: skip


def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@pytest.mark.parametrize("policy", POLICIES)
def test_registers_of_a_caller_survive_deeper_calls_of_its_function_in_lanes_of_different_depth(policy):
    """The barrier and the shuffle after the call need all lanes, so lanes of different depths must meet again."""
    body = "rem.u32 %r1, %r0, 9; " + invoke("fib", "%r40", "%r1")
    body += "bar.sync 0; shfl.sync.bfly.b32 %r2, %r40, 1, 31, 0xffffffff; add.u32 %r40, %r40, %r2;"
    values, report = run(FIBONACCI, body, words=64, policy=policy)
    assert report.ok and not report.findings, report
    single = np.array([fibonacci(lane % 9) for lane in range(64)])
    np.testing.assert_array_equal(values, single + single[np.arange(64) ^ 1])


def test_functions_that_call_each_other_keep_their_registers():
    def half(name, other, factor):
        body = f"mov.u32 %r1, %r0; setp.eq.u32 %p0, %r0, 0; @%p0 bra END; sub.u32 %r0, %r0, 1; {invoke(other, '%r0', '%r0')}"
        return function(name, f"{body} mad.lo.u32 %r0, %r0, {factor}, %r1; END:")

    functions = ".func (.param .b32 y) odd(.param .b32 x);\n" + half("even", "odd", 3) + half("odd", "even", 5)

    def value(n, factor=3):
        return n if n == 0 else value(n - 1, 8 - factor) * factor + n

    values, report = run(functions, "and.b32 %r1, %r0, 7; " + invoke("even", "%r40", "%r1"))
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(values, [value(lane % 8) for lane in range(32)])


@pytest.mark.parametrize("policy", POLICIES)
def test_a_function_that_calls_itself_through_a_pointer_keeps_its_registers(policy):
    body = f"""
mov.u32 %r3, 0; mov.u32 %r1, %r0; setp.eq.u32 %p0, %r0, 1; @%p0 bra END;
and.b32 %r2, %r0, 1; setp.eq.u32 %p1, %r2, 0; shr.u32 %r0, %r0, 1; @!%p1 mad.lo.u32 %r0, %r1, 3, 1;
ld.global.u64 %rd0, [self]; {PROTOTYPE} {invoke("%rd0", "%r3", "%r0", "P")}
add.u32 %r3, %r3, %r1;
END: mov.u32 %r0, %r3;"""
    functions = ".func (.param .b32 y) collatz(.param .b32 x);\n.global .align 8 .u64 self = collatz;\n" + function("collatz", body)

    def value(n):
        return 0 if n == 1 else n + value(3 * n + 1 if n % 2 else n // 2)

    values, report = run(functions, "add.u32 %r1, %r0, 1;" + invoke("collatz", "%r40", "%r1"), policy=policy, stack_bytes=2048)
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(values, [value(lane + 1) for lane in range(32)])


def test_local_arrays_of_one_function_at_different_depths_are_different():
    """Each call passes the address of its array to the deeper call. The deepest call writes to all arrays along this chain of addresses."""
    functions = """
.func chain(.param .b32 n, .param .b64 above)
{ .local .align 16 .b8 own[32]; .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<4>;
  ld.param.u32 %r0, [n]; ld.param.u64 %rd0, [above]; mov.u64 %rd1, own; cvta.local.u64 %rd1, %rd1;
  st.u64 [%rd1], %rd0; st.u32 [%rd1+8], %r0; st.local.u32 [own+12], 0;
  setp.eq.u32 %p, %r0, 0; @%p bra DEEPEST;
  sub.u32 %r1, %r0, 1; { .param .b32 a; .param .b64 b; st.param.b32 [a], %r1; st.param.b64 [b], %rd1; call chain, (a, b); }
  ld.u32 %r2, [%rd1+8]; setp.ne.u32 %p, %r2, %r0; @%p trap;
  ld.u32 %r2, [%rd1+12]; add.u32 %r2, %r2, %r0; st.u32 [%rd0+12], %r2; ret;
DEEPEST: setp.eq.u64 %p, %rd0, 0; @%p ret; ld.u32 %r2, [%rd0+12]; add.u32 %r2, %r2, 100; st.u32 [%rd0+12], %r2; ld.u64 %rd0, [%rd0]; bra DEEPEST;
}
"""
    body = """.local .align 16 .b8 mine[32]; mov.u64 %rd1, mine; cvta.local.u64 %rd1, %rd1; st.u64 [%rd1], 0; st.u32 [%rd1+12], 0; and.b32 %r1, %r0, 7;
{ .param .b32 a; .param .b64 b; st.param.b32 [a], %r1; st.param.b64 [b], %rd1; call chain, (a, b); } ld.u32 %r40, [%rd1+12];"""
    values, report = run(functions, body, stack_bytes=1024)
    assert report.ok and not report.findings, report
    depth = LANE % 8
    np.testing.assert_array_equal(values, np.where(depth == 0, 100, 100 + depth * (depth + 1) // 2))


def test_lanes_that_end_inside_a_recursion_do_not_keep_the_others_from_returning():
    body = f"""
mov.u32 %r2, %laneid; setp.eq.u32 %p0, %r0, 0; @%p0 bra END;
setp.eq.u32 %p1, %r0, 3; setp.lt.and.u32 %p1, %r2, 16, %p1; @%p1 exit;
sub.u32 %r1, %r0, 1; {invoke("down", "%r1", "%r1")}
add.u32 %r0, %r0, %r1;
END:"""
    functions = function("down", body)
    values, report = run(functions, "mov.u32 %r40, 1; and.b32 %r1, %r0, 7;" + invoke("down", "%r40", "%r1") + "bar.warp.sync 0xffffffff;")
    depth = LANE % 8
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(values, np.where((LANE < 16) & (depth >= 3), 0, depth * (depth + 1) // 2))


def test_a_register_that_only_a_deeper_or_earlier_call_wrote_is_undefined():
    """Each call begins with unwritten registers, and a return restores the caller's."""
    deeper = f"""
    setp.ne.u32 %p0, %r0, 0; @!%p0 bra USE; mov.u32 %r5, 9; sub.u32 %r1, %r0, 1; {invoke("once", "%r1", "%r1")} mov.u32 %r5, 8;
    USE: setp.ne.u32 %p1, %r5, 8; @%p1 bra END; END:"""
    body = "setp.eq.u32 %p1, %r0, 3; selp.b32 %r1, 1, 0, %p1;" + invoke("once", "%r40", "%r1")
    found = only(run(function("once", deeper), body)[1], "uninitialised-register")
    assert found.lanes == 0xFFFFFFFF and found.count == 1  # lane 3 in its deeper call, whose caller wrote the register
    assert not run(function("once", deeper.replace("@!%p0 bra USE", "@!%p0 bra END")), body)[1].findings
    own = f"setp.eq.u32 %p0, %r0, 0; @%p0 mov.u32 %r5, 9; @%p0 bra END; {invoke('twice', '%r1', '0')} setp.eq.u32 %p1, USED, 9; @%p1 bra END; END:"
    assert (
        only(run(function("twice", own.replace("USED", "%r5")), invoke("twice", "%r40", "1"))[1], "uninitialised-register").lanes
        == 0xFFFFFFFF
    )
    assert not run(function("twice", own.replace("USED", "%r1")), invoke("twice", "%r40", "1"))[1].findings


def test_local_memory_that_only_an_earlier_call_wrote_is_undefined():
    functions = ".func (.param .b32 y) once(.param .b32 x)\n{ .local .b32 kept; .reg .pred %p; .reg .b32 %r<2>; ld.param.u32 %r0, [x]; setp.eq.u32 %p, %r0, 0;"
    functions += " @!%p st.local.u32 [kept], %r0; ld.local.u32 %r1, [kept]; st.param.b32 [y], %r1; ret; }\n"
    values, report = run(functions, invoke("once", "%r40", "7"))
    assert report.ok and not report.findings and (values == 7).all()
    _, report = run(functions, invoke("once", "%r40", "7") + invoke("once", "%r40", "0"))
    assert "uninitialised-local" in kinds(report) and not report.ok
    apart = "mul.lo.u32 %r1, %r0, 8; cvt.u64.u32 %rd1, %r1; alloca.u64 %rd2, %rd1; "  # the lanes' frames begin at different addresses
    values, report = run(functions, apart + invoke("once", "%r40", "7"))
    assert report.ok and not report.findings and (values == 7).all()
    _, report = run(functions, apart + invoke("once", "%r40", "7") + invoke("once", "%r40", "0"))
    assert "uninitialised-local" in kinds(report) and not report.ok


def test_an_unwritten_value_that_a_caller_holds_is_an_error_only_if_the_caller_uses_it():
    """The value comes from unwritten shared memory. The deeper calls write the register that holds it."""
    body = f"ld.shared.u32 %r5, [word]; setp.eq.u32 %p0, %r0, 0; @%p0 bra END; sub.u32 %r1, %r0, 1; {invoke('deep', '%r1', '%r1')} USE END: mov.u32 %r5, 1;"
    shared, use = ".shared .align 4 .b32 word;\n", "setp.eq.u32 %p1, %r5, 2; @%p1 bra END;"
    for what, severity in ((use, "error"), ("mov.u32 %r0, %r1;", "note")):
        _, report = run(shared + function("deep", body.replace("USE", what)), invoke("deep", "%r40", "2"))
        assert only(report, "uninitialised-shared").severity == severity
    below = (
        f"setp.eq.u32 %p0, %r0, 0; @%p0 ld.shared.u32 %r5, [word]; @%p0 bra END; mov.u32 %r5, 1; {invoke('deep', '%r1', '0')} {use} END:"
    )
    _, report = run(shared + function("deep", below), invoke("deep", "%r40", "1"))
    assert only(report, "uninitialised-shared").severity == "note"  # the caller has a value of its own in that register


def test_a_loaded_value_that_a_caller_holds_across_a_call_counts_as_used_when_another_warp_overwrites_its_memory():
    """The second warp counts to 400 before it writes, so the first warp has returned. Uses of the value after a return are not followed."""
    held = "mov.u32 %r2, row; ld.shared.u32 %r5, [%r2]; setp.eq.u32 %p0, %r0, 0; @%p0 bra END; sub.u32 %r1, %r0, 1; {call} {use} END: mov.u32 %r5, 0;"
    body = "mov.u32 %r2, row; setp.ge.u32 %p1, %r0, 32; @!%p1 st.shared.u32 [%r2], 5; bar.sync 0; mov.u32 %r40, 0; @%p1 bra OTHER;"
    body += (
        invoke("hold", "%r40", "1")
        + "bra END; OTHER: mov.u32 %r3, 400; W: sub.u32 %r3, %r3, 1; setp.ne.u32 %p2, %r3, 0; @%p2 bra W; st.shared.u32 [%r2], 6; END:"
    )
    for call, use, severity in (
        (invoke("hold", "%r1", "%r1"), "setp.eq.u32 %p1, %r5, 2; @%p1 bra END;", "error"),
        (invoke("other", "%r1", "%r1"), "", "warning"),
    ):
        functions = function("other", "mov.u32 %r0, 1;") + function("hold", held.format(call=call, use=use))
        _, report = run(".shared .align 4 .b8 row[4];\n" + functions, body, words=64)
        assert only(report, "race").severity == severity, report


def test_registers_that_change_late_are_refused_in_a_function_that_calls_itself():
    product = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %d, %d, 1, 1, 1, 0, 0;"
    functions = f".func late() {{ .reg .f32 %f<4>; .reg .b64 %d; call late; {product} ret; }}"
    with pytest.raises(UnsupportedInstruction, match="registers that change late"):
        run(functions, "call late;")


# ---- the stack ---------------------------------------------------------------------------------------------------------
DOWN = function(
    "down", f"setp.eq.u32 %p0, %r0, 0; @%p0 bra END; sub.u32 %r1, %r0, 1; {invoke('down', '%r1', '%r1')} add.u32 %r0, %r1, 1; END:"
)


def test_a_recursion_that_is_deeper_than_the_stack_ends_the_lanes_that_are_too_deep():
    """ptxas needs at least 16 bytes for a recursive call, so 64 calls fill a stack of 1,024 bytes."""
    body = "add.u32 %r1, %r0, 40;" + invoke("down", "%r40", "%r1")
    values, report = run(DOWN, body)
    found = only(report, "stack-overflow")
    assert found.lanes == 0xFE000000 and found.text == "call (b), down, (a)" and found.line == line_of(DOWN, body, "{ .param .b32 a;")
    assert "the call of down needs 1,040 bytes of stack or more, and a thread has 1,024" in found.message
    np.testing.assert_array_equal(values, np.where(LANE > 24, 0, LANE + 40))
    values, report = run(DOWN, body, stack_bytes=71 * 16)
    assert report.ok and not report.findings
    np.testing.assert_array_equal(values, LANE + 40)


def test_local_arrays_of_a_recursion_take_room_of_the_stack():
    wide = DOWN.replace("{\n", "{\n.local .align 8 .b8 room[100]; st.local.u8 [room], 1;\n", 1)
    _, report = run(wide, invoke("down", "%r40", "7"))
    assert report.ok and not report.findings  # 8 arrays of 100 bytes, 7 calls that lead back
    assert "1,028 bytes" in only(run(wide, invoke("down", "%r40", "8"))[1], "stack-overflow").message
    assert run(wide, ".local .b8 more[80]; st.local.u8 [more], 1;" + invoke("down", "%r40", "7"))[1].ok
    assert kinds(run(wide, ".local .b8 more[200]; st.local.u8 [more], 1;" + invoke("down", "%r40", "7"))[1]) == {"stack-overflow"}


def test_a_recursion_without_an_end_is_found_on_the_largest_stack_too():
    for parameters in (DOWN.replace("@%p0 bra END;", ""), ".func down2() { call down2; ret; }\n"):
        body = invoke("down", "%r40", "1") if "down(" in parameters else "mov.u32 %r40, 0; call down2;"
        for stack in (1024, 512 << 10):
            _, report = run(parameters, body, stack_bytes=stack)
            assert kinds(report) == {"stack-overflow"} and not report.ok
    with pytest.raises(ArgumentError, match="stack_bytes"):
        emulator.Device(stack_bytes=(512 << 10) + 1)


def test_a_function_without_recursion_may_have_more_local_memory_than_the_stack():
    """ptxas computes the stack of such a kernel, and the driver allocates it."""
    functions = function("big", "st.local.u32 [room+3996], %r0; ld.local.u32 %r0, [room+3996];").replace(
        "{\n", "{\n.local .b8 room[4000];\n", 1
    )
    functions = functions.replace(".local .b8", ".local .align 4 .b8")
    values, report = run(functions, invoke("big", "%r40", "%r0"))
    assert report.ok and not report.findings
    np.testing.assert_array_equal(values, LANE)


def test_variables_of_a_frame_are_aligned_as_they_ask():
    body = ".local .align 64 .b8 wide[4]; .local .b8 odd[3]; mov.u32 %r1, wide; and.b32 %r1, %r1, 63; setp.ne.u32 %p1, %r1, 0; @%p1 trap;"
    body += f"st.local.u32 [wide], %r0; setp.eq.u32 %p0, %r0, 0; @%p0 bra END; sub.u32 %r1, %r0, 1; {invoke('aligned', '%r1', '%r1')}"
    values, report = run(
        function("aligned", body + "ld.local.u32 %r0, [wide]; END:"), "alloca.u64 %rd1, 24;" + invoke("aligned", "%r40", "3")
    )
    assert report.ok and not report.findings and (values == 3).all(), report


def test_the_frame_of_a_call_is_free_once_it_has_returned():
    """A hundred frames of 8,000 bytes are more than the local memory of a thread."""
    functions = function("big", ".local .align 4 .b8 room[8000]; st.local.u32 [room+7996], %r0; ld.local.u32 %r0, [room+7996];")
    loop = "mov.u32 %r2, 0; LOOP: " + invoke("big", "%r40", "%r2") + "add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 100; @%p1 bra LOOP;"
    values, report = run(functions, loop)
    assert report.ok and not report.findings and (values == 99).all()


def test_a_large_array_behind_a_pointer_overflows_the_stack():
    """ptxas cannot compute the stack of a kernel with such a call, so the driver allocates the limit."""
    functions = function("big", ".local .align 4 .b8 room[1028]; st.local.u32 [room+1024], %r0; ld.local.u32 %r0, [room+1024];")
    body = "mov.u64 %rd3, big; " + PROTOTYPE + invoke("%rd3", "%r40", "%r0", "P")
    assert "needs 1,028 bytes" in only(run(functions, body)[1], "stack-overflow").message
    values, report = run(functions, body, stack_bytes=1028)
    assert report.ok and not report.findings
    np.testing.assert_array_equal(values, LANE)


def test_memory_of_alloca_in_recursive_calls_is_freed_when_they_return():
    body = f"""
add.u32 %r1, %r0, 1; mul.lo.u32 %r1, %r1, 8; cvt.u64.u32 %rd0, %r1; alloca.u64 %rd1, %rd0; st.local.u32 [%rd1], %r0;
setp.eq.u32 %p0, %r0, 0; @%p0 bra END;
sub.u32 %r1, %r0, 1; {invoke("room", "%r2", "%r1")}
ld.local.u32 %r3, [%rd1]; add.u32 %r0, %r2, %r3;
END:"""
    calls = (
        "mov.u32 %r2, 0; LOOP: and.b32 %r1, %r0, 7;"
        + invoke("room", "%r40", "%r1")
        + "add.u32 %r2, %r2, 1; setp.lt.u32 %p1, %r2, 40; @%p1 bra LOOP;"
    )
    values, report = run(function("room", body), calls)
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(values, (LANE % 8) * (LANE % 8 + 1) // 2)
    _, report = run(function("room", body), invoke("room", "%r40", "15"))  # 16 rooms of 8 to 128 bytes, and 15 calls
    assert kinds(report) == {"stack-overflow", "out-of-bounds"}


def test_a_stack_is_not_restored_into_the_frame_of_the_function():
    body = "stacksave.u64 %rd0; alloca.u64 %rd1, 16; sub.u64 %rd2, %rd0, {}; stackrestore.u64 %rd2;"
    assert run(function("f", body.format(0)), invoke("f", "%r40", "1"))[1].ok
    assert kinds(run(function("f", body.format(8)), invoke("f", "%r40", "1"))[1]) == {"out-of-bounds"}


# ---- parameters --------------------------------------------------------------------------------------------------------
def test_a_parameter_without_a_size_receives_all_bytes_of_the_argument():
    """nvcc's variadic functions for sm_90 and older: the callee reads the rest of the parameters as local memory."""
    functions = """
.func (.param .b32 y) total(.param .b32 n, .param .align 8 .b8 %VAParam[])
{ .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %rd<2>; ld.param.u32 %r0, [n]; mov.u64 %rd0, %VAParam; mov.u32 %r1, 0;
LOOP: ld.local.u32 %r2, [%rd0]; add.u32 %r1, %r1, %r2; add.u64 %rd0, %rd0, 4; sub.u32 %r0, %r0, 1; setp.ne.u32 %p, %r0, 0; @%p bra LOOP;
  st.param.b32 [y], %r1; ret; }
"""
    call = "{{ .param .b32 a; .param .align 8 .b8 b[{size}]; .param .b32 c; st.param.b32 [a], {count}; st.param.b32 [b], %r0; "
    call += "st.param.b32 [b+4], 5; {more} {call} ld.param.b32 %r40, [c]; }}"
    by_name, through = (
        "call (c), total, (a, b);",
        "mov.u64 %rd3, total; P: .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[]); call (c), %rd3, (a, b), P;",
    )
    for how in (by_name, through):
        values, report = run(functions, call.format(size=8, count=2, more="", call=how))
        assert report.ok and not report.findings, report
        np.testing.assert_array_equal(values, LANE + 5)
        values, report = run(
            functions, call.format(size=160, count=40, more=" ".join(f"st.param.b32 [b+{4 * k}], {k};" for k in range(2, 40)), call=how)
        )
        assert report.ok and not report.findings, report
        np.testing.assert_array_equal(values, LANE + 5 + sum(range(2, 40)))
    assert "uninitialised-local" in kinds(run(functions, call.format(size=8, count=3, more="", call=by_name))[1])


def test_a_parameter_of_no_bytes_copies_nothing():
    """The next byte in the caller's memory belongs to another variable."""
    functions = ".func (.param .b32 y) f(.param .align 8 .b8 e[0], .param .b32 x, .param .b8 v[])\n{ .reg .b32 %r<2>; ld.param.b32 %r0, [x]; st.param.b32 [y], %r0; ret; }\n"
    for rest, given in ((".param .align 8 .b8 c[0];", ", c"), ("", "")):
        body = f"{{ .param .align 8 .b8 a[0]; .param .b32 b; {rest} .param .b32 d; st.param.b32 [b], %r0; call (d), f, (a, b{given}); ld.param.b32 %r40, [d]; }}"
        values, report = run(functions, body)
        assert report.ok and not report.findings, report
        np.testing.assert_array_equal(values, LANE)
    moved = (
        "{ .local .align 8 .b8 kept[8]; .param .align 8 .b8 a[0]; .param .b32 b; .param .b32 d; st.param.b32 [b], 1; st.param.b32 [d], 5; "
    )
    empty = ".func (.param .align 8 .b8 y[0]) g()\n{ ret; }\n"
    values, report = run(empty, moved + "call (a), g, (); ld.param.b32 %r1, [b]; ld.param.b32 %r2, [d]; mad.lo.u32 %r40, %r1, 10, %r2; }")
    assert report.ok and (values == 15).all(), report


def test_a_struct_that_a_caller_fills_in_part_is_not_reported_until_the_rest_is_used():
    functions = """
.func (.param .align 8 .b8 y[40]) swap(.param .align 8 .b8 x[40])
{ .reg .b32 %r<4>; .reg .b64 %rd<4>; ld.param.v2.b32 {%r0, %r1}, [x]; ld.param.b64 %rd0, [x+24]; ld.param.b64 %rd1, [x+32];
  st.param.v2.b32 [y], {%r1, %r0}; st.param.b64 [y+24], %rd1; st.param.b64 [y+32], %rd0; ret; }
"""
    body = "{{ .param .align 8 .b8 a[40]; .param .align 8 .b8 b[40]; st.param.v2.b32 [a], {{%r0, 7}}; st.param.b64 [a+24], 9; "
    body += (
        "call (b), swap, (a); ld.param.b32 %r1, [b]; ld.param.b64 %rd1, [b+{}]; }} cvt.u32.u64 %r2, %rd1; mad.lo.u32 %r40, %r1, 10, %r2;"
    )
    values, report = run(functions, body.format(32))
    assert report.ok and (values == 79).all(), report
    _, report = run(functions, body.format(24))
    assert not report.ok and kinds(report) == {"uninitialised-local"}


@pytest.mark.parametrize(("text", "told"), [
    (".func f(.param .b8 x[], .param .b32 y) { ret; }", "x in .param memory has no size"),
    (".func (.param .b8 x[]) f() { ret; }", "x in .param memory has no size"),
    (".func f() { P: .callprototype (.param .b8 _[]) _ (); ret; }", "only the last parameter of a prototype"),
    (".func f() { T: .calltargets absent; ret; }", "'absent' is not declared"),
])  # fmt: skip
def test_a_signature_that_ptx_does_not_allow_is_refused(text, told):
    with pytest.raises(emulator.ParseError, match=f"PTX line 4: {told}"):
        emulator.Module(f".version 9.0\n.target sm_90a\n.address_size 64\n{text}")

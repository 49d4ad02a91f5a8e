"""Flow on kernels of a few lines; and that edits of a shipped kernel which Flow excuses change nothing in the emulator."""

import pytest

from tests.gemm_blackwell import mutants
from tests.gemm_blackwell.flow import Flow

HEAD = """.version 8.8
.target sm_100a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry kernel(.param .u32 kernel_param_0, .param .u64 kernel_param_1)
{
.reg .pred %p<20>; .reg .b32 %r<30>; .reg .b64 %rd<4>;
ld.param.b32 %r1, [kernel_param_0];
mov.u32 %r2, %laneid;
mov.b32 %r3, memory;
shl.b32 %r4, %r2, 3;
add.s32 %r5, %r3, %r4;
setp.gt.u32 %p1, %r2, 1;
@%p1 bra INITIALISED;
add.s32 %r6, %r5, 4096;
mbarrier.init.shared::cta.b64 [%r6], 1;
add.s32 %r7, %r5, 4112;
mbarrier.init.shared::cta.b64 [%r7], 1;
INITIALISED:
"""
WAIT = "mbarrier.try_wait.parity.shared::cta.b64 %p9, [{}], 0;\n"
# A loop over tiles, which runs once if the parameter is 0. A tile has one product or two. The third product waits for the second mbarrier.
COUNTS = f"""
mov.b32 %r10, 0;
TILE:
setp.eq.b32 %p2, %r2, 5;
PRODUCT:
setp.lt.s32 %p3, %r10, 2;
@%p3 bra EMPTY;
add.s32 %r11, %r3, 4120;
{WAIT.format("%r11")}
EMPTY:
add.s32 %r10, %r10, 1;
add.s32 %r12, %r3, 4112;
mbarrier.arrive.shared::cta.b64 _, [%r12];
not.pred %p5, %p2;
mov.pred %p2, -1;
@%p5 bra PRODUCT;
setp.eq.b32 %p6, %r1, 0;
setp.eq.b32 %p7, %r2, 7;
or.pred %p8, %p6, %p7;
@%p8 bra END;
bra.uni TILE;
END:
"""


def flow(body: str, turns: int | None = None) -> Flow:
    return Flow(HEAD + body + "ret;\n}\n", "kernel", (turns, None))


def places(of: Flow, opcode: str) -> list[int]:
    return [i for i, statement in enumerate(of.statements) if statement.opcode.startswith(opcode)]


def test_no_launch_uses_a_barrier_that_no_statement_addresses():
    kernel = flow(f"add.s32 %r9, %r3, 4104;\n{WAIT.format('%r9')}")
    assert [kernel.nobody_uses(init) for init in places(kernel, "mbarrier.init")] == [False, True]


@pytest.mark.parametrize(
    "use",
    ["add.s32 %r9, %r5, 4120;\nmov.b32 %r10, %r9;", "mov.b32 %r9, 4112;", "ld.shared.b32 %r9, [memory+4124];", "add.s64 %rd1, %rd2, 4112;"],
)
def test_a_statement_with_the_address_of_a_barrier_may_use_it(use):
    kernel = flow(use + "\n")
    assert not kernel.nobody_uses(places(kernel, "mbarrier.init")[1])


def test_an_address_computed_from_the_address_of_another_barrier_counts_as_a_use():
    kernel = flow(f"add.s32 %r9, %r3, 4096;\nmov.b32 %r10, %r9;\nadd.s32 %r11, %r10, 16;\n{WAIT.format('%r11')}")
    assert not kernel.nobody_uses(places(kernel, "mbarrier.init")[1])


def test_a_wait_behind_a_count_that_no_launch_reaches_does_not_count():
    kernel = flow(COUNTS, turns=0)
    assert kernel.nobody_waits_for(places(kernel, "mbarrier.arrive")[0])


def test_a_wait_that_some_launch_reaches_counts():
    for kernel in (flow(COUNTS), flow(COUNTS, turns=1), flow(COUNTS.replace("%r10, 2;", "%r10, 1;"), turns=0)):
        assert not kernel.nobody_waits_for(places(kernel, "mbarrier.arrive")[0])


def test_a_counter_without_an_end_is_not_followed_for_ever():
    kernel = flow("mov.b32 %r10, 0;\nMORE:\nadd.s32 %r10, %r10, 1;\nsetp.lt.s32 %p2, %r10, %r2;\n@%p2 bra MORE;\n")
    assert kernel.reached == set(range(len(kernel.statements)))


def between(before: str, after: str) -> Flow:
    return flow(f"st.shared.b32 [%r5], %r2;\nbar.sync 0;\n{before}\nbar.sync 0;\n{after}\n")


QUIET = "ld.shared.b32 %r20, [%r5];\nst.global.b32 [%rd1], %r20;"
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r21, 512;"


def test_a_barrier_after_another_between_loads_and_deallocation_orders_nothing():
    kernel = between(QUIET, FREE)
    assert [kernel.orders_nothing(barrier) for barrier in places(kernel, "bar.sync")] == [False, True]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("st.shared.b32 [%r5], %r20;", "ld.shared.b32 %r20, [%r5+4];"),
        (QUIET, "st.shared.b32 [%r5], %r20;"),
        (QUIET, "ld.global.b32 %r20, [%rd1+4];"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r21];\ntcgen05.wait::ld.sync.aligned;", FREE),
        ("ld.shared::cluster.b32 %r20, [%r5];", FREE),
        ("mbarrier.arrive.shared::cta.b64 _, [%r6];", FREE),
        (QUIET, "bra.uni INITIALISED;"),
    ],
)
def test_a_barrier_between_accesses_that_may_conflict_orders_them(before, after):
    kernel = between(before, after)
    assert not kernel.orders_nothing(places(kernel, "bar.sync")[1])


def test_a_barrier_that_a_path_reaches_without_another_orders_the_start():
    kernel = flow(f"@%p1 bra LATER;\nbar.sync 0;\nLATER:\nbar.sync 0;\n{FREE}\n")
    assert not kernel.orders_nothing(places(kernel, "bar.sync")[1])


def test_the_registers_of_an_unpacked_vector_are_not_taken_for_its_source():
    kernel = flow("mov.b64 %rd1, 0;\nmov.b64 {%r10, %r11}, %rd1;\nsetp.eq.s32 %p2, %r11, 0;\n@%p2 bra OVER;\nmov.b32 %r12, 1;\nOVER:\n")
    assert kernel.reached == set(range(len(kernel.statements)))


def test_a_barrier_after_loads_of_tensor_memory_without_a_wait_is_needed():
    loads = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r21];\n"
    waited = flow(f"{loads}tcgen05.wait::ld.sync.aligned;\nbar.sync 0;\nbar.sync 0;\n{FREE}\n")
    not_waited = flow(f"{loads}bar.sync 0;\nbar.sync 0;\n{FREE}\n")
    assert waited.orders_nothing(places(waited, "bar.sync")[1])
    assert not not_waited.orders_nothing(places(not_waited, "bar.sync")[1])


OF_FEW_TOKENS = "fp8b128 gather", "few128"


@pytest.mark.parametrize(("kind", "number"), [("a barrier is not initialised", 4), ("does not arrive", 2), ("no barrier of the CTA", 2)])
def test_the_emulator_agrees_that_an_edit_has_no_effect(kind, number):
    mutant = mutants.Mutant(*OF_FEW_TOKENS, kind, number, "")
    assert mutants.reason_it_is_none(mutant)
    assert not mutants.verdict_on(*OF_FEW_TOKENS, mutant.ptx(), mutant, schedules=(1,)).found_by


def test_an_edit_with_an_effect_has_no_excuse():
    for kind, number in (("a barrier is not initialised", 3), ("does not arrive", 0), ("no barrier of the CTA", 1)):
        assert not mutants.reason_it_is_none(mutants.Mutant(*OF_FEW_TOKENS, kind, number, ""))

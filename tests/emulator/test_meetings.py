"""Lanes that execute the same kind of .sync instruction at different places of the program: the manual lets them meet."""

import numpy as np
import pytest
from core_support import kernel, kinds, launch, only

from zoo import emulator

# Lanes below 16 go one way and the others the other way. Each way has a register of its own.
BRANCH = """
    mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0;
    setp.lt.u32 %p1, %r0, 16; setp.lt.u32 %p2, %r0, {limit}; mov.u32 %r9, -1;
    @%p1 bra LOW;
    {guest} {high} mov.u32 %r10, %r6;
    bra END;
LOW:
    add.u32 %r3, %r0, 200; {low} mov.u32 %r10, %r5;
END:
    st.global.u32 [%rd1], %r10;
"""
GUEST = "add.u32 %r4, %r0, 100;"
LANE = np.arange(32)


def run(high, low, *, guest=GUEST, limit=24, **options):
    gpu = emulator.Device(instruction_limit=50_000, **options)
    place = gpu.alloc(128)
    report = launch(kernel(BRANCH.format(high=high, low=low, guest=guest, limit=limit), parameters=1), device=gpu, params=[place])
    return report, gpu.read(place, 32, np.uint32)


@pytest.mark.parametrize("scheduling", ["issue", "last", "random"])
@pytest.mark.parametrize(("high", "low", "values"), [
    ("shfl.sync.bfly.b32 %r6, %r4, 16, 31, -1;", "shfl.sync.bfly.b32 %r5, %r3, 16, 31, -1;", np.where(LANE < 16, LANE + 116, LANE + 184)),
    ("shfl.sync.bfly.b32 %r4, %r4, 16, 31, -1; mov.u32 %r6, %r4;", "shfl.sync.bfly.b32 %r5, %r3, 1, 31, %r9;", np.where(LANE < 16, (LANE ^ 1) + 200, LANE + 184)),
    ("shfl.sync.idx.b32 %r6, 7, 0, 31, -1;", "shfl.sync.idx.b32 %r5, %r3, 20, 31, -1;", np.where(LANE < 16, 7, 200)),
    ("redux.sync.max.u32 %r6, %r4, -1;", "redux.sync.max.u32 %r5, %r3, -1;", np.full(32, 215)),
    ("vote.sync.ballot.b32 %r6, %p2, -1;", "vote.sync.ballot.b32 %r5, %p1, -1;", np.full(32, 0xFFFFFF)),
    ("match.any.sync.b32 %r6, %r4, -1;", "sub.u32 %r3, %r3, 84; match.any.sync.b32 %r5, %r3, -1;", (1 << LANE | 1 << (LANE ^ 16))),
    ("bar.warp.sync -1; mov.u32 %r6, 1;", "bar.warp.sync -1; mov.u32 %r5, 2;", np.where(LANE < 16, 2, 1)),
])  # fmt: skip
def test_lanes_of_both_sides_of_a_branch_exchange_values(high, low, values, scheduling):
    report, found = run(high, low, scheduling=scheduling)
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(found, values)


def test_registers_of_the_other_side_keep_their_values():
    """The high lanes' %r3 and %r5, which the low side reads and writes, are what they were."""
    high = "mov.u32 %r3, 11; mov.u32 %r5, 12; shfl.sync.bfly.b32 %r6, %r4, 16, 31, -1; mad.lo.u32 %r6, %r3, 1000, %r5;"
    report, found = run(high, "shfl.sync.bfly.b32 %r5, %r3, 16, 31, -1;")
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(found, np.where(LANE < 16, LANE + 116, 11012))


@pytest.mark.parametrize(("guard", "distance", "lanes"), [("", 16, 0), ("@%p4", 8, 0xFF0000)])
def test_only_lanes_that_did_not_write_are_without_a_value(guard, distance, lanes):
    """Whether all lanes write %r4 shows only at run time, while %r3 is written on every path."""
    guest = f"setp.lt.u32 %p4, %r0, 24; setp.lt.u32 %p3, %r0, 32; @!%p3 bra SKIP; {guard} add.u32 %r4, %r0, 100; SKIP:"
    high, low = f"shfl.sync.bfly.b32 %r6, %r4, {distance}, 31, -1;", f"shfl.sync.bfly.b32 %r5, %r3, {distance}, 31, -1;"
    report, _ = run(high, low, guest=guest)
    if lanes:
        assert only(report, "uninitialised-register").lanes == lanes
    else:
        assert report.ok and not report.findings, report


@pytest.mark.parametrize(
    "low",
    [
        "shfl.sync.up.b32 %r5, %r3, 16, 0, -1;",
        "bar.warp.sync -1;",
        "setp.lt.u32 %p2, %r0, 8; @%p2 shfl.sync.bfly.b32 %r5, %r3, 16, 31, -1; spin: bra spin;",
    ],
)
def test_other_qualifiers_and_absent_lanes_do_not_meet(low):
    report, _ = run("shfl.sync.bfly.b32 %r6, %r4, 16, 31, -1;", low)
    assert not report.completed and kinds(report) & {"deadlock", "livelock"}, report


def test_lanes_that_are_not_guarded_out_meet_and_the_others_pass():
    high = "mov.u32 %r6, 5; @%p2 shfl.sync.bfly.b32 %r6, %r4, 16, 31, 0x00FFFFFF;"
    low = "mov.u32 %r5, 6; setp.lt.u32 %p2, %r0, 16; @%p2 shfl.sync.bfly.b32 %r5, %r3, 8, 31, 0x00FFFFFF;"
    report, found = run(high, low)
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(found, np.where(LANE < 16, (LANE ^ 8) + 200, np.where(LANE < 24, LANE + 184, 5)))


def test_turns_of_an_unrolled_loop_pair_up_until_lanes_have_returned():
    """16 lanes make two turns and 16 make one turn, as nvcc unrolls a loop over columns with a shuffle in it."""
    body = """
        mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd1, %rd0; mov.u32 %r1, 10; setp.lt.u32 %p1, %r0, 16;
        @%p1 bra TWO;
        shfl.sync.bfly.b32 %r1, %r0, 1, 31, -1;
        bra STORE;
    TWO: mov.u32 %r2, 0;
    TURN: shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;
        add.u32 %r1, %r1, %r3; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 2;
        @%p2 bra TURN;
    STORE: st.global.u32 [%rd1], %r1;
    """
    gpu = emulator.Device(instruction_limit=50_000)
    place = gpu.alloc(128)
    report = launch(kernel(body, parameters=1), device=gpu, params=[place])
    # the 16 lanes of one turn wait at STORE for nobody, and return
    assert report.ok and not report.findings, report
    np.testing.assert_array_equal(gpu.read(place, 32, np.uint32), np.where(LANE < 16, 10 + 2 * (LANE ^ 1), LANE ^ 1))

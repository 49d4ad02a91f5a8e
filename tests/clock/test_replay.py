"""The clock's order: nothing starts before what it waits for, no unit does two things at a time, and the cause of waiting is named."""

import itertools

import pytest

from zoo.clock.chip import chip_for
from zoo.clock.replay import MATH, MEMORY, TENSOR_CORE, Rates, replay
from zoo.emulator.recording import Arrive, Commit, Drain, Issue, Phase, Recording, Stream, Wait, Work

CTA = (0, 0)
STAGES, BLOCKS = 2, 8
RATES = Rates(bytes_a_cycle=32.0, latency=500.0)
CHIP = chip_for("sm_90a")


class Handmade(Recording):
    def __init__(self, streams):
        super().__init__(())
        self._of_warps = dict(enumerate(streams))


def pipeline(bytes_of_a_copy, columns=128):
    """A warp that copies into a ring of stages, and one that multiplies each stage and releases it."""
    copies, math = Stream(CTA, 4), Stream(CTA, 0)
    full, empty = [Phase() for _ in range(BLOCKS)], [Phase() for _ in range(BLOCKS)]
    for block in range(BLOCKS):
        full[block].contributions = empty[block].contributions = 1
        if block >= STAGES:
            copies.items.append(Wait(empty[block - STAGES]))
        copies.items.append(Issue(Work("copy", CTA, bytes_of_a_copy, phases=[full[block]])))
        math.items.append(Wait(full[block]))
        product = Work("multiply", CTA, queue=0, rows=16, columns=columns, depth=32, kind="e4m3", shared_rows=64 + columns)
        math.items += [Issue(product), Commit(0), Drain(0, 0), Arrive(empty[block])]
    return Handmade([copies, math])


def waits(clock, warp):
    lane = next(lane for lane in clock.lanes if lane.stream.warp == warp)
    return {cause: sum(span.end - span.start for span in lane.spans if span.what == cause) for cause in (MEMORY, TENSOR_CORE, MATH)}


def test_a_longer_copy_makes_memory_what_others_wait_for():
    short, long = (replay(pipeline(size), CHIP, RATES) for size in (1 << 10, 1 << 20))
    assert waits(long, 0)[MEMORY] > 0.9 * long.cycles
    assert waits(short, 0)[MEMORY] < waits(long, 0)[MEMORY] / 50
    assert long.multiprocessors[0].memory.busy == pytest.approx(BLOCKS * (1 << 20) / RATES.bytes_a_cycle)


def test_a_longer_multiplication_makes_the_tensor_core_what_others_wait_for():
    clock = replay(pipeline(1 << 10, columns=1 << 16), CHIP, RATES)
    assert waits(clock, 0)[TENSOR_CORE] > 0.9 * clock.cycles
    assert waits(clock, 4)[MATH] > 0.5 * clock.cycles


def test_a_multiplication_never_starts_before_its_copy_has_arrived():
    clock = replay(pipeline(1 << 14), CHIP, RATES)
    sm = clock.multiprocessors[0]
    copied = [span.end + RATES.latency + CHIP.copy_latency for span in sm.memory.spans]
    started = [span.start for span in sm.tensor_cores[0].spans]
    assert len(copied) == len(started) == BLOCKS
    assert all(start >= arrival for start, arrival in zip(started, copied, strict=True))


def test_a_copy_never_starts_before_its_stage_is_released():
    clock = replay(pipeline(1 << 14), CHIP, RATES)
    sm = clock.multiprocessors[0]
    released = [span.end for span in sm.tensor_cores[0].spans]
    assert all(copy.start >= end for copy, end in zip(sm.memory.spans[STAGES:], released, strict=False))


def test_more_stages_hide_latency_and_fewer_do_not():
    """The time of a ring that is too short is that of its round trips, which no rate of memory changes."""
    fast = replay(pipeline(1 << 10), CHIP, Rates(1e9, RATES.latency))
    assert fast.cycles > BLOCKS / STAGES * RATES.latency


@pytest.mark.parametrize("chip", ["hopper", "blackwell"])
def test_no_unit_does_two_things_at_a_time(chip, request):
    prediction = request.getfixturevalue(chip)
    units = [unit for sm in prediction.replay.multiprocessors.values() for unit in sm.units()]
    assert sum(len(unit.spans) for unit in units) > 50
    for unit in units:
        assert all(one.end <= other.start + 1e-6 for one, other in itertools.pairwise(unit.spans)), unit.name


@pytest.mark.parametrize("chip", ["hopper", "blackwell"])
def test_no_warp_does_two_things_at_a_time_or_after_the_end(chip, request):
    prediction = request.getfixturevalue(chip)
    for lane in prediction.replay.lanes:
        assert all(one.start <= one.end <= other.start + 1e-6 for one, other in itertools.pairwise(lane.spans)), lane.role
        assert all(span.end <= prediction.replay.cycles + 1e-6 for span in lane.spans)


def test_two_ctas_of_a_multiprocessor_share_its_units():
    alone, shared = (replay(pipeline(1 << 20), CHIP, RATES, copies) for copies in (1, 2))
    assert shared.multiprocessors[0].memory.busy == pytest.approx(2 * alone.multiprocessors[0].memory.busy)
    assert 1.8 * alone.cycles < shared.cycles < 2.1 * alone.cycles

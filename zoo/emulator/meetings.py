"""Lanes of one warp that meet at different instructions.

A shfl.sync waits until all live lanes of its member mask have executed *a* shfl.sync with the same qualifiers and the same mask. Compilers
rely on that: a loop whose lanes take different numbers of turns is unrolled, and both sides of a branch may hold the shuffle.
vote.sync, match.sync, redux.sync and bar.warp.sync wait in the same way.
"""

from functools import reduce
from operator import or_

from .lanes import FULL, first_lane, mask_of


class Meeting:
    """What an instruction exchanges: its qualifiers, and the slots of its mask, of all operands in order, and of its results."""

    __slots__ = ("key", "mask", "operands", "results")

    def __init__(self, key, mask, operands, results=()):
        self.key, self.mask, self.operands = key, mask, operands
        self.results = [slot for slot in results if slot is not None]


def found(warp):
    """The pcs of parked groups that are together all live lanes of a mask."""
    if len(warp.parked) < 2:
        return ()
    places = {}
    for pc in warp.parked:
        meeting, lanes = warp.program.instructions[pc].meeting, warp.groups[pc]
        if meeting is not None:
            masks = warp.values[meeting.mask]
            mask = int(masks[first_lane(lanes)])
            if not lanes & ~mask and (masks[mask_of(lanes)] == mask).all():
                places.setdefault((meeting.key, mask), []).append(pc)
    for (_, mask), pcs in places.items():
        if not mask & warp.live & ~reduce(or_, (warp.groups[pc] for pc in pcs)):
            return pcs
    return ()


def hold(warp, pcs):
    """Execute the instructions at pcs, each for the lanes of all of them, and let each group go on."""
    groups = {pc: warp.groups.pop(pc) for pc in pcs}
    everybody = reduce(or_, groups.values())
    brought = {pc: [_taken(warp, slot) for slot in warp.program.instructions[pc].meeting.operands] for pc in pcs}
    for pc, lanes in groups.items():
        del warp.parked[pc]
        guests = {other: part for other, part in groups.items() if other != pc}
        _execute(warp, pc, everybody, everybody & ~lanes, guests, brought)
        warp.machine.counts[pc] += 1
        warp.way.append((pc, pc + 1, lanes))
    for pc, lanes in groups.items():
        warp.groups[pc + 1] = warp.groups.get(pc + 1, 0) | lanes
        warp.parked.pop(pc + 1, None)
    return len(pcs)


def _execute(warp, pc, everybody, outside, guests, brought):
    """One instruction with the guests' operands in its own registers, which then become what they were in the guests' lanes."""
    ins, values, defined = warp.program.instructions[pc], warp.values, warp.defined
    meeting = ins.meeting
    guard = [] if ins.guard is None else [ins.guard[0]]
    constants = {slot: values[slot] for slot in meeting.operands if not _units(warp, slot)}
    registers = [slot for slot in (*meeting.operands, *meeting.results, *guard) if slot not in constants]
    kept = [(slot, values[slot].copy()) for slot in registers]
    tracked = _tracked(warp)
    known = {unit: defined[unit] if unit in tracked else FULL for slot in registers for unit in _units(warp, slot)}
    for k, slot in enumerate(meeting.operands):
        if slot in constants:
            values[slot] = values[slot].copy()
        for other, lanes in guests.items():
            array, bits = brought[other][k]
            values[slot][mask_of(lanes)] = array[mask_of(lanes)]
            for unit, of_guest in zip(_units(warp, slot), bits or [FULL] * 16):
                defined[unit] = defined[unit] & ~lanes | of_guest & lanes
    for slot in guard:
        values[slot][mask_of(outside)] = not ins.guard[1]
        for unit in _units(warp, slot):
            defined[unit] |= outside
    warp.pc = pc
    warp.machine.code[pc](warp, everybody)
    for slot, array in kept:
        values[slot][mask_of(outside)] = array[mask_of(outside)]
    for unit, bits in known.items():
        defined[unit] = defined[unit] & ~outside | bits & outside
    for slot, array in constants.items():
        values[slot] = array


def _taken(warp, slot):
    """(values, lanes that wrote each byte); constants have no such bytes"""
    tracked = _tracked(warp)
    return warp.values[slot].copy(), [warp.defined[unit] if unit in tracked else FULL for unit in _units(warp, slot)]


def _tracked(warp):
    """The bytes of registers whose writers are known now. All others count as written."""
    return warp.program.followed if warp.machine.follows_undefined else warp.program.tracked


def _units(warp, slot):
    layout = warp.program.layout
    number = layout.register_of_slot.get(slot)
    return () if number is None else range(layout.unit_base[number], layout.unit_base[number] + layout.unit_count[number])

"""What became of values that a warp loaded from shared memory, when another warp overwrites the bytes and nothing orders the two.

Each warp keeps its way: (shared memory, instruction, lanes, byte offsets or None for any, bytes each, tick) for a read of shared memory,
and (first pc, pc behind the last, lanes) for instructions that it executed one after the other. The reads of a stretch precede it. Where the
way is too short to tell, a value counts as used.
"""

from collections import deque

import numpy as np

from . import definedness, doubts
from .pending_registers import add

_LONGEST = 256


def way():
    return deque(maxlen=_LONGEST)


def last_read(warp, shared, word):
    """The instruction by which a warp last read a word; None where its way is too short to tell."""
    words = np.array([word])
    return next((entry[1] for entry in reversed(warp.way) if len(entry) == 6 and entry[0] is shared and _covers(entry, words)), None)


def judged(shared, reads):
    """(severity, read, holders) of an overwrite; reads: (warp, words, latest tick that the writer knows of). `read` is one that decides.

    holders: (warp, lanes, registers that hold what was loaded, or is computed from that).
    """
    holders = []
    for read in reads:
        held = _holders(*read, shared)
        if held is None:
            return "error", read, ()
        holders += held
    return "warning", reads[0], holders


def follow(machine, finding, holders):
    """The finding is an error once one of these values is used."""
    if holders and not machine.follows_doubts:
        machine.follow_doubts()
    for warp, lanes, registers in holders:
        for number in registers:
            add(warp.doubtful_registers, number, lanes, (finding,))


def _holders(warp, words, known, shared):
    """None where a value may have been used."""
    entries = tuple(warp.way)
    loads = [entry for entry in entries if len(entry) == 6]
    if not loads or (len(entries) == _LONGEST and loads[0][5] > known):
        return None
    holders = []
    for place, entry in enumerate(entries):
        if len(entry) == 3 or entry[0] is not shared or entry[5] <= known or not _covers(entry, words):
            continue
        _, ins, lanes = entry[:3]
        registers = _followed(ins, lanes, [later for later in entries[place:] if len(later) == 3]) if ins.mnemonic in doubts.LOADS else None
        if registers is None:
            return None
        holders.append((warp, lanes, registers))
    return holders or None


def _covers(load, words):
    offsets, size = load[3:5]
    return offsets is None or bool(((offsets[:, None] >> 2 <= words) & (words <= offsets[:, None] + size - 1 >> 2)).any())


def _followed(load, lanes, stretches):
    """The registers that hold the load's values after these stretches, the first of which has the load. None where one was used."""
    if not stretches:
        return None
    program, held, pc = load.program, set(load.writes), load.pc + 1
    for start, stop, by in stretches:
        for ins in program.instructions[pc or start : stop]:
            if ins.saved is not None and held & ins.saved.numbers:
                return None  # the return restores these registers, and uses after a return are not followed
            passed = definedness.passed_by(program, ins)
            if held & doubts.used_by(ins, passed):
                return None
            if held & passed:
                held |= ins.writes
            elif ins.guard is None and not lanes & ~by:
                held -= ins.writes
            if not held:
                return held
        pc = None
    return held

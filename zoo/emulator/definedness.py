"""Which register reads may see a value nobody wrote: found once per program, so that only those reads are checked while it runs.

Registers are divided into units of 16 bits, because compilers pack a defined and an undefined half into one wider register
and use the defined half only. A pure move of an undefined unit is no use of it: it leaves the destination undefined.
"""

from functools import reduce
from operator import and_

from .errors import EmulatorError
from .instructions import Blocked
from .lanes import FULL, bits_of

MOST_BITS = 1 << 31  # one for each instruction and half register
MOST_VISITS = 64  # of an instruction, on average; kernels take up to 6


def analyse(program):
    """(pc -> register numbers read there that are not assigned on every path, the set of units to track)."""
    layout, instructions = program.layout, program.instructions
    units = [[layout.unit_base[n] + k for k in range(layout.unit_count[n])] for n in range(len(layout.names))]
    masks = [sum(1 << unit for unit in group) for group in units]
    state = _defined_before(program, masks)
    found, tracked = {}, set()
    for pc, ins in enumerate(instructions):
        before = state[pc]
        missing = {number for number in ins.reads | ins.conditional_reads if masks[number] & ~before}
        if missing:
            found[pc] = missing
            tracked.update(unit for number in missing for unit in units[number] if not before >> unit & 1)
    changed = bool(tracked)
    while changed:  # what a tracked unit is moved to is tracked too
        changed = False
        for ins in instructions:
            for destination, sources in ins.unit_copies or ():
                if destination not in tracked and tracked.intersection(sources):
                    tracked.add(destination)
                    changed = True
    return found, tracked


def _defined_before(program, masks):
    """Units (as a bit set in an int) that are assigned on every path to each pc."""
    instructions = program.instructions
    if len(instructions) * program.layout.units > MOST_BITS:
        raise EmulatorError(
            f"{program.entry.name}: {len(instructions):,} instructions with {len(masks):,} registers are too many to follow"
        )
    everything = (1 << program.layout.units) - 1
    state = [everything] * len(instructions)
    gained = [0 if ins.guard is not None else _union(masks, ins.writes) for ins in instructions]
    follow = [program.successors(pc) for pc in range(len(instructions))]
    work = list(program.start.values())
    for pc in work:
        state[pc] = 0
    queued, seen = set(work), set(work)
    steps = MOST_VISITS * len(instructions)
    while work:
        steps -= 1
        if steps < 0:
            raise EmulatorError(f"{program.entry.name}: its jumps are too entangled to follow which registers are written")
        pc = work.pop()
        queued.discard(pc)
        ins = instructions[pc]
        defined = state[pc]
        if ins.unit_copies:
            before = defined
            for destination, sources in ins.unit_copies:
                if any(not before >> source & 1 for source in sources):
                    defined &= ~(1 << destination)
                elif ins.guard is None:
                    defined |= 1 << destination
        else:
            defined |= gained[pc]
        for successor in follow[pc]:
            merged = state[successor] & defined
            if merged != state[successor] or successor not in seen:
                state[successor] = merged
                seen.add(successor)
                if successor not in queued:
                    queued.add(successor)
                    work.append(successor)
    return state


def _union(masks, numbers):
    result = 0
    for number in numbers:
        result |= masks[number]
    return result


def checked(program, ins, run, suspects, tracked):
    """`run` with its reads of suspect registers checked and its writes to tracked units noted, or `run` itself."""
    layout = program.layout

    def units_of(number):
        return [unit for unit in range(layout.unit_base[number], layout.unit_base[number] + layout.unit_count[number]) if unit in tracked]

    moved_from = {number for _, sources in (ins.copies or ()) for number in sources}
    reads = [
        (layout.names[number], units_of(number), None if number in ins.reads else ins.condition)
        for number in sorted(suspects)
        if number not in moved_from
    ]
    moves = [(destination, sources) for destination, sources in ins.unit_copies or () if destination in tracked]
    moved_to = {destination for destination, _ in moves}
    writes = [unit for number in ins.writes for unit in units_of(number) if unit not in moved_to]
    if not reads and not writes and not moves:
        return run

    def known_of(warp, sources):
        known = [warp.defined[source] if source in tracked else FULL for source in sources]
        if ins.chosen_by is not None:
            first = bits_of(warp.values[ins.chosen_by])
            return first & known[0] | ~first & known[1]
        return reduce(and_, known, FULL)

    def checking(warp, lanes):
        defined = warp.defined
        for name, units, condition in reads:
            for unit in units:
                missing = lanes & ~defined[unit]
                if missing and condition is not None:
                    missing &= bits_of(warp.values[condition])
                if missing:
                    ins.report(warp, missing, "uninitialised-register", f"{name} is read before anything was written to it")
                    break
        moved = [(destination, known_of(warp, sources) & lanes) for destination, sources in moves]
        outcome = run(warp, lanes)
        if outcome.__class__ is not Blocked:
            for unit in writes:
                defined[unit] |= lanes
            for destination, known in moved:
                defined[destination] = (defined[destination] & ~lanes) | known
        return outcome

    return checking

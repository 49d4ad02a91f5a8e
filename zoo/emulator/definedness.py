"""Which register reads may see a value nobody wrote: found once per program, so that only those reads are checked while it runs.

Registers are divided into bytes, because compilers pack defined and undefined parts into one wider register and use the defined
parts only. Passing undefined bytes on (a move, a shift by a literal, a mask...) is no use of them: it leaves the destination's undefined.

Computing is no use either: compilers load in some lanes, then shuffle and add in all of them, and store in some. The result of an undefined
source is undefined in that lane. Storing it in global memory, addressing with it, branching on it or giving it to a matrix instruction is a
use. A store to shared or local memory passes it on: the bytes count as written by nobody.
Results are followed from the first undefined source on that a launch computes with. Until then only sources are looked at, which is cheaper.

The coordinates that clusterlaunchcontrol.query_cancel.get_first_ctaid gives of an answer that took no cluster are undefined, too.
"""

from functools import reduce
from operator import and_, or_

from .errors import EmulatorError
from .instructions import Blocked
from .lanes import FULL, bits_of, mask_of

MOST_BITS = 1 << 32  # one for each instruction and byte of a register
MOST_VISITS = 64  # of an instruction, on average; kernels take up to 6

# Instructions that compute each lane's result from one lane's registers, and do nothing else.
_COMPUTING = frozenset(
    ("abs", "add", "and", "bfe", "bfi", "brev", "clz", "cnot", "cvt", "div", "fma", "lop3", "mad", "mad24", "max", "min", "mul", "mul24", "neg", "not"),
).union(("or", "popc", "prmt", "rem", "sad", "selp", "set", "setp", "shf", "shl", "shr", "sub", "xor")).union(
    ("copysign", "cos", "ex2", "lg2", "rcp", "rsqrt", "shfl", "sin", "slct", "sqrt", "tanh")
)  # fmt: skip


class Suspects:
    """What the analysis has found: where to look while the program runs."""

    def __init__(self, reads, tracked, of_answers=frozenset(), computed=frozenset()):
        self.reads = reads  # pc -> registers read there that are not assigned on every path
        self.tracked = tracked  # bytes whose definedness is followed
        self.of_answers = of_answers  # registers that hold, or are computed from, the coordinates of a cancelled cluster
        self.computed = computed  # registers that hold, or are computed from, what is not assigned on every path


def all_checked(program, code):
    """The functions of `code`, one for each instruction, with the checks that they need around them."""
    layout, instructions = program.layout, program.instructions
    units = [[layout.unit_base[n] + k for k in range(layout.unit_count[n])] for n in range(len(layout.names))]
    masks = [sum(1 << unit for unit in group) for group in units]
    for ins in instructions:
        if ins.passes and ins.unit_copies is None:
            ins.unit_copies = ins.passes
    of_answers = computed_from(program, {number for ins in instructions if ins.unanswered for number in ins.writes})
    sources = _suspects(program, units, masks, of_answers)
    program.tracked = program.followed = sources.tracked if sources.reads else frozenset()
    if not sources.reads:
        return code
    alone = [checked(program, ins, run, sources, passed_by(program, ins)) for ins, run in zip(instructions, code)]
    computed = computed_from(program, set().union(*sources.reads.values()))
    _pass_on(program, computed)
    followed = _suspects(program, units, masks, of_answers, computed)
    program.followed = followed.tracked
    added = followed.tracked - sources.tracked
    wide = [checked(program, ins, run, followed) for ins, run in zip(instructions, code)]
    return [_either(*functions, added) for functions in zip(code, alone, wide)]


_FOLLOW = object()  # what a check returns instead of computing with an undefined source


def _either(run, alone, wide, added):
    """The check of sources alone, or of results too where the launch follows them."""
    if alone is wide is run:
        return run

    def checking(warp, lanes):
        machine = warp.machine
        if not machine.follows_undefined:
            outcome = alone(warp, lanes)
            if outcome is not _FOLLOW:
                return outcome
            machine.follows_undefined = True
            for other in machine.running:
                for unit in added:  # nothing was computed from an undefined source so far
                    other.defined[unit] = FULL
        return wide(warp, lanes)

    return checking


def _suspects(program, units, masks, of_answers=frozenset(), computed=frozenset()):
    reads, tracked = _read_undefined(program, units, masks)
    changed = bool(tracked)
    while changed:  # what a tracked byte is moved to is tracked too
        changed = False
        for ins in program.instructions:
            for destination, sources in ins.unit_copies or ():
                if destination not in tracked and tracked.intersection(sources):
                    tracked.add(destination)
                    changed = True
    return Suspects(reads, tracked, of_answers, computed)


def _read_undefined(program, units, masks):
    """(pc -> registers that it reads and that are not assigned on every path, those bytes of them)"""
    state = _defined_before(program, masks)
    found, tracked = {}, set()
    for pc, ins in enumerate(program.instructions):
        before = state[pc]
        missing = {number for number in ins.reads | ins.conditional_reads if masks[number] & ~before}
        for number in list(missing & ins.narrow.keys()):
            if not any(not before >> unit & 1 for unit in units[number][: ins.narrow[number]]):
                missing.discard(number)
        if missing:
            found[pc] = missing
            tracked.update(unit for number in missing for unit in units[number] if not before >> unit & 1)
    return found, tracked


def computed_from(program, found):
    """These registers, and all that are computed from them."""
    found = set(found)
    changed = bool(found)
    while changed:
        changed = False
        for ins in program.instructions:
            if not ins.writes <= found and computes(ins) and found & ins.reads:
                found |= ins.writes
                changed = True
    return frozenset(found)


def _pass_on(program, found):
    """Instructions that compute with one of these registers pass all bytes of their sources on to all of their results, or to the bytes from there on."""
    layout, instructions = program.layout, program.instructions

    def bytes_of(number):
        return range(layout.unit_base[number], layout.unit_base[number] + layout.unit_count[number])

    for ins in instructions:
        if ins.unit_copies is None and computes(ins) and found & ins.reads:
            ins.passed = passed_by(program, ins)
            if ins.shuffled is not None:
                pairs = zip(bytes_of(ins.shuffled[1]), bytes_of(ins.shuffled[0]))
                ins.unit_copies = [(unit, [source]) for unit, source in pairs]
                continue
            sources = [bytes_of(number) for number in ins.passed]
            ins.unit_copies = [
                (unit, [byte for source in sources for byte in (source[: k + 1] if ins.carries else source)])
                for number in ins.writes
                for k, unit in enumerate(bytes_of(number))
            ]


def passed_by(program, ins):
    """The registers that the instruction computes its results from."""
    if ins.shuffled is not None:
        return frozenset({ins.shuffled[0]})
    guard = set() if ins.guard is None else {program.layout.register_of_slot[ins.guard[0]]}
    return frozenset(ins.reads - guard) if computes(ins) else frozenset()


def computes(ins):
    return ins.copies is not None or (ins.mnemonic in _COMPUTING and (ins.mnemonic != "shfl" or ins.shuffled is not None))


def _defined_before(program, masks):
    """Bytes (as a bit set in an int) that are assigned on every path to each pc."""
    instructions = program.instructions
    if len(instructions) * program.layout.units > MOST_BITS:
        raise EmulatorError(
            f"{program.entry.name}: {len(instructions):,} instructions with {len(masks):,} registers are too many to follow"
        )
    everything = (1 << program.layout.units) - 1
    state = [everything] * len(instructions)
    gained = [0 if ins.guard is not None or ins.doubtful else _union(masks, ins.writes) for ins in instructions]
    lost = {pc: _union(masks, ins.writes) for pc, ins in enumerate(instructions) if ins.doubtful}
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
            if pc in lost:
                defined &= ~lost[pc]
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


def checked(program, ins, run, suspects, follow=frozenset()):
    """`run` with its reads of suspect registers checked and its writes to tracked bytes noted, or `run` itself.

    Returns _FOLLOW, and does nothing, before it computes with undefined lanes of a register in `follow`."""
    layout, tracked = program.layout, suspects.tracked

    def units_of(number, count=None):
        units = range(layout.unit_base[number], layout.unit_base[number] + (count or layout.unit_count[number]))
        return [unit for unit in units if unit in tracked]

    moves = {}  # source bytes -> the bytes that come from them
    for destination, sources in ins.unit_copies or ():
        if destination in tracked:
            if ins.chosen_by is None and ins.absorbs is None:
                sources = [source for source in sources if source in tracked]
            moves.setdefault(tuple(sources), []).append(destination)
    moved_to = {destination for destinations in moves.values() for destination in destinations}
    moves = [(destinations, sources) for sources, destinations in moves.items()]
    moved_from = {number for _, sources in (ins.copies or ()) for number in sources}
    if ins.copies is None and ins.unit_copies:
        moved_from |= ins.passed
    if ins.chosen_by is not None:
        moved_from.add(layout.register_of_slot[ins.chosen_by])
    reads = [
        (number, units_of(number, ins.narrow.get(number)), None if number in ins.reads else ins.condition)
        for number in sorted(suspects.reads.get(ins.pc, ()), key=lambda number: (number not in follow, number))
        if number not in moved_from
    ]
    writes = [unit for number in ins.writes for unit in units_of(number) if unit not in moved_to]
    if not reads and not writes and not moves:
        return run

    def known_of(warp, sources):
        known = [warp.defined[source] if source in tracked else FULL for source in sources]
        if ins.chosen_by is not None:
            first = bits_of(warp.values[ins.chosen_by])
            sides = [FULL, FULL]
            for place, defined in zip(ins.chosen_from, known):
                sides[place] = defined
            return (first & sides[0] | ~first & sides[1]) & known[-1]
        if ins.absorbs is not None:  # of two predicates
            deciding, *slots = ins.absorbs
            decided = [bits_of(warp.values[slot]) ^ (0 if deciding else FULL) for slot in slots]
            return known[0] & known[1] | known[0] & decided[0] | known[1] & decided[1]
        return reduce(and_, known, FULL)

    stored = ins.forget[0].keys() - suspects.of_answers if ins.forget is not None else ()

    def checking(warp, lanes):
        defined = warp.defined
        undefined = None
        for number, units, condition in reads:
            for unit in units:
                missing = lanes & ~defined[unit]
                if missing and condition is not None:
                    missing &= bits_of(warp.values[condition])
                if missing:
                    if number in follow:
                        return _FOLLOW
                    if number in stored:
                        undefined = undefined or {}
                        undefined.setdefault(number, []).append((unit - layout.unit_base[number], missing))
                        continue
                    _report(ins, warp, missing, layout.names[number], number, suspects)
                    break
        moved = [(destinations, known_of(warp, sources)) for destinations, sources in moves]
        outcome = run(warp, lanes)
        if undefined is not None:
            for number, bytes_ in undefined.items():
                used = reduce(or_, [ins.forget[1](warp, missing, number, byte) for byte, missing in bytes_])
                if used:
                    _report(ins, warp, used, layout.names[number], number, suspects)
        if outcome.__class__ is not Blocked:
            known = lanes & ~warp.state["undefined lanes"] if ins.doubtful else lanes
            for unit in writes:
                defined[unit] = defined[unit] & ~lanes | known
            for destinations, known in moved:
                if known != FULL and ins.shuffled is not None:
                    known = bits_of(mask_of(known)[warp.state["shuffled from"]])
                for destination in destinations:
                    defined[destination] = (defined[destination] & ~lanes) | known & lanes
        return outcome

    return checking


def _report(ins, warp, lanes, name, number, suspects):
    if number in suspects.of_answers:
        why = f"{name} is used; it comes from get_first_ctaid, and there was no answer that took a cluster"
        ins.report(warp, lanes, "cluster-launch-control", why)
    else:
        why = "it, or a register that it is computed from, was never written" if number in suspects.computed else "nobody wrote it"
        ins.report(warp, lanes, "uninitialised-register", f"{name} is used, and {why}")

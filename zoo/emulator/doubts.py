"""Values that a load took from shared memory although nobody had written them, or nothing orders their writer before it.

Kernels load ahead what they may not need. Such a load is an error once its value is used, and a note or a warning until then. What a use is,
definedness.py says. From the first such load of a launch on, all instructions run with the code that follows these values.
"""

from . import definedness
from .pending_registers import add, defined, exchanged, move, moves_of

LOADS = ("ld", "ldmatrix")
_UNWRITTEN = ("uninitialised-shared", "uninitialised-local")


def report(ins, warp, lanes, severity, *finding, **more):
    """Reports a read of the lanes: of this severity while nobody has used the values, else an error."""
    if ins.mnemonic not in LOADS:
        ins.report(warp, lanes, *finding, **more)
        return
    found = ins.report(warp, lanes, *finding, severity=severity, **more)
    machine = warp.machine
    if not machine.follows_doubts:
        machine.follow_doubts()
    for number in ins.writes:
        add(warp.doubtful_registers, number, lanes, (found,))


def guarded(ins, run):
    """`run` with its guard, which decides by a value that may be doubtful."""
    if ins.guard is None:
        return run
    deciding = (ins.layout.register_of_slot[ins.guard[0]],)

    def deciding_run(warp, lanes):
        if warp.doubtful_registers:
            _use(warp.doubtful_registers, lanes, deciding)
        return run(warp, lanes)

    return deciding_run


def _use(doubtful, lanes, numbers):
    for number in numbers:
        found = doubtful.get(number)
        if found is not None and found[0] & lanes:
            for finding in found[1]:
                finding.severity = "error"
            del doubtful[number]


def _storing(ins, run, used):
    """A store to shared or local memory: bytes that nobody wrote stay so. A value that may have been overwritten is used."""
    stored, forget = ins.forget

    def passes(doubtful, number, lanes):
        found = doubtful.get(number) if number in stored else None
        return found is not None and found[0] & lanes and all(finding.kind in _UNWRITTEN for finding in found[1])

    def storing(warp, lanes):
        doubtful, passed = warp.doubtful_registers, ()
        if doubtful:
            passed = [number for number in used if passes(doubtful, number, lanes)]
            _use(doubtful, lanes, [number for number in used if number not in passed])
        outcome = run(warp, lanes)
        for number in passed:
            for byte in range(stored[number]):
                _use(doubtful, forget(warp, doubtful[number][0] & lanes, number, byte) if number in doubtful else 0, (number,))
        return outcome

    return storing


def used_by(ins, passed):
    """The registers whose values leave registers by this instruction, or decide something."""
    return (ins.reads | ins.writes if ins.mnemonic == "wgmma" else ins.reads) - passed  # wgmma adds to what it writes


def followed(ins, run):
    """`run`, which passes doubtful values on or uses them."""
    passed = definedness.passed_by(ins.program, ins)
    used = sorted(used_by(ins, passed))
    moves, deciding = moves_of(ins, passed)
    overwritten = sorted(ins.writes.difference(destination for destination, _ in moves))
    if ins.forget is not None:
        return _storing(ins, run, used)

    def following(warp, lanes):
        doubtful = warp.doubtful_registers
        if doubtful:
            _use(doubtful, lanes, used)
            if moves:
                move(ins, warp, doubtful, lanes, moves, deciding)
            defined(doubtful, lanes, overwritten)
        return run(warp, lanes)

    return following if ins.shuffled is None else exchanged(ins, following, lambda warp: warp.doubtful_registers)

"""What surrounds an instruction: its guard predicate, and the lanes an .aligned instruction waits for."""

from .instructions import Blocked
from .lanes import bits_of


def guarded(ins, run):
    slot, negated = ins.guard
    following = ins.pc + 1
    if ins.mnemonic in ("bra", "brx"):
        return run  # a branch handles its guard itself

    def run_guarded(warp, lanes):
        taken = bits_of(warp.values[slot])
        active = lanes & (~taken if negated else taken)
        if active == lanes:
            return run(warp, lanes)
        if not active:
            return None
        outcome = run(warp, active)
        if outcome is None:
            return None
        rest = lanes & ~active
        if outcome.__class__ is int:
            return ((outcome, active, None), (following, rest, None))
        if outcome.__class__ is tuple:
            return (*outcome, (following, rest, None))
        return ((ins.pc, active, outcome), (following, rest, None))  # blocked: the other lanes go on

    return run_guarded


def aligned(ins, run):
    pc = ins.pc

    def run_aligned(warp, lanes):
        if lanes != warp.live:
            return Blocked(
                lambda: warp.groups.get(pc) == warp.live,
                lambda: f"divergent .aligned: lanes {lanes:#010x} of {warp.live:#010x} are here",
                phases=(),
            )
        return run(warp, lanes)

    return run_aligned


def guarded_aligned(ins, run):
    slot, negated = ins.guard
    pc = ins.pc

    def run_guarded(warp, lanes):
        if lanes != warp.live:
            taken = bits_of(warp.values[slot])
            if not (lanes & (~taken if negated else taken)):
                return None
            return Blocked(
                lambda: warp.groups.get(pc) == warp.live,
                lambda: f"divergent .aligned: lanes {lanes:#010x} of {warp.live:#010x} are here",
                phases=(),
            )
        taken = bits_of(warp.values[slot])
        active = lanes & (~taken if negated else taken)
        if not active:
            return None
        if active != lanes:
            ins.report(warp, active, "divergent-aligned", "an .aligned instruction is predicated differently in the lanes of a warp")
        return run(warp, active)

    return run_guarded

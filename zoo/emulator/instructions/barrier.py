"""mbarrier instructions. Addresses are 32-bit shared addresses, or generic ones where the instruction allows it."""

import numpy as np

from ..lanes import assign, mask_of
from ..memory import SHARED_BASE, check_own_cta, names_own_cta
from ..parser import Address
from . import Blocked, instruction


def _place(ins, k):
    """(function warp, lanes -> [(address, lanes)], is the space shared::cluster)"""
    space = ins.choice("shared", "shared::cta", "shared::cluster", default="generic")
    where = ins.address(k)
    base = SHARED_BASE if space == "generic" else 0

    def places(warp, lanes):
        addresses = where(warp)
        first = (lanes & -lanes).bit_length() - 1
        address = int(addresses[first])
        if not lanes & (lanes - 1) or b"\0" not in (addresses == addresses[first])[mask_of(lanes)].tobytes():
            return [(address - base & 0xFFFFFFFF, lanes)]
        found = {}
        for lane in range(32):
            if lanes >> lane & 1:
                key = int(addresses[lane]) - base & 0xFFFFFFFF
                found[key] = found.get(key, 0) | 1 << lane
        return list(found.items())

    return places, space == "shared::cluster"


def _require_b64(ins):
    if ins.type() != "b64":
        ins.unsupported("an mbarrier is .b64")


@instruction("mbarrier.init")
def init(ins):
    """Phase 0 begins, expecting `count` arrivals"""
    _require_b64(ins)
    places, _ = _place(ins, 0)
    count = ins.read(1, "u32")

    def run(warp, lanes):
        for address, part in places(warp, lanes):
            if part & (part - 1):
                ins.report(warp, part, "mbarrier-misuse", "several lanes initialise the same mbarrier")
            lane = (part & -part).bit_length() - 1
            warp.machine.mbarriers.init(ins, warp, part, address, int(warp.values[count][lane]))

    return run


@instruction("mbarrier.inval")
def invalidate(ins):
    """The end of a barrier's life"""
    _require_b64(ins)
    places, _ = _place(ins, 0)
    own = names_own_cta(ins)

    def run(warp, lanes):
        for address, part in places(warp, lanes):
            if own:
                check_own_cta(ins, warp, part, address)
            warp.machine.mbarriers.invalidate(ins, warp, part, address)

    return run


def _semantics(ins):
    """(relaxed, .cta by name: without a scope, programs arrive at barriers of other CTAs, too)"""
    relaxed = ins.choice("release", "relaxed", "acquire", default="release") == "relaxed"
    return relaxed, ins.choice("cta", "cluster", default=None) == "cta"


def _changed_bytes(change):
    def decode(ins):
        _semantics(ins)
        _require_b64(ins)
        places, _ = _place(ins, 0)
        amount = ins.read(1, "u32")
        own = names_own_cta(ins)

        def run(warp, lanes):
            for address, part in places(warp, lanes):
                if own:
                    check_own_cta(ins, warp, part, address)
                total = int(warp.values[amount][mask_of(part)].sum(dtype=np.int64))
                getattr(warp.machine.mbarriers, change)(ins, warp, part, address, total)

        return run

    return decode


instruction("mbarrier.expect_tx")(_changed_bytes("expect_tx"))  # tx-count += bytes
instruction("mbarrier.complete_tx")(_changed_bytes("complete_tx"))  # tx-count -= bytes, without a copy


@instruction("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(ins):
    """pending -= count (1); .expect_tx adds bytes first; _drop also lowers what later phases expect"""
    drop = ins.opcode.startswith("mbarrier.arrive_drop")
    expects = ins.flag("expect_tx")
    complete = not ins.flag("noComplete")
    relaxed, narrow = _semantics(ins)
    _require_b64(ins)
    operands = list(ins.operands)
    has_result = not _is_address(operands[0])
    state = ins.write(0, "b64") if has_result else None
    first = 1 if has_result else 0
    places, remote = _place(ins, first)
    amount = ins.read(first + 1, "u32") if ins.has_operand(first + 1) else None
    if remote and state is not None:
        ins.unsupported("a result from a shared::cluster barrier")
    if expects and amount is None:
        ins.unsupported("it needs the byte count")
    own = names_own_cta(ins)

    def run(warp, lanes):
        mbarriers = warp.machine.mbarriers
        for address, part in places(warp, lanes):
            threads = part.bit_count()
            given = int(warp.values[amount][mask_of(part)].sum(dtype=np.int64)) if amount is not None else threads
            count, expect = (threads, given) if expects else (given, 0)
            if count <= 0:
                ins.report(warp, part, "mbarrier-misuse", f"an arrival count must be positive, not {count}", address)
                continue
            if own:
                check_own_cta(ins, warp, part, address)
            if narrow and not relaxed and address >> 24 != warp.cta.rank:
                ins.report(warp, part, "scope", "a release at scope .cta arrives at an mbarrier of another CTA", address)
            word = mbarriers.arrive(ins, warp, part, address, count, expect=expect, relaxed=relaxed, drop=drop, complete=complete)
            if state is not None:
                assign(warp.values[state], np.uint64(word), part)

    return run


def _is_address(operand):
    return isinstance(operand, Address)


@instruction("mbarrier.test_wait", "mbarrier.try_wait")
def wait(ins):
    """p = the phase (by parity, or by the state an arrive returned) has completed.

    Both forms may give up and return false: the "last" policy makes each do so when first asked, "random" sometimes. After
    that they wait here until the phase has completed, or until nothing else in the launch can run, so that loops around
    either form behave as on hardware and cost little. Lanes with barriers of their own wait for all of them.
    """
    acquire = ins.choice("acquire", "relaxed", default="acquire") == "acquire"
    narrow = ins.choice("cta", "cluster", default=None) == "cta"
    by_parity = ins.flag("parity")
    _require_b64(ins)
    p = ins.write(0, "pred")
    places, remote = _place(ins, 1)
    if remote:
        ins.unsupported("a wait on a shared::cluster barrier")
    key = ins.read(2, "u32" if by_parity else "b64")
    if ins.has_operand(3):
        ins.read(3, "u32")  # a time hint
    pc = ins.pc

    def run(warp, lanes):
        values = warp.values
        machine = warp.machine
        results, waiting = [], []
        given_up = pc in warp.given_up
        for address, part in places(warp, lanes):
            if address >> 24 != warp.cta.rank:
                ins.report(
                    warp,
                    part,
                    "mbarrier-misuse",
                    f"a wait on the mbarrier of CTA rank {address >> 24}: only an own barrier may be waited for",
                    address,
                )
            barrier = machine.mbarriers.find(ins, warp, part, address, "a wait")
            if barrier is None:
                results.append((None, True, part))
                continue
            if barrier.init_by[1] > warp.clocks[0, barrier.init_by[0]]:
                machine.mbarriers.check_published(ins, warp, part, barrier)
            lane = (part & -part).bit_length() - 1
            value = int(values[key][lane])
            if by_parity:
                if value not in (0, 1):  # ptxas takes bit 0
                    ins.report(warp, part, "mbarrier-misuse", f"a phase parity must be 0 or 1, not {value}", address, "warning")
                passed = (barrier.phase & 1) != (value & 1)
            else:
                asked = value >> 24
                if barrier.phase - asked > 1:
                    ins.report(
                        warp,
                        part,
                        "mbarrier-phase",
                        f"a wait for phase {asked} while the barrier is in phase {barrier.phase}: {barrier.describe()}",
                        address,
                    )
                passed = barrier.phase > asked
            if not passed and not given_up and not _gives_up(machine, warp, pc, address, barrier):
                waiting.append((address, barrier, barrier.phase, f"parity {value}" if by_parity else f"phase {value >> 24}"))
            results.append((barrier, passed, part))
        if waiting:
            return Blocked(
                lambda: pc in warp.given_up or any(barrier.phase != phase for _, barrier, phase, _ in waiting),
                lambda: "; ".join(f"waits for {words}: {barrier.describe()}" for _, barrier, _, words in waiting),
                timeout=lambda: warp.given_up.add(pc),
                addresses=[address for address, *_ in waiting],
                phases=[(barrier, phase) for _, barrier, phase, _ in waiting],
            )
        warp.given_up.discard(pc)
        for barrier, passed, part in results:
            if passed and barrier is not None:
                if narrow and acquire and barrier.released_remotely:
                    ins.report(warp, part, "scope", "a wait at scope .cta for what a thread of another CTA released", barrier.offset)
                machine.mbarriers.observe(warp, barrier, acquire)
            if p is not None:
                assign(values[p], passed, part)
        return None

    return run


def _gives_up(machine, warp, pc, address, barrier):
    """Whether this incomplete wait returns false at once. Never twice in a row for one phase, so that a loop makes progress."""
    policy = machine.asynchronous.policy
    if policy == "issue":
        return False
    asked = warp.state.setdefault("asked", {})
    if asked.get((pc, address)) == (barrier, barrier.phase):
        return False
    asked[pc, address] = (barrier, barrier.phase)
    return policy == "last" or machine.rng.random() < 0.25


@instruction("mbarrier.pending_count")
def pending_count(ins):
    """The pending arrivals in a state word"""
    _require_b64(ins)
    d, state = ins.write(0, "u32"), ins.read(1, "b64")

    def run(warp, lanes):
        assign(warp.values[d], (warp.values[state] & np.uint64(0xFFFFFF)).astype(np.uint32), lanes)

    return run

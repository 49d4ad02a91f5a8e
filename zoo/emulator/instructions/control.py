"""Control flow, and the operations among the lanes of a warp."""

import numpy as np

from .. import clocks, lane_order
from ..barriers import NAMED_BARRIERS
from ..errors import EmulatorError
from ..lanes import FULL, assign, bits_of, first_lane, mask_of
from ..meetings import Meeting
from ..parser import Immediate, Negated, PredicatePair, Register
from . import Blocked, instruction


# ---- branches --------------------------------------------------------------------------------------------------------
@instruction("bra")
def branch(ins):
    """Jump to a label"""
    ins.flag("uni")
    target, following = ins.target(0), ins.pc + 1
    if ins.guard is None:
        return lambda warp, lanes: target
    slot, negated = ins.guard

    def run(warp, lanes):
        taken = bits_of(warp.values[slot])
        taken = lanes & (~taken if negated else taken)
        if taken == lanes:
            return target
        if not taken:
            return None
        return ((target, taken, None), (following, lanes & ~taken, None))

    return run


@instruction("brx.idx")
def branch_indexed(ins):
    """Jump to the label of a list that the index names"""
    ins.flag("uni")
    if ins.guard is not None:
        ins.unsupported("a predicated brx.idx")
    index = ins.read(0, "u32")
    targets = [ins.program.pc_of(label) for label in ins.operands[1].targets]

    def run(warp, lanes):
        values = warp.values[index]
        found = {}
        for lane in range(32):
            if lanes >> lane & 1:
                number = int(values[lane])
                if number >= len(targets):
                    raise EmulatorError(f"PTX line {ins.line}: brx.idx index {number} is past the {len(targets)} targets")
                found[targets[number]] = found.get(targets[number], 0) | 1 << lane
        if len(found) == 1:
            return next(iter(found))
        return tuple((target, part, None) for target, part in found.items())

    return run


# ---- ends ------------------------------------------------------------------------------------------------------------
def end(warp, lanes):
    """Ends the lanes."""
    warp.exit(lanes)
    return ()


@instruction("exit")
def exit_(ins):
    """The lanes end"""
    return end


@instruction("trap", "brkpt")
def trap(ins):
    """Abort"""

    def run(warp, lanes):
        words = "the kernel trapped"
        if not warp.machine.workspace and any(recipe[:2] == ("special", "%envreg2") for recipe in ins.program.layout.slots):
            words += ": it waits for the whole grid, and the launch is not cooperative"
        ins.report(warp, lanes, "trap", words)
        return end(warp, lanes)

    return run


# ---- lanes of a warp -------------------------------------------------------------------------------------------------
def _only(ins, type):
    """Consumes the one type that the form has."""
    if ins.type() != type:
        ins.unsupported(f"this form takes .{type}")


def _members(ins, k):
    """A function (warp, lanes) -> None when all live lanes of the member mask are here, else Blocked."""
    mask = ins.read(k, "b32")
    pc = ins.pc

    def check(warp, lanes):
        members = int(warp.values[mask][first_lane(lanes)])
        if lanes & ~members:
            ins.report(
                warp,
                lanes,
                "convergence",
                f"lanes {lanes:#010x} execute a .sync instruction whose member mask {members:#010x} does not name them all",
            )
            members |= lanes
        wanted = members & warp.live
        if wanted & ~lanes:
            return Blocked(
                lambda: not (int(wanted) & warp.live & ~warp.groups.get(pc, 0)),
                lambda: f"waits for lanes {wanted & ~lanes:#010x} of its member mask {members:#010x}",
                phases=(),
            )
        return None

    if isinstance(ins.operands[k], Immediate) and ins.operands[k].value & FULL == FULL:

        def check_full(warp, lanes):
            return None if lanes == FULL else check(warp, lanes)

        return check_full
    return check


def _by_member_mask(warp, lanes, slot):
    """[(sub-mask, lanes)]: lanes of one group may carry different member masks (tiles of a warp)."""
    values = warp.values[slot]
    first = int(values[first_lane(lanes)])
    if not lanes & ~first:
        return [(first, lanes)]
    found = {}
    for lane in range(32):
        if lanes >> lane & 1:
            found[int(values[lane])] = found.get(int(values[lane]), 0) | 1 << lane
    return list(found.items())


def _tiled_members(ins, k):
    """As _members, for lanes that may come with several disjoint masks in one instruction."""
    slot = ins.read(k, "b32")
    pc = ins.pc

    def check(warp, lanes):
        if lanes == FULL and int(warp.values[slot][0]) == FULL:
            return None
        wanted = 0
        for members, part in _by_member_mask(warp, lanes, slot):
            if part & ~members:
                ins.report(
                    warp,
                    part,
                    "convergence",
                    f"lanes {part:#010x} execute a .sync instruction whose member mask {members:#010x} does not name them all",
                )
            wanted |= members
        wanted &= warp.live
        if wanted & ~lanes:
            return Blocked(
                lambda: not (wanted & warp.live & ~warp.groups.get(pc, 0)),
                lambda: f"waits for lanes {wanted & ~lanes:#010x} of its member mask {wanted:#010x}",
                phases=(),
            )
        return None

    return check


@instruction("elect.sync")
def elect(ins):
    """One lane of the mask is chosen: the lowest, or the highest when the device says so"""
    pair = ins.operands[0]
    d = ins.write(pair.first, "b32")
    p = ins.write(pair.second, "pred")
    members = _members(ins, 1)

    def run(warp, lanes):
        blocked = members(warp, lanes)
        if blocked:
            return blocked
        leader = first_lane(lanes) if warp.machine.device.elect == "lowest" else lanes.bit_length() - 1
        if p is not None:
            assign(warp.values[p], mask_of(1 << leader), lanes)
        if d is not None:
            assign(warp.values[d], np.uint32(leader), lanes)
        return None

    return run


@instruction("shfl.sync")
def shuffle(ins):
    """d = a of another lane; p tells whether that lane was in range"""
    mode = ins.choice("up", "down", "bfly", "idx")
    if ins.type() != "b32":
        ins.unsupported("shfl moves .b32")
    destination = ins.operands[0]
    pair = isinstance(destination, PredicatePair)
    d = ins.write(destination.first if pair else destination, "b32")
    p = ins.write(destination.second, "pred") if pair else None
    a, b, c = ins.read(1, "b32"), ins.read(2, "b32"), ins.read(3, "b32")
    members = _tiled_members(ins, 4)
    slot = ins.read(4, "b32")
    ins.meeting = Meeting(ins.opcode, slot, [a, b, c, slot], [d, p])
    if d is not None and isinstance(ins.operands[1], Register):
        result = destination.first if pair else destination
        ins.shuffled = ins.layout.place_of(ins.operands[1])[0], ins.layout.place_of(result)[0]
    lane = np.arange(32, dtype=np.int64)
    known = {}  # what choose() said: kernels shuffle in few ways

    def choose(b, c):
        """(lane to read from, whether the one asked for was in range)"""
        amount = (b & np.uint32(31)).astype(np.int64)
        control = c.astype(np.int64)
        clamp, segment = control & 31, (control >> 8) & 31
        highest = (lane & segment) | (clamp & ~segment)
        lowest = lane & segment
        if mode == "up":
            source = lane - amount
            inside = source >= highest
        elif mode == "down":
            source = lane + amount
            inside = source <= highest
        elif mode == "bfly":
            source = lane ^ amount
            inside = source <= highest
        else:
            source = lowest | (amount & ~segment)
            inside = source <= highest
        return np.where(inside, source, lane), inside

    def run(warp, lanes):
        blocked = members(warp, lanes)
        if blocked:
            return blocked
        values = warp.values
        key = values[b].tobytes() + values[c].tobytes()
        found = known.get(key)
        if found is None:
            if len(known) > 1000:
                known.clear()
            found = known[key] = choose(values[b], values[c])
        source, inside = found
        warp.state["shuffled from"] = source
        if lanes != FULL:
            bad = mask_of(lanes) & ~mask_of(lanes)[source]
            if bad.any():
                ins.report(warp, bits_of(bad), "convergence", "shfl.sync reads from a lane that does not take part")
        result = values[a][source]
        assign(values[d], result, lanes) if d is not None else None
        if p is not None:
            assign(values[p], inside, lanes)
        return None

    return run


@instruction("vote.sync")
def vote(ins):
    """all, any, uni: a predicate; ballot: the mask of lanes whose predicate holds"""
    mode = ins.choice("all", "any", "uni", "ballot")
    _only(ins, "b32" if mode == "ballot" else "pred")
    operand = ins.operands[1]
    negated = isinstance(operand, Negated)
    a = ins.read(operand.operand if negated else operand, "pred")
    d = ins.write(0, "b32" if mode == "ballot" else "pred")
    slot = ins.read(2, "b32")
    members = _tiled_members(ins, 2)
    ins.meeting = Meeting((ins.opcode, negated), slot, [a, slot], [d])

    def run(warp, lanes):
        blocked = members(warp, lanes)
        if blocked:
            return blocked
        holds = bits_of(warp.values[a])
        if negated:
            holds = ~holds & FULL
        for _, part in _by_member_mask(warp, lanes, slot):
            true = holds & part
            if mode == "ballot":
                value = np.uint32(true)
            else:
                value = {"all": true == part, "any": true != 0, "uni": true in (0, part)}[mode]
            if d is not None:
                assign(warp.values[d], value, part)
        return None

    return run


@instruction("match")
def match(ins):
    """any: the lanes with the same value; all: the mask and true if all agree"""
    ins.flag("sync") or ins.unsupported("match needs .sync")
    every = ins.choice("any", "all") == "all"
    type = ins.type()
    destination = ins.operands[0]
    pair = isinstance(destination, PredicatePair)
    d = ins.write(destination.first if pair else destination, "b32")
    p = ins.write(destination.second, "pred") if pair else None
    a, slot = ins.read(1, type), ins.read(2, "b32")
    members = _tiled_members(ins, 2)
    ins.meeting = Meeting(ins.opcode, slot, [a, slot], [d, p])

    def run(warp, lanes):
        blocked = members(warp, lanes)
        if blocked:
            return blocked
        values = warp.values[a]
        for _, part in _by_member_mask(warp, lanes, slot):
            mine = mask_of(part)
            if every:
                same = bool((values[mine] == values[first_lane(part)]).all())
                if d is not None:
                    assign(warp.values[d], np.uint32(part if same else 0), part)
                if p is not None:
                    assign(warp.values[p], same, part)
            else:
                result = np.zeros(32, np.uint32)
                for lane in range(32):
                    if part >> lane & 1:
                        result[lane] = bits_of((values == values[lane]) & mine)
                assign(warp.values[d], result, part)
        return None

    return run


@instruction("redux.sync")
def reduce(ins):
    """A reduction over the lanes of the mask"""
    name = ins.choice("add", "min", "max", "and", "or", "xor")
    type = ins.type()
    magnitude, propagate = (ins.flag("abs"), ins.flag("NaN")) if type == "f32" else (False, False)
    allowed = {"f32": ("min", "max"), "b32": ("and", "or", "xor"), "u32": ("add", "min", "max"), "s32": ("add", "min", "max")}
    if name not in allowed.get(type, ()):
        ins.unsupported(f"redux.{name} on .{type}")
    d, a, slot = ins.write(0, type), ins.read(1, type), ins.read(2, "b32")
    members = _tiled_members(ins, 2)
    ins.meeting = Meeting(ins.opcode, slot, [a, slot], [d])
    function = {
        "add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
        "min": (np.minimum if propagate else np.fmin) if type == "f32" else np.minimum, "max": (np.maximum if propagate else np.fmax) if type == "f32" else np.maximum,
    }[name]  # fmt: skip

    def run(warp, lanes):
        blocked = members(warp, lanes)
        if blocked:
            return blocked
        for _, part in _by_member_mask(warp, lanes, slot):
            values = warp.values[a][mask_of(part)]
            if magnitude:
                values = np.abs(values)
            result = function.reduce(values, dtype=values.dtype)
            if type == "f32" and result != result:
                result = np.uint32(0x7FFFFFFF).view(np.float32)
            assign(warp.values[d], result, part)
        return None

    return run


@instruction("activemask")
def active_mask(ins):
    """The lanes that execute this together"""
    ins.type()
    d = ins.write(0, "b32")

    def run(warp, lanes):
        assign(warp.values[d], np.uint32(lanes), lanes)

    return run


@instruction("bar.warp.sync")
def warp_barrier(ins):
    """All lanes of the mask meet here"""
    members = _tiled_members(ins, 0)
    slot = ins.read(0, "b32")
    ins.meeting = Meeting(ins.opcode, slot, [slot])

    def run(warp, lanes):
        blocked = members(warp, lanes)
        if blocked is None and (warp.loose or warp.answers):
            for mask, _ in _by_member_mask(warp, lanes, slot):
                lane_order.met(warp, mask)
        return blocked

    return run


# ---- no effect on values ---------------------------------------------------------------------------------------------
@instruction("nanosleep")
def nanosleep(ins):
    """Takes no time, but a warp that sleeps waits for others, so that these come the sooner."""
    if ins.type() != "u32":
        ins.unsupported("nanosleep takes .u32")
    ins.read(0, "u32")

    def sleep(warp, lanes):
        warp.machine.slept += 1000

    return sleep


@instruction("pmevent", "nop")
def nothing(ins):
    """No effect in this machine"""
    if ins.mnemonic == "pmevent":
        ins.flag("mask")
        ins.read(0, "u32")
    return lambda warp, lanes: None


@instruction("griddepcontrol")
def grid_dependency(ins):
    """One launch at a time: nothing to wait for. What comes before the wait of a programmatic launch is checked (memory.check_dependency)."""
    if ins.choice("wait", "launch_dependents") == "launch_dependents":
        return lambda warp, lanes: None

    def wait(warp, lanes):
        warp.clocks[clocks.DEPENDENCY] = 1

    return wait


_REGISTERS = 65536  # of a multiprocessor
_FEWEST_REGISTERS = 24  # that a warp can have


@instruction("setmaxnreg")
def set_register_count(ins):
    """Checks the count and that the whole warpgroup executes it. An increase waits until the CTA has so many registers."""
    direction = ins.choice("inc", "dec")
    ins.flag("sync"), ins.flag("aligned")
    _only(ins, "u32")
    count = ins.operands[0].value
    if not 24 <= count <= 256 or count % 8:
        ins.unsupported(f"the register count must be a multiple of 8 in 24..256, not {count}")

    def check(warp, lanes):
        turn = warp.state["register counts"] = warp.state.get("register counts", 0) + 1
        asked_for = warp.cta.state.setdefault("register counts", {}).setdefault(
            (warp.group, turn), {}
        )  # by warps, perhaps on lines of their own
        asked_for[warp.index] = f"{direction} to {count}"
        first = next(iter(asked_for.values()))
        if first != asked_for[warp.index]:
            ins.report(
                warp, lanes, "register-count", f"warps of one warpgroup ask for different counts: {first} and {asked_for[warp.index]}"
            )
        before = warp.state.get("register count")
        if before is not None and (count < before) != (direction == "dec") and count != before:
            ins.report(warp, lanes, "register-count", f"setmaxnreg.{direction} to {count} from {before} registers")

    def missing(warp):
        warps = warp.cta.warps
        most = _REGISTERS // (32 * len(warps)) // 8 * 8 * len(warps)  # what a CTA can begin with; it never gets more
        return sum(one.state.get("register count", _FEWEST_REGISTERS) for one in warps if one is not warp) + count - most

    def run(warp, lanes):
        if not warp.state.pop("waits for registers", False):
            check(warp, lanes)
        if direction == "inc" and missing(warp) > 0:
            warp.state["waits for registers"] = True
            return Blocked(
                lambda: missing(warp) <= 0,
                lambda: f"setmaxnreg.inc to {count} waits until other warps of the CTA release {missing(warp)} registers a lane",
            )
        warp.state["register count"] = count
        warp.machine.progress += 1
        return None

    return run


@instruction("createpolicy")
def create_policy(ins):
    """A cache policy: any value"""
    kind = ins.choice("fractional", "range", "cvt")
    primary = ("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
    if kind == "cvt":
        ins.choice("L2")
    else:
        if kind == "range":
            ins.flag("global")
        # the second priority may be the first one again
        levels = [modifier for modifier in ins.modifiers if modifier in primary]
        if not 1 <= len(levels) <= 2:
            ins.unsupported("it needs one or two of ." + ", .".join(primary))
        for level in levels:
            ins.flag(level)
    if ins.type() != "b64":
        ins.unsupported("a policy is .b64")
    for k in range(1, len(ins.operands)):
        if kind == "range" and k == 1:
            ins.address(1)
        else:
            ins.read(k, {"fractional": "f32", "cvt": "b64", "range": "u32"}[kind])
    d = ins.write(0, "b64")

    def run(warp, lanes):
        assign(warp.values[d], np.uint64(0x14F0000000000000), lanes)

    return run


@instruction("prefetch", "prefetchu", "applypriority", "discard")
def prefetch(ins):
    """No effect on values"""
    if ins.mnemonic == "prefetch":
        ins.choice("global", "local", default=None)
        ins.choice("L1", "L2", "L2::evict_last", "L2::evict_normal")
    elif ins.mnemonic == "prefetchu":
        ins.choice("L1")
    else:
        ins.flag("global")
        ins.choice("L2::evict_normal" if ins.mnemonic == "applypriority" else "L2")
        if getattr(ins.operands[1], "value", None) != 128:
            ins.unsupported("the size must be 128")
    ins.address(0)
    return lambda warp, lanes: None


@instruction("cp.async.bulk.prefetch")
def bulk_prefetch(ins):
    """No effect on values"""
    tensor = ins.flag("tensor")
    if tensor:
        ins.choice("1d", "2d", "3d", "4d", "5d")
        mode = ins.choice("tile", "tile::gather4", "im2col", "im2col::w", "im2col::w::128", default="tile")
    offsets = tensor and mode.startswith("im2col")
    ins.choice("L2")
    ins.choice("global")
    hint = ins.flag("L2::cache_hint")
    ins.expect_operands((1 if tensor else 2) + offsets + hint)
    if hint:
        ins.read(len(ins.operands) - 1, "b64")
    if tensor:
        ins.address(ins.operands[0].map)
        ins.read_list(ins.operands[0].coordinates, "s32")
        if offsets:
            ins.read_list(1, "u16", wide=True)
    else:
        ins.address(0)
        ins.read(1, "u32")
    return lambda warp, lanes: None


# ---- barriers of the CTA and the cluster -----------------------------------------------------------------------------
@instruction(
    "bar.sync",
    "barrier.sync",
    "bar.arrive",
    "barrier.arrive",
    "bar.red",
    "barrier.red",
    "barrier.cta.sync",
    "barrier.cta.arrive",
    "barrier.cta.red",
    "bar.cta.sync",
    "bar.cta.arrive",
    "bar.cta.red",
)
def named_barrier(ins):
    """bar.sync waits, bar.arrive does not, bar.red also reduces a predicate. bar.* is barrier.*.aligned"""
    kind = next(part for part in ins.opcode.split(".") if part in ("sync", "arrive", "red"))
    if ins.mnemonic == "bar":
        ins.aligned = True
    else:
        ins.flag("aligned")
    reduction = ins.choice("popc", "and", "or") if kind == "red" else None
    if reduction is not None:
        _only(ins, "u32" if reduction == "popc" else "pred")
    operands = list(ins.operands)
    d = None
    predicate = None
    if kind == "red":
        d = ins.write(operands.pop(0), "u32" if reduction == "popc" else "pred")
        last = operands.pop()
        negated = isinstance(last, Negated)
        predicate = (ins.read(last.operand if negated else last, "pred"), negated)
    number = ins.read(operands[0], "u32")
    count = ins.read(operands[1], "u32") if len(operands) > 1 else None
    if kind == "arrive" and count is None:
        ins.unsupported("bar.arrive needs a thread count")
    aligned = ins.aligned

    def arrive(warp, lanes, barrier, expected):
        whole = aligned and count is not None
        threads = 32 if whole else lanes.bit_count()
        if predicate is not None:
            holds = bits_of(warp.values[predicate[0]])
            holds = lanes & (~holds if predicate[1] else holds)
            if reduction == "popc":
                barrier.value = (barrier.value or 0) + holds.bit_count()
            elif reduction == "and":
                barrier.value = (True if barrier.value is None else barrier.value) and holds == lanes
            else:
                barrier.value = bool(barrier.value) or holds != 0
        barrier.arrive(ins, warp, lanes, threads, expected)

    def run(warp, lanes):
        values = warp.values
        lane = first_lane(lanes)
        which = int(values[number][lane])
        if which >= NAMED_BARRIERS:
            ins.report(warp, lanes, "barrier-misuse", f"there is no named barrier {which}")
            return None
        barrier = warp.cta.named_barrier(which)
        expected = int(values[count][lane]) if count is not None else None
        if kind == "arrive":
            arrive(warp, lanes, barrier, expected)
            return None
        waits = warp.named_waits
        waiting = waits.get(which)
        if waiting is None:
            waiting = waits[which] = [barrier.phase, 0]
        fresh = lanes & ~waiting[1]
        if fresh:
            waiting[1] |= fresh
            arrive(warp, fresh, barrier, expected)
        phase = waiting[0]
        if barrier.phase == phase:
            return Blocked(lambda: barrier.phase != phase, barrier.describe, phases=[(barrier, phase)])
        waiting[1] &= ~lanes
        if not waiting[1]:
            del waits[which]
        clocks.acquire(warp, barrier.published)
        if d is not None:
            assign(values[d], barrier.result, lanes)
        return None

    return run


@instruction("barrier.cluster.arrive")
def cluster_arrive(ins):
    """Arrive at the cluster's barrier"""
    relaxed = ins.choice("release", "relaxed", default="release") == "relaxed"
    ins.flag("aligned")

    def run(warp, lanes):
        warp.machine.cluster_barrier_used = True
        warp.cta.cluster.barrier.arrive(ins, warp, lanes, relaxed)

    return run


@instruction("barrier.cluster.wait")
def cluster_wait(ins):
    """Wait until all threads of the cluster have arrived"""
    ins.flag("acquire")
    ins.flag("aligned")

    def run(warp, lanes):
        barrier = warp.cta.cluster.barrier
        if lanes & ~warp.cluster_arrived:
            ins.report(warp, lanes, "barrier-misuse", "a thread waits at the cluster barrier without having arrived")
            return None
        phase = warp.cluster_phase
        if barrier.phase == phase:
            return Blocked(lambda: barrier.phase != phase, barrier.describe, phases=[(barrier, phase)])
        warp.cluster_arrived &= ~lanes
        warp.cta.cluster_has_started = True
        clocks.acquire(warp, barrier.published)
        return None

    return run


@instruction("membar", "fence")
def fence(ins):
    """Memory fences. Only those that the checks need have an effect: memory itself is sequentially consistent here"""
    if ins.mnemonic == "membar":
        ins.choice("gl", "cta", "sys")
        return lambda warp, lanes: clocks.fence(warp, lanes, True, True)
    if ins.flag("mbarrier_init"):
        ins.flag("release"), ins.flag("cluster")

        def publish(warp, lanes):
            clocks.fence_mbarrier_init(warp)

        return publish
    if ins.flag("proxy"):
        return _proxy_fence(ins)
    kind = ins.choice("sc", "acq_rel", "acquire", "release", default="acq_rel")
    ins.choice("cta", "cluster", "gpu", "sys", default="gpu")
    _restriction(ins, kind)
    return lambda warp, lanes: clocks.fence(warp, lanes, kind != "release", kind != "acquire")


def _restriction(ins, kind):
    """To shared memory, which is all that the checks look at."""
    space = ins.choice("sync_restrict::shared::cta", "sync_restrict::shared::cluster", default=None)
    if space not in (None, {"release": "sync_restrict::shared::cta", "acquire": "sync_restrict::shared::cluster"}.get(kind)):
        ins.unsupported(".release goes with shared::cta, .acquire with shared::cluster")


def _proxy_fence(ins):
    if ins.flag("alias"):
        return lambda warp, lanes: None
    if ins.flag("tensormap::generic"):
        from .tensor_map import proxy_fence

        return proxy_fence(ins)
    if ins.flag("async::generic"):
        _restriction(ins, ins.choice("acquire", "release"))
        ins.choice("cta", "cluster", "gpu", "sys")
    elif not ins.flag("async"):
        ins.unsupported("this proxy")
    elif ins.choice("global", "shared::cta", "shared::cluster", default=None) == "global":
        return lambda warp, lanes: None  # only shared memory's proxies are checked

    def run(warp, lanes):
        clocks.fence_proxy(warp, lanes)

    return run

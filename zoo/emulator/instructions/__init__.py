"""The instruction tables: one short function per PTX mnemonic, and the conventions they all keep to.

Registering
-----------
    @instruction("wgmma.mma_async")              # the longest registered dotted prefix of the opcode wins
    def mma_async(ins):
        ...decode once: consume modifiers, resolve operands...
        def run(warp, lanes):
            ...execute for the lanes of one warp...
        return run

The function is called once per PTX line at decode time with an `Instruction` (decode.py); the closure it returns runs many times.
Each module of this package is imported by `load_tables()`; a module only has to exist to be found.

Modifiers (everything after the mnemonic, split at '.', `shared::cluster` is one modifier). Every modifier must be consumed,
in any order; what is left over is a hard error naming the PTX line. Never guess a modifier's meaning.
    ins.flag("aligned")                     -> bool; consumes it when present
    ins.choice("rn", "rz", default="rn")    -> the one present (consumed) or the default; without a default its absence is an error
    ins.pattern(r"m(\\d+)n(\\d+)k(\\d+)")   -> match object (consumed); required=False returns None when absent
    ins.types()                             -> list of the type modifiers in order (u32 s64 f16x2 e4m3 b8x16.b4x16_p64 is two ...), consumed
    ins.unsupported("why")                  -> raises UnsupportedInstruction(line, text, why)
`.aligned`: call `ins.flag("aligned")`; it also tells the machine to hold the group until all live lanes of the warp are here.

Operands. ins.operands[k] is a parsed operand (parser.py): Register, Immediate, Vector(.items), Address(.base, .offset),
TensorAddress(.map, .coordinates), Symbol, Negated(.operand), PredicatePair(.first, .second), SINK ('_').
A register, an immediate or a special register becomes a *slot*: an index into `warp.values`, a list of numpy arrays of
32 lanes in the type asked for (a view of the register, so writing into the array writes the register):
    ins.read(k, "u32")     -> slot; types: u8/s8/b8 u16/s16/b16 (uint16/int16), u32 s32 b32 f32, u64 s64 b64 f64, pred (bool), b128
                              b8/b16 registers are 16-bit arrays. k may also be an operand object.
    ins.write(k, "f32")    -> slot, or None for the sink `_`
    ins.read_list(k, t) / ins.write_list(k, t) -> slots of a vector operand {..} (a single register counts as a vector of one)
    ins.rows(k)            -> numpy index array of the vector's 32-bit registers for warp.words[rows] ((n, 32) uint32 gather in one
                              operation: use it for big register tiles, with `put_rows(warp, rows, values, lanes)` to store).
                              Note: the rows of a vector may only be registers (an immediate is refused).
    ins.address(k)         -> function(warp) -> array of 32 lane addresses (uint64; .shared addresses in the low 32 bits); it may be the
                              register itself, so copy (or int()) what a deferred execute() needs, as for every warp.values array
    ins.has_operand(k)     -> bool;  len(ins.operands)
An instruction's reads are checked for uninitialised and pending registers by the machine before run() is called, from what
read/read_list/rows/address/write recorded at decode time. (ins.conditional_reads, ins.condition: register numbers that are read
only where the predicate in that slot is true.) Inside run() just use the arrays.

Lanes. `lanes` is an int bit mask of the lanes that execute (guard predicate already applied, never 0). FULL = 0xFFFFFFFF.
    mask_of(lanes)                 -> read-only bool array of 32
    assign(array, value, lanes)    -> array[lanes] = value (value broadcasts; same dtype or castable)
    first_lane(lanes)              -> index of the lowest lane
    uniform(ins, warp, slot, lanes)-> int value of the lowest lane; reports "divergent-operand" if lanes disagree

Result of run(): None = done, go on. `Blocked(ready, describe)` = the group stays at this instruction and run() is called again when
ready() is true (ready: () -> bool, cheap; describe: () -> str for the deadlock report). Nothing may have been changed before returning it.
Whatever may make another warp's ready() true must do `warp.machine.progress += 1` (barriers do when a phase ends).

Reporting: `ins.report(warp, lanes, kind, message, address=None)` adds a finding (kinds: findings.py KINDS). Execution goes on.
An impossible state that leaves no meaning raises `EmulatorError`.

Where things are
    warp.index (in CTA), warp.group = warp.index // 4, warp.cta, warp.machine, warp.live (lanes not exited), warp.values, warp.words
    warp.cta.rank (in cluster), warp.cta.cluster.ctas[rank], warp.cta.warps, warp.cta.pair (the CTA with rank ^ 1, or None)
    warp.cta.tensor_memory          TensorMemory(cta), built on first use from zoo/emulator/tensor_memory.py; at CTA exit the machine calls
                                    `tensor_memory.check_exit(report)` with report(kind, message).
    warp.cta.shared                 SharedMemory (memory.py):
        .bytes                      flat uint8 array of the CTA (index = offset); no checks: use inside an operation's execute()
        .check_async_read(ins, warp, lanes, offsets)   at issue: bounds, uninitialised, missing proxy fence, race. offsets: int array, any shape,
                                    of byte offsets, or (low, high) for a range
        .check_write(ins, warp, lanes, offsets)  the same before the generic proxy writes .bytes; it also marks the bytes initialised, the writer
                                    and its clock
        .mark_async_write(ins, offsets) in execute(): bytes written by the async proxy (initialised, no generic writer)
    warp.machine.target(address)    32-bit cluster shared address -> (cta, offset); reports nothing, raises EmulatorError if no such CTA
    warp.machine.arithmetic         "exact" | "hw"
    warp.machine.rng                numpy Generator of the run's seed

Asynchronous work (asynchronous.py)
    engine = warp.machine.asynchronous
    op = Operation(ins, warp, lanes, execute,            # execute(): no arguments, does the work with sources as they are *then*
                   queue=("wgmma", warp) | None,         # same key = executed in issue order; None = unordered
                   reads=[(cta, offsets)],               # shared bytes locked until executed (array of offsets or (low, high))
                   writes=[(cta, offsets)],              # shared bytes poisoned until executed
                   signals=[address, ...],               # mbarriers its completion (or that of a later op of the queue) signals: lazy policy
                   registers=[slots or rows array...],   # destination registers: pending until engine.wait(op)
                   register_sources=[...])               # source registers: locked until executed
    engine.issue(op)            policy decides: now, later at random, or as late as is legal
    engine.wait(op)             finish it (and what precedes it in its queue) now, and release its registers: what wait_group / wait::ld does
    engine.wait_queue(key, keep=n)  wait for all but the n youngest groups of operations (see close_group)
    engine.close_group(key)     commit_group: ops issued under key since the last close form one group; wait_queue(key, keep=n) counts groups
    warp.clocks.copy()          snapshot of the thread's vector clocks (the order of memory), to hand to a later signal
    warp.machine.mbarriers.arrive(ins, warp, lanes, address, count=1, clocks=snapshot)   in execute(): the arrive of a commit
    warp.machine.mbarriers.complete_tx(ins, warp, lanes, address, nbytes, clocks=snapshot)
"""

import importlib
import pkgutil

from ..lanes import FULL, LANES, assign, bits_of, first_lane, mask_of, put_rows  # noqa: F401  (the tables import them from here)

TABLE = {}


def instruction(*mnemonics):
    """Register the decorated function as the decoder of these mnemonics."""

    def register(function):
        for mnemonic in mnemonics:
            if mnemonic in TABLE:
                raise RuntimeError(f"two functions are registered for the PTX instruction {mnemonic!r}")
            TABLE[mnemonic] = function
        return function

    return register


def lookup(opcode):
    """(function, list of modifiers) for the longest registered dotted prefix of `opcode`, or None."""
    parts = opcode.split(".")
    found = _of_prefix(parts)
    if found is None and "sync" in parts:  # ptxas takes it at any place, and CUB writes vote.ballot.sync
        others = [part for part in parts if part != "sync"]
        found = _of_prefix([others[0], "sync", *others[1:]]) or _of_prefix([*others[:2], "sync", *others[2:]])
    return found


def _of_prefix(parts):
    for length in range(len(parts), 0, -1):
        function = TABLE.get(".".join(parts[:length]))
        if function is not None:
            return function, parts[length:]
    return None


class Blocked:
    """Returned by run(): stay at this instruction; try again when ready() is true."""

    __slots__ = ("ready", "describe", "timeout", "addresses", "phases")

    def __init__(self, ready, describe, timeout=None, addresses=(), phases=None):
        self.ready = ready
        self.describe = describe
        self.timeout = timeout  # called instead of a deadlock report by waits that may legally give up (try_wait)
        self.addresses = addresses  # of the mbarriers it waits for, so that the lazy policy knows what is wanted
        # (barrier, its phase) of all that it waits for, none where it waits for lanes of its own warp; None where it waits for something
        # else. While none of them has moved on, nobody need ask ready().
        self.phases = phases


def uniform(ins, warp, slot, lanes):
    """The operand's value as a Python int; the lanes must agree."""
    array = warp.values[slot]
    value = array[first_lane(lanes)]
    if lanes & (lanes - 1) and not (array == value)[mask_of(lanes)].all():
        ins.report(warp, lanes, "divergent-operand", "lanes give different values where one is required")
    return value.item()


_loaded = False


def need_all(ins, warp, lanes):
    """Of an instruction of the whole warp."""
    if lanes != FULL:
        ins.report(warp, lanes, "divergent-aligned", f"lanes {FULL & ~lanes:#010x} do not take part: the result is undefined")


def load_tables():
    """Import every module of this package once, which fills TABLE."""
    global _loaded
    if not _loaded:
        for module in pkgutil.iter_modules(__path__):
            importlib.import_module(f"{__name__}.{module.name}")
        _loaded = True

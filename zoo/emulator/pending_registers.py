"""Registers that an asynchronous instruction writes or reads late: no use before the wait, no write before completion.

tcgen05.ld is the exception. The hardware honours the dependency on the registers it loads, and nvcc itself moves a use before
tcgen05.wait::ld, so a use is no finding. When all registers of a load have been used, it counts as waited for. tensor_memory.py reports
a load that was not waited for, in either way, when its cells are written again or freed.

A tcgen05.ld may also load cells that hold nothing. Moving such a value and computing with it is no use either, as in definedness.py.
"""

import numpy as np

from . import definedness
from .lanes import FULL, bits_of, mask_of
from .parser import Register, Vector, width_class


def asynchronous_registers(program):
    """Registers that an asynchronous instruction writes or reads late, closed under moves."""
    found = set()
    for ins in program.instructions:
        if ins.opcode.startswith(("wgmma.mma_async", "tcgen05.ld", "tcgen05.st")):
            for operand in ins.operands:
                if isinstance(operand, Vector):
                    found |= {program.layout.place_of(item)[0] for item in operand.items if isinstance(item, Register)}
                elif isinstance(operand, Register) and width_class(operand.type) == "b32":
                    found.add(program.layout.place_of(operand)[0])
    changed = bool(found)
    while changed:
        changed = False
        for ins in program.instructions:
            for destination, sources in ins.copies or ():
                if destination not in found and found.intersection(sources):
                    found.add(destination)
                    changed = True
    return found


def loaded_registers(program):
    """Registers that a tcgen05.ld writes, and all that are computed from them."""
    loads = [ins for ins in program.instructions if ins.opcode.startswith("tcgen05.ld")]
    return definedness.computed_from(program, set().union(*(ins.writes for ins in loads)))


def undefined(ins, warp, rows, missing, maker):
    """The registers of a tcgen05.ld that hold nothing; missing: (registers, 32) bool. Using one is a finding.

    maker: 0, or 1 + the pc of the product or store that wrote the cells from memory that nobody wrote.
    """
    origin = f"`{ins.text}` (PTX line {ins.line}) loaded from cells that were never written"
    if maker:
        made = ins.program.instructions[maker - 1]
        origin = f"`{ins.text}` (PTX line {ins.line}) loaded from the result of `{made.text}` (PTX line {made.line}), which worked on memory that nobody wrote"
    for row, lanes in zip(rows, missing):
        if lanes.any():
            warp.undefined_registers[ins.layout.register_of_row[int(row)]] = (bits_of(lanes), origin)


def missing_of(warp, numbers):
    """(registers, 32) bool: which lanes of these registers hold nothing."""
    return np.stack([mask_of(warp.undefined_registers.get(number, (0,))[0]) for number in numbers])


def _check_defined(ins, warp, lanes, reads, names):
    for number in reads:
        found = warp.undefined_registers.get(number)
        if found is not None and found[0] & lanes:
            why = f"it uses {names[number]}, which holds, or is computed from, what {found[1]}"
            ins.report(warp, found[0] & lanes, "uninitialised-tensor-memory", why)
            del warp.undefined_registers[number]


def defined(undefined, lanes, writes):
    """These registers are written. undefined: register -> (lanes, why)."""
    for number in writes:
        found = undefined.get(number)
        if found is not None:
            left = found[0] & ~lanes
            if left:
                undefined[number] = (left, found[1])
            else:
                del undefined[number]


def add(undefined, number, lanes, why):
    """These lanes of a register are undefined, too. why: a text, or findings of which all are kept."""
    before = undefined.get(number)
    if before is not None:
        lanes |= before[0]
        if isinstance(why, tuple):
            why = (*before[1], *(one for one in why if one not in before[1]))
    undefined[number] = (lanes, why)


def move(ins, warp, undefined, lanes, moves, deciding):
    """moves: (destination, sources) each; deciding: registers that all destinations depend on."""
    chosen = ()
    if ins.chosen_by is not None:  # lanes that take each source
        first = bits_of(warp.values[ins.chosen_by])
        chosen = tuple((first, ~first)[place] for place in ins.chosen_from)
    counting = _undecided(ins, warp, undefined) if ins.absorbs is not None else {}
    moved = []
    for destination, sources in moves:
        found = [
            (undefined.get(source), chosen[index] if ins.chosen_by is not None else counting.get(source, FULL))
            for index, source in enumerate(sources)
        ]
        moved.append((destination, found + [(undefined.get(number), FULL) for number in deciding]))
    defined(undefined, lanes, [destination for destination, _ in moved])
    for destination, sources in moved:
        for found, taken in sources:
            if found is not None and found[0] & lanes & taken:
                add(undefined, destination, found[0] & lanes & taken, found[1])


def _undecided(ins, warp, undefined):
    """Of two predicates: register -> the lanes in which the other one does not decide alone."""
    value, *slots = ins.absorbs
    numbers = [ins.layout.register_of_slot[slot] for slot in slots]
    decides = [
        (bits_of(warp.values[slot]) ^ (0 if value else FULL)) & ~undefined.get(number, (0,))[0] for slot, number in zip(slots, numbers)
    ]
    return {numbers[0]: ~decides[1], numbers[1]: ~decides[0]}


def moves_of(ins, passed):
    """(moves, deciding) of an instruction that passes these registers on, for `move`."""
    moves = ins.copies
    if ins.shuffled is not None:
        moves = ()
    elif moves is None:
        moves = [(number, sorted(passed)) for number in sorted(ins.writes)]
    return moves, sorted(passed.difference(*(sources for _, sources in moves)) if moves else ())


def _following(ins, names):
    """The function that says what becomes of values of tensor memory that nobody wrote: it passes them on, or reports their use."""
    passed = definedness.passed_by(ins.program, ins)
    if ins.opcode.startswith("tcgen05.st."):  # marks the cells
        passed = {ins.layout.place_of(item)[0] for item in ins.items(len(ins.operands) - 1) if isinstance(item, Register)}
    used = sorted(ins.reads - passed)
    moves, deciding = moves_of(ins, passed)

    def follow(warp, lanes):
        _check_defined(ins, warp, lanes, used, names)
        if moves:
            move(ins, warp, warp.undefined_registers, lanes, moves, deciding)

    return follow


def followed(ins, run, names):
    """Of an instruction that reads or writes a register computed from a tcgen05.ld."""
    follow = _following(ins, names)

    def following(warp, lanes):
        if warp.undefined_registers:
            follow(warp, lanes)
        return run(warp, lanes)

    return following


def exchanged(ins, run, undefined_of):
    """A shuffle of a value that may be undefined. undefined_of(warp): register -> (lanes, why)."""
    source, destination = ins.shuffled

    def exchanging(warp, lanes):
        undefined = undefined_of(warp)
        found = undefined.get(source)
        outcome = run(warp, lanes)
        if undefined and outcome is None:
            defined(undefined, lanes, [destination])
            missing = 0 if found is None else lanes & bits_of(mask_of(found[0])[warp.state["shuffled from"]])
            if missing:
                undefined[destination] = (missing, found[1])
        return outcome

    return exchanging


def checked(ins, run, reads, writes, names):
    """Guards registers of asynchronous operations: no use before the wait, no write before completion."""
    accumulates = ins.opcode.startswith("wgmma.mma_async")
    own = set()
    if accumulates:
        own = {ins.layout.place_of(item)[0] for item in ins.items(0)}
    copies, follow = ins.copies, _following(ins, names)

    def checking(warp, lanes):
        pending, locked = warp.pending_registers, warp.locked_registers
        if not pending and not locked:
            if warp.undefined_registers:
                follow(warp, lanes)
            return run(warp, lanes)
        if copies:
            taken = []
            for destination, sources in copies:
                found, parts = None, set()
                for source in sources:
                    operation = pending.get(source)
                    if operation is not None and operation.lanes & lanes:
                        warp.machine.asynchronous.finish(operation)
                        if found is not operation:
                            if found is not None and _is_load(found):
                                _used(warp, found, parts)  # packed with registers of another operation
                            found, parts = operation, set()
                        parts |= operation.copies.get(source, {source})
                taken.append((destination, found, parts))
            if warp.undefined_registers:
                follow(warp, lanes)
            outcome = run(warp, lanes)
            for destination, operation, parts in taken:
                before = pending.get(destination)
                if operation is not None:
                    if not operation.waited:
                        pending[destination], operation.copies[destination] = operation, parts
                elif before is not None and before.executed:
                    del pending[destination]  # only a copy of a result, replaced
                elif before is not None:
                    _touched(ins, warp, lanes, names[destination], before)
                if destination in locked:
                    _overwritten(ins, warp, lanes, names[destination], locked[destination])
            return outcome
        for number in reads:
            operation = pending.get(number)
            if operation is not None and operation.lanes & lanes and not (accumulates and number in own):
                if _is_load(operation):
                    _use_of_load(warp, number, operation)
                    continue
                ins.report(
                    warp, lanes & operation.lanes, "missing-wait",
                    f"{names[number]} is used before the wait for `{operation.ins.text}` (PTX line {operation.ins.line}) that writes it",
                )  # fmt: skip
                warp.machine.asynchronous.release_registers(operation)  # one report for each operation, at the first use
        for number in writes:
            operation = pending.get(number)
            if operation is not None and operation.lanes & lanes and not (accumulates and number in own):
                if operation.executed and _is_load(operation):
                    del pending[number]  # loaded, and never used
                else:
                    _touched(ins, warp, lanes, names[number], operation)
            operation = locked.get(number)
            if operation is not None and operation.lanes & lanes and not operation.executed:
                if operation.ins.opcode.startswith("tcgen05.st"):  # ptxas makes the write wait until the store has read
                    warp.machine.asynchronous.finish(operation)
                else:
                    _overwritten(ins, warp, lanes, names[number], operation)
        if warp.undefined_registers:
            follow(warp, lanes)
        return run(warp, lanes)

    return checking


def _is_load(operation):
    return operation.ins.opcode.startswith("tcgen05.ld")


def _use_of_load(warp, number, operation):
    """A use of one of its registers, or of a copy, completes a load; that of the last one tells the warp that it is complete."""
    warp.machine.asynchronous.finish(operation)
    del warp.pending_registers[number]
    _used(warp, operation, operation.copies.pop(number, {number}))


def _used(warp, operation, registers):
    operation.unused -= registers
    if not operation.unused:
        warp.machine.asynchronous.wait(operation)


def _touched(ins, warp, lanes, name, operation):
    ins.report(
        warp,
        lanes,
        "pending-destination",
        f"{name} is written while `{operation.ins.text}` (PTX line {operation.ins.line}) still has to write it",
    )


def _overwritten(ins, warp, lanes, name, operation):
    ins.report(
        warp, lanes, "source-overwritten", f"{name} is written while `{operation.ins.text}` (PTX line {operation.ins.line}) still reads it"
    )


def of_wgmma(program):
    """Registers that are an operand of wgmma.mma_async, and those that moves connect with them."""
    found = set()
    for ins in program.instructions:
        if ins.opcode.startswith("wgmma.mma_async"):
            for operand in ins.operands:
                if isinstance(operand, Vector):
                    found |= {program.layout.place_of(item)[0] for item in operand.items if isinstance(item, Register)}
    changed = bool(found)
    while changed:
        changed = False
        for ins in program.instructions:
            for destination, sources in ins.copies or ():
                group = {destination, *sources}
                if group & found and not group <= found:
                    found |= group
                    changed = True
    return found


def noted(ins, run, registers):
    """`run`, and which registers of wgmma ordinary instructions have used since the last wgmma.fence. A move is no use: it hands
    on what is known of its source."""
    if ins.opcode.startswith("wgmma."):
        return run
    copies = [(destination, sources) for destination, sources in ins.copies or () if destination in registers]
    if copies:

        def moving(warp, lanes):
            for used in (warp.wgmma_read, warp.wgmma_written):
                for destination, sources in copies:
                    used.discard(destination) if used.isdisjoint(sources) else used.add(destination)
            return run(warp, lanes)

        return moving
    reads, writes = frozenset(ins.reads & registers), frozenset(ins.writes & registers)
    if not reads and not writes:
        return run

    def noting(warp, lanes):
        warp.wgmma_read.update(reads)
        warp.wgmma_written.update(writes)
        return run(warp, lanes)

    return noting

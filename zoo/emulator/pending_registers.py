"""Registers that an asynchronous instruction writes or reads late: no use before the wait, no write before completion.

tcgen05.ld is the exception. The hardware honours the dependency on the registers it loads, and nvcc itself moves a use before
tcgen05.wait::ld, so a use is no finding. When all registers of a load have been used, it counts as waited for. tensor_memory.py reports
a load that was not waited for, in either way, when its cells are written again or freed.
"""

from .lanes import FULL, bits_of
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


def undefined(ins, warp, rows, missing):
    """The registers of a tcgen05.ld that hold cells nobody wrote; missing: (registers, 32) bool. Using one is a finding, moving it is not."""
    for row, lanes in zip(rows, missing):
        if lanes.any():
            warp.undefined_registers[ins.layout.register_of_row[int(row)]] = (bits_of(lanes), ins)


def _check_defined(ins, warp, lanes, reads, names):
    for number in reads:
        found = warp.undefined_registers.get(number)
        if found is not None and found[0] & lanes:
            ins.report(
                warp, found[0] & lanes, "uninitialised-tensor-memory",
                f"it uses {names[number]}, which `{found[1].text}` (PTX line {found[1].line}) loaded from cells that were never written, or from products of shared memory that nobody wrote",
            )  # fmt: skip
            del warp.undefined_registers[number]


def _defined(warp, lanes, writes):
    for number in writes:
        found = warp.undefined_registers.get(number)
        if found is not None:
            left = found[0] & ~lanes
            if left:
                warp.undefined_registers[number] = (left, found[1])
            else:
                del warp.undefined_registers[number]


def _move_undefined(ins, warp, lanes, copies):
    chosen = ()
    if ins.chosen_by is not None:  # lanes that take each source
        first = bits_of(warp.values[ins.chosen_by])
        chosen = tuple((first, ~first)[place] for place in ins.chosen_from)
    moved = [(destination, [warp.undefined_registers.get(source) for source in sources]) for destination, sources in copies]
    _defined(warp, lanes, [destination for destination, _ in moved])
    for destination, sources in moved:
        for index, found in enumerate(sources):
            taken = lanes & (FULL if ins.chosen_by is None else chosen[index])
            if found is not None and found[0] & taken:
                before = warp.undefined_registers.get(destination, (0, None))[0]
                warp.undefined_registers[destination] = (before | found[0] & taken, found[1])


def checked(ins, run, reads, writes, names):
    """Guards registers of asynchronous operations: no use before the wait, no write before completion."""
    accumulates = ins.opcode.startswith("wgmma.mma_async")
    own = set()
    if accumulates:
        own = {ins.layout.place_of(item)[0] for item in ins.items(0)}
    copies = ins.copies

    def checking(warp, lanes):
        pending, locked = warp.pending_registers, warp.locked_registers
        if not pending and not locked:
            if warp.undefined_registers:
                if copies:
                    _move_undefined(ins, warp, lanes, copies)
                else:
                    _check_defined(ins, warp, lanes, reads, names)
                    _defined(warp, lanes, writes)
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
            _move_undefined(ins, warp, lanes, copies)
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
                _overwritten(ins, warp, lanes, names[number], operation)
        if warp.undefined_registers:
            _check_defined(ins, warp, lanes, reads, names)
            _defined(warp, lanes, writes)
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

"""Registers that an asynchronous instruction writes or reads late: no use before the wait, no write before completion.

tcgen05.ld is the exception. The hardware honours the dependency on the registers it loads, and nvcc itself moves a use before
tcgen05.wait::ld, so the first use completes the load and is no finding. What the wait is for all the same is the tensor memory:
tensor_memory.py reports a load that nobody waited for when its cells are written again or freed.
"""

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
            return run(warp, lanes)
        if copies:
            taken = []
            for destination, sources in copies:
                found = None
                for source in sources:
                    operation = pending.get(source)
                    if operation is not None and operation.lanes & lanes:
                        warp.machine.asynchronous.finish(operation)
                        found = operation
                taken.append((destination, found))
            outcome = run(warp, lanes)
            for destination, operation in taken:
                before = pending.get(destination)
                if operation is not None:
                    pending[destination] = operation
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
                if operation.ins.opcode.startswith("tcgen05.ld"):
                    warp.machine.asynchronous.finish(operation)
                else:
                    ins.report(
                        warp, lanes & operation.lanes, "missing-wait",
                        f"{names[number]} is used before the wait for `{operation.ins.text}` (PTX line {operation.ins.line}) that writes it",
                    )  # fmt: skip
                warp.machine.asynchronous.release_registers(operation)  # one report for each operation, at the first use
        for number in writes:
            operation = pending.get(number)
            if operation is not None and operation.lanes & lanes and not (accumulates and number in own):
                _touched(ins, warp, lanes, names[number], operation)
            operation = locked.get(number)
            if operation is not None and operation.lanes & lanes and not operation.executed:
                _overwritten(ins, warp, lanes, names[number], operation)
        return run(warp, lanes)

    return checking


def _touched(ins, warp, lanes, name, operation):
    ins.report(
        warp, lanes, "pending-destination", f"{name} is written while `{operation.ins.text}` (PTX line {operation.ins.line}) still has to write it"
    )


def _overwritten(ins, warp, lanes, name, operation):
    ins.report(warp, lanes, "source-overwritten", f"{name} is written while `{operation.ins.text}` (PTX line {operation.ins.line}) still reads it")

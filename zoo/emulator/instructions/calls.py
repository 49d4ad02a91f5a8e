"""Calls of functions, by name or through a pointer, and returns. frames.py has the stack and the saved registers."""

from ..frames import Link, enter, leave
from ..lanes import by_value, first_lane
from ..memory import LOCAL_BASE
from ..parser import Function, Group, Label, Variable
from . import instruction
from .control import end


def _sizes(variables):
    return tuple(variable.size for variable in variables)


def _fits(given, declared):
    """Whether arguments of these sizes fit parameters of these sizes. A last parameter without a size accepts an argument of any size, or none."""
    if declared and declared[-1] is None:
        return given[: len(declared) - 1] == declared[:-1] and len(given) <= len(declared)
    return given == declared


def _words(results, parameters):
    """The sizes of a signature, for a message."""
    texts = (", ".join("any number" if size is None else str(size) for size in sizes) for sizes in (results, parameters))
    return "results of ({}) and parameters of ({}) bytes".format(*texts)


@instruction("call")
def call(ins):
    """Call a function of the module: arguments are copied in, results are copied out when it returns"""
    ins.flag("uni")
    operands = list(ins.operands)
    results = operands.pop(0).items if isinstance(operands[0], Group) else []
    callee = operands.pop(0)
    arguments = operands.pop(0).items if operands and isinstance(operands[0], Group) else []
    if any(not isinstance(variable, Variable) or variable.space != "param" for variable in (*results, *arguments)):
        ins.unsupported("an argument or result that is no .param variable")
    given = _sizes(results), _sizes(arguments)
    if not isinstance(callee, Function):
        return _call_indirect(ins, callee, operands, arguments, results, given)
    if operands:
        ins.unsupported("a call by name has neither a prototype nor a list of targets")
    declared = _sizes(callee.results), _sizes(callee.parameters)
    if callee.entry:
        ins.unsupported(f"{callee.name} is a kernel")
    if given[0] != declared[0] or not _fits(given[1], declared[1]):
        ins.unsupported(f"{callee.name} has {_words(*declared)}, and the call has {_words(*given)}")
    if callee.statements is None:
        return _call_system(ins, callee, arguments, results)
    link, start = Link(ins, ins.program.frames[callee], arguments, results), ins.program.start[callee]
    ins.saved = link.saved

    def run(warp, lanes):
        inside = enter(ins, warp, lanes, link)
        return start if inside == lanes else ((start, inside, None),) if inside else ()

    return run


def _call_indirect(ins, pointer, operands, arguments, results, given):
    """A call of the function whose address a register holds. Lanes may call different functions."""
    signature = operands.pop(0) if operands else None
    if not isinstance(signature, Label) or operands or (signature.prototype is None and signature.targets is None):
        ins.unsupported("a call through a pointer needs a .callprototype or a .calltargets")
    prototype = signature.prototype and tuple(map(_sizes, signature.prototype))
    if prototype and (given[0] != prototype[0] or not _fits(given[1], prototype[1])):
        ins.unsupported(f"its prototype has {_words(*prototype)}, and the call has {_words(*given)}")
    program, slot = ins.program, ins.read(pointer, "u64")
    links = {}
    for callee in program.targets_of(signature):
        declared = _sizes(callee.results), _sizes(callee.parameters)
        if given[0] == declared[0] and _fits(given[1], declared[1]):
            links[callee] = Link(ins, program.frames[callee], arguments, results)
    ins.saved = next((link.saved for link in links.values() if link.saved is not None), None)

    def why_not(warp, address):
        callee = warp.machine.device.function_at(warp.machine.module, address)
        if callee is None:
            return "the address is null" if address == 0 else f"{address:#x} is the address of no function of this module"
        if callee.entry or not callee.has_body:
            return f"{callee.name} {'is a kernel' if callee.entry else 'has no body'}"
        if signature.targets is not None and callee not in signature.targets:
            return f"{callee.name} is not in the list {signature}"
        declared = _words(_sizes(callee.results), _sizes(callee.parameters))
        return f"{callee.name} has {declared}, and the call has {_words(*(prototype or given))}"

    def run(warp, lanes):
        targets = []
        for address, part in by_value(warp.values[slot], lanes):
            link = links.get(warp.machine.functions.get(address))
            if link is None:
                ins.report(warp, part, "invalid-call", f"it calls through {pointer}, and {why_not(warp, address)}", address)
                warp.exit(part)
                continue
            inside = enter(ins, warp, part, link)
            if inside:
                targets.append((program.start[link.callee], inside, None))
        return targets[0][0] if targets and targets[0][1] == lanes else tuple(targets)

    return run


@instruction("ret")
def ret(ins):
    """Return to each lane's caller; from the entry, exit"""
    ins.flag("uni")
    return end if ins.function.entry else leave


def _call_system(ins, callee, arguments, results):
    """A call of a function of CUDA's device runtime."""
    places = [(ins.read(argument, "u64"), argument.size) for argument in arguments]
    given_back = [(ins.read(result, "u64"), result.size) for result in results]

    def values(warp, lane):
        starts = [(int(warp.values[slot][lane]), size) for slot, size in places]
        return [int.from_bytes(warp.local.bytes[lane, start : start + size].tobytes(), "little") for start, size in starts]

    if callee.name == "__assertfail":

        def run(warp, lanes):
            machine = warp.machine
            message, file, line, function, _ = values(warp, first_lane(lanes))
            words = [machine.device.c_string(address) for address in (message, file, function)]
            ins.report(warp, lanes, "trap", f"the assertion `{words[0]}` failed at {words[1]}:{line} in {words[2]}")
            return end(warp, lanes)

        return run
    if callee.name == "vprintf":

        def run(warp, lanes):
            local = warp.local
            for lane in range(32):
                if lanes >> lane & 1:
                    format, buffer = values(warp, lane)
                    start, stop = buffer - LOCAL_BASE, int(local.ends[lane])
                    warp.machine.print(format, local.bytes[lane, start:stop].tobytes() if 0 <= start < stop else b"")
            for slot, size in given_back:
                for lane in range(32):
                    if lanes >> lane & 1:
                        start = int(warp.values[slot][lane])
                        local.bytes[lane, start : start + size], local.valid[lane, start : start + size] = 0, 1

        return run
    if callee.name in ("malloc", "free"):

        def run(warp, lanes):
            local, heap = warp.local, warp.machine.device.heap
            for lane in range(32):
                if not lanes >> lane & 1:
                    continue
                (given,) = values(warp, lane)
                if callee.name == "free":
                    if not heap.free(given):
                        ins.report(warp, 1 << lane, "invalid-free", f"malloc did not return {given:#x}, or it was freed before", given)
                    continue
                ((slot, size),) = given_back
                start = int(warp.values[slot][lane])
                local.bytes[lane, start : start + size] = list(heap.allocate(given).to_bytes(size, "little"))
                local.valid[lane, start : start + size] = 1

        return run
    ins.unsupported(f"the function {callee.name} has no body")
    return None

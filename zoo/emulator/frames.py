"""Calls: what a device function has while it runs, and what its caller gets back when it returns.

A thread's stack lies behind the kernel's .local variables, in local memory. Each call puts a frame on it, with the function's parameters and
.local variables. What alloca takes lies behind the frame, and goes with it at the return.

    0 .. 16 .. size                | frame of f           | alloca in f | frame of g           | ends
    invalid, .local of the kernel  | parameters, .local   |             | parameters, .local   |

Registers are one set per function. A call that may lead back to the function that makes it keeps the registers of that function, and the
return gives them back. All of this belongs to a lane, so lanes meet at a pc whatever the depths of their stacks.
"""

import numpy as np

from .errors import EmulatorError
from .lanes import FULL, LANES, assign, bits_of, mask_of
from .parser import Register
from .pending_registers import add, defined

MOST_LOCAL_BYTES = 512 << 10  # of a thread, here as in hardware
STACK_BYTES = 1 << 10  # of a thread's stack in hardware, unless a program sets cudaLimitStackSize
_FEWEST_BYTES = 128  # of a frame here, which bounds how deep calls may be
_SAVED_BYTES = 16  # of hardware's stack: what a function keeps during a call that leads back to it. ptxas 13.5 takes 16 to 40.


def placed(variables, end=0):
    """({variable: offset}, the end) of variables that lie one after the other."""
    offsets = {}
    for variable in variables:
        end = -(-end // variable.align) * variable.align
        offsets[variable] = end
        end += variable.size or 0
    return offsets, end


class Frame:
    """Of a device function: where its variables lie, and which registers are its own. Functions of one `component` call each other."""

    def __init__(self, function, component, recursive):
        self.function, self.component, self.recursive = function, component, recursive
        own = [variable for variable in function.variables if variable.space in ("local", "param")]
        every = sorted(own + function.parameters + function.results, key=lambda variable: variable.size is None)  # `name[]` is the last
        self.offsets, self.size = placed(every)
        self.align = max([8, *(variable.align for variable in every)])
        self.local_bytes = placed(variable for variable in own if variable.space == "local")[1]
        if self.size > MOST_LOCAL_BYTES:
            raise EmulatorError(f"{function.name} has {self.size:,} bytes of local memory a thread, the limit is {MOST_LOCAL_BYTES:,}")
        self._pointers = {}  # (variable, addend, bits) -> the register that holds this address while the function runs
        self.addresses = []  # (slot of such a register, offset in the frame)
        self.numbers, self.rows, self._tracked = frozenset(), {}, {}

    def pointer(self, layout, variable, addend, dtype):
        """The slot of the address of a variable."""
        bits = 8 * dtype.itemsize
        key = variable, addend, bits
        register = self._pointers.get(key)
        if register is None:
            register = self._pointers[key] = Register(variable.name, f"b{bits}", -1, self.function)
            self.addresses.append((layout.register_slot(register, f"u{bits // 8}"), self.offsets[variable] + addend))
        return layout.register_slot(register, dtype)

    def take_registers(self, layout, places):
        """The registers of the function, once all is decoded."""
        self.numbers = frozenset(number for number, _, _ in places)
        self.units = [layout.unit_base[number] + k for number in self.numbers for k in range(layout.unit_count[number])]
        for name in {name for _, name, _ in places}:
            self.rows[name] = np.array([row for _, of, row in places if of == name], np.intp)

    def tracked(self, warp):
        """The bytes of its registers whose writers are known now."""
        follows = warp.machine.follows_undefined
        units = self._tracked.get(follows)
        if units is None:
            known = warp.program.followed if follows else warp.program.tracked
            units = self._tracked[follows] = [unit for unit in self.units if unit in known]
        return units


class Link:
    """A call instruction and one function that it may call: what moves into the frame, and back."""

    def __init__(self, ins, frame, arguments, results):
        """arguments, results: the caller's variables."""
        callee, caller = frame.function, ins.program.frames.get(ins.function)
        self.callee, self.frame, self.following = callee, frame, ins.pc + 1
        self.keeps = caller if caller is not None and caller.component == frame.component else None
        self.inputs = [_move(ins, frame, *pair) for pair in zip(arguments, callee.parameters) if pair[0].size]
        self.outputs = [_move(ins, frame, *pair) for pair in zip(results, callee.results) if pair[0].size]
        rest = arguments[-1].size if arguments and callee.parameters[-1].size is None and len(arguments) == len(callee.parameters) else 0
        self.size = max(frame.size + rest, _FEWEST_BYTES)
        self.stack_bytes = frame.local_bytes + (_SAVED_BYTES if self.keeps is not None else 0)


def _move(ins, frame, given, own):
    """(slot of the address of the caller's variable, offset of the function's, units, bytes of a unit)"""
    unit = next(unit for unit in (8, 4, 2, 1) if not (given.size % unit or given.align % unit or own.align % unit))
    return ins.read(given, "u64"), frame.offsets[own], given.size // unit, unit


class _Call:
    """What the return of these lanes needs."""

    __slots__ = ("ends", "kept", "link", "starts", "used")

    def __init__(self, link, starts, ends, used, kept):
        self.link, self.starts, self.ends, self.used, self.kept = link, starts, ends, used, kept


class _Kept:
    """The registers of a function, and what is known of them, in some lanes."""

    def __init__(self, warp, lanes, frame):
        self.frame, self.lanes, mask = frame, lanes, mask_of(lanes)
        self.values = {name: warp.files[name][rows][:, mask] for name, rows in frame.rows.items()}
        self.known = {unit: warp.defined[unit] for unit in frame.tracked(warp)}
        self.undefined, self.doubtful = ({number: found[number] for number in frame.numbers & found.keys()} for found in _doubts(warp))

    def give_back(self, warp, lanes):
        frame, mask = self.frame, mask_of(lanes)
        (columns,) = np.nonzero(mask)
        which = slice(None) if lanes == self.lanes else mask[mask_of(self.lanes)]
        for name, rows in frame.rows.items():
            warp.files[name][rows[:, None], columns] = self.values[name][:, which]
        for unit in frame.tracked(warp):  # what was not tracked at the call was not computed from an undefined source
            warp.defined[unit] = warp.defined[unit] & ~lanes | self.known.get(unit, FULL) & lanes
        for now, before in zip(_doubts(warp), (self.undefined, self.doubtful)):
            defined(now, lanes, frame.numbers & now.keys())
            for number, (part, why) in before.items():
                if part & lanes:
                    add(now, number, part & lanes, why)


def _doubts(warp):
    return warp.undefined_registers, warp.doubtful_registers


def enter(ins, warp, lanes, link):
    """The lanes that run the function from now on: those whose stack has room."""
    frame, local = link.frame, warp.local
    starts = -(-local.ends // frame.align) * frame.align
    tops, used = starts + link.size, local.used + link.stack_bytes
    lanes = _with_room(ins, warp, lanes, link, tops, used)
    if not lanes:
        return 0
    kept = _Kept(warp, lanes, link.keeps) if link.keeps is not None else None
    call = _Call(link, starts, local.ends, local.used, kept)
    calls = warp.calls
    if not calls:
        calls = warp.calls = [[] for _ in range(LANES)]
    for lane, stack in enumerate(calls):
        if lanes >> lane & 1:
            stack.append(call)
    local.take(lanes, starts, tops, used)
    for slot, offset, count, unit in link.inputs:
        local.move(lanes, warp.values[slot].astype(np.int64), starts + offset, count, unit)
    for slot, offset in frame.addresses:
        assign(warp.values[slot], starts + offset, lanes)
    for unit in frame.tracked(warp):
        warp.defined[unit] &= ~lanes
    return lanes


def _with_room(ins, warp, lanes, link, tops, used):
    """The lanes whose stack has room for the call. The others end, as on hardware."""
    most = warp.machine.stack_bytes
    deep, over = mask_of(lanes) & (tops > MOST_LOCAL_BYTES), mask_of(lanes) & (used > most)
    out = bits_of(deep | over)
    if out:
        words = "is too deep for the emulator"
        if over.any():
            words = f"needs {int(used[over].max()):,} bytes of stack or more, and a thread has {most:,}"
        ins.report(warp, out, "stack-overflow", f"the call of {link.callee.name} {words}")
        warp.exit(out)
    return lanes & ~out


def leave(warp, lanes):
    """Ends the frames of these lanes. What a return gives the machine: where they go on."""
    calls, local = warp.calls, warp.local
    ended, found = {}, {}
    if lanes == FULL and all(stack[-1] is calls[0][-1] for stack in calls):
        ended[calls[0][-1]] = FULL
        for stack in calls:
            stack.pop()
    else:
        for lane, stack in enumerate(calls):
            if lanes >> lane & 1:
                call = stack.pop()
                ended[call] = ended.get(call, 0) | 1 << lane
    for call, part in ended.items():
        link = call.link
        if call.kept is not None:
            call.kept.give_back(warp, part)
        for slot, offset, count, unit in link.outputs:
            local.move(part, call.starts + offset, warp.values[slot].astype(np.int64), count, unit)
        assign(local.ends, call.ends, part)
        assign(local.used, call.used, part)
        found[link.following] = found.get(link.following, 0) | part
    if len(found) == 1:
        return next(iter(found))
    return tuple((following, part, None) for following, part in found.items())


def tops(warp):
    """Where the variables of the function that each lane runs end: alloca takes what lies behind."""
    stacks = warp.calls or [()] * LANES
    return np.array([stack[-1].starts[lane] + stack[-1].link.size if stack else warp.local.size for lane, stack in enumerate(stacks)])

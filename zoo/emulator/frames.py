"""Calls: the frames of device functions on each thread's stack, and the registers that a return restores.

A thread's stack follows the kernel's .local variables in local memory. Each call adds a frame with the function's parameters and .local
variables. Memory of alloca follows the frame. The return frees both.

    0 .. 16 .. size                | frame of f           | alloca in f | frame of g           | ends
    invalid, .local of the kernel  | parameters, .local   |             | parameters, .local   |

Each function has one set of registers. A call that may lead back to its caller therefore saves the caller's registers, and the return
restores them. Every lane has a stack of its own, so lanes whose stacks differ in depth can still run an instruction together.
"""

import numpy as np

from .errors import EmulatorError
from .lanes import FULL, LANES, assign, bits_of, mask_of
from .parser import Register
from .pending_registers import add, defined

MOST_LOCAL_BYTES = 512 << 10  # of a thread, here as in hardware
STACK_BYTES = 1 << 10  # a thread's stack in hardware, unless a program sets cudaLimitStackSize
_LEAST_FRAME_BYTES = 128  # here, so that MOST_LOCAL_BYTES bounds the depth of calls of functions without variables
_SAVED_BYTES = 16  # on hardware's stack, for the registers that a call saves if it may lead back to its caller: ptxas 13.5 needs 16 to 40


def placed(variables, end=0):
    """({variable: offset}, the end) of variables placed one after the other from `end` on."""
    offsets = {}
    for variable in variables:
        end = -(-end // variable.align) * variable.align
        offsets[variable] = end
        end += variable.size or 0
    return offsets, end


class Frame:
    """The frame of a device function: offsets of its variables, and numbers of its registers. Functions of one `component` call each other."""

    def __init__(self, function, component, recursive):
        self.function, self.component, self.recursive = function, component, recursive
        own = [variable for variable in function.variables if variable.space in ("local", "param")]
        every = sorted(own + function.parameters + function.results, key=lambda variable: variable.size is None)  # `name[]` comes last
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
        """Collects the registers of the function. The program calls this after it has decoded all instructions."""
        self.numbers = frozenset(number for number, _, _ in places)
        self.units = [layout.unit_base[number] + k for number in self.numbers for k in range(layout.unit_count[number])]
        for name in {name for _, name, _ in places}:
            self.rows[name] = np.array([row for _, of, row in places if of == name], np.intp)

    def tracked(self, warp):
        """The bytes of its registers whose definedness is tracked now (definedness.py)."""
        follows = warp.machine.follows_undefined
        units = self._tracked.get(follows)
        if units is None:
            known = warp.program.followed if follows else warp.program.tracked
            units = self._tracked[follows] = [unit for unit in self.units if unit in known]
        return units


class Link:
    """A call instruction and one function that it may call: which arguments are copied into the frame, and which results back."""

    def __init__(self, ins, frame, arguments, results):
        """arguments, results: the caller's variables."""
        callee, caller = frame.function, ins.program.frames.get(ins.function)
        self.callee, self.frame, self.following = callee, frame, ins.pc + 1
        self.saved = caller if caller is not None and caller.component == frame.component else None
        self.inputs = [_move(ins, frame, *pair) for pair in zip(arguments, callee.parameters) if pair[0].size]
        self.outputs = [_move(ins, frame, *pair) for pair in zip(results, callee.results) if pair[0].size]
        rest = arguments[-1].size if arguments and callee.parameters[-1].size is None and len(arguments) == len(callee.parameters) else 0
        self.size = max(frame.size + rest, _LEAST_FRAME_BYTES)
        self.stack_bytes = frame.local_bytes + (_SAVED_BYTES if self.saved is not None else 0)


def _move(ins, frame, given, own):
    """(slot of the address of the caller's variable, offset of the function's, units, bytes of a unit)"""
    unit = next(unit for unit in (8, 4, 2, 1) if not (given.size % unit or given.align % unit or own.align % unit))
    return ins.read(given, "u64"), frame.offsets[own], given.size // unit, unit


class _Call:
    """A call that has not returned: starts of the frames, and ends, used bytes and registers to restore."""

    __slots__ = ("ends", "link", "saved", "starts", "used")

    def __init__(self, link, starts, ends, used, saved):
        self.link, self.starts, self.ends, self.used, self.saved = link, starts, ends, used, saved


class _SavedRegisters:
    """Values of a function's registers in some lanes, and which of them are undefined or doubtful."""

    def __init__(self, warp, lanes, frame):
        self.frame, self.lanes, mask = frame, lanes, mask_of(lanes)
        self.values = {name: warp.files[name][rows][:, mask] for name, rows in frame.rows.items()}
        self.known = {unit: warp.defined[unit] for unit in frame.tracked(warp)}
        self.undefined, self.doubtful = ({number: found[number] for number in frame.numbers & found.keys()} for found in _doubts(warp))

    def restore(self, warp, lanes):
        frame, mask = self.frame, mask_of(lanes)
        (columns,) = np.nonzero(mask)
        which = slice(None) if lanes == self.lanes else mask[mask_of(self.lanes)]
        for name, rows in frame.rows.items():
            warp.files[name][rows[:, None], columns] = self.values[name][:, which]
        for unit in frame.tracked(warp):  # a byte that was not tracked at the call was defined
            warp.defined[unit] = warp.defined[unit] & ~lanes | self.known.get(unit, FULL) & lanes
        for now, before in zip(_doubts(warp), (self.undefined, self.doubtful)):
            defined(now, lanes, frame.numbers & now.keys())
            for number, (part, why) in before.items():
                if part & lanes:
                    add(now, number, part & lanes, why)


def _doubts(warp):
    return warp.undefined_registers, warp.doubtful_registers


def enter(ins, warp, lanes, link):
    """Puts a frame on the stacks of these lanes. Returns the lanes whose stack has room: they run the function."""
    frame, local = link.frame, warp.local
    starts = -(-local.ends // frame.align) * frame.align
    tops, used = starts + link.size, local.used + link.stack_bytes
    lanes = _with_room(ins, warp, lanes, link, tops, used)
    if not lanes:
        return 0
    saved = _SavedRegisters(warp, lanes, link.saved) if link.saved is not None else None
    call = _Call(link, starts, local.ends, local.used, saved)
    calls = warp.calls
    if not calls:
        calls = warp.calls = [[] for _ in range(LANES)]
    for lane, stack in enumerate(calls):
        if lanes >> lane & 1:
            stack.append(call)
    local.extend(lanes, starts, tops, used)
    for slot, offset, count, unit in link.inputs:
        local.move(lanes, warp.values[slot].astype(np.int64), starts + offset, count, unit)
    for slot, offset in frame.addresses:
        assign(warp.values[slot], starts + offset, lanes)
    for unit in frame.tracked(warp):
        warp.defined[unit] &= ~lanes
    return lanes


def _with_room(ins, warp, lanes, link, tops, used):
    """The lanes whose stack has room for the call. Other lanes end, as on hardware."""
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
    """Removes a frame from the stacks of these lanes. Returns where each lane continues."""
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
        if call.saved is not None:
            call.saved.restore(warp, part)
        for slot, offset, count, unit in link.outputs:
            local.move(part, call.starts + offset, warp.values[slot].astype(np.int64), count, unit)
        assign(local.ends, call.ends, part)
        assign(local.used, call.used, part)
        found[link.following] = found.get(link.following, 0) | part
    if len(found) == 1:
        return next(iter(found))
    return tuple((following, part, None) for following, part in found.items())


def ends_of_frames(warp):
    """The end of each lane's newest frame, where memory of alloca begins."""
    stacks = warp.calls or [()] * LANES
    return np.array([stack[-1].starts[lane] + stack[-1].link.size if stack else warp.local.size for lane, stack in enumerate(stacks)])

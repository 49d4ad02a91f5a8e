"""PTX statements to closures: operands become slots, modifiers are consumed, uninitialised reads are found ahead of time.

A `Program` is one entry with every function it can reach, as a flat list of closures `code[pc](warp, lanes)`.
"""

import functools
import re

import numpy as np

from . import definedness, doubts, guards, pending_registers, products
from .errors import EmulatorError, UnsupportedInstruction
from .findings import Finding
from .frames import MOST_LOCAL_BYTES, Frame, placed
from .instructions import load_tables, lookup
from .lanes import LANES
from .parser import (
    SINK,
    TYPE_BYTES,
    Address,
    Function,
    Group,
    Immediate,
    Label,
    Negated,
    PredicatePair,
    Register,
    Special,
    Statement,
    TensorAddress,
    Variable,
    Vector,
    width_class,
)  # fmt: skip

MOST_PARAMETER_BYTES = 32764

# type modifier -> (width class of the register it needs, numpy type of the slot)
SLOT_TYPES = {
    "pred": ("pred", np.bool_),
    "b8": ("b16", np.uint16), "u8": ("b16", np.uint16), "s8": ("b16", np.int16),
    "b16": ("b16", np.uint16), "u16": ("b16", np.uint16), "s16": ("b16", np.int16), "f16": ("b16", np.float16), "bf16": ("b16", np.uint16),
    "b32": ("b32", np.uint32), "u32": ("b32", np.uint32), "s32": ("b32", np.int32), "f32": ("b32", np.float32),
    "f16x2": ("b32", np.uint32), "bf16x2": ("b32", np.uint32), "tf32": ("b32", np.uint32),
    "b64": ("b64", np.uint64), "u64": ("b64", np.uint64), "s64": ("b64", np.int64), "f64": ("b64", np.float64), "f32x2": ("b64", np.uint64),
    "b128": ("b128", np.uint64),
}  # fmt: skip
SPECIAL_REGISTERS = {
    "tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank", "cluster_nctarank",
    "is_explicit_cluster", "laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid",
    "lanemask_eq", "lanemask_lt", "lanemask_le", "lanemask_gt", "lanemask_ge",
    "envreg1", "envreg2", "reserved_smem_offset_begin", "reserved_smem_offset_end",
    "reserved_smem_offset_cap", "reserved_smem_offset_0", "reserved_smem_offset_1",
    "clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi", "current_graph_exec", "dynamic_smem_size", "total_smem_size", "aggr_smem_size",
}  # fmt: skip
# mnemonic -> the targets that have it
_TARGETS = {"tcgen05": r"sm_1[01]\d[af]", "wgmma": "sm_90a", "clusterlaunchcontrol": r"sm_1\d\d[af]?"}
_CLASS_BITS = {"pred": 1, "b16": 16, "b32": 32, "b64": 64, "b128": 128}
_STORAGE = {"pred": np.bool_, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "b128": np.uint64}

# Modifiers that name a type of values (ins.types() consumes these).
VALUE_TYPES = set(TYPE_BYTES) | {
    "f16x2", "bf16x2", "f32x2", "tf32", "e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "ue8m0", "ue4m3", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2",
    "ue8m0x2", "e4m3x4", "e5m2x4", "e2m1x4", "e2m3x4", "e3m2x4", "u16x2", "s16x2", "u8x4", "s8x4", "b4x16", "b6x16_p32", "b4x16_p64", "b6p2x16", "b8x16",
    "b1", "u4", "s4", "s2f6x2", "ue5m3",
}  # fmt: skip


class Layout:
    """Where every register, constant and special register of a program lies, and the recipe to build a warp's `values`."""

    def __init__(self):
        self.rows = dict.fromkeys(_STORAGE, 0)
        self.place = {}  # Register -> (register number, class, row)
        self.names = []  # register number -> name
        self.unit_base, self.unit_count, self.units = [], [], 0  # bytes of the registers, see definedness.py
        self.slots = []  # ("register", class, row, dtype) | ("constant", array) | ("special", name, dtype) | ("symbol", variable, addend, dtype)
        self._known = {}
        self.register_of_slot = {}
        self.register_of_row = {}  # row of a 32-bit register -> register number

    def place_of(self, register):
        place = self.place.get(register)
        if place is None:
            name = width_class(register.type)
            row = self.rows[name]
            self.rows[name] = row + 1
            place = self.place[register] = (len(self.names), name, row)
            if name == "b32":
                self.register_of_row[row] = len(self.names)
            self.names.append(register.name)
            count = max(1, _CLASS_BITS[name] // 8)
            self.unit_base.append(self.units)
            self.unit_count.append(count)
            self.units += count
        return place

    def units_of(self, register):
        number = self.place_of(register)[0]
        return range(self.unit_base[number], self.unit_base[number] + self.unit_count[number])

    def slot(self, *recipe):
        key = recipe if recipe[0] != "constant" else ("constant", recipe[1].dtype, recipe[1].tobytes())
        slot = self._known.get(key)
        if slot is None:
            slot = self._known[key] = len(self.slots)
            self.slots.append(recipe)
        return slot

    def register_slot(self, register, dtype):
        number, name, row = self.place_of(register)
        slot = self.slot("register", name, row, np.dtype(dtype))
        self.register_of_slot[slot] = number
        return slot

    @functools.cached_property
    def _registers(self):
        """(class, dtype) -> (slots, their rows), of all slots that are registers; asked for when the layout is complete."""
        found = {}
        for slot, recipe in enumerate(self.slots):
            if recipe[0] == "register":
                slots, rows = found.setdefault((recipe[1], recipe[3]), ([], []))
                slots.append(slot)
                rows.append(recipe[2])
        return found

    def storage(self):
        """Zeroed register files of one warp, by class, and the values list with holes for what depends on the CTA."""
        files = {}
        for name, dtype in _STORAGE.items():
            shape = (self.rows[name], LANES, 2) if name == "b128" else (self.rows[name], LANES)
            files[name] = np.zeros(shape, dtype)
        values = [recipe[1] if recipe[0] == "constant" else None for recipe in self.slots]
        for (name, dtype), (slots, rows) in self._registers.items():
            view = files[name] if files[name].dtype == dtype else files[name].view(dtype)
            for slot, register in zip(slots, map(view.__getitem__, rows)):
                values[slot] = register
        return files, values


class Operands(list):
    """The operands of an instruction, and which of them its decoder has looked at."""

    def __init__(self, operands):
        super().__init__(operands)
        self.seen = set()

    def __getitem__(self, k):
        self.seen.update(range(len(self))[k] if isinstance(k, slice) else [range(len(self))[k]])
        return super().__getitem__(k)

    def __iter__(self):
        self.seen.update(range(len(self)))
        return super().__iter__()


class Instruction:
    """What a decoder function of instructions/ works with; see instructions/__init__.py for the conventions."""

    def __init__(self, program, statement, pc, modifiers):
        self.program, self.statement, self.pc = program, statement, pc
        self.operands = Operands(statement.operands)
        self.line, self.text, self.opcode = statement.line, statement.text, statement.opcode
        self.mnemonic = statement.opcode.split(".")[0]
        self.modifiers = list(modifiers)
        self.layout = program.layout
        self.reads, self.writes = set(), set()
        self.conditional_reads, self.condition = set(), None  # registers read only where the predicate in this slot is true
        self.copies = None  # for pure moves: list of (destination register number, [source register numbers])
        self.chosen_by = None  # of a move from one of two operands: the predicate that chooses the first
        self.chosen_from = ()  # which of those two, 0 or 1, the registers among them are
        self.unit_copies = None  # the same for their bytes, see definedness.py
        self.passes = None  # of other instructions whose bytes come from known bytes of the sources: (destination byte, source bytes)
        self.passed = frozenset()  # registers of which it only passes bytes on
        self.carries = False  # a byte of the result depends on no higher byte of a source
        self.absorbs = None  # of passes of two predicates: (the value that decides alone, slots of the two)
        self.shuffled = None  # of a shuffle: the numbers of the register that lanes read from each other, and of the result
        self.narrow = {}  # register number -> how many of its low bytes are read, where that is not all
        self.forget = None  # of a store to shared or local memory, which passes undefined bytes on, see instructions/memory.py
        self.doubtful = False  # run() may leave lanes of its destinations undefined: those in warp.state["undefined lanes"]
        self.unanswered = False  # its destinations are the coordinates of a cluster that an answer may not have taken
        self.product = None  # of an mma.sync that may wait for others, see products.py
        self.aligned = False
        self.control = False  # may return a jump
        self.guard = None
        self.saved = None  # for a call: the frame whose registers the call saves and the return restores
        self.meeting = None  # of an instruction whose lanes may be at another such instruction, see meetings.py

    def forget_operands(self):
        """What only decoding looks at goes, which is most of what an instruction holds."""
        self.operands = self.modifiers = self.conditional_reads = self.unit_copies = None
        self.passes = self.passed = self.narrow = self.product = None

    # ---- modifiers
    def flag(self, name):
        if name in self.modifiers:
            self.modifiers.remove(name)
            if name == "aligned":
                self.aligned = True
            return True
        return False

    _required = object()

    def choice(self, *names, default=_required):
        found = [name for name in names if name in self.modifiers]
        if len(found) > 1:
            self.unsupported(f"modifiers .{found[0]} and .{found[1]} exclude each other")
        if found:
            self.modifiers.remove(found[0])
            return found[0]
        if default is Instruction._required:
            self.unsupported("it needs one of ." + ", .".join(names))
        return default

    def pattern(self, regex, required=True):
        for modifier in self.modifiers:
            match = re.fullmatch(regex, modifier)
            if match:
                self.modifiers.remove(modifier)
                return match
        if required:
            self.unsupported(f"it needs a modifier like {regex}")
        return None

    def types(self):
        found = [modifier for modifier in self.modifiers if modifier in VALUE_TYPES]
        self.modifiers = [modifier for modifier in self.modifiers if modifier not in VALUE_TYPES]
        return found

    def type(self):
        found = self.types()
        if len(found) != 1:
            self.unsupported("it needs exactly one type")
        return found[0]

    def unsupported(self, why):
        raise UnsupportedInstruction(self.line, self.text, why)

    # ---- operands
    def _operand(self, k):
        if isinstance(k, int):
            if k >= len(self.operands):
                self.unsupported(f"operand {k} is missing")
            return self.operands[k]
        return k

    def has_operand(self, k):
        return k < len(self.operands)

    def expect_operands(self, *counts):
        if len(self.operands) not in counts:
            self.unsupported(f"it has {len(self.operands)} operands")

    def read(self, k, type, wide=False):
        """The slot of a source. wide=True accepts a wider register and returns its slot as unsigned of its full width."""
        operand = self._operand(k)
        name, dtype = SLOT_TYPES[type]
        if isinstance(operand, Register):
            self.reads.add(self.layout.place_of(operand)[0])
            return self._register_slot(operand, name, dtype, type, wide)
        if isinstance(operand, Immediate):
            return self.layout.slot("constant", self._constant(operand, name, dtype, type))
        if isinstance(operand, Special):
            if operand.name[1:].partition(".")[0] not in SPECIAL_REGISTERS:
                self.unsupported(f"the special register {operand.name}")
            self.program.uses_reserved_region |= operand.name == "%reserved_smem_offset_1"
            return self.layout.slot("special", operand.name, np.dtype(dtype))
        if isinstance(operand, (Variable, Function)):
            return self._symbol(operand, 0, dtype)
        if isinstance(operand, Address) and isinstance(operand.base, Variable):
            return self._symbol(operand.base, operand.offset, dtype)
        what = "a negated predicate" if isinstance(operand, Negated) else f"operand {operand!r}"
        self.unsupported(f"{what} cannot be read as .{type} here")
        return None

    @property
    def offsets(self):
        """Offsets of its function's variables in the frame. A kernel has no frame."""
        frame = self.program.frames.get(self.function)
        return {} if frame is None else frame.offsets

    def _symbol(self, symbol, addend, dtype):
        """The slot of the address of a variable or a function."""
        if symbol in self.offsets:
            return self.program.frames[self.function].pointer(self.layout, symbol, addend, np.dtype(dtype))
        if isinstance(symbol, Function):
            self.program.names_functions = True
        return self.layout.slot("symbol", symbol, addend, np.dtype(dtype))

    def write(self, k, type, wide=False):
        operand = self._operand(k)
        if operand is SINK:
            return None
        if not isinstance(operand, Register):
            self.unsupported(f"operand {operand!r} cannot be written")
        name, dtype = SLOT_TYPES[type]
        self.writes.add(self.layout.place_of(operand)[0])
        return self._register_slot(operand, name, dtype, type, wide)

    def _register_slot(self, register, name, dtype, type, wide):
        actual = width_class(register.type)
        if actual != name:
            if wide and _CLASS_BITS[actual] > _CLASS_BITS[name]:
                return self.layout.register_slot(register, _STORAGE[actual])
            self.unsupported(f"register {register} of type .{register.type} used as .{type}")
        return self.layout.register_slot(register, dtype)

    def register_bits(self, k):
        """Width of a register operand in bits (None when it is not a register)."""
        operand = self._operand(k)
        return _CLASS_BITS[width_class(operand.type)] if isinstance(operand, Register) else None

    def _constant(self, immediate, name, dtype, type):
        bits = _CLASS_BITS[name]
        if type == "pred":
            return _frozen(np.full(LANES, immediate.value != 0))
        if name == "b128":
            self.unsupported("a 128-bit immediate")
        if immediate.form == "int":
            if dtype in (np.float32, np.float64, np.float16):
                if immediate.value:
                    return _frozen(np.full(LANES, immediate.value, dtype))
                return _frozen(np.zeros(LANES, dtype))
            raw = immediate.value & ((1 << bits) - 1)
        elif immediate.form == "f64" and bits == 32:
            with np.errstate(over="ignore"):
                return _frozen(np.full(LANES, np.uint64(immediate.value).view(np.float64), np.float64).astype(np.float32).view(dtype))
        elif immediate.form == "f32" and bits == 64:
            return _frozen(np.full(LANES, np.uint32(immediate.value).view(np.float32), np.float32).astype(np.float64).view(dtype))
        else:
            raw = immediate.value
        return _frozen(np.full(LANES, raw, np.dtype(f"u{bits // 8}")).view(dtype))

    def items(self, k):
        """The operands inside a vector; a single operand counts as a vector of one."""
        operand = self._operand(k)
        return operand.items if isinstance(operand, Vector) else [operand]

    def read_list(self, k, type, wide=False):
        return [self.read(item, type, wide) for item in self.items(k)]

    def write_list(self, k, type):
        return [self.write(item, type) for item in self.items(k)]

    def rows(self, k, destination=False):
        """Index array of a vector's 32-bit registers in warp.words. Counts as a read, and as a write when `destination`."""
        rows = []
        for item in self.items(k):
            if not isinstance(item, Register) or width_class(item.type) != "b32":
                self.unsupported(f"{item!r} must be a 32-bit register")
            number, _, row = self.layout.place_of(item)
            rows.append(row)
            (self.writes if destination else self.reads).add(number)
        return np.array(rows, np.intp)

    def address_parts(self, k):
        """(slot or None, dtype of the slot, offset) of a bracketed address; variables are folded into a symbol slot."""
        operand = self._operand(k)
        if isinstance(operand, Register):
            operand = Address(operand, 0)
        if not isinstance(operand, Address):
            self.unsupported(f"{operand!r} is not an address")
        if operand.base is None:
            return None, np.dtype(np.uint64), operand.offset
        if isinstance(operand.base, Register):
            type = "u32" if width_class(operand.base.type) == "b32" else "u64"
            return self.read(operand.base, type), np.dtype(SLOT_TYPES[type][1]), operand.offset
        if isinstance(operand.base, Variable):
            return self._symbol(operand.base, operand.offset, np.uint64), np.dtype(np.uint64), 0
        self.unsupported(f"{operand.base!r} is not an address")
        return None

    def address(self, k):
        slot, dtype, offset = self.address_parts(k)
        if slot is None:
            constant = np.full(LANES, offset & (2**64 - 1), np.uint64)
            return lambda warp: constant
        if dtype == np.uint32:
            offset = np.uint32(offset & 0xFFFFFFFF)
            if offset:
                return lambda warp: (warp.values[slot] + offset).astype(np.uint64)
            return lambda warp: warp.values[slot].astype(np.uint64)
        offset = np.uint64(offset & (2**64 - 1))
        if offset:
            return lambda warp: warp.values[slot] + offset
        return lambda warp: warp.values[slot]

    def target(self, k):
        """The pc of a label operand."""
        label = self._operand(k)
        if not isinstance(label, Label):
            self.unsupported(f"{label!r} is not a label")
        return self.program.pc_of(label)

    # ---- findings
    @property
    def source(self):
        return self._place(self.statement.source)

    @property
    def callers(self):
        return tuple(map(self._place, self.statement.callers))

    def _place(self, place):
        return None if place is None else f"{self.program.files.get(place[0], place[0])}:{place[1]}"

    def report(self, warp, lanes, kind, message, address=None, severity="error", other=None):
        """The finding, which may count further places. `other`: the earlier access that this one meets, as ("written" | "read", instruction)."""
        machine = warp.machine
        return machine.findings.add(
            Finding(
                kind,
                message,
                kernel=self.program.entry.name,
                severity=severity,
                cta=warp.cta.index,
                warp=warp.index,
                lanes=lanes,
                line=self.line,
                text=self.text,
                source=self.source,
                callers=self.callers,
                block=self.program.blocks[self.pc],
                address=None if address is None else int(address),
                other=other,
            )
        )


def _guarded(ins, run):
    if ins.guard is not None:
        return guards.guarded_aligned(ins, run) if ins.aligned else guards.guarded(ins, run)
    return guards.aligned(ins, run) if ins.aligned else run


def _frozen(array):
    array.setflags(write=False)
    return array


def _refusing(error):
    def refuse(warp, lanes):
        raise error

    return refuse


def _sizes(*lists):
    return tuple(tuple(variable.size for variable in variables) for variables in lists)


class Program:
    """One entry and all functions it reaches, decoded. `symbol_address` and such are the machine's to fill in."""

    def __init__(self, module, entry_name):
        load_tables()
        entry = module.functions.get(entry_name)
        if entry is None or not entry.entry:
            names = ", ".join(name for name, function in module.functions.items() if function.entry)
            raise EmulatorError(f"the module has no entry {entry_name!r}; it has {names or 'none'}")
        self.entry, self.files, self.target = entry, module.files, module.target
        self.layout = Layout()
        self.uses_reserved_region = False
        self.reads_textures = False
        self.talking = None  # of split.py: words for an instruction, "" where there is none
        self.free_registers = []  # those of warps that have ended, in this launch or an earlier one
        self._module, self._by_sizes = module, None
        self.names_functions = False  # whether an instruction uses the address of a function
        self.pointed_at = set()  # functions that calls through pointers may reach
        self.named = {entry}  # functions that calls by name alone reach
        self.functions, component, recursive = self._reachable(entry)
        self.frames = {
            function: Frame(function, component[function], function in recursive) for function in self.functions if function is not entry
        }
        del self._module
        self.start = {}
        position = 0
        for function in self.functions:  # callees first: a lower pc runs first, so callers' lanes wait at the return point
            self.start[function] = position
            position += len(function.statements) + 1  # one more: an implicit ret at the end of the body
        self.length = position
        self.parameter_offset, self.parameter_bytes = self._entry_parameters()
        self.local_offset, self.local_bytes = self._local_variables()
        self.stack_bytes = placed(variable for variable in entry.variables if variable.space == "local")[
            1
        ]  # the kernel's own, without functions
        self.shared_offset, self.static_shared_end, self.dynamic_shared_start = self._shared_variables()
        self.instructions = []
        self.code = []
        for function in self.functions:
            self._decode(function)
        self.names_functions |= bool(self.pointed_at)
        # ptxas cannot compute the stack of such a kernel, so the driver gives it the size that cudaLimitStackSize sets
        self.has_limited_stack = bool(recursive or self.pointed_at) or any(ins.mnemonic == "alloca" for ins in self.instructions)
        places = {}
        for register, place in self.layout.place.items():
            places.setdefault(register.function, []).append(place)
        for function, frame in self.frames.items():
            frame.take_registers(self.layout, places.get(function, ()))
        self.blocks = self._basic_blocks()
        self._wrap()
        for ins in self.instructions:
            ins.forget_operands()

    def dismantle(self):
        """Undoes the circles that it is made of, so that it is gone at once: it holds megabytes, and thousands of objects that a search
        for garbage would look through."""
        self.__dict__.clear()

    # ---- layout of what the functions declare
    def targets_of(self, signature):
        """The functions that a call through a pointer may reach: a list, or all functions whose sizes equal the prototype's."""
        if signature.targets is not None:
            found = [target for target in signature.targets if isinstance(target, Function) and target.has_body and not target.entry]
        else:
            if self._by_sizes is None:
                self._by_sizes = {}
                for function in dict.fromkeys(self._module.functions.values()):
                    if not function.entry and function.has_body:
                        self._by_sizes.setdefault(_sizes(function.results, function.parameters), []).append(function)
            found = self._by_sizes.get(_sizes(*signature.prototype), ())
        self.pointed_at.update(found)
        return found

    def _called_by(self, function):
        """Functions that this function calls by name, and functions that it may call through pointers."""
        self._module.read(function)
        named, pointed = {}, {}
        for statement in function.statements:
            if statement.opcode.split(".")[0] == "call":
                for operand in statement.operands:
                    if isinstance(operand, Function) and operand.has_body:
                        named[operand] = None
                    elif isinstance(operand, Label) and (operand.prototype or operand.targets):
                        pointed.update(dict.fromkeys(self.targets_of(operand)))
        return named, pointed

    def _reachable(self, entry):
        """(functions, callees before callers; function -> component; functions whose calls may lead back to them).

        Functions that call each other are one component. Tarjan's algorithm finds them.
        """
        order, component, recursive = [], {}, set()
        lowest = {}  # function -> the earliest function that its calls are known to reach
        open_ = []  # functions whose component is not yet known
        number, by_name = {}, {}
        path = []  # [(function, callees not yet visited)]

        def begin(function):
            lowest[function] = number[function] = len(number)
            open_.append(function)
            by_name[function], pointed = self._called_by(function)
            path.append((function, iter({**by_name[function], **pointed})))

        begin(entry)
        while path:
            function, callees = path[-1]
            for callee in callees:
                if callee not in number:
                    begin(callee)
                    break
                if callee not in component:
                    lowest[function] = min(lowest[function], number[callee])
                if callee is function:
                    recursive.add(function)
            else:
                path.pop()
                order.append(function)
                if path:
                    caller = path[-1][0]
                    lowest[caller] = min(lowest[caller], lowest[function])
                if lowest[function] == number[function]:
                    members = []
                    while function not in members[-1:]:
                        members.append(open_.pop())
                    component.update(dict.fromkeys(members, number[function]))
                    if len(members) > 1:
                        recursive.update(members)
        waiting = [entry]
        while waiting:
            waiting += by_name[waiting.pop()].keys() - self.named
            self.named.update(waiting)
        return order, component, recursive

    def _entry_parameters(self):
        offsets, end = {}, 0
        for variable in self.entry.parameters:
            end = -(-end // variable.align) * variable.align
            offsets[variable] = end
            end += variable.size
        if end > MOST_PARAMETER_BYTES:
            raise EmulatorError(f"{self.entry.name} takes {end:,} bytes of parameters, the limit is {MOST_PARAMETER_BYTES:,}")
        return offsets, end

    def _local_variables(self):
        """The kernel's .local variables, and the .param variables of its calls: all per-lane memory. Offset 0 stays invalid."""
        offsets, end = placed([variable for variable in self.entry.variables if variable.space in ("local", "param")], 16)
        if end > MOST_LOCAL_BYTES:
            raise EmulatorError(f"{self.entry.name} has {end:,} bytes of local memory a thread, the limit is {MOST_LOCAL_BYTES:,}")
        return offsets, end

    def _shared_variables(self):
        used = set()

        def visit(operand):
            if isinstance(operand, Variable):
                used.add(operand)
            elif isinstance(operand, Address):
                visit(operand.base)
            elif isinstance(operand, (Vector, Group)):
                for item in operand.items:
                    visit(item)
            elif isinstance(operand, TensorAddress):
                visit(operand.map), visit(operand.coordinates)
            elif isinstance(operand, PredicatePair):
                visit(operand.first), visit(operand.second)
            elif isinstance(operand, Negated):
                visit(operand.operand)

        for function in self.functions:
            for statement in function.statements:
                for operand in statement.operands:
                    visit(operand)
        shared = sorted((v for v in used if v.space == "shared"), key=lambda v: (v.line, v.name))
        offsets, end = {}, 1024  # hardware keeps the first KiB; it keeps address 0 invalid and 1024-byte alignment
        for variable in shared:
            if variable.size is not None:
                end = -(-end // variable.align) * variable.align
                offsets[variable] = end
                end += variable.size
        dynamic = [v for v in shared if v.size is None]
        start = -(-end // 16) * 16
        for variable in dynamic:
            start = -(-start // variable.align) * variable.align
        for variable in dynamic:
            offsets[variable] = start
        return offsets, end, start

    # ---- decoding
    def pc_of(self, label):
        return self.start[label.function] + label.position

    def _decode(self, function):
        base = self.start[function]
        for index, statement in enumerate(function.statements):
            ins = Instruction(self, statement, base + index, [])
            ins.function = function
            try:
                run = self._decoded(ins)
            except UnsupportedInstruction as error:
                if function in self.named:
                    raise
                ins = Instruction(self, statement, base + index, [])  # the function may never be called
                ins.function, run = function, _refusing(error)
            self.instructions.append(ins)
            self.code.append(run)
        implicit = Statement(None, "ret", [], function.line, None, f"(end of {function.name})")
        ins = Instruction(self, implicit, base + len(function.statements), [])
        ins.function = function
        self.instructions.append(ins)
        self.code.append(lookup("ret")[0](ins))

    def _decoded(self, ins):
        """The function that executes the instruction."""
        statement, frame = ins.statement, self.frames.get(ins.function)
        found = lookup(statement.opcode)
        if found is None:
            raise UnsupportedInstruction(statement.line, statement.text, f"no function is registered for {statement.opcode}")
        decoder, modifiers = found
        ins.modifiers = list(modifiers)
        self._check_target(ins)
        if frame is not None and frame.recursive and statement.opcode.startswith(("wgmma.mma_async", "tcgen05.ld", "tcgen05.st")):
            ins.unsupported("registers that change late, in a function whose call may lead back to it")
        guard = statement.guard
        if guard is not None:
            negated = isinstance(guard, Negated)
            ins.guard = (ins.read(guard.operand if negated else guard, "pred"), negated)
        try:
            run = decoder(ins)
        except EmulatorError:
            raise
        except Exception as error:  # a decoder met something it was not written for
            why = f"this form is not covered ({type(error).__name__}: {error})"
            raise UnsupportedInstruction(statement.line, statement.text, why) from error
        unread = [k for k in range(len(ins.operands)) if k not in ins.operands.seen]
        if unread:
            ins.unsupported(f"it has {len(ins.operands)} operands, and operand {unread[0]} means nothing here")
        if ins.modifiers:
            ins.unsupported("unknown modifier ." + ", .".join(ins.modifiers))
        if run is None:
            raise RuntimeError(f"the decoder of {ins.opcode} returned nothing")
        return run

    def _check_target(self, ins):
        needed = _TARGETS.get(ins.mnemonic)
        if needed is not None and not re.fullmatch(needed, self.target):
            ins.unsupported(f"{self.target} has no {ins.mnemonic}")

    def successors(self, pc):
        """The pcs that may follow, within the function."""
        ins = self.instructions[pc]
        following = [pc + 1]
        if ins.mnemonic == "bra":
            found = [ins.target(0)]
        elif ins.mnemonic == "brx":
            found = [self.pc_of(label) for label in ins.operands[1].targets]
        elif ins.mnemonic in ("ret", "exit", "trap"):
            found = []
        else:
            return following
        return found + following if ins.guard is not None else found

    def _basic_blocks(self):
        """pc -> number of its basic block."""
        starts = {self.start[function] for function in self.functions}
        for pc in range(self.length):
            following = self.successors(pc)
            if following != [pc + 1]:
                starts.update((pc + 1, *following))
        blocks, number = [], -1
        for pc in range(self.length):
            number += pc in starts
            blocks.append(number)
        return blocks

    # ---- what surrounds the semantic functions: register checks, guards, alignment
    def _wrap(self):
        self._following = None
        self.code = definedness.all_checked(self, products.grouped(self, self.code))
        asynchronous = pending_registers.asynchronous_registers(self)
        of_wgmma, loaded = pending_registers.of_wgmma(self), pending_registers.loaded_registers(self)
        for pc, ins in enumerate(self.instructions):
            run = self.code[pc]
            touched_reads, touched_writes = sorted(ins.reads & asynchronous), sorted(ins.writes & asynchronous)
            of_load = not loaded.isdisjoint(ins.reads | ins.writes)
            if of_load and ins.shuffled is not None:
                run = pending_registers.exchanged(ins, run, lambda warp: warp.undefined_registers)
            if touched_reads or touched_writes:
                run = pending_registers.checked(ins, run, touched_reads, touched_writes, self.layout.names)
            elif of_load:
                run = pending_registers.followed(ins, run, self.layout.names)
            if of_wgmma:
                run = pending_registers.noted(ins, run, of_wgmma)
            self.code[pc] = run
        self._inner = self.code
        self.code = [_guarded(ins, run) for ins, run in zip(self.instructions, self.code)]

    def following(self):
        """The code that follows doubtful values."""
        if self._following is None:
            followed = [doubts.followed(ins, run) for ins, run in zip(self.instructions, self._inner)]
            self._following = [doubts.guarded(ins, _guarded(ins, run)) for ins, run in zip(self.instructions, followed)]
        return self._following

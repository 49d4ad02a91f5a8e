"""ld, st, atomics, address conversion and the non-bulk asynchronous copies."""

import numpy as np

from .. import byte_passes, clocks, lane_order, memory, multicast, number_formats
from ..asynchronous import Operation
from ..errors import EmulatorError
from ..lanes import FULL, assign, first_lane, mask_of
from ..memory import GLOBAL_BASE, LOCAL_BASE, SHARED_BASE
from ..parser import SINK, TYPE_BYTES, Address, Immediate, Register, Variable
from . import instruction

_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "param::func", "const")
_READERS = {
    "global": memory.read_global, "const": memory.read_constant, "shared": memory.read_shared, "local": memory.read_local, "generic": memory.read_generic,
    "param": memory.read_parameters, "multicast": multicast.read,
}  # fmt: skip
_WRITERS = {"global": memory.write_global, "shared": memory.write_shared, "local": memory.write_local, "generic": memory.write_generic,
            "multicast": multicast.write}  # fmt: skip
_INTEGER = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


def _space(ins):
    if ins.mnemonic == "multimem":
        ins.flag("global")
        return "multicast"
    space = ins.choice(*_SPACES, default="generic")
    return space.split("::")[0] if space != "generic" else space


def _ordering(ins, *strong):
    """(memory order: '' for weak accesses, else its name; scope)"""
    if ins.flag("mmio"):
        ins.flag("relaxed") or ins.unsupported(".mmio needs .relaxed")
        return "relaxed", ins.choice("sys")
    order = ins.choice("weak", "volatile", "relaxed", *strong, default="")
    scope = ins.choice("cta", "cluster", "gpu", "sys", default="gpu") if order in ("relaxed", *strong) else "gpu"
    return "" if order == "weak" else order, scope


_CACHE = ("L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
          "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::evict_last", "L2::64B", "L2::128B", "L2::256B")  # fmt: skip


def _cache_hints(ins):
    """Consumes cache modifiers; returns how many trailing operands (a policy register) they add."""
    ins.choice("ca", "cg", "cs", "lu", "cv", "wb", "wt", default=None)
    ins.flag("nc") if ins.mnemonic == "ld" and "global" in ins.opcode.split(".") else None
    for name in _CACHE:
        ins.flag(name)
    if not ins.flag("L2::cache_hint"):
        return 0
    ins.read(len(ins.operands) - 1, "b64")
    return 1


def addresses_of(ins, k):
    """function(warp, lanes) -> int64 addresses of the active lanes."""
    slot, dtype, offset = ins.address_parts(k)
    if slot is None:
        constant = np.full(32, offset, np.int64)
        return lambda warp, lanes: memory.select(constant, lanes)
    if dtype == np.uint32:
        wrap = np.uint32(offset & 0xFFFFFFFF)

        def narrow(warp, lanes):
            address = warp.values[slot]
            if wrap:
                address = address + wrap
            return (address if lanes == FULL else address[mask_of(lanes)]).astype(np.int64)

        return narrow

    def wide(warp, lanes):
        address = warp.values[slot].view(np.int64)
        if lanes != FULL:
            address = address[mask_of(lanes)]
        return address + offset if offset else address

    return wide


def _space_of_param(ins, operand):
    """Parameters of functions, and those that a caller fills, lie in local memory; the kernel's own do not."""
    base = operand.base if isinstance(operand, Address) else None
    if isinstance(base, Variable) and (base in ins.program.local_offset or base in ins.offsets):
        return "local"
    return "param"


# ---- accesses that order others ----------------------------------------------------------------------------------------
def _parts(ins, warp, lanes, space, addresses):
    """[(space, lanes, which of them or None for all, addresses in it)]: a generic address is one of the space it lies in."""
    if space == "multicast":
        part, good, addresses = multicast.resolved(ins, warp, lanes, addresses)
        return [("global", part, None if good.all() else good, addresses)] if part else []
    if space != "generic":
        return [(space, lanes, None, addresses)]
    keys = np.array([memory.window_of(address) for address in addresses.tolist()])
    found = []
    for key in dict.fromkeys(keys.tolist()):
        chosen = keys == key
        if key not in _SPACE_OF_WINDOW:
            address = int(addresses[chosen][0])
            ins.report(warp, lanes, "out-of-bounds", f"an access to generic address {address:#x}, which lies in no memory", address)
            continue
        part = lanes & sum(1 << lane for lane, is_in in zip(_lanes_of(lanes), chosen) if is_in)
        found.append((_SPACE_OF_WINDOW[key], part, None if chosen.all() else chosen, addresses[chosen] - memory.WINDOWS[key][0]))
    return found


_SPACE_OF_WINDOW = {GLOBAL_BASE >> 40: "global", SHARED_BASE >> 40: "shared", LOCAL_BASE >> 40: "local", memory.PARAM_BASE >> 40: "param"}


def _lanes_of(lanes):
    return [lane for lane in range(32) if lanes >> lane & 1]


def _word(warp, space, address):
    return (warp.cta.cluster, address) if space == "shared" else (space, address)


def _sync_word(warp, space, address):
    """The clocks that a word carries which threads synchronise through."""
    words = warp.machine.sync_words
    key = _word(warp, space, address)
    known = words.get(key)
    if known is None or known.shape != warp.clocks.shape:
        known = words[key] = np.zeros_like(warp.clocks)
    return known


def _learn(ins, warp, lanes, space, addresses, order, scope):
    """What a load or an atomic learns of the word: an acquire now, a relaxed one when a fence follows."""
    acquire = order in ("acquire", "acq_rel", "sc")
    learn = clocks.acquire if acquire else clocks.remember
    for address in set(addresses.tolist()):
        learn(warp, _sync_word(warp, space, address))
        released_by, its_scope = warp.machine.released.get(_word(warp, space, address), (None, None))
        if acquire and released_by is not None and released_by is not warp.cta and "cta" in (scope, its_scope):
            ins.report(
                warp, lanes, "scope", f"it acquires at scope .{scope} what another CTA released at scope .{its_scope}: both must include the other thread", address
            )  # fmt: skip


def _publish(warp, lanes, space, addresses, order, scope):
    """What a store or an atomic publishes in the word: a release all that came before, a relaxed one what a fence covered."""
    release = order in ("release", "acq_rel", "sc")
    if release:
        warp.machine.released.update((_word(warp, space, address), (warp.cta, scope)) for address in set(addresses.tolist()))
    known = warp.clocks if release else warp.state.get("fenced")
    if known is not None:
        for address in set(addresses.tolist()):
            word = _sync_word(warp, space, address)
            np.maximum(word, known, out=word)
    if release:
        clocks.released(warp, lanes)


# ---- loads and stores ------------------------------------------------------------------------------------------------
@instruction("ld", "ldu")
def load(ins):
    """Load one value or a vector; narrower types are extended into the register"""
    space = _space(ins)
    order, scope = _ordering(ins, "acquire")
    extra = _cache_hints(ins)
    ins.flag("unified")
    count = int(ins.choice("v2", "v4", "v8", default="v1")[1:])
    type = ins.type()
    ins.expect_operands(2, 2 + extra)
    size = TYPE_BYTES[type]
    total = size * count
    destinations = []
    for item in ins.items(0):
        if item is SINK:
            destinations.append(None)
            continue
        bits = ins.register_bits(item)
        if bits is None or bits < size * 8:
            ins.unsupported(f"{item!r} is too narrow for .{type}")
        destinations.append((ins.write(item, f"b{bits}"), np.dtype(f"u{max(2, bits // 8)}") if bits < 128 else None))
    if len(destinations) != count:
        ins.unsupported("the vector's length and the modifier disagree")
    part_dtype = np.dtype(f"u{min(size, 8)}")
    signed = type[0] == "s"

    def place(warp, lanes, data):
        """data: (n,) or (n, words) -> the destination registers of the n active lanes."""
        values = warp.values
        if size == 16:
            columns = [np.ascontiguousarray(data).reshape(len(data), -1)[:, 2 * i : 2 * i + 2] for i in range(count)]
        elif count == 1:
            columns = [data]
        else:
            parts = np.ascontiguousarray(data).view(part_dtype).reshape(len(data), count)
            columns = [parts[:, index] for index in range(count)]
        for destination, column in zip(destinations, columns):
            if destination is None:
                continue
            slot, dtype = destination
            if dtype is not None and column.dtype != dtype:
                column = column.astype(_INTEGER[size]).astype(dtype) if signed else column.astype(dtype)
            if lanes == FULL:
                values[slot][...] = column
            else:
                values[slot][mask_of(lanes)] = column

    if space == "param":
        space = _space_of_param(ins, ins.operands[1])
    if space == "param":
        base = ins.operands[1].base
        if isinstance(base, Variable):
            start = ins.program.parameter_offset[base] + ins.operands[1].offset
            if start < 0 or start + total > ins.program.parameter_bytes:
                ins.unsupported("it reads past the parameters")

            def run_parameter(warp, lanes):
                known = warp.machine.parameter_values.get(ins)
                if known is None:  # what every lane of every warp of the launch gets
                    data = warp.machine.parameter_views[start : start + total].view(np.dtype(f"u{min(total, 8)}"))
                    data = data[0] if total <= 8 else data
                    place(warp, lanes, np.broadcast_to(data, (lanes.bit_count(), *np.shape(data))))
                    lane = first_lane(lanes)
                    known = warp.machine.parameter_values[ins] = [
                        (destination[0], warp.values[destination[0]][lane].copy())
                        for destination in destinations
                        if destination is not None
                    ]
                for slot, value in known:
                    assign(warp.values[slot], value, lanes)

            return run_parameter
    where = addresses_of(ins, 1)
    read = _READERS[space]
    if order:

        def run_ordered(warp, lanes):
            for target, part, _, addresses in _parts(ins, warp, lanes, space, where(warp, lanes)):
                if target in ("shared", "global"):
                    _learn(ins, warp, part, target, addresses, order, scope)
                unordered = {"ordered": False} if target == "shared" else {}
                place(warp, part, _READERS[target](ins, warp, part, addresses, total, **unordered))

        return run_ordered

    def run(warp, lanes):
        place(warp, lanes, read(ins, warp, lanes, where(warp, lanes), total))

    def run_answer(warp, lanes):
        run(warp, lanes)
        lane_order.read_answer(warp, where(warp, lanes), lanes)

    return run_answer if memory.names_own_cta(ins) and type == "b128" and count == 1 else run


@instruction("st")
def store(ins):
    """Store one value or a vector"""
    space = _space(ins)
    order, scope = _ordering(ins, "release")
    extra = _cache_hints(ins)
    count = int(ins.choice("v2", "v4", "v8", default="v1")[1:])
    type = ins.type()
    ins.expect_operands(2, 2 + extra)
    size = TYPE_BYTES[type]
    total = size * count
    kind = {1: "b8", 2: "b16", 4: "b32", 8: "b64", 16: "b128"}[size]
    slots = ins.read_list(1, kind, wide=True)
    if len(slots) != count:
        ins.unsupported("the vector's length and the modifier disagree")
    byte_passes.read_low_bytes(ins, ins.items(1), size)
    dtype = np.dtype(f"u{min(size, 8)}")

    def gather(warp, lanes):
        values = warp.values
        if count == 1 and size < 16:
            column = values[slots[0]]
            column = column if lanes == FULL else column[mask_of(lanes)]
            return column if column.dtype == dtype else column.astype(dtype)
        if size == 16:
            data = np.concatenate([values[slot] for slot in slots], axis=1)
        else:
            data = np.empty((32, count), dtype)
            for index, slot in enumerate(slots):
                data[:, index] = values[slot]
            data = data.view(np.dtype(f"u{min(total, 8)}"))
            if total <= 8:
                data = data.reshape(32)
        return data if lanes == FULL else data[mask_of(lanes)]

    if space == "param":
        space = _space_of_param(ins, ins.operands[0])
        if space == "param":
            ins.unsupported("a store to the kernel's parameters")
    where = addresses_of(ins, 0)
    write = _WRITERS.get(space) or ins.unsupported(f"a store to .{space}")
    if order:

        def run_ordered(warp, lanes):
            data = gather(warp, lanes)
            for target, part, chosen, addresses in _parts(ins, warp, lanes, space, where(warp, lanes)):
                if target in ("shared", "global"):
                    _publish(warp, part, target, addresses, order, scope)
                unordered = {"ordered": False} if target == "shared" else {}
                if target not in _WRITERS:
                    ins.report(warp, part, "out-of-bounds", f"a store to .{target}", int(addresses[0]))
                    continue
                _WRITERS[target](ins, warp, part, addresses, total, data if chosen is None else data[chosen], **unordered)

        return run_ordered

    def run(warp, lanes):
        write(ins, warp, lanes, where(warp, lanes), total, gather(warp, lanes))

    if space not in ("global", "multicast"):
        ins.forget = _forgetting(ins, space, where, size)
    return run


def _forgetting(ins, space, where, size):
    """({register: which of its bytes are stored}, function). The function is called as (warp, lanes, register, byte) after an undefined byte
    was stored, and returns the lanes that stored it to global memory, where somebody uses it."""
    address = ins.operands[0]
    base = address.base if isinstance(address, Address) else address
    elements = {}
    for element, item in enumerate(ins.items(1)):
        if isinstance(item, Register) and item is not base:
            elements.setdefault(ins.layout.place_of(item)[0], []).append(element)

    def forget(warp, lanes, number, byte):
        left = 0
        for target, part, _, addresses in _parts(ins, warp, lanes, space, where(warp, lanes)):
            for element in elements[number]:
                if target not in ("shared", "local") or not memory.forget(warp, part, target, addresses + element * size + byte):
                    left |= part
        return left

    return dict.fromkeys(elements, size), forget


# ---- atomics ---------------------------------------------------------------------------------------------------------
_ATOMIC_TYPES = {
    "b16": np.uint16, "u16": np.uint16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "b64": np.uint64, "u64": np.uint64, "s64": np.int64, "f32": np.float32,
    "f64": np.float64, "f16": np.uint16, "bf16": np.uint16, "f16x2": np.uint32, "bf16x2": np.uint32, "b128": "V16",
}  # fmt: skip


def combine(name, type):
    """function(old, operand) -> new on numpy scalars of one type."""
    if type in ("f16", "bf16", "f16x2", "bf16x2"):
        format = number_formats.F16 if type.startswith("f16") else number_formats.BF16

        def half(old, operand):
            parts = []
            for shift in (0, 16) if type.endswith("x2") else (0,):
                a, b = (np.array([(int(v) >> shift) & 0xFFFF], np.uint32) for v in (old, operand))
                if name == "add":
                    code = number_formats.half_add(format, a, b)
                else:
                    x, y = (number_formats.decode(format, v) for v in (a, b))
                    code = number_formats.encode(format, np.fmin(x, y) if name == "min" else np.fmax(x, y), "rn")
                parts.append(int(code[0]) << shift)
            return sum(parts)

        return half
    table = {
        "add": lambda old, b: old + b, "exch": lambda old, b: b, "and": lambda old, b: old & b, "or": lambda old, b: old | b, "xor": lambda old, b: old ^ b,
        "min": lambda old, b: min(old, b), "max": lambda old, b: max(old, b),
        "inc": lambda old, b: type_of(old)(0) if old >= b else old + type_of(old)(1),
        "dec": lambda old, b: b if old == 0 or old > b else old - type_of(old)(1),
    }  # fmt: skip
    if type in ("f32", "f64") and name in ("min", "max"):
        return {"min": np.fmin, "max": np.fmax}[name]
    return table[name]


def flushed(function):
    """f32 addition as global memory does it: subnormal operands and results are zero."""

    def flush(value):
        return np.copysign(np.float32(0), value) if abs(value) < _SMALLEST_NORMAL else value

    return lambda old, operand: flush(function(flush(old), flush(operand)))


_SMALLEST_NORMAL = np.float32(2.0**-126)


def type_of(value):
    return value.__class__


_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_ATOMICS = {
    "add": ("u32", "s32", "u64", "f32", "f64", *_HALVES),
    "min": ("u32", "s32", "u64", "s64", *_HALVES), "max": ("u32", "s32", "u64", "s64", *_HALVES), "inc": ("u32",), "dec": ("u32",),
    "and": ("b32", "b64"), "or": ("b32", "b64"), "xor": ("b32", "b64"), "exch": ("b32", "b64", "b128"), "cas": ("b16", "b32", "b64", "b128"),
}  # fmt: skip


def _atomic(ins, returns):
    space = _space(ins)
    order = ins.choice("relaxed", "acquire", "release", "acq_rel", default="relaxed")
    scope = ins.choice("cta", "cluster", "gpu", "sys", default="gpu")
    extra = _cache_hints(ins)
    name = ins.choice("add", "exch", "cas", "and", "or", "xor", "min", "max", "inc", "dec")
    count = int(ins.choice("v2", "v4", "v8", default="v1")[1:])
    type = ins.type()
    if type in _HALVES:
        ins.flag("noftz")
    if type not in _ATOMICS[name]:
        ins.unsupported(f".{name} on .{type}")
    dtype = np.dtype(_ATOMIC_TYPES[type])
    kind = f"b{dtype.itemsize * 8}"
    slot_kind = type if type in ("s32", "u32", "s64", "u64", "f32", "f64", "b32", "b64") else kind
    first = 1 if returns else 0
    where = addresses_of(ins, first)
    operands = ins.read_list(first + 1, slot_kind)
    compare = name == "cas"
    swap = ins.read(first + 2, slot_kind) if compare else None
    ins.expect_operands(first + 2 + compare, first + 2 + compare + extra)
    destinations = ins.write_list(0, slot_kind) if returns else [None] * count
    if len(operands) != count:
        ins.unsupported("the vector's length and the modifier disagree")
    in_shared = None if compare else combine(name, type)
    in_global = flushed(in_shared) if (name, type) == ("add", "f32") else in_shared
    size = dtype.itemsize

    def run(warp, lanes):
        for target, part, _, addresses in _parts(ins, warp, lanes, space, where(warp, lanes)):
            if target in ("shared", "global"):
                _learn(ins, warp, part, target, addresses, order, scope)
                _publish(warp, part, target, addresses, order, scope)
                combine_lanes(warp, part, target, addresses)
            else:
                ins.report(warp, part, "out-of-bounds", f"an atomic on .{target} memory", int(addresses[0]))

    def combine_lanes(warp, lanes, target, addresses):
        read, write = (_READERS[target], _WRITERS[target])
        function = in_global if target == "global" else in_shared
        values = warp.values
        numbers = _lanes_of(lanes)
        for part in range(count):
            at = addresses + part * size
            unordered = {"ordered": False} if target == "shared" else {}
            before = read(ins, warp, lanes, at, size, **unordered).view(dtype).reshape(len(at))
            result = before.copy()
            current = {}
            for index, lane in enumerate(numbers):
                place = int(at[index])
                old = current.get(place)
                if old is None:
                    old = before[index]
                result[index] = old
                operand = each(values[operands[part]])[lane]
                if compare:
                    new = each(values[swap])[lane] if old == operand else old
                else:
                    new = function(old, operand)
                current[place] = new if size == 16 else dtype.type(new)
            final = np.array([current[int(a)] for a in at], dtype).view(np.dtype(f"u{min(size, 8)}"))
            write(ins, warp, lanes, at, size, final.reshape(-1, 2) if size == 16 else final, **unordered)
            if destinations[part] is not None:
                each(values[destinations[part]])[mask_of(lanes)] = result

    def each(register):
        """One value a lane; a 128-bit register is two numbers."""
        return register.view(dtype).reshape(32) if size == 16 else register

    return run


@instruction("atom")
def atomic(ins):
    """Read-modify-write, lanes one after the other in order of lane; d is the value before"""
    return _atomic(ins, True)


@instruction("red")
def reduction(ins):
    """An atomic without a result"""
    return _atomic(ins, False)


@instruction("st.async", "red.async")
def store_async(ins):
    """A store (or reduction) to another CTA's shared memory that signals its mbarrier with the bytes written"""
    ins.flag("relaxed"), ins.flag("cluster"), ins.flag("weak")
    ins.choice("shared::cluster", default="shared::cluster")
    ins.flag("mbarrier::complete_tx::bytes") or ins.unsupported("it needs .mbarrier::complete_tx::bytes")
    name = ins.choice("add", "min", "max", "inc", "dec", "and", "or", "xor") if ins.opcode.startswith("red") else None
    count = int(ins.choice("v2", "v4", default="v1")[1:])
    type = ins.type()
    size = TYPE_BYTES[type]
    dtype = np.dtype(_ATOMIC_TYPES[type])
    where, barrier = ins.address(0), ins.address(2)
    slots = ins.read_list(1, type)
    function = combine(name, type) if name else None

    def run(warp, lanes):
        machine = warp.machine
        addresses, barriers = where(warp), barrier(warp)
        snapshot = warp.clocks.copy()
        for lane in range(32):
            if not lanes >> lane & 1:
                continue
            try:
                cta, offset = machine.target(int(addresses[lane]), warp)
            except EmulatorError as error:
                ins.report(warp, 1 << lane, "out-of-bounds", str(error), int(addresses[lane]))
                continue
            if offset % (size * count):
                ins.report(warp, 1 << lane, "misaligned", f"an access of {size * count} bytes at shared offset {offset:#x}", offset)
                continue
            extent = (offset, offset + size * count)
            memory.check_started(ins, warp, 1 << lane, cta)
            if not cta.shared.check_async_write(ins, warp, 1 << lane, extent):
                continue
            data = [warp.values[slot][lane] for slot in slots]

            signal = int(barriers[lane])

            def execute(cta=cta, offset=offset, data=data, lane=lane, extent=extent, signal=signal):
                place = cta.shared.views[size][offset // size : offset // size + count].view(dtype)
                for index, value in enumerate(data):
                    place[index] = function(place[index], value) if function else value
                cta.shared.mark_async_write(ins, extent)
                machine.mbarriers.complete_tx(ins, warp, 1 << lane, signal, size * count, clocks=snapshot)

            if not function:
                # Poison. The bytes are not locked: locks are by 16-byte granule, and neighbours may send to the same one.
                cta.shared.valid[slice(*extent)] = 0
            machine.asynchronous.issue(Operation(ins, warp, 1 << lane, execute, signals=[signal]))

    return run


@instruction("st.bulk")
def store_zeros(ins):
    """Zeros over a range of shared memory"""
    ins.flag("weak")
    space = ins.choice("shared::cta", default="generic")
    ins.expect_operands(3)
    if getattr(ins.operands[2], "value", None) != 0:
        ins.unsupported("the value must be the immediate 0")
    where, count = addresses_of(ins, 0), ins.read(1, f"u{ins.register_bits(1) or 32}")

    def run(warp, lanes):
        for lane, address in zip(_lanes_of(lanes), where(warp, lanes).tolist()):
            only, size = 1 << lane, int(warp.values[count][lane])
            start = address - (SHARED_BASE if space == "generic" else 0)
            if start % 8 or size % 8:
                ins.report(
                    warp, only, "misaligned", f"a range of {size} bytes at shared offset {start:#x}: both must be multiples of 8", start
                )
            elif size and warp.cta.shared.check_write(ins, warp, only, (start, start + size)):
                warp.cta.shared.bytes[start : start + size] = 0

    return run


# ---- addresses -------------------------------------------------------------------------------------------------------
_WINDOW = {"shared": SHARED_BASE, "local": LOCAL_BASE, "global": 0, "const": 0, "param": 0}


@instruction("cvta")
def convert_address(ins):
    """Between a state space's addresses and generic ones"""
    to = ins.flag("to")
    space = _space(ins)
    type = ins.type()
    base = np.uint64(_WINDOW[space])
    a, d = ins.read(1, type), ins.write(0, type)
    if type != "u64":
        ins.unsupported("32-bit generic addresses")

    def run(warp, lanes):
        address = warp.values[a]
        if base:
            address = address - base if to else address + base
        assign(warp.values[d], address, lanes)

    return run


@instruction("isspacep")
def is_space(ins):
    """p = the generic address lies in the state space"""
    space = _space(ins)
    p, a = ins.write(0, "pred"), ins.read(1, "u64")
    keys = {
        "shared": SHARED_BASE >> 40,
        "local": LOCAL_BASE >> 40,
        "global": GLOBAL_BASE >> 40,
        "const": -1,
        "param": memory.PARAM_BASE >> 40,
    }

    def run(warp, lanes):
        assign(warp.values[p], np.array([memory.window_of(v) == keys[space] for v in warp.values[a].tolist()]), lanes)

    return run


@instruction("mapa")
def map_address(ins):
    """The same place in the shared memory of another CTA of the cluster. A rank outside the cluster gives an address whose use is a finding."""
    shared = ins.flag("shared::cluster")
    type = ins.type()
    d, rank = ins.write(0, type), ins.read(2, "u32")
    a = ins.read(1, type)
    shift, low = (24, 0xFFFFFF)
    base = 0 if shared else SHARED_BASE

    def run(warp, lanes):
        dtype = warp.values[a].dtype.type
        address = warp.values[a] - dtype(base)
        moved = (address & dtype(low)) | (np.minimum(warp.values[rank], 255).astype(dtype) << dtype(shift))
        assign(warp.values[d], moved + dtype(base), lanes)

    return run


@instruction("getctarank")
def cta_rank(ins):
    """The rank of the CTA that owns a shared address"""
    shared = ins.flag("shared::cluster")
    type = ins.type()
    d, a = ins.write(0, "u32"), ins.read(1, type)

    def run(warp, lanes):
        address = warp.values[a].astype(np.uint64) - np.uint64(0 if shared else SHARED_BASE)
        assign(warp.values[d], (address >> np.uint64(24)).astype(np.uint32), lanes)

    return run


# ---- cp.async --------------------------------------------------------------------------------------------------------
@instruction("cp.async")
def copy_async(ins):
    """Copy 4, 8 or 16 bytes per lane from global to shared memory; bytes past src-size become zero"""
    ins.choice("ca", "cg"), ins.choice("shared", "shared::cta")
    ins.flag("global") or ins.unsupported("the source must be .global")
    extra = _cache_hints(ins)
    to, source = addresses_of(ins, 0), addresses_of(ins, 1)
    size = ins.operands[2].value
    if size not in (4, 8, 16):
        ins.unsupported("the size must be 4, 8 or 16")
    given = ins.operands[3] if ins.has_operand(3) else None
    length, ignored = None, None
    if given is not None and not (extra and len(ins.operands) == 4):
        if isinstance(given, Register) and given.type == "pred":
            ignored = ins.read(3, "pred")  # where it is true, zeros are written
        else:
            length = ins.read(3, "u32")
    if isinstance(given, Immediate) and given.value == size:
        length = None

    def run(warp, lanes):
        destinations, sources = to(warp, lanes), source(warp, lanes).copy()  # registers may change before execute()
        memory.check_dependency(ins, warp, lanes, sources)
        counts = memory.select(warp.values[length], lanes).astype(np.int64) if length is not None else None
        if ignored is not None:
            counts = np.where(memory.select(warp.values[ignored], lanes), 0, size)
        if counts is not None and (counts == size).all():
            counts = None
        offsets = destinations - (warp.cta.rank << 24)
        shared = warp.cta.shared
        if not shared.in_bounds(ins, warp, lanes, int(offsets.min()), int(offsets.max()) + size, "cp.async writes"):
            return
        if (offsets % size).any():
            ins.report(warp, lanes, "misaligned", f"cp.async of {size} bytes to shared offset {int(offsets[offsets % size != 0][0]):#x}")
            return
        shared.before_write(ins, warp, lanes, offsets, size)
        warp.loose.pop()  # whoever waits for the copies learns of each lane's
        settle = shared.unsettled_write(warp, offsets, size)
        # Locks are by 16-byte granule, which smaller pieces share with other warps: those are only poisoned.
        writes = [(warp.cta, offsets)] if size == 16 else []
        places = offsets // size
        shared.valids[size][places] = 0

        def execute():
            if counts is None:
                data = memory.read_global(ins, warp, lanes, sources, size)
            else:
                data = np.zeros((len(offsets), size), np.uint8)
                for count in np.unique(counts).tolist():
                    chosen = counts == count
                    if count == size:
                        data[chosen] = memory.read_global(ins, warp, FULL, sources[chosen], size).view(np.uint8).reshape(-1, size)
                    elif count:
                        rows = sources[chosen][:, None] + np.arange(count)
                        flat = memory.read_global(ins, warp, FULL, rows.reshape(-1), 1)
                        data[chosen, :count] = flat.reshape(rows.shape)
                data = data.view(np.dtype(f"u{min(size, 8)}"))
                data = data if size > 8 else data[:, 0]
            shared.views[size][places] = data
            shared.valids[size][places] = memory.WORD_VALID[min(size, 8)]

        operation = Operation(ins, warp, lanes, execute, queue=("cp.async", warp), writes=writes, settle=settle)
        warp.state.setdefault("cp.async unsettled", []).append(operation)
        warp.machine.asynchronous.issue(operation)

    return run


@instruction("cp.async.commit_group")
def copy_commit(ins):
    """Close the warp's group of cp.async copies"""
    return lambda warp, lanes: warp.machine.asynchronous.close_group(("cp.async", warp))


@instruction("cp.async.wait_group")
def copy_wait(ins):
    """Wait for all but the n youngest groups"""
    keep = ins.operands[0].value

    def run(warp, lanes):
        warp.machine.asynchronous.wait_queue(("cp.async", warp), keep)

    return run


@instruction("cp.async.wait_all")
def copy_wait_all(ins):
    """Wait for every cp.async of the warp"""

    def run(warp, lanes):
        engine = warp.machine.asynchronous
        engine.close_group(("cp.async", warp))
        engine.wait_queue(("cp.async", warp))

    return run


@instruction("cp.async.mbarrier.arrive")
def copy_arrive(ins):
    """An arrive on an mbarrier when the thread's earlier cp.async copies are done; without .noinc the barrier expects it additionally"""
    increment = not ins.flag("noinc")
    ins.choice("shared", "shared::cta", default=None)
    if ins.type() != "b64":
        ins.unsupported("an mbarrier is .b64")
    where = ins.address(0)

    def run(warp, lanes):
        machine = warp.machine
        for lane in range(32):
            if not lanes >> lane & 1:
                continue
            address = int(where(warp)[lane]) & 0xFFFFFFFF
            barrier = machine.mbarriers.find(ins, warp, 1 << lane, address, "cp.async.mbarrier.arrive")
            if barrier is None:
                continue
            if increment:
                barrier.pending += 1

            copies, warp.state["cp.async unsettled"] = warp.state.get("cp.async unsettled", []), []

            snapshot = warp.clocks.copy()

            def execute(address=address, lane=lane, snapshot=snapshot, copies=copies):
                for operation in copies:
                    operation.settle(int(snapshot[0, warp.number]))
                machine.mbarriers.arrive(ins, warp, 1 << lane, address, 1, clocks=snapshot)

            machine.asynchronous.issue(Operation(ins, warp, 1 << lane, execute, queue=("cp.async", warp), signals=[address]))

    return run

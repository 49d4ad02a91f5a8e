"""tcgen05 around the mma (which is in tcgen05_mma.py): allocation, fences, waits and commits, and what moves tensor memory.

mma, cp and commit are issued by one thread and executed in order of issue by the tensor core of the CTA (or of the CTA pair, with
cta_group::2). ld and st move between the tensor memory of the CTA and the registers of one warp.
"""

import functools

import numpy as np

from .. import clocks, descriptors, lane_order, pending_registers
from ..asynchronous import Operation
from ..errors import EmulatorError
from ..lanes import first_lane
from ..memory import SHARED_BASE, check_own_cta, check_started
from ..tensor_memory import ADDRESS_MASK, ALL_LANES, COLUMNS, LANES_OF_A_PART, Access
from . import Blocked, instruction, put_rows, uniform
from .arithmetic import maximum_f32
from .ldmatrix import decompress_4, decompress_6
from .wgmma import read_chunks


def cta_group(ins):
    group = int(ins.choice("cta_group::1", "cta_group::2")[-1])
    known = getattr(ins.program, "tcgen05_cta_group", None)
    if known is None:
        known = ins.program.tcgen05_cta_group = (group, ins.line)
    if known[0] != group:
        ins.unsupported(f"one kernel must use one cta_group value; PTX line {known[1]} has cta_group::{known[0]}")
    return group


def lane_and_column(address):
    address &= ADDRESS_MASK
    return address >> 16, address & 0x1FF


def core_of(warp, group):
    """Queue of the tensor core that executes this warp's instructions."""
    if group == 1:
        return ("tcgen05", warp.cta)
    return ("tcgen05", warp.cta.cluster, warp.cta.rank >> 1)


def ctas_of(ins, warp, lanes, group):
    """The CTAs an instruction works on, even rank first; None after a report."""
    if group == 1:
        return [warp.cta]
    pair = warp.cta.pair
    if pair is None:
        ins.report(warp, lanes, "tensor-memory-misuse", "cta_group::2 in a cluster without a peer CTA")
        return None
    if pair.exited:
        ins.report(warp, lanes, "exited-cta", f"the peer CTA (rank {pair.rank}) has exited")
    return sorted((warp.cta, pair), key=lambda cta: cta.rank)


def need_one_lane(ins, warp, lanes):
    if lanes & (lanes - 1):
        ins.report(warp, lanes, "divergent-operand", "this instruction is issued by one thread; every lane here would issue it once")


def uncommitted(warp):
    """Accesses of this warp's tensor-core work that no commit has followed yet."""
    return warp.state.setdefault("tcgen05 uncommitted", [])


# ---------------------------------------------------------------------------------------------
# allocation


@instruction("tcgen05.alloc")
def alloc(ins):
    group = cta_group(ins)
    ins.flag("sync"), ins.flag("aligned")
    generic = ins.choice("shared::cta", default=None) is None
    ins.choice("b32")
    address = ins.address(0)
    count_slot = ins.read(1, "u32")

    def run(warp, lanes):
        memory = warp.cta.tensor_memory
        request = memory.requests.get(warp)
        if request is None:
            count = uniform(ins, warp, count_slot, lanes)
            if not 32 <= count <= 512 or count & (count - 1):
                ins.report(warp, lanes, "tensor-memory-misuse", f"{count} columns: the number must be a power of 2 from 32 to 512")
                return None
            if memory.relinquished:
                ins.report(warp, lanes, "tensor-memory-misuse", "alloc after this CTA executed tcgen05.relinquish_alloc_permit")
            if memory.last_size is not None and count > memory.last_size:
                ins.report(
                    warp, lanes, "tensor-memory-misuse", f"{count} columns after an allocation of {memory.last_size}: sizes must not grow"
                )
            if group == 2 and warp.cta.pair is not None:
                check_started(ins, warp, lanes, warp.cta.pair)
            request = memory.requests[warp] = {"count": count, "first": None}
            warp.machine.progress += 1
        if request["first"] is None:
            _grant(ins, warp, lanes, group, memory, request)
        if request["first"] is None:
            return Blocked(
                lambda: request["first"] is not None or _can_grant(warp, group, memory, request),
                lambda: (
                    f"tcgen05.alloc of {request['count']} columns waits for free columns" + (" or for the peer CTA" if group == 2 else "")
                ),
            )
        del memory.requests[warp]
        shared_address = int(address(warp)[first_lane(lanes)]) - (SHARED_BASE if generic else 0)
        check_own_cta(ins, warp, lanes, shared_address)
        offset = shared_address & 0xFFFFFF
        shared = warp.cta.shared
        if offset & 3:
            ins.report(warp, lanes, "misaligned", f"the result address {offset:#x} is not 4-byte aligned", offset)
        elif shared.in_bounds(ins, warp, lanes, offset, offset + 4, "tcgen05.alloc writes"):
            shared.before_write(ins, warp, lanes, np.array([offset]), 4)
            lane_order.together(warp)
            shared.bytes[offset : offset + 4].view(np.uint32)[0] = request["first"]
        return None

    return run


def _peer_request(warp, memory):
    """The peer CTA's waiting request, if any."""
    pair = warp.cta.pair
    if pair is None:
        return None, None
    waiting = [r for r in pair.tensor_memory.requests.values() if r["first"] is None]
    return pair.tensor_memory, waiting[0] if waiting else None


def _can_grant(warp, group, memory, request):
    if group == 1:
        return memory.find_space(request["count"]) is not None
    other, partner = _peer_request(warp, memory)
    return partner is not None and _common_space(memory, other, request["count"]) is not None


def _common_space(memory, other, count):
    for first in range(0, COLUMNS, count):
        part = slice(first, first + count)
        if not memory.allocated[part].any() and not other.allocated[part].any():
            return first
    return None


def _grant(ins, warp, lanes, group, memory, request):
    if not _can_grant(warp, group, memory, request):
        return
    count = request["count"]
    if group == 1:
        first = memory.find_space(count)
    else:
        other, partner = _peer_request(warp, memory)
        if partner["count"] != count:
            ins.report(warp, lanes, "tensor-memory-misuse", f"the two CTAs of the pair ask for {count} and {partner['count']} columns")
        first = _common_space(memory, other, count)
        other.allocate(first, count)
        partner["first"] = first
    memory.allocate(first, count)
    request["first"] = first
    warp.machine.progress += 1


@instruction("tcgen05.dealloc")
def dealloc(ins):
    cta_group(ins)
    ins.flag("sync"), ins.flag("aligned")
    ins.choice("b32")
    address_slot, count_slot = ins.read(0, "u32"), ins.read(1, "u32")

    def run(warp, lanes):
        memory = warp.cta.tensor_memory
        _lane, first = lane_and_column(uniform(ins, warp, address_slot, lanes))
        count = uniform(ins, warp, count_slot, lanes)
        if memory.allocations.get(first) != count:
            have = ", ".join(f"{n} from column {c}" for c, n in memory.allocations.items()) or "nothing"
            ins.report(
                warp, lanes, "tensor-memory-misuse", f"{count} columns from column {first} are freed, but allocated is: {have}", first
            )
            return
        memory.check_free(ins, warp, lanes, first, count)
        memory.free(first)
        warp.machine.progress += 1

    return run


@instruction("tcgen05.relinquish_alloc_permit")
def relinquish(ins):
    cta_group(ins)
    ins.flag("sync"), ins.flag("aligned")

    def run(warp, lanes):
        warp.cta.tensor_memory.relinquished = True

    return run


# ---------------------------------------------------------------------------------------------
# fences, waits, commit


@instruction("tcgen05.fence::before_thread_sync")
def fence_before(ins):
    def run(warp, lanes):
        # An ld or st is in this list only once it has been waited for.
        warp.clocks[3, warp.number] = now = warp.clocks[0, warp.number]
        for access in warp.state.get("tcgen05 unfenced", ()):
            access.fenced = int(now)
        warp.state["tcgen05 unfenced"] = []

    return run


@instruction("tcgen05.fence::after_thread_sync")
def fence_after(ins):
    def run(warp, lanes):
        warp.state["tcgen05 after"] = warp.clocks.copy()

    return run


def _wait(name):
    def decode(ins):
        ins.flag("sync"), ins.flag("aligned")

        def run(warp, lanes):
            pending = warp.state.get(f"tcgen05 {name}")
            if pending:
                engine, key = warp.machine.asynchronous, (f"tcgen05.{name}", warp)
                engine.close_group(key)
                engine.wait_queue(key)
                for access in list(pending):
                    _waited_for(warp, access, pending)

        return run

    return decode


def _waited_for(warp, access, pending):
    """`warp` knows that its own ld or st is complete."""
    if access in pending:
        pending.remove(access)
        warp.clocks[3, warp.number] = now = warp.clocks[0, warp.number]
        access.waited = int(now)
        warp.state.setdefault("tcgen05 unfenced", []).append(access)


instruction("tcgen05.wait::ld")(_wait("ld"))
instruction("tcgen05.wait::st")(_wait("st"))


@instruction("tcgen05.commit")
def commit(ins):
    group = cta_group(ins)
    ins.choice("mbarrier::arrive::one")
    generic = ins.choice("shared::cluster", default=None) is None
    multicast = ins.flag("multicast::cluster")
    ins.choice("b64")
    address = ins.address(0)
    ins.expect_operands(2 if multicast else 1)
    mask_slot = ins.read(1, "u16") if multicast else None

    def run(warp, lanes):
        need_one_lane(ins, warp, lanes)
        lane = first_lane(lanes)
        target = (int(address(warp)[lane]) - (SHARED_BASE if generic else 0)) & 0xFFFFFFFF
        if multicast:
            mask = int(warp.values[mask_slot][lane])
            if mask >> len(warp.cta.cluster.ctas):
                ins.report(
                    warp,
                    lanes,
                    "mbarrier-misuse",
                    f"the CTA mask {mask:#x} names ranks outside the cluster of {len(warp.cta.cluster.ctas)}",
                )
            ranks = [rank for rank in range(len(warp.cta.cluster.ctas)) if mask >> rank & 1]
            targets = [(rank << 24) | (target & 0xFFFFFF) for rank in ranks]
        else:
            targets = [target]
        number = warp.state["tcgen05 commits"] = warp.state.get("tcgen05 commits", 0) + 1
        waiting = uncommitted(warp)
        own = [access for access in waiting if access.lane == lane]
        if waiting and not own:
            ins.report(
                warp, lanes, "missing-wait", f"lane {lane} commits, but it was lane {waiting[-1].lane} that issued {waiting[-1]}: a commit follows "
                "the operations of its own thread only",
            )  # fmt: skip
        for access in own:
            access.commit, access.waited = number, int(warp.clocks[0, warp.number])
            waiting.remove(access)
        snapshot = clocks.snapshot(warp, lanes)
        snapshot[4, warp.number] = number

        def execute():
            for one in targets:
                warp.machine.mbarriers.arrive(ins, warp, lanes, one, 1, clocks=snapshot)

        warp.machine.asynchronous.issue(Operation(ins, warp, lanes, execute, queue=core_of(warp, group), signals=targets))

    return run


# ---------------------------------------------------------------------------------------------
# ld and st


@functools.cache
def _cells(shape, count, split, packed):
    """(lane offsets, column offsets), each (registers, 32) - or (registers, 2, 32) when two 16-bit columns make a register - and the
    spans of columns (first, count)."""
    lane = np.arange(32)[None, :]
    per = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}[shape]
    j = np.arange(count * per)[:, None]
    if shape == "32x32b":
        rows, columns = lane + 0 * j, j + 0 * lane
    elif shape == "16x64b":
        rows, columns = lane // 4 + 8 * (lane % 2) + 0 * j, 2 * j + lane // 2 % 2
    elif shape == "16x128b":
        rows, columns = lane // 4 + 8 * (j % 2), 4 * (j // 2) + lane % 4
    elif shape == "16x256b":
        rows, columns = lane // 4 + 8 * (j // 2 % 2), 8 * (j // 4) + 2 * (lane % 4) + j % 2
    else:
        rows, columns = lane % 16 + 0 * j, j + 0 * lane
    if packed:  # every 32-bit column of the shape is the low halves of two
        rows, columns = np.stack([rows, rows], axis=1), np.stack([2 * columns, 2 * columns + 1], axis=1)
    spans = [(0, int(columns.max()) + 1)]
    if split:
        columns, spans = columns + split * (lane // 16), [*spans, (split, spans[0][1])]
    return rows, columns, spans


def _reduction(ins):
    """The function of (registers, 32) loaded words that .red adds: a minimum or maximum of each lane's."""
    name, type = ins.choice("min", "max"), ins.choice("f32", "u32", "s32")
    absolute, propagate = ins.flag("abs"), ins.flag("NaN")
    if type != "f32" and (absolute or propagate):
        ins.unsupported(".abs and .NaN are for .f32")

    def reduce(words):
        if type != "f32":
            numbers = words.view(np.int32 if type == "s32" else np.uint32)
            return (numbers.min(axis=0) if name == "min" else numbers.max(axis=0)).view(np.uint32)
        values = words.view(np.float32)
        values = np.abs(values) if absolute else values
        return functools.reduce(lambda x, y: maximum_f32(x, y, propagate, name == "min"), values).view(np.uint32)

    return reduce


def _move(ins, loading, reduced=False):
    """Decodes what ld, ld.red and st share: (rows of registers, slot of the address, cells, packed)."""
    if not (ins.flag("sync") and ins.flag("aligned")):
        ins.unsupported("it needs .sync.aligned")
    shape = ins.choice("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
    count = int(ins.pattern(r"x(\d+)").group(1))
    packed = ins.flag("pack::16b" if loading else "unpack::16b")
    if reduced and (packed or shape not in ("32x32b", "16x32bx2")):
        ins.unsupported(".red is for .32x32b and .16x32bx2 without packing")
    if not reduced:
        ins.choice("b32")
    halves = shape == "16x32bx2"
    ins.expect_operands(2 + halves + reduced)
    limit = {"16x128b": 64, "16x256b": 32}.get(shape, 128)
    if count not in (1, 2, 4, 8, 16, 32, 64, 128) or count > limit:
        ins.unsupported(f".{shape}.x{count} does not exist")
    if loading:
        registers, address = ins.rows(0, destination=True), ins.address(1 + reduced)
        split_operand = 2 + reduced
    else:
        registers, address = ins.rows(2 if halves else 1), ins.address(0)
        split_operand = 1
    split = 0
    if halves:
        split = getattr(ins.operands[split_operand], "value", None)
        if split is None:
            ins.unsupported("immHalfSplitoff must be an immediate")
    cells = _cells(shape, count, split, packed)
    if len(registers) != len(cells[0]):
        ins.unsupported(f".{shape}.x{count} needs {len(cells[0])} registers, not {len(registers)}")
    return registers, address, cells, packed


def _place(ins, warp, lanes, address, cells):
    """Absolute (rows, columns) of the cells, and their spans of columns (first, count); None after a report."""
    if lanes != 0xFFFFFFFF:
        ins.report(warp, lanes, "divergent-aligned", "all 32 lanes must take part: the result is undefined")
    addresses = address(warp)
    if (addresses != addresses[0]).any():
        ins.report(warp, lanes, "divergent-operand", "the lanes give different tensor-memory addresses")
    lane, column = lane_and_column(int(addresses[first_lane(lanes)]))
    quarter = warp.index % 4
    if lane // 32 not in (0, quarter):
        ins.report(
            warp,
            lanes,
            "tensor-memory-misuse",
            f"warp {warp.index} reaches lanes {32 * quarter}..{32 * quarter + 31} only, not lane {lane}",
            column,
        )
    rows, columns = cells[0] + (32 * quarter + lane % 32), cells[1] + column
    if int(rows.max()) >= 32 * quarter + 32:
        ins.report(warp, lanes, "tensor-memory-misuse", f"the lanes from {lane % 32} do not fit into the warp's quarter", column)
        return None
    return rows, columns, [(column + first, count) for first, count in cells[2]]


def _used_cells(ins, warp, lanes, place, reads):
    """The rows and columns of a load or a store, and the access that is recorded; None where a finding says why there is none."""
    if place is None:
        return None
    rows, columns, spans = place
    memory = warp.cta.tensor_memory
    if not all(memory.in_bounds(ins, warp, lanes, first, count, "it reads" if reads else "it writes") for first, count in spans):
        return None
    access = Access(ins, warp, lanes, "ld" if reads else "st")
    parts = slice(int(rows.min()) // LANES_OF_A_PART, int(rows.max()) // LANES_OF_A_PART + 1)
    for first, count in spans:
        memory.check_use(ins, warp, lanes, access, parts, first, count, reads=reads, writes=not reads)
    return rows, columns, access


@instruction("tcgen05.ld", "tcgen05.ld.red")
def load(ins):
    """Cells into registers; .red: one register more has the minimum or maximum of those"""
    reduced = ins.opcode.startswith("tcgen05.ld.red.")
    registers, address, cells, packed = _move(ins, True, reduced)
    reduce = _reduction(ins) if reduced else None
    if reduced:
        registers = np.concatenate([registers, ins.rows(1, destination=True)])

    def run(warp, lanes):
        used = _used_cells(ins, warp, lanes, _place(ins, warp, lanes, address, cells), reads=True)
        if used is None:
            return
        rows, columns, access = used
        memory = warp.cta.tensor_memory

        def execute():
            makers = memory.garbage[rows, columns]
            valid = memory.valid[rows, columns] & (makers == 0)
            if not valid.all():  # with M = 64 half of the lanes hold nothing: no harm until somebody uses them
                known = valid.all(axis=1) if packed else np.vstack([valid, valid.all(axis=0)]) if reduced else valid
                pending_registers.undefined(ins, warp, registers, ~known, int(makers.max()))
            values = memory.cells[rows, columns]
            if reduced:
                values = np.vstack([values, reduce(values)])
            if packed:
                values = (values[:, 0] & 0xFFFF) | values[:, 1] << 16
            put_rows(warp, registers, values, lanes)

        pending = warp.state.setdefault("tcgen05 ld", [])
        pending.append(access)
        operation = Operation(
            ins, warp, lanes, execute, queue=("tcgen05.ld", warp), registers=[registers],
            settle=lambda tick: _waited_for(warp, access, pending),
        )  # fmt: skip
        warp.machine.asynchronous.issue(operation)

    return run


@instruction("tcgen05.st")
def store(ins):
    registers, address, cells, packed = _move(ins, False)
    numbers = [ins.layout.register_of_row[int(row)] for row in registers]

    def run(warp, lanes):
        used = _used_cells(ins, warp, lanes, _place(ins, warp, lanes, address, cells), reads=False)
        if used is None:
            return
        rows, columns, access = used
        memory = warp.cta.tensor_memory
        missing = pending_registers.missing_of(warp, numbers) if warp.undefined_registers else None

        def execute():
            values = warp.words[registers]
            garbage = 0 if missing is None else np.where(missing, ins.pc + 1, 0)
            if packed:
                values = np.stack([values & 0xFFFF, values >> 16], axis=1)
                garbage = garbage if missing is None else garbage[:, None]
            memory.put(rows, columns, values, True, garbage)

        operation = Operation(ins, warp, lanes, execute, queue=("tcgen05.st", warp), register_sources=[registers])
        warp.state.setdefault("tcgen05 st", []).append(access)
        warp.machine.asynchronous.issue(operation)

    return run


# ---------------------------------------------------------------------------------------------
# cp

# shape and multicast -> (rows of the source, 16-byte chunks per row, [(source rows, first lane)...])
_COPIES = {
    ("128x256b", None): (128, 2, [(slice(0, 128), 0)]),
    ("128x128b", None): (128, 1, [(slice(0, 128), 0)]),
    ("64x128b", "warpx2::02_13"): (64, 1, [(slice(0, 64), 0), (slice(0, 64), 64)]),
    ("64x128b", "warpx2::01_23"): (64, 1, [(slice(0, 32), 0), (slice(0, 32), 32), (slice(32, 64), 64), (slice(32, 64), 96)]),
    ("32x128b", "warpx4"): (32, 1, [(slice(0, 32), 32 * q) for q in range(4)]),
}


@instruction("tcgen05.cp")
def copy(ins):
    group = cta_group(ins)
    shape = ins.choice("128x256b", "4x256b", "128x128b", "64x128b", "32x128b")
    multicast = ins.choice("warpx2::02_13", "warpx2::01_23", "warpx4", default=None)
    types = ins.types()
    if types not in ([], ["b8x16", "b4x16_p64"], ["b8x16", "b6x16_p32"]):
        ins.unsupported(f"the formats {types} are not covered")
    expand = {"b4x16_p64": decompress_4, "b6x16_p32": decompress_6}.get(types[-1] if types else None)
    source_bytes = {"b4x16_p64": 8, "b6x16_p32": 12}.get(types[-1] if types else None, 16)
    if shape == "4x256b":
        if multicast:
            ins.unsupported(".4x256b takes no multicast")
        rows, chunks_per_row, parts = 4, 2, [(slice(i, i + 1), 32 * i) for i in range(4)]
    elif (shape, multicast) in _COPIES:
        rows, chunks_per_row, parts = _COPIES[shape, multicast]
    else:
        ins.unsupported(f".{shape} does not go with .{multicast}")
    address = ins.address(0)
    source_slot = ins.read(1, "u64")
    words = np.arange(0, source_bytes, 4)

    def run(warp, lanes):
        need_one_lane(ins, warp, lanes)
        lane = first_lane(lanes)
        start_lane, column = lane_and_column(int(address(warp)[lane]))
        bits = int(warp.values[source_slot][lane])
        descriptor = descriptors.decode_tcgen05(bits)
        for problem in descriptor.problems:
            ins.report(warp, lanes, "invalid-descriptor", f"descriptor {bits:#018x}: {problem}")
        if start_lane and shape != "4x256b":
            ins.report(
                warp, lanes, "tensor-memory-misuse", f"the destination starts at lane {start_lane}; .{shape} covers all lanes from 0"
            )
            return
        if start_lane >= 32:
            ins.report(warp, lanes, "tensor-memory-misuse", f"the destination lane {start_lane} leaves no room for rows 32 lanes apart")
            return
        ctas = ctas_of(ins, warp, lanes, group)
        if ctas is None:
            return
        chunks = descriptor.k_major_chunks(rows, 16 * chunks_per_row)
        count = 4 * chunks_per_row
        access = Access(ins, warp, lanes, "cp")
        for cta in ctas:
            if not cta.shared.check_async_read(ins, warp, lanes, (chunks[..., None] + words).reshape(-1)):
                return
            if not cta.tensor_memory.in_bounds(ins, warp, lanes, column, count, "it writes"):
                return
            cta.tensor_memory.check_use(ins, warp, lanes, access, ALL_LANES, column, count, reads=False, writes=True)

        def execute():
            for cta in ctas:
                data = read_chunks(cta.shared, chunks).reshape(-1, 16)
                if expand is not None:
                    data = expand(data)
                image = np.ascontiguousarray(data).view(np.uint32).reshape(rows, count)
                memory = cta.tensor_memory
                for part, first in parts:
                    target = image[part]
                    low = first + start_lane
                    memory.put(slice(low, low + len(target)), slice(column, column + count), target)

        uncommitted(warp).append(access)
        warp.state.setdefault("tcgen05 unfenced", []).append(access)
        warp.machine.asynchronous.issue(
            Operation(ins, warp, lanes, execute, queue=core_of(warp, group), reads=[(cta, chunks) for cta in ctas])
        )

    return run


_SHIFTED = 8  # columns: 32 bytes of each lane


@instruction("tcgen05.shift")
def shift(ins):
    """Lane i takes the 32 bytes of lane i + 1, and the last lane of each quarter keeps its own.

    The manual does not say that rows stay in their quarter; a B200 is reported to do so.
    """
    group = cta_group(ins)
    ins.choice("down")
    address = ins.address(0)
    ins.expect_operands(1)

    def run(warp, lanes):
        need_one_lane(ins, warp, lanes)
        start_lane, column = lane_and_column(int(address(warp)[first_lane(lanes)]))
        if start_lane % 32:
            ins.report(warp, lanes, "tensor-memory-misuse", f"the address names lane {start_lane}: it must be a multiple of 32", column)
            return
        if start_lane:
            raise EmulatorError(f"tcgen05.shift from lane {start_lane} is not covered: the manual does not say which lanes move")
        ctas = ctas_of(ins, warp, lanes, group)
        if ctas is None:
            return
        access, columns = Access(ins, warp, lanes, "shift"), slice(column, column + _SHIFTED)
        for cta in ctas:
            if not cta.tensor_memory.in_bounds(ins, warp, lanes, column, _SHIFTED, "it shifts"):
                return
            cta.tensor_memory.check_use(ins, warp, lanes, access, ALL_LANES, column, _SHIFTED, reads=True, writes=True)

        def execute():
            for cta in ctas:
                memory = cta.tensor_memory
                for cells in (memory.cells, memory.valid, memory.garbage):
                    quarters = cells[:, columns].reshape(4, 32, _SHIFTED)
                    cells[:, columns] = np.concatenate([quarters[:, 1:], quarters[:, -1:]], axis=1).reshape(128, _SHIFTED)

        uncommitted(warp).append(access)
        warp.machine.asynchronous.issue(Operation(ins, warp, lanes, execute, queue=core_of(warp, group)))

    return run

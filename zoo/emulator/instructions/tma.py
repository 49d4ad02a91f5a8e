"""cp.async.bulk: one-dimensional and tensor copies and reductions, their groups, and clusterlaunchcontrol."""

import numpy as np

from zoo.contract import tensor_map as maps
from zoo.errors import ArgumentError

from .. import clocks, im2col, memory, number_formats
from ..asynchronous import Operation
from ..lanes import assign
from ..memory import GLOBAL_BASE, PARAM_BASE
from ..parser import TensorAddress
from ..tma import Box, swizzled
from . import instruction
from .arithmetic import flush
from .memory import combine

_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_MAP_TYPES = {
    "u8": "u8", "u16": "u16", "u32": "u32", "i32": "s32", "u64": "u64", "i64": "s64", "f16": "f16", "f32": "f32", "f64": "f64", "bf16": "bf16", "f32_ftz": "f32",
}  # fmt: skip


def _each(lanes):
    return [lane for lane in range(32) if lanes >> lane & 1]


def _cache_operand(ins, behind=0):
    """How many operands (a policy register, the last but `behind`) a cache hint adds."""
    if not ins.flag("L2::cache_hint"):
        return 0
    ins.read(len(ins.operands) - 1 - behind, "b64")
    return 1


def reducer(name, type):
    """function(old bytes, operand bytes) -> bytes, elementwise on arrays of one type."""
    if type in ("f16", "bf16"):
        format = number_formats.F16 if type == "f16" else number_formats.BF16

        def half(old, operand):
            a, b = (part.reshape(-1).view(np.uint16).astype(np.uint32) for part in (old, operand))
            if name == "add":
                codes = number_formats.half_add(format, a, b)
            else:
                choose = np.fmin if name == "min" else np.fmax
                codes = number_formats.encode(format, choose(number_formats.decode(format, a), number_formats.decode(format, b)), "rn")
            return codes.astype(np.uint16).view(np.uint8).reshape(old.shape)

        return half
    dtype = {
        "u8": np.uint8,
        "u16": np.uint16,
        "u32": np.uint32,
        "s32": np.int32,
        "u64": np.uint64,
        "s64": np.int64,
        "f32": np.float32,
        "f64": np.float64,
        "b32": np.uint32,
        "b64": np.uint64,
    }[type]
    ufunc = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "min": np.minimum, "max": np.maximum}.get(
        name
    )

    def plain(old, operand):
        a, b = old.reshape(-1).view(dtype), operand.reshape(-1).view(dtype)
        if type == "f32":  # subnormal operands are zero, as subnormal results are
            a, b = flush(a), flush(b)
        if ufunc is not None:
            result = ufunc(a, b)
        else:
            result = np.array([combine(name, type)(x, y) for x, y in zip(a, b)], dtype)
        if type == "f32":
            result = flush(result)
        return np.ascontiguousarray(result).view(np.uint8).reshape(old.shape)

    return plain


# ---- groups ----------------------------------------------------------------------------------------------------------
def _read_key(warp, lane):
    return ("bulk read", warp, lane)


def _write_key(warp, lane):
    return ("bulk write", warp, lane)


@instruction("cp.async.bulk.commit_group")
def commit_group(ins):
    """The thread's bulk stores since the last commit form a group"""

    def run(warp, lanes):
        engine = warp.machine.asynchronous
        for lane in _each(lanes):
            engine.close_group(_read_key(warp, lane))
            engine.close_group(_write_key(warp, lane))

    return run


@instruction("cp.async.bulk.wait_group")
def wait_group(ins):
    """Wait for all but the n youngest groups; .read waits only until their sources have been read"""
    read = ins.flag("read")
    keep = ins.operands[0].value

    def run(warp, lanes):
        engine = warp.machine.asynchronous
        for lane in _each(lanes):
            engine.wait_queue(_read_key(warp, lane), keep)
            if not read:
                engine.wait_queue(_write_key(warp, lane), keep)

    return run


def _issue_store(ins, warp, lane, extent, read, write):
    """A store in two steps: read the source (which unlocks it), then write the destination."""
    engine = warp.machine.asynchronous
    held = {}
    lanes = 1 << lane

    def execute_read():
        held["data"] = read()

    first = Operation(ins, warp, lanes, execute_read, queue=_read_key(warp, lane), reads=[(warp.cta, extent)])

    def execute_write():
        engine.finish(first)
        write(held.pop("data"))

    second = Operation(ins, warp, lanes, execute_write, queue=_write_key(warp, lane))
    engine.issue(first)
    engine.issue(second)


# ---- tensor copies ---------------------------------------------------------------------------------------------------
def read_map(ins, warp, lane, address):
    """The tensor map at a generic address, checked; None after a report."""
    machine = warp.machine
    if PARAM_BASE <= address <= PARAM_BASE + len(machine.parameters) - maps.BYTES:
        start = address - PARAM_BASE
        raw = machine.parameters[start : start + maps.BYTES]
    elif address >= GLOBAL_BASE:
        raw = memory.read_global(ins, warp, 0xFFFFFFFF, np.arange(address, address + maps.BYTES, dtype=np.int64), 1).tobytes()
    else:
        ins.report(
            warp, 1 << lane, "tensor-map", f"the tensor map's address {address:#x} is neither a kernel parameter nor global memory", address
        )
        return None
    if address % 64:
        ins.report(warp, 1 << lane, "misaligned", f"a tensor map needs 64-byte alignment, its address is {address:#x}", address)
    known = machine.tensor_maps.get(raw)
    if known is None:
        try:
            known = im2col.read(raw)
            known.check()
        except (ArgumentError, StopIteration) as error:
            ins.report(warp, 1 << lane, "tensor-map", str(error) or "the 128 bytes are not a logical tensor map", address)
            return None
        machine.tensor_maps[raw] = known
    return known


class _TensorOperands:
    """The operands of a tensor copy: map, coordinates, mode, and the number of the operand with im2col offsets."""

    def __init__(self, ins, operand, rank, mode, offsets=None):
        if not isinstance(operand, TensorAddress):
            ins.unsupported("it needs [map, {coordinates}]")
        self.rank, self.mode = rank, mode
        self.map = ins.address(operand.map)
        self.coordinates = ins.read_list(operand.coordinates, "s32")
        if operand.rest:
            ins.unsupported("the brackets hold more than a map and coordinates")
        self.offsets = ins.read_list(offsets, "u16", wide=True) if offsets is not None else []
        count = 2 if mode.startswith("im2col::w") else rank - 2
        if len(self.offsets) != (count if offsets is not None else 0):
            ins.unsupported(f"it needs {count} im2col offsets")
        expected = 5 if mode in ("tile::gather4", "tile::scatter4") else rank
        if len(self.coordinates) != expected:
            ins.unsupported(f"it needs {expected} coordinates")

    def box(self, ins, warp, lane, store=False):
        """The Box, or None after a report."""
        address = int(self.map(warp)[lane])
        warp.machine.tensor_map_edits.check_use(ins, warp, lane, address)
        tensor = read_map(ins, warp, lane, address)
        if tensor is None:
            return None
        memory.check_dependency(ins, warp, 1 << lane, tensor.address)
        coordinates = [int(warp.values[slot][lane]) for slot in self.coordinates]
        problem = None
        gather = self.mode in ("tile::gather4", "tile::scatter4")
        mode = "tile" if gather else self.mode.removesuffix("_no_offs")
        if mode != getattr(tensor, "mode", "tile"):
            problem = f"the mode of the copy, .{self.mode}, is not that of the tensor map"
        elif tensor.rank != self.rank:
            problem = f"the instruction has {self.rank} dimensions, the tensor map {tensor.rank}"
        elif gather and (tensor.rank != 2 or tensor.box[1] != 1):
            problem = f"{self.mode} needs a two-dimensional map whose box has one row"
        elif store and tensor.dtype in ("u4_align16", "u6_align16"):
            problem = "packed 16-byte types can only be loaded"
        elif store and not gather and any(c < 0 for c in coordinates):
            problem = f"a store at negative coordinates {coordinates}"
        elif tensor.dtype in ("u4_align16", "u6_align16") and coordinates[0] % 128:
            problem = f"the first coordinate of a packed 16-byte type must be a multiple of 128, not {coordinates[0]}"
        elif coordinates[0] * maps.DTYPES[tensor.dtype][1] % 128:
            problem = f"the first coordinate, {coordinates[0]} elements of {tensor.dtype}, is no multiple of 16 bytes"
        if self.mode.startswith("im2col") and not problem:
            pixels = im2col.Pixels(
                tensor, coordinates, [int(warp.values[slot][lane]) & 0xFFFF for slot in self.offsets] or [0] * (self.rank - 2)
            )
            problem = pixels.problem()
        if problem:
            ins.report(warp, 1 << lane, "tensor-map", problem)
            return None
        if self.mode.startswith("im2col"):
            return pixels
        if gather:
            return Box(tensor, [*coordinates[:1], 0], coordinates[1:])
        return Box(tensor, coordinates)


def _tensor_modifiers(ins):
    rank = int(ins.choice("1d", "2d", "3d", "4d", "5d")[0])
    mode = ins.choice("tile", "tile::gather4", "tile::scatter4", "im2col", "im2col_no_offs", "im2col::w", "im2col::w::128", default="tile")
    if mode.startswith("im2col") and rank < 3:
        ins.unsupported("im2col needs 3 to 5 dimensions")
    return rank, mode


def _check_place(ins, warp, lane, offset):
    """Alignment of the image in shared memory."""
    if offset % 128:
        ins.report(warp, 1 << lane, "misaligned", f"a tensor copy's shared address needs 128-byte alignment, it is {offset:#x}", offset)
        return False
    return True


@instruction("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor")
def tensor_copy(ins):
    """A box of a tensor between global and shared memory"""
    if ins.flag("global") and ("shared::cta" in ins.modifiers or "shared" in ins.modifiers) and "bulk_group" in ins.modifiers:
        return _tensor_store(ins)
    if ins.opcode.startswith("cp.reduce"):
        ins.unsupported("a tensor reduction goes from shared to global memory")
    return _tensor_load(ins)


def _tensor_load(ins):
    rank, mode = _tensor_modifiers(ins)
    own = ins.choice("shared::cluster", "shared::cta") == "shared::cta"
    ins.flag("mbarrier::complete_tx::bytes") or ins.unsupported("it needs .mbarrier::complete_tx::bytes")
    multicast = ins.flag("multicast::cluster")
    group = ins.choice("cta_group::1", "cta_group::2", default=None)
    if mode == "im2col_no_offs":
        ins.unsupported("im2col_no_offs is for stores")
    extra = _cache_operand(ins)
    offsets = mode.startswith("im2col")
    ins.expect_operands(3 + offsets + multicast + extra)
    to, barrier = ins.address(0), ins.address(2)
    operands = _TensorOperands(ins, ins.operands[1], rank, mode, 3 if offsets else None)
    mask = ins.read(3 + offsets, "b16", wide=True) if multicast else None

    def run(warp, lanes):
        for lane in _each(lanes):
            one(warp, lane)

    def one(warp, lane):
        machine = warp.machine
        box = operands.box(ins, warp, lane)
        if box is None:
            return
        destination, signal = int(to(warp)[lane]) & 0xFFFFFFFF, int(barrier(warp)[lane]) & 0xFFFFFFFF
        offset = destination & 0xFFFFFF
        count = len(warp.cta.cluster.ctas)
        if own:
            memory.check_own_cta(ins, warp, 1 << lane, destination)
        if group == "cta_group::2" and warp.cta.pair is None:
            ins.report(warp, 1 << lane, "bulk-copy", "cta_group::2 in a cluster without a peer CTA")
        if not _check_place(ins, warp, lane, offset):
            return
        if multicast:
            bits = int(warp.values[mask][lane]) & 0xFFFF
            ranks = [rank for rank in range(16) if bits >> rank & 1]
            if not ranks or ranks[-1] >= count:
                ins.report(warp, 1 << lane, "bulk-copy", f"the multicast mask {bits:#x} names CTAs outside the cluster of {count}")
                ranks = [rank for rank in ranks if rank < count]
        else:
            ranks = [destination >> 24]
        signal_rank, signal_offset = signal >> 24, signal & 0xFFFFFF
        pieces = []
        for rank in ranks:
            if rank >= count:
                ins.report(warp, 1 << lane, "out-of-bounds", f"the destination names CTA rank {rank} of a cluster of {count}")
                return
            if group == "cta_group::2":
                # the barrier of the CTA of this destination's pair that has the parity of the barrier operand's CTA
                target = (rank & ~1) | (signal_rank & 1)
            elif multicast:
                target = rank
            else:
                target = signal_rank
                if target != rank:
                    ins.report(
                        warp, 1 << lane, "bulk-copy", "without multicast or .cta_group::2 the mbarrier must be in the destination's CTA"
                    )
            cta = warp.cta.cluster.ctas[rank]
            if cta.exited:
                ins.report(warp, 1 << lane, "exited-cta", f"the copy writes to CTA rank {rank}, which has exited")
            memory.check_started(ins, warp, 1 << lane, cta)
            extent = (offset, offset + box.image_bytes)
            if not cta.shared.check_async_write(ins, warp, 1 << lane, extent):
                return
            address = (target << 24) | signal_offset
            live = machine.mbarriers.find(ins, warp, 1 << lane, address, "the copy's completion")
            if live is None:
                return
            machine.mbarriers.check_published(ins, warp, 1 << lane, live, by_copy=True)
            pieces.append((cta, extent, address))
        snapshot = clocks.snapshot(warp, 1 << lane)
        tensor = box.tensor
        for cta, extent, address in pieces:

            def execute(cta=cta, extent=extent, address=address):
                rows, problem = box.load(machine.memory, by=(ins, warp, 1 << lane))
                if problem:
                    ins.report(warp, 1 << lane, problem[0], problem[1], problem[2])
                image, valid = box.spread(rows)
                places = swizzled(tensor.swizzle, extent[0], box.image_bytes)
                cta.shared.views[8][places] = np.ascontiguousarray(image).reshape(-1).view(np.uint64)
                cta.shared.mark_async_write(ins, extent)
                if valid is not None:
                    cta.shared.valids[8][places] = valid.reshape(-1).view(np.uint64)
                machine.traffic["tensor copies loaded"] += box.bytes
                machine.mbarriers.complete_tx(ins, warp, 1 << lane, address, box.bytes, clocks=snapshot)

            machine.asynchronous.issue(Operation(ins, warp, 1 << lane, execute, writes=[(cta, extent)], signals=[address]))

    return run


def _tensor_store(ins):
    rank, mode = _tensor_modifiers(ins)
    if mode in im2col.MODES:
        ins.unsupported("a store takes .im2col_no_offs")
    ins.choice("shared::cta", "shared")
    ins.flag("bulk_group")
    name = ins.choice(*_REDUCTIONS) if ins.opcode.startswith("cp.reduce") else None
    extra = _cache_operand(ins)
    ins.expect_operands(2 + extra)
    operands = _TensorOperands(ins, ins.operands[0], rank, mode)
    source = ins.address(1)

    def run(warp, lanes):
        for lane in _each(lanes):
            one(warp, lane)

    def one(warp, lane):
        machine = warp.machine
        box = operands.box(ins, warp, lane, store=True)
        if box is None:
            return
        address = int(source(warp)[lane]) & 0xFFFFFFFF
        offset = address & 0xFFFFFF
        if address >> 24 != warp.cta.rank:
            ins.report(
                warp, 1 << lane, "bulk-copy", f"a tensor store reads the executing CTA's shared memory, not CTA rank {address >> 24}'s"
            )
            return
        if not _check_place(ins, warp, lane, offset):
            return
        extent = (offset, offset + box.image_bytes)
        shared = warp.cta.shared
        places = swizzled(box.tensor.swizzle, offset, box.image_bytes)
        inside = box.inside()
        if inside is not None:  # what lies outside the tensor is dropped, so it need not be there
            if not inside.any():
                return
            read = (places[:, None] * 8 + np.arange(8)).reshape(-1)[inside]
        if not shared.check_async_read(ins, warp, 1 << lane, extent if inside is None else read):
            return
        if name and box.tensor.dtype not in _MAP_TYPES:
            ins.report(warp, 1 << lane, "tensor-map", f"a tensor of {box.tensor.dtype} cannot be reduced into")
            return
        function = reducer(name, _MAP_TYPES[box.tensor.dtype]) if name else None

        def write(image):
            problem = box.store(machine.memory, image, function, by=(ins, warp, 1 << lane))
            machine.traffic["tensor copies stored"] += box.bytes
            if problem:
                ins.report(warp, 1 << lane, *problem)

        _issue_store(ins, warp, lane, extent, lambda: shared.views[8][places].view(np.uint8), write)

    return run


# ---- one-dimensional copies ------------------------------------------------------------------------------------------
@instruction("cp.async.bulk", "cp.reduce.async.bulk")
def bulk_copy(ins):
    """A contiguous copy between global and shared memory, or between the shared memories of a cluster"""
    reduce = ins.opcode.startswith("cp.reduce")
    spaces = [m for m in ins.modifiers if m in ("global", "shared::cta", "shared::cluster")]
    if len(spaces) != 2:
        ins.unsupported("it needs a destination and a source space")
    for space in spaces:
        ins.modifiers.remove(space)
    by_barrier = ins.flag("mbarrier::complete_tx::bytes")
    by_group = ins.flag("bulk_group")
    multicast = ins.flag("multicast::cluster")
    masked = ins.flag("cp_mask")
    if ins.flag("ignore_oob"):
        ins.unsupported(".ignore_oob")
    extra = _cache_operand(ins, behind=int(masked))
    name = ins.choice(*_REDUCTIONS) if reduce else None
    ins.flag("noftz")
    type = ins.type() if reduce else None
    if by_barrier == by_group:
        ins.unsupported("it needs either an mbarrier or a bulk group")
    to, source, size = ins.address(0), ins.address(1), ins.read(2, "u32")
    barrier = ins.address(3) if by_barrier else None
    mask = ins.read(4, "b16", wide=True) if multicast else None
    byte_mask = ins.read(3 + extra, "b16", wide=True) if masked else None
    ins.expect_operands(3 + by_barrier + multicast + masked + extra)
    function = reducer(name, type) if reduce else None
    into_global = spaces[0] == "global"

    def run(warp, lanes):
        for lane in _each(lanes):
            one(warp, lane)

    def one(warp, lane):
        machine, only = warp.machine, 1 << lane
        count = int(warp.values[size][lane])
        destination, start = int(to(warp)[lane]), int(source(warp)[lane])
        if count % 16 or destination % 16 or start % 16:
            ins.report(warp, only, "bulk-copy", f"size {count} and addresses {destination:#x}, {start:#x} must be multiples of 16")
            return None
        if count == 0:
            return None
        if "global" in spaces:
            memory.check_dependency(ins, warp, only, destination if into_global else start)
        if into_global:
            return store(warp, lane, destination, start & 0xFFFFFFFF, count)
        destination &= 0xFFFFFFFF
        if spaces[0] == "shared::cta":
            memory.check_own_cta(ins, warp, only, destination)
        cluster = warp.cta.cluster
        signal = int(barrier(warp)[lane]) & 0xFFFFFFFF
        if multicast:
            bits = int(warp.values[mask][lane])
            ranks = [rank for rank in range(16) if bits >> rank & 1]
        else:
            ranks = [destination >> 24]
        if not ranks or max(ranks) >= len(cluster.ctas):
            ins.report(warp, only, "out-of-bounds", f"the copy names CTA ranks {ranks} of a cluster of {len(cluster.ctas)}")
            return None
        offset = destination & 0xFFFFFF
        snapshot = clocks.snapshot(warp, only)
        from_shared = spaces[1] == "shared::cta"
        reads = []
        if from_shared:
            if (start & 0xFFFFFFFF) >> 24 != warp.cta.rank:
                ins.report(warp, only, "bulk-copy", "the source must be the executing CTA's shared memory")
                return None
            begin = start & 0xFFFFFF
            if not warp.cta.shared.check_async_read(ins, warp, only, (begin, begin + count)):
                return None
            reads = [(warp.cta, (begin, begin + count))]
        for rank in ranks:
            cta = cluster.ctas[rank]
            memory.check_started(ins, warp, only, cta)
            extent = (offset, offset + count)
            if not cta.shared.check_async_write(ins, warp, only, extent):
                return None
            address = (rank << 24) | (signal & 0xFFFFFF) if multicast else signal
            if address >> 24 != rank:
                ins.report(warp, only, "bulk-copy", "without multicast the mbarrier must be in the destination's CTA")
            live = machine.mbarriers.find(ins, warp, only, address, "the copy's completion")
            if live is None:
                return None
            machine.mbarriers.check_published(ins, warp, only, live, by_copy=True)

            def execute(cta=cta, extent=extent, address=address):
                if from_shared:
                    data = warp.cta.shared.bytes[begin : begin + count].copy()
                else:
                    data = (
                        memory.read_global(ins, warp, only, np.arange(start, start + count, 16, dtype=np.int64), 16)
                        .reshape(-1)
                        .view(np.uint8)
                    )
                place = cta.shared.bytes[extent[0] : extent[1]]
                place[...] = function(place.copy(), data) if function else data
                cta.shared.mark_async_write(ins, extent)
                machine.traffic["tensor copies loaded"] += count
                machine.mbarriers.complete_tx(ins, warp, only, address, count, clocks=snapshot)

            writes = [] if function else [(cta, extent)]
            machine.asynchronous.issue(Operation(ins, warp, only, execute, reads=reads, writes=writes, signals=[address]))
        return None

    def store(warp, lane, destination, start, count):
        machine, only = warp.machine, 1 << lane
        if start >> 24 != warp.cta.rank:
            ins.report(warp, only, "bulk-copy", "the source must be the executing CTA's shared memory")
            return
        begin = start & 0xFFFFFF
        shared = warp.cta.shared
        if not shared.check_async_read(ins, warp, only, (begin, begin + count)):
            return
        chosen = int(warp.values[byte_mask][lane]) if byte_mask is not None else None

        def write(data):
            places = np.arange(destination, destination + count, 16, dtype=np.int64)
            if function:
                before = memory.read_global(ins, warp, only, places, 16).reshape(-1).view(np.uint8)
                data = function(before, data)
            if chosen is not None:
                keep = np.tile([(chosen >> bit) & 1 for bit in range(16)], count // 16).astype(bool)
                memory.write_global(ins, warp, only, np.arange(destination, destination + count, dtype=np.int64)[keep], 1, data[keep])
            else:
                memory.write_global(ins, warp, only, places, 16, data.view(np.uint64).reshape(-1, 2))
            machine.traffic["tensor copies stored"] += count

        _issue_store(ins, warp, lane, (begin, begin + count), lambda: shared.bytes[begin : begin + count].copy(), write)

    return run


# ---- clusterlaunchcontrol --------------------------------------------------------------------------------------------
_CANCELLED = 0x5A  # byte 15 of a successful response; the other bytes hold the coordinates, xored so that nothing reads them raw
_FAILED = 0xA5


@instruction("clusterlaunchcontrol.try_cancel")
def try_cancel(ins):
    """Take the next cluster that has not been launched: 16 bytes of answer and complete_tx(16) on the barrier"""
    ins.flag("async") or ins.unsupported("it needs .async")
    ins.choice("shared::cta", default="shared::cta")
    ins.flag("mbarrier::complete_tx::bytes") or ins.unsupported("it needs .mbarrier::complete_tx::bytes")
    everywhere = ins.flag("multicast::cluster::all")
    if ins.types() != ["b128"]:
        ins.unsupported("the response is .b128")
    to, barrier = ins.address(0), ins.address(1)

    def run(warp, lanes):
        machine = warp.machine
        cluster = warp.cta.cluster
        for lane in _each(lanes):
            destination, signal = int(to(warp)[lane]) & 0xFFFFFFFF, int(barrier(warp)[lane]) & 0xFFFFFFFF
            offset = destination & 0xFFFFFF
            memory.check_own_cta(ins, warp, 1 << lane, destination)
            memory.check_own_cta(ins, warp, 1 << lane, signal)
            if offset % 16:
                ins.report(warp, 1 << lane, "misaligned", f"the response needs 16-byte alignment, it is at {offset:#x}")
                continue
            if machine.cancel_failed.get(cluster) == "observed":
                ins.report(warp, 1 << lane, "cluster-launch-control", "try_cancel after a failed response was observed")
            if machine.waiting_clusters:
                first = machine.waiting_clusters.popleft()
                words = [value ^ 0x5EED0000 for value in first] + [_CANCELLED << 24]
            else:
                machine.cancel_failed.setdefault(cluster, "issued")
                words = [0xBAD0BAD0, 0xBAD1BAD1, 0xBAD2BAD2, _FAILED << 24]
            data = np.array(words, np.uint32).view(np.uint8)
            ctas = cluster.ctas if everywhere else [warp.cta]
            snapshot = clocks.snapshot(warp, 1 << lane)
            for cta in ctas:
                extent = (offset, offset + 16)
                if not cta.shared.check_async_write(ins, warp, 1 << lane, extent):
                    continue
                cta.shared.check_fenced_reads(ins, warp, 1 << lane, extent)
                address = (cta.rank << 24) | (signal & 0xFFFFFF)

                def execute(cta=cta, extent=extent, address=address, lane=lane, data=data, snapshot=snapshot):
                    cta.shared.bytes[extent[0] : extent[1]] = data
                    cta.shared.mark_async_write(ins, extent)
                    machine.mbarriers.complete_tx(ins, warp, 1 << lane, address, 16, clocks=snapshot)

                machine.asynchronous.issue(Operation(ins, warp, 1 << lane, execute, writes=[(cta, extent)], signals=[address]))

    return run


def _response(warp, slot, lane):
    return warp.values[slot][lane].view(np.uint32)


@instruction("clusterlaunchcontrol.query_cancel.is_canceled")
def is_cancelled(ins):
    """p = the response says that a cluster was taken"""
    if ins.types() not in (["pred", "b128"], ["b128"]):
        ins.unsupported("it is .pred.b128")
    p, a = ins.write(0, "pred"), ins.read(1, "b128")

    def run(warp, lanes):
        result = np.zeros(32, bool)
        for lane in _each(lanes):
            words = _response(warp, a, lane)
            code = int(words[3]) >> 24
            if code not in (_CANCELLED, _FAILED) and words.any():  # all zeros, as programs write it themselves, took none
                ins.report(warp, 1 << lane, "cluster-launch-control", "these 16 bytes are no response of try_cancel")
            result[lane] = code == _CANCELLED
            if code == _FAILED:
                warp.machine.cancel_failed[warp.cta.cluster] = "observed"
        assign(warp.values[p], result, lanes)

    return run


@instruction(*("clusterlaunchcontrol.query_cancel.get_first_ctaid" + axis for axis in ("", "::x", "::y", "::z")))
def first_cta(ins):
    """Grid coordinates of the first CTA of the cluster that was taken"""
    vector = ins.flag("v4")
    if ins.types() != ["b32", "b128"]:
        ins.unsupported("it is .b32.b128")
    name = next(part for part in ins.opcode.split(".") if part.startswith("get_first_ctaid"))
    axis = name.partition("::")[2]
    if vector == bool(axis):
        ins.unsupported("it needs either .v4 or ::x, ::y, ::z")
    destinations = ins.write_list(0, "b32")
    axes = range(4) if vector else ["xyz".index(axis)]
    a = ins.read(1, "b128")
    ins.unanswered = True
    ins.doubtful = not _only_where_cancelled(ins)

    def run(warp, lanes):
        refused = 0
        for lane in _each(lanes):
            words = _response(warp, a, lane)
            if int(words[3]) >> 24 != _CANCELLED:
                refused |= 1 << lane
            for slot, axis in zip(destinations, axes):
                if slot is not None:
                    value = int(words[axis]) ^ 0x5EED0000 if axis < 3 else 0
                    assign(warp.values[slot], np.uint32(value & 0xFFFFFFFF), 1 << lane)
        warp.state["undefined lanes"] = refused
        if refused and not ins.doubtful:
            ins.report(warp, refused, "cluster-launch-control", "get_first_ctaid on a response that did not cancel a cluster")

    return run


def _only_where_cancelled(ins):
    """Is its guard what is_canceled said?"""
    if ins.guard is None or ins.guard[1]:
        return False
    number = ins.layout.register_of_slot[ins.guard[0]]
    asked = (other for other in ins.program.instructions if other.opcode.startswith("clusterlaunchcontrol.query_cancel.is_canceled"))
    return any(number in other.writes for other in asked)

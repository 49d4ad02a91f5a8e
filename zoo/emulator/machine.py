"""One launch: clusters of CTAs of warps of lanes, and the loop that runs them.

A warp is a set of groups, pc -> lanes. The group with the lowest pc runs first and groups that meet at a pc merge, which
reconverges code laid out as compilers lay it out. A group that cannot go on (a barrier, an mbarrier, an .aligned
instruction whose other lanes are elsewhere) is parked and does not stop the other groups of its warp.
"""

import math
import re
from random import Random

import numpy as np

from zoo.contract import limits

from . import clocks as vector_clocks
from . import meetings, past_loads
from .asynchronous import Engine
from .barriers import ClusterBarrier, MBarriers, NamedBarrier
from .errors import EmulatorError, LaunchError
from .findings import Finding, Findings
from .frames import MOST_LOCAL_BYTES
from .instructions import Blocked
from .lanes import FULL, LANES
from .memory import PARAM_BASE, RESERVED_REGION, LocalMemory, SharedMemory
from .parser import Function, Variable
from .tensor_map_edits import TensorMapEdits

NEVER = 1 << 60


_CONVERSION = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(hh|ll|h|l|z|t|j)?([diouxXeEfFgGaAcspn%])")


def format_printf(text, raw, device):
    """The text that printf makes of its argument buffer."""
    position = 0

    def take(size):
        nonlocal position
        position = -(-position // size) * size
        data = raw[position : position + size]
        position += size
        return data

    def replace(match):
        length, kind = match.groups()
        if kind == "%":
            return "%"
        if kind in "eEfFgGaA":
            return (match.group() if kind not in "aA" else "%g") % np.frombuffer(take(8), np.float64)[0]
        if kind == "s":
            return device.c_string(int.from_bytes(take(8), "little"))
        size = 8 if length in ("l", "ll", "z", "t", "j") or kind == "p" else 4
        value = int.from_bytes(take(size), "little", signed=kind in "di")
        if kind == "c":
            return chr(value & 255)
        if kind == "p":
            return hex(value)
        return match.group().replace(length or "", "", 1).replace("i", "d").replace("u", "d") % value

    return _CONVERSION.sub(replace, text)


class WaitingClusters:
    """The clusters that have not begun, each by the coordinates of its first CTA: x fastest or, with a seed, in an order that follows
    from it, as no hardware promises one. They are counted and not listed: a grid may have more than memory holds.

    share: (number, shares) of the clusters that are meant, each `shares`th of that order."""

    def __init__(self, grid, shape, seed=None, share=(0, 1)):
        self._counts = [-(-extent // of_cluster) for extent, of_cluster in zip(grid, shape)]
        self._shape = shape
        self.all = math.prod(self._counts)
        self.begun, self._shares = share
        self._first, self._step = 0, 1
        if seed is not None and self.all > 1:
            rng = Random(seed)
            self._first, self._step = rng.randrange(self.all), rng.randrange(1, self.all)
            while math.gcd(self._step, self.all) > 1:  # else it would come round too early
                self._step = rng.randrange(1, self.all)

    def __bool__(self):
        return self.begun < self.all

    def popleft(self):
        columns, rows, _ = self._counts
        rest, x = divmod((self._first + self.begun * self._step) % self.all, columns)
        z, y = divmod(rest, rows)
        self.begun += self._shares
        return x * self._shape[0], y * self._shape[1], z * self._shape[2]


class Cluster:
    """CTAs that run together and see each other's shared memory."""

    def __init__(self, machine, number, first, warps_per_cta):
        self.machine, self.number = machine, number
        self.first = first  # grid coordinates of the CTA of rank 0
        nx, ny, nz = machine.cluster_shape
        count = nx * ny * nz
        self.warp_count = count * warps_per_cta
        self.columns = self.warp_count + 1  # of clock arrays: one more for the asynchronous proxy
        self.asynchronous_tick = 0
        self.ctas = []
        self.barrier = ClusterBarrier(self, self.columns)
        for rank in range(count):
            offset = (rank % nx, rank // nx % ny, rank // (nx * ny))
            self.ctas.append(Cta(machine, self, rank, tuple(first[i] + offset[i] for i in range(3)), warps_per_cta))


class Cta:
    """One thread block."""

    def __init__(self, machine, cluster, rank, index, warps):
        self.machine, self.cluster, self.rank, self.index = machine, cluster, rank, index
        self.threads = machine.threads
        self.warp_count = warps
        self.shared = SharedMemory(machine, self, machine.shared_bytes, cluster.warp_count)
        self.named = {}  # number -> barrier, of those that were used
        self.specials = {}  # registers that are the same in all of its warps
        self._tensor_memory = None
        self.exited = False
        self.cluster_has_started = False  # a warp of this CTA has passed a cluster barrier
        self.state = {}  # what instruction modules keep per CTA
        self.warps = [Warp(machine, self, number) for number in range(warps)]

    def dismantle(self):
        """Undoes the circles that it is made of, so that its memory and all that watches over it are gone at once."""
        self.__dict__.clear()

    def named_barrier(self, number):
        found = self.named.get(number)
        if found is None:
            found = self.named[number] = self.machine.named_barrier(number, self.cluster.columns)
        return found

    def live_threads(self):
        return sum(warp.live.bit_count() for warp in self.warps)

    @property
    def pair(self):
        peer = self.rank ^ 1
        return self.cluster.ctas[peer] if peer < len(self.cluster.ctas) else None

    @property
    def tensor_memory(self):
        if self._tensor_memory is None:
            from .tensor_memory import TensorMemory

            self._tensor_memory = TensorMemory(self)
        return self._tensor_memory

    def linear_index(self):
        gx, gy, _ = self.machine.grid
        x, y, z = self.index
        return x + gx * (y + gy * z)


class Warp:
    """32 lanes: registers, groups, clocks."""

    def __init__(self, machine, cta, index):
        self.machine, self.cta, self.index = machine, cta, index
        self.program = machine.program
        self.number = cta.rank * cta.warp_count + index  # within the cluster: its column in clock arrays
        self.group = index // 4
        first = index * LANES
        count = min(LANES, machine.threads - first)
        self.initial = (1 << count) - 1
        self.live = self.initial
        self.groups = {machine.start_pc: self.initial}
        self.parked = {}
        self.clocks = vector_clocks.fresh(cta.cluster.columns, self.number)
        self.pending_registers, self.locked_registers = {}, {}
        self.products = []  # that wait, see products.py
        self.doubtful_registers = {}  # see doubts.py: register -> (lanes, findings)
        self.way = past_loads.way()
        self.undefined_registers = {}  # loaded from tensor memory that nobody wrote: register -> (lanes, instruction)
        self.loose = []  # writes to shared memory that other lanes of the warp may not know of, see lane_order.py
        self.answers = []  # reads of answers of cluster launch control, likewise
        self.released = 0  # its tick at its last release
        self.wgmma_read, self.wgmma_written = set(), set()  # registers used by ordinary instructions since the last wgmma.fence
        self.named_waits = {}
        self.cluster_arrived, self.cluster_phase = 0, 0
        self.given_up = set()
        self.turn = 0
        self.calls = None  # for each lane its calls that have not returned (frames.py); None before the first call
        self.blocked_at = -1  # machine.progress when every group was last found parked
        self.state = {}  # what instruction modules keep per warp
        self.files, self.values = machine.take_registers()
        self.words = self.files["b32"]
        self.defined = [0] * machine.program.layout.units  # lanes that wrote each tracked 16-bit unit
        self.local = machine.take_local()
        self._fill_values()

    def _fill_values(self):
        values, machine = self.values, self.machine
        for slot, kind, payload, dtype in machine.open_slots:
            if kind == "special":
                of_cta = payload.startswith(_OF_THE_CTA)
                specials, key = (self.cta.specials, (payload, dtype)) if of_cta else (machine.specials, (payload, dtype, self.index))
                known = specials.get(key)
                if known is None:
                    known = specials[key] = self.special(payload, dtype)
                values[slot] = known
            else:
                address = (machine.symbol_address(payload[0], self.cta) + payload[1]) % (1 << 64)
                values[slot] = np.full(LANES, address, np.uint64).astype(dtype)

    def special(self, name, dtype):
        """The value of a special register that does not change while the warp runs."""
        machine, cta = self.machine, self.cta
        base, _, axis = name[1:].partition(".")
        thread = np.arange(self.index * LANES, (self.index + 1) * LANES)
        bx, by, _bz = machine.block
        lane = np.arange(LANES, dtype=np.int64)
        triple = {
            "tid": (thread % bx, thread // bx % by, thread // (bx * by)),
            "ntid": machine.block,
            "ctaid": cta.index,
            "nctaid": machine.grid,
            "clusterid": tuple(cta.cluster.first[i] // machine.cluster_shape[i] for i in range(3)),
            "nclusterid": tuple(machine.grid[i] // machine.cluster_shape[i] for i in range(3)),
            "cluster_ctaid": tuple(cta.index[i] - cta.cluster.first[i] for i in range(3)),
            "cluster_nctaid": machine.cluster_shape,
        }.get(base)
        if triple is not None:
            value = triple["xyz".index(axis)] if axis in ("x", "y", "z") else 0
        elif base in _SCALARS:
            value = _SCALARS[base](self)
        elif base.startswith("lanemask_"):
            bit = np.uint64(1) << lane.astype(np.uint64)
            low = bit - np.uint64(1)
            value = {"eq": bit, "lt": low, "le": low | bit, "gt": ~(low | bit) & np.uint64(FULL), "ge": ~low & np.uint64(FULL)}[base[9:]]
        elif base == "laneid":
            value = lane
        elif base in ("clock", "clock64", "clock_hi", "globaltimer", "globaltimer_lo", "globaltimer_hi"):
            value = 0  # the mov that reads a clock computes it
        else:
            raise EmulatorError(f"the special register {name} is not covered")
        return np.broadcast_to(np.asarray(value).astype(dtype), (LANES,))

    # ---- running
    def run(self, budget):
        """Execute up to about `budget` instructions of runnable groups; returns how many."""
        try:
            return self._run(budget)
        except Exception as error:
            if isinstance(error, EmulatorError) and "PTX line" in str(error):
                raise
            ins = self.program.instructions[self.pc]
            what = str(error) if isinstance(error, EmulatorError) else f"{type(error).__name__}: {error}"
            raise EmulatorError(f"PTX line {ins.line} `{ins.text}`: {what}") from error

    def _run(self, budget):
        groups, parked, code, counts, way = self.groups, self.parked, self.machine.code, self.machine.counts, self.way
        executed = 0
        self.turn += 1
        while executed < budget and groups:
            pc = self._choose()
            if pc is None:
                met = meetings.found(self)
                if not met:
                    break
                executed += meetings.hold(self, met)
                continue
            lanes = groups.pop(pc)
            stop = NEVER
            for other in groups:
                if pc < other < stop:
                    stop = other
            start = pc
            while True:
                self.pc = pc
                outcome = code[pc](self, lanes)
                executed += 1
                if outcome is None:
                    counts[pc] += 1
                    pc += 1
                    if pc == stop:
                        way.append((start, pc, lanes))
                        start = pc
                        lanes |= groups.pop(pc)
                        parked.pop(pc, None)
                        stop = NEVER
                        for other in groups:
                            if pc < other < stop:
                                stop = other
                    continue
                kind = outcome.__class__
                way.append((start, pc if kind is Blocked else pc + 1, lanes))
                if kind is int:
                    counts[pc] += 1
                    start = pc = outcome
                    if groups:
                        if pc in groups:
                            lanes |= groups.pop(pc)
                            parked.pop(pc, None)
                        groups[pc] = lanes
                        break
                    if executed >= budget:
                        groups[pc] = lanes
                        break
                    continue
                if kind is Blocked:
                    executed -= 1
                    groups[pc] = lanes
                    parked[pc] = outcome
                    break
                counts[pc] += 1
                for target, part, blocked in outcome:
                    if target in groups:
                        part |= groups[target]
                        parked.pop(target, None)
                    groups[target] = part
                    if blocked is not None:
                        parked[target] = blocked
                break
        return executed

    def _choose(self):
        """The pc of the group to run: the lowest that can go on; now and then each other in turn, so that a spinning group starves nobody."""
        groups, parked = self.groups, self.parked
        if len(groups) == 1:
            (pc,) = groups
            if parked:
                if not parked[pc].ready():
                    return None
                del parked[pc]
            return pc
        order = sorted(groups)
        if self.turn % 16 == 0:
            first = 1 + self.turn // 16 % (len(order) - 1)
            order = order[first:] + order[:first]
        for pc in order:
            blocked = parked.get(pc)
            if blocked is None:
                return pc
            if blocked.ready():
                del parked[pc]
                return pc
        return None

    def waits(self):
        """Whether all its groups wait for barriers whose phases are still what they were, or for each other."""
        parked = self.parked
        if not parked or len(parked) != len(self.groups):
            return False
        for blocked in parked.values():
            if blocked.phases is None:
                return False
            for barrier, phase in blocked.phases:
                if barrier.phase != phase:
                    return False
        return not meetings.found(self)

    def exit(self, lanes):
        self.live &= ~lanes
        self.machine.progress += 1
        for barrier in self.cta.named.values():
            if barrier.arrived:
                barrier.without_exited(self.cta)
        self.cta.cluster.barrier.without_exited(self)

    def describe(self):
        """A line per group, for a deadlock report."""
        lines = []
        for pc in sorted(self.groups):
            ins = self.program.instructions[pc]
            blocked = self.parked.get(pc)
            why = blocked.describe() if blocked is not None else "can go on"
            lines.append(f"CTA {self.cta.index} warp {self.index} lanes {self.groups[pc]:#010x} at PTX line {ins.line} `{ins.text}`: {why}")
        return lines


# special registers that differ between CTAs; the others are kept per warp number
_OF_THE_CTA = ("%ctaid", "%clusterid", "%cluster_ctaid", "%cluster_ctarank", "%smid")

_SCALARS = {
    "warpid": lambda warp: warp.index,
    "nwarpid": lambda warp: warp.cta.warp_count,
    "smid": lambda warp: warp.cta.linear_index() % warp.machine.device.multiprocessors,
    "nsmid": lambda warp: warp.machine.device.multiprocessors,
    "gridid": lambda warp: warp.machine.launch_number,
    "cluster_ctarank": lambda warp: warp.cta.rank,
    "cluster_nctarank": lambda warp: math.prod(warp.machine.cluster_shape),  # `ctas` is still being filled when this is asked
    "is_explicit_cluster": lambda warp: int(warp.machine.explicit_cluster),
    "current_graph_exec": lambda warp: 0,  # no launch comes from a graph that a kernel started
    "dynamic_smem_size": lambda warp: warp.machine.dynamic_shared,
    "reserved_smem_offset_begin": lambda warp: 0,
    "reserved_smem_offset_end": lambda warp: limits.RESERVED_SHARED,
    "reserved_smem_offset_cap": lambda warp: limits.RESERVED_SHARED,
    "reserved_smem_offset_0": lambda warp: 0,
    "reserved_smem_offset_1": lambda warp: RESERVED_REGION.start,
    "total_smem_size": lambda warp: warp.machine.shared_bytes - 1024,
    "aggr_smem_size": lambda warp: warp.machine.shared_bytes,
    "envreg1": lambda warp: warp.machine.workspace >> 32,
    "envreg2": lambda warp: warp.machine.workspace & FULL,
}


class Machine:
    """The state of one launch."""

    def __init__(
        self,
        device,
        module,
        program,
        grid,
        block,
        cluster,
        dynamic_shared,
        parameters,
        launch_number,
        workspace=0,
        dependent=False,
        constant=(),
    ):
        self.dependent = dependent  # may begin before the launch ahead has ended, which does not write to
        self.constant = constant  # [(address, bytes)]
        self.device, self.module, self.program = device, module, program
        self.grid, self.block = grid, block
        self.threads = block[0] * block[1] * block[2]
        self.explicit_cluster = cluster is not None
        self.cluster_shape = cluster or (1, 1, 1)
        self.dynamic_shared = dynamic_shared
        self.parameters = parameters  # bytes of the parameter block
        self.parameter_views = np.frombuffer(parameters, np.uint8)
        self.parameter_values = {}  # ld.param -> what it gives, see instructions/memory.py
        self.launch_number = launch_number
        self.workspace = workspace  # of a cooperative grid: its address
        self.memory = device.memory
        self.findings = Findings()
        self.rng = np.random.default_rng(device.seed)
        self.arithmetic = device.arithmetic
        self.asynchronous = Engine(self, device.scheduling, self.rng)
        self.mbarriers = MBarriers(self)
        self.progress = 0
        self.executed = 0
        self.slept = 0  # what nanosleep counts for, in instructions
        self.cluster_barrier_used = False
        self.follows_undefined = False  # a lane has computed with a register that nobody wrote, see definedness.py
        self.traffic = dict.fromkeys(
            (
                "global read",
                "global written",
                "shared read",
                "shared written",
                "local read",
                "local written",
                "tensor copies loaded",
                "tensor copies stored",
            ),
            0,
        )
        self.code = list(program.code)
        self.follows_doubts = False  # see doubts.py
        self.counts = [0] * program.length
        self.start_pc = program.start[program.entry]
        self.specials = {}
        has_dynamic = any(v.size is None for v in program.shared_offset)
        end = program.dynamic_shared_start if has_dynamic else max(program.static_shared_end, 1024)
        self.shared_bytes = end + dynamic_shared
        if self.shared_bytes > limits.RESERVED_SHARED + limits.SHARED:
            raise LaunchError(
                f"{program.entry.name} needs {self.shared_bytes - limits.RESERVED_SHARED} bytes of shared memory with {dynamic_shared} dynamic ones; a CTA has {limits.SHARED}"
            )
        self.stack_bytes = max(device.stack_bytes, program.stack_bytes) if program.has_limited_stack else MOST_LOCAL_BYTES
        self.functions = {device.function_address(module, function): function for function in program.pointed_at}
        self.open_slots = []
        for slot, recipe in enumerate(program.layout.slots):
            if recipe[0] == "special":
                self.open_slots.append((slot, "special", recipe[1], recipe[2]))
            elif recipe[0] == "symbol":
                self.open_slots.append((slot, "symbol", (recipe[1], recipe[2]), recipe[3]))
        self._free_local = []
        order = device.seed if device.scheduling == "random" else None
        self.waiting_clusters = WaitingClusters(grid, self.cluster_shape, order, device.share)
        self.clusters = []
        self.completed = False
        self.log = []  # lines that printf printed
        self.sync_words = {}  # clocks that atomic and volatile words carry
        self.released = {}  # such a word -> (CTA, scope) of its last release
        self.tensor_maps = {}  # 128 bytes -> TensorMap
        self.tensor_map_edits = TensorMapEdits()
        self.cancel_failed = {}  # cluster -> "issued" or "observed": clusterlaunchcontrol answered that nothing is left

    def dismantle(self):
        """Lets go of the device and the program, whom a search for garbage would otherwise have to free: warps and CTAs refer to it."""
        self.__dict__.clear()

    def follow_doubts(self):
        """From the next instruction on, in the warp that runs, too."""
        self.follows_doubts = True
        self.code[:] = self.program.following()

    # ---- resources
    named_barrier = NamedBarrier

    def take_registers(self):
        try:
            return self.program.free_registers.pop()
        except IndexError:
            return self.program.layout.storage()

    def take_local(self):
        if self._free_local:
            local = self._free_local.pop()
            local.reset()
            return local
        return LocalMemory(self.program.local_bytes, self.program.stack_bytes)

    def symbol_address(self, symbol, cta):
        """The address of a variable in its own state space."""
        if isinstance(symbol, Variable):
            if symbol.space == "shared":
                return (cta.rank << 24) | self.program.shared_offset[symbol]
            if symbol in self.program.parameter_offset:
                return PARAM_BASE + self.program.parameter_offset[symbol]
            if symbol in self.program.local_offset:
                return self.program.local_offset[symbol]
            return self.device.variable_address(self.module, symbol)
        if isinstance(symbol, Function):
            return self.device.function_address(self.module, symbol)
        raise EmulatorError(f"{symbol!r} has no address")

    def target(self, address, warp=None):
        """(cta, offset) of a 32-bit cluster shared address, seen from a warp's cluster."""
        rank, offset = int(address) >> 24, int(address) & 0xFFFFFF
        cluster = warp.cta.cluster
        if rank >= len(cluster.ctas):
            raise EmulatorError(f"shared address {int(address):#x} names CTA rank {rank} of a cluster of {len(cluster.ctas)}")
        return cluster.ctas[rank], offset

    def name_of_warp(self, cta, number):
        """Words for a column of clock arrays."""
        if number == cta.cluster.warp_count:
            return "an asynchronous operation"
        rank, index = divmod(number, cta.warp_count)
        return f"warp {index}" if len(cta.cluster.ctas) == 1 else f"warp {index} of CTA rank {rank}"

    def clock(self):
        return self.executed

    def print(self, format_address, raw):
        """printf: the arguments lie in a buffer, each at a multiple of its size."""
        self.log.append(format_printf(self.device.c_string(format_address), raw, self.device))

    # ---- the loop
    def launch_cluster(self):
        cluster = Cluster(self, self.waiting_clusters.begun, self.waiting_clusters.popleft(), -(-self.threads // LANES))
        self.clusters.append(cluster)
        self.running.extend(warp for cta in cluster.ctas for warp in cta.warps)
        return cluster

    def run(self, limit):
        """Run the grid to its end, a deadlock or the instruction limit."""
        self.running = []
        random = self.device.scheduling == "random"
        together = (self.program.entry.directives.get("minnctapersm") or (1,))[0]  # CTAs that a multiprocessor has room for
        most = self.waiting_clusters.all if self.workspace else together * self.device.multiprocessors  # clusters that may be resident
        window = most if self.workspace else 2 if random else 1  # clusters that run side by side when they need not
        last_admission, last_relief, idle_rounds, seen_progress = 0, 0, 0, -1
        engine = self.asynchronous
        watch = self.device.watch
        while self.waiting_clusters or self.running:
            if watch is not None:
                watch(self.waiting_clusters.begun - len(self.clusters), self.waiting_clusters.all, self.executed)
            while self.waiting_clusters and len(self.clusters) < window:
                self.launch_cluster()
            before = self.executed
            order = self.running
            if random:
                order = [order[i] for i in self.rng.permutation(len(order))]
            for warp in order:
                if warp.blocked_at == self.progress:
                    continue
                if warp.waits():
                    warp.blocked_at = self.progress
                    if random:
                        engine.step()
                    continue
                executed = warp.run(int(self.rng.integers(1, 64)) if random else 512)
                if executed:
                    self.executed += executed
                    if not warp.groups:
                        self._warp_done(warp)
                elif warp.groups:
                    warp.blocked_at = self.progress
                if random:
                    engine.step()
            if self.executed > limit and (self.running or self.waiting_clusters):
                if not self.running:  # all that had begun have ended: the next one says where the kernel stands
                    self.launch_cluster()
                self._report_stuck("livelock", f"{limit} warp instructions were executed and the kernel has not finished")
                return
            if self.executed + self.slept - last_admission > 50_000 and len(self.clusters) < most:
                # Long-running CTAs may be waiting for a later one through global memory.
                last_admission = self.executed + self.slept
                window = min(max(window, 2 * len(self.clusters)), most)
                engine.relieve(self._wanted())
            if self.slept - last_relief > 20_000:
                last_relief = self.slept  # a warp that looks at global memory again and again may wait for a copy
                engine.relieve(self._wanted())
            if self.executed == before and self.running:
                if any(warp.blocked_at != self.progress for warp in self.running):
                    for warp in self.running:
                        warp.blocked_at = -1 if warp.blocked_at != self.progress else self.progress
                    continue  # something changed after a warp was looked at
                if self._relieve_until_progress():
                    continue
                if self.waiting_clusters and len(self.clusters) < most:
                    self.launch_cluster()
                    continue
                if self.progress == seen_progress:
                    idle_rounds += 1
                else:
                    idle_rounds, seen_progress = 0, self.progress
                if idle_rounds > 16 or not self._give_up_waits():
                    self._report_deadlock()
                    return
        self.completed = True

    def _relieve_until_progress(self):
        """All wait: lets asynchronous work happen until one of them may go on. False when none is pending."""
        wanted, progress, found = self._wanted(), self.progress, False
        while self.progress == progress and self.asynchronous.relieve(wanted):
            found = True
        return found

    def _wanted(self):
        """Addresses of the mbarriers that parked groups wait for (of any cluster: this only steers the order of work)."""
        wanted = set()
        for warp in self.running:
            for blocked in warp.parked.values():
                wanted.update(blocked.addresses)
        return wanted

    def _give_up_waits(self):
        """try_wait may return false after a while: let every such wait do so, once."""
        found = False
        for warp in self.running:
            for pc, blocked in list(warp.parked.items()):
                if blocked.timeout is not None:
                    blocked.timeout()
                    del warp.parked[pc]
                    warp.blocked_at = -1
                    found = True
        return found

    def _warp_done(self, warp):
        self.running.remove(warp)
        self.program.free_registers.append((warp.files, warp.values))
        self._free_local.append(warp.local)
        if all(not w.groups for w in warp.cta.warps):
            self._cta_done(warp.cta)

    def _report_cta(self, cta):
        def report(kind, message, severity="error"):
            self.findings.add(Finding(kind, message, kernel=self.program.entry.name, severity=severity, cta=cta.index))

        return report

    def _cta_done(self, cta):
        cta.exited = True
        report = self._report_cta(cta)
        engine = self.asynchronous
        for operation in engine.of_cta(cta):
            if not operation.executed:
                if any(owner is cta for owner, *_ in operation.reads) or any(owner is cta for owner, *_ in operation.writes):
                    # GPUs keep a CTA's shared memory until its bulk stores have read it. The manual does not promise that.
                    stores = operation.ins.mnemonic == "cp" and "bulk" in operation.ins.opcode and not operation.writes
                    report(
                        "pending-at-exit",
                        f"the CTA exits while `{operation.ins.text}` (PTX line {operation.ins.line}) still uses its shared memory",
                        "warning" if stores else "error",
                    )
                engine.finish(operation)
        engine.forget_cta(cta)
        self.mbarriers.check_exit(cta, report)
        for (group, turn), executed in cta.state.get("register counts", {}).items():
            missing = [str(warp.index) for warp in cta.warps[4 * group : 4 * group + 4] if warp.index not in executed]
            if missing:
                which = f"{turn - 1} setmaxnreg before" if turn > 1 else "no setmaxnreg"
                report("register-count", f"warps {', '.join(missing)} of warpgroup {group} end after {which}, others execute one more")
        if cta._tensor_memory is not None:
            cta._tensor_memory.check_exit(report)
        for barrier in cta.named.values():
            if barrier.arrived:
                report("barrier-misuse", f"the CTA exits with an incomplete barrier: {barrier.describe()}")
        cluster = cta.cluster
        if all(other.exited for other in cluster.ctas):
            self.clusters.remove(cluster)
            for other in cluster.ctas:
                other.dismantle()

    # ---- being stuck
    def _report_deadlock(self):
        divergent = []
        for warp in self.running:
            for pc in warp.parked:
                ins = self.program.instructions[pc]
                if ins.aligned and warp.groups[pc] != warp.live:
                    divergent.append((warp, pc, ins))
        for warp, pc, ins in divergent:
            ins.report(
                warp, warp.groups[pc], "divergent-aligned",
                f"only lanes {warp.groups[pc]:#010x} of the live lanes {warp.live:#010x} reach this .aligned instruction",
            )  # fmt: skip
        self._report_stuck("deadlock", "no warp can go on")

    def _report_stuck(self, kind, message):
        lines = [line for warp in self.running for line in warp.describe()]
        if len(lines) > 64:
            lines = [*lines[:64], f"... and {len(lines) - 64} more"]
        warp = self.running[0]
        pc = min(warp.groups)
        ins = self.program.instructions[pc]
        self.findings.add(
            Finding(
                kind,
                message + ":\n  " + "\n  ".join(lines),
                kernel=self.program.entry.name,
                cta=warp.cta.index,
                warp=warp.index,
                lanes=warp.groups[pc],
                line=ins.line,
                text=ins.text,
                source=ins.source,
            )
        )

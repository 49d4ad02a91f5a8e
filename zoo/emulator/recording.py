"""What each warp of a launch did, in its order: the input of a clock (zoo/clock).

`RecordingDevice` launches like a `Device`, but runs only the first clusters of a grid, executes asynchronous work at issue, and keeps a
`Stream` for each warp. An item of a stream is one of

    int                    the pc of an instruction that the warp executed
    Wait(phase)            the warp saw that this phase of a barrier was complete
    Arrive(phase)          the warp arrived
    Issue(work)            the warp issued asynchronous work, which may arrive at phases when it completes
    Commit(queue)          the work that this warp issued to the queue since the last commit forms a group
    Drain(queue, keep)     the warp waited for all groups but the `keep` youngest
    Access(bytes, writes)  the warp read or wrote global memory

A launch on a plain `Device` executes none of this module.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from .asynchronous import Engine
from .barriers import ClusterBarrier, MBarriers, NamedBarrier
from .device import Device
from .instructions import Blocked
from .lanes import first_lane
from .machine import Machine
from .parser import Immediate

_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


class Phase:
    """One phase of one barrier, which so many contributions complete."""

    __slots__ = ("contributions",)

    def __init__(self):
        self.contributions = 0


@dataclass(eq=False)
class Work:
    """An asynchronous operation. unit: copy, store, multiply, scales, sums (between tensor memory and registers), exchange (with another
    CTA's shared memory), request (of the next tile) or signal (completes with the work before it in its queue)."""

    unit: str
    place: tuple[int, int]  # (cluster, rank) of the CTA that works
    bytes: int = 0
    queue: int | None = None
    rows: int = 0  # of a multiplication, for wgmma those of one warp, and its columns and the products a sum
    columns: int = 0
    depth: int = 0
    kind: str = ""  # the type of A's elements, or the kind of a tcgen05.mma
    shared_rows: int = 0  # rows of both operands that it reads from the CTA's shared memory
    cores: int = 1  # tensor cores of the CTA that multiply
    peer: tuple[int, int] | None = None  # the other CTA of a pair, which works as well
    phases: list[Phase] = field(default_factory=list)


@dataclass
class Wait:
    phase: Phase


@dataclass
class Arrive:
    phase: Phase


@dataclass
class Issue:
    work: Work


@dataclass
class Commit:
    queue: int


@dataclass
class Drain:
    queue: int
    keep: int


@dataclass
class Access:
    bytes: int
    writes: bool


@dataclass(eq=False)
class Stream:
    place: tuple[int, int]  # (cluster, rank)
    warp: int
    items: list[Any] = field(default_factory=list)


class Recording:
    """The streams of a launch's warps, and the instructions that pcs name."""

    def __init__(self, instructions):
        self.instructions = instructions
        self.current = None  # the work that executes now
        self._of_warps = {}
        self._phases, self._clusters, self._queues = {}, {}, {}
        self._named = {}  # warp -> the phase of a named barrier at which it arrived last

    @property
    def streams(self):
        return list(self._of_warps.values())

    def close(self):
        """Lets go of the machine."""
        self._of_warps = dict(enumerate(self._of_warps.values()))
        self._phases = self._clusters = self._queues = self._named = None

    def place(self, cta):
        return self._clusters.setdefault(cta.cluster, len(self._clusters)), cta.rank

    def queue(self, key):
        return None if key is None else self._queues.setdefault(key, len(self._queues))

    def add(self, warp, item):
        stream = self._of_warps.get(warp)
        if stream is None:
            stream = self._of_warps[warp] = Stream(self.place(warp.cta), warp.index)
        stream.items.append(item)

    def _phase(self, barrier, number):
        found = self._phases.get((barrier, number))
        if found is None:
            found = self._phases[barrier, number] = Phase()
        return found

    def arrived(self, warp, barrier, asynchronous=False):
        """The work that executes now, or the warp, contributes to the barrier's present phase."""
        phase = self._phase(barrier, barrier.phase)
        phase.contributions += 1
        if asynchronous:
            self.current.phases.append(phase)
        else:
            self.add(warp, Arrive(phase))
        return phase

    def arrived_at_named(self, warp, barrier):
        self._named[warp] = self.arrived(warp, barrier)

    def waited_at_named(self, warp):
        self.add(warp, Wait(self._named.pop(warp)))

    def waited(self, warp, barrier):
        self.add(warp, Wait(self._phase(barrier, barrier.phase - 1)))


class _Engine(Engine):
    def __init__(self, machine, recording):
        super().__init__(machine, "issue", machine.rng)
        self._recording = recording

    def issue(self, operation):
        recording, traffic = self._recording, self.machine.traffic
        work = recording.current = _work_of(operation, recording)
        copied, read = traffic["tensor copies loaded"] + traffic["tensor copies stored"], traffic["global read"]
        super().issue(operation)  # executes it
        if work.unit in ("copy", "store"):
            work.bytes = traffic["tensor copies loaded"] + traffic["tensor copies stored"] - copied or traffic["global read"] - read
        recording.current = None
        recording.add(operation.warp, Issue(work))


def _work_of(operation, recording):
    opcode, warp = operation.ins.opcode, operation.warp
    own, queue = recording.place(warp.cta), recording.queue(operation.queue)
    destination = recording.place(operation.writes[0][0]) if operation.writes else own
    if opcode.startswith("wgmma.mma_async"):
        words = opcode.split(".")
        shape = next(number for number, word in enumerate(words) if _SHAPE.fullmatch(word))
        _, columns, depth = (int(number) for number in _SHAPE.fullmatch(words[shape]).groups())
        from_registers = len(getattr(operation.ins.statement.operands[1], "items", ())) == 4
        shared_rows = columns + (0 if from_registers else 64)
        return Work("multiply", own, 0, queue, 16, columns, depth, words[shape + 2], shared_rows)
    if opcode.startswith("tcgen05.mma"):
        return _tcgen05_multiplication(operation, recording, own, queue)
    if opcode.startswith("tcgen05.cp"):
        rows, bits = (int(number) for number in re.search(r"\.(\d+)x(\d+)b", opcode).groups())
        return Work("scales", own, rows * bits // 8, queue)
    if opcode.startswith(("tcgen05.ld", "tcgen05.st")):
        shape, repetitions = re.search(r"\.(16x64b|16x128b|16x256b|32x32b|16x32bx2)\.x(\d+)", opcode).groups()
        words = {"16x128b": 2, "16x256b": 4}.get(shape, 1) * int(repetitions)  # of a lane
        return Work("sums", own, 32 * 4 * words, queue)
    if opcode.startswith(("tcgen05.commit", "cp.async.mbarrier")):
        return Work("signal", own, 0, queue)
    if opcode.startswith(("st.async", "red.async", "cp.async.bulk.shared::cluster.shared::cta")):
        return Work("exchange", destination, 0, queue)
    if opcode.startswith("clusterlaunchcontrol"):
        return Work("request", own)
    if operation.queue is not None and operation.queue[0] in ("bulk read", "bulk write"):
        return Work("store", own, 0, recording.queue((operation.queue[0], warp)))
    return Work("copy", destination, 0, queue)


def _tcgen05_multiplication(operation, recording, own, queue):
    """Rows and columns are in the instruction descriptor, which a register holds."""
    opcode, warp = operation.ins.opcode, operation.warp
    descriptor = operation.ins.statement.operands[3]
    if isinstance(descriptor, Immediate):
        bits = descriptor.value
    else:
        _, name, row = operation.ins.layout.place_of(descriptor)
        bits = int(warp.files[name][row][first_lane(operation.lanes)])
    kind = re.search(r"kind::(\w+)", opcode)[1]
    depth = {"mxf4": 64, "mxf4nvf4": 64, "f16": 16, "tf32": 8}.get(kind, 32)
    rows, columns = (bits >> 24 & 31) << 4, (bits >> 17 & 63) << 3
    if "cta_group::2" not in opcode:
        return Work("multiply", own, 0, queue, rows, columns, depth, kind, rows + columns, 4)
    peer = recording.place(warp.cta.pair)
    return Work("multiply", own, 0, queue, rows, columns, depth, kind, (rows + columns) // 2, 4, peer)


class _MBarriers(MBarriers):
    def __init__(self, machine, recording):
        super().__init__(machine)
        self._recording = recording

    def arrive(self, ins, warp, lanes, address, count=1, clocks=None, **words):
        self._contribute(warp, address, clocks)
        return super().arrive(ins, warp, lanes, address, count, clocks, **words)

    def complete_tx(self, ins, warp, lanes, address, nbytes, clocks=None):
        self._contribute(warp, address, clocks)
        super().complete_tx(ins, warp, lanes, address, nbytes, clocks)

    def _contribute(self, warp, address, clocks):
        cta, offset = self.machine.target(address, warp)
        barrier = cta.shared.barriers.get(offset)
        if barrier is not None:
            self._recording.arrived(warp, barrier, asynchronous=clocks is not None)

    def observe(self, warp, barrier, acquire=True):
        super().observe(warp, barrier, acquire)
        if barrier.phase:
            self._recording.waited(warp, barrier)


class _NamedBarrier(NamedBarrier):
    __slots__ = ("recording",)

    def arrive(self, ins, warp, lanes, threads, expected):
        self.recording.arrived_at_named(warp, self)
        super().arrive(ins, warp, lanes, threads, expected)


class _ClusterBarrier(ClusterBarrier):
    __slots__ = ("recording",)

    def arrive(self, ins, warp, lanes, relaxed):
        self.recording.arrived(warp, self)
        super().arrive(ins, warp, lanes, relaxed)


class _Machine(Machine):
    def __init__(self, device, *launch):
        super().__init__(device, *launch)
        self.recording = device.recording = Recording(self.program.instructions)
        self.asynchronous = _Engine(self, self.recording)
        self.mbarriers = _MBarriers(self, self.recording)
        self._record()
        self.waiting_clusters.all = min(self.waiting_clusters.all, device.clusters)

    def _record(self):
        self.code[:] = [_recorded(ins, run, self) for ins, run in zip(self.program.instructions, self.code)]

    def follow_doubts(self):
        super().follow_doubts()
        self._record()

    def launch_cluster(self):
        cluster = super().launch_cluster()
        cluster.barrier = _ClusterBarrier(cluster, cluster.columns)
        cluster.barrier.recording = self.recording
        return cluster

    def named_barrier(self, number, columns):
        barrier = _NamedBarrier(number, columns)
        barrier.recording = self.recording
        return barrier


def _recorded(ins, run, machine):
    """The instruction; then its warp's stream has what it did, and itself."""
    recording, traffic, pc = machine.recording, machine.traffic, ins.pc
    besides = _besides(ins, recording)

    def plain(warp, lanes):
        outcome = run(warp, lanes)
        if outcome.__class__ is not Blocked:
            if besides is not None:
                besides(warp)
            recording.add(warp, pc)
        return outcome

    def access(warp, lanes):
        read, written = traffic["global read"], traffic["global written"]
        outcome = run(warp, lanes)
        recording.add(warp, pc)
        if traffic["global written"] > written:
            recording.add(warp, Access(traffic["global written"] - written, True))
        elif traffic["global read"] > read:
            recording.add(warp, Access(traffic["global read"] - read, False))
        return outcome

    return access if ins.mnemonic in ("ld", "st", "atom", "red") and ".global" in ins.opcode else plain


# The start of an opcode -> (Commit or Drain, the queues that it is about)
_GROUPS = {
    "wgmma.commit_group": (Commit, ("wgmma",)),
    "wgmma.wait_group": (Drain, ("wgmma",)),
    "cp.async.bulk.commit_group": (Commit, ("bulk read", "bulk write")),
    "cp.async.bulk.wait_group.read": (Drain, ("bulk read",)),
    "cp.async.bulk.wait_group": (Drain, ("bulk write",)),
    "cp.async.commit_group": (Commit, ("cp.async",)),
    "cp.async.wait_group": (Drain, ("cp.async",)),
    "cp.async.wait_all": (Drain, ("cp.async",)),
    "tcgen05.wait::ld": (Drain, ("tcgen05.ld",)),
    "tcgen05.wait::st": (Drain, ("tcgen05.st",)),
}


def _besides(ins, recording):
    """What else a warp has done that has executed this instruction, as a function of the warp, or None."""
    opcode = ins.opcode
    if ins.mnemonic in ("bar", "barrier") and ".warp." not in opcode:
        if ".cluster.wait" in opcode:
            return lambda warp: recording.waited(warp, warp.cta.cluster.barrier)
        return recording.waited_at_named if ".sync" in opcode or ".red" in opcode else None
    found = next((what for start, what in _GROUPS.items() if opcode.startswith(start)), None)
    if found is None:
        return None
    of, queues = found
    # wait_all and tcgen05.wait also wait for work of the open group
    commits = of is Drain and (opcode.startswith(("cp.async.wait_all", "tcgen05.wait")))
    keep = getattr(next(iter(ins.statement.operands), None), "value", 0)

    def groups(warp):
        for name in queues:
            queue = recording.queue((name, warp))
            if of is Commit or commits:
                recording.add(warp, Commit(queue))
            if of is Drain:
                recording.add(warp, Drain(queue, keep))

    return groups


class RecordingDevice(Device):
    """Runs the first `clusters` of a launch's grid, all asynchronous work at issue, and keeps what the warps did in `recording`."""

    _machine = _Machine

    def __init__(self, arch, clusters=1, **settings):
        super().__init__(arch, scheduling="issue", arithmetic="exact", **settings)
        self.clusters = clusters
        self.recording: Recording | None = None

    def launch(self, *arguments, **settings):
        report = super().launch(*arguments, **settings)
        self.recording.close()
        return report

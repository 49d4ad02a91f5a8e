"""The events of a recording on a clock: each starts when what it waits for is there and its unit is free.

Units are the copy engine with its memory, the tensor core of each partition, tensor memory's two ways, and the issue slots of each partition.
Warps and units are looked at in the order of time, so that a unit serves who comes first.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from zoo.clock.chip import PARTITIONS, Chip
from zoo.clock.pieces import Pieces
from zoo.emulator.recording import Access, Arrive, Commit, Drain, Issue, Phase, Recording, Stream, Wait, Work

MEMORY, TENSOR_CORE, SCALES, TENSOR_MEMORY, OTHER_CTAS, NEXT_TILE = (
    "memory", "tensor core", "scale copies", "tensor memory", "other CTAs", "next tile",
)  # fmt: skip
_CAUSES = {
    "copy": MEMORY, "store": MEMORY, "multiply": TENSOR_CORE, "scales": SCALES, "sums": TENSOR_MEMORY, "exchange": OTHER_CTAS,
    "request": NEXT_TILE,
}  # fmt: skip
RUNNING, MATH = "running", "math"
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4}  # of an element; all others count as one


@dataclass(frozen=True)
class Rates:
    """What a multiprocessor gets of memory and L2, which all share."""

    bytes_a_cycle: float
    latency: float  # cycles


@dataclass(frozen=True)
class Span:
    start: float
    end: float
    what: str


class Unit:
    """Does one thing at a time."""

    def __init__(self, name: str):
        self.name = name
        self.free = 0.0
        self.spans: list[Span] = []

    def take(self, at: float, cycles: float) -> float:
        """When work that could start at a time ends."""
        start = max(at, self.free)
        self.free = start + cycles
        if cycles:
            self.spans.append(Span(start, self.free, self.name))
        return self.free

    @property
    def busy(self) -> float:
        return sum(span.end - span.start for span in self.spans)


class Multiprocessor:
    def __init__(self) -> None:
        self.memory = Unit(MEMORY)
        self.tensor_cores = [Unit(TENSOR_CORE) for _ in range(PARTITIONS)]
        self.scales = Unit(SCALES)
        self.sums = [Unit(TENSOR_MEMORY) for _ in range(PARTITIONS)]
        self.issue = [Unit("issue slots") for _ in range(PARTITIONS)]
        self.delays = [0.0] * PARTITIONS  # slots of math warps that its tensor core has not felt yet

    def units(self) -> Iterator[Unit]:
        yield from (self.memory, *self.tensor_cores, self.scales, *self.sums, *self.issue)


@dataclass(eq=False)
class Lane:
    """What a warp did when: runs, or waits for something."""

    stream: Stream
    role: str
    spans: list[Span] = field(default_factory=list)


@dataclass(frozen=True)
class Replay:
    cycles: float
    multiprocessors: dict[int, Multiprocessor]  # by the rank of the CTA
    lanes: list[Lane]


@dataclass
class _Completion:
    """A phase of a barrier on the clock."""

    left: int
    time: float = 0.0
    cause: str = ""
    waiting: list[_Agent] = field(default_factory=list)


@dataclass
class _Queue:
    open: float = 0.0  # when the last work of the open group completes
    closed: list[float] = field(default_factory=list)
    done: float = 0.0
    cause: str = MEMORY


class _Agent:
    """A warp on its way through its stream."""

    def __init__(self, copy: int, lane: Lane, start: float):
        self.copy, self.lane, self.items = copy, lane, lane.stream.items
        self.position, self.time = 0, start
        self.arriving: dict[int, float] = {}  # register -> when a load from global memory fills it


class _Clock:
    def __init__(self, recording: Recording, chip: Chip, rates: Rates, copies: int):
        self._chip, self._rates = chip, rates
        self._pieces = Pieces(recording.instructions, chip)
        self._phases: dict[tuple[int, Phase], _Completion] = {}
        self._queues: dict[tuple[int, int], _Queue] = {}
        self._heap: list[tuple[float, int, _Agent]] = []
        self._numbers = itertools.count()
        self.multiprocessors = {rank: Multiprocessor() for rank in sorted({stream.place[1] for stream in recording.streams})}
        self.lanes = [Lane(stream, role) for stream, role in zip(recording.streams, roles(recording.streams), strict=True)]
        self._copies, self._left = copies, 0  # of each CTA; warps that have not ended
        self.end = 0.0

    def run(self) -> None:
        """Clusters of a place follow each other; `copies` of each share the multiprocessors."""
        for cluster in sorted({lane.stream.place[0] for lane in self.lanes}):
            mine = [lane for lane in self.lanes if lane.stream.place[0] == cluster]
            start = self.end
            for copy in range(self._copies):
                for lane in mine:
                    self._push(_Agent(copy, lane if copy == 0 else Lane(lane.stream, lane.role), start))
            self._left = self._copies * len(mine)
            while self._heap:
                self._step(heapq.heappop(self._heap)[2])
            assert not self._left, "warps wait for arrivals that nobody recorded"

    def _push(self, agent: _Agent) -> None:
        heapq.heappush(self._heap, (agent.time, next(self._numbers), agent))

    def _step(self, agent: _Agent) -> None:
        """A run of instructions, or one event."""
        items = agent.items
        if agent.position == len(items):
            self.end = max(self.end, agent.time)
            self._left -= 1
            return
        item = items[agent.position]
        if isinstance(item, int):
            self._execute(agent)
        elif isinstance(item, Wait):
            phase = self._completion(agent.copy, item.phase)
            if phase.left:
                phase.waiting.append(agent)
                return
            if phase.time + self._chip.barrier_latency > agent.time:
                self._wait(agent, phase.time + self._chip.barrier_latency, phase.cause)
            agent.position += 1
        else:
            agent.position += 1
            if isinstance(item, Issue):
                self._issue(agent, item.work)
            elif isinstance(item, Arrive):
                self._contribute(agent.copy, item.phase, agent.time, agent.lane.role)
            elif isinstance(item, Access):
                self.end = max(self.end, self._sm(agent).memory.take(agent.time, item.bytes / self._rates.bytes_a_cycle))
            elif isinstance(item, Commit):
                queue = self._queue(agent.copy, item.queue)
                queue.closed.append(queue.open)
                queue.open = 0.0
            elif isinstance(item, Drain):
                queue = self._queue(agent.copy, item.queue)
                self._wait(agent, max(queue.closed[: len(queue.closed) - item.keep], default=0.0), queue.cause)
        self._push(agent)

    # ---- warps
    def _execute(self, agent: _Agent) -> None:
        """Instructions up to the next event. They take as long as their chains, and as the partition has slots for them."""
        items, position = agent.items, agent.position
        slots = cycles = stalled = 0.0
        while position < len(items) and isinstance(items[position], int):
            first = last = items[position]
            position += 1
            while position < len(items) and items[position] == last + 1:
                last, position = last + 1, position + 1
            piece = self._pieces.between(first, last)
            stall = 0.0
            for what, register, other in piece.effects:
                if what == "need":
                    stall = max(stall, agent.arriving.get(register, 0.0) - (agent.time + cycles + other))
                elif what == "load":
                    agent.arriving[register] = agent.time + cycles + stall + other + self._rates.latency
                else:
                    agent.arriving[register] = agent.arriving.get(int(other), 0.0)
            slots += piece.slots
            cycles += piece.cycles + stall
            stalled += stall
        agent.position = position
        partition, sm = agent.lane.stream.warp % PARTITIONS, self._sm(agent)
        if agent.lane.role == MATH:
            sm.delays[partition] += slots
        port = sm.issue[partition]
        end = max(agent.time + cycles, port.take(agent.time, slots))
        self._wait(agent, agent.time + stalled, MEMORY)
        agent.lane.spans.append(Span(agent.time, end, RUNNING))
        agent.time = end

    def _wait(self, agent: _Agent, until: float, cause: str) -> None:
        if until > agent.time:
            agent.lane.spans.append(Span(agent.time, until, cause))
            agent.time = until

    def _sm(self, agent: _Agent) -> Multiprocessor:
        return self.multiprocessors[agent.lane.stream.place[1]]

    # ---- barriers and queues
    def _completion(self, copy: int, phase: Phase) -> _Completion:
        found = self._phases.get((copy, phase))
        if found is None:
            found = self._phases[copy, phase] = _Completion(phase.contributions)
        return found

    def _contribute(self, copy: int, phase: Phase, time: float, cause: str) -> None:
        found = self._completion(copy, phase)
        found.left -= 1
        if time >= found.time:
            found.time, found.cause = time, cause
        if not found.left:
            for agent in found.waiting:
                self._push(agent)
            found.waiting.clear()

    def _queue(self, copy: int, number: int) -> _Queue:
        return self._queues.setdefault((copy, number), _Queue())

    # ---- asynchronous work
    def _issue(self, agent: _Agent, work: Work) -> None:
        queue = None if work.queue is None else self._queue(agent.copy, work.queue)
        done, cause = self._done(agent, work, queue)
        if queue is not None:
            queue.open, queue.done, queue.cause = max(queue.open, done), max(queue.done, done), cause
        for phase in work.phases:
            self._contribute(agent.copy, phase, done, cause)
        self.end = max(self.end, done)

    def _done(self, agent: _Agent, work: Work, queue: _Queue | None) -> tuple[float, str]:
        """When the work is complete, and what it was."""
        chip, at = self._chip, agent.time
        sm, cause = self.multiprocessors[work.place[1]], _CAUSES.get(work.unit, MEMORY)
        if work.unit == "copy":
            arrives = sm.memory.take(at, work.bytes / self._rates.bytes_a_cycle) + self._rates.latency
            return arrives + (chip.copy_latency if queue is None else 0.0), cause  # cp.async has a queue
        if work.unit == "store":
            return sm.memory.take(at, work.bytes / self._rates.bytes_a_cycle), cause
        if work.unit == "multiply":
            return self._multiply(agent, work, sm), cause
        if work.unit == "scales":
            return sm.scales.take(at, work.bytes / chip.scale_rate), cause
        if work.unit == "sums":
            return sm.sums[agent.lane.stream.warp % PARTITIONS].take(at, work.bytes / chip.sums_rate), cause
        if work.unit == "exchange":
            return at + chip.exchange_latency, cause
        if work.unit == "request":
            return at + chip.request_latency, cause
        assert queue is not None, "a signal follows the work of its queue"
        return max(at, queue.done), queue.cause

    def _multiply(self, agent: _Agent, work: Work, sm: Multiprocessor) -> float:
        """wgmma runs on the partition of its warp. tcgen05.mma runs on all partitions of a CTA, or of a pair of CTAs, at once."""
        chip = self._chip
        cycles = core_cycles(work, chip)
        if work.cores == 1:
            partition = agent.lane.stream.warp % PARTITIONS
            if work.shared_rows == work.columns:  # A comes from registers
                cycles += chip.delay_of_registers * sm.delays[partition]
            sm.delays[partition] = 0.0
            return sm.tensor_cores[partition].take(agent.time, cycles) + chip.multiply_latency
        together = [core for one in (sm, self.multiprocessors[work.peer[1]] if work.peer else sm) for core in one.tensor_cores]
        start = max(agent.time, sm.scales.free, *(core.free for core in together))
        for core in dict.fromkeys(together):
            core.take(start, cycles)
        return start + cycles + (chip.pair_latency if work.peer else chip.multiply_latency)


def core_cycles(work: Work, chip: Chip) -> float:
    """Cycles in which a multiplication occupies its tensor cores: they compute, or wait for operands in shared memory."""
    width = 0.5 if work.kind in ("mxf4", "mxf4nvf4") else _BYTES.get(work.kind, 1)  # of an element
    rows = work.rows // (2 if work.peer else 1)
    computing = rows * work.columns * work.depth * width / (chip.products * work.cores / PARTITIONS)
    return max(computing, work.shared_rows * work.depth * width / chip.shared_rate)


def roles(streams: list[Stream]) -> list[str]:
    """A word for each warp, from what it does: math (wgmma), multiply (tcgen05.mma), epilogue, copies, scales, others."""
    moved = [_moved(stream) for stream in streams]
    most = max(moved, default=0)
    return [_role(stream, count, most) for stream, count in zip(streams, moved, strict=True)]


def _moved(stream: Stream) -> int:
    """Bytes that a warp brings into shared memory."""
    return sum(item.work.bytes for item in stream.items if isinstance(item, Issue) and item.work.unit == "copy")


def _role(stream: Stream, moved: int, most: int) -> str:
    works = {item.work.unit: item.work for item in stream.items if isinstance(item, Issue)}
    if "multiply" in works:
        return MATH if works["multiply"].cores == 1 else "multiply"
    if "sums" in works:
        return "epilogue"
    if moved:
        return "copies" if 4 * moved >= most else "scales"
    return "scales" if any(isinstance(item, Access) and not item.writes for item in stream.items) else "others"


def replay(recording: Recording, chip: Chip, rates: Rates, copies: int = 1) -> Replay:
    clock = _Clock(recording, chip, rates, copies)
    clock.run()
    return Replay(clock.end, clock.multiprocessors, clock.lanes)

"""Asynchronous operations: issued now, executed when the policy says so.

Policies: "issue" executes an operation when it is issued; "last" only when somebody needs it and nothing else can run;
"random" at a random moment in between, by the run's seed. Values are the same under all three in a correct kernel.
"""

import operator
from collections import deque

import numpy as np

from .memory import sorted_unique

POLICIES = ("issue", "last", "random")


class Operation:
    """See instructions/__init__.py for the meaning of the arguments."""

    __slots__ = (
        "ins",
        "warp",
        "lanes",
        "execute",
        "queue",
        "reads",
        "writes",
        "signals",
        "registers",
        "register_sources",
        "unused",
        "copies",
        "executed",
        "waited",
        "settle",
        "number",
    )

    def __init__(
        self, ins, warp, lanes, execute, *, queue=None, reads=(), writes=(), signals=(), registers=(), register_sources=(), settle=None
    ):
        self.ins, self.warp, self.lanes, self.execute, self.queue = ins, warp, lanes, execute, queue
        self.reads = [(cta, _granules(offsets)) for cta, offsets in reads]
        self.writes = [(cta, _granules(offsets), offsets) for cta, offsets in writes]
        self.signals = signals
        self.registers = _register_ids(ins, registers)
        self.register_sources = _register_ids(ins, register_sources)
        self.unused = set(self.registers)  # that nothing has read yet
        self.copies = {}  # register -> which of `registers` it holds copies of
        self.settle = settle  # called with the warp's tick when the warp has waited for it
        self.executed = self.waited = False
        self.number = 0  # in the order in which unordered ones were issued


def _granules(offsets):
    """16-byte granules of a (low, high) range (a slice) or of an array of byte offsets (sorted unique numbers)."""
    if isinstance(offsets, tuple):
        return slice(int(offsets[0]) >> 4, (int(offsets[1]) + 15) >> 4)
    return sorted_unique(np.asarray(offsets, np.int64).reshape(-1) >> 4)


def _register_ids(ins, registers):
    """Register numbers of slots (a list of int) or rows (numpy arrays)."""
    if isinstance(registers, np.ndarray):
        registers = [registers]
    found = []
    for item in registers:
        if isinstance(item, np.ndarray):
            found.extend(ins.layout.register_of_row[int(row)] for row in item)
        elif item is not None:
            number = ins.layout.register_of_slot.get(item)
            if number is not None:
                found.append(number)
    return found


_number = operator.attrgetter("number")


class Engine:
    """All pending operations of a launch."""

    def __init__(self, machine, policy, rng):
        self.machine, self.policy, self.rng = machine, policy, rng
        self.queues = {}  # key -> deque of operations, oldest first
        self.free = {}  # unordered operations in order of issue (a dict as an ordered set)
        self.groups = {}  # key -> (list of closed groups, oldest first; the open group)
        self.keys_of = {}  # CTA -> keys that it has issued operations under (a dict as a set)
        # What pending operations signal, by the address of the mbarrier: of unordered ones which, in order of issue; of queued ones how many.
        self.free_signals, self.queued_signals = {}, {}
        self.count = 0  # of unordered operations that were issued

    # ---- issue and execution
    def issue(self, operation):
        for cta, granules in operation.reads:
            cta.shared.sources[granules] += 1
            cta.shared.pending += 1
        for cta, granules, offsets in operation.writes:
            shared = cta.shared
            shared.destinations[granules] += 1
            shared.pending += 1
            shared.valid[slice(*offsets) if isinstance(offsets, tuple) else np.asarray(offsets).reshape(-1)] = 0
        pending, locked = operation.warp.pending_registers, operation.warp.locked_registers
        for number in operation.registers:
            pending[number] = operation
        for number in operation.register_sources:
            locked[number] = operation
        if operation.queue is None:
            self.free[operation] = None
            operation.number = self.count
            self.count += 1
            for address in operation.signals:
                self.free_signals.setdefault(address, {})[operation] = None
        else:
            for address in operation.signals:
                self.queued_signals[address] = self.queued_signals.get(address, 0) + 1
            self.queues.setdefault(operation.queue, deque()).append(operation)
            groups = self.groups.get(operation.queue)
            if groups is None:
                groups = self.groups[operation.queue] = ([], [])
            groups[1].append(operation)
            self.keys_of.setdefault(operation.warp.cta, {})[operation.queue] = None
        if self.policy == "issue":
            self.finish(operation)

    def finish(self, operation):
        """Execute it now, and first everything before it in its queue."""
        if operation.executed:
            return
        if operation.queue is None:
            del self.free[operation]
            for address in {*operation.signals}:
                of_address = self.free_signals[address]
                del of_address[operation]
                if not of_address:
                    del self.free_signals[address]
            self._execute(operation)
            return
        queue = self.queues[operation.queue]
        while not operation.executed:
            first = queue.popleft()
            for address in first.signals:
                left = self.queued_signals.pop(address) - 1
                if left:
                    self.queued_signals[address] = left
            self._execute(first)
        if not queue:
            self.queues.pop(operation.queue, None)

    def _execute(self, operation):
        operation.executed = True
        for cta, granules in operation.reads:
            cta.shared.sources[granules] -= 1
            cta.shared.pending -= 1
        for cta, granules, _ in operation.writes:
            cta.shared.destinations[granules] -= 1
            cta.shared.pending -= 1
        locked = operation.warp.locked_registers
        for number in operation.register_sources:
            if locked.get(number) is operation:
                del locked[number]
        operation.execute()

    def wait(self, operation):
        """Finish it and make its registers usable."""
        self.finish(operation)
        if not operation.waited:
            operation.waited = True
            self.release_registers(operation)
            if operation.settle is not None:
                operation.settle(int(operation.warp.clocks[0, operation.warp.number]))

    def release_registers(self, operation):
        """Its destination registers, and copies of them, are ordinary registers again."""
        pending = operation.warp.pending_registers
        for number in [number for number, owner in pending.items() if owner is operation]:
            del pending[number]

    # ---- queues and groups
    def close_group(self, key):
        closed, open_group = self.groups.setdefault(key, ([], []))
        closed.append(list(open_group))
        open_group.clear()

    def wait_queue(self, key, keep=0):
        """Wait for all closed groups but the `keep` youngest."""
        groups = self.groups.get(key)
        if groups is None:
            return
        closed = groups[0]
        ready = closed[: max(0, len(closed) - keep)]
        for group in ready:
            for operation in group:
                self.wait(operation)
        del closed[: len(ready)]

    # ---- policies
    def step(self):
        """Random policy: now and then something completes on its own."""
        if self.policy == "random" and (self.free or self.queues) and self.rng.random() < 0.15:
            self._one(list(self.free) + [queue[0] for queue in self.queues.values()])

    def _one(self, candidates):
        self.finish(candidates[int(self.rng.integers(len(candidates)))])

    def relieve(self, wanted):
        """Nothing else can run: execute something that signals a wanted mbarrier, or else anything. False when nothing is pending."""
        if self.policy == "random":
            candidates = list(self.free) + [queue[0] for queue in self.queues.values()]
            if candidates:
                self._one(candidates)
            return bool(candidates)
        # the youngest first: the opposite of what a kernel is likely to rely on
        youngest = [next(reversed(self.free_signals[address])) for address in wanted if address in self.free_signals]
        if youngest:
            self.finish(max(youngest, key=_number))
            return True
        if not wanted.isdisjoint(self.queued_signals):
            for queue in self.queues.values():
                for operation in queue:
                    if not wanted.isdisjoint(operation.signals):
                        self.finish(operation)
                        return True
        for operation in self.free:
            self.finish(operation)
            return True
        for queue in self.queues.values():
            self.finish(queue[0])
            return True
        return False

    def of_cta(self, cta):
        """Unfinished operations issued by a CTA."""
        found = [operation for operation in self.free if operation.warp.cta is cta]
        for queue in self.queues.values():
            found.extend(operation for operation in queue if operation.warp.cta is cta)
        return found

    def forget_cta(self, cta):
        """The CTA is gone: its closed groups cannot be waited for any more."""
        for key in self.keys_of.pop(cta, ()):
            if key not in self.groups or key in self.queues:
                continue
            operations = [operation for group in self.groups[key][0] for operation in group] + self.groups[key][1]
            if operations and all(operation.warp.cta is cta for operation in operations):
                del self.groups[key]

    # ---- for reports
    def _all(self):
        yield from self.free
        for queue in self.queues.values():
            yield from queue

    def writer_of(self, cta, offset):
        return self._owner(cta, offset, "writes")

    def reader_of(self, cta, offset):
        return self._owner(cta, offset, "reads")

    def _owner(self, cta, offset, side):
        granule = offset >> 4
        for operation in self._all():
            for owner, granules, *_ in getattr(operation, side):
                if owner is cta and (granules.start <= granule < granules.stop if isinstance(granules, slice) else granule in granules):
                    return operation
        return None

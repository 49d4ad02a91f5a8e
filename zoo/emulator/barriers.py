"""mbarriers, named barriers and cluster barriers: state, phases, and the rules their users must keep to."""

import numpy as np

from . import clocks as vector_clocks
from .errors import EmulatorError

COUNT_LIMIT = (1 << 20) - 1


class MBarrier:
    """Phase number, expected and pending arrivals, pending bytes; and who has seen what."""

    __slots__ = (
        "cta",
        "offset",
        "phase",
        "expected",
        "pending",
        "tx",
        "gather",
        "published",
        "observed",
        "used",
        "init_by",
        "released_remotely",
    )

    def __init__(self, cta, offset, count, warps, init_by):
        self.cta, self.offset = cta, offset
        self.phase, self.expected, self.pending, self.tx = 0, count, count, 0
        self.gather = np.zeros((vector_clocks.ROWS, warps), np.uint32)
        self.published = np.zeros((vector_clocks.ROWS, warps), np.uint32)
        self.observed = True  # the preceding phase has been waited for (there is none yet)
        self.used = False
        self.init_by = init_by  # (warp number, tick) of the init
        self.released_remotely = False  # a thread of another CTA has ever arrived with a release

    def describe(self):
        return (
            f"mbarrier at CTA rank {self.cta.rank} offset {self.offset:#x}: phase {self.phase}, {self.pending} of {self.expected} arrivals pending, "
            f"tx-count {self.tx}"
        )


class MBarriers:
    """All mbarrier operations of a machine, by 32-bit cluster shared address."""

    def __init__(self, machine):
        self.machine = machine

    def find(self, ins, warp, lanes, address, what):
        """The live barrier at an address, or None after a report."""
        try:
            cta, offset = self.machine.target(address, warp)
        except EmulatorError as error:
            ins.report(warp, lanes, "out-of-bounds", str(error), address)
            return None
        barrier = cta.shared.barriers.get(offset)
        if barrier is None:
            kind = "misaligned" if offset % 8 else "mbarrier-misuse"
            ins.report(
                warp, lanes, kind, f"{what} at CTA rank {cta.rank} shared offset {offset:#x}, where no mbarrier is initialised", address
            )
            return None
        if cta.exited:
            ins.report(warp, lanes, "exited-cta", f"{what} addresses CTA rank {cta.rank}, which has exited", address)
        return barrier

    def init(self, ins, warp, lanes, address, count):
        cta, offset = self.machine.target(address, warp)
        if cta is not warp.cta:
            ins.report(warp, lanes, "mbarrier-misuse", "mbarrier.init on another CTA's shared memory", address)
        if offset % 8:
            ins.report(warp, lanes, "misaligned", f"an mbarrier needs 8-byte alignment, offset {offset:#x}", address)
            return
        shared = cta.shared
        if not shared.in_bounds(ins, warp, lanes, offset, offset + 8, "mbarrier.init of"):
            return
        if not 1 <= count <= COUNT_LIMIT:
            ins.report(warp, lanes, "mbarrier-misuse", f"an mbarrier's count must be 1..{COUNT_LIMIT}, not {count}", address)
        if offset in shared.barriers:
            ins.report(warp, lanes, "mbarrier-misuse", f"init over a live mbarrier ({shared.barriers[offset].describe()})", address)
        warps = warp.clocks.shape[1]
        shared.before_write(ins, warp, lanes, np.array([offset]), 8) if offset not in shared.barriers else None
        shared.barriers[offset] = MBarrier(cta, offset, count, warps, (warp.number, int(warp.clocks[0, warp.number])))
        shared.barrier_words[offset >> 3] = True
        shared.valid[offset : offset + 8] = 0  # nobody may read what is opaque

    def invalidate(self, ins, warp, lanes, address):
        barrier = self.find(ins, warp, lanes, address, "mbarrier.inval")
        if barrier is not None:
            if barrier.init_by[1] > warp.clocks[0, barrier.init_by[0]]:
                self._unordered(ins, warp, lanes, barrier)
            shared = barrier.cta.shared
            del shared.barriers[barrier.offset]
            shared.barrier_words[barrier.offset >> 3] = False

    def check_published(self, ins, warp, lanes, barrier, clocks=None, by_copy=False):
        """Has this user a right to know that the barrier is initialised? A bulk copy needs a fence even in the CTA itself; ptxas makes nothing of it."""
        known = warp.clocks if clocks is None else clocks
        number, tick = barrier.init_by
        own = barrier.cta is warp.cta
        if tick > known[2, number] and (by_copy or not own or tick > known[0, number]):
            self._unordered(ins, warp, lanes, barrier, by_copy, "warning" if own and tick <= known[0, number] else "error")

    def _unordered(self, ins, warp, lanes, barrier, by_copy=False, severity="error"):
        name = self.machine.name_of_warp(barrier.cta, barrier.init_by[0])
        how = "a barrier" if barrier.cta is warp.cta else "fence.mbarrier_init (or a release at cluster scope) and a cluster barrier"
        if by_copy and barrier.cta is warp.cta:
            how = "fence.mbarrier_init or fence.proxy.async by that warp (and a barrier, if it is another)"
        ins.report(
            warp, lanes, "mbarrier-misuse", f"nothing orders the init by {name} before this use: it needs {how} in between ({barrier.describe()})",
            barrier.offset, severity,
        )  # fmt: skip

    def expect_tx(self, ins, warp, lanes, address, nbytes, clocks=None):
        barrier = self.find(ins, warp, lanes, address, "expect_tx")
        if barrier is not None:
            self.check_published(ins, warp, lanes, barrier, clocks)
            self._add_tx(ins, warp, lanes, barrier, nbytes)
            self._complete_if_done(barrier)

    def _add_tx(self, ins, warp, lanes, barrier, nbytes):
        barrier.tx += nbytes
        barrier.used = True
        if not -COUNT_LIMIT <= barrier.tx <= COUNT_LIMIT:
            ins.report(
                warp, lanes, "mbarrier-misuse", f"the tx-count leaves its range of +-{COUNT_LIMIT} ({barrier.describe()})", barrier.offset
            )

    def complete_tx(self, ins, warp, lanes, address, nbytes, clocks=None):
        barrier = self.find(ins, warp, lanes, address, "complete_tx")
        if barrier is not None:
            self._add_tx(ins, warp, lanes, barrier, -nbytes)
            if clocks is not None:
                vector_clocks.release(barrier.gather, warp, lanes, clocks)
                barrier.gather[0, -1] = barrier.cta.cluster.asynchronous_tick
            self._complete_if_done(barrier)

    def arrive(self, ins, warp, lanes, address, count=1, clocks=None, *, expect=0, relaxed=False, drop=False, complete=True):
        """Arrive `count` times after adding `expect` bytes. Returns the state word (phase and pending count before the arrival)."""
        barrier = self.find(ins, warp, lanes, address, "an arrive")
        if barrier is None:
            return 0
        self.check_published(ins, warp, lanes, barrier, clocks)
        if not barrier.observed:
            ins.report(
                warp, lanes, "mbarrier-phase",
                f"an arrive in phase {barrier.phase} while nobody has observed that phase {barrier.phase - 1} completed ({barrier.describe()})", barrier.offset,
            )  # fmt: skip
            barrier.observed = True
        if expect:
            self._add_tx(ins, warp, lanes, barrier, expect)
        barrier.used = True
        state = (barrier.phase << 24) | barrier.pending
        if drop:
            barrier.expected -= count
        barrier.pending -= count
        if relaxed:
            vector_clocks.release_execution(barrier.gather, warp)
            vector_clocks.release_fenced(barrier.gather, warp)
        else:
            vector_clocks.release(barrier.gather, warp, lanes, clocks)
            if clocks is None and warp.cta is not barrier.cta:
                barrier.released_remotely = True
        if barrier.pending < 0:
            ins.report(warp, lanes, "mbarrier-misuse", f"more arrivals than expected in one phase ({barrier.describe()})", barrier.offset)
            barrier.pending = 0
        if not complete and barrier.pending == 0 and barrier.tx == 0:
            ins.report(warp, lanes, "mbarrier-misuse", f"arrive.noComplete completes the phase ({barrier.describe()})", barrier.offset)
        self._complete_if_done(barrier)
        return state

    def _complete_if_done(self, barrier):
        if barrier.pending == 0 and barrier.tx == 0:
            barrier.phase += 1
            barrier.pending = barrier.expected
            barrier.published = barrier.gather.copy()
            barrier.observed = False
            self.machine.progress += 1

    def observe(self, warp, barrier, acquire=True):
        """A successful wait."""
        barrier.observed = True
        if acquire:
            vector_clocks.acquire(warp, barrier.published)
        else:
            vector_clocks.acquire_execution(warp, barrier.published)
            vector_clocks.remember(warp, barrier.published)

    def check_exit(self, cta, report):
        for barrier in cta.shared.barriers.values():
            if barrier.used and (barrier.pending != barrier.expected or barrier.tx):
                # No rule of the manual is broken while no bytes are expected: `cuda::barrier` pipelines leave their barriers like this.
                report("mbarrier-exit", f"the CTA exits in the middle of a phase: {barrier.describe()}", "error" if barrier.tx else "note")


NAMED_BARRIERS = 16


class NamedBarrier:
    """One of the sixteen barriers of a CTA. A barrier without a thread count expects the threads that have not exited."""

    __slots__ = ("number", "expected", "of_all", "arrived", "phase", "gather", "published", "value", "result")

    def __init__(self, number, warps):
        self.number = number
        self.expected, self.of_all, self.arrived, self.phase = None, False, 0, 0
        self.gather = np.zeros((vector_clocks.ROWS, warps), np.uint32)
        self.published = self.gather.copy()
        self.value, self.result = None, None

    def describe(self):
        return f"named barrier {self.number}: {self.arrived} of {self.expected} threads arrived"

    def arrive(self, ins, warp, lanes, threads, expected):
        """`expected`: the instruction's thread count, or None."""
        of_all = expected is None
        if of_all:
            expected = warp.cta.live_threads()
        elif expected <= 0 or (expected % 32 and expected != warp.cta.threads):
            ins.report(warp, lanes, "barrier-misuse", f"a named barrier's thread count must be a positive multiple of 32, not {expected}")
        if self.arrived and self.expected != expected:
            ins.report(
                warp,
                lanes,
                "barrier-misuse",
                f"threads arrive with different counts at one barrier: {self.expected} and {expected} (named barrier {self.number})",
            )
        self.of_all = of_all and (self.of_all or not self.arrived)
        self.expected = expected
        self.arrived += threads
        vector_clocks.release_in_cta(self.gather, warp, lanes)
        if self.arrived > expected:
            ins.report(
                warp, lanes, "barrier-misuse", f"{self.arrived} threads arrive at named barrier {self.number}, which expects {expected}"
            )
        self._complete_if_done()
        warp.machine.progress += 1

    def without_exited(self, cta):
        """Threads of the CTA have exited, and the barrier waits for the others alone."""
        if self.arrived and self.of_all:
            self.expected = cta.live_threads()
            self._complete_if_done()

    def _complete_if_done(self):
        if self.arrived >= self.expected:
            self.arrived = 0
            self.phase += 1
            self.published = self.gather.copy()
            self.result, self.value = self.value, None


class ClusterBarrier:
    """The barrier of a cluster: every non-exited thread arrives once in each phase, then waits."""

    __slots__ = ("cluster", "arrived", "phase", "gather", "published")

    def __init__(self, cluster, warps):
        self.cluster = cluster
        self.arrived, self.phase = 0, 0
        self.gather = np.zeros((vector_clocks.ROWS, warps), np.uint32)
        self.published = self.gather.copy()

    def describe(self):
        return f"cluster barrier: {self.arrived} of {self.expected()} threads arrived in phase {self.phase}"

    def expected(self):
        return sum(warp.live.bit_count() for cta in self.cluster.ctas for warp in cta.warps)

    def missing(self, warp):
        """Live lanes of a warp that have not arrived in this phase."""
        return warp.live & ~(warp.cluster_arrived if warp.cluster_phase == self.phase else 0)

    def arrive(self, ins, warp, lanes, relaxed):
        if warp.cluster_arrived & lanes:
            ins.report(warp, lanes, "barrier-misuse", "a thread arrives twice at the cluster barrier without a wait in between")
        warp.cluster_arrived |= lanes
        warp.cluster_phase = self.phase
        self.arrived += lanes.bit_count()
        if relaxed:
            vector_clocks.release_relaxed(self.gather, warp)
            vector_clocks.release_fenced(self.gather, warp)
        else:
            vector_clocks.release(self.gather, warp, lanes)
        self.complete_if_done()
        warp.machine.progress += 1

    def without_exited(self, warp):
        """Some lanes of a warp exit: only the others are waited for (a thread may arrive and exit without waiting)."""
        vector_clocks.left(self.gather, warp)
        if warp.machine.cluster_barrier_used:
            self.complete_if_done()

    def complete_if_done(self):
        if self.arrived and not any(self.missing(warp) for cta in self.cluster.ctas for warp in cta.warps):
            self.arrived = 0
            self.phase += 1
            self.published = self.gather.copy()

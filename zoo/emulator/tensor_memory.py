"""Tensor memory of one CTA: 128 lanes x 512 columns of 32 bits, its allocation, and who may touch a cell when.

Besides the values every cell has a valid bit, and every (16 lanes, column) remembers its last writer and reader as an `Access`: a product of
64 rows occupies 16 lanes of every quarter, and the other 16 may hold another matrix.
The order of two accesses is judged by what barriers carry from warp to warp (rows 3 and 4 of clocks.py):

* work done by the tensor core (mma, cp) is complete for a warp that knows of a tcgen05.commit that follows it, from its mbarrier or from
  somebody who waited there;
* tcgen05.ld and .st are complete after tcgen05.wait of their own warp;
* the tensor core runs what one thread issues in order, except that a cp may overtake an mma, and a cp and a shift each other. A cp over what
  an mma reads is a warning: the manual does not order the two, but GPUs do, and CUTLASS and DeepGEMM replace scales so;
* between two warps a tcgen05.fence::before_thread_sync (a commit implies it) and a ::after_thread_sync must surround the synchronisation.
  The manual lets the standard mechanisms order tcgen05 as well: a load or store that has been waited for needs no fences around a release and
  an acquire. Products behind an acquire without the fence are a warning: the manual's patterns have it, GPUs and CUTLASS do without.
"""

import numpy as np

from .lanes import first_lane

LANES, COLUMNS, LANES_OF_A_PART = 128, 512, 16
PARTS = LANES // LANES_OF_A_PART
ALL_LANES = slice(0, PARTS)
ADDRESS_MASK = 0x007F_01FF  # 7 lane bits, 9 column bits; the others are ignored
NOT_YET = 1 << 62


class Access:
    """One tcgen05 instruction's use of tensor memory.

    `commit`: for mma and cp, the number of the warp's first commit after it. `waited` and `fenced`: the warp's tick at the wait (of mma and cp
    at the commit), and at the before_thread_sync fence, that cover it.
    """

    __slots__ = ("ins", "warp", "lane", "kind", "commit", "waited", "fenced")

    def __init__(self, ins, warp, lanes, kind):
        self.ins, self.warp, self.lane, self.kind = ins, warp, first_lane(lanes), kind  # kind: mma, cp, shift, ld, st
        self.commit = self.waited = self.fenced = NOT_YET

    @property
    def by_core(self):
        return self.kind in ("mma", "cp", "shift")

    def complete_for(self, clocks):
        """Does somebody with these clocks know that the access is complete?"""
        number = self.warp.number
        return self.commit <= clocks[4, number] if self.by_core else self.waited <= clocks[3, number]

    def released_to(self, clocks):
        """Does somebody with these clocks know of its completion by a release and an acquire?"""
        return self.waited <= clocks[0, self.warp.number]

    def __str__(self):
        return f"`{self.ins.text}` (PTX line {self.ins.line}) of warp {self.warp.index} of CTA rank {self.warp.cta.rank}"


def _run_in_order(old, new):
    """Of two of one thread's products, copies and shifts."""
    if new.kind == "cp":
        return old.kind == "cp" or (old.kind == "shift" and ".4x256b" in new.ins.opcode)
    return (old.kind, new.kind) != ("cp", "shift")


class TensorMemory:
    """Cells, valid bits, allocations and access records."""

    def __init__(self, cta):
        self.cta = cta
        self.cells = np.zeros((LANES, COLUMNS), np.uint32)
        self.valid = np.zeros((LANES, COLUMNS), bool)
        # Cells made of memory that nobody wrote: 1 + the pc of the product or store that made them, 0 elsewhere.
        self.garbage = np.zeros((LANES, COLUMNS), np.uint32)
        self.allocated = np.zeros(COLUMNS, bool)
        self.allocations = {}  # first column -> number of columns
        self.last_size = None
        self.relinquished = False
        self.writers = np.full((PARTS, COLUMNS), None, object)
        self.readers = np.full((PARTS, COLUMNS), None, object)
        self.requests = {}  # warp -> request of a pending collective allocation

    # ---- allocation
    def find_space(self, count):
        """First column of a free run of `count` columns, or None. Runs are aligned to their size."""
        for first in range(0, COLUMNS, count):
            if not self.allocated[first : first + count].any():
                return first
        return None

    def allocate(self, first, count):
        self.allocations[first] = count
        self.allocated[first : first + count] = True
        self.valid[:, first : first + count] = False
        self.last_size = count

    def free(self, first):
        count = self.allocations.pop(first)
        part = slice(first, first + count)
        self.allocated[part] = False
        self.valid[:, part] = False
        self.writers[:, part] = None
        self.readers[:, part] = None

    def check_exit(self, report):
        for first, count in self.allocations.items():
            report("tensor-memory-leak", f"{count} columns of tensor memory from column {first} are not deallocated when the CTA exits")

    def put(self, rows, columns, values, valid=True, garbage=0):
        self.cells[rows, columns] = values
        self.valid[rows, columns] = valid
        self.garbage[rows, columns] = garbage

    # ---- checks
    def in_bounds(self, ins, warp, lanes, first, count, what):
        """Are the columns inside an allocation? Reports when not."""
        if first + count > COLUMNS:
            ins.report(
                warp,
                lanes,
                "tensor-memory-misuse",
                f"{what} columns {first}..{first + count - 1} of CTA rank {self.cta.rank}; there are {COLUMNS}",
                first,
            )
            return False
        inside = self.allocated[first : first + count]
        if not inside.all():
            column = first + int(np.argmin(inside))
            ins.report(
                warp, lanes, "tensor-memory-misuse",
                f"{what} columns {first}..{first + count - 1} of CTA rank {self.cta.rank}, but column {column} is not allocated", column,
            )  # fmt: skip
            return False
        return True

    def check_use(self, ins, warp, lanes, access, parts, first, count, *, reads, writes):
        """Order of this access after the ones before it; then it takes their place. parts: a slice of 0..7, 16 lanes each."""
        part = (parts, slice(first, first + count))
        for old in dict.fromkeys(self.writers[part].reshape(-1).tolist()):
            if old is not None and old is not access:
                self._check_order(ins, warp, lanes, access, old, "writes" if not reads else "uses", "wrote")
        if writes:
            for old in dict.fromkeys(self.readers[part].reshape(-1).tolist()):
                if old is not None and old is not access:
                    self._check_order(ins, warp, lanes, access, old, "writes", "reads")
            self.writers[part] = access
            self.readers[part] = None
        elif reads:
            self.readers[part] = access

    def _check_order(self, ins, warp, lanes, access, old, verb, did):
        what = f"it {verb} tensor memory that {old} {did}"
        own = old.warp is warp
        number = old.warp.number
        clocks, after = warp.clocks, warp.state.get("tcgen05 after")
        in_order = _run_in_order(old, access) if access.by_core else old.kind == access.kind
        if own and in_order and old.by_core == access.by_core and (not old.by_core or old.lane == access.lane):
            return
        # cp before mma is a pair that the fences alone put in order; everything else must be complete
        pipelined = old.kind == "cp" and access.kind == "mma" and old.fenced <= clocks[3, number]
        if not pipelined and not old.complete_for(clocks):
            if old.by_core:
                why = "this warp does not know that it is complete: it needs tcgen05.commit and a wait for its mbarrier"
            elif old.waited == NOT_YET:
                why = f"it has not been waited for with tcgen05.wait::{old.kind}"
            else:
                why = "nothing orders the two"
            replaces = own and old.lane == access.lane and (old.kind, access.kind, did) == ("mma", "cp", "reads")
            ins.report(warp, lanes, "missing-wait", f"{what}, and {why}", severity="warning" if replaces else "error")
        elif old.by_core and not pipelined:
            if after is None or old.commit > after[4, number]:
                ins.report(
                    warp,
                    lanes,
                    "missing-tcgen05-fence",
                    f"{what}: it needs tcgen05.fence::after_thread_sync after the wait for its commit",
                    severity="warning" if own or old.released_to(clocks) else "error",
                )
        elif not own and (pipelined or not old.released_to(clocks)):
            if old.fenced > clocks[3, number]:
                ins.report(
                    warp,
                    lanes,
                    "missing-tcgen05-fence",
                    f"{what}: its warp needs tcgen05.fence::before_thread_sync before the synchronisation",
                )
            elif after is None or old.fenced > after[3, number]:
                ins.report(
                    warp,
                    lanes,
                    "missing-tcgen05-fence",
                    f"{what}: this warp needs tcgen05.fence::after_thread_sync after the synchronisation",
                )

    def check_free(self, ins, warp, lanes, first, count):
        """Everything that used the columns must be known to be complete."""
        part = (ALL_LANES, slice(first, first + count))
        for old in dict.fromkeys(self.writers[part].reshape(-1).tolist() + self.readers[part].reshape(-1).tolist()):
            if old is None:
                continue
            if not old.complete_for(warp.clocks):
                never = (old.commit if old.by_core else old.waited) == NOT_YET
                how = "nobody has waited for it" if never else "nothing orders its completion before this"
                ins.report(
                    warp,
                    lanes,
                    "tensor-memory-misuse",
                    f"columns {first}..{first + count - 1} are freed while {old} may still use them: {how}",
                )

    def check_valid(self, ins, warp, lanes, rows, columns, what):
        """Were the cells written? rows and columns index the cells."""
        valid = self.valid[rows, columns]
        if not valid.all():
            row, column = np.broadcast_arrays(rows, columns)
            bad = ~np.broadcast_to(valid, row.shape)
            ins.report(
                warp, lanes, "uninitialised-tensor-memory",
                f"{what}: {int(bad.sum())} cells of CTA rank {self.cta.rank} were never written, the first is lane {int(row[bad][0])}, column {int(column[bad][0])}",
                int(column[bad][0]),
            )  # fmt: skip

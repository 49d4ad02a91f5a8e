"""Memories with shadows: global, shared (per CTA) and per-lane local memory, and the windows of the generic address space.

Shadows of shared memory, all per CTA
    valid          one byte per byte: was it written?
    epochs         per 4-byte word, the last write as tick << 10 | column of clock arrays (a warp, or the asynchronous proxy); 0 = nobody
    read_clocks    per warp and word, the reader's clock at its last read
    writers        per 4-byte word, the pc of the last write, for reports
    readers        per 4-byte word, the last read as pc << 10 | warp, for reports
    destinations   per 16-byte granule, pending asynchronous operations that will write it
    sources        per 16-byte granule, pending asynchronous operations that still read it
A warp is one agent in these checks: two lanes of one warp are taken as ordered, but for what lane_order.py says.
"""

from bisect import bisect_left, bisect_right, insort
from contextlib import contextmanager

import numpy as np

from . import doubts, lane_order, past_loads
from .clocks import DEPENDENCY
from .errors import EmulatorError
from .lanes import FULL, bits_of, first_lane, mask_of

GLOBAL_BASE = 0x7000_0000_0000
CODE_BASE = 0x0400_0000_0000  # addresses of functions: no memory, so accesses there are out of bounds
LOCAL_BASE = 0x0100_0000_0000
SHARED_BASE = 0x0200_0000_0000
PARAM_BASE = 0x0300_0000_0000

GUARD = 1 << 20  # unallocated bytes between two allocations
FIRST_BYTES = 32 * GUARD  # of an arena: growing copies it, and what nobody touches costs nothing
WARP_BITS = 10
WARP_MASK = np.uint32((1 << WARP_BITS) - 1)
_WARP_SHIFT = np.uint32(WARP_BITS)
_NEVER = (1 << 32 - WARP_BITS) - 1  # a tick that no clock reaches

ALLOCATED, WRITTEN, READ = 1, 2, 4
_SIZES = (1, 2, 4, 8, 16, 32)


def _ones(size, value):
    """The shadow word of `size` (<= 8) bytes that all hold `value`."""
    return np.array([value] * size, np.uint8).view(np.dtype(f"u{size}"))[0]


_unique = {}


def sorted_unique(numbers):
    """np.unique, remembered: a kernel's matrix operands lie at few different places, and looking them up is ten times faster."""
    key = numbers.dtype.char, numbers.tobytes()
    found = _unique.get(key)
    if found is None:
        if len(_unique) > 4096:
            _unique.clear()
        found = _unique[key] = np.unique(numbers)
    return found


def _views(flat):
    """size -> array whose row i is the size bytes at i * size (16 and 32 as two and four 64-bit words)."""
    views = {size: flat.view(np.dtype(f"u{size}")) for size in (1, 2, 4, 8)}
    views[16] = views[8][: views[8].size // 2 * 2].reshape(-1, 2)
    views[32] = views[8][: views[8].size // 4 * 4].reshape(-1, 4)
    return views


def _word_views(words):
    """size of an access -> array whose row i is the words that the access touches."""
    return {**dict.fromkeys((1, 2, 4), words), 8: words.reshape(-1, 2), 16: words.reshape(-1, 4), 32: words.reshape(-1, 8)}


def _aligned_start(low, align):
    return -(-(low + GUARD) // align) * align


class GlobalMemory:
    """One arena with guard gaps; state: bit 0 allocated, bit 1 written. Address = GLOBAL_BASE + index.

    An allocation takes the lowest hole in which it has GUARD bytes on both sides. Freed memory is part of a hole at once.
    """

    def __init__(self):
        self.starts, self.sizes = [], {}  # the allocations: starts in order, start -> size
        self.holes = [(0, FIRST_BYTES)]  # (start, end) of gaps with room for an allocation, in order
        self.size = 0
        self.marks = None  # of split.py: views of what is READ and WRITTEN
        self._resize(FIRST_BYTES)

    def _resize(self, size):
        # `owners`, of owners.py, are there while a launch is watched and memory stays where it is.
        data, state = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        for start, length in self.sizes.items():  # what lies between stays untouched, so that it costs no memory
            data[start : start + length], state[start : start + length] = (
                self.data[start : start + length],
                self.state[start : start + length],
            )
        if self.marks is not None:
            marks = np.zeros(size, np.uint8)
            marks[: self.size] = self.marks[1]
            self.note(marks)
        self.data, self.state, self.owners = data, state, None
        self.size = size
        self.views, self.states = _views(data), _views(state)

    @property
    def end(self):
        """Of the last allocation."""
        return self.starts[-1] + self.sizes[self.starts[-1]] if self.starts else 0

    def note(self, marks):
        """From now on accesses of kernels are marked in an array with a byte for each byte, or not any more."""
        self.marks = None if marks is None else _views(marks)

    @contextmanager
    def noting_writes(self, wanted):
        """Marks the accesses of the launch inside, if `wanted` and unless the caller marks them already."""
        wanted = wanted and self.marks is None
        if wanted:
            self.note(np.zeros(self.size, np.uint8))
        try:
            yield
        finally:
            if wanted:
                self.note(None)

    def allocate(self, size, align=512):
        for low, high in self.holes:
            start = _aligned_start(low, align)
            if start + size + GUARD <= high:
                break
        else:
            low = self.end
            start = _aligned_start(low, align)
            self._resize(max(2 * self.size, -(-(start + size + 2 * GUARD) // 4096) * 4096))
            high = self.size
        end = start + size
        self.state[start:end] = ALLOCATED
        self._set_holes(low, high, [(low, start), (end, high)])
        self.sizes[start] = size
        insort(self.starts, start)
        return GLOBAL_BASE + start

    def _set_holes(self, low, high, gaps):
        """The gaps that lie in low..high from now on; too small ones are left out."""
        holes = self.holes
        first, last = bisect_left(holes, (low, 0)), bisect_left(holes, (high, 0))
        holes[first:last] = [gap for gap in gaps if gap[1] - gap[0] > 2 * GUARD]

    def free(self, address):
        start = address - GLOBAL_BASE
        size = self.sizes.pop(start, None)
        if size is None:
            raise EmulatorError(f"{address:#x} is not an allocation")
        self.state[start : start + size] = 0
        starts = self.starts
        place = bisect_left(starts, start)
        del starts[place]
        low = starts[place - 1] + self.sizes[starts[place - 1]] if place else 0
        high = starts[place] if place < len(starts) else self.size
        self._set_holes(low, high, [(low, high)])

    def span(self, address, size):
        """Index of a host-side range, which must lie inside one allocation."""
        start = address - GLOBAL_BASE
        below = bisect_right(self.starts, start) - 1
        if below >= 0 and start + size <= self.starts[below] + self.sizes[self.starts[below]]:
            return start
        raise EmulatorError(f"the {size} bytes at {address:#x} are not inside one allocation")

    def write(self, address, data, written=None):
        data = np.frombuffer(data, np.uint8)
        start = self.span(address, data.size)
        self.data[start : start + data.size] = data
        self.state[start : start + data.size] |= WRITTEN if written is None else written.astype(np.uint8) * np.uint8(WRITTEN)

    def nearest(self, index):
        """Words about where an index lies, for an out-of-bounds report."""
        best = None
        for base, size in self.sizes.items():
            distance = base - index if index < base else max(0, index - (base + size) + 1)
            if best is None or distance < best[0]:
                best = (distance, base, size)
        if best is None:
            return "nothing is allocated"
        distance, base, size = best
        side = "before" if index < base else "past the end of"
        distance -= index >= base
        where = f"{distance} byte{'s' if distance > 1 else ''}" if distance > 0 else "right"
        return f"{where} {side} the allocation of {size} bytes at {GLOBAL_BASE + base:#x}"


class SharedMemory:
    """The shared memory of one CTA, addressed by offset (0 .. size), with its shadows."""

    def __init__(self, machine, cta, size, warps):
        self.machine, self.cta = machine, cta
        self.size = size
        padded = -(-size // 64) * 64 + 64  # whole granules, and room for wide views
        self.bytes = np.zeros(padded, np.uint8)
        self.valid = np.zeros(padded, np.uint8)
        self.views, self.valids = _views(self.bytes), _views(self.valid)
        if machine.program.uses_reserved_region:
            self.valid[RESERVED_REGION.start : RESERVED_REGION.stop] = 1  # the driver clears it
        self.epochs = np.zeros(padded // 4, np.uint32)
        self.epoch_views = _word_views(self.epochs)
        # Words that a store of 1 or 2 bytes wrote last have an epoch for each byte; `small_epochs` is that last store's.
        self.small_epochs = np.zeros(padded // 4, np.uint32)
        self.byte_epochs = np.zeros(padded, np.uint32)
        self.read_clocks = np.zeros((warps, padded // 4), np.uint32)
        self.writers, self.readers = np.zeros(padded // 4, np.uint32), np.zeros(padded // 4, np.uint32)
        self.writer_views, self.reader_views = _word_views(self.writers), _word_views(self.readers)
        self.destinations = np.zeros(padded // 16, np.uint16)
        self.sources = np.zeros(padded // 16, np.uint16)
        self.pending = 0  # operations with ranges here, to skip the two arrays when there are none
        self.barriers = {}  # offset -> MBarrier, see barriers.py
        self.barrier_words = np.zeros(padded // 8, np.bool_)

    # ---- checks of generic-proxy accesses: offsets int64, `size` bytes each, already in bounds and aligned
    def before_read(self, ins, warp, lanes, offsets, size, ordered=True):
        """Uninitialised, pending, racing reads of these lanes' elements. ordered=False: an atomic or volatile access, which cannot race."""
        index = offsets // size if size > 1 else offsets
        valid = self.valids[size].take(index, axis=0)
        if valid.tobytes() != _ALL_VALID[size][: valid.nbytes]:
            self._report_invalid(ins, warp, lanes, offsets, size)
        elif self.pending:
            self._report_pending(ins, warp, lanes, offsets, size, False)
        if ordered:
            words = index if size == 4 else (offsets >> 2 if size < 4 else index)
            epochs = self.epoch_views[size].take(words, axis=0)
            clocks = warp.clocks[0]
            if size < 4:
                epochs = self._epochs_of_bytes(offsets, size, epochs)
            if b"\1" in ((epochs >> _WARP_SHIFT) > clocks.take(epochs & WARP_MASK)).tobytes():
                self._report_race(ins, warp, lanes, offsets, size, "reads", epochs)
            row = self.read_clocks[warp.number]
            now = clocks[warp.number]
            if size <= 4:
                row[words] = now
            else:
                row.reshape(-1, size // 4)[words] = now
            self.reader_views[size][words] = ins.pc << WARP_BITS | warp.number
            warp.way.append((self, ins, lanes, offsets, size, now))

    def before_write(self, ins, warp, lanes, offsets, size, ordered=True, values=None):
        """Racing writes, writes to pending destinations and locked sources; then marks the bytes written. `values`: what will be written."""
        index = offsets // size if size > 1 else offsets
        if self.pending:
            self._report_pending(ins, warp, lanes, offsets, size, True)
        if self.barriers:
            self._report_barrier_overlap(ins, warp, lanes, offsets, size)
        if size <= 8:
            self.valids[size][index] = WORD_VALID[size]
        else:
            self.valids[size][index] = WORD_VALID[8]
        words = index if size >= 4 else offsets >> 2
        clocks = warp.clocks[0]
        if ordered:
            if size < 4:  # two warps may write different bytes of one word
                epochs = self._epochs_of_bytes(offsets, size, self.epochs.take(words))
                if b"\1" in ((epochs >> _WARP_SHIFT) > clocks.take(epochs & WARP_MASK)).tobytes():
                    self._report_write_race(ins, warp, lanes, offsets, size, epochs, values)
            else:
                epochs = self.epoch_views[size].take(words, axis=0)
                if b"\1" in ((epochs >> _WARP_SHIFT) > clocks.take(epochs & WARP_MASK)).tobytes():
                    self._report_write_race(ins, warp, lanes, offsets, size, epochs, values)
                grouped = self.read_clocks.reshape(len(self.read_clocks), -1, max(1, size // 4)) if size > 4 else self.read_clocks
                readers = grouped.take(words, axis=1)
                limit = clocks[: len(readers)].reshape((-1,) + (1,) * (readers.ndim - 1))
                if b"\1" in (readers > limit).tobytes():
                    self._report_read_race(ins, warp, lanes, offsets, readers, limit)
        now = np.uint32((int(clocks[warp.number]) << WARP_BITS) | warp.number)
        if size < 4:
            whole = words[self.small_epochs[words] != self.epochs[words]]
            self.byte_epochs.reshape(-1, 4)[whole] = self.epochs[whole, None]
            self.byte_epochs[offsets] = now
            if size == 2:
                self.byte_epochs[offsets + 1] = now
            self.small_epochs[words] = now
        self.epoch_views[size][words] = now
        self.writer_views[size][words] = ins.pc
        lane_order.wrote(warp, self, offsets, size, lanes, now, ins)

    def _epochs_of_bytes(self, offsets, size, of_words):
        """The epochs of accesses of 1 or 2 bytes: the bytes' own where a small store wrote the word last."""
        own = self.byte_epochs.take(offsets)
        if size == 2:
            other = self.byte_epochs.take(offsets + 1)
            own = np.where(other >> _WARP_SHIFT > own >> _WARP_SHIFT, other, own)
        return np.where(self.small_epochs.take(offsets >> 2) == of_words, own, of_words)

    def unsettled_write(self, warp, offsets, size):
        """Marks words as written at no time yet: no barrier and no fence covers that. Returns what says when it was: settle(tick)."""
        epochs, places = self.epoch_views[size], offsets // size
        never = np.uint32(_NEVER << WARP_BITS | warp.number)
        epochs[places] = never

        def settle(tick):
            now = epochs[places]
            epochs[places] = np.where(now == never, np.uint32(tick << WARP_BITS | warp.number), now)

        return settle

    # ---- the same for the asynchronous proxy and for matrix instructions: arbitrary byte offsets
    @staticmethod
    def _spread(offsets):
        """(flat int64 array of byte offsets, low, high) of an array or a (low, high) range."""
        if isinstance(offsets, tuple):
            low, high = offsets
            return None, int(low), int(high)
        flat = np.asarray(offsets).reshape(-1)
        return flat, int(flat.min()), int(flat.max()) + 1

    def in_bounds(self, ins, warp, lanes, low, high, what):
        if low < 1024 or high > self.size:
            ins.report(
                warp,
                lanes,
                "out-of-bounds",
                f"{what} shared memory {low:#x}..{high - 1:#x}; this CTA has {0x400:#x}..{self.size - 1:#x}",
                low,
            )
            return False
        return True

    def check_async_read(self, ins, warp, lanes, offsets, must_be_written=True):
        """At issue of an asynchronous read: bounds, uninitialised bytes, missing proxy fence, pending destinations, races."""
        flat, low, high = self._spread(offsets)
        if not self.in_bounds(ins, warp, lanes, low, high, f"`{ins.mnemonic}` reads"):
            return False
        select = slice(low, high) if flat is None else flat
        if must_be_written and 0 in self.valid[select].tobytes():
            where = (np.arange(low, high) if flat is None else flat)[self.valid[select] == 0]
            self._report_bytes(ins, warp, lanes, int(where[0]), "uninitialised-shared", f"{where.size} bytes that nobody wrote are read")
        words = slice(low >> 2, (high + 3) >> 2) if flat is None else sorted_unique(flat >> 2)
        epochs = self.epochs[words]
        clocks = warp.clocks
        writers, times = epochs & WARP_MASK, epochs >> _WARP_SHIFT
        racing = times > clocks[0].take(writers)
        if racing.any():
            self._report_race_at(ins, warp, lanes, words, racing, epochs, "is read by the asynchronous operation")
        else:
            unfenced = times > clocks[1].take(writers)
            if unfenced.any():
                where = self._word_numbers(words)[unfenced]
                ins.report(
                    warp, lanes, "missing-proxy-fence",
                    f"{self.machine.name_of_warp(self.cta, int(epochs[unfenced][0] & WARP_MASK))} wrote shared offset {int(where[0]) * 4:#x} through the generic proxy and no "
                    "fence.proxy.async lies between that write and this asynchronous read", int(where[0]) * 4,
                    other=self._written_by(int(where[0]) * 4),
                )  # fmt: skip
        if warp.loose and lanes != warp.live:
            lane_order.check_async_read(ins, warp, lanes, self, flat, low, high)
        if self.pending:
            granules = slice(low >> 4, (high + 15) >> 4) if flat is None else sorted_unique(flat >> 4)
            if self.destinations[granules].any():
                self._report_bytes(
                    ins, warp, lanes, low, "pending-destination", "the source is the destination of an operation that has not completed"
                )
        self.read_clocks[warp.number, words] = clocks[0][warp.number]
        self.readers[words] = ins.pc << WARP_BITS | warp.number
        warp.way.append((self, ins, lanes, flat, 1, clocks[0][warp.number]))
        return True

    def mark_read(self, ins, warp, granules):
        """The warp has read these 16-byte granules up to now."""
        self.readers.reshape(-1, 4)[granules] = ins.pc << WARP_BITS | warp.number
        now = warp.clocks[0, warp.number]
        self.read_clocks.reshape(len(self.read_clocks), -1, 4)[warp.number, granules] = now
        warp.way.append((self, ins, 0, None, 0, now))

    def check_async_write(self, ins, warp, lanes, offsets):
        """At issue of an asynchronous write: bounds, pending operations, and earlier accesses that nothing orders before it."""
        flat, low, high = self._spread(offsets)
        if not self.in_bounds(ins, warp, lanes, low, high, f"`{ins.mnemonic}` writes"):
            return False
        granules = slice(low >> 4, (high + 15) >> 4) if flat is None else sorted_unique(flat >> 4)
        if self.pending:
            if self.destinations[granules].any():
                self._report_bytes(ins, warp, lanes, low, "pending-destination", "another operation that has not completed writes here too")
            if self.sources[granules].any():
                self._report_bytes(
                    ins, warp, lanes, low, "source-overwritten", "an operation that has not completed still reads these bytes"
                )
        words = slice(low >> 2, (high + 3) >> 2) if flat is None else sorted_unique(flat >> 2)
        seen = warp.clocks[0]
        epochs = self.epochs[words]
        racing = (epochs >> _WARP_SHIFT) > seen.take(epochs & WARP_MASK)
        if racing.any():
            self._report_race_at(ins, warp, lanes, words, racing, epochs, "is overwritten by the asynchronous operation")
        late = self.read_clocks[:, words] > seen[: len(self.read_clocks), None]
        if late.any():
            readers, where = np.nonzero(late)
            message = "shared offset {:#x} is overwritten by the asynchronous operation, and nothing orders the read by {} before it"
            self._report_overwrite(ins, warp, lanes, readers, self._word_numbers(words)[where], seen, message)
        if self.barriers and self.barrier_words[low >> 3 : (high + 7) >> 3].any():
            self._report_bytes(ins, warp, lanes, low, "mbarrier-misuse", "a live mbarrier lies inside the destination")
        return True

    def check_fenced_reads(self, ins, warp, lanes, extent):
        """At issue of an asynchronous write: earlier generic reads of these bytes need a proxy fence behind them."""
        reads = self.read_clocks[:, extent[0] >> 2 : (extent[1] + 3) >> 2]
        unfenced = reads > warp.clocks[1, : len(reads), None]
        if unfenced.any():
            reader, where = (int(value[0]) for value in np.nonzero(unfenced))
            offset = extent[0] + 4 * where
            ins.report(
                warp, lanes, "missing-proxy-fence",
                f"{self.machine.name_of_warp(self.cta, reader)} read shared offset {offset:#x} through the generic proxy and no fence.proxy.async lies between that read "
                "and this asynchronous write", offset, other=self._read_by(offset, reader),
            )  # fmt: skip

    def _word_numbers(self, words):
        return np.arange(words.start, words.stop) if isinstance(words, slice) else words

    def check_write(self, ins, warp, lanes, offsets):
        """A generic-proxy write of arbitrary byte offsets (stmatrix); marks them written."""
        flat, low, high = self._spread(offsets)
        if not self.in_bounds(ins, warp, lanes, low, high, f"`{ins.mnemonic}` writes"):
            return False
        flat = np.arange(low, high) if flat is None else flat
        self.before_write(ins, warp, lanes, sorted_unique(flat >> 2) * 4, 4)
        return True

    def mark_async_write(self, ins, offsets):
        """Bytes written by the asynchronous proxy, in an operation's execute()."""
        select = slice(*offsets) if isinstance(offsets, tuple) else np.asarray(offsets).reshape(-1)
        self.valid[select] = 1
        cluster = self.cta.cluster
        cluster.asynchronous_tick += 1
        epoch = cluster.asynchronous_tick << WARP_BITS | cluster.warp_count
        if isinstance(offsets, tuple):
            words = slice(offsets[0] >> 2, (offsets[1] + 3) >> 2)
        else:
            words = select >> 2
        self.epochs[words], self.writers[words] = epoch, ins.pc

    # ---- reports
    def _report_bytes(self, ins, warp, lanes, offset, kind, message, other=None):
        ins.report(warp, lanes, kind, f"{message} (CTA rank {self.cta.rank}, shared offset {offset:#x})", offset, other=other)

    def _written_by(self, offset):
        """The last write of a word, for a report."""
        return "written", self.machine.program.instructions[self.writers[offset >> 2]]

    def _read_by(self, offset, number):
        """The last read of a word by this warp, for a report; None where the warp has read too much since."""
        last = int(self.readers[offset >> 2])
        if last & int(WARP_MASK) == number:
            return "read", self.machine.program.instructions[last >> WARP_BITS]
        ins = past_loads.last_read(self._warp(number), self, offset >> 2)
        return ins and ("read", ins)

    def _report_invalid(self, ins, warp, lanes, offsets, size):
        bad = np.array([0 in self.valid[o : o + size].tobytes() for o in offsets])
        offset = int(offsets[bad][0])
        doubtful = lanes if ins.mnemonic == "ldmatrix" else _lane_bits(lanes, bad)  # which gives rows to all lanes
        where = f" (CTA rank {self.cta.rank}, shared offset {offset:#x})"
        if self.barrier_words[offset >> 3]:
            self._report_bytes(ins, warp, lanes, offset, "mbarrier-misuse", "it reads the 8 bytes of a live mbarrier")
        elif self.pending and self.destinations[offset >> 4 : (offset + size + 15) >> 4].any():
            operation = self.machine.asynchronous.writer_of(self.cta, offset)
            words = "it reads bytes that an asynchronous operation has not yet written"
            words += f": `{operation.ins.text}` (PTX line {operation.ins.line})" if operation else ""
            other = operation and ("written", operation.ins)
            doubts.report(ins, warp, doubtful, "warning", "pending-destination", words + where, offset, other=other)
        else:
            words = "it reads shared memory that nobody wrote"
            other = self._written_by(offset) if self.epochs[offset >> 2] else None  # which stored an undefined register
            doubts.report(ins, warp, doubtful, "note", "uninitialised-shared", words + where, offset, other=other)
        if ins.mnemonic not in doubts.LOADS:  # report once: later readers of the same bytes see what this one saw
            for o in offsets[bad]:
                self.valid[o : o + size] = 1

    def _report_pending(self, ins, warp, lanes, offsets, size, writing):
        granules = offsets >> 4
        if size == 32:
            granules = np.concatenate([granules, granules + 1])
        hit = self.destinations.take(granules)
        if hit.any():
            offset = int(granules[hit > 0][0]) << 4
            operation = self.machine.asynchronous.writer_of(self.cta, offset)
            verb = "writes" if writing else "reads"
            words = f"it {verb} bytes that an asynchronous operation has still to write"
            words += f": `{operation.ins.text}` (PTX line {operation.ins.line})" if operation else ""
            words += f" (CTA rank {self.cta.rank}, shared offset {offset:#x})"
            other = operation and ("written", operation.ins)
            doubts.report(ins, warp, lanes, "warning", "pending-destination", words, offset, other=other)
        if writing:
            hit = self.sources.take(granules)
            if hit.any():
                offset = int(granules[hit > 0][0]) << 4
                operation = self.machine.asynchronous.reader_of(self.cta, offset)
                text = f": `{operation.ins.text}` (PTX line {operation.ins.line})" if operation else ""
                self._report_bytes(
                    ins,
                    warp,
                    lanes,
                    offset,
                    "source-overwritten",
                    f"it writes bytes that an asynchronous operation still has to read{text}",
                    other=operation and ("read", operation.ins),
                )

    def _report_barrier_overlap(self, ins, warp, lanes, offsets, size):
        hit = self.barrier_words.take(offsets >> 3)
        if hit.any():
            offset = int(offsets[hit][0])
            self._report_bytes(ins, warp, lanes, offset, "mbarrier-misuse", "it writes the 8 bytes of a live mbarrier")

    def _report_race(self, ins, warp, lanes, offsets, size, verb, epochs):
        late = (epochs >> _WARP_SHIFT) > warp.clocks[0].take(epochs & WARP_MASK)
        if late.ndim > 1:
            late = late.any(axis=1)
            epochs = epochs.max(axis=1)
        offset = int(offsets[late][0])
        writer = int(epochs[late][0] & WARP_MASK)
        doubtful = lanes if ins.mnemonic == "ldmatrix" else _lane_bits(lanes, late)
        if writer == warp.number:  # its own, so it can only be an unsettled one
            kind = "pending-destination"
            words = f"it {verb} bytes of a cp.async that the warp has not waited for (CTA rank {self.cta.rank}, shared offset {offset:#x})"
        else:
            kind = "race"
            words = f"it {verb} shared offset {offset:#x}, which {self.machine.name_of_warp(self.cta, writer)} wrote, and nothing orders the two"
        doubts.report(ins, warp, doubtful, "warning", kind, words, offset, other=self._written_by(offset))

    def _report_write_race(self, ins, warp, lanes, offsets, size, epochs, values):
        """Of two warps that write the same value the order does not matter: compilers let all warps of a CTA set the same words."""
        late = (epochs >> _WARP_SHIFT) > warp.clocks[0].take(epochs & WARP_MASK)
        settled = (epochs & WARP_MASK) != warp.number
        rows = late.reshape(len(late), -1).any(axis=1)
        if values is not None and settled[late].all():
            before = np.ascontiguousarray(self.views[size].take(offsets // size, axis=0)).view(np.uint8).reshape(len(rows), -1)
            differing = rows & (before != np.ascontiguousarray(values).view(np.uint8).reshape(len(rows), -1)).any(axis=1)
            if not differing.any():
                offset = int(offsets[rows][0])
                writer = self.machine.name_of_warp(self.cta, int(epochs[late][0] & WARP_MASK))
                words = f"it writes shared offset {offset:#x}, into which {writer} wrote the same value, and nothing orders the two"
                ins.report(warp, _lane_bits(lanes, rows), "race", words, offset, severity="warning", other=self._written_by(offset))
                return
            lanes, offsets, epochs = _lane_bits(lanes, differing), offsets[differing], epochs[differing]
        self._report_race(ins, warp, lanes, offsets, size, "writes", epochs)

    def _report_race_at(self, ins, warp, lanes, words, racing, epochs, verb):
        offset = int(self._word_numbers(words)[racing][0]) * 4
        writer = int(epochs[racing][0] & WARP_MASK)
        ins.report(
            warp,
            lanes,
            "race",
            f"shared offset {offset:#x} {verb}, and nothing orders the write by {self.machine.name_of_warp(self.cta, writer)} before it",
            offset,
            other=self._written_by(offset),
        )

    def _report_read_race(self, ins, warp, lanes, offsets, readers, limit):
        late = np.nonzero(readers > limit)
        words = (offsets >> 2)[late[1]] + (late[2] if len(late) > 2 else 0)
        message = "it writes shared offset {:#x}, which {} read, and nothing orders the two"
        self._report_overwrite(ins, warp, lanes, late[0], words, warp.clocks[0], message)

    def _report_overwrite(self, ins, warp, lanes, readers, words, seen, message):
        """A write of words that these warps have read, each its own; `seen`: the latest ticks that the writer knows of."""
        reads = [(self._warp(number), words[readers == number], seen[number]) for number in sorted_unique(readers).tolist()]
        severity, (reader, words, _), holders = past_loads.judged(self, reads)
        offset = int(words[0]) * 4
        message = message.format(offset, self.machine.name_of_warp(self.cta, reader.number))
        found = ins.report(warp, lanes, "race", message, offset, severity, self._read_by(offset, reader.number))
        past_loads.follow(self.machine, found, holders)

    def _warp(self, number):
        """The warp of a column of clock arrays."""
        rank, index = divmod(number, self.cta.warp_count)
        return self.cta.cluster.ctas[rank].warps[index]


_ALL_VALID = {size: b"\1" * (size * 1024) for size in _SIZES}
WORD_VALID = {size: _ones(size, 1) for size in (1, 2, 4, 8)}
STATE_READABLE = {size: _ones(min(size, 8), ALLOCATED | WRITTEN) for size in _SIZES}
_READ_MARKS, _WRITTEN_MARKS = ({size: _ones(min(size, 8), mark) for size in _SIZES} for mark in (READ, WRITTEN))
STATE_ALLOCATED = {size: _ones(min(size, 8), ALLOCATED) for size in _SIZES}


class LocalMemory:
    """Per-lane memory of one warp: the kernel's variables, then the stack of calls and alloca (frames.py). Row = lane."""

    def __init__(self, size, used):
        self.size = size  # of the kernel's variables
        self._used = used
        self.ends = np.full(32, size)  # of each lane's stack
        self.used = np.full(32, used)  # bytes of each lane's stack that hardware would use
        self._lay_out(size)

    def _lay_out(self, room):
        self.stride = -(-room // 32) * 32 + 32
        self.bytes, self.valid = np.zeros((2, 32, self.stride), np.uint8)
        self.views, self.valids = _views(self.bytes.reshape(-1)), _views(self.valid.reshape(-1))

    def grow(self, room):
        """Makes room for so many bytes of each lane."""
        if room > self.stride:
            arrays = self.bytes, self.valid
            self._lay_out(2 * room)
            for array, before in zip((self.bytes, self.valid), arrays):
                array[:, : before.shape[1]] = before

    def extend(self, lanes, starts, tops, used):
        """Extends the stacks of these lanes up to `tops`. The bytes from `starts` on become unwritten. All arrays have 32 entries."""
        mask = mask_of(lanes)
        self.grow(int(tops[mask].max()))
        lane = first_lane(lanes)
        start, top = int(starts[lane]), int(tops[lane])
        if (starts[mask] == start).all() and (tops[mask] == top).all():
            self.valid[mask, start:top] = 0
        else:
            for row, start, top in zip(np.nonzero(mask)[0], starts[mask], tops[mask]):
                self.valid[row, start:top] = 0
        self.ends, self.used = np.where(mask, tops, self.ends), np.where(mask, used, self.used)

    def move(self, lanes, sources, targets, count, unit):
        """Copies count * unit bytes of each lane, with their marks of written bytes. Addresses are multiples of `unit`."""
        rows = _LANE_NUMBERS * self.stride
        taken, given = select((rows + sources) // unit, lanes), select((rows + targets) // unit, lanes)
        if count > 1:
            taken, given = taken[:, None] + np.arange(count), given[:, None] + np.arange(count)
        for words in (self.views[unit], self.valids[unit]):
            words[given] = words[taken]

    def reset(self):
        self.valid[...] = 0
        self.ends[...], self.used[...] = self.size, self._used


# ---- checked accesses by address, for the lanes of one warp: `addresses` is an int64 array, one entry per lane of `lanes` ----
def _lane_bits(lanes, chosen):
    """The lanes of `lanes` (compressed) that `chosen` selects."""
    if len(chosen) != lanes.bit_count():  # bytes of a copy, not one address per lane
        return lanes
    full = np.zeros(32, bool)
    full[np.nonzero(mask_of(lanes))[0][chosen]] = True
    return bits_of(full)


def _empty(count, size):
    return np.zeros(count if size <= 8 else (count, size // 8), np.dtype(f"u{min(size, 8)}"))


def _partly(ins, warp, lanes, addresses, size, good, access, values=None):
    """Does the access for the good lanes only; the others read zero."""
    data = _empty(len(addresses), size)
    if good.any():
        part = _lane_bits(lanes, good)
        if values is None:
            data[good] = access(ins, warp, part, addresses[good], size)
        else:
            access(ins, warp, part, addresses[good], size, values[good])
    return data


def _check_alignment(ins, warp, lanes, addresses, size):
    """A mask of aligned lanes, or None when all are."""
    if size > 1 and int(np.bitwise_or.reduce(addresses)) & (size - 1):
        good = addresses & (size - 1) == 0
        address = int(addresses[~good][0])
        ins.report(
            warp, _lane_bits(lanes, ~good), "misaligned", f"an access of {size} bytes at {address:#x} needs {size}-byte alignment", address
        )
        return good
    return None


def check_dependency(ins, warp, lanes, addresses):
    """A programmatic launch may begin before the one ahead of it has ended, so global memory is off limits until griddepcontrol.wait."""
    machine = warp.machine
    if not machine.dependent or warp.clocks[DEPENDENCY]:
        return
    low, high = int(np.min(addresses)), int(np.max(addresses))
    if not any(start <= low and high < start + size for start, size in machine.constant):
        ins.report(
            warp, lanes, "missing-dependency-wait",
            "a programmatic launch uses global memory, and no griddepcontrol.wait comes before: the kernel ahead may still be running",
        )  # fmt: skip


def read_global(ins, warp, lanes, addresses, size):
    if warp.machine.dependent:
        check_dependency(ins, warp, lanes, addresses)
    return read_constant(ins, warp, lanes, addresses, size)


def read_constant(ins, warp, lanes, addresses, size):
    """From global memory that no kernel writes, as constants are."""
    memory = warp.machine.memory
    good = _check_alignment(ins, warp, lanes, addresses, size)
    if good is not None:
        return _partly(ins, warp, lanes, addresses, size, good, read_constant)
    index = addresses - GLOBAL_BASE
    rows = index // size if size > 1 else index
    try:
        if np.minimum.reduce(rows) < 0:  # numpy would count from the end
            raise IndexError
        state = memory.states[size].take(rows, axis=0)
    except IndexError:
        good = (index >= 0) & (index < memory.size)
        _report_global(ins, warp, lanes, addresses, good, "reads", size)
        return _partly(ins, warp, lanes, addresses, size, good, read_constant)
    if b"\0" in (state == STATE_READABLE[size]).tobytes():
        allocated = (state & STATE_ALLOCATED[size]) == STATE_ALLOCATED[size]
        if allocated.ndim > 1:
            allocated = allocated.all(axis=1)
        if not allocated.all():
            _report_global(ins, warp, lanes, addresses, allocated, "reads", size)
            return _partly(ins, warp, lanes, addresses, size, allocated, read_constant)
        written = state == STATE_READABLE[size]
        if written.ndim > 1:
            written = written.all(axis=1)
        address = int(addresses[~written][0])
        ins.report(
            warp, _lane_bits(lanes, ~written), "uninitialised-global", f"it reads global memory at {address:#x} that nobody wrote", address
        )
    if memory.marks is not None:
        memory.marks[size][rows] |= _READ_MARKS[size]
    if memory.owners is not None:
        memory.owners.reads(ins, warp, lanes, rows, size)
    warp.machine.traffic["global read"] += size * len(addresses)
    return memory.views[size].take(rows, axis=0)


def write_global(ins, warp, lanes, addresses, size, values):
    if warp.machine.dependent:
        check_dependency(ins, warp, lanes, addresses)
    memory = warp.machine.memory
    good = _check_alignment(ins, warp, lanes, addresses, size)
    if good is not None:
        return _partly(ins, warp, lanes, addresses, size, good, write_global, values)
    index = addresses - GLOBAL_BASE
    rows = index // size if size > 1 else index
    try:
        if np.minimum.reduce(rows) < 0:  # numpy would count from the end
            raise IndexError
        state = memory.states[size].take(rows, axis=0)
    except IndexError:
        good = (index >= 0) & (index < memory.size)
        _report_global(ins, warp, lanes, addresses, good, "writes", size)
        return _partly(ins, warp, lanes, addresses, size, good, write_global, values)
    ones = STATE_ALLOCATED[size]
    if b"\0" in ((state & ones) == ones).tobytes():
        allocated = (state & ones) == ones
        if allocated.ndim > 1:
            allocated = allocated.all(axis=1)
        _report_global(ins, warp, lanes, addresses, allocated, "writes", size)
        return _partly(ins, warp, lanes, addresses, size, allocated, write_global, values)
    if memory.owners is not None:
        before = memory.views[size].take(rows, axis=0)
        changed = (before != values) | (state != STATE_READABLE[size])
        memory.owners.writes(ins, warp, lanes, rows, size, changed if changed.ndim == 1 else changed.any(axis=1))
    memory.views[size][rows] = values
    memory.states[size][rows] = STATE_READABLE[size]
    if memory.marks is not None:
        memory.marks[size][rows] |= _WRITTEN_MARKS[size]
    warp.machine.traffic["global written"] += size * len(addresses)
    return None


def _report_global(ins, warp, lanes, addresses, good, verb, size):
    address = int(addresses[~good][0])
    where = warp.machine.memory.nearest(address - GLOBAL_BASE)
    ins.report(
        warp, _lane_bits(lanes, ~good), "out-of-bounds", f"it {verb} {size} bytes of global memory at {address:#x}: {where}", address
    )


RESERVED_REGION = range(512, 800)  # of the reserved first KiB: what %reserved_smem_offset_1 gives programs


def _shared_parts(ins, warp, lanes, addresses, size, verb):
    """[(cta, chosen lanes or None, offsets)] of 32-bit shared addresses; reports what lies nowhere."""
    cta = warp.cta
    offsets = addresses - (cta.rank << 24)
    low = np.minimum.reduce(offsets)
    if low >= 1024 and np.maximum.reduce(offsets) + size <= cta.shared.size:
        return [(cta, None, offsets)]
    parts = []
    ranks = addresses >> 24
    for rank in np.unique(ranks):
        chosen = ranks == rank
        if not 0 <= rank < len(cta.cluster.ctas):
            address = int(addresses[chosen][0])
            ins.report(
                warp,
                _lane_bits(lanes, chosen),
                "out-of-bounds",
                f"it {verb} shared address {address:#x}, which belongs to no CTA of the cluster",
                address,
            )
            continue
        owner = cta.cluster.ctas[int(rank)]
        offsets = addresses & 0xFFFFFF
        inside = (offsets >= 1024) & (offsets + size <= owner.shared.size)
        if warp.program.uses_reserved_region:
            inside |= (offsets >= RESERVED_REGION.start) & (offsets + size <= RESERVED_REGION.stop)
        inside &= chosen
        outside = chosen & ~inside
        if outside.any():
            address = int(addresses[outside][0])
            ins.report(
                warp, _lane_bits(lanes, outside), "out-of-bounds",
                f"it {verb} {size} bytes at shared offset {address & 0xFFFFFF:#x} of CTA rank {rank}, which has 0x400..{owner.shared.size - 1:#x}", address,
            )  # fmt: skip
        if inside.any():
            if owner.exited:
                ins.report(
                    warp, _lane_bits(lanes, inside), "exited-cta", f"it {verb} the shared memory of CTA rank {rank}, which has exited"
                )
            check_started(ins, warp, _lane_bits(lanes, inside), owner)
            if owner is not cta and names_own_cta(ins):
                check_own_cta(ins, warp, _lane_bits(lanes, inside), int(addresses[inside][0]))
            parts.append((owner, inside, offsets[inside]))
    return parts


def names_own_cta(ins):
    """Whether the instruction names the executing CTA's memory, .shared::cta, which .shared alone means, too."""
    parts = ins.opcode.split(".")
    return ("shared::cta" in parts or "shared" in parts) and "shared::cluster" not in parts


def check_own_cta(ins, warp, lanes, address):
    """Of an instruction that names its own CTA's memory. A GPU adds the address to the CTA's own window, or faults."""
    rank = (address & 0xFFFFFFFF) >> 24
    if rank != warp.cta.rank:
        ins.report(
            warp, lanes, "out-of-bounds", f"it names .shared::cta, its own CTA's memory, with an address of CTA rank {rank}", address
        )


def check_started(ins, warp, lanes, owner):
    """Another CTA's memory may be touched only by a warp that knows from a barrier that the CTA has started."""
    cta = warp.cta
    if owner is cta or cta.cluster_has_started:
        return
    first = owner.rank * cta.warp_count
    if not warp.clocks[0, first : first + cta.warp_count].any():
        cta.cluster_has_started = True  # one report
        message = f"nothing says that CTA rank {owner.rank} has started: a cluster barrier must come before the first use of its memory"
        ins.report(warp, lanes, "exited-cta", message)


def read_shared(ins, warp, lanes, addresses, size, ordered=True):
    good = _check_alignment(ins, warp, lanes, addresses, size)
    if good is not None:
        return _partly(ins, warp, lanes, addresses, size, good, read_shared)
    parts = _shared_parts(ins, warp, lanes, addresses, size, "reads")
    warp.machine.traffic["shared read"] += size * len(addresses)
    if len(parts) == 1 and parts[0][1] is None:
        shared, offsets = parts[0][0].shared, parts[0][2]
        shared.before_read(ins, warp, lanes, offsets, size, ordered)
        return shared.views[size].take(offsets // size if size > 1 else offsets, axis=0)
    data = _empty(len(addresses), size)
    for cta, chosen, offsets in parts:
        cta.shared.before_read(ins, warp, _lane_bits(lanes, chosen), offsets, size, ordered)
        data[chosen] = cta.shared.views[size].take(offsets // size, axis=0)
    return data


def write_shared(ins, warp, lanes, addresses, size, values, ordered=True):
    good = _check_alignment(ins, warp, lanes, addresses, size)
    if good is not None:
        return _partly(ins, warp, lanes, addresses, size, good, write_shared, values)
    warp.machine.traffic["shared written"] += size * len(addresses)
    for cta, chosen, offsets in _shared_parts(ins, warp, lanes, addresses, size, "writes"):
        part = lanes if chosen is None else _lane_bits(lanes, chosen)
        written = values if chosen is None else values[chosen]
        cta.shared.before_write(ins, warp, part, offsets, size, ordered, written)
        cta.shared.views[size][offsets // size if size > 1 else offsets] = written
    return None


_LANE_NUMBERS = np.arange(32, dtype=np.int64)


def _local_index(ins, warp, lanes, addresses, size, verb):
    local = warp.local
    low, high = int(addresses.min()), int(addresses.max()) + size
    if low < 16 or (high > local.size and high > int(local.ends.min())):
        ends = select(local.ends, lanes)
        bad = (addresses < 16) | (addresses + size > ends)
        if bad.any():
            address, end = int(addresses[bad][0]), int(ends[bad][0])
            words = f"it {verb} local memory at {address:#x}; the frame has {end} bytes"
            ins.report(warp, _lane_bits(lanes, bad), "out-of-bounds", words, address)
            return None
    return (select(_LANE_NUMBERS, lanes) * local.stride + addresses) // size


def read_local(ins, warp, lanes, addresses, size):
    good = _check_alignment(ins, warp, lanes, addresses, size)
    index = None if good is not None else _local_index(ins, warp, lanes, addresses, size, "reads")
    if index is None:
        return _empty(len(addresses), size)
    local = warp.local
    valid = local.valids[size].take(index, axis=0)
    if valid.tobytes() != _ALL_VALID[size][: valid.nbytes]:
        bad = (valid.reshape(len(index), -1) != np.frombuffer(_ALL_VALID[size][: valid.nbytes], valid.dtype).reshape(len(index), -1)).any(
            axis=1
        )
        words = "it reads local memory that this thread did not write"
        doubts.report(ins, warp, _lane_bits(lanes, bad), "note", "uninitialised-local", words, int(addresses[bad][0]))
    warp.machine.traffic["local read"] += size * len(addresses)
    return local.views[size].take(index, axis=0)


def write_local(ins, warp, lanes, addresses, size, values):
    good = _check_alignment(ins, warp, lanes, addresses, size)
    index = None if good is not None else _local_index(ins, warp, lanes, addresses, size, "writes")
    if index is None:
        return
    local = warp.local
    local.views[size][index] = values
    local.valids[size][index] = WORD_VALID[min(size, 8)]
    warp.machine.traffic["local written"] += size * len(addresses)


def forget(warp, lanes, space, addresses):
    """These bytes of the CTA's own shared memory, or of its threads' local memory, hold nothing that is defined. Whether they all do."""
    if space == "local":
        local = warp.local
        index = select(_LANE_NUMBERS, lanes) * local.stride + addresses
        inside, valid = (addresses >= 16) & (addresses < select(local.ends, lanes)), local.valids[1]
    else:
        shared = warp.cta.shared
        index = addresses - (warp.cta.rank << 24)
        inside, valid = (index >= 1024) & (index < shared.size), shared.valids[1]
    if inside.all():
        valid[index] = 0
    return bool(inside.all())


def read_parameters(ins, warp, lanes, addresses, size):
    """The entry's parameter block through addresses (cvta.param, or ld.param of a register)."""
    block = warp.machine.parameter_views
    offsets = addresses - PARAM_BASE
    good = (offsets >= 0) & (offsets + size <= block.size)
    if not good.all():
        ins.report(warp, lanes, "out-of-bounds", f"it reads parameter byte {int(offsets[~good][0])} of {block.size}")
        offsets = np.where(good, offsets, 0)
    rows = block[offsets[:, None] + np.arange(size)]
    return (
        np.ascontiguousarray(rows).view(np.dtype(f"u{min(size, 8)}")).reshape(len(addresses), -1)[:, 0]
        if size <= 8
        else np.ascontiguousarray(rows).view(np.uint64)
    )


def write_parameters(ins, warp, lanes, addresses, size, values):
    ins.report(warp, lanes, "out-of-bounds", "it writes the parameter space of the kernel", int(addresses[0]))


WINDOWS = {
    GLOBAL_BASE >> 40: (0, read_global, write_global),
    LOCAL_BASE >> 40: (LOCAL_BASE, read_local, write_local),
    SHARED_BASE >> 40: (SHARED_BASE, read_shared, write_shared),
    PARAM_BASE >> 40: (0, read_parameters, write_parameters),
}


def window_of(address):
    """The key in WINDOWS of a generic address (global memory may be larger than one window's span)."""
    key = int(address) >> 40
    return GLOBAL_BASE >> 40 if key >= GLOBAL_BASE >> 40 and key < (GLOBAL_BASE >> 40) + 16 else key


def _generic(ins, warp, lanes, addresses, size, values, verb):
    keys = {window_of(address) for address in addresses.tolist()} if len(addresses) < 33 else set()
    first = window_of(addresses[0])
    if len(keys) == 1 and first in WINDOWS:
        base, read, write = WINDOWS[first]
        if values is None:
            return read(ins, warp, lanes, addresses - base, size)
        return write(ins, warp, lanes, addresses - base, size, values)
    data = _empty(len(addresses), size)
    which = np.array([window_of(address) for address in addresses])
    for key in keys:
        chosen = which == key
        part = _lane_bits(lanes, chosen)
        if key not in WINDOWS:
            address = int(addresses[chosen][0])
            ins.report(warp, part, "out-of-bounds", f"it {verb} generic address {address:#x}, which lies in no memory", address)
            continue
        base, read, write = WINDOWS[key]
        if values is None:
            data[chosen] = read(ins, warp, part, addresses[chosen] - base, size)
        else:
            write(ins, warp, part, addresses[chosen] - base, size, values[chosen])
    return data


def read_generic(ins, warp, lanes, addresses, size):
    return _generic(ins, warp, lanes, addresses, size, None, "reads")


def write_generic(ins, warp, lanes, addresses, size, values):
    _generic(ins, warp, lanes, addresses, size, values, "writes")


def select(array, lanes):
    """The active lanes' entries."""
    return array if lanes == FULL else array[mask_of(lanes)]

"""The order among the lanes of one warp, where it matters to others: which writes to shared memory a lane's release, proxy fence or asynchronous read covers.

A warp has one clock, which takes its lanes as one thread. So each write is kept as loose until the lanes have met: at a bar.warp.sync, or at
a barrier at which all arrived. When only some lanes release or fence, the loose writes of the others get the time after that.
"""

import numpy as np

from .lanes import mask_of

_MOST = 1024  # loose writes of a warp that are kept: the youngest


class LooseWrite:
    """Writes of one instruction, an offset a lane."""

    __slots__ = ("shared", "offsets", "size", "lanes", "epoch", "known_to", "ins")

    def __init__(self, shared, offsets, size, lanes, epoch, ins, known_to=0):
        self.shared, self.offsets, self.size, self.lanes, self.epoch, self.ins = shared, offsets, size, lanes, epoch, ins
        self.known_to = known_to  # lanes that have met all of the writers

    def beyond(self, lanes):
        """Which of the offsets other lanes wrote than these and those that these have met; None for none."""
        if self.known_to & lanes or not self.lanes & ~lanes:
            return None
        if len(self.offsets) != self.lanes.bit_count():  # written together, as by stmatrix
            return np.ones(len(self.offsets), bool)
        return ~mask_of(lanes)[mask_of(self.lanes)]

    def words(self, chosen):
        """Those words at the offsets that nobody has written to again."""
        found = (self.offsets[chosen, None] + np.arange(0, self.size, 4)).reshape(-1) >> 2
        return found[(self.shared.epochs[found] == self.epoch) & (self.shared.writers[found] == self.ins.pc)]


def wrote(warp, shared, offsets, size, lanes, epoch, ins):
    loose = warp.loose
    if len(loose) > _MOST:
        del loose[: _MOST // 2]
    loose.append(LooseWrite(shared, offsets, size, lanes, epoch, ins))


def met(warp, lanes):
    """bar.warp.sync."""
    if not warp.live & ~lanes:
        warp.loose.clear()
        return
    for write in warp.loose:
        if write.known_to & lanes or not write.lanes & ~lanes:
            write.known_to |= lanes


def met_at_barrier(warp, tick):
    """The warp learns that what it released up to its own tick has come back to it."""
    warp.loose = [write for write in warp.loose if write.epoch >> 10 > tick]


def after_release(warp, lanes, before):
    """These lanes alone have released: what the others wrote after the tick `before`, of the last release, counts as written now, fenced if it was."""
    clocks, own = warp.clocks, warp.number
    left = _left_behind(warp, lanes, before)
    fenced = [write for write in left if write.epoch >> 10 <= clocks[1, own]]
    if fenced:
        _redate(warp, fenced)
        clocks[1, own] = clocks[0, own]
        clocks[0, own] += 1
    _redate(warp, [write for write in left if write not in fenced])


def after_fence(warp, lanes, fenced):
    """The same of a proxy fence by these lanes; before it all up to the tick `fenced` was."""
    _redate(warp, _left_behind(warp, lanes, max(warp.released, fenced)))


def _left_behind(warp, lanes, covered):
    """The loose writes by lanes that these have not met, after the tick `covered`."""
    left, kept = [], []
    for write in warp.loose:
        others = write.beyond(lanes) if write.epoch >> 10 > covered else None
        if others is not None:
            left.append(LooseWrite(write.shared, write.offsets[others], write.size, write.lanes & ~lanes, write.epoch, write.ins))
            if others.all():
                continue
            write.offsets, write.lanes = write.offsets[~others], write.lanes & lanes
        kept.append(write)
    warp.loose = kept + left
    return left


def _redate(warp, writes):
    now = np.uint32(int(warp.clocks[0, warp.number]) << 10 | warp.number)
    for write in writes:
        words, shared = write.words(slice(None)), write.shared
        shared.epochs[words] = now
        small = shared.small_epochs[words] == write.epoch
        shared.small_epochs[words[small]] = now
        of_bytes = shared.byte_epochs.reshape(-1, 4)
        of_bytes[words] = np.where(of_bytes[words] == write.epoch, now, of_bytes[words])
        write.epoch = now


def check_async_read(ins, warp, lanes, shared, flat, low, high):
    """These lanes hand bytes to an asynchronous operation: `flat` offsets, or low..high where that is None."""
    for write in warp.loose:
        if write.shared is not shared:
            continue
        others = write.beyond(lanes)
        if others is None:
            continue
        words = write.words(others)
        hit = (words >= low >> 2) & (words << 2 < high) if flat is None else np.isin(words, flat >> 2)
        if hit.any():
            offset = int(words[hit][0]) << 2
            ins.report(
                warp, lanes, "race", f"another lane of the warp wrote shared offset {offset:#x}, this one hands it to an asynchronous operation, and no bar.warp.sync "
                "orders the two", offset, other=("written", write.ins),
            )  # fmt: skip
            return

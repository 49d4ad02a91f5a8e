"""The order among the lanes of one warp, where it matters to others: which writes to shared memory a lane's release, proxy fence or asynchronous read covers,
and which reads of a launch-control answer its proxy fence covers.

A warp has one clock, which takes its lanes as one thread. So each write is kept as loose until the lanes have met: at a bar.warp.sync, or at
a barrier at which all arrived. When only some lanes release or fence, the loose writes of the others get the time after that.
"""

import numpy as np

from .lanes import mask_of

_MOST = 1024  # loose writes of a warp that are kept: the youngest


class LooseWrite:
    """Writes of one instruction, an offset a lane."""

    __slots__ = ("shared", "offsets", "size", "lanes", "epoch", "known_to", "ins")

    def __init__(self, shared, offsets, size, lanes, epoch, ins):
        self.shared, self.offsets, self.size, self.lanes, self.epoch, self.ins = shared, offsets, size, lanes, epoch, ins
        self.known_to = 0  # lanes that have met all of the writers

    def known(self, lanes):
        """Whether these lanes wrote it all themselves, or have met those that did."""
        return self.known_to & lanes or not self.lanes & ~lanes

    def split(self, lanes):
        """(what these lanes wrote or None, the rest)"""
        if not self.lanes & lanes or len(self.offsets) != self.lanes.bit_count():  # as stmatrix writes, together
            return None, self
        mine = mask_of(lanes)[mask_of(self.lanes)]
        return self._part(mine, self.lanes & lanes), self._part(~mine, self.lanes & ~lanes)

    def _part(self, chosen, lanes):
        return LooseWrite(self.shared, self.offsets[chosen], self.size, lanes, self.epoch, self.ins)

    def words(self):
        """The words that nobody has written to again."""
        found = (self.offsets[:, None] + np.arange(0, self.size, 4)).reshape(-1) >> 2
        return found[(self.shared.epochs[found] == self.epoch) & (self.shared.writers[found] == self.ins.pc)]


def wrote(warp, shared, offsets, size, lanes, epoch, ins):
    loose = warp.loose
    if len(loose) > _MOST:
        del loose[: _MOST // 2]
    loose.append(LooseWrite(shared, offsets, size, lanes, epoch, ins))


def read_answer(warp, addresses, lanes):
    """A load of 16 bytes, which may be an answer of cluster launch control: each lane that loads it needs a proxy fence behind it."""
    shared = warp.cta.shared
    offsets = np.unique(addresses - (warp.cta.rank << 24))
    offsets = offsets[(offsets >= 0) & (offsets + 16 <= shared.size)]  # the load itself has reported the others
    if len(warp.answers) > _MOST:
        del warp.answers[: _MOST // 2]
    warp.answers.append([shared, (offsets[:, None] + np.arange(0, 16, 4)).reshape(-1) >> 2, lanes])


def fence_answers(warp, lanes):
    """A proxy fence by these lanes: what others have loaded counts as read after it."""
    now = warp.clocks[0, warp.number]
    for answer in warp.answers:
        answer[2] &= ~lanes
        if answer[2]:
            answer[0].read_clocks[warp.number, answer[1]] = now
    warp.answers = [answer for answer in warp.answers if answer[2]]


def together(warp):
    """The last write was by all of its lanes as one: it precedes what any of them does next."""
    warp.loose[-1].known_to = warp.loose[-1].lanes


def met(warp, lanes):
    """bar.warp.sync."""
    warp.answers = [answer for answer in warp.answers if answer[2] & ~lanes]
    if not warp.live & ~lanes:
        warp.loose.clear()
        return
    divided = []
    for write in warp.loose:
        parts = (write,) if write.known(lanes) else write.split(lanes)
        for part in filter(None, parts):
            if part.known(lanes):
                part.known_to |= lanes
            divided.append(part)
    warp.loose = divided


def met_at_barrier(warp, tick):
    """The warp learns that what it released up to its own tick has come back to it."""
    warp.answers = [answer for answer in warp.answers if (answer[0].read_clocks[warp.number, answer[1]] > tick).any()]
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


def leave_out(known, warp, lanes):
    """Takes out of a copy of the warp's clocks what these lanes do not know."""
    ticks = [int(write.epoch >> 10) for write in warp.loose if write.epoch >> 10 > warp.released and not write.known(lanes)]
    if ticks:
        known[0, warp.number] = min(int(known[0, warp.number]), min(ticks) - 1)


def _left_behind(warp, lanes, covered):
    """The loose writes by lanes that these have not met, after the tick `covered`."""
    left, kept = [], []
    for write in warp.loose:
        mine, others = (write, None) if write.epoch >> 10 <= covered or write.known(lanes) else write.split(lanes)
        kept += [mine] if mine else []
        left += [others] if others else []
    warp.loose = kept + left
    return left


def _redate(warp, writes):
    now = np.uint32(int(warp.clocks[0, warp.number]) << 10 | warp.number)
    for write in writes:
        words, shared = write.words(), write.shared
        shared.epochs[words] = now
        small = shared.small_epochs[words] == write.epoch
        shared.small_epochs[words[small]] = now
        of_bytes = shared.byte_epochs.reshape(-1, 4)
        of_bytes[words] = np.where(of_bytes[words] == write.epoch, now, of_bytes[words])
        write.epoch = now


def check_async_read(ins, warp, lanes, shared, flat, low, high):
    """These lanes hand bytes to an asynchronous operation: `flat` offsets, or low..high where that is None."""
    for write in warp.loose:
        if write.shared is not shared or write.known(lanes):
            continue
        words = write.split(lanes)[1].words()
        hit = (words >= low >> 2) & (words << 2 < high) if flat is None else np.isin(words, flat >> 2)
        if hit.any():
            offset = int(words[hit][0]) << 2
            ins.report(
                warp, lanes, "race", f"another lane of the warp wrote shared offset {offset:#x}, this one hands it to an asynchronous operation, and no bar.warp.sync "
                "orders the two", offset, other=("written", write.ins),
            )  # fmt: skip
            return

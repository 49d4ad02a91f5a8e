"""Which cluster last read and last wrote each word of global memory, in a launch whose CTAs have no instructions to talk to each other.

Then nothing orders two clusters, so that a word which one of them writes and another reads or writes is a race. Accesses of 1 and 2 bytes are left
out, because their neighbours in a word may be another cluster's. So are stores of what the word holds already: many CTAs may set one flag.
"""

from contextlib import contextmanager

import numpy as np

from . import doubts
from .findings import OTHER_CTA
from .lanes import bits_of, mask_of
from .memory import GLOBAL_BASE

_WORD = 4
_SIZES = (4, 8, 16, 32)
_PCS = 0xFFFF
_SHIFT = np.uint32(16)
_MOST = 0xFFFE  # clusters that are told apart
_SEVERAL = np.uint32(0xFFFF << 16)  # several clusters have read the word


class Owners:
    """One entry for each word: a cluster << 16 | the pc of its access, 0 for nobody. Clusters count from 1, and again from 1 after 65,534."""

    def __init__(self, bytes, room=np.zeros):
        """room: makes an array of so many zeros."""
        self.readers, self.writers = (room(-(-bytes // 64) * 16, np.uint32) for _ in range(2))
        self._readers, self._writers = (
            {size: array.reshape(-1, size // _WORD) for size in _SIZES} for array in (self.readers, self.writers)
        )

    def reads(self, ins, warp, lanes, rows, size):
        """rows: the accesses' places in units of `size`."""
        if size not in _SIZES:
            return
        now, known = _entry(ins, warp), self._readers[size]
        found = self._writers[size].take(rows, axis=0)
        if found.any():
            met = _others(found, now)
            if met.any():
                _report(ins, warp, lanes, met, size, rows, "reads", "wrote", "written")
        found = known.take(rows, axis=0)
        known[rows] = np.where(_others(found, now) > 0, now | _SEVERAL, now) if found.any() else now

    def writes(self, ins, warp, lanes, rows, size, changed):
        """changed: for each access, whether it changes what is there."""
        if size not in _SIZES:
            return
        now = _entry(ins, warp)
        for known, did, access in ((self._writers[size], "wrote", "written"), (self._readers[size], "read", "read")):
            found = known.take(rows, axis=0)
            if found.any():
                met = _others(found, now) * changed[:, None]
                if met.any():
                    _report(ins, warp, lanes, met, size, rows, "writes", did, access)
        self._writers[size][rows if changed.all() else rows[changed]] = now

    def reads_box(self, ins, warp, lanes, start, shape, strides):
        """Of a tensor copy: a strided window of bytes, the last dimension without gaps."""
        now, window = _entry(ins, warp), _window(self.writers, start, shape, strides)
        if window is not None:
            met = _others(window, now)
            if met.any():
                _say(ins, warp, lanes, met, None, "reads", "wrote", "written")
            window = _window(self.readers, start, shape, strides)
            window[...] = np.where(_others(window, now) > 0, now | _SEVERAL, now)

    def writes_box(self, ins, warp, lanes, start, shape, strides, changed):
        """changed: for each byte, whether the copy changes what is there."""
        now, skipped = _entry(ins, warp), -start % _WORD
        changed = changed[..., skipped : skipped + (shape[-1] - skipped) // _WORD * _WORD]
        changed = changed.reshape(*shape[:-1], -1, _WORD).any(axis=-1)
        for array, did, access in ((self.writers, "wrote", "written"), (self.readers, "read", "read")):
            window = _window(array, start, shape, strides)
            if window is not None:
                met = _others(window, now) * changed
                if met.any():
                    _say(ins, warp, lanes, met, None, "writes", did, access)
                if array is self.writers:
                    window[changed] = now


@contextmanager
def owned(memory, wanted):
    """A launch whose accesses of global memory are watched, where that is wanted and they are not watched already."""
    kept = memory.owners
    if wanted and kept is None:
        memory.owners = Owners(memory.end)
    try:
        yield
    finally:
        memory.owners = kept


def _entry(ins, warp):
    return np.uint32((warp.cta.cluster.number % _MOST + 1) << 16 | ins.pc & _PCS)


def _others(entries, own):
    """The entries of other clusters, and 0 for what is nobody's or the cluster's own."""
    return np.where(entries >> _SHIFT == own >> _SHIFT, np.uint32(0), entries)


def _window(array, start, shape, strides):
    """The whole words in a window, or None where there are none, or it leads outside all allocations."""
    if start + sum((extent - 1) * stride for extent, stride in zip(shape, strides)) >= _WORD * array.size:
        return None
    first = -(-start // _WORD)
    count = (start + shape[-1]) // _WORD - first
    if count <= 0 or any(stride % _WORD for stride in strides[:-1]):
        return None
    return np.lib.stride_tricks.as_strided(array[first:], (*shape[:-1], count), (*strides[:-1], _WORD))


def words(does, where, did):
    """What a finding says of two CTAs."""
    return f"it {does} global memory{where}, which {OTHER_CTA} {did}, and nothing orders two CTAs of this launch"


def instruction(program, entry):
    """That of an entry."""
    return program.instructions[int(entry) & _PCS]


def _report(ins, warp, lanes, met, size, rows, does, did, access):
    which = met.any(axis=1)
    if len(which) == lanes.bit_count():  # else bytes of a copy
        full = np.zeros(32, bool)
        full[np.nonzero(mask_of(lanes))[0][which]] = True
        lanes = bits_of(full)
    first = int(np.argmax(which))
    _say(ins, warp, lanes, met[first], GLOBAL_BASE + int(rows[first]) * size, does, did, access)


def _say(ins, warp, lanes, met, address, does, did, access):
    text = words(does, "" if address is None else f" at {address:#x}", did)
    other = access, instruction(warp.program, met.max())
    if does == "reads":
        doubts.report(ins, warp, lanes, "warning", "race", text, address, other=other)
    else:
        ins.report(warp, lanes, "race", text, address, other=other)

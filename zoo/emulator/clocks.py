"""Vector clocks: who has seen which writes of whom.

A clock array is (ROWS, warps of the cluster + 1) uint32. Column w of a row says up to which tick of warp w ...
    row 0   its accesses happen before now (acquire / release, barriers)
    row 1   its generic writes are moreover ordered before the asynchronous proxy (a fence.proxy.async lies between)
    row 2   its mbarrier inits are visible to the cluster (fence.mbarrier_init, or release at cluster scope)
    row 3   its tcgen05.ld and .st have been waited for, or lie behind its tcgen05.fence::before_thread_sync
    row 4   (not a tick) how many of its tcgen05.commit have been seen to complete; in the last column, whether some warp's griddepcontrol.wait is over
Rows 3 and 4 are about the order of execution, which relaxed barriers carry as well.
Warp w's own column of row 0 is its current tick; it ticks at every release and fence.
The last column stands for the asynchronous proxy: it ticks at every asynchronous write to shared memory, and the mbarrier
that such a write signals carries the tick to those who wait for it.
"""

import numpy as np

from . import lane_order

ROWS = 5
DEPENDENCY = (4, -1)


def fresh(columns, own):
    clocks = np.zeros((ROWS, columns), np.uint32)
    clocks[0, own] = 1
    clocks[1, -1] = 0xFFFFFFFF  # its own writes need no proxy fence
    return clocks


def tick(warp):
    warp.clocks[0, warp.number] += 1


def release(into, warp, lanes, clocks=None):
    """Adds what these lanes of `warp` (or a snapshot of its clocks) know to a synchronisation object's array, and ticks the warp."""
    if clocks is None:
        clocks = warp.clocks
        np.maximum(into, clocks, out=into)
        np.maximum(into[2], clocks[0], out=into[2])
        released(warp, lanes)
    else:
        np.maximum(into, clocks, out=into)
        np.maximum(into[2], clocks[0], out=into[2])


def released(warp, lanes):
    """These lanes have released what they know: the warp ticks."""
    before, warp.released = warp.released, warp.clocks[0, warp.number]
    tick(warp)
    if warp.loose and lanes != warp.live:
        lane_order.after_release(warp, lanes, before)


def release_in_cta(into, warp, lanes):
    """A release that does not reach beyond the CTA: inits stay as published as they are."""
    np.maximum(into, warp.clocks, out=into)
    released(warp, lanes)


def release_relaxed(into, warp):
    """A relaxed arrival publishes only what a fence.mbarrier_init covered, and the order of execution."""
    np.maximum(into[2:], warp.clocks[2:], out=into[2:])
    tick(warp)


def release_execution(into, warp):
    """A relaxed mbarrier arrival publishes the order of execution alone."""
    np.maximum(into[3:], warp.clocks[3:], out=into[3:])
    tick(warp)


def snapshot(warp, lanes):
    """What these lanes know, for an operation that signals later."""
    known = warp.clocks.copy()
    if warp.loose:
        lane_order.leave_out(known, warp, lanes)
    return known


def left(into, warp):
    """Whoever waits until these lanes have exited knows that they have done all that they waited for."""
    np.maximum(into[3:], warp.clocks[3:], out=into[3:])


def acquire(warp, known):
    np.maximum(warp.clocks, known, out=warp.clocks)
    if warp.loose or warp.answers:
        lane_order.met_at_barrier(warp, known[0, warp.number])


def acquire_execution(warp, known):
    """What a relaxed wait learns."""
    np.maximum(warp.clocks[3:], known[3:], out=warp.clocks[3:])


def remember(warp, known):
    """A relaxed wait: what a later fence turns into an acquire."""
    before = warp.state.get("relaxed")
    warp.state["relaxed"] = known.copy() if before is None else np.maximum(before, known)


def fence(warp, lanes, acquires, releases):
    """A memory fence: what relaxed accesses before it learnt is known now, what is known now those after it publish."""
    known = warp.state.pop("relaxed", None) if acquires else None
    if known is not None:
        acquire(warp, known)
    if releases:
        warp.state["fenced"] = warp.clocks.copy()
        released(warp, lanes)


def release_fenced(into, warp):
    """What a relaxed arrival publishes of memory: what a fence before it covered."""
    known = warp.state.get("fenced")
    if known is not None:
        np.maximum(into, known, out=into)


def fence_proxy(warp, lanes):
    """fence.proxy.async: everything that these lanes know now is ordered before the asynchronous proxy."""
    clocks = warp.clocks
    before = clocks[1, warp.number]
    np.maximum(clocks[1], clocks[0], out=clocks[1])
    np.maximum(clocks[2], clocks[0], out=clocks[2])
    tick(warp)
    if warp.answers:
        lane_order.fence_answers(warp, lanes)
    if warp.loose and lanes != warp.live:
        lane_order.after_fence(warp, lanes, before)


def fence_mbarrier_init(warp):
    np.maximum(warp.clocks[2], warp.clocks[0], out=warp.clocks[2])
    tick(warp)

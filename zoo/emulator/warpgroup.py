"""The warpgroup as one agent of wgmma: its groups complete for all four warps together.

CUTLASS lets one thread of a warpgroup release a stage after its own wgmma.wait_group, with no barrier among the four warps;
so a wait returns only when all four have issued the awaited groups, and it orders the reads of all four before what follows.
"""

import numpy as np

from . import clocks
from .instructions import Blocked


def _members(warp):
    return warp.cta.warps[4 * warp.group : 4 * warp.group + 4]


def commit(warp):
    """wgmma.commit_group"""
    state = warp.state.setdefault("warpgroup", {"committed": 0, "waited": 0, "clocks": {}})
    warp.machine.asynchronous.close_group(("wgmma", warp))
    state["clocks"][state["committed"]] = warp.clocks.copy()
    clocks.tick(warp)
    state["committed"] += 1
    warp.machine.progress += 1


def wait(warp, keep):
    """wgmma.wait_group: None, or Blocked until the other warps of the group have issued what is waited for."""
    engine = warp.machine.asynchronous
    state = warp.state.get("warpgroup")
    if state is None:
        return None
    needed = state["committed"] - keep
    others = [other for other in _members(warp) if other is not warp and other.groups]

    def committed(other):
        return other.state.get("warpgroup", {"committed": 0})["committed"]

    if any(committed(other) < needed for other in others):
        return Blocked(
            lambda: all(committed(other) >= needed or not other.groups for other in others),
            lambda: (
                f"waits for wgmma group {needed} of its warpgroup; committed: "
                + ", ".join(f"warp {other.index} {committed(other)}" for other in others)
            ),
        )
    for other in others:
        theirs = other.state.get("warpgroup")
        if theirs is None:
            continue
        closed = engine.groups[("wgmma", other)][0]
        for group in closed[: max(0, needed - theirs["waited"])]:
            _finish(engine, warp, group)
        known = theirs["clocks"].get(needed - 1)
        if known is not None:
            clocks.acquire(warp, known)
    closed = engine.groups[("wgmma", warp)][0]
    for group in closed[: max(0, needed - state["waited"])]:
        _finish(engine, warp, group)
    engine.wait_queue(("wgmma", warp), keep)
    # Whoever of the warpgroup waits for a group learns what those who waited for it before have seen.
    known = warp.cta.state.setdefault(("warpgroup", warp.group), {})
    for number in range(state["waited"], needed):
        seen = known.setdefault(number, warp.clocks.copy())
        clocks.acquire(warp, seen)
        np.maximum(seen, warp.clocks, out=seen)
        known.pop(number - 8, None)
    if needed > state["waited"]:
        clocks.tick(warp)
    for number in range(state["waited"], max(needed, state["waited"])):
        if number - 8 in state["clocks"]:
            del state["clocks"][number - 8]  # warps of one group are never this far apart
    state["waited"] = max(state["waited"], needed)
    return None


def _finish(engine, warp, group):
    """Complete a group. Its reads of shared memory last until this wait, so they get the waiting warp's clock of now:
    an arrive before the wait does not cover them."""
    for operation in group:
        engine.finish(operation)
        if operation.waited:
            continue
        for cta, granules in operation.reads:
            cta.shared.mark_read(operation.ins, warp, granules)
        operation.reads = ()

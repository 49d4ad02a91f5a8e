"""Multicast addresses. There is one device, so a multicast object is the memory of this device under a second address.

The second address shows mistakes: only multimem instructions may use it, and they may use no other address.
"""

import numpy as np

from . import memory
from .lanes import bits_of, mask_of

BASE = 0x5000_0000_0000  # the multicast address of GLOBAL_BASE
_END = BASE + (16 << 40)


def address_of(address):
    """The multicast address of global memory."""
    return address - memory.GLOBAL_BASE + BASE


def resolved(ins, warp, lanes, addresses):
    """(lanes with a multicast address, which of `lanes` these are, their global addresses); reports the others."""
    good = (addresses >= BASE) & (addresses < _END)
    full = np.zeros(32, bool)
    full[mask_of(lanes)] = good
    part = bits_of(full)
    if not good.all():
        address = int(addresses[~good][0])
        words = f"{address:#x} is no multicast address, which multimem instructions need; Device.multicast returns it for an allocation"
        ins.report(warp, lanes & ~part, "out-of-bounds", words, address)
    return part, good, addresses[good] - BASE + memory.GLOBAL_BASE


def read(ins, warp, lanes, addresses, size):
    part, good, addresses = resolved(ins, warp, lanes, addresses)
    data = np.zeros(len(good) if size <= 8 else (len(good), size // 8), f"u{min(size, 8)}")
    if part:
        data[good] = memory.read_global(ins, warp, part, addresses, size)
    return data


def write(ins, warp, lanes, addresses, size, values):
    part, good, addresses = resolved(ins, warp, lanes, addresses)
    if part:
        memory.write_global(ins, warp, part, addresses, size, values[good])

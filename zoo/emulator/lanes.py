"""Sets of lanes: an int bit mask for bookkeeping, a bool array for numpy. Both forms are cached, because a kernel uses few."""

import numpy as np

LANES = 32
FULL = 0xFFFFFFFF

_masks = {}
_bits = {}


def mask_of(lanes):
    """The read-only bool array of 32 for a bit mask."""
    mask = _masks.get(lanes)
    if mask is None:
        if len(_masks) > 100_000:
            _masks.clear()
        mask = ((np.uint64(lanes) >> np.arange(LANES, dtype=np.uint64)) & np.uint64(1)).astype(bool)
        mask.setflags(write=False)
        _masks[lanes] = mask
    return mask


def bits_of(mask):
    """The bit mask of a bool array of 32."""
    key = mask.tobytes()
    lanes = _bits.get(key)
    if lanes is None:
        if len(_bits) > 100_000:
            _bits.clear()
        lanes = int.from_bytes(np.packbits(mask, bitorder="little").tobytes(), "little")
        _bits[key] = lanes
    return lanes


def first_lane(lanes):
    """Index of the lowest lane of a non-empty set."""
    return (lanes & -lanes).bit_length() - 1


def by_value(array, lanes):
    """[(value, the lanes that have it)]"""
    first = array[first_lane(lanes)].item()
    if (array == first)[mask_of(lanes)].all():
        return [(first, lanes)]
    found = {}
    for lane, value in enumerate(array.tolist()):
        if lanes >> lane & 1:
            found[value] = found.get(value, 0) | 1 << lane
    return list(found.items())


def assign(array, value, lanes):
    """array[lanes] = value, where value is a scalar or an array of 32."""
    if lanes == FULL:
        array[...] = value
    else:
        np.copyto(array, value, where=mask_of(lanes), casting="unsafe")


def put_rows(warp, rows, values, lanes):
    """Store `values` ((n, 32) uint32) to the warp's 32-bit registers `rows` for these lanes."""
    if lanes == FULL:
        warp.words[rows] = values
    else:
        mask = mask_of(lanes)
        warp.words[rows] = np.where(mask, values, warp.words[rows])

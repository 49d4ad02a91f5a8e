"""What zoo needs to know of an array, whoever owns it: the record that readers of frameworks make and the resolver takes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

HOST = -1  # the device of memory that no GPU can reach
HIGHEST_ADDRESS = 2**62 - 1  # of what a caller may claim: GPUs have 57 bits


@dataclass(frozen=True)
class Array:
    """Strides are in elements. `device` is the driver's number of it, HOST, or an emulated device itself. `owner` keeps the memory
    where the caller's own object need not: what a DLPack producer exported."""

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: Hashable = 0
    readonly: bool = False
    owner: object = field(default=None, compare=False, repr=False)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))

"""Records of arrays: `Array` is what the resolver takes; `Pointer` and `View` are what a caller writes where a framework has no such array."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True)
class Pointer:
    """Raw device memory with its meaning. Strides are in elements."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: Any


@dataclass(frozen=True)
class View:
    """Another framework's array with another dtype of the same size."""

    base: object
    dtype: str


def contiguous_strides(shape: tuple[int, ...], columns: bool = False) -> tuple[int, ...]:
    """Rows one after the other in memory; with `columns`, the columns of each matrix, as mn_major scales lie."""
    if columns:
        *outer, row, column = contiguous_strides((*shape[:-2], shape[-1], shape[-2]))
        return (*outer, column, row)
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))

"""Which rows of a product belong to which group: its pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from zoo.reference.groups import group_sizes
from zoo.reference.kernels.call import Call


class Piece(NamedTuple):
    group: int | None  # None: there are no groups, and the weights are one matrix
    place: Any  # of its rows among those of the result: an index of an array (M, ...), or (G, R, ...) where groups have places
    size: int


def pieces(call: Call, rows: int) -> Iterator[Piece]:
    """Those that have rows; `rows` are those of the result."""
    for piece in _all(call, rows):
        if piece.size or piece.group is None:
            yield piece


def _all(call: Call, rows: int) -> Iterator[Piece]:
    if "rows" in call.arrays:
        for group, used in enumerate(call.arrays["rows"].tolist()):
            yield Piece(group, (group, slice(0, used)), used)
    elif "m_indices" in call.arrays:
        owners, groups = call.arrays["m_indices"], len(call.arrays["b"])
        if owners.max(initial=-1) >= groups:  # a kernel would read memory behind b
            raise ValueError(f"m_indices: expected a group from 0 to {groups - 1} or -1, got {owners.max()}")
        for group in range(groups):
            rows_of_group = np.flatnonzero(owners == group)
            begin, size = int(rows_of_group[0]) if len(rows_of_group) else 0, len(rows_of_group)
            if size and rows_of_group[-1] != begin + size - 1:
                raise ValueError(f"the rows of group {group} of m_indices do not lie together")
            yield Piece(group, slice(begin, begin + size), size)
    elif "offsets" in call.arrays:
        begin = 0
        if call.arrays["offsets"].size:
            for group, size in enumerate(group_sizes(call.arrays["offsets"], rows).tolist()):
                yield Piece(group, slice(begin, begin + size), size)
                begin += size
    else:
        yield Piece(None, slice(0, rows), rows)


def taken(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows of x through an index; zeros where it is none of theirs."""
    found = np.zeros((len(index), *x.shape[1:]), x.dtype)
    there = (index >= 0) & (index < len(x))
    found[there] = x[index[there]]
    return found

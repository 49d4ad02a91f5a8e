"""Structured sparsity: of every four elements along K of A two are stored (of every two one, if tf32); four bits of metadata say which.

Bits 0-1 of a nibble are the index of the first stored element, bits 2-3 of the second. For tf32 0b0100 keeps the first element of two,
0b1110 the second. Packed 4-bit elements count in pairs: four of eight are stored. A 16-bit word of four nibbles covers 16 elements along
K, 8 of tf32, 32 of packed 4-bit elements. `of_warp` and `of_tensor_memory` find the words where the manual's figures have them.
"""

import numpy as np

from . import number_formats

_ONE_OF_TWO = (0b0100, 0b1110)
# What the manual allows where order counts. For tcgen05.mma it has 2, 1 too.
_ORDERED = {"mma": (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110), "tcgen05": (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)}


def nibbles_of(words16):
    """(rows, 4 n) nibbles of (rows, n) 16-bit words, low bits first."""
    words16 = np.ascontiguousarray(words16, np.uint16)
    return ((words16[:, :, None] >> np.array([0, 4, 8, 12], np.uint16)) & 15).reshape(len(words16), -1)


def of_warp(registers, selector, bits, depth):
    """The nibbles (16, groups) of A's rows from the metadata registers of 32 lanes.

    bits: of an element; depth: K. Lane 4 r + q holds metadata of rows r and r + 8.
        16 and 32-bit elements: the low half belongs to row r, the high half to row r + 8. A row needs one lane, q = selector,
        or two, q = 2 * selector and the next.
        8-bit elements: a lane holds 32 columns of row r (q even) or r + 8 (q odd). The lanes of a pair are q = 2 * selector and the next;
        at K = 64 pair 0 holds columns 0 to 31, pair 1 the others.
    """
    halves = registers.view(np.uint16).reshape(8, 4, 2)  # row, lane of four, half
    if bits == 8:
        pairs = halves.reshape(8, 2, 2, 2)  # row, pair, row + 8, half
        pairs = pairs if depth == 64 else pairs[:, selector : selector + 1]
        return nibbles_of(pairs.transpose(2, 0, 1, 3).reshape(16, -1))
    count = depth * bits // 256
    return nibbles_of(halves[:, count * selector :][:, :count].transpose(2, 0, 1).reshape(16, -1))


def of_tensor_memory(cells, lanes, column, bits):
    """The nibbles of A's rows from the cells of one CTA; `lanes`: the tensor-memory lane of every row.

    Elements of 16 and 32 bits: one column; rows m and m + 8 share the cells of lanes m and m + 8, whose low halves belong to
    row m: lane m holds the first half of K, lane m + 8 the second. Smaller elements: row m has two cells of its lane.
    """
    if bits < 16:
        return nibbles_of(np.ascontiguousarray(cells[lanes, column : column + 2]).view(np.uint16))
    blocks = np.ascontiguousarray(cells[lanes, column]).view(np.uint16).reshape(-1, 2, 8, 2)  # 16 rows, half of K, m % 8, m / 8
    return nibbles_of(blocks.transpose(0, 3, 2, 1).reshape(len(lanes), 2))


def _problem(nibbles, left, bits, ordered):
    """Why this metadata has no meaning, or None. Where only zeros are stored, no index matters."""
    if bits == 32:
        wrong, rule = ~np.isin(nibbles, _ONE_OF_TWO), "0b0100 or 0b1110"
    elif ordered:
        wrong, rule = ~np.isin(nibbles, _ORDERED[ordered]), "two indices in increasing order"
    else:
        wrong, rule = nibbles & 3 == nibbles >> 2, "two different indices"
    wrong &= (left != 0).reshape(*nibbles.shape, -1).any(axis=2)
    if not wrong.any():
        return None
    row, group = np.argwhere(wrong)[0]
    return f"the sparsity metadata of row {row} has {nibbles[row, group]:#06b} for group {group} along K: it must be {rule}"


def columns_of(nibbles, bits):
    """(rows, stored elements): the place along K of each stored element. Elements of 4 bits are kept in pairs."""
    group = np.arange(nibbles.shape[1])
    if bits == 32:
        return 2 * group + (nibbles >> 1 & 1)
    columns = (4 * group[:, None] + np.stack([nibbles & 3, nibbles >> 2], axis=2)).reshape(len(nibbles), -1)
    return columns if bits > 4 else (2 * columns[:, :, None] + np.arange(2)).reshape(len(nibbles), -1)


def multiply(left, nibbles, bits, right, addend, product, report, *, format=None, ordered=None):
    """product(A, B, C, rows) where A has the stored elements (rows, K / 2) and B (columns, K); report(sentence) of metadata without meaning.

    ordered: the instruction whose metadata is in order, if it must be. format: of B's codes, if they are no integers. Zeros stand for the elements that are not stored. They would make NaN of an infinity
    in B that the hardware skips: then each row is multiplied alone, by those elements of B that it meets.
    """
    problem = _problem(nibbles, left, bits, ordered)
    if problem:
        report(problem)
    columns = columns_of(nibbles, bits)
    if format is None or np.isfinite(number_formats.decode(format, right)).all():
        dense = np.zeros((len(left), right.shape[1]), left.dtype)
        np.put_along_axis(dense, columns, left, axis=1)
        return product(dense, right, addend, slice(None))
    rows = [slice(row, row + 1) for row in range(len(left))]
    return np.concatenate([product(left[row], right[:, columns[row.start]], None if addend is None else addend[row], row) for row in rows])

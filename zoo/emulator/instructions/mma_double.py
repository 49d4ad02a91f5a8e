"""mma.sync of f64. The sums go along K, each step a fused multiply-add; the manual leaves the order open.

Fragments of lane l, element i:
    A: row l / 4 + 8 * (i % 2), k = l % 4 + 4 * (i / 2)        (m8: one element)
    B: k = l % 4 + 4 * i, column l / 4
    C and D: row l / 4 + 8 * (i / 2), column 2 * (l % 4) + i % 2
"""

import numpy as np

from . import need_all
from .arithmetic import fma_f64

_LANE = np.arange(32)


def mma_f64(ins, m, n, depth):
    if (m, n, depth) not in ((8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)):
        ins.unsupported(f"the shape m{m}n{n}k{depth} with .f64 is not covered")
    if ins.choice("rn", "rz", "rm", "rp", default="rn") != "rn":
        ins.unsupported("only .rn is covered for f64")
    d, a, b, c = ins.write_list(0, "f64"), ins.read_list(1, "f64"), ins.read_list(2, "f64"), ins.read_list(3, "f64")
    if (len(d), len(a), len(b), len(c)) != (m * n // 32, m * depth // 32, n * depth // 32, m * n // 32):
        ins.unsupported("the numbers of registers do not fit the shape")
    high = m // 8  # rows 8 apart that a lane holds
    rows_of_a, depths_of_a = _places(len(a), lambda i: (_LANE // 4 + 8 * (i % high), _LANE % 4 + 4 * (i // high)))
    depths_of_b, columns_of_b = _places(len(b), lambda i: (_LANE % 4 + 4 * i, _LANE // 4))
    rows, columns = _places(len(c), lambda i: (_LANE // 4 + 8 * (i // 2), 2 * (_LANE % 4) + i % 2))

    def run(warp, lanes):
        need_all(ins, warp, lanes)
        values = warp.values
        left, right, total = np.empty((m, depth)), np.empty((depth, n)), np.empty((m, n))
        left[rows_of_a, depths_of_a] = [values[slot] for slot in a]
        right[depths_of_b, columns_of_b] = [values[slot] for slot in b]
        total[rows, columns] = [values[slot] for slot in c]
        for slot, result in zip(d, product(left, right, total)[rows, columns]):
            if slot is not None:
                values[slot][...] = result

    return run


def product(left, right, total):
    """total + left @ right, rounded at each step along K."""
    for k in range(left.shape[1]):
        factors = np.broadcast_to(left[:, k, None], total.shape), np.broadcast_to(right[k], total.shape)
        total = fma_f64(*(matrix.reshape(-1) for matrix in (*factors, total))).reshape(total.shape)
    return total


def _places(count, place):
    """(rows, columns), each (count, 32)."""
    return (np.stack(axis) for axis in zip(*map(place, range(count))))

"""Large operands whose rows come again, so that a reference multiplies each of them once (zoo.reference.gemm.distinct_rows).

Equal rows are a prime number of rows apart. Tiles, warps, lanes and stages are multiples of powers of two apart, so a row in the place of
another is seen all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy


class Repeats(NamedTuple):
    period: int  # equal rows are multiples of so many rows apart
    elements: int  # in matrices of so many elements or more


TOKENS, WEIGHTS = Repeats(67, 1 << 17), Repeats(331, 1 << 20)


def drawn_rows(rows: int, columns: int, repeats: Repeats) -> int:
    """How many rows of a matrix are to be drawn."""
    return min(rows, repeats.period) if rows * columns >= repeats.elements else rows


def again(matrix: numpy.ndarray, rows: int) -> numpy.ndarray:
    """So many rows of a matrix of fewer, over and over."""
    return matrix if len(matrix) == rows else matrix[numpy.arange(rows) % len(matrix)]

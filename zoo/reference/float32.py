"""Float32 operations that numpy lacks, exactly rounded."""

from __future__ import annotations

import numpy as np


def fused_multiply_add(a: np.ndarray | np.float32, b: np.ndarray, c: np.ndarray | np.float32) -> np.ndarray:
    """a * b + c of float32, rounded once, to nearest even.

    In float64 the product is exact and the sum is not. Rounding the sum a second time, to float32, would be wrong where
    the first rounding made a tie, so the sum is first rounded to odd instead: where it is not exact, its last bit is 1,
    which is never a tie of float32.
    """
    with np.errstate(all="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        c = np.asarray(c, np.float64)
        total = product + c
        part = total - product
        error = (product - (total - part)) + (c - part)  # of the sum, exactly; NaN where the sum is not finite
        bits = total.view(np.int64)
        # One step away from zero where the sum lost magnitude, towards it where it gained. An odd sum stays.
        step = np.where((error > 0) == (total > 0), 1, -1)
        bits += np.where((error != 0) & ~np.isnan(error) & (bits & 1 == 0), step, 0)
        return np.asarray(total.astype(np.float32))

"""Rearranging elements that exist: what the kernels `pack.*` do."""

from __future__ import annotations

import numpy as np

ROW = 64  # bytes: 128 elements of four bits


def pack_mxfp4(q: np.ndarray) -> np.ndarray:
    """(..., C) bytes of two e2m1 each -> (..., C rounded up to 64), zero where q has nothing."""
    if q.dtype != np.uint8 or q.shape[-1] % 16:
        raise ValueError(f"q is uint8, a multiple of 16 bytes a row, not {q.dtype} {q.shape}")
    packed = np.zeros((*q.shape[:-1], -(-q.shape[-1] // ROW) * ROW), np.uint8)
    packed[..., : q.shape[-1]] = q
    return packed

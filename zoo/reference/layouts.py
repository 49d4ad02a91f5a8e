"""Where a block's scale lies in memory: `plain` is row-major; `blocked` is the 128 x 4 tile layout below.

`blocked` is what tcgen05 and cuBLAS read. A matrix of R x C scale bytes is padded with zero bytes to R' x C'
(multiples of 128 and 4) and cut into tiles of 128 x 4, stored row by row of tiles, 512 bytes each. Inside a tile,
byte (r, c) lies at (r % 32) * 16 + (r / 32) * 4 + c: 32 lines of 16 bytes, a line holding rows r, r+32, r+64, r+96.
"""

from __future__ import annotations

import numpy as np

TILE_ROWS, TILE_COLUMNS = 128, 4


def blocked_shape(rows: int, columns: int) -> tuple[int, int]:
    """R' and C': the padded size of a blocked scale matrix; it takes R' * C' bytes."""
    return -(-rows // TILE_ROWS) * TILE_ROWS, -(-columns // TILE_COLUMNS) * TILE_COLUMNS


def blocked_offset(row: np.ndarray, column: np.ndarray, padded_columns: int) -> np.ndarray:
    """Byte offset of scale (row, column)."""
    tile = (row // 128) * (padded_columns // 4) + column // 4
    return np.asarray(tile * 512 + (row % 32) * 16 + (row % 128) // 32 * 4 + column % 4)


def to_blocked(scales: np.ndarray) -> np.ndarray:
    """Row-major scale bytes (R, C) -> R' * C' bytes, one-dimensional, zero where there is padding."""
    rows, columns = scales.shape
    padded_rows, padded_columns = blocked_shape(rows, columns)
    blocked = np.zeros(padded_rows * padded_columns, np.uint8)
    row, column = np.indices((rows, columns), dtype=np.int64)
    blocked[blocked_offset(row, column, padded_columns)] = np.ascontiguousarray(scales).view(np.uint8)
    return blocked.view(scales.dtype)


def from_blocked(blocked: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Inverse of `to_blocked`; the padding is dropped."""
    padded_rows, padded_columns = blocked_shape(rows, columns)
    flat = np.ascontiguousarray(blocked).reshape(-1)
    if flat.size != padded_rows * padded_columns:
        raise ValueError(f"blocked scales of ({rows}, {columns}) take {padded_rows} * {padded_columns} bytes, got {flat.size}")
    row, column = np.indices((rows, columns), dtype=np.int64)
    return np.asarray(flat[blocked_offset(row, column, padded_columns)])

"""Products on Hopper whose tiles are dealt out in waves, and whose last tiles, which fill no wave, are shared along K by clusters of CTAs."""

from __future__ import annotations

import numpy as np

from zoo.contract.resolve import Launch


def shares_of_rest(launch: Launch, rows: int, columns: int) -> tuple[int, np.ndarray]:
    """Into how many shares K is cut there, and which elements of D (rows, columns) are sums of shares."""
    variant, where = launch.variant, np.zeros((rows, columns), bool)
    if not variant.constants.get("SPLITS_LAST_WAVE"):
        return 1, where
    shares, together = launch.cluster[0], launch.grid[0]
    tall, wide, band = (variant.constants[name] for name in ("TOKENS", "WEIGHTS", "BAND"))
    down, across = -(-rows // tall), -(-columns // wide)
    whole_waves = down * across // together * together
    for tile in range(whole_waves if shares > 1 else down * across, down * across):
        # Tiles go down a band of rows of tiles, column after column, then to the next band.
        first = tile // (band * across) * band
        column, row = divmod(tile - first * across, min(band, down - first))
        row += first
        where[row * tall :, column * wide :] = True  # a tile below or to the right has a later turn
    return shares, where

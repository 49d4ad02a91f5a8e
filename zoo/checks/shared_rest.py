"""Which elements of D are sums of shares of K, where clusters of CTAs share the tiles that fill no wave (src_cu/gemm/hopper_fp8/pipeline/split_k_last_wave.cuh).

What is shared depends on how many multiprocessors there are, so a problem says for how many its answer is.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from zoo.contract.manifest import Kernel, Variant


def shares_rest(variant: Variant) -> bool:
    return bool(variant.constants.get("SPLITS_LAST_WAVE"))


def shared(
    kernel: Kernel, variant: Variant, sizes: tuple[int, int, int], multiprocessors: int, invariant: bool
) -> tuple[int, numpy.ndarray]:
    """By how many CTAs tiles are shared, and an array of M x N that is true where they are."""
    M, N, K = sizes
    values = {
        "M": M,
        "N": N,
        "K": K,
        "sms": multiprocessors,
        "batch_invariant.yes": int(invariant),
        "batch_invariant.no": int(not invariant),
    }
    for name, expression in kernel.derived:
        values[name] = expression.evaluate(values)
    values |= variant.symbols
    cut, ctas = (extent[0].evaluate(values) for extent in (variant.launch.cluster, variant.launch.grid))
    tokens, weights, band = (variant.constants[name] for name in ("TOKENS", "WEIGHTS", "BAND"))
    rows, columns = -(-M // tokens), -(-N // weights)
    where = numpy.zeros((M, N), bool)
    if cut > 1:
        for index in range(rows * columns - rows * columns % ctas, rows * columns):
            row, column = _place(index, rows, columns, band)
            where[first_row(row, tokens, M) : first_row(row + 1, tokens, M), column * weights : (column + 1) * weights] = True
    return cut, where


def with_a_rest(variant: Variant) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """(multiprocessors, (M, N, K)) where four and two CTAs share the only tile, the last one of a wave and more, and the last ones of
    several rows of tiles."""
    tokens, weights = variant.constants["TOKENS"], variant.constants["WEIGHTS"]
    yield 132, (1, 8, 2960)
    yield 3, (5, 8, 1424)
    yield 4, (7, 4 * weights + 8, 1552)
    yield 4, (tokens + 3, 2 * weights + 24, 1680)
    yield 80, (1, 80 * weights + 8, 2960)


def first_row(tile: int, tokens: int, rows: int) -> int:
    """Of tiles that are about as high as each other (EvenTiles in src_cu/gemm/schedule/tile_schedule.cuh); of the one after the last, `rows`."""
    if rows > 65536:
        return min(rows, tile * tokens)
    fours = -(-rows * 4096 // (4 * -(-rows // tokens)))
    return min(rows, -(-tile * fours // 4096) * 4)


def _place(index: int, rows: int, columns: int, band: int) -> tuple[int, int]:
    """Of a tile: down a band of rows first, then along the columns."""
    first, within = index // (band * columns) * band, index % (band * columns)
    height = min(band, rows - first)
    return first + within % height, within // height

"""Prints what a layer of experts would spend on its exchange: arithmetic from published bandwidths, nothing is measured.

    python tools/exchange_on_paper.py

The layer is DeepSeek-V3's: 256 experts of 7168 / 2048 in fp8b128, 8 for each token, frozen, drawn at random. A token goes once to each rank that it
reaches. A rank sends its messages in turn, and a part's products begin when its rows are there. Latencies of messages are left out.
"""

from __future__ import annotations

import math

HIDDEN, INTERMEDIATE, EXPERTS, TOP, NODE = 7168, 2048, 256, 8, 8
ROW, RESULT = 7456, 14336  # bytes: FP8 with scales, experts and weights; bf16
# `zoo bench --recorded`, H200, K = 7168: both GEMMs with 512 rows an expert, TFLOPS; and with 16, TB/s
FIRST, SECOND, MEMORY = 1021e12, 1234e12, 4.29e12
NVLINK, NETWORK = 450e9, 50e9  # bytes a second out of an H200, and of an adapter of 400 Gbit/s for each GPU


def products(tokens: int, ranks: int) -> float:
    """Seconds of both GEMMs on a rank."""
    operations = 2 * tokens * TOP * HIDDEN * INTERMEDIATE
    weights = 3 * EXPERTS // ranks * HIDDEN * INTERMEDIATE
    return max(2 * operations / FIRST + operations / SECOND, weights / MEMORY)


def message(tokens: int, ranks: int, size: int) -> float:
    """Seconds of the rows of so many bytes, to its node and to other nodes at once."""
    away = EXPERTS - EXPERTS // ranks
    a_rank = tokens * (1 - math.comb(away, TOP) / math.comb(EXPERTS, TOP)) * size
    return max(a_rank * (NODE - 1) / NVLINK, a_rank * (ranks - NODE) / NETWORK)


def layer(tokens: int, ranks: int, parts: int) -> float:
    """Seconds of the picture in zoo/torch/nn/experts_parallel.py. The products of each part read all weights."""
    rows, results, each = message(tokens, ranks, ROW) / parts, message(tokens, ranks, RESULT) / parts, products(tokens // parts, ranks)
    sent, computed = parts * rows, 0.0
    for part in range(parts):
        computed = max(computed, (part + 1) * rows) + each
        sent = max(sent, computed) + results
    return sent


def table() -> str:
    lines = ["| GPUs, tokens a GPU | products, us | exchange, us | layer in two parts, us |", "|---|---|---|---|"]
    for ranks in (NODE, 64):
        for tokens in (16, 128, 8192):
            exchange = message(tokens, ranks, ROW) + message(tokens, ranks, RESULT)
            seconds = products(tokens, ranks), exchange, layer(tokens, ranks, 2)
            lines.append(f"| {ranks}, {tokens:,} | " + " | ".join(f"{1e6 * one:,.0f}" for one in seconds) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())

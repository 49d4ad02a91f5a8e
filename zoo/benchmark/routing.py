"""Expert ids and rows as routers make them, for kernels that route tokens and combine their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy

# tokens, choices of a token, experts, columns: decoding and prefill of gpt-oss-120b, Qwen3-235B and DeepSeek-V3
SHAPES = [
    {"T": tokens, "top_k": top_k, "E": experts, "N": columns, "R": tokens * top_k}
    for top_k, experts, columns in ((4, 128, 2880), (8, 128, 4096), (8, 256, 7168))
    for tokens in (1, 16, 128, 1024, 8192)
]


def ids(tokens: int, top_k: int, experts: int) -> numpy.ndarray:
    """Every expert is as likely; no token has an expert twice, where there are enough."""
    import numpy

    random = numpy.random.default_rng(tokens)
    first = random.integers(0, experts, (tokens, 1))
    step = 1 + random.integers(0, max(experts // max(top_k, 1), 1), (tokens, 1))
    return (first + step * numpy.arange(top_k)) % experts


def rows(tokens: int, top_k: int, of_d: int) -> numpy.ndarray:
    """Choices of neighbouring tokens are far apart. Choices for which d has no row are dropped."""
    import numpy

    found = numpy.full(tokens * top_k, -1, numpy.int32)
    used = min(found.size, of_d)
    found[:used] = numpy.random.default_rng(tokens).permutation(of_d)[:used]
    return found.reshape(tokens, top_k)

"""e4m3 with a scale for each row, or token: what the kernels quantize.fp8token.* do."""

from __future__ import annotations

import numpy as np

from zoo.reference.block_formats import Float32
from zoo.reference.fragments import permuted_columns
from zoo.reference.quantize import Quantized
from zoo.reference.small_floats import E4M3, encode_fp8

ORDERS = ("plain", "fragments")


def quantize_token_rows(x: np.ndarray, order: str = "plain") -> Quantized:
    """x (M, K) -> q (M, K), in the order `fragments` (M, ceil(K / 64), 64), and scales (M,).

    The rule is that of the format fp8b128 under the scaling `exact`, with the whole row as a block.
    """
    if order not in ORDERS:
        raise ValueError(f"order is {' or '.join(map(repr, ORDERS))}, not {order!r}")
    rule = Float32("exact")
    with np.errstate(all="ignore"):
        x = x.astype(np.float32)
        scales = rule.scales(np.abs(x).max(axis=1, initial=0), E4M3).astype(np.float32)
        q = encode_fp8(x * rule.multiplier(scales)[:, None], E4M3)
    return Quantized(permuted_columns(q) if order == "fragments" else q, scales)

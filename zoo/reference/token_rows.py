"""e4m3 with a scale for each row, or token: what the kernels quantize.fp8token.* do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zoo.reference.block_formats import Float32
from zoo.reference.fragments import permuted_columns
from zoo.reference.quantize import Quantized
from zoo.reference.small_floats import E4M3, encode_fp8
from zoo.reference.swiglu import gated_unit, gates_and_ups

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


@dataclass(frozen=True)
class GatedRows:
    """How rows of gates and ups become h. Groups end at `offsets`. alpha (G, 2) has the factors of each group's gates and ups."""

    gates: str = "halves"
    activation: str = "silu"
    limit: np.float32 = np.finfo(np.float32).max
    offsets: np.ndarray | None = None
    alpha: np.ndarray | None = None

    def used(self, rows: int) -> int:
        """How many rows belong to a group."""
        return rows if self.offsets is None else min(rows, int(self.offsets[-1]))

    def h(self, x: np.ndarray) -> np.ndarray:
        """x (M, 2 K) -> float32 (rows of groups, K)."""
        x = x[: self.used(len(x))].astype(np.float32)
        if self.alpha is not None and self.offsets is not None:
            factors = self.alpha[np.searchsorted(self.offsets, np.arange(len(x)), "right")]
            gate, up = gates_and_ups(x, self.gates)
            with np.errstate(all="ignore"):
                x = np.concatenate((gate * factors[:, :1], up * factors[:, 1:]), axis=1)
            return gated_unit(x, "halves", self.activation, self.limit)
        return gated_unit(x, self.gates, self.activation, self.limit)

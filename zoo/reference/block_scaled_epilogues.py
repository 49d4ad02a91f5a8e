"""What is made of the sums of a block-scaled product besides D: gated units, and operands of the next product.

Each step rounds to f32: the sums times alpha, plus bias, made into h where they are gates and ups (`zoo.reference.swiglu`), times
the row's factor. Then h is rounded to D, or quantised by the rule of quantize.mxfp8.rows or quantize.nvfp4.rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zoo.reference.block_formats import BlockFormat
from zoo.reference.quantize import Quantized, quantize_rows
from zoo.reference.swiglu import gated_unit

NO_LIMIT = np.float32(3.4028234663852886e38)


@dataclass(frozen=True)
class Gates:
    """How gates and ups lie among the columns of the sums, and what is made of them."""

    order: str = "halves"
    activation: str = "silu"
    limit: np.float32 = NO_LIMIT


def made_of_sums(
    sums: np.ndarray,
    gates: Gates | None,
    alpha: np.ndarray | float | None = None,
    bias: np.ndarray | None = None,
    row_scale: np.ndarray | None = None,
) -> np.ndarray:
    """f32 (M, N), or (M, N / 2) of gates and ups. alpha and bias as in `zoo.reference.block_scaled_gemm.finished`."""
    with np.errstate(all="ignore"):
        if alpha is not None:
            sums = sums * np.asarray(alpha, np.float32)
        if bias is not None:
            sums = sums + bias.astype(np.float32)
        h = sums if gates is None else gated_unit(sums, gates.order, gates.activation, gates.limit)
        return h if row_scale is None else h * row_scale[:, None]


def quantised(h: np.ndarray, format: BlockFormat, offsets: np.ndarray | None = None) -> Quantized:
    """a and a_scale of the next product: blocked scales, of ragged groups group by group."""
    return quantize_rows(h, format, "blocked", offsets)

"""What a product with packed 4-bit gates and ups makes of its sums, to the bit: h, and h quantised for the next product.

Each step is rounded to f32. Of gates and ups (M, N), in the order that the matrix had before it was packed:

    gate, up    the sums times a_scale (M,), times the factor of the weight's row, plus the bias (N,)
    h (M, N/2)  of the two, by the rule of `zoo.reference.swiglu`
    h           times row_scale (M,)

Then h is rounded to D, or becomes e4m3: by the rule of quantize.fp8b128.rows, a scale for 1 x 128; or under one scale s that is known beforehand,
e4m3_RN(h * r), r = 1 / s rounded to f32, which saturates at 448 and keeps NaN; scales are then s. With `in_fragments` columns lie as in
`zoo.reference.fragments.column_order`, with zeros behind the last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zoo.reference.block_formats import block_format
from zoo.reference.block_scaled_epilogues import Gates
from zoo.reference.four_bit_gemm import factors_of, finished
from zoo.reference.fragments import permuted_columns
from zoo.reference.quantize import Quantized, quantize_rows
from zoo.reference.small_floats import E4M3, encode_fp8
from zoo.reference.swiglu import gated_unit


@dataclass(frozen=True)
class Steps:
    """What a call may give for the rows of one matrix of weights; `alpha` has one number, or one for gates and one for ups."""

    alpha: np.ndarray | None = None
    a_scale: np.ndarray | None = None
    bias: np.ndarray | None = None
    row_scale: np.ndarray | None = None


def are_ups(rows: int, order: str) -> np.ndarray:
    """Which of a matrix's rows are ups."""
    row = np.arange(rows)
    return np.asarray(row >= rows // 2 if order == "halves" else row % 2 == 1)


def h_of_sums(sums: np.ndarray, powers: np.ndarray, gates: Gates, steps: Steps) -> np.ndarray:
    """powers (N,): of two, that belong to the packed weights, as in `factors_of`."""
    alpha = None if steps.alpha is None else steps.alpha[np.where(are_ups(len(powers), gates.order), len(steps.alpha) - 1, 0)]
    of_both = finished(sums, factors_of(powers, alpha), steps.a_scale, steps.bias)
    h = gated_unit(of_both, gates.order, gates.activation, gates.limit)
    with np.errstate(all="ignore"):
        return h if steps.row_scale is None else h * steps.row_scale[:, None]


def quantised_in_blocks(h: np.ndarray, scaling: str, in_fragments: bool) -> Quantized:
    """(q, scales)."""
    found = quantize_rows(h, block_format("fp8b128", scaling=scaling))
    return Quantized(permuted_columns(found.q), found.scales) if in_fragments else found


def quantised_by(h: np.ndarray, scale: np.float32, in_fragments: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        q = encode_fp8(h * (np.float32(1) / scale), E4M3)
    return permuted_columns(q) if in_fragments else q

"""The backward pass of a gated unit, bit by bit: gradients of gates and ups, the weighted activation, the gradient of row weights.

The rule of one gate and up. g, u and d (the gradient of act) are bf16, w is the f32 weight of the row. All are read as float32.
Every operation is IEEE float32, rounded to nearest even, subnormals kept. The limits, `slope`, `added`, e and r are those of
`zoo.reference.swiglu`:

    g', u'  = g and u after the limits
    v       = u' + added                    an addition, where added is not 0
    z       = slope * g'
    s       = max(g', g' * e) * r           g' * sigmoid(z)
    near    = r, far = e * r                sigmoid(|z|) and sigmoid(-|z|)
    s'      = z * far * near + (far if z < 0 else near)      the product z * far is rounded, then one fused multiply-add
    act     = s * v
    dw      = d * w
    d_up    = dw * s, or 0 where |u| > limit
    d_gate  = dw * v * s' from left to right, or 0 where g > limit
    weighted act = act * w

so s' is the derivative of g * sigmoid(slope * g): sigmoid(z) + z * sigmoid(z) * sigmoid(-z). Without row weights w is 1. A gate or up
that equals its limit has its gradient, as in torch.clamp. d_up, d_gate and weighted act are rounded to bf16 and are then quantised
like any bf16 matrix.

A row of weight 0 has zeros there, whatever d_act and h hold. Elsewhere NaN in g, u or d gives NaN, and so does an infinite gate within
the limits.

The gradient of a row's weight is the dot product of d and act. A part of it is the sum over 128 columns: eight sums, of which number l
takes columns 8 l to 8 l + 7 and then 64 + 8 l to 64 + 8 l + 7, each by a fused multiply-add from 0 on. Neighbours of them are added,
then neighbours of the results, and again. Columns that do not exist count as zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from ml_dtypes import bfloat16

from zoo.reference.float32 import fused_multiply_add
from zoo.reference.swiglu import ACTIVATIONS, sigmoids, silu

ZERO, NAN = np.float32(0), np.uint32(0x7FFFFFFF).view(np.float32)
PART = 128  # columns of a part of the dot product


class Gradients(NamedTuple):
    """bf16 (M, 2 K) in the order of h, bf16 (M, K), and float32 (M, ceil(K / 128))."""

    d_h: np.ndarray
    act: np.ndarray
    dots: np.ndarray


def swiglu_backward(
    d_act: np.ndarray, h: np.ndarray, order: str, activation: str = "silu", limit: float = np.inf, weights: np.ndarray | None = None
) -> Gradients:
    """d_act (M, K) and h (M, 2 K) in bf16; silu ignores the limit."""
    half = h.shape[1] // 2
    gate, up = (h[:, :half], h[:, half:]) if order == "halves" else (h[:, 0::2], h[:, 1::2])
    d, gate, up = (array.astype(np.float32) for array in (d_act, gate, up))
    weight = np.ones((len(d), 1), np.float32) if weights is None else weights[:, None].astype(np.float32)
    with np.errstate(all="ignore"):
        act, d_gate, d_up = gradients(gate, up, d * weight, activation, np.float32(limit))
        dots = parts_of_dots(d, act)
        of_h = np.concatenate((d_gate, d_up), axis=1) if order == "halves" else np.stack((d_gate, d_up), axis=2).reshape(h.shape)
        d_h, weighted = (np.where(weight == 0, ZERO, values).astype(bfloat16) for values in (of_h, act * weight))
        return Gradients(d_h, weighted, dots)


def gradients(gate: np.ndarray, up: np.ndarray, d: np.ndarray, activation: str, limit: np.float32) -> tuple[np.ndarray, ...]:
    """float32: act, and the gradients of gates and ups where `d` is the gradient of act."""
    slope, added, limited = ACTIVATIONS[activation]
    limit = limit if limited else np.float32(np.inf)
    g, u = np.minimum(gate, limit), np.maximum(np.minimum(up, limit), -limit)
    u = u + added if added else u
    z, s = slope * g, silu(g, slope)
    near, far = sigmoids(z)
    slope_of_s = fused_multiply_add(z * far, near, np.where(z < 0, far, near))
    d_gate = np.where(gate > limit, ZERO, d * u * slope_of_s)
    return s * u, d_gate, np.where(np.abs(up) > limit, ZERO, d * s)


def parts_of_dots(d: np.ndarray, act: np.ndarray) -> np.ndarray:
    rows, columns = d.shape
    parts = -(-columns // PART)
    lanes = []
    for values in (d, act):
        whole = np.zeros((rows, parts * PART), np.float32)
        whole[:, :columns] = values
        lanes.append(whole.reshape(rows, parts, 2, 8, 8).swapaxes(2, 3).reshape(rows, parts, 8, 16))
    sums = np.zeros((rows, parts, 8), np.float32)
    for column in range(16):
        sums = fused_multiply_add(lanes[0][..., column], lanes[1][..., column], sums)
    while sums.shape[2] > 1:
        sums = sums[..., 0::2] + sums[..., 1::2]
    return np.where(np.isnan(sums), NAN, sums)[..., 0]

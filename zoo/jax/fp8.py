"""A layer's three products in fp8b128, each operand quantised along the axis that its product contracts.

    y  = X W^T         gemm.fp8b128.dense or .m_grouped_contiguous     X by rows, W by squares of 128 x 128
    dx = dY W          the same kernel                                 dY by rows, W's squares transposed
    dw = dY^T X        gemm.fp8b128.k_grouped                          dY and X by columns, each group by itself

Rounding has derivative 1, also where an element saturates. Kept for the backward pass are X by columns and W's squares, a byte an element.
Scales are powers of two, which Hopper and Blackwell multiply alike.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from zoo.jax.calls import call

_UNIT = 16  # of the axis that a quantiser reads along


def product(x: Any, w: Any, offsets: Any = None) -> Any:
    """x (M, K) times the transpose of w (N, K). With offsets (E,): the rows of each group times its matrix of w (E, N, K).

    Rows that belong to no group are zeros, and so is their gradient."""
    N = w.shape[-2]
    if N % _UNIT:  # the backward pass quantises dy along N
        w = jnp.pad(w, [(0, 0)] * (w.ndim - 2) + [(0, -N % _UNIT), (0, 0)])
    return _product(x, w, offsets)[:, :N]


def _alone(x: Any, w: Any, offsets: Any) -> Any:
    """The product where nobody asks for a gradient."""
    b = call("quantize.fp8b128.squares", x=w, scaling="pow2")
    return _by_rows(x, b.q, b.scales, offsets)


def _forward(x: Any, w: Any, offsets: Any) -> tuple[Any, Any]:
    b = call("quantize.fp8b128.squares", x=w, scaling="pow2", q_cols=True, scales_cols=True)
    kept = _columns(x, offsets), b.q_cols, b.scales_cols, offsets, jnp.empty(0, x.dtype), jnp.empty(0, w.dtype)
    return _by_rows(x, b.q, b.scales, offsets), kept


def _backward(kept: Any, dy: Any) -> tuple[Any, Any, None]:
    (x_cols, x_scales, ends), b, b_scales, offsets, of_x, of_w = kept
    dx = _by_rows(dy, b, b_scales, offsets)
    dy_cols, dy_scales, _ = _columns(dy, offsets)
    d = of_w.dtype if of_w.dtype == jnp.bfloat16 else jnp.float32
    dw = call("gemm.fp8b128.k_grouped", a=dy_cols, a_scale=dy_scales, b=x_cols, b_scale=x_scales, offsets=ends, d=d).d
    return dx.astype(of_x.dtype), (dw if b.ndim == 3 else dw[0]).astype(of_w.dtype), None


_product = jax.custom_vjp(_alone)
_product.defvjp(_forward, _backward)


def _by_rows(x: Any, b: Any, b_scale: Any, offsets: Any) -> Any:
    a = call("quantize.fp8b128.rows", x=x, scaling="pow2")
    operands = {"a": a.q, "a_scale": a.scales, "b": b, "b_scale": b_scale, "d": x.dtype}
    if offsets is None:
        return call("gemm.fp8b128.dense", **operands).d
    y = call("gemm.fp8b128.m_grouped_contiguous", offsets=offsets, **operands).d
    return jnp.where((jnp.arange(len(y)) < offsets[-1])[:, None], y, 0)


def _columns(x: Any, offsets: Any) -> tuple[Any, Any, Any]:
    """x quantised along its columns: elements (K, M + 128 G), scales, and the end of each group there."""
    groups = jnp.array([len(x)], jnp.int32) if offsets is None else offsets
    found = call("quantize.fp8b128.cols.m_grouped_padded", x=x, offsets=groups, layout="mn_major", scaling="pow2")
    scales = jnp.pad(found.scales, [(0, 0), (0, len(groups))])  # the GEMM expects one more block of scales for each group
    return found.q, scales, found.padded_ends

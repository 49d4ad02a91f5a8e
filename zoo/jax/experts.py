"""Layers of experts in fp8b128, with gradients: `grouped_linear` multiplies rows by group, `experts` is a whole MLP."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from zoo.errors import ArgumentError
from zoo.jax.fp8 import product
from zoo.jax.operands import check_floats, described


def grouped_linear(x: Any, w: Any, offsets: Any) -> Any:
    """y (M, N): the rows of x (M, K) of group e times the transpose of w[e] (E, N, K). `offsets` (E,) int32: the end row of each group.

    Rows after the last group are zeros. `zoo.jax.fp8` says how the three products are quantised."""
    check_floats("grouped_linear", x=x, w=w)
    if x.ndim != 2 or w.ndim != 3 or x.shape[1] != w.shape[2]:
        raise ArgumentError(f"grouped_linear: expected x (M, K) and w (E, N, K), got {x.shape} and {w.shape}")
    if not isinstance(offsets, jax.Array) or offsets.dtype != jnp.int32 or offsets.shape != w.shape[:1]:
        raise ArgumentError(f"grouped_linear: offsets: expected int32 {w.shape[:1]}, the end row of each group, got {described(offsets)}")
    return product(x, w, offsets)


def experts(x: Any, ids: Any, weights: Any, gate_up: Any, down: Any) -> Any:
    """A mixture of experts: each token's rows through its experts' SwiGLU, times the routing weights, added up.

    x (T, K); ids (T, top_k), integers, -1 for a dropped choice; weights (T, top_k); gate_up (E, 2 I, K), all gates of an expert before all ups;
    down (E, K, I). Returns (T, K) in the dtype of x. All but ids have gradients."""
    check_floats("experts", x=x, weights=weights, gate_up=gate_up, down=down)
    E, twice, K = gate_up.shape if gate_up.ndim == 3 else (0, 0, 0)
    if x.ndim != 2 or gate_up.ndim != 3 or twice % 2 or x.shape[1] != K or down.shape != (E, K, twice // 2):
        shapes = ", ".join(str(one.shape) for one in (x, gate_up, down))
        raise ArgumentError(f"experts: expected x (T, K), gate_up (E, 2 I, K) and down (E, K, I), got {shapes}")
    if not isinstance(ids, jax.Array) or ids.dtype.kind != "i" or ids.ndim != 2 or ids.shape[0] != len(x):
        raise ArgumentError(f"experts: ids: expected signed integers ({len(x)}, top_k), got {described(ids)}")
    if weights.shape != ids.shape:
        raise ArgumentError(f"experts: weights: expected {ids.shape}, as ids, got {weights.shape}")
    top_k = ids.shape[1]
    chosen = jnp.where((ids >= 0) & (ids < E), ids, E).reshape(-1)  # dropped choices come last
    order = jnp.argsort(chosen, stable=True)
    offsets = jnp.cumsum(jnp.bincount(chosen, length=E + 1)[:E]).astype(jnp.int32)
    gates, ups = jnp.split(product(x[order // top_k], gate_up, offsets), 2, axis=1)
    y = product(jax.nn.silu(gates) * ups, down, offsets)
    rows = jnp.argsort(order).reshape(ids.shape)
    used = jnp.where(chosen.reshape(ids.shape) < E, weights, 0).astype(jnp.float32)
    return jnp.einsum("tj,tjk->tk", used, y[rows].astype(jnp.float32)).astype(x.dtype)

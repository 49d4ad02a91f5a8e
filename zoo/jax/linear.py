"""A linear layer whose product is one of zoo's, with a gradient.

    y = linear(x, w)                    x (..., K), w (N, K) -> y (..., N), in the dtype of x

In fp8b128 all three products are zoo's: `zoo.jax.fp8`. In the other formats the forward product is, and dy is not quantised:

    X, W = quantised x, quantised w     blocks along K
    y = the product of X and W^T        by gemm.<format>.dense
    dx = dy * dequantised W             products of XLA's, in the dtype of x, added up in f32
    dw = dy^T * dequantised X

Rounding has derivative 1, also where an element saturates. X and W are kept for the backward pass: one byte an element, or half of one.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from zoo.contract.nearest import suggestion
from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError
from zoo.jax.calls import call
from zoo.jax.fp8 import product
from zoo.jax.operands import check_floats

FORMATS = ("fp8b128", "mxfp8", "mxfp4", "nvfp4")


class _Operand(NamedTuple):
    """A quantised matrix, blocks along its rows. `tensor_scale` is None where the format has none."""

    q: Any
    scales: Any
    tensor_scale: Any


def linear(x: Any, w: Any, *, format: str = "fp8b128") -> Any:
    """x (..., K) times the transpose of w (N, K), both quantised to `format`; jax.grad sees through it as this module says."""
    if not issubclass(type(format), str) or format not in FORMATS:
        written = format if issubclass(type(format), str) else shown(format)
        hint = suggestion(written, FORMATS, f"it takes {', '.join(FORMATS)}")
        raise ArgumentError(f"linear: no format is {shown(format)}; {hint}")
    check_floats("linear", x=x, w=w)
    if w.ndim != 2 or x.ndim < 1 or x.shape[-1] != w.shape[1]:
        raise ArgumentError(f"linear: expected x (..., K) and w (N, K), got {x.shape} and {w.shape}")
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])  # -1 for the rows would divide by K, which may be 0
    y = product(rows, w) if format == "fp8b128" else _linear(format, rows, w)
    return y.reshape(*x.shape[:-1], w.shape[0])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _linear(format: str, x: Any, w: Any) -> Any:
    return _forward(format, x, w)[0]


def _forward(format: str, x: Any, w: Any) -> tuple[Any, Any]:
    a, b = _rows(format, x), _rows(format, w)
    alpha = None if a.tensor_scale is None else a.tensor_scale * b.tensor_scale
    y = call(f"gemm.{format}.dense", a=a.q, a_scale=a.scales, b=b.q, b_scale=b.scales, alpha=alpha, d=x.dtype).d
    # What is kept are arrays; of x and w themselves only the dtypes are.
    return y, (a, b, jnp.empty(0, x.dtype), jnp.empty(0, w.dtype))


def _backward(format: str, kept: Any, dy: Any) -> tuple[Any, Any]:
    a, b, of_x, of_w = kept
    x, w = _values(format, a, of_x.dtype), _values(format, b, of_x.dtype)
    dx = jnp.matmul(dy, w, preferred_element_type=jnp.float32)
    dw = jnp.matmul(dy.T, x, preferred_element_type=jnp.float32)
    return dx.astype(of_x.dtype), dw.astype(of_w.dtype)


_linear.defvjp(_forward, _backward)


def _rows(format: str, x: Any) -> _Operand:
    tensor_scale = call("quantize.amax", x=x, tensor_scale=True).tensor_scale if format == "nvfp4" else None
    found = call(f"quantize.{format}.rows", x=x, tensor_scale=tensor_scale, layout="blocked")
    return _Operand(found.q, found.scales, tensor_scale)


def _values(format: str, operand: _Operand, dtype: Any) -> Any:
    out = jnp.float32 if dtype == jnp.float16 else dtype  # which no kernel writes
    found = call(
        f"dequantize.{format}.rows", q=operand.q, scales=operand.scales, tensor_scale=operand.tensor_scale, out=out, layout="blocked"
    )
    return found.out.astype(dtype)

"""zoo's kernels inside JAX: under `jax.jit`, on XLA's stream, with outputs that JAX allocates.

    q, scales = zoo.jax.call("quantize.fp8b128.rows", x=x)
    y = zoo.jax.linear(x, w)                                 # with a gradient, as are
    y = zoo.jax.grouped_linear(x, w, offsets)
    y = zoo.jax.experts(x, ids, weights, gate_up, down)

On a GPU the kernel itself runs, called by XLA through its FFI; on a CPU the same call is computed by the written rule
(`zoo.reference.kernels`), slowly and to the bit. docs/jax.md says what holds where.
"""

from __future__ import annotations

try:
    import jax as _jax  # noqa: F401
except ImportError:
    raise ImportError("zoo.jax works inside JAX, which is not installed here; pip install jax, or for a GPU jax[cuda13]") from None

from zoo.jax import handlers
from zoo.jax.calls import call
from zoo.jax.experts import experts, grouped_linear
from zoo.jax.linear import linear

__all__ = ["call", "experts", "grouped_linear", "linear"]

handlers.register()  # here, so that a program that was compiled or exported elsewhere finds them, too


def __dir__() -> list[str]:
    return sorted(__all__)

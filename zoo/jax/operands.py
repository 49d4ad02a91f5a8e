"""Whether operands of layers are arrays of JAX, and what is said of others."""

from __future__ import annotations

from typing import Any

import jax

from zoo.errors import ArgumentError

_FLOATS = ("bfloat16", "float16", "float32")


def check_floats(function: str, **arrays: Any) -> None:
    for name, array in arrays.items():
        if not isinstance(array, jax.Array) or array.dtype.name not in _FLOATS:
            raise ArgumentError(f"{function}: {name}: expected a JAX array of {', '.join(_FLOATS)}, got {described(array)}")


def described(array: Any) -> str:
    """Dtype and shape of an array, and its class where that is not JAX's."""
    if not hasattr(array, "dtype"):
        return f"a {type(array).__name__}"
    words = f"{array.dtype} {array.shape}"
    return (
        words
        if isinstance(array, jax.Array)
        else f"a {type(array).__module__}.{type(array).__name__} of {words}; jax.numpy.asarray makes an array of JAX"
    )

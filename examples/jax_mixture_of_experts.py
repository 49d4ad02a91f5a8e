"""A mixture-of-experts layer in one compiled JAX program: JAX routes, zoo's kernels compute the experts.

    pip install . "jax[cuda13]"        (without a GPU: pip install . jax)
    python examples/jax_mixture_of_experts.py

The quantiser reads the tokens through an index, sorted by expert, so the program makes no sorted copy of x. The first grouped GEMM
applies SwiGLU and writes the FP8 operand of the second. The second multiplies its rows by their routing weights. A CPU computes the
kernels' written rules, slowly.
"""

import functools

import jax
import jax.numpy as jnp

import zoo.jax

TOKENS, WIDTH, HIDDEN, EXPERTS, CHOSEN = 48, 128, 64, 4, 2


@jax.jit
def quantised_weights(w):
    """Elements of w (E, N, K), and a scale for each 128 x 128 of them."""
    found = zoo.jax.call("quantize.fp8b128.squares", x=w, scaling="pow2")
    return found.q, found.scales


@functools.partial(jax.jit, static_argnames="chosen")
def mixture(x, router, gates_and_ups, down, chosen=CHOSEN):
    """x (T, K); router (E, K); quantised weights (E, 2 I, K), all gates of an expert before all ups, and (E, K, I)."""
    weights, experts = jax.lax.top_k(jax.nn.softmax(x.astype(jnp.float32) @ router.T), chosen)
    order = jnp.argsort(experts.reshape(-1), stable=True)  # the rows of the GEMMs, sorted by expert
    token = (order // chosen).astype(jnp.int32)
    offsets = jnp.cumsum(jnp.bincount(experts.reshape(-1), length=len(router))).astype(jnp.int32)

    a = zoo.jax.call("quantize.fp8b128.rows.m_grouped_contiguous", x=x, index=token, offsets=offsets, scaling="pow2")
    h = zoo.jax.call(
        "gemm.fp8b128.m_grouped_contiguous.swiglu_fp8b128",
        a=a.q, a_scale=a.scales, b=gates_and_ups[0].reshape(len(router), 2, -1, x.shape[1]), b_scale=gates_and_ups[1],
        offsets=offsets, scaling="pow2",
    )  # fmt: skip
    y = zoo.jax.call(
        "gemm.fp8b128.m_grouped_contiguous",
        a=h.q, a_scale=h.scales, b=down[0], b_scale=down[1], offsets=offsets, row_scale=weights.reshape(-1)[order],
    )  # fmt: skip
    return jnp.zeros(x.shape, jnp.float32).at[token].add(y.d.astype(jnp.float32))


@functools.partial(jax.jit, static_argnames="chosen")
def in_float32(x, router, gates_and_ups, down, chosen=CHOSEN):
    """The layer without rounding to 8 bits: every expert on every token."""
    x = x.astype(jnp.float32)
    weights, experts = jax.lax.top_k(jax.nn.softmax(x @ router.T), chosen)
    gates, ups = jnp.split(jnp.einsum("tk,eik->tei", x, gates_and_ups), 2, axis=2)
    every = jnp.einsum("tei,eki->tek", jax.nn.silu(gates) * ups, down)
    return jnp.einsum("tc,tck->tk", weights, jnp.take_along_axis(every, experts[:, :, None], axis=1))


def main():
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (TOKENS, WIDTH), jnp.bfloat16)
    router = jax.random.normal(keys[1], (EXPERTS, WIDTH))
    gates_and_ups = jax.random.normal(keys[2], (EXPERTS, 2 * HIDDEN, WIDTH)) / WIDTH**0.5
    down = jax.random.normal(keys[3], (EXPERTS, WIDTH, HIDDEN)) / HIDDEN**0.5
    y = mixture(x, router, quantised_weights(gates_and_ups), quantised_weights(down))
    wanted = in_float32(x, router, gates_and_ups, down)
    error = float(jnp.linalg.norm(y - wanted) / jnp.linalg.norm(wanted))
    print(f"{TOKENS} tokens, {CHOSEN} of {EXPERTS} experts each, on {jax.devices()[0]}: {100 * error:.1f} % from the layer in float32")
    return error


if __name__ == "__main__":
    main()

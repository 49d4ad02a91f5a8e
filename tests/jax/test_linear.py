"""zoo.jax.linear: what it computes, and that its gradient is the rule that it states."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import zoo
from zoo.reference import block_format, dequantize, nvfp4_tensor_scale, quantize_rows, quantize_squares_rows, tensor_amax

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jnp = jax.numpy

import zoo.jax  # noqa: E402
from zoo.jax.linear import FORMATS  # noqa: E402


def _format_of(name: str, x: numpy.ndarray) -> Any:
    if name == "fp8b128":
        return block_format(name, scaling="pow2")
    return block_format(name, tensor_scale=nvfp4_tensor_scale(tensor_amax(x))) if name == "nvfp4" else block_format(name)


def _seen(name: str, x: numpy.ndarray, weights: bool) -> numpy.ndarray:
    """What a format leaves of a matrix, by the reference."""
    format = _format_of(name, x)
    quantize = quantize_squares_rows if weights and name == "fp8b128" else quantize_rows
    result = quantize(x, format)
    return dequantize(result.q, result.scales, format, x.shape[1])


def _takes(name: str, device: Any) -> None:
    if device.platform != "cpu" and name != "fp8b128":
        from zoo.runtime import driver

        if driver.device(device.local_hardware_id).capability[0] < 10:
            pytest.skip(f"products of {name} are for Blackwell")


def _operands(dtype: Any = jnp.bfloat16) -> tuple[Any, Any, Any]:
    random = numpy.random.default_rng(7)
    return tuple(jnp.asarray(random.standard_normal(shape), dtype) for shape in ((24, 160), (136, 160), (24, 136)))


@pytest.mark.parametrize("name", FORMATS)
def test_the_product_is_that_of_the_quantised_operands(name: str, device: Any) -> None:
    _takes(name, device)
    x, w, _ = _operands()
    y = numpy.asarray(jax.jit(lambda x, w: zoo.jax.linear(x, w, format=name))(x, w), numpy.float64)
    exact = _seen(name, numpy.asarray(x), False).astype(numpy.float64) @ _seen(name, numpy.asarray(w), True).T
    assert abs(y - exact).max() <= 2.0**-7 * abs(exact).max()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "fp8b128"])
def test_the_gradient_meets_the_other_operand_as_it_was_multiplied(name: str, dtype: str, device: Any) -> None:
    _takes(name, device)
    x, w, dy = _operands(jnp.dtype(dtype))
    with jax.default_matmul_precision("highest"):
        _, back = jax.vjp(lambda x, w: zoo.jax.linear(x, w, format=name), x, w)
        dx, dw = back(dy)
    assert dx.dtype == x.dtype
    assert dw.dtype == w.dtype
    seen_x, seen_w = _seen(name, numpy.asarray(x), False), _seen(name, numpy.asarray(w), True)
    up = numpy.asarray(dy, numpy.float64)
    for found, wanted in ((dx, up @ seen_w), (dw, up.T @ seen_x)):
        assert abs(numpy.asarray(found, numpy.float64) - wanted).max() <= 2.0**-7 * abs(wanted).max()


def test_a_batch_of_any_rank_is_rows(device: Any) -> None:
    x, w, _ = _operands()
    y = zoo.jax.linear(x.reshape(2, 3, 4, 160), w)
    assert y.shape == (2, 3, 4, 136)
    assert numpy.array_equal(numpy.asarray(y.reshape(24, 136), numpy.float32), numpy.asarray(zoo.jax.linear(x, w), numpy.float32))
    assert zoo.jax.linear(x[0], w).shape == (136,)


def test_a_small_model_learns(device: Any) -> None:
    """Two layers find a linear map; with the gradient of either operand left out the loss stays ten times higher."""
    random = numpy.random.default_rng(3)
    target = jnp.asarray(random.standard_normal((16, 64)), jnp.float32) / 8
    layers = [jnp.asarray(random.standard_normal(shape), jnp.float32) / shape[1] ** 0.5 for shape in ((32, 64), (16, 32))]

    def loss(layers: Any, x: Any) -> Any:
        h = zoo.jax.linear(x, layers[0])
        return ((zoo.jax.linear(h, layers[1]) - x @ target.T) ** 2).mean()

    step = jax.jit(lambda layers, x: (loss(layers, x), jax.tree.map(lambda w, g: w - 2 * g, layers, jax.grad(loss)(layers, x))))
    losses = []
    for turn in range(60):
        x = jnp.asarray(numpy.random.default_rng(turn).standard_normal((32, 64)), jnp.float32)
        found, layers = step(layers, x)
        losses.append(float(found))
    assert numpy.mean(losses[-5:]) < losses[0] / 10


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x, w: zoo.jax.linear(x, w, format="fp8"), "no format is 'fp8'"),
        (lambda x, w: zoo.jax.linear(x, w, format=10**5000), "no format is a int"),
        (lambda x, w: zoo.jax.linear(x[:, :0], w[:, :0]), "K must be a positive multiple of 16"),
        (lambda x, w: zoo.jax.linear(x, w.T), r"expected x \(..., K\) and w \(N, K\), got \(24, 160\) and \(160, 136\)"),
        (lambda x, w: zoo.jax.linear(x.astype(jnp.int32), w), "x: expected a JAX array of bfloat16, float16, float32, got int32"),
        (lambda x, w: zoo.jax.linear(x, numpy.asarray(w)), "w: expected a JAX array"),
        (lambda x, w: zoo.jax.linear(x[:, :100], w[:, :100]), "K must be a multiple of 16"),
        (lambda x, w: zoo.jax.linear(x, w[:100], format="mxfp8"), "N must be a multiple of 8"),
        (lambda x, w: jax.vmap(lambda x: zoo.jax.linear(x, w))(x[None]), "vmap over a kernel is not defined"),
        (
            lambda x, w: jax.grad(lambda x: jax.grad(lambda x: zoo.jax.linear(x, w).sum())(x).sum())(x),
            "linear, grouped_linear and experts have a first one and no second",
        ),
        (lambda x, w: jax.hessian(lambda x: zoo.jax.linear(x, w).sum())(x), "has no derivative|vmap over a kernel"),
    ],
)
def test_what_it_cannot_take_is_refused_in_a_sentence(wrong: Any, words: str, device: Any) -> None:
    x, w, _ = _operands()
    with pytest.raises(zoo.ZooError, match=words):
        wrong(x, w)

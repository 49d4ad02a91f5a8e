"""The layers of zoo.jax in fp8b128 beside float64: all three products, within what their roundings allow."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import zoo

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install jax")
jnp = jax.numpy

import zoo.jax  # noqa: E402

ROUNDING = 2.0**-4 / 3**0.5  # of e4m3, root mean square: at most, for elements just above a power of two
PRODUCT = ROUNDING * 2**0.5  # two operands are rounded


def error(found: Any, wanted: Any) -> float:
    found, wanted = numpy.asarray(found, numpy.float64), numpy.asarray(wanted, numpy.float64)
    assert found.shape == wanted.shape
    return float(numpy.linalg.norm(found - wanted) / numpy.linalg.norm(wanted))


def normal(*shape: int, dtype: Any = jnp.bfloat16, seed: int = 0) -> Any:
    return jnp.asarray(numpy.random.default_rng((seed, *shape)).standard_normal(shape), dtype)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_linear_layer_has_the_gradients_of_its_product(dtype: str, device: Any) -> None:
    x, w, dy = (normal(*shape, dtype=jnp.dtype(dtype)) for shape in ((24, 160), (136, 160), (24, 136)))
    y, back = jax.vjp(zoo.jax.linear, x, w)
    dx, dw = back(dy)
    assert (y.dtype, dx.dtype, dw.dtype) == (x.dtype, x.dtype, w.dtype)
    x, w, dy = (numpy.asarray(one, numpy.float64) for one in (x, w, dy))
    for found, wanted, mutant in ((y, x @ w.T, -x @ w.T), (dx, dy @ w, dy @ w * 1.1), (dw, dy.T @ x, numpy.roll(dy, 1, 0).T @ x)):
        assert error(found, wanted) < PRODUCT < error(found, mutant)


ENDS = [7, 7, 33]  # the second group is empty, and seven rows belong to nobody


def grouped(function: Any, *arrays: Any) -> list[numpy.ndarray]:
    """The function on the rows of each group, in float64."""
    starts = [0, *ENDS[:-1]]
    return [
        function(e, *(numpy.asarray(one, numpy.float64)[start:end] for one in arrays))
        for e, (start, end) in enumerate(zip(starts, ENDS, strict=True))
    ]


def test_rows_meet_the_matrix_of_their_group_in_all_three_products(device: Any) -> None:
    x, w, dy = normal(40, 160), normal(3, 72, 160), normal(40, 72)
    dy = dy.at[33:].set(jnp.nan)  # of rows that belong to nobody
    y, back = jax.vjp(lambda x, w: zoo.jax.grouped_linear(x, w, jnp.array(ENDS, jnp.int32)), x, w)
    dx, dw = back(dy)
    assert not numpy.asarray(y[33:], numpy.float32).any() and not numpy.asarray(dx[33:], numpy.float32).any()
    assert not numpy.asarray(dw[1], numpy.float32).any(), "a group without rows has no gradient"
    exact = numpy.asarray(w, numpy.float64)
    assert error(y[:33], numpy.concatenate(grouped(lambda e, x: x @ exact[e].T, x))) < PRODUCT
    assert error(dx[:33], numpy.concatenate(grouped(lambda e, dy: dy @ exact[e], dy))) < PRODUCT
    assert error(dw, numpy.stack(grouped(lambda e, dy, x: dy.T @ x, dy, x))) < PRODUCT


def layer(x: Any, weights: Any, gate_up: Any, down: Any, ids: Any) -> Any:
    """Every expert on every token, without rounding."""
    gates, ups = jnp.split(jnp.einsum("tk,eik->tei", x.astype(jnp.float32), gate_up), 2, axis=2)
    every = jnp.einsum("tei,eki->tek", jax.nn.silu(gates) * ups, down)
    chosen = jnp.take_along_axis(every, jnp.maximum(ids, 0)[:, :, None], axis=1)
    return jnp.einsum("tj,tjk->tk", jnp.where(ids >= 0, weights, 0), chosen)


T, K, GATES, E, TOP = 20, 128, 64, 4, 2


def operands() -> tuple[Any, ...]:
    ids = jnp.asarray(numpy.random.default_rng(1).integers(-1, E - 1, (T, TOP)), jnp.int32)  # the last expert has no token
    weights = jnp.asarray(numpy.random.default_rng(2).random((T, TOP)), jnp.float32)
    gate_up, down = normal(E, 2 * GATES, K, dtype=jnp.float32) / K**0.5, normal(E, K, GATES, dtype=jnp.float32) / GATES**0.5
    return normal(T, K), weights, gate_up, down, ids


def in_zoo(x: Any, weights: Any, gate_up: Any, down: Any, ids: Any) -> Any:
    return zoo.jax.experts(x, ids, weights, gate_up, down)


def test_every_operand_of_a_layer_of_experts_has_its_gradient(device: Any) -> None:
    """A layer rounds six operands in turn, and its backward pass four more."""
    *arrays, ids = operands()
    target = normal(T, K, dtype=jnp.float32, seed=1)
    gradients = [
        jax.jit(jax.grad(lambda *arrays, function=function: (function(*arrays, ids).astype(jnp.float32) * target).sum(), (0, 1, 2, 3)))(
            *arrays
        )
        for function in (in_zoo, layer)
    ]
    assert error(in_zoo(*arrays, ids), layer(*arrays, ids)) < ROUNDING * 6**0.5 + 2.0**-8
    for found, wanted in zip(*gradients, strict=True):
        assert error(found, wanted) < ROUNDING * 10**0.5
    assert not numpy.asarray(gradients[0][2][E - 1]).any() and not numpy.asarray(gradients[0][3][E - 1]).any()
    swapped = [arrays[0], arrays[1], jnp.roll(arrays[2], GATES, axis=1), arrays[3]]
    assert error(in_zoo(*arrays, ids), layer(*swapped, ids)) > 0.5, "gates in the place of ups"


def test_a_nan_stays_in_its_token_and_a_dropped_choice_counts_nothing(device: Any) -> None:
    x, weights, gate_up, down, ids = operands()
    ids = ids.at[3].set(jnp.array([0, -1])).at[5].set(jnp.array([1, 2]))
    y = numpy.asarray(in_zoo(x, weights, gate_up, down, ids), numpy.float32)
    poisoned = numpy.asarray(in_zoo(x, weights.at[3, 1].set(jnp.nan).at[5, 0].set(jnp.nan), gate_up, down, ids), numpy.float32)
    assert numpy.isnan(poisoned[5]).all() and numpy.array_equal(numpy.delete(poisoned, 5, 0), numpy.delete(y, 5, 0))


def test_no_token_is_no_row(device: Any) -> None:
    x, weights, gate_up, down, ids = operands()
    assert in_zoo(x[:0], weights[:0], gate_up, down, ids[:0]).shape == (0, K)


def layer_by_ids(ids: Any) -> Any:
    return zoo.jax.experts(normal(40, 64), ids, normal(40, 2), normal(3, 64, 64), normal(3, 64, 32))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x, w, offsets: zoo.jax.grouped_linear(x, w[0], offsets), r"expected x \(M, K\) and w \(E, N, K\)"),
        (lambda x, w, offsets: zoo.jax.grouped_linear(x, w, offsets[:2]), r"offsets: expected int32 \(3,\)"),
        (lambda x, w, offsets: zoo.jax.grouped_linear(x, w, offsets.astype(jnp.float32)), "offsets: expected int32"),
        (lambda x, w, offsets: zoo.jax.grouped_linear(x.astype(jnp.int32), w, offsets), "x: expected a JAX array of bfloat16"),
        (lambda x, w, offsets: zoo.jax.experts(x, offsets, offsets, w, w), "weights: expected a JAX array of bfloat16"),
        (lambda x, w, offsets: zoo.jax.experts(x, x[:, :2], x[:, :2], w, w), r"expected x \(T, K\), gate_up \(E, 2 I, K\)"),
        (
            lambda x, w, offsets: zoo.jax.experts(x, x[:, :2], x[:, :2], w, w.mT[:, :, :36]),
            r"ids: expected signed integers \(40, top_k\), got bfloat16",
        ),
        (
            lambda x, w, offsets: layer_by_ids(numpy.zeros((40, 2), "i4")),
            r"ids: .* got a numpy.ndarray of int32 \(40, 2\); jax.numpy.asarray",
        ),
        (lambda x, w, offsets: layer_by_ids(jnp.zeros((40, 2), jnp.uint8)), r"ids: expected signed integers .*, got uint8 \(40, 2\)"),
        (lambda x, w, offsets: layer_by_ids(jnp.zeros((40, 3), jnp.int32)), r"weights: expected \(40, 3\), as ids, got \(40, 2\)"),
        (lambda x, w, offsets: zoo.jax.grouped_linear(x, w, numpy.array(ENDS, "i4")), r"offsets: .* got a numpy.ndarray of int32 \(3,\)"),
        (lambda x, w, offsets: zoo.jax.linear(numpy.zeros((4, 160), "f4"), w[0]), r"x: .* got a numpy.ndarray of float32 \(4, 160\)"),
    ],
)
def test_what_a_layer_cannot_take_is_refused_in_a_sentence(wrong: Any, words: str, device: Any) -> None:
    with pytest.raises(zoo.ZooError, match=words):
        wrong(normal(40, 160), normal(3, 72, 160), jnp.array(ENDS, jnp.int32))

"""RMSNorm: the distance of the written rule from float64, and what it does at the edges."""

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.norm import rms_norm, rms_norm_backward, sum_of_parts, sum_of_products

RNG = np.random.default_rng(5)


def drawn(*shape, dtype=ml_dtypes.bfloat16):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("columns", [8, 136, 1024, 1040, 7168])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
def test_the_rule_is_near_float64(columns, dtype):
    x, weight, eps = drawn(5, columns, dtype=dtype), drawn(columns, dtype=np.float32), 1e-5
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(1, keepdims=True) + eps) * weight
    # a sum of up to 4 + 13 roundings, of which a root keeps half, then division, sum, root, reciprocal and two products
    assert (abs(rms_norm(x, weight, eps).y - exact) <= 14 * 2.0**-24 * abs(exact)).all()


@pytest.mark.parametrize("columns", [8, 136, 1040, 7168])
def test_gradients_are_near_float64(columns):
    x, dy, dsum, weight = drawn(9, columns), drawn(9, columns), drawn(9, columns), drawn(columns)
    rstd = rms_norm(x, weight, 1e-5).rstd
    dx, parts = rms_norm_backward(dy, x, weight, rstd, 4, dsum)
    n, g = x.astype(np.float64) * rstd[:, None], dy.astype(np.float64) * weight.astype(np.float64)
    mean = (g * n).mean(1, keepdims=True)
    exact = (g - n * mean) * rstd[:, None] + dsum.astype(np.float64)
    room = 2.0**-8 * abs(exact) + 20 * 2.0**-24 * (abs(g) + abs(n) * abs(g * n).mean(1, keepdims=True) + abs(dsum.astype(np.float64))) * 2
    assert (abs(dx.astype(np.float64) - exact) <= room).all()
    assert parts.shape == (4, columns)
    dweight = sum_of_parts(parts, np.dtype(np.float32))
    products = dy.astype(np.float64) * n
    assert (abs(dweight - products.sum(0)) <= 12 * 2.0**-24 * abs(products).sum(0)).all()


def test_the_gradient_is_that_of_the_forward_pass():
    """By differences of the forward rule in float64: no formula of the backward pass is used."""
    x, weight, dy, eps, step = RNG.standard_normal(24), RNG.standard_normal(24), RNG.standard_normal(24), 1e-5, 1e-6
    x, weight, dy = (one.astype(ml_dtypes.bfloat16) for one in (x, weight, dy))

    def loss(values):
        return (values / np.sqrt((values**2).mean() + eps) * weight.astype(np.float64) * dy.astype(np.float64)).sum()

    wide = x.astype(np.float64)
    expected = [(loss(wide + step * unit) - loss(wide - step * unit)) / (2 * step) for unit in np.eye(24)]
    dx, _ = rms_norm_backward(dy[None], x[None], weight, rms_norm(x[None], weight, eps).rstd, 1)
    assert np.allclose(dx[0].astype(np.float64), expected, rtol=2.0**-8, atol=1e-5)


def test_a_row_does_not_depend_on_its_neighbours():
    x, weight = drawn(7, 1040), drawn(1040)
    assert rms_norm(x, weight, 1e-6).y[3].tobytes() == rms_norm(x[3:4], weight, 1e-6).y[0].tobytes()


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_a_special_value_stays_in_its_row(special):
    x, weight = drawn(3, 272), drawn(272)
    clean = rms_norm(x, weight, 1e-6).y.copy()
    x[1, 200] = special
    y = rms_norm(x, weight, 1e-6).y
    assert y[[0, 2]].tobytes() == clean[[0, 2]].tobytes() and np.isnan(y[1, 200])


def test_squares_that_overflow_make_zeros_and_rstd_0():
    found = rms_norm(np.full((1, 64), 2.0**64, ml_dtypes.bfloat16), drawn(64), 1e-6)
    assert found.rstd == 0 and not found.y.any()


@pytest.mark.parametrize(("eps", "finite"), [(1e-6, True), (0.0, False)])
def test_a_row_of_zeros_is_zero_unless_eps_is(eps, finite):
    y = rms_norm(np.zeros((1, 64), ml_dtypes.bfloat16), drawn(64), eps).y
    assert np.isnan(y).all() if not finite else not y.any()


def test_the_residual_is_added_and_rounded_first():
    x, residual, weight = drawn(2, 64), drawn(2, 64), drawn(64)
    found = rms_norm(x, weight, 1e-6, residual)
    assert found.s.tobytes() == (x.astype(np.float32) + residual.astype(np.float32)).astype(x.dtype).tobytes()
    assert found.y.tobytes() == rms_norm(found.s, weight, 1e-6).y.tobytes()


def test_the_order_of_a_sum_is_the_written_one():
    """In float32, by loops: no line is shared with the rule."""
    row = RNG.standard_normal(1500).astype(np.float16).astype(np.float32)  # squares of 22 bits: products are exact
    padded = np.concatenate([row, np.zeros(548, np.float32)])
    warps = []
    for warp in padded.reshape(2, 1024):
        sums = []
        for c in range(256):
            total = np.float32(0)
            for i in range(4):
                total = np.float32(total + warp[c + 256 * i] * warp[c + 256 * i])
            sums.append(total)
        while len(sums) > 1:
            sums = [np.float32(sums[i] + sums[i + 1]) for i in range(0, len(sums), 2)]
        warps.append(sums[0])
    assert sum_of_products(row[None], row[None])[0] == np.float32(warps[0] + warps[1])


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_partial_sums_of_any_number(rows):
    parts = RNG.standard_normal((rows, 40)).astype(np.float32)
    assert np.allclose(sum_of_parts(parts, np.dtype(np.float32)), parts.astype(np.float64).sum(0), atol=1e-5)

"""What packed gates and ups become: against the formula in float64, and what mistakes in it would look like."""

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.block_scaled_epilogues import Gates
from zoo.reference.four_bit_gated import Steps, are_ups, h_of_sums, quantised_by, quantised_in_blocks
from zoo.reference.fragments import column_order

F32 = np.float32
M, I = 5, 24  # noqa: E741
POWERS = np.exp2(np.random.default_rng(1).integers(-3, 4, 2 * I)).astype(F32)


def steps(random):
    return Steps(
        alpha=np.array([0.3, 0.7], F32),
        a_scale=random.uniform(0.5, 2, M).astype(F32),
        bias=random.standard_normal(2 * I).astype(F32),
        row_scale=random.uniform(0.1, 1, M).astype(F32),
    )


def formula(sums, of, order, activation, limit):
    """In float64, by the published definitions."""
    x = sums.astype(np.float64) * of.a_scale[:, None]
    x = x * np.where(are_ups(2 * I, order), of.alpha[-1], of.alpha[0]).astype(np.float64) * POWERS + of.bias
    gate, up = (x[:, :I], x[:, I:]) if order == "halves" else (x[:, 0::2], x[:, 1::2])
    if activation == "silu":
        h = gate / (1 + np.exp(-gate)) * up
    else:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        h = gate / (1 + np.exp(-1.702 * gate)) * (up + 1) if activation == "gpt_oss" else gate / (1 + np.exp(-gate)) * up
    return h * of.row_scale[:, None]


@pytest.mark.parametrize("order", ["halves", "interleaved"])
@pytest.mark.parametrize("activation", ["silu", "gpt_oss", "deepseek_v4"])
def test_h_is_the_published_formula_of_scaled_and_biased_sums(order, activation):
    random = np.random.default_rng(2)
    of, sums, limit = steps(random), random.standard_normal((M, 2 * I)).astype(F32) * 3, 2.5
    found = h_of_sums(sums, POWERS, Gates(order, activation, F32(limit)), of)
    np.testing.assert_allclose(found, formula(sums, of, order, activation, limit), rtol=3e-5, atol=1e-6)


def test_gates_and_ups_have_scales_of_their_own():
    random = np.random.default_rng(3)
    of, sums = steps(random), random.standard_normal((M, 2 * I)).astype(F32)
    right = formula(sums, of, "halves", "silu", 0)
    swapped = Steps(of.alpha[::-1], of.a_scale, of.bias, of.row_scale)
    found = h_of_sums(sums, POWERS, Gates(), swapped)
    assert np.abs(found - right).max() > 0.1 * np.abs(right).max()


def test_one_alpha_is_that_of_gates_and_of_ups():
    sums = np.random.default_rng(4).standard_normal((M, 2 * I)).astype(F32)
    one, two = (h_of_sums(sums, POWERS, Gates("interleaved"), Steps(alpha=np.full(n, 0.3, F32))) for n in (1, 2))
    assert np.array_equal(one, two)


def test_a_bias_follows_its_gate_or_up_in_either_order():
    random = np.random.default_rng(5)
    sums, bias = (random.standard_normal(shape).astype(F32) for shape in ((M, 2 * I), (2 * I,)))
    in_turn = np.arange(2 * I).reshape(2, I).T.reshape(-1)  # of an interleaved matrix: which of the halves' rows each is
    halves = h_of_sums(sums, POWERS, Gates("halves", "gpt_oss", F32(7)), Steps(bias=bias))
    interleaved = h_of_sums(sums[:, in_turn], POWERS[in_turn], Gates("interleaved", "gpt_oss", F32(7)), Steps(bias=bias[in_turn]))
    assert np.array_equal(halves, interleaved)


@pytest.mark.parametrize("columns", [64, 144, 200])
def test_columns_in_fragments_are_those_of_the_next_products_a(columns):
    h = np.random.default_rng(6).standard_normal((3, columns)).astype(F32)
    plain, moved = (quantised_in_blocks(h, "exact", in_fragments) for in_fragments in (False, True))
    order = column_order(columns)
    there = order < columns
    assert moved.q.shape == (3, len(order) // 64, 64) and np.array_equal(moved.scales, plain.scales)
    q = moved.q.view(np.uint8).reshape(3, len(order))
    assert np.array_equal(q[:, there], plain.q.view(np.uint8)[:, order[there]])
    assert not q[:, ~there].any()


def test_a_nan_stays_in_its_block_and_padding_of_that_block_stays_zero():
    h = np.ones((2, 144), F32)
    h[0, 140] = np.nan
    found = quantised_in_blocks(h, "exact", True)
    assert np.isnan(found.scales[0, 1]) and not np.isnan(found.scales[0, 0]) and not np.isnan(found.scales[1]).any()
    assert np.isnan(found.q[0].astype(F32)).sum() == 16


def test_a_known_scale_saturates_and_keeps_nan():
    h = np.array([[0.0, -0.0, 1.0, 448.0, 1e30, -1e30, np.inf, np.nan]], F32)
    found = quantised_by(h, F32(2.0), False).view(np.uint8)[0]
    at = lambda x: np.array(x, ml_dtypes.float8_e4m3fn).view(np.uint8)  # noqa: E731
    assert found.tolist() == [0, 0x80, at(0.5), at(224.0), 0x7E, 0xFE, 0x7E, 0x7F]


def test_a_known_scale_is_multiplied_by_as_its_rounded_reciprocal():
    h = np.random.default_rng(7).uniform(-4, 4, (64, 64)).astype(F32)
    s = F32(0.0117)
    by_reciprocal = (h * (F32(1) / s)).astype(ml_dtypes.float8_e4m3fn)
    assert np.array_equal(quantised_by(h, s, False).view(np.uint8), by_reciprocal.view(np.uint8))

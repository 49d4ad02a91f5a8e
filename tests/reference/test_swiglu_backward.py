"""The backward pass of a gated unit: the rule against float64 and its mutants, edges of the rule, and what the next GEMMs make of it."""

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import same_bits
from zoo.packaged import packaged
from zoo.reference import swiglu_backward as module
from zoo.reference.float32 import fused_multiply_add
from zoo.reference.kernels import run
from zoo.reference.swiglu import ACTIVATIONS, silu
from zoo.reference.swiglu_backward import gradients, swiglu_backward

BF16, F8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
LIMIT = 2.5
CASES = [(order, activation) for order in ("halves", "interleaved") for activation in ACTIVATIONS]
KERNELS = [f"quantize.fp8b128.both.{grouping}.swiglu_backward" for grouping in ("m_grouped_contiguous", "m_grouped_padded")]


class Exact:
    """The analytic gradients in float64, and how far from them roundings may lead: to bf16 once, in float32 before."""

    def __init__(self, d, gate, up, weights, activation):
        slope, added, limited = ACTIVATIONS[activation]
        limit = LIMIT if limited else np.inf
        d, gate, up, w = (array.astype(np.float64) for array in (d, gate, up, weights[:, None]))
        g, v = np.minimum(gate, limit), np.clip(up, -limit, limit) + float(added)
        z = float(slope) * g
        sigmoid, other = 1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z))
        slope_of_s = sigmoid + z * sigmoid * other
        self.act = g * sigmoid * v
        self.dots = (d * self.act).sum(axis=1)
        self.values = {
            "gate": np.where(gate <= limit, w * d * v * slope_of_s, 0),
            "up": np.where(np.abs(up) <= limit, w * d * g * sigmoid, 0),
            "act": w * self.act,
        }
        # exp(z) has a relative error of about |z| units of float32, and s' is a sum whose terms may cancel.
        far, units = np.minimum(sigmoid, other), np.abs(z) + 8
        of_slope = np.abs(w * d * v) * 2.0**-21 * (np.abs(z) * far * units + np.where(z < 0, far * units, 1))
        self.bounds = {name: np.abs(value) * (2.0**-8 + units * 2.0**-21) + 2.0**-133 for name, value in self.values.items()}
        self.bounds["gate"] += of_slope
        self.dots_bound = (np.abs(d * self.act) * (units * 2.0**-21 + d.shape[1] * 2.0**-23)).sum(axis=1)


def drawn(rows=40, pairs=128, seed=5):
    random = np.random.default_rng(seed)
    d, gate, up = (random.standard_normal((rows, pairs)) * factor for factor in (1, 4, 2))
    gate[:, ::7] = LIMIT  # where a limit still has a gradient
    return *(array.astype(BF16) for array in (d, gate, up)), random.uniform(0.05, 1, rows).astype(np.float32)


def together(gate, up, order):
    return np.concatenate((gate, up), axis=1) if order == "halves" else np.stack((gate, up), axis=2).reshape(len(gate), -1)


def apart(h, order):
    half = h.shape[1] // 2
    return (h[:, :half], h[:, half:]) if order == "halves" else (h[:, 0::2], h[:, 1::2])


def farthest(found, exact, order):
    """The largest error of each result, in its bounds."""
    gate, up = apart(found.d_h, order)
    return {
        name: (np.abs(values.astype(np.float64) - exact.values[name]) / exact.bounds[name]).max()
        for name, values in (("gate", gate), ("up", up), ("act", found.act))
    }


def test_the_float64_gradients_are_derivatives_of_the_activation():
    random = np.random.default_rng(2)
    gate, up = (random.uniform(-6, 6, (1, 500)) for _ in range(2))
    gate, up = (np.where(np.abs(np.abs(x) - LIMIT) < 0.01, 0.5, x) for x in (gate, up))  # the limits have no derivative
    ones, weights = np.ones_like(gate), np.ones(1)
    for activation in ACTIVATIONS:

        def act(gate, up, activation=activation):
            return Exact(ones, gate, up, weights, activation).act

        exact, step = Exact(ones, gate, up, weights, activation), 1e-5
        for name, difference in (
            ("gate", act(gate + step, up) - act(gate - step, up)),
            ("up", act(gate, up + step) - act(gate, up - step)),
        ):
            np.testing.assert_allclose(exact.values[name], difference / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("order", "activation"), CASES)
def test_the_rule_is_as_near_float64_as_its_roundings_allow(order, activation):
    d, gate, up, weights = drawn()
    found = swiglu_backward(d, together(gate, up, order), order, activation, LIMIT, weights)
    exact = Exact(d, gate, up, weights, activation)
    worst = farthest(found, exact, order)
    assert max(worst.values()) <= 1
    assert min(worst.values()) > 0.9  # the bound is about as near as a bound can be
    assert (np.abs(found.dots.astype(np.float64).sum(axis=1) - exact.dots) <= exact.dots_bound).all()


def exchanged(found, order):
    gate, up = apart(found.d_h, order)
    return found._replace(d_h=together(up, gate, order))


def without_limits(gate, up, d, activation, limit):
    """Values are limited, derivatives are not."""
    return gradients(np.minimum(gate, limit), np.clip(up, -limit, limit), d, activation, np.float32(limit))


def with_slope(of_slope):
    """The rule with another s'; `of_slope(g, z, near, far)`."""

    def found(gate, up, d, activation, limit):
        act, d_gate, d_up = gradients(gate, up, d, activation, limit)
        slope, added, limited = ACTIVATIONS[activation]
        g, v = (np.minimum(gate, limit), np.clip(up, -limit, limit)) if limited else (gate, up)
        z = slope * g
        near, far = module.sigmoids(z)
        return act, np.where(d_gate == 0, d_gate, d * (v + added) * of_slope(g, z, near, far)), d_up

    return found


def sigmoid(z, near, far):
    return np.where(z < 0, far, near)


MUTANTS = {
    "limits without derivative": ("gate", "gpt_oss", without_limits),
    "slope without its own derivative": ("gate", "silu", with_slope(lambda g, z, near, far: sigmoid(z, near, far))),
    "slope left out of the derivative": ("gate", "gpt_oss", with_slope(lambda g, z, near, far: sigmoid(z, near, far) + g * far * near)),
    "sigmoid of |z|": ("gate", "silu", with_slope(lambda g, z, near, far: fused_multiply_add(z * far, near, near))),
    "sigmoid(-z) by subtraction": ("gate", "silu", with_slope(lambda g, z, near, far: np.float32(1) - near + z * far * near)),
    "nothing added to ups": ("gate", "gpt_oss", lambda gate, up, d, activation, limit: gradients(gate, up, d, "deepseek_v4", limit)),
    "act for d_up": ("up", "silu", lambda gate, up, d, *rest: (*gradients(gate, up, d, *rest)[:2], d * silu(gate) * up)),
}


def test_a_rule_that_is_its_own_mutant_lies_inside(monkeypatch):
    """What mutants are made with changes nothing by itself."""
    d, gate, up, weights = drawn()
    h, right = together(gate, up, "halves"), with_slope(lambda g, z, near, far: fused_multiply_add(z * far, near, sigmoid(z, near, far)))
    before = swiglu_backward(d, h, "halves", "gpt_oss", LIMIT, weights)
    monkeypatch.setattr(module, "gradients", right)
    assert same_bits(swiglu_backward(d, h, "halves", "gpt_oss", LIMIT, weights).d_h, before.d_h)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_of_the_rule_lies_outside(mutant, monkeypatch):
    result, activation, changed = MUTANTS[mutant]
    d, gate, up, weights = drawn()
    monkeypatch.setattr(module, "gradients", changed)
    found = swiglu_backward(d, together(gate, up, "halves"), "halves", activation, LIMIT, weights)
    assert farthest(found, Exact(d, gate, up, weights, activation), "halves")[result] > 10


@pytest.mark.parametrize("order", ["halves", "interleaved"])
def test_gates_taken_for_ups_and_weights_left_out_lie_outside(order):
    d, gate, up, weights = drawn()
    h, exact = together(gate, up, order), Exact(d, gate, up, weights, "gpt_oss")
    given = (d, h, order, "gpt_oss", LIMIT)
    assert farthest(exchanged(swiglu_backward(*given, weights), order), exact, order)["gate"] > 10
    assert min(farthest(swiglu_backward(*given), exact, order).values()) > 10
    other = "halves" if order == "interleaved" else "interleaved"
    assert farthest(swiglu_backward(d, h, other, "gpt_oss", LIMIT, weights), exact, order)["act"] > 10


def test_a_row_of_weight_0_has_zeros_and_its_own_dot_product():
    d, gate, up, weights = drawn(4)
    weights[1:3] = 0, -0.0
    d[2], gate[2] = np.nan, np.inf
    found = swiglu_backward(d, together(gate, up, "halves"), "halves", weights=weights)
    assert not found.d_h[1:3].view(np.uint16).any() and not found.act[1:3].view(np.uint16).any()
    assert found.d_h[0].astype("f4").all()
    unweighted = swiglu_backward(d, together(gate, up, "halves"), "halves")
    assert same_bits(found.dots, unweighted.dots) and found.dots[1].all() and np.isnan(found.dots[2]).all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_stays_in_its_row_and_reaches_each_result_that_depends_on_it(activation):
    d, gate, up, weights = drawn(5)
    clean = swiglu_backward(d, together(gate, up, "halves"), "halves", activation, LIMIT, weights)
    weights[0] = d[1, 3] = gate[2, 4] = up[3, 5] = np.nan
    found = swiglu_backward(d, together(gate, up, "halves"), "halves", activation, LIMIT, weights)
    d_gate, d_up = (array.astype("f4") for array in apart(found.d_h, "halves"))
    act = found.act.astype("f4")
    assert np.isnan(act[0]).all() and np.isnan(d_gate[1, 3]) == (gate[1, 3] <= LIMIT or activation == "silu")
    assert np.isnan([act[2, 4], d_gate[2, 4], d_up[2, 4], act[3, 5], d_gate[3, 5]]).all()
    assert np.isnan(found.dots[1:4]).all() and not np.isnan(found.dots[0]).any()
    assert same_bits(found.d_h[4], clean.d_h[4]) and same_bits(found.act[4], clean.act[4])


def test_a_dot_product_is_that_of_the_lanes():
    """Eight lanes, each with 8 columns of both halves of 128, and a tree."""
    random = np.random.default_rng(4)
    d, act = (random.standard_normal((3, 200)).astype("f4") for _ in range(2))
    d[:, :5] *= np.float32(1e4)
    found = module.parts_of_dots(d, act)
    for row in range(3):
        for part in range(2):
            lanes = []
            for lane in range(8):
                total = np.float32(0)
                for column in (part * 128 + half * 64 + lane * 8 + i for half in range(2) for i in range(8)):
                    if column < 200:
                        total = fused_multiply_add(d[row, column], act[row, column], total)
                lanes.append(np.float32(total))
            fours = [(lanes[i] + lanes[i + 1]) + (lanes[i + 2] + lanes[i + 3]) for i in (0, 4)]
            assert found[row, part] == fours[0] + fours[1]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("order", ["halves", "interleaved"])
def test_the_next_products_give_the_gradients_of_an_experts_layer(name, order):
    """The results, as the kernel lays them out, are operands of the dgrad of the first product and of both weight gradients."""
    random, padded = np.random.default_rng(7), "padded" in name
    sizes, pairs, width = ((24, 0, 40) if padded else (16, 0, 48)), 128, 64
    rows, groups, offsets = sum(sizes) + 3, len(sizes), np.cumsum(sizes).astype(np.int32)
    d, gate, up, weights = drawn(rows, pairs)
    x, dy = (random.standard_normal((rows, width)).astype(BF16) for _ in range(2))
    w = random.standard_normal((groups, width, 2 * pairs)).astype(BF16)  # of the first product, transposed
    length = rows + 128 * padded * groups
    step, blocks = -(-length // 16) * 16, -(-length // 128) + groups
    bounds = {"padded_starts": np.zeros(groups, "i4"), "padded_ends": np.zeros(groups, "i4")} if padded else {}
    out = {
        "q_rows": np.zeros((rows, 2 * pairs), F8), "scales_rows": np.zeros((2 * pairs // 128, -(-rows // 4) * 4), "f4").T[:rows],
        "q_cols": np.zeros((2 * pairs, step), F8)[:, :length], "scales_cols": np.zeros((blocks, 2 * pairs), "f4").T,
        "q_act": np.zeros((pairs, step), F8)[:, :length], "scales_act": np.zeros((blocks, pairs), "f4").T, "dots": np.zeros((rows, 1), "f4"),
    }  # fmt: skip

    def but_the_last(arrays):
        return {
            one: array[:, :-groups] if padded and one in ("scales_cols", "scales_act", "scales") else array for one, array in arrays.items()
        }

    h = together(gate, up, order)
    view = h.reshape((rows, 2, pairs) if order == "halves" else (rows, pairs, 2))
    choices = {"gates": order, "activation": "gpt_oss", "limit": LIMIT, "layout": "mn_major"}
    run(
        packaged.kernel(name), {"d_act": d, "h": view, "row_weights": weights, "offsets": offsets, **but_the_last(out), **bounds, **choices}
    )
    ends = bounds.get("padded_ends", offsets)

    def columns(array):
        made = {"q": np.zeros((width, step), F8)[:, :length], "scales": np.zeros((blocks, width), "f4").T}
        grouping = "m_grouped_padded" if padded else "m_grouped_contiguous"
        run(f"quantize.fp8b128.cols.{grouping}", {"x": array, "offsets": offsets, **but_the_last(made), **bounds, "layout": "mn_major"})
        return made

    def weight_gradient(a, a_scale, b):
        result = np.zeros((groups, len(a), width), "f4")
        run("gemm.fp8b128.k_grouped", {"a": a, "a_scale": a_scale, "b": b["q"], "b_scale": b["scales"], "offsets": ends, "d": result})
        return result

    exact = Exact(d, gate, up, weights, "gpt_oss")
    d_h = together(exact.values["gate"], exact.values["up"], order)
    each = [slice(end - size, end) for end, size in zip(offsets, sizes, strict=True)]
    dw = weight_gradient(out["q_cols"], out["scales_cols"], columns(x))
    near(dw, [d_h[rows].T @ x[rows].astype(float) for rows in each])
    dw = weight_gradient(out["q_act"], out["scales_act"], columns(dy))
    near(dw, [exact.values["act"][rows].T @ dy[rows].astype(float) for rows in each])

    made = {"q": np.zeros(w.shape, F8), "scales": np.zeros((groups, 1, 2), "f4")}
    run("quantize.fp8b128.squares", {"x": w, **made})
    dx, a_scale = np.zeros((rows, width), BF16), out["scales_rows"]
    operands = {"a": out["q_rows"], "a_scale": a_scale, "b": made["q"], "b_scale": made["scales"], "offsets": offsets}
    run("gemm.fp8b128.m_grouped_contiguous", {**operands, "d": dx})
    near([dx[rows] for rows in each], [d_h[rows] @ matrix.astype(float).T for rows, matrix in zip(each, w, strict=True)])


def near(found, exact):
    """Two e4m3 operands round independently, each by at most 1/16 and by 1/40 in the mean of squares."""
    for group, expected in zip(found, exact, strict=True):
        assert np.linalg.norm(group.astype(float) - expected) <= 0.06 * np.linalg.norm(expected)

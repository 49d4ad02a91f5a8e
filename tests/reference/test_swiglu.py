"""SwiGLU: the written rule in rational arithmetic, its distance from exact silu, and what it does at the edges."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tests.reference.cases import every_bf16, same_bits
from tests.reference.exact import round32
from zoo.reference.block_formats import block_format
from zoo.reference.quantize import quantize_rows
from zoo.reference.swiglu import C1, C2, C3, C4, C5, gated_unit, silu, swiglu

# C1 to C5 of the rule, as integers over powers of two.
COEFFICIENTS = [
    Fraction(integer, 2**power) for integer, power in ((0x162E42A, 25), (0x1EBF9BC, 27), (0x1C6B752, 29), (0x13CEA88, 31), (0x15BBA14, 34))
]


def silu_by_the_rule(gate: float) -> Fraction:
    """Of a finite number: the lines of the rule, each in rational arithmetic and rounded once."""
    g = Fraction(gate)
    t = max(round32(abs(g) * -Fraction(float(np.uint32(0x3FB8AA3B).view(np.float32)))), Fraction(-127))
    n = round(t)
    f = t - n
    assert round32(f) == f
    p = COEFFICIENTS[4]
    for coefficient in (*reversed(COEFFICIENTS[:4]), 1):
        p = round32(p * f + Fraction(coefficient))
    bits = int(np.float32(float(p)).view(np.uint32)) + n * 2**23
    assert 0 <= bits <= 0x3F800000
    e = Fraction(float(np.uint32(bits).view(np.float32)))
    r = round32(1 / round32(1 + e))
    return round32(max(g, round32(g * e)) * r)


def exact_silu(gate):
    gate = gate.astype(np.float64)
    with np.errstate(over="ignore"):
        return gate / (1 + np.exp(-gate))


def test_the_coefficients_are_the_written_ones():
    # Their last bits hardly ever show in a result, and a kernel that has them wrong would hardly ever fail.
    assert [Fraction(float(c)) for c in (C1, C2, C3, C4, C5)] == COEFFICIENTS


def test_the_rule_in_rational_arithmetic():
    random = np.random.default_rng(1)
    any_exponent = np.ldexp(random.uniform(-1, 1, 100), random.integers(-140, 128, 100))
    # Where t reaches -126, -126.5 and -127, and beyond; the largest, the smallest.
    edges = [*(-np.log(2) * np.array([126, 126.5, 127])), -87.0, -87.4, -88.1, 3e38, -3e38, 2.0**-149, -(2.0**-149)]
    gates = np.concatenate([random.uniform(-130, 130, 300), random.uniform(-4, 4, 300), any_exponent, edges]).astype(np.float32)
    for gate, found in zip(gates, silu(gates), strict=True):
        assert found == silu_by_the_rule(float(gate)), gate


def test_every_bf16_gate_is_near_exact_silu():
    gates = every_bf16()[0].astype(np.float32)
    gates = gates[np.isfinite(gates) & (gates != 0)]
    error = np.abs(silu(gates) - exact_silu(gates))
    relative = error / np.maximum(np.abs(exact_silu(gates)), 1e-300)
    assert relative[gates >= -2].max() < 2.0**-21.4 and relative[gates >= -20].max() < 2.0**-19.7
    assert relative[gates >= -87].max() < 2.0**-17.9
    below = gates < -87
    assert error[below].max() < 90 * 2.0**-126 and (silu(gates[gates < -89]) == 0).all()


def test_zero_and_subnormals_keep_their_signs():
    gates = np.array([0.0, -0.0, 2.0**-149, -(2.0**-149), 2.0**-148, -1e30], np.float32)
    found = silu(gates)
    # 2^-149 times 1/2 is a tie with zero, which is even.
    assert found.tolist() == [0, 0, 0, 0, 2.0**-149, 0] and np.array_equal(np.signbit(found), np.signbit(gates))


@pytest.mark.parametrize("gate", [np.nan, np.inf, -np.inf])
def test_a_gate_that_is_no_number_gives_nan_and_its_neighbours_do_not_notice(gate):
    x = np.ones((2, 8), np.float32)
    x[0, 1] = gate
    found = swiglu(x)
    assert np.isnan(found[0, 1]) and np.isnan(found).sum() == 1


def test_up_that_is_no_number_or_overflows_is_seen():
    gate = np.full(4, 100.0, np.float32)
    with np.errstate(over="ignore"):
        found = swiglu(np.concatenate((gate, np.array([np.inf, -np.inf, np.nan, 3e38], np.float32)))[None])
    assert np.array_equal(found[0], [np.inf, -np.inf, np.nan, np.inf], equal_nan=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_halves_and_interleaved_are_the_same_numbers(dtype):
    random = np.random.default_rng(2)
    gate, up = random.standard_normal((2, 5, 64)).astype(np.float32).astype(dtype)
    halves = np.concatenate((gate, up), axis=1)
    interleaved = np.stack((gate, up), axis=2).reshape(5, 128)
    expected = silu(gate.astype(np.float32)) * up.astype(np.float32)
    assert same_bits(swiglu(halves), expected) and same_bits(swiglu(interleaved, "interleaved"), expected)
    assert not same_bits(swiglu(interleaved), expected)


def test_the_product_is_not_rounded_to_the_dtype_of_x():
    x = np.random.default_rng(3).standard_normal((64, 2048)).astype(ml_dtypes.bfloat16)
    h = swiglu(x)
    assert h.dtype == np.float32 and (h != h.astype(ml_dtypes.bfloat16).astype(np.float32)).mean() > 0.9
    fused, unfused = quantize_rows(h, block_format("mxfp8")), quantize_rows(h.astype(ml_dtypes.bfloat16), block_format("mxfp8"))
    assert not np.array_equal(fused.q.view(np.uint8), unfused.q.view(np.uint8))


def test_pieces_do_not_show():
    gates = np.random.default_rng(4).standard_normal(100_000).astype(np.float32)
    assert same_bits(silu(gates), np.concatenate([silu(part) for part in np.array_split(gates, 7)]))


def test_what_is_not_defined_is_refused():
    with pytest.raises(ValueError, match="7 columns, expected a multiple of 2"):
        swiglu(np.zeros((2, 7), np.float32))
    with pytest.raises(ValueError, match="'halves', 'interleaved' or 'packed', not 'quarters'"):
        swiglu(np.zeros((2, 8), np.float32), "quarters")
    with pytest.raises(ValueError, match="24 columns, expected a multiple of 16: as many gates as ups, in units of 8"):
        swiglu(np.zeros((2, 24), np.float32), "packed")


def test_every_order_of_gates_and_ups_gives_one_result():
    gate, up = (np.random.default_rng(seed).standard_normal((3, 24)).astype(np.float32) for seed in (1, 2))
    units = np.stack((gate.reshape(3, 3, 8), up.reshape(3, 3, 8)), axis=2).reshape(3, 48)
    found = [swiglu(np.concatenate((gate, up), 1)), swiglu(np.stack((gate, up), 2).reshape(3, 48), "interleaved"), swiglu(units, "packed")]
    assert same_bits(found[0], silu(gate) * up) and same_bits(found[1], found[0]) and same_bits(found[2], found[0])


def other_activations(gate: np.ndarray, up: np.ndarray, activation: str, limit: float) -> np.ndarray:
    """As their models write them, in float64."""
    if activation == "silu":
        return gate / (1 + np.exp(-gate)) * up
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    if activation == "deepseek_v4":
        return gate / (1 + np.exp(-gate)) * up
    return (up + 1) * gate / (1 + np.exp(-1.702 * gate))


@pytest.mark.parametrize("activation", ["silu", "gpt_oss", "deepseek_v4"])
@pytest.mark.parametrize("order", ["halves", "interleaved"])
def test_other_models_activations_are_near_theirs(activation, order):
    x = np.random.default_rng(3).uniform(-12, 12, (40, 256)).astype(np.float32)
    gate, up = (x[:, :128], x[:, 128:]) if order == "halves" else (x[:, ::2], x[:, 1::2])
    exact = other_activations(gate.astype(np.float64), up.astype(np.float64), activation, 7.0)
    error = np.abs(gated_unit(x, order, activation, np.float32(7)) - exact)
    assert (error <= 2.0**-19 * np.abs(exact) + 2.0**-22 * np.abs(gate) * np.exp(np.minimum(gate, 0))).all()
    assert (x > 7).any() and (x < -7).any()


@pytest.mark.parametrize("order", ["halves", "interleaved"])
def test_silu_of_the_gated_unit_is_swiglu_to_the_bit_whatever_the_limit(order):
    x = np.random.default_rng(4).standard_normal((9, 64)).astype(np.float32) * 20
    same_bits(gated_unit(x, order, "silu", np.float32(0.5)), swiglu(x, order))


def test_limits_hold_infinities_and_let_nan_through():
    x = np.array([[np.inf, np.inf], [-np.inf, 1], [1, -np.inf], [np.nan, 1], [1, np.nan]], np.float32)
    found = gated_unit(x, "interleaved", "deepseek_v4", np.float32(7))
    assert found[0, 0] == gated_unit(np.array([[7, 7]], np.float32), "interleaved", "silu", np.float32(1))[0, 0]
    assert found[2, 0] == -7 * silu(np.array([1], np.float32))[0]
    assert np.isnan(found[[1, 3, 4], 0]).all()

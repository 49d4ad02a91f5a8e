"""What epilogues make of the sums: every step, each rounded to f32, in the order that is written down."""

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.block_formats import block_format
from zoo.reference.block_scaled_epilogues import NO_LIMIT, Gates, made_of_sums, quantised
from zoo.reference.quantize import quantize_rows
from zoo.reference.swiglu import gated_unit

random = np.random.default_rng(6)
SUMS = (4 * random.standard_normal((3, 64))).astype(np.float32)
ALPHA, BIAS = np.float32(1 / 3), random.standard_normal(64).astype(ml_dtypes.bfloat16)
ROWS = np.array([0.3, 1.7, 2.1], np.float32)


@pytest.mark.parametrize(
    "gates", [None, Gates(), Gates("interleaved", "gpt_oss", np.float32(0.75)), Gates("halves", "deepseek_v4", np.float32(1))]
)
@pytest.mark.parametrize("given", [(), ("alpha",), ("bias",), ("row_scale",), ("alpha", "bias", "row_scale")])
def test_each_step_that_is_asked_for_is_done_and_rounded(gates, given):
    chosen = {name: value for name, value in (("alpha", ALPHA), ("bias", BIAS), ("row_scale", ROWS)) if name in given}
    expected = SUMS
    if "alpha" in given:
        expected = (expected.astype(np.float64) * float(ALPHA)).astype(np.float32)
    if "bias" in given:
        expected = (expected.astype(np.float64) + BIAS.astype(np.float64)).astype(np.float32)
    if gates is not None:
        expected = gated_unit(expected, gates.order, gates.activation, gates.limit)
    if "row_scale" in given:
        expected = (expected.astype(np.float64) * ROWS.astype(np.float64)[:, None]).astype(np.float32)
    found = made_of_sums(SUMS, gates, **chosen)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_gates_are_silu_in_halves_without_a_limit_unless_said_otherwise():
    np.testing.assert_array_equal(made_of_sums(SUMS, Gates()), gated_unit(SUMS, "halves", "silu", NO_LIMIT))
    assert np.finfo(np.float32).max == NO_LIMIT


def test_what_is_too_large_is_infinite_and_no_warning():
    with np.errstate(all="raise"):
        assert (made_of_sums(np.full((1, 2), 3e38, np.float32), None, alpha=np.float32(2)) == np.inf).all()


def test_operands_of_the_next_product_have_blocked_scales_of_their_groups():
    h, format, offsets = random.standard_normal((7, 64)).astype(np.float32), block_format("mxfp8"), np.array([2, 2, 7], np.int32)
    for ends in (None, offsets):
        expected, found = quantize_rows(h, format, "blocked", ends), quantised(h, format, ends)
        np.testing.assert_array_equal(found.q.view(np.uint8), expected.q.view(np.uint8))
        np.testing.assert_array_equal(found.scales, expected.scales)
    assert quantised(h, format).scales.shape != quantised(h, format, offsets).scales.shape
    assert quantised(h, format).scales.shape != quantize_rows(h, format).scales.shape

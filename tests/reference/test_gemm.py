"""The written rule of the FP8 GEMM: against float64, against the emulator's tensor core, and where it is exact."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from zoo.emulator import arithmetic, number_formats
from zoo.reference.block_formats import block_format
from zoo.reference.block_scaled_epilogues import Gates, made_of_sums
from zoo.reference.gemm import (
    accumulated,
    error_bound,
    exact,
    gemm_fp8b128,
    gemm_fp8b128_k_grouped,
    partial_sums,
    rounded,
)  # fmt: skip
from zoo.reference.quantize import quantize_cols, quantize_rows, quantize_squares_rows


def codes(random: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    bits = random.integers(0, 256, shape, dtype=np.uint8)
    return np.where(bits & 0x7F == 0x7F, 0, bits).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)


@pytest.mark.parametrize("kind", ["every code", "normal", "with NaN"])
def test_partial_sums_are_the_tensor_core_that_an_h200_confirmed(kind):
    random = np.random.default_rng(5)
    a, b = (codes(random, (rows, 128)) for rows in (40, 24))
    if kind == "normal":
        a, b = (random.standard_normal((rows, 112)).astype(a.dtype) for rows in (40, 24))
    if kind == "with NaN":
        a[3, 70] = np.nan
    sums = np.zeros((40, 24), np.uint32)
    for k in range(0, a.shape[1], 32):
        left, right = (arithmetic.operand(number_formats.E4M3, x[:, k : k + 32].view(np.uint8)) for x in (a, b))
        sums = arithmetic.wgmma_sum(left, right, sums, "f32", fp8=True, mode="hw")
    found, expected = partial_sums(a, b), sums.view(np.float32)
    assert np.isnan(expected).any() == (kind == "with NaN")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(found.view(np.uint32)[~np.isnan(found)], sums[~np.isnan(expected)])


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("K", [16, 144, 2880])
def test_quantised_normal_data_stays_within_the_bound_of_every_element(K, splits, dtype):
    random = np.random.default_rng(K)
    a = quantize_rows(random.standard_normal((33, K)).astype(np.float32), block_format("fp8b128"), "plain")
    b = quantize_squares_rows(random.standard_normal((136, K)).astype(np.float32), block_format("fp8b128"), "plain")
    operands = a.q, a.scales, b.q, b.scales
    product, magnitude = exact(*operands)
    error = np.abs(rounded(gemm_fp8b128(*operands, splits), dtype).astype(np.float64) - product)
    assert (error <= error_bound(product, magnitude, dtype)).all()
    assert error.max() > 0  # so the comparison is of two different computations


def test_small_whole_numbers_are_exact_whatever_the_order():
    random = np.random.default_rng(2)
    a, b = (random.integers(-4, 5, (rows, 400)).astype(ml_dtypes.float8_e4m3fn) for rows in (20, 260))
    a_scale, b_scale = (np.exp2(random.integers(-2, 3, (rows, 4))).astype(np.float32) for rows in (20, 3))
    product, _ = exact(a, a_scale, b, b_scale)
    for splits in (1, 2, 4, 8):
        np.testing.assert_array_equal(gemm_fp8b128(a, a_scale, b, b_scale, splits), product)


def test_a_nan_stays_in_its_row_and_is_the_one_nan_of_the_dtype():
    a, b = np.ones((5, 144), ml_dtypes.float8_e4m3fn), np.ones((16, 144), ml_dtypes.float8_e4m3fn)
    a[2, 140] = np.nan
    d = rounded(gemm_fp8b128(a, np.ones((5, 2), np.float32), b, np.ones((1, 2), np.float32)), "bf16")
    bits = d.view(np.uint16)
    assert (bits[2] == 0x7FFF).all() and (d[[0, 1, 3, 4]] == 144).all()


def test_more_splits_than_blocks_leave_some_without_work():
    a, b = np.ones((1, 16), ml_dtypes.float8_e4m3fn), np.ones((8, 16), ml_dtypes.float8_e4m3fn)
    one = np.ones((1, 1), np.float32)
    np.testing.assert_array_equal(gemm_fp8b128(a, one, b, one, splits=8), np.full((1, 8), 16))


@pytest.mark.parametrize("sizes", [(400,), (16, 0, 144, 240), (128, 272)])
def test_a_weight_gradient_of_what_the_column_quantiser_wrote_stays_within_the_bound(sizes):
    random = np.random.default_rng(len(sizes))
    ends = np.cumsum(sizes).astype(np.int32)
    x, y = (random.standard_normal((ends[-1] + 7, columns)).astype(np.float32) for columns in (24, 40))
    a, b = (quantize_cols(matrix, block_format("fp8b128"), "mn_major", ends) for matrix in (x, y))
    sums = gemm_fp8b128_k_grouped(a.q, a.scales, b.q, b.scales, ends)
    begin = block = 0
    for group, end in enumerate(ends.tolist()):
        blocks = -(-(end - begin) // 128)
        cut = np.minimum(128, end - begin - 128 * np.arange(blocks))
        left, right = (one.q[:, begin:end].astype(np.float64) * one.scales[:, block : block + blocks].repeat(cut, axis=1) for one in (a, b))
        product, magnitude = left @ right.T, np.abs(left) @ np.abs(right).T
        assert (np.abs(sums[group] - product) <= error_bound(product, magnitude, "f32")).all()
        begin, block = end, block + blocks


def test_what_is_added_is_rounded_once():
    tiny = np.float32(2.0**-130)
    before, sums = np.array([tiny, 1, -0.0, 1], np.float32), np.array([tiny, tiny, -0.0, 2.0**-24], np.float32)
    expected = np.array([2 * tiny, 1, -0.0, 1], np.float32)
    np.testing.assert_array_equal(accumulated(before, sums, "f32").view(np.uint32), expected.view(np.uint32))
    half = accumulated(np.array([1], ml_dtypes.bfloat16), np.array([2.0**-8 + 2.0**-20], np.float32), "bf16")
    assert half[0] == 1 + 2.0**-7


@pytest.mark.parametrize("gates", ["halves", "interleaved"])
def test_the_activation_is_silu_of_the_gates_times_ups_times_the_rows_factor(gates):
    random = np.random.default_rng(8)
    gate, up = (random.standard_normal((9, 40)) * 3 for _ in range(2))
    factors = random.uniform(0.1, 1, 9).astype(np.float32)
    sums = np.hstack([gate, up]) if gates == "halves" else np.stack([gate, up], 2).reshape(9, 80)
    expected = gate / (1 + np.exp(-gate)) * up * factors[:, None]
    np.testing.assert_allclose(made_of_sums(sums.astype(np.float32), Gates(gates), row_scale=factors), expected, rtol=1e-5, atol=1e-12)

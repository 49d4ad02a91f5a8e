"""The order in which products with 4-bit weights add up: against the emulator's tensor core, against float64, and its bias."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from zoo.emulator import arithmetic, number_formats
from zoo.reference.four_bit_gemm import exact, finished, gemm_bf16_by_four_bit, gemm_fp8_by_four_bit, instruction_order
from zoo.reference.four_bit_weights import mxfp4_as_bf16, mxfp4_as_e4m3, nvfp4_as_e4m3


def operands(seed: int, rows: int, columns: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    q, scales = random.integers(0, 256, (columns, K // 2), np.uint8), random.integers(0x30, 0x60, (columns, K // 16), np.uint8)
    return random.standard_normal((rows, K)).astype(ml_dtypes.float8_e4m3fn), nvfp4_as_e4m3(q, scales)


def test_an_instruction_takes_every_other_eight_columns() -> None:
    assert instruction_order(128)[64:96].tolist() == [64 + 16 * q + j for q in range(4) for j in range(8)]
    assert instruction_order(128)[96:].tolist() == [64 + 16 * q + 8 + j for q in range(4) for j in range(8)]


@pytest.mark.parametrize(("promotion", "span"), [("256", 4), ("128", 2), ("never", 100)])
def test_sums_leave_the_tensor_core_after_so_many_chunks(promotion: str, span: int) -> None:
    a, b = operands(1, 24, 16, 640)
    total, sums = np.zeros((24, 16), np.float32), np.zeros((24, 16), np.uint32)
    for chunk in range(10):
        for s in range(2):
            columns = [64 * chunk + 16 * q + 8 * s + j for q in range(4) for j in range(8)]
            left, right = (arithmetic.operand(number_formats.E4M3, np.ascontiguousarray(x[:, columns]).view(np.uint8)) for x in (a, b))
            sums = arithmetic.wgmma_sum(left, right, sums, "f32", fp8=True, mode="hw")
        if chunk % span == span - 1 or chunk == 9:
            total, sums = total + sums.view(np.float32), np.zeros_like(sums)
    np.testing.assert_array_equal(gemm_fp8_by_four_bit(a, b, promotion), total)


def test_blocks_of_128_are_scaled_as_they_are_added() -> None:
    a, b = operands(2, 8, 16, 320)
    scales = np.exp2(np.random.default_rng(3).integers(-3, 4, (8, 3))).astype(np.float32)
    parts = [gemm_fp8_by_four_bit(a[:, first : first + 128], b[:, first : first + 128]) for first in (0, 128, 256)]
    expected = parts[0] * scales[:, :1] + parts[1] * scales[:, 1:2] + parts[2] * scales[:, 2:]  # powers of two: each product is exact
    np.testing.assert_array_equal(gemm_fp8_by_four_bit(a, b, a_scale=scales), expected)


def test_never_promoted_sums_of_one_sign_are_short_by_what_is_written() -> None:
    random = np.random.default_rng(4)
    a = np.abs(random.standard_normal((8, 7168))).astype(ml_dtypes.float8_e4m3fn)
    q, scales = random.integers(0, 256, (8, 3584), np.uint8) & 0x77, np.full((8, 448), 0x40, np.uint8)
    b = nvfp4_as_e4m3(q, scales)
    product, _ = exact(a, b)
    short = {promotion: float((1 - gemm_fp8_by_four_bit(a, b, promotion) / product).mean()) for promotion in ("128", "256", "never")}
    assert short["128"] < 0.001
    assert short["256"] < 0.003
    assert 0.05 < short["never"] < 0.2


@pytest.mark.parametrize("K", [32, 96, 2880])
def test_fp8_products_stay_within_the_bound_of_their_cuts(K: int) -> None:
    a, b = operands(K, 17, 24, K)
    product, magnitude = exact(a, b)
    error = np.abs(gemm_fp8_by_four_bit(a, b) - product)
    assert (error <= 2.0**-10 * magnitude + 2.0**-24).all()  # eight cuts of 2^-13 a span
    assert error.max() > 0


@pytest.mark.parametrize("kind", ["normal", "every bit pattern", "one infinity"])
def test_bf16_sums_are_the_tensor_core_that_an_h200_confirmed(kind: str) -> None:
    random = np.random.default_rng(6)
    a, b = (random.standard_normal((rows, 96)).astype(ml_dtypes.bfloat16) for rows in (24, 16))
    if kind == "every bit pattern":  # but for NaN, infinity and what makes one
        a = random.integers(0, 0x6000, (24, 96), np.uint16).view(ml_dtypes.bfloat16)
    if kind == "one infinity":
        a[3, 40] = np.inf
    sums = np.zeros((24, 16), np.uint32)
    for first in range(0, 96, 16):
        columns = slice(first, first + 16)
        left, right = (arithmetic.operand(number_formats.BF16, np.ascontiguousarray(x[:, columns]).view(np.uint16)) for x in (a, b))
        sums = arithmetic.wgmma_sum(left, right, sums, "f32", fp8=False, mode="hw")
    np.testing.assert_array_equal(gemm_bf16_by_four_bit(a, b), sums.view(np.float32))


def test_whole_numbers_are_exact_whatever_the_order() -> None:
    random = np.random.default_rng(7)
    a = random.integers(-4, 5, (20, 416))
    q, scales = random.integers(0, 256, (24, 208), np.uint8), np.full((24, 13), 127, np.uint8)
    packed = mxfp4_as_e4m3(q, scales)
    as_bf16 = mxfp4_as_bf16(q, scales)
    weights = as_bf16.weights.astype(np.float64) * as_bf16.factors[:, None]
    for promotion in ("128", "256", "never"):
        found = gemm_fp8_by_four_bit(a.astype(ml_dtypes.float8_e4m3fn), packed.weights, promotion)
        np.testing.assert_array_equal(found * packed.factors, a @ weights.T)
    for splits in (1, 4):
        found = gemm_fp8_by_four_bit(a.astype(ml_dtypes.float8_e4m3fn), packed.weights, splits=splits)
        np.testing.assert_array_equal(found * packed.factors, a @ weights.T)
        found = gemm_bf16_by_four_bit(a.astype(ml_dtypes.bfloat16), as_bf16.weights, splits)
        np.testing.assert_array_equal(found * as_bf16.factors, a @ weights.T)


def test_each_step_after_the_sums_rounds_by_itself() -> None:
    random = np.random.default_rng(5)
    sums, factors, a_scale, bias, row_scale = (
        random.standard_normal(shape).astype(np.float32) for shape in ((7, 16), (16,), (7,), (16,), (7,))
    )
    for row, column in np.ndindex(7, 16):
        step = sums[row, column] * a_scale[row]
        step = step * factors[column]
        step = step + bias[column]
        assert finished(sums, factors, a_scale, bias, row_scale)[row, column] == step * row_scale[row]
        assert finished(sums, factors)[row, column] == sums[row, column] * factors[column]

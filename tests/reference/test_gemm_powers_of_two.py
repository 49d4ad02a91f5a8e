"""A product whose scales are powers of two for 128 elements is the block-scaled one with each scale said four times, to the bit."""

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.block_scaled_gemm import gemm_block_scaled
from zoo.reference.gemm_powers_of_two import gemm_fp8b128_k_grouped_of_powers, gemm_fp8b128_of_powers, ue8m0_of_powers

E4M3 = ml_dtypes.float8_e4m3fn


def operands(K, M=5, N=140, seed=0):
    """Every scale another, in f32 and as bytes."""
    random = np.random.default_rng([K, seed])
    blocks = -(-K // 128)
    a, b = (random.standard_normal((rows, K)).astype(E4M3) for rows in (M, N))
    powers = [random.integers(120, 135, (rows, blocks), dtype=np.uint8) for rows in (M, -(-N // 128))]
    return (a, b), [np.exp2(one.astype(np.float32) - 127) for one in powers], powers


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("K", [32, 128, 160, 416])
def test_a_scale_holds_for_four_steps_of_k_and_128_rows_of_b(K, splits):
    (a, b), scales, powers = operands(K)
    left, right = (np.stack([one[:, k // 128] for k in range(0, K, 32)], 1) for one in powers)
    right = np.stack([right[row // 128] for row in range(len(b))])
    expected = gemm_block_scaled(a, left, b, right, "mxfp8", splits)
    for of_a, of_b in (scales, powers):
        np.testing.assert_array_equal(gemm_fp8b128_of_powers(a, of_a, b, of_b, splits), expected)
    if splits == 1:
        np.testing.assert_array_equal(gemm_fp8b128_of_powers(a, scales[0], b, scales[1]), expected)


@pytest.mark.parametrize("ends", [(384,), (128, 128, 288, 304), (0, 32)])
def test_groups_along_k_begin_with_a_block_of_their_own(ends):
    """Also where the one before ends within a block, or has nothing."""
    random = np.random.default_rng(len(ends))
    M, N, begins = 6, 7, (0, *ends[:-1])
    a, b = (random.standard_normal((rows, ends[-1] + 5)).astype(E4M3) for rows in (M, N))
    blocks = [-(-(end - begin) // 128) for begin, end in zip(begins, ends, strict=True)]
    powers = [random.integers(120, 135, (rows, sum(blocks) + 1), dtype=np.uint8) for rows in (M, N)]
    scales = [np.exp2(one.astype(np.float32) - 127) for one in powers]
    for of_a, of_b in (scales, powers):
        found = gemm_fp8b128_k_grouped_of_powers(a, of_a, b, of_b, np.array(ends, np.int32))
        assert found.shape == (len(ends), M, N) and found.dtype == np.float32
        block = 0
        for group, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            left, right = (np.ascontiguousarray(one[:, block : block + blocks[group]]) for one in powers)
            expected = np.zeros((M, N), np.float32)
            if end > begin:
                within = np.arange(begin, end, 32) - begin
                left, right = left[:, within // 128], right[:, within // 128]
                expected = gemm_block_scaled(a[:, begin:end], left, b[:, begin:end], right, "mxfp8")
            np.testing.assert_array_equal(found[group], expected)
            block += blocks[group]


def test_powers_of_two_are_their_exponents_and_what_is_none_is_nan():
    scales = np.array([[[1, 2.0**-126, 0], [2.0**127, 0.5, 3]]], np.float32)
    assert ue8m0_of_powers(scales).tolist() == [[[127, 1, 0], [254, 126, 255]]]
    codes = np.array([[1, 2]], np.uint8).view(ml_dtypes.float8_e8m0fnu)
    found = ue8m0_of_powers(codes)
    assert found.dtype == np.uint8 and found.tolist() == [[1, 2]]

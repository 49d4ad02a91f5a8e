"""Where the rule of the FP8 GEMM turns: shares of uneven size, numbers at the edge of subnormal, and what a bound is made of."""

import ml_dtypes
import numpy as np
import pytest

from zoo.reference import gemm
from zoo.reference.block_formats import NAN
from zoo.reference.float32 import fused_multiply_add
from zoo.reference.gemm import (
    accumulated,
    error_bound,
    exact,
    gemm_fp8b128,
    gemm_fp8b128_k_grouped,
    partial_sums,
    rounded,
    scaled,
)

E4M3 = ml_dtypes.float8_e4m3fn
ONE = np.ones((1, 1), np.float32)


def operands(K, M=3, N=130):
    """Scales of all kinds, each another."""
    random = np.random.default_rng(K)
    blocks = -(-K // 128)
    a, b = (random.standard_normal((rows, K)).astype(E4M3) for rows in (M, N))
    return a, random.uniform(0.5, 2, (M, blocks)).astype(np.float32), b, random.uniform(0.5, 2, (-(-N // 128), blocks)).astype(np.float32)


def of_blocks(a, a_scale, b, b_scale, blocks):
    """The sums of some blocks, one after the other."""
    sums = np.zeros((len(a), len(b)), np.float32)
    for block in blocks:
        scale = a_scale[:, block, None] * np.repeat(b_scale[:, block], 128)[None, : len(b)]
        part = partial_sums(a[:, 128 * block : 128 * block + 128], b[:, 128 * block : 128 * block + 128])
        assert scale.dtype == part.dtype == np.float32
        sums = fused_multiply_add(part, scale, sums)
    return sums


@pytest.mark.parametrize(("K", "splits"), [(700, 1), (700, 4), (900, 3), (640, 2), (130, 5)])
def test_shares_of_k_are_whole_blocks_in_order_and_the_later_ones_are_the_longer(K, splits):
    given = operands(K)
    blocks = -(-K // 128)
    shares = [range(blocks * split // splits, blocks * (split + 1) // splits) for split in range(splits)]
    expected = sum((of_blocks(*given, share) for share in shares[1:]), of_blocks(*given, shares[0]))
    found = gemm_fp8b128(*given, splits)
    np.testing.assert_array_equal(found, expected)
    assert splits > 1 or (found == gemm_fp8b128(*given)).all()
    assert found.dtype == np.float32


@pytest.mark.parametrize("ends", [(200,), (0, 128, 128, 300), (129, 130)])
def test_groups_along_k_have_blocks_of_their_own(ends):
    random = np.random.default_rng(len(ends))
    a, b = (random.standard_normal((rows, ends[-1] + 3)).astype(E4M3) for rows in (4, 6))
    a.view(np.uint8)[:, ends[-1] :] = 0x7F  # NaN, which is not of a group
    begins = (0, *ends[:-1])
    blocks = sum(-(-(end - begin) // 128) for begin, end in zip(begins, ends, strict=True))
    a_scale, b_scale = (random.uniform(0.5, 2, (rows, blocks)).astype(np.float32) for rows in (4, 6))
    found = gemm_fp8b128_k_grouped(a, a_scale, b, b_scale, np.array(ends))
    block = 0
    for group, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        sums = np.zeros((4, 6), np.float32)
        for first in range(begin, end, 128):
            columns = slice(first, min(first + 128, end))
            scale = np.multiply.outer(a_scale[:, block], b_scale[:, block])
            sums = fused_multiply_add(partial_sums(a[:, columns], b[:, columns]), scale, sums)
            block += 1
        np.testing.assert_array_equal(found[group], sums)
    assert found.shape == (len(ends), 4, 6) and found.dtype == np.float32


def row(*numbers):
    return np.array([numbers], E4M3)


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        (row(1.0), row(1.0), 1.0),
        (row(448.0, 2.0**-9), row(1.0, 1.0), 448.0),  # 2^-9 is below 13 bits of 2^8
        (row(256.0, 2.0**-5), row(1.0, 1.0), 256 + 2.0**-5),  # the last of 13 bits
        (row(256.0, 2.0**-6), row(1.0, 1.0), 256.0),
        (row(256.0, -(2.0**-6)), row(1.0, 1.0), 256.0),  # towards zero, each of them
        (row(-256.0, 2.0**-6, 2.0**-6), row(1.0, 1.0, 1.0), -256.0),
        (row(2.0**-9), row(2.0**-9), 2.0**-18),  # subnormal: aligned to 2^-12, exact
        (row(2.0**-9, -(2.0**-9)), row(1.0, 1.0), 0.0),
        (row(0.0, 2.0**-9), row(448.0, 1.0), 2.0**-9),  # a zero has no exponent
        (row(2.0**-9), row(0.0), 0.0),
        (row(0.0, 2.0**-6), row(256.0, 2.0**-6), 2.0**-12),
        (row(2.0**-5, 2.0**-4), row(256.0, 2.0**-6), 8 + 2.0**-10),  # exponents -5, -6 and subnormal, which is -6, too
        (row(2.0**-5, 2.0**-5), row(256.0, 2.0**-6), 8.0),
        (row(2.0**-6, 2.0**-5), row(256.0, 2.0**-6), 4 + 2.0**-11),
        (row(2.0**-6, 2.0**-6), row(256.0, 2.0**-6), 4.0),
        (row(2.0**-9, 2.0**-5), row(256.0, 2.0**-6), 0.5 + 2.0**-11),
        (row(2.0**-9, 2.0**-6), row(256.0, 2.0**-6), 0.5),
        (row(1.875, 2.0**-9), row(1.875, 2.0**-4), 3.515625),
    ],
)
def test_products_are_cut_at_13_bits_below_the_largest_exponent(a, b, found):
    sums = partial_sums(a, b)
    assert sums.shape == (1, 1) and sums.dtype == np.float32 and sums[0, 0] == found
    assert not np.signbit(sums[0, 0]) or found < 0
    assert partial_sums(a, np.repeat(b, 3, 0)).tolist() == [[found] * 3]


def test_each_instruction_of_32_elements_aligns_anew_and_cuts_its_sum():
    """2^8, and in the next instruction numbers that only together are as large as the last bit."""
    a = np.zeros((1, 96), E4M3)
    a[0, 0], a[0, 32:34] = 256, 2.0**-6
    ones = np.ones((1, 96), E4M3)
    assert partial_sums(a, ones)[0, 0] == 256
    a[0, [0, 32]], a[0, 64] = [2.0**-6, 256], -256
    assert partial_sums(a, ones)[0, 0] == 2.0**-6 * 0  # cut with the 256 it is added to
    a[0, 0], a[0, 32], a[0, 64] = 256, 2.0**-5, 0
    assert partial_sums(a, ones)[0, 0] == 256 + 2.0**-5
    a[0, 32] = 2.0**-6
    assert partial_sums(a, ones)[0, 0] == 256
    for last, found in ((31, 2.0**-6), (30, 0)):  # the small one is the first of the next instruction, or the last of this one
        a[0] = 0
        a[0, [0, last, last + 1]] = [256, -256, 2.0**-6]
        assert partial_sums(a, ones)[0, 0] == found
    a[0] = 0
    a[0, 0] = 2.0**-6
    a[0, 31], a[0, 32:] = 256, 0
    assert partial_sums(a, ones)[0, 0] == 256
    a[0, :2], a[0, 31] = 2.0**-6, 0
    assert partial_sums(a, ones)[0, 0] == 2.0**-5


def test_the_exact_product_has_scales_of_blocks_and_bounds_are_of_its_magnitude():
    a, a_scale, b, b_scale = operands(200)
    left = a.astype(np.float64) * np.repeat(a_scale, 128, axis=1)[:, :200]
    right = b.astype(np.float64) * np.repeat(np.repeat(b_scale, 128, axis=0)[: len(b)], 128, axis=1)[:, :200]
    product, magnitude = exact(a, a_scale, b, b_scale)
    np.testing.assert_allclose(product, left @ right.T, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(magnitude, np.abs(left) @ np.abs(right).T, rtol=1e-12)
    assert product.dtype == np.float64 and (magnitude > np.abs(product)).all()


@pytest.mark.parametrize(("dtype", "bits", "smallest"), [("bf16", 8, 133), ("f16", 11, 24), ("f32", 24, 149)])
def test_a_bound_is_of_four_cuts_and_one_rounding(dtype, bits, smallest):
    zero = np.zeros(1)
    assert error_bound(zero, np.array([3.0]), dtype) == 3 * 2.0**-11 + 2.0**-smallest
    assert error_bound(np.array([-5.0]), zero, dtype) == 5 * 2.0**-bits + 2.0**-smallest
    assert error_bound(zero, zero, dtype) == 2.0**-smallest


def test_rows_are_multiplied_by_their_factor_and_an_infinity_is_no_warning():
    sums = np.array([[1, 3e38], [2, -4]], np.float32)
    factors = np.array([4, 0.5], np.float32)
    with np.errstate(all="raise"):
        found = scaled(sums, factors)
        over = accumulated(sums, sums, "f32")
        rounded(np.array([1e30], np.float32), "f16")
        gemm_fp8b128(row(448.0), ONE * 3e38, row(448.0), ONE)
        gemm_fp8b128_k_grouped(row(448.0), ONE * 3e38, row(448.0), ONE, np.array([1]))
    assert found.tolist() == [[4, np.inf], [1, -2]] and over[0, 1] == np.inf and found.dtype == np.float32


def test_sums_that_are_added_keep_subnormal_numbers_and_are_rounded_once():
    normal, below = np.float32(2.0**-126), np.float32(2.0**-126 - 2.0**-149)
    values = np.array([normal, -normal, below, -below, 0.0], np.float32)
    added = accumulated(np.full(5, -0.0, np.float32), values, "f32")
    assert added.tolist() == values.tolist() and np.signbit(added).tolist() == [False, True, False, True, False]
    assert accumulated(np.float32([1.5 * normal]), np.float32([-normal]), "f32").tolist() == [0.5 * normal]
    assert accumulated(np.zeros(1, ml_dtypes.bfloat16), np.float32([2.0**-130]), "bf16").astype(np.float32) == 2.0**-130
    assert (
        accumulated(np.float16([1]), np.float32([2.0**-11]), "f16") == 1 and accumulated(np.float16([1]), np.float32([2.0**-10]), "f16") > 1
    )


@pytest.mark.parametrize(("dtype", "bits"), [("bf16", 0x7FFF), ("f16", 0x7FFF), ("f32", 0x7FFFFFFF)])
def test_every_nan_is_the_one_nan(dtype, bits):
    values = np.array([0x7FC00000, 0xFFC00001, 0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    found = rounded(values, dtype)
    assert found.view(np.uint32 if dtype == "f32" else np.uint16)[:3].tolist() == [bits] * 3 and found[3] == 1
    assert np.float32(NAN).view(np.uint32) == 0x7FFFFFFF


@pytest.mark.parametrize("within_f32", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_do_not_depend_on_how_many_are_worked_out_at_a_time_or_on_which_side(monkeypatch, dtype, within_f32):
    """Blocks of rows, parts of an instruction and the side that numpy's loops run along are for speed alone."""
    if within_f32 and dtype == np.float32:
        return
    random, bits = np.random.default_rng(9), (13, 13) if dtype == np.float32 else (25, 23)
    numbers = [np.ldexp(random.integers(-15, 16, (rows, 70)), random.integers(-6, 8, (rows, 70))) for rows in (5, 23)]
    values = [x.astype(dtype) for x in numbers]
    kind = np.int8 if dtype == np.float32 else np.int16
    exponents = [np.where(x == 0, gemm.nothing(np.dtype(dtype), bits[0]), np.frexp(x)[1]).astype(kind) for x in numbers]
    expected = gemm.chained_sums(*values, *exponents, 32, *bits, within_f32)
    assert np.unique(expected).size > 100
    for cells, products in ((1, 1), (23, 40), (50, 10_000)):
        monkeypatch.setattr(gemm, "_CELLS", cells)
        monkeypatch.setattr(gemm, "_PRODUCTS", products)
        for order in (1, -1):
            found = gemm.chained_sums(*values[::order], *exponents[::order], 32, *bits, within_f32)
            assert (found if order == 1 else found.T).tobytes() == expected.tobytes()


def test_sums_of_f32_end_where_f32_does():
    """Its subnormal numbers are cut at 2^-149, what is beyond its largest number is infinite, and no zero is negative."""
    ones = np.ones((1, 2))

    def found(*terms):
        exponents = [[int(np.frexp(term)[1]) - 1 for term in terms]]
        sums = gemm.chained_sums(
            np.array([terms]), ones[:, : len(terms)], np.array(exponents, np.int16), np.zeros((1, len(terms)), np.int16), 32, 25, 23, True
        )
        return float(sums[0, 0])

    assert found(2.0**-149) == 2.0**-149 and found(1.5 * 2.0**-149) == 2.0**-149 and found(-(2.0**-150)) == 0
    assert not np.signbit(found(-(2.0**-150))) and found(-1.75 * 2.0**-148) == -1.5 * 2.0**-148
    assert found(2.0**127, 2.0**127) == np.inf and found(-(2.0**127), -(2.0**127)) == -np.inf
    largest = float(np.finfo(np.float32).max)
    assert found(largest) == largest and found(largest, 2.0**103) == largest and found(1 + 2.0**-23, 2.0**-24) == 1 + 2.0**-23

"""4-bit weights as the tensor core sees them: the table and the rebase against exact arithmetic, rows of zeros and NaN to the bit."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.four_bit_weights import NVFP4_TABLE, largest_scales, mxfp4_as_bf16, mxfp4_as_e4m3, nvfp4_as_bf16, nvfp4_as_e4m3
from zoo.reference.small_floats import E2M1, E4M3, decode, decode_e8m0, pack_e2m1

MAGNITUDES = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


def nearest_e4m3(value: Fraction) -> int:
    """The code of the e4m3 nearest to a number that is not negative, the even one of two: by trying all."""
    codes = [
        (abs(Fraction(float(number)) - value), code % 2, code) for code, number in enumerate(decode(np.arange(127, dtype=np.uint8), E4M3))
    ]
    return min(codes)[2]


def row(codes: list[int], scales: list[int], block: int) -> tuple[np.ndarray, np.ndarray]:
    """One row whose blocks each hold one code again and again."""
    return pack_e2m1(np.repeat(np.array([codes], np.uint8), block, axis=1)), np.array([scales], np.uint8)


def test_the_table_of_nvfp4_is_the_nearest_e4m3_of_every_product() -> None:
    for scale in range(127):
        value = Fraction(float(decode(np.array([scale], np.uint8), E4M3)[0]))
        assert NVFP4_TABLE[scale].tolist() == [nearest_e4m3(value * Fraction(magnitude) / 8) for magnitude in MAGNITUDES]
    assert NVFP4_TABLE.max(axis=1)[126] == 0x7A  # 336: nothing saturates
    assert (NVFP4_TABLE[127] == 0x7F).all()


def test_subnormal_scales_of_nvfp4_are_products_and_not_shifted_bits() -> None:
    assert NVFP4_TABLE[1].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]  # 6 x 2^-9 / 8 is more than half of 2^-9, 4 x 2^-9 / 8 just half


def test_nvfp4_weights_have_the_signs_of_codes_and_scales() -> None:
    q, scales = row([7, 15, 7, 15, 0, 8], [0x38, 0x38, 0xB8, 0xB8, 0x7F, 0xFF], 16)
    found = nvfp4_as_e4m3(q, scales).view(np.uint8)[0, ::16].tolist()
    assert found == [0x34, 0xB4, 0xB4, 0x34, 0x7F, 0x7F]
    assert np.isnan(nvfp4_as_bf16(q, scales)[0, 64:].astype(np.float32)).all()
    assert nvfp4_as_bf16(q, scales)[0, :64:16].tolist() == [0.75, -0.75, -0.75, 0.75]


def test_rounding_the_products_of_nvfp4_adds_what_is_written() -> None:
    random = np.random.default_rng(1)
    codes, scales = random.integers(0, 16, (64, 1024), np.uint8), random.integers(0x30, 0x70, (64, 64), np.uint8)
    exact = nvfp4_as_bf16(pack_e2m1(codes), scales).astype(np.float64)
    rounded = nvfp4_as_e4m3(pack_e2m1(codes), scales).astype(np.float64) * 8
    error = np.linalg.norm(rounded - 8 * exact) / np.linalg.norm(8 * exact)
    assert 0.015 < error < 0.03  # 2.1 % on weights that a quantiser made


@pytest.mark.parametrize("apart", range(20))
def test_mxfp4_is_exact_while_scales_are_at_most_14_apart_and_counted_beyond(apart: int) -> None:
    for code in range(16):
        q, scales = row([7, code], [120, 120 - apart], 32)
        found = mxfp4_as_e4m3(q, scales)
        value = Fraction(MAGNITUDES[code & 7]) * Fraction(2) ** (6 - apart)
        expected = nearest_e4m3(value)
        assert found.weights.view(np.uint8)[0].tolist() == [0x7C] * 32 + [expected | (code & 8) << 4] * 32
        exact = Fraction(float(decode(np.array([expected], np.uint8), E4M3)[0])) == value
        assert found.rounded.sum() == (0 if exact else 32)
        assert exact or apart > 14
        assert found.factors.tolist() == [2.0 ** (120 - 127 - 6)]


def test_the_largest_scale_of_a_row_is_one_whose_block_has_a_code() -> None:
    q, scales = row([0, 8, 1, 5, 0], [254, 200, 100, 255, 3], 32)  # zeros of both signs, a number, NaN, zeros
    assert largest_scales(q, scales).tolist() == [100]
    found = mxfp4_as_e4m3(q, scales)
    assert found.weights.view(np.uint8)[0, ::32].tolist() == [0, 0x80, 0x60, 0x7F, 0]
    assert not found.rounded.any()
    assert found.factors.tolist() == [2.0**-33]


def test_rows_of_zeros_and_of_nan_have_a_factor_all_the_same() -> None:
    for codes, scales in (([0, 8], [254, 3]), ([5, 13], [255, 255]), ([0, 8], [255, 255])):
        q, bytes_of_scales = row(codes, scales, 32)
        found = mxfp4_as_e4m3(q, bytes_of_scales)
        assert largest_scales(q, bytes_of_scales).tolist() == [127]
        assert found.factors.tolist() == [2.0**-6]
        magnitude = 0x7F if scales[0] == 255 else 0
        assert found.weights.view(np.uint8)[0, ::32].tolist() == [magnitude | (code & 8) << 4 for code in codes]
        assert not found.rounded.any()


def test_weights_times_their_factor_are_the_codes_times_their_scales() -> None:
    random = np.random.default_rng(2)
    codes, scales = random.integers(0, 16, (33, 2880), np.uint8), random.integers(110, 123, (33, 90), np.uint8)
    exact = decode(codes, E2M1).astype(np.float64) * np.repeat(decode_e8m0(scales), 32, axis=1)
    found = mxfp4_as_e4m3(pack_e2m1(codes), scales)
    np.testing.assert_array_equal(found.weights.astype(np.float64) * found.factors[:, None], exact)
    as_bf16 = mxfp4_as_bf16(pack_e2m1(codes), scales)
    np.testing.assert_array_equal(as_bf16.weights.astype(np.float64) * as_bf16.factors[:, None], exact)


@pytest.mark.parametrize("largest", [0, 1, 6, 120, 132, 133, 253, 254])
def test_every_product_of_mxfp4_is_exact_in_bf16_but_those_too_far_below_the_largest(largest: int) -> None:
    bytes_of_scales = np.arange(largest + 1, dtype=np.uint8)
    codes, scales = np.tile(np.arange(16, dtype=np.uint8), (1, 2 * len(bytes_of_scales))), bytes_of_scales[None]
    exact = decode(codes, E2M1).astype(np.float64) * np.repeat(np.exp2(bytes_of_scales - 127.0), 32)
    found = mxfp4_as_bf16(pack_e2m1(codes), scales)
    far = np.repeat(largest - bytes_of_scales.astype(int) > 125, 32)
    np.testing.assert_array_equal(found.weights.astype(np.float64) * found.factors.astype(np.float64)[:, None], np.where(far, 0, exact))
    np.testing.assert_array_equal(found.rounded, far & (exact != 0))


def test_every_product_of_nvfp4_is_exact_in_bf16() -> None:
    codes = np.tile(np.arange(16, dtype=np.uint8), (256, 2))
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 2, axis=1)
    exact = decode(codes, E2M1).astype(np.float64) * np.repeat(decode(scales, E4M3).astype(np.float64), 16, axis=1)
    np.testing.assert_array_equal(8 * nvfp4_as_bf16(pack_e2m1(codes), scales).astype(np.float64), exact)


@pytest.mark.parametrize("q", [np.zeros((2, 24), np.uint8), np.zeros((2, 16), np.float32), np.zeros((3, 16), np.uint8)])
def test_rows_that_do_not_fit_their_scales_are_refused(q: np.ndarray) -> None:
    with pytest.raises(ValueError, match="for each scale of a row"):
        mxfp4_as_e4m3(q, np.zeros((2, 1), ml_dtypes.float8_e8m0fnu))

"""Encoding and decoding against arithmetic written from the bit fields, without ml_dtypes."""

import numpy as np
import pytest

from zoo.reference.small_floats import (
    E2M1,
    E4M3,
    E5M2,
    decode,
    decode_e8m0,
    encode_e2m1,
    encode_fp8,
    inverse_e8m0,
    pack_e2m1,
    unpack_e2m1,
)  # fmt: skip

FIELDS = {"e4m3": (4, 3, 7), "e5m2": (5, 2, 15), "e2m1": (2, 1, 1)}  # exponent bits, mantissa bits, bias


def values_of(name: str) -> np.ndarray:
    """Every code's value in float64, NaN and infinity included."""
    exponent_bits, mantissa_bits, bias = FIELDS[name]
    code = np.arange(1 << (1 + exponent_bits + mantissa_bits))
    mantissa = code & ((1 << mantissa_bits) - 1)
    exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = mantissa / 2.0**mantissa_bits
    value = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    if name == "e4m3":
        value[(code & 0x7F) == 0x7F] = np.nan
    if name == "e5m2":
        value[(exponent == 31) & (mantissa == 0)] = np.inf
        value[(exponent == 31) & (mantissa != 0)] = np.nan
    return np.where(code >> (exponent_bits + mantissa_bits), -value, value)


def nearest_code(values: np.ndarray, name: str) -> np.ndarray:
    """The code of the nearest finite value; between two, the even code. Zero keeps the sign."""
    table = values_of(name)
    positive = table[: len(table) // 2]
    positive = positive[np.isfinite(positive)]  # codes 0, 1, 2, ... in increasing order
    distance = np.abs(np.abs(values.astype(np.float64))[:, None] - positive[None, :])
    distance[np.isnan(distance)] = 0  # infinity less infinity does not occur; infinite distances tie, see below
    best = distance.min(axis=1)
    candidates = distance == best[:, None]
    even = candidates & (np.arange(len(positive)) % 2 == 0)
    code = np.where(even.any(axis=1), even.argmax(axis=1), candidates.argmax(axis=1))
    code = np.where(np.abs(values) >= positive[-1], len(positive) - 1, code)
    return code | np.signbit(values) * (len(table) // 2)


def interesting_float32() -> np.ndarray:
    """Every bf16 value, its two float32 neighbours, and midpoints of e4m3, e5m2 and e2m1 with theirs; no NaN."""
    bits = np.arange(65536, dtype=np.uint32) << 16
    values = [bits.view(np.float32), (bits + 1).view(np.float32), (bits - 1).view(np.float32)]
    for name in FIELDS:
        table = values_of(name)
        finite = np.sort(table[np.isfinite(table)])
        middle = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)  # exact: one more mantissa bit
        values += [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    values = np.concatenate(values)
    return values[~np.isnan(values)]


@pytest.mark.parametrize("element", [E4M3, E5M2, E2M1], ids=lambda element: element.name)
def test_every_code_decodes_to_the_value_of_its_fields(element):
    expected = values_of(element.name)
    found = decode(np.arange(len(expected), dtype=np.uint8), element)
    assert np.array_equal(found.astype(np.float64), expected, equal_nan=True)
    assert np.array_equal(np.signbit(found[expected == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("element", [E4M3, E5M2], ids=lambda element: element.name)
def test_fp8_rounds_to_nearest_even_and_saturates(element):
    values = interesting_float32()
    found = encode_fp8(values, element).view(np.uint8)
    for part in np.array_split(np.arange(len(values)), 16):
        assert np.array_equal(found[part], nearest_code(values[part], element.name))


@pytest.mark.parametrize("element", [E4M3, E5M2], ids=lambda element: element.name)
def test_fp8_nan_of_any_sign_and_payload_is_one_byte(element):
    bits = np.array([0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF], np.uint32)
    assert encode_fp8(bits.view(np.float32), element).view(np.uint8).tolist() == [0x7F] * 6


def test_e2m1_rounds_ties_to_even_and_saturates():
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, 7, np.inf, -0.25, -0.75, -100, 0.0, -0.0], np.float32)
    assert encode_e2m1(ties).tolist() == [0, 2, 2, 4, 4, 6, 6, 7, 7, 7, 8, 10, 15, 0, 8]
    values = interesting_float32()
    assert np.array_equal(encode_e2m1(values), nearest_code(values, "e2m1"))


def test_e2m1_refuses_nan():
    with pytest.raises(ValueError, match="no NaN"):
        encode_e2m1(np.array([1.0, np.nan], np.float32))


def test_e2m1_even_index_is_the_low_nibble():
    assert pack_e2m1(np.array([[0x1, 0x2, 0xF, 0x0]], np.uint8)).tolist() == [[0x21, 0x0F]]
    codes = np.random.default_rng(1).integers(0, 16, (3, 8), dtype=np.uint8)
    assert np.array_equal(unpack_e2m1(pack_e2m1(codes)), codes)
    assert unpack_e2m1(pack_e2m1(codes[:0])).shape == (0, 8)


def test_e8m0_is_a_power_of_two_for_every_byte_but_nan():
    byte = np.arange(255, dtype=np.uint8)
    assert np.array_equal(decode_e8m0(byte).astype(np.float64), 2.0 ** (byte.astype(int) - 127))
    assert np.array_equal(inverse_e8m0(byte).astype(np.float64), 2.0 ** (127 - byte.astype(int)))
    assert np.isnan(decode_e8m0(np.array([255], np.uint8)))[0] and np.isnan(inverse_e8m0(np.array([255], np.uint8)))[0]

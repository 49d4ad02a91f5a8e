"""Packed 4-bit weights: every nibble and scale where a lane looks for it, by a second writing of the layout, and back."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

from zoo.reference.four_bit_weights import mxfp4_as_bf16, mxfp4_as_e4m3, nvfp4_as_bf16
from zoo.reference.fragment_words import CODE_BYTES, TOKENS
from zoo.reference.fragments import (
    GATES,
    column_order,
    pack_mxfp4,
    pack_nvfp4,
    permuted_columns,
    row_order,
    unpack_mxfp4,
    unpack_nvfp4,
)
from zoo.reference.small_floats import unpack_e2m1


def as_a_lane_reads(chunk: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes (64, 64) and the byte of the scale of each, of one chunk: thread by thread, bit by bit."""
    codes, scales = np.full((64, 64), 255, np.uint8), np.zeros((64, 64), np.uint8)
    words = chunk[:CODE_BYTES].view("<u4")
    for w, g, q, s, h in product(range(4), range(8), range(4), range(2), range(2)):
        thread, row = 32 * w + 4 * g + q, 16 * w + 8 * h + g
        word = int(words[4 * thread + 2 * s + h])
        if block == 16:
            scale = chunk[CODE_BYTES + 2 * thread + h]
        else:
            scale = chunk[CODE_BYTES + 32 * w + 4 * g + 2 * (q // 2) + h]
        for j in range(8):
            sign = word >> (8 * j + 7 if j < 4 else 8 * (j - 4) + 3) & 1
            codes[row, 16 * q + 8 * s + j] = word >> 4 * j & 7 | sign << 3
            scales[row, 16 * q + 8 * s + j] = scale
    return codes, scales


def as_a_lane_makes_bf16(chunk: np.ndarray, block: int) -> np.ndarray:
    """The 64 x 64 weights of a chunk packed for bf16, thread by thread, by the instructions of a kernel: rotations, masks, multiplications."""
    weights, pair = np.zeros((64, 64), ml_dtypes.bfloat16), np.uint32(0x81C081C0)
    chunk = chunk.reshape(-1)
    words, scales = chunk[:CODE_BYTES].view("<u4"), chunk[CODE_BYTES:].astype(np.uint32)
    power = np.array(16 if block == 16 else 32, ml_dtypes.bfloat16)
    for w, g, q, i in product(range(4), range(8), range(4), range(4)):
        word = int(words[4 * (32 * w + 4 * g + q) + i])
        turned = [(word >> n | word << 32 - n) & 0xFFFFFFFF for n in (0, 3, 6)] + [(word & 0x001B001B) * 0x4108 & 0xFFFFFFFF]
        for r, (s, h) in enumerate(product(range(2), range(2))):
            byte = scales[64 * w + 8 * g + 2 * i + h if block == 16 else 32 * w + 4 * g + i // 2 * 2 + h]
            bits = 0x7000 | byte << 4 if block == 16 else 0x4000 | byte << 6
            two = np.array([turned[r] & pair], np.uint32).view(power.dtype) * power * np.array(bits, np.uint16).view(power.dtype)
            weights[16 * w + 8 * h + g, 16 * i + 8 * s + 2 * q :][:2] = two
    return weights


def matrices(seed: int, shape: tuple[int, ...], columns: int, block: int, low: int, high: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.integers(0, 256, (*shape, columns // 2), np.uint8), random.integers(low, high, (*shape, columns // block), np.uint8)


@pytest.mark.parametrize("gates", GATES)
def test_a_lane_finds_the_code_and_the_scale_of_its_row_and_column(gates: str) -> None:
    rows, columns = 144, 160
    q, scales = matrices(1, (rows,), columns, 16, 0, 128)
    source = {
        "plain": lambda packed: packed,
        "halves": lambda packed: packed // 16 * 8 + packed % 8 + packed % 16 // 8 * rows // 2,
        "interleaved": lambda packed: 2 * (packed // 16 * 8 + packed % 8) + packed % 16 // 8,
    }[gates]
    b, codes = pack_nvfp4(q, scales, gates), unpack_e2m1(q)
    assert b.shape == ((3, 3, 2304) if gates == "plain" else (3, 3, 2, 1152))
    b = b.reshape(3, 3, 2304)
    for tile, chunk in product(range(3), range(3)):
        found, of_each = as_a_lane_reads(b[tile, chunk], 16)
        for row, column in product(range(64), range(64)):
            inside = 64 * tile + row < rows and 64 * chunk + column < columns
            at = (source(64 * tile + row), 64 * chunk + column) if inside else None
            assert found[row, column] == (codes[at] if at else 0)
            assert of_each[row, column] == (scales[at[0], at[1] // 16] if at else 0)


def test_what_a_lane_makes_of_weights_packed_for_bf16_are_those_of_the_rule() -> None:
    q = np.tile(np.arange(256, dtype=np.uint8), (128, 1))[:, :32] + (np.arange(128, dtype=np.uint8) * 32)[:, None]
    scales = np.arange(512).reshape(128, 4).astype(np.uint8)  # each of 256, of both signs, under all codes somewhere
    b, right = pack_nvfp4(q, scales, tokens="bf16"), nvfp4_as_bf16(q, scales)
    found = np.concatenate([as_a_lane_makes_bf16(b[tile, 0], 16) for tile in range(2)])
    np.testing.assert_array_equal(found.astype(np.float32), right.astype(np.float32))
    scales = np.stack((np.arange(128), np.full(128, 127)), axis=1).astype(np.uint8)
    scales[7, 1] = 255
    packed, right = pack_mxfp4(q, scales, tokens="bf16"), mxfp4_as_bf16(q, scales).weights
    found = np.concatenate([as_a_lane_makes_bf16(packed.b[tile, 0], 32) for tile in range(2)])
    np.testing.assert_array_equal(found.astype(np.float32), right.astype(np.float32))
    assert np.isnan(found[7, 32:].astype(np.float32)).all()


def test_what_is_packed_for_bf16_loses_magnitudes_that_count_for_nothing_and_no_scale() -> None:
    q, scales = matrices(7, (64,), 128, 16, 0, 128)
    scales[:, 3] = 0
    found, found_scales = unpack_nvfp4(pack_nvfp4(q, scales, tokens="bf16"), 64, 128, tokens="bf16")
    np.testing.assert_array_equal(found_scales.view(np.uint8), scales)
    np.testing.assert_array_equal(found, np.where(np.repeat(scales == 0, 8, axis=1), q & 0x88, q))


def test_an_order_that_nobody_knows_is_refused() -> None:
    q, scales = matrices(8, (64,), 64, 16, 1, 127)
    with pytest.raises(ValueError, match="tokens is one of fp8, bf16, not 'f16'"):
        pack_nvfp4(q, scales, tokens="f16")


def test_scales_of_mxfp4_are_exponents_relative_to_the_largest_of_their_row() -> None:
    q, scales = matrices(2, (64,), 192, 32, 100, 120)
    q[3] = 0
    scales[4, 1] = 255
    q[5, 16:32] = 0x80
    packed = pack_mxfp4(q, scales)
    assert packed.b.shape == (1, 3, 2176)
    largest = packed.row_scale.view(np.uint8)
    for chunk in range(3):
        codes, of_each = as_a_lane_reads(packed.b[0, chunk], 32)
        np.testing.assert_array_equal(codes, unpack_e2m1(q)[:, 64 * chunk : 64 * chunk + 64])
        for row, block in product(range(64), range(2)):
            stored, scale = of_each[row, 32 * block], scales[row, 2 * chunk + block]
            if scale == 255:
                assert stored == 127
            elif not unpack_e2m1(q)[row, 64 * chunk + 32 * block :][:32].__and__(7).any():
                assert stored == 0
            else:
                assert stored == 6 + int(scale) - int(largest[row]) + 120
    assert largest[3] == 127
    assert (np.delete(largest, 3) == np.delete(np.where(scales == 255, 0, scales), 3, axis=0).max(axis=1)).all()


def test_scales_too_far_below_the_largest_say_nothing() -> None:
    q = np.full((8, 64), 0x11, np.uint8)
    scales = np.tile(np.array([254, 254 - 125, 254 - 126, 0], np.uint8), (8, 1))
    packed = pack_mxfp4(q, scales)
    assert as_a_lane_reads(packed.b[0, 0], 32)[1][0, ::32].tolist() == [126, 1]
    assert as_a_lane_reads(packed.b[0, 1], 32)[1][0, ::32].tolist() == [0, 0]
    assert packed.rounded.tolist() == [[8 * 96], [0], [0], [0]]


@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize(("shape", "columns"), [((16,), 32), ((2, 80), 96), ((1, 64), 64), ((2, 3, 48), 320), ((0, 64), 128)])
def test_unpacking_gives_back_what_was_packed(shape: tuple[int, ...], columns: int, gates: str, tokens: str) -> None:
    q, scales = matrices(3, shape, columns, 16, 1, 128)
    found, found_scales = unpack_nvfp4(pack_nvfp4(q, scales, gates, tokens), shape[-1], columns, gates, tokens)
    np.testing.assert_array_equal(found, q)
    np.testing.assert_array_equal(found_scales.view(np.uint8), scales)
    q, scales = matrices(4, shape, columns, 32, 130, 250)
    packed = pack_mxfp4(q, scales, gates, tokens)
    found, found_scales = unpack_mxfp4(packed.b, packed.row_scale, shape[-1], columns, gates, tokens)
    np.testing.assert_array_equal(found, q)
    np.testing.assert_array_equal(found_scales.view(np.uint8), scales)


def test_negative_scales_turn_the_signs_of_their_codes() -> None:
    q, scales = matrices(5, (8,), 64, 16, 0, 256)
    found, found_scales = unpack_nvfp4(pack_nvfp4(q, scales), 8, 64)
    np.testing.assert_array_equal(found_scales.view(np.uint8), scales & 0x7F)
    np.testing.assert_array_equal(unpack_e2m1(found), unpack_e2m1(q) ^ np.repeat(scales >> 7 << 3, 16, axis=1))


@pytest.mark.parametrize("gates", GATES)
def test_roundings_are_counted_for_the_rows_that_lie_together(gates: str) -> None:
    q, scales = matrices(6, (2, 80), 2080, 32, 90, 120)
    rounded = pack_mxfp4(q, scales, gates).rounded
    assert rounded.shape == (2, 8, 2)
    assert rounded.sum() == mxfp4_as_e4m3(q, scales).rounded.sum() > 0
    order = row_order(80, gates)[16:32]
    found = mxfp4_as_e4m3(q[1, order], scales[1, order]).rounded
    assert rounded[1, 1].tolist() == [found[:, :2048].sum(), found[:, 2048:].sum()]


def test_gates_stand_eight_rows_before_their_ups() -> None:
    halves, interleaved = row_order(96, "halves"), row_order(96, "interleaved")
    for b, i in product(range(6), range(8)):
        assert (halves[16 * b + i], halves[16 * b + 8 + i]) == (8 * b + i, 48 + 8 * b + i)
        assert (interleaved[16 * b + i], interleaved[16 * b + 8 + i]) == (16 * b + 2 * i, 16 * b + 2 * i + 1)
    assert (halves[96:] == -1).all()


def test_columns_are_transposed_words_and_twice_is_once_and_back() -> None:
    for c, q, i in product(range(4), range(4), range(4)):
        assert column_order(128)[64 + 16 * c + 4 * q + i] == 64 + 16 * q + 4 * c + i
    a = np.random.default_rng(7).integers(0, 256, (3, 96), np.uint8)
    once = permuted_columns(a)
    assert once.shape == (3, 2, 64)
    twice = permuted_columns(once.reshape(3, 128)).reshape(3, 128)
    assert (twice[:, :96] == a).all() and not twice[:, 96:].any()


@pytest.mark.parametrize(
    ("rows", "gates", "words"), [(12, "plain", "multiple of 8"), (24, "halves", "multiple of 16"), (32, "pairs", "one of")]
)
def test_rows_that_have_no_order_are_refused(rows: int, gates: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        row_order(rows, gates)

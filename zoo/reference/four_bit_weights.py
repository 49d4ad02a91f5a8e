"""What a product makes of 4-bit weights: the numbers that the tensor core multiplies, instead of code x scale.

A code is e2m1: a sign and one of eight magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6. Scales lie beside the codes, one for each block of a row.

Times bf16: the weight is code x scale as bf16, which is exact: a code has 2 significant bits, an e4m3 scale 4, a ue8m0 scale 1, bf16 8. Its power of
two is that of the weights times fp8, below, with the same factors; so nothing leaves the range of bf16, but that mxfp4 blocks whose
scale is more than 125 below the row's largest are zeros: they are not in the packed weights.

Times fp8: the weight is an e4m3, whose sign is the code's.

    nvfp4   magnitude = e4m3_RN(code x scale x 2^-3)            a table of 128 scales x 8 codes: NVFP4_TABLE is the definition
            The 2^3 belongs to the scale of the tensor. 6 x 448 / 8 = 336: nothing saturates. Without the shift all above 448 would, and
            with it the smallest scales lose bits: a product below 2^-6 is a multiple of 2^-9.
    mxfp4   magnitude = e4m3_RN(code x 2^(scale - largest + 6)) with a factor 2^(largest - 133) for the row
            `largest` is the largest scale byte among the row's blocks that have a code other than 0, bytes of 255 left out, and
            127 in a row without any. 6 x 2^6 = 384: nothing saturates. All is exact where scales of a row are at
            most 14 apart; a weight further down is rounded once, to nearest even, and counted. Codes stay what they are.

A scale that is no number (nvfp4: 0x7F; mxfp4: 255) makes every weight of its block one, those of code 0 as well: the magnitude is
0x7F. No quantiser makes negative scales; where nvfp4 has one, its sign turns those of the block's codes.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from zoo.reference.small_floats import E2M1, E4M3, E8M0_NAN, decode, encode_fp8, unpack_e2m1

NVFP4_SHIFT = 3
NVFP4_BLOCK, MXFP4_BLOCK = 16, 32
LARGEST_EXPONENT = 6  # that a row's largest mxfp4 scale becomes
SMALLEST_EXPONENT = -119  # that is packed
NO_LARGEST = 127  # of a row of zeros
_NOTHING_LEFT = -14  # an exponent with which e4m3 rounds 6, too, to 0
_MAGNITUDES = decode(np.arange(8, dtype=np.uint8), E2M1)


def _nvfp4_table() -> np.ndarray:
    scales = decode(np.arange(128, dtype=np.uint8), E4M3)
    with np.errstate(invalid="ignore"):
        return encode_fp8(scales[:, None] * _MAGNITUDES * np.float32(2.0**-NVFP4_SHIFT), E4M3).view(np.uint8)


def _mxfp4_table() -> tuple[np.ndarray, np.ndarray]:
    exact = np.ldexp(_MAGNITUDES.astype(np.float64), np.arange(_NOTHING_LEFT, LARGEST_EXPONENT + 1)[:, None]).reshape(-1)
    found = encode_fp8(exact, E4M3)
    return found.view(np.uint8), found.astype(np.float64) != exact


_MXFP4_TABLE, _MXFP4_ROUNDED = _mxfp4_table()  # eight magnitudes for each exponent from there on, and which of them are rounded
NVFP4_TABLE = _nvfp4_table()  # (128, 8) magnitudes: [scale, code without its sign]


@dataclass(frozen=True)
class RebasedWeights:
    """Of mxfp4: weights (..., N, K) as e4m3 or bf16, a factor (..., N) for each row, and which weights are not code x scale / factor."""

    weights: np.ndarray
    factors: np.ndarray
    rounded: np.ndarray  # (..., N, K) bool


def nvfp4_as_e4m3(q: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """q (..., N, K / 2) bytes of two codes, scales (..., N, K / 16) -> e4m3 (..., N, K), 1/8 of what they stand for."""
    codes, of_each = _codes(q, scales, NVFP4_BLOCK), np.repeat(np.asarray(scales).view(np.uint8), NVFP4_BLOCK, axis=-1)
    return _signed(NVFP4_TABLE[of_each & 0x7F, codes & 7], codes ^ of_each >> 4)


def largest_scales(q: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Of mxfp4, for each row: the byte (...,) that stands for 2^LARGEST_EXPONENT."""
    codes, scales = _codes(q, scales, MXFP4_BLOCK), np.asarray(scales).view(np.uint8)
    counts = (codes & 7).reshape(*scales.shape, MXFP4_BLOCK).any(axis=-1) & (scales != E8M0_NAN)
    largest = np.where(counts, scales, 0).max(axis=-1, initial=0)
    return np.where(counts.any(axis=-1), largest, np.uint8(NO_LARGEST)).astype(np.uint8)


def mxfp4_as_e4m3(q: np.ndarray, scales: np.ndarray, largest: np.ndarray | None = None) -> RebasedWeights:
    """q (..., N, K / 2) bytes of two codes, scales (..., N, K / 32). Where `largest` (..., N) bytes are given, larger scales count as those."""
    codes, bytes_of_scales = _codes(q, scales, MXFP4_BLOCK), np.asarray(scales).view(np.uint8)
    largest = (largest_scales(q, scales) if largest is None else largest).astype(np.int32)
    exponents = bytes_of_scales - largest[..., None] + LARGEST_EXPONENT
    no_number = np.repeat(bytes_of_scales == E8M0_NAN, MXFP4_BLOCK, axis=-1)
    # A block above the largest scale has zeros only, unless the largest was given.
    rows_of_table = (np.clip(exponents, _NOTHING_LEFT, LARGEST_EXPONENT) - _NOTHING_LEFT).astype(np.uint8)
    places = np.repeat(rows_of_table * np.uint8(8), MXFP4_BLOCK, axis=-1) | codes & 7
    rounded = _MXFP4_ROUNDED[places] & ~no_number
    magnitudes = np.where(no_number, np.uint8(0x7F), _MXFP4_TABLE[places])
    factors = np.ldexp(np.float32(1), largest - (127 + LARGEST_EXPONENT)).astype(np.float32)
    return RebasedWeights(_signed(magnitudes, codes), factors, rounded)


def nvfp4_as_bf16(q: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """bf16 (..., N, K), 1/8 of what they stand for, without the scale of the tensor."""
    return _as_bf16(_codes(q, scales, NVFP4_BLOCK), decode(scales, E4M3) * np.float32(2.0**-NVFP4_SHIFT), NVFP4_BLOCK)


def mxfp4_as_bf16(q: np.ndarray, scales: np.ndarray, largest: np.ndarray | None = None) -> RebasedWeights:
    """Weights are bf16; those that are not code x scale / factor are zeros. `largest` as of e4m3."""
    codes, bytes_of_scales = _codes(q, scales, MXFP4_BLOCK), np.asarray(scales).view(np.uint8).astype(np.int32)
    largest = (largest_scales(q, scales) if largest is None else largest).astype(np.int32)
    exponents = bytes_of_scales - largest[..., None] + LARGEST_EXPONENT
    lost = (exponents < SMALLEST_EXPONENT) & (bytes_of_scales != E8M0_NAN)
    multipliers = np.where(lost, 0.0, np.ldexp(1.0, np.minimum(exponents, LARGEST_EXPONENT))).astype(np.float32)
    multipliers = np.where(bytes_of_scales == E8M0_NAN, np.float32(np.nan), multipliers)
    factors = np.ldexp(np.float32(1), largest - (127 + LARGEST_EXPONENT)).astype(np.float32)
    rounded = np.repeat(lost, MXFP4_BLOCK, axis=-1) & (codes & 7 != 0)
    return RebasedWeights(_as_bf16(codes, multipliers, MXFP4_BLOCK), factors, rounded)


def _as_bf16(codes: np.ndarray, scales: np.ndarray, block: int) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray((decode(codes, E2M1) * np.repeat(scales, block, axis=-1)).astype(ml_dtypes.bfloat16))


def _codes(q: np.ndarray, scales: np.ndarray, block: int) -> np.ndarray:
    if q.dtype != np.uint8 or q.shape[-1] * 2 != scales.shape[-1] * block or q.shape[:-1] != scales.shape[:-1]:
        raise ValueError(f"q is uint8, {block // 2} bytes for each scale of a row, not {q.dtype} {q.shape} beside scales {scales.shape}")
    return unpack_e2m1(q)


def _signed(magnitudes: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return np.asarray((magnitudes | (codes & 8) << 4).astype(np.uint8).view(E4M3.dtype))

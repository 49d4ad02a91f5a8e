"""Element and scale formats: what a byte means, and how a float32 becomes one.

Encoding is round to nearest, ties to even, and saturating: a finite value or an infinity beyond the largest
element becomes that element. NaN becomes 0x7F, whatever its sign and payload, in both 8-bit formats.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

NAN_BYTE = 0x7F
E8M0_NAN = 255


@dataclass(frozen=True)
class ElementFormat:
    """A small float format; `exponent_of_max` is floor(log2(max_value)), the EMAX of the OCP MX rules."""

    name: str
    dtype: np.dtype
    max_value: float
    exponent_of_max: int
    mantissa_bits: int
    per_byte: int = 1


E4M3 = ElementFormat("e4m3", np.dtype(ml_dtypes.float8_e4m3fn), 448.0, 8, 3)
E5M2 = ElementFormat("e5m2", np.dtype(ml_dtypes.float8_e5m2), 57344.0, 15, 2)
E2M1 = ElementFormat("e2m1", np.dtype(ml_dtypes.float4_e2m1fn), 6.0, 2, 1, per_byte=2)
ELEMENTS = {element.name: element for element in (E4M3, E5M2, E2M1)}


def encode_fp8(values: np.ndarray, element: ElementFormat) -> np.ndarray:
    """float32 -> e4m3 or e5m2, as an array of `element.dtype`."""
    if element not in (E4M3, E5M2):
        raise ValueError(f"encode_fp8 encodes e4m3 and e5m2, not {element.name}")
    values = np.asarray(values, np.float32)
    # Clipping first is exact: everything between max_value and the next (missing) element saturates to max_value.
    clipped = np.clip(values, np.float32(-element.max_value), np.float32(element.max_value))
    with np.errstate(invalid="ignore"):
        codes = clipped.astype(element.dtype).view(np.uint8)
    return np.where(np.isnan(values), np.uint8(NAN_BYTE), codes).view(element.dtype)


def encode_e2m1(values: np.ndarray) -> np.ndarray:
    """float32 -> e2m1 codes 0..15, one a byte, not packed. NaN is the caller's to define; here it is an error."""
    values = np.asarray(values, np.float32)
    if np.isnan(values).any():
        raise ValueError("e2m1 has no NaN: replace NaN by what the quantisation rule says before encoding")
    clipped = np.clip(values, np.float32(-E2M1.max_value), np.float32(E2M1.max_value))
    return np.asarray(clipped.astype(E2M1.dtype).view(np.uint8))


def pack_e2m1(codes: np.ndarray) -> np.ndarray:
    """Pairs of codes along the last axis into bytes, the even index in the low nibble."""
    codes = np.asarray(codes, np.uint8)
    return np.asarray(codes[..., 0::2] | (codes[..., 1::2] << 4))


def unpack_e2m1(packed: np.ndarray) -> np.ndarray:
    """Inverse of `pack_e2m1`."""
    packed = np.asarray(packed, np.uint8)
    return np.stack((packed & 15, packed >> 4), axis=-1).reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def decode(codes: np.ndarray, element: ElementFormat) -> np.ndarray:
    """Bytes (or an array of `element.dtype`) -> float32, exactly."""
    return np.asarray(codes).view(element.dtype).astype(np.float32)


def decode_e8m0(scale: np.ndarray) -> np.ndarray:
    """Scale bytes -> float32: 2^(b - 127), 255 = NaN; b = 0 is the subnormal 2^-127, kept."""
    scale = np.asarray(scale).view(np.uint8).astype(np.int32)
    bits = np.where(scale == 0, 0x00400000, scale << 23)
    return np.where(scale == E8M0_NAN, 0x7FC00000, bits).astype(np.uint32).view(np.float32)


def inverse_e8m0(scale: np.ndarray) -> np.ndarray:
    """Scale bytes -> float32 2^(127 - b): bits (254 - b) << 23; b = 254 is the subnormal 2^-127, kept; 255 = NaN."""
    scale = np.asarray(scale).view(np.uint8).astype(np.int32)
    bits = np.where(scale == 254, 0x00400000, (254 - scale) << 23)
    return np.where(scale == E8M0_NAN, 0x7FC00000, bits).astype(np.uint32).view(np.float32)

"""What each format does with one block: its scale from the largest magnitude, and its elements from the scaled values.

A format tells the skeleton in `zoo.reference.quantize`:
    block               how many elements share a scale, along the contracted dimension
    packed              whether two elements share a byte
    short_last_block    whether K need not be a multiple of the block; along M no format asks it
    layouts             the scale layouts that its consumers read
    scales(amax)        the stored scales of blocks with these largest magnitudes (float32, NaN where a block holds one)
    multiplier(scales)  what elements are multiplied by, one a block; NaN where the block is not a number
    encode(scaled)      float32 products -> elements; e2m1 as codes, one a byte

Every operation is one IEEE float32 operation, rounded to nearest even, subnormals kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from zoo.reference.small_floats import E2M1, E4M3, ELEMENTS, decode, decode_e8m0, encode_e2m1, encode_fp8, inverse_e8m0
from zoo.reference.ue8m0 import scale_bytes

# The NaN of NVIDIA's float32 arithmetic. Whatever NaN a rule stores as float32, it is this one.
NAN = np.uint32(0x7FFFFFFF).view(np.float32)


@dataclass(frozen=True)
class Mxfp8:
    """Blocks of 32; e4m3 or e5m2; a ue8m0 scale. A block with NaN or infinity: scale 255, elements 0x7F."""

    element: str = "e4m3"
    rounding: str = "floor"
    block: ClassVar[int] = 32
    packed: ClassVar[bool] = False
    short_last_block: ClassVar[bool] = False
    layouts: ClassVar[tuple[str, ...]] = ("plain", "blocked")

    def __post_init__(self):
        if self.element not in ("e4m3", "e5m2"):
            raise ValueError(f"element is 'e4m3' or 'e5m2', not {self.element!r}")

    def scales(self, amax: np.ndarray) -> np.ndarray:
        return scale_bytes(amax, ELEMENTS[self.element], self.rounding).view(ml_dtypes.float8_e8m0fnu)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        return inverse_e8m0(scales)

    def encode(self, scaled: np.ndarray) -> np.ndarray:
        return encode_fp8(scaled, ELEMENTS[self.element])


@dataclass(frozen=True)
class Mxfp4:
    """Blocks of 32; e2m1; a ue8m0 scale. A block with NaN or infinity: scale 255, elements +0."""

    rounding: str = "floor"
    block: ClassVar[int] = 32
    packed: ClassVar[bool] = True
    short_last_block: ClassVar[bool] = False
    layouts: ClassVar[tuple[str, ...]] = ("plain", "blocked")

    def scales(self, amax: np.ndarray) -> np.ndarray:
        return scale_bytes(amax, E2M1, self.rounding).view(ml_dtypes.float8_e8m0fnu)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        return inverse_e8m0(scales)

    def encode(self, scaled: np.ndarray) -> np.ndarray:
        return encode_e2m1(np.where(np.isnan(scaled), np.float32(0), scaled))


def nvfp4_tensor_scale(amax: np.ndarray) -> np.ndarray:
    """The float32 scale of a tensor (or of each group) whose largest magnitude is `amax`: amax / 2688, 1 for amax 0."""
    amax = np.asarray(amax, np.float32)
    return np.where(amax == 0, np.float32(1), amax / np.float32(E4M3.max_value * E2M1.max_value))


@dataclass(frozen=True)
class Nvfp4:
    """Blocks of 16; e2m1; an e4m3 scale, relative to a float32 scale of the tensor.

    `tensor_scale` is one number, or one for each group (or for each matrix of a stack). A block with NaN: scale 0x7F,
    elements +0. An infinity in a block saturates like any large number: the scale at 448, the element at 6.
    """

    tensor_scale: np.ndarray | float
    block: ClassVar[int] = 16
    packed: ClassVar[bool] = True
    short_last_block: ClassVar[bool] = False
    layouts: ClassVar[tuple[str, ...]] = ("plain", "blocked")

    def __post_init__(self):
        object.__setattr__(self, "tensor_scale", np.asarray(self.tensor_scale, np.float32))

    def scales(self, amax: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            relative = amax / np.float32(E2M1.max_value) / self.tensor_scale
        # Not below the smallest normal e4m3: a scale with fewer bits would cost more than it reaches.
        return encode_fp8(np.clip(relative, np.float32(2.0**-6), np.float32(E4M3.max_value)), E4M3)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.float32(1) / self.tensor_scale / decode(scales, E4M3)

    def encode(self, scaled: np.ndarray) -> np.ndarray:
        # NaN is an element of a NaN block, or 0 * infinity under a tensor scale below 2^-128, whose inverse overflows.
        return encode_e2m1(np.where(np.isnan(scaled), np.float32(0), scaled))


@dataclass(frozen=True)
class Fp8b128:
    """Blocks of 128; e4m3; a float32 scale, with `pow2` a power of two. NaN or infinity: scale NaN, elements 0x7F."""

    pow2: bool = False
    block: ClassVar[int] = 128
    packed: ClassVar[bool] = False
    short_last_block: ClassVar[bool] = True
    layouts: ClassVar[tuple[str, ...]] = ("plain", "mn_major")

    def scales(self, amax: np.ndarray) -> np.ndarray:
        if self.pow2:
            scale = decode_e8m0(scale_bytes(amax, E4M3, "rceil"))
        else:
            with np.errstate(invalid="ignore"):
                scale = amax / np.float32(E4M3.max_value)
        # A normal float32, so that its inverse is one too and a power of two has no mantissa.
        scale = np.maximum(scale, np.float32(2.0**-126))
        scale = np.where(amax == 0, np.float32(1), scale)
        return np.where(np.isfinite(amax), scale, NAN)

    def multiplier(self, scales: np.ndarray) -> np.ndarray:
        return np.float32(1) / scales

    def encode(self, scaled: np.ndarray) -> np.ndarray:
        return encode_fp8(scaled, E4M3)


BlockFormat = Mxfp8 | Mxfp4 | Nvfp4 | Fp8b128

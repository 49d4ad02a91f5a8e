"""The scale bytes of packed 4-bit weights as products with bf16 take them, and back to those that products with FP8 take.

Shifted to its place and with the bits that all have, a byte is a bf16:

    nvfp4     bits 11 to 4, bits 14 to 12 set: 2^119 times the e4m3, subnormal ones as others; 0 for a scale of 0, 255 for NaN
    mxfp4     bits 13 to 6, bit 14 set: twice the byte that FP8 takes (0 to 126), 255 for NaN

Byte 0 is a number like others, so codes under it have magnitude 0. Multiplied by 2^4 (nvfp4) or 2^5 (mxfp4) besides, a code of 2^-126 becomes its weight.
"""

from __future__ import annotations

import numpy as np

from zoo.reference.four_bit_weights import NVFP4_BLOCK

NAN_OF_FP8, NAN_OF_BF16 = 127, 255


def _of_e4m3() -> np.ndarray:
    """Of each e4m3 without its sign."""
    byte = np.arange(128)
    subnormal = np.array([0, 104, 112, 116, 120, 122, 124, 126])
    return np.where(byte == NAN_OF_FP8, NAN_OF_BF16, np.where(byte < 8, subnormal[byte % 8], byte + 120)).astype(np.uint8)


def _of_exponents() -> np.ndarray:
    byte = np.arange(128)
    return np.where(byte == NAN_OF_FP8, NAN_OF_BF16, 2 * byte).astype(np.uint8)


_OF_E4M3, _OF_EXPONENTS = _of_e4m3(), _of_exponents()


def scales_for_bf16(scales: np.ndarray, block: int) -> np.ndarray:
    return np.asarray((_OF_E4M3 if block == NVFP4_BLOCK else _OF_EXPONENTS)[scales])


def scales_from_bf16(scales: np.ndarray, block: int) -> np.ndarray:
    """Of bytes that scales_for_bf16 gives."""
    back = np.zeros(256, np.uint8)
    back[_OF_E4M3 if block == NVFP4_BLOCK else _OF_EXPONENTS] = np.arange(128)
    return np.asarray(back[scales])

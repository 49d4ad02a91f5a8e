"""What a product with scales for 128 elements computes on Blackwell: there scales are powers of two, and the tensor core multiplies by them."""

from __future__ import annotations

import numpy as np

from zoo.reference.block_scaled_gemm import gemm_block_scaled
from zoo.reference.scales import pack_ue8m0, unpack_ue8m0

BLOCK = 128
_STEPS = 4  # of one instruction along K, in a block


def gemm_fp8b128_of_powers(a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray, splits: int = 1) -> np.ndarray:
    """f32 sums (M, N), as zoo.reference.gemm.gemm_fp8b128 takes operands; scales are f32 or ue8m0 bytes.

    A product of gemm.mxfp8 whose scales are the same for four blocks of 32, and for 128 rows of b. A scale that is no power of two
    is NaN, and 0 is 2^-127.
    """
    left = np.repeat(ue8m0_of_powers(a_scale), _STEPS, axis=1)  # those of steps beyond K are not looked at
    right = np.repeat(np.repeat(ue8m0_of_powers(b_scale), _STEPS, axis=1), BLOCK, axis=0)[: len(b)]
    return gemm_block_scaled(a, left, b, right, "mxfp8", splits)


def gemm_fp8b128_k_grouped_of_powers(
    a: np.ndarray, a_scale: np.ndarray, b: np.ndarray, b_scale: np.ndarray, offsets: np.ndarray
) -> np.ndarray:
    """f32 sums (G, M, N), as zoo.reference.gemm.gemm_fp8b128_k_grouped takes operands: groups along K, scales (rows, blocks)."""
    left, right = ue8m0_of_powers(a_scale), ue8m0_of_powers(b_scale)
    sums = np.zeros((len(offsets), len(a), len(b)), np.float32)
    begin = block = 0
    for group, end in enumerate(np.asarray(offsets).tolist()):
        blocks = slice(block, block + -(-(end - begin) // BLOCK))
        of_a, of_b = (np.repeat(scales[:, blocks], _STEPS, axis=1) for scales in (left, right))
        sums[group] = gemm_block_scaled(a[:, begin:end], of_a, b[:, begin:end], of_b, "mxfp8")
        begin, block = end, blocks.stop
    return sums


def ue8m0_of_powers(scales: np.ndarray) -> np.ndarray:
    """Bytes of scales, as scales.ue8m0_words makes them; of bytes themselves."""
    if scales.dtype != np.float32:
        return np.asarray(scales.view(np.uint8))
    return unpack_ue8m0(pack_ue8m0(scales.reshape(1, -1)), scales.size).reshape(scales.shape)

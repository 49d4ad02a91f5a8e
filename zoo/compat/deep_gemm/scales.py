"""Scales as DeepGEMM's clients pass them, and as zoo's kernels read them.

f32 scales (rows, blocks) have any strides in both. A packed int32 holds the ue8m0 bytes of four blocks of a row:

    word (r, i) = byte (r, 4 i) | byte (r, 4 i + 1) << 8 | byte (r, 4 i + 2) << 16 | byte (r, 4 i + 3) << 24
"""

from __future__ import annotations

import torch

from zoo.errors import ArgumentError

BLOCK = 128


def ceil_div(x: int, y: int) -> int:
    return (x + y - 1) // y


def align(x: int, y: int) -> int:
    return ceil_div(x, y) * y


def ue8m0_bytes(scales: torch.Tensor) -> torch.Tensor:
    """f32 scales to bytes: 0 and powers of two from 2^-127 on, 255, NaN, for all else."""
    bits = scales.contiguous().view(torch.int32)
    power = (bits >= 0) & ((bits & 0x7FFFFF == 0) | (bits == 1 << 22))
    return torch.where(power, bits >> 23, 255).to(torch.uint8)


def unpacked(name: str, scales: torch.Tensor, rows: int, k: int) -> torch.Tensor:
    """(..., rows, ceil(K / 128)) as bytes, of packed words (..., rows, ceil(K / 512))."""
    expected = (rows, ceil_div(k, 4 * BLOCK))
    if tuple(scales.shape[-2:]) != expected:
        raise ArgumentError(
            f"{name}: expected {expected} = (rows, ceil_div(K, 512)) words of four ue8m0 scales, got {tuple(scales.shape[-2:])}"
        )
    whole = scales.new_empty(scales.shape).copy_(scales)  # .contiguous() keeps the stride of a single column, at which view() fails
    return whole.view(torch.uint8)[..., : ceil_div(k, BLOCK)]


def by_blocks(name: str, scales: torch.Tensor, rows: int, blocks: int, groups: int) -> torch.Tensor:
    """(rows, blocks + groups), rows contiguous, as `k_grouped` reads scales: a copy of scales (rows, blocks). The last blocks are nobody's."""
    if scales.dtype == torch.int32:
        scales = unpacked(name, scales, rows, blocks * BLOCK)
    if tuple(scales.shape) != (rows, blocks):
        raise ArgumentError(f"{name}: expected ({rows}, {blocks}) = (rows, blocks of 128 along K), got {tuple(scales.shape)}")
    room = scales.new_empty((blocks + groups, align(rows, 16))).t()[:rows]
    room[:, :blocks].copy_(scales)
    return room

"""Quantisers with DeepGEMM's names and results: elements e4m3, scales f32, or powers of two with `use_ue8m0`.

Blocks of 128 are quantised by zoo's kernels, other shapes by torch with the same rule: scale = max(amax / 448, 2^-126), 1 for zeros. Below
an amax of 1e-4 DeepGEMM's scale stays 1e-4 / 448, so that small numbers lose bits there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import zoo.torch  # noqa: F401 registers torch.ops.zoo
from zoo.compat.deep_gemm.scales import BLOCK, align, ceil_div, ue8m0_bytes
from zoo.contract.whole_numbers import whole
from zoo.errors import ArgumentError

__all__ = [
    "align", "ceil_div", "ceil_to_ue8m0", "pack_ue8m0_to_int", "per_block_cast_to_fp8", "per_channel_cast_to_fp8",
    "per_custom_dims_cast_to_fp8", "per_token_cast_to_fp8", "unpack_ue8m0_from_int",
]  # fmt: skip

_LARGEST = 448.0
_KERNELS = (torch.bfloat16, torch.float16, torch.float32)


def ceil_to_ue8m0(x: torch.Tensor) -> torch.Tensor:
    """The power of two at or above |x|, from 2^-126 to 2^127."""
    bits = x.abs().float().view(torch.int32)
    exponents = (bits >> 23) + (bits & 0x7FFFFF != 0)
    return (exponents.clamp(1, 254) << 23).view(torch.float32)


def pack_ue8m0_to_int(x: torch.Tensor) -> torch.Tensor:
    """Four powers of two a word, the first in the lowest byte: (..., C) f32 to (..., C / 4) int32. Other numbers become 255, NaN."""
    if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or x.dim() == 0 or x.shape[-1] % 4:
        raise ArgumentError(f"pack_ue8m0_to_int: x: expected torch.float32 (..., multiple of 4), got {_about(x)}")
    return ue8m0_bytes(x).view(torch.int32)


def unpack_ue8m0_from_int(packed_sf: torch.Tensor) -> torch.Tensor:
    """Words back to f32."""
    if not isinstance(packed_sf, torch.Tensor) or packed_sf.dtype != torch.int32 or packed_sf.dim() == 0:
        raise ArgumentError(f"unpack_ue8m0_from_int: packed_sf: expected words of torch.int32, got {_about(packed_sf)}")
    return (packed_sf.contiguous().view(torch.uint8).to(torch.int32) << 23).view(torch.float32)


def per_token_cast_to_fp8(
    x: torch.Tensor, use_ue8m0: bool, gran_k: int = BLOCK, use_packed_ue8m0: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """x (M, K) to elements (M, K) and scales (M, ceil(K / gran_k)), packed: (M, K / (4 gran_k)) words."""
    _check_matrix("per_token_cast_to_fp8", x, gran_k)
    x = x.detach()
    m, k = x.shape
    if gran_k == BLOCK and _fits_kernels(x):
        q, scales = torch.ops.zoo.quantize_fp8b128_rows(x, scaling="pow2" if use_ue8m0 else "exact")
    else:
        blocks = ceil_div(k, gran_k)
        filled = torch.nn.functional.pad(x, (0, blocks * gran_k - k))
        q, scales = _quantised(filled.view(m, blocks, gran_k), (2,), use_ue8m0)
        q, scales = q.view(m, blocks * gran_k)[:, :k].contiguous(), scales.view(m, blocks)
    return q, pack_ue8m0_to_int(scales) if use_packed_ue8m0 else scales


def per_channel_cast_to_fp8(x: torch.Tensor, use_ue8m0: bool, gran_k: int = BLOCK) -> tuple[torch.Tensor, torch.Tensor]:
    """x (K, N) to elements (K, N) and scales (K / gran_k, N), each for gran_k elements of a column."""
    _check_matrix("per_channel_cast_to_fp8", x, gran_k)
    k, n = x.shape
    if k % gran_k:
        raise ArgumentError(f"per_channel_cast_to_fp8: x: expected rows in a multiple of {gran_k}, got {k}")
    q, scales = _quantised(x.detach().reshape(k // gran_k, gran_k, n), (1,), use_ue8m0)
    return q.view(k, n), scales.view(k // gran_k, n)


def per_block_cast_to_fp8(x: torch.Tensor, use_ue8m0: bool, gran_k: int = BLOCK) -> tuple[torch.Tensor, torch.Tensor]:
    """x (N, K) to elements (N, K) and scales (ceil(N / gran_k), ceil(K / gran_k)), each for a square."""
    _check_matrix("per_block_cast_to_fp8", x, gran_k)
    x = x.detach()
    n, k = x.shape
    if gran_k == BLOCK and _fits_kernels(x):
        q, scales = torch.ops.zoo.quantize_fp8b128_squares(x, scaling="pow2" if use_ue8m0 else "exact")
        return q, scales
    rows, columns = ceil_div(n, gran_k), ceil_div(k, gran_k)
    filled = torch.nn.functional.pad(x, (0, columns * gran_k - k, 0, rows * gran_k - n))
    q, scales = _quantised(filled.view(rows, gran_k, columns, gran_k), (1, 3), use_ue8m0)
    return q.view(rows * gran_k, columns * gran_k)[:n, :k].contiguous(), scales.view(rows, columns)


def per_custom_dims_cast_to_fp8(x: torch.Tensor, dims: Sequence[int], use_ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """A scale for each index of `dims`."""
    name = "per_custom_dims_cast_to_fp8"
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        raise ArgumentError(f"{name}: x: expected numbers, got {_about(x)}")
    if not isinstance(dims, Sequence) or not all(isinstance(one, int) and -x.dim() <= one < x.dim() for one in dims):
        raise ArgumentError(f"{name}: dims: expected axes of x, which has {x.dim()}, got {dims!r}")
    kept = {one % x.dim() for one in dims}
    q, scales = _quantised(x.detach(), tuple(one for one in range(x.dim()) if one not in kept), use_ue8m0)
    return q, scales.squeeze()


def _quantised(x: torch.Tensor, shared: tuple[int, ...], use_ue8m0: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements along the axes `shared` have one scale."""
    amax = x.abs().float().amax(shared, keepdim=True) if x.numel() else x.float().sum(shared, keepdim=True)
    scales = torch.where(amax == 0, 1.0, (amax / _LARGEST).clamp(min=2.0**-126))
    if use_ue8m0:
        scales = ceil_to_ue8m0(scales)
    return (x * (1.0 / scales)).to(torch.float8_e4m3fn), scales


def _fits_kernels(x: torch.Tensor) -> bool:
    """Rows of whole 16 bytes, contiguous and aligned."""
    rows_fit = x.stride(1) == 1 and x.stride(0) * x.element_size() % 16 == 0 and x.stride(0) >= x.shape[1]
    return x.dtype in _KERNELS and x.numel() > 0 and x.shape[1] % 16 == 0 and rows_fit and x.data_ptr() % 16 == 0


def _check_matrix(name: str, x: Any, block: Any) -> None:
    if not isinstance(x, torch.Tensor) or x.dim() != 2 or not x.is_floating_point():
        raise ArgumentError(f"{name}: x: expected a matrix of numbers, got {_about(x)}")
    if block != BLOCK:
        whole(block, f"{name}: gran_k", 1)


def _about(x: Any) -> str:
    return f"{x.dtype} {tuple(x.shape)}" if isinstance(x, torch.Tensor) else f"a {type(x).__name__}"

"""Operands of DeepGEMM's products and what their products are, in float32 from the quantised numbers."""

from __future__ import annotations

import torch

import zoo.compat.deep_gemm as deep_gemm

DEVICE = "cuda" if torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9 else "cpu"


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(DEVICE, torch.bfloat16)


def tokens(m: int, k: int, seed: int = 0):
    return deep_gemm.per_token_cast_to_fp8(normal(m, k, seed=seed), use_ue8m0=False)


def weights(*shape: int, seed: int = 1):
    """Of one matrix (N, K), or of several (G, N, K)."""
    x = normal(*shape, seed=seed)
    if x.dim() == 2:
        return deep_gemm.per_block_cast_to_fp8(x, use_ue8m0=False)
    parts = [deep_gemm.per_block_cast_to_fp8(one, use_ue8m0=False) for one in x]
    return torch.stack([q for q, _ in parts]), torch.stack([scales for _, scales in parts])


def numbers(operand) -> torch.Tensor:
    """float32 of elements and scales along the last axis, of rows or of squares."""
    q, scales = operand
    k, n = q.shape[-1], q.shape[-2]
    scales = scales.repeat_interleave(128, -1)[..., :k]
    if scales.shape[-2] != n:
        scales = scales.repeat_interleave(128, -2)[..., :n, :]
    return q.float() * scales


def assert_product(found: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | float = 0.0) -> None:
    """docs/gemm.md: within 2^-11 of the sum of |a b|, plus the rounding of D, which is 2^-8 in bf16 at most. c is added in f32."""
    exact = a @ b.mT + c
    allowed = 2.0**-11 * (a.abs() @ b.abs().mT) + (2.0**-8 if found.dtype == torch.bfloat16 else 2.0**-22) * exact.abs()
    assert found.shape == exact.shape and bool(((found.float() - exact).abs() <= allowed).all())


def untouched(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.full(shape, 77.0, dtype=dtype, device=DEVICE)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)

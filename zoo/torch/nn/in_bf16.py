"""Products of a layer in bf16 by torch, for a layer that training in its format harms: `layer.in_bf16 = True`, at any time."""

from __future__ import annotations

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.formats import Format
from zoo.torch.nn.products import check_bias, check_groups


def linear_in_bf16(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    """x (..., K) times a weight (N, K) transposed, in the dtype of x or autocast's."""
    weight = _trained(weight)
    check_bias(bias, tuple(weight.shape[:1]))
    dtype = _dtype(x)
    with torch.autocast(x.device.type, enabled=False):
        y = torch.nn.functional.linear(_bf16(x), _bf16(weight), None if bias is None else _bf16(bias))
    return y.to(dtype)


def grouped_in_bf16(
    x: torch.Tensor, weight: torch.Tensor | None, offsets: torch.Tensor, bias: torch.Tensor | None, form: Format
) -> torch.Tensor:
    """Rows of groups of x (M, K) times their matrices of a weight (G, N, K). Rows after the last offset give zeros."""
    weight = _trained(weight)
    check_groups(x, weight, offsets)
    check_bias(bias, tuple(weight.shape[:2]))
    multiply = getattr(torch.nn.functional, "grouped_mm", None)
    if multiply is None:
        raise ArgumentError(f"in_bf16: torch {torch.__version__} has no torch.nn.functional.grouped_mm; install a newer one")
    dtype, (_, size, _) = _dtype(x), weight.shape
    row = torch.arange(x.shape[0], dtype=torch.int32, device=x.device)
    inside = (row < offsets[-1])[:, None]  # torch leaves other rows unwritten, and rows of their gradient
    with torch.autocast(x.device.type, enabled=False):
        rows = form.filled(torch.where(inside, _bf16(x), 0))
        y = multiply(rows, form.filled(_bf16(weight), 2).mT, offs=offsets)[:, :size]
        if bias is not None:
            group = torch.searchsorted(offsets, row, right=True).clamp(max=offsets.shape[0] - 1)
            y = y + _bf16(bias)[group]
        return torch.where(inside, y, 0).to(dtype)


def _trained(weight: torch.Tensor | None) -> torch.Tensor:
    if weight is None:
        raise ArgumentError("in_bf16: a frozen layer has no weight in bf16; set in_bf16 = False, or use a layer that is not frozen")
    return weight


def _bf16(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.bfloat16)


def _dtype(x: torch.Tensor) -> torch.dtype:
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if kind != "meta" and torch.is_autocast_enabled(kind) else x.dtype

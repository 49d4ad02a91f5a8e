"""A mixture-of-experts layer as torch computes it in bf16, forward and backward: what zoo.torch.nn.Experts is measured beside.

Sort the choices, gather, two products of groups, activation, gather and weigh each token's rows. Gathers of rows have gathers as gradients,
where torch would add with atomics. Nothing waits for the host, so a CUDA graph can hold the layer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from zoo.benchmark.layer_models import LIMIT, SLOPE


def silu(sums: torch.Tensor) -> torch.Tensor:
    """All gates before all ups."""
    gate, up = sums.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def gpt_oss(sums: torch.Tensor) -> torch.Tensor:
    """Each gate before its up."""
    gate, up = sums[..., 0::2].clamp(max=LIMIT), sums[..., 1::2].clamp(-LIMIT, LIMIT)
    return (up + 1) * gate * torch.sigmoid(SLOPE * gate)


def experts(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    activation: Callable[[torch.Tensor], torch.Tensor] = silu,
    biases: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """y (T, K) of x (T, K), ids and weights (T, top_k), gate_up (E, 2 I, K) and down (E, K, I). Every id is an expert's."""
    count, top_k = ids.shape
    expert, order = ids.flatten().sort(stable=True)
    rows = torch.arange(len(order), device=order.device)
    place = torch.empty_like(order).scatter_(0, order, rows)  # of each choice
    ends = torch.searchsorted(expert, torch.arange(len(down), device=order.device), right=True).int()
    sums = torch._grouped_mm(_Gather.apply(x, order // top_k, place, top_k), gate_up.transpose(-2, -1), offs=ends)
    act = activation(sums if biases is None else sums + biases[0][expert])
    d = torch._grouped_mm(act, down.transpose(-2, -1), offs=ends)
    d = _Gather.apply(d if biases is None else d + biases[1][expert], place, order, 1).view(count, top_k, -1)
    return torch.bmm(weights.to(d.dtype)[:, None], d)[:, 0]


class _Gather(torch.autograd.Function):
    """Rows of x. `places` are, for each row of x in turn, the `many` rows that were taken from it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: torch.Tensor, places: torch.Tensor, many: int) -> torch.Tensor:
        ctx.save_for_backward(places)
        ctx.many = many
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        found = gradients[0].index_select(0, places)
        return found if ctx.many == 1 else found.view(-1, ctx.many, found.shape[1]).sum(1), None, None, None

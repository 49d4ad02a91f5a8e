"""A mixture-of-experts layer as torch computes it in bf16, forward and backward: what zoo.torch.nn.Experts is measured beside.

Sort the choices, gather, two products of groups, weighted activation, gather and add each token's rows. The weights are multiplied where
rows are shortest. Gathers have gathers as gradients, where torch would add with atomics. Nothing waits for the host, so a CUDA graph can
hold the layer. Over ranks, the rows of all choices travel, and the host waits for their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from torch.distributed._functional_collectives import all_to_all_single_autograd

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
    top_k = ids.shape[1]
    expert, order = ids.flatten().sort(stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))  # of each choice
    ends = torch.searchsorted(expert, torch.arange(len(down), device=order.device), right=True).int()
    token, share = order // top_k, _Gather.apply(weights.to(x.dtype).reshape(-1, 1), order, place, 1)
    sums = torch._grouped_mm(_Gather.apply(x, token, place, top_k), gate_up.transpose(-2, -1), offs=ends)
    act = activation(sums if biases is None else sums + biases[0][expert]) * share
    d = torch._grouped_mm(act, down.transpose(-2, -1), offs=ends)
    y: torch.Tensor = _Add.apply(d if biases is None else d + biases[1][expert] * share, token, place, top_k)
    return y


def experts_over_ranks(
    x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, group: Any
) -> tuple[torch.Tensor, int]:
    """y of this rank's tokens, and the bytes of the rows that it sends to other ranks. gate_up and down: the experts of this rank."""
    ranks, here, top_k = distributed.get_world_size(group), len(down), ids.shape[1]
    expert, order = ids.flatten().sort(stable=True)
    place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
    counts = torch.bincount(expert, minlength=ranks * here)
    came = torch.empty_like(counts)
    distributed.all_to_all_single(came, counts, group=group)
    send, receive = torch.stack((counts, came)).view(2, ranks, here).sum(2).tolist()
    own = torch.arange(here, device=x.device).repeat(ranks).repeat_interleave(came, output_size=sum(receive))[:, None]
    token, share = order // top_k, _Gather.apply(weights.to(x.dtype).reshape(-1, 1), order, place, 1)
    rows = all_to_all_single_autograd(_Gather.apply(x, token, place, top_k), receive, send, group)
    d = experts(rows, own, torch.ones_like(own, dtype=x.dtype), gate_up, down)
    back = all_to_all_single_autograd(d, send, receive, group)
    rank = distributed.get_rank(group)
    away = sum(send) - send[rank] + sum(receive) - receive[rank]
    return _Add.apply(back * share, token, place, top_k), away * x.shape[1] * x.element_size()


def _added(d: torch.Tensor, place: torch.Tensor, top_k: int) -> torch.Tensor:
    """The sum of each token's rows."""
    rows = d.index_select(0, place)
    return rows if top_k == 1 else rows.view(-1, top_k, rows.shape[1]).sum(1)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, token: torch.Tensor, place: torch.Tensor, top_k: int) -> torch.Tensor:
        ctx.save_for_backward(place)
        ctx.top_k = top_k
        return x.index_select(0, token)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (place,) = ctx.saved_tensors
        return _added(gradients[0], place, ctx.top_k), None, None, None


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, d: torch.Tensor, token: torch.Tensor, place: torch.Tensor, top_k: int) -> torch.Tensor:
        ctx.save_for_backward(token)
        return _added(d, place, top_k)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (token,) = ctx.saved_tensors
        return gradients[0].index_select(0, token), None, None, None

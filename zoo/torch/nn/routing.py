"""Routing of tokens to experts, and the sum of their experts' rows, on the device: no size depends on the routing and the host never waits.

    ids (T, top_k)        0 2 | 2 1 | -1 2       expert of each choice; -1: dropped
    rows (T, top_k)       0 2 | 3 1 | -1 4       row of each choice
    index (R,)            0 1 0 1 2 -1           token of each row
    offsets (E,)          1 2 5                  end row of each expert
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from zoo.errors import ArgumentError


class Routing(NamedTuple):
    offsets: torch.Tensor  # (E,) i32: end row of each expert
    index: torch.Tensor  # (R,) i32: token of each row, -1 for a row of no token
    rows: torch.Tensor  # (T, top_k) i32: row of each choice, -1 for a dropped choice
    row_weights: torch.Tensor  # (R,) f32: routing weight of each row, 0 for a row of no token


def route(ids: torch.Tensor, weights: torch.Tensor, experts: int, first: int = 0) -> Routing:
    """Sorts the choices by expert, stably, into R = T top_k rows. Ids outside first .. first + experts - 1 are dropped."""
    return Routing(*_route(ids, weights, experts, first))


def gather(x: torch.Tensor, routing: Routing) -> torch.Tensor:
    """(R, K): the token of each row of x (T, K). Rows of no token are arbitrary. The gradient adds in a fixed order."""
    found: torch.Tensor = _Gather.apply(x, routing.index, routing.rows)
    return found


def gathered(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """`gather` without gradients."""
    return x[index.clamp(min=0)] if x.shape[0] else x.new_empty(0, x.shape[1])


def combine(
    d: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None = None, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """(T, N): the sum of each token's rows of d (R, N), times their weights, plus the residual. It has gradients for all but `rows`."""
    y: torch.Tensor = _Combine.apply(d, rows, weights, residual)
    return y


def refuse_second_derivative() -> None:
    """For a backward pass, which autograd runs with gradients enabled only where a second derivative is asked for."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise ArgumentError("Experts: has no second derivative; call backward() or torch.autograd.grad() without create_graph=True")


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows)
        return gathered(x, index)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        return combined(gradients[0].contiguous(), *ctx.saved_tensors), None, None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, d: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None, residual: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(d, rows, weights)
        return combined(d, rows, weights, residual)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        (dy,), (d, rows, weights) = gradients, ctx.saved_tensors
        d_rows, d_weights = _combine_backward(dy.contiguous(), rows, weights, d)
        return d_rows, None, d_weights if weights is not None else None, dy if ctx.needs_input_grad[3] else None


def _route(ids: torch.Tensor, weights: torch.Tensor, experts: int, first: int) -> tuple[torch.Tensor, ...]:
    tokens, top_k = ids.shape
    rows = tokens * top_k
    local = ids.flatten().long() - first
    kept = (local >= 0) & (local < experts)
    groups, order = torch.where(kept, local, experts).sort(stable=True)  # dropped choices are behind all others
    offsets = torch.searchsorted(groups, torch.arange(experts, device=ids.device), right=True, out_int32=True)
    place = torch.arange(rows, device=ids.device, dtype=torch.int32)
    used = place < offsets[-1]
    index = torch.where(used, order // max(top_k, 1), -1).int()
    row_weights = torch.where(used, weights.flatten()[order], 0)
    of_choices = torch.empty_like(place).scatter_(0, order, torch.where(used, place, -1))
    return offsets, index, of_choices.view(tokens, top_k), row_weights


def combined(d: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None = None, residual: torch.Tensor | None = None) -> torch.Tensor:
    """`combine` without gradients."""
    if d.shape[0] == 0:
        return d.new_zeros(rows.shape[0], d.shape[1]) if residual is None else residual.clone()
    y = None
    for choice, row in enumerate(rows.t()):  # in order, in f32
        part = d[row.clamp(min=0)].float()
        part = part if weights is None else part * weights[:, choice, None]
        part = torch.where(row[:, None] < 0, 0, part)
        y = part if y is None else y + part
    assert y is not None
    return (y if residual is None else y + residual).to(d.dtype)


def _combine_backward(
    dy: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None, d: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of d and of the weights."""
    places = torch.where(rows < 0, d.shape[0], rows).long()  # a row behind all others for what is dropped
    of_choices = dy[:, None].float().expand(-1, rows.shape[1], -1)
    weighted = of_choices if weights is None else of_choices * weights[..., None]
    d_rows = d.new_zeros(d.shape[0] + 1, d.shape[1]).index_copy(0, places.flatten(), weighted.flatten(0, 1).to(d.dtype))
    if d.shape[0] == 0:
        return d_rows[:-1], dy.new_zeros(rows.shape, dtype=torch.float32)
    dots = (of_choices * d[rows.clamp(min=0)].float()).sum(-1)
    return d_rows[:-1], torch.where(rows < 0, 0, dots)

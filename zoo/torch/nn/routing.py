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
from zoo.torch.nn.transforms import refuse_batch

ops: Any = torch.ops.zoo


class Routing(NamedTuple):
    offsets: torch.Tensor  # (E,) i32: end row of each expert
    index: torch.Tensor  # (R,) i32: token of each row, -1 for a row of no token
    rows: torch.Tensor  # (T, top_k) i32: row of each choice, -1 for a dropped choice
    row_weights: torch.Tensor  # (R,) f32: routing weight of each row, 0 for a row of no token


def route(ids: torch.Tensor, weights: torch.Tensor, experts: int, first: int = 0) -> Routing:
    """Sorts the choices by expert, stably, into R = T top_k rows. Ids outside first .. first + experts - 1 are dropped."""
    offsets, index, rows, _, row_weights = ops.experts_route.all(ids, weights=weights, first=first, E=experts, R=ids.numel())
    return Routing(offsets, index, rows, row_weights)


def gather(x: torch.Tensor, routing: Routing) -> torch.Tensor:
    """(R, K): the token of each row of x (T, K). Rows of no token are arbitrary. The gradient adds in a fixed order."""
    found: torch.Tensor = _Gather.apply(x, routing.index, routing.rows)
    return found


def combine(d: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None = None, residual: torch.Tensor | None = None) -> torch.Tensor:
    """(T, N) in bf16: the sum of each token's rows of d (R, N), times their weights, plus the residual. It has gradients for all but `rows`."""
    y: torch.Tensor = _Combine.apply(d, rows, weights, residual)
    return y


def refuse_second_derivative(dy: torch.Tensor | None = None) -> None:
    """For a backward pass, which autograd runs with gradients enabled only where a second derivative is asked for."""
    if dy is not None:
        refuse_batch("the gradient of Experts", dy)
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise ArgumentError("Experts: has no second derivative; call backward() or torch.autograd.grad() without create_graph=True")


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, index: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows)
        return x[index.clamp(min=0)] if x.shape[0] else x.new_empty(0, x.shape[1])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative(gradients[0])
        return combined(gradients[0].contiguous(), *ctx.saved_tensors), None, None


class _Combine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, d: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None, residual: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(d, rows, weights)
        return combined(d, rows, weights, residual)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative(gradients[0])
        (dy,), (d, rows, weights) = gradients, ctx.saved_tensors
        d_rows, d_weights = ops.experts_combine_backward.all(dy.contiguous(), rows, weights=weights, d=d)
        return d_rows, None, None if weights is None else d_weights, dy if ctx.needs_input_grad[3] else None


def combined(
    d: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor | None = None, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """`combine` without gradients."""
    y: torch.Tensor = ops.experts_combine(d, rows, weights=weights, residual=residual)
    return y


def of_choices(of_rows: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """(T, top_k): the number (R,) of each choice's row, 0 for a dropped choice."""
    if of_rows.shape[0] == 0:
        return of_rows.new_zeros(rows.shape)
    return torch.where(rows < 0, 0, of_rows[rows.clamp(min=0)])

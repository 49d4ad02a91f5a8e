"""The gated layer of all experts in FP8 with master weights: forward, and backward for tokens, weights and routing weights.

    forward   x --quantise--> gather, gates and ups --> h --SwiGLU, quantise--> second GEMM --> combine --> y
    backward  dy --quantise--> gather, second GEMM's transpose --> d_act --SwiGLU's backward--> d_h, act, routing gradients
              d_h --first GEMM's transpose--> combine --> dx        d_h^T x and (weight dy)^T act: gradients of the weights

Kept between both: x, h and the transposed weights in e4m3. The rows of h behind the last expert are unwritten and stay unread.
"""

from __future__ import annotations

from typing import Any

import torch

from zoo.torch.nn.experts_serving import paired, scaling_of
from zoo.torch.nn.routing import combined, refuse_second_derivative, route

ops: Any = torch.ops.zoo


def experts_fp8b128(
    x: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor | None,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    first: int,
    gates: str,
) -> torch.Tensor:
    y: torch.Tensor = _Experts.apply(x, ids, weights, residual, gate_up, down, first, gates)
    return y


class _Experts(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        ids: torch.Tensor,
        weights: torch.Tensor,
        residual: torch.Tensor | None,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        first: int,
        gates: str,
    ) -> torch.Tensor:
        scaling = {"scaling": scaling_of(x)}
        routing = route(ids, weights, gate_up.shape[0], first)
        *w1, w1_cols, w1_cols_scales = ops.quantize_fp8b128_squares.all(gate_up, **scaling)
        *w2, w2_cols, w2_cols_scales = ops.quantize_fp8b128_squares.all(down, **scaling)
        a = ops.quantize_fp8b128_rows(x, **scaling)
        h = ops.gemm_fp8b128_m_grouped_gather(*a, *w1, routing.index, routing.offsets)
        act = ops.quantize_fp8b128_rows_swiglu(paired(h, gates), gates=gates, **scaling)
        d = ops.gemm_fp8b128_m_grouped_contiguous(*act, *w2, offsets=routing.offsets)
        ctx.save_for_backward(x, h, weights, *routing, w1_cols, w1_cols_scales, w2_cols, w2_cols_scales)
        ctx.gates, ctx.dtypes = gates, (gate_up.dtype, down.dtype)
        return combined(d, routing.rows, weights, residual)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative("zoo.torch.nn.Experts")
        x, h, weights, offsets, index, rows, row_weights, *columns = ctx.saved_tensors
        w1_columns, w2_columns = columns[:2], columns[2:]
        scaling = {"scaling": scaling_of(x)}
        dy = gradients[0].contiguous()
        d_act = ops.gemm_fp8b128_m_grouped_gather(*ops.quantize_fp8b128_rows(dy, **scaling), *w2_columns, index, offsets)
        d_h, act, d_row_weights = _swiglu_backward(d_act, h, row_weights, ctx.gates)
        dx = d_gate_up = d_down = None
        if ctx.needs_input_grad[0]:
            d_rows = ops.gemm_fp8b128_m_grouped_contiguous(
                *ops.quantize_fp8b128_rows(d_h, **scaling), *w1_columns, offsets=offsets
            )  # fmt: skip
            dx = combined(d_rows, rows, None).to(x.dtype)
        if ctx.needs_input_grad[4]:
            d_gate_up = _weight_gradient(d_h, _gathered(x, index), offsets, ctx.dtypes[0])
        if ctx.needs_input_grad[5]:
            d_down = _weight_gradient(_gathered(dy, index), act, offsets, ctx.dtypes[1])
        d_weights = _of_choices(d_row_weights, rows) if ctx.needs_input_grad[2] else None
        d_residual = gradients[0] if ctx.needs_input_grad[3] else None
        return dx, None, d_weights, d_residual, d_gate_up, d_down, None, None


def _swiglu_backward(
    d_act: torch.Tensor, h: torch.Tensor, row_weights: torch.Tensor, gates: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradient of h, the activation times the routing weight, and the gradient of the routing weight of each row."""
    axis = 1 if gates == "halves" else 2
    gate, up = paired(h, gates).float().unbind(axis)
    share, d_act, factor = torch.sigmoid(gate), d_act.float(), row_weights[:, None]
    act = gate * share * up
    d_gate, d_up = d_act * up * share * (1 + gate * (1 - share)), d_act * gate * share
    d_h = torch.stack((d_gate * factor, d_up * factor), axis).flatten(1)
    return d_h.bfloat16(), (act * factor).bfloat16(), (d_act * act).sum(1)


def _weight_gradient(a: torch.Tensor, b: torch.Tensor, offsets: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """a^T b of the rows of each expert (E, N, K). Experts without rows get zeros."""
    word = {torch.bfloat16: "bf16"}.get(dtype, "f32")
    (*of_a, ends), (*of_b, _) = _columns(a, offsets), _columns(b, offsets)
    gradient: torch.Tensor = ops.gemm_fp8b128_k_grouped(*of_a, *of_b, ends, d=word)
    return gradient.to(dtype)


def _columns(x: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x quantised along its columns. Each expert's rows are padded with zeros to a multiple of 128."""
    scaling = scaling_of(x)
    q, scales, _, ends = ops.quantize_fp8b128_cols_m_grouped_padded(x, offsets, layout="mn_major", scaling=scaling)
    return q, torch.nn.functional.pad(scales.t(), (0, 0, 0, offsets.shape[0])), ends


def _gathered(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x[index.clamp(min=0)] if x.shape[0] else x


def _of_choices(of_rows: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    if of_rows.shape[0] == 0:
        return of_rows.new_zeros(rows.shape)
    return torch.where(rows < 0, 0, of_rows[rows.clamp(min=0)])

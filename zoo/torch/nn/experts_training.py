"""Experts with master weights, forward and backward.

    forward   x --quantise--> gather, gates and ups --> h --SwiGLU, quantise--> second GEMM --> combine --> y
    backward  dy --quantise--> gather, second GEMM's transpose --> d_act --SwiGLU's backward--> d_h, act, routing gradients
              d_h --first GEMM's transpose--> combine --> dx        d_h^T x and dy^T (weight act): gradients of the weights

`fused` is this picture in fp8b128. x and h are saved, no row of the second GEMM. Rows behind the last expert are unwritten and stay unread.
`composed` is the same layer of separate products, for the formats, activations and biases that fp8b128's kernels lack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from zoo.runtime.multiprocessors import limit_here, multiprocessors
from zoo.torch.nn.expert_weights import ExpertWeights
from zoo.torch.nn.experts_serving import Gating, paired
from zoo.torch.nn.formats import Columns, format_of, held_parts, one_more_block_each
from zoo.torch.nn.gradients import dtype_of, gradient
from zoo.torch.nn.in_bf16 import grouped_in_bf16
from zoo.torch.nn.kept import Kept, capturing, made, original
from zoo.torch.nn.products import exporting, grouped_product
from zoo.torch.nn.routing import Routing, combine, combined, gather, of_choices, refuse_second_derivative

ops: Any = torch.ops.zoo
_FORM = format_of("fp8b128")


@dataclass(frozen=True, eq=False)
class Master:
    """One matrix of each expert (E, N, K), of a module that is not zoo's."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    format: str
    _kept: Kept | None
    add_gradients: ClassVar[bool] = False
    in_bf16: ClassVar[bool] = False


def fused(
    x: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor | None,
    gate_up: ExpertWeights | Master,
    down: ExpertWeights | Master,
    routing: Routing,
    gating: Gating,
) -> torch.Tensor:
    """y (T, K) in fp8b128, by silu and without biases."""
    both = [one._kept for one in (gate_up, down) if one._kept is not None]
    kept: Any = None
    held: tuple[Any, ...] = ()
    if torch.compiler.is_compiling():
        parts = [held_parts(one.held_forms(_FORM, w.weight)) for one, w in zip(both, (gate_up, down), strict=False)]
        adds, held = False, (*parts[0], *parts[1]) if len(parts) == 2 and all(parts) else ()
    else:
        lasting = len(both) == 2 and (all(one.held for one in both) or not capturing())
        kept, adds = tuple(both) if lasting else None, gate_up.add_gradients
    trains = _need_gradients(x, weights, residual, gate_up.weight, down.weight)
    x = x.to(torch.bfloat16)  # the quantiser of both directions has bf16 alone, and a call without gradients has the same bits
    given: Any = (x, weights, residual, gate_up.weight, down.weight, *routing, gating.gates, kept, adds, *held)
    return _with_gradients(*given) if trains else _forward(None, *given)


def _need_gradients(*given: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in given)


def _with_gradients(*given: Any) -> torch.Tensor:
    y: torch.Tensor = _Fused.apply(*given)
    return y


torch.compiler.allow_in_graph(_with_gradients)  # as a whole, as in products.py


def composed(
    x: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor | None,
    gate_up: ExpertWeights | Master,
    down: ExpertWeights | Master,
    routing: Routing,
    gating: Gating,
) -> torch.Tensor:
    """y (T, K) in any format that trains, by any activation."""

    def multiplied(rows: torch.Tensor, w: ExpertWeights | Master) -> torch.Tensor:
        if w.in_bf16:
            return grouped_in_bf16(rows.bfloat16(), w.weight, routing.offsets, w.bias, format_of(w.format))
        assert w.weight is not None
        options: dict[str, Any] = {"bias": w.bias, "kept": w._kept, "adds": w.add_gradients}
        return grouped_product(rows, w.weight, routing.offsets, w.format, dtype=torch.bfloat16, **options)

    h = multiplied(gather(x.to(torch.bfloat16), routing), gate_up)
    gate, up = paired(h, gating.gates).float().unbind(1 if gating.gates == "halves" else 2)
    if gating.limit is not None:
        gate, up = gate.clamp(max=gating.limit), up.clamp(-gating.limit, gating.limit)
    slope, added = (1.702, 1) if gating.activation == "gpt_oss" else (1, 0)
    act = gate * torch.sigmoid(slope * gate) * (up + added)
    return combine(multiplied(act.bfloat16(), down), routing.rows, weights, residual)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> torch.Tensor:
        return _forward(ctx, *given)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative(gradients[0])
        with multiprocessors(ctx.limit):  # autograd's thread has none
            return _Fused.gradients(ctx, gradients[0].contiguous())

    @staticmethod
    def gradients(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, h, offsets, index, rows, row_weights, *saved = ctx.saved_tensors
        needs_x, needs_weights, needs_residual, needs_gate_up, needs_down = ctx.needs_input_grad[:5]
        w1, w2 = _transposed(ctx, saved, 0, needs_x), _transposed(ctx, saved, 1, True)
        dx = d_weights = d_gate_up = d_down = None
        q, scales, *dy_columns = _both(dy, offsets, index)
        d_act = ops.gemm_fp8b128_m_grouped_contiguous(q, scales, *w2, offsets=offsets)
        q, scales, h_q, h_scales, act_q, act_scales, dots, _, ends = ops.quantize_fp8b128_both_m_grouped_padded_swiglu_backward.all(
            d_act, paired(h, ctx.gates), offsets, row_weights=row_weights, gates=ctx.gates, layout="mn_major", **_FORM.options
        )
        if needs_x:
            dx = combined(ops.gemm_fp8b128_m_grouped_contiguous(q, scales, *w1, offsets=offsets), rows).to(x.dtype)
        if needs_gate_up:
            _, _, *x_columns = _both(x, offsets, index)
            d_gate_up = gradient(_FORM, _columns(h_q, h_scales, ends), _columns(*x_columns), ctx.dtypes[0], ctx.adds_to[0])
        if needs_down:
            act = _columns(act_q, act_scales, ends)
            d_down = gradient(_FORM, _columns(*dy_columns), act, ctx.dtypes[1], ctx.adds_to[1])
        if needs_weights:
            d_weights = of_choices(dots.sum(1), rows)
        return dx, d_weights, dy if needs_residual else None, d_gate_up, d_down, *(None,) * (len(ctx.needs_input_grad) - 5)


def _forward(
    ctx: Any,
    x: torch.Tensor,
    weights: torch.Tensor,
    residual: torch.Tensor | None,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    offsets: torch.Tensor,
    index: torch.Tensor,
    rows: torch.Tensor,
    row_weights: torch.Tensor,
    gates: str,
    kept: tuple[Kept, Kept] | None,
    adds: bool,
    *held: torch.Tensor | None,
) -> torch.Tensor:
    """Without a ctx nothing is saved."""
    ctx = None if exporting() else ctx
    if held:
        forms: list[Any] = [_FORM.held(*held[:5]), _FORM.held(*held[5:])]
    else:
        needed = (ctx is not None and ctx.needs_input_grad[0], ctx is not None)
        forms = [
            made(_FORM, master.detach(), back) if kept is None else kept[one](_FORM, master, back)
            for one, (master, back) in enumerate(zip((gate_up, down), needed, strict=True))
        ]
    (w1, w1_back), (w2, w2_back) = forms
    h = ops.gemm_fp8b128_m_grouped_gather(*_rows(x.detach()), w1.elements, w1.scales, index, offsets)
    act = ops.quantize_fp8b128_rows_swiglu(paired(h, gates), gates=gates, **_FORM.options)
    d = ops.gemm_fp8b128_m_grouped_contiguous(*act, w2.elements, w2.scales, offsets=offsets)
    if ctx is not None:
        ctx.gates, ctx.kept, ctx.adds_to = gates, kept, (gate_up, down) if adds else (None, None)
        ctx.limit = limit_here()
        ctx.dtypes = tuple(dtype_of(one) if adds else one.dtype for one in (gate_up, down))
        if kept is None:
            saved = [part for one in (w1_back, w2_back) for part in ((None, None) if one is None else (one.elements, one.scales))]
        else:
            saved, ctx.originals = [gate_up, down], (original(gate_up), original(down))
        ctx.save_for_backward(x, h, offsets, index, rows, row_weights, *saved)
    return combined(d, rows, weights.detach(), None if residual is None else residual.detach())


def _rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found: tuple[torch.Tensor, torch.Tensor] = ops.quantize_fp8b128_rows(x, **_FORM.options)
    return found


def _transposed(ctx: Any, saved: list[Any], one: int, needed: bool) -> tuple[Any, ...]:
    """Elements and scales of a weight as the gradient of its input reads them."""
    if not needed or ctx.kept is None:
        return tuple(saved[2 * one : 2 * one + 2])
    found = ctx.kept[one](_FORM, ctx.originals[one](saved[one]), True)[1]
    return found.elements, found.scales


def _both(x: torch.Tensor, offsets: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The rows of x through the index, quantised along rows, and along columns with their scales and the groups' ends."""
    q, scales, columns, column_scales, _, ends = ops.quantize_fp8b128_both_m_grouped_padded(
        x, offsets, index=index, layout="mn_major", **_FORM.options
    )
    return q, scales, columns, column_scales, ends


def _columns(elements: torch.Tensor, scales: torch.Tensor, ends: torch.Tensor) -> Columns:
    """The product of weight gradients asks for one more block of scales for each group."""
    return Columns(elements, one_more_block_each(scales, ends.shape[0]), ends)

"""Where the gradient of a weight goes: back to autograd, or onto `weight.grad`, to which the GEMM of a later micro-batch adds.

autograd            GEMM writes dw;  autograd reads dw and grad, writes grad     bf16: 8 bytes an element, f32: 16
layer.add_gradients GEMM reads and writes grad                                   bf16: 4 bytes an element, f32: 8
"""

from __future__ import annotations

import torch
from torch.autograd.graph import get_gradient_edge

from zoo.torch.nn.formats import Columns, Format


def dtype_of(weight: torch.Tensor) -> torch.dtype:
    """Of its gradient: `weight.grad_dtype` may be wider than the weight, in a torch that has it."""
    dtype: torch.dtype | None = getattr(weight, "grad_dtype", None) if weight.is_leaf else None
    return dtype or weight.dtype


def onto(weight: torch.Tensor | None, form: Format) -> torch.Tensor | None:
    """`weight.grad` as (G, N, K), if a GEMM can add to it and no hook waits for the gradient of this pass."""
    if weight is None or not weight.is_leaf or weight.grad is None:
        return None
    grad = weight.grad
    watched = weight._backward_hooks or weight._post_accumulate_grad_hooks
    plain = type(grad) is torch.Tensor and grad.device == weight.device and not grad.requires_grad
    fits = grad.dtype in (torch.bfloat16, torch.float32) and not any(size % form.multiple for size in grad.shape[-2:])
    if watched or not (plain and fits and grad.is_contiguous() and grad.data_ptr() % 16 == 0 and _accumulates(weight)):
        return None
    return grad if grad.dim() == 3 else grad.unsqueeze(0)


def _accumulates(weight: torch.Tensor) -> bool:
    """Whether this backward pass adds to the gradient of a weight. That of torch.autograd.grad, or with inputs=, may ask for other gradients."""
    try:
        return bool(torch._C._will_engine_execute_node(get_gradient_edge(weight).node))
    except RuntimeError:  # torch.autograd.grad of this weight, which autograd returns
        return False


def gradient(form: Format, dy: Columns, x: Columns, dtype: torch.dtype, adds_to: torch.Tensor | None) -> torch.Tensor | None:
    """dy^T x of each group for autograd, or nothing where it was added to the gradient of the weight `adds_to`."""
    target = onto(adds_to, form)
    if target is None:
        return form.weight_gradient(dy, x, dtype)
    form.add_weight_gradient(dy, x, target)
    return None

"""torch.func and forward-mode derivatives, which layers refuse: their kernels know neither tangents nor a batch of layers."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch._C._functorch import TransformType, is_batchedtensor, is_legacy_batchedtensor, peek_interpreter_stack
from torch.autograd import forward_ad

from zoo.errors import ArgumentError

_WORDS = {
    TransformType.Vmap: ("torch.func.vmap", "pass a batch as more rows, and ask for batches of gradients one by one"),
    TransformType.Grad: ("torch.func.grad or vjp", "use torch.autograd.grad; torch.func.functional_call works without a transform"),
    TransformType.Jvp: ("a forward-mode derivative", "use torch.autograd.grad"),
}


def refuse_transforms(who: str, *given: torch.Tensor | None) -> None:
    """given: what may have a tangent, which would be lost in silence."""
    if torch.compiler.is_compiling():
        return
    innermost = peek_interpreter_stack()
    if innermost is not None and innermost.key() in _WORDS:
        _refuse(who, innermost.key())
    if forward_ad._current_level >= 0 and any(one is not None and forward_ad.unpack_dual(one).tangent is not None for one in given):
        _refuse(who, TransformType.Jvp)


def refuse_batch(who: str, dy: torch.Tensor) -> None:
    """A batch of gradients, as torch.autograd.grad(is_grads_batched=True) makes it."""
    if not torch.compiler.is_compiling() and (is_batchedtensor(dy) or is_legacy_batchedtensor(dy)):
        _refuse(who, TransformType.Vmap)


def _refuse(who: str, transform: TransformType) -> NoReturn:
    name, remedy = _WORDS[transform]
    raise ArgumentError(f"{who}: {name} has no rule for layers; {remedy}")

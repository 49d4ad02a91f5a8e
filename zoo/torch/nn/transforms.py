"""torch.func and forward-mode derivatives, which layers refuse: their kernels know neither tangents nor a batch of layers."""

from __future__ import annotations

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
    """given: what may have a tangent, which would be lost in silence, or be a batch, as is_grads_batched=True makes of gradients."""
    if torch.compiler.is_compiling():
        return
    innermost = peek_interpreter_stack()
    found = None if innermost is None else _WORDS.get(innermost.key())
    if any(one is not None and (is_batchedtensor(one) or is_legacy_batchedtensor(one)) for one in given):
        found = _WORDS[TransformType.Vmap]
    if found is None and forward_ad._current_level >= 0 and any(map(_has_tangent, given)):
        found = _WORDS[TransformType.Jvp]
    if found is not None:
        raise ArgumentError(f"{who}: {found[0]} has no rule for layers; {found[1]}")


def _has_tangent(one: torch.Tensor | None) -> bool:
    return one is not None and forward_ad.unpack_dual(one).tangent is not None

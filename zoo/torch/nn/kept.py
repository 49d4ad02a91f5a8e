"""Quantised forms of a master weight, kept until the weight changes: one cast a step for all micro-batches."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from zoo.torch.nn.formats import Format
from zoo.torch.quantized import Quantized

_steps = 0  # of all optimisers: some write through .data, which no version counts
_BY_GRAPH = "_zoo_stepped_by_a_graph"  # of a parameter that replays change, which nothing counts


def _count(optimiser: torch.optim.Optimizer, *_: Any) -> None:
    global _steps
    _steps += 1
    if _capturing():
        for parameter in (one for group in optimiser.param_groups for one in group["params"]):
            setattr(parameter, _BY_GRAPH, True)


def _capturing() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


class Kept:
    """The forms of one weight. A write through `weight.data` outside an optimiser is not seen: write under torch.no_grad() instead."""

    _hooked = False

    def __init__(self) -> None:
        if not Kept._hooked:
            register_optimizer_step_post_hook(_count)
            Kept._hooked = True
        self.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()  # a copy of a layer casts for itself

    def clear(self) -> None:
        self._key: tuple[Any, ...] | None = None
        self._weight: Any = lambda: None
        self._forms: tuple[Quantized, Quantized | None] | None = None

    def __call__(self, form: Format, weight: torch.Tensor, back: bool) -> tuple[Quantized, Quantized | None]:
        """The weight for the forward product and, if `back`, transposed for the gradient of its input."""
        if weight.is_inference():  # which counts no versions
            return made(form, weight, back)
        if getattr(weight, _BY_GRAPH, False):
            self.clear()
            return made(form, weight.detach(), back)
        key = (form.name, weight.data_ptr(), weight._version, _steps, torch.is_inference_mode_enabled(), _stream(weight))
        kept = self._forms
        if kept is None or key != self._key or self._weight() is not weight or (back and kept[1] is None):
            kept = self._forms = None  # freed before there are new ones
            kept = made(form, weight.detach(), back)
            self._key, self._weight, self._forms = key, weakref.ref(weight), kept
        return kept


def _stream(weight: torch.Tensor) -> int | None:
    """Another stream would not wait for the cast, so each casts for itself."""
    return torch.cuda.current_stream(weight.device).cuda_stream if weight.is_cuda else None


def made(form: Format, weight: torch.Tensor, back: bool) -> tuple[Quantized, Quantized | None]:
    if form.trains:
        return form.both_ways(weight) if back else (form.squares(weight), None)
    return form.frozen(weight), None

"""Quantised forms of a master weight, kept until the weight changes: one cast a step for all micro-batches.

call of a layer              casts if the weight has changed
compiled, or in a graph      casts in each call; if the forms are held, reads their memory
step of an optimiser         casts the weights that it has, whose forms are held, into the same memory, also in a graph
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

from zoo.errors import ArgumentError
from zoo.torch.nn.formats import Format
from zoo.torch.nn.gathered import Gathered
from zoo.torch.quantized import Quantized

_steps = 0  # of all optimisers, and calls of renew_casts: some write through .data, which no version counts
_held: weakref.WeakSet[Kept] = weakref.WeakSet()
_BY_GRAPH = "_zoo_stepped_by_a_graph"  # of a parameter that replays change, which nothing counts


def _before_step(optimiser: torch.optim.Optimizer, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Lets the closure of an optimiser, such as LBFGS, read casts of the weights that the optimiser has just written."""
    closure = named.get("closure", given[1] if len(given) > 1 else None)
    if not _held or not callable(closure):
        return None

    def following() -> Any:
        stepped = {id(one) for group in optimiser.param_groups for one in group["params"]}
        for kept in list(_held):
            kept.follow(stepped)
        return closure()

    return ((*given[:1], following, *given[2:]), named) if "closure" not in named else (given, {**named, "closure": following})


def _after_step(optimiser: torch.optim.Optimizer, *_: Any) -> None:
    global _steps
    _steps += 1
    stepped = [one for group in optimiser.param_groups for one in group["params"]] if _held or capturing() else []
    if capturing():
        for parameter in stepped:
            setattr(parameter, _BY_GRAPH, True)
    addresses = {id(one) for one in stepped}
    for kept in list(_held):
        kept.follow(addresses)


def renew_casts() -> None:
    """After writes that no version counts, such as those of torch.distributed.broadcast: every layer casts its weight in its next call,
    and casts that are held are made again now."""
    global _steps
    _steps += 1
    for kept in list(_held):
        kept.follow(None)


def capturing() -> bool:
    """Whether a CUDA graph records what runs. What it casts must be cast in each replay."""
    return bool(torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def selective() -> bool:
    """Whether a selective checkpoint sees the operators that run."""
    return any(isinstance(one, _CachingTorchDispatchMode | _CachedTorchDispatchMode) for one in _get_current_dispatch_mode_stack())


def _unseen() -> Any:
    """Selective checkpoints find saved results by the order of operators. One forward pass casts and the other does not, so neither shows its casts."""
    return _disable_current_modes() if selective() else nullcontext()


def original(weight: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Saved weight -> `weight`, if it is as it was. Checkpoints save copies, and no other call would find the casts of a copy."""
    if weight.is_inference():  # which counts no versions, and which autograd is about to refuse
        return lambda saved: saved
    found, version = weakref.ref(weight), weight._version

    def of(saved: torch.Tensor) -> torch.Tensor:
        one = found()
        return saved if one is None or one._version != version else one

    return of


class Kept:
    """The forms of one weight. Writes of collectives, or through `weight.data` outside an optimiser, are not seen without `renew_casts`."""

    _hooked = False

    def __init__(self) -> None:
        if not Kept._hooked:
            register_optimizer_step_pre_hook(_before_step)
            register_optimizer_step_post_hook(_after_step)
            Kept._hooked = True
        self.held = False
        self.parameter: torch.Tensor | None = None  # whose views the weights are, each call with a new view
        self._form: Format | None = None
        self.clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return Kept, ()  # a copy of a layer casts for itself

    def clear(self) -> None:
        self._key: tuple[Any, ...] | None = None
        self._weight: Any = lambda: None
        self._memory: StorageWeakRef | None = None  # keeps the number in the key from other memory
        self._by_graph = False  # a graph casts into these forms as it steps
        self._forms: tuple[Quantized, Quantized | None] | None = None

    def __call__(self, form: Format, weight: torch.Tensor, back: bool) -> tuple[Quantized, Quantized | None]:
        """The weight for the forward product and, if `back`, transposed for the gradient of its input."""
        if weight.is_inference():  # which counts no versions
            return made(form, weight, back)
        owner = weight if self.parameter is None else self.parameter
        if self.held and (holder := self._weight()) is not None and holder is not owner:
            return made(form, weight.detach(), back)  # torch.func.functional_call lends a layer other weights
        if getattr(owner, _BY_GRAPH, False) and not self._by_graph:
            self.clear()
            return made(form, weight.detach(), back)
        stream = None if self.held else _stream(weight)  # held forms are as old as their weight
        memory = weight.untyped_storage()  # an address may be that of memory which was freed
        layout = weight.shape, weight.stride(), memory._cdata
        key = (form.name, weight.data_ptr(), weight._version, layout, _steps, torch.is_inference_mode_enabled(), stream)
        kept: Any = self._forms
        if kept is None or key != self._key or self._weight() is not owner or (back and kept[1] is None):
            along, turned = kept or (None, None)
            with _unseen():
                if self.held and along and turned and self._key is not None and key[:2] == self._key[:2]:
                    form.cast_again(weight.detach(), (along, turned))
                else:
                    kept = self._forms = None  # freed before there are new ones
                    kept = made(form, weight.detach(), back or self.held)
            self._key, self._weight, self._forms, self._form = key, weakref.ref(owner), kept, form
            self._memory = StorageWeakRef(memory)
        found: tuple[Quantized, Quantized | None] = kept
        return found

    def hold(self, form: Format, weight: torch.Tensor) -> None:
        """Casts now, and after each step of an optimiser that has this weight."""
        if type(weight).__name__ == "DTensor" or not form.trains:
            raise ArgumentError(
                f"hold_casts: expected a whole weight that trains, got a {type(weight).__name__} in {form.name}; leave hold_casts off"
            )
        self.held = True
        _held.add(self)
        if self._weight() is not weight:
            self.loosen()
        with torch.inference_mode(False):
            self(form, weight, True)

    def loosen(self) -> None:
        """Refers to the weight no longer. Held forms keep their memory."""
        if self.held:
            self._weight = lambda: None
        else:
            self.clear()

    def let_go(self) -> None:
        self.held = self._by_graph = False
        _held.discard(self)

    def follow(self, stepped: set[int] | None) -> None:
        """stepped: parameters that were written, or None for all."""
        weight = self._weight()
        if self._forms is not None and self._form is not None and weight is not None and (stepped is None or id(weight) in stepped):
            self._by_graph |= capturing()
            self(self._form, weight, True)

    def held_forms(self, form: Format, weight: torch.Tensor | None) -> tuple[Quantized, Quantized] | None:
        """What a compiled layer reads, unless torch.func.functional_call has lent it another weight."""
        if not self.held or self._forms is None or self._form is None or form.name != self._form.name:
            return None
        holder = self._weight()
        if (holder is not None and holder is not weight) or (getattr(holder, _BY_GRAPH, False) and not self._by_graph):
            return None
        along, back = self._forms
        return None if back is None else (along, back)


def _stream(weight: torch.Tensor) -> int | None:
    """Another stream would not wait for the cast, so each casts for itself."""
    return torch.cuda.current_stream(weight.device).cuda_stream if weight.is_cuda else None


def made(form: Format, weight: torch.Tensor, back: bool) -> tuple[Quantized, Quantized | None]:
    if isinstance(weight, Gathered):
        return weight.forms(form, back)
    if form.trains:
        return form.both_ways(weight) if back else (form.squares(weight), None)
    return form.frozen(weight), None

"""count_overflows: the largest numbers that layers see, and in how many calls a number was infinite or NaN. Counted on the device.

Scales follow the numbers of each block, so that no layer overflows by its format: what overflows are bf16 and f16 around it, or the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.experts import Experts
from zoo.torch.nn.grouped import GroupedLinear
from zoo.torch.nn.linear import Linear

_KINDS = ("x", "y", "dy")


class Overflows:
    """What the layers of a model have seen since `count_overflows`. Reading waits for the device, counting does not."""

    def __init__(self, layers: Mapping[str, torch.nn.Module]):
        self._largest: dict[str, torch.Tensor] = {}
        self._calls: dict[str, torch.Tensor] = {}
        self._hooks = [one.register_forward_hook(self._counter(name, one), with_kwargs=True) for name, one in layers.items()]

    def _counter(self, name: str, layer: torch.nn.Module) -> Any:
        device = next(iter([*layer.parameters(), *layer.buffers()])).device
        self._largest[name] = torch.zeros(len(_KINDS), device=device)
        self._calls[name] = torch.zeros(len(_KINDS), dtype=torch.int64, device=device)

        def count(kind: int, numbers: torch.Tensor) -> None:
            self._follow(name, numbers.device)
            with torch.no_grad():
                rows = numbers.detach().reshape(-1, numbers.shape[-1]).contiguous()
                largest = torch.ops.zoo.quantize_amax(rows).view(())
                self._calls[name][kind] += (largest - largest) != 0  # of infinities and NaN the difference is NaN
                self._largest[name][kind].copy_(torch.fmax(self._largest[name][kind], largest))

        def after(module: torch.nn.Module, given: tuple[Any, ...], named: dict[str, Any], y: torch.Tensor) -> None:
            count(0, given[0] if given else named["x"])
            count(1, y)
            if y.requires_grad:
                y.register_hook(lambda dy: count(2, dy))

        eager: Any = torch.compiler.disable(after)  # compiled, the hook of y would ask for gradients of gradients
        return eager

    def _follow(self, name: str, device: torch.device) -> None:
        """Moves the counts of a layer that was moved, or begins them where the layer was without memory."""
        for counts in (self._largest, self._calls):
            if (one := counts[name]).device != device:
                counts[name] = torch.zeros_like(one, device=device) if one.is_meta else one.to(device)

    @property
    def largest(self) -> dict[str, dict[str, float]]:
        """Of each layer, the largest magnitude of x, y and dy. NaN does not count."""
        return {name: dict(zip(_KINDS, one.tolist(), strict=True)) for name, one in self._largest.items()}

    @property
    def calls(self) -> dict[str, dict[str, int]]:
        """Of each layer, in how many calls x, y or dy had an infinity or a NaN."""
        return {name: dict(zip(_KINDS, one.tolist(), strict=True)) for name, one in self._calls.items()}

    def reset(self) -> None:
        for one in (*self._largest.values(), *self._calls.values()):
            one.zero_()

    def remove(self) -> None:
        """Ends counting."""
        for one in self._hooks:
            one.remove()

    def __str__(self) -> str:
        from zoo.text import table

        header = ["layer", *(f"largest {kind}" for kind in _KINDS), *(f"overflows of {kind}" for kind in _KINDS)]
        calls = self.calls
        rows = [
            (name or "(model)", *(f"{one:.3g}" for one in found.values()), *calls[name].values()) for name, found in self.largest.items()
        ]
        return table(header, rows)


def count_overflows(model: torch.nn.Module) -> Overflows:
    """Begins to count for each Linear, GroupedLinear and Experts of the model. Each call reads x, y and dy one time more."""
    layers = {name: one for name, one in model.named_modules() if isinstance(one, Experts | GroupedLinear | Linear)}
    if not layers:
        raise ArgumentError("count_overflows: the model has no layer of zoo.torch.nn; quantize_(model, format, frozen=False) makes them")
    return Overflows(layers)

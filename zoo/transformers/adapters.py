"""PEFT merges adapters into weights through `.data`, which no version counts. zoo casts weights again after each merge.

A frozen layer has no weight to merge into, and refuses.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any

from zoo.errors import ArgumentError
from zoo.torch.nn.kept import renew_casts
from zoo.torch.nn.layer import Layer

MERGES = {"merge": ("self", "safe_merge", "adapter_names"), "unmerge": ("self",)}


def base() -> Any:
    return importlib.import_module("peft.tuners.tuners_utils").BaseTunerLayer


def follow_merges() -> Callable[[], None]:
    """Wraps the functions of every kind of adapter that PEFT has, and returns what unwraps them."""
    wrapped = []
    for kind in _below(base()):
        for name in MERGES:
            if name in vars(kind):
                wrapped.append((kind, name, vars(kind)[name]))
                setattr(kind, name, _renewing(vars(kind)[name], refuses=name == "merge"))

    def undo() -> None:
        for kind, name, own in wrapped:
            setattr(kind, name, own)

    return undo


def _below(kind: Any) -> Iterator[Any]:
    seen = set()
    left = [kind]
    while left:
        for one in left.pop().__subclasses__():
            if one not in seen:
                seen.add(one)
                left.append(one)
                yield one


def _renewing(own: Callable[..., Any], refuses: bool) -> Callable[..., Any]:
    @functools.wraps(own)
    def merges(self: Any, *arguments: Any, **named: Any) -> Any:
        layer = self.get_base_layer() if refuses else None
        if isinstance(layer, Layer) and layer.frozen:
            raise ArgumentError(
                f"merge: {layer} is frozen, and has no weight to merge adapters into; keep them beside it, or load the model with "
                "ZooConfig(format, frozen=False)"
            )
        try:
            return own(self, *arguments, **named)
        finally:  # a merge that fails has written some weights
            renew_casts()

    return merges

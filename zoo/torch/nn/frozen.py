"""Quantised buffers of a module: casts leave their dtypes alone, and a state_dict of another format is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Frozen(torch.nn.Module):
    """`keep` registers a buffer whose bytes move between devices and never change."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: set[str] = set()

    def keep(self, name: str, tensor: torch.Tensor) -> None:
        self.register_buffer(name, tensor)
        self._kept.add(name)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Frozen:
        """Applies fn, a cast or a move, to the bytes of quantised buffers. No cast of floats changes bytes."""
        kept = {name: self._buffers[name] for name in self._kept}
        for name in kept:
            self._buffers[name] = None
        try:
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        finally:
            self._buffers.update(kept)
        for name, one in kept.items():
            assert one is not None
            self._buffers[name] = fn(one.view(torch.uint8)).view(one.dtype)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], unexpected: list[str], errors: list[str]
    ) -> None:
        for name in sorted(self._kept):
            given, own = state_dict.get(prefix + name), self._buffers[name]
            if given is not None and own is not None and (given.dtype, given.shape) != (own.dtype, own.shape):
                errors.append(
                    f"{prefix}{name} is {given.dtype} {tuple(given.shape)} in the state_dict and {own.dtype} {tuple(own.shape)} in this layer: "
                    f"the state_dict has another format or other sizes than {self.extra_repr()}"
                )
                return
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)  # type: ignore[no-untyped-call]

"""Layers on zoo's kernels, in place of torch.nn's: docs/layers.md."""

from __future__ import annotations

from zoo.torch.nn.experts import Experts
from zoo.torch.nn.grouped import GroupedLinear
from zoo.torch.nn.kept import renew_casts
from zoo.torch.nn.linear import Linear
from zoo.torch.nn.overflows import count_overflows
from zoo.torch.nn.replace import quantize_
from zoo.torch.nn.spread_state import SpreadState

__all__ = ["Experts", "GroupedLinear", "Linear", "SpreadState", "count_overflows", "quantize_", "renew_casts"]

"""GroupedLinear: a linear layer for each group of rows, such as the experts of a mixture."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.formats import format_of
from zoo.torch.nn.in_bf16 import grouped_in_bf16
from zoo.torch.nn.layer import Layer
from zoo.torch.nn.products import grouped_product


class GroupedLinear(Layer):
    """Rows of group g times weight[g] (out_features, in_features) transposed, plus bias[g]; in one launch, quantised to `format`."""

    def __init__(
        self,
        num_groups: int,
        in_features: int,
        out_features: int,
        bias: bool = True,
        format: str = "fp8b128",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.num_groups, self.in_features, self.out_features = num_groups, in_features, out_features
        self.weight = torch.nn.Parameter(torch.empty(num_groups, out_features, in_features, device=device, dtype=dtype))
        self.register_parameter(
            "bias", torch.nn.Parameter(torch.empty(num_groups, out_features, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()
        self._begin(format)

    def reset_parameters(self) -> None:
        """As torch.nn.Linear does for each group."""
        bound = 1 / math.sqrt(self.in_features) if self.in_features else 0.0
        for one in (self.weight, self.bias):
            if one is not None:
                torch.nn.init.uniform_(one, -bound, bound)

    @classmethod
    def from_float(cls, linears: Iterable[torch.nn.Linear], format: str = "fp8b128", frozen: bool = False) -> GroupedLinear:
        """A layer with copies of the parameters of `linears`, one a group."""
        linears = list(linears)
        shapes = {(one.in_features, one.out_features, one.bias is not None) for one in linears if isinstance(one, torch.nn.Linear)}
        if len(shapes) != 1 or not all(isinstance(one, torch.nn.Linear) for one in linears):
            raise ArgumentError("from_float: expected torch.nn.Linear layers of one shape, all with a bias or all without")
        made = cls(len(linears), *shapes.pop(), format, device="meta")
        made.weight = torch.nn.Parameter(torch.stack([one.weight.detach() for one in linears]))
        if linears[0].bias is not None:
            made.bias = torch.nn.Parameter(torch.stack([one.bias.detach() for one in linears]))
        made._check_device()
        return made.freeze() if frozen else made

    def forward(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """x (M, in_features) in groups back to back; offsets (num_groups,) int32, the end row of each. Rows after the last give zeros."""
        if self.in_bf16:
            return grouped_in_bf16(x, self.weight, offsets, self.bias, format_of(self.format))
        options: dict[str, Any] = {"features": self._shape(), "kept": self._kept, "adds": self.add_gradients, "promotion": self.promotion}
        return grouped_product(x, self._read(), offsets, self.format, bias=self.bias, **options)

    def _shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features

    def extra_repr(self) -> str:
        shape = f"num_groups={self.num_groups}, in_features={self.in_features}, out_features={self.out_features}"
        return f"{shape}, bias={self.bias is not None}, {super().extra_repr()}"

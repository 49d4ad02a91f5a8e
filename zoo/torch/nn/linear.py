"""Linear: torch.nn.Linear whose products are zoo's."""

from __future__ import annotations

from typing import Any

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.by_devices import is_spread, product_by_devices
from zoo.torch.nn.formats import format_of
from zoo.torch.nn.from_checkpoint import usual_format
from zoo.torch.nn.in_bf16 import linear_in_bf16
from zoo.torch.nn.layer import Layer
from zoo.torch.nn.products import product
from zoo.torch.quantized import Quantized


class Linear(Layer, torch.nn.Linear):
    """y = x w^T + bias, quantised to `format` in the forward and the backward pass.

    It has the parameters of torch.nn.Linear and casts its weight once for all calls until the weight changes. `freeze()` keeps the
    quantised weight alone.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        format: str = "fp8b128",
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        torch.nn.Linear.__init__(self, in_features, out_features, bias, device, dtype)
        self._begin(format)

    @classmethod
    def from_float(cls, linear: torch.nn.Linear, format: str = "fp8b128", frozen: bool = False) -> Linear:
        """A layer with the parameters of `linear`, or with its weight quantised; `linear` stays as it is."""
        if not isinstance(linear, torch.nn.Linear) or not isinstance(linear._parameters.get("weight"), torch.Tensor):
            raise ArgumentError(f"from_float: expected a torch.nn.Linear whose weight is a parameter, got {linear}")
        made = cls(linear.in_features, linear.out_features, linear.bias is not None, format, device="meta")
        made.weight, made.bias = linear.weight, linear.bias
        made._check_device()
        made.train(linear.training)
        return made.freeze() if frozen else made

    @classmethod
    def from_quantized(cls, weight: Quantized, bias: torch.Tensor | None = None, format: str | None = None) -> Linear:
        """A frozen layer of a weight (N, K) by rows with plain scales, of fp8b128 by squares, as `zoo.torch.load` reads it.

        format: by default what the weight's device multiplies, with FP8 tokens.
        """
        if not isinstance(weight, Quantized) or len(weight.shape) != 2 or weight.transposed:
            got = weight if isinstance(weight, Quantized) else f"a {type(weight).__name__}"
            raise ArgumentError(f"Linear.from_quantized: expected a quantised weight (N, K), got {got}")
        format = format or usual_format(weight.format, weight.device)
        made = cls(weight.shape[1], weight.shape[0], bias is not None, format, device="meta")
        if bias is not None:
            fits = isinstance(bias, torch.Tensor) and bias.shape == weight.shape[:1] and bias.is_floating_point()
            if not fits or bias.device != weight.device:
                given = (
                    f"{bias.dtype} {tuple(bias.shape)} on {bias.device}" if isinstance(bias, torch.Tensor) else f"a {type(bias).__name__}"
                )
                raise ArgumentError(
                    f"Linear.from_quantized: expected a bias ({weight.shape[0]},) of floats on {weight.device}, got {given}"
                )
            made.bias = torch.nn.Parameter(bias.detach())
        made._hold(format_of(format).readable(weight))
        made._check_device()
        return made

    @property
    def qweight(self) -> torch.Tensor | None:
        """What PEFT places adapters by: it looks for this name beside `weight`, which a frozen layer has not.

        Models may read the dtype for their activations. The numbers are NaN, so that no product of them goes unseen.
        """
        if self.elements is None:
            return self.weight
        return torch.full((), torch.nan, dtype=torch.bfloat16, device=self.elements.device).expand(self._shape())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.in_bf16:
            return linear_in_bf16(x, self.weight, self.bias)
        options: dict[str, Any] = {"features": self._shape(), "kept": self._kept, "adds": self.add_gradients, "promotion": self.promotion}
        if is_spread(self.weight):
            self._kept.parameter = self.weight
            return product_by_devices(x, self.weight, self.bias, lambda x, w, bias: product(x, w, self.format, bias=bias, **options))
        return product(x, self._read(), self.format, bias=self.bias, **options)

    def _shape(self) -> tuple[int, int]:
        return self.out_features, self.in_features

    def extra_repr(self) -> str:
        return f"{torch.nn.Linear.extra_repr(self)}, {Layer.extra_repr(self)}"

"""One matrix of each expert: a parameter that trains, or its frozen form in the order that the GEMMs of the format read."""

from __future__ import annotations

import math
from typing import Any, Self

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.by_devices import is_spread
from zoo.torch.nn.experts_parallel import Ranks
from zoo.torch.nn.experts_serving import RECIPES, Matrices, laid_bias, paired
from zoo.torch.nn.formats import format_of
from zoo.torch.nn.layer import Layer
from zoo.torch.quantized import Quantized, quantize


class ExpertWeights(Layer):
    """`weight` (E, N, K) and `bias` (E, N); frozen: buffers. With `gates`, N are gates and ups in this order."""

    ranks: Ranks | None = None  # over which experts are spread

    def __init__(
        self,
        shape: tuple[int, int, int],
        bias: bool,
        format: str,
        gates: str | None,
        device: Any = None,
        dtype: torch.dtype | None = None,
        ranks: Ranks | None = None,
    ):
        super().__init__()
        self.gates, self.ranks = gates, ranks
        self.weight = torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.register_parameter("bias", torch.nn.Parameter(torch.empty(shape[:2], device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()
        self._begin(format)

    def __setattr__(self, name: str, value: Any) -> None:
        if self.ranks is not None and name in ("weight", "bias"):
            self.ranks.refuse_spread(value)
        super().__setattr__(name, value)

    def reset_parameters(self) -> None:
        """As torch.nn.Linear does for each expert. Ranks with one seed draw different experts."""
        bound = 1 / math.sqrt(self.weight.shape[-1]) if self.weight is not None and self.weight.shape[-1] else 0.0
        for one in (self.weight, self.bias):
            if one is not None:
                torch.nn.init.uniform_(one, -bound, bound, generator=self._random(one))

    def _random(self, parameter: torch.Tensor) -> torch.Generator | None:
        if self.ranks is None or parameter.is_meta or is_spread(parameter):
            return None
        seed = int(torch.randint(2**62, (), device="cpu"))
        return torch.Generator(parameter.device).manual_seed(seed + self.ranks.rank)

    def begin(self, weight: torch.Tensor | None, bias: torch.Tensor | None) -> None:
        """Sets the parameters of a layer that was made without memory."""
        if bias is not None:
            assert self.bias is not None
            if bias.shape != self.bias.shape or not bias.is_floating_point():
                name, wanted, got = "down" if self.gates is None else "gate_up", tuple(self.bias.shape), tuple(bias.shape)
                raise ArgumentError(f"Experts: {name}_bias: expected numbers {wanted}, got {got} in {bias.dtype}")
            self.bias = torch.nn.Parameter(bias.detach().contiguous())
        if weight is not None:
            self.weight = torch.nn.Parameter(weight.detach())

    def freeze(self) -> Self:
        if self.weight is not None:
            self._check_owned()
            self.hold(_plain(self.weight.detach(), self.format))
        return self

    def hold(self, plain: Quantized) -> None:
        """Freezes with weights by rows and plain scales, of fp8b128 by squares, as `quantize` or a checkpoint has them."""
        plain = format_of(self.format).multiplied(plain)
        made = RECIPES[self.format].prepare(plain, self.gates)
        if self.gates is not None and made.layout != "fragments":  # the order of gates is a shape, which no other order fits
            made = made._with(elements=paired(made.elements, self.gates), packed_shape=plain.stored_shape)
        if plain.tensor_scale is not None:
            made = made._with(tensor_scale=self._factors(plain))
        self._hold(made)
        self._check_device()

    def _factors(self, plain: Quantized) -> torch.Tensor:
        """Of each expert (E,), of gates and ups of each (E, 2)."""
        factors, experts = plain.tensor_scale, plain.stored_shape[0]
        assert factors is not None
        if self.gates is None:
            return factors.reshape(-1).expand(experts).contiguous()
        factors = (factors if factors.dim() == 2 else factors.reshape(-1, 1)).expand(experts, 2).contiguous()
        if self.format == "nvfp4" and factors.device.type != "meta" and not torch.equal(factors[:, 0], factors[:, 1]):
            raise ArgumentError(
                "Experts: in nvfp4 gates and ups of an expert share one tensor scale, and these have two; "
                "use format 'fp8_nvfp4' or 'bf16_nvfp4', or quantise gates and ups together"
            )
        return factors

    def matrices(self) -> Matrices:
        """The frozen weights, as a recipe multiplies them."""
        elements, scales = self.elements, self.scales
        assert elements is not None and scales is not None
        return Matrices(elements, scales if scales.numel() else None, self.tensor_scale, laid_bias(self.bias, self.gates), self.promotion)

    def plain(self) -> Quantized:
        """Frozen weights (E, N, K) as `hold` takes them, and as a checkpoint has them."""
        whole = self.quantized()
        elements, (_, rows, columns) = whole.elements, whole.stored_shape
        if whole.layout == "fragments":
            by_place = (elements,) if whole.format == "nvfp4" else (elements, whole.scales)
            half = 1 if self.gates is None else 2
            options = {"gates": self.gates or "plain", "tokens": "bf16" if format_of(self.format).tokens == "bf16" else "fp8"}
            elements, scales = getattr(torch.ops.zoo, f"unpack_{whole.format}_fragments")(
                *by_place, R=rows // half, KB=columns // 2, **options
            )
            whole = whole._with(layout="plain", scales=scales if self.gates is None else scales.flatten(1, 2))
        elements = elements if self.gates is None else elements.flatten(1, 2)
        elements = elements if elements.dtype == torch.float8_e4m3fn else elements[..., : columns // 2].contiguous()  # without padding
        whole = whole._with(elements=elements, packed_shape=None)
        return whole if whole.squares else whole.laid("plain")

    def dequantize(self, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """The numbers of frozen weights (E, N, K)."""
        whole = self.plain()
        factors = whole.tensor_scale
        found = whole._with(tensor_scale=None if factors is None else factors.new_ones(1)).dequantize(torch.float32)
        if factors is None:
            return found.to(dtype)
        if self.gates is None:
            return (found * factors[:, None, None]).to(dtype)
        axis = 2 if self.gates == "halves" else 1
        return (paired(found, self.gates) * factors.unsqueeze(axis)[..., None]).flatten(1, 2).to(dtype)


def _plain(weight: torch.Tensor, format: str) -> Quantized:
    form = format_of(format)
    weight = form.filled(weight, 2)  # contiguous, which a transposed view of a checkpoint's weights is not
    if form.weights == "fp8b128":
        return quantize(weight, "fp8b128", direction="squares", **form.options)
    return quantize(weight, form.weights, layout="plain", **({} if form.weights == "nvfp4" else {"rounding": "rceil"}))

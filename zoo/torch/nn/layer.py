"""What Linear and GroupedLinear share: a weight that trains, or its frozen quantised form, and everything that torch does to modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch

from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError
from zoo.torch.nn.formats import check_device, format_of
from zoo.torch.nn.gathered import Gathered, Sent
from zoo.torch.nn.kept import Kept
from zoo.torch.quantized import Quantized

PROMOTIONS = ("never", "regular")  # the first is the default
_PARTS = ("elements", "scales", "tensor_scale")
_BYTES = tuple(getattr(torch, name) for name in ("float4_e2m1fn_x2", "float8_e8m0fnu") if hasattr(torch, name))  # not in every torch


class Layer(torch.nn.Module):
    """A layer with one weight. It trains with `weight`, a parameter in bf16, f16 or f32, or is frozen: `weight` is None, and the buffers
    `elements`, `scales` and `tensor_scale` hold the quantised weight.

    add_gradients: the GEMM of a weight's gradient adds to `weight.grad`, if there is one, in place of autograd.
    in_bf16: a layer that is not frozen multiplies in bf16 by torch.
    gather_casts: FSDP2 gathers casts of the weight in place of the weight. Set it before fully_shard.
    promotion: how sums of FP8 tokens and 4-bit weights are added up. "regular" is slower and more accurate than "never".
    hold_casts: the casts of the weight stay in their memory, where a compiled layer and a CUDA graph read them.
    """

    add_gradients: bool = False
    in_bf16: bool = False
    _promotion: str = PROMOTIONS[0]
    format: str
    weight: torch.Tensor | None
    bias: torch.Tensor | None
    elements: torch.Tensor | None
    scales: torch.Tensor | None
    tensor_scale: torch.Tensor | None

    def _begin(self, format: str) -> None:
        """Adds to a module with weight and bias what a layer has besides."""
        self.format = format_of(format).name
        self._kept = Kept()
        self._about: dict[str, Any] = {}
        for name in _PARTS:
            self.register_buffer(name, None)
        self._check_device()

    @property
    def frozen(self) -> bool:
        return self.weight is None

    @property
    def promotion(self) -> str:
        return self._promotion

    @promotion.setter
    def promotion(self, value: str) -> None:
        if value not in PROMOTIONS:
            raise ArgumentError(f"promotion: {self} expects {' or '.join(map(repr, PROMOTIONS))}, got {shown(value)}")
        self._promotion = value

    @property
    def hold_casts(self) -> bool:
        return self._kept.held

    @hold_casts.setter
    def hold_casts(self, on: bool) -> None:
        if not on:
            self._kept.let_go()
        elif self.weight is None:
            raise ArgumentError(f"hold_casts: {self} is frozen, and casts no weight")
        else:
            self._kept.hold(format_of(self.format), self.weight)

    @property
    def gather_casts(self) -> bool:
        return isinstance(getattr(self.weight, "_local_tensor", self.weight), Sent | Gathered)

    @gather_casts.setter
    def gather_casts(self, on: bool) -> None:
        weight = self.weight
        if weight is None or self.format != "fp8b128" or type(weight) not in (torch.nn.Parameter, Sent):
            raise ArgumentError(f"gather_casts: expected a layer that trains in fp8b128, before fully_shard, got {self}")
        if on != self.gather_casts:
            numbers = weight.detach()
            made = Sent(numbers) if on else getattr(numbers, "numbers", numbers)
            self.weight = torch.nn.Parameter(made, weight.requires_grad)

    def freeze(self) -> Self:
        """Replaces the weight by its quantised form, and returns the layer. Its bias trains no longer."""
        if self.weight is not None:
            self._check_owned()
            if type(self.weight).__name__ == "DTensor":
                raise ArgumentError(f"freeze: the weight of {self} is a DTensor; freeze the layer before it is sharded")
            self._hold(format_of(self.format).constant(self.weight.detach()))
        return self

    def _check_owned(self) -> None:
        """Refuses a weight that a hook would write again in the next call."""
        if self._parameters.get("weight") is None:
            raise ArgumentError(
                f"freeze: the weight of this {type(self).__name__} in {self.format} is no parameter, but computed by a hook; call "
                "torch.nn.utils.parametrize.remove_parametrizations or torch.nn.utils.prune.remove first"
            )

    def _hold(self, made: Quantized) -> None:
        self._kept.let_go()
        self.weight = None
        self._about = {name: getattr(made, name) for name in ("format", "squares", "layout", "packed_shape")}
        for name in _PARTS:
            part = getattr(made, name)
            setattr(self, name, part.view(torch.uint8) if part is not None and part.dtype in _BYTES else part)
        if self.bias is not None:
            self.bias = torch.nn.Parameter(self.bias.detach(), requires_grad=False)

    def quantized(self) -> Quantized:
        """The frozen weight. Its extents are filled up to multiples of 16 (fp8b128) or 32."""
        if self.elements is None or self.scales is None:
            raise ArgumentError(f"quantized: {self} is not frozen; call freeze() first")
        return Quantized(self.elements, self.scales, tensor_scale=self.tensor_scale, **self._about)

    def _read(self) -> torch.Tensor | Quantized:
        return self.quantized() if self.weight is None else self.weight

    def dequantize(self, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """The numbers of a frozen weight."""
        rows, columns = self._shape()
        return format_of(self.format).numbers(self.quantized(), dtype)[..., :rows, :columns]

    def _shape(self) -> tuple[int, int]:
        raise NotImplementedError

    def extra_repr(self) -> str:
        promotion = f", promotion={self.promotion}" if format_of(self.format).tokens == "fp8token" else ""
        return f"format={self.format}{promotion}{', frozen' if self.frozen else ''}"

    def __setattr__(self, name: str, value: Any) -> None:
        kept = self.__dict__.get("_kept")
        if kept is not None and (name == "weight" or (name == "in_bf16" and not kept.held)):
            kept.clear()  # FSDP2 sets a weight whose numbers are new, although its version and address are not
            if name == "weight" and value is not None:
                self._buffers.update(dict.fromkeys(_PARTS))  # the layer is frozen no longer
        super().__setattr__(name, value)

    def _renew_casts(self) -> None:
        if self._kept.held and self.weight is not None:
            self._kept.hold(format_of(self.format), self.weight)

    @property
    def device(self) -> torch.device | None:
        """Where the weight is."""
        held = self.weight if self.weight is not None else self.elements
        return None if held is None else held.device

    def _check_device(self) -> None:
        if self.device is not None:
            check_device(self.format, self.device)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """Moves what is quantised as bytes: a module's .to(dtype) would round its codes to other numbers."""
        self._kept.loosen()  # torch swaps no parameter that somebody refers to
        parts = {name: self._buffers[name] for name in _PARTS}
        self._buffers.update(dict.fromkeys(_PARTS))
        try:
            super()._apply(fn, recurse)
            for name, part in parts.items():
                if part is not None:
                    moved = fn(part.view(torch.uint8))
                    parts[name] = moved.view(part.dtype) if moved.dtype == torch.uint8 else part
        finally:
            self._buffers.update(parts)
        self._renew_casts()
        self._check_device()
        return self

    def __getstate__(self) -> dict[str, Any]:
        """FP8 as bytes: pickle, unlike torch.save, reads no FP8 tensor back."""
        codes = {name: part for name in _PARTS if (part := self._buffers[name]) is not None and part.itemsize == 1}
        buffers = self._buffers | {name: part.view(torch.uint8) for name, part in codes.items()}
        return self.__dict__ | {"_buffers": buffers, "_dtypes": {name: part.dtype for name, part in codes.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        dtypes = state.pop("_dtypes", {})
        super().__setstate__(state)
        for name, dtype in dtypes.items():
            self._buffers[name] = self._buffers[name].view(dtype)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        given = {name: state_dict.get(prefix + name) for name in ("weight", *_PARTS)}
        if all(one is None or isinstance(one, torch.Tensor) for one in given.values()):  # torch refuses others
            self._check_state(prefix, given)
        self._kept.loosen()
        super()._load_from_state_dict(state_dict, prefix, *more)
        self._renew_casts()

    def _check_state(self, prefix: str, given: dict[str, Any]) -> None:
        """Refuses what torch would copy number by number."""
        who = f"load_state_dict: {prefix.removesuffix('.') or type(self).__name__}"
        weight = given.pop("weight")
        there = {name: one for name, one in given.items() if one is not None}
        if weight is not None and self.frozen:
            raise ArgumentError(
                f"{who}: is frozen in {self.format}, and the state has a weight that is not; load it into a layer that is not frozen, then freeze() it"
            )
        if weight is not None and weight.dtype not in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
            raise ArgumentError(
                f"{who}: weight: expected numbers, got {weight.dtype}, whose scales would be lost; zoo.torch.load reads such files"
            )
        if there and not self.frozen:
            raise ArgumentError(f"{who}: is not frozen, and the state is that of a frozen layer; freeze() the layer first")
        for name in _PARTS if there else ():
            held, one = getattr(self, name), there.get(name)
            if _kind(held) != _kind(one):
                raise ArgumentError(
                    f"{who}: {name}: expected {_kind(held)} of {self.format}, got {_kind(one)}: the state has another format or size"
                )


def _kind(part: Any) -> str:
    return "none" if part is None else f"{part.dtype} {tuple(part.shape)}"

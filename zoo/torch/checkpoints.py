"""Quantised weights in safetensors files, by the names and shapes that published checkpoints have them in.

| format | tensors of the weights NAME | as in |
|---|---|---|
| fp8b128 | `NAME.weight` e4m3, `NAME.weight_scale_inv` f32, for 128 x 128 | DeepSeek |
| mxfp8 | `NAME.weight` e4m3 or e5m2, `NAME.weight_scale` ue8m0 as bytes | ModelOpt |
| nvfp4 | `NAME.weight` bytes, `NAME.weight_scale` e4m3, `NAME.weight_scale_2` f32 | ModelOpt |
| nvfp4, only read | `NAME.weight_packed`, `NAME.weight_scale`, `NAME.weight_global_scale`, which divides | compressed-tensors |
| mxfp4 | `NAME_blocks` bytes (..., K/32, 16), `NAME_scales` ue8m0 as bytes | gpt-oss |
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from zoo.errors import ArgumentError
from zoo.runtime.torch_dtypes import torch_dtype
from zoo.torch.quantized import _BLOCK, Quantized

_ENDS = (".weight", ".weight_packed", "_blocks")


def save(path: str | Path, weights: Mapping[str, Quantized | torch.Tensor]) -> None:
    """Writes weights by name; a tensor is written as it is."""
    tensors: dict[str, torch.Tensor] = {}
    for name, one in weights.items():
        tensors |= _tensors(name, one) if isinstance(one, Quantized) else {name: one.contiguous()}
    _safetensors().save_file(tensors, str(path))


def load(path: str | Path, device: str = "cpu") -> dict[str, Quantized | torch.Tensor]:
    """What a file holds, by name: weights that zoo knows as Quantized, with plain scales; all else as it is."""
    tensors = _safetensors().load_file(str(path), device=device)
    found: dict[str, Quantized | torch.Tensor] = {}
    for stored in sorted(tensors):
        end = next((end for end in _ENDS if stored.endswith(end)), None)
        one = None if end is None else _quantized(stored.removesuffix(end), end, tensors)
        if end is not None and one is not None:
            found[stored.removesuffix(end)] = one
    used = {one for name in found for one in _parts(name, tensors)}
    return found | {name: tensor for name, tensor in tensors.items() if name not in used}


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise ArgumentError("saving and loading weights takes safetensors, which is not installed: pip install safetensors") from None
    return safetensors.torch


def _tensors(name: str, one: Quantized) -> dict[str, torch.Tensor]:
    if one.offsets is not None:
        raise ArgumentError(f"save: {name} is {one}: weights have no groups of rows")
    if one.format == "fp8token":
        raise ArgumentError(f"save: {name} is {one}: no checkpoint holds that; keep the matrix as it was")
    one = one.t() if one.transposed else one  # as it is stored; who loads it says .t() again
    if not one.squares:
        one = one.laid("plain")
    elif one.layout != "plain":
        raise ArgumentError(f"save: {name} is {one}: quantise it with layout='plain', as checkpoints have it")
    scales = one.scales
    if one.squares and one.format != "fp8b128":  # a scale for each row, as checkpoints have them
        scales = scales.repeat_interleave(_BLOCK[one.format], dim=-2)[..., : one.elements.shape[-2], :]
    elements, scales = one.elements.contiguous(), scales.contiguous()
    if one.format == "fp8b128":
        return {f"{name}.weight": elements, f"{name}.weight_scale_inv": scales}
    if one.format == "mxfp8":
        return {f"{name}.weight": elements, f"{name}.weight_scale": scales.view(torch.uint8)}
    if one.format == "nvfp4":
        assert one.tensor_scale is not None
        number = one.tensor_scale.reshape(()) if one.tensor_scale.numel() == 1 else one.tensor_scale
        return {f"{name}.weight": elements.view(torch.uint8), f"{name}.weight_scale": scales, f"{name}.weight_scale_2": number}
    blocks = elements.view(torch.uint8).reshape(*elements.shape[:-1], -1, 16)
    return {f"{name}_blocks": blocks, f"{name}_scales": scales.view(torch.uint8)}


def _parts(name: str, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    ends = (*_ENDS, ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_global_scale", "_scales")
    return [name + end for end in ends if name + end in tensors]


def _quantized(name: str, end: str, tensors: Mapping[str, torch.Tensor]) -> Quantized | None:
    weight = tensors[name + end]
    scale = tensors.get(f"{name}.weight_scale")
    if end == "_blocks" and f"{name}_scales" in tensors:
        elements = weight.reshape(*weight.shape[:-2], -1).view(torch_dtype("e2m1x2"))
        return Quantized(elements, tensors[f"{name}_scales"].view(torch_dtype("ue8m0")), "mxfp4")
    if end == ".weight_packed" and scale is not None and f"{name}.weight_global_scale" in tensors:
        number = tensors[f"{name}.weight_global_scale"].float().reciprocal().reshape(-1)
        return Quantized(weight.view(torch_dtype("e2m1x2")), scale, "nvfp4", tensor_scale=number)
    if end != ".weight":
        return None
    if f"{name}.weight_scale_inv" in tensors:
        scales = tensors[f"{name}.weight_scale_inv"]
        return Quantized(weight, scales, "fp8b128", squares=scales.shape[-2] != weight.shape[-2])
    if f"{name}.weight_scale_2" in tensors and scale is not None:
        number = tensors[f"{name}.weight_scale_2"].float().reshape(-1)
        return Quantized(weight.view(torch_dtype("e2m1x2")), scale, "nvfp4", tensor_scale=number)
    if (
        scale is not None
        and scale.dtype in (torch.uint8, torch_dtype("ue8m0"))
        and weight.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    ):
        return Quantized(weight, scale.view(torch_dtype("ue8m0")), "mxfp8")
    return None

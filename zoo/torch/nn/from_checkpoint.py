"""A layer of experts from the tensors of a published checkpoint, whose bytes become the layer's weights without a second rounding.

| kind | tensors after the prefix | layer |
|---|---|---|
| gpt_oss | `gate_up_proj_blocks`, `_scales`, `_bias`, `down_proj_...` of all experts | MXFP4, gates interleaved, activation gpt_oss, limit 7 |
| deepseek_fp8 (Qwen3's too) | `0.gate_proj.weight`, `.weight_scale_inv`, `up_proj`, `down_proj` | FP8 with scales for 128 x 128 |
| minimax_m3 | `0.w1.weight`, `.weight_scale_inv`, `w3` (ups), `w2` (down) | MXFP8, activation gpt_oss, limit 7 |
| deepseek_v4 | `0.w1.weight`, `.scale`, `w3` (ups), `w2` (down) | MXFP4, activation deepseek_v4, limit 10 |
| modelopt_nvfp4 | `0.gate_proj.weight`, `.weight_scale`, `.weight_scale_2` | NVFP4, the last scale multiplies |
| compressed_tensors_nvfp4 | `0.gate_proj.weight_packed`, `.weight_scale`, `.weight_global_scale` | NVFP4, the last scale divides |
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError
from zoo.runtime.torch_dtypes import torch_dtype
from zoo.torch.nn.checkpoint_files import tensors_of
from zoo.torch.nn.formats import on_gpu
from zoo.torch.quantized import Quantized

_Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class _Kind:
    mark: str  # a name after the prefix that no other kind has, of expert 0
    read: Callable[[Callable[[str], torch.Tensor], tuple[str, ...], range], Quantized]  # tensors by name, matrices, experts -> one matrix
    names: tuple[tuple[str, ...], tuple[str, ...]] = (("gate_proj", "up_proj"), ("down_proj",))
    options: Mapping[str, Any] = field(default_factory=dict)


def read(
    path_or_tensors: str | os.PathLike[str] | _Tensors,
    prefix: str,
    kind: str | None,
    experts: range | None,
    device: str | torch.device | None,
) -> tuple[Quantized, Quantized, dict[str, Any]]:
    """Gates and ups, second matrices, and the arguments of `Experts`."""
    tensors = tensors_of(path_or_tensors, prefix)
    name = _kind(tensors, prefix, kind)
    place = torch.device(device) if device is not None else next(iter(tensors.values())).device
    one, total = _KINDS[name], _count(tensors, prefix, name)

    def get(part: str) -> torch.Tensor:
        if prefix + part not in tensors:
            raise ArgumentError(f"from_checkpoint: no tensor {shown(prefix + part)}, which a checkpoint of kind {name} has")
        return tensors[prefix + part].to(place)

    experts = range(total) if experts is None else experts
    if not isinstance(experts, range):
        raise ArgumentError(f"from_checkpoint: experts: expected a range, such as range(0, {total}), got {shown(experts)}")
    if experts.step != 1 or not len(experts) or experts.start < 0 or experts.stop > total:
        raise ArgumentError(f"from_checkpoint: experts: expected a range inside 0 .. {total}, got {experts}")
    gate_up, down = (one.read(get, names, experts) for names in one.names)
    found = {**one.options, "first": experts.start, "total": total}
    if name == "gpt_oss":
        found |= {f"{matrix}_bias": get(f"{matrix}_proj_bias")[experts.start : experts.stop].clone() for matrix in ("gate_up", "down")}
    return gate_up, down, found


def usual_format(weights: str, device: torch.device) -> str:
    """The format that the device multiplies these weights in, with tokens in FP8 where there is a choice."""
    choices = {
        "fp8b128": ("fp8b128",),
        "mxfp8": ("mxfp8", "fp8b128"),
        "mxfp4": ("fp8_mxfp4", "mxfp8_mxfp4"),
        "nvfp4": ("fp8_nvfp4", "nvfp4"),
    }[weights]
    there = on_gpu(torch.cuda.get_device_capability(device)) if device.type == "cuda" else choices
    return next((one for one in choices if one in there), choices[0])


def _kind(tensors: _Tensors, prefix: str, kind: str | None) -> str:
    if kind is not None and kind not in _KINDS:
        raise ArgumentError(f"from_checkpoint: no kind {shown(kind)}; there are {', '.join(_KINDS)}")
    if kind is not None:
        return kind
    found = [name for name, one in _KINDS.items() if prefix + one.mark in tensors]
    if len(found) != 1:
        names = ", ".join(shown(name) for name in sorted(tensors)[:4]) or "no tensor"
        raise ArgumentError(
            f"from_checkpoint: {shown(prefix)} begins {names}, which is of no kind that zoo knows; there are {', '.join(_KINDS)}"
        )
    return found[0]


def _count(tensors: _Tensors, prefix: str, kind: str) -> int:
    if kind == "gpt_oss":
        return int(tensors[f"{prefix}down_proj_blocks"].shape[0]) if f"{prefix}down_proj_blocks" in tensors else 1
    ids = {name.removeprefix(prefix).split(".")[0] for name in tensors if name.startswith(prefix)}
    return 1 + max((int(one) for one in ids if one.isdecimal()), default=0)


def _stacked(get: Callable[[str], torch.Tensor], names: tuple[str, ...], experts: range, part: str) -> torch.Tensor:
    """(E, rows, columns): the rows of `names` below each other."""
    each = [[get(f"{expert}.{name}.{part}") for name in names] for expert in experts]
    shapes = {(one.dtype, tuple(one.shape)) for matrices in each for one in matrices}
    if len(shapes) > 1 or each[0][0].dim() != 2:
        raise ArgumentError(f"from_checkpoint: {names[0]}.{part}: expected one shape of all experts, got {sorted(shapes, key=str)}")
    return torch.stack([torch.cat([one.view(torch.uint8) for one in matrices]) for matrices in each]).view(each[0][0].dtype)


def _gpt_oss(get: Callable[[str], torch.Tensor], names: tuple[str, ...], experts: range) -> Quantized:
    blocks, scales = (get(f"{names[0]}_{part}")[experts.start : experts.stop] for part in ("blocks", "scales"))
    if blocks.dim() != 4 or blocks.shape[3] != 16 or scales.shape != blocks.shape[:3]:
        got = f"{tuple(blocks.shape)} and {tuple(scales.shape)}"
        raise ArgumentError(f"from_checkpoint: {names[0]}: expected blocks (E, N, K / 32, 16) and scales (E, N, K / 32), got {got}")
    return Quantized(blocks.flatten(2), scales.view(torch_dtype("ue8m0")), "mxfp4")


def _deepseek_fp8(get: Callable[[str], torch.Tensor], names: tuple[str, ...], experts: range) -> Quantized:
    elements, scales = (_stacked(get, names, experts, part) for part in ("weight", "weight_scale_inv"))
    rows = elements.shape[1] // len(names)
    if len(names) > 1 and rows % 128:
        raise ArgumentError(
            f"from_checkpoint: gates are {rows} rows, no multiple of 128, so gates and ups would share a scale; "
            "dequantise both and use Experts.from_float"
        )
    if scales.element_size() == 1:  # powers of two
        scales = Quantized(elements, scales.view(torch_dtype("ue8m0")), "fp8b128", squares=True).scales
    else:
        scales = scales.float()  # Qwen3's are in bf16
    return Quantized(elements, scales, "fp8b128", squares=True)


def _minimax_m3(get: Callable[[str], torch.Tensor], names: tuple[str, ...], experts: range) -> Quantized:
    elements, scales = (_stacked(get, names, experts, part) for part in ("weight", "weight_scale_inv"))
    if scales.shape[1] * 32 == elements.shape[1]:  # of 32 x 32
        scales = scales.repeat_interleave(32, 1)
    return Quantized(elements, scales, "mxfp8")


def _deepseek_v4(get: Callable[[str], torch.Tensor], names: tuple[str, ...], experts: range) -> Quantized:
    elements, scales = (_stacked(get, names, experts, part) for part in ("weight", "scale"))
    return Quantized(elements.view(torch.uint8), scales.view(torch_dtype("ue8m0")), "mxfp4")


def _nvfp4(of_codes: str, of_tensor: str) -> Callable[[Callable[[str], torch.Tensor], tuple[str, ...], range], Quantized]:
    def read(get: Callable[[str], torch.Tensor], names: tuple[str, ...], experts: range) -> Quantized:
        elements, scales = (_stacked(get, names, experts, part) for part in (of_codes, "weight_scale"))
        number = torch.stack(
            [torch.stack([get(f"{expert}.{name}.{of_tensor}").float().reshape(()) for name in names]) for expert in experts]
        )
        number = number.reciprocal() if of_tensor == "weight_global_scale" else number
        if not bool((number.isfinite() & (number >= 0)).all()):
            raise ArgumentError(f"from_checkpoint: {of_tensor}: expected finite numbers that are not below zero, got {number.tolist()[:4]}")
        return Quantized(elements, scales.view(torch.float8_e4m3fn), "nvfp4", tensor_scale=number)

    return read


_KINDS = {
    "gpt_oss": _Kind(
        "gate_up_proj_blocks",
        _gpt_oss,
        (("gate_up_proj",), ("down_proj",)),
        {"gates": "interleaved", "activation": "gpt_oss", "limit": 7.0},
    ),
    "deepseek_fp8": _Kind("0.gate_proj.weight_scale_inv", _deepseek_fp8),
    "minimax_m3": _Kind("0.w1.weight_scale_inv", _minimax_m3, (("w1", "w3"), ("w2",)), {"activation": "gpt_oss", "limit": 7.0}),
    "deepseek_v4": _Kind("0.w1.scale", _deepseek_v4, (("w1", "w3"), ("w2",)), {"activation": "deepseek_v4", "limit": 10.0}),
    "modelopt_nvfp4": _Kind("0.gate_proj.weight_scale_2", _nvfp4("weight", "weight_scale_2")),
    "compressed_tensors_nvfp4": _Kind("0.gate_proj.weight_packed", _nvfp4("weight_packed", "weight_global_scale")),
}

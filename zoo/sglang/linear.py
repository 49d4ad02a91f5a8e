"""Linear layers of SGLang: FP8 with scales for 128 x 128, MXFP8 on Hopper, and ModelOpt's NVFP4.

SGLang's hook registry wraps the functions of a method of layers. A layer that zoo refuses goes through the wrapped ones.

    layer's parameters --process_weights_after_loading--> packed, in the same parameters
    x --apply--> zoo.torch.nn's product: quantise, multiply
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sglang.srt.layers.linear import LinearBase
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

from zoo.errors import ArgumentError
from zoo.sglang import exports, support
from zoo.sglang.support import say_refused, say_served
from zoo.torch.folded import in_fp8b128
from zoo.torch.nn.formats import format_of
from zoo.torch.nn.products import product
from zoo.torch.quantized import Quantized
from zoo.torch.serving import as_bytes, because, check_signatures, format_for, load, squares

_PACKAGE = "sglang.srt.layers.quantization"
_METHODS = {"fp8b128": f"{_PACKAGE}.fp8:Fp8LinearMethod", "nvfp4": f"{_PACKAGE}.modelopt_quant:ModelOptFp4LinearMethod"}
_FUSED = ("_accepts_prequantized_fp4", "_interleave_for_swiglu_fusion")  # which models set on layers before they load weights


def _check_settings(backend: str) -> None:
    why = support.why_not_here(backend)
    if why is not None:
        raise ArgumentError(why)


def _fp8b128(method: Any, layer: Any) -> Quantized | None:
    folds = method.use_mxfp8 and method.convert_mxfp8_to_block and support.folds(layer.weight.device)
    if not folds and not method.block_quant:
        return None
    _check_settings("fp8_gemm_runner_backend")
    if not folds and method.weight_block_size != [128, 128]:
        where = "; zoo folds MXFP8 on Hopper alone" if method.use_mxfp8 else ""
        raise ArgumentError(f"scales for {method.weight_block_size} of weights, and zoo reads scales for [128, 128]{where}")
    if folds:
        return in_fp8b128(Quantized(layer.weight.data, layer.weight_scale_inv.data, "mxfp8"))
    other = method.use_marlin or method.use_mxfp8 or not method.is_checkpoint_fp8_serialized
    if other or getattr(layer, "deepgemm_mxfp8_input", False):
        raise ArgumentError("another scheme of tokens or scales")
    return squares(layer.weight.data, layer.weight_scale_inv.data)


def _nvfp4(method: Any, layer: Any) -> Quantized:
    _check_settings("fp4_gemm_runner_backend")
    if method.quant_mode != "w4a4" or hasattr(layer, "pre_quant_scale"):
        raise ArgumentError("bf16 tokens, or a scale for each of their columns")
    if not isinstance(layer, LinearBase):
        raise ArgumentError("SGLang reads the weight of the output layer outside its method")
    if any(getattr(layer, name, False) for name in _FUSED):
        raise ArgumentError("SGLang fuses the quantisation of tokens with the operation before")
    return Quantized(layer.weight.data, layer.weight_scale.data, "nvfp4", tensor_scale=layer.weight_scale_2.data.max().float().reshape(1))


_JOINED = "process_weights_after_loading_block_quant"  # which MiniMax-M3 calls for projections that it joins
_READ: dict[str, Callable[[Any, Any], Quantized | None]] = {"fp8b128": _fp8b128, "nvfp4": _nvfp4}
_NAMES = {"fp8b128": ("weight", "weight_scale_inv"), "nvfp4": ("weight", "weight_scale", "weight_scale_2")}


def _ready(weights: str, plain: Quantized) -> tuple[Quantized, str]:
    """The weight as a product of zoo reads it, and its format. The product has run once."""
    format = format_for(weights, weights, support.formats_on(plain.device))
    if format is None:
        raise ArgumentError(f"zoo has no product of {weights} weights on this device")
    if plain.device.type == "cuda":
        load(format, plain.device.index)
    weight = format_of(format).readable(plain)
    product(torch.zeros((1, weight.shape[1]), dtype=torch.bfloat16, device=weight.device), weight, format)
    return weight, format


def _pack(weights: str, usual: Callable[..., None], method: Any, layer: Any) -> None:
    """Around process_weights_after_loading."""
    if vars(layer).get("zoo_about", {}).get("layout", "plain") != "plain":
        raise ArgumentError(support.PACKED)
    try:
        plain = _READ[weights](method, layer)
        ready = None if plain is None else _ready(weights, plain)
    except Exception as error:
        say_refused(f"{weights} linear layers", because(error))
        return usual(method, layer)
    if ready is None:  # FP8 with a scale of a tensor or a row, which is no matter of zoo's
        return usual(method, layer)
    weight, format = ready
    for name, part in zip(_NAMES[weights], (weight.elements, weight.scales, weight.tensor_scale), strict=False):
        assert part is not None
        if part.data_ptr() != getattr(layer, name).data_ptr():
            support.refuse_updates(layer)
        getattr(layer, name).data = as_bytes(part)  # the parameter stays, since models read what is written on it
    if weights == "fp8b128" and method.use_mxfp8:  # as SGLang leaves a method whose weights it has converted
        method.use_mxfp8, method.convert_mxfp8_to_block, method.weight_block_size = False, False, [128, 128]
        layer.weight_scale_inv.format_ue8m0 = False
    layer.zoo_about = {name: getattr(weight, name) for name in ("format", "squares", "layout", "packed_shape")}
    layer.zoo_format = format
    exports.refuse_exports(layer)
    say_served(f"{weights} linear layers", format)
    return None


def _apply(weights: str, usual: Callable[..., Any], method: Any, layer: Any, x: Any, bias: torch.Tensor | None = None) -> Any:
    """Around apply."""
    if "zoo_about" not in vars(layer):
        return usual(method, layer, x, bias)
    if not isinstance(x, torch.Tensor) and weights == "fp8b128":  # whose parameters SGLang's own function can read
        say_refused("fp8b128 linear layers", "SGLang quantised their tokens before")
        return usual(method, layer, x, bias)
    if not isinstance(x, torch.Tensor):
        raise ArgumentError(f"zoo quantises tokens itself, and SGLang passes a {type(x).__name__}; set ZOO_SGLANG=0")
    elements, scales, *number = (getattr(layer, name) for name in _NAMES[weights])
    weight = Quantized(elements, scales, tensor_scale=number[0] if number else None, **layer.zoo_about)
    return product(x, weight, layer.zoo_format, bias=None if bias is None else bias.detach())


def install() -> None:
    expected = {"process_weights_after_loading": "self layer", "apply": "self layer x bias"}
    check_signatures({f"{method}.{name}": parameters for method in _METHODS.values() for name, parameters in expected.items()})
    check_signatures({f"{_METHODS['fp8b128']}.{_JOINED}": "self layer"})
    exports.install()
    for weights, method in _METHODS.items():
        target = method.replace(":", ".")
        for name in ("process_weights_after_loading", *([_JOINED] if weights == "fp8b128" else [])):
            HookRegistry.register(f"{target}.{name}", partial(_pack, weights), HookType.AROUND)
        HookRegistry.register(f"{target}.apply", partial(_apply, weights), HookType.AROUND)

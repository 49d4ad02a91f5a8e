"""Linear layers of vLLM: FP8 with scales for 128 x 128, MXFP8, NVFP4 and MXFP4.

vLLM asks the kernels of a list, in their order, whether they can serve a layer. zoo's are put first.

    layer's parameters --process_weights_after_loading--> packed, in the same parameters
    x --apply_weights--> zoo.torch.nn's product: quantise, multiply

A layer that zoo refuses when its weights are there gets the kernel that vLLM takes without zoo.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import torch
from vllm.model_executor.kernels import linear as kernels
from vllm.model_executor.kernels.linear import (
    Fp8BlockScaledMMLinearKernel,
    MxFp4LinearKernel,
    Mxfp8LinearKernel,
    NvFp4LinearKernel,
    init_fp8_linear_kernel,
    init_mxfp4_linear_kernel,
    init_mxfp8_linear_kernel,
    init_nvfp4_linear_kernel,
    register_linear_kernel,
)
from vllm.model_executor.utils import is_weights_pre_processed, replace_parameter
from vllm.platforms import PlatformEnum, current_platform

from zoo.errors import ArgumentError
from zoo.torch.nn.formats import format_of
from zoo.torch.nn.products import product
from zoo.torch.quantized import Quantized
from zoo.torch.serving import as_bytes, because, check_signatures, squares
from zoo.vllm import exports
from zoo.vllm.support import format_for, load, mark_compiled_code, no_format, on_cpu, say_refused, say_served, why_not_shared

_PACKAGE = "vllm.model_executor.kernels.linear"
_SIGNATURES = {
    f"{_PACKAGE}:register_linear_kernel": "kernel_class platform kernel_type",
    f"{_PACKAGE}:init_nvfp4_linear_kernel": "use_a16",
    f"{_PACKAGE}:init_mxfp4_linear_kernel": "activation_quant_key",
    f"{_PACKAGE}:init_mxfp8_linear_kernel": "weight_shape bmm_batch_size",
    f"{_PACKAGE}:NvFp4LinearKernel.apply_weights": "self layer x bias",
    f"{_PACKAGE}:MxFp4LinearKernel.apply_weights": "self layer x bias",
    f"{_PACKAGE}:Mxfp8LinearKernel.apply_weights": "self layer x bias",
    f"{_PACKAGE}:Fp8BlockScaledMMLinearKernel.apply_weights": "self layer x bias kwargs",
}
_without_zoo: ContextVar[bool] = ContextVar("_without_zoo", default=False)  # while vLLM's own kernel is asked for


class _Linear:
    """What the kernels share: the weight is packed, or vLLM's own kernel serves the layer."""

    weights: str
    config: Any

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        mark_compiled_code(self.weights, format_for(self.weights, self._tokens(config)))

    @classmethod
    def is_supported(cls, compute_capability: int | None = None) -> tuple[bool, str | None]:
        if _without_zoo.get() or is_weights_pre_processed():
            return False, "zoo refused this layer, or its weights are packed for another kernel"
        return True, None

    @classmethod
    def can_implement(cls, config: Any) -> tuple[bool, str | None]:
        try:
            why = why_not_shared() or cls._refusal(config)
        except Exception as error:  # another version of vLLM may have other configs
            why = because(error)
        if why is not None:
            say_refused(f"{cls.weights} linear layers", "", why)
        return why is None, why

    @classmethod
    def _refusal(cls, config: Any) -> str | None:
        tokens = cls._tokens(config)
        return None if format_for(cls.weights, tokens) else no_format(cls.weights, tokens)

    @classmethod
    def _tokens(cls, config: Any) -> str:
        return cls.weights

    def process_weights_after_loading(self, layer: Any) -> None:
        kind, name = f"{self.weights} linear layers", getattr(layer, "prefix", "")
        layer.zoo_usual = None
        try:
            format = format_for(self.weights, self._tokens(self.config))
            assert format is not None  # as can_implement has asked
            load(format)
            weight = format_of(format).readable(self._weight(layer))
            self._multiply(weight, format, weight.elements.new_zeros((1, weight.stored_shape[1]), dtype=torch.bfloat16), None)
        except Exception as error:
            say_refused(kind, name, because(error))
            token = _without_zoo.set(True)
            try:
                layer.zoo_usual = self._usual()
            finally:
                _without_zoo.reset(token)
            layer.zoo_usual.process_weights_after_loading(layer)
            return
        self._keep(layer, weight)
        layer.zoo_about = {name: getattr(weight, name) for name in ("format", "squares", "layout", "packed_shape")}
        layer.zoo_format = format
        say_served(kind, format, name)

    def apply_weights(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None, **more: Any) -> torch.Tensor:
        if layer.zoo_usual is not None:
            found: torch.Tensor = layer.zoo_usual.apply_weights(layer, x, bias, **more)
            return found
        weight = Quantized(layer.weight, self._scales(layer), tensor_scale=self._tensor_scale(layer), **layer.zoo_about)
        return self._multiply(weight, layer.zoo_format, x, bias)

    def _multiply(self, weight: Quantized, format: str, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        bias, dtype = None if bias is None else bias.detach(), getattr(self.config, "out_dtype", None)
        if x.dtype == torch.float8_e4m3fn:  # MLA's prefill in FP8 casts tokens without a scale
            x = x.to(dtype or torch.bfloat16)
        return product(x, weight, format, bias=bias, dtype=dtype)

    def _keep(self, layer: Any, weight: Quantized) -> None:
        exports.refuse_saves(layer)
        replace_parameter(layer, "weight", as_bytes(weight.elements))
        replace_parameter(layer, "weight_scale", as_bytes(weight.scales))
        if weight.tensor_scale is not None:
            replace_parameter(layer, "weight_global_scale", weight.tensor_scale)

    def _scales(self, layer: Any) -> torch.Tensor:
        found: torch.Tensor = layer.weight_scale
        return found

    def _tensor_scale(self, layer: Any) -> torch.Tensor | None:
        return None

    def _weight(self, layer: Any) -> Quantized:
        """As the checkpoint has it."""
        return Quantized(layer.weight.data, layer.weight_scale.data, self.weights, tensor_scale=self._tensor_scale(layer))

    def _usual(self) -> Any:
        raise NotImplementedError


class ZooFp8BlockLinear(_Linear, Fp8BlockScaledMMLinearKernel):
    weights = "fp8b128"

    @classmethod
    def _refusal(cls, config: Any) -> str | None:
        tokens, weights = config.activation_quant_key.scale, config.weight_quant_key.scale
        shapes = tuple(tokens.group_shape), tuple(weights.group_shape)
        if tokens.static or shapes != ((1, 128), (128, 128)):
            how = "static" if tokens.static else "dynamic"
            return (
                f"{how} scales for {shapes[0]} of tokens and {shapes[1]} of weights, and zoo has dynamic ones for (1, 128) and (128, 128)"
            )
        return super()._refusal(config)

    def _weight(self, layer: Any) -> Quantized:
        if getattr(layer, "is_bmm", False):
            raise ArgumentError("vLLM multiplies this weight as a batch, outside linear layers")
        params = self._get_layer_params(layer)
        return squares(params.weight.data, params.block_scale.data)

    def _keep(self, layer: Any, weight: Quantized) -> None:
        replace_parameter(layer, "weight", weight.elements)
        replace_parameter(layer, self._get_layer_params(layer).block_scale_attr, weight.scales)

    def _scales(self, layer: Any) -> torch.Tensor:
        return self._get_layer_params(layer).block_scale

    def _usual(self) -> Any:
        names = ("activation_quant_key", "weight_quant_key", "input_dtype", "out_dtype", "weight_shape")
        return init_fp8_linear_kernel(**{name: getattr(self.config, name) for name in names})

    def apply_block_scaled_mm(self, A: torch.Tensor, B: torch.Tensor, As: torch.Tensor, Bs: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("apply_weights quantises and multiplies")


class ZooNvFp4Linear(_Linear, NvFp4LinearKernel):
    weights = "nvfp4"

    def _tensor_scale(self, layer: Any) -> torch.Tensor:
        return layer.weight_global_scale.reshape(1)

    def _usual(self) -> Any:
        return init_nvfp4_linear_kernel()


class ZooMxFp4Linear(_Linear, MxFp4LinearKernel):
    weights = "mxfp4"

    @classmethod
    def _tokens(cls, config: Any) -> str:
        return "bf16" if config.activation_quant_key is None else "mxfp4"

    def _usual(self) -> Any:
        return init_mxfp4_linear_kernel(self.config.activation_quant_key)


class ZooMxfp8Linear(_Linear, Mxfp8LinearKernel):
    weights = "mxfp8"

    @classmethod
    def _refusal(cls, config: Any) -> str | None:
        if config.bmm_batch_size is not None:
            return "vLLM multiplies this weight as a batch"
        return super()._refusal(config)

    def _usual(self) -> Any:
        return init_mxfp8_linear_kernel(weight_shape=self.config.weight_shape)


_KERNELS = {
    "fp8_block": (ZooFp8BlockLinear, "_POSSIBLE_FP8_BLOCK_KERNELS"),
    "mxfp8": (ZooMxfp8Linear, "_POSSIBLE_MXFP8_KERNELS"),
    "nvfp4": (ZooNvFp4Linear, "_POSSIBLE_NVFP4_KERNELS"),
    "mxfp4": (ZooMxFp4Linear, "_POSSIBLE_MXFP4_KERNELS"),
}


def _noticing(usual: Callable[..., str]) -> Callable[..., str]:
    """vLLM asks no list of kernels for NVFP4 weights with bf16 tokens. It reads its setting of backends for them, where zoo can say so."""

    @functools.wraps(usual)
    def linear_backend(*arguments: Any, **named: Any) -> str:
        found = usual(*arguments, **named)
        if found == "auto" and named.get("quantization") == "nvfp4_w4a16":
            say_refused("nvfp4 linear layers", "", "bf16 tokens, for which vLLM asks no plugin")
        return found

    return linear_backend


def install() -> None:
    check_signatures(_SIGNATURES)
    exports.install()
    usual = getattr(kernels, "_get_linear_backend", None)  # a vLLM that has another name loses a warning, and no layer
    if usual is not None and not hasattr(usual, "__wrapped__"):
        kernels._get_linear_backend = _noticing(usual)
    lists = {kernel: getattr(kernels, name) for kernel, name in _KERNELS.values()}  # all of them, before the first changes
    platform = current_platform._enum if on_cpu() else PlatformEnum.CUDA
    for kind, (kernel, _) in _KERNELS.items():
        register_linear_kernel(kernel, platform, kind)
        here = lists[kernel][platform]
        here.insert(0, here.pop(here.index(kernel)))  # vLLM appends, and asks in this order

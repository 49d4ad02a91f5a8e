"""Experts of vLLM in FP8 with scales for 128 x 128, MXFP8, NVFP4 and MXFP4.

vLLM gives a layer of experts a method, which makes parameters, reads them, and multiplies. zoo lets vLLM choose and
extends the chosen method: it still makes the parameters, and is what serves the layer if zoo refuses the weights.

    parameters of the rank's experts --process_weights_after_loading--> zoo.torch.nn.Experts, frozen
    x, ids and weights of vLLM's router --apply--> route, two grouped GEMMs, combine
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.routed_experts import RoutedExperts
from vllm.model_executor.utils import is_weights_pre_processed, replace_parameter

from zoo.errors import ArgumentError
from zoo.runtime.torch_dtypes import torch_dtype
from zoo.torch.nn.experts import Experts
from zoo.torch.quantized import Quantized
from zoo.torch.serving import because, check_signatures, squares
from zoo.vllm import exports
from zoo.vllm.support import format_for, load, mark_compiled_code, no_format, offloads, say_refused, say_served, why_not_shared

_PACKAGE = "vllm.model_executor.layers.fused_moe"
_NUMBERS = ("swiglu_limit", "swiglu_alpha", "swiglu_beta")
_SIGNATURES = {
    f"{_PACKAGE}.routed_experts:RoutedExperts._get_quant_method": "self prefix quant_config moe_config",
    f"{_PACKAGE}.fused_moe_method_base:FusedMoEMethodBase.apply": (
        "self layer x topk_weights topk_ids shared_experts shared_experts_input"
    ),
    f"{_PACKAGE}.fused_moe_method_base:FusedMoEMethodBase.get_fused_moe_quant_config": "self layer",
}


@dataclass(frozen=True)
class _Kind:
    """A method of vLLM, by what its parameters hold."""

    weights: str
    elements: str  # names of parameters, after w13_ and w2_
    scales: str
    tensor_scale: str | None = None
    divides: bool = False
    tokens: Callable[[Any], str | None] = lambda method: "bf16"  # as the checkpoint has them; None: as no kernel of zoo
    refused: Callable[[Any], bool] = lambda method: False

    def read(self, layer: Any, matrix: str) -> Quantized:
        elements, scales = (_parameter(layer, f"{matrix}_{name}") for name in (self.elements, self.scales))
        if self.weights == "fp8b128":
            if matrix == "w13" and elements.shape[1] % 256:
                raise ArgumentError(f"gates and ups {tuple(elements.shape)} share a scale of 128 rows")
            return squares(elements, scales)
        if self.weights in ("mxfp4", "mxfp8"):
            return Quantized(elements, scales.view(torch_dtype("ue8m0")), self.weights)
        number = _parameter(layer, f"{matrix}_{self.tensor_scale}").float()
        return Quantized(elements, scales, "nvfp4", tensor_scale=number.reciprocal() if self.divides else number)

    def names(self) -> tuple[str, ...]:
        return tuple(f"{matrix}_{name}" for matrix in ("w13", "w2") for name in (self.elements, self.scales))


def _parameter(layer: Any, name: str) -> torch.Tensor:
    found = getattr(layer, name, None)
    if found is None:
        raise ArgumentError(f"this layer has no {name}")
    tensor: torch.Tensor = found.data
    return tensor


def _of_nvfp4(method: Any) -> str:
    return "bf16" if method.use_a16 else "nvfp4"


def _of_mxfp4(method: Any) -> str | None:
    if method.activation_key is None:
        return "bf16"
    of_tokens = method.activation_key.scale
    if method.activation_key.dtype != torch.float8_e4m3fn or of_tokens.static:
        return None
    rows, columns = of_tokens.group_shape
    return "fp8" if (rows, columns) == (1, -1) else "mxfp8" if rows == 1 and columns % 32 == 0 else None


_KINDS = {
    "Fp8MoEMethod": _Kind(
        "fp8b128",
        "weight",
        "weight_scale_inv",
        tokens=lambda method: "fp8b128",
        refused=lambda method: method.weight_block_size != [128, 128] or method.moe_block_shape != [128, 128],
    ),
    "CompressedTensorsW8A8Fp8MoEMethod": _Kind(
        "fp8b128",
        "weight",
        "weight_scale",
        tokens=lambda method: "fp8b128",
        refused=lambda method: method.weight_block_size != [128, 128] or method.static_input_scales,
    ),
    "ModelOptMxFp8FusedMoE": _Kind("mxfp8", "weight", "weight_scale", tokens=lambda method: "mxfp8"),
    "CompressedTensorsW8A8Mxfp8MoEMethod": _Kind("mxfp8", "weight", "weight_scale", tokens=lambda method: "mxfp8"),
    "ModelOptNvFp4FusedMoE": _Kind(
        "nvfp4", "weight", "weight_scale", "weight_scale_2", tokens=_of_nvfp4, refused=lambda method: method.per_token_activation
    ),
    "CompressedTensorsW4A4Nvfp4MoEMethod": _Kind(
        "nvfp4", "weight_packed", "weight_scale", "weight_global_scale", divides=True, tokens=_of_nvfp4
    ),
    "GptOssMxfp4MoEMethod": _Kind("mxfp4", "weight", "weight_scale"),
    "Mxfp4MoEMethod": _Kind("mxfp4", "weight", "weight_scale", tokens=_of_mxfp4),  # DeepSeek-V4's too
    # vLLM does not tell this one what the checkpoint says of tokens
    "CompressedTensorsW4A4Mxfp4MoEMethod": _Kind("mxfp4", "weight_packed", "weight_scale"),
    "CompressedTensorsW4A8Mxfp4MoEMethod": _Kind("mxfp4", "weight_packed", "weight_scale", tokens=_of_mxfp4),
    "QuarkOCP_MX_MoEMethod": _Kind(
        "mxfp4", "weight", "weight_scale", tokens=lambda method: {"w_mxfp4": "bf16", "w_mxfp4_a_mxfp4": "mxfp4"}.get(method.ocp_mx_scheme)
    ),
    "INCMxfp4MoEMethod": _Kind("mxfp4", "weight_packed", "weight_scale", tokens=lambda method: "mxfp4"),
}


@functools.cache
def _served(method: Any) -> type:
    """A method of vLLM that zoo serves. It has vLLM's name, by which vLLM's loaders know how checkpoints name their tensors."""
    kind = _KINDS[method.__name__]

    class Served(method):
        zoo: Experts | None = None
        zoo_ids: torch.Tensor | None = None  # by global id, the id here or -1; none where the experts here follow each other

        def process_weights_after_loading(self, layer: Any) -> None:
            before, self.zoo, name = self.zoo, None, getattr(layer, "layer_name", "")
            try:
                if is_weights_pre_processed():
                    raise ArgumentError("the weights are packed for another kernel")
                made, self.zoo_ids = _experts(self, layer, kind)
            except Exception as error:
                say_refused(f"experts in {kind.weights}", name, because(error))
                super().process_weights_after_loading(layer)
                return
            self.zoo = made if before is None else _copied(made, before)
            exports.refuse_saves(layer)
            for parameter in kind.names():
                replace_parameter(layer, parameter, getattr(layer, parameter).data.new_empty(0))
            mark_compiled_code(f"experts in {kind.weights}", self.zoo.format)  # vLLM compiles the padding of other methods' tokens
            say_served(f"experts in {kind.weights}", self.zoo.format, name)

        def apply(
            self,
            layer: Any,
            x: torch.Tensor,
            topk_weights: torch.Tensor,
            topk_ids: torch.Tensor,
            shared_experts: Any,
            shared_experts_input: Any,
        ) -> Any:
            if self.zoo is None:
                return super().apply(layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input)
            ids = topk_ids if topk_ids.dtype in (torch.int32, torch.int64) else topk_ids.to(torch.int32)
            if self.zoo_ids is not None:
                ids = torch.where(ids < 0, -1, self.zoo_ids[ids.clamp(min=0).long()])
            return self.zoo(x, ids, topk_weights)

        @property
        def is_monolithic(self) -> bool:
            return self.zoo is None and super().is_monolithic

        @property
        def skip_forward_padding(self) -> bool:
            return self.zoo is None and super().skip_forward_padding

        @property
        def has_unpadded_output(self) -> bool:
            return self.zoo is None and super().has_unpadded_output

        def get_fused_moe_quant_config(self, layer: Any) -> Any:
            return None if self.zoo is not None else super().get_fused_moe_quant_config(layer)

    Served.__name__ = method.__name__
    return Served


def _choosing(usual: Callable[..., Any]) -> Callable[..., Any]:
    """Models such as gpt-oss have subclasses of RoutedExperts, which vLLM's registry of classes by name would leave out."""

    @functools.wraps(usual)
    def _get_quant_method(self: Any, prefix: str, quant_config: Any, moe_config: Any) -> Any:
        method = usual(self, prefix, quant_config, moe_config)
        theirs: Any = type(method)
        kind = _KINDS.get(theirs.__name__)
        if kind is None:
            return method
        try:
            why = why_not_shared() or _refusal(method, self, kind)
        except Exception as error:
            why = because(error)
        if why is not None:
            say_refused(f"experts in {kind.weights}", prefix, why)
            return method
        method.__class__ = _served(theirs)
        return method

    return _get_quant_method


def _refusal(method: Any, layer: Any, kind: _Kind) -> str | None:
    moe, parallel = layer.moe_config, layer.moe_config.moe_parallel_config
    tokens = kind.tokens(method)
    reasons = {
        f"--moe-backend is {moe.moe_backend}": moe.moe_backend != "auto",
        "another scheme of tokens or scales": tokens is None or kind.refused(method),
        "LoRA": moe.is_lora_enabled,
        "weights that are offloaded to the CPU": offloads(),
        "experts that are balanced between ranks": parallel.enable_eplb,
        "data parallel or context parallel ranks": parallel.dp_size > 1 or parallel.pcp_size > 1,
        "sequence parallel ranks": parallel.is_sequence_parallel,
        "router weights on the input": layer.apply_router_weight_on_input,
        "ranks with less than one MXFP4 scale of the intermediate columns": (  # whose scales vLLM does not load
            kind.weights == "mxfp4" and moe.intermediate_size // parallel.tp_size < 32
        ),
        f"activation {moe.activation.value}": _activation(layer) is None,
    }
    found = next((why for why, there in reasons.items() if there), None)
    if found is not None or tokens is None:
        return found
    return None if format_for(kind.weights, tokens) else no_format(kind.weights, tokens)


def _activation(layer: Any) -> dict[str, Any] | None:
    """As arguments of Experts."""
    of = {name: one if (one := getattr(layer, name)) is not None else getattr(layer.moe_config, name) for name in _NUMBERS}
    kind, limit = layer.moe_config.activation, of["swiglu_limit"]
    if kind == MoEActivation.SILU:
        return {"activation": "silu"} if limit is None else {"activation": "deepseek_v4", "limit": float(limit)}
    if kind == MoEActivation.SWIGLUOAI:  # whose numbers vLLM fixes
        return {"activation": "gpt_oss", "limit": 7.0, "gates": "interleaved"}
    if kind == MoEActivation.SWIGLUOAI_UNINTERLEAVE and limit is not None:
        name = {(1.702, 1.0): "gpt_oss", (1.0, 0.0): "deepseek_v4"}.get((of["swiglu_alpha"], of["swiglu_beta"]))
        return None if name is None else {"activation": name, "limit": float(limit)}
    return None


def _experts(method: Any, layer: Any, kind: _Kind) -> tuple[Experts, torch.Tensor | None]:
    """The layer of zoo, which has multiplied a token, and its map of ids."""
    tokens = kind.tokens(method)
    format = None if tokens is None else format_for(kind.weights, tokens)
    assert format is not None  # as _refusal has asked
    load(format)
    first, ids = _placed(layer)
    options = {**(_activation(layer) or {}), "first": first, "total": layer.global_num_experts if ids is None else None}
    if method.moe.has_bias:
        options |= {"gate_up_bias": _parameter(layer, "w13_bias"), "down_bias": _parameter(layer, "w2_bias")}
    gate_up, down = kind.read(layer, "w13"), kind.read(layer, "w2")
    made = Experts.from_quantized(gate_up, down, format, **options)
    with torch.no_grad():
        x = torch.zeros(1, made.hidden, dtype=torch.bfloat16, device=down.device)
        made(x, torch.full((1, 1), first, dtype=torch.int32, device=x.device), torch.ones(1, 1, device=x.device))
    return made, ids


def _copied(made: Experts, before: Experts) -> Experts:
    """Weights that are loaded again go to the memory of the weights before, which captured graphs read."""
    with torch.no_grad():
        for kept, new in zip((*before.parameters(), *before.buffers()), (*made.parameters(), *made.buffers()), strict=True):
            kept.copy_(new)
    return before


def _placed(layer: Any) -> tuple[int, torch.Tensor | None]:
    """The global id of the first expert here; or 0, and a map of global ids to ids here, of which -1 is elsewhere."""
    placed = layer.expert_map
    if placed is None:
        return 0, None
    here = (placed >= 0).nonzero().flatten()
    in_turn = torch.arange(here.numel(), device=here.device)
    if here.numel() and torch.equal(placed[here].long(), in_turn) and torch.equal(here - here[0], in_turn):
        return int(here[0]), None
    return 0, placed.to(torch.int32)


def install() -> None:
    check_signatures(_SIGNATURES)
    exports.install()
    RoutedExperts._get_quant_method = _choosing(RoutedExperts._get_quant_method)

"""Experts of SGLang in FP8 with scales for 128 x 128, MXFP8 on Hopper, ModelOpt's NVFP4, and MXFP4.

SGLang's hook registry wraps the functions of a method of experts. zoo takes the place of runners that read a token's ids and weights.

    layer, its runner --create_moe_runner--> a format of zoo, or a warning that says why SGLang's own runner stays
    parameters of the rank's experts --process_weights_after_loading--> zoo.torch.nn.Experts, frozen
    x, ids and weights of SGLang's router --apply--> route, two grouped GEMMs, combine
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput
from sglang.srt.layers.moe.utils import get_moe_a2a_backend
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_exec, get_lora, get_parallel

from zoo.errors import ArgumentError
from zoo.sglang import exports, support
from zoo.sglang.support import say_refused, say_served
from zoo.torch.nn.experts import Experts
from zoo.torch.quantized import Quantized
from zoo.torch.serving import because, check_signatures, format_for, load, squares

_PACKAGE = "sglang.srt.layers.quantization"
_METHODS = {
    "fp8b128": f"{_PACKAGE}.fp8:Fp8MoEMethod",
    "nvfp4": f"{_PACKAGE}.modelopt_quant:ModelOptNvFp4FusedMoEMethod",
    "mxfp4": f"{_PACKAGE}.mxfp4:Mxfp4MoEMethod",
}
_SIGNATURES = {
    "create_moe_runner": "self layer moe_runner_config",
    "get_moe_runner_backend": "self layer",
    "process_weights_after_loading": "self layer",
    "apply": "self layer dispatch_output",
}
_RUNNERS = ("triton", "marlin", "triton_kernel")  # of SGLang, which zoo replaces
_SCALES = {"fp8b128": "weight_scale_inv", "nvfp4": "weight_scale", "mxfp4": "weight_scale"}


def _choose(weights: str, usual: Callable[..., None], method: Any, layer: Any, moe_runner_config: Any) -> None:
    """Around create_moe_runner, when the parameters are there without their numbers."""
    usual(method, layer, moe_runner_config)
    try:
        why = _refusal(method, layer, moe_runner_config, weights)
        if why is None:
            _experts(method, layer, weights, trial=True)  # while SGLang still has a choice: later, its router suits zoo alone
    except Exception as error:
        why = because(error)
    if why is not None:
        say_refused(f"{weights} experts", why)
    method.zoo_serves = why is None


def _backend(usual: Callable[..., Any], method: Any, layer: Any) -> Any:
    """Around get_moe_runner_backend: by none, SGLang gives ids and weights in place of what triton_kernels reads."""
    found = usual(method, layer)
    return None if getattr(method, "zoo_serves", None) is True and found is not None and found.is_triton_kernels() else found


def _refusal(method: Any, layer: Any, config: Any, weights: str) -> str | None:
    runner = method.get_moe_runner_backend(layer)
    name = "none" if runner is None else runner.value
    advice = "; MXFP8 on Hopper needs --moe-runner-backend triton" if getattr(method, "convert_mxfp8_to_block", False) else ""
    lora, setting = get_lora(), support.why_not_here()
    reasons = {
        str(setting): setting is not None,
        f"the MoE runner is {name}{advice}": name not in _RUNNERS or (name == "triton_kernel" and weights != "mxfp4"),
        "another method wraps theirs": layer.quant_method is not method or type(method).__name__ != _METHODS[weights].partition(":")[2],
        "another scheme of weights or tokens": _SCHEMES[weights](method, layer),
        "tokens are sent to the ranks of their experts": not get_moe_a2a_backend().is_none(),
        "LoRA": bool(lora.enable_lora or lora.lora_paths),
        "experts move between ranks": bool(get_exec().moe.enable_eplb or get_parallel().dwdp_size > 1),
        "router weights on the input": config.apply_router_weight_on_input,
        "rows of a token are not added": config.no_combine,
        f"activation {config.activation}": _activation(config) is None,
    }
    return next((why for why, there in reasons.items() if there), None)


def _format(weights: str, layer: Any) -> str | None:
    """SGLang multiplies MXFP4 by bf16 tokens."""
    return format_for(weights, "bf16" if weights == "mxfp4" else weights, support.formats_on(layer.w13_weight.device))


def _other_fp8(method: Any, layer: Any) -> bool:
    if method.is_fp4_expert or not method.quant_config.is_checkpoint_fp8_serialized:
        return True
    if method.use_mxfp8:
        return not (method.convert_mxfp8_to_block and support.folds(layer.w13_weight.device))
    return bool(method.weight_block_size != [128, 128])


def _other_nvfp4(method: Any, layer: Any) -> bool:
    config = method.quant_config
    other = config.is_awq or config.is_w4a16 or config.use_per_token_activation or not config.is_checkpoint_nvfp4_serialized
    return bool(other or getattr(layer, "inference_moe_w13_interleaved", False))


_SCHEMES: dict[str, Callable[[Any, Any], bool]] = {"fp8b128": _other_fp8, "nvfp4": _other_nvfp4, "mxfp4": lambda method, layer: False}


def _activation(config: Any) -> dict[str, Any] | None:
    """As arguments of Experts."""
    alpha, beta, clamp, limit = config.gemm1_alpha, config.gemm1_beta, config.gemm1_clamp_limit, config.swiglu_limit
    if config.activation != "silu" or not config.is_gated:
        return None
    if alpha is not None:
        if alpha != 1.702 or beta not in (None, 1.0) or clamp is None:
            return None
        return {"activation": "gpt_oss", "limit": float(clamp), "gates": "interleaved" if config.gate_up_interleaved else "halves"}
    if clamp is not None:  # which SGLang's runners read in different ways
        return None
    return {"activation": "silu"} if limit is None else {"activation": "deepseek_v4", "limit": float(limit)}


def _pack(weights: str, usual: Callable[..., None], method: Any, layer: Any) -> None:
    """Around process_weights_after_loading."""
    if getattr(method, "zoo_serves", None) is not True:
        return usual(method, layer)
    names = [f"{matrix}_{name}" for matrix in ("w13", "w2") for name in ("weight", _SCALES[weights])]
    if not all(getattr(layer, name).numel() for name in names):
        raise ArgumentError(support.PACKED)
    try:
        made = _experts(method, layer, weights)
    except Exception as error:
        if method.get_moe_runner_backend(layer) is None:
            raise ArgumentError(f"zoo cannot serve these {weights} experts: {because(error)}; set ZOO_SGLANG=0") from error
        say_refused(f"{weights} experts", because(error))
        method.zoo_serves = False
        return usual(method, layer)
    method.zoo = made
    if weights == "fp8b128" and method.use_mxfp8:  # as SGLang leaves a method whose weights it has converted
        method.use_mxfp8, method.convert_mxfp8_to_block, method.weight_block_size = False, False, [128, 128]
    kept = {one.data_ptr() for one in (*made.parameters(), *made.buffers())}
    for name in names:
        parameter = getattr(layer, name)
        if parameter.data_ptr() not in kept:
            support.refuse_updates(layer)
            parameter.data = parameter.data.new_empty(0)
    exports.refuse_exports(layer)
    say_served(f"{weights} experts", made.format)
    return None


def _experts(method: Any, layer: Any, weights: str, trial: bool = False) -> Experts:
    """The layer of zoo, which has multiplied a token. Ids count from the rank's first expert, and -1 is elsewhere.

    trial: a layer of one expert in zeros, before weights are loaded.
    """
    format, config, device = _format(weights, layer), method.moe_runner_config, layer.w13_weight.device
    if format is None:
        raise ArgumentError(f"zoo has no product of {weights} weights with such tokens on this device")
    if device.type == "cuda":
        load(format, device.index)

    def given(name: str) -> torch.Tensor:
        tensor: torch.Tensor = getattr(layer, name).data
        return torch.zeros_like(tensor[:1]) if trial else tensor

    hidden, options = layer.hidden_size_unpadded, _activation(config) or {}
    if weights != "nvfp4" and layer.with_bias:
        options |= {"gate_up_bias": given("w13_weight_bias"), "down_bias": given("w2_weight_bias")[:, :hidden].contiguous()}
    gate_up, down = (_read(method, weights, given, matrix, hidden) for matrix in ("w13", "w2"))
    made = Experts.from_quantized(gate_up, down, format, **options)
    with torch.no_grad():
        x = torch.zeros(1, made.hidden, dtype=torch.bfloat16, device=device)
        made(x, torch.zeros((1, 1), dtype=torch.int32, device=device), torch.ones(1, 1, dtype=torch.float32, device=device))
    return made


def _read(method: Any, weights: str, given: Callable[[str], torch.Tensor], matrix: str, hidden: int) -> Quantized:
    elements, scales = (given(f"{matrix}_{name}") for name in ("weight", _SCALES[weights]))
    if weights == "fp8b128":
        return Quantized(elements, scales, "mxfp8") if method.use_mxfp8 else squares(elements, scales)
    if weights == "nvfp4":
        return Quantized(elements, scales, "nvfp4", tensor_scale=given(f"{matrix}_weight_scale_2").float())
    if matrix == "w13":
        elements, scales = elements[..., : hidden // 2], scales[..., : hidden // 32]
    else:
        elements, scales = elements[:, :hidden], scales[:, :hidden]
    return Quantized(elements.contiguous(), scales.contiguous(), "mxfp4")


def _apply(usual: Callable[..., Any], method: Any, layer: Any, dispatch_output: Any) -> Any:
    """Around apply."""
    made = getattr(method, "zoo", None)
    if not isinstance(made, Experts):
        return usual(method, layer, dispatch_output)
    x, chosen, factor = dispatch_output.hidden_states, dispatch_output.topk_output, method.moe_runner_config.routed_scaling_factor
    weights = chosen.topk_weights
    if factor is not None and not layer.should_fuse_routed_scaling_factor_in_topk:
        weights = weights * factor
    return StandardCombineInput(hidden_states=made(x, chosen.topk_ids, weights))


def install() -> None:
    check_signatures({f"{method}.{name}": parameters for method in _METHODS.values() for name, parameters in _SIGNATURES.items()})
    exports.install()
    for weights, method in _METHODS.items():
        hooks = {
            "create_moe_runner": partial(_choose, weights),
            "process_weights_after_loading": partial(_pack, weights),
            "apply": _apply,
            **({"get_moe_runner_backend": _backend} if weights == "mxfp4" else {}),
        }
        for name, hook in hooks.items():
            HookRegistry.register(f"{method.replace(':', '.')}.{name}", hook, HookType.AROUND)

"""Forward functions of experts, under the name "zoo" in transformers' two registries.

    ALL_EXPERTS_FUNCTIONS      weights in bf16, f16 or f32, quantised here to fp8b128 and kept until they change; they train
    ALL_FP8_EXPERTS_FUNCTIONS  weights of a fine-grained FP8 checkpoint, read as they are

A function gets the experts' module, x (T, K), ids and weights (T, top_k). Ids of other ranks, which are the number of experts here, are
dropped. What zoo has no kernel for goes to transformers' "grouped_mm", and one warning gives the reason.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from zoo.errors import ArgumentError
from zoo.torch.nn.experts_serving import RECIPES, Gating, Matrices, laid_bias, paired
from zoo.torch.nn.experts_training import Master, composed, fused
from zoo.torch.nn.formats import format_of, on_gpu
from zoo.torch.nn.kept import Kept, capturing, made
from zoo.torch.nn.routing import combine, route
from zoo.torch.serving import no_driver
from zoo.transformers.declined import declined
from zoo.transformers.gating import NAMES, Gate, Numbers, gate_of

FORMAT = "fp8b128"
_NORM = "normalises what each expert gives, and zoo adds it up as it is"
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_SCALES = tuple(getattr(torch, name) for name in ("float32", "float8_e8m0fnu") if hasattr(torch, name))


@dataclass
class _Held:
    """Of one module: the quantised forms of its matrices."""

    kept: tuple[Kept, Kept] = field(default_factory=lambda: (Kept(), Kept()))


_held: weakref.WeakKeyDictionary[torch.nn.Module, _Held] = weakref.WeakKeyDictionary()


def experts_forward(
    self: torch.nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    module: Any = self
    gate = _arranged(module)
    if gate is None:
        return _default("ALL_EXPERTS_FUNCTIONS")(self, hidden_states, top_k_index, top_k_weights)
    weights = tuple(getattr(module, name) for name in ("gate_up_proj", "down_proj"))
    biases = tuple(getattr(module, f"{name}_bias") if module.has_bias else None for name in ("gate_up_proj", "down_proj"))
    each_time = torch.compiler.is_compiling() or capturing()  # a graph casts weights whenever it runs
    held = None if each_time else _held.setdefault(self, _Held())
    masters = []
    for one, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        kept = None if held is None else held.kept[one]
        if kept is not None:
            kept.parameter = weight
        masters.append(Master(weight.mT if module.is_transposed else weight, bias, FORMAT, kept))
    gate_up, down = masters
    experts, hidden, intermediate = gate_up.weight.shape[0], gate_up.weight.shape[2], down.weight.shape[2]
    given = _given(hidden_states, top_k_index, top_k_weights)
    x, ids, shares = given
    routing = route(ids, shares.detach(), experts)
    gating = Gating(gate.gates, gate.activation, gate.limit, hidden, intermediate)
    trains = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, shares, *weights, *biases))
    whole = gate.gates == "interleaved" or intermediate % 128 == 0  # no square has gates and ups
    if whole and not trains:
        d = RECIPES[FORMAT].multiply(RECIPES[FORMAT].tokens(x), _squares(gate_up, gate.gates), _squares(down, None), routing, gating)
        y = combine(d, routing.rows, shares)
    else:
        simple = gate.activation == "silu" and down.bias is None and whole
        y = (fused if simple else composed)(x, shares, None, gate_up, down, routing, gating)
    return y.to(hidden_states.dtype).view(hidden_states.shape)


def fp8_experts_forward(
    self: torch.nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
) -> torch.Tensor:
    module: Any = self
    gate = _arranged_fp8(module)
    if gate is None:
        return _default("ALL_FP8_EXPERTS_FUNCTIONS")(self, hidden_states, top_k_index, top_k_weights)
    if hidden_states.requires_grad and torch.is_grad_enabled():
        raise ArgumentError(
            'experts_implementation="zoo": experts of an FP8 checkpoint give x no gradient; call the model under torch.no_grad(), or '
            "load it with quantization_config=FineGrainedFP8Config(dequantize=True) and train that"
        )
    gate_up, down = (
        Matrices(one, scale.float() if scale.dtype != torch.float32 else scale, None, None)
        for one, scale in ((module.gate_up_proj, module.gate_up_proj_scale_inv), (module.down_proj, module.down_proj_scale_inv))
    )
    gate_up = Matrices(paired(gate_up.elements.detach(), gate.gates), gate_up.scales, None, None)
    x, ids, shares = _given(hidden_states, top_k_index, top_k_weights)
    routing = route(ids, shares, gate_up.elements.shape[0])
    gating = Gating(gate.gates, gate.activation, gate.limit, x.shape[1], down.elements.shape[2])
    d = RECIPES[FORMAT].multiply(RECIPES[FORMAT].tokens(x), gate_up, down, routing, gating)
    return combine(d, routing.rows, shares).to(hidden_states.dtype).view(hidden_states.shape)


def _squares(master: Master, gates: str | None) -> Matrices:
    """The quantised weight of experts that serve."""
    form, weight = format_of(FORMAT), master.weight.detach() if master._kept is None else master.weight
    found = (made(form, weight, False) if master._kept is None else master._kept(form, weight, False))[0]
    bias = None if master.bias is None else laid_bias(master.bias.detach(), gates)
    return Matrices(found.elements if gates is None else paired(found.elements, gates), found.scales, None, bias)


def _given(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = format_of(FORMAT).filled(x.reshape(-1, x.shape[-1]))
    ids, weights = (one.reshape(-1, one.shape[-1]).contiguous() for one in (ids, weights))
    return tokens, ids, weights.float()


def arrangement(module: Any) -> Gate | str:
    """How float experts are arranged, or why zoo does not multiply them."""
    missing = [name for name in ("is_transposed", "has_bias", "has_gate", "gate_up_proj", "down_proj") if not hasattr(module, name)]
    if missing:
        return f"has no {missing[0]}, so the arrangement of its weights is unknown"
    if not module.has_gate or "_apply_gate" in module.__dict__:
        return "has no gates, or a gate that its class lacks"
    if getattr(module, "has_post_expert_norm", False):
        return _NORM
    gate_up, down = module.gate_up_proj, module.down_proj
    sizes = (tuple(gate_up.shape), tuple(down.shape))
    if gate_up.dim() == 3 and down.dim() == 3:
        if module.is_transposed:
            sizes = ((sizes[0][0], sizes[0][2], sizes[0][1]), (sizes[1][0], sizes[1][2], sizes[1][1]))
        experts, hidden, intermediate = sizes[1]
    if gate_up.dim() != 3 or down.dim() != 3 or sizes[0] != (experts, 2 * intermediate, hidden):
        return f"expected weights of gates and ups (E, 2 I, K) and of the second matrix (E, K, I), got {sizes[0]} and {sizes[1]}"
    if type(gate_up).__name__ == "DTensor":
        return "its weights are DTensors, which no kernel reads"
    return _constant_gate(*_about(module)) or "no kernel of zoo has its activation"


def _arranged(module: Any) -> Gate | None:
    found = arrangement(module)
    if not isinstance(found, str):
        sizes, gate_up = module.down_proj.shape, module.gate_up_proj
        if gate_up.dtype not in _FLOATS:
            found = f"weights in {gate_up.dtype}"
        elif sizes[1] % 16 or sizes[2] % 16:
            found = f"sizes {sizes[1]} and {sizes[2]} are no multiples of 16"
        else:
            found = _no_product(gate_up.device) or found
    return _or_decline(module, found)


def _arranged_fp8(module: Any) -> Gate | None:
    found: Gate | str
    wanted = ("gate_up_proj", "gate_up_proj_scale_inv", "down_proj", "down_proj_scale_inv", "block_size", "activation_scheme")
    missing = [name for name in wanted if not hasattr(module, name)]
    if missing:
        found = f"has no {missing[0]}"
    elif getattr(module, "has_post_expert_norm", False):
        found = _NORM
    elif module.activation_scheme != "dynamic":
        found = f"activations have {module.activation_scheme} scales"
    elif module.gate_up_proj.dtype != torch.float8_e4m3fn:
        found = f"weights in {module.gate_up_proj.dtype}; ZooConfig quantises a bf16 model to 4 bits"
    elif module.block_size is None or tuple(module.block_size) != (128, 128):
        found = f"scales for {module.block_size}, and zoo reads scales for 128 x 128"
    else:
        found = (
            _no_product(module.gate_up_proj.device)
            or _fp8_sizes(module)
            or _constant_gate(*_about(module))
            or "no kernel of zoo has its activation"
        )
    if isinstance(found, Gate) and found.gates != "halves":
        found = "its gates and ups are interleaved"
    return _or_decline(module, found)


def _fp8_sizes(module: Any) -> str:
    experts, hidden, intermediate = module.down_proj.shape
    if module.gate_up_proj.shape != (experts, 2 * intermediate, hidden) or intermediate % 128 or hidden % 16:
        return f"hidden size {hidden} and intermediate size {intermediate}; zoo needs multiples of 16 and of 128"
    for scale, rows, columns in (
        (module.gate_up_proj_scale_inv, 2 * intermediate, hidden),
        (module.down_proj_scale_inv, hidden, intermediate),
    ):
        if scale.shape != (experts, -(-rows // 128), -(-columns // 128)) or scale.dtype not in _SCALES:
            return f"scales {tuple(scale.shape)} in {scale.dtype} of weights {(experts, rows, columns)}"
        if scale.dtype == torch.float32 and scale.is_cuda and torch.cuda.get_device_capability(scale.device)[0] >= 10:
            return "scales in f32, and Blackwell multiplies by powers of two"
    return ""


def _no_product(device: torch.device) -> str:
    """Why the device multiplies nothing in FP8 by zoo's kernels."""
    if device.type == "cuda" and FORMAT not in on_gpu(torch.cuda.get_device_capability(device)):
        return f"zoo has no cubins for {torch.cuda.get_device_name(device)}"
    if device.type == "cuda" and (reason := _no_driver()):
        return str(reason)
    return "" if device.type in ("cuda", "cpu", "meta") else f"zoo has no kernels for {device.type}"


@torch.compiler.assume_constant_result
def _no_driver() -> str:
    return no_driver()


def _about(module: Any) -> tuple[type[Any], Any, Numbers]:
    act = getattr(module, "act_fn", None)
    given = [(name, getattr(module, name, ())) for name in NAMES]
    numbers = tuple((name, one) for name, one in given if one is None or isinstance(one, (int, float)))
    return type(module), act if act is None or inspect.isfunction(act) else type(act), numbers


@torch.compiler.assume_constant_result
def _constant_gate(experts: Any, act: Any, numbers: Numbers) -> Gate | None:
    return gate_of(experts, act, numbers)


def _or_decline(module: Any, found: Gate | str) -> Gate | None:
    if isinstance(found, str):
        _say(type(module).__name__, found)
        return None
    return found


@torch.compiler.assume_constant_result
def _say(name: str, reason: str) -> None:
    declined(name, reason)


def after_unregister(default: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """What experts call under zoo's name after `unregister()`: transformers' own function."""

    def forward(self: torch.nn.Module, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
        _say(type(self).__name__, 'experts_implementation="zoo" is switched off; call zoo.transformers.register() to switch it on')
        return default(self, hidden_states, top_k_index, top_k_weights)

    return forward


def _default(registry: str) -> Any:
    from transformers.integrations import finegrained_fp8, moe

    return (moe if registry == "ALL_EXPERTS_FUNCTIONS" else finegrained_fp8).__dict__[registry]["grouped_mm"]

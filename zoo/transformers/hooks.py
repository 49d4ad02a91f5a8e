"""`register()`: puts zoo into the registries of the installed transformers. A hook that is not as zoo knows it stays off, and a warning says why."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from zoo.errors import ZooError
from zoo.transformers.declined import DEFAULT, forget, warn_once

NAME = "zoo"
_EXPERTS = ("self", "hidden_states", "top_k_index", "top_k_weights")
_OPTIONS = ("experts_class", "experts_interface", "is_concatenated", "is_transposed", "has_bias", "has_gate", "has_post_expert_norm")


class _Unlike(Exception):
    """Why a hook of the installed transformers cannot be used."""


@dataclass
class Hooks:
    """What `register` found: by the name of a hook "on", or why it is off."""

    version: str
    states: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"zoo in transformers {self.version}"]
        return "\n".join([*lines, *(f"  {name:<28} {state}" for name, state in self.states.items())])


_undo: dict[str, Callable[[], None]] = {}


def register() -> Hooks:
    """Switches zoo on for the models that this process loads from now on. Calling it again changes nothing."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError:
        raise ZooError("zoo.transformers.register: transformers is not installed: pip install 'cubin-zoo[transformers]'") from None
    found = Hooks(transformers.__version__)
    for name, switch in _HOOKS.items():
        if name == "PEFT merges" and importlib.util.find_spec("peft") is None:
            continue
        try:
            if name not in _undo:
                _undo[name] = switch()
            found.states[name] = "on"
        except Exception as error:  # another version of transformers may raise anything
            found.states[name] = f"off: {error}"
            instead = "merge adapters before the first call of a model" if name == "PEFT merges" else DEFAULT
            warn_once(name, f"transformers {transformers.__version__}: {error}; {instead}")
    return found


def unregister() -> None:
    """Takes zoo out of all registries. Models that have its layers keep them; experts that called it call transformers' own, with a warning."""
    for name in list(_undo):
        _undo.pop(name)()
    forget()


def _module(name: str) -> Any:
    return importlib.import_module(f"transformers.{name}")


def _check_arguments(function: Callable[..., Any], wanted: tuple[str, ...]) -> None:
    found = tuple(inspect.signature(function).parameters)
    if found != wanted:
        raise _Unlike(f"{function.__name__} has the arguments {', '.join(found)}; zoo knows {', '.join(wanted)}")


def _experts() -> Callable[[], None]:
    from zoo.transformers.experts import experts_forward

    given = inspect.signature(_module("integrations.moe").use_experts_implementation).parameters
    unknown = [name for name in given if name not in _OPTIONS]
    if unknown:  # experts that have it would be multiplied as if they had not
        raise _Unlike(f"use_experts_implementation has the argument {unknown[0]}, which zoo does not know")
    return _in_registry(_module("integrations.moe").ALL_EXPERTS_FUNCTIONS, experts_forward)


def _fp8_experts() -> Callable[[], None]:
    from zoo.transformers.experts import fp8_experts_forward

    return _in_registry(_module("integrations.finegrained_fp8").ALL_FP8_EXPERTS_FUNCTIONS, fp8_experts_forward)


def _in_registry(registry: Any, forward: Callable[..., Any]) -> Callable[[], None]:
    """Models that live longer than zoo's registration look its name up in each call, so a stand-in stays when zoo goes."""
    from zoo.transformers.experts import after_unregister

    default = registry["grouped_mm"]
    _check_arguments(default, _EXPERTS)
    registry.register(NAME, forward)
    return lambda: registry.register(NAME, after_unregister(default))


def _fp8_linear() -> Callable[[], None]:
    from zoo.transformers.linears import ARGUMENTS, linear_before

    module = _module("integrations.finegrained_fp8")
    default = module.fp8_linear
    _check_arguments(default, ARGUMENTS)
    module.fp8_linear = linear_before(default)
    return lambda: setattr(module, "fp8_linear", default)


def _quantizer() -> Callable[[], None]:
    auto = _module("quantizers.auto")
    from zoo.transformers.config import METHOD, ZooConfig
    from zoo.transformers.quantizer import ZooQuantizer

    _check_arguments(auto.HfQuantizer.param_needs_quantization, ("self", "model", "param_name", "kwargs"))
    auto.AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD], auto.AUTO_QUANTIZER_MAPPING[METHOD] = ZooConfig, ZooQuantizer

    def undo() -> None:
        del auto.AUTO_QUANTIZATION_CONFIG_MAPPING[METHOD], auto.AUTO_QUANTIZER_MAPPING[METHOD]

    return undo


def _mxfp4() -> Callable[[], None]:
    auto = _module("quantizers.auto")
    from zoo.transformers.mxfp4 import ZooMxfp4Quantizer

    theirs = auto.AUTO_QUANTIZER_MAPPING["mxfp4"]
    _check_arguments(theirs.get_weight_conversions, ("self",))
    auto.AUTO_QUANTIZER_MAPPING["mxfp4"] = ZooMxfp4Quantizer
    return lambda: auto.AUTO_QUANTIZER_MAPPING.update(mxfp4=theirs)


def _merges() -> Callable[[], None]:
    from zoo.transformers.adapters import MERGES, base, follow_merges

    for name, wanted in MERGES.items():
        _check_arguments(getattr(base(), name), wanted)
    return follow_merges()


_HOOKS: dict[str, Callable[[], Callable[[], None]]] = {
    "experts": _experts,
    "FP8 experts": _fp8_experts,
    "FP8 linears": _fp8_linear,
    "ZooConfig": _quantizer,
    "MXFP4 experts": _mxfp4,
    "PEFT merges": _merges,
}

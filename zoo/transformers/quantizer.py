"""What `from_pretrained` does with a `ZooConfig`.

float checkpoint      each weight is quantised on its device as it arrives, so float weights of one layer exist at a time
saved by zoo          the saved bytes become the layers' weights
frozen=False          linear layers become zoo.torch.nn.Linear with their parameters, experts run experts_implementation="zoo"
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cache
from typing import Any

import torch
from safetensors import safe_open
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.quantizers.base import HfQuantizer
from transformers.quantizers.quantizers_utils import get_module_from_name, should_convert_module

from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, Linear
from zoo.torch.nn.formats import TRAINING, check_device, format_of
from zoo.torch.nn.layer import Layer
from zoo.torch.nn.replace import _become
from zoo.torch.quantized import Quantized
from zoo.torch.serving import no_driver
from zoo.transformers.config import ZooConfig
from zoo.transformers.declined import declined, warn_once
from zoo.transformers.experts import arrangement

_ROUTERS = ("gate", "router")  # ends of names, of products that choose experts, and names of modules that consist of such
_MATRICES = ("gate_up_proj", "down_proj")
_WEIGHTS = (".weight", *_MATRICES)
_CODES = ("F8", "F4", "U8", "I8")  # dtypes of safetensors
_PARTS = ("elements", "scales", "tensor_scale", "bias")


class ZooQuantizer(HfQuantizer):
    requires_calibration = False
    quantization_config: ZooConfig

    def __init__(self, quantization_config: ZooConfig, **kwargs: Any):
        super().__init__(quantization_config, **kwargs)
        self.pre_quantized: bool = kwargs.get("pre_quantized", True) and quantization_config.frozen
        self.linears: dict[str, Quantized | None] = {}  # weights that have arrived, by the layer's name
        self.experts: dict[str, Experts] = {}
        self.expected: dict[str, torch.Tensor] = {}  # tensors of a saved model, without memory
        self.saved: list[str] = []  # names of its tensors in the files, which may be older names

    @property
    def experts_format(self) -> str:
        return self.quantization_config.experts_format or self.quantization_config.format

    def validate_environment(self, *arguments: Any, device_map: Any = None, **others: Any) -> None:
        for place in device_map.values() if isinstance(device_map, dict) else [device_map]:
            if place == "disk":
                raise ArgumentError("ZooConfig: layers of zoo cannot be on disk; leave 'disk' out of device_map")
            if isinstance(place, int) or (isinstance(place, (str, torch.device)) and str(place).startswith("cuda")):
                device = torch.device("cuda", place) if isinstance(place, int) else torch.device(place)
                check_device(self.quantization_config.format, device)
                check_device(self.experts_format, device)
                if reason := no_driver():
                    raise ArgumentError(f"ZooConfig: {reason}")

    def _process_model_before_weight_loading(self, model: Any, **others: Any) -> None:
        _check_ranks(model, self.quantization_config.frozen)
        files = [str(file) for file in others.get("checkpoint_files") or [] if str(file).endswith(".safetensors")]
        if not self.pre_quantized:
            _check_numbers(files)
        _check_names(model, self.quantization_config.modules_to_not_convert or [])
        if not self.quantization_config.frozen:
            return  # parameters are replaced while weights are loaded
        for name, module in self._chosen(model):
            if has_experts(module):
                self._begin_experts(model, name, module)
            elif self.pre_quantized:
                _become(module, self.quantization_config.format)
                module.freeze()
            else:
                self.linears[name] = None
        self.expected = _tensors(model)
        if self.pre_quantized and files:
            self.saved = saved(files, _PARTS[:-1])
            _check_layers(model, self.saved, self.expected)
        for layer in _frozen(model).values():
            if isinstance(layer, Linear):
                layer.__dict__["weight"] = _stand_in(torch.empty(layer._shape(), device="meta"))
        if not (self.linears or self.experts or self.expected):
            declined(type(model).__name__, "has no linear layer and no experts that zoo could quantise")

    def _chosen(self, model: Any) -> Iterator[tuple[str, Any]]:
        named = self.quantization_config.modules_to_not_convert
        keep = self.get_modules_to_not_convert(model, named, model._keep_in_fp32_modules, add_default_skips=True)
        for name, module in list(model.named_modules()):
            takes = type(module) is torch.nn.Linear or has_experts(module)
            if not takes or _routes(name) or not should_convert_module(name, keep):
                continue
            parent, _, own = name.rpartition(".")
            kind: Any = type(model.get_submodule(parent))
            if self.quantization_config.frozen and not has_experts(module) and reads_weight(kind, own):
                declined(kind.__name__, f"reads the weight of {own} outside of the layer {own}")
                continue
            yield name, module

    def _begin_experts(self, model: Any, name: str, module: Any) -> None:
        gate = arrangement(module)
        if isinstance(gate, str):
            return declined(type(module).__name__, gate)
        experts, rows, columns = module.down_proj.shape
        hidden, intermediate = (columns, rows) if module.is_transposed else (rows, columns)
        about = {**gate._asdict(), "bias": module.has_bias}
        try:
            made = Experts(experts, hidden, intermediate, format=self.experts_format, device="meta", **about).freeze()
        except ArgumentError as error:
            return declined(type(module).__name__, str(error))
        if self.pre_quantized:
            model.set_submodule(name, made)
        else:
            self.experts[name] = made

    def param_needs_quantization(self, model: Any, param_name: str, **others: Any) -> bool:
        place, _, name = param_name.rpartition(".")
        return (place in self.linears and name == "weight") or (place in self.experts and name in _MATRICES)

    def param_element_size(self, model: Any, param_name: str, param: torch.Tensor) -> float:
        if not self.param_needs_quantization(model, param_name):
            size: float = super().param_element_size(model, param_name, param)
            return size
        of_experts = param_name.rpartition(".")[0] in self.experts
        weights = format_of(self.experts_format if of_experts else self.quantization_config.format).weights
        return 0.5625 if weights in ("nvfp4", "mxfp4") else 1.03125  # with scales

    def update_weight_conversions(self, weight_conversions: Any, *arguments: Any) -> Any:
        found = super().update_weight_conversions(weight_conversions, *arguments)
        return _without(found, self.expected) if self.pre_quantized else found

    def get_quantize_ops(self) -> ConversionOps:
        return _Quantise(self)

    def take(self, module: Any, name: str, value: torch.Tensor) -> None:
        """A weight that has arrived, by its name in the model."""
        place, _, part = name.rpartition(".")
        if place in self.linears:
            self.linears[place] = format_of(self.quantization_config.format).constant(value)
        else:
            matrix = getattr(self.experts[place], part.removesuffix("_proj"))
            matrix.begin((value.mT if module.is_transposed else value).contiguous(), None)
            matrix.freeze()

    def _process_model_after_weight_loading(self, model: Any, **others: Any) -> Any:
        if self.expected:
            self._check_loaded(model)
        with undispatched(model):
            return self._begin_serving(model) if self.quantization_config.frozen else self._begin_training(model)

    def _begin_serving(self, model: Any) -> Any:
        for layer in _frozen(model).values():
            layer.__dict__.pop("weight", None)
        for name, weight in self.linears.items():
            module = model.get_submodule(name)
            made = weight or format_of(self.quantization_config.format).constant(module.weight.detach())  # drawn, where no file had it
            _become(module, self.quantization_config.format)
            module._hold(made)
        for name, experts in self.experts.items():
            module = model.get_submodule(name)
            for part in _MATRICES:
                matrix = getattr(experts, part.removesuffix("_proj"))
                if matrix.elements.is_meta:
                    self.take(module, f"{name}.{part}", getattr(module, part).detach())
                if module.has_bias:
                    matrix.bias = torch.nn.Parameter(getattr(module, f"{part}_bias").detach(), requires_grad=False)
            model.set_submodule(name, experts.train(module.training))
        self.linears.clear()
        self.experts.clear()
        if getattr(model, "_weight_conversions", None) is not None:  # which save_pretrained reverts
            model._weight_conversions = _without(model._weight_conversions, _tensors(model))
        return model

    def _check_loaded(self, model: Any) -> None:
        """Transformers fills what a file lacks with any bytes, and compares no shape of a quantised model."""
        wrong, offloaded = [], False
        for name, expected in self.expected.items():
            module, part = get_module_from_name(model, name)
            found = getattr(module, part)
            offloaded |= found.is_meta
            if not getattr(found, "_is_hf_initialized", found.is_meta):  # accelerate keeps no marks of tensors that it takes away
                wrong.append(f"{name} is missing")
            elif (found.shape, found.dtype) != (expected.shape, expected.dtype) and part != "bias":
                wants = f"{tuple(expected.shape)} in {expected.dtype}"
                wrong.append(f"{name}: expected {wants}, got {tuple(found.shape)} in {found.dtype}")
            elif found.shape != expected.shape:
                wrong.append(f"{name}: expected {tuple(expected.shape)}, got {tuple(found.shape)}")
        if offloaded and self.saved:
            wrong += lacking(self.saved, self.expected, _PARTS[:-1])
        self.expected.clear()
        if wrong:
            raise ArgumentError(f"from_pretrained: the files are not those of a model that zoo saved: {'; '.join(wrong[:4])}")

    def _begin_training(self, model: Any) -> Any:
        for _, module in self._chosen(model):
            if not has_experts(module):
                _become(module, self.quantization_config.format)
        if any(has_experts(one) for one in model.modules()):
            model.set_experts_implementation("zoo")
        self.remove_quantization_config(model)  # it is a model with float parameters, which any other code may load
        return model

    def is_serializable(self) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return format_of(self.quantization_config.format).name in TRAINING  # adapters beside frozen linear layers

    @property
    def is_compileable(self) -> bool:
        return True


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """What zoo's frozen layers hold, by its name in the model."""
    tensors = {f"{name}.{part}": getattr(one, part) for name, one in _frozen(model).items() for part in _PARTS}
    return {name: one for name, one in tensors.items() if one is not None}


def _frozen(model: Any) -> dict[str, Layer]:
    return {name: one for name, one in model.named_modules() if isinstance(one, Layer) and one._parameters["weight"] is None}


def _stand_in(weight: Any) -> Any:
    """A weight without memory, until zoo's layers are there. Transformers draws the numbers of no tensor with this mark."""
    weight._is_hf_initialized = True
    return weight


@contextmanager
def undispatched(model: Any) -> Iterator[None]:
    """Takes accelerate's hooks from a model on several devices, and gives it new hooks.

    A hook calls the forward of the layer that was there before zoo's. Hooks that move weights to the device of a call move zoo's buffers
    as well, and all matrices of experts, whose submodules are not called.
    """
    if not any(hasattr(one, "_hf_hook") for one in model.modules()):
        yield
        return
    importlib.import_module("accelerate.hooks").remove_hook_from_module(model, recurse=True)
    for one in model.modules():
        if getattr(vars(one).get("forward"), "__func__", None) is type(one).forward:  # accelerate leaves it on the instance
            del one.forward
    yield
    options = {"skip_keys": model._skip_keys_device_placement, "preload_module_classes": [Experts.__name__]}
    importlib.import_module("accelerate").dispatch_model(model, model.hf_device_map, offload_buffers=True, **options)


def _without(conversions: Iterable[Any], tensors: Iterable[str]) -> list[Any]:
    """Conversions of float checkpoints, without operations that would split or join the elements and scales of zoo's layers."""
    return [one for one in conversions if not (isinstance(one, WeightConverter) and _operates_on(one, tensors))]


def _operates_on(converter: WeightConverter, tensors: Iterable[str]) -> bool:
    tried = [copy.deepcopy(converter)]  # which remembers whether it was used
    with suppress(ValueError, NotImplementedError):  # it has no way back
        tried.append(converter.reverse_transform())
    return any(one.rename_source_key(name)[1] is not None for one in tried for name in tensors)


def _check_ranks(model: Any, frozen: bool) -> None:
    """transformers calls its own product in layers that it cuts, whatever the layer is, and cuts no buffers."""
    if frozen and spread(model, "fsdp", "dp_replicate", "pp", "ep"):
        raise ArgumentError("ZooConfig: frozen layers are not spread over ranks; load the model without a distributed_config")
    if spread(model, "tp"):
        raise ArgumentError("ZooConfig: layers of zoo are not cut for tensor parallelism; load the model without a plan")


def _check_numbers(files: list[str]) -> None:
    """transformers casts codes of a checkpoint whose quantisation it does not know to floats, and drops their scales."""
    for file in files:
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it has no __iter__
                dtype = tensors.get_slice(name).get_dtype() if name.endswith(_WEIGHTS) else ""
                if dtype.startswith(_CODES):
                    raise ArgumentError(
                        f"ZooConfig: {name} is in {dtype}, and its scales would be lost; zoo quantises bf16, f16 and f32 checkpoints, and "
                        "zoo.torch.load reads quantised ones"
                    )


def saved(files: Iterable[str], parts: Collection[str]) -> list[str]:
    """Names of tensors in the files, of which the last word is one of the parts."""
    found = []
    for file in files:
        with safe_open(file, "pt") as tensors:
            found += [name for name in tensors.keys() if name.rpartition(".")[2] in parts]  # noqa: SIM118 - it has no __iter__
    return found


def lacking(names: Iterable[str], expected: Iterable[str], parts: Collection[str]) -> list[str]:
    """What files lack, by numbers of tensors. Names in files may be older names."""
    there, wanted = ([name.rpartition(".")[2] for name in some] for some in (names, expected))
    return [
        f"{wanted.count(part)} tensors '{part}' are expected, and {there.count(part)} are there"
        for part in parts
        if there.count(part) < wanted.count(part)
    ]


def _check_layers(model: Any, names: Iterable[str], expected: Iterable[str]) -> None:
    """Transformers draws a float weight for a layer that is quantised in the files alone. Other models may take a part of the files."""
    there, wanted = ({name.removesuffix(".elements") for name in some if name.endswith(".elements")} for some in (names, expected))
    if len(there) <= len(wanted):  # names in files may be older names
        return
    floats = [name for name, one in model.named_modules() if type(one) is torch.nn.Linear or has_experts(one)]
    unknown = {name for one in there - wanted for name in (one, one.rpartition(".")[0])}  # experts have a matrix in each of two modules
    lost = sorted(
        name for name in floats if any(f".{name}".endswith(f".{one}") or f".{one}".endswith(f".{name}") for one in unknown if one)
    )
    if lost:
        raise ArgumentError(
            f"from_pretrained: {', '.join(lost[:4])}: quantised in the files, and not in this model; load them with the versions of "
            "transformers and zoo that saved them, or quantise the float checkpoint again"
        )


def _routes(name: str) -> bool:
    *modules, own = name.split(".")
    return own.endswith(_ROUTERS) or not {*_ROUTERS}.isdisjoint(modules)


@cache
def reads_weight(kind: type[Any], name: str) -> bool:
    """Whether a class uses the weight of its layer `name` itself, as the mixers of Mamba do. A frozen layer has none.

    Code that asks first whether there is a tensor, as T5's, works without it. Code that runs `if self.training` is left out: it serves nobody.
    """
    used = False
    for base in kind.__mro__:
        if base.__module__.startswith("torch.") or base.__module__ in ("builtins", "transformers.modeling_utils"):
            continue
        with suppress(OSError, TypeError, SyntaxError):  # of a class that was made at run time
            weight, nodes = f"self.{name}.weight", list(_serving(ast.parse(textwrap.dedent(inspect.getsource(base)))))
            if any(isinstance(one, ast.Call) and ast.unparse(one).startswith(f"isinstance({weight}, ") for one in nodes):
                return False
            used |= any(isinstance(one, ast.Attribute) and one.attr == "weight" and ast.unparse(one) == weight for one in nodes)
    return used


def _serving(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of some code, without what runs in training alone."""
    yield node
    for name, part in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.If) and "self.training" in ast.unparse(node.test).split():
            continue
        for one in part if isinstance(part, list) else [part]:
            if isinstance(one, ast.AST):
                yield from _serving(one)


def spread(model: Any, *kinds: str) -> bool:
    """Whether transformers spreads the model over ranks by one of these kinds of parallelism."""
    config = getattr(model.config, "distributed_config", None)
    return any((getattr(config, f"{kind}_size", None) or 1) > 1 for kind in kinds)


def _check_names(model: Any, named: list[str]) -> None:
    """A misspelt entry of modules_to_not_convert would let zoo quantise a layer that is to stay as it is."""
    modules = [name for name, _ in model.named_modules() if name]
    for entry in named:
        try:
            found = any(not should_convert_module(name, [entry]) for name in modules)
        except re.error as error:
            raise ArgumentError(
                f"ZooConfig: modules_to_not_convert: expected a name or a regular expression, got {entry!r}: {error}"
            ) from None
        if not found:
            parts = sorted({name.rpartition(".")[2] for name in modules})
            close = [*get_close_matches(entry, modules, 1, 0.8), *get_close_matches(entry.rpartition(".")[2], parts, 1, 0.8)]
            advice = f"; the nearest name is {close[0]!r}" if close else ""
            warn_once(
                "modules_to_not_convert", f"{entry!r} names no module of {type(model).__name__}, so it keeps no layer from zoo{advice}"
            )


class _Quantise(ConversionOps):
    """Hands weights to the quantizer. Transformers then sets what is left: one tensor of a file may have several layers' weights."""

    def __init__(self, quantizer: ZooQuantizer):
        self.quantizer = quantizer

    def convert(
        self, input_dict: dict[str, Any], *, full_layer_name: str, model: Any, missing_keys: Any = None, **others: Any
    ) -> dict[str, torch.Tensor]:
        left = {}
        for key, value in input_dict.items():
            name = key if len(input_dict) > 1 else full_layer_name
            value = value[0] if isinstance(value, list) else value
            if not self.quantizer.param_needs_quantization(model, name):
                left[name] = value
                continue
            module, part = get_module_from_name(model, name)
            expected = getattr(module, part)
            if value.shape != expected.shape:
                raise ArgumentError(f"{name}: expected {tuple(expected.shape)}, got {tuple(value.shape)}")
            self.quantizer.take(module, name, value)
            instead = torch.empty((), dtype=value.dtype, device=value.device).expand(value.shape)
            module._parameters[part] = _stand_in(torch.nn.Parameter(instead, requires_grad=False))
            if missing_keys is not None:
                missing_keys.discard(name)
        return left


def has_experts(module: Any) -> bool:
    given = [getattr(module, name, None) for name in _MATRICES]
    return all(isinstance(one, torch.nn.Parameter) and one.dim() == 3 for one in given)

"""quantize_: every linear layer of a model becomes zoo's, in place, one after the other."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from zoo.contract.nearest import suggestion
from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError
from zoo.torch.nn.experts import Experts
from zoo.torch.nn.formats import TRAINING, Format, check_device, format_of, tensor_scale_of
from zoo.torch.nn.grouped import GroupedLinear
from zoo.torch.nn.linear import Linear
from zoo.torch.nn.products import NUMBERS

_OURS = (Linear, GroupedLinear, Experts)
_MOST_CLASSES = 3  # of other modules, in a report
_CHUNK = 1 << 21  # elements of a weight that are compared at a time
Skip = str | Iterable[str] | Callable[[str, torch.nn.Module], bool]


@dataclass
class LayerReport:
    """What became of one layer. Errors are relative: the norm of the difference over the norm."""

    name: str
    format: str
    bytes_before: int
    bytes_after: int
    weight_error: float = math.nan
    output_error: float = math.nan
    kept: str = ""  # why it stays as it was


@dataclass
class Report:
    layers: list[LayerReport] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)  # bytes of parameters of other modules, by their class, largest first

    def __iter__(self) -> Iterator[LayerReport]:
        return iter(self.layers)

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, name: str) -> LayerReport:
        for one in self.layers:
            if one.name == name:
                return one
        raise KeyError(name)

    def __str__(self) -> str:
        from zoo.text import table

        header = ["layer", "format", "bytes before", "after", "weights' error", "outputs' error"]
        rows = [
            (
                one.name or "(model)",
                one.format or f"kept: {one.kept}",
                one.bytes_before,
                one.bytes_after,
                _percent(one.weight_error),
                _percent(one.output_error),
            )
            for one in self.layers
        ]
        rest = sum(self.others.values())
        if rest:
            rows.append(("(others)", f"kept: {', '.join(list(self.others)[:_MOST_CLASSES])}", rest, rest, "", ""))
        before, after = sum(one.bytes_before for one in self), sum(one.bytes_after for one in self)
        rows.append(("total", "", before + rest, after + rest, "", ""))
        measured = any(not math.isnan(one.output_error) for one in self.layers)
        return table(header if measured else header[:-1], [row if measured else row[:-1] for row in rows])


def quantize_(model: torch.nn.Module, format: str, *, skip: Skip = (), calibrate: Any = None, frozen: bool = True) -> Report:
    """Turns each torch.nn.Linear of the model into a zoo.torch.nn.Linear, on the device where it is, and says what that changed.

    skip: names or patterns ("lm_head", "*.router", "layers.0": also what is inside), or a function of name and layer. These layers stay.
    calibrate: a batch, (a tensor, or a tuple or dict of arguments), or a function that runs the model. It runs once, before anything
        is changed, and gives the outputs' errors of each layer by itself.
    frozen: False keeps the weights as parameters that train.
    Frozen layers stay in their format. Layers whose weight another module shares stay, and so do layers whose weight torch reads past their
    forward, or whose forward is set on the instance.
    """
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f"quantize_: expected a torch.nn.Module, got a {type(model).__name__}")
    form = format_of(format)
    if not (frozen or form.trains):
        raise ArgumentError(f"quantize_: frozen=False: format '{format}' has no gradients; train in {' or '.join(TRAINING)}")
    layers = {name: one for name, one in model.named_modules() if _is_layer(one)}
    for name, one in layers.items():
        if any(type(weight).__name__ == "DTensor" for weight in _weights(one)):
            raise ArgumentError(
                f"quantize_: the weight of '{name}' is a DTensor; call quantize_ before fully_shard, parallelize_module or distribute_module"
            )
    already = {name: one for name, one in model.named_modules() if isinstance(one, _OURS) and one.frozen}
    reasons = _reasons(model, layers, form.name, frozen, skip, list(already))
    chosen = {name: one for name, one in layers.items() if name not in reasons}
    for one in chosen.values():
        check_device(form.name, _weights(one)[0].device)
    errors = _output_errors(model, chosen, form.name, calibrate) if calibrate is not None else {}
    stacks = _stacks(model, layers)
    report = Report(others=_others(model, layers | already | stacks))
    with _progress(layers) as names:
        for name in names:
            layer, before = layers[name], sum(one.nbytes for one in _weights(layers[name]))
            if name in reasons:
                report.layers.append(LayerReport(name, "", before, before, kept=reasons[name]))
                continue
            error = _weight_error(form, [one.detach() for one in _weights(layer)])
            _become(layer, form.name)
            if frozen:
                layer.freeze()
            report.layers.append(LayerReport(name, form.name, before, _bytes(layer), error, errors.get(name, math.nan)))
    for name, layer in already.items():
        report.layers.append(LayerReport(name, "", _bytes(layer), _bytes(layer), kept=f"frozen in {layer.format}"))
    for name, module in stacks.items():
        size = sum(one.nbytes for one in module.parameters(recurse=False))
        report.layers.append(LayerReport(name, "", size, size, kept=_of_others(module)))
    return report


def _stacks(model: torch.nn.Module, layers: dict[str, Any]) -> dict[str, torch.nn.Module]:
    """Modules of other libraries with a matrix of each expert in one parameter, as experts of transformers have."""
    own = {id(part) for layer in layers.values() for part in _parts(layer)}
    found = {}
    for name, module in model.named_modules():
        if id(module) not in own and sum(one.dim() == 3 for one in module.parameters(recurse=False)) > 1:
            found[name] = module
    return found


def _of_others(module: torch.nn.Module) -> str:
    remedy = "; zoo.transformers.ZooConfig replaces these while loading" if type(module).__module__.startswith("transformers.") else ""
    return f"experts of {type(module).__name__}{remedy}"


def _others(model: torch.nn.Module, layers: dict[str, Any]) -> dict[str, int]:
    """Bytes of the parameters that no such layer has, by the class of their module: embeddings, norms, other libraries' layers."""
    seen = {id(parameter) for layer in layers.values() for parameter in layer.parameters()}
    found: dict[str, int] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                found[type(module).__name__] = found.get(type(module).__name__, 0) + parameter.nbytes
    return dict(sorted(found.items(), key=lambda one: -one[1]))


def _is_layer(module: torch.nn.Module) -> bool:
    """Subclasses of others mean something else; a layer of ours may change its format as long as it has its weight."""
    return type(module) is torch.nn.Linear or (isinstance(module, _OURS) and not module.frozen)


def _parts(layer: Any) -> list[Any]:
    """The modules that have the weights of a layer."""
    return [layer.gate_up, layer.down] if isinstance(layer, Experts) else [layer]


def _weights(layer: Any) -> list[torch.Tensor]:
    return [one.weight for one in _parts(layer)]


def _bytes(layer: Any) -> int:
    """Of a layer of ours, whether it is frozen or not."""
    held = [getattr(part, one) for part in _parts(layer) for one in ("weight", "elements", "scales", "tensor_scale")]
    return sum(one.nbytes for one in held if one is not None)


def _become(module: Any, format: str) -> None:
    """Changes the class, so that hooks, names and all who hold the module keep it."""
    if type(module) is torch.nn.Linear:
        module.__class__ = Linear
        module._begin(format)
        return
    module.format = format
    for part in _parts(module):
        part.format = format
        part._kept.clear()


def _reasons(model: torch.nn.Module, layers: dict[str, Any], format: str, frozen: bool, skip: Skip, already: list[str]) -> dict[str, str]:
    """Which layers stay as they are, and why. already: names of frozen layers, which may be skipped too."""
    found = {}
    owners: dict[int, list[str]] = {}
    direct = set()
    for name, module in model.named_modules():
        for one, parameter in module._parameters.items():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(f"{name}.{one}".lstrip("."))
        if isinstance(module, torch.nn.TransformerEncoderLayer):
            direct |= {id(module.linear1), id(module.linear2)}
    if callable(skip):
        skipped = {name for name, one in layers.items() if skip(name, one)}
    else:
        modules = [name for name, _ in model.named_modules() if name]  # some stay anyway: routers of transformers are no linear layers
        skipped = _matching(_patterns(skip), [*layers, *already], modules)
    for name, layer in layers.items():
        own = [one for part in _parts(layer) for one in owners.get(id(part._parameters.get("weight")), [])]
        others = [one for one in own if not one.startswith(f"{name}.".lstrip("."))]
        strange = [one.dtype for one in _weights(layer) if one.dtype not in NUMBERS]
        if name in skipped:
            found[name] = "skipped"
        elif len(own) < len(_parts(layer)):
            found[name] = "its weight is no parameter, but computed by a hook"
        elif others:
            found[name] = f"shares its weight with {others[0]}"
        elif type(layer) is torch.nn.Linear and "forward" in layer.__dict__:
            found[name] = "its forward is set on the instance, as hooks of accelerate do"
        elif id(layer) in direct:
            found[name] = "torch.nn.TransformerEncoderLayer reads its weight itself"
        elif strange:
            found[name] = f"weight in {strange[0]}"
        elif isinstance(layer, Experts) and (why := layer.lacks(format, frozen)):
            found[name] = why
    return found


def _patterns(skip: str | Iterable[str]) -> list[str]:
    found = [skip] if isinstance(skip, str) or not isinstance(skip, Iterable) else list(skip)
    for one in found:
        if not isinstance(one, str):
            raise ArgumentError(f"quantize_: skip: expected names or patterns, or a function of name and layer, got {shown(one)}")
    return found


def _matching(patterns: list[str], names: list[str], modules: list[str]) -> set[str]:
    """The names that patterns match. A pattern that matches only other modules is accepted, one that matches nothing is refused."""
    found = set()
    for pattern in patterns:
        some = {name for name in names if any(fnmatch.fnmatchcase(one, pattern) for one in _above(name))}
        if not some and not any(fnmatch.fnmatchcase(one, pattern) for one in modules):
            raise ArgumentError(
                f"quantize_: skip: no module is named '{pattern}'; {suggestion(pattern, names, '`print(model)` shows all')}"
            )
        found |= some
    return found


def _above(name: str) -> list[str]:
    """The name, and the names of all modules that it is inside of."""
    words = name.split(".")
    return [".".join(words[: count + 1]) for count in range(len(words))]


def _weight_error(form: Format, weights: list[torch.Tensor]) -> float:
    """Of parts of the weights, so that their numbers are never there twice. Blocks end where parts do."""
    sums: list[torch.Tensor] = []
    for weight in (one.flatten(0, -2) for one in weights):
        if weight.is_meta or not weight.numel():
            return math.nan
        rows = max(_CHUNK // weight.shape[1] // 128, 1) * 128
        scale = tensor_scale_of(weight) if form.weights == "nvfp4" else None
        for part in weight.split(rows):
            numbers = form.numbers(form.frozen(part, scale), torch.float32)[: part.shape[0], : part.shape[1]]
            squares = [one.float().square().sum(dtype=torch.float64) for one in (numbers - part.float(), part)]
            sums.append(torch.stack(squares))
    off, whole = torch.stack(sums).sum(0).tolist()
    return math.sqrt(off / whole) if whole else 0.0


def _output_errors(model: torch.nn.Module, layers: dict[str, Any], format: str, calibrate: Any) -> dict[str, float]:
    """Of each layer, given the inputs that it has in the unchanged model."""
    sums: dict[str, list[torch.Tensor]] = {}

    def compare(name: str) -> Callable[..., None]:
        def hook(layer: Any, given: Any, named: Any, exact: torch.Tensor) -> None:
            if isinstance(layer, torch.nn.Linear):
                other: Any = Linear.from_float(layer, format, frozen=True)
                off = (other(*given, **named).float() - exact.float()).square().sum(dtype=torch.float64)
                sums.setdefault(name, []).append(torch.stack([off, exact.float().square().sum(dtype=torch.float64)]))

        return hook

    with ExitStack() as hooks, torch.no_grad():
        for name, layer in layers.items():
            hooks.callback(layer.register_forward_hook(compare(name), with_kwargs=True).remove)
        if callable(calibrate):
            calibrate(model)
        elif isinstance(calibrate, dict):
            model(**calibrate)
        else:
            model(*calibrate) if isinstance(calibrate, tuple | list) else model(calibrate)
    found = {}
    for name, parts in sums.items():
        total = torch.stack(parts).sum(0)
        off, whole = (math.nan, 1.0) if total.is_meta else total.tolist()
        found[name] = math.sqrt(off / whole) if whole else 0.0
    return found


def _progress(names: Iterable[str]) -> Any:
    from zoo.text import progress

    return progress(names := list(names), len(names), "quantising")


def _percent(error: float) -> str:
    return "" if math.isnan(error) else f"{100 * error:.2f} %"

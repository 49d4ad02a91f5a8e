"""A whole layer's step as zoo and other libraries run it, checked, timed in a CUDA graph, and traced kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from zoo.benchmark.graphs import TorchEvents, TorchReplay, in_turns
from zoo.benchmark.layer_models import MODELS, Model
from zoo.benchmark.rivals import Unavailable, imported_torch
from zoo.benchmark.trace import Bar, bars, last_of, traced
from zoo.benchmark.trained_layers import Trained, relative, with_gradients
from zoo.errors import ArgumentError

_ROUNDS = 11
# Root mean square of the error of an element, by the format of tokens or weights
_ROUNDING = {"fp8b128": 0.026, "fp8token": 0.026, "mxfp8": 0.028, "nvfp4": 0.1, "mxfp4": 0.13, "bf16": 0.003}
_MARGIN = 1.25
_SETS = 2  # of tokens, in turn: the L2 cache holds none of what a call reads first


@dataclass(frozen=True)
class Asked:
    """Experts of a model's or of other sizes, or with `linear` a linear layer of N outputs and K inputs."""

    tokens: int
    format: str
    backward: bool
    linear: tuple[int, int] | None = None
    experts: Model | None = None
    model: str | None = None  # the name of a model, whose own weights and biases are served

    def __str__(self) -> str:
        what = "forward and backward" if self.backward else "forward"
        if self.linear is not None:
            return f"linear, N {self.linear[0]}, K {self.linear[1]}, {self.format}, {self.tokens:,} tokens, {what}"
        assert self.experts is not None
        one = self.experts
        sizes = f"{one.experts} experts of {one.hidden} x {one.inner}, top {one.top_k}"
        return f"{self.model or 'experts'}, {sizes}, {self.format}, {self.tokens:,} tokens, {what}"


@dataclass(frozen=True)
class Seen:
    """microseconds: of a step in a CUDA graph, or between events where no graph can hold it."""

    name: str
    microseconds: float
    in_graph: bool
    bars: tuple[Bar, ...]


Step = Callable[[], Any]


def check(asked: Asked) -> None:
    """Refuses what no layer computes, on any device."""
    imported_torch()
    from zoo.torch.nn.formats import TRAINING, format_of

    form = format_of(asked.format)
    if asked.backward and not form.trains:
        raise ArgumentError(f"format '{asked.format}' has no gradients; these formats have: {', '.join(TRAINING)}")
    if asked.experts is not None:
        for name, size in (("hidden", asked.experts.hidden), ("intermediate", asked.experts.inner)):
            if size % form.multiple:
                raise ArgumentError(f"{name}: {asked.format} needs a multiple of {form.multiple}, got {size}")


def steps(torch: Any, asked: Asked, device: str, alone: bool) -> tuple[dict[str, list[Step]], dict[str, str]]:
    """The steps of each library, each for several sets of tokens, and why other libraries have none."""
    if asked.model is not None and not asked.backward and MODELS[asked.model].format == asked.format:
        return _served(torch, asked, device, alone)
    made, errors = (_linear if asked.linear is not None else _experts)(torch, asked, device)
    refused = dict[str, str]()
    tokens, weights = _formats(asked.format)
    each = 1 if asked.linear is not None else 3
    bound = _MARGIN * (each * (_ROUNDING[tokens] ** 2 + _ROUNDING[weights] ** 2)) ** 0.5
    if not all(error <= bound for error in errors):
        refused["zoo"] = f"wrong: its error is {max(errors):.2g} of torch bf16's result, {bound:.2g} is allowed"
        del made["zoo"]
    if alone:
        del made["torch bf16"]
    return made, refused


def see(torch: Any, name: str, calls: Sequence[Step], device: int) -> Seen:
    """Times a step and traces one replay."""
    try:
        replay: Any = TorchReplay(torch, calls, device)
        once: Any = TorchReplay(torch, calls, device, once=True)
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:  # what waits for the host cannot be captured
        torch.cuda.synchronize()
        time = in_turns({name: TorchEvents(torch, calls[0])}, _ROUNDS)[name]
        return Seen(name, time, False, tuple(bars(traced(torch, calls[0]))))
    time = in_turns({name: replay}, _ROUNDS)[name]
    found = last_of(bars(traced(torch, once.microseconds)), len(calls))
    for one in (replay, once):
        one.close()
    return Seen(name, time, True, tuple(found))


def _formats(name: str) -> tuple[str, str]:
    from zoo.torch.nn.formats import format_of

    return format_of(name).tokens, format_of(name).weights


def _linear(torch: Any, asked: Asked, device: str) -> tuple[dict[str, list[Step]], list[float]]:
    """The steps, and the errors of zoo's results beside torch's."""
    from zoo.torch.nn import Linear

    assert asked.linear is not None
    N, K = asked.linear
    theirs = torch.nn.Linear(K, N, bias=False, device=device, dtype=torch.bfloat16)
    ours = Linear.from_float(theirs, asked.format, frozen=not asked.backward)

    def call(layer: Any, x: Any, dy: Any) -> Any:
        if asked.backward:
            return with_gradients(torch, layer, x, (theirs.weight,), dy)
        with torch.no_grad():
            return (layer(x),)

    def drawn() -> tuple[Any, Any]:
        x, dy = (torch.randn(asked.tokens, size, device=device, dtype=torch.bfloat16) for size in (K, N))
        return x.requires_grad_(asked.backward), dy

    sets = [drawn() for _ in range(_SETS)]
    made: dict[str, list[Step]] = {
        name: [partial(call, layer, *one) for one in sets] for name, layer in (("zoo", ours), ("torch bf16", theirs))
    }
    results = zip(made["zoo"][0](), made["torch bf16"][0](), strict=True)
    return made, [relative(one, other) for one, other in results]


def _experts(torch: Any, asked: Asked, device: str) -> tuple[dict[str, list[Step]], list[float]]:
    from zoo.benchmark.torch_experts import experts as in_torch

    assert asked.experts is not None
    one = Trained(torch, asked.experts, asked.tokens, "uniform", device, asked.format)
    if asked.backward:
        rival = partial(one.rival, in_torch)
        return {"zoo": [one.zoo], "torch bf16": [rival]}, list(one.errors(one.zoo(), rival()).values())
    one.layer.freeze()

    def ours() -> Any:
        with torch.no_grad():
            return one.layer(one.x, one.ids, one.weights)

    def theirs() -> Any:
        with torch.no_grad():
            return in_torch(one.x, one.ids, one.weights, *one.beside)

    return {"zoo": [ours], "torch bf16": [theirs]}, [relative(ours(), theirs())]


def _served(torch: Any, asked: Asked, device: str, alone: bool) -> tuple[dict[str, list[Step]], dict[str, str]]:
    """A model's own weights, by every library that has such a layer."""
    from zoo.benchmark.moe_layers import ROUTED, Layer, Tokens
    from zoo.benchmark.product import Product
    from zoo.benchmark.rivals import error_of

    assert asked.experts is not None
    layer, made, refused = Layer(torch, asked.experts, device), dict[str, list[Step]](), dict[str, str]()
    sets = [Tokens(layer, asked.tokens) for _ in range(_SETS)]
    product = Product("", "", asked.tokens, asked.experts.hidden, asked.experts.inner)
    for name, kind in ROUTED.items():
        if alone and not name.startswith("zoo"):
            continue
        try:
            library = kind(layer)
            cases = [library.case(one) for one in sets]
            error = error_of(torch, cases[0], product, device)
            if not error <= cases[0].tolerance:
                raise Unavailable(f"wrong: its error is {error:.2g} of the result's, {cases[0].tolerance:.2g} is allowed")
            made[name] = [one.call for one in cases]
        except Unavailable as reason:
            refused[name] = str(reason)
        except Exception as refusal:  # of another library: whatever it raises is its answer
            if name.startswith("zoo"):
                raise
            refused[name] = f"refuses: {type(refusal).__name__}: {str(refusal).strip()[:160]}"
    return made, refused

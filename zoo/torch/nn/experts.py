"""A layer of experts: route, two grouped GEMMs, combine. Frozen in any format for serving, or with master weights for training in FP8."""

from __future__ import annotations

import math
from typing import Any

import torch

from zoo.contract.whole_numbers import shown
from zoo.errors import ArgumentError
from zoo.torch.nn.experts_serving import RECIPES, Gating, Matrices, Recipe, paired
from zoo.torch.nn.experts_training import experts_fp8b128
from zoo.torch.nn.frozen import Frozen
from zoo.torch.nn.routing import combine, route
from zoo.torch.quantized import Quantized, quantize

_ACTIVATIONS = ("silu", "gpt_oss", "deepseek_v4")


class Experts(Frozen):
    """y[t] = sum over j of weights[t, j] * down[e] (act(gate[e] x[t]) * up[e] x[t]), e = ids[t, j], plus what `shared` makes of x.

    With format="fp8b128" the layer has parameters `gate_up` (E, 2 I, K) and `down` (E, K, I) and trains. A frozen layer has buffers of
    quantised weights: fill them by `load_state_dict`, or make the layer by `from_float` or `from_checkpoint`.

    gates: the order of gate_up's rows; "halves" has all gates before all ups, "interleaved" each gate before its up.
    first: id of the first expert here. Ids of other experts, and -1, are dropped. total: number of experts on all ranks.
    check_ids: refuses ids outside -1 .. total - 1 on the device, for debugging.
    """

    def __init__(
        self,
        experts: int,
        hidden: int,
        intermediate: int,
        *,
        format: str = "fp8b128",
        activation: str = "silu",
        limit: float | None = None,
        gates: str = "halves",
        bias: bool = False,
        shared: torch.nn.Module | None = None,
        first: int = 0,
        total: int | None = None,
        check_ids: bool = False,
        frozen: bool | None = None,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        _check(format, activation, limit, gates, bias)
        self.experts, self.hidden, self.intermediate, self.format = experts, hidden, intermediate, format
        self.activation, self.limit, self.gates, self.bias = activation, limit, gates, bias
        self.first, self.total, self.check_ids = first, first + experts if total is None else total, check_ids
        self.frozen = format != "fp8b128" if frozen is None else frozen
        if not self.frozen and format != "fp8b128":
            raise ArgumentError(f"Experts: {format} has no backward pass; train with format='fp8b128', or leave frozen=False out")
        self.shared = shared
        shapes = {"gate_up": (experts, 2 * intermediate, hidden), "down": (experts, hidden, intermediate)}
        for name, shape in shapes.items():
            if not self.frozen:
                bound = 1 / math.sqrt(shape[-1])
                weight = torch.empty(shape, device=device, dtype=dtype).uniform_(-bound, bound)
                self.register_parameter(name, torch.nn.Parameter(weight))
                continue
            made = self._prepared(name, _plain(torch.empty(shape, device="meta"), self.recipe), None)
            if bias:
                made["bias"] = torch.empty(shape[:-1], device="meta")
            for part, one in made.items():
                self.keep(f"{name}_{part}", torch.zeros(one.shape, dtype=one.dtype, device=device))

    @classmethod
    def from_float(
        cls,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        format: str = "fp8b128",
        *,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        **options: Any,
    ) -> Experts:
        """A frozen layer of weights (E, 2 I, K) and (E, K, I), or with frozen=False a layer that trains them."""
        if gate_up.dim() != 3 or down.dim() != 3 or gate_up.shape[1] % 2 or down.shape != (*gate_up.shape[::2], gate_up.shape[1] // 2):
            got = f"{tuple(gate_up.shape)} and {tuple(down.shape)}"
            raise ArgumentError(f"Experts.from_float: expected gate_up (E, 2 I, K) and down (E, K, I), got {got}")
        if not options.get("frozen", True):
            made = cls(*_sizes(down.shape), format=format, **options, device=gate_up.device, dtype=gate_up.dtype)
            made.load_state_dict({"gate_up": gate_up, "down": down}, strict=False)
            return made
        recipe = _recipe(format)
        return cls.from_quantized(
            *(_plain(one.detach(), recipe) for one in (gate_up, down)), format, gate_up_bias=gate_up_bias, down_bias=down_bias, **options
        )

    @classmethod
    def from_quantized(
        cls,
        gate_up: Quantized,
        down: Quantized,
        format: str,
        *,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        **options: Any,
    ) -> Experts:
        """A frozen layer of weights by rows with plain scales, of fp8b128 by squares. NVFP4 has a tensor scale for each expert, (E,),
        or for gates and ups of each, (E, 2)."""
        if (gate_up_bias is None) != (down_bias is None):
            raise ArgumentError("Experts: a layer has both biases or none; pass zeros for the other")
        with torch.device("meta"):
            made = cls(*_sizes(down.stored_shape), format=format, bias=down_bias is not None, **{**options, "shared": None, "frozen": True})
        made.shared = options.get("shared")
        for name, weights, bias in (("gate_up", gate_up, gate_up_bias), ("down", down, down_bias)):
            for part, one in made._prepared(name, weights, bias).items():
                made.keep(f"{name}_{part}", one)
        return made

    @property
    def recipe(self) -> Recipe:
        return _recipe(self.format)

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        tokens = x.reshape(-1, x.shape[-1])
        ids, weights = self._routing(tokens, ids, weights)
        residual = None if self.shared is None else self.shared(x).reshape(tokens.shape).bfloat16()
        if self.frozen:
            y = self._served(tokens, ids, weights, residual)
        else:
            y = experts_fp8b128(tokens, ids, weights, residual, self.gate_up, self.down, self.first, self.gates)
        return y.to(x.dtype).view(x.shape)

    def _served(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        if x.requires_grad and torch.is_grad_enabled():
            raise ArgumentError(
                f"Experts: frozen {self.format} weights pass no gradient to x; pass x.detach(), call the layer under torch.no_grad(), "
                "or train with format='fp8b128' and frozen=False"
            )
        routing = route(ids, weights.detach(), self.experts, self.first)
        gating = Gating(self.gates, self.activation, self.limit, self.hidden, self.intermediate)
        d = self.recipe.multiply(x.detach(), self._matrices("gate_up"), self._matrices("down"), routing, gating)
        return combine(d, routing.rows, weights, residual)

    def _routing(self, tokens: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if tokens.shape[1] != self.hidden:
            raise ArgumentError(f"Experts: x: expected (..., {self.hidden}), got rows of {tokens.shape[1]}")
        ids, given = ids.reshape(-1, ids.shape[-1]), weights
        weights = weights.reshape(-1, weights.shape[-1]).float()
        if ids.shape[0] != tokens.shape[0] or ids.dtype not in (torch.int32, torch.int64):
            raise ArgumentError(f"Experts: ids: expected ({tokens.shape[0]}, top_k) in int32 or int64, got {tuple(ids.shape)} in {ids.dtype}")
        if ids.shape != weights.shape:
            raise ArgumentError(f"Experts: weights: expected {tuple(ids.shape)}, as ids have it, got {tuple(given.shape)}")
        if self.check_ids:
            torch._assert_async(
                ((ids >= -1) & (ids < self.total)).all(), f"Experts: ids: an id is outside -1 .. {self.total - 1}, the experts of all ranks"
            )
        return ids, weights

    def _prepared(self, name: str, weights: Quantized, bias: torch.Tensor | None) -> dict[str, torch.Tensor]:
        """The buffers of one matrix, without the matrix's name."""
        gates = self.gates if name == "gate_up" else None
        elements, scales = self.recipe.prepare(weights, gates)
        made = {"q": elements, "scales": scales, "alpha": _alpha(weights, gates, self.format), "bias": bias}
        return {part: _storable(one.detach()) for part, one in made.items() if one is not None}

    def _matrices(self, name: str) -> Matrices:
        scales, alpha, bias = (getattr(self, f"{name}_{part}", None) for part in ("scales", "alpha", "bias"))
        bias = paired(bias, self.gates) if name == "gate_up" and bias is not None else bias
        return Matrices(getattr(self, f"{name}_q"), scales, alpha, bias)

    def extra_repr(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        kept = "frozen" if self.frozen else "trains"
        return f"{self.experts} experts, {self.hidden}, {self.intermediate}, {self.format}, {self.activation}{limit}, {kept}"


def _recipe(format: str) -> Recipe:
    if format not in RECIPES:
        raise ArgumentError(f"Experts: no format {shown(format)}; there are {', '.join(RECIPES)}")
    return RECIPES[format]


def _check(format: str, activation: str, limit: float | None, gates: str, bias: bool) -> None:
    recipe, others = _recipe(format), ", ".join(name for name, one in RECIPES.items() if one.epilogue)
    if activation not in _ACTIVATIONS:
        raise ArgumentError(f"Experts: no activation {shown(activation)}; there are {', '.join(_ACTIVATIONS)}")
    if gates not in ("halves", "interleaved"):
        raise ArgumentError(f"Experts: gates: expected 'halves' or 'interleaved', got {shown(gates)}")
    if limit is not None and not limit > 0:
        raise ArgumentError(f"Experts: limit: expected a number above 0, got {shown(limit)}")
    if limit is not None and activation == "silu":
        raise ArgumentError("Experts: silu has no limit; pass activation='deepseek_v4' for silu with limits, or leave limit out")
    for name, wanted in ((f"activation {activation}", activation != "silu"), ("bias", bias)):
        if wanted and not recipe.epilogue:
            raise ArgumentError(f"Experts: {format} has no {name}; these formats have it: {others}")


def _sizes(down: tuple[int, ...]) -> tuple[int, int, int]:
    return down[0], down[1], down[2]


def _plain(weight: torch.Tensor, recipe: Recipe) -> Quantized:
    if recipe.weights == "fp8b128":
        return quantize(weight, "fp8b128", direction="squares", scaling="pow2")
    return quantize(weight, recipe.weights, layout="plain")


def _alpha(weights: Quantized, gates: str | None, format: str) -> torch.Tensor | None:
    """The factor of each expert (E,), of gates and ups (E, 2)."""
    alpha, experts = weights.tensor_scale, weights.stored_shape[0]
    if alpha is None:
        return None
    if gates is None:
        return alpha.reshape(-1).expand(experts).contiguous()
    alpha = alpha.reshape(-1, 1) if alpha.dim() < 2 else alpha
    alpha = alpha.expand(experts, 2).contiguous()
    if format == "nvfp4" and alpha.device.type != "meta" and not torch.equal(alpha[:, 0], alpha[:, 1]):
        raise ArgumentError(
            "Experts: nvfp4 has one tensor scale for gates and ups of an expert, and these have two; "
            "use format 'fp8_nvfp4' or 'bf16_nvfp4', or quantise gates and ups together"
        )
    return alpha


def _storable(one: torch.Tensor) -> torch.Tensor:
    """Dtypes that every torch can save, load and move."""
    return one if one.dtype in (torch.float32, torch.bfloat16, torch.float8_e4m3fn) else one.view(torch.uint8)

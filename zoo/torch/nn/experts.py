"""A layer of experts: route, two grouped GEMMs, combine. It trains with master weights, or serves frozen weights of any format."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import torch

from zoo.contract.whole_numbers import shown, whole
from zoo.errors import ArgumentError
from zoo.torch.nn.expert_weights import ExpertWeights
from zoo.torch.nn.experts_parallel import Ranks, of_ranks, served, trained, untraced
from zoo.torch.nn.experts_serving import RECIPES, Gating
from zoo.torch.nn.experts_training import composed, fused
from zoo.torch.nn.formats import TRAINING, format_of
from zoo.torch.nn.from_checkpoint import read, usual_format
from zoo.torch.nn.products import NUMBERS
from zoo.torch.nn.routing import Routing, combine, route
from zoo.torch.nn.transforms import refuse_transforms
from zoo.torch.operators import refuse_what_is_not_dense
from zoo.torch.quantized import Quantized

_ACTIVATIONS = ("silu", "gpt_oss", "deepseek_v4")


def _switch(name: str, meaning: str) -> property:
    """A switch of both weights."""

    def turn(layer: Any, on: Any) -> None:
        setattr(layer.gate_up, name, on)
        setattr(layer.down, name, on)

    return property(lambda layer: getattr(layer.down, name), turn, doc=meaning)


class Experts(torch.nn.Module):
    """y[t] = sum over j of weights[t, j] * down[e] (act(gate[e] x[t]) * up[e] x[t]) with e = ids[t, j], plus shared(x).

    `gate_up.weight` (E, 2 I, K) and `down.weight` (E, K, I) train in fp8b128, mxfp8 and nvfp4. In other formats the layer is frozen: it
    serves weights of `from_float`, `from_checkpoint` or a state_dict. `freeze()` freezes a layer that trains.

    gates: the order of gate_up's rows. "halves": all gates before all ups. "interleaved": each gate before its up.
    first: id of the first expert here. total: number of experts on all ranks. Ids of other ranks, and -1, are dropped.
    group: a process group of torch.distributed, whose ranks have `experts` experts each: rows of a rank's experts are sent to it.
    parts: with a group, the exchange of one part of the tokens hides behind the products of another.
    capacity: with a group, of a frozen layer, rows that a rank sends to each rank, in each part. CUDA graphs can capture such a call.
    multiprocessors: with a group, how many of a GPU the products use. The others are left to NCCL.
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
        group: Any = None,
        parts: int = 1,
        capacity: int | None = None,
        multiprocessors: int | None = None,
        check_ids: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        experts, hidden, intermediate, first = (
            whole(one, f"Experts: {name}")
            for name, one in (("experts", experts), ("hidden", hidden), ("intermediate", intermediate), ("first", first))
        )
        total = None if total is None else whole(total, "Experts: total")
        _check(format, hidden, intermediate, activation, limit, gates)
        limit = None if limit is None else float(limit)  # a number of numpy would need torch.load(weights_only=False)
        about = f"Experts {experts} x {hidden} x {intermediate}, {format}, {activation}, limit {limit}, gates {gates}, bias {bias}"
        exchange = parts, capacity, multiprocessors
        if group is None and exchange != (1, None, None):
            raise ArgumentError("Experts: parts, capacity and multiprocessors belong to group=, and there is none")
        self.ranks = None if group is None else of_ranks(group, experts, first, total, about, format, *exchange)
        if self.ranks is not None:
            first, total = self.ranks.first, self.ranks.total
        total = first + experts if total is None else total
        _check_ids(experts, first, total)
        self.experts, self.hidden, self.intermediate, self.format = experts, hidden, intermediate, format
        self.activation, self.limit, self.gates = activation, limit, gates
        self.first, self.total, self.check_ids = first, total, check_ids
        made = {"bias": bias, "format": format, "device": device, "dtype": dtype, "ranks": self.ranks}
        self.gate_up = ExpertWeights((experts, 2 * intermediate, hidden), gates=gates, **made)
        self.down = ExpertWeights((experts, hidden, intermediate), gates=None, **made)
        self.shared = shared
        if format not in TRAINING:
            self.freeze()

    @classmethod
    def from_float(
        cls,
        gate_up: torch.Tensor,
        down: torch.Tensor,
        format: str = "fp8b128",
        frozen: bool = False,
        *,
        gate_up_bias: torch.Tensor | None = None,
        down_bias: torch.Tensor | None = None,
        **options: Any,
    ) -> Experts:
        """A layer of weights (E, 2 I, K) and (E, K, I). It is frozen if `frozen`, and in formats that do not train."""
        for name, one in (("gate_up", gate_up), ("down", down)):
            if not isinstance(one, torch.Tensor) or one.dtype not in NUMBERS:
                got = one.dtype if isinstance(one, torch.Tensor) else f"a {type(one).__name__}"
                raise ArgumentError(f"Experts.from_float: {name}: expected a tensor in bf16, f16 or f32, got {got}")
        wanted = (*gate_up.shape[::2], gate_up.shape[1] // 2) if gate_up.dim() == 3 else ()
        if gate_up.dim() != 3 or down.shape != wanted or gate_up.shape[1] % 2:
            got = f"{tuple(gate_up.shape)} and {tuple(down.shape)}"
            raise ArgumentError(f"Experts.from_float: expected gate_up (E, 2 I, K) and down (E, K, I), got {got}")
        made = cls._empty(down.shape, format, gate_up_bias, down_bias, options)
        for one, weight, bias in ((made.gate_up, gate_up, gate_up_bias), (made.down, down, down_bias)):
            one.begin(weight, bias)
        return made.freeze() if frozen or format not in TRAINING else made

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
        """A frozen layer of weights by rows with plain scales, of fp8b128 by squares. The tensor scale of NVFP4 is one, or (E,), or (E, 2)
        for gates and ups. MXFP8 weights become those of the format fp8b128 by zoo.torch.fold_scales."""
        for name, one in (("gate_up", gate_up), ("down", down)):
            if not isinstance(one, Quantized) or len(one.stored_shape) != 3 or one.transposed:
                got = one if isinstance(one, Quantized) else f"a {type(one).__name__}"
                raise ArgumentError(f"Experts.from_quantized: {name}: expected quantised weights of experts by rows, got {got}")
        made = cls._empty(down.stored_shape, format, gate_up_bias, down_bias, options)
        made._check_frozen()
        for one, weight, bias in ((made.gate_up, gate_up, gate_up_bias), (made.down, down, down_bias)):
            one.begin(None, bias)
            one.hold(weight)
        return made

    @classmethod
    def from_checkpoint(
        cls,
        path_or_tensors: str | os.PathLike[str] | Mapping[str, torch.Tensor],
        prefix: str,
        kind: str | None = None,
        *,
        format: str | None = None,
        experts: range | None = None,
        device: str | torch.device | None = None,
        **options: Any,
    ) -> Experts:
        """The frozen layer whose tensors begin with `prefix`, such as "model.layers.3.mlp.experts.". Their bytes are not rounded again,
        but for MXFP8 in fp8b128, which Hopper multiplies: zoo.torch.fold_scales.

        path_or_tensors: a safetensors file, a folder of them, or tensors by name.
        kind: gpt_oss, deepseek_fp8 (Qwen3's too), minimax_m3, deepseek_v4, modelopt_nvfp4, compressed_tensors_nvfp4; by default found by names.
        format: by default what the device multiplies, with FP8 tokens. experts: the ids to load, by default all.
        """
        gate_up, down, found = read(path_or_tensors, prefix, kind, experts, device)
        return cls.from_quantized(gate_up, down, format or usual_format(down.format, down.device), **{**found, **options})

    @classmethod
    def _empty(cls, down: tuple[int, ...], format: str, gate_up_bias: Any, down_bias: Any, options: dict[str, Any]) -> Experts:
        """Without memory for its weights."""
        if (gate_up_bias is None) != (down_bias is None):
            raise ArgumentError("Experts: a layer has both biases or none; pass zeros for the other")
        experts, hidden, intermediate = down
        return cls(experts, hidden, intermediate, format=format, bias=down_bias is not None, **options, device="meta")

    def freeze(self) -> Experts:
        """Replaces the weights by their quantised forms, and returns the layer."""
        self._check_frozen()
        self.gate_up.freeze()
        self.down.freeze()
        return self

    @property
    def frozen(self) -> bool:
        return self.down.frozen

    def settings(self) -> dict[str, Any]:
        """What the numbers of a state mean, where shapes do not tell."""
        return {"gates": self.gates, "activation": self.activation, "limit": self.limit}

    def check_settings(self, who: str, found: Mapping[str, Any]) -> None:
        """Refuses a state of other settings. What the way through a file has lost is not compared."""
        for name, here in self.settings().items():
            if (there := found.get(name, here)) != here:
                raise ArgumentError(
                    f"load_state_dict: {who}: the layer has {name}={here!r}, and the state is of a layer with {name}={there!r}; build the layer so"
                )
        there = found.get("first", self.first)
        if there != self.first and found.get("experts") == self.experts:  # the caller has cut or joined a state of another number
            raise ArgumentError(
                f"load_state_dict: {who}: the layer has first={self.first}, and the state is of a layer with first={there}; load the state of "
                "these experts"
            )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, "_metadata"):  # where torch keeps versions of modules
            destination._metadata[prefix[:-1]].update(self.settings(), first=self.first, experts=self.experts)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], *more: Any) -> None:
        self.check_settings(prefix[:-1] or "Experts", local_metadata)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *more)

    add_gradients = _switch(
        "add_gradients", "Whether GEMMs add gradients of the weights to `weight.grad`, if there is one, in place of autograd."
    )
    hold_casts = _switch(
        "hold_casts", "Whether casts of the weights stay in their memory, where a compiled layer and a CUDA graph read them."
    )
    gather_casts = _switch("gather_casts", "Whether FSDP2 gathers casts of the weights. Set it before fully_shard.")
    promotion = _switch(
        "promotion",
        'How sums of FP8 tokens and 4-bit weights are added up. "regular" promotes all sums. "never", the default, is faster and less accurate from 8 '
        "rows an expert on; with fewer rows, over ranks, in exported programs and for biases of NVFP4 it promotes as well.",
    )
    in_bf16 = _switch("in_bf16", "Whether a layer that is not frozen multiplies in bf16 by torch.")

    def forward(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """x (..., hidden); ids (T, top_k) int32 or int64 and weights (T, top_k) of any router. The result has the shape and dtype of x."""
        self._check_given(x, ids, weights)
        refuse_transforms("Experts", x, weights, *self.gate_up._parameters.values(), *self.down._parameters.values())
        if x.device.type != "meta" and torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        tokens = format_of(self.format).filled(x.reshape(math.prod(x.shape[:-1]), self.hidden))
        ids, weights = self._chosen(tokens.shape[0], ids, weights)
        serves = self.frozen and not self.in_bf16
        if serves and tokens.requires_grad and torch.is_grad_enabled():
            raise ArgumentError(
                f"Experts: frozen weights in {self.format} give x no gradient; call the layer under torch.no_grad(), pass x.detach(), "
                f"or train a layer that is not frozen, in {' or '.join(TRAINING)}"
            )

        def shared() -> torch.Tensor | None:
            return None if self.shared is None else self._of_shared(x).to(torch.bfloat16)

        fits = self.gates == "interleaved" or self.intermediate % 128 == 0
        simple = self.format == "fp8b128" and self.activation == "silu" and self.down.bias is None and fits and not self.in_bf16
        if self.ranks is not None:
            y = self._over_ranks(self.ranks, tokens, ids, weights, shared, simple)
        else:
            routing = route(ids, weights.detach(), self.experts, self.first)
            if serves:
                matrices = self.gate_up.matrices(), self.down.matrices()
                d = RECIPES[self.format].serve(tokens.detach(), *matrices, routing, self._gating(), ids.numel() // self.total)
                y = combine(d, routing.rows, weights, shared())
            else:
                y = (fused if simple else composed)(tokens, weights, shared(), self.gate_up, self.down, routing, self._gating())
        return y.to(x.dtype).view(x.shape)

    def _gating(self) -> Gating:
        return Gating(self.gates, self.activation, self.limit, self.hidden, self.intermediate)

    def _multiplied(self, a: tuple[torch.Tensor, ...], routing: Routing) -> torch.Tensor:
        """d (R, K) of quantised tokens and frozen weights."""
        return RECIPES[self.format].multiply(a, self.gate_up.matrices(), self.down.matrices(), routing, self._gating())

    @untraced
    def _over_ranks(
        self, ranks: Ranks, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, shared: Any, simple: bool
    ) -> torch.Tensor:
        if x.is_meta:
            raise ArgumentError("Experts: with a group, a call needs numbers, and x is on meta; leave out group= to learn shapes")
        ranks.refuse_averages(one for part in (self.gate_up, self.down) for one in (*part.parameters(), *part.buffers()))
        if self.frozen and not self.in_bf16:
            if weights.requires_grad and torch.is_grad_enabled():
                raise ArgumentError(
                    "Experts: with a group, a frozen layer gives routing weights no gradient; call the layer under torch.no_grad(), or "
                    "pass weights.detach()"
                )
            return served(ranks, self.format, x, ids, weights, shared, self._multiplied)
        if self.format != "fp8b128" or self.in_bf16:
            raise ArgumentError(
                "Experts: with a group, a layer trains in fp8b128, with in_bf16 off; freeze() the layer, or leave out group="
            )

        def multiply(rows: torch.Tensor, weights: torch.Tensor, routing: Routing) -> torch.Tensor:
            return (fused if simple else composed)(rows, weights, None, self.gate_up, self.down, routing, self._gating())

        learns = any(one.requires_grad for one in (*self.gate_up.parameters(), *self.down.parameters()))
        return trained(ranks, x, ids, weights, shared, multiply, learns)

    def _check_given(self, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> None:
        for name, one in (("x", x), ("ids", ids), ("weights", weights)):
            if not isinstance(one, torch.Tensor) or one.dim() == 0:
                got = "a number" if isinstance(one, torch.Tensor) else f"a {type(one).__name__}"
                raise ArgumentError(f"Experts: {name}: expected a tensor of rows, got {got}")
            refuse_what_is_not_dense("Experts", name, one)
            if self.ranks is None and one.device != self.down.device:
                raise ArgumentError(f"Experts: {name}: is on {one.device}, the layer on {self.down.device}; move one of them")
        if x.shape[-1] != self.hidden or x.dtype not in NUMBERS:
            raise ArgumentError(f"Experts: x: expected (..., {self.hidden}) in bf16, f16 or f32, got {tuple(x.shape)} in {x.dtype}")
        if self.gate_up.frozen != self.down.frozen:
            raise ArgumentError("Experts: one of gate_up and down is frozen and the other is not; freeze() of the layer freezes both")

    def _chosen(self, count: int, ids: torch.Tensor, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """ids and weights (T, top_k), contiguous."""
        if math.prod(ids.shape[:-1]) != count or ids.shape[-1] == 0 or ids.dtype not in (torch.int32, torch.int64):
            raise ArgumentError(f"Experts: ids: expected ({count}, top_k) in int32 or int64, got {tuple(ids.shape)} in {ids.dtype}")
        if ids.shape != weights.shape or not weights.is_floating_point():
            raise ArgumentError(
                f"Experts: weights: expected numbers {tuple(ids.shape)}, as ids, got {tuple(weights.shape)} in {weights.dtype}"
            )
        ids, weights = (one.reshape(count, one.shape[-1]).contiguous() for one in (ids, weights))
        if self.check_ids:
            inside = ((ids >= -1) & (ids < self.total)).all()
            torch._assert_async(inside, f"Experts: ids: an id is outside -1 .. {self.total - 1}, the experts of all ranks")
        return ids, weights.float()

    def _of_shared(self, x: torch.Tensor) -> torch.Tensor:
        assert self.shared is not None
        y = self.shared(x)
        if not isinstance(y, torch.Tensor) or y.numel() != x.numel() or y.shape[-1:] != x.shape[-1:]:
            got = tuple(y.shape) if isinstance(y, torch.Tensor) else f"a {type(y).__name__}"
            raise ArgumentError(f"Experts: shared: expected a result {tuple(x.shape)}, as x, got {got}")
        return y.reshape(-1, self.hidden)

    def _check_frozen(self) -> None:
        if why := self.lacks(self.format):
            raise ArgumentError(f"Experts: {why}")

    def lacks(self, format: str, frozen: bool = True) -> str | None:
        """Why the layer cannot be in this format: frozen layers have what the first GEMM has."""
        if why := _misfit(format, self.hidden, self.intermediate):
            return why
        if frozen and self.gates == "halves" and self.intermediate % (halves := RECIPES[format].halves):
            return (
                f"intermediate: a frozen layer in {format} with gates='halves' needs a multiple of {halves}, got {self.intermediate}; "
                "interleave gates and ups, and pass gates='interleaved'"
            )
        return None

    def extra_repr(self) -> str:
        limit = "" if self.limit is None else f", limit={self.limit}"
        sizes = f"experts={self.experts}, hidden={self.hidden}, intermediate={self.intermediate}"
        rank = "" if self.ranks is None else f", rank {self.ranks.rank} of {self.ranks.size}"
        return f"{sizes}, format={self.format}, activation={self.activation}{limit}{', frozen' if self.frozen else ''}{rank}"


def _check(format: str, hidden: int, intermediate: int, activation: str, limit: float | None, gates: str) -> None:
    if activation not in _ACTIVATIONS:
        raise ArgumentError(f"Experts: no activation {shown(activation)}; there are {', '.join(_ACTIVATIONS)}")
    if gates not in ("halves", "interleaved"):
        raise ArgumentError(f"Experts: gates: expected 'halves' or 'interleaved', got {shown(gates)}")
    if limit is not None and not (isinstance(limit, (int, float)) and limit > 0):
        raise ArgumentError(f"Experts: limit: expected a number above 0, got {shown(limit)}")
    if limit is not None and activation == "silu":
        raise ArgumentError("Experts: silu has no limit; activation='deepseek_v4' is silu with limits")
    if why := _misfit(format, hidden, intermediate):
        raise ArgumentError(f"Experts: {why}")


def _misfit(format: str, hidden: int, intermediate: int) -> str | None:
    multiple = format_of(format).multiple
    for name, size in (("hidden", hidden), ("intermediate", intermediate)):
        if size % multiple or size < 1:
            return f"{name}: {format} needs a multiple of {multiple}, got {size}"
    return None


def _check_ids(experts: int, first: int, total: int) -> None:
    if experts < 1:
        raise ArgumentError(f"Experts: experts: expected 1 or more, got {experts}")
    if first < 0 or first + experts > total:
        raise ArgumentError(f"Experts: ids {first} .. {first + experts - 1} are not inside 0 .. {total - 1}, the experts of all ranks")

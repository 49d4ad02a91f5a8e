"""Experts spread over the ranks of a process group: of E experts a rank, rank r owns r E .. r E + E - 1.

    home    tokens --quantise--> rows by expert --all_to_all--> owner     a row: elements, scales, id of its expert, routing weight
    owner   rows through an index --> both GEMMs --> d
    home    y <--combine-- d in bf16 <--all_to_all-- owner

    backward: dy goes to the owners in FP8, as tokens did. Gradients of rows in bf16 and of routing weights come home, as d did.

An owner has the rows of an expert in the order of ranks, and of tokens inside a rank. So y and the gradient of x have the bits that one
process computes of the tokens of all ranks, one rank after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed

from zoo.errors import ArgumentError, RankError
from zoo.torch.nn.experts_serving import RECIPES
from zoo.torch.nn.routing import Routing, combine, combined, of_choices, refuse_second_derivative, route
from zoo.torch.quantized import Quantized

_TRAINED = RECIPES["fp8b128"]
_ALIGNED = 16  # bytes: kernels read rows where they arrive
_MODES = ("is frozen", "needs the gradient of x", "needs the gradient of routing weights", "needs gradients of experts")

Multiply = Callable[..., torch.Tensor]  # rows, ..., routing -> d
Shared = Callable[[], "torch.Tensor | None"]  # the shared expert, computed while rows travel


def untraced(function: Multiply) -> Multiply:
    """torch.compile breaks its graph here: sizes of messages are known when they are sent."""
    found: Multiply = torch.compiler.disable(function)
    return found


class Ranks:
    """The ranks of a process group, which build one layer with one zoo. `sent_bytes` counts what this rank has sent to others."""

    def __init__(self, group: distributed.ProcessGroup, experts: int, layer: str):
        self.group, self.rank, self.size = group, distributed.get_rank(group), distributed.get_world_size(group)
        if self.rank < 0:
            raise ArgumentError("Experts: group: this process is no rank of the group; build the layer on the ranks of the group")
        self.experts, self.first, self.total = experts, self.rank * experts, self.size * experts
        self.sent_bytes = 0
        every: list[Any] = [None] * self.size
        with self._waiting("digests"):
            distributed.all_gather_object(every, {"library": library(), "layer": layer}, group=group)
        self._same("library", [one["library"] for one in every], "install one version of zoo on all ranks")
        self._same("layer", [one["layer"] for one in every], "build one layer on all ranks")

    def __deepcopy__(self, memo: Any) -> Ranks:
        return self  # the copy of a layer exchanges with its copies on other ranks

    def _same(self, name: str, of_ranks: list[Any], remedy: str) -> None:
        """All ranks see what differs, so all of them refuse it."""
        for rank, one in enumerate(of_ranks):
            if one != of_ranks[0]:
                raise RankError(f"Experts: {name}: rank 0: {of_ranks[0]}; rank {rank}: {one}; {remedy}")

    def counts(self, rows: torch.Tensor, modes: tuple[bool, ...]) -> tuple[list[int], list[int]]:
        """Rows for each rank (ranks,) -> rows for and from each rank. The host waits, because all_to_all asks it for sizes."""
        mode = sum(on << bit for bit, on in enumerate(modes))
        mine = torch.stack((rows.long(), torch.full_like(rows, mode, dtype=torch.long)), 1)
        theirs = self.begin("counts", mine, [1] * self.size, [1] * self.size)()
        (send, _), (receive, others) = mine.t().tolist(), theirs.t().tolist()
        words = [", ".join(word for bit, word in enumerate(_MODES) if one >> bit & 1) or "needs no gradient" for one in others]
        self._same("call", words, "call the layer alike on all ranks, with gradients of the same inputs")
        return send, receive

    def begin(self, what: str, rows: torch.Tensor, send: list[int], receive: list[int]) -> Callable[[], torch.Tensor]:
        """Sends rows to each rank in turn. The result waits for the rows from each rank in turn."""
        sent = rows.contiguous().view(torch.uint8)  # which every backend knows
        came = sent.new_empty((sum(receive), sent.shape[1]))
        self.sent_bytes += (sum(send) - send[self.rank]) * sent.shape[1]
        with self._waiting(what):
            work = distributed.all_to_all_single(came, sent, receive, send, group=self.group, async_op=True)

        def wait() -> torch.Tensor:
            with self._waiting(what):
                work.wait()
            return came.view(rows.dtype)

        return wait

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RankError(
                f"Experts: exchange of {what}: rank {self.rank} of {self.size} waited in vain: another rank has ended, raised an error, or is "
                f"later than the time-out of the process group. End all ranks, and read the first error of each. torch.distributed: {error}"
            ) from error


def of_ranks(group: distributed.ProcessGroup, experts: int, first: int, total: int | None, layer: str, format: str) -> Ranks:
    """The ranks for a layer, whose first expert and number of experts follow from them."""
    if format == "nvfp4":
        raise ArgumentError("Experts: group: nvfp4 has one scale for the tokens of all ranks; choose another format")
    ranks = Ranks(group, experts, layer)
    if (first, total) not in ((0, None), (ranks.first, ranks.total)):
        raise ArgumentError(
            f"Experts: group: rank {ranks.rank} has the experts {ranks.first} .. {ranks.first + experts - 1} of {ranks.total}, "
            f"got first={first}, total={total}; leave both out, or load this range"
        )
    return ranks


def library() -> str:
    from zoo import __version__
    from zoo.packaged import packaged

    return f"zoo {__version__} {packaged.digest}"


class _Trip:
    """Rows of tokens on their way to the owners of their experts, and what their way back needs."""

    def __init__(self, ranks: Ranks, parts: tuple[torch.Tensor, ...], ids: torch.Tensor, weights: torch.Tensor, modes: tuple[bool, ...]):
        self.ranks = ranks
        self.home = route(ids, weights, ranks.total)
        self._kinds = [(one.dtype, one.shape[1:]) for one in parts]
        rows = self._rows(*parts, torch.zeros((ids.shape[0], 2), dtype=torch.int32, device=ids.device))
        places = torch.arange(rows.shape[0], dtype=torch.int32, device=ids.device)
        expert = torch.searchsorted(self.home.offsets, places, right=True, out_int32=True)
        about = torch.stack((expert, self.home.row_weights.view(torch.int32)), 1)
        rows[:, -_ALIGNED : 8 - _ALIGNED] = about.view(torch.uint8)
        ends = self.home.offsets[ranks.experts - 1 :: ranks.experts]
        self.send, self.receive = ranks.counts(ends.diff(prepend=ends.new_zeros(1)), modes)
        self._came = ranks.begin("rows", rows[: sum(self.send)], self.send, self.receive)

    def _rows(self, *parts: torch.Tensor) -> torch.Tensor:
        """Of tokens (T, ...) the rows (R, bytes), by expert."""
        whole = _packed(parts)
        return whole[self.home.index.clamp(min=0)] if whole.shape[0] else whole

    def arrived(self) -> tuple[list[torch.Tensor], Routing]:
        """The rows from all ranks, and their order by expert."""
        *parts, about = _unpacked(self._came(), *self._kinds, (torch.int32, (2,)))
        del self._came  # the backward pass keeps this trip, not its bytes
        ids, weights = about[:, :1].contiguous(), about[:, 1:].contiguous().view(torch.float32)
        return parts, route(ids, weights, self.ranks.experts, self.ranks.first)

    def again(self, what: str, *parts: torch.Tensor) -> list[torch.Tensor]:
        """Other numbers of the tokens, the way that the tokens went."""
        rows = self._rows(*parts)[: sum(self.send)]
        came = self.ranks.begin(what, rows, self.send, self.receive)()
        return _unpacked(came, *((one.dtype, one.shape[1:]) for one in parts))

    def back(self, what: str, *parts: torch.Tensor) -> list[torch.Tensor]:
        """Results (rows that came, ...) -> (rows that were sent, ...) on the ranks of their tokens."""
        came = self.ranks.begin(what, _packed(parts), self.receive, self.send)()
        return _unpacked(came, *((one.dtype, one.shape[1:]) for one in parts))


def served(
    ranks: Ranks, format: str, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, shared: Shared, multiply: Multiply
) -> torch.Tensor:
    """y (T, K) of frozen experts. multiply: quantised rows and their routing -> d by expert."""
    trip = _Trip(ranks, RECIPES[format].tokens(x.detach()), ids, weights.detach(), (True, False, False, False))
    residual = shared()
    parts, routing = trip.arrived()
    (d,) = trip.back("results", combined(multiply(tuple(parts), routing), routing.rows))
    return combine(d, trip.home.rows, weights, residual)


def trained(
    ranks: Ranks, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, shared: Shared, multiply: Multiply, learns: bool
) -> torch.Tensor:
    """y (T, K) in fp8b128. multiply: rows, a weight of 1 for each, their routing -> d in the order of rows."""
    needed = [torch.is_grad_enabled() and one for one in (x.requires_grad, weights.requires_grad, learns)]
    x = x.to(torch.bfloat16) if any(needed) else x  # as one process does
    trip = _Trip(ranks, _TRAINED.tokens(x.detach()), ids, weights.detach(), (False, *needed))
    residual = shared()
    parts, routing = trip.arrived()
    rows, ones = _Arrive.apply(x, weights, trip, parts)
    y: torch.Tensor = _Return.apply(multiply(rows, ones, routing), weights.detach(), residual, trip)
    return y


class _Arrive(torch.autograd.Function):
    """Tokens and routing weights at home -> rows in bf16 at the owner, with a weight of 1.

    The gradient of that 1 is the gradient of the routing weight: the owner's backward pass weighs rows by their `Routing`.
    """

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor, trip: _Trip, parts: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        ctx.trip, ctx.dtype = trip, x.dtype
        rows = _numbers(parts)
        ones = torch.ones((rows.shape[0], 1), device=rows.device)
        ctx.mark_non_differentiable(*(one for one, needed in zip((rows, ones), ctx.needs_input_grad, strict=False) if not needed))
        return rows, ones

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        d_rows, d_ones = ctx.trip.back("gradients of rows", *gradients)
        rows = ctx.trip.home.rows
        dx = combined(d_rows, rows).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        return dx, of_choices(d_ones[:, 0], rows) if ctx.needs_input_grad[1] else None, None, None


class _Return(torch.autograd.Function):
    """d at the owner -> y at home. dy goes to the owner as it is, without the routing weights."""

    @staticmethod
    def forward(ctx: Any, d: torch.Tensor, weights: torch.Tensor, residual: torch.Tensor | None, trip: _Trip) -> torch.Tensor:
        ctx.trip = trip
        (rows,) = trip.back("results", d)
        return combined(rows, trip.home.rows, weights, residual)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        dy = gradients[0].contiguous()
        dd = _numbers(ctx.trip.again("gradients of results", *_TRAINED.tokens(dy))) if ctx.needs_input_grad[0] else None
        return dd, None, dy if ctx.needs_input_grad[2] else None, None


def _numbers(parts: list[torch.Tensor]) -> torch.Tensor:
    """In bf16, which holds e4m3 times a power of two exactly. To quantise them again loses nothing."""
    elements, scales = (one.contiguous() for one in parts)
    return Quantized(elements, scales, "fp8b128").dequantize(torch.bfloat16)


def _packed(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Tensors (T, ...) -> (T, bytes). Each begins at a multiple of 16 bytes."""
    rows = [one.contiguous().view(one.shape[0], math.prod(one.shape[1:])).view(torch.uint8) for one in parts]
    return torch.cat([torch.nn.functional.pad(one, (0, -one.shape[1] % _ALIGNED)) for one in rows], 1)


def _unpacked(rows: torch.Tensor, *kinds: tuple[torch.dtype, tuple[int, ...]]) -> list[torch.Tensor]:
    """The tensors whose bytes `_packed` has made. Those of rows are views."""
    found, begin = [], 0
    for dtype, shape in kinds:
        size = math.prod(shape) * dtype.itemsize
        one = rows[:, begin : begin + size].view(dtype).view(rows.shape[0], *shape)
        found.append(one if shape else one.contiguous())  # kernels read rows at any distance, and numbers side by side
        begin += size + -size % _ALIGNED
    return found

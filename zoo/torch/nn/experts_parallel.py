"""Experts spread over the ranks of a process group: of E experts a rank, rank r owns r E .. r E + E - 1.

    home    tokens --quantise--> rows --all_to_all--> owner     a row: elements, scales, ids of its experts, routing weights
    owner   the layer of its own experts: route, both GEMMs, combine --> a sum for each row
    home    y <--add-- sums in bf16 <--all_to_all-- owner

    backward: dy goes to the owners in FP8, as tokens did. Gradients of rows in bf16 and of routing weights come home, as sums did.
    So gradients have the bits of one process whose x and dy are rounded to FP8 by rows. `fused` rounds both so anyway, but for gradients of weights.

A token goes once to each rank that owns experts of it. The sum of a rank is rounded to bf16, so y is rounded once more than in one process.
An owner has the rows of all ranks in the order of ranks. So each sum has the bits that one process
computes with the experts of that rank and promotion = "regular".
Sums that stay in the tensor cores would need memory for gates and ups, in bf16, of top_k rows for each row that arrives.
The host does not know how many of these choices belong to other ranks.

Tokens in two parts, A and B. A message begins where its numbers are done; it ends before the stream reads them, so the host waits for counts alone.

    exchange   rows A | rows B     | results A  | results B |
    products          | products A | products B |           | add A, B

Autograd runs the node that was made last first. So the backward pass has this picture too, with B before A:

    node       forward                       backward
    _Leave     rows begin                    gradients of rows end, dx
    _Arrive    rows end                      gradients of rows begin
    _Return    results begin                 gradients of results end
    _Home      results end, add              gradients of results begin

With a capacity each rank sends so many rows to each rank. All sizes are fixed, no counts travel, and CUDA graphs can capture the layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import distributed

from zoo.contract.whole_numbers import shown, whole
from zoo.errors import ArgumentError, RankError
from zoo.runtime.multiprocessors import multiprocessors
from zoo.torch.nn.by_devices import is_spread
from zoo.torch.nn.experts_serving import RECIPES
from zoo.torch.nn.kept import capturing
from zoo.torch.nn.routing import Routing, combine, combined, refuse_second_derivative, route
from zoo.torch.quantized import Quantized

ops: Any = torch.ops.zoo

_TRAINED = RECIPES["fp8b128"]
_ALIGNED = 4  # words of 4 bytes: kernels read rows where they arrive
_COUNTS = 8  # A message of counts has a multiple of so many numbers, so that ranks with other `parts` can read it.
_LAYERS: WeakKeyDictionary[distributed.ProcessGroup, int] = WeakKeyDictionary()  # how many a group has built
_MODES = ("is frozen", "needs the gradient of x", "needs the gradient of routing weights", "needs gradients of experts")

Multiply = Callable[..., torch.Tensor]  # rows, ..., routing -> d, or a sum for each row
Shared = Callable[[], "torch.Tensor | None"]  # the shared expert, computed while rows travel
_Kind = tuple[torch.dtype, tuple[int, ...]]  # of a number of each row


def untraced(function: Multiply) -> Multiply:
    """torch.compile breaks its graph here: sizes of messages are known when they are sent."""
    found: Multiply = torch.compiler.disable(function)
    return found


class Ranks:
    """The ranks of a process group, which build one layer with one zoo.

    parts: into how many parts the tokens of a call are split. capacity: rows of a part for each rank, or None: as many as there are.
    multiprocessors: how many of a GPU the products use. sent_bytes: what this rank has sent to others. number: which layer of the group.
    """

    def __init__(
        self, group: distributed.ProcessGroup, experts: int, layer: str, parts: int, capacity: int | None, multiprocessors: int | None
    ):
        self.group, self.rank, self.size = group, distributed.get_rank(group), distributed.get_world_size(group)
        if self.rank < 0:
            raise ArgumentError("Experts: group: this process is no rank of the group; build the layer on the ranks of the group")
        self.experts, self.first, self.total = experts, self.rank * experts, self.size * experts
        self.parts, self.capacity, self.multiprocessors, self.sent_bytes = parts, capacity, multiprocessors, 0
        self.layer = layer
        self._compare()
        self.number = _LAYERS[group] = _LAYERS.get(group, 0) + 1

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "parts" or (name in ("capacity", "multiprocessors") and value is not None):
            value = whole(value, f"Experts: {name}", 1)
        super().__setattr__(name, value)

    def __deepcopy__(self, memo: Any) -> Ranks:
        """The copy of a layer exchanges with its copies on other ranks. It has its own settings."""
        found: Ranks = memo.setdefault(id(self), object.__new__(Ranks))
        found.__dict__.update(self.__dict__)
        return found

    def __reduce__(self) -> Any:
        raise ArgumentError(
            "Experts: group: a file cannot hold a process group; save state_dict() of each rank, or zoo.torch.nn.SpreadState of the model"
        )

    def _same(self, name: str, of_ranks: list[Any], remedy: str) -> None:
        """All ranks see what differs, so all of them refuse it."""
        for rank, one in enumerate(of_ranks):
            if one != of_ranks[0]:
                raise RankError(f"Experts: {name}: rank 0: {of_ranks[0]}; rank {rank}: {one}; {remedy}")

    def _compare(self) -> None:
        """What all ranks build alike."""
        mine: tuple[Any, ...] = library(), self.layer, self.parts, self.capacity
        every: list[tuple[Any, ...]] = [()] * self.size
        with self._waiting("digests"):
            distributed.all_gather_object(every, mine, group=self.group)
        remedies = {
            "library": "install one version of zoo",
            "layer": "build one layer",
            "parts": "set one number",
            "capacity": "set one number",
        }
        for place, (name, remedy) in enumerate(remedies.items()):
            self._same(name, [one[place] for one in every], f"{remedy} on all ranks")
        self._compared: tuple[int, int | None, int] | None = None  # parts, capacity and choices of a token in the call before

    def asks_for_counts(self, choices: int) -> bool:
        """Whether the ranks tell each other counts and settings: without a capacity, and where a call follows new sizes of messages."""
        asks = self.capacity is None or (self.parts, self.capacity, choices) != self._compared
        if asks and capturing():
            raise ArgumentError(
                "Experts: capacity: the host reads what ranks send in a call without a capacity, in the first call, and after parts, capacity or top_k "
                "has changed; set a capacity on all ranks, and call the layer once before a CUDA graph captures it"
            )
        return asks

    def refuse_averages(self, weights: Iterable[torch.Tensor]) -> None:
        """DistributedDataParallel around the model would give all ranks the experts of one rank."""
        wrapper = torch.nn.parallel.DistributedDataParallel._get_active_ddp_module()
        if wrapper is None:
            return
        averaged = {id(one) for one in (*wrapper._module_parameters, *wrapper.modules_buffers)}
        ranks = [set(distributed.get_process_group_ranks(one)) for one in (self.group, wrapper.process_group)]
        if len(ranks[0] & ranks[1]) > 1 and any(id(one) in averaged for one in weights):
            raise ArgumentError(
                "Experts: group: DistributedDataParallel has copied the experts of one rank to all ranks, and averages gradients of different experts; "
                "build the model again, and before wrapping it pass the names of parameters and buffers of gate_up and down to "
                "DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)"
            )

    def refuse_spread(self, weight: Any) -> None:
        """A mesh with several ranks of the group would gather their experts as parts of one weight."""
        if (
            is_spread(weight)
            and len({*weight.device_mesh.mesh.flatten().tolist()} & {*distributed.get_process_group_ranks(self.group)}) > 1
        ):
            raise ArgumentError(
                "Experts: group: a DTensor over ranks of the group would mix their experts; pass the parameters of gate_up and down to fully_shard as "
                "ignored_params= (torch 2.7), or shard Experts over a mesh of ranks with equal experts"
            )

    def counts(self, rows: list[torch.Tensor], modes: tuple[bool, ...], choices: int) -> list[tuple[list[int], list[int]]]:
        """Rows of each part for each rank (ranks,) -> rows for and from each rank. The host waits, because all_to_all asks it for sizes."""
        about = sum(on << bit for bit, on in enumerate((*modes, self.number))), choices, self.parts, self.capacity or 0
        mine = torch.stack((*(torch.full_like(rows[0], one) for one in about), *rows), 1).long()
        mine = torch.nn.functional.pad(mine, (0, -mine.shape[1] % _COUNTS))
        theirs = self.begin("counts", mine, [1] * self.size, [1] * self.size)()
        (_, _, _, _, *send), (others, of_token, of_parts, capacities, *receive) = (
            torch.stack((mine, theirs)).mT[:, : 4 + len(rows)].tolist()
        )
        self._same("parts", of_parts, "set one number on all ranks")
        self._same("capacity", [one or None for one in capacities], "set one number on all ranks")
        self._same("call", [f"layer {one >> len(_MODES)} of the group" for one in others], "call layers in one order on all ranks")
        self._same("ids", [f"top_k {one}" for one in of_token], "choose as many experts for a token on all ranks")
        words = [", ".join(word for bit, word in enumerate(_MODES) if one >> bit & 1) or "needs no gradient" for one in others]
        self._same("call", words, "call the layer alike on all ranks, with gradients of the same inputs")
        self._compared = self.parts, self.capacity, choices
        return list(zip(send, receive, strict=True))

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
                f"Experts: exchange of {what}: rank {self.rank} of {self.size} waited in vain: another rank has ended, raised an error, has "
                f"another capacity, or is later than the time-out of the process group. End all ranks, and read the first error of each. torch.distributed: {error}"
            ) from error


def of_ranks(
    group: distributed.ProcessGroup,
    experts: int,
    first: int,
    total: int | None,
    layer: str,
    format: str,
    parts: int,
    capacity: int | None,
    multiprocessors: int | None,
) -> Ranks:
    """The ranks for a layer, whose first expert and number of experts follow from them."""
    if format == "nvfp4":
        raise ArgumentError("Experts: group: nvfp4 has one scale for the tokens of all ranks; choose another format")
    if not isinstance(group, distributed.ProcessGroup) and group != distributed.GroupMember.NON_GROUP_MEMBER:
        raise ArgumentError(f"Experts: group: expected a process group, got {shown(group)}; of a DeviceMesh pass mesh.get_group()")
    ranks = Ranks(group, experts, layer, parts, capacity, multiprocessors)
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
    """A part of the tokens on its way to the owners of its experts, and the way back. One message is under way at a time."""

    def __init__(self, ranks: Ranks, operands: tuple[torch.Tensor, ...], ids: torch.Tensor, weights: torch.Tensor):
        ids = ids.clamp(-1, ranks.total).int()  # an int64 that does not fit would be another expert
        self.ranks, self._operands = ranks, (*operands, ids, weights)
        every = torch.arange(ranks.size, dtype=torch.int32, device=ids.device)
        reached = (torch.div(ids, ranks.experts, rounding_mode="floor")[..., None] == every).any(1)
        # end of the rows for each rank, token of each row (-1: none), row of each token for each rank (-1: none)
        self.ends, self.index, self.rows = ops.experts_route(torch.where(reached, every, -1), E=ranks.size, R=reached.numel())
        self.begins = torch.nn.functional.pad(self.ends[:-1], (1, 0))
        self.lost: torch.Tensor | None = None  # (T,): tokens over the capacity
        if ranks.capacity is not None:
            self._to_places(ranks.capacity)

    def _to_places(self, capacity: int) -> None:
        """Rows for rank r -> places r * capacity .. Empty places have no token."""
        place = self.begins[:, None] + torch.arange(capacity, dtype=torch.int32, device=self.index.device)
        row = torch.where(place < self.ends[:, None], place, self.index.shape[0]).flatten()
        self.index = torch.nn.functional.pad(self.index, (0, 1), value=-1)[row]
        place, sent = self.rows - self.begins, self.rows >= 0
        self.lost = (sent & (place >= capacity)).any(1)
        first = capacity * torch.arange(self.ranks.size, dtype=torch.int32, device=self.index.device)
        self.rows = torch.where(sent & (place < capacity), place + first, -1)
        self.send = self.receive = [capacity] * self.ranks.size

    def leave(self) -> None:
        self.again("rows", *self._operands)
        del self._operands  # the backward pass keeps this trip, not its numbers

    def again(self, what: str, *of_tokens: torch.Tensor) -> None:
        """Other numbers of the tokens, the way that the tokens went."""
        rows = _packed(of_tokens, 1).view(torch.int64)  # a row of no token is the last one, whose ids are -1
        rows = rows[self.index[: sum(self.send)]].view(torch.int32)
        self._begin(what, rows, _kinds(of_tokens), self.send, self.receive)

    def back(self, what: str, *of_rows: torch.Tensor) -> None:
        """Numbers of the rows that came, to the ranks of their tokens."""
        self._begin(what, _packed(of_rows), _kinds(of_rows), self.receive, self.send)

    def _begin(self, what: str, rows: torch.Tensor, kinds: list[_Kind], send: list[int], receive: list[int]) -> None:
        self._coming = self.ranks.begin(what, rows, send, receive), kinds

    def came(self) -> list[torch.Tensor]:
        """What the other ranks have sent, in the order of rows."""
        wait, kinds = self._coming
        del self._coming
        return _unpacked(wait(), kinds)

    def arrived(self) -> tuple[list[torch.Tensor], torch.Tensor, Routing]:
        """The rows from all ranks, their routing weights, and their routing to the experts here."""
        *parts, ids, weights = self.came()
        weights = weights.contiguous()
        return parts, weights, route(ids.contiguous(), weights, self.ranks.experts, self.ranks.first)


def _trips(
    ranks: Ranks, format: str, x: list[torch.Tensor], ids: list[torch.Tensor], weights: list[torch.Tensor], modes: tuple[bool, ...]
) -> list[_Trip]:
    """One for each part of the tokens. All ranks learn the sizes of all parts at once."""
    asks = ranks.asks_for_counts(ids[0].shape[1])
    operands = (RECIPES[format].tokens(one.detach()) for one in x)
    found = [_Trip(ranks, *one) for one in zip(operands, ids, (one.detach() for one in weights), strict=True)]
    if asks:
        sizes_of_parts = ranks.counts([trip.ends - trip.begins for trip in found], modes, ids[0].shape[1])
        for trip, sizes in zip(found, sizes_of_parts, strict=True):
            if ranks.capacity is None:
                trip.send, trip.receive = sizes
    return found


def served(
    ranks: Ranks, format: str, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, shared: Shared, multiply: Multiply
) -> torch.Tensor:
    """y (T, K) of frozen experts. multiply: quantised rows and their routing -> d by expert."""
    xs, all_ids, all_weights = (_split(one, ranks.parts) for one in (x, ids, weights))
    trips = _trips(ranks, format, xs, all_ids, all_weights, (True, False, False, False))
    for trip in trips:
        trip.leave()
    residuals = _split(shared(), ranks.parts)
    for trip in trips:
        parts, of_rows, routing = trip.arrived()
        with multiprocessors(ranks.multiprocessors):
            d = multiply(tuple(parts), routing)
        trip.back("results", combined(d, routing.rows, of_rows))
    found = []
    for trip, residual in zip(trips, residuals, strict=True):
        (sums,) = trip.came()
        y = combine(sums, trip.rows, None, residual)
        found.append(y if trip.lost is None else torch.where(trip.lost[:, None], torch.nan, y))
    return _joined(found)


def trained(
    ranks: Ranks, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, shared: Shared, multiply: Multiply, learns: bool
) -> torch.Tensor:
    """y (T, K) in fp8b128. multiply: rows, their routing weights and routing -> a sum for each row."""
    if ranks.capacity is not None:
        raise ArgumentError("Experts: capacity: a layer that trains has none; freeze() the layer, or set ranks.capacity to None")
    needed = [torch.is_grad_enabled() and one for one in (x.requires_grad, weights.requires_grad, learns)]
    x = x.to(torch.bfloat16) if any(needed) else x  # as one process does
    xs, all_weights = (_split(one, ranks.parts) for one in (x, weights))
    trips = _trips(ranks, "fp8b128", xs, _split(ids, ranks.parts), all_weights, (False, *needed))
    tickets = [_Leave.apply(*one) for one in zip(xs, all_weights, trips, strict=True)]
    residuals, returning = _split(shared(), ranks.parts), []
    for trip, ticket in zip(trips, tickets, strict=True):
        parts, of_rows, routing = trip.arrived()
        rows, of_rows = _Arrive.apply(ticket, trip, parts, of_rows, needed)
        with multiprocessors(ranks.multiprocessors):
            returning.append(_Return.apply(multiply(rows, of_rows, routing), trip))
    return _joined([_Home.apply(*one) for one in zip(returning, residuals, trips, strict=True)])


class _Leave(torch.autograd.Function):
    """A ticket has no number. It makes autograd wait for its gradient, which has none either."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weights: torch.Tensor, trip: _Trip) -> torch.Tensor:
        ctx.trip, ctx.dtype = trip, x.dtype
        trip.leave()
        return x.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        (d_rows, d_weights), rows = ctx.trip.came(), ctx.trip.rows
        dx = combined(d_rows, rows).to(ctx.dtype) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return dx, None, None
        of_ranks = d_weights[rows] if len(d_weights) else d_weights.new_zeros((*rows.shape, d_weights.shape[1]))
        return dx, torch.where(rows[..., None] < 0, 0, of_ranks).sum(1), None  # a choice has one rank, and 0 from the others


class _Arrive(torch.autograd.Function):
    """Rows in bf16 at the owner, and their routing weights."""

    @staticmethod
    def forward(
        ctx: Any, ticket: torch.Tensor, trip: _Trip, parts: list[torch.Tensor], weights: torch.Tensor, needed: list[bool]
    ) -> tuple[torch.Tensor, ...]:
        ctx.trip = trip
        found = _numbers(parts), weights.view_as(weights)
        ctx.mark_non_differentiable(*(one for one, needs in zip(found, needed, strict=False) if not needs))
        return found

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        ctx.trip.back("gradients of rows", *gradients)
        return gradients[0].new_zeros(()), None, None, None, None


class _Return(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sums: torch.Tensor, trip: _Trip) -> torch.Tensor:
        ctx.trip = trip
        trip.back("results", sums)
        return sums.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        return _numbers(ctx.trip.came()), None


class _Home(torch.autograd.Function):
    """Sums of the owners -> y at home. dy goes to the owners as it is."""

    @staticmethod
    def forward(ctx: Any, ticket: torch.Tensor, residual: torch.Tensor | None, trip: _Trip) -> torch.Tensor:
        ctx.trip = trip
        (sums,) = trip.came()
        return combined(sums, trip.rows, None, residual)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        refuse_second_derivative()
        dy = gradients[0].contiguous()
        if ctx.needs_input_grad[0]:
            ctx.trip.again("gradients of results", *_TRAINED.tokens(dy))
        return dy.new_zeros(()), dy if ctx.needs_input_grad[1] else None, None


def _numbers(parts: list[torch.Tensor]) -> torch.Tensor:
    """In bf16, which holds e4m3 times a power of two exactly. To quantise them again loses nothing."""
    elements, scales = (one.contiguous() for one in parts)
    return Quantized(elements, scales, "fp8b128").dequantize(torch.bfloat16)


def _packed(parts: tuple[torch.Tensor, ...], more: int = 0) -> torch.Tensor:
    """Tensors (T, ...) -> (T + more, words), each at a multiple of 16 bytes. All bits are 1 in the rows behind."""
    rows = [one.contiguous().view(one.shape[0], math.prod(one.shape[1:])).view(torch.uint8) for one in parts]
    words = [(torch.nn.functional.pad(one, (0, -one.shape[1] % 4)) if one.shape[1] % 4 else one).view(torch.int32) for one in rows]
    if len(parts) == 1 and more == 0 and words[0].shape[1] % _ALIGNED == 0:
        return words[0]
    count, sizes = words[0].shape[0], [one.shape[1] + -one.shape[1] % _ALIGNED for one in words]
    found = words[0].new_full((count + more, sum(sizes)), -1)
    for one, place in zip(words, found[:count].split(sizes, 1), strict=True):
        place[:, : one.shape[1]] = one
    return found


def _kinds(parts: tuple[torch.Tensor, ...]) -> list[_Kind]:
    return [(one.dtype, one.shape[1:]) for one in parts]


def _unpacked(rows: torch.Tensor, kinds: list[_Kind]) -> list[torch.Tensor]:
    """The tensors whose bytes `_packed` has made. Those of rows are views."""
    found, begin = [], 0
    for dtype, shape in kinds:
        size = math.prod(shape) * dtype.itemsize
        one = rows.view(torch.uint8)[:, begin : begin + size].view(dtype).view(rows.shape[0], *shape)
        found.append(one if shape else one.contiguous())  # kernels read rows at any distance, and numbers side by side
        begin += size + -size % (4 * _ALIGNED)
    return found


def _split(one: torch.Tensor | None, parts: int) -> list[Any]:
    """Rows in parts of nearly one size, of which the last may be empty."""
    if one is None or parts == 1:
        return [one] * parts
    size, more = divmod(one.shape[0], parts)
    return list(one.split([size + (part < more) for part in range(parts)]))


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)

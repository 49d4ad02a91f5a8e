"""What each rank does in test_experts_parallel.py, beside one process that has the tokens and the experts of all ranks."""

from __future__ import annotations

import copy
import datetime
import os
import pickle
import signal
import tempfile
import time
import unittest.mock
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed import checkpoint as checkpoint_files
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from tests.torch.nn.expert_layers import Problem, in_float64, problem
from zoo.benchmark import torch_experts
from zoo.errors import ArgumentError, RankError
from zoo.runtime.multiprocessors import limit_here
from zoo.torch import quantize
from zoo.torch.nn import Experts, SpreadState, experts, experts_parallel, experts_training
from zoo.torch.nn.formats import FORMATS

E, K, TOKENS = 4, 256, 24
TIMEOUT = 4.0  # seconds of the group in which a rank fails


def divided(how: str, size: int) -> tuple[Problem, list[int]]:
    """A problem, and how many of its tokens each rank has."""
    p = problem(tokens=TOKENS, experts=E, hidden=K, top_k=2)
    if torch.cuda.is_initialized():
        p = replace(p, **{name: one.cuda() for name, one in vars(p).items() if isinstance(one, torch.Tensor)})
    even = [TOKENS // size] * size
    if how == "unequal":
        return p, [TOKENS - 3 * (size - 1), *[3] * (size - 1)]
    if how == "none on the last rank":
        return p, [TOKENS, *[0] * (size - 1)]
    if how == "no tokens":
        return replace(p, x=p.x[:0], ids=p.ids[:0], weights=p.weights[:0]), [0] * size
    if how == "all to one rank":
        return replace(p, ids=torch.where(p.ids < 0, -1, p.ids % (E // size) + E - E // size)), even
    if how == "all dropped":
        return replace(p, ids=torch.full_like(p.ids, -1)), even
    if how == "ids out of range":
        outside = torch.tensor([E + 3, 2**32 + 3], device=p.ids.device)  # the last one is 3 in 32 bits
        return replace(p, ids=torch.where(p.ids == 2, outside, torch.where(p.ids == 0, -7, p.ids))), even
    return p, even


def gradient(p: Problem) -> torch.Tensor:
    """Of the result."""
    return torch.randn(p.x.shape, generator=torch.Generator().manual_seed(3)).to(p.x)


def layers(rank: int, size: int, p: Problem, format: str, frozen: bool, **options: Any) -> tuple[Experts, Experts]:
    """A layer with all experts, which promotes sums as ranks do, and a layer with the experts of this rank."""
    here = slice(rank * E // size, (rank + 1) * E // size)
    both = p.gate_up("halves"), p.down
    options.setdefault("group", distributed.group.WORLD)
    if format.endswith("nvfp4"):  # one tensor scale for all experts, as a checkpoint has it
        whole = [quantize(one, "nvfp4", layout="plain") for one in both]
        parts = [one._with(elements=one.elements[here], scales=one.scales[here]) for one in whole]
        one = Experts.from_quantized(*whole, format)
        one.promotion = "regular"
        return one, Experts.from_quantized(*parts, format, **options)
    shared, model = options.pop("shared", None), {"activation": p.activation, "limit": p.limit}
    one = Experts.from_float(*(one.clone() for one in both), format, frozen, shared=copy.deepcopy(shared), **model)
    one.promotion = "regular"
    return one, Experts.from_float(*(one[here].clone() for one in both), format, frozen, shared=shared, **model, **options)


def mine(rank: int, counts: list[int]) -> slice:
    return slice(sum(counts[:rank]), sum(counts[: rank + 1]))


def of_each_rank(p: Problem, size: int) -> list[torch.Tensor]:
    """The ids that a rank owns; others are dropped."""
    return [torch.where(p.ids.div(E // size, rounding_mode="floor") == rank, p.ids, -1) for rank in range(size)]


def added(sums: list[torch.Tensor], residual: torch.Tensor | None = None) -> torch.Tensor:
    """In f32, in the order of ranks, rounded once to bf16."""
    total = torch.zeros_like(sums[0], dtype=torch.float32)
    for one in (*sums, residual):
        total += 0 if one is None else one.float()
    return total.bfloat16()


def in_fp8(x: torch.Tensor) -> torch.Tensor:
    """As rows travel."""
    return quantize(x, "fp8b128", **FORMATS["fp8b128"].options).dequantize() if len(x) else x


def serves_as_one_process(rank: int, size: int, format: str, how: str, parts: str = "1") -> None:
    p, counts = divided(how, size)
    one, many = layers(rank, size, p, format, True, parts=int(parts))
    here = mine(rank, counts)
    for dtype in (torch.bfloat16, torch.float32) if how == "unequal" else (torch.bfloat16,):
        with torch.no_grad():
            y = many(p.x[here].to(dtype), p.ids[here], p.weights[here])
            wanted = added([one(p.x.to(dtype), ids, p.weights) for ids in of_each_rank(p, size)])
        assert y.dtype == dtype and torch.equal(y, wanted[here].to(dtype))


def by_one_process(
    one: Experts, p: Problem, rows: torch.Tensor, size: int, batches: list[torch.Tensor], grads: torch.Tensor, shared: torch.nn.Module
) -> dict[str, torch.Tensor]:
    """y and all gradients: the experts of each rank in turn, which read `rows`, and the parts as micro-batches, as blocks of weights' gradients have
    the rows of a part."""
    weights = {"gate_up": one.gate_up.weight, "down": one.down.weight}
    found = {name: torch.zeros_like(whole) for name, whole in {"y": p.x, "dx": p.x, "routing": p.weights, **weights}.items()}
    for batch in batches:
        one.zero_grad()
        sums, of_x, of_routing = [], [], []
        for ids in of_each_rank(p, size):
            x, routing = rows[batch].requires_grad_(), p.weights[batch].requires_grad_()
            y = one(x, ids[batch], routing)
            y.backward(in_fp8(grads)[batch])
            sums, of_x, of_routing = [*sums, y.detach()], [*of_x, x.grad], [*of_routing, routing.grad]
        x = p.x[batch].requires_grad_()
        residual = shared(x)
        residual.backward(grads[batch])
        found["y"][batch], found["dx"][batch], found["routing"][batch] = (
            added(sums, residual.detach()),
            added(of_x) + x.grad,
            sum(of_routing),
        )
        for name, weight in weights.items():
            found[name] += weight.grad
    return found


def trains_as_one_process(rank: int, size: int, how: str, parts: str = "1", activation: str = "silu") -> None:
    """One process gets the gradient of y in FP8, as it travels. Gradients of weights have its bits if it gets x so too: columns of x, of which they
    are products, are quantised where x has come. That a number is rounded twice shows only where a scale made it subnormal."""
    p, counts = divided(how, size)
    p = replace(p, activation=activation, limit=None if activation == "silu" else 7.0)
    torch.manual_seed(1)
    shared = torch.nn.Linear(K, K, dtype=torch.bfloat16, device=p.x.device)
    one, many = layers(rank, size, p, "fp8b128", False, shared=shared, parts=int(parts))
    one.shared = None
    here, experts, grads = mine(rank, counts), mine(rank, [E // size] * size), gradient(p)
    every = torch.arange(len(p.x), device=p.x.device)
    of_ranks = [every[mine(other, counts)].tensor_split(int(parts)) for other in range(size)]
    batches = [torch.cat(part) for part in zip(*of_ranks, strict=True)]
    x, weights = p.x[here].clone().requires_grad_(), p.weights[here].clone().requires_grad_()
    calls = 2 if how == "unequal" else 1
    for _ in range(calls):
        x.grad = weights.grad = None
        y = many(x, p.ids[here], weights)
        y.backward(grads[here])
    of_tokens = {"y": y.detach(), "dx": x.grad, "routing": weights.grad}
    of_experts = {"gate_up": many.gate_up.weight.grad, "down": many.down.weight.grad}
    wanted = by_one_process(one, p, in_fp8(p.x), size, batches, grads, shared)
    near = by_one_process(one, p, p.x, size, batches, grads, shared) if how == "unequal" else wanted
    for name, found in of_tokens.items():
        assert torch.equal(found, wanted[name][here]) and torch.equal(found, near[name][here]), name
    for name, found in of_experts.items():
        assert torch.equal(found, calls * wanted[name][experts]), name
        assert (found - calls * near[name][experts]).norm() <= 1e-3 * found.norm(), name
        assert bool(found.any()) == bool((p.ids // (E // size) == rank).any())


def serves_with_a_capacity(rank: int, size: int, format: str, how: str, capacity: str, parts: str = "1") -> None:
    """Tokens over it are NaN, and no others."""
    p, counts = divided(how, size)
    one, many = layers(rank, size, p, format, True, capacity=int(capacity), parts=int(parts))
    here, lost = mine(rank, counts), set()
    for part in torch.arange(len(p.x))[here].tensor_split(int(parts)):
        for ids in of_each_rank(p, size):
            lost |= {*[int(token) for token in part if bool((ids[token] >= 0).any())][int(capacity) :]}
    with torch.no_grad():
        y, wanted = many(p.x[here], p.ids[here], p.weights[here]), added([one(p.x, ids, p.weights) for ids in of_each_rank(p, size)])
    wanted[sorted(lost)] = torch.nan
    torch.testing.assert_close(y, wanted[here], rtol=0, atol=0, equal_nan=True)
    assert bool(lost) == (capacity == "2") or rank > 0


def serves_many_rows_as_one_process(rank: int, size: int, format: str, capacity: str = "") -> None:
    """With this many rows one process does not promote its sums. Ranks promote, because no rank knows how many tokens the others have."""
    p = problem(tokens=140, experts=E, hidden=K, top_k=2)
    one, many = layers(rank, size, p, format, True, capacity=int(capacity) if capacity else None)
    here = mine(rank, [140 // size] * size)
    with torch.no_grad():
        y = many(p.x[here], p.ids[here], p.weights[here])
        assert torch.equal(y, added([one(p.x, ids, p.weights) for ids in of_each_rank(p, size)])[here])
        one.promotion = "never"
        assert not torch.equal(y, added([one(p.x, ids, p.weights) for ids in of_each_rank(p, size)])[here])


class _Shapes(TorchDispatchMode):
    """The operators that run, with the shapes of their results."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **kwargs or {})
        self.seen.append((str(func), [tuple(one.shape) for one in tree_leaves(found) if isinstance(one, torch.Tensor)]))
        return found


def a_capacity_fixes_every_shape(rank: int, size: int) -> None:
    """No host reads a number, and no shape depends on one: what a CUDA graph asks of a call."""
    seen = []
    p, counts = divided("even", size)
    here = mine(rank, counts)
    _, many = layers(rank, size, p, "fp8_mxfp4", True, capacity=5, parts=2)
    many(p.x[here], p.ids[here], p.weights[here])  # compares the ranks
    tolist, torch.Tensor.tolist = torch.Tensor.tolist, None
    try:
        for how in ("even", "all to one rank", "all dropped"):
            p, _ = divided(how, size)
            with torch.no_grad(), _Shapes() as shapes:
                many(p.x[here], p.ids[here].clone(), p.weights[here])
            seen.append(shapes.seen)
            assert any("alltoall" in name for name, _ in seen[0])
            assert not any(
                word in name for name, _ in seen[0] for word in ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero")
            )
    finally:
        torch.Tensor.tolist = tolist
    assert seen[0] == seen[1] == seen[2]


def a_graph_replays_other_tokens(rank: int, size: int, format: str, parts: str) -> None:
    """On GPUs."""
    p, counts = divided("even", size)
    one, many = layers(rank, size, p, format, True, capacity=TOKENS, parts=int(parts))
    here, graph = mine(rank, counts), torch.cuda.CUDAGraph()
    given = [whole[here].clone() for whole in (p.x, p.ids, p.weights)]
    with torch.no_grad():
        many(*given)  # loads kernels and connects GPUs
        torch.cuda.synchronize()
        many.ranks.capacity = TOKENS + 1
        refusal = pytest.raises(ArgumentError, match="call the layer once before a CUDA graph captures it")
        with refusal, torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
            many(*given)
        many(*given)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            y = many(*given)
        for shift in range(3):
            whole = [one.roll(shift, 0) for one in (p.x, p.ids, p.weights)]
            for static, other in zip(given, whole, strict=True):
                static.copy_(other[here])
            graph.replay()
            x, ids, weights = whole
            sums = [one(x, mine, weights) for mine in of_each_rank(replace(p, ids=ids), size)]
            assert torch.equal(y, added(sums)[here])


def parts_hide_the_exchange(rank: int, size: int) -> None:
    """What begins, what is waited for, and which products run with which limit of multiprocessors."""
    p, counts = divided("even", size)
    here, log = mine(rank, counts), []
    _, many = layers(rank, size, p, "fp8b128", False, parts=2, multiprocessors=7)
    begin, gradients, product = experts_parallel.Ranks.begin, experts_training._Fused.gradients, experts.fused

    def begins(ranks: Any, what: str, *given: Any) -> Any:
        log.append(f"begin {what}")
        wait = begin(ranks, what, *given)
        return lambda: (log.append(f"end {what}"), wait())[1]

    def multiplies(*given: Any) -> Any:
        log.append(f"products, {limit_here()}")
        return product(*given)

    def goes_back(*given: Any) -> Any:
        log.append(f"gradients, {limit_here()}")
        return gradients(*given)

    experts_parallel.Ranks.begin, experts_training._Fused.gradients, experts.fused = begins, goes_back, multiplies
    try:
        y = many(p.x[here].clone().requires_grad_(), p.ids[here], p.weights[here].clone().requires_grad_())
        assert log == [
            *("begin counts", "end counts", "begin rows", "begin rows"),
            *("end rows", "products, 7", "begin results", "end rows", "products, 7", "begin results", "end results", "end results"),
        ]
        log.clear()
        y.sum().backward()
        results, rows = "gradients of results", "gradients of rows"
        assert log == [
            *(f"begin {results}", f"begin {results}"),
            *(f"end {results}", "gradients, 7", f"begin {rows}", f"end {results}", "gradients, 7", f"begin {rows}"),
            *(f"end {rows}", f"end {rows}"),
        ]
    finally:
        experts_parallel.Ranks.begin, experts_training._Fused.gradients, experts.fused = begin, gradients, product


def gradients_are_those_of_float64(rank: int, size: int, parts: str = "1", activation: str = "silu") -> None:
    """No comparison with another layer of zoo, whose mistakes would be the same."""
    p, counts = divided("even", size)
    here, experts = mine(rank, counts), mine(rank, [E // size] * size)
    options = {}
    if activation == "gpt_oss":
        biases = {f"{name}_bias": getattr(p, name)[:, :, 0].clone() for name in ("gate", "up", "down")}
        p = replace(p, activation=activation, limit=7.0, **biases)
        options = {name: one[experts] for name, one in p.biases("halves").items()}
    _, many = layers(rank, size, p, "fp8b128", False, parts=int(parts), **options)
    x, weights = p.x[here].clone().requires_grad_(), p.weights[here].clone().requires_grad_()
    y = many(x, p.ids[here], weights)
    grads = gradient(p)
    y.backward(grads[here])
    exact = [one.double().requires_grad_() for one in (p.x, p.weights, p.gate, p.up, p.down)]
    wanted = in_float64(replace(p, x=exact[0], weights=exact[1], gate=exact[2], up=exact[3], down=exact[4]))
    wanted.backward(grads.double())
    first = torch.cat((exact[2].grad, exact[3].grad), 1)[experts]
    pairs = [(y, wanted[here]), (x.grad, exact[0].grad[here]), (weights.grad, exact[1].grad[here])]
    for found, right in (*pairs, (many.gate_up.weight.grad, first), (many.down.weight.grad, exact[4].grad[experts])):
        assert (found - right).norm() <= 0.1 * right.norm(), ((found - right).norm(), right.norm())


def some_inputs_need_no_gradient(rank: int, size: int) -> None:
    p, counts = divided("unequal", size)
    here, found = mine(rank, counts), {}
    for needed in ("x", "weights", "experts"):
        _, many = layers(rank, size, p, "fp8b128", False)
        for one in many.parameters():
            one.requires_grad_(needed == "experts")
        x, weights = p.x[here].clone().requires_grad_(needed == "x"), p.weights[here].clone().requires_grad_(needed == "weights")
        many(x, p.ids[here], weights).float().square().sum().backward()
        found[needed] = {"x": x.grad, "weights": weights.grad, "experts": many.down.weight.grad}
        assert [name for name, one in found[needed].items() if one is not None] == [needed]
    _, many = layers(rank, size, p, "fp8b128", False)
    x, weights = p.x[here].clone().requires_grad_(), p.weights[here].clone().requires_grad_()
    many(x, p.ids[here], weights).float().square().sum().backward()
    for name, one in (("x", x), ("weights", weights), ("experts", many.down.weight)):
        assert torch.equal(one.grad, found[name][name]), name


def recomputes_in_the_backward_pass(rank: int, size: int, parts: str) -> None:
    p, counts = divided("unequal", size)
    here, grads = mine(rank, counts), []
    for again in (False, True):
        _, many = layers(rank, size, p, "fp8b128", False, parts=int(parts))
        x = p.x[here].clone().requires_grad_()
        given = x, p.ids[here], p.weights[here]
        y = checkpoint(many, *given, use_reentrant=False) if again else many(*given)
        y.float().square().sum().backward()
        grads.append((x.grad, many.gate_up.weight.grad))
    assert all(torch.equal(*pair) for pair in zip(*grads, strict=True))


def sends_a_token_once_to_a_rank(rank: int, size: int) -> None:
    p, counts = divided("even", size)
    _, many = layers(rank, size, p, "fp8b128", True)
    here = mine(rank, counts)
    with torch.no_grad():
        many(p.x[here], p.ids[here], p.weights[here])
    reached = torch.stack([(ids >= 0).any(1) for ids in of_each_rank(p, size)], 1)
    away = int(reached[here].sum() - reached[here, rank].sum())
    answered = int(reached[:, rank].sum() - reached[here, rank].sum())
    message = K + 16 + 16 + 16  # elements, two scales, two ids, two weights: each padded to 16 bytes
    assert many.ranks.sent_bytes == away * message + answered * 2 * K + (size - 1) * 64


def torch_has_its_layer_over_ranks(rank: int, size: int) -> None:
    """Which zoo's layer is measured beside."""
    if not hasattr(torch, "_grouped_mm"):
        return
    p, counts = divided("unequal", size)
    here, own = mine(rank, counts), mine(rank, [E // size] * size)
    ids, both = p.ids.clamp(min=0), [one.bfloat16() for one in (p.gate_up("halves"), p.down)]
    y, sent = torch_experts.experts_over_ranks(p.x[here], ids[here], p.weights[here], *(one[own] for one in both), distributed.group.WORLD)
    wanted = torch_experts.experts(p.x, ids, p.weights, *both)[here]
    away = int((ids[here] // (E // size) != rank).sum()) + int(
        (ids // (E // size) == rank).sum() - (ids[here] // (E // size) == rank).sum()
    )
    assert (y - wanted).float().norm() <= 0.01 * wanted.float().norm() and sent == away * 2 * K


def a_copy_works(rank: int, size: int) -> None:
    p, _ = divided("even", size)
    _, many = layers(rank, size, p, "fp8_mxfp4", True)
    with torch.no_grad():
        copied = copy.deepcopy(many)
        assert torch.equal(copied(p.x, p.ids, p.weights), many(p.x, p.ids, p.weights))
    copied.ranks.capacity = 4
    assert many.ranks.capacity is None and copied.down.ranks is copied.ranks


def one_seed_makes_different_experts(rank: int, size: int) -> None:
    torch.manual_seed(3)
    weights, drawn = Experts(2, K, 128, group=distributed.group.WORLD).down.weight.detach(), torch.rand(1)
    every = [None] * size
    distributed.all_gather_object(every, (weights, drawn))
    assert len({tuple(expert.flatten()[:4].tolist()) for one, _ in every for expert in one}) == 2 * size
    assert all(torch.equal(one, drawn) for _, one in every)  # what follows is drawn alike


def is_compiled_around_the_exchange(rank: int, size: int) -> None:
    p, counts = divided("unequal", size)
    _, many = layers(rank, size, p, "fp8b128", False)
    here, found = mine(rank, counts), []
    for call in (many, torch.compile(many, backend="eager")):
        x = p.x[here].clone().requires_grad_()
        y = call(x, p.ids[here], p.weights[here])
        y.float().square().sum().backward()
        found.append((y.detach(), x.grad))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def refused(make: Any) -> str:
    try:
        make()
    except RankError as error:
        return str(error)
    return "not refused"


def another_library(rank: int, size: int) -> str:
    digest = experts_parallel.library
    experts_parallel.library = lambda: f"{digest()}{'0' if rank == size - 1 else ''}"
    try:
        return refused(lambda: layers(rank, size, divided("even", size)[0], "fp8b128", True))
    finally:
        experts_parallel.library = digest


def another_layer(rank: int, size: int) -> str:
    return refused(lambda: Experts(2, K, 128, activation="silu" if rank else "gpt_oss", group=distributed.group.WORLD))


def other_parts(rank: int, size: int) -> str:
    """Set after the layer was built, by one rank."""
    p, _ = divided("even", size)
    _, many = layers(rank, size, p, "fp8b128", True, parts=2)
    many.ranks.parts = 1 if rank else 2
    return refused(lambda: many(p.x, p.ids, p.weights))


def another_capacity(rank: int, size: int, of_rank_0: str) -> str:
    p, _ = divided("even", size)
    _, many = layers(rank, size, p, "fp8b128", True, capacity=TOKENS)
    many.ranks.capacity = 4 + rank if rank or of_rank_0 != "none" else None
    return refused(lambda: many(p.x, p.ids, p.weights))


def captured_before_ranks_compare(rank: int, size: int) -> str:
    """A graph would replay what the host has to read."""
    p, _ = divided("even", size)
    _, many = layers(rank, size, p, "fp8b128", True, capacity=TOKENS)
    words = []

    def capture() -> None:
        sent = many.ranks.sent_bytes
        with unittest.mock.patch.object(experts_parallel, "capturing", return_value=True):
            try:
                many(p.x, p.ids, p.weights)
                words.append("captured")
            except ArgumentError as error:
                words.append(str(error))
                assert many.ranks.sent_bytes == sent

    capture()
    many(p.x, p.ids, p.weights)
    capture()
    for capacity in (None, TOKENS):
        many.ranks.capacity = capacity
        capture()
        many(p.x, p.ids, p.weights)
    capture()
    return "\n".join(words)


def averaged_by_ddp(rank: int, size: int) -> str:
    """Unless it ignores the experts, as the words say."""
    p, counts = divided("even", size)
    here, ddp, found = mine(rank, counts), torch.nn.parallel.DistributedDataParallel, []
    for ignored in (True, False):
        _, many = layers(rank, size, p, "fp8b128", False)
        model = torch.nn.Sequential(many, torch.nn.Linear(K, K, dtype=torch.bfloat16))
        model.forward = lambda *given, model=model: model[1](model[0](*given))
        if ignored:
            ddp._set_params_and_buffers_to_ignore_for_model(model, [name for name in model.state_dict() if name.startswith("0.")])
        wrapped = ddp(model)
        try:
            wrapped(p.x[here], p.ids[here], p.weights[here]).sum().backward()
            found.append(f"experts of rank {rank}" if torch.equal(many.down.weight, p.down[mine(rank, [E // size] * size)]) else "others")
        except ArgumentError as error:
            found.append(str(error))
    return "\n".join(found)


def another_call(rank: int, size: int) -> str:
    p, _ = divided("even", size)
    _, many = layers(rank, size, p, "fp8b128", False)

    def call() -> None:
        with torch.set_grad_enabled(rank > 0):
            many(p.x, p.ids, p.weights)

    return refused(call)


def another_number_of_choices(rank: int, size: int, capacity: str = "") -> str:
    """Messages have one size: a row is filled up to 16 bytes."""
    p, _ = divided("even", size)
    _, many = layers(rank, size, p, "fp8_mxfp4", True, capacity=int(capacity) if capacity else None)
    return refused(lambda: many(p.x, p.ids[:, : 1 + (rank > 0)], p.weights[:, : 1 + (rank > 0)]))


def another_order(rank: int, size: int) -> str:
    """Of layers that fit each other."""
    p, _ = divided("even", size)
    both = [layers(rank, size, p, "fp8_mxfp4", True)[1] for _ in range(2)]
    return refused(lambda: [one(p.x, p.ids, p.weights) for one in (both if rank else both[::-1])])


def wrong_options(rank: int, size: int) -> str:
    words = []
    refused_when_built = (
        {"format": "nvfp4"},
        {"parts": 0},
        {"parts": True},
        {"capacity": 1.5},
        {"group": "world"},
        {"group": None, "parts": 2},
        {"first": 1},
    )
    for options in (*refused_when_built, {"capacity": 4}, {"format": "mxfp8"}):
        try:
            layer = Experts(2, K, 128, **{"group": distributed.group.WORLD, **options})
            layer(torch.zeros(3, K), torch.zeros(3, 2).int(), torch.zeros(3, 2))
        except Exception as error:
            words.append(str(error))
    x, ids, weights = torch.zeros(3, K), torch.zeros(3, 2).int(), torch.zeros(3, 2)
    frozen = Experts(2, K, 128, format="fp8_mxfp4", group=distributed.group.WORLD)
    for call in (
        lambda: setattr(frozen.ranks, "capacity", 2.5),
        lambda: pickle.dumps(frozen),
        lambda: frozen(x.to("meta"), ids.to("meta"), weights.to("meta")),
        lambda: frozen(x, ids, weights.requires_grad_()),
    ):
        try:
            call()
        except Exception as error:
            words.append(str(error))
    return "\n".join(words)


def with_optimiser(rank: int, size: int) -> tuple[torch.nn.ModuleDict, torch.optim.Optimizer, torch.nn.ModuleDict, torch.optim.Optimizer]:
    """A model of which each rank has its experts, one that has all, and an optimiser of each."""
    p, found = divided("even", size)[0], []
    pairs = {"trains": ("fp8b128", False), "fp8": ("fp8b128", True), "mxfp4": ("fp8_mxfp4", True), "nvfp4": ("bf16_nvfp4", True)}
    for of_pair in (1, 0):
        torch.manual_seed(0)
        model = torch.nn.ModuleDict({"router": torch.nn.Linear(K, E)})
        for name, (format, frozen) in pairs.items():
            model[name] = layers(rank, size, p, format, frozen, group=distributed.group.WORLD if size > 1 else None)[of_pair]
        found += [model, torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.1)]
    return tuple(found)


def wrappers_lose_no_experts_of_a_checkpoint(rank: int, size: int) -> None:
    p, _ = divided("even", size)

    def copies(model: torch.nn.ModuleDict) -> torch.nn.Module:
        ddp, names = torch.nn.parallel.DistributedDataParallel, [name for name in model.state_dict() if name.startswith("experts")]
        ddp._set_params_and_buffers_to_ignore_for_model(model, names)
        return ddp(model)

    def recomputes(model: torch.nn.ModuleDict) -> torch.nn.Module:
        model["experts"] = checkpoint_wrapper(model["experts"])
        return model

    for wrap in (lambda model: torch.compile(model, backend="eager"), copies, recomputes):
        experts = layers(rank, size, p, "fp8b128", False)[1]
        model = wrap(torch.nn.ModuleDict({"router": torch.nn.Linear(K, E), "experts": experts}))
        state = SpreadState(model, torch.optim.AdamW(model.parameters())).state_dict()
        for name, whole in (("gate_up", p.gate_up("halves")), ("down", p.down)):
            of_optimiser = state["optimisers"]["state"][f"experts.{name}.weight"]["exp_avg"]
            assert state["model"][f"experts.{name}.weight"].shape == of_optimiser.shape == whole.shape
        assert not hasattr(state["model"]["router.weight"], "to_local")


def of_gates(gates: str, experts: int, spread: bool) -> tuple[torch.nn.ModuleDict, SpreadState]:
    options = {"group": distributed.group.WORLD} if spread else {}
    model = torch.nn.ModuleDict({"experts": Experts(experts, 64, 64, gates=gates, **options)})
    return model, SpreadState(model)


def another_order_of_gates(rank: int, size: int, saves: str, loads: str) -> str:
    """In files of all ranks, and of a layer without a group."""
    spread, whole = (2, True), (2 * size, False)
    here, there = (spread if one == "spread" else whole for one in (saves, loads))
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        distributed.broadcast_object_list(folder)
        torch.manual_seed(0)
        model, state = of_gates("halves", *here)
        checkpoint_files.save({"state": state}, checkpoint_id=folder[0])
        same, of_same = of_gates("halves", *there)
        checkpoint_files.load({"state": of_same}, checkpoint_id=folder[0])
        saved, loaded = model["experts"].down.weight, same["experts"].down.weight
        part = slice(2 * rank, 2 * rank + 2)
        assert torch.equal(saved if here == spread else saved[part], loaded if there == spread else loaded[part])
        try:
            checkpoint_files.load({"state": of_gates("interleaved", *there)[1]}, checkpoint_id=folder[0])
        except ArgumentError as error:
            return str(error)
        finally:
            distributed.barrier()
    return "loaded"


def numbers_of(model: torch.nn.Module, optimiser: torch.optim.Optimizer) -> list[torch.Tensor]:
    moments = [value for one in optimiser.state.values() for value in one.values()]
    return [one.detach() for one in (*model.state_dict().values(), *moments)]


def saves_for_another_number_of_ranks(rank: int, size: int, folder: str) -> None:
    """After a step, by gradients that do not depend on the number of ranks."""
    model, optimiser, *_ = with_optimiser(rank, size)
    for one in model.parameters():
        one.grad = one.detach() * 2 if one.requires_grad else None
    optimiser.step()
    checkpoint_files.save({"state": SpreadState(model, optimiser)}, checkpoint_id=folder)


def loads_of_another_number_of_ranks(rank: int, size: int, folder: str) -> None:
    model, optimiser, whole, of_whole = with_optimiser(rank, size)
    for one in whole.parameters():
        one.grad = one.detach() * 2 if one.requires_grad else None
    of_whole.step()
    with torch.no_grad():
        for one in (*model.parameters(), *model.buffers()):
            one.view(torch.uint8).zero_()
    checkpoint_files.load({"state": SpreadState(model, optimiser)}, checkpoint_id=folder)
    found, wanted = numbers_of(model, optimiser), numbers_of(whole, of_whole)
    assert len(found) == len(wanted) > 20
    for one, other in zip(found, wanted, strict=True):
        part = other if one.shape == other.shape else other.unflatten(0, (size, -1))[rank]
        assert one.dtype == other.dtype and torch.equal(one.view(torch.uint8), part.view(torch.uint8)) if one.dim() else one == other


def a_late_rank_ends_the_others(rank: int, size: int) -> None:
    """By NCCL, whose watchdog ends a process six seconds after the time-out at the latest. Its usual pause before that is a minute."""
    os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] = "250"  # a quarter of the pause, read when a group is made
    p, counts = divided("even", size)
    here, processes = mine(rank, counts), [0] * size
    distributed.all_gather_object(processes, os.getpid())
    group = distributed.new_group(timeout=datetime.timedelta(seconds=TIMEOUT))
    _, many = layers(rank, size, p, "fp8b128", True, group=group)
    many(p.x[here], p.ids[here], p.weights[here])
    torch.cuda.synchronize()
    distributed.barrier()
    if rank < size - 1:
        many(p.x[here], p.ids[here], p.weights[here])
        torch.cuda.synchronize()
        return
    time.sleep(TIMEOUT + 6)
    for process in processes[:-1]:
        try:
            os.kill(process, 0)
            raise AssertionError("a rank has outlived the time-out")
        except ProcessLookupError:
            pass


def ends_with(rank: int, size: int, fault: str, stage: str, how: str) -> str:
    """The last rank ends, or comes late, as it begins the exchange `stage` or its products. What the others see, after which wait."""
    p, counts = divided("even", size)
    here, begin = mine(rank, counts), experts_parallel.Ranks.begin
    group = distributed.new_group(timeout=datetime.timedelta(seconds=TIMEOUT))

    serves = how == "serves with a capacity"
    options = {"trains": {}, "trains in parts": {"parts": 2}, "serves with a capacity": {"capacity": 16, "parts": 2}}[how]

    def step(layer: Experts) -> None:
        if serves:
            layer(p.x[here], p.ids[here], p.weights[here])
            return
        layer(p.x[here].clone().requires_grad_(), p.ids[here], p.weights[here]).sum().backward()

    def fail() -> None:
        if fault == "ends":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(3 * TIMEOUT)

    def exchanges(ranks: Any, what: str, *given: Any) -> Any:
        nonlocal started
        if what == stage and rank == size - 1:
            fail()
        started = time.monotonic()
        return begin(ranks, what, *given)

    step(layers(rank, size, p, "fp8b128", serves, **options)[1])  # what is slow the first time is done
    distributed.barrier()
    started = time.monotonic()
    try:
        if rank == size - 1 and stage == "digests":
            fail()
        _, many = layers(rank, size, p, "fp8b128", serves, group=group, **options)
        experts_parallel.Ranks.begin = exchanges
        if rank == size - 1 and stage == "products":
            many._gating = fail
        step(many)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except RankError as error:
        return f"{time.monotonic() - started:.1f} s: {error}"
    return "not ended"


ROUTINGS = ("even", "unequal", "none on the last rank", "no tokens", "all to one rank", "all dropped", "ids out of range")
SERVED = [name for name in FORMATS if name != "nvfp4"]
TRAINED = [(trains_as_one_process, (how,)) for how in ROUTINGS]
IN_PARTS = [(serves_as_one_process, ("fp8b128", how, "3")) for how in ("unequal", "no tokens")]
IN_PARTS += [(trains_as_one_process, ("none on the last rank", "2"))]
OVER_CAPACITY = [(serves_with_a_capacity, ("fp8b128", how, "2", parts)) for how in ("unequal", "all to one rank") for parts in "12"]
EQUAL = [
    *((serves_as_one_process, (format, "even")) for format in SERVED),
    *((serves_as_one_process, ("fp8_mxfp4", how)) for how in ROUTINGS[1:]),
    (serves_many_rows_as_one_process, ("fp8_mxfp4",)),
    (serves_many_rows_as_one_process, ("fp8_nvfp4", "140")),
    *TRAINED,
    *IN_PARTS,
    (trains_as_one_process, ("unequal", "2")),
    (trains_as_one_process, ("unequal", "1", "gpt_oss")),
    *((serves_with_a_capacity, ("fp8_mxfp4", how, "48")) for how in ROUTINGS),
    *OVER_CAPACITY,
    (gradients_are_those_of_float64, ()),
    (some_inputs_need_no_gradient, ()),
    (gradients_are_those_of_float64, ("2",)),
    (gradients_are_those_of_float64, ("1", "gpt_oss")),
    (recomputes_in_the_backward_pass, ("1",)),
    (recomputes_in_the_backward_pass, ("2",)),
    (parts_hide_the_exchange, ()),
    (a_capacity_fixes_every_shape, ()),
    (is_compiled_around_the_exchange, ()),
    (sends_a_token_once_to_a_rank, ()),
    (torch_has_its_layer_over_ranks, ()),
    (a_copy_works, ()),
    (one_seed_makes_different_experts, ()),
    (wrappers_lose_no_experts_of_a_checkpoint, ()),
]
EQUAL_ON_FOUR = [
    (serves_as_one_process, ("fp8b128", "unequal")),
    (serves_as_one_process, ("fp8_nvfp4", "even")),
    *TRAINED,
    *IN_PARTS,
    *OVER_CAPACITY,
    (sends_a_token_once_to_a_rank, ()),
]
REFUSED = [
    *(
        (
            another_order_of_gates,
            pair,
            r"experts.gate_up: the layer has gates='interleaved', and the state is of a layer with gates='halves'",
        )
        for pair in (("spread", "spread"), ("spread", "whole"), ("whole", "spread"))
    ),
    (another_library, (), "library: rank 0: zoo .*; install one version of zoo on all ranks"),
    (another_layer, (), r"layer: rank 0: Experts 2 x 256 x 128, fp8b128, gpt_oss.*; rank 1: .* silu.*; build one layer on all ranks"),
    (other_parts, (), r"parts: rank 0: 2; rank 1: 1; set one number on all ranks"),
    (another_capacity, ("4",), r"capacity: rank 0: 4; rank 1: 5; set one number on all ranks"),
    (another_capacity, ("none",), r"capacity: rank 0: None; rank 1: 5; set one number on all ranks"),
    (captured_before_ranks_compare, (), r"in the first call.*\ncaptured\n.*without a capacity.*\n.*call the layer once.*\ncaptured$"),
    (
        averaged_by_ddp,
        (),
        r"experts of rank \d\n.*DistributedDataParallel has copied the experts of one rank.*_set_params_and_buffers_to_ignore_for_model",
    ),
    (another_call, (), r"call: rank 0: needs no gradient; rank 1: needs gradients of experts; call the layer alike on all ranks"),
    *(
        (another_number_of_choices, given, r"ids: rank 0: top_k 1; rank 1: top_k 2; choose as many experts for a token on all ranks")
        for given in ((), ("48",))
    ),
    (another_order, (), r"call: rank 0: layer \d+ of the group; rank 1: layer \d+ of the group; call layers in one order on all ranks"),
    (
        wrong_options,
        (),
        r"nvfp4 has one scale.*\n.*parts: expected a whole .*, got 0\n.*parts: .* got True\n.*capacity: .* got 1\.5\n"
        r".*group: expected a process group, got 'world'.*\n.*belong to group=.*\n.*got first=1, total=None; leave both out.*\n"
        r".*capacity: a layer that trains has none.*\n.*with a group, a layer trains in fp8b128, with.*\n"
        r".*capacity: .* got 2\.5\n.*cannot hold a process group; save .*\n.*x is on meta.*\n.*routing weights no gradient.*no_grad",
    ),
]

"""FSDP2 and distributed checkpoints, in two processes of the CPU."""

from __future__ import annotations

import contextlib
import copy
import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import zoo.torch as zt
from zoo.errors import ArgumentError
from zoo.torch.nn import Experts, Linear

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available() or torch.__version__ < "2.7" or sys.platform != "linux", reason="FSDP2 of this torch needs a GPU"
)


def model(format: str, width: int = 64, out: int = 32) -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(Linear(64, width, format=format), torch.nn.GELU(), Linear(width, out, format=format))


def rows(batch: int, rank: int) -> torch.Tensor:
    return torch.randn(16, 64, generator=torch.Generator().manual_seed(10 * batch + rank))


def sharded(layers: torch.nn.Sequential, reshard: bool) -> torch.nn.Sequential:
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    for one in (layers[0], layers[2], layers):
        fully_shard(one, mesh=mesh, reshard_after_forward=reshard)
    return layers


def learns_as_one_process_does(rank: int, folder: Path, format: str) -> None:
    for reshard in (True, False):
        layers, whole = sharded(model(format), reshard), model(format)
        optimisers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (layers, whole)]
        for step in range(2):
            for batch in (2 * step, 2 * step + 1):
                layers(rows(batch, rank)).square().mean().backward()
                for other in range(2):
                    (whole(rows(batch, other)).square().mean() / 2).backward()
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
        for one, other in zip(layers.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(
                one.full_tensor().detach(), other.detach(), rtol=1e-5, atol=1e-6
            )  # sums of gradients in another order
        assert not torch.equal(whole[0].weight, model(format)[0].weight)
        assert layers[0]._kept._forms is None or not reshard, "a cast of the whole weight outlives its shards"


def gradients_added_in_place_are_reduced(rank: int, folder: Path, kind: str) -> None:
    """Of two micro-batches, the first without a reduction."""
    from torch.nn.parallel import DistributedDataParallel

    whole, by_shards = model("fp8b128", 256, 256), kind.startswith("FSDP2")
    layers = copy.deepcopy(whole)
    for one in (layers[0], layers[2]):
        one.add_gradients = True
        one.gather_casts = kind == "FSDP2, casts"
    layers = sharded(layers, False) if by_shards else DistributedDataParallel(layers, gradient_as_bucket_view=kind == "views")
    for batch in range(3):
        if by_shards:
            layers.set_requires_gradient_sync(batch == 2)
        with contextlib.nullcontext() if by_shards or batch == 2 else layers.no_sync():
            layers(rows(batch, rank)).square().mean().backward()
        for other in range(2):
            (whole(rows(batch, other)).square().mean() / 2).backward()
    for one, other in zip(layers.parameters(), whole.parameters(), strict=True):
        found = one.grad.full_tensor() if by_shards else one.grad
        torch.testing.assert_close(found, other.grad, rtol=1e-5, atol=1e-6)


def products_by_columns_and_rows(rank: int, folder: Path, format: str) -> None:
    """Rows of a sequence on each rank before and after; torch's styles gather and scatter them."""
    from torch.distributed.tensor import Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def two(seed: int) -> torch.nn.Sequential:
        torch.manual_seed(seed)
        return torch.nn.Sequential(Linear(128, 512, format=format), torch.nn.GELU(), Linear(512, 128, format=format))

    whole, layers = two(1), two(1)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    ways = {"0": ColwiseParallel(input_layouts=Shard(1)), "2": RowwiseParallel(output_layouts=Shard(1))}
    parallelize_module(layers, mesh, ways)
    optimisers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (whole, layers)]
    for seed in range(2):
        x = torch.randn(3, 20, 128, generator=torch.Generator().manual_seed(seed))
        dy = torch.randn(3, 20, 128, generator=torch.Generator().manual_seed(9 + seed))
        here = slice(10 * rank, 10 * rank + 10)
        x_whole, x_here = x.clone().requires_grad_(), x[:, here].clone().requires_grad_()
        y, part = whole(x_whole), layers(x_here)
        y.backward(dy)
        part.backward(dy[:, here])
        assert part.shape == x_here.shape
        pairs = [(part, y[:, here]), (x_here.grad, x_whole.grad[:, here])]
        pairs += [(one.grad.full_tensor(), other.grad) for one, other in zip(layers.parameters(), whole.parameters(), strict=True)]
        for found, wanted in pairs:
            # two parts of a sum, in f32
            assert (found - wanted).norm() <= 1e-6 * wanted.norm(), (found - wanted).norm() / wanted.norm()
        for one in optimisers:
            one.step()
            one.zero_grad()
    with pytest.raises(ArgumentError, match="weight S\\(0\\) and x no DTensor"):
        layers[0].forward(x)


def gathers_casts(rank: int, folder: Path, kind: str) -> None:
    """Weights learn as where they are gathered themselves, by a byte an element and the scales."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))

    def made(casts: bool) -> torch.nn.Module:
        torch.manual_seed(0)
        experts = Experts(4, 64, 128, dtype=torch.bfloat16) if kind == "Experts" else None
        layers = [experts] if experts else [Linear(64, 256), torch.nn.GELU(), Linear(256, 256, bias=False)]
        for one in layers[::2]:
            one.gather_casts = casts
        found = copy.deepcopy(torch.nn.Sequential(*layers))
        for one in (*found[::2], found):
            fully_shard(one, mesh=mesh, reshard_after_forward=kind != "Linear, gathered once")
        assert all(one.gather_casts == casts for one in found[::2])
        return found

    def loss(layers: torch.nn.Module, batch: int) -> torch.Tensor:
        x, ids = rows(batch, rank).bfloat16(), torch.arange(32).view(16, 2) % 4
        y = layers[0](x, ids, torch.full((16, 2), 0.5)) if kind == "Experts" else layers(x)
        return y.float().square().mean()

    class Gathers(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "allgather_base" in str(func):
                gathered[-1] += args[0].nbytes
            return func(*args, **kwargs or {})

    both, gathered = [made(casts) for casts in (True, False)], []
    for layers in both:
        optimiser = torch.optim.AdamW(layers.parameters(), lr=0.1)
        gathered.append(0)
        for step in range(2):
            with Gathers():
                for batch in (2 * step, 2 * step + 1):
                    loss(layers, batch).backward()
            optimiser.step()
            optimiser.zero_grad()
    for one, other in zip(*(layers.parameters() for layers in both), strict=True):
        assert torch.equal(one.full_tensor(), other.full_tensor())
    weights, squares, biases, width = (4 * 64 * 384, 4 * 3, 0, 2) if kind == "Experts" else (5 * 64 * 256, 2 + 4, 256, 4)
    assert gathered[0] * width * (weights + biases) == gathered[1] * (weights + 4 * squares + width * biases) > 0

    file = folder / f"casts {kind}"
    dcp.save(both[0].state_dict(), checkpoint_id=file)
    restored = made(False).state_dict()
    dcp.load(restored, checkpoint_id=file)
    for name, one in both[1].state_dict().items():
        assert torch.equal(restored[name].full_tensor(), one.full_tensor())


def casts_that_ranks_would_cut_are_refused(rank: int, folder: Path, kind: str) -> None:
    from torch.distributed.fsdp import fully_shard

    layer = Linear(64, 192) if kind == "Linear" else Experts(3, 64, 128)
    layer.gather_casts = True
    fully_shard(layer)
    with pytest.raises(ArgumentError, match="2 ranks do not divide its weight"):
        layer(torch.zeros(4, 64), *(() if kind == "Linear" else (torch.zeros(4, 2).int(), torch.zeros(4, 2))))


def casts_outlive_new_memory(rank: int, folder: Path, kind: str) -> None:
    from torch.distributed.fsdp import fully_shard

    layer = Linear(64, 256)
    layer.gather_casts = True
    fully_shard(layer).to_empty(device="cpu")
    assert layer.gather_casts


@torch.no_grad()
def a_weight_of_another_rank_is_cast_when_told(rank: int, folder: Path, kind: str) -> None:
    """As a trainer sends weights to those who generate. Collectives change no version."""
    torch.manual_seed(rank)
    layer, x = Linear(64, 32), torch.ones(4, 64)
    layer.hold_casts = kind == "held"
    layer(x)
    for one in layer.parameters():
        torch.distributed.broadcast(one, 0)
    zt.nn.renew_casts()
    torch.manual_seed(0)
    assert torch.equal(layer(x), Linear(64, 32)(x))


def experts_of_other_ranks_are_not_gathered(rank: int, folder: Path, kind: str) -> None:
    from torch.distributed.fsdp import fully_shard

    group = torch.distributed.group.WORLD
    layer = torch.nn.Sequential(torch.nn.Linear(64, 4), Experts(2, 64, 128, group=group))
    layer[1].gather_casts = kind == "casts"
    with pytest.raises(
        ArgumentError, match="would mix their experts; pass the parameters of gate_up and down to fully_shard as ignored_params="
    ):
        fully_shard(copy.deepcopy(layer))
    fully_shard(layer, ignored_params={*layer[1].gate_up.parameters(), *layer[1].down.parameters()})
    assert zt.nn.SpreadState(layer).state_dict()["model"]["1.down.weight"].shape == (4, 64, 128)
    alone = torch.distributed.new_subgroups(1)[0]
    twice = torch.nn.Sequential(Experts(2, 64, 128, group=alone))
    fully_shard(twice)  # the other rank has equal experts
    with pytest.raises(ArgumentError, match=r"SpreadState: 0\.gate_up\.weight is a DTensor already"):
        zt.nn.SpreadState(twice).state_dict()


def mixture(format: str) -> Experts:
    torch.manual_seed(0)
    return Experts(4, 64, 128, format=format, activation="silu" if format == "fp8b128" else "gpt_oss", bias=format != "fp8b128")


def experts_learn_as_one_process_does(rank: int, folder: Path, format: str) -> None:
    from torch.distributed.fsdp import fully_shard

    def loss(layer: Experts, batch: int, rank: int) -> torch.Tensor:
        ids = torch.arange(32).view(16, 2) % 4
        return layer(rows(batch, rank).bfloat16(), ids, torch.full((16, 2), 0.5)).float().square().mean()

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    for reshard in (True, False):
        layer, whole = fully_shard(mixture(format), mesh=mesh, reshard_after_forward=reshard), mixture(format)
        optimisers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (layer, whole)]
        for step in range(2):
            for batch in (2 * step, 2 * step + 1):
                loss(layer, batch, rank).backward()
                for other in range(2):
                    (loss(whole, batch, other) / 2).backward()
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
        for one, other, begun in zip(layer.parameters(), whole.parameters(), mixture(format).parameters(), strict=True):
            assert not torch.equal(other, begun)
            torch.testing.assert_close(one.full_tensor().detach(), other.detach(), rtol=1e-5, atol=1e-6)


def is_saved_and_loaded(rank: int, folder: Path, format: str) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    states = []
    for seed in range(2):
        layers = sharded(model(format), True)
        optimiser = torch.optim.AdamW(layers.parameters(), lr=0.1)
        for batch in range(seed + 1):
            layers(rows(batch, rank)).sum().backward()
            optimiser.step()
        states.append((layers, optimiser, dict(zip(("model", "optimiser"), get_state_dict(layers, optimiser), strict=True))))
    (first, _, saved), (second, optimiser, loaded) = states
    dcp.save(saved, checkpoint_id=folder / format)
    assert not torch.equal(first(rows(9, rank)), second(rows(9, rank)))
    dcp.load(loaded, checkpoint_id=folder / format)
    set_state_dict(second, optimiser, model_state_dict=loaded["model"], optim_state_dict=loaded["optimiser"])
    assert torch.equal(first(rows(9, rank)), second(rows(9, rank)))


def is_saved_and_loaded_frozen(rank: int, folder: Path, format: str) -> None:
    import torch.distributed.checkpoint as dcp

    first = model("fp8b128")
    zt.quantize_(first, format)
    dcp.save(first.state_dict(), checkpoint_id=folder / f"frozen_{format}")
    second = copy.deepcopy(first)
    for one in second.buffers():
        one.view(torch.uint8).zero_()
    state = second.state_dict()
    dcp.load(state, checkpoint_id=folder / f"frozen_{format}")
    second.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(first(rows(9, rank)), second(rows(9, rank)))


CASES = [
    (learns_as_one_process_does, "fp8b128"),
    (learns_as_one_process_does, "nvfp4"),
    (gradients_added_in_place_are_reduced, "FSDP2"),
    (gradients_added_in_place_are_reduced, "FSDP2, casts"),
    (gradients_added_in_place_are_reduced, "copies"),
    (gradients_added_in_place_are_reduced, "views"),
    (products_by_columns_and_rows, "fp8b128"),
    (products_by_columns_and_rows, "mxfp8"),
    (gathers_casts, "Linear, gathered once"),
    (gathers_casts, "Linear, gathered again"),
    (gathers_casts, "Experts"),
    (casts_that_ranks_would_cut_are_refused, "Linear"),
    (casts_that_ranks_would_cut_are_refused, "Experts"),
    (casts_outlive_new_memory, "Linear"),
    (a_weight_of_another_rank_is_cast_when_told, "kept"),
    (a_weight_of_another_rank_is_cast_when_told, "held"),
    (experts_of_other_ranks_are_not_gathered, "numbers"),
    (experts_of_other_ranks_are_not_gathered, "casts"),
    (experts_learn_as_one_process_does, "fp8b128"),
    (experts_learn_as_one_process_does, "mxfp8"),
    (is_saved_and_loaded, "fp8b128"),
    (is_saved_and_loaded_frozen, "fp8b128"),
    (is_saved_and_loaded_frozen, "fp8_nvfp4"),
    (is_saved_and_loaded_frozen, "mxfp8"),
]


def work(rank: int, folder: Path, results: multiprocessing.Queue) -> None:
    """All cases in one pair of processes: torch takes longer to begin than they do."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for number, (case, format) in enumerate(CASES):
        try:
            case(rank, folder, format)
            results.put((rank, number, ""))
        except Exception as error:
            results.put((rank, number, f"{type(error).__name__}: {error}"))
            raise
    torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    context, folder = multiprocessing.get_context("spawn"), tmp_path_factory.mktemp("sharded")
    results = context.Queue()
    pair = [context.Process(target=work, args=(rank, folder, results), daemon=True) for rank in range(2)]
    for one in pair:
        one.start()
    found = {}
    while len(found) < 2 * len(CASES) and not any(error for error in found.values()):
        rank, number, error = results.get(timeout=240)
        found[rank, number] = error
    for one in pair:
        one.join(5)
        one.terminate()
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case.__name__}-{format}" for case, format in CASES])
def test_a_sharded_model(outcome, number):
    assert [outcome.get((rank, number), "not reached") for rank in range(2)] == ["", ""]

"""A layer of experts spread over processes: what one call costs, what it sends, and which share of its time is the exchange.

    torchrun --nproc-per-node 2 tools/exchange_times.py

Torch's layer in bf16 is timed beside it. Its rows of all choices travel. With two parts of the tokens, the exchange of one hides behind the
products of the other. In a CUDA graph, messages have a fixed size. A CPU's times say nothing about a GPU.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch import distributed

import zoo.torch as zt

GPU = torch.cuda.is_available()
# experts of all ranks, experts of a token, width of the model, gates of an expert
EXPERTS, TOP, K, GATES = (64, 8, 7168, 2048) if GPU else (8, 2, 256, 128)
PARTS = {"parts": 2, "multiprocessors": 116 if GPU else None}  # an H200 has 132: the others are NCCL's
# name, tokens of a rank, layers one after the other, options
CASES: list[tuple[str, int, int, dict[str, Any]]] = [
    *(("serve", tokens, layers, options) for tokens, layers in ((128, 1), (8192, 1), (8192, 4)) for options in ({}, PARTS)),
    *(("graph", tokens, 4, {"capacity": tokens}) for tokens in (16, 128)),
    *(("train", 8192, 1, options) for options in ({}, PARTS)),
]
CASES = CASES if GPU else [("serve", 64, 1, {}), ("serve", 64, 2, PARTS), ("train", 64, 1, PARTS)]


def milliseconds(call: Callable[[], Any]) -> float:
    """Of one call, on the slowest rank."""
    calls = 10 if GPU else 1
    call()
    distributed.barrier()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    if GPU:
        torch.cuda.synchronize()
    took = torch.tensor((time.perf_counter() - begin) / calls * 1000, device="cuda" if GPU else "cpu")
    distributed.all_reduce(took, distributed.ReduceOp.MAX)
    return float(took)


def called(
    name: str, layer: Callable[..., Any], x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, layers: int
) -> Callable[[], Any]:
    """A function that serves or trains so many layers."""

    def run() -> None:
        y = x
        for _ in range(layers):
            y = layer(y, ids, weights)
        if name == "train":
            y.sum().backward()

    def serve() -> None:
        with torch.no_grad():
            run()

    if name != "graph":
        return run if name == "train" else serve
    serve()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
        run()
    replay: Callable[[], Any] = graph.replay
    return replay


def beside_torch(
    name: str, x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor, both: Sequence[torch.Tensor], layers: int
) -> tuple[float, int]:
    """Milliseconds of torch's layer, and the bytes that it sends."""
    from zoo.benchmark.torch_experts import experts_over_ranks

    sent = 0

    def layer(x: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor) -> Any:
        nonlocal sent
        y, size = experts_over_ranks(x, ids, weights, both[0], both[1], distributed.group.WORLD)
        sent = size * (2 if name == "train" else 1)  # gradients travel the same ways
        return y

    return milliseconds(called(name, layer, x, ids, weights, layers)), sent * layers


def main() -> None:
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if GPU else torch.device("cpu")
    if GPU:
        torch.cuda.set_device(device)
    # torch ends a rank that waits in vain four times as long after the time-out: usually a minute
    os.environ.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "250")
    distributed.init_process_group("nccl" if GPU else "gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    here = EXPERTS // ranks
    if EXPERTS % ranks:
        raise SystemExit(f"{ranks} ranks do not divide {EXPERTS} experts: start another number of processes")
    torch.manual_seed(rank)
    both = torch.randn(here, 2 * GATES, K, device=device) / K**0.5, torch.randn(here, K, GATES, device=device) / GATES**0.5
    if rank == 0:
        print(f"{ranks} ranks on {device.type}: {here} experts each, {K} x {GATES}, {TOP} of {EXPERTS} for each token")
        print("call   tokens a rank   layers   parts        ms   torch, ms   sent a rank, MB   torch, MB   exchange exposed")
    for name, tokens, layers, options in CASES:
        frozen = name != "train"
        alone = zt.nn.Experts.from_float(*both, "fp8b128", frozen)
        layer = zt.nn.Experts.from_float(*both, "fp8b128", frozen, group=distributed.group.WORLD, **options)
        assert layer.ranks is not None
        x = torch.randn(tokens, K, device=device, dtype=torch.bfloat16, requires_grad=not frozen)
        logits, ids = torch.randn(tokens, EXPERTS, device=device).topk(TOP)
        weights = logits.softmax(1)
        whole = milliseconds(called(name, layer, x, ids, weights, layers))
        local = milliseconds(called(name, alone, x, ids % here, weights, layers))  # as many rows, no exchange
        before = layer.ranks.sent_bytes
        called("train" if name == "train" else "serve", layer, x, ids, weights, layers)()
        sent, in_torch, torch_sent = f"{(layer.ranks.sent_bytes - before) / 1e6:.3f}", "-", "-"
        if hasattr(torch, "_grouped_mm") and not options:
            masters = [one.bfloat16().requires_grad_(not frozen) for one in both]
            took, size = beside_torch(name, x, ids, weights, masters, layers)
            in_torch, torch_sent = f"{took:.2f}", f"{size / 1e6:.3f}"
        if rank == 0:
            row = f"{name}  {tokens:14}  {layers:7}  {options.get('parts', 1):6}  {whole:8.2f}  {in_torch:>10}"
            print(f"{row}  {sent:>16}  {torch_sent:>10}  {1 - local / whole:17.2f}", flush=True)
        del alone, layer
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""Four micro-batches of a layer in one CUDA graph, forward and backward, with and without held casts and added gradients.

    python tools/lab/layer_switches.py

First come the tests of tests/gpu/test_layer_switches.py. Times are medians of graph replays, weights are bf16, gradients bf16 or f32.
Without held casts the graph casts the weight in each micro-batch, as a compiled layer does.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from zoo.torch.nn import Experts, Linear

BATCHES, REPLAYS = 4, 10


def linear() -> tuple[Any, Callable[[], torch.Tensor]]:
    layer = Linear(7168, 16384, False, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(4096, 7168, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    return layer, lambda: layer(x)


def experts() -> tuple[Any, Callable[[], torch.Tensor]]:
    layer = Experts(64, 7168, 2048, device="cuda", dtype=torch.bfloat16)
    x = torch.randn(4096, 7168, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weights, ids = torch.rand(4096, 64, device="cuda").topk(8)
    return layer, lambda: layer(x, ids, weights)


def milliseconds(layer: Any, run: Callable[[], torch.Tensor]) -> float:
    dy = torch.randn_like(run())

    def step() -> None:
        for _ in range(BATCHES):
            run().backward(dy)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    layer.zero_grad()
    return statistics.median(times)


def main() -> None:
    import pytest

    if pytest.main(["-q", str(ROOT / "tests/gpu/test_layer_switches.py")]):
        sys.exit("the tests failed: no times")
    print(f"\n{torch.cuda.get_device_name()}, torch {torch.__version__}, ms for {BATCHES} micro-batches")
    print(f"{'layer':<10}{'gradients':<11}{'held casts':<12}{'added':<7}{'ms':>8}")
    for make in (linear, experts):
        layer, run = make()
        for gradients in (torch.bfloat16, torch.float32):
            if gradients == torch.float32 and not hasattr(torch.Tensor, "grad_dtype"):
                print("this torch has no grad_dtype")
                continue
            for one in layer.parameters():
                if hasattr(one, "grad_dtype"):
                    one.grad_dtype = gradients
            for held, added in ((False, False), (True, False), (False, True), (True, True)):
                layer.hold_casts, layer.add_gradients = held, added
                words = str(gradients).removeprefix("torch.")
                print(f"{make.__name__:<10}{words:<11}{held!s:<12}{added!s:<7}{milliseconds(layer, run):>8.2f}", flush=True)
        del layer, run
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()

"""Four layers of a model in FP8 under torch.compile with CUDA graphs, beside zoo's plain kernels on the same arrays, in one graph.

    python tools/lab/torch_layers.py [tokens]

Each layer quantises its tokens, multiplies them by its weights with SwiGLU in the epilogue, and multiplies the result by its second
weights. Both sides run the same twelve kernels: what differs is who allocates, and what torch puts between them.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import zoo
import zoo.torch

HIDDEN, INNER, LAYERS, ROUNDS, REPLAYS = 4096, 11264, 4, 30, 20


class Layer(torch.nn.Module):
    """Weights are buffers: a graph reads them where they are, while it copies what is given to it anew."""

    def __init__(self, device: str = "cuda") -> None:
        super().__init__()
        for name, rows, columns in (("up", 2 * INNER, HIDDEN), ("down", HIDDEN, INNER)):
            w = torch.randn(rows, columns, device=device, dtype=torch.bfloat16) * columns**-0.5
            q, scales = torch.ops.zoo.quantize_fp8b128_squares(w)
            self.register_buffer(name, q)
            self.register_buffer(f"{name}_scale", scales)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.zoo
        q, scales = ops.quantize_fp8b128_rows(x, layout="mn_major")
        h, h_scales = ops.gemm_fp8b128_dense_swiglu_fp8b128(q, scales, self.up, self.up_scale)
        product: torch.Tensor = ops.gemm_fp8b128_dense(h, h_scales, self.down, self.down_scale)
        return product


def plain(x: torch.Tensor, layers: torch.nn.Module) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, list[Any]]:
    """The same kernels, prepared on arrays that are there, in one graph; the plans keep the arrays."""
    plans: list[Any] = []
    for layer in layers.children():
        up, up_scale, down, down_scale = layer.buffers()
        q, scales = zoo.call("quantize.fp8b128.rows", x=x, layout="mn_major")
        plans.append(zoo.prepare("quantize.fp8b128.rows", x=x, q=q, scales=scales, layout="mn_major"))
        h, h_scales = zoo.call("gemm.fp8b128.dense.swiglu_fp8b128", a=q, a_scale=scales, b=up, b_scale=up_scale)
        plans.append(zoo.prepare("gemm.fp8b128.dense.swiglu_fp8b128", a=q, a_scale=scales, b=up, b_scale=up_scale, q=h, scales=h_scales))
        (d,) = zoo.call("gemm.fp8b128.dense", a=h, a_scale=h_scales, b=down, b_scale=down_scale)
        plans.append(zoo.prepare("gemm.fp8b128.dense", a=h, a_scale=h_scales, b=down, b_scale=down_scale, d=d))
        x = d
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        stream = torch.cuda.current_stream()
        for plan in plans:
            plan(stream)
    return graph, x, plans


def compiled_graph(x: torch.Tensor, layers: torch.nn.Module) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """What torch.compile makes of the model, in one graph of our own."""
    compiled = torch.compile(layers, fullgraph=True)
    compiled(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = compiled(x)
    return graph, found


def microseconds(run: Any) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPLAYS):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1000 / REPLAYS


def main() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        layers = torch.nn.Sequential(*(Layer() for _ in range(LAYERS)))
        for tokens in [int(one) for one in sys.argv[1:]] or [16, 512, 4096]:
            x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
            torch._dynamo.reset()  # each number of tokens by itself
            graph, expected, plans = plain(x, layers)
            captured, found = compiled_graph(x, layers)
            graph.replay()
            captured.replay()
            same = torch.equal(found, expected) and torch.equal(found, layers(x))
            reduced = torch.compile(layers, fullgraph=True, mode="reduce-overhead")

            def step(reduced: Any = reduced, x: torch.Tensor = x) -> torch.Tensor:
                torch.compiler.cudagraph_mark_step_begin()
                product: torch.Tensor = reduced(x)
                return product

            for _ in range(3):
                same = torch.equal(step().clone(), expected) and same
            sides = {"plain graph": graph.replay, "compiled graph": captured.replay, "reduce-overhead": step}
            times: dict[str, list[float]] = {name: [] for name in sides}
            for _ in range(ROUNDS):
                for name, run in sides.items():
                    times[name].append(microseconds(run))
            for name, one in times.items():
                ratio = statistics.median(a / b for a, b in zip(one, times["plain graph"], strict=True))
                print(f"{tokens} tokens, {name}: {statistics.median(one):.1f} us, / plain {ratio:.4f}; same bits: {same}", flush=True)
            del plans


if __name__ == "__main__":
    main()

"""Four layers of a model under torch.compile with CUDA graphs, beside zoo's plain kernels on the same arrays, in one graph.

    python tools/lab/torch_layers.py [format ...] [tokens ...]

Each layer quantises its tokens, multiplies them by its weights, which are FP8 or of 4 bits, applies SwiGLU, and multiplies the result by
its second weights. Products of FP8 apply SwiGLU themselves, those of 4-bit weights leave it to the quantiser behind them. Both sides run
the same kernels: what differs is who allocates, and what torch puts between them.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import zoo
import zoo.torch

HIDDEN, INNER, LAYERS, ROUNDS, REPLAYS = 4096, 11264, 4, 30, 20
SIZES = {"up": (2 * INNER, HIDDEN), "down": (HIDDEN, INNER)}
Run = Callable[..., Any]


def operator(name: str, **given: Any) -> Any:
    return getattr(torch.ops.zoo, name.replace(".", "_"))(**given)


class Layer(torch.nn.Module):
    """Weights are buffers: a graph reads them where they are, while it copies what is given to it anew."""

    def __init__(self, format: str, device: str = "cuda") -> None:
        super().__init__()
        self.format = format
        for name, (rows, columns) in SIZES.items():
            w = torch.randn(rows, columns, device=device, dtype=torch.bfloat16) * columns**-0.5
            for part, tensor in self.parts(w).items():
                self.register_buffer(f"{name}_{part}", tensor)

    def parts(self, w: torch.Tensor) -> dict[str, torch.Tensor]:
        """Of weights, as arguments of the product are named."""
        if self.format == "fp8b128":
            made = zoo.torch.quantize(w, "fp8b128", direction="squares")
            return {"b": made.elements, "b_scale": made.scales}
        made = zoo.torch.quantize(w, self.format, layout="plain").laid("fragments")
        if made.tensor_scale is None:
            return {"b": made.elements, "b_row_scale": made.scales}
        return {"b": made.elements, "alpha": made.tensor_scale}

    def weights(self, name: str) -> dict[str, torch.Tensor]:
        return {part.removeprefix(f"{name}_"): tensor for part, tensor in self._buffers.items() if part.startswith(f"{name}_")}

    def forward(self, x: torch.Tensor, run: Run = operator) -> Any:
        up, down = self.weights("up"), self.weights("down")
        if self.format == "fp8b128":
            a, a_scale = run("quantize.fp8b128.rows", x=x, layout="mn_major")
            a, a_scale = run("gemm.fp8b128.dense.swiglu_fp8b128", a=a, a_scale=a_scale, **up)
            return run("gemm.fp8b128.dense", a=a, a_scale=a_scale, **down)
        gemm = f"gemm.fp8_{self.format}.dense"
        a, a_scale = run("quantize.fp8token.rows", x=x, order="fragments")
        both = run(gemm, a=a, a_scale=a_scale, N=SIZES["up"][0], **up)
        a, a_scale = run("quantize.fp8token.rows.swiglu", x=both, order="fragments")
        return run(gemm, a=a, a_scale=a_scale, N=SIZES["down"][0], **down)


def plain(x: torch.Tensor, layers: torch.nn.Module) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, list[Any]]:
    """The same kernels, prepared on arrays that are there, in one graph; the plans keep the arrays."""
    plans: list[Any] = []

    def prepared(name: str, **given: Any) -> Any:
        outputs = zoo.call(name, **given)
        given.pop("N", None)  # which the output tells
        plans.append(zoo.prepare(name, **given, **outputs._asdict()))
        return outputs if len(outputs) > 1 else outputs[0]

    for layer in layers.children():
        x = layer(x, prepared)
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


def compare(format: str, tokens: int, layers: torch.nn.Module) -> None:
    x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
    torch._dynamo.reset()  # each number of tokens by itself
    graph, expected, plans = plain(x, layers)
    captured, found = compiled_graph(x, layers)
    graph.replay()
    captured.replay()
    same = torch.equal(found, expected) and torch.equal(found, layers(x))
    reduced = torch.compile(layers, fullgraph=True, mode="reduce-overhead")

    def step() -> torch.Tensor:
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
        what = f"{format}, {tokens} tokens, {len(plans)} kernels, {name}"
        print(f"{what}: {statistics.median(one):.1f} us, / plain {ratio:.4f}; same bits: {same}", flush=True)


def main() -> None:
    torch.manual_seed(0)
    sizes = [int(one) for one in sys.argv[1:] if one.isdigit()] or [16, 512, 4096]
    formats = [one for one in sys.argv[1:] if not one.isdigit()] or ["fp8b128", "mxfp4", "nvfp4"]
    with torch.no_grad():
        for format in formats:
            layers = torch.nn.Sequential(*(Layer(format) for _ in range(LAYERS)))
            for tokens in sizes:
                compare(format, tokens, layers)


if __name__ == "__main__":
    main()

"""Times zoo beside other libraries on a GPU and records what the README's picture and docs/performance.md show.

    python tools/compare_rivals.py [--seed 1] [--problems 16] [--seconds 220] [--output docs/rivals.json]

gemm.fp8b128.dense on problems that a seed draws, so many for each band of tokens, beside torch's block-wise product, DeepGEMM and torch's
tensor-wise product. Each result is checked before it is timed; all take turns in CUDA graphs over operands that exceed the L2 cache. Nothing
is built, and what cannot be imported is left out with the reason. The file is written after every problem. Exit status 1: zoo was wrong.
tools/layer_tables.py times whole layers.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import zoo
from tools.documentation.comparison import FILE, Comparison
from tools.lab.gemm_shapes import BANDS, unseen
from zoo.benchmark.graphs import TorchReplay, in_turns
from zoo.benchmark.operands import BLOCKS, SQUARES, Operands, column_major
from zoo.benchmark.product import Product
from zoo.benchmark.rivals import RIVALS, Case, Unavailable, replayed, torch_with_gpu
from zoo.packaged import packaged
from zoo.runtime import driver
from zoo.runtime.hardware import describe

DENSE = "gemm.fp8b128.dense"
BESIDE = ("torch block-wise", "DeepGEMM", "torch tensor-wise")
ROUNDS = 11
WHERE = "cuda:0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--problems", type=int, default=16, help="of each band of tokens (default: 16)")
    parser.add_argument("--seconds", type=float, default=220, help="begin nothing after so many (default: 220)")
    parser.add_argument("--output", type=Path, default=FILE)
    asked = parser.parse_args()
    torch, end = torch_with_gpu(), time.monotonic() + asked.seconds
    torch.manual_seed(asked.seed)
    torch.zeros(1, device=WHERE)  # makes the context in which zoo works, too
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **asdict(describe(driver.device(0))),
        "libraries": libraries(),
        "digest": packaged.digest,
        "seed": asked.seed,
        "less": {name: rival.less for name, rival in RIVALS.items() if name in BESIDE and rival.less},
        "dense": [],
    }
    wrong = left = 0
    for words, step in dense(torch, problems(asked.seed, asked.problems)):
        if time.monotonic() > end:
            left += 1
            continue
        one = step()
        wrong += "zoo" in one["refused"]
        found["dense"].append(one)
        asked.output.write_text(json.dumps(found, indent=1) + "\n")
        print(words, said(one), flush=True)
    ratios = Comparison(found).ratios()
    found["bands"] = [asdict(one) for one in ratios]
    asked.output.write_text(json.dumps(found, indent=1) + "\n")
    for ratio in ratios:
        print(f"{ratio.tokens[0]:6} to {ratio.tokens[1]:5} {ratio.rival:20} {ratio.mean:.3f} worst {ratio.worst:.3f} of {ratio.problems}")
    if left:
        print(f"no time for {left}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def problems(seed: int, count: int) -> list[tuple[int, int, int]]:
    """M, N, K: so many of each band of tokens, in turn."""
    drawn = unseen(seed, 40 * count)
    bands = [[one for one in drawn if least <= one[0] <= most][:count] for least, most in BANDS]
    return [one for row in zip(*bands, strict=True) for one in row]


Steps = Iterator[tuple[str, Callable[[], dict[str, Any]]]]


def dense(torch: Any, drawn: list[tuple[int, int, int]]) -> Steps:
    makers = {"zoo": zoo_block_wise} | {name: RIVALS[name].make for name in BESIDE}
    cache = int(torch.cuda.get_device_properties(0).L2_cache_size)

    def step(M: int, N: int, K: int) -> dict[str, Any]:
        product, refused, replays = Product("fp8b128", "dense", M, N, K), dict[str, str](), dict[str, TorchReplay]()
        for name, make in makers.items():
            try:
                replays[name] = replayed(make, product, 0, cache)
            except Unavailable as reason:
                refused[name] = str(reason)
        return {"sizes": {"M": M, "N": N, "K": K}, "microseconds": timed(replays), "refused": refused}

    return ((f"{M} x {N} x {K}", partial(step, M, N, K)) for M, N, K in drawn)


def zoo_block_wise(torch: Any, product: Product, device: str) -> Case:
    one = Operands(torch, product, BLOCKS, SQUARES, device)
    d = torch.empty((product.M, product.N), dtype=torch.bfloat16, device=device)
    arguments = {
        "a": one.a.elements,
        "a_scale": column_major(one.a.scales)[: product.M],
        "b": one.b.elements[0],
        "b_scale": one.b.scales[0],
    }

    def call() -> Any:
        zoo.launch(DENSE, **arguments, d=d)
        return d

    return Case(call, one.expected, one.bytes)


def timed(replays: dict[str, TorchReplay]) -> dict[str, float]:
    times = in_turns(replays, ROUNDS)
    for replay in replays.values():
        replay.close()
    return {name: round(microseconds, 3) for name, microseconds in times.items()}


def said(one: dict[str, Any]) -> str:
    times = [f"{name} {microseconds:.1f} us" for name, microseconds in one["microseconds"].items()]
    return ", ".join(times + [f"{name}: {why}" for name, why in one["refused"].items()])


def libraries() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in ("torch", "triton", "deep_gemm", "triton_kernels", "nvidia-cublas"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = getattr(sys.modules.get(name), "__version__", None)
    return found


if __name__ == "__main__":
    main()

"""Times zoo beside other libraries on a GPU and records what the README's picture and docs/performance.md show.

    python tools/compare_rivals.py [--seed 1] [--problems 16] [--seconds 330] [--output docs/rivals.json]

Part 1: gemm.fp8b128.dense on problems that a seed draws, so many for each band of tokens, beside torch's block-wise product, DeepGEMM and
torch's tensor-wise product. Part 2: whole gpt-oss layers beside triton_kernels and torch's bf16 layer. Each result is checked before it is
timed; all take turns in CUDA graphs over operands that exceed the L2 cache. Nothing is built, and what cannot be imported is left out with
the reason. The file is written after every problem. Exit status 1: zoo was wrong.
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
from zoo.benchmark.layer_models import MODELS
from zoo.benchmark.moe_layers import LAYERS, LESS, Layer, Tokens
from zoo.benchmark.operands import BLOCKS, SQUARES, Operands, column_major
from zoo.benchmark.product import Product
from zoo.benchmark.rivals import RIVALS, Case, Unavailable, checked, replayed, torch_with_gpu
from zoo.packaged import packaged
from zoo.runtime import driver
from zoo.runtime.hardware import describe

DENSE = "gemm.fp8b128.dense"
BESIDE = ("torch block-wise", "DeepGEMM", "torch tensor-wise")
TOKENS = (1, 8, 32, 128, 512, 2048, 8192)
ROUNDS = 11
WHERE = "cuda:0"
CALLS = 8  # of a layer, each with its own tokens and routing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--problems", type=int, default=16, help="of each band of tokens (default: 16)")
    parser.add_argument("--seconds", type=float, default=330, help="begin nothing after so many (default: 330)")
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
        "less": {name: rival.less for name, rival in RIVALS.items() if name in BESIDE and rival.less} | LESS,
        "dense": [],
        "layers": [],
    }
    wrong = left = 0
    # layers have the last third of the time
    for part, steps, until in (
        ("dense", dense(torch, problems(asked.seed, asked.problems)), end - asked.seconds / 3),
        ("layers", layers(torch), end),
    ):
        for words, step in steps:
            if time.monotonic() > until:
                left += 1
                continue
            one = step()
            wrong += "zoo" in one["refused"]
            found[part].append(one)
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


def layers(torch: Any) -> Steps:
    held: dict[str, Any] = {}  # one model's weights, as each library wants them

    def prepared(model: str) -> Any:
        if model not in held:
            held.clear()
            # Two copies in turn: the experts of the call before are not in the L2 cache.
            held[model] = [Layer(torch, MODELS[model], WHERE) for _ in range(2)], dict[str, Any]()
        return held[model]

    def step(model: str, count: int) -> dict[str, Any]:
        refused, replays = dict[str, str](), dict[str, TorchReplay]()
        product = Product("", "", count, MODELS[model].hidden, MODELS[model].inner)
        weights, made = prepared(model)
        tokens = [Tokens(weights[call % 2], count) for call in range(CALLS)]
        for name, kind in LAYERS.items():
            try:
                if name not in made:
                    made[name] = [kind(one) for one in weights]
                cases = [made[name][call % 2].case(one) for call, one in enumerate(tokens)]
                checked(lambda *_, first=cases[0]: first, product, WHERE)
                replays[name] = TorchReplay(torch, [one.call for one in cases], 0)
            except Unavailable as reason:
                refused[name] = str(reason)
            except Exception as refusal:  # of another library, or of memory: the next one is timed all the same
                refused[name] = f"refuses: {type(refusal).__name__}: {str(refusal).strip()[:200]}"
        return {"model": model, "tokens": count, "microseconds": timed(replays), "refused": refused}

    return ((f"{model}, {count} tokens", partial(step, model, count)) for model, one in MODELS.items() if one.gpt_oss for count in TOKENS)


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

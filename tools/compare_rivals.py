"""Times zoo beside other libraries on a GPU and records what the README's picture, docs/performance.md and
docs/kernels/other_libraries.md show.

    python tools/compare_rivals.py [--seed 1 --seed 2] [--only dense,experts] [--problems 16] [--seconds 220] [--output docs/rivals.json]

dense        gemm.fp8b128.dense beside torch's block-wise product, DeepGEMM and torch's tensor-wise product
contiguous   gemm.fp8b128.m_grouped_contiguous beside both layouts of DeepGEMM, which pads groups to whole tiles
masked       gemm.fp8b128.m_grouped_masked, which is told how many rows a slot uses on average or is not, beside DeepGEMM, which is told
experts      gemm.fp8_mxfp4.m_grouped_contiguous, sums promoted or never, and m_grouped_gather beside humming and triton_kernels
bf16 experts gemm.bf16_mxfp4.m_grouped_contiguous beside humming and triton_kernels

Seeds draw so many problems for each band of rows. Each result is checked before it is timed; all take turns in CUDA graphs over operands that
exceed the L2 cache. Nothing is built, and what cannot be imported is left out with the reason. The file is written after every problem; parts
that are not timed keep rows of the same machine and libraries, with the date, cubins and seeds of their run. Exit status 1: zoo was wrong.
tools/layer_tables.py times whole layers.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import zoo
from tools.documentation.comparison import FILE, PARTS, Comparison
from tools.lab.gemm_shapes import unseen
from zoo.benchmark.graphs import TorchReplay, in_turns
from zoo.benchmark.operands import BF16, BLOCKS, MXFP4, SQUARES, Operands, Scaling, column_major
from zoo.benchmark.product import Product
from zoo.benchmark.rivals import FAST_SUMS, RIVALS, ROUNDED, Case, Unavailable, imported, replayed, torch_with_gpu
from zoo.packaged import packaged
from zoo.reference.fragments import column_order
from zoo.runtime import driver
from zoo.runtime.hardware import describe

ROUNDS = 11
WHERE = "cuda:0"
BESIDE = {
    "dense": ("torch block-wise", "DeepGEMM", "torch tensor-wise"),
    "contiguous": ("DeepGEMM", "DeepGEMM, ends of groups"),
    "masked": ("DeepGEMM",),
    "experts": ("humming", "triton_kernels"),
    "bf16 experts": ("humming", "triton_kernels"),
}
LAYERS = ((4096, 2048), (6144, 7168), (7168, 2048), (7168, 3072), (5760, 2880), (3072, 4096), (4096, 4096))  # N, K of published experts
ROUTED = ((32, 4), (128, 4), (128, 8), (256, 8))  # experts, of a token
MOST_ROWS, MOST_ELEMENTS = 65536, 4e9  # of all groups; of their weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, action="append", help="may be repeated (default: 1)")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas (default: all)")
    parser.add_argument("--problems", type=int, default=16, help="of each band and seed (default: 16)")
    parser.add_argument("--seconds", type=float, default=220, help="begin nothing after so many (default: 220)")
    parser.add_argument("--output", type=Path, default=FILE)
    asked = parser.parse_args()
    parts, seeds = asked.only.split(","), asked.seed or [1]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: no part is named {' or '.join(sorted(unknown))}")
    try:
        torch, end = torch_with_gpu(), time.monotonic() + asked.seconds
    except Unavailable as why:
        sys.exit(f"libraries are timed by torch on a GPU: {why}")
    torch.manual_seed(seeds[0])
    torch.zeros(1, device=WHERE)  # makes the context in which zoo works, too
    about = {
        **asdict(describe(driver.device(0))),
        "libraries": libraries(),
        "less": {name: RIVALS[name].less for name in sum(BESIDE.values(), ()) if RIVALS[name].less},
    }
    before = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    same = all(before.get(name) == value for name, value in about.items())  # or another machine's rows would bear this one's name
    kept = {part: before.get(part, []) if same and part not in parts else [] for part in PARTS}
    run = {"date": datetime.datetime.now(datetime.UTC).date().isoformat(), "digest": packaged.digest, "seeds": seeds}
    earlier = {part: before.get("earlier", {}).get(part) or {name: before[name] for name in run} for part, rows in kept.items() if rows}
    found: dict[str, Any] = {**run, **about, "earlier": {part: one for part, one in earlier.items() if one != run}, **kept}
    wrong = left = 0
    for part in parts:
        for sizes, product in (one for seed in seeds for one in problems(part, seed, asked.problems)):
            if time.monotonic() > end:
                left += 1
                continue
            one = {"sizes": sizes, **compared(torch, part, product, sizes.get("tokens", 0))}
            wrong += any(name.startswith("zoo") for name in one["refused"])
            found[part].append(one)
            asked.output.write_text(json.dumps(found, indent=1) + "\n")
            print(part, *(f"{name} {size}" for name, size in sizes.items()), said(one), flush=True)
    asked.output.write_text(json.dumps(found, indent=1) + "\n")
    for name, ratio in [(part, ratio) for part in parts for ratio in Comparison(found).ratios(part)]:
        who = f"{name}, {ratio.form}, {ratio.rival}"
        print(f"{who:45} {ratio.tokens[0]:6} to {ratio.tokens[1]:5} {ratio.mean:.3f} worst {ratio.worst:.3f} of {ratio.problems}")
    if left:
        print(f"no time for {left}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


# ---- problems ------------------------------------------------------------------------------------------------------------------------


def problems(part: str, seed: int, count: int) -> list[tuple[dict[str, int], Product]]:
    """Sizes by name and the product: so many of each band, in turn."""
    if part == "dense":
        shapes = unseen(seed, 40 * count)
        bands = [[one for one in shapes if least <= one[0] <= most][:count] for least, most in PARTS[part].bands]
        return [({"M": M, "N": N, "K": K}, Product("fp8b128", "dense", M, N, K)) for row in zip(*bands, strict=True) for M, N, K in row]
    random = Random(f"{part} {seed}")
    draw = partial(drawn_experts if part.endswith("experts") else drawn_groups, part)
    return [draw(random, band) for _ in range(count) for band in PARTS[part].bands]


def drawn_groups(part: str, random: Random, band: tuple[int, int]) -> tuple[dict[str, int], Product]:
    """Groups of a mean of `rows`, each 30 % more or less; slots are a half longer than that, and a multiple of 64."""
    while True:
        (N, K), groups, rows = random.choice(LAYERS), random.choice((4, 8, 16, 32, 64, 128)), logarithmic(random, band)
        if groups * rows <= MOST_ROWS and groups * N * K <= MOST_ELEMENTS:
            break
    used = tuple(max(1, round(rows * (0.7 + 0.6 * random.random()))) for _ in range(groups))
    sizes = {"groups": groups, "rows": rows, "N": N, "K": K}
    if part == "contiguous":
        ends = tuple(accumulate(used))
        return sizes, Product("fp8b128", "m_grouped_contiguous", ends[-1], N, K, ends)
    R = -(-3 * rows // 2 // 64) * 64
    ends = tuple(R * (group + 1) for group in range(groups))
    return sizes, Product("fp8b128", "m_grouped_masked", ends[-1], N, K, ends, used=used)


def drawn_experts(part: str, random: Random, band: tuple[int, int]) -> tuple[dict[str, int], Product]:
    """Tokens choose their experts evenly."""
    while True:
        (N, K), (experts, top), tokens = random.choice(LAYERS), random.choice(ROUTED), logarithmic(random, band)
        if tokens * top <= MOST_ROWS and experts * N * K <= MOST_ELEMENTS:
            break
    chosen = Counter(expert for _ in range(tokens) for expert in random.sample(range(experts), top))
    ends = tuple(accumulate(chosen[expert] for expert in range(experts)))
    sizes = {"experts": experts, "top": top, "tokens": tokens, "N": N, "K": K}
    return sizes, Product("fp8_mxfp4" if part == "experts" else "bf16_mxfp4", "m_grouped_contiguous", ends[-1], N, K, ends)


def logarithmic(random: Random, band: tuple[int, int]) -> int:
    least, most = band
    return round(math.exp(random.uniform(math.log(least), math.log(most))))


# ---- zoo's calls ---------------------------------------------------------------------------------------------------------------------


def by_blocks(torch: Any, product: Product, device: str, told: bool = True) -> Case:
    """FP8 with a scale for 1 x 128 of A and for 128 x 128 of B. told: how many rows a slot uses on average."""
    one = Operands(torch, product, BLOCKS, SQUARES, device)
    a, a_scale, more = one.a.elements, column_major(one.a.scales)[: product.M], {}
    d = torch.empty((product.M, product.N), dtype=torch.bfloat16, device=device)
    b, b_scale, result = one.b.elements, one.b.scales, d
    if product.grouping == "dense":
        b, b_scale = b[0], b_scale[0]
    elif product.grouping == "m_grouped_contiguous":
        more = {"offsets": one.ends}
    else:
        G = len(product.ends)
        a, result = a.unflatten(0, (G, -1)), d.unflatten(0, (G, -1))
        a_scale = one.a.scales.unflatten(0, (G, -1)).mT.contiguous().mT
        rows = torch.tensor(product.used, dtype=torch.int32, device=device)
        more = {"rows": rows} | ({"expected_rows": -(-sum(product.used) // G)} if told else {})

    def call() -> Any:
        zoo.launch(f"gemm.fp8b128.{product.grouping}", a=a, a_scale=a_scale, b=b, b_scale=b_scale, d=result, **more)
        return d

    return Case(call, one.expected, one.bytes)


def by_experts(torch: Any, product: Product, device: str, tokens: int = 0, promotion: str = "regular") -> Case:
    """e4m3 rows with a scale each, or bf16 rows, by packed MXFP4. tokens: rows are taken from so many through an index."""
    import zoo.torch

    fp8 = product.formats == "fp8_mxfp4"
    one = Operands(torch, product, Scaling("float8_e4m3fn", 1, product.K) if fp8 else BF16, MXFP4, device)
    source, more = one.a.elements, dict[str, Any](offsets=one.ends)
    if fp8:
        more |= {"a_scale": one.a.scales.flatten(), "promotion": promotion}
    if tokens:
        sizes = torch.diff(one.ends, prepend=one.ends.new_zeros(1)).tolist()
        index = torch.cat([torch.randperm(tokens, device=device)[:size].sort().values for size in sizes])
        more |= {"index": index.int(), "a_scale": more["a_scale"][:tokens]}
        source = source[:tokens]
        one.a.elements, one.a.scales = source[index], one.a.scales[index]
    a = in_fragments(torch, source) if fp8 else source
    b, b_row_scale = torch.ops.zoo.pack_mxfp4_fragments(one.b.elements, one.b.scales, gates="plain", tokens="fp8" if fp8 else "bf16")
    d = torch.empty((product.M, product.N), dtype=torch.bfloat16, device=device)
    name = f"gemm.{product.formats}.{'m_grouped_gather' if tokens else product.grouping}"

    def call() -> Any:
        zoo.launch(name, a=a, b=b, b_row_scale=b_row_scale, d=d, **more)
        return d

    return Case(call, one.expected, one.bytes, FAST_SUMS if promotion == "never" else ROUNDED)


def in_fragments(torch: Any, elements: Any) -> Any:
    """Rows (M, K) with columns in the order of fragments, (M, chunks, 64)."""
    order = torch.from_numpy(column_order(elements.shape[1])).to(elements.device)
    whole = torch.nn.functional.pad(elements.view(torch.uint8), (0, len(order) - elements.shape[1]))
    return whole[:, order].view(torch.float8_e4m3fn).unflatten(1, (-1, 64))


def ours(part: str, tokens: int) -> dict[str, Callable[[Any, Product, str], Case]]:
    """zoo's calls by the name of their form."""
    if part == "masked":
        return {"zoo": by_blocks, "zoo, rows not told": partial(by_blocks, told=False)}
    if part == "experts":
        return {
            "zoo": by_experts,
            "zoo, never promoted": partial(by_experts, promotion="never"),
            "zoo, through an index": partial(by_experts, tokens=tokens),
            "zoo, through an index, never promoted": partial(by_experts, tokens=tokens, promotion="never"),
        }
    return {"zoo": by_experts if part == "bf16 experts" else by_blocks}


def compared(torch: Any, part: str, product: Product, tokens: int) -> dict[str, Any]:
    """Microseconds of each library, or why there are none."""
    makers = ours(part, tokens) | {name: RIVALS[name].make for name in BESIDE[part]}
    cache = int(torch.cuda.get_device_properties(0).L2_cache_size)
    refused, replays = dict[str, str](), dict[str, TorchReplay]()
    for name, make in makers.items():
        try:
            replays[name] = replayed(make, product, 0, cache)
        except Unavailable as reason:
            refused[name] = str(reason)
    times = in_turns(replays, ROUNDS)
    for replay in replays.values():
        replay.close()
    return {"microseconds": {name: round(one, 3) for name, one in times.items()}, "refused": refused}


def said(one: dict[str, Any]) -> str:
    times = [f"{name} {microseconds:.1f} us" for name, microseconds in one["microseconds"].items()]
    return ", ".join(times + [f"{name}: {why}" for name, why in one["refused"].items()])


def libraries() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in ("torch", "triton", "deep_gemm", "triton_kernels", "humming", "nvidia-cublas"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # built in place, or installed under another name
            try:
                found[name] = getattr(imported(name), "__version__", None)
            except Unavailable:
                found[name] = None
    return found


if __name__ == "__main__":
    main()

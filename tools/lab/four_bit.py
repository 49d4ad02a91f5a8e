"""Times GEMMs of FP8 rows and 4-bit weights on a GPU, beside torch's FP8 GEMM.

    python tools/lab/four_bit.py [--directory CUBINS] [--form nvfp4] [--part dense] ... [--json FILE]

Three kinds: sums promoted every 256 of K (`regular`), every 128 of it by scales for 1 x 128 (`blocks`), and `never`. Times are of CUDA
graphs over matrices of weights of 150 MB together or more, so that none is in the L2 cache; torch's product is tensor-wise, of as many rows by one
matrix. `even` groups have as many rows each; `uneven` ones what tokens bring that choose their experts by uniform or Zipf's probabilities,
by seed. The JSON has every time of every replay. tools/soak_four_bit.py tests results.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from four_bit_shapes import CHUNKS, sizes_of
from viewed import of_matrices

import zoo
from zoo.catalog import Zoo
from zoo.reference.fragments import chunk_shape

IN_NO_CACHE = 150_000_000  # bytes of as many matrices as it takes, three times an L2 cache
KINDS = ("regular", "blocks", "never")
PARTS = ("dense", "even", "uneven")
DENSE = (
    *((M, 28672, 4096) for M in (8, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192)),
    (2048, 7168, 16384), (4096, 5760, 2880), (8192, 8192, 8192),
)  # fmt: skip
GROUPS = ((8, 28672, 4096), (32, 5760, 2880), (256, 7168, 2048))  # (groups, N, K)
ROWS = (1, 8, 16, 64, 128, 256, 1024)  # of a group
ROUTED = (  # (experts, of a token, N, K): gpt-oss, Qwen3-235B, DeepSeek-V3
    (32, 4, 5760, 2880), (32, 4, 2880, 2880), (128, 4, 5760, 2880), (128, 4, 2880, 2880),
    (128, 8, 3072, 4096), (128, 8, 4096, 1536), (256, 8, 7168, 2048),
)  # fmt: skip
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 8192)


def weights(form: str, shape: tuple[int, ...], N: int, K: int, tokens: str = "fp8") -> dict[str, torch.Tensor]:
    """Random codes under 32 scales that follow each other, in the order and the shape of those packed for `tokens`; of bf16 the scales are others."""
    b = torch.randint(0, 256, (*shape, -(-N // 64), K // 64, CHUNKS[form]), device="cuda", dtype=torch.uint8)
    b[..., 2048:] = b[..., 2048:] % 32 + (0x28 if form == "nvfp4" else 90)
    b = b.view(*b.shape[:-1], *chunk_shape(16 if form == "nvfp4" else 32, tokens))
    return {"b": b} if form == "nvfp4" else {"b": b, "b_row_scale": largest_of_all(shape, N)}


def stored_weights(form: str, shape: tuple[int, ...], N: int, K: int) -> dict[str, torch.Tensor]:
    """Random codes and scales as a checkpoint has them."""
    codes = torch.randint(0, 256, (*shape, N, K // 2), device="cuda", dtype=torch.uint8)
    if form == "nvfp4":
        scales = torch.randint(0x28, 0x48, (*shape, N, K // 16), device="cuda", dtype=torch.uint8)
        return {"b": codes, "b_scale": scales.view(torch.float8_e4m3fn)}
    scales = torch.randint(112, 128, (*shape, N, K // 32), device="cuda", dtype=torch.uint8)
    return {"b": codes, "b_scale": scales.view(torch.float8_e8m0fnu), "b_row_scale": largest_of_all(shape, N)}


def largest_of_all(shape: tuple[int, ...], N: int) -> torch.Tensor:
    return torch.full((*shape, -(-N // 64) * 64), 127, device="cuda", dtype=torch.uint8)


@lru_cache(maxsize=1)
def copies(form: str, groups: int, N: int, K: int, tokens: str = "fp8") -> list[dict[str, torch.Tensor]]:
    count = max(2, -(-IN_NO_CACHE // (max(groups, 1) * -(-N // 64) * (K // 64) * CHUNKS[form])))
    all_of_them = weights(form, (count, *((groups,) if groups else ())), N, K, tokens)
    return [{name: one[i] for name, one in all_of_them.items()} for i in range(count)]


def tokens(M: int, K: int) -> dict[str, torch.Tensor]:
    return {"a": torch.randn(M, K, device="cuda").to(torch.float8_e4m3fn)}


def of_kind(kind: str, M: int, K: int) -> dict[str, Any]:
    """A's scales, M contiguous as the quantiser writes them fastest, or what is asked for by name."""
    if kind == "blocks":
        return {"a_block_scale": (torch.rand(-(-K // 128), M, device="cuda") + 0.5).T}
    scale = {"a_scale": torch.rand(M, device="cuda") + 0.5}
    return scale | ({"promotion": "never"} if kind == "never" else {})


def scratch(M: int, N: int, K: int, groups: int = 1) -> dict[str, torch.Tensor]:
    """Where more than 256 rows have weights decoded once."""
    units = max(groups, 1) * -(-N // 128) * -(-K // 256) * 2
    return {"workspace": torch.empty(units * (128 * 128 + 4) + 16, device="cuda", dtype=torch.uint8)} if M > 256 else {}


def kinds_of(variant: Any) -> tuple[str, ...]:
    """By its PROMOTION (src_cu/gemm/hopper_w4/operands.cuh); the last is for a launch to say."""
    return (*((kind,) for kind in KINDS), ("regular", "never"))[variant.constants.get("PROMOTION", 0)]


def tiles(kernel: Any, kind: str) -> list[Any]:
    return [variant for variant in kernel.variants if kind in kinds_of(variant)]


def replayed(calls: list[Any], repeats: int = 6) -> list[float]:
    """Microseconds of one of the calls, of each replay of all of them."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    begin, end, times = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True), []
    for _ in range(repeats + 1):
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / len(calls))
    return times[1:]


def of_torch(M: int, N: int, K: int) -> list[float]:
    one, a = torch.ones((), device="cuda"), tokens(M, K)["a"]
    matrices = torch.randn(max(2, 2**28 // (N * K)), N, K, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)
    return replayed([lambda x=x: torch._scaled_mm(a, x.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True) for x in matrices])


def times(cubins: Zoo, form: str, kind: str, sizes: list[int] | int, N: int, K: int) -> dict[str, Any]:
    """Of one matrix and so many rows, or of groups with rows each: what is chosen, and every tile that might be."""
    groups, M = (len(sizes), sum(sizes)) if isinstance(sizes, list) else (0, sizes)
    kernel = cubins.kernel(f"gemm.fp8_{form}.{'m_grouped_contiguous' if groups else 'dense'}")
    found: dict[str, Any] = {"form": form, "kind": kind, "groups": groups, "rows": sizes, "N": N, "K": K, "times": {}}
    of_this_kind = tiles(kernel, kind)
    if not of_this_kind:
        return found
    operands, each = tokens(M, K) | of_kind(kind, M, K) | scratch(M, N, K, groups), copies(form, groups, N, K)
    hit = sum(size > 0 for size in sizes) if isinstance(sizes, list) else 1
    if isinstance(sizes, list):  # other groups of the same matrices, until they are too many for a cache
        turns = min(16, max(1, 2**28 // (len(each) * hit * -(-N // 64) * (K // 64) * CHUNKS[form])))
        ends = [np.cumsum(np.roll(sizes, turn * groups // turns)) for turn in range(turns)]
        offsets = [torch.tensor(end, device="cuda", dtype=torch.int32) for end in ends]
        each = [one | {"offsets": of_turn} for of_turn in offsets for one in each]
    d = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)

    def ours(**pinned: str) -> list[float]:
        return replayed([lambda one=one: cubins.launch(kernel.name, **operands, **one, d=d, **pinned) for one in each])

    found["times"]["chosen"] = ours()
    mean, largest = (M / max(groups, 1), max(sizes)) if isinstance(sizes, list) else (M, M)
    for variant in of_this_kind:
        width = variant.constants["TOKENS"]
        if "DEQUANTIZES_ONCE" in variant.constants and M <= 256:
            continue
        if width // 8 <= largest and mean <= width * 8 and (variant.constants["SPLITS"] == 1 or M <= 64):
            found["times"][variant.name] = ours(variant=variant.name)
    moved = hit * -(-N // 64) * (K // 64) * CHUNKS[form] + M * K + 2 * M * N
    found["limit"] = max(2 * M * N * K / 1560e6, moved / 4.3e6)
    return found


def problems(part: str, seed: int) -> Iterator[tuple[str, list[int] | int, int, int]]:
    """(what it is called, rows, N, K)"""
    if part == "dense":
        yield from ((f"{M} x {N} x {K}", M, N, K) for M, N, K in DENSE)
    if part == "even":
        for G, N, K in GROUPS:
            yield from ((f"{G} groups of {rows}, {N} x {K}", [rows] * G, N, K) for rows in ROWS if G * rows <= 16384)
    if part == "uneven":
        for experts, of_a_token, N, K in ROUTED:
            for count in TOKENS:
                for routing in ("uniform", "zipf"):
                    sizes = sizes_of(experts, of_a_token, count, routing, seed)
                    yield f"{count} tokens x {of_a_token} of {experts}, {routing}, {N} x {K}", sizes, N, K


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, help="cubins (default: the packaged ones)")
    parser.add_argument("--form", choices=CHUNKS, action="append", help="of weights (default: both)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of sums (default: all)")
    parser.add_argument("--part", choices=PARTS, action="append", help="what to do (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of uneven groups")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cubins = of_matrices(Zoo(arguments.directory or Path(zoo.__file__).parents[1] / "cubins"))
    forms, kinds = arguments.form or tuple(CHUNKS), arguments.kind or KINDS
    parts = arguments.part or PARTS
    results: list[dict[str, Any]] = []
    over_best, by_torch = defaultdict(list), {}
    for part in parts:
        for form in forms:
            for words, sizes, N, K in problems(part, arguments.seed):
                M = sum(sizes) if isinstance(sizes, list) else sizes
                if (M, N, K) not in by_torch and part != "uneven":
                    by_torch[M, N, K] = of_torch(M, N, K)
                line, regular = [], 0.0
                for kind in kinds:
                    one = times(cubins, form, kind, sizes, N, K)
                    if not one["times"]:
                        continue
                    one |= {"part": part, "torch": by_torch.get((M, N, K))}
                    results.append(one)
                    medians = {tile: statistics.median(each) for tile, each in one["times"].items()}
                    chosen = medians.pop("chosen")
                    best = min(medians, key=medians.__getitem__) if medians else "?"
                    over = chosen / min(chosen, medians.get(best, chosen))
                    over_best[part, kind].append(over)
                    regular = regular or chosen
                    said = f"{kind} {chosen:.1f}, limit / time {one['limit'] / chosen:.2f}, / best ({best}) {over:.2f}"
                    if kind != kinds[0]:
                        said += f", / {kinds[0]} {chosen / regular:.3f}"
                    if one["torch"]:
                        said += f", / torch {chosen / statistics.median(one['torch']):.2f}"
                    line.append(said)
                print(f"{form} {words}: {'; '.join(line)}", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results))
    for (part, kind), all_of_them in over_best.items():
        mean = float(np.exp(np.mean(np.log(all_of_them))))
        print(f"{part} {kind}: chosen / best of {len(all_of_them)}: mean {mean:.3f}, worst {max(all_of_them):.2f}")


if __name__ == "__main__":
    main()

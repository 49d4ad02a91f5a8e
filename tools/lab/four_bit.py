"""Products of FP8 and 4-bit weights on a GPU: random problems on which all tiles must give the same bits, then times beside torch's FP8.

    python tools/lab/four_bit.py [--directory CUBINS] [--json FILE]

Times are of CUDA graphs over matrices of weights of 256 MB together, so that none is in the L2 cache; torch's product is tensor-wise, of as
many rows by one matrix. Ends with 1 where bits differ.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

import zoo
from zoo.catalog import Zoo

CHUNKS = {"nvfp4": 2304, "mxfp4": 2176}  # bytes of 64 x 64 packed weights
PROBLEMS = ((1, 64, 64), (65, 8, 192), (193, 136, 448), (300, 264, 320), (517, 392, 2880), (2048, 4096, 4096))  # (rows, N, K)
DENSE = (
    *((M, 28672, 4096) for M in (8, 32, 64, 96, 128, 192, 256, 512, 1024, 2048, 4096, 8192)),
    (2048, 7168, 16384), (4096, 5760, 2880), (8192, 8192, 8192),
)  # fmt: skip
GROUPS = ((8, 28672, 4096), (32, 5760, 2880), (256, 7168, 2048))  # (groups, N, K)
ROWS = (1, 8, 16, 64, 128, 256, 1024)  # of a group


def weights(form: str, shape: tuple[int, ...], N: int, K: int) -> dict[str, torch.Tensor]:
    """Random codes under 32 scales that follow each other."""
    b = torch.randint(0, 256, (*shape, -(-N // 64), K // 64, CHUNKS[form]), device="cuda", dtype=torch.uint8)
    b[..., 2048:] = b[..., 2048:] % 32 + (0x28 if form == "nvfp4" else 90)
    return (
        {"b": b}
        if form == "nvfp4"
        else {"b": b, "b_row_scale": torch.full((*shape, -(-N // 64) * 64), 127, device="cuda", dtype=torch.uint8)}
    )


def tokens(M: int, K: int) -> dict[str, torch.Tensor]:
    return {"a": torch.randn(M, K, device="cuda").to(torch.float8_e4m3fn), "a_scale": torch.rand(M, device="cuda") + 0.5}


def different(cubins: Zoo, form: str) -> int:
    """How many results of tiles that do not split K differ from the first tile's."""
    kernel, count = cubins.kernel(f"gemm.fp8_{form}.dense"), 0
    tiles = [variant.name for variant in kernel.variants if variant.constants["SPLITS"] == 1]
    for M, N, K in PROBLEMS:
        operands = tokens(M, K) | {name: one[0] for name, one in weights(form, (1,), N, K).items()}
        rest = {"bias": torch.randn(N, device="cuda"), "row_scale": torch.rand(M, device="cuda")}
        for dtype, given in ((torch.bfloat16, {}), (torch.float16, rest), (torch.float32, rest)):
            found = [torch.full((M, N), float("nan"), device="cuda", dtype=dtype) for _ in tiles]
            for tile, d in zip(tiles, found, strict=True):
                cubins.launch(kernel.name, **operands, **given, d=d, variant=tile)
                if not torch.equal(d.view(torch.uint8), found[0].view(torch.uint8)):
                    print(f"{form} {M} x {N} x {K} {dtype}: {tile} differs from {tiles[0]} in {int((d != found[0]).sum())} places")
                    count += 1
    return count


def replayed(calls: list[Any], repeats: int = 6) -> float:
    """Microseconds of one of the calls: the median of replays of all of them."""
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
    return float(statistics.median(times[1:]))


def of_torch(a: torch.Tensor, N: int, out: torch.dtype = torch.bfloat16) -> float:
    K, one = a.shape[1], torch.ones((), device="cuda")
    matrices = torch.randn(max(2, 2**28 // (N * K)), N, K, device="cuda", dtype=torch.bfloat16).to(torch.float8_e4m3fn)
    return replayed([lambda x=x: torch._scaled_mm(a, x.T, one, one, out_dtype=out, use_fast_accum=True) for x in matrices])


def times(cubins: Zoo, form: str, groups: int, rows: int, N: int, K: int) -> dict[str, Any]:
    """Of one matrix, groups == 0, or of so many, `rows` rows each."""
    grouping, M = ("dense", rows) if groups == 0 else ("m_grouped_contiguous", rows * groups)
    kernel, operands = cubins.kernel(f"gemm.fp8_{form}.{grouping}"), tokens(M, K)
    bytes_of_b = max(groups, 1) * -(-N // 64) * (K // 64) * CHUNKS[form]
    copies = weights(form, (max(2, min(16, 2**28 // bytes_of_b)), *((groups,) if groups else ())), N, K)
    d = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
    if groups:
        operands["offsets"] = torch.arange(rows, M + 1, rows, device="cuda", dtype=torch.int32)
    each = [{name: one[i] for name, one in copies.items()} for i in range(len(copies["b"]))]

    def ours(**pinned: str) -> float:
        return replayed([lambda one=one: cubins.launch(kernel.name, **operands, **one, d=d, **pinned) for one in each])

    found: dict[str, Any] = {
        "form": form,
        "groups": groups,
        "rows": rows,
        "N": N,
        "K": K,
        "torch": of_torch(operands["a"], N),
        "chosen": ours(),
    }
    for variant in kernel.variants:
        width = variant.constants["TOKENS"]
        if width // 8 <= rows <= width * 8 and (variant.constants["SPLITS"] == 1 or rows <= 64):
            found[variant.name] = ours(variant=variant.name)
    moved = bytes_of_b + M * K + 2 * M * N
    found["limit"] = max(2 * M * N * K / 1560e6, moved / 4.3e6)
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", type=Path, help="cubins (default: the packaged ones)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cubins = Zoo(arguments.directory or Path(zoo.__file__).parents[1] / "cubins")
    wrong = sum(different(cubins, form) for form in CHUNKS)
    print(f"{wrong} results differ" if wrong else "all tiles give the same bits", flush=True)
    results = []
    problems = [(0, *shape) for shape in DENSE] + [(G, rows, N, K) for G, N, K in GROUPS for rows in ROWS if G * rows <= 16384]
    for form in CHUNKS:
        for problem in problems:
            one = times(cubins, form, *problem)
            results.append(one)
            said = " ".join(f"{what} {value:.1f}" if isinstance(value, float) else f"{what} {value}" for what, value in one.items())
            print(f"{said} | limit / time {one['limit'] / one['chosen']:.2f}, time / torch {one['chosen'] / one['torch']:.2f}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results))
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

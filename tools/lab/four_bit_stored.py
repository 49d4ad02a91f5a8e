"""Products of FP8 or bf16 and 4-bit weights as a checkpoint stores them, beside packed ones, on a GPU: the same bits, then times.

    python tools/lab/four_bit_stored.py [--tokens bf16] [--gates] [--json FILE]

Weights are drawn as a checkpoint has them and packed by pack.<format>.fragments; with --gates they are gates and ups, and products end in SwiGLU. Times are of CUDA graphs over matrices of 150 MB together or more, so
that none is in the L2 cache, of what the rules choose for either and of the fastest tile of each. Ends with 1 where bits differ.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch

import zoo
from zoo.reference.fragments import chunk_shape

sys.path.insert(0, str(Path(__file__).resolve().parent))
from four_bit import IN_NO_CACHE, replayed, tiles
from viewed import of_matrices

SHAPES = (  # (groups or 0, rows of each, N, K)
    *((0, M, 28672, 4096) for M in (1, 8, 32, 64, 128, 512, 2048)), (0, 64, 5760, 2880), (0, 4096, 5760, 2880),
    *((32, M, 5760, 2880) for M in (1, 8, 64, 128)), *((8, M, 28672, 4096) for M in (1, 16, 64, 256)),
)  # fmt: skip


def operands(tokens: str, form: str, groups: int, N: int, K: int, gates: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Stored and packed matrices, the same."""
    block, scale = (16, torch.float8_e4m3fn) if form == "nvfp4" else (32, torch.float8_e8m0fnu)
    G = max(groups, 1)
    count = max(2, -(-IN_NO_CACHE // (G * N * K // 2)))
    stored, packed = [], []
    for _ in range(count):
        q = torch.randint(0, 256, (G, N, K // 2), device="cuda", dtype=torch.uint8)
        low = 0x28 if form == "nvfp4" else 112
        scales = torch.randint(low, low + 16, (G, N, K // block), device="cuda", dtype=torch.uint8)
        b = torch.empty((G, -(-N // 64), -(-K // 64), *chunk_shape(block, tokens)), device="cuda", dtype=torch.uint8)
        stored.append({"b": q, "b_scale": scales.view(scale)})
        packed.append({"b": b})
        for one, how in ((stored[-1], "plain"), (packed[-1], gates)):  # the largest scales lie as the rows do
            rest = {} if form == "nvfp4" else {"row_scale": torch.empty((G, -(-N // 64) * 64), device="cuda", dtype=torch.float8_e8m0fnu)}
            of_matrices(zoo).launch(f"pack.{form}.fragments", q=q, scales=scales.view(scale), b=b, gates=how, tokens=tokens, **rest)
            one |= {"b_row_scale": rest["row_scale"]} if rest else {}
    if not groups:
        stored, packed = ([{name: x[0] for name, x in one.items()} for one in each] for each in (stored, packed))
    return stored, packed


def of_each(name: str, given: dict[str, Any], each: list[dict[str, Any]], d: torch.Tensor, **more: Any) -> float:
    return median(replayed([lambda one=one: of_matrices(zoo).launch(name, **given, **one, d=d, **more) for one in each]))


def timed(tokens: str, form: str, groups: int, rows: int, N: int, K: int, gates: str) -> dict[str, Any]:
    M, grouping = max(groups, 1) * rows, "m_grouped_contiguous" if groups else "dense"
    a = torch.randn(M, K, device="cuda")
    given: dict[str, Any] = (
        {"a": a.bfloat16()} if tokens == "bf16" else {"a": a.to(torch.float8_e4m3fn), "a_scale": torch.rand(M, device="cuda")}
    )
    if groups:
        given["offsets"] = torch.arange(1, groups + 1, device="cuda", dtype=torch.int32) * rows
    found: dict[str, Any] = {"form": form, "groups": groups, "rows": rows, "N": N, "K": K}
    results = []
    plain = gates == "plain"
    endings = (".stored", "") if plain else (".swiglu_stored", ".swiglu")
    for what, ending, each in zip(("stored", "packed"), endings, operands(tokens, form, groups, N, K, gates), strict=True):
        name = f"gemm.{tokens}_{form}.{grouping}{ending}"
        d = torch.full((M, N if plain else N // 2), float("nan"), device="cuda", dtype=torch.bfloat16)
        kernel = zoo.find(name)[0]
        names = [
            variant.name for variant in tiles(kernel, "regular") if "DEQUANTIZES_ONCE" not in variant.constants
        ]  # which want a workspace
        whole = next(tile for tile in names if "split" not in tile)
        of_matrices(zoo).launch(name, **given, **each[0], d=d, variant=whole)
        results.append(d.clone())
        times = {"chosen": of_each(name, given, each, d)}
        for tile in names:
            if rows <= 64 or tile.startswith("t"):
                times[tile] = of_each(name, given, each, d, variant=tile)
        found[what] = times
    found["different"] = int((results[0].view(torch.int16) != results[1].view(torch.int16)).sum())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", choices=("fp8", "bf16"), default="fp8")
    parser.add_argument("--gates", action="store_true", help="products that end in SwiGLU")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = []
    for shape in SHAPES:
        for form in ("nvfp4", "mxfp4"):
            results.append(timed(arguments.tokens, form, *shape, "halves" if arguments.gates else "plain"))
            one = results[-1]
            best = {what: min((time, tile) for tile, time in one[what].items() if tile != "chosen") for what in ("stored", "packed")}
            print(
                f"{form} {shape}: stored {one['stored']['chosen']:.1f} us, packed {one['packed']['chosen']:.1f}"
                f" ({one['stored']['chosen'] / one['packed']['chosen']:.2f}); best {best['stored'][0]:.1f} {best['stored'][1]},"
                f" {best['packed'][0]:.1f} {best['packed'][1]} ({best['stored'][0] / best['packed'][0]:.2f})",
                flush=True,
            )
            if arguments.json:
                arguments.json.write_text(json.dumps(results))
    wrong = sum(one["different"] > 0 for one in results)
    print(f"{len(results)} problems, {wrong} with other bits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

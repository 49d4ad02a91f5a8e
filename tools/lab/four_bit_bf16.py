"""Products of bf16 and 4-bit weights on a GPU: random problems on which all tiles must agree, then times beside FP8's and torch's bf16.

    python tools/lab/four_bit_bf16.py [--soak SECONDS] [--json FILE]

A problem's result is within what 16-bit rounding and f32 sums allow of the product in float64, and the same bits come from every tile that
does not split K. Times are of CUDA graphs over matrices of weights of 150 MB together or more, so that none is in the L2 cache.
Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import zoo
from zoo.reference.four_bit_weights import mxfp4_as_bf16, nvfp4_as_bf16
from zoo.reference.fragments import chunk_shape, pack_mxfp4, pack_nvfp4

sys.path.insert(0, str(Path(__file__).resolve().parent))
from four_bit import IN_NO_CACHE, replayed
from viewed import of_matrices

TILES = [variant.name for variant in zoo.find("gemm.bf16_nvfp4.dense")[0].variants]  # MXFP4 has the same
WHOLE = [tile for tile in TILES if "split" not in tile]
SHAPES = (  # (rows, N, K)
    (1, 28672, 4096), (8, 28672, 4096), (16, 28672, 4096), (32, 28672, 4096), (64, 28672, 4096), (1, 4096, 4096), (16, 5760, 2880),
    (256, 28672, 4096), (2048, 28672, 4096), (8192, 8192, 8192), (4096, 5760, 2880),
)  # fmt: skip


def soak(seconds: float, seed: int) -> int:
    """How many problems were right."""
    random, until, count = np.random.default_rng(seed), time.monotonic() + seconds, 0
    while time.monotonic() < until:
        M, N, K = int(random.integers(1, 300)), 8 * int(random.integers(1, 50)), 32 * int(random.integers(1, 40))
        form, q = ("nvfp4", "mxfp4")[count % 2], random.integers(0, 256, (N, K // 2), np.uint8)
        if form == "nvfp4":
            scales = random.integers(0x28, 0x50, (N, K // 16), np.uint8)
            weights, factors = nvfp4_as_bf16(q, scales), np.full(N, 8.0)
            operands = {"b": torch.from_numpy(pack_nvfp4(q, scales, tokens="bf16")).cuda()}
        else:
            scales = random.integers(118, 128, (N, K // 32), np.uint8)
            rebased, packed = mxfp4_as_bf16(q, scales), pack_mxfp4(q, scales, tokens="bf16")
            weights, factors = rebased.weights, rebased.factors.astype(np.float64)
            operands = {"b": torch.from_numpy(packed.b).cuda(), "b_row_scale": torch.from_numpy(packed.row_scale.view(np.uint8)).cuda()}
        a = torch.randn(M, K, device="cuda", dtype=torch.bfloat16)
        matrix = torch.from_numpy(weights.astype(np.float64) * factors[:, None]).cuda()
        exact, size = a.double() @ matrix.T, a.double().abs() @ matrix.abs().T
        found = {}
        for tile in TILES:
            d = torch.full((M, N), float("nan"), device="cuda", dtype=torch.float32)
            of_matrices(zoo).launch(f"gemm.bf16_{form}.dense", a=a, **operands, d=d, variant=tile)
            found[tile] = d
            if not bool(((d - exact).abs() <= size * 2.0**-18 + 1e-30).all()):
                raise SystemExit(f"seed {seed}, problem {count}: {M} x {N} x {K} {form} {tile} is off by {(d - exact).abs().max()}")
        if not all(torch.equal(found[tile], found[WHOLE[0]]) for tile in WHOLE):
            raise SystemExit(f"seed {seed}, problem {count}: {M} x {N} x {K} {form}: tiles differ")
        count += 1
    return count


def times(form: str, M: int, N: int, K: int) -> dict[str, Any]:
    chunk, tiles, chunks = (2304, -(-N // 64), -(-K // 64)) if form == "nvfp4" else (2176, -(-N // 64), -(-K // 64))
    copies = max(2, -(-IN_NO_CACHE // (tiles * chunks * chunk)))
    b = torch.randint(0, 256, (copies, tiles, chunks, chunk), device="cuda", dtype=torch.uint8)
    b[..., 2048:] = b[..., 2048:] % 16 + (0x38 if form == "nvfp4" else 112)
    of_bf16 = b.view(*b.shape[:-1], *chunk_shape(16 if form == "nvfp4" else 32, "bf16"))
    rest = {} if form == "nvfp4" else {"b_row_scale": torch.full((tiles * 64,), 127, device="cuda", dtype=torch.uint8)}
    d = torch.empty(M, N, device="cuda", dtype=torch.bfloat16)
    a, a8 = torch.randn(M, K, device="cuda", dtype=torch.bfloat16), torch.zeros(M, chunks * 64, device="cuda", dtype=torch.float8_e4m3fn)
    a8[:, :K] = a.to(torch.float8_e4m3fn)
    scale = torch.ones(M, device="cuda")

    def ours(name: str, variant: str | None, **operands: Any) -> list[Any]:
        pinned = {"variant": variant} if variant else {}
        packed = of_bf16 if name.startswith("gemm.bf16") else b
        return [lambda one=one: of_matrices(zoo).launch(name, **operands, b=one, **rest, d=d, **pinned) for one in packed]

    found: dict[str, Any] = {"format": form, "M": M, "N": N, "K": K}
    found["chosen"] = median(replayed(ours(f"gemm.bf16_{form}.dense", None, a=a)))
    for tile in TILES:
        if M <= 64 or tile == "t128":
            found[tile] = median(replayed(ours(f"gemm.bf16_{form}.dense", tile, a=a)))
    found["fp8"] = median(replayed(ours(f"gemm.fp8_{form}.dense", None, a=a8, a_scale=scale)))
    weights = torch.randn(max(2, 2**28 // (2 * N * K)), N, K, device="cuda", dtype=torch.bfloat16)
    found["torch"] = median(replayed([lambda one=one: torch.mm(a, one.T, out=d) for one in weights]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--soak", type=float, default=10, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    print(f"{soak(arguments.soak, arguments.seed)} problems right")
    results = []
    for M, N, K in SHAPES:
        for form in ("nvfp4", "mxfp4"):
            results.append(times(form, M, N, K))
            one = results[-1]
            print(
                " ".join(f"{what} {value:.1f}" if isinstance(value, float) else f"{what} {value}" for what, value in one.items()),
                flush=True,
            )
            print(f"    of fp8's time {one['chosen'] / one['fp8']:.2f}, of torch's rate {one['torch'] / one['chosen']:.2f}", flush=True)
            if arguments.json:
                arguments.json.write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())

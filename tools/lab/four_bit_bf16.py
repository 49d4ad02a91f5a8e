"""Times GEMMs of bf16 rows and 4-bit weights on a GPU, beside FP8 rows and torch's bf16 GEMM.

    python tools/lab/four_bit_bf16.py [--json FILE]

CUDA graphs run over matrices of weights of 150 MB together or more, so that none is in the L2 cache. tools/soak_four_bit.py tests results.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

import torch
from four_bit import IN_NO_CACHE, replayed
from viewed import of_matrices

import zoo
from zoo.reference.fragments import chunk_shape

TILES = [variant.name for variant in zoo.find("gemm.bf16_nvfp4.dense")[0].variants]  # MXFP4 has the same
SHAPES = (  # (rows, N, K)
    (1, 28672, 4096), (8, 28672, 4096), (16, 28672, 4096), (32, 28672, 4096), (64, 28672, 4096), (1, 4096, 4096), (16, 5760, 2880),
    (256, 28672, 4096), (2048, 28672, 4096), (8192, 8192, 8192), (4096, 5760, 2880),
)  # fmt: skip


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
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


if __name__ == "__main__":
    main()

"""Times every tile of a dense product of FP8 tokens and 4-bit weights on problems drawn by seed, for tools/measure_costs.py.

    python tools/lab/four_bit_tiles.py --seed 501 --json seed.json [--form nvfp4] [--kind regular] [--seconds 60] [--rows 256] [--cubins DIR]

Matrices are drawn as `gemm.py --unseen` draws them, rows evenly by their logarithm. A tile is left out where there are more than 20 times as many
rows. All tiles of a problem and what zoo chooses take turns, from CUDA graphs, over weights of 150 MB together or more; ends with what choices lose.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from four_bit import CHUNKS, KINDS, copies, of_kind, scratch, tiles, tokens
from gemm_shapes import unseen

import zoo
from zoo.catalog import Zoo

BANDS, TURNS, TIMES_AS_MANY_ROWS = (16, 128, 256, 1 << 31), 6, 20


def graph_of(calls: list[Any]) -> torch.cuda.CUDAGraph:
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def timed(cubins: Zoo, form: str, kind: str, M: int, N: int, K: int) -> dict[str, float]:
    """Microseconds by tile, and of what is chosen."""
    kernel, matrices = cubins.kernel(f"gemm.fp8_{form}.dense"), copies(form, 0, N, K)
    given = tokens(M, K) | of_kind(kind, M, K) | scratch(M, N, K) | {"d": torch.empty(M, N, device="cuda", dtype=torch.bfloat16)}
    names: list[str | None] = [
        tile.name
        for tile in tiles(kernel, kind)
        if TIMES_AS_MANY_ROWS * tile.constants["TOKENS"] >= M and ("ONCE" not in tile.constants or M > 256)
    ]
    graphs = {
        name or "chosen": graph_of([lambda b=b, name=name: cubins.launch(kernel.name, **given, **b, variant=name) for b in matrices])
        for name in (*names, None)
    }
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(TURNS):
        for name, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found[name].append(begin.elapsed_time(end) * 1e3 / len(matrices))
    return {name: statistics.median(times[1:]) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--form", choices=CHUNKS, default="nvfp4")
    parser.add_argument("--kind", choices=KINDS, default="regular")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rows", type=int, default=256, help="at most")
    parser.add_argument("--cubins", type=Path, default=Path(zoo.__file__).parents[1] / "cubins")
    arguments = parser.parse_args()
    cubins, draw, results, start = Zoo(arguments.cubins), random.Random(arguments.seed), [], time.time()
    matrices = (shape[1:3] for part in range(1 << 31) for shape in unseen(100 * arguments.seed + part))
    while time.time() - start < arguments.seconds:
        N, K = next(matrices)
        M = round(arguments.rows ** draw.random())
        results.append({"shape": (M, N, K), "options": {}, "times": timed(cubins, arguments.form, arguments.kind, M, N, K)})
    for least, most in zip((0, *BANDS), BANDS, strict=False):
        lost = [one["times"]["chosen"] / min(one["times"].values()) for one in results if least < one["shape"][0] <= most]
        if lost:
            mean = math.exp(statistics.fmean(map(math.log, lost)))
            print(f"up to {most} rows, {len(lost)} problems: chosen / best {mean:.3f}, worst {max(lost):.2f}")
    for one in results:
        del one["times"]["chosen"]
    arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()

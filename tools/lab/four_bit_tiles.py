"""Times every tile of products with 4-bit weights on problems drawn by seed, for tools/measure_costs.py.

    python tools/lab/four_bit_tiles.py --seed 501 --json seed.json [--grouping m_grouped_contiguous] [--ending .swiglu_fp8b128_stored]
                                       [--tokens bf16] [--form mxfp4] [--kind regular] [--seconds 60] [--count 200] [--most 256] [--cubins DIR]

Matrices are drawn as `gemm.py --unseen` draws them. The logarithm of the number of rows, or of tokens of a mixture of experts, is drawn evenly. A tile
of fewer than 128 rows is not timed if a matrix or an expert has more than 20 times as many rows. The name in the results says how a tile ran:

    NAME alone, NAME shared     one CTA or two on a multiprocessor, where a tile may have either
    NAME pair, NAME turn        a cluster computes a pair of tiles, or a CTA computes both in turn; `NAME pair shared` has both words

All tiles of a problem, and zoo's choice, run in turn from CUDA graphs. Their weights are 150 MB or more, so no cache holds them. The last lines
print what zoo's choices lose against the fastest tile.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from four_bit import IN_NO_CACHE, KINDS, copies, of_kind, scratch, stored_weights, tiles, tokens
from four_bit_shapes import CHUNKS, ROUTED, pin, sizes_of
from gemm_shapes import unseen
from viewed import of_matrices

import zoo
from zoo.catalog import Zoo

BANDS, TURNS, TIMES_AS_MANY_ROWS = (16, 128, 256, 1 << 31), 6, 20  # rows of one matrix, or of an expert that is hit
WIDE = 128  # tokens of a tile that is timed however many rows there are
MOST_CALLS, MOST_BYTES = 24, 3e9  # of a graph; of the weights of all experts
SHARES = (1, 1, 2, 4, 8)  # GPUs that experts are spread over
ENDINGS = ("", ".stored", ".swiglu", ".swiglu_fp8b128", ".swiglu_stored", ".swiglu_fp8b128_stored")  # of a kernel's name


@lru_cache(maxsize=1)
def as_stored(form: str, groups: int, N: int, K: int) -> list[dict[str, torch.Tensor]]:
    count = max(2, -(-IN_NO_CACHE * 16 // (max(groups, 1) * N * K * 9)))
    all_of_them = stored_weights(form, (count, *((groups,) if groups else ())), N, K)
    return [{name: one[i] for name, one in all_of_them.items()} for i in range(count)]


def with_all(cubins: Path, alone: str, in_pairs: bool, into: Path) -> Zoo:
    """A zoo whose launches are pinned: CTAs alone on a multiprocessor ("1") or sharing it ("0"), and pairs of CTAs or none, where a launch may have either."""
    into.mkdir()
    for folder in cubins.iterdir():
        if folder.is_dir():
            (into / folder.name).symlink_to(folder.resolve())
    manifest = json.loads((cubins / "manifest.json").read_text()) | {"ptx": None}
    for kernel in manifest["kernels"].values():
        for launch in kernel["launches"].values():
            pin(launch, alone, in_pairs)
    (into / "manifest.json").write_text(json.dumps(manifest))
    return of_matrices(Zoo(into))


@dataclass(frozen=True)
class Problem:
    sizes: tuple[int, ...]  # of groups; of one matrix none
    M: int
    N: int
    K: int

    @property
    def hit(self) -> int:
        return sum(size > 0 for size in self.sizes) or 1

    @property
    def hit_bytes(self) -> int:
        return self.hit * -(-self.N // 64) * (self.K // 64) * 2304


def drawn(seed: int, groups: bool, most: int) -> Iterator[Problem]:
    draw = random.Random(seed)
    for N, K in (shape[1:3] for part in range(1 << 31) for shape in unseen(100 * seed + part)):
        M = round(most ** draw.random())
        if not groups:
            yield Problem((), M, N, K)
            continue
        experts, of_a_token = draw.choice(ROUTED)
        here = max(experts // draw.choice(SHARES), 4)
        sizes = sizes_of(experts, of_a_token, M, draw.choice(("uniform", "zipf")), draw.randrange(1 << 30))[:here]
        rows = sum(sizes)
        if rows and here * N * K * 9 / 16 < MOST_BYTES and rows * (N + K) < MOST_BYTES / 8:
            yield Problem(tuple(sizes), rows, N, K)


def is_likely(tile: Any, problem: Problem) -> bool:
    if "DEQUANTIZES_ONCE" in tile.constants and problem.M <= 256:
        return False
    tokens, most = tile.constants["TOKENS"], max(problem.sizes or (problem.M,))
    return bool((tokens >= WIDE or TIMES_AS_MANY_ROWS * tokens >= problem.M / problem.hit) and tokens <= TIMES_AS_MANY_ROWS * most)


def graph_of(calls: list[Any]) -> torch.cuda.CUDAGraph:
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def in_turns(calls: dict[str, list[Any]]) -> dict[str, float]:
    """Median microseconds of a call of each, whose graphs are replayed by turns."""
    graphs = {called: graph_of(each) for called, each in calls.items()}
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found: dict[str, list[float]] = {called: [] for called in graphs}
    for _ in range(TURNS):
        for called, graph in graphs.items():
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            found[called].append(begin.elapsed_time(end) * 1e3 / len(calls[called]))
    return {called: statistics.median(times[1:]) for called, times in found.items()}


class Timer:
    def __init__(self, cubins: Path, name: str, ending: str, kind: str, into: Path):
        self.chosen, self.name, self.ending, self.kind = of_matrices(Zoo(cubins)), name + ending, ending, kind
        self.cubins, self.into = cubins, into

    @cached_property
    def pinned(self) -> dict[tuple[str, str], Zoo]:
        return {
            (way, how): with_all(self.cubins, flag, way == "pair", self.into / f"{way}_{how}")
            for way in ("turn", "pair")
            for how, flag in (("shared", "0"), ("alone", "1"))
        }

    def tiles(self, problem: Problem) -> Iterator[tuple[str, Zoo, str]]:
        """(what it is called, in which zoo, which variant)"""
        for tile in tiles(self.chosen.kernel(self.name), self.kind):
            if not is_likely(tile, problem):
                continue
            either, several = "IN_CLUSTER_OR_SEQUENCE" in tile.constants and "fp8b128" in self.ending, tile.constants["CTAS"] > 1
            for (way, how), cubins in self.pinned.items():
                if (either or way == "turn") and (several or how == "shared"):
                    yield " ".join([tile.name, *[way] * either, *[how] * several]), cubins, tile.name

    def result(self, M: int, N: int) -> dict[str, torch.Tensor]:
        if ".swiglu_fp8b128" in self.ending:
            q = torch.empty(M, N // 2, device="cuda", dtype=torch.float8_e4m3fn)
            return {"q": q, "scales": torch.empty(M, -(-N // 256), device="cuda")}
        return {"d": torch.empty(M, N // 2 if ".swiglu" in self.ending else N, device="cuda", dtype=torch.bfloat16)}

    def scratch(self, M: int, N: int, K: int, groups: int) -> dict[str, torch.Tensor]:
        return scratch(M, N, K, groups) if "workspace" in self.chosen.kernel(self.name).arguments else {}

    def operands(self, problem: Problem) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Those of every call, and those of each."""
        M, N, K, groups, bf16 = problem.M, problem.N, problem.K, len(problem.sizes), ".bf16_" in self.name
        stored = self.ending.endswith("stored")
        form = "mxfp4" if "_mxfp4." in self.name else "nvfp4"
        each: list[dict[str, Any]] = as_stored(form, groups, N, K) if stored else copies(form, groups, N, K, "bf16" if bf16 else "fp8")
        given: dict[str, Any] = dict(self.result(M, N))
        if groups:  # other groups of the same matrices, until they are too many for a cache
            turns = min(16, max(1, 2**28 // (len(each) * problem.hit_bytes)))
            ends = [
                torch.from_numpy(np.cumsum(np.roll(problem.sizes, turn * groups // turns)).astype(np.int32)).cuda() for turn in range(turns)
            ]
            each = [one | {"offsets": of_turn} for of_turn in ends for one in each][:MOST_CALLS]
        rows = M
        if "gather" in self.name:
            rows = max(M // 4, 1)
            given["index"] = torch.randint(0, rows, (M,), device="cuda", dtype=torch.int32)
        if bf16:
            return given | {"a": torch.randn(rows, K, device="cuda", dtype=torch.bfloat16)}, each
        return given | tokens(rows, K) | of_kind(self.kind, rows, K) | self.scratch(M, N, K, groups), each

    def time(self, problem: Problem) -> dict[str, float]:
        """Microseconds by tile, and of what is chosen."""
        given, each = self.operands(problem)
        calls = {
            called: [lambda one=one, cubins=cubins, tile=tile: cubins.launch(self.name, **given, **one, variant=tile) for one in each]
            for called, cubins, tile in self.tiles(problem)
        }
        calls["chosen"] = [lambda one=one: self.chosen.launch(self.name, **given, **one) for one in each]
        return in_turns(calls)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--grouping", choices=("dense", "m_grouped_contiguous", "m_grouped_gather"), default="dense")
    parser.add_argument(
        "--ending", choices=ENDINGS, default="", help="of the kernel's name (default: none, the plain product of packed weights)"
    )
    parser.add_argument("--tokens", choices=("fp8", "bf16"), default="fp8")
    parser.add_argument("--form", choices=CHUNKS, default="nvfp4", help="of weights (default: nvfp4)")
    parser.add_argument("--kind", choices=KINDS, default="regular")
    parser.add_argument("--seconds", type=float, help="stop then (default: 60, or never where --count is given)")
    parser.add_argument("--count", type=int, help="of problems (default: as many as the seconds take)")
    parser.add_argument("--most", type=int, default=256, help="rows of one matrix, or tokens that are routed (default: 256)")
    parser.add_argument("--cubins", type=Path, default=Path(zoo.__file__).parents[1] / "cubins")
    arguments = parser.parse_args()
    seconds = arguments.seconds or (60 if arguments.count is None else math.inf)
    results, start = [], time.time()
    with tempfile.TemporaryDirectory() as folder:
        name = f"gemm.{arguments.tokens}_{arguments.form}.{arguments.grouping}"
        timer = Timer(arguments.cubins, name, arguments.ending, arguments.kind, Path(folder))
        for problem in islice(drawn(arguments.seed, arguments.grouping != "dense", arguments.most), arguments.count):
            if time.time() - start > seconds:
                break
            one = {"shape": (problem.M, problem.N, problem.K), "groups": len(problem.sizes), "hit": problem.hit, "options": {}}
            results.append(one | {"bytes": problem.hit_bytes, "times": timer.time(problem)})
    for least, most in zip((0, *BANDS), BANDS, strict=False):
        of_band = [one for one in results if least < one["shape"][0] / one["hit"] <= most]
        if lost := [one["times"]["chosen"] / min(one["times"].values()) for one in of_band]:
            mean = math.exp(statistics.fmean(map(math.log, lost)))
            worst = max(of_band, key=lambda one: one["times"]["chosen"] / min(one["times"].values()))
            of_worst = " x ".join(map(str, worst["shape"])) + (f", {worst['hit']} of {worst['groups']} groups" if worst["groups"] else "")
            print(f"up to {most} rows, {len(lost)} problems: chosen / best {mean:.3f}, worst {max(lost):.2f} ({of_worst})")
    for one in results:
        del one["times"]["chosen"]
    arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()

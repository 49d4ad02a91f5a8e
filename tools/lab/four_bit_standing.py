"""Where products of 4-bit weights stand on a GPU: beside the recorded times of Marlin and CUTLASS's int4, and on problems that nobody has fitted to.

    python tools/lab/four_bit_standing.py --json FILE [--part peers] [--part unseen] [--seed 0] [--tokens bf16] [--form mxfp4] [--weights stored] [--gather]

`peers` times the problems of peers_four_bit.toml; a peer's time counts as what it would be here, by torch's copy where bytes bound a problem and by its
tensor-wise FP8 product where operations do, which are timed between ours. `unseen` draws 60 problems by seed; those of 256 rows an expert and more
stand beside torch's product of as many rows by one matrix. Experts take turns of eight routings, over weights of which 150 MB are hit between one use
and the next, so that none is in the L2 cache. four_bit_shapes.py prints the tables again from the JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from four_bit import IN_NO_CACHE, KINDS, of_kind, of_torch, replayed, scratch, stored_weights, tokens, weights
from four_bit_shapes import CHUNKS, Problem, peers, print_all, unseen_problems
from viewed import of_matrices

import zoo
from zoo.benchmark.plot import BEST_SEEN
from zoo.catalog import Zoo

ROUTINGS, REPLAY = 8, 20_000  # in turn; microseconds that a replay need not exceed
MACHINE_EVERY = 9  # problems, between two looks at torch's own kernels


COPIED = 2**28  # bytes: a graph copies some sizes, 250,000,000 and 2^29 among them, at 2.7 TB/s, and all of these at 4.2 out of a graph


def machine() -> list[float]:
    """TB/s of a large copy, and microseconds of torch's product of 8192^3."""
    source, target = (torch.empty(COPIED, device="cuda", dtype=torch.uint8) for _ in range(2))
    copied = 2 * COPIED / statistics.median(replayed([lambda: target.copy_(source)] * 8)) / 1e6
    return [copied, statistics.median(of_torch(8192, 8192, 8192))]


class Matrices:
    """The weights of the problem before, where they are as many and as large."""

    def __init__(self, tokens_are: str, form: str, laid: str):
        self.tokens_are, self.form, self.laid, self.key, self.kept = tokens_are, form, laid, (0, 0, 0), []

    def of(self, problem: Problem, count: int) -> list[dict[str, torch.Tensor]]:
        key = (problem.experts, problem.N, problem.K)
        if key != self.key or len(self.kept) < count:
            self.key, self.kept = key, []
            torch.cuda.empty_cache()
            shape = (count, *((problem.experts,) if problem.experts > 1 else ()))
            all_of_them = self.drawn(shape, problem.N, problem.K)
            self.kept = [{name: one[i] for name, one in all_of_them.items()} for i in range(count)]
        return self.kept[:count]

    def drawn(self, shape: tuple[int, ...], N: int, K: int) -> dict[str, torch.Tensor]:
        return weights(self.form, shape, N, K, self.tokens_are) if self.laid == "packed" else stored_weights(self.form, shape, N, K)


def of_torch_in_bf16(M: int, N: int, K: int) -> list[float]:
    a = torch.randn(M, K, device="cuda", dtype=torch.bfloat16)
    matrices = torch.randn(max(2, 2**28 // (2 * N * K)), N, K, device="cuda", dtype=torch.bfloat16)
    return replayed([lambda one=one: torch.mm(a, one.T) for one in matrices])


class Timer:
    def __init__(self, cubins: Zoo, tokens_are: str, form: str, laid: str, gathers: bool, seed: int):
        self.cubins, self.tokens_are, self.form, self.gathers, self.seed = cubins, tokens_are, form, gathers, seed
        self.matrices, self.ending = Matrices(tokens_are, form, laid), ".stored" if laid == "stored" else ""
        self.best = BEST_SEEN.get(torch.cuda.get_device_name(), BEST_SEEN["NVIDIA H200"])

    def kernel(self, problem: Problem) -> Any:
        groups = "m_grouped_gather" if self.gathers else "m_grouped_contiguous"
        return self.cubins.kernel(f"gemm.{self.tokens_are}_{self.form}.{'dense' if problem.experts == 1 else groups}{self.ending}")

    def a(self, problem: Problem, kind: str) -> dict[str, Any]:
        rows, K = problem.tokens if self.gathers and problem.experts > 1 else problem.rows, problem.K
        if self.tokens_are == "bf16":
            return {"a": torch.randn(rows, K, device="cuda", dtype=torch.bfloat16)}
        return tokens(rows, K) | of_kind(kind, rows, K)

    def time(self, problem: Problem, kind: str) -> dict[str, Any]:
        kernel = self.kernel(problem)
        routed = [problem.sizes(ROUTINGS * self.seed + turn) for turn in range(ROUTINGS if problem.experts > 1 else 1)]
        hits = [sum(size > 0 for size in sizes) for sizes in routed]
        token_bytes = 1 if self.tokens_are == "fp8" else 2
        limits = [problem.least_times(hit, token_bytes, *self.best, self.form) for hit in hits]
        longest = max(max(one.values()) for one in limits)
        copies = max(2, -(-IN_NO_CACHE // (min(hits) * problem.matrix_bytes)))
        count = max(copies, min(ROUTINGS, int(REPLAY / longest)))
        each: list[dict[str, Any]] = [self.matrices.of(problem, copies)[i % copies] for i in range(count)]
        given = self.a(problem, kind) | {"d": torch.empty(problem.rows, problem.N, device="cuda", dtype=torch.bfloat16)}
        if problem.experts > 1:
            ends = [torch.from_numpy(np.cumsum(sizes).astype(np.int32)).cuda() for sizes in routed]
            each = [one | {"offsets": ends[i % len(ends)]} for i, one in enumerate(each)]
            if self.gathers:
                order = torch.randperm(problem.rows, device="cuda")
                given["index"] = torch.arange(problem.tokens, device="cuda", dtype=torch.int32).repeat(problem.of_a_token)[order]
        if "workspace" in kernel.arguments:
            given |= scratch(problem.rows, problem.N, problem.K, problem.experts)
        times = replayed([lambda one=one: self.cubins.launch(kernel.name, **given, **one) for one in each])
        used = [limits[i % len(limits)] for i in range(count)]
        hit = statistics.fmean(hits[i % len(hits)] for i in range(count))
        least = {name: statistics.fmean(one[name] for one in used) for name in used[0]}
        bound = max(least, key=least.__getitem__)
        return {
            "problem": asdict(problem), "kind": kind, "time": statistics.median(times), "times": times, "limit": least[bound], "bound": bound,
            "weights": hit * problem.matrix_bytes, "rows_of_an_expert": problem.rows / hit,
        }  # fmt: skip

    def torch(self, problem: Problem) -> float:
        beside = of_torch if self.tokens_are == "fp8" else of_torch_in_bf16
        return statistics.median(beside(problem.rows, problem.N, problem.K))


def problems(parts: list[str], seed: int, count: int) -> Iterator[tuple[str, Problem]]:
    for part in parts:
        yield from ((part, problem) for problem in (peers().times if part == "peers" else unseen_problems(seed, count)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--part", choices=("peers", "unseen"), action="append", help="what to time (default: both)")
    parser.add_argument("--kind", choices=KINDS, action="append", help="of sums (default: regular and never of peers, all of unseen)")
    parser.add_argument("--seed", type=int, default=0, help="of unseen problems, and of routings")
    parser.add_argument("--count", type=int, default=60, help="of unseen problems")
    parser.add_argument("--tokens", choices=("fp8", "bf16"), default="fp8")
    parser.add_argument("--form", choices=CHUNKS, default="nvfp4", help="of weights (default: nvfp4)")
    parser.add_argument("--weights", choices=("packed", "stored"), default="packed")
    parser.add_argument("--gather", action="store_true", help="rows of experts come through an index")
    parser.add_argument("--cubins", type=Path, default=Path(zoo.__file__).parents[1] / "cubins")
    arguments = parser.parse_args()
    timer = Timer(of_matrices(Zoo(arguments.cubins)), arguments.tokens, arguments.form, arguments.weights, arguments.gather, arguments.seed)
    what = f"{arguments.tokens} tokens{', gathered' if arguments.gather else ''}, {arguments.weights} {arguments.form} weights, seed {arguments.seed}"
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "what": what, "machine": [], "results": []}
    for index, (part, problem) in enumerate(problems(arguments.part or ["peers", "unseen"], arguments.seed, arguments.count)):
        if part == "peers" and index % MACHINE_EVERY == 0:
            found["machine"].append(machine())
        beside, kinds = None, arguments.kind or (["regular", "never"] if part == "peers" else KINDS)
        for kind in kinds if (arguments.tokens, arguments.weights) == ("fp8", "packed") else ["regular"]:
            one = timer.time(problem, kind) | {"part": part}
            if part == "unseen" and one["rows_of_an_expert"] >= 255.5:
                beside = beside or timer.torch(problem)
            found["results"].append(one | {"torch": beside})
            print(f"{part} {kind} {problem.words}: {one['time']:.1f} us", flush=True)
        arguments.json.write_text(json.dumps(found))  # as they come: a run that is cut off has been paid for
    print_all(found)


if __name__ == "__main__":
    main()

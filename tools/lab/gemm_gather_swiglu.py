"""gemm.fp8b128.m_grouped_gather.swiglu and .swiglu_fp8b128 on a GPU: random problems held against m_grouped_contiguous of the same rows, and times.

    python tools/lab/gemm_gather_swiglu.py [--cubins DIR] [--soak SECONDS] [--seed 0] [--json FILE]

Every variant of gather is compared with t192 of m_grouped_contiguous, given the rows that torch has gathered: each byte of the result and of
the poison around it. Then eight shapes: times of all variants beside the plain products and m_grouped_contiguous with SwiGLU, medians of graph
replays that take turns. Ends with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

import torch

import zoo
from zoo.benchmark.graphs import Replay
from zoo.packaged import packaged

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gemm import BANDWIDTH, CACHE, GROUPED, PEAK, calls_of, grouped_operands, take_turns
from gemm_epilogues import add_results, chosen_by
from gemm_gather import GATHER, a_workspace, gathering
from viewed import of_matrices

SHAPES = (
    (8, 1, 4096, 7168), (64, 2, 4096, 2048), (64, 16, 4096, 7168), (64, 64, 4096, 2048), (64, 128, 4096, 7168), (8, 512, 4096, 7168),
    (64, 512, 4096, 2048), (4, 4096, 6144, 7168),
)  # fmt: skip
NOBODY = 2**31 - 1
POISON = 0x5A


def log(drawn: random.Random, least: int, most: int) -> int:
    return min(most, int(least * (most / least + 1) ** drawn.random()))


def codes(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(torch.float8_e4m3fn)


class Drawn:
    """A random problem: rows through an index, and the same rows gathered."""

    def __init__(self, seed: int):
        drawn = random.Random(seed)
        torch.manual_seed(seed)
        self.gates = drawn.choice(("halves", "interleaved"))
        unit = 64 if self.gates == "halves" else 16
        self.columns, self.k, self.groups = unit * log(drawn, 1, 512 // unit), 16 * log(drawn, 1, 150), log(drawn, 1, 90)
        rows, cuts = log(drawn, 1, 2000), []
        cuts = sorted(drawn.choices(range(rows + 1), k=self.groups - 1))
        self.ends = [*cuts, rows]
        self.m = rows + drawn.choice((0, 0, 1, 50))
        tokens = log(drawn, 1, 2 * rows)
        index = torch.randint(0, tokens, (self.m,), device="cuda", dtype=torch.int32)
        index[torch.rand(self.m, device="cuda") < drawn.choice((0, 0.1))] = -1
        blocks = -(-self.k // 128)
        self.a, self.a_scale = codes(tokens, self.k), torch.rand((tokens, blocks), device="cuda") * 2 / self.k**0.5
        if drawn.random() < 0.3:
            self.a[drawn.randrange(tokens), drawn.randrange(self.k)] = float("nan")
        self.b = codes(self.groups, 2 * self.columns, self.k)
        self.b_scale = torch.rand((self.groups, -(-2 * self.columns // 128), blocks), device="cuda") + 0.5
        self.row_scale = torch.rand(self.m, device="cuda") if drawn.random() < 0.5 else None
        self.scaling = drawn.choice(("exact", "pow2"))
        self.exists = (index >= 0)[:, None]
        self.found = index.clamp(min=0).long()
        self.index = index.clone()
        self.index[rows:] = NOBODY
        self.offsets = torch.tensor(self.ends, dtype=torch.int32, device="cuda")

    def shared(self, quantised: bool) -> dict:
        given = {"b": self.b, "b_scale": self.b_scale, "offsets": self.offsets, "row_scale": self.row_scale, "gates": self.gates}
        return given | ({"scaling": self.scaling} if quantised else {})

    def through_index(self) -> dict:
        return {"a": self.a, "a_scale": self.a_scale, "index": self.index, "workspace": a_workspace(self.m, self.k)}

    def gathered(self) -> dict:
        a = torch.where(self.exists, self.a.view(torch.uint8)[self.found], 0).view(torch.float8_e4m3fn)
        return {"a": a, "a_scale": torch.where(self.exists, self.a_scale[self.found], 0.0)}

    def results(self, quantised: bool) -> tuple[dict, list[torch.Tensor]]:
        """Views into poison, and all of it."""

        def poisoned(columns: int, size: int) -> torch.Tensor:
            return torch.full((self.m + 2, columns * size + 32), POISON, dtype=torch.uint8, device="cuda")

        if not quantised:
            whole = poisoned(self.columns, 2)
            return {"d": whole.view(torch.bfloat16)[1:-1, : self.columns]}, [whole]
        whole, scales = poisoned(self.columns, 1), poisoned(-(-self.columns // 128), 4)
        q = whole.view(torch.float8_e4m3fn)[1:-1, : self.columns]
        return {"q": q, "scales": scales.view(torch.float32)[1:-1, : -(-self.columns // 128)]}, [whole, scales]


def soak(collection: zoo.Zoo, seconds: float, seed: int) -> int:
    torch.cuda.set_stream(torch.cuda.Stream())
    stream, began, compared, wrong = torch.cuda.current_stream().cuda_stream, time.monotonic(), {}, 0
    while time.monotonic() - began < seconds:
        problem = Drawn(seed)
        for ending in (".swiglu", ".swiglu_fp8b128"):
            quantised = ending != ".swiglu"
            views, expected = problem.results(quantised)
            given = problem.shared(quantised)
            collection.prepare(GROUPED + ending, stream=stream, variant="t192", **given, **problem.gathered(), **views)(stream)
            for variant in collection.kernel(GATHER + ending).variants:
                if variant.arch != "sm_90a":
                    continue
                views, seen = problem.results(quantised)
                collection.prepare(GATHER + ending, stream=stream, variant=variant.name, **given, **problem.through_index(), **views)(
                    stream
                )
                torch.cuda.synchronize()
                compared[ending + " " + variant.name] = compared.get(ending + " " + variant.name, 0) + 1
                if not all(torch.equal(one, other) for one, other in zip(expected, seen, strict=True)):
                    wrong += 1
                    print(f"seed {seed}: {ending} {variant.name} differs: {problem.m} x {problem.columns} x {problem.k}, {problem.gates}")
        seed += 1
    print(f"soak: {wrong} wrong of {compared}", flush=True)
    return wrong


def times(collection: zoo.Zoo, shape: tuple[int, int, int, int]) -> dict[str, float]:
    groups, rows, n, k = shape
    m = groups * rows
    moved = m * k + groups * n * k + 2 * m * n
    sets = int(min(max(2, -(-CACHE // moved)), 16))
    rotating = [add_results(grouped_operands(groups, rows, n, k, "uniform"), n // 2) for _ in range(sets)]
    through = [gathering(one, m) for one in rotating]
    calls = calls_of(sets, 1e6 * max(2 * m * n * k / PEAK, moved / BANDWIDTH), 12)
    own, replays = torch.cuda.Stream().cuda_stream, {}
    torch.cuda.synchronize()
    for kernel, operands in ((GROUPED, rotating), (GATHER, through)):
        for ending in ("", ".swiglu", ".swiglu_fp8b128"):
            given = [
                chosen_by(one, kernel + ending) | {name: one[name] for name in ("index", "workspace") if name in one} for one in operands
            ]
            chosen = collection.prepare(kernel + ending, stream=own, **given[0]).launch.variant.name
            names = {v.name for v in collection.kernel(kernel + ending).variants if v.arch == "sm_90a" and not v.name.endswith("_indices")}
            for name in sorted(names) if ending else (chosen,):
                plans = [collection.prepare(kernel + ending, stream=own, variant=name, **one) for one in given]
                label = f"{kernel.rpartition('_')[2]}{ending} {name}{'*' * (name == chosen)}"
                replays[label] = Replay([plans[i % sets] for i in range(calls)], own)
    taken = take_turns({name: replay.microseconds for name, replay in replays.items()})
    for replay in replays.values():
        replay.close()
    return taken


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cubins")
    parser.add_argument("--soak", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    arguments = parser.parse_args()
    collection = of_matrices(zoo.Zoo(arguments.cubins) if arguments.cubins else packaged)
    wrong, seen = soak(collection, arguments.soak, arguments.seed), []
    for shape in SHAPES:
        of_shape = times(collection, shape)
        torch.cuda.empty_cache()
        seen.append({"shape": shape, "times": of_shape})
        print(" ".join(map(str, shape)) + " | " + "  ".join(f"{name} {time:.1f}" for name, time in of_shape.items()), flush=True)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(seen, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Times gemm.fp8b128 with f32 scales and with the same scales as ue8m0 bytes, in one run.

    python tools/lab/gemm_scales.py CUBINS [--seed 7] [--count 8]

Problems of each grouping are drawn. The chosen tile computes both, which must give the same bits. Figures are medians of graph replays by turns.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch
from gemm import (
    ALONG_K,
    CACHE,
    GROUPED,
    KERNEL,
    MASKED,
    calls_of,
    grouped_operands,
    masked_operands,
    operands,
    operands_along_k,
    take_turns,
)
from gemm_gather import GATHER, gathering
from gemm_shapes import drawn

import zoo
from zoo.benchmark.graphs import Replay

CALLS = 20


def gathered_operands(groups: int, rows: int, n: int, k: int, skew: str) -> dict[str, torch.Tensor]:
    return gathering(grouped_operands(groups, rows, n, k, skew), max(1, groups * rows // 8))


def without_a_workspace(*shape) -> dict[str, torch.Tensor]:
    one = gathered_operands(*shape)
    del one["workspace"]
    return one


KINDS = {
    "dense": (KERNEL, "dense", operands),
    "contiguous": (GROUPED, "groups", grouped_operands),
    "masked": (MASKED, "masked", masked_operands),
    "gather, workspace": (GATHER, "groups", gathered_operands),
    "gather": (GATHER, "groups", without_a_workspace),
    "k_grouped": (ALONG_K, "along_k", operands_along_k),
}
SCALES = ("a_scale", "b_scale")


def with_bytes(one: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Its scales become powers of two where they lie; what is returned has them as bytes, in the same order."""
    for name in SCALES:
        one[name].copy_(torch.exp2(torch.randint_like(one[name], -8, 9)))
    return one | {name: (one[name].view(torch.int32) >> 23).to(torch.uint8) for name in SCALES}


def result(plan, d: torch.Tensor, stream: torch.cuda.Stream) -> torch.Tensor:
    with torch.cuda.stream(stream):
        d.zero_()
        plan(stream.cuda_stream)
        stream.synchronize()
        return d.clone().view(torch.uint8)


def measure(cubins: zoo.Zoo, kernel: str, make, shape: tuple) -> tuple[dict[str, float], str, bool]:
    """Microseconds, the tile, and whether bits are the same."""
    first = make(*shape)
    moved = sum(value.numel() * value.element_size() for value in first.values() if isinstance(value, torch.Tensor))
    rotating = [first] + [make(*shape) for _ in range(int(min(max(1, CACHE // moved), 31)))]
    as_bytes = [with_bytes(one) for one in rotating]
    stream = torch.cuda.Stream()
    own, count = stream.cuda_stream, len(rotating)
    torch.cuda.synchronize()
    tile = cubins.prepare(kernel, stream=own, **first).launch.variant.name
    work = {"f32": rotating, "bytes": as_bytes}
    plans = {name: [cubins.prepare(kernel, stream=own, variant=tile, **one) for one in sets] for name, sets in work.items()}
    results = [result(of_name[0], first["d"], stream) for of_name in plans.values()]
    replays = {name: Replay([of_name[i % count] for i in range(calls_of(count, 50.0, CALLS))], own) for name, of_name in plans.items()}
    times = take_turns({name: replay.microseconds for name, replay in replays.items()})
    for replay in replays.values():
        replay.close()
    return times, tile, all(torch.equal(one, results[0]) for one in results)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cubins")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--count", type=int, default=8, help="of each grouping")
    arguments = parser.parse_args()
    cubins, wrong = zoo.Zoo(arguments.cubins), 0
    for kind, (kernel, draw, make) in KINDS.items():
        ratios = []
        for shape in drawn(draw, arguments.seed, arguments.count):
            times, tile, same = measure(cubins, kernel, make, shape)
            torch.cuda.empty_cache()
            ratios.append(times["bytes"] / times["f32"])
            wrong += not same
            shown = " ".join(f"{name} {time:.1f}" for name, time in times.items())
            print(f"{kind} {shape} {tile}: {shown}{'' if same else ' OTHER BITS'}", flush=True)
        print(f"== {kind}: bytes / f32 {statistics.geometric_mean(ratios):.4f}, {min(ratios):.3f} to {max(ratios):.3f}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

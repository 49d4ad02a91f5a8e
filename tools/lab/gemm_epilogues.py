"""Times the FP8 GEMMs with SwiGLU in the epilogue beside the plain product of the same M, 2 I and K, alone and with a quantiser.

    python tools/lab/gemm_epilogues.py PLAIN_CUBINS CUBINS [--shapes all|many|few|groups|masked] [--json FILE]

As tools/lab/gemm.py: calls are replayed from CUDA graphs over rotating operands, all in turns; figures are medians. A shape is
M, 2 I, K, or groups, rows of each, 2 I, K, and what kind of groups.
"""

from __future__ import annotations

import argparse
import json
import statistics

import torch
from gemm import CACHE, group_sizes, grouped_operands, masked_operands, operands

import zoo
from zoo.benchmark.graphs import Replay
from zoo.errors import VariantError

SHAPES = {
    "many": ((4096, 4096, 7168), (4096, 3072, 7168), (4096, 7168, 2048), (8192, 4096, 7168), (4096, 24576, 1536)),
    "few": tuple((m, n, k) for n, k in ((4096, 7168), (24576, 1536)) for m in (1, 16, 32, 64, 128)),
    "groups": ((8, 512, 4096, 7168, "even"), (8, 4096, 4096, 4096, "uniform")),
    "masked": ((32, 192, 4096, 4096, "masked"), (32, 20, 4096, 4096, "masked"), (32, 20, 6144, 7168, "masked")),
}
ROUNDS, WARMUPS = 9, 2


def add_results(one: dict, columns: int) -> dict:
    """The arguments of the fused kernels, beside those of the plain one."""
    d = one["d"]
    shape = (*d.shape[:-1], columns)
    one["h"] = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
    one["q"] = torch.empty(shape, dtype=torch.float8_e4m3fn, device="cuda")
    blocks = -(-columns // 128)
    rows = -(-shape[-2] // 4) * 4
    one["scales"] = torch.empty((*shape[:-2], blocks, rows), device="cuda")[..., : shape[-2]].transpose(-1, -2)
    return one


def chosen_by(one: dict, kernel: str) -> dict:
    shared = {name: one[name] for name in ("a", "a_scale", "b", "b_scale", "offsets", "rows", "expected_rows") if name in one}
    if kernel.endswith(".swiglu"):
        return shared | {"d": one["h"]}
    if kernel.endswith(".swiglu_fp8b128"):
        return shared | {"q": one["q"], "scales": one["scales"]}
    return shared | {"d": one["d"]}


def measure(plain: zoo.Zoo, fused: zoo.Zoo, shape: tuple) -> dict:
    if len(shape) == 3:
        grouping, make = "dense", operands
    else:
        masked = shape[4] == "masked"
        grouping, make = ("m_grouped_masked", masked_operands) if masked else ("m_grouped_contiguous", grouped_operands)
    groups, m, n, k = (1, *shape) if len(shape) == 3 else (shape[0], shape[0] * shape[1], *shape[2:4])
    moved = m * k + groups * n * k + 2 * m * n
    sets = int(min(max(2, -(-CACHE // moved)), 32))
    rotating = [add_results(make(*shape), n // 2) for _ in range(sets)]
    calls = sets * max(1, -(-16 // sets))
    stream = torch.cuda.Stream()
    own = stream.cuda_stream
    torch.cuda.synchronize()
    timers, chosen = {}, {}

    def add(collection: zoo.Zoo, kernel: str, label: str, **options):
        variants = [v for v in collection.kernel(kernel).variants if v.dtypes.get("d", "bf16") == "bf16"]
        names = sorted({v.name for v in variants if not v.name.endswith("indices")})
        try:
            first = collection.prepare(kernel, stream=own, **chosen_by(rotating[0], kernel), **options)
            chosen[label] = first.launch.variant.name
        except VariantError:
            return
        for name in names:
            try:
                calls_of = [chosen_by(one, kernel) for one in rotating]
                plans = [collection.prepare(kernel, stream=own, variant=name, **call, **options) for call in calls_of]
            except VariantError:
                continue
            replay = Replay([plans[i % sets] for i in range(calls)], own)
            timers[f"{label} {name}"] = replay.microseconds

    base = f"gemm.fp8b128.{grouping}"
    add(plain, base, "plain")
    add(fused, base + ".swiglu", "bf16")
    add(fused, base + ".swiglu_fp8b128", "fp8")
    add(fused, base + ".swiglu_fp8b128", "fp8_interleaved", gates="interleaved")
    if len(shape) == 3 or shape[4] != "masked":  # what is replaced: the plain product, then a quantiser that has SwiGLU
        pairs = []
        for one in rotating:
            pairs.append(plain.prepare(base, stream=own, **chosen_by(one, base)))
            results = {"q": one["q"], "scales": one["scales"].T, "layout": "mn_major"}
            pairs.append(plain.prepare("quantize.fp8b128.rows.swiglu", stream=own, x=one["d"], **results))
        pair = Replay([pairs[i % len(pairs)] for i in range(2 * calls)], own)
        timers["two kernels"] = lambda: 2 * pair.microseconds()
    seen: dict[str, list[float]] = {name: [] for name in timers}
    for turn in range(WARMUPS + ROUNDS):
        for name, timer in timers.items():
            time = timer()
            if turn >= WARMUPS:
                seen[name].append(time)
    return {"shape": shape, "times": {name: statistics.median(times) for name, times in seen.items()}, "chosen": chosen}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plain")
    parser.add_argument("cubins")
    parser.add_argument("--shapes", default="all")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    plain, fused = zoo.Zoo(arguments.plain), zoo.Zoo(arguments.cubins)
    results = []
    for kind, shapes in SHAPES.items():
        for shape in shapes if arguments.shapes in ("all", kind) else ():
            result = measure(plain, fused, shape)
            torch.cuda.empty_cache()
            results.append(result)
            times = result["times"]
            best = {}
            for name, time in times.items():
                label, _, variant = name.partition(" ")
                best[label] = min(best.get(label, (time, variant)), (time, variant))
            reference = best["plain"][0]
            words = "  ".join(f"{label} {time:.1f} {variant} ({time / reference:.3f})" for label, (time, variant) in best.items())
            print(" ".join(map(str, shape)) + " | " + words, flush=True)
            chosen = (f"{label} {variant} {times[f'{label} {variant}']:.1f}" for label, variant in result["chosen"].items())
            print("    chosen: " + "  ".join(chosen))
            print("    all: " + "  ".join(f"{name} {time:.1f}" for name, time in times.items()), flush=True)
            if arguments.json:
                with open(arguments.json, "w") as file:
                    json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()

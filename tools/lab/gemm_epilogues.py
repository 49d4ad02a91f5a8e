"""Times the FP8 GEMMs with SwiGLU in the epilogue beside the plain product of the same M, 2 I and K, alone and with a quantiser.

    python tools/lab/gemm_epilogues.py PLAIN_CUBINS CUBINS [--shapes many,few,groups,masked,dense@1@40...] [--labels plain,bf16,fp8,...] [--json FILE]

As tools/lab/gemm.py: calls are replayed from CUDA graphs over rotating operands, all in turns; figures are medians. A shape is
M, 2 I, K, or groups, rows of each, 2 I, K, and what kind of groups. The file has a sweep of each kernel, for tools/regret.py.
"""

from __future__ import annotations

import argparse
import json

import torch
from gemm import BANDWIDTH, CACHE, PEAK, calls_of, grouped_operands, known, masked_operands, operands, take_turns
from gemm_shapes import SKEWS, shapes_of
from viewed import of_matrices

import zoo
from zoo.benchmark.graphs import Replay
from zoo.errors import VariantError

SHAPES = {
    "many": ((4096, 4096, 7168), (4096, 3072, 7168), (4096, 7168, 2048), (8192, 4096, 7168), (4096, 24576, 1536)),
    "few": tuple((m, n, k) for n, k in ((4096, 7168), (24576, 1536)) for m in (1, 16, 32, 64, 128)),
    "groups": ((8, 512, 4096, 7168, "even"), (8, 4096, 4096, 4096, "uniform")),
    "masked": ((32, 192, 4096, 4096, "masked"), (32, 20, 4096, 4096, "masked"), (32, 20, 6144, 7168, "masked")),
    "sweep": (
        *((m, n, k) for n, k in ((4096, 7168), (24576, 1536), (28672, 4096)) for m in (1, 8, 16, 32, 64, 128, 256, 512, 1024)),
        (4096, 4096, 7168), (4096, 3072, 7168), (4096, 7168, 2048), (8192, 4096, 7168), (4096, 24576, 1536), (8192, 28672, 4096),
        (32768, 4096, 7168), (32768, 4096, 2048),
        *((64, rows, 4096, 7168, skew) for rows in (2, 16, 32, 64, 128, 192, 512) for skew in SKEWS[:2]),
        (8, 1, 4096, 7168, "uniform"), (128, 64, 1536, 2048, "uniform"), (8, 512, 4096, 7168, "uniform"), (8, 4096, 4096, 4096, "uniform"),
        (16, 1024, 3072, 2048, "zipf"), (4, 8192, 6144, 7168, "zipf"), (256, 96, 2048, 4096, "uniform"),
        *((64, rows, 4096, 7168, f"{skew}_indices") for rows in (16, 128, 192) for skew in SKEWS[:2]),
        (8, 1, 4096, 7168, "uniform_indices"), (8, 4096, 4096, 4096, "uniform_indices"), (128, 64, 1536, 2048, "uniform_indices"),
        *((groups, rows, n, k, "masked") for groups, rows in ((32, 192), (6, 1024), (32, 20), (6, 20)) for n, k in ((6144, 7168), (4096, 4096))),
        (64, 64, 4096, 2048, "masked"), (128, 8, 3072, 4096, "masked"), (16, 4096, 4096, 2048, "masked"), (64, 128, 4096, 7168, "masked"),
    ),
    "unseen": (
        *((m, n, k) for n, k in ((6144, 5120), (12288, 2048)) for m in (2, 12, 24, 48, 96, 200, 400, 700, 1500, 3000, 10000)),
        *(
            (groups, rows, n, k, "uniform")
            for groups, rows in ((16, 4), (32, 24), (64, 48), (64, 100), (64, 160), (16, 700), (6, 3000))
            for n, k in ((3072, 5120), (5120, 1536))
        ),
        (32, 24, 3072, 5120, "uniform_indices"), (64, 160, 5120, 1536, "uniform_indices"), (16, 700, 3072, 5120, "even_indices"),
        *((groups, rows, 3072, 5120, "masked") for groups, rows in ((16, 4), (32, 40), (64, 100), (48, 160), (16, 700))),
    ),
}  # fmt: skip
KERNELS = {"plain": "", "bf16": ".swiglu", "fp8": ".swiglu_fp8b128"}


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
    shared = {name: one[name] for name in ("a", "a_scale", "b", "b_scale", "offsets", "m_indices", "rows", "expected_rows") if name in one}
    if kernel.endswith(".swiglu"):
        return shared | {"d": one["h"]}
    if kernel.endswith(".swiglu_fp8b128"):
        return shared | {"q": one["q"], "scales": one["scales"]}
    return shared | {"d": one["d"]}


def measure(plain: zoo.Zoo, fused: zoo.Zoo, shape: tuple, labels: list[str]) -> dict:
    if len(shape) == 3:
        grouping, make = "dense", operands
    else:
        masked = shape[4] == "masked"
        grouping, make = ("m_grouped_masked", masked_operands) if masked else ("m_grouped_contiguous", grouped_operands)
    groups, m, n, k = (1, *shape) if len(shape) == 3 else (shape[0], shape[0] * shape[1], *shape[2:4])
    moved = m * k + groups * n * k + 2 * m * n
    sets = int(min(max(2, -(-CACHE // moved)), 32))
    rotating = [add_results(make(*shape), n // 2) for _ in range(sets)]
    calls = calls_of(sets, 1e6 * max(2 * m * n * k / PEAK, moved / BANDWIDTH), 16)
    stream = torch.cuda.Stream()
    own = stream.cuda_stream
    torch.cuda.synchronize()
    timers, chosen, symbols = {}, {}, {}

    def add(collection: zoo.Zoo, kernel: str, label: str, **options):
        if label not in labels:
            return
        variants = [v for v in collection.kernel(kernel).variants if v.dtypes.get("d", "bf16") == "bf16"]
        names = sorted({v.name for v in variants})
        try:
            first = collection.prepare(kernel, stream=own, **chosen_by(rotating[0], kernel), **options)
            chosen[label], symbols[label] = first.launch.variant.name, known(first)
        except VariantError:
            return
        for name in names:
            try:
                given = [chosen_by(one, kernel) for one in rotating]
                plans = [collection.prepare(kernel, stream=own, variant=name, **call, **options) for call in given]
            except VariantError:
                continue
            replay = Replay([plans[i % sets] for i in range(calls)], own)
            timers[f"{label} {name}"] = replay.microseconds

    base = f"gemm.fp8b128.{grouping}"
    for label, ending in KERNELS.items():
        add(fused if ending else plain, base + ending, label)
    add(fused, base + ".swiglu_fp8b128", "fp8_interleaved", gates="interleaved")
    if "two" in labels and (
        len(shape) == 3 or shape[4] != "masked"
    ):  # what is replaced: the plain product, then a quantiser that has SwiGLU
        pairs = []
        for one in rotating:
            pairs.append(plain.prepare(base, stream=own, **chosen_by(one, base)))
            results = {"q": one["q"], "scales": one["scales"], "layout": "mn_major"}
            pairs.append(plain.prepare("quantize.fp8b128.rows.swiglu", stream=own, x=one["d"], **results))
        pair = Replay([pairs[i % len(pairs)] for i in range(2 * calls)], own)
        timers["two kernels"] = lambda: 2 * pair.microseconds()
    return {"shape": shape, "base": base, "times": take_turns(timers), "chosen": chosen, "symbols": symbols}


def sweeps(result: dict) -> list[dict]:
    """What tools/regret.py reads of a shape: each kernel's variants."""
    of_kernels = []
    for label, ending in KERNELS.items():
        times = {name.split()[1]: time for name, time in result["times"].items() if name.split()[0] == label}
        if times:
            one = {"kernel": result["base"] + ending, "shape": result["shape"], "times": times, "symbols": result["symbols"][label]}
            of_kernels.append(one)
    return of_kernels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("plain")
    parser.add_argument("cubins")
    parser.add_argument("--shapes", default="many,few,groups,masked")
    parser.add_argument("--labels", default="plain,bf16,fp8,fp8_interleaved,two")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    plain, fused = (of_matrices(zoo.Zoo(directory)) for directory in (arguments.plain, arguments.cubins))
    results = []
    for shape in shapes_of(arguments.shapes, SHAPES):
        result = measure(plain, fused, shape, arguments.labels.split(","))
        torch.cuda.empty_cache()
        results += sweeps(result)
        times = result["times"]
        best = {}
        for name, time in times.items():
            label, _, variant = name.partition(" ")
            best[label] = min(best.get(label, (time, variant)), (time, variant))
        reference = next(iter(best.values()))[0]
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

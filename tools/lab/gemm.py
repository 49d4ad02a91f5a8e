"""Times gemm.fp8b128.dense and its groupings beside torch's tensor-wise FP8 product, which has no block scales to apply, in one run.

    python tools/lab/gemm.py CUBINS [--shapes large|few|groups|masked|...,dense@1@40] [--variants 't*'] [--json FILE]
                             [--option b_constant=yes] [--unseen SEED] [--only-chosen]

Calls are replayed from CUDA graphs over rotating operands that exceed the L2 cache three times over, all variants of a
shape and torch in turns; figures are medians. `tw` is torch._scaled_mm with one scale a tensor and fast accumulation. Beside groups
of rows `dense` is timed, too: all rows by the first group's weights.
tools/soak_gemm.py tests results.
--unseen draws problems as users bring them, by a seed that no rule was fitted to, and ends with a table by how many tokens they have;
with --only-chosen they take the time of two kernels each.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import statistics

import torch
from gemm_shapes import BANDS, UNSEEN, group_sizes, shapes_of

import zoo
from zoo.benchmark.graphs import Replay
from zoo.errors import VariantError

KERNEL, GROUPED = "gemm.fp8b128.dense", "gemm.fp8b128.m_grouped_contiguous"
MASKED = "gemm.fp8b128.m_grouped_masked"
ALONG_K = "gemm.fp8b128.k_grouped"
PEAK, BANDWIDTH = 1560e12, 4.3e12  # the best seen on this chip
CACHE, FREE_SHARE = 3 * 50e6, 60e9
ROUNDS, WARMUPS = 9, 2
REPLAY, OUT_OF_QUESTION = 5000, 1.6  # microseconds that a replay should take; over the fastest: not timed any further
BESIDE = ("tw", "dense")
CHOSEN = "the chosen one"  # in the place of a pattern of variants


def operands(m: int, n: int, k: int) -> dict[str, torch.Tensor]:
    e4m3 = torch.float8_e4m3fn
    blocks = -(-k // 128)
    return {
        "a": torch.randn(m, k, device="cuda").to(e4m3),
        "a_scale": torch.rand(blocks, -(-m // 4) * 4, device="cuda")[:, :m].T + 0.5,
        "b": torch.randn(n, k, device="cuda").to(e4m3),
        "b_scale": torch.rand(-(-n // 128), blocks, device="cuda") + 0.5,
        "d": torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda"),
    }


def grouped_operands(groups: int, rows: int, n: int, k: int, skew: str) -> dict[str, torch.Tensor]:
    one = operands(groups * rows, n, k)
    one["b"] = torch.randn(groups, n, k, device="cuda").to(torch.float8_e4m3fn)
    one["b_scale"] = torch.rand(groups, -(-n // 128), -(-k // 128), device="cuda") + 0.5
    sizes = torch.tensor(group_sizes(groups, rows, skew.removesuffix("_indices")), device="cuda")
    if skew.endswith("_indices"):
        one["m_indices"] = torch.repeat_interleave(torch.arange(groups, device="cuda"), sizes).int()
    else:
        one["offsets"] = sizes.cumsum(0).int()
    return one


def masked_operands(groups: int, rows: int, n: int, k: int, _: str) -> dict[str, torch.Tensor]:
    """Half of the slots' rows are used: of each slot 30 % more or less."""
    one = grouped_operands(groups, 2 * rows, n, k, "even")
    blocks = -(-k // 128)
    one["a"] = one["a"].view(groups, 2 * rows, k)
    one["a_scale"] = torch.rand(groups, blocks, 2 * rows, device="cuda").transpose(1, 2) + 0.5
    one["d"] = one["d"].view(groups, 2 * rows, n)
    one["rows"] = torch.tensor(group_sizes(groups, rows, "uniform"), dtype=torch.int32, device="cuda")
    one["expected_rows"] = rows
    del one["offsets"]
    return one


def operands_along_k(groups: int, k: int, m: int, n: int, kind: str) -> dict[str, torch.Tensor]:
    """Ragged sizes, multiples of 16 or of what `kind` ends with; D of f32 is added to."""
    step = int(kind.split("_")[-1]) if kind[-1].isdigit() else 16
    ends = torch.tensor([step * size for size in group_sizes(groups, k // step // groups, "uniform")]).cumsum(0)
    ends[-1] = k
    blocks = -(-k // 128) + groups
    one = {"offsets": ends.int().cuda(), "accumulate": "yes" if kind.startswith("f32") else "no"}
    for name, rows in (("a", m), ("b", n)):
        one[name] = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
        one[name + "_scale"] = (torch.rand(blocks, rows, device="cuda") + 0.5).t()
    one["d"] = torch.zeros(groups, m, n, dtype=torch.float32 if kind.startswith("f32") else torch.bfloat16, device="cuda")
    return one


def take_turns(timers: dict, rivals=lambda name: name.partition(" ")[0]) -> dict[str, float]:
    """The median of each timer. Those that the first rounds show to be far slower than the fastest of their `rivals` keep that time."""
    seen: dict[str, list[float]] = {}
    for _ in range(WARMUPS):
        seen = {name: [timer()] for name, timer in timers.items()}
    fastest: dict[str, float] = {}
    for name, (time,) in seen.items():
        fastest[rivals(name)] = min(time, fastest.get(rivals(name), time))
    left = {name: timers[name] for name, (time,) in seen.items() if time <= OUT_OF_QUESTION * fastest[rivals(name)]}
    seen |= {name: [] for name in left}
    for _ in range(ROUNDS):
        for name, timer in left.items():
            seen[name].append(timer())
    return {name: statistics.median(times) for name, times in seen.items()}


def known(plan) -> dict[str, int]:
    """What a cost rule may read of a call, whichever variant it was prepared for."""
    return {name: value for name, value in plan.launch.symbols.items() if name not in plan.launch.variant.symbols}


def calls_of(sets: int, microseconds: float, most: int = 20) -> int:
    """How many calls a replay has: all sets of operands equally often, and about as many as fill it."""
    return sets * -(-min(most, int(REPLAY / microseconds) + 1) // sets)


def measure(collection: zoo.Zoo, shape: tuple, pattern: str, options: dict[str, str]) -> dict:
    """`shape` is m, n, k, or groups, rows of each, n, k, skew; torch then multiplies all rows by the first group's weights."""
    kernels = {"masked": MASKED, "f32": ALONG_K, "bf16": ALONG_K}
    kernel = KERNEL if len(shape) == 3 else kernels.get(shape[4].split("_")[0], GROUPED)
    make = {KERNEL: operands, GROUPED: grouped_operands, MASKED: masked_operands, ALONG_K: operands_along_k}[kernel]
    if kernel == ALONG_K:
        (groups, k, m, n, kind), dtype = shape, shape[4].split("_")[0]
        moved = (m + n) * k + groups * m * n * (8 if kind.startswith("f32") else 2)
    else:
        groups, m, n, k = (1, *shape) if len(shape) == 3 else (shape[0], shape[0] * shape[1], *shape[2:4])
        dtype, moved = "bf16", m * k + groups * n * k + 2 * m * n
    bytes_of_one = moved + 4 * (m + n // 128 + 1) * (k // 128 + 1)
    sets = int(min(max(2, -(-CACHE // moved)), max(2, FREE_SHARE // bytes_of_one), 64))
    rotating = [make(*shape) | options for _ in range(sets)]
    limit = 1e6 * max(2 * m * n * k / PEAK, moved / BANDWIDTH)
    calls = calls_of(sets, limit)
    stream = torch.cuda.Stream()
    own = stream.cuda_stream
    torch.cuda.synchronize()
    replays, symbols = {}, {}
    variants = collection.kernel(kernel).variants
    names = sorted({v.name for v in variants if v.dtypes.get("d", "bf16") == dtype and fnmatch.fnmatch(v.name, pattern)})
    if pattern == CHOSEN:
        names = [collection.prepare(kernel, stream=own, **rotating[0]).launch.variant.name]
    try:
        chosen = collection.prepare(kernel, stream=own, **rotating[0])
        names.append(chosen.launch.variant.name + " (chosen)")
        symbols = known(chosen)
    except VariantError:
        pass
    for name in names:
        try:
            plans = [collection.prepare(kernel, stream=own, variant=name.split()[0], **one) for one in rotating]
        except VariantError:
            continue
        if name.endswith("(chosen)"):
            replays["chosen"] = name
            continue
        replays[name] = Replay([plans[i % sets] for i in range(calls)], own)
    if kernel == GROUPED:  # all rows by one matrix
        shared = ("a", "a_scale", "d")
        matrices = [{name: one[name] for name in shared} | {name: one[name][0] for name in ("b", "b_scale")} for one in rotating]
        plans = [collection.prepare(KERNEL, stream=own, **one) for one in matrices]
        replays["dense"] = Replay([plans[i % sets] for i in range(calls)], own)
    one = torch.ones((), device="cuda")

    def tensor_wise(i: int):
        args = rotating[i % sets]
        b = args["b"] if args["b"].ndim == 2 else args["b"][0]
        torch._scaled_mm(args["a"].view(-1, k)[:m], b.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)

    with torch.cuda.stream(stream):
        tensor_wise(0)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                tensor_wise(i)

    def torch_microseconds() -> float:
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(stream):
            start.record()
            graph.replay()
            stop.record()
        stop.synchronize()
        return 1e3 * start.elapsed_time(stop) / calls

    chosen = replays.pop("chosen", None)
    timers = {"tw": torch_microseconds} | {name: replay.microseconds for name, replay in replays.items()}
    times = take_turns(timers, lambda name: name if name in BESIDE else "zoo")
    for replay in replays.values():
        replay.close()
    return {
        "kernel": kernel, "shape": shape, "operations": 2 * m * n * k, "limit": limit, "times": times,
        "chosen": chosen and chosen.split()[0], "options": options, "symbols": symbols,
    }  # fmt: skip


def print_bands(results: list[dict]):
    """What the rules choose beside torch and beside the best of what was timed, by how many tokens there are."""
    print(f"{'tokens':>14} {'problems':>8}   chosen/tw  worst                          chosen/best  worst")
    for least, most in BANDS:
        rows = [one for one in results if least <= one["shape"][0] <= most and one["chosen"]]
        if not rows:
            continue
        columns = []
        for rival in (lambda one: one["times"]["tw"], lambda one: min(t for name, t in one["times"].items() if name not in BESIDE)):
            ratios = [(one["times"][one["chosen"]] / rival(one), one["shape"]) for one in rows]
            worst, shape = max(ratios)
            columns.append(f"{statistics.geometric_mean(ratio for ratio, _ in ratios):8.3f}  {worst:6.3f} {' x '.join(map(str, shape)):22}")
        print(f"{least:6} to {most:5} {len(rows):8}  {columns[0]} {columns[1]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cubins")
    parser.add_argument("--shapes", default="probe_large")
    parser.add_argument("--variants", default="*")
    parser.add_argument("--best", type=int, default=4, help="print so many variants a shape")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the kernel; may be repeated")
    parser.add_argument("--json")
    parser.add_argument("--unseen", type=int, metavar="SEED", help="instead of --shapes")
    parser.add_argument("--problems", type=int, default=UNSEEN, help="of --unseen")
    parser.add_argument("--only-chosen", action="store_true", help="time torch and what the rules choose")
    arguments = parser.parse_args()
    if arguments.unseen is not None:
        arguments.shapes = f"unseen@{arguments.unseen}@{arguments.problems}"
    if arguments.only_chosen:
        arguments.variants = CHOSEN
    collection = zoo.Zoo(arguments.cubins)
    options = dict(one.split("=") for one in arguments.option)
    results = []
    for shape in shapes_of(arguments.shapes):
        result = measure(collection, shape, arguments.variants, options)
        torch.cuda.empty_cache()
        results.append(result)
        if arguments.json:  # as they come: a run that is cut off has been paid for
            with open(arguments.json, "w") as file:
                json.dump(results, file, indent=1)
        times = dict(result["times"])
        tw, dense = times.pop("tw"), times.pop("dense", None)
        order = sorted(times, key=times.get)
        shown = "  ".join(f"{name} {times[name]:.1f} ({times[name] / tw:.2f})" for name in order[: arguments.best])
        rate = result["operations"] / min(times.values(), default=tw) / 1e6
        beside = f"tw {tw:.1f}" + (f" dense {dense:.1f}" if dense else "")
        print(f"{' '.join(map(str, shape))}: limit {result['limit']:.1f} {beside} | {shown} | {rate:.0f} TFLOPS", flush=True)
    chosen = [(r["times"][r["chosen"]], r) for r in results if r["chosen"] in r["times"]]
    own = [([time for name, time in r["times"].items() if name not in BESIDE], r) for r in results]
    best = [(min(times), r) for times, r in own if times]
    for what, rows in (("chosen", chosen), ("best", best)):
        if rows:
            print(
                f"{what}: time/tw {statistics.geometric_mean(t / r['times']['tw'] for t, r in rows):.3f} "
                f"(worst {max(t / r['times']['tw'] for t, r in rows):.3f}), "
                f"limit/time {statistics.geometric_mean(r['limit'] / t for t, r in rows):.3f}"
            )
    if arguments.unseen is not None:
        print_bands(results)


if __name__ == "__main__":
    main()

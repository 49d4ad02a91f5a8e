"""Check and time builds of quantisers on a GPU, beside torch's copy_ of the same bytes, all builds taking turns.

    python tools/lab/quantize_directions.py FOLDER KERNEL [VARIANTS] [--layout NAME] [--check] [--time] [--largest] [--repeats N]

FOLDER is what build_cubins.py wrote (--source, --output), so designs that were not kept go through the same run: one tile each.
VARIANTS is a pattern over the variants' names. Needs torch, cuda-bindings and zoo.
"""

from __future__ import annotations

import argparse
import fnmatch
import statistics
import sys

import torch

from zoo import checks
from zoo.benchmark.arguments import describe_arguments
from zoo.benchmark.graphs import Replay
from zoo.benchmark.shapes import usual_shapes
from zoo.catalog import Zoo
from zoo.checks import gpu
from zoo.runtime import driver
from zoo.runtime.arrays import ptr
from zoo.runtime.streams import stream

ROTATING = 600_000_000  # bytes of buffers: well past the L2 cache


def check(zoo: Zoo, kernel, variants) -> int:
    failures = 0
    execute = gpu.executor(zoo)
    for variant in variants:
        outcome = checks.check(kernel, variant, execute)
        failures += outcome.error is not None
        print(f"{kernel.name} {variant.name}: {outcome.checks} checks, {outcome.error or 'all bytes equal'}", flush=True)
    return failures


def check_large(zoo: Zoo, kernel, variants) -> int:
    """M * K past 2^31: equal to the same kernel on pieces of the rows, whose offsets are small. MXFP8, plain scales, cols and both."""
    m, k, step = 262144 + 96, 8224, 65536
    x = torch.randint(-32768, 32767, (m, k), dtype=torch.int16, device="cuda")
    failures, own = 0, stream(0)
    for variant in variants:
        if variant.dtypes["x"] != "bf16":
            continue
        described, keywords = describe_arguments(kernel, {"M": m, "K": k}, settings(variant, "plain"))
        whole, parts = (
            {n: torch.full(a.shape, 0xA5, dtype=torch.uint8, device="cuda") for n, a in described.items() if n != "x"} for _ in range(2)
        )
        torch.cuda.synchronize()

        def launch(first: int, rows: int, targets: dict, variant=variant, described=described, keywords=keywords):
            arguments = {"x": ptr(x[first].data_ptr(), (rows, k), "bf16", device=0)}
            for n, target in targets.items():
                along_m = n in ("q", "scales", "q_cols", "scales_cols")
                scale = 32 if n.startswith("scales") else 1
                shape = (k, -(-rows // scale)) if along_m else (rows, k // scale)
                start = first // scale if along_m else first * target.shape[1]
                arguments[n] = ptr(target.data_ptr() + start, shape, described[n].dtype, target.stride(), device=0)
            zoo.prepare(kernel.name, stream=own.handle, variant=variant.name, **arguments, **keywords)(own.handle)

        launch(0, m, whole)
        for first in range(0, m, step):
            launch(first, min(step, m - first), parts)
        torch.cuda.synchronize()
        equal = all(torch.equal(whole[n], parts[n]) for n in whole)
        failures += not equal
        print(f"{kernel.name} {variant.name}: M * K = {m * k}: {'equal to its pieces' if equal else 'DIFFERENT'}", flush=True)
    return failures


def settings(variant, layout: str) -> dict[str, str]:
    return {**variant.dtypes, **variant.options, "layout": layout}


def times(zoo: Zoo, kernel, variants, layout: str, m: int, k: int, repeats: int) -> tuple[dict[str, float], int]:
    """Medians in microseconds by variant, and the bytes. All variants have the same input dtype."""
    described = {v.name: describe_arguments(kernel, {"M": m, "K": k}, settings(v, layout)) for v in variants}
    sizes = {name: max(arrays[name].bytes for arrays, _ in described.values()) for name in next(iter(described.values()))[0]}
    total = sum(array.bytes for array in described[variants[0].name][0].values())
    sets = max(2, -(-ROTATING // total))
    launches = max(2 * sets, min(40, 4_000_000_000 // total)) // sets * sets
    kind = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[variants[0].dtypes["x"]]
    memory = [
        {
            n: torch.randn(m, k, device="cuda").to(kind) if n == "x" else torch.empty(size, dtype=torch.uint8, device="cuda")
            for n, size in sizes.items()
        }
        for _ in range(sets)
    ]
    sources = [torch.randint(0, 255, (total // 2,), dtype=torch.uint8, device="cuda") for _ in range(sets)]
    targets = [torch.empty_like(source) for source in sources]
    torch.cuda.synchronize()
    own = stream(0).handle
    replays = {}
    for variant in variants:
        arrays, keywords = described[variant.name]
        plans = [
            zoo.prepare(
                kernel.name, stream=own, variant=variant.name, **keywords,
                **{n: ptr(buffers[n].data_ptr(), array.shape, array.dtype, device=0) for n, array in arrays.items()},
            )
            for buffers in memory
        ]  # fmt: skip
        plans[0](own)
        replays[variant.name] = Replay(plans * (launches // sets), own)
    graph, torch_stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    targets[0].copy_(sources[0])
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=torch_stream):
        for i in range(launches):
            targets[i % sets].copy_(sources[i % sets])
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    samples: dict[str, list[float]] = {"copy_": [], **{name: [] for name in replays}}
    for _ in range(repeats + 1):
        with torch.cuda.stream(torch_stream):
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
        samples["copy_"].append(start.elapsed_time(end) * 1e3 / launches)
        for name, replay in replays.items():
            samples[name].append(replay.microseconds())
    for replay in replays.values():
        replay.close()
    return {name: statistics.median(values[1:]) for name, values in samples.items()}, total


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("kernel")
    parser.add_argument("variants", nargs="?", default="*")
    parser.add_argument("--layout", default="plain", help="of the scales, for --time")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--check-large", action="store_true")
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--largest", action="store_true", help="time the largest shape as well")
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    zoo = Zoo(arguments.folder)
    kernel = zoo.kernel(arguments.kernel)
    driver.device(0)
    torch.empty(1, device="cuda")
    variants = [v for v in gpu.runnable(kernel, driver.device(0)) if fnmatch.fnmatch(v.name, arguments.variants)]
    failures = check(zoo, kernel, variants) if arguments.check else 0
    failures += check_large(zoo, kernel, variants) if arguments.check_large else 0
    shapes = usual_shapes(kernel)[: None if arguments.largest else -1]
    for dtype in ("bf16", "f16", "f32") if arguments.time else ():
        mine = [v for v in variants if v.dtypes["x"] == dtype]
        if not mine:
            continue
        table = {}
        for m, k in shapes:
            found, total = times(zoo, kernel, mine, arguments.layout, m, k, arguments.repeats)
            torch.cuda.empty_cache()
            for name, microseconds in found.items():
                row = (
                    f"{found['copy_'] / microseconds:7.3f}{microseconds:8.1f}"
                    if name != "copy_"
                    else f"{total / microseconds / 1e6:6.2f}T{microseconds:8.1f}"
                )
                table.setdefault(name, []).append(row)
        print(f"{kernel.name}, share of copy_ (microseconds)".ljust(44) + "".join(f"{m}x{k}".rjust(15) for m, k in shapes))
        for name, cells in table.items():
            print(name.ljust(44) + "".join(cells), flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""Times tiles of a dense product one at a time, so that each number of a cost rule is one slope or one intercept; and all tiles on drawn problems.

    python tools/lab/gemm_numbers.py CUBINS --numbers FILE [--variants t128_w160] [--kernel gemm.fp8_nvfp4.dense] [--seconds 120]
    python tools/lab/gemm_numbers.py CUBINS --sweep FILE --shapes unseen@SEED@75,... [--option b_constant=yes] [--kernel ...] [--seconds 150]

Calls are replayed from CUDA graphs over rotating operands in one pool of memory, together larger than the L2 cache three times over where
32 sets suffice; figures are medians. It needs neither torch nor a compiler. What is timed when the seconds are over is written all the same.

Experiments on a tile of T tokens by W weights whose clusters have C CTAs (splits of K times sharers), of which R run at a time:

    alone      T x 3 tiles, K of 1 to 64 blocks      a block's time and a call's start and end, with nobody beside
    part       some of the chip, K of 32 blocks      what others' loads do to a block
    wave       tiles for one CTA a multiprocessor    a block's time among 132, square (read from L2) and flat (one row of tiles: from memory)
    waves      two to four of them                   a wave's end
    rest       what fills no wave, K of 12 to 64     the exchange of shares by two and four
    full, ...  quarter to four times R CTAs          what a multiprocessor's CTAs do together, and memory's rate; also with b_constant
    tokens     1, T/2 and 3T/4 tokens, 2 T and 3 T   boxes that are not full, and several tiles of tokens

A row of the file is [experiment, variant, M, N, K, b_constant, microseconds].
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import numpy
from gemm_shapes import group_sizes, shapes_of
from viewed import of_matrices

import zoo
from zoo.benchmark.graphs import Replay
from zoo.catalog import Zoo
from zoo.contract.array import Pointer
from zoo.contract.dtypes import DTYPES
from zoo.contract.schema import Variant
from zoo.errors import VariantError
from zoo.runtime import driver
from zoo.runtime.arrays import ptr
from zoo.runtime.device_array import DeviceArray, empty
from zoo.runtime.streams import stream

KERNEL, GROUPED, MASKED = "gemm.fp8b128.dense", "gemm.fp8b128.m_grouped_contiguous", "gemm.fp8b128.m_grouped_masked"
FOUR_BITS = {"gemm.fp8_nvfp4.dense": 2304, "gemm.fp8_mxfp4.dense": 2176}  # bytes of 64 x 64 packed weights
CACHE, SETS, ALIGNED = 150e6, 32, 1024
MOST_BYTES = 600e6  # of an experiment's operands
REPLAY, ROUNDS, WARMUPS, OUT_OF_QUESTION = 4000, 7, 2, 1.6  # microseconds of a replay; over the fastest: not timed any further
Problem = tuple[int, int, int, str]  # M, N, K, b_constant
Shape = tuple[Any, ...]  # M, N, K; or groups, rows of each, N, K and how ragged they are


def fill(memory: DeviceArray, part: numpy.ndarray) -> None:
    """With the same bytes over and over."""
    for begin in range(0, memory.nbytes, part.nbytes):
        count = min(part.nbytes, memory.nbytes - begin)
        driver.check(driver.bindings().cuMemcpyHtoD(memory.address + begin, part.ctypes.data, count), "filling the pool")


class Pool:
    """Device memory that operands of any size lie in: random e4m3 of which a product is made, scales, and room for results."""

    def __init__(self, size: int):
        random = numpy.random.default_rng(0)
        part = random.standard_normal(min(size, 1 << 25), numpy.float32).astype(ml_dtypes.float8_e4m3fn)
        self.elements, self.scales, self.results = (empty((bytes_of_part,), "u8") for bytes_of_part in (size, size // 16, size))
        fill(self.elements, part.view(numpy.uint8))
        fill(self.scales, (random.random(1 << 22, numpy.float32) + 0.5).view(numpy.uint8))

    def sets(self, kernel: str, shape: Shape) -> list[dict[str, Any]]:
        """As many sets of operands as exceed the cache, as far as there is room."""
        begin = {id(memory): 0 for memory in (self.elements, self.scales, self.results)}

        def take(memory: DeviceArray, shape: tuple[int, ...], dtype: str, strides: tuple[int, ...] | None = None, size: int = 0) -> Pointer:
            size = size or prod(shape) * DTYPES[dtype].bytes
            if size > memory.nbytes:
                raise ValueError(f"{shape} of {dtype} needs {size} bytes of a pool of {memory.nbytes}")
            if begin[id(memory)] + size > memory.nbytes:
                begin[id(memory)] = 0
            address = memory.address + begin[id(memory)]
            begin[id(memory)] += -(-size // ALIGNED) * ALIGNED
            return ptr(address, shape, dtype, strides, 0)

        def of_matrix(m: int, n: int, k: int) -> dict[str, Any]:
            if kernel in FOUR_BITS:
                rows = {"b_row_scale": take(self.elements, (-(-n // 64) * 64,), "u8")} if "mxfp4" in kernel else {}
                rest = {
                    "a_scale": take(self.scales, (m,), "f32"),
                    "b": take(self.elements, (-(-n // 64), k // 64, FOUR_BITS[kernel]), "u8"),
                } | rows
            else:
                rest = {
                    "a_scale": scales_of(m, k),
                    "b": take(self.elements, (n, k), "e4m3"),
                    "b_scale": take(self.scales, (-(-n // 128), -(-k // 128)), "f32"),
                }
            return {"a": take(self.elements, (m, k), "e4m3"), "d": take(self.results, (m, n), "bf16")} | rest

        def scales_of(m: int, k: int) -> Pointer:
            blocks, down = -(-k // 128), -(-m // 4) * 4
            return take(self.scales, (m, blocks), "f32", (1, down), 4 * down * blocks)

        def of_groups(groups: int, rows: int, n: int, k: int, skew: str) -> dict[str, Any]:
            blocks = -(-k // 128)
            b = {"b": take(self.elements, (groups, n, k), "e4m3"), "b_scale": take(self.scales, (groups, -(-n // 128), blocks), "f32")}
            if kernel == MASKED:  # half of each place is used
                sizes = {"rows": zoo.to_device(numpy.full(groups, rows, numpy.int32)), "expected_rows": rows}
                rows *= 2
                a_scale = take(self.scales, (groups, rows, blocks), "f32", (blocks * rows, 1, rows))
                a, d = take(self.elements, (groups, rows, k), "e4m3"), take(self.results, (groups, rows, n), "bf16")
                return {"a": a, "a_scale": a_scale, "d": d} | b | sizes
            m = groups * rows
            offsets = numpy.cumsum(group_sizes(groups, rows, skew)).astype(numpy.int32)
            a, d = take(self.elements, (m, k), "e4m3"), take(self.results, (m, n), "bf16")
            return {"a": a, "a_scale": scales_of(m, k), "d": d, "offsets": zoo.to_device(offsets)} | b

        make = of_matrix if len(shape) == 3 else of_groups
        return [make(*shape) for _ in range(min(max(2, int(-(-CACHE // work_of(kernel, shape)[0]))), SETS))]


def work_of(kernel: str, shape: Shape) -> tuple[int, int]:
    """Bytes moved, multiplications and additions."""
    groups, m, n, k = (1, *shape) if len(shape) == 3 else (shape[0], shape[0] * shape[1], *shape[2:4])
    return m * k + groups * n * k * FOUR_BITS.get(kernel, 4096) // 4096 + 2 * m * n, 2 * m * n * k


def replays(
    collection: Zoo, kernel: str, shape: Shape, sets: list[dict[str, Any]], names: list[str], own: int, options: dict[str, str]
) -> dict[str, Replay]:
    """Of the variants that take such a call."""
    moved, operations = work_of(kernel, shape)
    likely = max(2.0, 1e6 * max(operations / 1.4e15, moved / 4e12))
    calls = len(sets) * max(1, round(min(20, REPLAY / likely) / len(sets)))
    made = {}
    for name in names:
        try:
            plans = [collection.prepare(kernel, stream=own, variant=name, **one, **options) for one in sets]
        except VariantError:
            continue
        made[name] = Replay([plans[index % len(plans)] for index in range(calls)], own)
    return made


def medians(timers: dict[str, Replay]) -> dict[str, float]:
    """In turns. What the first rounds show to be far slower than the fastest keeps that time."""
    seen: dict[str, list[float]] = {}
    for _ in range(WARMUPS):
        seen = {name: [timer.microseconds()] for name, timer in timers.items()}
    fastest = min((one for (one,) in seen.values()), default=0.0)
    left = [name for name, (one,) in seen.items() if one <= OUT_OF_QUESTION * fastest]
    rounds: dict[str, list[float]] = {name: [] for name in left}
    for _ in range(ROUNDS):
        for name in left:
            rounds[name].append(timers[name].microseconds())
    for timer in timers.values():
        timer.close()
    return {name: statistics.median(rounds.get(name) or times) for name, times in seen.items()}


def near_square(tiles: int) -> tuple[int, int]:
    """Down and along, whose product is `tiles`, the first not the larger."""
    down = next(down for down in range(int(tiles**0.5), 0, -1) if tiles % down == 0)
    return down, tiles // down


def experiments(variant: Variant, sms: int) -> Iterator[tuple[str, Problem]]:
    one = variant.constants
    four_bits = "WEIGHTS" not in one
    tokens, weights = one["TOKENS"], one.get("WEIGHTS", 64 * one["WARPGROUPS"])

    block = 256 if four_bits else 128

    def problem(down: int, along: int, blocks: int, b_constant: str = "no", m: int | None = None) -> Problem:
        return (m or down * tokens, along * weights, blocks * block, b_constant)

    for blocks in (1, 2, 4, 8, 16, 32, 64):
        yield "alone", problem(1, 3, blocks)
    if not four_bits and not one.get("SWAPPED") and "SHARERS" not in one:
        for tiles in (33, 66, 100, 120):
            yield "part", problem(*near_square(tiles), 32)
        for blocks in (4, 8, 16, 32, 64):
            yield "wave", problem(11, 12, blocks)
            yield "flat", problem(1, sms, blocks)
        for down, along in ((22, 12), (33, 12), (22, 24)):
            for blocks in (4, 16, 64):
                yield "waves", problem(down, along, blocks)
        if one.get("SPLITS_LAST_WAVE"):
            for tiles in (6, 20, 30, 31, 60, 66, 67, 90, 150, 162, 192, 198, 220, 250):
                for blocks in (12, 24, 32, 64):
                    yield "rest", problem(*near_square(tiles), blocks)
        return
    splits = one.get("SPLITS", 1)
    running = sms * one["CTAS"]
    for name, ctas in (("quarter", sms // 4), ("half", sms // 2), ("one", sms), ("most", running * 7 // 8), ("full", running)):
        for blocks in (8, 16, 32, 64, 128):
            yield name, problem(1, max(1, ctas // splits), blocks)
    for name, times in (("over", 1.15), ("half_more", 1.5), ("twice", 2), ("thrice", 3), ("four", 4)):
        for blocks in (4, 8, 16, 56):
            yield name, problem(1, round(running * times / splits), blocks)
    for m in sorted({1, tokens // 2, tokens * 3 // 4}):
        for along in (sms // 2, running):
            yield "tokens", problem(1, max(1, along // splits), 32, m=m)
    if tokens >= 96:
        for down in (2, 3):
            for along in (sms // 4, sms // 2, sms):
                yield "tokens", problem(down, max(1, along // splits), 32)
    for ctas in () if four_bits else (sms // 4, sms, running, 2 * running):
        for blocks in (8, 32):
            yield "constant", problem(1, max(1, ctas // splits), blocks, "yes")


def timed(collection: Zoo, kernel: str, pattern: str) -> list[Variant]:
    variants = collection.kernel(kernel).variants
    return [one for one in variants if one.arch == "sm_90a" and "d" not in one.dtypes and fnmatch(one.name, pattern)]


def take_numbers(
    collection: Zoo, kernel: str, pattern: str, pool: Pool, own: int, sms: int, left: Callable[[], float], write: Callable[[Any], None]
) -> None:
    variants = timed(collection, kernel, pattern)
    wanted: dict[Problem, dict[str, list[str]]] = {}
    for variant in variants:
        for experiment, problem in experiments(variant, sms):
            if work_of(kernel, problem[:3])[0] <= MOST_BYTES:
                names = wanted.setdefault(problem, {}).setdefault(variant.name, [])
                if experiment not in names:
                    names.append(experiment)
    order = list(wanted)
    Random("in any order").shuffle(order)  # a clock that drifts meets all tiles, and what is cut off is a sample
    rows: list[list[Any]] = []
    begun = time.monotonic()
    for at, problem in enumerate(order):
        if left() < 2:
            print(f"{len(order) - at} of {len(order)} problems not timed")
            break
        m, n, k, b_constant = problem
        options = {"b_constant": b_constant} if kernel == KERNEL else {}
        shape = (1, m, n, k, "even") if kernel in (GROUPED, MASKED) else (m, n, k)
        sets = pool.sets(kernel, shape)
        for name in wanted[problem]:  # each alone: none is cut short for being slower than another
            for variant, microseconds in medians(replays(collection, kernel, shape, sets, [name], own, options)).items():
                rows += [[experiment, variant, m, n, k, b_constant, round(microseconds, 3)] for experiment in wanted[problem][variant]]
        if at % 200 == 0:
            print(f"{at} of {len(order)} problems in {time.monotonic() - begun:.0f} s", flush=True)
            write({"kernel": kernel, "sms": sms, "rows": rows})
    write({"kernel": kernel, "sms": sms, "rows": rows})
    print(f"{len(rows)} times of {len(variants)} variants in {time.monotonic() - begun:.0f} s")


def sweep(
    collection: Zoo,
    kernel: str,
    pool: Pool,
    own: int,
    shapes: list[tuple],
    options: dict[str, str],
    left: Callable[[], float],
    write: Callable[[Any], None],
) -> None:
    """Every variant of every shape, as tools/regret.py reads it."""
    names = [one.name for one in timed(collection, kernel, "*")]
    derived = {name for name, _ in collection.kernel(kernel).derived} | {"sms"}
    results: list[dict[str, Any]] = []
    begun = time.monotonic()
    for at, shape in enumerate(shapes):
        if left() < 2:
            print(f"{len(shapes) - at} of {len(shapes)} problems not timed")
            break
        sets = pool.sets(kernel, shape)
        chosen = collection.prepare(kernel, stream=own, **sets[0], **options).launch
        symbols = {name: value for name, value in chosen.symbols.items() if name not in derived | chosen.variant.symbols.keys()}
        times = {name: round(one, 3) for name, one in medians(replays(collection, kernel, shape, sets, names, own, options)).items()}
        said = {"kernel": kernel, "shape": shape, "chosen": chosen.variant.name, "options": options, "symbols": symbols}
        results.append(said | {"times": times})
        if at % 10 == 0:
            best = min(times, key=times.__getitem__)
            said = f"{chosen.variant.name} {times[chosen.variant.name]}, {best} {times[best]}"
            print(f"{at}: {' x '.join(map(str, shape))} {said}; {left():.0f} s left", flush=True)
            write(results)
    write(results)
    print(f"{len(results)} problems in {time.monotonic() - begun:.0f} s")


def alternating(shapes: list[tuple], seeds: int) -> list[tuple]:
    """What `seeds` lists one after the other hold, in turns: what is cut off is as much of each."""
    each = -(-len(shapes) // seeds)
    parts = [shapes[begin : begin + each] for begin in range(0, len(shapes), each)]
    return [part[index] for index in range(each) for part in parts if index < len(part)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cubins", type=Path)
    parser.add_argument("--kernel", default=KERNEL, choices=(KERNEL, GROUPED, MASKED, *FOUR_BITS))
    parser.add_argument("--variants", default="*", help="of --numbers: a pattern")
    parser.add_argument("--numbers", type=Path)
    parser.add_argument("--sweep", type=Path)
    parser.add_argument("--shapes", default="")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the kernel; may be repeated")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--pool", type=int, default=6 << 30, help="bytes of operands, and as many of results")
    arguments = parser.parse_args()
    begun = time.monotonic()
    collection = of_matrices(Zoo(arguments.cubins))
    opened = driver.device(0)
    sms = opened.multiprocessors
    own = stream(0).handle

    def left() -> float:
        return arguments.seconds - (time.monotonic() - begun)

    def into(path: Path) -> Callable[[Any], None]:
        return lambda data: path.write_text(json.dumps(data, separators=(",", ":"))) and None

    with opened.current():
        pool = Pool(arguments.pool)
        print(f"{sms} multiprocessors, pool filled after {time.monotonic() - begun:.0f} s; zoo {zoo.__version__}", flush=True)
        if arguments.numbers:
            take_numbers(collection, arguments.kernel, arguments.variants, pool, own, sms, left, into(arguments.numbers))
        if arguments.sweep:
            shapes = alternating(shapes_of(arguments.shapes), arguments.shapes.count(",") + 1)
            sweep(
                collection,
                arguments.kernel,
                pool,
                own,
                shapes,
                dict(one.split("=") for one in arguments.option),
                left,
                into(arguments.sweep),
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

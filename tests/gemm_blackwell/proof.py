"""Every variant of the Blackwell products in the emulator: its smallest problems under 20 schedules each, and problems of random sizes,
groups, strides and steps under 3.

    python -m tests.gemm_blackwell.proof [--jobs 16] [--seconds 480] [--shard 0/2] [--progress FILE] ['gemm.mxfp8.*' ...]

Work is taken in an order in which all variants get something first. What is done is written to FILE, a line of JSON each; the next run
with the same file goes on from there. Exits with 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy

from tests.gemm_blackwell.which import ZOO
from zoo import checks
from zoo.checks import block_scaled_epilogues, block_scaled_groups, gemm, gemm_swiglu
from zoo.checks.block_scaled import DTYPES, dense_problem, finishing_steps, random_operands
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, Problem, difference, on_multiprocessors
from zoo.contract.manifest import Kernel, Variant
from zoo.errors import VariantError, ZooError
from zoo.reference.swiglu import ACTIVATIONS

SCHEDULES, FEW_SCHEDULES = 20, 3
SMALL, RANDOM = 4, 6  # problems of each kind for a variant
MOST_ELEMENTS = 6_000  # of the largest of the small ones: several tiles, or more lines of K than stages
MOST_RANDOM = 14_000


@dataclass(frozen=True)
class Work:
    kernel: str
    variant: str
    kind: str  # "small" or "random"
    number: int


def every_work(patterns: Sequence[str]) -> Iterator[Work]:
    variants = [
        (name, variant.name)
        for name in ZOO.manifest.names
        if name.startswith("gemm.") and any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
        for variant in ZOO.kernel(name).variants
        if variant.arch == "sm_100f"
    ]
    for number in range(max(SMALL, RANDOM)):
        for kind, count in (("small", SMALL), ("random", RANDOM)):
            if number < count:
                yield from (Work(*variant, kind, number) for variant in variants)


def small_problem(kernel: Kernel, variant: Variant, number: int) -> Problem:
    """The smallest that have rows, and the largest of those that are not large."""
    with_rows = sorted(
        (problem.elements, place)
        for place, problem in enumerate(checks.problems(kernel, variant))
        if sum(problem.inputs["a"].values.shape[:-1]) > 2 - (kernel.fields["grouping"] == "dense")
    )
    smallest, others = with_rows[: SMALL - 1], with_rows[SMALL - 1 :]
    taken = [*smallest, max([one for one in others if one[0] <= MOST_ELEMENTS], default=others[0])]
    return next(itertools.islice(checks.problems(kernel, variant), taken[number][1], None))


# ---- random problems -----------------------------------------------------------------------------------------------------------------


def extent(random: numpy.random.Generator, unit: int) -> int:
    """Near the units that matter, in units of `unit`."""
    tile = max(1, 128 // unit)
    choices = (1, random.integers(1, 7), random.integers(tile - 1, tile + 3), random.integers(1, 2 * tile + 6))
    return unit * int(random.choice([max(1, int(choice)) for choice in choices]))


def sizes_of_groups(random: numpy.random.Generator) -> tuple[int, ...]:
    count = int(random.choice([1, 2, 3, 5, random.integers(30, 70)]))
    sizes = [int(random.choice([0, 0, random.integers(1, 9), random.integers(1, 40)])) for _ in range(count)]
    if count < 30 and random.random() < 0.5:
        sizes[int(random.integers(count))] = int(random.integers(120, 140))
    return tuple(sizes) if count < 30 else tuple(size if random.random() < 0.2 else 0 for size in sizes)


def random_problem(kernel: Kernel, variant: Variant, number: int) -> Problem:
    random = numpy.random.default_rng([number, kernel.variants.index(variant), *kernel.name.encode()])
    formats, grouping = kernel.fields["formats"], kernel.fields["grouping"]
    unit = 16 if formats == "fp8b128" else 32
    while True:
        M, N, K = extent(random, 1), extent(random, 8), extent(random, unit)
        sizes, nobody = sizes_of_groups(random), int(random.choice([0, 0, 1, 17]))
        if not sum(sizes):
            continue
        rows = M if grouping == "dense" else sum(sizes) + nobody
        weights = N * (1 if grouping in ("dense", "k_grouped") else max(1, len(sizes)))
        depth = K if grouping != "k_grouped" else 128 * len(sizes) + sum(sizes)
        if (rows if grouping != "k_grouped" else M) * depth + weights * depth < MOST_RANDOM:
            break
    turn = int(random.integers(6))
    multiprocessors = int(random.choice([1, 3, 4, 7, 132, 148, 152, 160]))
    if "extra" in kernel.fields and formats == "fp8b128":
        order = ("interleaved", "halves")[turn % 2]
        columns = -(-N // 64) * 64 if order == "halves" else -(-N // 16) * 16
        runs = runs_of(columns, K, sizes, nobody)
        shapes = {
            "_SHAPES": ((M, columns, K, order),) * 6, "_GROUPS": ((rows, columns, K, sizes, order),) * 6,
            "_RUNS": ((*runs, order),) * 6, "_PLACES": ((columns, K, max((1, *sizes)) + nobody, sizes, order),) * 6,
        }  # fmt: skip
        with on_multiprocessors(multiprocessors):
            return chosen(kernel, variant, turn, gemm_swiglu, **shapes)
    if "extra" in kernel.fields:
        columns = -(-N // 32) * 32
        if grouping == "dense":
            activation = list(ACTIVATIONS)[turn % 3]
            of_matrix = block_scaled_epilogues._Problems(kernel, itertools.count(turn), itertools.repeat(multiprocessors))
            return of_matrix._usual(M, columns, K, activation)
        return chosen(kernel, variant, turn, block_scaled_epilogues, _GROUPS=((columns, K, sizes, nobody),) * 6)
    if formats == "fp8b128":
        shapes = {
            "_SHAPES": ((M, N, K),) * 6, "_GROUPS": ((rows, N, K, sizes),) * 6, "_RUNS": (runs_of(N, K, sizes, nobody),) * 6,
            "_PLACES": gemm._PLACES, "_ALONG_K": gemm._ALONG_K,
        }  # fmt: skip
        if grouping == "k_grouped":
            sizes = tuple(16 * size for size in sizes[:6])
            shapes["_ALONG_K"] = ((M, N, max(16, sum(sizes)), sizes),) * 6
        if grouping == "m_grouped_masked":
            shapes["_PLACES"] = ((N, K, max((1, *sizes)) + nobody, sizes),) * 6
        with on_multiprocessors(multiprocessors):
            return chosen(kernel, variant, turn, gemm, **shapes)
    if grouping == "dense":
        steps = [{}, *finishing_steps(M, N, turn)]
        options = {"batch_invariant": ("no", "yes")[turn % 2], "b_constant": ("no", "yes")[turn // 3]}
        words = f"{M} x {N} x {K}, random sizes"
        operands = random_operands(formats, M, N, K, turn)
        finish = steps[int(random.integers(len(steps)))]
        return dense_problem(kernel, variant, words, operands, DTYPES[turn % 3], turn % 4, finish, options, multiprocessors)
    places = ((N, K, max((1, *sizes)) + nobody, sizes),) * 2
    along_k = ((M, N, tuple(min(size, 140) for size in sizes[:12]), -(-nobody // 32) * 32),) * 2
    return chosen(kernel, variant, turn, block_scaled_groups, _GROUPS=((rows, N, K, sizes),) * 2, _PLACES=places, _ALONG_K=along_k)


def runs_of(N: int, K: int, sizes: Sequence[int], nobody: int) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    runs = [(group % 5, size) for group, size in enumerate(sizes[:5]) if size]
    return N, K, (*((group, size) for group, size in runs), (-1, max(1, nobody)))


def chosen(kernel: Kernel, variant: Variant, turn: int, module: object, **shapes: object) -> Problem:
    """Of the problems with these shapes one of the first, or the first."""
    with mock.patch.multiple(module, **shapes):
        return list(itertools.islice(checks.problems(kernel, variant), turn + 1))[-1]


# ---- running -------------------------------------------------------------------------------------------------------------------------


def run(work: Work) -> dict[str, object]:
    began = time.monotonic()
    kernel = ZOO.kernel(work.kernel)
    variant = next(one for one in kernel.variants if one.name == work.variant and one.arch == "sm_100f")
    schedules = SCHEDULES if work.kind == "small" else FEW_SCHEDULES
    said: dict[str, object] = {**work.__dict__, "schedules": schedules}
    try:
        problem = small_problem(kernel, variant, work.number) if work.kind == "small" else random_problem(kernel, variant, work.number)
        said["problem"] = problem.name
        error = difference(problem, kernel, variant, executor(ZOO, schedules), POISONS[:1])
    except VariantError:
        return said | {"problem": None, "error": None}  # sizes of another variant
    except ZooError as failure:
        error = str(failure)
    return said | {"error": error, "seconds": round(time.monotonic() - began, 1)}


def begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1e9, help="after which nothing new is begun")
    parser.add_argument("--shard", default="0/1", help="part / of how many")
    parser.add_argument("--progress", type=Path)
    given = parser.parse_args()
    part, parts = map(int, given.shard.split("/"))
    done: set[Work] = set()
    if given.progress and given.progress.exists():
        for line in given.progress.read_text().splitlines():
            one = json.loads(line)
            done.add(Work(*(one[name] for name in ("kernel", "variant", "kind", "number"))))
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    left = [work for place, work in enumerate(every_work(given.patterns or ["*"])) if place % parts == part and work not in done]
    waiting, running, wrong, ran, runs = iter(left), set[Future[dict[str, object]]](), [], 0, 0
    variants: set[tuple[object, object]] = set()
    end = time.monotonic() + given.seconds
    with ProcessPoolExecutor(given.jobs, initializer=begin) as pool:
        while True:
            while len(running) < given.jobs + 2 and time.monotonic() < end and (work := next(waiting, None)) is not None:
                running.add(pool.submit(run, work))
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                said = future.result()
                ran += said["problem"] is not None
                runs += int(str(said["schedules"])) * (said["problem"] is not None)
                variants.add((said["kernel"], said["variant"]))
                if said["error"] is not None:
                    wrong.append(said)
                    print(f"WRONG {said['kernel']} {said['variant']}, {said['kind']} {said['number']}, {said['problem']}:", flush=True)
                    print(str(said["error"])[:900], flush=True)
                if given.progress:
                    with given.progress.open("a") as file:
                        file.write(json.dumps(said) + "\n")
    rest = sum(1 for _ in waiting)
    print(
        f"{len(variants)} variants, {ran} problems, {runs} runs under schedules of their own: {len(wrong)} wrong; {rest} of {len(left)} left"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

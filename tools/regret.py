"""What the manifest's choices of variants lose against the best, in sweeps of times: chosen / best.

    python tools/lab/gemm.py CUBINS --shapes few --json few.json          # on the GPU; gemm_gather.py and gemm_epilogues.py, too
    python tools/regret.py few.json large.json                            # for each kernel of the sweeps
    python tools/regret.py few.json --prune                               # which tiles a kernel could do without

A choice reads sizes, not what groups hold. Where two problems differ in that alone, no choice is the best for both, so the report also
says what the best choices by sizes would lose.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.sweeps import read_sweep
from zoo.contract.manifest import Kernel, Manifest, Variant
from zoo.errors import ExpressionError

SMS, ARCH = 132, "sm_90a"  # of an H200, where a sweep does not say how many
Times = dict[str, float]  # of variants, by name


@dataclass
class Case:
    """A problem: what the choice knew of the call, the times that were measured, and what the variants cost by the manifest."""

    shape: str
    known: tuple[str, ...]
    times: Times
    costs: dict[str, int]

    def regret(self) -> float:
        return self.times[self.chosen] / min(self.times.values())

    @property
    def chosen(self) -> str:
        return min(self.costs, key=self.costs.__getitem__)

    @property
    def best(self) -> str:
        return min(self.times, key=self.times.__getitem__)

    def without(self, variant: str) -> Case:
        return Case(self.shape, self.known, self.times, {name: cost for name, cost in self.costs.items() if name != variant})


def cases_of(kernel: Kernel, results: list[dict[str, Any]]) -> list[Case]:
    """Of a sweep's results for one kernel, with the variants that the manifest has and that take the call."""
    variants = {one.name: one for one in kernel.variants if one.arch == ARCH}
    found = []
    for result in results:
        values = {"sms": SMS, **result["symbols"]}
        for name, expression in kernel.derived:
            values[name] = expression.evaluate(values)
        times = {name: time for name, time in result["times"].items() if name in variants and _takes(variants[name], values)}
        if times:
            costs = {name: max(variants[name].cost.evaluate(values | variants[name].symbols), 1) for name in times}
            shape = " ".join(map(str, (*result["shape"], *result.get("options", {}).values())))
            found.append(Case(shape, tuple(sorted(map(str, values.items()))), times, costs))
    return found


def _takes(variant: Variant, values: dict[str, int]) -> bool:
    return bool(variant.when.evaluate(values | variant.constants))


def mean(cases: list[Case]) -> float:
    return statistics.geometric_mean(case.regret() for case in cases)


def unavoidable(cases: list[Case]) -> tuple[float, float]:
    """The regret of the best choices by what the manifest's expressions read: the least geometric mean, the least worst."""
    alike: dict[tuple[str, ...], list[Times]] = {}
    for case in cases:
        alike.setdefault(case.known, []).append(case.times)
    lost, worst = 0.0, 1.0
    for times in alike.values():
        regrets = [[one[variant] / min(one.values()) for one in times] for variant in times[0]]
        lost += min(sum(map(math.log, of_variant)) for of_variant in regrets)
        worst = max(worst, min(map(max, regrets)))
    return math.exp(lost / len(cases)), worst


def dispensable(cases: list[Case], most: float) -> Iterator[tuple[str, list[Case]]]:
    """Variants that a kernel could do without, the cheapest loss first, and what is left: as long as the mean regret grows by at most `most`."""
    allowed, left = mean(cases) * most, sorted({name for case in cases for name in case.costs})
    while True:
        parts = ((name, [case.without(name) for case in cases]) for name in left)
        losses = [(mean(part), name, part) for name, part in parts if all(case.costs for case in part)]
        if not losses:
            return
        lost, name, cases = min(losses, key=lambda one: one[:2])
        if lost > allowed:
            return
        left.remove(name)
        yield name, cases


def report(what: str, cases: list[Case]) -> None:
    least, least_worst = unavoidable(cases)
    worst = max(case.regret() for case in cases)
    bound = f"the best choice by sizes: {least:.4f}, worst {least_worst:.3f}"
    print(f"{what}: chosen / best {mean(cases):.4f} over {len(cases)} problems, worst {worst:.3f} ({bound})")
    for case in sorted(cases, key=Case.regret, reverse=True)[:5]:
        if case.regret() > 1.005:
            print(f"    {case.shape}: {case.regret():.3f}, {case.chosen} for {case.best}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--prune", action="store_true", help="which variants a kernel could do without, for 1 %% of the sweeps' time")
    arguments = parser.parse_args()
    manifest = Manifest(ROOT / "cubins" / "manifest.json")
    results: dict[str, list[dict[str, Any]]] = {}
    for result in (one for file in arguments.sweeps for one in read_sweep(file, ("kernel", "shape", "symbols", "times"), parser)):
        results.setdefault(result["kernel"], []).append(result)
    for name, of_kernel in results.items():
        kernel = manifest.kernel(name)
        try:
            cases = cases_of(kernel, of_kernel) if kernel is not None else []
        except (ExpressionError, TypeError) as error:
            parser.error(f"{name}: {error}; the sweep must be of the kernel that the manifest has, take it again")
        if not cases:
            print(f"{name}: no variant of the manifest was timed")
            continue
        report(name, cases)
        if arguments.prune:
            for gone, left in dispensable(cases, 1.01):
                report(f"  without {gone}", left)


if __name__ == "__main__":
    main()

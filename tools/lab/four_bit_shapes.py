"""The problems that products of 4-bit weights are judged by, and how their times are summed up. It needs no GPU and no torch.

python tools/lab/four_bit_shapes.py standing.json        # the tables of what four_bit_standing.py has timed
"""

from __future__ import annotations

import argparse
import json
import statistics
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from gemm_shapes import unseen

CHUNKS = {"nvfp4": 2304, "mxfp4": 2176}  # bytes of 64 x 64 packed weights
PEERS = Path(__file__).resolve().parent / "peers_four_bit.toml"
ROUTED = ((8, 2), (16, 1), (32, 4), (64, 6), (128, 4), (128, 8), (256, 8), (384, 8))  # experts, of a token: of published models
LEAST_BYTES, MOST_BYTES, MOST_OPERATIONS = 10e6, 5e9, 4e12  # weights that are hit; all weights, and A with D; of an unseen problem
ROWS = {"1 to 16 rows": 16, "17 to 96": 96, "97 to 255": 255, "256 and more": float("inf")}  # of an expert that is hit, at most
WEIGHTS = {"below 10 MB": 10e6, "10 to 30 MB": 30e6, "30 to 100 MB": 100e6, "over 100 MB": float("inf")}  # that are hit, together


@lru_cache(maxsize=256)
def sizes_of(experts: int, of_a_token: int, count: int, routing: str, seed: int) -> list[int]:
    """How many rows each expert has when tokens choose theirs without replacement."""
    random = np.random.default_rng([seed, experts, of_a_token, count])
    weight = np.zeros(experts) if routing == "uniform" else -np.log(1 + random.permutation(experts))  # logarithms; Zipf: 1 / rank
    wanted = weight + random.gumbel(size=(count, experts))
    chosen = np.argpartition(-wanted, of_a_token - 1)[:, :of_a_token]
    return [int(size) for size in np.bincount(chosen.reshape(-1), minlength=experts)]


def pin(launch: dict[str, Any], alone: str, in_pairs: bool) -> None:
    """Whatever the rules of a manifest's launch say, its blocks are alone ("1") or may not be ("0"), those that may be clusters are, or are not,
    and as many as suits that."""
    rule, grid, cluster = launch["alone"], launch["grid"], launch["cluster"]
    if cluster[0].startswith("2 if "):
        condition = cluster[0].removeprefix("2").removesuffix("1")  # " if ... else "
        meant = 0 if in_pairs else 1
        cluster[0], grid[0] = "21"[meant], grid[0].split(condition)[meant]
        rule = rule.split(condition)[meant] if condition in rule else rule
    if rule != "0":
        grid[0] = grid[0].replace(rule, alone)
    launch["alone"] = alone


@dataclass(frozen=True)
class Problem:
    experts: int  # one: a product of one matrix
    of_a_token: int
    N: int
    K: int
    tokens: int
    routing: str = "uniform"

    @property
    def rows(self) -> int:
        return self.tokens * self.of_a_token

    @property
    def matrix_bytes(self) -> int:
        return -(-self.N // 64) * -(-self.K // 64) * CHUNKS["nvfp4"]

    @property
    def words(self) -> str:
        if self.experts == 1:
            return f"{self.tokens} x {self.N} x {self.K}"
        return f"{self.tokens} tokens, {self.of_a_token} of {self.experts} experts ({self.routing}), {self.N} x {self.K}"

    def sizes(self, seed: int) -> list[int]:
        if self.experts == 1:
            return [self.tokens]
        return sizes_of(self.experts, self.of_a_token, self.tokens, self.routing, seed)

    def least_times(
        self, hit: float, token_bytes: int, teraflops: float, terabytes_per_second: float, form: str = "nvfp4"
    ) -> dict[str, float]:
        """Microseconds that operations take at least, and bytes of the weights that are hit, of A and of D."""
        moved = hit * self.matrix_bytes * CHUNKS[form] / CHUNKS["nvfp4"] + self.rows * (self.K * token_bytes + self.N * 2)
        return {"operations": 2 * self.rows * self.N * self.K / teraflops / 1e6, "bytes": moved / terabytes_per_second / 1e6}


def unseen_problems(seed: int, count: int = 60) -> list[Problem]:
    """As many of each of ROWS, else as users bring them: a third of one matrix, sizes as `gemm.py --unseen` draws them, tokens evenly by their logarithm."""
    random, found, missing = Random(f"four bits {seed}"), [], {rows: -(-count // len(ROWS)) for rows in ROWS}
    matrices = (shape[1:3] for part in range(1 << 31) for shape in unseen(1000 * seed + part))
    while len(found) < count:
        N, K = next(matrices)
        experts, of_a_token = random.choice(ROUTED) if random.random() < 2 / 3 else (1, 1)
        tokens, routing = round((16384 if experts == 1 else 8192) ** random.random()), random.choice(("uniform", "zipf"))
        one = Problem(experts, of_a_token, N, K, tokens, routing)
        least = one.least_times(min(experts, one.rows), 1, 1e-6, 1e-6)  # operations and bytes themselves
        all_bytes = max(experts * one.matrix_bytes, one.rows * (K + 2 * N))
        if all_bytes > MOST_BYTES or least["operations"] > MOST_OPERATIONS or least["bytes"] < LEAST_BYTES:
            continue
        hit = sum(size > 0 for size in one.sizes(0))
        rows = in_bucket(round(one.rows / hit), ROWS)
        if hit * one.matrix_bytes >= LEAST_BYTES and missing[rows] > 0:
            missing[rows] -= 1
            found.append(one)
    return found


@dataclass(frozen=True)
class Machine:
    """What torch's own kernels do on it."""

    copy_terabytes_per_second: float
    scaled_mm_microseconds: float

    def of_a_time(self, other: Machine, bound: str) -> float:
        """What a time of the other machine is multiplied by to be one of this, by what bounds the problem."""
        if bound == "bytes":
            return other.copy_terabytes_per_second / self.copy_terabytes_per_second
        return self.scaled_mm_microseconds / other.scaled_mm_microseconds


@dataclass(frozen=True)
class Peers:
    machine: Machine
    times: dict[Problem, dict[str, float]]


def peers() -> Peers:
    read = tomllib.loads(PEERS.read_text())
    columns, times = read["times"]["columns"], {}
    for row in read["times"]["rows"]:
        one = dict(zip(columns, row, strict=True))
        theirs = {name: one.pop(name) for name in ("marlin", "int4")}
        times[Problem(**one)] = theirs
    return Peers(Machine(**read["torch"]), times)


def mean(values: Iterable[float]) -> float:
    return statistics.geometric_mean(values)


def machine_of(measured: list[list[float]]) -> Machine:
    """The medians of what was measured between the problems."""
    return Machine(*(statistics.median(column) for column in zip(*measured, strict=True)))


def in_bucket(value: float, buckets: dict[str, float]) -> str:
    return next(name for name, most in buckets.items() if value <= most)


def spread(results: list[dict[str, Any]], figure: Callable[[dict[str, Any]], float], worst: Callable[..., Any]) -> str:
    """Geometric mean, and the worst with its problem."""
    figures = [(figure(one), one["words"]) for one in results]
    least, words = worst(figures)
    return f"{mean(value for value, _ in figures):.3f}, worst {least:.2f} ({words})"


def print_peers(results: list[dict[str, Any]], measured: list[list[float]]) -> None:
    """Our times beside theirs, brought to this machine."""
    theirs, own = peers(), machine_of(measured)
    print(f"copy {own.copy_terabytes_per_second:.2f} TB/s, theirs {theirs.machine.copy_terabytes_per_second:.2f};", end=" ")
    print(f"8192^3 tensor-wise {own.scaled_mm_microseconds:.0f} us, theirs {theirs.machine.scaled_mm_microseconds:.0f}")
    for one in results:
        problem = Problem(**one["problem"])
        factor = own.of_a_time(theirs.machine, one["bound"])
        one |= {name: time * factor for name, time in theirs.times[problem].items()}
        print(
            f"{one['kind']:8} {one['words']}: {one['time']:.1f} us, limit {one['limit']:.1f} ({one['bound']}), limit / time {one['limit'] / one['time']:.2f},"
            f" Marlin / this {one['marlin'] / one['time']:.2f}, this / int4 {one['time'] / one['int4']:.2f}"
        )
    tokens = {"from 2048 tokens on (bar 4)": lambda T: T >= 2048, "up to 128 tokens (bar 1.6)": lambda T: T <= 128}
    whose = {
        "experts and one matrix": lambda experts: True, "experts": lambda experts: experts > 1, "one matrix": lambda experts: experts == 1,
    }  # fmt: skip
    for kind in dict.fromkeys(one["kind"] for one in results):
        for words, counts in whose.items():
            of_kind = [one for one in results if one["kind"] == kind and counts(one["problem"]["experts"])]
            for span, holds in tokens.items():
                some = [one for one in of_kind if holds(one["problem"]["tokens"])]
                if some:
                    figures = spread(some, lambda one: one["marlin"] / one["time"], min)
                    print(f"{kind}, {words}, {span}: Marlin / this of {len(some)} problems: {figures}")
            bar = 1.0 if kind == "never" else 1.1
            over = sum(one["time"] / one["int4"] > bar for one in of_kind)
            if of_kind:
                figures = spread(of_kind, lambda one: one["time"] / one["int4"], max)
                print(f"{kind}, {words}: this / int4 of {len(of_kind)} problems: {figures}; {over} over the bar of {bar:.2f}")


def print_unseen(results: list[dict[str, Any]]) -> None:
    for kind in dict.fromkeys(one["kind"] for one in results):
        for rows in ROWS:
            of_rows = [one for one in results if one["kind"] == kind and in_bucket(round(one["rows_of_an_expert"]), ROWS) == rows]
            for weights in WEIGHTS:
                some = [one for one in of_rows if in_bucket(one["weights"], WEIGHTS) == weights]
                if some:
                    figures = spread(some, lambda one: one["limit"] / one["time"], min)
                    print(f"{kind}, {rows}, {weights}: limit / time of {len(some)} problems: {figures}")
            for words, grouped in (("one matrix", False), ("experts", True)):
                some = [one for one in of_rows if one["torch"] and (one["problem"]["experts"] > 1) == grouped]
                if some:
                    figures = spread(some, lambda one: one["time"] / one["torch"], max)
                    print(f"{kind}, {rows}, {words}: time / torch of {len(some)} problems: {figures}")


def print_all(read: dict[str, Any]) -> None:
    results = read["results"]
    for one in results:
        one["words"] = Problem(**one["problem"]).words
    for part, show in (("peers", lambda some: print_peers(some, read["machine"])), ("unseen", print_unseen)):
        some = [one for one in results if one["part"] == part]
        if some:
            print(f"{part}, {read['device']}, {read['what']}")
            show(some)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", type=Path, help="of four_bit_standing.py")
    print_all(json.loads(parser.parse_args().json.read_text()))


if __name__ == "__main__":
    main()

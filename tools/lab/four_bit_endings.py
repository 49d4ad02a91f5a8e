"""How long products with 4-bit weights of one ending take beside those of another, by turns, on problems drawn by seed.

    python tools/lab/four_bit_endings.py .swiglu_fp8b128 plain --kind blocks --seed 3611 [--grouping m_grouped_contiguous] [--tokens bf16] [--form mxfp4]
                                         [--count 100] [--most 512] [--cubins DIR] [--json FILE]

Both are what zoo chooses; `plain` is the product of packed weights that ends in D. Problems and their operands are those of four_bit_tiles.py. Ends
with the geometric mean of the ratios, and the worst, by rows of one matrix or of an expert that is hit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

from four_bit import KINDS
from four_bit_shapes import CHUNKS
from four_bit_tiles import ENDINGS, Problem, Timer, drawn, in_turns

import zoo

ROWS = (8, 64, 1 << 31)  # of one matrix, or of an expert that is hit


def times(timers: list[Timer], problem: Problem) -> list[float]:
    """Microseconds of each."""
    calls: dict[str, list[Any]] = {}
    for place, timer in enumerate(timers):
        given, each = timer.operands(problem)
        calls[f"{place} {timer.name}"] = [
            lambda one=one, timer=timer, given=given: timer.chosen.launch(timer.name, **given, **one) for one in each
        ]
    return list(in_turns(calls).values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    endings = ("plain", *ENDINGS[1:])
    parser.add_argument("ending", choices=endings)
    parser.add_argument("other", choices=endings)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--grouping", choices=("dense", "m_grouped_contiguous", "m_grouped_gather"), default="dense")
    parser.add_argument("--tokens", choices=("fp8", "bf16"), default="fp8")
    parser.add_argument("--form", choices=CHUNKS, default="nvfp4", help="of weights (default: nvfp4)")
    parser.add_argument("--kind", choices=KINDS, default="regular")
    parser.add_argument("--count", type=int, default=100, help="of problems (default: 100)")
    parser.add_argument("--most", type=int, default=512, help="rows of one matrix, or tokens that are routed (default: 512)")
    parser.add_argument("--cubins", type=Path, default=Path(zoo.__file__).parents[1] / "cubins")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    name, results = f"gemm.{arguments.tokens}_{arguments.form}.{arguments.grouping}", []
    with tempfile.TemporaryDirectory() as folder:
        timers = []
        for ending in (arguments.ending, arguments.other):
            own = Path(folder) / ending
            own.mkdir()
            timers.append(Timer(arguments.cubins, name, "" if ending == "plain" else ending, arguments.kind, own))
        for problem in islice(drawn(arguments.seed, arguments.grouping != "dense", arguments.most), arguments.count):
            one, other = times(timers, problem)
            shape = {"shape": (problem.M, problem.N, problem.K), "groups": len(problem.sizes), "hit": problem.hit}
            results.append(shape | {arguments.ending: one, arguments.other: other, "ratio": one / other})
    for least, most in zip((0, *ROWS), ROWS, strict=False):
        some = [one for one in results if least < one["shape"][0] / one["hit"] <= most]
        if some:
            mean, worst = statistics.geometric_mean(one["ratio"] for one in some), max(some, key=lambda one: one["ratio"])
            sizes = " x ".join(map(str, worst["shape"])) + (f", {worst['hit']} of {worst['groups']} groups" if worst["groups"] else "")
            rows = f"up to {most} rows" if most in ROWS[:-1] else "more rows"
            print(f"{rows}, {len(some)} problems: {mean:.3f}, worst {worst['ratio']:.2f} ({sizes})")
    if arguments.json:
        arguments.json.write_text(json.dumps(results))


if __name__ == "__main__":
    main()

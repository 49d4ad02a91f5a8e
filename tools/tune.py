"""Fits the numbers in the cost rules of a GEMM's table to sweeps, and reports the regret: chosen / best variant.

    python tools/lab/gemm.py CUBINS --shapes few --json few.json          # on the GPU
    python tools/tune.py src_cu/gemm/fp8b128_dense.toml few.json large.json [--write] [--without-fit]

A cost is in nanoseconds; what is fitted are its whole numbers but for divisors (the tile's sizes) and those from 1,000,000 on
(which forbid). First every rule is fitted to its own times, those near the best weighing most; then single numbers are moved
as long as the regret of the whole sweep falls, not too far from the times. Times of variants the table does not have are left out. Costs are evaluated as
the loader does it, so the report is what callers get.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import tomllib
from pathlib import Path

from zoo.expressions import Expression

SMS = 132  # of an H200
STEPS = (0.5, 0.7, 0.85, 0.93, 0.97, 0.99, 1.01, 1.03, 1.07, 1.15, 1.4, 2)
# a number that no name, digit or point touches, and that is not a second argument: the divisors of ceil_div
NUMBER = re.compile(r"(?<![\w.])(?<!, )\d+(?![\w.])")


class Rule:
    """A tile's cost with its numbers taken out."""

    def __init__(self, tile: dict):
        self.name, self.when = tile["name"], Expression(str(tile.get("when", "1")))
        self.text = str(tile.get("cost", "0"))
        found = [match for match in NUMBER.finditer(self.text) if 50 <= int(match[0]) < 1_000_000]
        self.numbers = [int(match[0]) for match in found]
        pieces, at = [], 0
        for index, match in enumerate(found):
            pieces += [self.text[at : match.start()], f"number_{index}"]
            at = match.end()
        self._template = "".join((*pieces, self.text[at:]))
        self._cost = Expression(self._template)

    def cost(self, values: dict[str, int]) -> int:
        return self._cost.evaluate(values | {f"number_{i}": number for i, number in enumerate(self.numbers)})

    def written(self) -> str:
        return re.sub(r"number_(\d+)", lambda match: str(self.numbers[int(match[1])]), self._template)


class Sweep:
    """Shapes, as symbols, and the times of the variants that the table has for them."""

    def __init__(self, table: dict, rules: list[Rule], files: list[Path]):
        derived = [(name, Expression(text)) for name, text in table.get("derived", {}).items()]
        flags = {f"{one['name']}.present": 0 for one in table["arguments"] if one.get("optional")}
        for name, option in table.get("options", {}).items():
            flags |= {f"{name}.{value}": int(value == option.get("default")) for value in option["values"]}
        self.cases = []
        for result in (result for file in files for result in json.loads(file.read_text())):
            values = self._symbols(result["shape"]) | flags | {"offsets.present": 1, "sms": SMS}
            for name, chosen in result.get("options", {}).items():
                values |= {f"{name}.{value}": int(value == chosen) for value in table["options"][name]["values"]}
            for name, expression in derived:
                values[name] = expression.evaluate(values)
            times = {name.split("_", 1)[1]: 1e3 * time for name, time in result["times"].items() if "_" in name}
            fitting = {rule: times[rule.name] for rule in rules if rule.name in times and rule.when.evaluate(values)}
            if fitting:
                self.cases.append(((*result["shape"], *result.get("options", {}).values()), values, fitting))

        self.costs = [{} for _ in self.cases]
        for rule in rules:
            self.changed(rule)

    @staticmethod
    def _symbols(shape: list) -> dict[str, int]:
        if len(shape) == 3:
            return dict(zip("MNK", shape, strict=True)) | {"G": 1}
        groups, rows, n, k, skew = shape
        if skew == "masked":
            return {"G": groups, "R": 2 * rows, "N": n, "K": k, "expected_rows": rows}
        return {"G": groups, "M": groups * rows, "N": n, "K": k}

    def changed(self, rule: Rule):
        """To be called when a rule's numbers have changed."""
        for (_, values, times), costs in zip(self.cases, self.costs, strict=True):
            if rule in times:
                costs[rule] = max(rule.cost(values), 1)

    def regrets(self) -> list[tuple[float, tuple, str, str]]:
        """(chosen / best, shape, chosen, best) of each case."""
        result = []
        for (shape, _, times), costs in zip(self.cases, self.costs, strict=True):
            chosen = min(times, key=costs.get)
            best = min(times, key=times.get)
            result.append((times[chosen] / times[best], shape, chosen.name, best.name))
        return result

    def misfit(self, rule: Rule) -> float:
        total = 0.0
        for (*_, times), costs in zip(self.cases, self.costs, strict=True):
            if rule in times:
                weight = math.exp(-6 * (times[rule] / min(times.values()) - 1))
                total += weight * math.log(costs[rule] / times[rule]) ** 2
        return total

    def loss(self) -> float:
        """The mean regret, of variants as likely as their costs are near the least: so that a step towards a better choice counts."""
        losses = []
        for (*_, times), costs in zip(self.cases, self.costs, strict=True):
            least, best = min(costs.values()), min(times.values())
            weights = {rule: (least / cost) ** 50 for rule, cost in costs.items()}
            mean = sum(weight * times[rule] for rule, weight in weights.items()) / sum(weights.values())
            losses.append(math.log(mean / best))
        return statistics.fmean(losses) + 0.1 * max(losses)


def descend(rules: list[Rule], sweep: Sweep, loss, rounds: int):
    """Moves one number after the other as long as that helps."""

    def with_number(rule: Rule, index: int, number: int) -> float:
        rule.numbers[index] = number
        sweep.changed(rule)
        return loss(rule)

    for _ in range(rounds):
        moved = False
        for rule in rules:
            for index, before in enumerate(rule.numbers):
                best, lowest = before, loss(rule)
                for step in STEPS:
                    number = round(before * step)
                    found = with_number(rule, index, number)
                    if found < lowest - 1e-9:
                        best, lowest, moved = number, found, True
                with_number(rule, index, best)
        if not moved:
            return


def report(what: str, sweep: Sweep):
    regrets = sweep.regrets()
    mean = statistics.geometric_mean(regret for regret, *_ in regrets)
    print(f"{what}: chosen / best {mean:.4f} as geometric mean of {len(regrets)} shapes, worst {max(regrets)[0]:.3f}")
    for regret, shape, chosen, best in sorted(regrets, reverse=True)[:5]:
        if regret > 1.005:
            print(f"    {' '.join(map(str, shape))}: {regret:.3f}, {chosen} for {best}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="put the fitted rules into the table")
    parser.add_argument("--without-fit", action="store_true", help="report only")
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    text = arguments.table.read_text()
    table = tomllib.loads(text)
    rules = [Rule(tile) for tile in table["variants"]["tiles"]]
    sweep = Sweep(table, rules, arguments.sweeps)
    timed = [rule for rule in rules if any(rule in times for _, _, times in sweep.cases)]
    report("as the table stands", sweep)
    if not arguments.without_fit:
        descend(timed, sweep, sweep.misfit, arguments.rounds)
        report("fitted to the times", sweep)
        descend(timed, sweep, lambda rule: sweep.loss() + 2e-3 * sweep.misfit(rule), arguments.rounds)
        report("fitted to the regret", sweep)
        for rule in timed:
            if rule.written() != rule.text:
                print(f"{rule.name}: {rule.written()}")
    if arguments.write:
        for rule in timed:
            place = text.index(f'\nname = "{rule.name}"\n')
            text = text[:place] + text[place:].replace(f'cost = "{rule.text}"', f'cost = "{rule.written()}"', 1)
        arguments.table.write_text(text)
    regrets = [regret for regret, *_ in sweep.regrets()]
    return 0 if statistics.geometric_mean(regrets) <= 1.02 and max(regrets) <= 1.10 else 1


if __name__ == "__main__":
    sys.exit(main())

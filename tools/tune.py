"""Fits the numbers in the cost rules of a GEMM's table to sweeps, and reports the regret: chosen / best variant.

    python tools/lab/gemm.py CUBINS --shapes few --json few.json          # on the GPU; gemm_gather.py and gemm_epilogues.py, too
    python tools/tune.py src_cu/gemm/fp8b128_dense.toml few.json large.json [--unseen other.json] [--folds 4] [--write] [--without-fit]
    python tools/tune.py src_cu/gemm/fp8b128_dense.toml unseen.json --prune      # which tiles the table could do without

A cost is in nanoseconds; what is fitted are its whole numbers but for divisors (the tile's sizes) and those from 1,000,000 on
(which forbid), and the words of the table's formats. Numbers are moved as long as the regret of the whole sweep falls, not too far
from the times; once from what stands, once from rules that were fitted to their own times first. Times of other kernels and of
variants the table does not have are left out. Costs are evaluated as the loader does it, with what it knew of the call, so the
report is what callers get.

A rule knows sizes, not what groups hold: where two sweeps differ in that alone, no choice is the best for both. So the report
says, too, what the best choices that depend on what rules may read would lose.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import tomllib
import zlib
from collections.abc import Callable, Iterator
from copy import copy
from itertools import compress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.builder.costs import with_costs
from tools.builder.documents import Documents
from tools.builder.include import included
from tools.builder.per_format import Format, formats_of
from zoo.contract.expressions import Expression

SMS = 132  # of an H200
STEPS = (0.5, 0.7, 0.85, 0.93, 0.97, 0.99, 1.01, 1.03, 1.07, 1.15, 1.4, 2)
# a number that no name, digit or point touches, and that is not a second argument: the divisors of ceil_div
NUMBER = re.compile(r"(?<![\w.])(?<!, )\d+(?![\w.])")
WORD = re.compile(r"\{(\w+)\}")
Shape = tuple[Any, ...]  # a format's name, if there are several, sizes and options, as they are printed
Regret = tuple[float, Shape, str, str]  # chosen / best, of which shape, the names of the chosen and of the best


class Rule:
    """A tile's cost with its numbers taken out. A word of the table's formats is a number for each of them. Where a formula has measured
    numbers, none is fitted here."""

    def __init__(self, tile: dict[str, Any], formats: list[Format], timed_as: str, measured: bool = False):
        self.timed_as = timed_as
        self.constants = {name: value for name, value in tile.get("constants", {}).items() if isinstance(value, int)}
        self.name, self.when = tile["name"], Expression(str(tile.get("when", "1")))
        self.formats = [format for format in formats if format.is_meant(tile)]
        self.text = str(tile.get("cost", "0"))
        found = [match for match in NUMBER.finditer(self.text) if 50 <= int(match[0]) < 1_000_000 and not measured]
        self.numbers = {f"number_{index}": int(match[0]) for index, match in enumerate(found)}
        pieces, at = [], 0
        for name, match in zip(self.numbers, found, strict=True):
            pieces += [self.text[at : match.start()], name]
            at = match.end()
        self._template = "".join((*pieces, self.text[at:]))
        self.words = WORD.findall(self._template)
        self.numbers |= {f"{format.name}.{word}": format.words[word] for format in self.formats for word in self.words}
        self._cost = Expression(WORD.sub(r"\1", self._template))

    def cost(self, values: dict[str, int]) -> int:
        words = {word: self.numbers[f"{values['format']}.{word}"] for word in self.words}
        return self._cost.evaluate(values | self.constants | self.numbers | words)

    def written(self) -> str:
        return re.sub(r"number_\d+", lambda match: str(self.numbers[match[0]]), self._template)


class Sweep:
    """Shapes, with what the loader knew of each call, and the times of the variants that the table has for them."""

    def __init__(self, table: dict[str, Any], rules: list[Rule], files: list[Path]):
        derived = [(name, Expression(text)) for name, text in table.get("derived", {}).items()]
        formats = {format.name for rule in rules for format in rule.formats} or {""}
        kernels = {table["name"].replace("{format}", name): name for name in formats}
        named = {rule.timed_as: rule for rule in rules}
        self.cases = []
        for result in (result for file in files for result in json.loads(file.read_text())):
            if result["kernel"] not in kernels:
                continue
            values = result["symbols"] | {"sms": SMS, "format": kernels[result["kernel"]]}
            for name, expression in derived:
                values[name] = expression.evaluate(values)
            times = {name if name in named else name.partition("_")[2]: 1e3 * time for name, time in result["times"].items()}
            fitting = {named[name]: time for name, time in times.items() if name in named and named[name].when.evaluate(values)}
            if fitting:
                shape = (*filter(None, [values["format"]]), *result["shape"], *result.get("options", {}).values())
                self.cases.append((shape, values, fitting))

        self.costs: list[dict[Rule, int]] = [{} for _ in self.cases]
        for rule in rules:
            self.changed(rule)

    def parted(self, keep: Callable[[Shape], bool]) -> Sweep:
        """Of the cases whose shape `keep` wants."""
        part = copy(self)
        kept = [keep(shape) for shape, *_ in self.cases]
        part.cases = [case for case, wanted in zip(self.cases, kept, strict=True) if wanted]
        part.costs = [costs for costs, wanted in zip(self.costs, kept, strict=True) if wanted]
        return part

    def changed(self, rule: Rule) -> None:
        """To be called when a rule's numbers have changed."""
        for (_, values, times), costs in zip(self.cases, self.costs, strict=True):
            if rule in times:
                costs[rule] = max(rule.cost(values), 1)

    def regrets(self) -> list[Regret]:
        """Of each case."""
        result = []
        for (shape, _, times), costs in zip(self.cases, self.costs, strict=True):
            chosen = min(costs, key=costs.__getitem__)
            best = min(times, key=times.__getitem__)
            result.append((times[chosen] / times[best], shape, chosen.name, best.name))
        return result

    def without(self, rule: Rule) -> Sweep | None:
        """Of a table that has one rule less; None, where that leaves a call that nobody takes."""
        part = copy(self)
        part.costs = [{one: cost for one, cost in costs.items() if one is not rule} for costs in self.costs]
        return part if all(part.costs) else None

    def unavoidable(self) -> tuple[float, float]:
        """The regret of the best choices that depend on what rules may read alone: the least geometric mean, the least worst."""
        alike: dict[tuple[str, ...], list[dict[Rule, float]]] = {}
        for _, values, times in self.cases:
            alike.setdefault(tuple(sorted(map(str, values.items()))), []).append(times)
        lost, worst = 0.0, 1.0
        for cases in alike.values():
            regrets = [[times[rule] / min(times.values()) for times in cases] for rule in cases[0]]
            lost += min(sum(map(math.log, of_rule)) for of_rule in regrets)
            worst = max(worst, min(map(max, regrets)))
        return math.exp(lost / len(self.cases)), worst

    def lost(self) -> float:
        """The logarithm of the mean regret, and a tenth of the worst's."""
        logarithms = [math.log(regret) for regret, *_ in self.regrets()]
        return statistics.fmean(logarithms) + 0.1 * max(logarithms)

    def misfit(self, rule: Rule) -> float:
        """Of what a rule says of its times: those near the best count most, but a slow variant must not look fast anywhere."""
        total = 0.0
        for (*_, times), costs in zip(self.cases, self.costs, strict=True):
            if rule in times:
                weight = math.exp(-6 * (times[rule] / min(times.values()) - 1))
                if costs[rule] < times[rule]:
                    weight = max(weight, 0.2)
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


def descend(rules: list[Rule], sweep: Sweep, loss: Callable[[Rule], float], rounds: int) -> None:
    """Moves one number after the other, and all of a rule together, as long as that helps."""

    def loss_with(rule: Rule, numbers: dict[str, int]) -> float:
        rule.numbers = numbers
        sweep.changed(rule)
        return loss(rule)

    for _ in range(rounds):
        moved = False
        for rule in rules:
            for names in (tuple(rule.numbers), *((name,) for name in rule.numbers)):
                before = best = rule.numbers
                lowest = loss(rule)
                for step in STEPS:
                    numbers = before | {name: round(before[name] * step) for name in names}
                    found = loss_with(rule, numbers)
                    if found < lowest - 1e-9:
                        best, lowest, moved = numbers, found, True
                loss_with(rule, best)
        if not moved:
            return


def fitted(rules: list[Rule], sweep: Sweep, rounds: int) -> list[dict[str, int]]:
    """The numbers of the fit that loses least: to the regret, from what stands or from a fit to the times; or that alone.

    Leaves the rules as they were."""

    def have(numbers: list[dict[str, int]]) -> None:
        for rule, of_rule in zip(rules, numbers, strict=True):
            rule.numbers = of_rule
            sweep.changed(rule)

    def to_regret() -> None:
        descend(rules, sweep, lambda rule: sweep.loss() + 2e-3 * sweep.misfit(rule), rounds)

    def found() -> tuple[float, list[dict[str, int]]]:
        return sweep.lost(), [rule.numbers for rule in rules]

    before = found()
    to_regret()
    results = [found()]
    have(before[1])
    descend(rules, sweep, sweep.misfit, rounds)
    results.append(found())
    to_regret()
    results.append(found())
    have(before[1])
    return min(results, key=lambda result: result[0])[1]


def held_out(rules: list[Rule], sweep: Sweep, folds: int, rounds: int) -> list[Regret]:
    """The regrets of shapes under rules that were fitted to the others: sizes are dealt to `folds` parts, each judged in its turn."""

    def part_of(shape: Shape) -> int:
        sizes = [one for one in shape if isinstance(one, int)]  # what differs in skew alone stays together
        return zlib.crc32(str(sizes).encode()) % folds

    def dealt(fold: int, wanted: bool) -> Callable[[Shape], bool]:
        return lambda shape: (part_of(shape) == fold) == wanted

    regrets = []
    for fold in range(folds):
        seen, unseen = (sweep.parted(dealt(fold, wanted)) for wanted in (False, True))
        numbers = [rule.numbers for rule in rules]
        for rule, of_rule in zip(rules, fitted(rules, seen, rounds), strict=True):
            rule.numbers = of_rule
            unseen.changed(rule)
        regrets += unseen.regrets()
        for rule, of_rule in zip(rules, numbers, strict=True):
            rule.numbers = of_rule
    return regrets


def dispensable(rules: list[Rule], sweep: Sweep, most: float) -> Iterator[tuple[Rule, Sweep]]:
    """Rules that a table could do without, that whose loss costs least first, and what is left then: as long as the mean regret is at
    most `most` of what it was. Nothing is fitted anew."""

    def mean(part: Sweep) -> float:
        return statistics.fmean(math.log(regret) for regret, *_ in part.regrets())

    allowed, left = mean(sweep) + math.log(most), list(rules)
    while True:
        parts = ((rule, sweep.without(rule)) for rule in left)
        losses = [(mean(part), index, rule, part) for index, (rule, part) in enumerate(parts) if part is not None]
        if not losses:
            return
        lost, _, rule, sweep = min(losses, key=lambda one: one[:2])
        if lost > allowed:
            return
        left.remove(rule)
        yield rule, sweep


def report(what: str, sweep: Sweep, regrets: list[Regret]) -> bool:
    """Whether the regret is within the bar."""
    mean = statistics.geometric_mean(regret for regret, *_ in regrets)
    least, least_worst = sweep.unavoidable()
    shapes = f"as geometric mean of {len(regrets)} shapes (by sizes alone at least {least:.4f})"
    print(f"{what}: chosen / best {mean:.4f} {shapes}, worst {max(regrets)[0]:.3f} ({least_worst:.3f})")
    for regret, shape, chosen, best in sorted(regrets, reverse=True)[:5]:
        if regret > 1.005:
            print(f"    {' '.join(map(str, shape))}: {regret:.3f}, {chosen} for {best}")
    return mean <= 1.02 and max(regrets)[0] <= 1.10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("sweeps", type=Path, nargs="+")
    parser.add_argument("--unseen", type=Path, nargs="+", default=[], help="sweeps to report only")
    parser.add_argument("--folds", type=int, default=0, help="judge each part of the sweeps by a fit to the other parts, from what stands")
    parser.add_argument("--write", action="store_true", help="put the fitted rules into the table")
    parser.add_argument("--without-fit", action="store_true", help="report only")
    parser.add_argument(
        "--prune", action="store_true", help="say instead which tiles the table could do without, for 1 %% of the sweeps' time"
    )
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    text, table, rules = read(arguments.table)
    sweep, unseen = Sweep(table, rules, arguments.sweeps), Sweep(table, rules, arguments.unseen)
    timed = [rule for rule in rules if any(rule in times for _, _, times in sweep.cases)]

    if arguments.prune:
        report(f"all {len(timed)} tiles", sweep, sweep.regrets())
        for gone, (rule, left) in enumerate(dispensable(timed, sweep, 1.01), 1):
            report(f"{len(timed) - gone} tiles, without {rule.timed_as}", left, left.regrets())
        return 0

    def report_all(what: str) -> bool:
        within = report(what, sweep, sweep.regrets())
        for rule in rules:
            unseen.changed(rule)
        return (not unseen.cases or report(f"{what}, unseen", unseen, unseen.regrets())) and within

    within = report_all("as the table stands")
    if arguments.folds:
        report("fitted to the others", sweep, held_out(timed, sweep, arguments.folds, arguments.rounds))
        for rule in rules:
            sweep.changed(rule)
    if not arguments.without_fit:
        for rule, numbers in zip(timed, fitted(timed, sweep, arguments.rounds), strict=True):
            rule.numbers = numbers
            sweep.changed(rule)
        within = report_all("fitted")
        for rule in timed:
            if rule.written() != rule.text or rule.words:
                print(f"{rule.name}: {rule.written()}", {name: number for name, number in rule.numbers.items() if "." in name} or "")
    if arguments.write:
        arguments.table.write_text(rewritten(text, timed))
    return 0 if within else 1


def read(path: Path) -> tuple[str, dict[str, Any], list[Rule]]:
    """A table's text, what it says with everything in place, and its rules."""
    text, documents = path.read_text(), Documents(path.parents[1])
    by_name = included(tomllib.loads(text), documents)
    table = with_costs(by_name, documents)
    formats = formats_of(table, documents) if "formats" in table else []
    measured = [
        tile.get("cost") != other.get("cost") for tile, other in zip(*(one["variants"]["tiles"] for one in (by_name, table)), strict=True)
    ]
    tiles = table["variants"]["tiles"]
    of_one = [tile.get("arch") == tiles[0].get("arch") for tile in tiles]  # a sweep is of one machine
    measured, tiles = list(compress(measured, of_one)), list(compress(tiles, of_one))
    names = [tile["name"] for tile in tiles]

    def timed_as(tile: dict[str, Any]) -> str:
        """The name in a sweep: with its dtype, where a tile of the same name takes several."""
        alone = names.count(tile["name"]) == 1 or "d" in tile.get("uncompiled", ())
        return str(tile["name"]) if alone else f"{tile['dtypes']['d'][0]}_{tile['name']}"

    return text, table, [Rule(tile, formats, timed_as(tile), known) for tile, known in zip(tiles, measured, strict=True)]


def rewritten(text: str, rules: list[Rule]) -> str:
    lines = text.splitlines(keepends=True)
    for rule in rules:
        said, written = f'cost = "{rule.text}"', f'cost = "{rule.written()}"'
        if written != said:  # in a line of its own name, for another tile, or another arch's of the name, may have cost the same
            place = next(at for at, line in enumerate(lines) if f'{{ name = "{rule.name}", ' in line and said in line)
            lines[place] = lines[place].replace(said, written, 1)
    text = "".join(lines)
    for rule in rules:
        for format in rule.formats:
            for word in rule.words:
                text = _with_word(text, format, word, rule.numbers[f"{format.name}.{word}"])
    return text


def _with_word(text: str, format: Format, word: str, number: int) -> str:
    """Its line among `words` that is meant for the format, with the number anew."""
    lines = text.splitlines(keepends=True)
    for index in range(lines.index("words = [\n") + 1, len(lines)):
        entry = lines[index].partition("#")[0].strip().rstrip(",")
        case = tomllib.loads(f"case = {entry}")["case"] if entry.startswith("{") else {}
        if word in case and format.is_meant(case):
            lines[index] = lines[index].replace(f"{word} = {case[word]}", f"{word} = {number}", 1)
            return "".join(lines)
    raise ValueError(f"no line of words has {word} for {format.name}")


if __name__ == "__main__":
    sys.exit(main())

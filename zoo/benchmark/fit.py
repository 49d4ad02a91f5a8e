"""Finds the numbers with which the costs of tiles are nearest to their measured times.

First all tiles of a kernel share a factor for each name of a number: the chip, which has few numbers and many times. Then each tile has numbers of
its own, from its own times. A tile that no call timed keeps the chip's factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from zoo.contract.costs import LARGEST_NUMBER, tunable
from zoo.contract.expressions import Code, Expression
from zoo.contract.schema import Kernel, Variant

FALLS_OFF, FAR = 6.0, 0.06  # a time counts the less the slower it is than the fastest tile, and never less than FAR
_COARSE = (0.125, 0.25, 0.5, 0.7, 0.85, 0.93, 0.97, 1.03, 1.07, 1.18, 1.4, 2.0, 4.0, 8.0)
_FINE = (0.8, 0.9, 0.95, 0.98, 0.99, 1.01, 1.02, 1.05, 1.1, 1.25)
_ROUNDS = 12
_ENOUGH = 1e-4  # a round that helps less is the last
_STAYS = 0.1  # what a number's change by a factor of e must help: a number that times say little of stays near where it was
Numbers: TypeAlias = dict[str, int]


@dataclass(frozen=True)
class Timed:
    """One call: what expressions read of it, and the nanoseconds of the variants that were timed."""

    values: Mapping[str, int]
    nanoseconds: Mapping[str, float]


def fitted(kernel: Kernel, arch: str, calls: Sequence[Timed]) -> dict[str, Numbers]:
    """The numbers of each variant of an arch whose cost reads numbers."""
    tiles = [_Tile(variant, calls) for variant in tunable(kernel, arch)]
    timed = [tile for tile in tiles if tile.times]
    names = dict.fromkeys(name for tile in timed for name in tile.shipped)
    factors = dict.fromkeys(names, 1.0)
    errors = {tile.name: tile.error(tile.shipped) for tile in timed}

    least = sum(errors.values())
    for _ in range(_ROUNDS):
        before = least
        for name in names:
            for step in _COARSE:
                tried = factors | {name: factors[name] * step}
                again = errors | {tile.name: tile.error(tile.scaled(tried)) for tile in timed if name in tile.shipped}
                found = sum(again.values()) + _STAYS * sum(abs(math.log(factor)) for factor in tried.values())
                if found < least:
                    factors, errors, least = tried, again, found
        if least > before - _ENOUGH:
            break
    return {tile.name: _own(tile, tile.scaled(factors)) if tile.times else tile.scaled(factors) for tile in tiles}


def _own(tile: _Tile, start: Numbers) -> Numbers:
    def error(numbers: Numbers) -> float:
        return tile.error(numbers) + _STAYS * sum(abs(math.log(numbers[name] / start[name])) for name in numbers)

    return descend(start, error, _FINE)


def descend(numbers: Numbers, error: Callable[[Numbers], float], steps: Iterable[float], rounds: int = _ROUNDS) -> Numbers:
    """One number after the other, as long as that helps."""
    steps, least = tuple(steps), error(numbers)
    for _ in range(rounds):
        before = least
        for name in numbers:
            for step in steps:
                tried = numbers | {name: _whole(numbers[name] * step)}
                found = error(tried)
                if found < least - 1e-9:
                    numbers, least = tried, found
        if least > before - 1e-6:
            break
    return numbers


def _whole(number: float) -> int:
    return min(max(1, round(number)), LARGEST_NUMBER)


class _Tile:
    """The cost of a variant as a function of its numbers, and its times."""

    def __init__(self, variant: Variant, calls: Sequence[Timed]):
        self.name, self.shipped = variant.name, variant.numbers
        self.times: list[tuple[Callable[[Numbers], int], float, float]] = []
        for call in calls:
            if variant.name in call.nanoseconds:
                time, fastest = call.nanoseconds[variant.name], min(call.nanoseconds.values())
                weight = max(math.exp(-FALLS_OFF * (time / fastest - 1)), FAR)
                self.times.append((cost_of_numbers(variant.cost, {**call.values, **variant.constants}), math.log(time), weight))

    def scaled(self, factors: Mapping[str, float]) -> Numbers:
        return {name: _whole(number * factors.get(name, 1.0)) for name, number in self.shipped.items()}

    def error(self, numbers: Numbers) -> float:
        """The weighted sum of |log(cost / time)|."""
        return sum(weight * abs(math.log(max(cost(numbers), 1)) - time) for cost, time, weight in self.times)


def cost_of_numbers(cost: Expression, values: Mapping[str, int]) -> Callable[[Numbers], int]:
    """The cost of one call. What follows from the call alone is computed once."""
    stack: list[Code] = []
    position = 0
    while position < len(cost.code):
        opcode, operand = cost.code[position]
        position += 1
        if opcode == "jump":
            position = operand
        elif opcode == "jump_if_zero":
            condition = stack.pop()
            if not _is_constant(condition):  # which side is needed depends on numbers
                return lambda numbers: cost.evaluate({**values, **numbers})
            position = operand if condition[0][1] == 0 else position
        elif opcode in ("constant", "load"):
            stack.append([("constant", values[operand])] if opcode == "load" and operand in values else [(opcode, operand)])
        else:
            operands = [stack.pop() for _ in range(1 if opcode in ("negate", "not", "truth") else 2)][::-1]
            made = [step for code in operands for step in code] + [(opcode, operand)]
            stack.append([("constant", cost.of_code(made).evaluate({}))] if all(map(_is_constant, operands)) else made)
    return cost.of_code(stack.pop()).evaluate


def _is_constant(code: Code) -> bool:
    return len(code) == 1 and code[0][0] == "constant"

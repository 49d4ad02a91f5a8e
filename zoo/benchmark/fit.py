"""Finds the numbers with which the costs of tiles are nearest to their measured times.

First all tiles of a kernel share a factor for each name of a number: the chip, which has few numbers and many times. Then each tile has numbers of
its own, from its own times. A tile that no call timed keeps the chip's factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zoo.contract.costs import LARGEST_NUMBER, tunable
from zoo.contract.expressions import Code, Expression
from zoo.contract.schema import Kernel, Variant

FALLS_OFF, FAR = 6.0, 0.06  # Slower tiles weigh less; FAR is the least weight.
_LARGE = 0.1  # a residual counts by its square up to here, by its size beyond
_STAYS = 0.003  # what the square of a number's change counts
_STEPS, _STEP, _DAMPING = 20, 0.02, 0.1
_ENOUGH = 0.99  # a step that leaves more of the loss is the last
Numbers: TypeAlias = dict[str, int]


@dataclass(frozen=True)
class TimedCall:
    """One call: what expressions read of it, and the nanoseconds of the variants that were timed."""

    values: Mapping[str, int]
    nanoseconds: Mapping[str, float]


def fitted(kernel: Kernel, arch: str, calls: Sequence[TimedCall]) -> dict[str, Numbers]:
    """The numbers of each variant of an arch whose cost reads numbers."""
    tiles = [_Tile(variant, calls) for variant in tunable(kernel, arch)]
    timed = [tile for tile in tiles if tile.times]
    names = list(dict.fromkeys(name for tile in timed for name in tile.shipped))

    def of_chip(factors: NDArray[np.float64]) -> NDArray[np.float64]:
        scaled = dict(zip(names, factors, strict=True))
        return np.concatenate([tile.residuals([number + scaled[name] for name, number in tile.logarithms.items()]) for tile in timed])

    weights = np.concatenate([tile.weights for tile in timed])
    factors = dict(zip(names, _nearest(of_chip, np.zeros(len(names)), weights), strict=True))
    found = {}
    for tile in tiles:
        start = np.array([number + factors.get(name, 0.0) for name, number in tile.logarithms.items()])
        end = _nearest(tile.residuals, start, tile.weights) if tile.times else start
        found[tile.name] = {name: _whole(math.exp(number)) for name, number in zip(tile.shipped, end, strict=True)}
    return found


def _nearest(
    residuals: Callable[[NDArray[np.float64]], NDArray[np.float64]], start: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Levenberg and Marquardt's steps from `start` to the least weighted residuals.

    Numbers that the times do not determine stay near their start.
    """

    def loss(at: NDArray[np.float64], found: NDArray[np.float64]) -> float:
        size = np.abs(found)
        return float(weights @ np.where(size < _LARGE, size**2, 2 * _LARGE * size - _LARGE**2) + _STAYS * ((at - start) ** 2).sum())

    at, found, damping = start, residuals(start), _DAMPING
    least = loss(at, found)
    for _ in range(_STEPS):
        slopes = np.stack([(residuals(at + _STEP * axis) - found) / _STEP for axis in np.eye(len(at))], axis=1)
        bent = weights / np.maximum(np.abs(found) / _LARGE, 1)  # a large residual does not bend the others
        pull = slopes.T @ (bent * found) + _STAYS * (at - start)
        curve = slopes.T @ (bent[:, None] * slopes) + _STAYS * np.eye(len(at))
        tried = at - np.clip(np.linalg.solve(curve + damping * np.diag(np.diag(curve)), pull), -1, 1)
        after = residuals(tried)
        before, now = least, loss(tried, after)
        if now >= before:
            damping *= 8
            continue
        at, found, damping, least = tried, after, damping / 4, now
        if now > _ENOUGH * before:
            break
    return at


def _whole(number: float) -> int:
    return min(max(1, round(number)), LARGEST_NUMBER)


class _Tile:
    """The cost of a variant as a function of its numbers, and its times."""

    def __init__(self, variant: Variant, calls: Sequence[TimedCall]):
        self.name, self.shipped = variant.name, variant.numbers
        self.logarithms = {name: math.log(max(number, 1)) for name, number in variant.numbers.items()}
        self.times: list[tuple[Callable[[Mapping[str, float]], float], float]] = []
        weights = []
        for call in calls:
            if variant.name in call.nanoseconds:
                time, fastest = call.nanoseconds[variant.name], min(call.nanoseconds.values())
                weights.append(max(math.exp(-FALLS_OFF * (time / fastest - 1)), FAR))
                self.times.append((cost_of_numbers(variant.cost, {**call.values, **variant.constants}), math.log(time)))
        self.weights = np.array(weights)

    def residuals(self, logarithms: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """log(cost / time) of each time."""
        numbers = dict(zip(self.shipped, np.exp(logarithms).tolist(), strict=True))
        return np.array([math.log(max(cost(numbers), 1)) - time for cost, time in self.times])


def cost_of_numbers(cost: Expression, values: Mapping[str, int]) -> Callable[[Mapping[str, Any]], float]:
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

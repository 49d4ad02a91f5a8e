"""Calls of a GEMM as models make them, drawn by a seed: sizes of layers, groups, dtypes, options and optional arguments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from zoo.benchmark.arguments import Described, addressed, describe_arguments, size_symbols, takes_groups
from zoo.benchmark.groups import Groups
from zoo.contract.costs import tunable
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import pick_arch, resolve
from zoo.errors import ZooError

# Columns of the result and of the operands: gpt-oss, Qwen3, DeepSeek-V3, Llama 3, Mixtral, GLM-4.5
_LAYERS = (
    (5760, 2880), (2880, 2880), (1536, 4096), (4096, 1536), (2048, 768), (768, 2048), (4096, 7168), (7168, 2048), (24576, 1536), (2112, 7168),
    (7168, 16384), (6144, 4096), (28672, 4096), (4096, 14336), (10240, 8192), (8192, 8192), (5120, 5120), (3072, 4096),
)  # fmt: skip
_GROUPS = (8, 16, 32, 64, 128, 256)
_CHOICES = (2, 4, 8)  # experts of a token
_MOST_TOKENS, _MOST_ROWS = 16384, 512  # of a dense call or a token's row in a grouped one; of a masked group
_MOST_WORK, _MOST_WEIGHTS = 2**39, 2**31  # products, and weights of all groups: a call takes milliseconds at most
_MOST_SUMMED = 2**17  # rows of all groups that weight gradients sum along
_ATTEMPTS = 1000  # in a row that no variant takes
_USUAL = 0.6  # the share of calls with a default
_WORTH = 2.5  # times the cost of the cheapest variant: slower variants are not timed


@dataclass(frozen=True, eq=False)
class DrawnCall:
    arrays: Mapping[str, Described]
    keywords: Mapping[str, str | int | float]
    values: Mapping[str, int]  # what costs read of the call
    costs: Mapping[str, int]  # of the variants that are worth timing


def drawn_calls(kernel: Kernel, capability: tuple[int, int], multiprocessors: int, seed: int) -> Iterator[DrawnCall]:
    """Calls that several variants take. Ends where no more are found."""
    random, missed = Random(f"{kernel.name} {seed}"), 0
    while missed < _ATTEMPTS:
        sizes, groups = _sizes(kernel, random)
        missed += 1
        try:
            call = _call(kernel, capability, multiprocessors, sizes, _settings(kernel, random), groups)
        except ZooError:
            continue  # sizes or settings that do not fit each other
        if len(call.costs) > 1:
            missed = 0
            yield call


def _sizes(kernel: Kernel, random: Random) -> tuple[dict[str, int], Groups]:
    n, k = random.choice(_LAYERS) if random.random() < 0.5 else (_multiple(random, 512, 16384), _multiple(random, 512, 8192))
    grouping = kernel.fields["grouping"]
    groups = 1 if grouping == "dense" else random.choice([count for count in _GROUPS if count * n * k <= _MOST_WEIGHTS])
    most = max(min(_MOST_TOKENS, _MOST_WORK // (n * k)), 1)
    tokens = _between(random, 1, most)
    rows = tokens if grouping == "dense" else min(tokens * random.choice(_CHOICES), max(_MOST_WORK // (n * k), 1))
    if grouping == "k_grouped":  # the result of each group has rows x n elements
        k = groups * _multiple(random, 128, max(min(4096, _MOST_SUMMED // groups), 128))
        rows = _multiple(random, 128, max(min(8192, _MOST_WEIGHTS // (groups * n), _MOST_WORK // (n * k)), 128))
    sizes = {"M": rows, "N": n, "I": n // 2, "K": k, "T": tokens, "G": groups, "E": groups, "R": _between(random, 1, _MOST_ROWS)}
    distribution = random.choice(("uniform", "uniform", "zipf"))
    return {name: sizes[name] for name in size_symbols(kernel) if name in sizes}, Groups(groups, distribution)


def _between(random: Random, least: int, most: int) -> int:
    """As likely between 8 and 16 as between 800 and 1600; half of the numbers are powers of two."""
    exact = math.exp(random.uniform(math.log(least), math.log(most)))
    return min(max(2 ** round(math.log2(exact)) if random.random() < 0.5 else round(exact), least), most)


def _multiple(random: Random, least: int, most: int) -> int:
    return -(-_between(random, least, most) // 128) * 128


def _settings(kernel: Kernel, random: Random) -> dict[str, str]:
    """Options, dtypes and optional arguments that a choice may depend on; most often the defaults."""
    deciding = {name for one in kernel.variants for name in (*one.when.names, *one.cost.names)}
    chosen = {}
    for name, option in kernel.options.items():
        if any(name in one.options for one in kernel.variants) or deciding & {f"{name}.{value}" for value in option.values}:
            chosen[name] = option.default if random.random() < _USUAL else random.choice(option.values)
    for name, argument in kernel.arguments.items():
        dtypes = list(dict.fromkeys(one.dtypes[name] for one in kernel.variants if name in one.dtypes))
        optional = argument.optional and f"{name}.present" in deciding
        if (dtypes or optional) and random.random() > _USUAL:
            chosen[name] = random.choice(dtypes or argument.dtypes)
    return chosen


def _call(
    kernel: Kernel, capability: tuple[int, int], multiprocessors: int, sizes: Mapping[str, int], settings: Mapping[str, str], groups: Groups
) -> DrawnCall:
    arrays, keywords = describe_arguments(kernel, sizes, settings, groups if takes_groups(kernel) else None)
    arguments = addressed(arrays, keywords)
    chosen = resolve(kernel, arguments, capability, multiprocessors)
    values = {name: value for name, value in chosen.symbols.items() if name not in chosen.variant.symbols}
    costs = {}
    for variant in tunable(kernel, pick_arch(kernel.archs, capability) or ""):
        try:
            launch = resolve(kernel, arguments, capability, multiprocessors, variant.name)
        except ZooError:
            continue
        costs[variant.name] = variant.cost.evaluate(launch.symbols)
    return DrawnCall(arrays, keywords, values, {name: cost for name, cost in costs.items() if cost <= _WORTH * min(costs.values())})

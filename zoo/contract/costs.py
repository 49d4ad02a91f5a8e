"""A file of measured costs: the numbers that the tiles of kernels have on one chip. `zoo tune` writes it, ZOO_COSTS names it.

    {"schema": 1, "chip": "NVIDIA H20", "multiprocessors": 78, "kernels": {
      "gemm.fp8b128.dense": {
        "t128": {"cubin": "95acf921...", "cost": "call + ...", "numbers": {"block": 2597, "end": 939}}}}}

A kernel takes its numbers from the file where the file has all of its variants: each with the cubin, the cost and the names of numbers that the
manifest has. Any other kernel has what the manifest's numbers become on the chip (chips.py), so a choice never compares measured numbers with others,
or numbers of two builds. zoo.c reads the same files by the same rules: ASCII, objects, texts without backslashes, whole numbers. Both refuse a field,
or a kernel, variant or number of the zoo, that comes twice. Python also refuses other names that come twice, and names of more than 1000 characters.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from zoo.contract.fields import Kind, Malformed, TableOf, Text, Whole, read, refuse, says
from zoo.contract.files import read_file
from zoo.contract.manifest import once
from zoo.contract.schema import Kernel, Variant
from zoo.errors import IntegrityError

VARIABLE = "ZOO_COSTS"
SCHEMA = 1
LARGEST = 4 << 20
_ADVICE = f"run `zoo tune` again, or unset {VARIABLE}"
LARGEST_NUMBER = (1 << 31) - 1
_NUMBERS = TableOf(Whole(1, LARGEST_NUMBER), "whole numbers")


class _Plain(Kind):
    words = "a text"

    def read(self, value: Any) -> str:
        if type(value) is not str or not value.isprintable():
            refuse(value, self.words)
        return value


class _MeasuredKind(Kind):
    """What the file says of one variant."""

    words = "a table: cubin, cost, numbers"

    def read(self, value: Any) -> MeasuredVariant:
        return MeasuredVariant(**read(MeasuredVariant, value))


@dataclass(frozen=True)
class MeasuredVariant:
    cubin: str = field(metadata=says(_Plain(), "The cubin's sha256."))
    cost: str = field(metadata=says(_Plain(), "The expression that reads the numbers."))
    numbers: dict[str, int] = field(metadata=says(_NUMBERS, "What was measured, by name."))

    def is_of(self, variant: Variant) -> bool:
        return (self.cubin, self.cost, self.numbers.keys()) == (variant.sha256, variant.cost.text, variant.numbers.keys())


@dataclass(frozen=True)
class Costs:
    """The content of a file."""

    schema: int = field(metadata=says(Whole(0, LARGEST_NUMBER), "Of the file."))
    chip: str = field(metadata=says(Text(), "The name that the driver gives the GPU."))
    multiprocessors: int = field(metadata=says(Whole(1, LARGEST_NUMBER), "Of the GPU."))
    kernels: dict[str, dict[str, MeasuredVariant]] = field(
        metadata=says(TableOf(TableOf(_MeasuredKind(), "variants"), "kernels"), "By name.")
    )

    def applied(self, kernel: Kernel, arch: str) -> Kernel | None:
        """The kernel with these numbers for its variants of an arch. None if the file lacks a variant, or a variant differs."""
        of_arch, measured = tunable(kernel, arch), self.kernels.get(kernel.name, {})
        if not of_arch or measured.keys() != {one.name for one in of_arch} or not all(measured[one.name].is_of(one) for one in of_arch):
            return None
        return with_numbers(kernel, arch, {name: one.numbers for name, one in measured.items()})


def tunable(kernel: Kernel, arch: str) -> list[Variant]:
    """The variants of an arch whose costs read numbers."""
    return [one for one in kernel.variants if one.arch == arch and one.numbers]


def with_numbers(kernel: Kernel, arch: str, numbers: dict[str, dict[str, int]]) -> Kernel:
    changed = (replace(one, numbers=numbers[one.name]) if one.arch == arch and one.name in numbers else one for one in kernel.variants)
    return replace(kernel, variants=tuple(changed))


def as_measured(kernel: Kernel, arch: str) -> dict[str, MeasuredVariant]:
    """What a file says of a kernel with these numbers."""
    return {one.name: MeasuredVariant(one.sha256, one.cost.text, one.numbers) for one in tunable(kernel, arch)}


def read_costs(path: Path, advice: str = _ADVICE) -> Costs:
    """IntegrityError, with the file's name, for a file that is damaged or none of costs."""
    try:
        text = read_file(path, LARGEST).decode("ascii")
        if "\\" in text:
            raise ValueError("it has a backslash")
        costs = Costs(**read(Costs, json.loads(text, object_pairs_hook=once)))
        if costs.schema != SCHEMA:
            raise ValueError(f"it has schema {costs.schema}, this zoo reads {SCHEMA}")
    except OSError as error:
        _refuse(path, f"cannot be read: {error.strerror}", advice)
    except (ValueError, RecursionError, Malformed) as error:
        _refuse(path, f"is damaged: {error}", advice)
    return costs


def _refuse(path: Path, reason: str, advice: str) -> NoReturn:
    raise IntegrityError(f"the file of costs {path} {reason}; {advice}")


def refuse_other_chip(path: Path, costs: Costs, chip: str, multiprocessors: int, advice: str = _ADVICE) -> None:
    if (costs.chip, costs.multiprocessors) != (chip, multiprocessors):
        _refuse(
            path,
            f"is of {costs.chip} with {costs.multiprocessors} multiprocessors, this GPU is {chip} with {multiprocessors}",
            advice,
        )


def text_of(costs: Costs) -> str:
    """The content of the file, a line for each variant."""
    kernels = []
    for name, variants in costs.kernels.items():
        lines = ",\n".join(f"   {json.dumps(variant)}: {json.dumps(vars(one))}" for variant, one in variants.items())
        kernels.append(f"  {json.dumps(name)}: {{\n{lines}}}")
    head = f' "schema": {SCHEMA}, "chip": {json.dumps(costs.chip)}, "multiprocessors": {costs.multiprocessors},\n "kernels": {{\n'
    return "{\n" + head + ",\n".join(kernels) + "}}\n"


def file_in_use() -> Path | None:
    """The file that the environment names."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None

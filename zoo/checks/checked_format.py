"""The format of a kernel that is checked: its record, and what problems must know that follows from it.

No check asks for a format by its name. Whoever adds one to the contract has it checked in every family that it is built in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import numpy

from zoo.checks.problem import NoChecks
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.amax import tensor_amax
from zoo.reference.block_formats import FORMATS, BlockFormat, Format, RelativeE4m3, Rule, block_format, nvfp4_tensor_scale
from zoo.reference.small_floats import ELEMENTS, ElementFormat

T = TypeVar("T")


@dataclass(frozen=True)
class KernelFormat:
    """A format with the elements that a variant has."""

    record: Format
    element: ElementFormat
    options: Mapping[str, tuple[str, ...]]  # those about scales that the kernel has, with their values

    @property
    def rule(self) -> type[Rule]:
        """By which scales follow."""
        return self.record.rule

    @property
    def block(self) -> int:
        return self.record.block

    @property
    def unit(self) -> int:
        """What the table wants K to be a multiple of."""
        return 16 if self.rule.short_last_block else self.block

    @property
    def relative(self) -> bool:
        """Whether a scale of the tensor is among the arguments."""
        return self.rule is RelativeE4m3

    @property
    def choices(self) -> tuple[dict[str, str], ...]:
        """What a launch may choose about the scales: one empty choice where it is nothing."""
        return tuple(dict(zip(self.options, values, strict=True)) for values in product(*self.options.values()))

    @property
    def row_unit(self) -> int:
        """Bytes that rows of q may start at multiples of: those of a block, and not more than 16."""
        return min(16, self.block // self.element.per_byte)

    def made(self, settings: Mapping[str, str], tensor_scale: numpy.ndarray | float | None = None) -> BlockFormat:
        """As a launch with these settings, and this scale of the tensor if it takes one, wants it."""
        chosen = {name: settings[name] for name in self.options if name in settings}
        return block_format(self.record.name, self.element.name, tensor_scale=tensor_scale if self.relative else None, **chosen)

    def columns(self, count: int) -> int:
        """So many columns of x or, where the format takes them by the block, as many more as fill one."""
        return -(-count // self.unit) * self.unit

    def among(self, by_block: Mapping[int, T]) -> T:
        """What is said for blocks of this size or, where nothing is, for the largest size that divides it."""
        return by_block[max((block for block in by_block if self.block % block == 0), default=min(by_block))]


def format_of(kernel: Kernel, variant: Variant) -> KernelFormat:
    record = FORMATS.get(kernel.fields["formats"])
    if record is None:
        raise NoChecks(
            kernel,
            f"the format '{kernel.fields['formats']}'",
            "zoo/checks knows those of zoo/contract/formats.py whose scales have a rule in zoo/reference/block_formats.py",
        )
    stored = variant.dtypes.get("q", variant.dtypes.get("q_rows", record.elements[0]))
    if stored not in record.elements:
        raise NoChecks(kernel, f"{record.name} of {stored}", "add this dtype to the format's record in zoo/contract/formats.py")
    options = {name: kernel.options[name].values for name in record.rule.choices if name in kernel.options}
    return KernelFormat(record, ELEMENTS[stored.removesuffix("x2")], options)


def stored_as(format: BlockFormat) -> str | None:
    """The dtype of q where numpy has none for it."""
    return f"{format.element.name}x{format.element.per_byte}" if format.packed else None


def finite(x: numpy.ndarray) -> numpy.ndarray:
    """x with 0 for what is no number."""
    with numpy.errstate(invalid="ignore"):
        return numpy.where(numpy.isfinite(x.astype(numpy.float32)), x, x.dtype.type(0))


def scale_of_tensor(x: numpy.ndarray) -> numpy.ndarray:
    """The scale that the finite numbers in x ask for, shape (1,)."""
    return nvfp4_tensor_scale(tensor_amax(finite(x))).reshape(1)


def scales_of_matrices(x: numpy.ndarray) -> numpy.ndarray:
    """The same for each matrix of a stack."""
    return numpy.array([scale_of_tensor(matrix).item() for matrix in x] or [1], numpy.float32)

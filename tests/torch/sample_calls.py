"""Calls of every kernel with tensors as inputs and what must come back: the problems of `zoo verify`, as `zoo.call` and torch take them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy
import torch

from zoo import checks
from zoo.checks.problem import Placed, Problem
from zoo.contract.array import contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel, Variant
from zoo.contract.numpy_dtypes import BY_NUMPY_NAME
from zoo.contract.shapes import accumulates, sizes

MOST_ELEMENTS = 20_000


@dataclass(frozen=True)
class SampleCall:
    kernel: Kernel
    problem: Problem
    inputs: dict[str, torch.Tensor]
    settings: dict[str, Any]  # options, numbers, sizes, and of outputs their dtypes

    @property
    def by_place(self) -> list[torch.Tensor]:
        """What an operator takes by place."""
        return [self.inputs[one.name] for one in self.kernel.arguments.values() if one.access == "read" and _is_required(one)]

    def by_name(self, operator: Any) -> dict[str, Any]:
        """What this operator takes by keyword."""
        takes = {argument.name for argument in operator._schema.arguments if argument.kwarg_only}
        optional = {name: value for name, value in self.inputs.items() if name in takes}
        return optional | {name: value for name, value in self.settings.items() if name in takes}

    @property
    def wants_optional(self) -> bool:
        return any(self.kernel.arguments[name].optional for name in self.problem.outputs)

    def wrong(self, outputs: Mapping[str, torch.Tensor]) -> str | None:
        """What is wrong with what came back, in words."""
        for name, placed in self.problem.outputs.items():
            found = as_numpy(outputs[name], placed.values.dtype)
            wanted = placed.values
            if found.shape != wanted.shape and found.T.shape == wanted.shape:  # scales with M contiguous, as consumers name them
                found = found.T
            if found.shape != wanted.shape:
                return f"{name}: expected {wanted.shape}, got {found.shape}"
            bits = f"u{wanted.dtype.itemsize}"
            good = numpy.ascontiguousarray(found).view(bits) == numpy.ascontiguousarray(wanted).view(bits)
            if placed.untouched is not None:
                good |= placed.untouched
            if placed.within is not None:
                with numpy.errstate(invalid="ignore"):
                    good |= abs(found.astype(numpy.float64) - wanted.astype(numpy.float64)) <= placed.within
            if not good.all():
                at = tuple(int(one) for one in numpy.argwhere(~good)[0])
                return f"{name}: {numpy.count_nonzero(~good)} of {good.size} elements are wrong, first {at}: expected {wanted[at]}, got {found[at]}"
        return None


def _is_required(argument: Any) -> bool:
    return argument.kind == "array" and not argument.optional


def sample_calls(kernel: Kernel, arch: str, device: str = "cpu", most: int = 1, elements: int = MOST_ELEMENTS) -> Iterator[SampleCall]:
    """Up to `most` calls for each choice of dtypes and compiled options."""
    seen: set[object] = set()
    for variant in kernel.variants:
        choice = (tuple(variant.dtypes.items()), tuple(variant.options.items()))
        if variant.arch == arch and choice not in seen:
            seen.add(choice)
            found = (one for one in checks.problems(kernel, variant) if one.elements <= elements and _returns(kernel, one))
            for problem in islice(found, most):
                yield of_problem(kernel, variant, problem, device)


def _returns(kernel: Kernel, problem: Problem) -> bool:
    """Whether a call can return what the problem expects: results with elements, and nothing that it adds to."""
    adds = any(one.access == "read_write" for one in kernel.arguments.values()) and accumulates(kernel, problem.settings)
    return not adds and problem.elements > 0


def of_problem(kernel: Kernel, variant: Variant, problem: Problem, device: str) -> SampleCall:
    inputs = {name: as_tensor(placed, device) for name, placed in problem.inputs.items()}
    settings = dict(problem.settings)
    for name, placed in problem.outputs.items():
        argument = kernel.arguments[name]
        if len(argument.dtypes) > 1:
            settings[name] = placed.dtype or BY_NUMPY_NAME[placed.values.dtype.name]
        elif argument.optional:
            settings[name] = True
        for form in argument.forms:
            for expression, extent in zip(form.shape, placed.values.shape, strict=False):
                if expression.text in sizes(kernel):
                    settings[expression.text] = extent
    return SampleCall(kernel, problem, inputs, settings)


def as_tensor(placed: Placed, device: str) -> torch.Tensor:
    """With the same strides, in memory whose other elements are not numbers."""
    values = placed.values
    size = values.dtype.itemsize
    strides = placed.strides or contiguous_strides(values.shape)
    reach = 0 if 0 in values.shape else 1 + sum((extent - 1) * stride for extent, stride in zip(values.shape, strides, strict=True))
    memory = numpy.full(reach * size, 0xFF, numpy.uint8).view(f"u{size}")
    if reach:
        shown = numpy.lib.stride_tricks.as_strided(memory, values.shape, tuple(stride * size for stride in strides))
        shown[...] = numpy.ascontiguousarray(values).view(f"u{size}")
    name = placed.dtype or BY_NUMPY_NAME[values.dtype.name]
    dtype = getattr(torch, DTYPES[name].torch, torch.uint8)
    signed = {1: numpy.uint8, 2: numpy.int16, 4: numpy.int32, 8: numpy.int64}[size]
    tensor = torch.from_numpy(memory.view(signed)).to(device).view(dtype)
    return tensor.as_strided(values.shape, strides)


def as_numpy(tensor: torch.Tensor, dtype: numpy.dtype) -> numpy.ndarray:
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    return tensor.detach().view(bits).cpu().numpy().view(dtype)

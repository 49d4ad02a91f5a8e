"""Layers train on Blackwell with the bits of the CPU: the emulator runs every kernel of a forward and a backward pass.

Operators of CPU tensors compute `on_cpu.run_rule`. These tests put an emulated GPU in its place.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from tests.torch.nn.expert_layers import problem
from tests.torch.nn.test_gradients import ENDS, normal
from zoo.contract.array import Pointer, View
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import called
from zoo.emulator import Device
from zoo.reference.kernels import B200, run
from zoo.torch import on_cpu
from zoo.torch.nn import Experts, GroupedLinear, Linear

MULTIPROCESSORS = 4  # so few that small problems need large tiles
LINE = 64  # bytes: the alignment of torch's memory on the CPU
Results = dict[str, torch.Tensor]


class Blackwell:
    """Carries out calls on host arrays by the kernels' cubins. Any finding of the emulator is a failure.

    only: the kernel and the number of the one call that runs so. Its argument `mistaken` is wrong: scales are a block late, another argument
    is left out. The other calls follow the rule.
    """

    def __init__(self, only: tuple[str, int] | None = None, mistaken: str | None = None) -> None:
        self.device = Device("b200", scheduling="random", arithmetic="hw", multiprocessors=MULTIPROCESSORS, strict=True)
        self.only, self.mistaken = only, mistaken
        self.calls: Counter[str] = Counter()
        self.started: list[str] = []

    def __call__(self, kernel: Kernel, values: Mapping[str, Any]) -> None:
        self.calls[kernel.name] += 1
        if self.only not in (None, (kernel.name, self.calls[kernel.name])):
            return run(kernel, values)
        given, fetches = dict(values), {}
        for name, value in values.items():
            array, dtype = (value.base, value.dtype) if isinstance(value, View) else (value, None)
            if isinstance(array, np.ndarray):
                access = kernel.arguments[name].access
                given[name], fetches[name] = self.moved(array, dtype or called(array.dtype.name), access != "write")
        if self.mistaken is not None and self.mistaken.endswith("scale"):
            one = given[self.mistaken]
            self.device.write(one.address, np.roll(self.device.read(one.address, one.shape, np.uint8), 1))
        else:
            given.pop(self.mistaken, None)
        plan = zoo.prepare(kernel.name, **given)
        report = plan()
        assert report is None or report.ok, str(report)
        self.started.append(plan.launch.variant.symbol)
        for name, fetch in fetches.items():
            fetch(kernel.arguments[name].written)

    def moved(self, array: np.ndarray, dtype: str, readable: bool) -> tuple[Pointer, Callable[[bool], None]]:
        """The array on the GPU, as far behind a multiple of LINE as on the host, and what fetches written bytes and frees the memory."""
        shift, strides = array.ctypes.data % LINE, array.strides
        last = sum((extent - 1) * stride for extent, stride in zip(array.shape, strides, strict=True))
        size = shift + (last + array.itemsize if array.size else 0)
        memory: Any = (ctypes.c_byte * size).from_address(array.ctypes.data - shift)
        host: np.ndarray = np.ndarray(size, np.uint8, memory)
        owned = np.zeros(size, bool)
        if array.size:
            np.ndarray((*array.shape, array.itemsize), bool, owned, shift, (*strides, 1))[...] = True
        place = self.device.alloc(host, written=owned & readable)

        def fetch(wanted: bool) -> None:
            written = self.device.written(place, size)
            assert not (written & ~owned).any()
            if wanted:
                host[written] = self.device.read(place, size, np.uint8)[written]
            self.device.free(place)

        in_elements = tuple(stride // array.itemsize for stride in strides)
        return Pointer(place + shift, array.shape, dtype, in_elements, self.device), fetch


def uneven(weight: torch.Tensor) -> torch.Tensor:
    """Neighbouring squares get other powers of two as their scales, in every format."""
    rows, columns = (torch.arange(size) for size in weight.shape[-2:])
    return weight * 2.0 ** ((rows[:, None] + columns) // 64 - 2)


def linear(format: str) -> Results:
    """Two micro-batches by different tiles. The GEMM adds the second gradient of the weight to the first."""
    layer = Linear(160, 320, format=format)
    layer.add_gradients = True
    with torch.no_grad():
        layer.weight.copy_(uneven(normal(320, 160)))
        layer.bias.copy_(normal(320))
    found = {}
    for number, count in enumerate((40, 300)):
        x = normal(count, 160, dtype=torch.bfloat16, seed=number).requires_grad_()
        y = layer(x)
        y.backward(normal(count, 320, dtype=torch.bfloat16, seed=2 + number))
        found |= {f"y {number}": y.detach(), f"dx {number}": x.grad}
    return {**found, "dw": layer.weight.grad, "db": layer.bias.grad}


def trained(layer: torch.nn.Module, x: torch.Tensor, *more: torch.Tensor) -> Results:
    """x begins 2 bytes behind the alignment that kernels need, which no rule on a CPU refuses."""
    x = x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
    given = [x.requires_grad_(), *(one.clone().requires_grad_(one.is_floating_point()) for one in more)]
    y = layer(*given)
    wanted = {f"input {number}": one for number, one in enumerate(given) if one.requires_grad} | dict(layer.named_parameters())
    found = torch.autograd.grad(y, tuple(wanted.values()), normal(*y.shape, dtype=y.dtype, seed=1))
    return {"y": y.detach(), **dict(zip(wanted, found, strict=True))}


def frozen(format: str) -> Results:
    """The gradient of its input, which adapters beside frozen layers need."""
    layer = torch.nn.Linear(160, 96, bias=False)
    layer.weight.data = uneven(normal(96, 160))
    return trained(Linear.from_float(layer, format, frozen=True), normal(40, 160, dtype=torch.bfloat16))


def grouped(format: str) -> Results:
    """One group has no rows, and some rows have no group."""
    layer = GroupedLinear(4, 100, 36, format=format, dtype=torch.bfloat16)
    with torch.no_grad():
        layer.weight.copy_(uneven(normal(4, 36, 100)))
        layer.bias.copy_(normal(4, 36))
    return trained(layer, normal(48, 100, dtype=torch.bfloat16), torch.tensor(ENDS, dtype=torch.int32))


def experts(format: str, gates: str = "halves", **model: Any) -> Results:
    """One expert has no tokens, and some choices are dropped."""
    p = problem(**model)
    options = {"activation": p.activation, "limit": p.limit, **p.biases(gates)}
    layer = Experts.from_float(uneven(p.gate_up(gates)), uneven(p.down), format, gates=gates, **options)
    return trained(layer, p.x, p.ids, p.weights)


def gpt_oss(format: str) -> Results:
    return experts(format, "interleaved", activation="gpt_oss", limit=7.0)


@cache
def by_rule(layer: Callable[[str], Results], format: str) -> Results:
    """By the layer as a CPU has it. There fp8b128 adds as Hopper does, so its rule is asked for Blackwell's sums."""
    with pytest.MonkeyPatch.context() as patch:
        if format == "fp8b128":
            machine = B200._replace(multiprocessors=MULTIPROCESSORS)
            patch.setattr(on_cpu, "run_rule", lambda kernel, values: run(kernel, values, machine))
        return layer(format)


def differing(found: Results, wanted: Results) -> set[str]:
    assert found.keys() == wanted.keys()
    return {name for name, one in wanted.items() if not torch.equal(found[name].view(torch.uint8), one.view(torch.uint8))}


CASES = [
    *((layer, format) for format in ("mxfp8", "nvfp4", "fp8b128") for layer in (linear, grouped)),
    *((frozen, format) for format in ("mxfp8", "nvfp4")),
    *((experts, "mxfp8"), (gpt_oss, "nvfp4"), (experts, "fp8b128")),
]


@pytest.mark.parametrize(("layer", "format"), CASES)
def test_outputs_and_gradients_have_the_bits_of_the_rule(monkeypatch, layer, format):
    """What kernels leave unwritten is NaN here, and zero by the rule."""
    wanted, gpu = by_rule(layer, format), Blackwell()
    assert all(one.isfinite().all() and one.any() for one in wanted.values())
    monkeypatch.setattr(on_cpu, "run_rule", gpu)
    monkeypatch.setattr(on_cpu, "_UNWRITTEN", -1)
    assert differing(layer(format), wanted) == set()
    assert gpu.calls.total() == len(gpu.started) > 5
    assert layer is not linear or {f"gemm_{format}_dense__few128", f"gemm_{format}_dense__t256_w256"} <= set(gpu.started)


MISTAKES = [
    (linear, "mxfp8", "gemm.mxfp8.dense", 1, "a_scale", {"y 0"}),
    (linear, "mxfp8", "gemm.mxfp8.dense", 2, "b_scale", {"dx 0"}),
    (linear, "mxfp8", "gemm.mxfp8.k_grouped", 1, "b_scale", {"dw"}),
    (linear, "mxfp8", "gemm.mxfp8.k_grouped", 2, "accumulate", {"dw"}),
    (linear, "mxfp8", "quantize.mxfp8.squares", 1, "rounding", {"y 0", "dx 0", "y 1", "dx 1"}),
    (linear, "mxfp8", "quantize.mxfp8.both", 2, "rounding", {"dx 0", "dw"}),
    (linear, "nvfp4", "gemm.nvfp4.dense", 3, "bias", {"y 1"}),
    (linear, "nvfp4", "gemm.nvfp4.k_grouped", 1, "alpha", {"dw"}),
    (experts, "mxfp8", "gemm.mxfp8.m_grouped_contiguous", 3, "b_scale", {"input 0", "gate_up.weight"}),
]


@pytest.mark.parametrize(("layer", "format", "kernel", "call", "argument", "reached"), MISTAKES)
def test_a_mistake_in_one_launch_reaches_what_it_computes_and_nothing_else(monkeypatch, layer, format, kernel, call, argument, reached):
    wanted, gpu = by_rule(layer, format), Blackwell((kernel, call), argument)
    monkeypatch.setattr(on_cpu, "run_rule", gpu)
    assert differing(layer(format), wanted) == reached
    assert len(gpu.started) == 1

"""Every operator of torch.ops.zoo: what it returns, and what torch's own opcheck says of it; on the GPU where there is one that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import zoo
import zoo.torch
from tests.torch.drawn_calls import drawn_call
from tests.torch.sample_calls import SampleCall, sample_calls
from zoo.contract.manifest import Kernel
from zoo.contract.resolve import pick_arch
from zoo.contract.shapes import Made
from zoo.runtime import allocation
from zoo.shipped.packaged import packaged
from zoo.torch.schema import operator_name

KERNELS = {kernel.name: kernel for kernel in zoo.find()}
every_kernel = pytest.mark.parametrize("name", KERNELS)


def place(kernel: Kernel) -> tuple[str, str]:
    """The device to run on, and the arch whose problems."""
    if torch.cuda.is_available():
        arch = pick_arch(kernel.archs, torch.cuda.get_device_capability())
        if arch is not None:
            return "cuda", arch
    return "cpu", kernel.archs[0]


def operator_for(call: SampleCall) -> Any:
    packet = getattr(torch.ops.zoo, operator_name(call.kernel.name))
    return packet.all if call.wants_optional else packet.default


def outputs_of(call: SampleCall, operator: Any) -> dict[str, torch.Tensor]:
    returned = operator(*call.by_place, **call.by_name(operator))
    if isinstance(returned, torch.Tensor):
        (name,) = (one.name for one in call.kernel.arguments.values() if one.access in ("write", "read_write") and not one.optional)
        return {name: returned}
    return dict(zip((one.name for one in operator._schema.returns), returned, strict=True))


@every_kernel
def test_an_operator_returns_what_its_kernel_is_checked_against(name: str) -> None:
    device, arch = place(KERNELS[name])
    ran = 0
    for call in sample_calls(KERNELS[name], arch, device):
        wrong = call.wrong(outputs_of(call, operator_for(call)))
        assert wrong is None, f"{call.problem.name}: {wrong}"
        ran += 1
    assert ran


@every_kernel
def test_zoo_call_returns_what_the_operator_returns(name: str) -> None:
    device, arch = place(KERNELS[name])
    if device == "cpu":
        pytest.skip("zoo.call starts kernels on a GPU; tests/contract has its shapes, tests/emulator its calls")
    for call in sample_calls(KERNELS[name], arch, device, most=2):
        for _ in range(2):  # the second is one that is remembered
            returned = zoo.call(name, **call.inputs, **call.settings)
            wrong = call.wrong(returned._asdict())
            assert wrong is None, f"{call.problem.name}: {wrong}"


@every_kernel
def test_opcheck_passes_for_each_form(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "allclose", allclose)
    monkeypatch.setattr(torch.testing, "assert_close", assert_close)
    monkeypatch.setattr(allocation, "_torch_maker", zeros_maker)
    packaged._local.__dict__.clear()  # of calls whose makers are remembered
    device, _ = place(KERNELS[name])
    inputs, settings = drawn_call(KERNELS[name], device)
    packet = getattr(torch.ops.zoo, operator_name(name))
    for overload in packet.overloads():
        operator = getattr(packet, overload)
        torch.library.opcheck(operator, *arguments_of(operator, inputs, settings))


_torch_maker = allocation._torch_maker


def zeros_maker(made: Made, device: int) -> Callable[[], torch.Tensor]:
    """Zeros where nobody writes, so that two runs agree there: torch cannot fill memory of two codes a byte."""
    make = _torch_maker(made, device)

    def make_zeros() -> torch.Tensor:
        tensor = make()
        tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]).zero_()
        return tensor

    return make_zeros


def arguments_of(operator: Any, inputs: dict[str, torch.Tensor], settings: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What goes by place, and by keyword; of the form that writes into tensors, those that the other forms return."""
    schema = operator._schema.arguments
    given = inputs | settings
    if operator._overloadname == "out":
        for one in ("default", "all"):
            if hasattr(operator._overloadpacket, one):
                other = getattr(operator._overloadpacket, one)
                places, named = arguments_of(other, inputs, settings)
                returned = other(*places, **named)
                returned = (returned,) if isinstance(returned, torch.Tensor) else returned
        written = [argument.name for argument in schema if argument.alias_info is not None]
        given |= dict(zip(written, returned, strict=True))
    places = tuple(given[argument.name] for argument in schema if not argument.kwarg_only)
    return places, {argument.name: given[argument.name] for argument in schema if argument.kwarg_only and argument.name in given}


_allclose = torch.allclose


def allclose(a: torch.Tensor, b: torch.Tensor, **settings: Any) -> bool:
    """opcheck compares with torch.allclose, which knows no small floats: these by their bytes."""
    return _allclose(as_bytes(a), as_bytes(b), **settings)


_assert_close = torch.testing.assert_close


def assert_close(found: Any, expected: Any, **settings: Any) -> None:
    """A NaN of a scale is equal to itself by its byte alone."""
    by_bytes = [torch.utils._pytree.tree_map_only(torch.Tensor, as_bytes, one) for one in (found, expected)]
    _assert_close(*by_bytes, **settings)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point else tensor

"""Every operator of torch.ops.zoo: what it returns, and what torch's own opcheck says of it; on the GPU where there is one that runs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import zoo
import zoo.emulator
import zoo.torch
from tests.torch.drawn_calls import drawn_call, packed_weights
from tests.torch.sample_calls import SampleCall, as_numpy, sample_calls
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.contract.resolve import pick_arch
from zoo.contract.shapes import Made
from zoo.packaged import packaged
from zoo.reference.fragment_words import CODE_BYTES
from zoo.runtime import allocation
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


@every_kernel
def test_a_drawn_call_leaves_nothing_unwritten(name: str) -> None:
    """What nobody writes differs on a GPU from run to run, and opcheck compares two. Room between groups is nobody's by contract."""
    inputs, settings = drawn_call(KERNELS[name], "cpu")
    operator = getattr(torch.ops.zoo, operator_name(name)).out
    places, named = arguments_of(operator, inputs, settings)
    written = {one.name for one in operator._schema.arguments if one.alias_info is not None}
    before = {one: bytes_of(named[one]).clone() for one in written}
    for one in written:
        bytes_of(named[one]).fill_(0xA5)
    operator(*places, **named)
    for one in written:
        left = before[one] != bytes_of(named[one])
        assert has_room(KERNELS[name], one) or not left.any(), f"{one}: {int(left.sum())} of {left.numel()} bytes are unwritten"


def bytes_of(array: torch.Tensor) -> torch.Tensor:
    """The bytes of its elements, where rows or columns are contiguous."""
    return (array if array.dim() < 2 or array.stride(-1) == 1 else array.mT).view(torch.uint8)


def has_room(kernel: Kernel, name: str) -> bool:
    """Whether an output has more places than its groups may need."""
    return any("+" in extent.text and "G" in extent.text for form in kernel.arguments[name].forms for extent in form.shape)


PACKED = [name for name in KERNELS if name.startswith("gemm.") and {"b"} == set(packed_weights(KERNELS[name]))]


@pytest.mark.parametrize("name", PACKED)
def test_a_drawn_call_makes_no_product_read_what_nobody_wrote(name: str) -> None:
    """A scale byte from 128 on is looked up behind the table of 128 entries, which made opcheck fail on a GPU and nowhere else."""
    inputs, settings = drawn_call(KERNELS[name], "cpu", M=16, R=16, T=16, N=64, K=64)
    zoo.call(name, **emulated(KERNELS[name], inputs), **settings)


def test_such_a_read_is_noticed() -> None:
    name = "gemm.fp8_nvfp4.m_grouped_contiguous"
    inputs, settings = drawn_call(KERNELS[name], "cpu", M=16, N=64, K=64)
    inputs["b"][..., CODE_BYTES:] |= 0x80
    with pytest.raises(zoo.ZooError, match=r"uninitialised-shared|mbarrier-misuse"):
        zoo.call(name, **emulated(KERNELS[name], inputs), **settings)


def emulated(kernel: Kernel, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    gpu = zoo.emulator.Device(arch="sm_90a")
    return {name: gpu.array(as_numpy(one, numpy_dtype(kernel.arguments[name].dtypes[0]))) for name, one in inputs.items()}


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

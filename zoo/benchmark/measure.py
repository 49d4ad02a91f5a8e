"""One kernel at one size, against copies of the same bytes.

The calls rotate over sets of buffers that together are larger than the L2 cache three times over, so every call finds its
data in memory. (Not for the smallest sizes, which would take thousands of sets; `past_cache` says so.) Kernel and copy are
replayed in turns, so that a drifting clock meets both; the figures are medians.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from zoo.benchmark.arguments import Described, check_call, describe_arguments
from zoo.benchmark.graphs import FEW_ROUNDS, ROUNDS, Replay, Timed, TorchReplay, how_many_sets, in_turns, microseconds_of, repeated
from zoo.benchmark.groups import Groups
from zoo.benchmark.product import Product, product_of
from zoo.benchmark.rivals import Rival, Unavailable, replayed, torch_with_gpu
from zoo.catalog import Zoo
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.runtime import driver
from zoo.runtime.arrays import ptr
from zoo.runtime.device_array import DeviceArray, empty
from zoo.runtime.streams import stream

if TYPE_CHECKING:
    from zoo.emulator.plan import EmulatedPlan
    from zoo.runtime.plan import Plan

_ROW = 256  # arrays start at multiples of this


@dataclass(frozen=True)
class Measurement:
    variant: str
    microseconds: float
    bytes: int  # read and written, each byte once
    copy_microseconds: float  # cuMemcpyDtoDAsync of the same number of bytes
    torch_microseconds: float | None  # torch's copy_, where torch is installed
    past_cache: bool  # whether the buffers exceed the L2 cache as they should
    operations: int = 0  # of a product: multiplications and additions
    rivals: Mapping[str, float | str] = field(default_factory=dict)  # microseconds of other libraries' products, or why there are none

    @property
    def gigabytes_per_second(self) -> float:
        return self.bytes / self.microseconds / 1e3

    @property
    def teraflops(self) -> float:
        return self.operations / self.microseconds / 1e6

    @property
    def tensor_wise(self) -> float | None:
        """Microseconds of torch's FP8 product of the same sizes with one scale for each matrix."""
        time = self.rivals.get("torch tensor-wise")
        return time if isinstance(time, float) else None

    @property
    def of_copy(self) -> float:
        """The share of the copy's bandwidth; of the faster copy where there are two."""
        return min(self.copy_microseconds, self.torch_microseconds or self.copy_microseconds) / self.microseconds


@dataclass(frozen=True)
class Brief:
    """Measures fewer rounds of fewer long calls, no copies by torch, and each job of another library once for all kernels."""

    times: dict[tuple[str, Product], float | str] = field(default_factory=dict)  # of a library's name and job


def measure(
    zoo: Zoo,
    name: str,
    sizes: Mapping[str, int],
    settings: Mapping[str, str],
    variant: str | None = None,
    device: int = 0,
    groups: Groups | None = None,
    rivals: Mapping[str, Rival] = MappingProxyType({}),
    brief: Brief | None = None,
) -> Measurement:
    """`brief`: in a fraction of the time, within some percent."""
    kernel = zoo.kernel(name)
    check_call(kernel, sizes, settings, variant, groups)
    arrays, keywords = describe_arguments(kernel, sizes, settings, groups)
    opened = driver.device(device)
    moved = sum(array.bytes for array in arrays.values())
    with opened.current():
        cache, own = cache_bytes(opened), stream(device).handle
        operands = RotatingOperands(arrays, keywords, device, cache)
        sets = operands.sets
        plans = operands.plans(zoo, name, variant, own)
        half = _half(moved)
        copied = empty((sets * 2 * _round_up(half),), "u8", device)
        driver.check(driver.bindings().cuMemsetD8(copied.address, 0, copied.nbytes), "clearing memory")
        driver.check(driver.bindings().cuCtxSynchronize(), "waiting for the device")  # own is not ordered after the null stream
        replays: dict[str, Timed] = {
            what: Replay(repeated(calls, microseconds_of(calls[0], own) if brief else 0), own)
            for what, calls in (("kernel", plans), ("copy", _copies(copied, half, sets)))
        }
        if not brief and (torch := _torch_or_none()) is not None:
            replays["torch"] = _torch_copies(torch, half, sets, device)
        product, beside = product_of(kernel, arrays), dict[str, float | str]()
        for what, rival in rivals.items():
            if product is None:
                break
            if brief and (key := (what, rival.job(product))) in brief.times:
                beside[what] = brief.times[key]
                continue
            try:
                replays[what] = replayed(rival.make, product, device, cache)
            except Unavailable as reason:
                beside[what] = str(reason)
        times = in_turns(replays, FEW_ROUNDS if brief else ROUNDS)
        for replay in replays.values():
            replay.close()
        found = {what: beside.get(what) or times[what] for what in rivals if product}
        if brief and product:
            brief.times.update({(what, rivals[what].job(product)): said for what, said in found.items()})
    return Measurement(
        variant=plans[0].launch.variant.name,
        microseconds=times["kernel"],
        bytes=moved,
        copy_microseconds=times["copy"],
        torch_microseconds=times.get("torch"),
        past_cache=operands.memory.nbytes > cache,
        operations=product.operations if product else 0,
        rivals=found,
    )


class RotatingOperands:
    """The arguments of a call in several sets of buffers, which calls take in turn. The device's context must be current."""

    def __init__(self, arrays: Mapping[str, Described], keywords: Mapping[str, str | int | float], device: int, cache: int):
        self.arrays, self.keywords, self.device = arrays, keywords, device
        self.one_set = sum(_round_up(array.bytes) for array in arrays.values())
        self.sets = how_many_sets(self.one_set, cache)
        self.memory = empty((self.sets * self.one_set,), "u8", device)
        _fill(self.memory, arrays, self.sets)

    def plans(self, zoo: Zoo, name: str, variant: str | None, own: int) -> list[Plan | EmulatedPlan]:
        """A plan for each set, loaded without disturbing a capture of the stream `own`."""
        plans = []
        for index in range(self.sets):
            address, arguments = self.memory.address + index * self.one_set, {}
            for argument, array in self.arrays.items():
                arguments[argument] = ptr(address, array.shape, array.dtype, array.strides, device=self.device)
                address += _round_up(array.bytes)
            plans.append(zoo.prepare(name, stream=own, variant=variant, **arguments, **self.keywords))
        return plans


def _half(moved: int) -> int:
    """How much to copy, for a copy of n bytes moves 2 n: down to a multiple of 256, since copies of odd sizes are slow."""
    return max(moved // 2 // _ROW * _ROW, 1)


def _round_up(size: int) -> int:
    return -(-size // _ROW) * _ROW


def cache_bytes(device: driver.Device) -> int:
    cuda = driver.bindings()
    which = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    return int(driver.check(cuda.cuDeviceGetAttribute(which, device.handle), "asking for the cache's size"))


def _fill(memory: DeviceArray, arrays: Mapping[str, Described], sets: int) -> None:
    """Every set: what arrays must hold; random numbers in all others that are read."""
    cuda = driver.bindings()
    driver.check(cuda.cuMemsetD8(memory.address, 0, memory.nbytes), "clearing memory")
    one_set, address = memory.nbytes // sets, memory.address
    for array in arrays.values():
        if array.content is not None:
            content = numpy.ascontiguousarray(array.content)
            driver.check(cuda.cuMemcpyHtoD(address, content.ctypes.data, content.nbytes), "copying to the device")
        elif not array.written and array.bytes and array.dtype in _RANDOM:
            _fill_one(address, array)
        address += _round_up(array.bytes)
    for index in range(1, sets):
        driver.check(cuda.cuMemcpyDtoD(memory.address + index * one_set, memory.address, one_set), "copying on the device")


def _normal(random: numpy.random.Generator, count: int) -> NDArray[Any]:
    return random.standard_normal(count, numpy.float32)


_RANDOM: dict[str, Callable[[numpy.random.Generator, int], NDArray[Any]]] = {
    **dict.fromkeys(("bf16", "f16", "f32", "e4m3", "e5m2"), _normal),
    "e2m1x2": lambda random, count: random.integers(0, 256, count, numpy.uint8),
    "ue8m0": lambda random, count: random.integers(120, 128, count, numpy.uint8),
    "u8": lambda random, count: random.integers(0, 256, count, numpy.uint8) & 0x77,  # packed weights: codes, and scales that are numbers
}


def _fill_one(address: int, array: Described) -> None:
    """A few million numbers from the host, then doubled on the device."""
    cuda = driver.bindings()
    kind = numpy_dtype(array.dtype)
    numbers = _random_numbers(array.dtype)[: array.bytes // kind.itemsize]
    driver.check(cuda.cuMemcpyHtoD(address, numbers.ctypes.data, numbers.nbytes), "copying to the device")
    done = numbers.nbytes
    while done < array.bytes:
        step = min(done, array.bytes - done)
        driver.check(cuda.cuMemcpyDtoD(address + done, address, step), "copying on the device")
        done += step


@cache
def _random_numbers(dtype: str) -> NDArray[Any]:
    numbers, kind = _RANDOM[dtype](numpy.random.default_rng(0), 2**22), numpy_dtype(dtype)
    return numbers.astype(kind) if numbers.dtype == numpy.float32 else numbers.view(kind)


def _copies(memory: DeviceArray, half: int, sets: int) -> list[Callable[[int], None]]:
    """Copies from the first half of each set to its second, `half` bytes each."""
    cuda = driver.bindings()
    step = memory.nbytes // sets

    def copy(start: int) -> Callable[[int], None]:
        def enqueue(own: int) -> None:
            driver.check(cuda.cuMemcpyDtoDAsync(start + step // 2, start, half, own), "copying on the device")

        return enqueue

    return [copy(memory.address + index * step) for index in range(sets)]


def _torch_copies(torch: Any, half: int, sets: int, device: int) -> TorchReplay:
    """torch's copy_ of `half` bytes."""
    pairs = [[torch.zeros(half, dtype=torch.uint8, device=f"cuda:{device}") for _ in range(2)] for _ in range(sets)]
    return TorchReplay(torch, [partial(target.copy_, source) for source, target in pairs], device)


def _torch_or_none() -> Any:
    try:
        return torch_with_gpu()
    except Unavailable:
        return None

"""Any framework's array, described for the resolver.

A *reader* takes an object to (address, signature): the signature is hashable and holds all that matters beside the
address, so that a repeated call is recognised by it. A *describer* turns both into a `resolve.Array`. Frameworks are
found by the argument's own type; none is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from zoo.contract.dtypes import DTYPES
from zoo.contract.resolve import HOST, Array
from zoo.contract.whole_numbers import whole, whole_tuple
from zoo.errors import ArgumentError
from zoo.runtime import driver, streams
from zoo.runtime.dlpack import read_dlpack

_BY_NUMPY_NAME = {dtype.numpy: dtype.name for dtype in DTYPES.values() if dtype.name != "e2m1x2"}
_BY_TYPESTR = {"<f2": "f16", "<f4": "f32", "|u1": "u8", "<i4": "i32", "<i8": "i64", "|V1": "u8"}


@dataclass(frozen=True)
class Kind:
    """One kind of array. `stream_source` of a signature is the function that gives the stream its owner works on now,
    always the same one for the same owner and device, or None where there is nothing to ask. A `binding` owner orders
    the data by itself, so that two different streams of such are a conflict."""

    read: Callable[[object], tuple[int, tuple]]
    describe: Callable[[int, tuple], Array]
    stream_source: Callable[[tuple], Callable[[], int] | None]
    binding: bool = False


@dataclass(frozen=True)
class Pointer:
    """Raw device memory with its meaning. Strides are in elements."""

    address: int
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    device: int


def ptr(address: int, shape, dtype: str, strides=None, device: int | None = None) -> Pointer:
    """Describes raw device memory. `strides` in elements (contiguous if left out); `device` is asked of the driver if left out."""
    if dtype not in DTYPES:
        raise ArgumentError(f"ptr: unknown dtype '{dtype}'; zoo knows {', '.join(DTYPES)}")
    address = whole(address, "ptr: address", 0, 2**64 - 1)
    shape = whole_tuple(shape, "ptr: shape")
    strides = contiguous_strides(shape) if strides is None else whole_tuple(strides, "ptr: strides", -(2**63))
    if len(strides) != len(shape):
        raise ArgumentError(f"ptr: {len(shape)} extents but {len(strides)} strides")
    if device is None:
        device = driver.device_of(address) if address else 0
    device = whole(device, "ptr: device", HOST, 2**31)
    return Pointer(address, shape, dtype, strides, device)


@dataclass(frozen=True)
class View:
    """Another framework's array with another dtype of the same size."""

    base: object
    dtype: str


def view(array: object, dtype: str) -> View:
    """The same memory read as `dtype`, for frameworks that have no such type: `zoo.view(uint8_array, "e5m2")`."""
    if dtype not in DTYPES:
        raise ArgumentError(f"view: unknown dtype '{dtype}'; zoo knows {', '.join(DTYPES)}")
    if isinstance(array, View):
        array = array.base
    kind = kind_of(array)
    if kind is None:
        raise ArgumentError(f"view: a {type(array).__name__} is no array")
    found = kind.describe(*kind.read(array)).dtype
    size = DTYPES[found].bytes if found in DTYPES else _size_of_unknown(found)
    if size not in (None, DTYPES[dtype].bytes):
        raise ArgumentError(f"view: an element of {found} has {size} bytes, one of {dtype} {DTYPES[dtype].bytes}")
    return View(array, dtype)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


# torch
def _read_torch(tensor) -> tuple[int, tuple]:
    return tensor.data_ptr(), (tensor.dtype, tensor.shape, tensor.stride(), tensor.get_device())


def _describe_torch(address: int, signature: tuple) -> Array:
    dtype, shape, strides, device = signature
    names = {getattr(sys.modules["torch"], known.torch, None): known.name for known in DTYPES.values()}
    return Array(address, names.get(dtype, str(dtype)), tuple(shape), tuple(strides), device)


# CuPy
def _read_cupy(array) -> tuple[int, tuple]:
    data = array.data
    return data.ptr, (array.dtype, array.shape, array.strides, data.device_id)


def _describe_cupy(address: int, signature: tuple) -> Array:
    dtype, shape, strides, device = signature
    return Array(address, _BY_NUMPY_NAME.get(dtype.name, dtype.name), shape, _elements(strides, dtype.itemsize), device)


# JAX: asynchronous and immutable. The host waits until the array exists; a kernel may not write it.
def _read_jax(array) -> tuple[int, tuple]:
    array.block_until_ready()
    if len(array.devices()) != 1:
        raise ArgumentError(f"a JAX array over {len(array.devices())} devices; pass one shard of it at a time")
    (device,) = array.devices()
    ordinal = device.local_hardware_id if device.platform in ("gpu", "cuda") else HOST
    return array.unsafe_buffer_pointer(), ("jax", array.dtype.name, array.shape, ordinal)


def _describe_jax(address: int, signature: tuple) -> Array:
    _, name, shape, device = signature
    return Array(address, _BY_NUMPY_NAME.get(name, name), shape, contiguous_strides(shape), device, readonly=True)


# __cuda_array_interface__: numba and others
def _read_interface(array) -> tuple[int, tuple]:
    try:
        interface = array.__cuda_array_interface__
        address, readonly = interface["data"]
        typestr, shape, strides = interface["typestr"], tuple(interface["shape"]), interface.get("strides")
        strides = None if strides is None else tuple(strides)
    except (TypeError, ValueError, KeyError) as error:
        raise ArgumentError(f"the __cuda_array_interface__ of a {type(array).__name__} is malformed: {error!r}") from None
    device = driver.device_of(address) if address else 0
    return address, (typestr, shape, strides, device, readonly, interface.get("stream"))


def _describe_interface(address: int, signature: tuple) -> Array:
    typestr, shape, strides, device, readonly, _ = signature
    elements = contiguous_strides(shape) if strides is None else _elements(strides, int(typestr[2:]))
    return Array(address, _BY_TYPESTR.get(typestr, typestr), shape, elements, device, readonly)


# host arrays, only to say so
def _read_numpy(array) -> tuple[int, tuple]:
    return 0, ("numpy", array.dtype.name, array.shape)


def _describe_numpy(address: int, signature: tuple) -> Array:
    _, name, shape = signature
    return Array(address, _BY_NUMPY_NAME.get(name, name), shape, contiguous_strides(shape), HOST)


# zoo's own
def _read_pointer(pointer: Pointer) -> tuple[int, tuple]:
    return pointer.address, ("pointer", pointer.dtype, pointer.shape, pointer.strides, pointer.device)


def _read_device_array(array) -> tuple[int, tuple]:
    return array.address, ("device array", array.dtype, array.shape, array.strides, array.device)


def _describe_own(address: int, signature: tuple) -> Array:
    _, dtype, shape, strides, device = signature
    return Array(address, dtype, shape, strides, device)


def _describe_dlpack(address: int, signature: tuple) -> Array:
    code, shape, strides, device, readonly = signature
    names = {known.dlpack: known.name for known in DTYPES.values()}
    strides = contiguous_strides(shape) if strides is None else strides
    return Array(address, names.get(code, f"DLPack type {code}"), shape, strides, device, readonly)


def _read_view(viewed: View) -> tuple[int, tuple]:
    kind = kind_of(viewed.base)
    address, signature = kind.read(viewed.base)
    return address, (viewed.dtype, kind, signature)


def _describe_view(address: int, signature: tuple) -> Array:
    dtype, kind, inner = signature
    array = kind.describe(address, inner)
    return Array(address, dtype, array.shape, array.strides, array.device, array.readonly)


def _size_of_unknown(name: str) -> int | None:
    """The bytes of a dtype that zoo has no name for, from the digits in its own ('torch.uint16', '<V2')."""
    digits = "".join(character for character in name if character.isdigit())
    if not digits:
        return None
    return int(digits) if name[:1] in "<>|=" else int(digits) // 8


def _elements(strides_in_bytes, itemsize: int) -> tuple[int, ...]:
    if any(stride % itemsize for stride in strides_in_bytes):
        raise ArgumentError(f"strides of {strides_in_bytes} bytes are no multiples of the element's {itemsize}")
    return tuple(stride // itemsize for stride in strides_in_bytes)


def _no_stream(signature: tuple) -> None:
    return None


def _of_device(source: Callable[[int], Callable[[], int]], place: int) -> Callable[[tuple], Callable[[], int] | None]:
    """The source of the device that stands at `place` of a signature."""
    return lambda signature: None if signature[place] == HOST else source(signature[place])


@cache
def _named_stream(handle: int | None) -> Callable[[], int] | None:
    if handle == 1:  # the protocol's number for the legacy default stream, which the driver and torch call 0
        handle = 0
    return None if handle is None else lambda: handle


TORCH = Kind(_read_torch, _describe_torch, _of_device(streams.of_torch, 3), binding=True)
_CUPY = Kind(_read_cupy, _describe_cupy, _of_device(streams.of_cupy, 3), binding=True)
_INTERFACE = Kind(_read_interface, _describe_interface, lambda signature: _named_stream(signature[5]), binding=True)
_JAX = Kind(_read_jax, _describe_jax, _of_device(streams.of_zoo, 3))
_DEVICE_ARRAY = Kind(_read_device_array, _describe_own, _of_device(streams.of_zoo, 4), binding=True)
_POINTER = Kind(_read_pointer, _describe_own, _no_stream)
_DLPACK = Kind(read_dlpack, _describe_dlpack, _no_stream)
_NUMPY = Kind(_read_numpy, _describe_numpy, _no_stream)

# Found so far, by type; None for what is no array.
_kinds: dict[type, Kind | None] = {Pointer: _POINTER, int: None, float: None, str: None, type(None): None}


def kind_of(value: object) -> Kind | None:
    """The kind of an array argument; None for what is no array (numbers, options)."""
    cls = type(value)
    if cls in _kinds:
        return _kinds[cls]
    kind = _find_kind(value)
    if cls is not View:  # a view's kind is that of its base
        _kinds[cls] = kind
    return kind


@cache
def _kind_of_views(base: Kind) -> Kind:
    return Kind(_read_view, _describe_view, lambda signature: base.stream_source(signature[2]), base.binding)


def _find_kind(value: object) -> Kind | None:
    from zoo.runtime.device_array import DeviceArray

    if isinstance(value, type):  # a class has its instances' attributes
        return None
    if isinstance(value, View):
        return _kind_of_views(kind_of(value.base))
    if isinstance(value, DeviceArray):
        return _DEVICE_ARRAY
    if isinstance(value, Pointer):  # an emulated device's
        return _POINTER
    module = type(value).__module__.partition(".")[0]
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return TORCH
    if module == "cupy":
        return _CUPY
    if module in ("jax", "jaxlib") and hasattr(value, "unsafe_buffer_pointer"):
        return _JAX
    if module == "numpy":
        return _NUMPY if isinstance(value, sys.modules["numpy"].ndarray) else None
    if hasattr(value, "__cuda_array_interface__"):
        return _INTERFACE
    if hasattr(value, "__dlpack__"):
        return _DLPACK
    return None

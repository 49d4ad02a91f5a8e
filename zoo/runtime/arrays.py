"""The arguments of a call: any framework's arrays, described for the resolver, and the numbers and options beside them.

A *reader* takes an array to (address, signature): the signature is hashable and holds all that matters beside the
address. `read` strings the signatures of a call together to its *form*, by which a repeated call is recognised. A
*describer* turns an address and a signature into a `zoo.contract.array.Array`. Frameworks are found by the argument's
own type; none is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any

from zoo.contract.array import HIGHEST_ADDRESS, HOST, Array, Pointer, View, contiguous_strides
from zoo.contract.dtypes import DTYPES
from zoo.contract.manifest import Kernel
from zoo.contract.numpy_dtypes import called, dtype_name
from zoo.contract.own_array import OwnArray
from zoo.contract.whole_numbers import shown, whole, whole_tuple
from zoo.errors import ArgumentError, ZooError
from zoo.runtime import driver, streams
from zoo.runtime.dlpack import read_dlpack

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_LATEST_INTERFACE = 3  # of the versions of __cuda_array_interface__
_BY_TYPESTR = {"<f2": "f16", "<f4": "f32", "|u1": "u8", "<i4": "i32", "<i8": "i64", "|V1": "u8"}

Signature = tuple[Any, ...]
StreamSource = Callable[[], int | None]


def _no_stream(signature: Signature) -> None:
    return None


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of array. `stream_source` of a signature is the function that gives the stream its owner works on now,
    always the same one for the same owner and device, or None where there is nothing to ask. A `binding` owner orders
    the data by itself, so that two different streams of such are a conflict."""

    read: Callable[[Any], tuple[int, Signature]]
    describe: Callable[[int, Any], Array]
    stream_source: Callable[[Any], StreamSource | None] = _no_stream
    binding: bool = False


# The call as a whole


def read(arguments: Mapping[str, object], variant: str | None = None, limit: int | None = None) -> tuple[list[Any], list[int]]:
    """The form of a call and the addresses of its arrays. The form is the pinned variant, with the limit of multiprocessors if there is
    one, and then of each array its name, kind and signature, of anything else its name, type and value; torch's signatures lie flat in it, which makes comparing forms cheaper.
    Calls of one form differ in addresses alone."""
    form: list[Any] = [variant if limit is None else (variant, limit)]
    addresses: list[int] = []
    try:
        for name, value in arguments.items():
            cls = type(value)
            try:
                kind = _kinds[cls]
            except KeyError:
                kind = kind_of(value)
            if kind is TORCH:  # `_read_torch`, written out: calling it for three arrays would cost a twentieth of the whole launch
                tensor: Any = value
                strides = tensor.is_contiguous() or _torch_strides(tensor)
                form += (name, kind, tensor.dtype, tensor.shape, strides, tensor.get_device())
                addresses.append(tensor.data_ptr())
            elif kind is not None:
                address, signature = kind.read(value)
                form += (name, kind, signature)
                addresses.append(address)
            elif cls is int or cls is str:
                form += (name, cls, value)
            else:
                number = plain_number(value)
                # Equal must mean the same bits: -0.0 is not 0.0, a NaN is itself, and 1 is not 1.0.
                form += (name, type(number), number.hex() if isinstance(number, float) else number)
    except ArgumentError as error:
        raise ArgumentError(f"{name}: {error}") from None
    except ZooError:
        raise
    except Exception as error:  # sparse, nested, of vmap or grad: each kind of tensor refuses in its own way
        raise ArgumentError(f"{name}: a {type(arguments[name]).__name__} that cannot be read: {shown(error)}") from None
    return form, addresses


def plain(part: Any) -> Any:
    """A part of a form as it is remembered. Extents and texts become Python's own: of another class, they could call themselves equal to
    those of any later call."""
    cls = type(part)
    if cls is tuple:
        return tuple(map(plain, part))
    if cls is int or cls is str or cls is bool:
        return part
    if isinstance(part, str):
        return str.__str__(part)
    return index(part) if hasattr(cls, "__index__") else part


def plain_number(value: object) -> object:
    """numpy's numbers become Python's, and so do those of other subclasses of Python's."""
    cls: Any = type(value)
    if cls is bool:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return index(value)
    return value.item() if cls.__module__ == "numpy" and hasattr(value, "item") else value


class Call:
    """The arguments of one call: `values` is what `resolve` takes, `arrays` the (kind, signature) of the arrays, in the
    caller's order."""

    def __init__(self, arguments: Mapping[str, object], form: list[Any], addresses: list[int]):
        self.arrays: dict[str, tuple[Kind, Signature]] = {}
        self.values: dict[str, Any] = {}
        places = iter(addresses)
        parts = iter(form[1:])
        for name, kind in zip(parts, parts, strict=True):
            signature = tuple(islice(parts, 4)) if kind is TORCH else next(parts)
            if isinstance(kind, Kind):
                self.arrays[name] = (kind, signature)
                try:
                    if kind is TORCH:
                        _refuse_negated(arguments[name])
                    self.values[name] = kind.describe(next(places), signature)
                except ArgumentError as error:
                    raise ArgumentError(f"{name}: {error}") from None
                except ZooError:
                    raise
                except Exception as error:
                    raise ArgumentError(f"{name}: a {type(arguments[name]).__name__} that cannot be read: {shown(error)}") from None
            else:
                self.values[name] = plain_number(arguments[name])

    @classmethod
    def read(cls, arguments: Mapping[str, object]) -> Call:
        return cls(arguments, *read(arguments))

    @property
    def device(self) -> Any:
        """The device of the first array that has one, the driver's or an emulated one; resolving finds any disagreement."""
        devices = (value.device for value in self.values.values() if isinstance(value, Array))
        found = next((device for device in devices if device != HOST), 0)
        return driver.device(found) if isinstance(found, int) else found

    def check_kinds(self, kernel: Kernel) -> None:
        """Arrays where the kernel takes arrays, and nothing else there."""
        for name, value in self.values.items():
            argument = kernel.arguments.get(name)
            if argument is None or value is None:
                continue
            if (argument.kind == "array") != (name in self.arrays):
                got = "an array" if name in self.arrays else type(value).__name__
                wanted = "an array in device memory" if argument.kind == "array" else f"a number ({argument.dtypes[0]})"
                raise ArgumentError(f"{kernel.name}: {name}: expected {wanted}, got {got}")

    def stream_source(self) -> StreamSource:
        """What gives the stream that the owners of the arrays work on now, each time anew; None if none of them has one."""
        binding: dict[StreamSource, str] = {}
        others: dict[StreamSource, str] = {}
        for name, (kind, signature) in self.arrays.items():
            while kind is VIEW:  # the owner of what it shows
                _, kind, signature = signature
            source = kind.stream_source(signature)
            if source is not None:
                (binding if kind.binding else others).setdefault(source, name)
        return streams.agreeing(binding or others) if len(binding) > 1 else next(iter(binding or others), streams.none)


# Arrays that are described by the caller


def ptr(
    address: int, shape: tuple[int, ...], dtype: str | DTypeLike, strides: tuple[int, ...] | None = None, device: int | None = None
) -> Pointer:
    """Describes raw device memory. `strides` in elements (contiguous if left out); `device` is asked of the driver if left out."""
    dtype = dtype_name(dtype, "ptr")
    address = whole(address, "ptr: address", largest=HIGHEST_ADDRESS)
    shape = whole_tuple(shape, "ptr: shape")
    strides = contiguous_strides(shape) if strides is None else whole_tuple(strides, "ptr: strides", -(2**63))
    if len(strides) != len(shape):
        raise ArgumentError(f"ptr: {len(shape)} extents but {len(strides)} strides")
    if device is None:
        device = driver.device_of(address) if address else 0
    device = whole(device, "ptr: device", HOST, 2**31)
    return Pointer(address, shape, dtype, strides, device)


def view(array: object, dtype: str | DTypeLike) -> View:
    """The same memory read as `dtype`, for frameworks that have no such type: `zoo.view(uint8_array, "e5m2")`."""
    dtype = dtype_name(dtype, "view")
    if isinstance(array, View):
        array = array.base
    kind = kind_of(array)
    if kind is None:
        raise ArgumentError(f"view: a {type(array).__name__} is no array")
    try:
        found = kind.describe(*kind.read(array)).dtype
    except ZooError:
        raise
    except Exception as error:
        raise ArgumentError(f"view: a {type(array).__name__} cannot be read: {shown(error)}") from None
    bits = 8 * DTYPES[found].bytes if found in DTYPES else _bits_of_unknown(found)
    if bits is None:
        raise ArgumentError(f"view: nothing is known of the size of {found}, so it cannot be taken for {dtype}")
    if bits != 8 * DTYPES[dtype].bytes:
        size = f"{bits // 8} bytes" if bits % 8 == 0 else f"{bits} bits"
        raise ArgumentError(f"view: an element of {found} has {size}, one of {dtype} {DTYPES[dtype].bytes}")
    return View(array, dtype)


def _bits_of_unknown(name: str) -> int | None:
    """Of a dtype that zoo has no name for, by its own: 'torch.uint16', 'float8_e4m3b11fnuz', '<V2', 'DLPack type (1, 16, 1)'."""
    if name.startswith("DLPack type"):
        _, bits, lanes = map(int, re.findall("[0-9]+", name))
        return bits * lanes
    number = re.search("[0-9]+", name)
    if number is None:
        return 8 if name in ("bool", "torch.bool") else None
    return int(number[0]) * (8 if name[0] in "<|" else 1)


# The kinds, each as a reader and a describer


# torch. A contiguous tensor's strides are not asked for: the answer is cheaper, and so is comparing it.
def _refuse_negated(tensor: Any) -> None:
    if tensor.is_neg():
        raise ArgumentError("the tensor is negated only when it is read; pass x.resolve_neg()")


def _torch_strides(tensor: Any) -> Any:
    """Of one that is not contiguous. What torch's operations leave negated is a part of complex numbers, hence strided; a contiguous one
    is asked where its form is new alone, which spares each call of a GEMM a fiftieth."""
    _refuse_negated(tensor)
    return tensor.stride()


def _read_torch(tensor: Any) -> tuple[int, Signature]:
    _refuse_negated(tensor)
    strides = tensor.is_contiguous() or tensor.stride()
    return tensor.data_ptr(), (tensor.dtype, tensor.shape, strides, tensor.get_device())


def _describe_torch(address: int, signature: Signature) -> Array:
    dtype, shape, strides, device = signature
    names: dict[Any, str] = {getattr(sys.modules["torch"], known.torch, None): known.name for known in DTYPES.values()}
    name = names.get(dtype, str(dtype))
    if name.startswith(("torch.complex", "torch.q")):  # what torch may owe such numbers: a conjugation, a scale
        raise ArgumentError(f"{name} is more than the numbers in memory; pass torch.view_as_real(x) or x.int_repr(), which are those")
    if address == 0 and 0 not in shape:
        raise ArgumentError("a torch tensor without memory (a meta or fake tensor, a wrapper, or one whose storage was freed)")
    strides = contiguous_strides(shape) if strides is True else tuple(strides)
    return Array(address, name, tuple(shape), strides, device)


# torch's subclasses. One that says itself where it lies is believed, but what it says must be what a tensor could say; what it does
# to torch's functions is left out.
def _read_torch_subclass(tensor: Any) -> tuple[int, Signature]:
    torch: Any = sys.modules["torch"]
    name = type(tensor).__name__
    try:
        with torch._C.DisableTorchFunctionSubclass():
            if tensor.is_neg():
                raise ArgumentError(f"the {name} is negated only when it is read; pass x.resolve_neg()")
            strides = tensor.is_contiguous() is True or whole_tuple(tensor.stride(), f"the strides of a {name}")
            shape = whole_tuple(tensor.shape, f"the shape of a {name}")
            device = whole(tensor.get_device(), f"the device of a {name}", HOST)
            address = whole(tensor.data_ptr(), f"the address of a {name}", largest=HIGHEST_ADDRESS)
            dtype = tensor.dtype
    except ArgumentError:
        raise
    except Exception as error:
        raise ArgumentError(f"a {name} has no memory that a kernel could read: {shown(error)}") from None
    if strides is not True and len(strides) != len(shape):
        raise ArgumentError(f"a {name} has {len(shape)} extents but {len(strides)} strides")
    if type(dtype) is not type(torch.bfloat16):
        raise ArgumentError(f"the dtype of a {name}: expected one of torch's, got {shown(dtype)}")
    return address, (dtype, shape, strides, device)


def _possible(address: Any, array: object) -> int:
    """The address that an array says, which is asked of each call: what is remembered of a form holds for others too."""
    if type(address) is int and 0 <= address <= HIGHEST_ADDRESS:
        return address
    return whole(address, f"the address of a {type(array).__name__}", largest=HIGHEST_ADDRESS)


# CuPy
def _read_cupy(array: Any) -> tuple[int, Signature]:
    try:
        data = array.data
        return _possible(data.ptr, array), (array.dtype, array.shape, array.strides, data.device_id)
    except ArgumentError:
        raise
    except Exception as error:  # something of CuPy's that is no array
        raise ArgumentError(f"a {type(array).__name__} of CuPy's that cannot be read as an array: {shown(error)}") from None


def _describe_cupy(address: int, signature: Signature) -> Array:
    dtype, shape, strides, device = signature
    name = called(dtype.name) if dtype.byteorder in "=|" else dtype.str
    shape, device = whole_tuple(shape, "the shape of CuPy's"), whole(device, "the device of CuPy's", 0, 2**31)
    return Array(address, name, shape, _elements(shape, strides, dtype.itemsize), device)


# JAX: asynchronous and immutable. The host waits until the array exists; a kernel may not write it.
def _read_jax(array: Any) -> tuple[int, Signature]:
    try:
        array.block_until_ready()
        if len(array.devices()) != 1:
            raise ArgumentError(f"a JAX array over {len(array.devices())} devices; pass one shard of it at a time")
        (device,) = array.devices()
        ordinal = device.local_hardware_id if device.platform in ("gpu", "cuda") else HOST
        axes = array.format.layout.major_to_minor if hasattr(array, "format") else None  # older versions of JAX do not say
        return _possible(array.unsafe_buffer_pointer(), array), ("jax", array.dtype.name, array.shape, ordinal, axes)
    except ArgumentError:
        raise
    except Exception as error:  # deleted, or given to another computation
        raise ArgumentError(f"a JAX array that cannot be read: {shown(error)}") from None


def _describe_jax(address: int, signature: Signature) -> Array:
    _, name, shape, device, axes = signature
    shape, device = whole_tuple(shape, "the shape of JAX's"), whole(device, "the device of JAX's", HOST, 2**31)
    axes = tuple(range(len(shape))) if axes is None else whole_tuple(axes, "the layout of JAX's")
    if sorted(axes) != list(range(len(shape))):
        raise ArgumentError(f"a JAX array {shape} whose layout has the axes {axes}")
    in_memory = contiguous_strides(tuple(shape[axis] for axis in axes))  # the outermost first
    strides = tuple(in_memory[axes.index(axis)] for axis in range(len(shape)))
    return Array(address, called(name), shape, strides, device, readonly=True)


# __cuda_array_interface__: numba and others. What does not cost a repeated call is checked of each, the rest of each form.
def _read_interface(array: Any) -> tuple[int, Signature]:
    try:
        interface = array.__cuda_array_interface__
        address, readonly = interface["data"]
        shape, strides = interface["shape"], interface.get("strides")
        shape = shape if type(shape) is tuple else _limited(shape)
        strides = strides if strides is None or type(strides) is tuple else _limited(strides)
        more = (interface.get("stream"), interface.get("mask"), interface.get("version"))
        typestr = interface["typestr"]
    except Exception as error:
        raise ArgumentError(f"the __cuda_array_interface__ of a {type(array).__name__} is malformed: {shown(error)}") from None
    address = whole(address, f"the address of a {type(array).__name__}", largest=HIGHEST_ADDRESS)
    device = driver.device_of(address) if address else 0
    return address, (typestr, shape, strides, device, readonly, *more)


def _limited(given: Any) -> tuple[Any, ...]:
    """A list for a tuple is forgiven; what has no length may have no end."""
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"{shown(given)} is no tuple")
    return tuple(given)


def _describe_interface(address: int, signature: Signature) -> Array:
    typestr, shape, strides, device, readonly, stream, mask, version = signature
    what = "the __cuda_array_interface__'s"
    if not isinstance(typestr, str) or not re.fullmatch("[<>|][a-zA-Z][1-9][0-9]{0,3}", typestr):
        raise ArgumentError(f"{what} typestr: expected one such as '<f4', got {shown(typestr)}")
    if typestr[0] == ">":
        raise ArgumentError(f"{what} typestr: '{typestr}' is in the byte order of other machines; a GPU reads '<{typestr[1:]}'")
    if type(readonly) is not bool:
        raise ArgumentError(f"{what} data: expected (address, whether it is read-only), got {shown(readonly)} for the latter")
    if mask is not None:
        raise ArgumentError(f"{what} mask: a kernel reads every element, so an array of which some do not count is refused")
    if not 0 <= whole(version, f"{what} version") <= _LATEST_INTERFACE:
        raise ArgumentError(f"{what} version: zoo reads those up to {_LATEST_INTERFACE}, got {version}")
    if stream is not None:
        whole(stream, f"{what} stream", 0, 2**64 - 1)
    shape = whole_tuple(shape, f"{what} shape")
    elements = contiguous_strides(shape) if strides is None else _elements(shape, strides, int(typestr[2:]))
    return Array(address, _BY_TYPESTR.get(typestr, typestr), shape, elements, device, readonly)


# host arrays, only to say so
def _read_numpy(array: Any) -> tuple[int, Signature]:
    return 0, ("numpy", array.dtype.name, array.shape)


def _describe_numpy(address: int, signature: Signature) -> Array:
    _, name, shape = signature
    return Array(address, called(name), shape, contiguous_strides(shape), HOST)


# zoo's own
def _read_pointer(pointer: Pointer) -> tuple[int, Signature]:
    return _possible(pointer.address, pointer), ("pointer", pointer.dtype, pointer.shape, pointer.strides, pointer.device)


def _describe_pointer(address: int, signature: Signature) -> Array:
    """One that `ptr` did not make may hold anything."""
    _, dtype, shape, strides, device = signature
    shape, strides = whole_tuple(shape, "ptr: shape"), whole_tuple(strides, "ptr: strides", -(2**63))
    if len(strides) != len(shape):
        raise ArgumentError(f"ptr: {len(shape)} extents but {len(strides)} strides")
    if not hasattr(device, "capability"):  # of an emulated one, itself
        device = whole(device, "ptr: device", HOST, 2**31)
    return Array(address, dtype_name(dtype, "ptr"), shape, strides, device)


def _read_own_array(array: OwnArray) -> tuple[int, Signature]:
    return array.address, ("own array", array.dtype, array.shape, array.strides, array.device)


def _describe_own(address: int, signature: Signature) -> Array:
    _, dtype, shape, strides, device = signature
    return Array(address, dtype, shape, strides, device)


def _describe_dlpack(address: int, signature: Signature) -> Array:
    code, shape, strides, device, readonly, export = signature
    names = {known.dlpack: known.name for known in DTYPES.values()}
    shape = whole_tuple(shape, "the DLPack tensor's shape")
    strides = contiguous_strides(shape) if strides is None else strides
    return Array(address, names.get(code, f"DLPack type {code}"), shape, strides, device, readonly, export.take())


def _read_view(viewed: View) -> tuple[int, Signature]:
    kind = kind_of(viewed.base)
    if kind is None:
        raise ArgumentError(f"view: a {type(viewed.base).__name__} is no array")
    address, signature = kind.read(viewed.base)
    return address, (viewed.dtype, kind, signature)


def _describe_view(address: int, signature: Signature) -> Array:
    dtype, kind, inner = signature
    array: Array = kind.describe(address, inner)
    return replace(array, dtype=dtype)


def _elements(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides_in_bytes = whole_tuple(strides, "strides", -(2**63))
    if len(strides_in_bytes) != len(shape):
        raise ArgumentError(f"{len(shape)} extents but {len(strides_in_bytes)} strides")
    if any(stride % itemsize for stride in strides_in_bytes):
        raise ArgumentError(f"strides of {strides_in_bytes} bytes are no multiples of the element's {itemsize}")
    return tuple(stride // itemsize for stride in strides_in_bytes)


def _of_device(source: Callable[[int], StreamSource], place: int) -> Callable[[Signature], StreamSource | None]:
    """The source of the device that stands at `place` of a signature."""
    return lambda signature: None if signature[place] == HOST else source(signature[place])


@cache
def _named_stream(handle: int | None) -> StreamSource | None:
    if handle == 1:  # the protocol's number for the legacy default stream, which the driver and torch call 0
        handle = 0
    return None if handle is None else lambda: handle


TORCH = Kind(_read_torch, _describe_torch, _of_device(streams.of_torch, 3), binding=True)
_TORCH_SUBCLASS = Kind(_read_torch_subclass, _describe_torch, _of_device(streams.of_torch, 3), binding=True)
VIEW = Kind(_read_view, _describe_view)  # its stream is that of what it shows
_CUPY = Kind(_read_cupy, _describe_cupy, _of_device(streams.of_cupy, 3), binding=True)
_INTERFACE = Kind(_read_interface, _describe_interface, lambda signature: _named_stream(signature[5]), binding=True)
_JAX = Kind(_read_jax, _describe_jax, _of_device(streams.of_zoo, 3))
_POINTER = Kind(_read_pointer, _describe_pointer)
_DLPACK = Kind(read_dlpack, _describe_dlpack)
_NUMPY = Kind(_read_numpy, _describe_numpy)

# By type, where the type alone decides; None for what is no array.
_kinds: dict[type, Kind | None] = {Pointer: _POINTER, View: VIEW, int: None, float: None, str: None, type(None): None}
_PROTOCOLS = {"__cuda_array_interface__": _INTERFACE, "__dlpack__": _DLPACK}


def kind_of(value: object) -> Kind | None:
    """The kind of an array argument; None for what is no array (numbers, options)."""
    cls = type(value)
    try:
        return _kinds[cls]
    except KeyError:
        kind, of_all = _find_kind(value)
        if of_all:
            _kinds[cls] = kind
        return kind


def _own_kind(cls: type[OwnArray]) -> Kind:
    if cls.stream_source is None:
        return Kind(_read_own_array, _describe_own)
    return Kind(_read_own_array, _describe_own, _of_device(cls.stream_source, 4), binding=True)


def _find_kind(value: object) -> tuple[Kind | None, bool]:
    """The kind of a value, and whether all instances of its class have this kind."""
    cls = type(value)  # and never its __class__, which may say what it likes
    if issubclass(cls, type):  # a class has its instances' attributes
        return None, True
    if issubclass(cls, OwnArray):
        return _own_kind(cls), True
    module = str(cls.__module__).partition(".")[0]
    torch: Any = sys.modules.get("torch")
    if torch is not None and issubclass(cls, torch.Tensor):
        plain = (torch.Tensor, getattr(getattr(torch, "nn", None), "Parameter", None))  # which answer for themselves
        return (TORCH if cls in plain else _TORCH_SUBCLASS), True
    if module == "cupy":
        return _CUPY, True
    if module in ("jax", "jaxlib") and _has(value, "unsafe_buffer_pointer"):
        return _JAX, True
    if module == "numpy":
        return (_NUMPY if issubclass(cls, sys.modules["numpy"].ndarray) else None), True
    kind = next((kind for protocol, kind in _PROTOCOLS.items() if _has(value, protocol)), None)
    return kind, _decides(cls, kind)


def _has(value: object, attribute: str) -> bool:
    try:
        return hasattr(value, attribute)
    except Exception:  # it has one that raises, as its reader will say
        return True


def _decides(cls: type, kind: Kind | None) -> bool:
    """Whether a class alone decides which protocol its instances have: none where each may have attributes of its own, and none where a
    property may refuse one instance (an interface without its dtype) that still has the other protocol."""
    defined = [_PROTOCOLS[name] for base in cls.__mro__ for name in vars(base) if name in _PROTOCOLS]
    if kind is not None:
        return {*defined} == {kind}
    return not defined and not cls.__dictoffset__ and not any("__getattr__" in vars(base) for base in cls.__mro__)

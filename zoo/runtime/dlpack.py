"""DLPack without a framework: reading a capsule, and offering a DeviceArray as one. Structures as in dlpack.h 1.x."""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

from zoo.contract.array import HIGHEST_ADDRESS, HOST
from zoo.contract.whole_numbers import MOST_DIMENSIONS, shown, whole
from zoo.errors import ArgumentError

_CUDA, _CUDA_MANAGED = 2, 13
_VERSIONED_READ_ONLY, _VERSIONED_COPIED = 1, 2


class _DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", _DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _DLManagedTensor(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    ]


_api = ctypes.pythonapi
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_New.restype = ctypes.py_object


class Export:
    """What a producer handed out, which may be all that keeps the memory. It is part of a call's form, so it lives until the call is
    enqueued; and as every export equals every other, it makes no difference to the form."""

    __slots__ = ("capsule",)

    def __init__(self, capsule: object):
        self.capsule = capsule

    def __eq__(self, other: object) -> bool:
        return type(other) is Export

    def __hash__(self) -> int:
        return 0

    def take(self) -> object:
        """The capsule, for whoever keeps it from now on: a form that is remembered must not keep the memory of the call it came from."""
        capsule, self.capsule = self.capsule, None
        return capsule


def read_dlpack(array: Any) -> tuple[int, tuple[Any, ...]]:
    """(address, signature) of anything with __dlpack__. The producer is not asked to synchronise: the caller's stream orders."""
    try:
        capsule = array.__dlpack__(stream=-1, max_version=(1, 1), copy=False)
    except Exception as error:
        capsule = _asked_otherwise(array, error)
    readonly = False
    if _api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        versioned = _DLManagedTensorVersioned.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise ArgumentError(f"DLPack {versioned.major}.{versioned.minor} of a {type(array).__name__}; zoo reads 1.x")
        flags = versioned.flags
        if flags & _VERSIONED_COPIED:
            raise ArgumentError(f"a {type(array).__name__} gives out a copy by DLPack, which is not the array; pass the copy itself")
        readonly = bool(flags & _VERSIONED_READ_ONLY)
        tensor = versioned.tensor
    elif _api.PyCapsule_IsValid(capsule, b"dltensor"):
        tensor = _DLManagedTensor.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor")).tensor
    else:
        raise ArgumentError(f"the __dlpack__ of a {type(array).__name__} gives {_named(capsule)}, which is no unused DLPack capsule")
    rank = tensor.ndim
    shape_at, strides_at = tensor.shape, tensor.strides
    possible = 0 <= rank <= MOST_DIMENSIONS
    if not possible or (rank and not shape_at):
        lies = "and no shape" if possible else f"where 0 to {MOST_DIMENSIONS} are possible"
        raise ArgumentError(f"the DLPack capsule of a {type(array).__name__} says {rank} dimensions {lies}")
    shape = tuple(shape_at[:rank])
    strides = tuple(strides_at[:rank]) if strides_at else None
    device = tensor.device.id if tensor.device.type in (_CUDA, _CUDA_MANAGED) else HOST
    dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    # Not consumed: the capsule's own destructor gives the producer its reference back.
    address = whole((tensor.data or 0) + tensor.byte_offset, f"the address of a {type(array).__name__}", largest=HIGHEST_ADDRESS)
    return address, (dtype, shape, strides, device, readonly, Export(capsule))


def _asked_otherwise(array: Any, refused: Exception) -> object:
    """The capsule of a producer that refused to be asked as by DLPack 1.x."""
    older: tuple[dict[str, int], ...] = ({"stream": -1}, {})  # one from before it knows neither versions nor copies
    for keywords in older:
        if isinstance(refused, TypeError):
            try:
                return array.__dlpack__(**keywords)
            except Exception as error:
                refused = error
    try:
        # One in host memory may take no stream. Of one on a device, another answer might be the copy that the first refused.
        if int(array.__dlpack_device__()[0]) not in (_CUDA, _CUDA_MANAGED):
            return array.__dlpack__()
    except Exception:  # each producer refuses in its own way; the first refusal says more
        pass
    raise ArgumentError(f"a {type(array).__name__} does not give itself out by DLPack: {shown(refused)}") from None


def _named(capsule: object) -> str:
    return "a used one" if type(capsule).__name__ == "PyCapsule" else f"a {type(capsule).__name__}"


# Exporting. The structure lies in memory of the C library, for a consumer may call the deleter after Python is gone: from
# then on the deleter is `free` itself.
_libc = ctypes.CDLL(None)
_libc.malloc.restype, _libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [ctypes.c_void_p]
_dying = ctypes.PyDLL(None)
_dying.PyCapsule_IsValid.argtypes = _dying.PyCapsule_GetPointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_dying.PyCapsule_GetPointer.restype = ctypes.c_void_p
_owners: dict[int, object] = {}  # of the structures that are out, by address


def _forget(address: int) -> None:
    if _owners.pop(address, None) is not None:
        _libc.free(address)


_release = _Deleter(_forget)


@atexit.register
def _outlive_python() -> None:
    for address in _owners:
        _DLManagedTensor.from_address(address).deleter = ctypes.cast(_libc.free, _Deleter)


def _forget_unconsumed(capsule: int) -> None:
    # A consumer renames the capsule; one that still has its first name was never taken. The capsule is being destroyed:
    # it is asked by address, for a new reference to it would destroy it again.
    if _dying.PyCapsule_IsValid(capsule, b"dltensor"):
        _forget(_dying.PyCapsule_GetPointer(capsule, b"dltensor"))


_release_unconsumed = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_forget_unconsumed)


def make_capsule(
    owner: object, address: int, dtype: tuple[int, int, int], shape: tuple[int, ...], strides: tuple[int, ...] | None, device: int
) -> object:
    """A DLPack capsule over device memory that keeps `owner` alive. Strides are in elements, None for contiguous memory."""
    size, rank = ctypes.sizeof(_DLManagedTensor), len(shape)
    numbers = ctypes.c_int64 * len((*shape, *(strides or ())))
    where = _libc.malloc(size + ctypes.sizeof(numbers))
    numbers.from_address(where + size)[:] = [*shape, *(strides or ())]
    pointer = ctypes.POINTER(ctypes.c_int64)
    managed = _DLManagedTensor.from_address(where)
    managed.tensor = _DLTensor(
        data=address,
        device=_DLDevice(_CUDA, device),
        ndim=rank,
        dtype=_DLDataType(*dtype),
        shape=ctypes.cast(where + size, pointer),
        strides=None if strides is None else ctypes.cast(where + size + 8 * rank, pointer),
    )
    managed.context, managed.deleter = None, _release
    _owners[where] = owner
    return _api.PyCapsule_New(where, b"dltensor", ctypes.cast(_release_unconsumed, ctypes.c_void_p))

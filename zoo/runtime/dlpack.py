"""DLPack without a framework: reading a capsule, and offering a DeviceArray as one. Structures as in dlpack.h 1.x."""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

from zoo.contract.array import HIGHEST_ADDRESS, HOST
from zoo.contract.whole_numbers import whole
from zoo.errors import ArgumentError

_CUDA, _CUDA_MANAGED, _VERSIONED_READ_ONLY = 2, 13, 1


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


def read_dlpack(array: Any) -> tuple[int, tuple[Any, ...]]:
    """(address, signature) of anything with __dlpack__. The producer is not asked to synchronise: the caller's stream orders."""
    try:
        capsule = array.__dlpack__(stream=-1, max_version=(1, 1))
    except Exception:  # a producer from before DLPack 1.0, or one in host memory, which takes no stream
        try:
            capsule = array.__dlpack__()
        except Exception as error:  # each producer refuses in its own way
            raise ArgumentError(f"a {type(array).__name__} does not give itself out by DLPack: {error}") from None
    readonly = False
    if _api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        versioned = _DLManagedTensorVersioned.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise ArgumentError(f"DLPack {versioned.major}.{versioned.minor} of a {type(array).__name__}; zoo reads 1.x")
        readonly = bool(versioned.flags & _VERSIONED_READ_ONLY)
        tensor = versioned.tensor
    else:
        tensor = _DLManagedTensor.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor")).tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    device = tensor.device.id if tensor.device.type in (_CUDA, _CUDA_MANAGED) else HOST
    dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    # Not consumed: the capsule's own destructor gives the producer its reference back.
    address = whole((tensor.data or 0) + tensor.byte_offset, f"the address of a {type(array).__name__}", 0, HIGHEST_ADDRESS)
    return address, (dtype, shape, strides, device, readonly)


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
    where = _libc.malloc(size + 2 * 8 * rank)
    numbers = (ctypes.c_int64 * (2 * rank)).from_address(where + size)
    numbers[:] = [*shape, *(strides or (0,) * rank)]
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

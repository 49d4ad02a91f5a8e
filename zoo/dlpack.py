"""DLPack without a framework: reading a capsule, and offering a DeviceArray as one. Structures as in dlpack.h 1.x."""

from __future__ import annotations

import ctypes

from zoo.resolve import HOST

_CUDA, _CUDA_MANAGED, _VERSIONED_READ_ONLY = 2, 13, 1


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_api = ctypes.pythonapi
_api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_api.PyCapsule_New.restype = ctypes.py_object


def read_dlpack(array: object) -> tuple[int, tuple]:
    """(address, signature) of anything with __dlpack__. The producer is not asked to synchronise: the caller's stream orders."""
    try:
        capsule = array.__dlpack__(stream=-1, max_version=(1, 1))
    except (TypeError, BufferError):  # a producer from before DLPack 1.0, or one in host memory
        try:
            capsule = array.__dlpack__(stream=-1)
        except (TypeError, BufferError, AssertionError):
            capsule = array.__dlpack__()
    readonly = False
    if _api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        managed = _ManagedVersioned.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))
        readonly = bool(managed.flags & _VERSIONED_READ_ONLY)
    else:
        managed = _Managed.from_address(_api.PyCapsule_GetPointer(capsule, b"dltensor"))
    tensor = managed.tensor
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    device = tensor.device.id if tensor.device.type in (_CUDA, _CUDA_MANAGED) else HOST
    dtype = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes)
    # Not consumed: the capsule's own destructor gives the producer its reference back.
    return (tensor.data or 0) + tensor.byte_offset, (dtype, shape, strides, device, readonly)


# What an exported capsule keeps alive until its consumer calls the deleter: address of the structure -> its parts.
_exported: dict[int, tuple] = {}


@_Deleter
def _release(address: int):
    _exported.pop(address, None)


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _release_unconsumed(capsule: int):
    # A consumer renames the capsule; one that still has its first name was never taken.
    held = ctypes.cast(capsule, ctypes.py_object)
    if _api.PyCapsule_IsValid(held, b"dltensor"):
        _exported.pop(_api.PyCapsule_GetPointer(held, b"dltensor"), None)


def make_capsule(owner: object, address: int, dtype: tuple[int, int, int], shape: tuple[int, ...], device: int) -> object:
    """A DLPack capsule over contiguous device memory that keeps `owner` alive."""
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    managed = _Managed()
    managed.tensor.data = address
    managed.tensor.device = _Device(_CUDA, device)
    managed.tensor.ndim = len(shape)
    managed.tensor.dtype = _DataType(*dtype)
    managed.tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    managed.deleter = _release
    where = ctypes.addressof(managed)
    _exported[where] = (managed, extents, owner)
    return _api.PyCapsule_New(where, b"dltensor", ctypes.cast(_release_unconsumed, ctypes.c_void_p))

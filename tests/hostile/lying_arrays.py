"""Arrays that lie, each beside the words of its refusal, and honest ones of the same kind, which a launch takes.

    python -m tests.hostile.lying_arrays        # against the stand-in driver: JSON of what became of each

Each is an argument of one kernel's call. It is launched and prepared in a thread that remembers nothing, and again where every honest twin
has been launched before: what is remembered of a call must not let a later lie through.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import json
import sys
import threading
import unittest.mock
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy

import zoo
from zoo.runtime.dlpack import _DLDataType, _DLDevice, _DLManagedTensor, _DLManagedTensorVersioned, _DLTensor

NAME = "quantize.mxfp8.rows"
SHAPE = (256, 512)
HUGE = 10**5000  # has no decimal text in Python


class Call:
    """The call that is lied to: its arrays, where the input lies, and what must outlive it."""

    def __init__(self):
        m, k = SHAPE
        self.x = zoo.empty((m, k), "f16")
        self.arguments = dict(x=self.x, q=zoo.empty((m, k), "e4m3"), scales=zoo.empty((m, k // 32), "ue8m0"))
        self.address = self.x.address
        self.keep: list[object] = []


def but(base: type, **members: object) -> object:
    """An instance of a class like `base` but for some members."""
    return type("Liar", (base,), members)()


def raising(error: Exception) -> property:
    def fail(self):
        raise error

    return property(fail)


# __cuda_array_interface__


class Interface:
    def __init__(self, call: Call, without: str = "", **changes: object):
        fields = {"shape": SHAPE, "typestr": "<f2", "data": (call.address, False), "version": 3, "strides": None, **changes}
        self.__cuda_array_interface__ = {name: value for name, value in fields.items() if name != without}


class Incomparable(int):
    def __eq__(self, other):
        raise OSError("not to be compared")

    def __hash__(self):
        raise OSError("not to be hashed")


class Mapping(dict):
    def get(self, *names):
        raise RuntimeError("no get")


def interface(name: str, *values: object) -> dict[str, Callable[[Call], object]]:
    """Lies in one field. A value may be a function of the call."""
    return {
        f"interface {name} {place}": lambda call, value=value: Interface(call, **{name: value(call) if callable(value) else value})
        for place, value in enumerate(values)
    }


def attribute(value: object) -> Callable[[Call], object]:
    return lambda call: but(object, __cuda_array_interface__=value)


INTERFACE = {
    **interface("typestr", None, 5, "", "f2", "<f", "<f0", "=f2", "<f2 ", b"<f2", ["<f2"], "2", "<f99999", "<é2"),
    **interface("shape", None, 256, "ab", (-256, 512), (None, 512), (256.5, 512), (256.0, 512.5), (HUGE, 512), (True, 512), {256: 512}),
    **interface("strides", 5, "ab", (1024,), (1024, 2, 2), (1025, 2), (1024.5, 2), (None, 2), (HUGE + 1, 2), {1024: 2}),
    **interface("data", None, 5, "ab", (1,), (1, False, 1), (None, False), ("a", False), (1.5, False), (-16, False), (HUGE, False)),
    **interface("version", None, 4, "3", -1, 2.5, HUGE),
    **interface("stream", -1, "7", 2**70, 1.5, [], HUGE),
}
CASES: dict[str, tuple[Callable[[Call], object], str]] = {name: (maker, "ArgumentError: ") for name, maker in INTERFACE.items()}
CASES |= {
    "interface of the other byte order": (lambda call: Interface(call, typestr=">f2"), "byte order"),
    "interface of an unknown type": (lambda call: Interface(call, typestr="<x2"), "expected bf16, f16 or f32, got <x2"),
    "interface of objects": (lambda call: Interface(call, typestr="|O8"), "got |O8"),
    "interface of a number that fails to compare": (lambda call: Interface(call, shape=(Incomparable(250), 512)), "expected (250, 512)"),
    "interface of endless extents": (lambda call: Interface(call, shape=itertools.count()), "malformed"),
    "interface of endless strides": (lambda call: Interface(call, strides=itertools.repeat(2)), "malformed"),
    "interface of ten thousand dimensions": (lambda call: Interface(call, shape=(1,) * 10_000), "more than 64 dimensions"),
    "interface of one dimension": (lambda call: Interface(call, shape=(256,)), "= (M, K), got ("),
    "interface of more than memory": (lambda call: Interface(call, shape=(2**62, 512)), "does not fit 64 bits"),
    "interface of backward strides": (lambda call: Interface(call, strides=(-1024, 2)), "a negative stride"),
    "interface that says only where": (lambda call: Interface(call, data=(call.address,)), "malformed"),
    "interface neither read-only nor not": (lambda call: Interface(call, data=(call.address, None)), "read-only"),
    "interface whose address wraps": (lambda call: Interface(call, data=(2**64 - 16, False)), "the address of a"),
    "interface of null": (lambda call: Interface(call, data=(0, False)), "a null address"),
    "interface of an odd address": (lambda call: Interface(call, data=(call.address + 1, False)), "must be a multiple"),
    "interface of the host": (lambda call: Interface(call, data=(ctypes.addressof(ctypes.c_int()), False)), "lies in host memory"),
    "interface with a mask": (lambda call: Interface(call, mask=Interface(call, typestr="|b1")), "mask"),
    "interface with a false mask": (lambda call: Interface(call, mask=False), "mask"),
    "interface without data": (lambda call: Interface(call, without="data"), "malformed"),
    "interface without a shape": (lambda call: Interface(call, without="shape"), "malformed"),
    "interface without a type": (lambda call: Interface(call, without="typestr"), "malformed"),
    "interface without a version": (lambda call: Interface(call, without="version"), "version"),
    "interface that is none": (attribute(None), "malformed"),
    "interface that is a list": (attribute([1, 2]), "malformed"),
    "interface of a failing mapping": (attribute(Mapping(data=(0, False), shape=SHAPE, typestr="<f2")), "malformed"),
    "interface that raises RuntimeError": (attribute(raising(RuntimeError("gone"))), "gone"),
    "interface that raises KeyError": (attribute(raising(KeyError("x"))), "malformed"),
    "interface that raises AttributeError": (attribute(raising(AttributeError("x"))), "expected an array in device memory"),
}


# DLPack: capsules whose structures are written by hand

_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes, _new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
_LEGACY, _VERSIONED, _OTHER, _USED = b"dltensor", b"dltensor_versioned", b"other", b"used_dltensor"


def dltensor(call: Call, **changes: object) -> _DLTensor:
    fields = {"shape": SHAPE, "strides": (512, 1), "code": 2, "bits": 16, "lanes": 1, "type": 2, "id": 0, "data": call.address, "offset": 0}
    assert changes.keys() <= {*fields, "ndim"}
    fields |= changes
    shape, strides = ((ctypes.c_int64 * len(n))(*n) if n else None for n in (fields["shape"], fields["strides"]))
    call.keep += [shape, strides]
    pointer = ctypes.POINTER(ctypes.c_int64)
    return _DLTensor(
        data=fields["data"],
        device=_DLDevice(fields["type"], fields["id"]),
        ndim=fields.get("ndim", 2),
        dtype=_DLDataType(fields["code"], fields["bits"], fields["lanes"]),
        shape=ctypes.cast(shape, pointer),
        strides=ctypes.cast(strides, pointer),
        byte_offset=fields["offset"],
    )


def capsule(call: Call, name: bytes = _VERSIONED, major: int = 1, flags: int = 0, **changes: object) -> object:
    tensor = dltensor(call, **changes)
    if name == _VERSIONED:
        managed = _DLManagedTensorVersioned(major=major, minor=1, flags=flags, tensor=tensor)
    else:
        managed = _DLManagedTensor(tensor=tensor)
    call.keep += [managed, name]
    return _new(ctypes.addressof(managed), name, None)


class Producer:
    def __init__(self, given: object):
        self.given = given

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None) -> object:
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


class OldProducer(Producer):
    """From before DLPack 1.0."""

    def __dlpack__(self, *, stream=None) -> object:
        return super().__dlpack__()


def producer(**lies: object) -> Callable[[Call], object]:
    return lambda call: Producer(capsule(call, **lies))


def giving(given: object) -> Callable[[Call], object]:
    return lambda call: Producer(given)


CASES |= {
    "producer that raises RuntimeError": (giving(RuntimeError("not today")), "not today"),
    "producer that cannot do without a copy": (giving(BufferError("a copy is needed")), "a copy is needed"),
    "producer that raises TypeError": (giving(TypeError("what?")), "what?"),
    "producer that raises what raises": (giving(but(Exception, __repr__=lambda self: 1 / 0)), "a Liar"),
    "producer of None": (giving(None), "gives a NoneType, which is no unused DLPack capsule"),
    "producer of a number": (giving(7), "gives a int"),
    "producer of a list": (giving([]), "gives a list"),
    "producer of a used capsule": (producer(name=_USED), "gives a used one"),
    "producer of another capsule": (producer(name=_OTHER), "no unused DLPack capsule"),
    "producer that is a number": (lambda call: but(object, __dlpack__=7), "does not give itself out"),
    "producer without the method after all": (lambda call: but(object, __dlpack__=raising(RuntimeError("gone"))), "gone"),
    "producer of version 2": (producer(major=2), "zoo reads 1.x"),
    "producer of version 0": (producer(major=0), "zoo reads 1.x"),
    "producer of a copy": (producer(flags=2), "gives out a copy"),
    "producer of a read-only copy": (producer(flags=3), "gives out a copy"),
    "old producer that refuses": (lambda call: OldProducer(BufferError("not this one")), "not this one"),
    "old producer of a used capsule": (lambda call: OldProducer(capsule(call, _USED)), "a used one"),
    "tensor without a shape": (producer(shape=()), "says 2 dimensions and no shape"),
    "tensor of -1 dimensions": (producer(ndim=-1), "says -1 dimensions"),
    "tensor of 65 dimensions": (producer(ndim=65), "says 65 dimensions"),
    "tensor of 2^31 - 1 dimensions": (producer(ndim=2**31 - 1), "says 2147483647 dimensions"),
    "old tensor of 2^31 - 1 dimensions": (producer(name=_LEGACY, ndim=2**31 - 1), "says 2147483647 dimensions"),
    "tensor of no dimensions": (producer(ndim=0), "expected 2 dimensions"),
    "tensor of negative extents": (producer(shape=(-256, 512)), "the DLPack tensor's shape"),
    "tensor of more than memory": (producer(shape=(2**62, 512)), "does not fit 64 bits"),
    "tensor of backward strides": (producer(strides=(-512, 1)), "a negative stride"),
    "tensor of endless strides": (producer(strides=(2**62, 1)), "does not fit 64 bits"),
    "tensor whose offset wraps": (producer(offset=2**64 - 16), "the address of a"),
    "tensor whose offset leaves memory": (producer(offset=2**63), "the address of a"),
    "tensor whose address wraps": (producer(data=2**64 - 16), "the address of a"),
    "tensor of null": (producer(data=None), "a null address"),
    "tensor of an odd address": (producer(offset=1), "must be a multiple"),
    "tensor of vectors": (producer(lanes=4), "got DLPack type (2, 16, 4)"),
    "tensor of nothing": (producer(lanes=0), "got DLPack type (2, 16, 0)"),
    "tensor of half bytes": (producer(bits=4), "got DLPack type (2, 4, 1)"),
    "tensor of an unknown type": (producer(code=99), "got DLPack type (99, 16, 1)"),
    "tensor of the host": (producer(type=1), "lies in host memory"),
    "tensor of another maker's device": (producer(type=10), "lies in host memory"),
    "tensor of device 99": (producer(id=99), "no device 99"),
    "tensor of device -5": (producer(id=-5), "device: expected"),
}


# Other kinds, by classes that look like theirs


class Cupy:
    """As cupy.ndarray, which is known by its module."""

    __module__ = "cupy"
    shape, strides, dtype = SHAPE, (1024, 2), numpy.dtype("<f2")

    def __init__(self, call: Call, **changes: object):
        self.data = SimpleNamespace(ptr=call.address, device_id=0)
        self.__dict__ |= changes


class Jax:
    __module__ = "jaxlib._jax"
    shape, dtype = SHAPE, numpy.dtype("<f2")

    def __init__(self, call: Call, platform: str = "gpu", fails: str = "", devices: int = 1, **changes: object):
        self.address, self.fails = call.address, fails
        self.__dict__ |= changes
        self.where = [SimpleNamespace(local_hardware_id=place, platform=platform) for place in range(devices)]

    def block_until_ready(self):
        if self.fails:
            raise RuntimeError(self.fails)

    def devices(self):
        return self.where

    def unsafe_buffer_pointer(self):
        return self.address


class Dtype:
    def __init__(self, name: str):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


class Tensor:
    """As torch.Tensor, with what a test changes of it."""

    shape = SHAPE

    def __init__(self, call: Call, **changes: object):
        self.dtype, self.address = torch.float16, call.address
        self.__dict__ |= changes

    def is_contiguous(self):
        return True

    def is_neg(self):
        return False

    def stride(self):
        return (512, 1)

    def get_device(self):
        return 0

    def data_ptr(self):
        return self.address


class Parameter(Tensor):
    pass


torch: Any = ModuleType("torch")
for dtype in ("bfloat16", "float16", "float32", "complex32", "qint8"):
    setattr(torch, dtype, Dtype(dtype))
torch.Tensor, torch.nn = Tensor, SimpleNamespace(Parameter=Parameter)
torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda device: 0, DisableTorchFunctionSubclass=contextlib.nullcontext)


def subclass(**members: object) -> Callable[[Call], object]:
    """Of torch's tensors: a member that is no function is what a method of that name returns, where there is such a method."""
    methods = {
        name: (lambda self, value=value: value)
        if hasattr(Tensor, name) and not callable(value) and not isinstance(value, property) and name != "shape"
        else value
        for name, value in members.items()
    }
    return lambda call: type("Liar", (Tensor,), methods)(call)


class Tracer:
    """As what jax.jit passes in place of an array."""

    __module__ = "jax._src.core"

    def __getattr__(self, name):
        raise AttributeError(f"a tracer has no {name}")

    __hash__ = None


class Unreadable:
    def __repr__(self):
        raise RuntimeError("no text")

    __str__ = __repr__


class Pretender:
    __class__ = raising(RuntimeError("no class"))


def numpys(dtype: object, shape: tuple[int, ...] = SHAPE) -> Callable[[Call], object]:
    return lambda call: numpy.zeros(shape, dtype)


def by_hand(call: Call, **changes: Any) -> zoo.Pointer:
    """Not by zoo.ptr, which looks at what it is given."""
    return dataclasses.replace(zoo.ptr(call.address, SHAPE, "f16"), **changes)


HOST = "lies in host memory"
NO_ARRAY = "expected an array in device memory, got "
CASES |= {
    "torch of complex numbers": (lambda call: Tensor(call, dtype=torch.complex32), "more than the numbers in memory"),
    "torch of quantised numbers": (lambda call: Tensor(call, dtype=torch.qint8), "more than the numbers in memory"),
    "torch without memory": (lambda call: Tensor(call, address=0), "without memory"),
    "torch that is negated": (lambda call: Tensor(call, is_contiguous=lambda: False, is_neg=lambda: True), "negated only when it is read"),
    "torch that is sparse": (lambda call: Tensor(call, is_contiguous=lambda: 1 // 0), "x: a Tensor that cannot be read"),
    "torch that is nested": (lambda call: Tensor(call, is_contiguous=lambda: False, stride=lambda: 1 // 0), "cannot be read"),
    "torch of vmap and grad": (lambda call: Tensor(call, data_ptr=lambda: 1 // 0), "cannot be read"),
    "torch on no device": (lambda call: Tensor(call, get_device=lambda: 1 // 0), "cannot be read"),
    "torch's subclass without memory": (subclass(data_ptr=0), "without memory"),
    "torch's subclass of a complex dtype": (lambda call: subclass()(call).__class__(call, dtype=torch.complex32), "more than the numbers"),
    "torch's subclass that is negated": (subclass(is_neg=True), "negated only when it is read"),
    "torch's subclass whose address wraps": (subclass(data_ptr=2**64 - 16), "the address of a Liar"),
    "torch's subclass at no number": (subclass(data_ptr="here"), "the address of a Liar"),
    "torch's subclass without a place": (subclass(data_ptr=lambda self: 1 // 0), "no memory that a kernel could read"),
    "torch's subclass that wraps another": (subclass(data_ptr=property(lambda self: self.none)), "no memory that a kernel could read"),
    "torch's subclass of no shape": (subclass(shape=None), "the shape of a Liar"),
    "torch's subclass of symbolic extents": (subclass(shape=("s0", 512)), "the shape of a Liar"),
    "torch's subclass of no strides": (subclass(is_contiguous=False, stride=lambda self: None), "the strides of a Liar"),
    "torch's subclass of wrong strides": (subclass(is_contiguous="perhaps", stride=lambda self: (512,)), "2 extents but 1 strides"),
    "torch's subclass of another dtype": (lambda call: subclass()(call).__class__(call, dtype="float16"), "expected one of torch's"),
    "torch's subclass on no device": (subclass(get_device="cuda:0"), "the device of a Liar"),
    "torch's subclass on device -7": (subclass(get_device=-7), "the device of a Liar"),
    "torch's subclass on device 99": (subclass(get_device=99), "no device 99"),
    "cupy of the other byte order": (lambda call: Cupy(call, dtype=numpy.dtype(">f2")), "got >f2"),
    "cupy with a stride too few": (lambda call: Cupy(call, strides=(1024,)), "2 extents but 1 strides"),
    "cupy with strides between elements": (lambda call: Cupy(call, strides=(1025, 2)), "no multiples"),
    "cupy of objects": (lambda call: Cupy(call, dtype=numpy.dtype(object), strides=(4096, 8)), "got object"),
    "cupy of null": (lambda call: Cupy(call, data=SimpleNamespace(ptr=0, device_id=0)), "a null address"),
    "cupy whose address wraps": (lambda call: Cupy(call, data=SimpleNamespace(ptr=2**64 - 16, device_id=0)), "the address of a Cupy"),
    "cupy before all memory": (lambda call: Cupy(call, data=SimpleNamespace(ptr=-16, device_id=0)), "the address of a Cupy"),
    "cupy at no number": (lambda call: Cupy(call, data=SimpleNamespace(ptr=None, device_id=0)), "the address of a Cupy"),
    "cupy on no device": (lambda call: Cupy(call, data=SimpleNamespace(ptr=call.address, device_id="cuda")), "the device of CuPy's"),
    "cupy of no shape": (lambda call: Cupy(call, shape=None), "the shape of CuPy's"),
    "cupy of endless digits": (lambda call: Cupy(call, shape=(HUGE, 512)), "the shape of CuPy's"),
    "cupy of no dtype": (lambda call: Cupy(call, dtype=None), "a Cupy that cannot be read"),
    "cupy that is no array": (lambda call: Cupy(call, data=None), "of CuPy's that cannot be read"),
    "jax that was deleted": (lambda call: Jax(call, fails="Array has been deleted."), "Array has been deleted"),
    "jax whose address wraps": (lambda call: Jax(call, address=2**64 - 16), "the address of a Jax"),
    "jax over two devices": (lambda call: Jax(call, devices=2), "over 2 devices"),
    "jax at no number": (lambda call: Jax(call, address="here"), "the address of a Jax"),
    "jax of no shape": (lambda call: Jax(call, shape=(None, 512)), "the shape of JAX's"),
    "jax of the host": (lambda call: Jax(call, platform="cpu"), HOST),
    "jax tracer": (lambda call: Tracer(), NO_ARRAY + "Tracer"),
    "numpy of objects": (numpys(object), HOST),
    "numpy of the other byte order": (numpys(">f2"), HOST),
    "numpy of records": (numpys([("a", "<f2"), ("b", "<i4")]), HOST),
    "numpy of times": (numpys("datetime64[ns]"), HOST),
    "numpy of no dimensions": (numpys("<f2", ()), HOST),
    "numpy with a mask": (lambda call: numpy.ma.masked_array(numpy.zeros(SHAPE, "<f2"), True), HOST),
    "numpy's subclass": (
        lambda call: numpy.zeros(SHAPE, ">f2").view(type("Mine", (numpy.ndarray,), {})),
        "does not give itself out|" + HOST,
    ),
    "memoryview": (lambda call: memoryview(bytes(8)), NO_ARRAY + "memoryview"),
    "array.array": (lambda call: array.array("f", [1, 2]), NO_ARRAY + "array"),
    "ctypes' array": (lambda call: (ctypes.c_float * 8)(), NO_ARRAY + "c_float_Array_8"),
    "list": (lambda call: [[1.0]], NO_ARRAY + "list"),
    "class": (lambda call: Interface, NO_ARRAY + "type"),
    "mock": (lambda call: unittest.mock.MagicMock(), NO_ARRAY + "MagicMock"),
    "what has no text": (lambda call: Unreadable(), NO_ARRAY + "Unreadable"),
    "what has no class": (lambda call: Pretender(), "a Pretender that cannot be read"),
    "number without a text": (lambda call: HUGE, NO_ARRAY + "int"),
    "pointer that wraps": (lambda call: zoo.ptr(2**64 - 16, SHAPE, "f16", device=0), "ptr: address"),
    "pointer beyond memory": (lambda call: zoo.ptr(2**62, SHAPE, "f16", device=0), "ptr: address"),
    "pointer to the end of memory": (lambda call: zoo.ptr(2**62 - 1, SHAPE, "f16", device=0), "must be a multiple"),
    "pointer without a text": (lambda call: zoo.ptr(HUGE, SHAPE, "f16", device=0), "ptr: address"),
    "pointer of negative extents": (lambda call: zoo.ptr(call.address, (-256, 512), "f16"), "ptr: shape"),
    "pointer of endless extents": (lambda call: zoo.ptr(call.address, itertools.count(), "f16"), "more than 64 dimensions"),
    "pointer of extents that raise": (lambda call: zoo.ptr(call.address, (1 // n for n in (1, 0)), "f16"), "raises"),
    "pointer of an extent that raises": (
        lambda call: zoo.ptr(call.address, (but(object, __index__=lambda self: 1 // 0), 2), "f16"),
        "raises",
    ),
    "pointer on device 99": (lambda call: zoo.ptr(call.address, SHAPE, "f16", device=99), "no device 99"),
    "pointer made by hand that wraps": (lambda call: by_hand(call, address=2**64 - 16), "the address of a Pointer"),
    "pointer made by hand before all memory": (lambda call: by_hand(call, address=-16), "the address of a Pointer"),
    "pointer made by hand beyond all numbers": (lambda call: by_hand(call, address=2**70), "the address of a Pointer"),
    "pointer made by hand to no number": (lambda call: by_hand(call, address="here"), "the address of a Pointer"),
    "pointer made by hand of no shape": (lambda call: by_hand(call, shape="ab"), "ptr: shape"),
    "pointer made by hand of no strides": (lambda call: by_hand(call, strides=None), "ptr: strides"),
    "pointer made by hand of a stride too few": (lambda call: by_hand(call, strides=(1,)), "2 extents but 1 strides"),
    "pointer made by hand of no dtype": (lambda call: by_hand(call, dtype=["f16"]), "ptr"),
    "pointer made by hand on no device": (lambda call: by_hand(call, device="cuda"), "ptr: device"),
    "view of a mask": (lambda call: zoo.view(Interface(call, mask=1), "bf16"), "mask"),
    "view of the other byte order": (lambda call: zoo.view(Interface(call, typestr=">f2"), "bf16"), "byte order"),
    "view of larger elements": (lambda call: zoo.view(Interface(call, typestr="<V4"), "bf16"), "has 4 bytes"),
    "view of truth values": (lambda call: zoo.view(Producer(capsule(call, code=6, bits=8)), "bf16"), "has 1 bytes"),
    "view of half bytes": (lambda call: zoo.view(Producer(capsule(call, bits=4)), "e4m3"), "has 4 bits"),
    "view of objects": (
        lambda call: zoo.view(Cupy(call, dtype=numpy.dtype(object), strides=(4096, 8)), "bf16"),
        "nothing is known of the size of object",
    ),
    "view of a producer that raises": (lambda call: zoo.view(Producer(RuntimeError("no")), "bf16"), "does not give itself out"),
    "view of a deleted array": (lambda call: zoo.view(Jax(call, fails="deleted"), "bf16"), "deleted"),
    "view of a number": (lambda call: zoo.view(7, "bf16"), "is no array"),
}


OUTPUTS: dict[str, tuple[Callable[[Call], object], str]] = {
    "read-only interface": (lambda call: Interface(call, typestr="|u1", data=(call.arguments["q"].address, True)), "read-only"),
    "read-only tensor": (producer(code=10, bits=8, flags=1), "read-only"),
    "copied tensor": (producer(code=10, bits=8, flags=2), "gives out a copy"),
    "jax": (lambda call: Jax(call), "read-only"),
    "numpy": (numpys("u1"), HOST),
}


def honest(call: Call) -> dict[str, object]:
    return {
        "interface": Interface(call),
        "interface with strides": Interface(call, strides=(1024, 2)),
        "interface with lists": Interface(call, shape=list(SHAPE), strides=[1024, 2]),
        "interface of numpy's numbers": Interface(call, shape=tuple(map(numpy.int64, SHAPE)), data=(numpy.uint64(call.address), False)),
        "viewed interface": zoo.view(Interface(call, typestr="<V2"), "bf16"),
        "producer": Producer(capsule(call)),
        "producer with an offset": Producer(capsule(call, data=call.address - 64, offset=64)),
        "producer of managed memory": Producer(capsule(call, type=13)),
        "read-only producer": Producer(capsule(call, flags=1)),
        "old producer": OldProducer(capsule(call, _LEGACY)),
        "old producer without strides": OldProducer(capsule(call, _LEGACY, strides=())),
        "viewed producer": zoo.view(Producer(capsule(call, code=1)), "bf16"),
        "torch": Tensor(call),
        "torch's parameter": Parameter(call),
        "torch's subclass": subclass()(call),
        "viewed torch": zoo.view(Tensor(call), "bf16"),
        "cupy": Cupy(call),
        "jax": Jax(call),
        "pointer": zoo.ptr(call.address, SHAPE, "f16"),
    }


# A lie that cannot do harm, and that a repeated call is not slowed down to notice: extents that are floats, but whole and right.
EQUAL = "interface shape that is right but for its type"
CASES[EQUAL] = (lambda call: Interface(call, shape=(256.0, 512)), "expected a whole number")


def outcome(function: Callable[[], object]) -> str:
    try:
        function()
    except zoo.ZooError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"FOREIGN {type(error).__name__}: {str(error)[:200]}"
    return "ACCEPTED"


def remembering_nothing(function: Callable[[], str]) -> str:
    got: list[str] = []
    thread = threading.Thread(target=lambda: got.append(function()))
    thread.start()
    thread.join()
    return got[0]


def main() -> None:
    sys.modules["torch"] = torch
    call = Call()
    launches = ctypes.CDLL("libcuda.so.1").zoo_recorder_calls

    def use(function: Callable[..., object], argument: str, make: Callable[[Call], object]) -> str:
        return outcome(lambda: function(NAME, stream=0, **{**call.arguments, argument: make(call)}))

    answers: dict[str, dict[str, list[object]]] = {"honest": {}, "x": {}, "q": {}}
    for remembered in (False, True):
        for argument, lies in (("x", CASES), ("q", OUTPUTS)):
            for name, (make, _) in lies.items():
                before = launches(b"cuLaunchKernelEx")
                for function in (zoo.launch, zoo.prepare):
                    attempt = functools.partial(use, function, argument, make)
                    answers[argument].setdefault(name, []).append(attempt() if remembered else remembering_nothing(attempt))
                answers[argument][name].append(launches(b"cuLaunchKernelEx") - before)
        for name, value in honest(call).items():
            attempt = functools.partial(use, zoo.launch, "x", lambda _, value=value: value)
            answers["honest"].setdefault(name, []).extend([attempt(), attempt()])
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()

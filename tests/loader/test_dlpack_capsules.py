"""What is read from a DLPack capsule and what is written into one, structure by structure, and how producers are asked."""

import ctypes
import gc
import weakref

import pytest

from zoo.errors import ArgumentError
from zoo.runtime import dlpack
from zoo.runtime.dlpack import (
    Export,
    _DLDataType,
    _DLDevice,
    _DLManagedTensor,
    _DLManagedTensorVersioned,
    _DLTensor,
    make_capsule,
    read_dlpack,
)

KEEP = []


def tensor(device=(2, 3), shape=(4, 5), strides=(8, 1), rank=None, offset=0, data=1 << 40, dtype=(2, 32, 1)):
    numbers = [None if one is None else (ctypes.c_int64 * max(1, len(one)))(*one) for one in (shape, strides)]
    KEEP.append(numbers)
    pointers = [None if one is None else ctypes.cast(one, ctypes.POINTER(ctypes.c_int64)) for one in numbers]
    return _DLTensor(
        data=data, device=_DLDevice(*device), ndim=len(shape) if rank is None else rank, dtype=_DLDataType(*dtype), shape=pointers[0],
        strides=pointers[1], byte_offset=offset,
    )  # fmt: skip


def capsule(managed, name):
    KEEP.append((managed, name))
    return dlpack._api.PyCapsule_New(ctypes.addressof(managed), name, None)


def old(**changes):
    return capsule(_DLManagedTensor(tensor=tensor(**changes)), b"dltensor")


def versioned(flags=0, major=1, minor=1, **changes):
    return capsule(_DLManagedTensorVersioned(major=major, minor=minor, flags=flags, tensor=tensor(**changes)), b"dltensor_versioned")


class Producer:
    def __init__(self, given, place=(2, 3)):
        self.given, self.place, self.asked = given, place, []

    def __dlpack__(self, **asked):
        self.asked.append(asked)
        return self.given

    def __dlpack_device__(self):
        return self.place


@pytest.mark.parametrize("make", [old, versioned])
def test_a_capsule_is_read_field_by_field(make):
    for changes, wanted in (
        ({}, (1 << 40, (2, 32, 1), (4, 5), (8, 1), 3, False)),
        ({"offset": 64, "strides": None}, ((1 << 40) + 64, (2, 32, 1), (4, 5), None, 3, False)),
        ({"device": (13, 1), "dtype": (10, 8, 2)}, (1 << 40, (10, 8, 2), (4, 5), (8, 1), 1, False)),
        ({"device": (1, 2), "data": None}, (0, (2, 32, 1), (4, 5), (8, 1), -1, False)),
        ({"device": (3, 2)}, (1 << 40, (2, 32, 1), (4, 5), (8, 1), -1, False)),
        ({"shape": (), "strides": ()}, (1 << 40, (2, 32, 1), (), (), 3, False)),
        ({"shape": (1,) * 64, "strides": None}, (1 << 40, (2, 32, 1), (1,) * 64, None, 3, False)),
    ):
        producer = Producer(make(**changes))
        address, (*said, export) = read_dlpack(producer)
        assert (address, *said) == wanted and export.take() is producer.given
        assert producer.asked == [{"stream": -1, "max_version": (1, 1), "copy": False}]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (lambda: old(rank=-1), "the DLPack capsule of a Producer says -1 dimensions where 0 to 64 are possible"),
        (lambda: old(rank=65), "says 65 dimensions where 0 to 64 are possible"),
        (lambda: old(shape=None, rank=2), "says 2 dimensions and no shape"),
        (lambda: old(shape=None, rank=1), "says 1 dimensions and no shape"),
        (lambda: old(data=2**64 - 16, offset=16), "the address of a Producer: expected a whole number"),
        (lambda: versioned(major=2, minor=7), "DLPack 2.7 of a Producer; zoo reads 1.x"),
        (lambda: versioned(major=0), "DLPack 0.1 of a Producer; zoo reads 1.x"),
        (lambda: versioned(flags=2), "a Producer gives out a copy by DLPack, which is not the array; pass the copy itself"),
        (lambda: versioned(flags=3), "gives out a copy by DLPack"),
        (
            lambda: capsule(_DLManagedTensor(tensor=tensor()), b"used_dltensor"),
            "the __dlpack__ of a Producer gives a used one, which is no unused",
        ),
        (lambda: 5, "the __dlpack__ of a Producer gives a int, which is no unused DLPack capsule"),
    ],
)
def test_a_capsule_that_says_what_cannot_be_is_refused(given, words):
    with pytest.raises(ArgumentError) as refused:
        read_dlpack(Producer(given()))
    assert words in str(refused.value)


def test_what_may_only_be_read_says_so_by_one_flag():
    assert [read_dlpack(Producer(versioned(flags=flags)))[1][4] for flags in (0, 1, 4, 5)] == [False, True, False, True]
    assert read_dlpack(Producer(old(shape=None, rank=0)))[1][1] == ()


class Older(Producer):
    """Takes these keywords alone, and says of others what it is told to."""

    def __init__(self, given, takes, error=TypeError, place=(2, 3)):
        super().__init__(given, place)
        self.takes, self.error = takes, error

    def __dlpack__(self, **asked):
        self.asked.append(sorted(asked))
        assert asked.get("stream", -1) == -1  # which is: do not synchronise
        if set(asked) - set(self.takes):
            raise self.error(f"not {sorted(asked)}")
        return self.given


def test_a_producer_from_before_versions_is_asked_as_it_knows():
    for takes, asked in (
        (("stream",), [["copy", "max_version", "stream"], ["stream"]]),
        ((), [["copy", "max_version", "stream"], ["stream"], []]),
    ):
        producer = Older(old(), takes)
        assert read_dlpack(producer)[0] == 1 << 40 and producer.asked == asked


def test_one_that_refuses_is_asked_again_only_where_no_copy_could_be_the_answer():
    for place in ((1, 0), (3, 0)):  # in host memory, which takes no stream
        producer = Older(old(device=place), (), BufferError, place)
        assert read_dlpack(producer)[1][3] == -1 and producer.asked == [["copy", "max_version", "stream"], []]
    for place in ((2, 0), (13, 0), None):
        producer = Older(old(), (), BufferError, place)
        with pytest.raises(
            ArgumentError, match=r"a Older does not give itself out by DLPack: BufferError\(\"not \['copy', 'max_version', 'stream'\]\"\)"
        ):
            read_dlpack(producer)
        assert producer.asked == [["copy", "max_version", "stream"]]


def test_one_that_refuses_for_another_reason_is_asked_no_more():
    class Refusing(Producer):
        def __dlpack__(self, **asked):
            self.asked.append(sorted(asked))
            raise TypeError("no versions") if "max_version" in asked else BufferError("elsewhere")

    producer = Refusing(old())
    with pytest.raises(ArgumentError, match=r"does not give itself out by DLPack: BufferError\('elsewhere'\)"):
        read_dlpack(producer)
    assert producer.asked == [["copy", "max_version", "stream"], ["stream"]]


def test_exports_make_no_difference_to_a_form():
    assert (Export(1) == Export(2)) is True and (Export(1) == 1) is False and hash(Export(1)) == hash(Export(2))


class Owner:
    pass


@pytest.mark.parametrize(("shape", "strides"), [((4, 5), (8, 1)), ((4, 5), None), ((), None), ((7,), (3,))])
def test_what_is_written_is_what_is_read_and_lives_as_long_as_its_capsule(shape, strides):
    owner = Owner()
    alive = weakref.ref(owner)
    made = make_capsule(owner, 1 << 40, (4, 16, 2), shape, strides, 6)
    del owner
    where = dlpack._api.PyCapsule_GetPointer(made, b"dltensor")
    found = _DLManagedTensor.from_address(where)
    assert (found.tensor.device.type, found.tensor.device.id, found.tensor.byte_offset, found.context) == (2, 6, 0, None)
    producer = Producer(made)
    address, (*said, export) = read_dlpack(producer)
    assert (address, *said) == (1 << 40, (4, 16, 2), shape, strides, 6, False)
    assert where in dlpack._owners and alive() is not None
    del producer, export, made
    gc.collect()
    assert alive() is None and where not in dlpack._owners


def test_what_a_consumer_took_lives_until_it_lets_go():
    owner = Owner()
    alive = weakref.ref(owner)
    made = make_capsule(owner, 4096, (2, 32, 1), (4,), None, 0)
    del owner
    where = dlpack._api.PyCapsule_GetPointer(made, b"dltensor")
    name = ctypes.create_string_buffer(b"used_dltensor")
    ctypes.pythonapi.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
    assert ctypes.pythonapi.PyCapsule_SetName(made, ctypes.cast(name, ctypes.c_char_p)) == 0
    del made
    gc.collect()
    assert alive() is not None
    _DLManagedTensor.from_address(where).deleter(where)
    gc.collect()
    assert alive() is None
    assert where not in dlpack._owners


def test_memory_of_a_capsule_is_freed_once_and_by_the_c_library_where_python_is_gone(monkeypatch):
    made = make_capsule(Owner(), 4096, (2, 32, 1), (4,), None, 0)
    where = dlpack._api.PyCapsule_GetPointer(made, b"dltensor")
    found = _DLManagedTensor.from_address(where)
    dlpack._outlive_python()
    assert ctypes.cast(found.deleter, ctypes.c_void_p).value == ctypes.cast(dlpack._libc.free, ctypes.c_void_p).value
    found.deleter = dlpack._release
    freed, free = [], dlpack._libc.free
    with monkeypatch.context() as patched:
        patched.setattr(dlpack._libc, "free", freed.append)
        del made
        gc.collect()
        assert freed == [where]
        dlpack._forget(where)
        assert freed == [where]
    free(where)

"""What frameworks hand over, seen without a GPU: descriptions, host memory, streams by protocol."""

import types

import numpy
import pytest

import zoo
from zoo.contract.array import HOST, Array
from zoo.errors import ArgumentError, StreamError
from zoo.runtime import arrays
from zoo.runtime.arrays import Call, kind_of
from zoo.runtime.streams import handle_of


def describe(value):
    kind = kind_of(value)
    return kind.describe(*kind.read(value))


def stream_of(**arguments):
    return Call.read(arguments).stream_source()()


class Interface:
    """An object that only has __cuda_array_interface__, with a null address so that no driver is asked."""

    def __init__(self, **changes):
        self.__cuda_array_interface__ = {"shape": (4, 6), "typestr": "<f4", "data": (0, False), "version": 3, "strides": None, **changes}


def test_interface_strides_become_elements():
    assert describe(Interface()) == Array(0, "f32", (4, 6), (6, 1), 0)
    assert describe(Interface(strides=(64, 8), typestr="<f2")) == Array(0, "f16", (4, 6), (32, 4), 0)


def test_interface_that_is_read_only_says_so():
    assert describe(Interface(data=(0, True))).readonly


def test_interface_with_broken_strides_is_refused():
    with pytest.raises(ArgumentError, match="no multiples of the element's 4"):
        describe(Interface(strides=(26, 4)))


def test_stream_of_an_interface_is_its_owners():
    assert stream_of(x=Interface(stream=7)) == 7
    assert stream_of(x=Interface()) is None


def test_two_owners_on_different_streams_are_a_conflict():
    with pytest.raises(StreamError, match=r"the owners of x and y work on different streams \(0x7 and 0x8\)"):
        stream_of(x=Interface(stream=7), y=Interface(stream=8))
    assert stream_of(x=Interface(stream=7), y=Interface(stream=7)) == 7
    assert stream_of() is None


def test_numpy_is_host_memory():
    assert describe(numpy.zeros((2, 3), numpy.float32)).device == HOST


def test_dlpack_of_the_host_is_host_memory():
    class Producer:
        def __dlpack__(self, **keywords):
            return numpy.arange(6, dtype=numpy.int32).reshape(2, 3).__dlpack__()

    described = describe(Producer())
    assert (described.dtype, described.shape, described.strides, described.device) == ("i32", (2, 3), (3, 1), HOST)


def test_torch_tensor_is_described_without_asking_the_driver():
    torch = pytest.importorskip("torch")
    tensor = torch.empty(8, 16, dtype=torch.bfloat16)[:, ::2]
    assert describe(tensor) == Array(tensor.data_ptr(), "bf16", (8, 8), (16, 2), HOST)
    assert describe(torch.nn.Parameter(torch.empty(3))).dtype == "f32"
    assert describe(torch.empty(4, dtype=torch.float8_e8m0fnu)).dtype == "ue8m0"
    assert stream_of(x=tensor) is None


def test_pointer_is_contiguous_unless_told_otherwise():
    assert describe(arrays.ptr(4096, (2, 3), "bf16", device=1)) == Array(4096, "bf16", (2, 3), (3, 1), 1)
    assert describe(arrays.ptr(4096, (2, 3), "bf16", (8, 1), device=0)).strides == (8, 1)
    with pytest.raises(ArgumentError, match="2 extents but 1 strides"):
        arrays.ptr(4096, (2, 3), "bf16", (8,), device=0)
    with pytest.raises(ArgumentError, match="unknown dtype 'fp8'"):
        arrays.ptr(4096, (2, 3), "fp8")


def test_view_renames_a_type_of_the_same_size():
    base = arrays.ptr(4096, (2, 3), "u8", device=0)
    assert describe(arrays.view(base, "e5m2")) == Array(4096, "e5m2", (2, 3), (3, 1), 0)
    with pytest.raises(ArgumentError, match="an element of u8 has 1 bytes, one of bf16 2"):
        arrays.view(base, "bf16")
    assert arrays.view(arrays.view(base, "e5m2"), "e4m3").base is base
    with pytest.raises(ArgumentError, match="int is no array"):
        arrays.view(3, "bf16")
    assert describe(arrays.view(Interface(typestr="<u2", strides=(12, 2)), "bf16")).dtype == "bf16"


@pytest.mark.parametrize(
    "stream",
    [
        12,
        types.SimpleNamespace(__cuda_stream__=lambda: (0, 12)),
        types.SimpleNamespace(__cuda_stream__=(0, 12)),
        types.SimpleNamespace(cuda_stream=12),
        types.SimpleNamespace(ptr=12),
        types.SimpleNamespace(handle=types.SimpleNamespace(value=12)),
    ],
)
def test_streams_by_protocol(stream):
    assert handle_of(stream) == 12


@pytest.mark.parametrize("stream", ["12", None, 1.5, True, object()])
def test_what_is_no_stream_is_refused(stream):
    with pytest.raises(StreamError, match="is no stream; pass an int"):
        handle_of(stream)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dict(address=-1), "ptr: address: expected a whole number of 0 to "),
        (dict(shape=(2, -1)), "ptr: shape: expected a whole number of 0 to "),
        (dict(shape=8), "ptr: shape: expected a tuple"),
        (dict(strides=(1,)), "ptr: 2 extents but 1 strides"),
        (dict(strides=(1, 2, 3)), "ptr: 2 extents but 3 strides"),
        (dict(strides=(1, 0.5)), "ptr: strides: expected a whole number"),
        (dict(dtype="f23"), "ptr: unknown dtype 'f23'"),
        (dict(device="cuda"), "ptr: device: expected a whole number of -1 to 2147483648, got 'cuda'"),
        (dict(device=-2), "ptr: device: expected a whole number of -1 to 2147483648, got -2"),
        (dict(device=2**31 + 1), "ptr: device: expected a whole number of -1 to 2147483648, got 2147483649"),
    ],
)
def test_a_pointer_that_means_nothing_is_refused_where_it_is_made(given, words):
    good = dict(address=4096, shape=(2, 3), dtype="f32", strides=(-3, 1), device=-1)
    made = zoo.ptr(**good)
    assert (made.address, made.shape, made.dtype, made.strides, made.device) == (4096, (2, 3), "f32", (-3, 1), -1)
    assert zoo.ptr(0, (2, 3), "f32").strides == (3, 1) and zoo.ptr(0, (2, 3), "f32").device == 0
    with pytest.raises(zoo.ArgumentError) as refusal:
        zoo.ptr(**{**good, **given})
    assert str(refusal.value).startswith(words)


def test_streams_must_agree_of_owners_that_order_their_data_and_of_no_others():
    """A subclass of torch's tensor orders as torch does; JAX, DLPack, numpy and a bare pointer know no stream of their own."""
    assert arrays.TORCH.binding and arrays._TORCH_SUBCLASS.binding and arrays._CUPY.binding and arrays._INTERFACE.binding
    assert kind_of(zoo.empty((0,), "f32")).binding
    assert not any(kind.binding for kind in (arrays._JAX, arrays._POINTER, arrays._DLPACK, arrays._NUMPY, arrays.VIEW))

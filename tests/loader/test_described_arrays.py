"""How each framework's arrays are read and described, field by field and at their limits; the frameworks are stand-ins."""

import contextlib
import math
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

import zoo
from zoo.contract.array import HOST, Array, Pointer, View
from zoo.contract.dtypes import DTYPES
from zoo.errors import ArgumentError, DriverError
from zoo.runtime import arrays, driver, streams
from zoo.runtime.arrays import Call, kind_of, plain, read, view
from zoo.runtime.dlpack import Export, make_capsule, read_dlpack

HIGHEST = 2**64 - 1


@pytest.fixture(autouse=True)
def no_driver(monkeypatch):
    """Memory from 1 << 40 is of device 3, other memory the host's; types that a test makes are forgotten behind it."""
    monkeypatch.setattr(driver, "device_of", lambda address: 3 if address >= 1 << 40 else HOST)
    monkeypatch.setattr(arrays, "_kinds", dict(arrays._kinds))


def words(**given):
    with pytest.raises(ArgumentError) as refused:
        Call.read(given)
    return str(refused.value)


class Dtype:
    """As torch's: all of one type."""

    def __init__(self, name):
        self.name = name

    def __str__(self):
        return f"torch.{self.name}"


class Tensor:
    shape, dtype, strides, device, address, negated = (4, 6), Dtype("bfloat16"), (6, 1), 0, 1 << 40, False

    def __init__(self, **changes):
        self.__dict__.update(changes)

    def is_contiguous(self):
        return self.strides == (6, 1)

    def stride(self):
        return self.strides

    def get_device(self):
        return self.device

    def data_ptr(self):
        return self.address

    def is_neg(self):
        return self.negated


class Parameter(Tensor):
    pass


class Other(Tensor):
    pass


@pytest.fixture
def torch(monkeypatch):
    made = SimpleNamespace(
        Tensor=Tensor, nn=SimpleNamespace(Parameter=Parameter), bfloat16=Tensor.dtype, float16=Dtype("float16"),
        _C=SimpleNamespace(DisableTorchFunctionSubclass=contextlib.nullcontext, _cuda_getCurrentRawStream=lambda device: 70 + device),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", made)
    streams.of_torch.cache_clear()
    yield made
    streams.of_torch.cache_clear()


@pytest.mark.parametrize("made", [Tensor, Parameter, Other])
def test_a_tensor_is_described_by_what_it_says(torch, made):
    call = Call.read(
        {"x": made(), "y": made(strides=(8, 1), device=2, address=64, dtype=torch.float16), "z": made(dtype=Dtype("f4"), device=-1)}
    )
    assert call.values["x"] == Array(1 << 40, "bf16", (4, 6), (6, 1), 0)
    assert call.values["y"] == Array(64, "f16", (4, 6), (8, 1), 2)
    assert call.values["z"] == Array(1 << 40, "torch.f4", (4, 6), (6, 1), HOST)
    assert kind_of(made()) is (arrays._TORCH_SUBCLASS if made is Other else arrays.TORCH)
    source = Call.read({"x": made(device=2), "y": made(device=2, address=64)}).stream_source()
    assert source() == 72 and source is streams.of_torch(2)  # and nothing between that would be called each time
    assert Call.read({"x": View(made(strides=(8, 1)), "f16")}).values["x"] == Array(1 << 40, "f16", (4, 6), (8, 1), 0)
    assert Call.read({"x": made(device=-1)}).stream_source()() is None
    assert Call.read({"x": made(shape=(0, 6), address=0)}).values["x"].address == 0


@pytest.mark.parametrize("made", [Tensor, Other])
def test_a_tensor_that_is_more_or_less_than_its_memory_is_refused(torch, made):
    for strides in ((6, 1), (8, 1)):
        assert "is negated only when it is read; pass x.resolve_neg()" in words(x=made(negated=True, strides=strides))
    assert words(x=made(dtype=Dtype("complex64"))).startswith("x: torch.complex64 is more than the numbers in memory")
    assert words(x=made(dtype=Dtype("qint8"))).startswith("x: torch.qint8 is more than the numbers in memory")
    assert words(x=made(address=0)).startswith("x: a torch tensor without memory")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"address": HIGHEST + 1}, "the address of a Other: expected a whole number of 0 to "),
        ({"address": -1}, "the address of a Other: expected"),
        ({"device": -2}, "the device of a Other: expected a whole number of -1 to"),
        ({"shape": (4, -6)}, "the shape of a Other: expected"),
        ({"strides": (8,)}, "a Other has 2 extents but 1 strides"),
        ({"strides": (8, 2**63)}, "the strides of a Other: expected"),
        ({"strides": (-1, 1)}, "the strides of a Other: expected"),
        ({"dtype": "bfloat16"}, "the dtype of a Other: expected one of torch's, got 'bfloat16'"),
        ({"get_device": None}, "a Other has no memory that a kernel could read: "),
    ],
)
def test_a_subclass_may_say_only_what_a_tensor_could(torch, changes, said):
    assert words(x=Other(**changes)).startswith(f"x: {said}")


def test_the_form_of_a_call_is_flat_for_tensors_and_of_types_and_values_otherwise(torch):
    form, addresses = read(
        {"x": Tensor(), "y": Tensor(strides=(8, 1)), "n": 3, "s": "a", "f": -0.0, "b": True, "q": Pointer(5, (), "f32", (), 0)}, "v"
    )
    assert form == [
        "v", "x", arrays.TORCH, Tensor.dtype, (4, 6), True, 0, "y", arrays.TORCH, Tensor.dtype, (4, 6), (8, 1), 0, "n", int, 3, "s", str, "a",
        "f", float, "-0x0.0p+0", "b", bool, True, "q", arrays._POINTER, ("pointer", "f32", (), (), 0),
    ]  # fmt: skip
    assert addresses == [1 << 40, 1 << 40, 5]
    assert read({"f": 1.0})[0] != read({"f": 1})[0] and read({"f": 0.0})[0] != read({"f": -0.0})[0]
    assert read({"f": math.nan})[0] == read({"f": math.nan})[0] and read({})[0] == [None]


class Text(str):
    __slots__ = ()

    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


class Whole(int):
    pass


def test_numbers_and_texts_of_other_classes_become_pythons():
    form, _ = read(
        {"a": Text("x"), "b": Whole(4), "c": numpy.float32(0.5), "d": numpy.int64(3), "e": ml_dtypes.bfloat16(1), "g": numpy.True_}
    )
    assert [type(one) for one in form[3::3]] == [str, int, str, int, ml_dtypes.bfloat16, bool] and form[2::3] == [
        str, int, float, int, ml_dtypes.bfloat16, bool,
    ]  # fmt: skip
    values = Call.read({"a": Text("x"), "b": Whole(4), "c": numpy.float32(0.5), "g": True}).values
    assert [type(one) for one in values.values()] == [str, int, float, bool] and values["c"] == 0.5
    kept = plain((Text("x"), (Whole(4), True), 1.5, None, numpy.int64(3)))
    assert [type(one) for one in kept] == [str, tuple, float, type(None), int] and [type(one) for one in kept[1]] == [int, bool]
    assert kept[4] == 3


class Raising:
    def __dlpack__(self):
        raise OSError("none")


@pytest.fixture
def cupy(monkeypatch):
    """Arrays of CuPy's and JAX's in name."""

    def make(module, **members):
        return type("ndarray", (), {"__module__": module, **members})()

    for find in (streams.of_cupy, streams.of_zoo):
        find.cache_clear()
    module = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda device: SimpleNamespace(ptr=80 + device)))
    monkeypatch.setitem(sys.modules, "cupy", module)
    yield make
    for find in (streams.of_cupy, streams.of_zoo):
        find.cache_clear()


def memory(address=1 << 40, device=1):
    return SimpleNamespace(ptr=address, device_id=device)


def test_an_array_of_cupys_has_strides_in_bytes_and_a_device(cupy):
    good = dict(data=memory(), dtype=numpy.dtype("f2"), shape=(3, 4), strides=(16, 2))
    call = Call.read({"x": cupy("cupy", **good)})
    assert call.values["x"] == Array(1 << 40, "f16", (3, 4), (8, 1), 1) and call.stream_source()() == 81
    assert Call.read({"x": cupy("cupy._core.core", **{**good, "dtype": numpy.dtype("u1"), "strides": (16, 1)})}).values["x"].dtype == "u8"
    assert Call.read({"x": cupy("cupy", **{**good, "dtype": numpy.dtype(">f2")})}).values["x"].dtype == ">f2"
    for device in (0, 2**31):
        assert Call.read({"x": cupy("cupy", **{**good, "data": memory(device=device)})}).values["x"].device == device
    for changes, said in (
        ({"data": memory(device=-1)}, "the device of CuPy's: expected a whole number of 0 to 2147483648"),
        ({"data": memory(device=2**31 + 1)}, "the device of CuPy's"),
        ({"data": memory(HIGHEST + 1)}, "the address of a ndarray: expected"),
        ({"data": memory(-1)}, "the address of a ndarray: expected"),
        ({"data": memory(1.5)}, "the address of a ndarray: expected"),
        ({"data": None}, "a ndarray of CuPy's that cannot be read as an array: "),
        ({"shape": (3, -4)}, "the shape of CuPy's: expected"),
        ({"strides": (16, 3)}, "strides of (16, 3) bytes are no multiples of the element's 2"),
        ({"strides": (16,)}, "2 extents but 1 strides"),
        ({"strides": (16, -(2**63) - 2)}, "strides: expected a whole number"),
    ):
        assert words(x=cupy("cupy", **{**good, **changes})).startswith(f"x: {said}")
    assert Call.read({"x": cupy("cupy", **{**good, "strides": (-(2**63), 2)})}).values["x"].strides == (-(2**62), 1)


def jax(cupy, address=1 << 40, devices=None, **changes):
    waited = []
    one = SimpleNamespace(platform="gpu", local_hardware_id=2)
    made = cupy(
        "jaxlib.xla", dtype=numpy.dtype("f4"), shape=(3, 4), unsafe_buffer_pointer=lambda self: address,
        devices=lambda self: {1} if devices is None else devices, block_until_ready=lambda self: waited.append(self), **changes,
    )  # fmt: skip
    if devices is None:
        type(made).devices = lambda self: [one]
    return made, waited


def device(platform="gpu", ordinal=2):
    return SimpleNamespace(platform=platform, local_hardware_id=ordinal)


def test_an_array_of_jax_is_waited_for_and_only_read(cupy, monkeypatch):
    made, waited = jax(cupy)
    call = Call.read({"x": made})
    assert call.values["x"] == Array(1 << 40, "f32", (3, 4), (4, 1), 2, readonly=True) and waited == [made]
    monkeypatch.setattr(streams, "_own", {2: SimpleNamespace(handle=90)})
    assert call.stream_source()() == 90
    for platform, ordinal, found in (("cuda", 5, 5), ("cpu", 5, HOST), ("cuda", 2**31, 2**31)):
        assert Call.read({"x": jax(cupy, devices=[device(platform, ordinal)])[0]}).values["x"].device == found
    assert words(x=jax(cupy, devices=[device(), device()])[0]).startswith("x: a JAX array over 2 devices; pass one shard")
    assert words(x=jax(cupy, devices=[])[0]).startswith("x: a JAX array over 0 devices")
    assert words(x=jax(cupy, devices=[device(ordinal=2**31 + 1)])[0]).startswith(
        "x: the device of JAX's: expected a whole number of -1 to 2147483648"
    )
    assert words(x=jax(cupy, devices=[None])[0]).startswith("x: a JAX array that cannot be read: ")
    assert words(x=jax(cupy, HIGHEST + 1)[0]).startswith("x: the address of a ndarray: expected")


class Interface:
    def __init__(self, without="", **changes):
        fields = {"shape": (3, 4), "typestr": "<f2", "data": (1 << 40, False), "version": 3, "strides": None, **changes}
        self.__cuda_array_interface__ = {name: value for name, value in fields.items() if name != without}


def test_an_interface_is_described_with_what_it_may_leave_out():
    found = Call.read({"x": Interface()})
    assert found.values["x"] == Array(1 << 40, "f16", (3, 4), (4, 1), 3) and found.stream_source() is streams.none
    for version in range(4):
        assert Call.read({"x": Interface(version=version)}).values["x"].dtype == "f16"
    assert Call.read({"x": Interface("strides", shape=[3, 4], data=(64, True))}).values["x"] == Array(64, "f16", (3, 4), (4, 1), HOST, True)
    assert Call.read({"x": Interface(shape=(0, 4), data=(0, False))}).values["x"].device == 0
    assert Call.read({"x": Interface(strides=[16, 2])}).values["x"].strides == (8, 1)
    for typestr, name in {
        "<f2": "f16",
        "<f4": "f32",
        "|u1": "u8",
        "<i4": "i32",
        "<i8": "i64",
        "|V1": "u8",
        "<f8": "<f8",
        "|b1": "|b1",
    }.items():
        assert Call.read({"x": Interface(typestr=typestr)}).values["x"].dtype == name
    assert Call.read({"x": Interface(typestr="<V1000", strides=(4000, 1000))}).values["x"].strides == (4, 1)
    for given, handle in ((None, None), (1, 0), (2, 2), (7, 7), (2**64 - 1, 2**64 - 1)):
        assert Call.read({"x": Interface(stream=given)}).stream_source()() == handle
    same = arrays._named_stream
    assert same(7) is same(7) and same(None) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"typestr": ">f2"}, "typestr: '>f2' is in the byte order of other machines; a GPU reads '<f2'"),
        ({"typestr": "<f0"}, "typestr: expected one such as '<f4', got '<f0'"),
        ({"typestr": 4}, "typestr: expected one such as '<f4', got 4"),
        ({"data": (1 << 40, 0)}, "data: expected (address, whether it is read-only), got 0 for the latter"),
        ({"mask": False}, "mask: a kernel reads every element"),
        ({"version": 4}, "version: zoo reads those up to 3, got 4"),
        ({"version": -1}, "version: expected a whole number"),
        ({"stream": -1}, "stream: expected a whole number of 0 to 18446744073709551615, got -1"),
        ({"stream": 2**64}, "stream: expected a whole number of 0 to 18446744073709551615"),
        ({"shape": (3, -4)}, "shape: expected a whole number"),
    ],
)
def test_an_interface_is_refused_in_the_words_of_its_field(changes, said):
    assert words(x=Interface(**changes)).startswith(f"x: the __cuda_array_interface__'s {said}")


def test_an_interface_without_what_it_must_have_is_malformed():
    for one in ("data", "shape", "typestr"):
        assert words(x=Interface(one)).startswith("x: the __cuda_array_interface__ of a Interface is malformed: ")
    for changes in ({"shape": 4}, {"strides": 4}, {"shape": iter((3, 4))}):
        assert "is malformed: " in words(x=Interface(**changes))
    assert words(x=Interface(data=(HIGHEST + 1, False))).startswith("x: the address of a Interface: expected")


def test_a_pointer_that_was_not_made_by_ptr_is_checked_as_one_that_was():
    good = dict(address=64, shape=(3, 4), dtype="f32", strides=(-(2**63), 1), device=2**31)
    assert Call.read({"x": Pointer(**good)}).values["x"] == Array(64, "f32", (3, 4), (-(2**63), 1), 2**31)
    emulated = SimpleNamespace(capability=(9, 0))
    assert Call.read({"x": Pointer(**{**good, "device": emulated})}).device is emulated
    assert zoo.ptr(64, (3, 4), "f32", (-(2**63), 1), 2**31) == Pointer(**good) and zoo.ptr(1 << 40, (3,), "f32").device == 3
    for changes, said in (
        ({"strides": (1,)}, "ptr: 2 extents but 1 strides"),
        ({"strides": (-(2**63) - 1, 1)}, "ptr: strides: expected"),
        ({"shape": (3, -1)}, "ptr: shape: expected"),
        ({"device": -2}, "ptr: device: expected a whole number of -1 to 2147483648"),
        ({"device": 2**31 + 1}, "ptr: device: expected"),
        ({"dtype": "f23"}, "ptr: unknown dtype 'f23'"),
        ({"address": -1}, "the address of a Pointer: expected"),
    ):
        assert words(x=Pointer(**{**good, **changes})).startswith(f"x: {said}")


def test_views_have_the_memory_the_device_and_the_stream_of_what_they_show():
    base = Interface(typestr="|u1", stream=7)
    shown = view(view(base, "e4m3"), "e5m2")
    assert shown == View(base, "e5m2")
    call = Call.read({"x": shown})
    assert call.values["x"] == Array(1 << 40, "e5m2", (3, 4), (4, 1), 3) and call.stream_source()() == 7
    assert Call.read({"x": View(View(base, "e4m3"), "u8")}).stream_source()() == 7
    assert words(x=View(5, "u8")).startswith("x: view: a int is no array")
    for given, said in (
        (5, "view: a int is no array"),
        (Interface(typestr="<f2"), "view: an element of f16 has 2 bytes, one of u8 1"),
        (Interface(typestr="<V3"), "view: an element of <V3 has 3 bytes, one of u8 1"),
        (numpy.zeros(2, ml_dtypes.int4), "view: an element of int4 has 4 bits, one of u8 1"),
        (numpy.zeros(2, object), "view: nothing is known of the size of object, so it cannot be taken for u8"),
    ):
        with pytest.raises(ArgumentError) as refused:
            view(given, "u8")
        assert str(refused.value) == said
    with pytest.raises(ArgumentError, match="view: a Liar cannot be read: "):
        view(liar(), "u8")


def liar():
    """Its kind is known, and then it fails."""

    class Liar(zoo.contract.own_array.OwnArray):
        def __init__(self):
            pass

    return Liar()


@pytest.mark.parametrize("place", ["address", "dtype"])
def test_an_error_of_the_driver_stays_what_it_is(place):
    """In reading, and in describing what was read."""

    class Lost(zoo.contract.own_array.OwnArray):
        def __init__(self):
            self.shape, self.strides, self.device, self.base = (), (), 0, None

    def fail(self):
        raise DriverError("asking", 1)

    Lost.address, Lost.dtype = property(fail) if place == "address" else 64, "f32"
    if place == "dtype":
        arrays._kinds[Lost] = arrays.Kind(arrays._read_own_array, lambda address, signature: fail(None))
    for read_it in (lambda: Call.read({"x": Lost()}), lambda: view(Lost(), "f32")):
        with pytest.raises(DriverError, match="asking"):
            read_it()


def test_errors_of_arrays_are_told_with_the_name_of_the_argument():
    assert words(x=liar()).startswith("x: a Liar that cannot be read: ")
    assert words(x=Raising()).startswith("x: a Raising does not give itself out by DLPack: ")

    class Failing:
        @property
        def __cuda_array_interface__(self):
            raise DriverError("asking", 1)

    with pytest.raises(ArgumentError, match=r"^x: the __cuda_array_interface__ of a Failing is malformed"):
        Call.read({"x": Failing()})


def test_what_is_no_array_has_no_kind():
    assert [kind_of(one) for one in (3, 1.5, "a", None, [1], (), zoo, Interface, numpy.float32(1), numpy.dtype("f4"))] == [None] * 10
    assert kind_of(numpy.zeros(3)) is arrays._NUMPY and kind_of(type("mine", (numpy.ndarray,), {"__module__": "numpy"})(3)) is arrays._NUMPY
    found = Call.read({"x": numpy.zeros((3, 4), ml_dtypes.bfloat16)})
    assert found.values["x"] == Array(0, "bf16", (3, 4), (4, 1), HOST) and found.stream_source() is streams.none
    assert kind_of(type("Array", (), {"__module__": "jax.core"})()) is None
    meta = type("Meta", (type,), {"__cuda_array_interface__": {}})
    assert kind_of(meta("Class", (), {})) is None


def test_a_call_is_for_the_first_device_that_an_array_has(monkeypatch):
    monkeypatch.setattr(driver, "device", lambda ordinal: f"device {ordinal}")
    host, one = zoo.ptr(64, (1,), "f32"), zoo.ptr(1 << 40, (1,), "f32")
    assert (
        Call.read({"n": 4, "x": host, "y": one}).device == "device 3"
        and Call.read({"x": host}).device == "device 0" == Call.read({}).device
    )


def test_arrays_stand_where_the_kernel_takes_arrays_and_numbers_where_it_takes_numbers():
    kernel = SimpleNamespace(
        name="a.kernel", arguments={"x": SimpleNamespace(kind="array"), "n": SimpleNamespace(kind="scalar", dtypes=("i32", "i64"))}
    )
    one = zoo.ptr(64, (1,), "f32")
    for good in ({"x": one, "n": 4}, {"x": None, "n": None}, {"other": 4}, {"other": one}):
        Call.read(good).check_kinds(kernel)
    for wrong, said in (
        ({"x": 4}, "x: expected an array in device memory, got int"),
        ({"n": one}, "n: expected a number (i32), got an array"),
    ):
        with pytest.raises(ArgumentError) as refused:
            Call.read(wrong).check_kinds(kernel)
        assert str(refused.value) == f"a.kernel: {said}"


def test_streams_of_owners_that_order_go_before_those_that_do_not(cupy, monkeypatch):
    monkeypatch.setattr(streams, "_own", {2: SimpleNamespace(handle=90)})
    theirs, (ours, _) = Interface(stream=7), jax(cupy)
    assert Call.read({"x": ours, "y": theirs}).stream_source()() == 7
    both = Call.read({"x": theirs, "y": ours, "z": Interface(stream=8)}).stream_source()
    with pytest.raises(zoo.errors.StreamError, match="the owners of x and z work on different streams"):
        both()


@pytest.mark.parametrize("dtype", ["f16", "e4m3", "i64"])
def test_a_capsule_says_what_it_was_made_of(dtype):
    owner = object()
    capsule = make_capsule(owner, 1 << 40, DTYPES[dtype].dlpack, (3, 4), (8, 1), 5)
    producer = type("Producer", (), {"__dlpack__": lambda self, **asked: capsule})()
    address, (code, shape, strides, device, readonly, export) = read_dlpack(producer)
    assert (address, code, shape, strides, device, readonly) == (1 << 40, DTYPES[dtype].dlpack, (3, 4), (8, 1), 5, False)
    assert export == Export(None) and hash(export) == hash(Export(None)) and export != capsule
    assert export.take() is capsule and export.take() is None
    described = Call.read({"x": producer}).values["x"]
    assert (described.dtype, described.strides, described.owner) == (dtype, (8, 1), capsule)

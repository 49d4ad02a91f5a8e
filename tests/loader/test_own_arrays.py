"""zoo's own arrays, in a GPU's memory and in an emulated one's: views, numpy's dtypes, and what they hand to others."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

import zoo
from tests import recorder
from zoo.contract.dtypes import DTYPES
from zoo.errors import StreamError
from zoo.runtime import streams
from zoo.runtime.arrays import _bits_of_unknown
from zoo.runtime.device_array import DeviceArray
from zoo.runtime.dlpack import read_dlpack

WHOLE = numpy.arange(7 * 12, dtype=numpy.int32).reshape(7, 12)

VIEWS = [
    "a.t()", "a[2:5, :]", "a[2:5]", "a[:, 3]", "a[4]", "a[-1, ::5]", "a[::3, 1:-1:2]", "a[5:2]", "a[2:5, 4:8].t()", "a.t()[1:3]",
    "a.T[1:3]", "a[2:5, 4:8].T", "a.reshape(3, 28)", "a.reshape((2, -1))", "a[1:3].reshape(24)", "a.reshape(7, 3, 4)[:, 1]", "a[..., 2:4]", "a[6, ...]", "a[3, 4]", "a[0]", "a[0, 11]", "a[-7, 0]",
    "a[numpy.int64(2), :100]", "a[3:3].reshape(0, 5)", "a.reshape(7, 1, 12)",
]  # fmt: skip

REFUSALS = [
    ("a.t().reshape(84)", "reshape: shape (12, 7) with strides (1, 12) is not contiguous, and a view cannot reorder it"),
    ("a[:, :6].reshape(42)", "is not contiguous"),
    ("a.reshape(5, 5)", "reshape: (7, 12) has 84 elements, which do not make (5, 5)"),
    ("a.reshape(-1, -1)", "which do not make (-1, -1)"),
    ("a.reshape(-1, 5)", "which do not make (-1, 5)"),
    ("a.reshape(7.0, 12)", "reshape: shape: expected a whole number"),
    ("a[7]", "an index: expected a whole number of -7 to 6, got 7"),
    ("a[0, 0, 0]", "3 indices (0, 0, 0) for an array of 2 dimensions (7, 12)"),
    ("a[::-1]", "a slice's step must be at least 1, got -1"),
    ("a['x':]", "a slice is made of whole numbers"),
    ("a[True]", "an index: expected a whole number"),
    ("a[[1, 2]]", "an index: expected a whole number"),
    ("a[4].t()", "t: expected a matrix, got 1 dimensions (12,)"),
]


def refused(expression, a):
    with pytest.raises(zoo.ArgumentError) as error:
        eval(expression, {"a": a, "numpy": numpy})
    return str(error.value)


@pytest.fixture
def emulated():
    return zoo.emulator.Device("sm_90a").array(WHOLE)


@pytest.mark.parametrize("expression", VIEWS)
def test_a_view_shows_what_numpy_would(emulated, expression):
    view = eval(expression, {"a": emulated, "numpy": numpy})
    wanted = eval(expression.replace(".t()", ".T"), {"a": WHOLE, "numpy": numpy})
    found = view.numpy()
    assert found.dtype == wanted.dtype and view.shape == wanted.shape and view.nbytes == wanted.nbytes
    numpy.testing.assert_array_equal(found, wanted)
    if wanted.size and wanted.ndim:
        assert view.address - emulated.address == wanted.ctypes.data - WHOLE.ctypes.data
        steps = [stride // 4 for stride in wanted.strides]
        assert [one for one, extent in zip(view.strides, view.shape, strict=True) if extent > 1] == [
            one for one, extent in zip(steps, wanted.shape, strict=True) if extent > 1
        ]


@pytest.mark.parametrize(("expression", "words"), REFUSALS)
def test_what_no_view_can_show_is_refused(emulated, expression, words):
    assert words in refused(expression, emulated)


@pytest.mark.parametrize("expression", VIEWS)
def test_numpy_gets_the_values_and_not_an_object(emulated, expression):
    view = eval(expression, {"a": emulated, "numpy": numpy})
    found = numpy.asarray(view)
    assert found.dtype == numpy.int32 and found.tobytes() == view.numpy().tobytes()
    assert view.ndim == len(view.shape) == found.ndim and (found.ndim == 0 or len(view) == len(found))


def test_what_numpy_asks_of_an_array_beside_its_values(emulated):
    assert numpy.array(emulated, numpy.float64).dtype == numpy.float64
    assert (numpy.ones((7, 12), numpy.int32) + emulated == WHOLE + 1).all() and (numpy.asarray(emulated, copy=None) == WHOLE).all()
    copy = numpy.asarray(emulated)
    copy[:] = 0
    assert (emulated.numpy() == WHOLE).all()
    with pytest.raises(ValueError, match="numpy can only have a copy"):
        numpy.asarray(emulated, copy=False)
    with pytest.raises(TypeError, match=r"no len\(\)"):
        len(emulated[3, 4])


def test_an_array_without_rows_is_not_taken_for_an_absent_one(emulated):
    for array in (emulated, emulated[:0], emulated[3, 4]):
        with pytest.raises(zoo.ArgumentError, match="neither true nor false"):
            bool(array)


def test_an_array_is_no_sequence(emulated):
    with pytest.raises(TypeError):
        list(emulated)


@pytest.mark.parametrize(
    ("given", "name", "numpys"),
    [
        (numpy.float32, "f32", "float32"),
        (numpy.dtype("int64"), "i64", "int64"),
        (ml_dtypes.bfloat16, "bf16", "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "e4m3", "float8_e4m3fn"),
        (numpy.uint8, "u8", "uint8"),
        ("e2m1x2", "e2m1x2", "uint8"),
        ("float32", "f32", "float32"),
        ("bfloat16", "bf16", "bfloat16"),
        ("float8_e8m0fnu", "ue8m0", "float8_e8m0fnu"),
        ("uint8", "u8", "uint8"),
    ],
)
def test_numpys_dtypes_are_taken_by_both_kinds_of_device(library, given, name, numpys):
    array = zoo.emulator.Device("sm_90a").empty((2, 3), given)
    assert (array.dtype, array.device.alloc(array.numpy().nbytes) > 0) == (name, True)
    assert array.numpy().dtype.name == numpys
    spelled = repr(given) if isinstance(given, str) else f"numpy.dtype(getattr(ml_dtypes, {numpys!r}, None) or {numpys!r})"
    log = run(library, f"a = zoo.empty((2, 3), {spelled}); print(a.dtype, a.numpy().dtype.name, zoo.to_device(a.numpy()).dtype)")
    assert log.stdout.split()[:2] == [name, numpys]


@pytest.mark.parametrize("given", [numpy.float64, "float64", "", None, object(), ml_dtypes.int4])
def test_a_dtype_that_zoo_has_not_is_refused(given):
    device = zoo.emulator.Device("sm_90a")
    for make in (lambda: device.empty((2,), given), lambda: zoo.empty((2,), given), lambda: zoo.ptr(4096, (2,), given, device=0)):
        with pytest.raises(zoo.ArgumentError, match=r"(?i:zoo) knows bf16|it knows bfloat16"):
            make()


@pytest.mark.parametrize(("given", "meant"), [("bfloat", "bfloat16"), ("float23", "float32"), ("e4m4", "e4m3"), ("F32", "f32")])
def test_a_misspelt_dtype_is_told_what_was_meant(given, meant):
    with pytest.raises(zoo.ArgumentError, match=f"empty: unknown dtype '{given}'; did you mean .*{meant}.*Zoo knows bf16, "):
        zoo.empty((2,), given)


START = """
import ctypes, gc, numpy, ml_dtypes, zoo
from zoo.runtime.dlpack import read_dlpack
recorder = ctypes.CDLL("libcuda.so.1")
recorder.zoo_recorder_live.restype = ctypes.c_long
whole = numpy.arange(7 * 12, dtype=numpy.int32).reshape(7, 12)
"""


def run(library, snippet):
    return recorder.python(library, START + snippet)


def test_views_of_device_memory_show_what_numpy_would(library):
    log = run(
        library,
        f"""
a = zoo.to_device(whole)
for expression in {VIEWS!r}:
    found = eval(expression).numpy()
    wanted = eval(expression.replace(".t()", ".T"), dict(a=whole, numpy=numpy))
    assert found.shape == wanted.shape and (found == wanted).all(), expression
a[2:4].copy_from(numpy.full((2, 12), -1, numpy.int32))
print((a.numpy() == -1).sum(), (a[2:4].numpy() == -1).all())
try: a[:, 2:4].copy_from(numpy.zeros((7, 2), numpy.int32))
except zoo.ArgumentError as error: print(error)
""",
    )
    first, refusal = log.stdout.splitlines()
    assert first == "24 True" and refusal.startswith("copy_from: a view with strides (12, 1) is not contiguous") and log.faults == []


def test_a_view_keeps_the_memory_it_shows(library):
    log = run(
        library,
        """
live = lambda: recorder.zoo_recorder_live(b"allocations")
view = zoo.to_device(whole)[1:].t()[2:]
gc.collect(); print(live(), (view.numpy() == whole[1:].T[2:]).all())
capsule = view.__dlpack__()
del view; gc.collect(); print(live())
del capsule; gc.collect(); print(live())
""",
    )
    assert log.stdout.split() == ["1", "True", "1", "0"]


def test_exported_views_carry_their_strides(library):
    log = run(
        library,
        """
a = zoo.to_device(whole)
for view in (a, a.t(), a[1:, ::2], a[2:4]):
    address, (dtype, shape, strides, device, readonly, _) = read_dlpack(view)
    interface = view.__cuda_array_interface__
    print(address - a.address, shape, strides, "|", interface["data"][0] - a.address, interface["shape"], interface["strides"])
""",
    )
    assert log.stdout.splitlines() == [
        "0 (7, 12) None | 0 (7, 12) None",
        "0 (12, 7) (1, 12) | 0 (12, 7) (4, 48)",
        "48 (6, 6) (12, 2) | 48 (6, 6) (48, 8)",
        "96 (2, 12) None | 96 (2, 12) None",
    ]


def test_a_view_is_launched_on_where_it_lies(library):
    log = run(
        library,
        """
x, q, scales = zoo.empty((256, 1024), "bf16"), zoo.empty((256, 512), "e4m3"), zoo.empty((256, 16), "ue8m0")
zoo.launch("quantize.mxfp8.rows", x=x[:, 512:], q=q, scales=scales)
print(x[:, 512:].address)
""",
    )
    (launch,) = log.launches
    assert int(log.stdout) in [int.from_bytes(one, "little") for one in launch.parameters if len(one) == 8]


@pytest.fixture
def waited(monkeypatch):
    """How often the device was waited for. There is none: an array of no bytes needs no driver, and views of it lie where the test says."""
    calls = []
    monkeypatch.setattr(DeviceArray, "_wait", lambda self: calls.append(self))
    return calls


def test_an_array_of_no_bytes_lies_nowhere_on_the_first_device(waited):
    for nothing in (DeviceArray((0, 4), "f32"), zoo.empty((0, 4), "f32"), zoo.to_device(numpy.zeros((0, 4), numpy.float32))):
        assert (nothing.address, nothing.device, nothing.nbytes, nothing.shape) == (0, 0, 0, (0, 4))
    assert zoo.empty((0,), "f32", 3).device == zoo.to_device(numpy.zeros(0, numpy.float32), 3).device == 3


TYPESTRS = {
    "bf16": "<V2",
    "f16": "<f2",
    "f32": "<f4",
    "i32": "<i4",
    "i64": "<i8",
    "u8": "|u1",
    "e4m3": "|u1",
    "ue8m0": "|u1",
    "e2m1x2": "|u1",
}


@pytest.mark.parametrize("dtype", TYPESTRS)
def test_what_others_are_told_of_an_array_is_what_it_is(waited, dtype):
    size = DTYPES[dtype].bytes
    for strides, given in (((3, 1), None), ((8, 1), (8, 1)), ((1, 2), (1, 2))):
        view = zoo.empty((0,), dtype, 2)._view(4096, (2, 3), strides)
        assert view.__cuda_array_interface__ == {
            "shape": (2, 3), "typestr": TYPESTRS[dtype], "data": (4096, False), "version": 3,
            "strides": given and tuple(stride * size for stride in given),
        }  # fmt: skip
        assert len(waited) == 1 and view.__dlpack_device__() == (2, 2)
        for asked, waits in (({}, 2), ({"stream": 1}, 3), ({"stream": -1}, 3), ({"copy": False, "dl_device": (2, 2), "stream": -1}, 3)):
            capsule = view.__dlpack__(**asked)
            producer = SimpleNamespace(__dlpack__=lambda capsule=capsule, **asked: capsule)
            address, (kind, shape, said, device, readonly, _) = read_dlpack(producer)
            assert (address, kind, shape, said, device, readonly) == (4096, DTYPES[dtype].dlpack, (2, 3), given, 2, False)
            assert len(waited) == waits
        for asked in ({"copy": True}, {"dl_device": (2, 0)}, {"dl_device": (1, 0)}):
            with pytest.raises(BufferError, match="no copy, and no other device"):
                view.__dlpack__(**asked)
        waited.clear()


@pytest.mark.parametrize(
    ("given", "handle"), [(0, 0), (1, 1), (2**64 - 1, 2**64 - 1), (-1, None), (2**64, None), (1.0, None), (True, None)]
)
def test_a_stream_is_a_number_of_64_bits(given, handle):
    protocol = SimpleNamespace(__cuda_stream__=lambda: (0, given))
    for one in (given, protocol, SimpleNamespace(__cuda_stream__=(0, given))):
        if handle is not None:
            assert streams.handle_of(one) == handle
        else:
            with pytest.raises(StreamError, match="is no stream; pass an int"):
                streams.handle_of(one)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("torch.uint16", 16), ("float8_e4m3b11fnuz", 8), ("<V2", 16), ("|V1", 8), ("DLPack type (1, 16, 1)", 16), ("DLPack type (2, 8, 4)", 32),
        ("bool", 8), ("torch.bool", 8), ("object", None),
    ],
)  # fmt: skip
def test_an_element_of_a_dtype_without_a_name_here_has_the_bits_that_its_own_name_says(name, bits):
    assert _bits_of_unknown(name) == bits

"""What stands for a size, a number, an option, a dtype or an array in `zoo.call` and `zoo.shapes`: a result or a refusal in a sentence."""

from __future__ import annotations

from types import SimpleNamespace

import numpy
import pytest

import zoo
import zoo.emulator
from zoo.contract.array import Array
from zoo.contract.resolve import resolve
from zoo.contract.shapes import settle
from zoo.runtime import streams

HUGE = 10**5000  # has no decimal text in Python


class Wordless:
    def __repr__(self):
        raise RuntimeError("no text")


class Incomparable:
    __hash__ = None

    def __eq__(self, other):
        raise OSError("not to be compared")


class Classless:
    @property
    def __class__(self):
        raise RuntimeError("no class")


class Index:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number()


class Interface:
    def __init__(self, **changes):
        self.__cuda_array_interface__ = dict(shape=(4, 64), typestr="<f4", data=(1 << 20, False), version=3, strides=None) | changes


class Gone:
    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("gone")


LOOP: list[object] = []
LOOP.append(LOOP)
LIES = {
    "huge": HUGE, "negative": -5, "huge and negative": -HUGE, "more than 63 bits": 2**63, "float": 1.5, "not a number": float("nan"),
    "text": "M", "bytes": b"x", "wordless": Wordless(), "incomparable": Incomparable(), "classless": Classless(), "loop": LOOP,
    "index that raises": Index(lambda: 1 // 0), "index of many digits": Index(lambda: HUGE), "index of a text": Index(lambda: "a"),
    "list": [1], "mapping": {}, "function": len, "class": Wordless, "words": "w" * 10**6, "surrogate": "\ud800", "numbers": numpy.zeros((4, 64)),
    "interface of negative extents": Interface(shape=(-4, 64)), "interface of many digits": Interface(shape=(HUGE, 64)),
    "interface of 65 dimensions": Interface(shape=(1,) * 65), "interface of no shape": Interface(shape=None), "interface that is gone": Gone(),
    "pair of many digits": ((HUGE, 64), "f32"), "pair of negative extents": ((-4, 64), "f32"), "pair of 100 dimensions": (list(range(100)), "f32"),
    "pair of nothing": ((4, 64), None), "pair of objects": ((4, 64), object), "pair of a wordless dtype": ((4, 64), Wordless()),
    "pair of a loop": ((4, 64), LOOP), "pair of records": ((4, 64), [("a", "f4")]), "pair of a loop of extents": ((LOOP, 4), "f32"),
    "pair of an extent that raises": ((Index(lambda: 1 // 0), 64), "f32"), "pair of words": ((4, 64), "w" * 10**6),
}  # fmt: skip
X = ((4, 64), "f32")
PLACES = {
    "an input": ("quantize.mxfp8.rows", "x", {}),
    "an output": ("quantize.mxfp8.rows", "q", dict(x=X)),
    "an option": ("quantize.mxfp8.rows", "layout", dict(x=X)),
    "an optional output": ("quantize.mxfp8.squares", "q_cols", dict(x=X)),
    "a size": ("scales.unblocked", "M", dict(blocked=((1, 2, 32, 16), "u8"), C=7)),
    "a number": ("scales.unblocked.k_grouped", "block", dict(blocked=((2, 32, 16), "u8"), offsets=((2,), "i32"), R=100, C=7)),
    "packed weights": ("unpack.nvfp4.fragments", "b", {}),
    "rows of packed weights": ("unpack.nvfp4.fragments", "R", dict(b=((1, 1, 1, 2304), "u8"), KB=32)),
}


def refusal(function):
    """The words of a refusal; None where there is none. Anything else goes through, and fails the test."""
    try:
        function()
    except zoo.ZooError as error:
        return str(error)
    return None


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("lie", LIES)
def test_shapes_refuses_it_in_a_sentence(lie, place):
    name, argument, others = PLACES[place]
    words = refusal(lambda: zoo.shapes(name, **others, **{argument: LIES[lie]}))
    # of another dtype, and a block of -5 elements: said when the call is resolved
    assert words is not None or (lie == "numbers" and "number" not in place) or (lie, place) == ("negative", "a number"), (lie, place)
    assert words is None or (argument in words and len(words) < 1500)


@pytest.fixture(scope="module")
def x():
    return zoo.emulator.Device(arch="sm_90a").array(numpy.ones((4, 64), numpy.float32))


@pytest.mark.parametrize("lie", LIES)
def test_call_refuses_it_in_a_sentence(lie, x):
    for argument in ("q", "scales", "layout", "x"):
        assert refusal(lambda given=argument: zoo.call("quantize.mxfp8.rows", **{"x": x, given: LIES[lie]})), argument
        assert refusal(lambda given=argument: zoo.launch("quantize.mxfp8.rows", **{"x": x, "q": x, "scales": x, given: LIES[lie]})), (
            argument
        )
    assert refusal(lambda: zoo.call("quantize.mxfp8.rows", x=x, variant=LIES[lie]))
    assert refusal(lambda: zoo.call(LIES[lie], x=x))


class Secretive:
    def __getattr__(self, name):
        raise RuntimeError(f"no {name}")


STREAMS = {
    "attributes that raise": Secretive(),
    "protocol of many digits": SimpleNamespace(__cuda_stream__=lambda: (0, HUGE)),
    "protocol that raises": SimpleNamespace(__cuda_stream__=lambda: 1 // 0),
    "handle whose attributes raise": SimpleNamespace(handle=Secretive()),
    "address of many digits": SimpleNamespace(ptr=HUGE),
    "list of words": ["w" * 10**6],
}


@pytest.mark.parametrize("lie", [*(lie for lie in LIES if lie != "more than 63 bits"), *STREAMS])
def test_what_is_no_stream_is_refused_in_a_sentence(lie, x):
    given = {**LIES, **STREAMS}[lie]
    for function, outputs in ((zoo.call, {}), (zoo.launch, {"q": x, "scales": x}), (streams.handle_of, None)):
        with pytest.raises(zoo.ZooError) as refused:
            function(given) if outputs is None else function("quantize.mxfp8.rows", x=x, stream=given, **outputs)
        assert len(str(refused.value)) < 600
    with pytest.raises(zoo.ArgumentError, match=r"^device: expected a whole number"):
        zoo.stream(given)


@pytest.mark.parametrize("lie", [*LIES, *STREAMS])
def test_what_is_no_word_finds_no_kernel_and_is_told_in_a_sentence(lie, x):
    given = {**LIES, **STREAMS}[lie]
    asks = (
        lambda: zoo.find(op=given),
        lambda: zoo.find(arch=given),
        lambda: zoo.load(given),
        lambda: zoo.call("quantize.mxfp8.rows", x=x, variant=given),
        lambda: zoo.Zoo("cubins", given),
        lambda: zoo.emulator.Device(arch=given),
        lambda: zoo.emulator.Device("sm_90a", scheduling=given),
    )
    for ask in asks:
        with pytest.raises(zoo.ZooError) as refused:
            ask()
        assert len(str(refused.value)) < 1000
    if type(given) is str and len(given) > 1000:
        assert len(refusal(lambda: zoo.call("quantize.mxfp8.rows", x=x, **{given: 1}))) < 1000
        assert len(refusal(lambda: zoo.shapes("quantize.mxfp8.rows", x=X, **{given: 1}))) < 1000
        assert len(refusal(lambda: zoo.find(**{given: "gemm"}))) < 1000


@pytest.mark.parametrize("function", [zoo.call, zoo.launch, zoo.prepare, zoo.shapes])
def test_arguments_without_a_name_are_refused_with_the_names_there_are(function, x):
    with pytest.raises(zoo.ArgumentError) as refused:
        function("quantize.mxfp8.rows", x, x)
    assert str(refused.value) == (
        "quantize.mxfp8.rows: arguments go by name, and 2 came without one; it takes x=, q=, scales=, rounding=, layout="
    )
    with pytest.raises(zoo.UnknownKernelError, match=r"did you mean quantize\.mxfp8\.rows"):
        function("quantize.mxfp8.row", x)


INDICES = (
    "a[H, H, H]",
    "a[W]",
    "a[W:2]",
    "a[::-H]",
    "a[R:]",
    "a[::R]",
    "a[::S]",
    "a[S]",
    "a.reshape(W)",
    "a.reshape(S)",
    "a.reshape(H, 1)",
)


@pytest.mark.parametrize("expression", INDICES)
def test_what_is_no_index_and_no_shape_is_refused_in_a_sentence(expression, x):
    given = {"a": x, "H": HUGE, "W": Wordless(), "R": Index(lambda: 1 // 0), "S": Secretive()}
    assert refusal(lambda: eval(expression, given))


def test_a_step_of_many_digits_leaves_strides_that_fit(x):
    view = x[::HUGE, ::2]
    assert view.shape == (1, 32) and max(view.strides) < 2**63 and repr(view)


def test_a_size_of_numpys_numbers_does_not_wrap():
    blocked = ((1, 2, 32, 16), "u8")
    assert zoo.shapes("scales.unblocked", blocked=blocked, M=numpy.int32(100), C=numpy.int8(7))["scales"].shape == (100, 7)
    assert zoo.shapes("scales.unblocked", blocked=blocked, M=Index(lambda: 100), C=7)["scales"].shape == (100, 7)


def test_outputs_that_overlap_or_lie_on_an_input_are_refused(x):
    device = x.device
    q = device.empty((4, 64), "e4m3")
    lies = {
        "q: overlaps x": dict(q=zoo.ptr(x.address, (4, 64), "e4m3", device=0)),
        "scales: overlaps q": dict(q=q, scales=zoo.view(q.reshape(-1)[:8].reshape(4, 2), "ue8m0")),
    }
    for words, given in lies.items():
        for function in (zoo.call, zoo.launch):
            more = {} if function is zoo.call else {"q": q, "scales": device.empty((4, 2), "ue8m0")}
            found = refusal(lambda function=function, more=more, given=given: function("quantize.mxfp8.rows", x=x, **{**more, **given}))
            assert found is not None and (words in found or "lies on device" in found), found


REFUSED = {  # of a kernel's inputs, by the words in which a launch refuses them
    "a size that a constraint refuses": ("quantize.mxfp8.rows", dict(x=((4, 100), "bf16")), "K must be a multiple of 32"),
    "a size past the grid": ("quantize.mxfp8.rows", dict(x=((2**40, 64), "bf16")), "quantise it in parts"),
    "sizes past 64 bits": ("quantize.mxfp8.rows", dict(x=((2**40, 2**40), "bf16")), "does not fit 64 bits"),
    "a dtype of another kernel": ("quantize.mxfp8.rows", dict(x=((4, 64), "i32")), "x: expected bf16, f16 or f32, got i32"),
    "an output of another shape": ("quantize.mxfp8.rows", dict(x=((4, 64), "f32"), q=((4, 32), "e4m3")), "q: expected (4, 64)"),
    "a size that does not fit an input": (
        "scales.unblocked",
        dict(blocked=((1, 2, 32, 16), "u8"), M=1000, C=7),
        "blocked: expected (8, 2, 32, 16)",
    ),
    "matrices of another K": (
        "gemm.mxfp8.dense",
        dict(a=((4, 128), "e4m3"), a_scale=((1, 1, 32, 16), "ue8m0"), b=((128, 256), "e4m3"), b_scale=((1, 2, 32, 16), "ue8m0")),
        "b: expected (128, 128)",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_shapes_refuses_what_a_launch_refuses_in_its_words(what):
    name, inputs, words = REFUSED[what]
    found = refusal(lambda: zoo.shapes(name, **inputs))
    assert found is not None and words in found
    if "M" not in inputs:  # which only calls that allocate take
        at = iter(range(1 << 50, 1 << 60, 1 << 50))
        arrays = {one: zoo.ptr(next(at), *pair, device=0) for one, pair in inputs.items()}
        given = {one: Array(array.address, array.dtype, array.shape, array.strides, 0) for one, array in arrays.items()}
        lacking = {
            one: Array(next(at), made.dtype, made.shape, made.strides, 0) for one, made in settle(zoo.kernel(name), given).made.items()
        }
        with pytest.raises(zoo.ZooError) as caught:
            resolve(zoo.kernel(name), {**given, **lacking}, (9, 0) if "mxfp8.rows" in name else (10, 0), 132)
        assert str(caught.value) == found


def test_shapes_of_rows_that_a_caller_may_still_lay_apart_are_told():
    inputs = dict(a=((8, 100), "e4m3"), a_scale=((8, 2), "f32"), b=((16, 100), "e4m3"), b_scale=((16, 2), "f32"), offsets=((1,), "i32"))
    assert zoo.shapes("gemm.fp8b128.k_grouped", **inputs)["d"].shape == (1, 8, 16)
    contiguous = zoo.emulator.Device(arch="sm_90a").empty((8, 100), "e4m3")
    found = refusal(lambda: zoo.shapes("gemm.fp8b128.k_grouped", **{**inputs, "a": contiguous}))
    assert found is not None and "a_stride % 16 == 0" in found

"""`zoo.call`: outputs are allocated where the inputs lie, repeated calls are remembered, and workspaces are a stream's own."""

from __future__ import annotations

import contextlib
import shutil
import sys
from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

import zoo
import zoo.emulator
from tests import recorder
from zoo import calls
from zoo.contract.array import Array, View, contiguous_strides
from zoo.contract.shapes import Made
from zoo.contract.trial import without_idle_workspaces
from zoo.packaged import packaged
from zoo.runtime import allocation
from zoo.runtime.allocation import Allocator
from zoo.runtime.device_array import DeviceArray


@pytest.fixture(scope="module")
def emulated():
    return zoo.emulator.Device(arch="sm_90a")


def matrix(device, *shape):
    return device.array(numpy.random.default_rng(1).standard_normal(shape).astype(ml_dtypes.bfloat16))


def test_outputs_come_back_by_name_and_feed_the_next_call(emulated):
    x = matrix(emulated, 20, 256)
    made = zoo.call("quantize.fp8b128.rows", x=x, layout="mn_major")
    assert made._fields == ("q", "scales") and made.scales.shape == (20, 2) and made.scales.strides == (1, 20)
    (out,) = zoo.call("dequantize.fp8b128.rows", q=made.q, scales=made.scales, layout="mn_major", out="f32")
    assert out.dtype == "f32"
    assert abs(out.numpy() - x.numpy().astype(numpy.float32)).max() < 0.2


def test_a_matrix_of_weights_needs_no_batch_of_one(emulated):
    w = matrix(emulated, 128, 256)
    alone, batch = zoo.call("quantize.fp8b128.squares", x=w), zoo.call("quantize.fp8b128.squares", x=w.reshape(1, 128, 256))
    assert alone.q.shape == (128, 256) and batch.q.shape == (1, 128, 256)
    assert (alone.q.numpy() == batch.q.numpy()[0]).all()


def test_an_output_that_exists_is_written_and_returned(emulated):
    x, q = matrix(emulated, 4, 256), emulated.empty((4, 256), "e4m3")
    made = zoo.call("quantize.fp8b128.rows", x=x, q=q)
    assert made.q is q and made.scales.shape == (4, 2)


def test_a_launch_takes_what_a_call_returned(emulated):
    x = matrix(emulated, 6, 512)
    made = zoo.call("quantize.fp8b128.rows", x=x, layout="mn_major")
    again = emulated.empty((6, 512), "e4m3")
    zoo.launch("quantize.fp8b128.rows", x=x, q=again, scales=made.scales, layout="mn_major")
    assert (again.numpy() == made.q.numpy()).all()


def test_a_workspace_that_several_ctas_add_to_is_written_before(emulated):
    x = matrix(emulated, 128, 256)
    made = zoo.call("quantize.amax", x=x, tensor_scale=True)
    assert made.amax.numpy() == abs(x.numpy().astype(numpy.float32)).max()


@pytest.mark.parametrize(
    ("rows", "more", "capability", "made"),
    [
        (32768, {}, (9, 0), True),
        (32768, {"variant": "t128_w256_moved"}, (9, 0), True),
        (32768, {"variant": "t128"}, (9, 0), False),
        (64, {}, (9, 0), False),
        (32768, {"d": "f32"}, (9, 0), False),
        (32768, {"workspace": False}, (9, 0), False),
        (32768, {}, (10, 0), False),
        (32768, {"K": 7169}, (9, 0), True),  # refused by the call itself
    ],
)
def test_no_workspace_is_made_that_the_variant_chosen_takes_no_notice_of(rows, more, capability, made):
    kernel = packaged.kernel("gemm.fp8b128.m_grouped_gather")
    variant, K = more.get("variant"), more.get("K", 7168)
    shapes = {
        "a": ((8192, K), "e4m3"),
        "a_scale": ((8192, -(-K // 128)), "f32"),
        "b": ((8, 4096, K), "e4m3"),
        "b_scale": ((8, 32, -(-K // 128)), "f32"),
    }
    shapes |= {"index": ((rows,), "i32"), "offsets": ((8,), "i32")}
    given = {name: Array(0, dtype, shape, contiguous_strides(shape)) for name, (shape, dtype) in shapes.items()}
    call = calls.settled(kernel, given | {name: value for name, value in more.items() if name in ("d", "workspace")})
    assert ("workspace" in without_idle_workspaces(kernel, call, capability, 132, variant).made) is made
    assert ("workspace" in call.made) is (more.get("workspace") is None)


def test_a_call_of_few_gathered_rows_makes_its_result_alone(emulated, monkeypatch):
    made, inner = [], calls.Repeated
    monkeypatch.setattr(calls, "Repeated", lambda kernel, settled, *more: made.append([*settled.made]) or inner(kernel, settled, *more))
    a, b = (
        emulated.array(numpy.ones((16, 256), ml_dtypes.float8_e4m3fn)),
        emulated.array(numpy.ones((2, 128, 256), ml_dtypes.float8_e4m3fn)),
    )
    scales = emulated.array(numpy.ones((16, 2), numpy.float32)), emulated.array(numpy.ones((2, 1, 2), numpy.float32))
    index, offsets = emulated.array(numpy.arange(16, dtype=numpy.int32)), emulated.array(numpy.array([8, 16], numpy.int32))
    found = zoo.call("gemm.fp8b128.m_grouped_gather", a=a, a_scale=scales[0], b=b, b_scale=scales[1], index=index, offsets=offsets)
    assert made == [["d"]] and (found.d.numpy() == 256).all()
    with pytest.raises(zoo.VariantError, match="a variant's name is a text"):
        zoo.call(
            "gemm.fp8b128.m_grouped_gather",
            a=a,
            a_scale=scales[0],
            b=b,
            b_scale=scales[1],
            index=index,
            offsets=offsets,
            variant=numpy.ones(2),
        )


def test_a_workspace_that_every_variant_needs_cannot_be_left_out(emulated):
    assert zoo.call("quantize.amax", x=matrix(emulated, 128, 256), tensor_scale=True, workspace=False).amax.numpy() > 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: zoo.call("quantize.amax", x=numpy.ones((4, 4), numpy.float32)), "x: expected arrays in device memory; zoo.to_device"),
        (lambda x: zoo.call("quantize.mxfp8.rows"), "x: missing"),
        (lambda x: zoo.call("quantize.mxfp8.rows", x=x, scale=x), "no argument is named 'scale'"),
        (lambda x: zoo.call("quantize.mxfp8.rows", x=3), "x: expected an array, got 3"),
        (lambda x: zoo.call("quantize.mxfp8.rows", x=x, layout="round"), "layout: expected plain or blocked, got 'round'"),
        (lambda x: zoo.call("quantize.mxfp8.row", x=x), "no kernel is named 'quantize.mxfp8.row'"),
        (lambda x: zoo.call("scales.unblocked.k_grouped", blocked=x, offsets=x, block=x, R=1, C=1), "block: expected a number"),
    ],
)
def test_a_call_that_cannot_be_is_refused_in_a_sentence(emulated, call, words):
    with pytest.raises(zoo.ZooError, match=words):
        call(matrix(emulated, 4, 64))


START = """
import collections, zoo
from zoo import calls, catalog
count = collections.Counter()
def counted(owner, name):
    inner = getattr(owner, name)
    def outer(*given, **named):
        count[name] += 1
        return inner(*given, **named)
    setattr(owner, name, outer)
counted(catalog, "resolve"), counted(calls, "settle")
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("the stand-in for libcuda needs a C compiler")
    return recorder.build(tmp_path_factory.mktemp("recorder"))


def test_a_repeated_call_resolves_nothing_and_gets_new_memory(driver):
    run = recorder.python(
        driver,
        START
        + """
x = zoo.empty((128, 512), "bf16")
kept = [zoo.call("quantize.mxfp8.rows", x=x) for _ in range(5)]
assert len({made.q.address for made in kept}) == 5 and all(made.q.shape == (128, 512) for made in kept)
assert count["resolve"] == count["settle"] == 1, count
zoo.call("quantize.mxfp8.rows", x=x, q="e5m2")
zoo.call("quantize.mxfp8.rows", x=x[:64, :])
assert count["resolve"] == 3, count
""",
    )
    assert len(run.launches) == 7 and not run.faults


def test_a_stream_has_one_workspace_and_another_stream_another(driver):
    run = recorder.python(
        driver,
        START
        + """
x = zoo.empty((128, 512), "bf16")
for _ in range(3):
    zoo.call("quantize.amax", x=x)
other = zoo.runtime.streams.Stream(zoo.runtime.driver.device(0))
zoo.call("quantize.amax", x=x, stream=other)
""",
    )
    kernel = zoo.kernel("quantize.amax")
    place = next(i for i, one in enumerate(kernel.variants[0].launch.parameters) if one.argument == "workspace")
    workspaces = [launch.parameters[place] for launch in run.launches]
    assert len(set(workspaces[:3])) == 1 and not run.faults
    assert workspaces[3] != workspaces[0]


class Within:
    """What was made, and within which streams."""

    def __init__(self):
        self.events, self.depth = [], []

    @contextlib.contextmanager
    def on(self, device, stream):
        self.depth.append((device, stream))
        yield
        self.depth.pop()

    def maker(self, made, device):
        return lambda: self.events.append((made.name, *self.depth)) or made.name


@pytest.mark.parametrize("source", [None, 3])
def test_what_a_repeated_call_makes_is_made_within_its_stream(source):
    kernel, x = zoo.kernel("quantize.fp8b128.rows"), Array(4096, "bf16", (4, 256), (256, 1), 2)
    noted, runs, moved = Within(), [], []
    plan = SimpleNamespace(run=runs.append, move=lambda addresses: moved.append(addresses) or len(moved) < 3, movable=True)
    allocator = Allocator(noted.maker, len, noted.on)
    call = calls.Repeated(kernel, calls.settled(kernel, {"x": x}), allocator, 2, lambda: source)
    assert not call.movable
    assert call.first({}, lambda addresses: addresses == {"q": 1, "scales": 6} and plan, 7) == ("q", "scales") and call.movable
    assert noted.events == [("q", (2, 7)), ("scales", (2, 7))] and runs == [7]
    noted.events.clear()
    call.first({}, lambda addresses: plan, None)
    assert noted.events == [("q",), ("scales",)] and runs.pop() is None
    noted.events.clear()
    assert call([5], {}, None) == ("q", "scales") and noted.events == [("q",), ("scales",)]
    noted.events.clear()
    assert call([5], {}, 7) == ("q", "scales") and noted.events == [("q", (2, 7)), ("scales", (2, 7))]
    assert call([5], {}, None) is None and moved == 3 * [[5, 1, 6]] and runs == [7, None, 7]


def test_memory_reaches_from_the_first_element_to_behind_the_last():
    for shape, strides, reach in (((2, 3), (4, 1), 7), ((0, 3), (4, 1), 0), ((3, 0), (4, 1), 0), ((1, 1), (9, 9), 1), ((), (), 1)):
        assert allocation._reach(Made("q", "f32", shape, strides, "write")) == reach


def test_a_stream_keeps_its_workspace_until_one_at_least_twice_as_large_is_needed(monkeypatch):
    monkeypatch.setattr(allocation, "DeviceArray", lambda shape, dtype, device: SimpleNamespace(nbytes=shape[0], of=(dtype, device)))
    monkeypatch.setattr(allocation, "_workspaces", {})

    def give(elements, stream, device=1):
        return allocation.kept_workspace(Made("w", "f32", (elements,), (1,), "workspace"), device)(stream)

    first = give(10, None)
    assert first.nbytes == 40 and first.of == ("u8", 1) and give(10, None) is first and give(9, None) is first
    assert give(10, 5) is not first and give(10, None, 2) is not first
    second = give(11, None)
    assert second.nbytes == 80 and give(20, None) is second and give(21, None).nbytes == 160 and give(1, 5).nbytes == 40
    assert give(81, None).nbytes == 324 and give(0, 6).nbytes == 0


@pytest.fixture
def cupy(monkeypatch):
    """In name; arrays are what was said of them and on which device."""
    inside = []

    @contextlib.contextmanager
    def on(device):
        inside.append(device)
        yield
        inside.pop()

    module = SimpleNamespace(
        cuda=SimpleNamespace(Device=on, ExternalStream=lambda stream, device: ("stream", stream, device)),
        ndarray=lambda shape, dtype, strides: (shape, str(dtype), strides, *inside),
    )
    monkeypatch.setitem(sys.modules, "cupy", module)


def test_what_cupy_owns_cupy_makes(cupy):
    found = allocation.allocator_of(type("ndarray", (), {"__module__": "cupy._core"})())
    assert found.maker(Made("q", "f16", (2, 3), (4, 1), "write"), 3)() == ((2, 3), "float16", (8, 2), 3)
    assert found.maker(Made("q", "u8", (3, 2), (2, 1), "write"), 0)() == ((3, 2), "uint8", (2, 1), 0)
    assert found.on(3, 80) == ("stream", 80, 3) and not found.workspaces_kept
    assert found.address(SimpleNamespace(data=SimpleNamespace(ptr=77))) == 77


def test_what_torch_owns_torch_makes_of_its_own_dtypes_or_of_bytes(monkeypatch):
    tensor = type("Tensor", (), {"__module__": "torch", "data_ptr": lambda self: 55})
    module = SimpleNamespace(
        Tensor=tensor, uint8="bytes", bfloat16="bf", device=lambda kind, number: f"{kind}:{number}",
        empty=lambda shape, **where: (shape, where), empty_strided=lambda shape, strides, **where: (shape, strides, where),
        cuda=SimpleNamespace(ExternalStream=lambda stream, device: (stream, device), stream=lambda one: ("within", one)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", module)
    for value in (tensor(), View(tensor(), "e4m3"), View(View(tensor(), "u8"), "e4m3")):
        found = allocation.allocator_of(value)
        assert found.maker(Made("q", "bf16", (2, 3), (3, 1), "write"), 1)() == ((2, 3), {"dtype": "bf", "device": "cuda:1"})
        assert found.maker(Made("q", "e4m3", (2, 3), (8, 1), "write"), 0)() == ((2, 3), (8, 1), {"dtype": "bytes", "device": "cuda:0"})
        assert found.address(tensor()) == 55 and found.on(1, 80) == ("within", (80, 1)) and not found.workspaces_kept


@pytest.mark.parametrize("module", ["jax", "jaxlib.xla"])
def test_no_kernel_writes_what_jax_owns(module):
    with pytest.raises(
        zoo.ArgumentError, match=r"JAX's arrays are immutable, so no kernel can write one; zoo.jax.call gives JAX's arrays back"
    ):
        allocation.allocator_of(type("Array", (), {"__module__": module})())


def test_what_zoo_owns_zoo_makes_and_a_gpu_keeps_its_workspaces(emulated):
    other = zoo.emulator.Device(arch="sm_90a")
    found = allocation.allocator_of(other.empty((1,), "u8"))
    made = found.maker(Made("q", "f32", (2, 3), (8, 1), "write"), emulated)()
    assert (made.shape, made.strides, made.dtype) == ((2, 3), (8, 1), "f32") and found.address(made) == made.address
    assert not found.workspaces_kept and (found.maker(Made("w", "i32", (4,), (1,), "workspace"), emulated)().numpy() == 0).all()
    with found.on(0, 1):
        pass
    for value in (object(), DeviceArray((0,), "u8")):
        assert allocation.allocator_of(value).workspaces_kept


def test_cupy_makes_bytes_of_fp8_and_nothing_of_what_no_byte_carries(cupy):
    found = allocation.allocator_of(type("ndarray", (), {"__module__": "cupy"})())
    for dtype in ("e4m3", "e5m2", "ue8m0"):
        assert found.maker(Made("q", dtype, (2, 3), (3, 1), "write"), 0)() == ((2, 3), "uint8", (3, 1), 0)
    with pytest.raises(zoo.ArgumentError, match=r"^d: CuPy has no bf16; pass an array, or another dtype, by d=$"):
        found.maker(Made("d", "bf16", (2, 3), (3, 1), "write"), 0)

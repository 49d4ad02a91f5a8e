"""The whole loader, down to the driver's calls, against the recording stand-in for libcuda."""

from __future__ import annotations

import shutil

import pytest

from tests import recorder
from zoo.contract.array import Array
from zoo.contract.resolve import resolve
from zoo.packaged import packaged

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for libcuda needs a C compiler")
NAME = "quantize.mxfp8.rows"

# Every snippet begins with this: three arrays of a call, and the stand-in's own functions.
START = """
import ctypes, os, sys, threading, zoo
from zoo.runtime import driver
recorder = ctypes.CDLL("libcuda.so.1")
NAME = "quantize.mxfp8.rows"
def call(m=256, k=512, device=0):
    return dict(x=zoo.empty((m, k), "bf16", device), q=zoo.empty((m, k), "e4m3", device), scales=zoo.empty((m, k // 32), "ue8m0", device))
def refusal(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except zoo.ZooError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        print("no error")
"""


def run(library, snippet, **settings):
    return recorder.python(library, START + snippet, **settings)


def expected_block(addresses, m=256, k=512):
    x, q, scales = addresses
    arrays = dict(
        x=Array(x, "bf16", (m, k), (k, 1)), q=Array(q, "e4m3", (m, k), (k, 1)), scales=Array(scales, "ue8m0", (m, k // 32), (k // 32, 1))
    )
    return resolve(packaged.kernel(NAME), arrays, (9, 0), 132)


def test_what_reaches_the_driver_is_what_was_resolved(library):
    log = run(library, "c = call(); zoo.launch(NAME, **c); print(*(a.address for a in c.values()), zoo.stream().handle)")
    *addresses, stream = map(int, log.stdout.split())
    (launch,) = log.launches
    want = expected_block(addresses)
    assert launch.block(want.variant.launch) == want.logical_block()
    assert (launch.kernel, launch.grid, launch.threads, launch.shared) == (want.variant.symbol, want.grid, want.threads, want.shared)
    assert launch.stream == stream and log.faults == []


def test_a_repeated_call_moves_to_the_new_addresses(library):
    log = run(
        library,
        """
calls = [call() for _ in range(3)]
for c in calls + calls[:1]:
    zoo.launch(NAME, **c)
    print(*(a.address for a in c.values()))
""",
    )
    lines = [tuple(map(int, line.split())) for line in log.stdout.splitlines()]
    assert len(log.launches) == 4
    for launch, addresses in zip(log.launches, lines, strict=True):
        want = expected_block(addresses)
        assert launch.block(want.variant.launch) == want.logical_block()


def test_a_plan_keeps_its_own_addresses(library):
    log = run(
        library,
        "a, b = call(), call(); plan = zoo.prepare(NAME, **a); zoo.launch(NAME, **b); plan(zoo.stream()); plan(zoo.stream().handle)",
    )
    blocks = [launch.parameters for launch in log.launches]
    assert blocks[1] == blocks[2] != blocks[0]


def test_the_device_of_the_arguments_decides_the_cubin(library):
    log = run(library, "zoo.launch(NAME, **call(device=1)); zoo.launch(NAME, **call(device=0))", devices="9.0:132,10.3:148")
    assert [launch.device for launch in log.launches] == [1, 0]


def test_arguments_on_two_devices_are_refused(library):
    log = run(library, "refusal(zoo.launch, NAME, **{**call(), 'q': call(device=1)['q']})", devices="9.0:132,9.0:132")
    assert log.stdout.startswith(f"ArgumentError: {NAME}: q: lies on device 1, x on device 0")
    assert log.launches == []


def test_a_device_nobody_ships_for_is_named(library):
    log = run(library, "refusal(zoo.launch, NAME, **call())", devices="8.0:108")
    assert log.stdout.startswith(f"ArchitectureError: {NAME}: no cubin for compute capability 8.0; the zoo ships sm_90a, sm_100f")


def test_no_gpu_is_said(library):
    log = run(library, "refusal(zoo.empty, (4,), 'u8')", devices="")
    assert log.stdout.startswith("DriverError: the CUDA driver is installed but sees no GPU")


def test_a_driver_that_is_too_old_is_named_before_a_missing_function_is(library):
    log = run(library, "refusal(zoo.empty, (4,), 'u8')", ZOO_RECORDER_DRIVER_VERSION="11040")
    assert log.stdout.startswith("DriverError: the CUDA driver is too old: it is for CUDA 11.4; install release 580 or later")


def test_no_driver_is_said(tmp_path):
    import subprocess
    import sys

    snippet = "import zoo\ntry: zoo.empty((4,), 'u8')\nexcept zoo.DriverError as error: print(error)"
    out = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, cwd=recorder.ROOT)
    if "libcuda.so.1 was not found" not in out.stdout:
        pytest.skip("this machine has a driver")
    assert out.stdout.startswith("no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver")


def test_raw_pointers_need_a_stream(library):
    log = run(
        library,
        """
c = call()
raw = {name: zoo.ptr(array.address, array.shape, array.dtype) for name, array in c.items()}
zoo.launch(NAME, **c)  # a call of the same form whose owner has a stream
refusal(zoo.launch, NAME, **raw)
refusal(zoo.launch, NAME, **raw, stream="main")
zoo.launch(NAME, **raw, stream=0)
zoo.launch(NAME, **raw, stream=zoo.stream())
""",
        devices="9.0:132",
    )
    assert "StreamError: quantize.mxfp8.rows: these arguments belong to no framework" in log.stdout
    assert "StreamError: stream: 'main' is no stream" in log.stdout
    assert [launch.stream == 0 for launch in log.launches] == [False, True, False]


def test_nothing_is_loaded_under_capture(library):
    log = run(
        library,
        """
c = call()
recorder.zoo_recorder_set_capture(ctypes.c_void_p(zoo.stream().handle), 1)
refusal(zoo.launch, NAME, **c)
refusal(zoo.prepare, NAME, **c)
recorder.zoo_recorder_set_capture(ctypes.c_void_p(zoo.stream().handle), 0)
print(zoo.load(NAME) > 0)
recorder.zoo_recorder_set_capture(ctypes.c_void_p(zoo.stream().handle), 1)
zoo.launch(NAME, **c)
""",
        trace=True,
    )
    first, second, loaded = log.stdout.splitlines()
    assert first.startswith("CaptureError: quantize_mxfp8_rows__") and "call zoo.load(name)" in first
    assert second.startswith("CaptureError") and loaded == "True"
    (launch,) = log.launches
    assert launch.capturing


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        ("data[100] ^= 1", "was altered"),
        ("del data[-1:]", "bytes, the manifest says"),
        ("path.unlink(); data = None", "cannot read the cubin"),
    ],
)
def test_a_spoilt_cubin_never_reaches_the_driver(library, tmp_path, spoil, words):
    shutil.copytree(packaged.directory, tmp_path / "cubins")
    log = run(
        library,
        f"""
from pathlib import Path
from zoo.catalog import Zoo
for path in Path({str(tmp_path / "cubins")!r}).glob("sm_*/*.cubin"):
    data = bytearray(path.read_bytes())
    {spoil}
    if data is not None: path.write_bytes(data)
refusal(Zoo({str(tmp_path / "cubins")!r}).launch, NAME, **call())
""",
        trace=True,
    )
    assert log.stdout.startswith("IntegrityError") and words in log.stdout
    assert log.calls("cuLibraryLoadData") == 0 and log.launches == []


def test_an_edited_manifest_is_refused(library, tmp_path):
    shutil.copytree(packaged.directory, tmp_path / "cubins")
    log = run(
        library,
        f"""
from pathlib import Path
from zoo.catalog import Zoo
from zoo.shipped.pins import MANIFEST_SHA256
path = Path({str(tmp_path / "cubins")!r}) / "manifest.json"
path.write_text(path.read_text().replace("K must be", "k must be", 1))
refusal(Zoo(path.parent, MANIFEST_SHA256).kernel, NAME)
""",
    )
    assert log.stdout.startswith("ManifestError: the manifest ") and "was edited" in log.stdout


def test_a_library_is_loaded_once_and_its_function_once_a_device(library):
    log = run(library, "[zoo.launch(NAME, **call(device=d)) for _ in range(3) for d in (0, 1)]", devices="9.0:132,9.0:132", trace=True)
    assert log.calls("cuLibraryLoadData") == 1 and log.calls("cuKernelGetFunction") == 2
    assert [launch.device for launch in log.launches] == [0, 1] * 3


def test_the_callers_context_stays_current(library):
    log = run(
        library,
        """
cuda = driver.bindings()
cuda.cuCtxSetCurrent(driver.device(0).context)
print(int(cuda.cuCtxGetCurrent()[1]))
zoo.launch(NAME, **call(device=1)); zoo.load(NAME, device=1); call(device=1)['q'].numpy()
print(int(cuda.cuCtxGetCurrent()[1]))
""",
        devices="9.0:132,9.0:132",
    )
    before, after = log.stdout.split()
    assert before == after != "0"


def test_a_thread_without_a_context_gets_that_of_the_device(library):
    log = run(
        library,
        """
c = call(); plan = zoo.prepare(NAME, **c)
def work():
    plan(zoo.stream()); plan(zoo.stream()); zoo.launch(NAME, **c)
thread = threading.Thread(target=work); thread.start(); thread.join()
""",
    )
    assert len(log.launches) == 3
    assert len(log.faults) == 1  # the first launch of the plan finds no context; the second does


def test_no_rows_enqueue_nothing(library):
    log = run(library, "zoo.launch(NAME, **call(m=0)); zoo.prepare(NAME, **call(m=0))(zoo.stream())")
    assert log.launches == []


def test_a_failing_launch_names_the_kernel_and_the_drivers_reason(library):
    log = run(library, "refusal(zoo.launch, NAME, **call())", fail="cuLaunchKernelEx=719")
    assert "DriverError: launching quantize_mxfp8_rows__" in log.stdout and "CUDA_ERROR_LAUNCH_FAILED (719)" in log.stdout


def test_after_a_fork_the_error_says_so(library):
    log = run(
        library,
        """
c = call(); zoo.launch(NAME, **c)
sys.stdout.flush()
if os.fork() == 0:
    refusal(zoo.launch, NAME, **c)
    refusal(zoo.empty, (4,), "u8")
    refusal(zoo.load, NAME)
    sys.stdout.flush()
    os._exit(0)
os.wait()
""",
        fail="",
    )
    forked = [line for line in log.stdout.splitlines() if line.startswith("ForkError: this process was forked after CUDA")]
    assert len(forked) == 3, log.stdout
    assert "Exception ignored" not in log.stderr


def test_importing_before_a_fork_is_fine(library):
    log = run(library, "sys.stdout.flush()\nif os.fork() == 0:\n    zoo.launch(NAME, **call()); os._exit(0)\nprint(os.wait()[1])")
    assert log.stdout.strip() == "0" and len(log.launches) == 1


def test_threads_share_nothing_but_the_loaded_library(library):
    log = run(
        library,
        """
def work():
    c = call()
    for _ in range(50):
        zoo.launch(NAME, **c)
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
""",
        trace=True,
    )
    assert len(log.launches) == 400 and log.faults == []
    assert log.calls("cuLibraryLoadData") == 1
    blocks = [launch.parameters for launch in log.launches]
    assert all(blocks.count(block) == 50 for block in set(blocks)) and len(set(blocks)) == 8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("alpha=1", "ArgumentError: quantize.mxfp8.rows: no argument is named 'alpha'"),
        ("stream=-1", "StreamError: stream: -1 is no stream"),
        ("stream=2**70", "StreamError"),
        ("q=zoo.DeviceArray", "ArgumentError: quantize.mxfp8.rows: q: expected an array in device memory, got type"),
        ("q=3", "ArgumentError: quantize.mxfp8.rows: q: expected an array in device memory, got int"),
        ("q=None", "ArgumentError: quantize.mxfp8.rows: q: missing"),
        ("y=3", "ArgumentError: quantize.mxfp8.rows: no argument is named 'y'"),
        ("layout='tiled'", "ArgumentError: quantize.mxfp8.rows: layout: expected plain or blocked, got 'tiled'"),
        ("layout=['plain']", "ArgumentError: quantize.mxfp8.rows: layout: expected plain or blocked"),
        ("variant='none'", "VariantError: quantize.mxfp8.rows: variant 'none' does not exist for sm_90a"),
        (
            "variant='bf16_e5m2_plain_t256'",
            "VariantError: quantize.mxfp8.rows: variant 'bf16_e5m2_plain_t256' for sm_90a does not take x = bf16, q = e4m3",
        ),
        ("q=zoo.empty((256, 512), 'u8')", "ArgumentError: quantize.mxfp8.rows: q: expected e4m3 or e5m2, got u8; bytes could be either"),
        (
            "x=__import__('numpy').zeros((256, 512))",
            "ArgumentError: quantize.mxfp8.rows: x: lies in host memory; copy it to the device first",
        ),
    ],
)
def test_refusals_come_before_anything_is_enqueued(library, change, words):
    log = run(library, f"refusal(zoo.launch, NAME, **{{**call(), **dict({change})}})")
    assert log.stdout.startswith(words), log.stdout
    assert log.launches == []


def test_an_unknown_kernel_suggests_near_ones(library):
    log = run(library, "refusal(zoo.launch, 'quantize.mxfp8.row', **call())")
    assert log.stdout.startswith("UnknownKernelError: no kernel is named 'quantize.mxfp8.row'; did you mean quantize.mxfp8.rows")


def test_loading_an_unknown_variant_suggests_near_ones(library):
    log = run(library, "refusal(zoo.load, NAME, variant='bf16_e4m3_plain_t25')")
    assert log.stdout.startswith(f"VariantError: {NAME}: no variant 'bf16_e4m3_plain_t25' for ")
    assert "; did you mean bf16_e4m3_plain_t256" in log.stdout and log.launches == []


def test_memory_is_given_back(library):
    log = run(
        library,
        """
recorder.zoo_recorder_live.restype = ctypes.c_long
for _ in range(200):
    c = call(); zoo.launch(NAME, **c); zoo.prepare(NAME, **c)(zoo.stream()); c["q"].__dlpack__()
zoo.load(NAME)
del c
import gc; gc.collect()
from zoo.catalog import Zoo
print(recorder.zoo_recorder_live(b"allocations"))
""",
    )
    assert log.stdout.strip() == "0"


TEST_ZOO = """
from zoo.catalog import Zoo
proofs = Zoo("tests/zoo_cubins")
def dense(m=64, n=64, k=64, **scalars):
    return dict(a=zoo.view(zoo.empty((m, k), "u8"), "e4m3"), b=zoo.view(zoo.empty((n, k), "u8"), "e4m3"), d=zoo.empty((m, n), "bf16"),
                who=zoo.empty((1,), "i32"), shift=0, **scalars)
"""


def test_numbers_that_are_equal_but_not_the_same_bits_are_told_apart(library):
    log = run(
        library,
        TEST_ZOO
        + """
c = dense()
for alpha in (0.0, -0.0, 0.0, float("nan"), float("nan"), 1, 1.0):
    proofs.launch("gemm.fp8b128.dense", alpha=alpha, **c)
print(proofs._local.plans["gemm.fp8b128.dense"].remembered)
""",
    )
    alphas = [launch.parameters[4].hex() for launch in log.launches]
    assert alphas == ["00000000", "00000080", "00000000", "0000c07f", "0000c07f", "0000803f", "0000803f"]
    assert log.stdout.strip() == "5"


def test_numpys_numbers_are_numbers(library):
    log = run(
        library,
        TEST_ZOO
        + "import numpy\nc = {**dense(), 'shift': numpy.int64(3)}\nfor _ in range(2): proofs.launch('gemm.fp8b128.dense', alpha=numpy.float32(2), **c)",
    )
    assert [(launch.parameters[1].hex(), launch.parameters[4].hex()) for launch in log.launches] == [("03000000", "00000040")] * 2


def test_a_move_that_fails_does_not_leave_half_a_call_behind(library):
    """A map's address that the driver refuses; then the first call again must use its own arrays."""
    log = run(
        library,
        TEST_ZOO
        + """
first, other = dense(), dense()
proofs.launch("gemm.fp8b128.dense", **first)
recorder.zoo_recorder_fail(b"cuTensorMapReplaceAddress", 1, ctypes.c_long(1))
refusal(proofs.launch, "gemm.fp8b128.dense", **other)
proofs.launch("gemm.fp8b128.dense", **first)
""",
    )
    assert log.stdout.startswith("DriverError: moving a tensor map")
    before, after = log.launches
    assert before.parameters == after.parameters


def test_groups_without_rows_may_have_arrays_without_memory_again_and_again(library):
    """The driver makes a tensor map of address 0, but moves none there. D is written: zeros."""
    log = run(
        library,
        """
class Nothing:
    def __init__(self, *shape, typestr="|u1"):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (0, False), "strides": None, "version": 3}
ends = zoo.empty((1,), "i32")
for _ in range(3):
    zoo.launch(
        "gemm.fp8b128.k_grouped", a=zoo.view(Nothing(16, 0), "e4m3"), a_scale=zoo.empty((1, 16), "f32").T, b=zoo.view(Nothing(32, 0), "e4m3"),
        b_scale=zoo.empty((1, 32), "f32").T, offsets=ends, d=zoo.empty((1, 16, 32), "f32"), stream=0,
    )
""",
    )
    assert len(log.launches) == 3


def test_addresses_that_must_be_resolved_again_but_are_right(library):
    """Nothing to do at another address, and columns of one buffer after buffers of their own."""
    log = run(
        library,
        """
c = call()
for base in (4096, 8192):
    raw = {name: zoo.ptr(base, (0, *array.shape[1:]), array.dtype, device=0) for name, array in c.items()}
    zoo.launch(NAME, stream=0, **raw)
whole = zoo.empty((256, 2048), "u8")
x = zoo.ptr(whole.address, (256, 512), "bf16", (1024, 1))
apart = zoo.empty((256, 2048), "u8")
for address in (apart.address, whole.address + 1024):
    zoo.launch(NAME, stream=0, x=x, q=zoo.ptr(address, (256, 512), "e4m3", (2048, 1)), scales=c["scales"])
""",
    )
    assert len(log.launches) == 2


def test_zoos_stream_and_anothers_are_a_conflict(library):
    log = run(
        library,
        """
c = call()
class Foreign:
    __cuda_array_interface__ = dict(shape=c["x"].shape, typestr="<f2", data=(c["x"].address, False), version=3, stream=5)
refusal(zoo.launch, NAME, **{**c, "x": Foreign()})
zoo.launch(NAME, stream=0, **{**c, "x": Foreign()})
""",
    )
    assert log.stdout.startswith("StreamError: the owners of x and q work on different streams") and len(log.launches) == 1


def test_a_stream_that_changes_its_handle_is_followed(library):
    log = run(
        library,
        """
class Current:
    handle = 0
    def __cuda_stream__(self): return (0, self.handle)
stream, plan = Current(), zoo.prepare(NAME, **call())
plan(stream); stream.handle = zoo.stream().handle; plan(stream)
""",
    )
    assert [launch.stream == 0 for launch in log.launches] == [True, False]


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("zoo.ptr(1.0, (4,), 'u8')", "ArgumentError: ptr: address: expected a whole number"),
        ("zoo.ptr(2**70, (4,), 'u8')", "ArgumentError: ptr: address"),
        ("zoo.ptr(4096, 512, 'u8')", "ArgumentError: ptr: shape: expected a tuple"),
        ("zoo.ptr(4096, (1.5, 2), 'u8')", "ArgumentError: ptr: shape: expected a whole number"),
        ("zoo.empty(5, 'u8')", "ArgumentError: shape: expected a tuple"),
        ("zoo.empty((-2, -2), 'u8')", "ArgumentError: shape: expected a whole number"),
        ("zoo.empty((2**62, 4), 'u8')", "ArgumentError: the bytes of"),
        ("zoo.to_device([1, 2])", "ArgumentError: to_device: a list is no numpy array"),
        ("zoo.load(device='0')", "ArgumentError: device: expected a whole number"),
        ("zoo.load('nothing.*')", "UnknownKernelError: no kernel matches 'nothing.*'"),
        ("zoo.load(variant='none')", "VariantError"),
        ("zoo.find(ops='gemm')", "ArgumentError: find: names have no field 'ops'; did you mean op? They have op, formats"),
        ("zoo.launch(['x'])", "UnknownKernelError: a kernel's name is a text"),
        (
            "zoo.empty((3,), 'i32').copy_from(__import__('numpy').ones(3, 'float32'))",
            "ArgumentError: copy_from: expected (3,) of i32, got (3,) of float32",
        ),
        ("zoo.view(zoo.empty((3,), 'bf16'), 'e4m3')", "ArgumentError: view: an element of bf16 has 2 bytes, one of e4m3 1"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(library, expression, words):
    log = run(library, f"refusal(lambda: {expression})")
    assert log.stdout.startswith(words), log.stdout


def test_loading_for_a_device_nobody_ships_for_names_what_is_shipped(library):
    log = run(library, "refusal(zoo.load, 'quantize.mxfp8.row?')", devices="8.0:108")
    assert log.stdout.startswith(f"ArchitectureError: {NAME}") and "ships sm_100f, sm_90a" in log.stdout


def test_numpy_arrays_of_any_kind_arrive_as_they_are(library):
    log = run(
        library,
        """
import numpy
print(zoo.to_device(numpy.array([1, 2], ">f4")).numpy().tolist(), zoo.to_device(numpy.array(3.0, numpy.float32)).numpy().shape)
refusal(zoo.launch, NAME, **{**call(), "x": numpy.array(2.0)})
refusal(zoo.launch, NAME, **{**call(), "x": numpy.zeros((256, 512))})
""",
    )
    first, *refusals = log.stdout.splitlines()
    assert first == "[1.0, 2.0] ()"
    assert len(refusals) == 2 and all("x: lies in host memory" in line for line in refusals)


def test_no_columns_are_no_work(library):
    log = run(
        library,
        "for layout in ('plain', 'blocked'): zoo.launch(NAME, layout=layout, **{**call(5, 0), **({'scales': zoo.empty((1, 0, 32, 16), 'ue8m0')} if layout == 'blocked' else {})})",
    )
    assert log.launches == []


def test_importing_zoo_opens_no_driver_and_imports_no_framework():
    import subprocess
    import sys

    snippet = (
        "import sys, zoo\nzoo.launch; zoo.to_device; zoo.find('*')\n"
        "print([m for m in ('torch', 'cupy', 'jax', 'numba', 'cuda.bindings.driver', 'ml_dtypes') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True, cwd=recorder.ROOT, check=True)
    assert out.stdout.strip() == "[]"


def test_a_consumer_may_outlive_python(library, tmp_path):
    import subprocess

    consumer = tmp_path / "consumer.so"
    source = recorder.ROOT / "tests" / "loader" / "late_consumer.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", consumer, source], check=True)
    log = run(
        library,
        f"""
capsule = zoo.empty((3, 4), "f32").__dlpack__()
api, consumer = ctypes.PyDLL(None), ctypes.CDLL({str(consumer)!r})
api.PyCapsule_GetPointer.argtypes, api.PyCapsule_GetPointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
consumer.keep(ctypes.c_void_p(api.PyCapsule_GetPointer(capsule, b"dltensor")))
used = ctypes.create_string_buffer(b"used_dltensor")
api.PyCapsule_SetName(capsule, used)
del capsule
""",
    )
    assert log.stdout.strip() == "given back"


def test_an_exported_array_lives_until_its_consumer_lets_go(library):
    log = run(
        library,
        """
from zoo.runtime import dlpack
import gc
array = zoo.empty((3, 4), "f32")
capsule = array.__dlpack__()
del array; gc.collect()
print(len(dlpack._owners))
del capsule
print(len(dlpack._owners))
""",
    )
    assert log.stdout.split() == ["1", "0"]

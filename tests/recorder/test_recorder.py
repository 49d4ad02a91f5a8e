"""The stand-in itself: that Python's bindings take it for a driver, and that it refuses what a driver refuses."""

from __future__ import annotations

import shutil

import pytest

from tests.recorder import build, program, python
from tests.recorder.cubin import make_cubin
from zoo.contract.tensor_map import TensorMap

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

PREPARE = """
import cuda.bindings.driver as d
def ok(result, *values):
    assert result == d.CUresult.CUDA_SUCCESS, result
    return values[0] if len(values) == 1 else values
ok(*d.cuInit(0))
context = ok(*d.cuDevicePrimaryCtxRetain(0))
ok(*d.cuCtxSetCurrent(context))
"""


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("recorder"))


def test_the_bindings_take_it_for_a_driver(library):
    run = python(
        library,
        PREPARE + "which = d.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT\n"
        "print(ok(*d.cuDeviceGetCount()), ok(*d.cuDeviceGetAttribute(which, 1)))",
        devices="9.0:132,10.0:148",
    )
    assert run.stdout.split() == ["2", "148"] and run.faults == []


def test_memory_comes_back_as_it_was_copied(library):
    run = python(
        library,
        PREPARE
        + """
import numpy as np
data = np.arange(1000, dtype=np.int32); back = np.zeros_like(data)
p = ok(*d.cuMemAlloc(4000))
ok(*d.cuMemcpyHtoD(p, data.ctypes.data, 4000)); ok(*d.cuMemcpyDtoH(back.ctypes.data, p, 4000))
print((back == data).all(), ok(*d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p)))
print(d.cuMemcpyHtoD(int(p) + 1, data.ctypes.data, 4000)[0].value, d.cuPointerGetAttribute(d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 64)[0].value)
ok(*d.cuMemFree(p)); print(d.cuMemFree(p)[0].value)
""",
    )
    assert run.stdout.split() == ["True", "0", "1", "1", "1"]
    assert len(run.faults) == 2


LAUNCH = """
import ctypes, struct, sys
cubin = open({cubin!r}, "rb").read()
library = ok(*d.cuLibraryLoadData(cubin, [], [], 0, [], [], 0))
function = ok(*d.cuKernelGetFunction(ok(*d.cuLibraryGetKernel(library, b"probe"))))
stream = ok(*d.cuStreamCreate(1))
config = d.CUlaunchConfig()
config.gridDimX, config.gridDimY, config.gridDimZ = 4, 2, 1
config.blockDimX, config.blockDimY, config.blockDimZ = 128, 1, 1
config.hStream, config.sharedMemBytes = stream, 1024
cluster = d.CUlaunchAttribute(); cluster.id = d.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = 2, 1, 1
config.attrs, config.numAttrs = [cluster], 1
block = ctypes.create_string_buffer(struct.pack("<Qi", 0x123456789, -5))
size = ctypes.c_size_t(12)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(block), 2, ctypes.addressof(size), 0)
pointers = (ctypes.c_void_p * 2)(ctypes.addressof(block), ctypes.addressof(block) + 8)
def launch(by_pointers):
    if by_pointers:
        return d.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)[0].value
    return d.cuLaunchKernelEx(config, function, 0, ctypes.addressof(extra))[0].value
"""


@pytest.fixture
def cubin(tmp_path):
    path = tmp_path / "probe.cubin"
    path.write_bytes(make_cubin("probe", [(8, 8), (4, 4)]))
    return str(path)


def test_a_launch_is_written_down_whichever_way_its_parameters_come(library, cubin):
    run = python(library, PREPARE + LAUNCH.format(cubin=cubin) + "print(launch(True), launch(False))")
    assert run.stdout.split() == ["0", "0"] and run.faults == []
    by_pointers, by_buffer = run.launches
    assert by_pointers.parameters == by_buffer.parameters == (0x123456789.to_bytes(8, "little"), b"\xfb\xff\xff\xff")
    assert (by_pointers.buffer, by_buffer.buffer) == (False, True)
    assert (by_pointers.grid, by_pointers.threads, by_pointers.cluster, by_pointers.shared) == ((4, 2, 1), 128, (2, 1, 1), 1024)


@pytest.mark.parametrize(
    ("mistake", "result"),
    [
        ("ok(*d.cuStreamDestroy(stream))", 400),
        ("ok(*d.cuLibraryUnload(library))", 400),
        ("config.gridDimX = 3", 912),
        ("config.gridDimX = 0", 1),
        ("config.blockDimX = 1025", 1),
        ("config.blockDimX, config.blockDimZ = 8, 65", 1),
        ("config.gridDimY = 65536", 1),
        ("config.gridDimX, cluster.value.clusterDim.x = 18, 9; config.attrs = [cluster]", 912),
        ("config.sharedMemBytes = 60000", 1),
        ("size.value = 16", 1),
        ("ok(*d.cuCtxSetCurrent(ok(*d.cuDevicePrimaryCtxRetain(1))))", 400),
        ("ok(*d.cuCtxPopCurrent())", 201),
    ],
)
def test_a_careless_launch_is_refused(library, cubin, mistake, result):
    run = python(library, PREPARE + LAUNCH.format(cubin=cubin) + mistake + "\nprint(launch(False))", devices="9.0:132,9.0:132")
    assert run.stdout.split() == [str(result)] and run.launches == [] and len(run.faults) == 1


@pytest.mark.parametrize(
    ("attribute", "value", "change"),
    [
        ("MAX_DYNAMIC_SHARED_SIZE_BYTES", 60000, "config.sharedMemBytes = 60000"),
        ("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1, "config.gridDimX, cluster.value.clusterDim.x = 16, 16; config.attrs = [cluster]"),
    ],
)
def test_what_only_an_attribute_allows_is_refused_until_it_is_set(library, cubin, attribute, value, change):
    """And to the last unit: one less shared memory than is asked for, or not saying that wide clusters are meant, is not enough."""
    setting = "ok(*d.cuFuncSetAttribute(function, d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_{}, {}))\nprint(launch(True))\n"
    snippet = change + "\nprint(launch(True))\n" + setting.format(attribute, value - 1) + setting.format(attribute, value)
    run = python(library, PREPARE + LAUNCH.format(cubin=cubin) + snippet)
    refused = "912" if "CLUSTER" in attribute else "1"
    assert run.stdout.split() == [refused, refused, "0"] and len(run.launches) == 1 and len(run.faults) == 2


def test_a_cubin_of_another_architecture_or_no_cubin_is_refused(library, cubin):
    snippet = (
        PREPARE
        + f"""
library = ok(*d.cuLibraryLoadData(open({cubin!r}, "rb").read(), [], [], 0, [], [], 0))
print(d.cuKernelGetFunction(ok(*d.cuLibraryGetKernel(library, b"probe")))[0].value)
print(d.cuLibraryGetKernel(library, b"other")[0].value, d.cuLibraryLoadData(b"x" * 200, [], [], 0, [], [], 0)[0].value)
"""
    )
    assert python(library, snippet, devices="10.0:148").stdout.split() == ["209", "500", "200"]


def test_loading_under_capture_is_refused_and_spoils_the_capture(library, cubin):
    run = python(
        library,
        PREPARE
        + LAUNCH.format(cubin=cubin)
        + """
ok(*d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
print(launch(True), ok(*d.cuStreamIsCapturing(stream)).value)
print(d.cuLibraryLoadData(cubin, [], [], 0, [], [], 0)[0].value, ok(*d.cuStreamIsCapturing(stream)).value, d.cuStreamEndCapture(stream)[0].value)
""",
    )
    assert run.stdout.split() == ["0", "1", "900", "2", "901"] and run.launches == []


def test_a_captured_launch_runs_when_its_graph_does(library, cubin):
    run = python(
        library,
        PREPARE
        + LAUNCH.format(cubin=cubin)
        + """
ok(*d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
launch(True)
graph = ok(*d.cuGraphInstantiate(ok(*d.cuStreamEndCapture(stream)), 0))
for _ in range(3): ok(*d.cuGraphLaunch(graph, stream))
""",
    )
    assert len(run.launches) == 3 and all(launch.capturing for launch in run.launches)


def test_errors_can_be_ordered(library):
    run = python(library, PREPARE + "print(d.cuMemAlloc(8)[0].value, d.cuMemAlloc(8)[0].value)", fail="cuMemAlloc=2@2", trace=True)
    assert run.stdout.split() == ["0", "2"] and run.calls("cuMemAlloc") == 2


def test_the_nth_call_of_all_can_be_ordered_to_fail(library):
    snippet = PREPARE + "for _ in range(3): print(d.cuMemAlloc(8)[0].value, *(x.value for x in d.cuStreamCreate(1)[:1]))"
    clean = python(library, snippet, trace=True)
    names = [line["call"] for line in clean.lines]
    second = 1 + [place for place, name in enumerate(names) if name == "cuStreamCreate"][1]
    run = python(library, snippet, fail=f"*=719@{second}")
    assert run.stdout.split() == ["0", "0", "0", "719", "0", "0"]


def test_what_a_program_holds_is_counted(library):
    run = python(
        library,
        PREPARE
        + """
recorder = ctypes.CDLL("libcuda.so.1")
def live(): return [recorder.zoo_recorder_live(kind) for kind in (b"allocations", b"streams", b"contexts", b"pushed", b"relaxed", b"events")]
print(*live())
memory, stream = ok(*d.cuMemAlloc(8)), ok(*d.cuStreamCreate(1))
ok(*d.cuCtxPushCurrent(context)); ok(*d.cuThreadExchangeStreamCaptureMode(d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
print(*live())
ok(*d.cuMemFree(memory)); ok(*d.cuStreamDestroy(stream)); ok(*d.cuCtxPopCurrent()); ok(*d.cuDevicePrimaryCtxRelease(0))
print(*live(), recorder.zoo_recorder_live(b"memories"))
""".replace("recorder = ", "import ctypes; recorder = "),
    )
    assert [line.split() for line in run.stdout.splitlines()] == [
        ["0", "0", "1", "1", "0", "0"],
        ["1", "1", "1", "2", "1", "0"],
        ["0", "0", "0", "1", "1", "0", "-1"],
    ]


def test_a_forked_child_has_no_driver(library):
    run = python(library, PREPARE + "import os\nif os.fork() == 0: print(d.cuDeviceGetCount()[0].value)\nelse: os.wait()")
    assert run.stdout.split() == ["3"]


# A map at a chosen place: cuda-bindings' own CUtensorMap objects lie wherever the heap puts them.
ENCODE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
memory = (ctypes.c_uint8 * 256)()
aligned = -(-ctypes.addressof(memory) // 64) * 64
def encode(where):
    u64, u32 = ctypes.c_uint64, ctypes.c_uint32
    return cuda.cuTensorMapEncodeTiled(ctypes.c_void_p(where), 9, 3, ctypes.c_void_p(4096), (u64 * 3)(256, 64, 3), (u64 * 2)(512, 32768),
        (u32 * 3)(64, 8, 1), (u32 * 3)(1, 2, 1), 0, 3, 3, 1)
"""


def test_a_tensor_map_is_its_logical_record(library):
    expected = TensorMap("bf16", 4096, (256, 64, 3), (512, 32768), (64, 8, 1), (1, 2, 1), "128B", "256B", "nan")
    run = python(library, PREPARE + ENCODE + "print(encode(aligned), ctypes.string_at(aligned, 128).hex())")
    status, record = run.stdout.split()
    assert status == "0" and run.faults == []
    assert bytes.fromhex(record) == expected.to_bytes() and TensorMap.from_bytes(bytes.fromhex(record)) == expected


def test_a_tensor_map_that_is_not_aligned_to_64_bytes_is_refused_wherever_the_heap_lies(library):
    run = python(
        library, PREPARE + ENCODE + "print(*(encode(aligned + offset) for offset in (1, 8, 16, 32, 48, 63)), encode(aligned + 64))"
    )
    assert run.stdout.split() == ["1"] * 6 + ["0"]
    assert len(run.faults) == 6 and all("not aligned to 64 bytes" in words for words in run.faults)


def test_no_device_is_an_answer(library):
    run = program(library, ["python3", "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"], devices="")
    assert run.stdout.split() == ["100"]


@pytest.mark.parametrize(
    ("fail", "answers"),
    [("", "0 0 0 calls 3 contexts 2"), ("*=999@1", "999 3 3 calls 3 contexts 0"), ("*=999@2", "0 999 0 calls 3 contexts 1")],
)
def test_any_one_call_can_be_made_to_fail_and_what_lives_is_counted(library, fail, answers):
    snippet = """
import cuda.bindings.driver as d, ctypes
recorder = ctypes.CDLL('libcuda.so.1')
results = [call()[0].value for call in (lambda: d.cuInit(0), lambda: d.cuDevicePrimaryCtxRetain(0), lambda: d.cuDevicePrimaryCtxRetain(0))]
print(*results, "calls", recorder.zoo_recorder_calls(b"*"), "contexts", recorder.zoo_recorder_live(b"contexts"))
assert recorder.zoo_recorder_live(b"libraries") == 0
"""
    assert python(library, snippet, fail=fail).stdout.strip() == answers

"""A program's life with the C library: loading once, never under capture, contexts left alone, failures in words."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.capi.entries import plain_entry
from tests.capi.package import HERE, compile_package, make_directory, sanitizer_settings, sanitizers
from tests.recorder import Run, program
from zoo.capi.export import export
from zoo.contract.manifest import Manifest

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    work = tmp_path_factory.mktemp("session")
    cubins = make_directory(work / "cubins", {NAME: plain_entry()})
    export(work / "package", Manifest(cubins / "manifest.json"), cubins, ["*"])
    return work / "package"


@pytest.fixture(scope="module")
def session(package, recorder):
    built = compile_package(package, package.parent / "program", [HERE / "session.c"], sanitizers())

    def run(scenario: str, **settings) -> Run:
        return program(recorder, [built, scenario], **{"devices": "9.0:132,10.0:148", **sanitizer_settings(), **settings})

    return run


def test_these_programs_run_under_sanitizers():
    if not sanitizers():
        pytest.skip("this compiler has no sanitizers: overflows and stray accesses of the C library go unseen here")
    if sanitizer_settings()["ASAN_OPTIONS"] != "detect_leaks=1":
        pytest.skip("a process cannot look for its own leaks here")


def test_a_call_reaches_the_driver(session):
    run = session("launch")
    assert run.stdout == "launch: OK\n" and run.faults == []
    (launch,) = run.launches
    assert launch.grid == (16, 1, 1) and [int.from_bytes(p, "little") for p in launch.parameters] == [
        0x100000,
        0x200000,
        0x300000,
        64 * 128,
    ]


def test_nothing_is_loaded_while_the_stream_is_captured(session):
    run = session("capture")
    words = "CaptureError 0 kernel is not loaded on device 0, and its stream is being captured; call zoo_load or launch it once before the capture"
    assert run.stdout.splitlines() == [
        f"launch while capturing: {words}",
        f"prepare while capturing: {words}",
        "loads: 0",
        "load: OK",
        "loaded: 1, loads: 1",
        "launch: OK",
        "prepare: OK",
        "plan: OK",
    ]
    assert [launch.capturing for launch in run.launches] == [True, True] and run.faults == []


def test_launching_a_plan_asks_the_driver_for_nothing_else(session):
    counts = dict(line.split() for line in session("plan").stdout.splitlines()[1:])
    assert counts.pop("cuLaunchKernelEx") == "10"
    assert {name for name, count in counts.items() if count != "0"} == {"cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent"}


def test_the_current_context_is_the_callers_before_and_after(session):
    run = session("context")
    assert run.stdout.splitlines() == [
        "launch on 0: OK",
        "nothing is current: 1",
        "launch on 0: OK",
        "load: OK",
        f"wrong device: ArgumentError 0 {NAME}: x: lies on device 0, and the call is for device 1",
        "launch on 1: OK",
        "the caller's is current: 1",
        "loads: 2",  # two cubins, one for each arch, each once
        "unloads: 2",
    ]
    assert [launch.device for launch in run.launches] == [0, 0, 1] and run.faults == []


def test_closing_gives_everything_back(session):
    assert session("close").stdout.splitlines() == ["launch: OK", "active: 0, unloads: 1", "launch again: OK"]


def test_threads_racing_for_the_first_launch_load_once(session):
    run = session("threads")
    assert run.stdout == "loads: 1\n" and len(run.launches) == 800 and run.faults == []


def test_a_forked_child_is_told_so(session):
    words = (
        "ForkError 3 this process was forked after CUDA was initialised, and the driver does not survive a fork; "
        "fork before the first use of a GPU, or start the child anew"
    )
    assert session("fork").stdout.splitlines() == ["prepare: OK", f"plan: {words}", f"open: {words}"]


def test_bytes_of_a_workspace_follow_from_the_other_arguments(session):
    lines = session("bytes").stdout.splitlines()
    assert lines[0] == f"scratch: ArgumentError 0 {NAME}: x: missing; the x"
    assert lines[1:5] == ["scratch: OK", f"bytes without d: {3 * 64 * 4 * 4}", "scratch: OK", f"bytes: {3 * 64 * 4 * 4}"]
    assert lines[5:] == [
        f"splits: ArgumentError 0 {NAME}: no array argument is named 'splits'",
        f"launch: ArgumentError 0 {NAME}: scratch: missing; the scratch",
    ]


def test_arguments_of_the_wrong_kind_are_refused(session):
    assert session("arguments").stdout.splitlines() == [
        f"twice: ArgumentError 0 {NAME}: x: given twice",
        f"kind: ArgumentError 0 {NAME}: x: expected an array in device memory, got a int",
        f"number: ArgumentError 0 {NAME}: splits: expected a number (i32), got an array",
    ]


def test_an_unknown_kernel_is_told_what_there_is(session):
    assert session("unknown").stdout.splitlines() == [
        f"launch: UnknownKernelError 0 no kernel is named 'quantize.mxfp8.cols'; this library holds {NAME}",
        "load: UnknownKernelError 0 no kernel matches 'gemm.*'",
    ]


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        ("cuLaunchKernelEx=719", "launch: DriverError 719 launching kernel: CUDA_ERROR_LAUNCH_FAILED (719): unspecified launch failure"),
        ("cuLibraryLoadData=200", "launch: DriverError 200 loading sm_90a/kernel.cubin on Recorder 9.0: CUDA_ERROR_INVALID_IMAGE"),
        ("cuLibraryGetKernel=500", "launch: DriverError 500 finding kernel in sm_90a/kernel.cubin: CUDA_ERROR_NOT_FOUND"),
        ("cuKernelGetFunction=209", "launch: DriverError 209 preparing kernel on Recorder 9.0: CUDA_ERROR_NO_BINARY_FOR_GPU"),
        ("cuFuncLoad=4242", "launch: DriverError 4242 loading kernel on Recorder 9.0: status 4242"),
        ("cuInit=803", "open 803 the CUDA driver did not initialise: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): "),
        ("cuDevicePrimaryCtxRetain=2", "open 2 starting device 0: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"),
    ],
)
def test_a_failing_driver_is_quoted(session, fail, words):
    run = session("launch", fail=fail)
    assert run.stdout.startswith(words) and run.launches == [] and run.faults == []


def test_no_gpu_and_no_such_gpu_are_told_apart(session):
    assert session("launch", devices="").stdout == (
        "open 100 the CUDA driver is installed but sees no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi\n"
    )
    assert "there is no device 1; the driver sees 1" in session("context", devices="9.0:132").stdout


def test_no_driver_says_what_to_install(session, tmp_path):
    run = session("launch", LD_LIBRARY_PATH=str(tmp_path))
    if run.stdout == "launch: OK\n":
        pytest.skip("this machine has a driver of its own")
    assert run.stdout.startswith("open 0 no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver")


def test_an_altered_cubin_never_reaches_the_driver(package, recorder, tmp_path):
    shutil.copytree(package, tmp_path / "package")
    source = next((tmp_path / "package" / "cubins").glob("sm_90a*.c"))
    text = source.read_text()
    at = text.index("{") + 1
    altered = re.sub(r"0x\w+", lambda number: hex(int(number.group(), 16) ^ 1), text[at:], count=1)
    source.write_text(text[:at] + altered)
    built = compile_package(tmp_path / "package", tmp_path / "program", [HERE / "session.c"])
    run = program(recorder, [built, "launch"], trace=True)
    assert run.stdout == (
        "launch: IntegrityError 0 the cubin sm_90a/kernel.cubin was altered: its sha256 is not the manifest's; run `zoo export` again\n"
    )
    assert run.calls("cuLibraryLoadData") == 0 and run.launches == []

"""Every call that the loader makes of a driver, failing once: an error that names what failed, nothing lost, and all works afterwards."""

from __future__ import annotations

import json
import re
import shutil
import sys

import pytest

from tests import recorder

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the stand-in for libcuda needs a C compiler")

# What an error says was being done, by the call that failed.
DOING = {
    "cuInit": "the CUDA driver did not initialise",
    "cuDriverGetVersion": "asking for the driver's version",
    "cuDeviceGetCount": "counting devices",
    "cuDeviceGet": "opening device 0",
    "cuDeviceGetAttribute": "asking device 0",
    "cuDeviceGetName": "asking device 0",
    "cuDevicePrimaryCtxRetain": "starting device 0",
    "cuCtxPushCurrent": "making a context current",
    "cuCtxSetCurrent": "making a context current",
    "cuCtxPopCurrent": "restoring the context",
    "cuCtxGetCurrent": "asking for the current context",
    "cuCtxSynchronize": "waiting for the device",
    "cuThreadExchangeStreamCaptureMode": "(entering|leaving) relaxed capture mode",
    "cuStreamCreate": "creating a stream",
    "cuStreamSynchronize": "waiting for the stream",
    "cuStreamIsCapturing": "asking whether the stream is being captured",
    "cuMemAlloc": "allocating [0-9]+ bytes on device 0",
    "cuMemFree": "freeing device memory",
    "cuMemcpyHtoDAsync": "copying to the device",
    "cuMemcpyDtoH": "copying to the host",
    "cuPointerGetAttribute": "(asking whose memory an address is|locating memory)",
    "cuLibraryLoadData": r"loading sm_90a/\w+\.cubin on Recorder 9\.0",
    "cuLibraryGetKernel": r"finding \w+ in sm_90a/\w+\.cubin",
    "cuKernelGetFunction": r"preparing \w+ on Recorder 9\.0",
    "cuFuncSetAttribute": r"(giving \w+ shared memory|allowing \w+ its cluster)",
    "cuFuncLoad": r"loading \w+ on Recorder 9\.0",
    "cuGetProcAddress": "finding cuTensorMap(EncodeTiled|ReplaceAddress)",
    "cuTensorMapEncodeTiled": r"encoding TensorMap\(.*\)",
    "cuTensorMapReplaceAddress": "moving a tensor map",
    "cuLaunchKernelEx": r"launching \w+",
}
# What a driver that refuses to give something back keeps, in the words of its error.
KEPT = {"freeing device memory": "allocations", "restoring the context": "pushed", "leaving relaxed capture mode": "relaxed"}


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """(the session without a failure, each other with the name of the call that failed in it)"""
    library = recorder.build(tmp_path_factory.mktemp("recorder"))
    run = recorder.program(library, [sys.executable, "-m", "tests.loader.session_with_failures"], trace=True, timeout=300)
    assert run.stderr == ""
    clean, *failing = map(json.loads, run.stdout.splitlines())
    names = [line["call"] for line in run.lines if "call" in line][: clean["calls"]]
    assert len(failing) == len(names) == clean["calls"] > 150
    return clean, list(zip(names, failing, strict=True))


def test_the_session_itself_asks_for_nearly_all_that_the_loader_uses(sessions):
    clean, failing = sessions
    assert {name for name, _ in failing} == set(DOING)
    assert clean["first"] == clean["again"] == []
    assert clean["live"] == {"allocations": 0, "streams": 1, "libraries": 3, "contexts": 1, "pushed": 1, "relaxed": 0}


def test_each_failure_is_one_error_that_names_what_failed(sessions):
    for name, session in sessions[1]:
        if name == "cuLaunchKernelEx" and not session["first"]:  # tried again with the device made current, and then well
            continue
        pattern = rf"DriverError: {DOING[name]}: CUDA_ERROR_UNKNOWN \(999\): unknown error"
        assert session["first"] and all(re.fullmatch(pattern, one) for one in session["first"]), (name, session)


def test_after_a_failure_everything_works(sessions):
    assert [(name, session) for name, session in sessions[1] if session["again"]] == []


def test_a_failure_leaves_nothing_behind(sessions):
    clean, failing = sessions
    for name, session in failing:
        kept = {what for words, what in KEPT.items() if any(words in one for one in session["first"])}
        for what, number in clean["live"].items():
            assert session["live"][what] in (number, number + (what in kept)), (name, session)

"""A driver that fails at its nth call, for every n: an error in a sentence, nothing left behind, and the next call works."""

from __future__ import annotations

import itertools
import shutil

import pytest

from tests.capi.entries import demanding_entry
from tests.capi.package import HERE, export_and_compile, make_directory, sanitizer_settings, sanitizers
from tests.recorder import program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"
# what a driver will not give back stays where it is: no program can do more than ask
LEFT = {"cuLibraryUnload": "libraries: 1,", "cuDevicePrimaryCtxRelease": "contexts: 1,", "cuCtxPopCurrent": "current: 1"}
EVERY_STEP = {
    "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetAttribute", "cuDeviceGetName", "cuDevicePrimaryCtxRetain", "cuCtxGetCurrent",
    "cuCtxPushCurrent", "cuStreamIsCapturing", "cuCtxPopCurrent", "cuThreadExchangeStreamCaptureMode", "cuLibraryLoadData", "cuLibraryGetKernel",
    "cuKernelGetFunction", "cuFuncGetAttribute", "cuFuncSetAttribute", "cuFuncLoad", "cuTensorMapEncodeTiled", "cuLaunchKernelEx", "cuLibraryUnload",
    "cuDevicePrimaryCtxRelease",
}  # fmt: skip


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    work = tmp_path_factory.mktemp("faults")
    return export_and_compile(make_directory(work / "cubins", {NAME: demanding_entry()}), work, HERE / "faults.c", sanitizers())


@pytest.mark.parametrize(
    ("result", "words"), [(999, "CUDA_ERROR_UNKNOWN (999): unknown error"), (3, "CUDA_ERROR_NOT_INITIALIZED (3): initialization error")]
)
def test_a_driver_that_fails_at_any_one_call_is_quoted_and_leaks_nothing(faults, recorder, result, words):
    failed = []
    for nth in itertools.count(1):
        run = program(
            recorder, [faults], fail=f"*={result}@{nth}", trace=True, **sanitizer_settings()
        )  # status 0: no leak, no stray access
        name = [line["call"] for line in run.lines if "call" in line][nth - 1]
        lines = run.stdout.splitlines()
        if lines[0] == "failed: 0":  # all of its calls have failed once; this one is of the second time
            break
        *steps, first, second, left = lines
        assert second == "failed the second time: 0", (name, nth)
        assert first == "failed: 1" and len(steps) == 1, (name, nth, run.stdout)
        assert f": DriverError {result} " in steps[0] and steps[0].endswith(f": {words}"), (name, nth)
        assert len(steps[0].partition(f" {result} ")[2].partition(":")[0].split()) >= 2, steps  # what was being done
        expected = "libraries: 0, contexts: 0, current: 0"
        if name in LEFT:
            expected = expected.replace(LEFT[name].replace("1", "0"), LEFT[name])
        assert left == expected, (name, nth)
        assert run.faults == [], (name, nth)
        failed.append(name)
    assert set(failed) == EVERY_STEP
    assert len(failed) > 30

"""A device that is opened for an arch: calls are checked and planned where there is neither a GPU nor a driver."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.capi.entries import plain_entry
from tests.capi.package import HERE, export_and_compile, make_directory, sanitizer_settings, sanitizers
from tests.recorder import program

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
NAME = "quantize.mxfp8.rows"
WRONG = ("NULL", "", "sm_", "sm_9a", "sm_90", "sm_90b", "sm_90aa", "sm_1000a", "SM_90a", "hoppers")
NOTHING = "DriverError the device was opened for sm_90a without a GPU, so nothing can be loaded or launched; zoo_open opens a GPU"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    work = tmp_path_factory.mktemp("without_gpu")
    return export_and_compile(make_directory(work / "cubins", {NAME: plain_entry()}), work, HERE / "without_gpu.c", sanitizers())


def calls() -> list[str]:
    return [
        "bytes: OK",
        "1024 bytes",
        "prepare: OK",
        "t of sm_90a, grid 16, threads 128",
        f"launch the plan: {NOTHING}",
        "status of the driver: 0",
        f"launch: {NOTHING}",
        f"load: {NOTHING}",
        "loaded: 0, driver: 1",
        f"a wrong shape: ArgumentError {NAME}: scratch: expected (64, 4) = (splits * M, ceil_div(K, 32)), got (64, 5); the scratch",
        f"another device: ArgumentError {NAME}: d: lies on device 0, x on device 1",
        "free the plan: OK",
    ]


def test_calls_are_checked_and_planned_and_nothing_is_launched(built):
    done = subprocess.run([built], capture_output=True, text=True, env=sanitizer_settings(), timeout=60)
    lines = done.stdout.splitlines()
    refused = [
        f"open {arch}, 132: ArchitectureError zoo_open_arch: no arch is '{arch}'; archs are spelt as sm_90a and sm_100f" for arch in WRONG
    ]
    a_gpu = lines.pop(-3)
    assert a_gpu == "a GPU: OK" or a_gpu.startswith("a GPU: DriverError ")
    assert (done.stderr, lines) == (
        "",
        [
            *refused,
            "open sm_90a, 0: ArgumentError zoo_open_arch: expected at least 1 multiprocessor, got 0",
            "open into NULL: ArgumentError zoo_open_arch: the place for the device is NULL",
            "open sm_90a, 132: OK",
            "open sm_120a, 170: OK",
            "open H200, 132: OK",
            "open blackwell, 148: OK",
            *calls(),
            f"prepare on the other: ArgumentError {NAME}: x: missing; the x",
            "close the other: OK",
            *calls(),
            "child: 0",
            "close: OK",
            "close again: ArgumentError the device was closed, or is none that zoo_open gave",
        ],
    )


def test_where_there_is_a_gpu_the_driver_is_asked_by_no_such_device(built, recorder):
    """The last call opens the GPU. What the driver was asked before would be faults of a driver that is not initialised."""
    run = program(recorder, [built], **sanitizer_settings())
    assert run.faults == [] and run.launches == []
    assert "a GPU: OK" in run.stdout.splitlines()

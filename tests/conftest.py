"""Tests marked gpu run where there is a GPU; elsewhere they are skipped with the reason.

`pytest -m quick` runs the first case of each test for each family of kernels, without the tests that slow.txt names. `--durations=50` shows
which tests slow.txt should name: each takes more than four seconds on one core.
"""

import functools
import gc
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

# Who runs tests in the background may have had Ctrl-C ignored by all their programs, in which some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Several processes of one test run share the GPU: JAX must not take most of its memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# The tests' processes share the cores: numpy's product of two small matrices in a thread for each core mostly waits for those threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_ASK = """
import sys
from zoo.runtime import driver
from zoo.errors import DriverError
from zoo.packaged import packaged
from zoo.contract.resolve import pick_arch
try:
    device = driver.device(0)
except DriverError as error:
    sys.exit(str(error))
if not any(pick_arch(kernel.archs, device.capability) for kernel in packaged.find()):
    sys.exit(f"no cubin runs on {device.name}, compute capability {device.capability}")
"""


@functools.cache
def no_gpu() -> str | None:
    """Why no kernel can run here, or None. Asked in a process of its own: CUDA does not survive the forks of other tests."""
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True)
    return None if asked.returncode == 0 else f"no GPU: {asked.stderr.strip().splitlines()[-1]}"


@pytest.fixture(autouse=True)
def the_same_numbers(request):
    """A test draws the same numbers from its module's RNG whatever tests ran before it in its process."""
    if hasattr(getattr(request, "module", None), "RNG"):
        request.module.RNG = np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def folder_of_the_run(tmp_path_factory):
    """One folder for all processes of this test run, and for no other run."""
    folder = tmp_path_factory.getbasetemp()
    return folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder


def pytest_collection_finish():
    """Thousands of collected tests and the emulator's decoded programs outlive many collections of garbage. As Python sets it up, looking
    through them again and again takes as long as half of the tests: the tests themselves are set aside, and looked through is seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 5, 2)


def pytest_addoption(parser):
    parser.addoption(
        "--share", type=int, default=1, help="run one in so many of the tests that are not quick, drawn anew by ZOO_SHARE_SEED"
    )


def pytest_configure(config):
    os.environ.setdefault("ZOO_SHARE_SEED", str(time.time_ns()))  # the processes of one run draw alike


def pytest_report_header(config):
    share = config.getoption("--share")
    return f"one in {share} of the tests that are not quick: ZOO_SHARE_SEED={os.environ['ZOO_SHARE_SEED']}" if share > 1 else None


_FAMILY = re.compile(r"\b(?:quantize|gemm|dequantize|requantize|pack|scales)\b")


def pytest_collection_modifyitems(config, items):
    slow = set((Path(__file__).parent / "slow.txt").read_text().split())
    seen = set()
    for item in items:
        test, _, case = item.nodeid.partition("[")
        first = (test, *_FAMILY.findall(case)[:1])
        if first not in seen and test not in slow and not item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.quick)
        seen.add(first)
    share, seed = config.getoption("--share"), os.environ["ZOO_SHARE_SEED"]
    if share > 1:
        drawn = [item for item in items if item.get_closest_marker("quick") or zlib.crc32(f"{seed} {item.nodeid}".encode()) % share == 0]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(drawn)])
        items[:] = drawn
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := no_gpu()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))

"""Tests marked gpu run where there is a GPU, and say why they do not where there is none."""

import functools
import os
import subprocess
import sys

import pytest

# Several processes of one test run share the GPU: JAX must not take most of its memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

_ASK = """
import sys
from zoo.runtime import driver
from zoo.errors import DriverError
from zoo.shipped.packaged import packaged
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


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := no_gpu()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=reason))

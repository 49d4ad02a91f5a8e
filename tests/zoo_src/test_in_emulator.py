"""The test kernels, started by the loader on an emulated device, from the PTX that lies beside their cubins."""

from pathlib import Path

import pytest

from tests.zoo_src.problems import SMALL, differences
from zoo.catalog import Zoo
from zoo.contract.array import Pointer
from zoo.emulator import Device

ZOO = Zoo(Path(__file__).resolve().parents[1] / "zoo_cubins")
ARCHS = ("sm_90a", "sm_100f")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("scheduling", ["random", "last"])
@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_a_kernel_does_what_its_head_says(problem, arch, scheduling):
    gpu = Device(arch=arch, scheduling=scheduling, seed=1, multiprocessors=3)
    addresses = {name: gpu.alloc(memory.buffer) for name, memory in problem.memory.items()}
    arrays = {name: Pointer(addresses[name], memory.shape, memory.dtype, memory.strides, gpu) for name, memory in problem.memory.items()}
    plan = ZOO.prepare(problem.kernel, **arrays, **problem.others)
    report = plan()
    assert report.ok, str(report)
    after = {name: gpu.read(addresses[name], memory.buffer.shape, memory.buffer.dtype) for name, memory in problem.memory.items()}
    assert differences(problem, after, plan.launch) == []

"""The test kernels, resolved as the loader does, run by the emulator from the PTX of the same sources."""

from pathlib import Path

import pytest
from tests.cubin_build.build_trees import ROOT, needs_nvcc, run_build
from tests.zoo_src.problems import SMALL, differences

from zoo.manifest import Manifest
from zoo.resolve import Array, resolve

emulator = pytest.importorskip("zoo.emulator")
pytestmark = needs_nvcc
FOLDER = Path(__file__).resolve().parents[1] / "zoo_cubins"
CAPABILITIES = {"sm_90a": (9, 0), "sm_100f": (10, 0)}


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx")
    run_build("--source", ROOT / "tests/zoo_src", "--output", FOLDER, "--ptx", folder)
    return folder


def launch_parameters(launch):
    """In the order of the kernel's parameters, as the emulator takes them."""
    maps = {offset: tensor_map for offset, _, tensor_map in launch.tensor_maps}
    for parameter in launch.variant.launch.parameters:
        place = slice(parameter.offset, parameter.offset + parameter.size)
        yield maps[parameter.offset] if parameter.kind == "tensor_map" else bytes(launch.block[place])


@pytest.mark.parametrize("arch", CAPABILITIES)
@pytest.mark.parametrize("scheduling", ["random", "last"])
@pytest.mark.parametrize("problem", SMALL, ids=lambda problem: problem.name)
def test_a_kernel_does_what_its_head_says(problem, arch, scheduling, ptx):
    gpu = emulator.Device(arch=arch, scheduling=scheduling, seed=1, multiprocessors=3)
    addresses = {name: gpu.alloc(memory.buffer) for name, memory in problem.memory.items()}
    arrays = {name: Array(addresses[name], memory.dtype, memory.shape, memory.strides) for name, memory in problem.memory.items()}
    kernel = Manifest(FOLDER / "manifest.json").kernel(problem.kernel)
    launch = resolve(kernel, {**arrays, **problem.others}, CAPABILITIES[arch], gpu.multiprocessors)
    module = emulator.Module((ptx / launch.variant.file.replace(".cubin", ".ptx")).read_text())
    report = gpu.launch(
        module, launch.variant.symbol, launch.grid, launch.threads,
        cluster=launch.cluster if launch.cluster != (1, 1, 1) else None, shared_bytes=launch.shared,
        params=list(launch_parameters(launch)),
    )  # fmt: skip
    assert report.ok, str(report)
    after = {name: gpu.read(addresses[name], memory.buffer.shape, memory.buffer.dtype) for name, memory in problem.memory.items()}
    assert differences(problem, after, launch) == []

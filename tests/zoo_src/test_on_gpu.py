"""The test kernels on a device: everything the recipe language can say, encoded by the real driver."""

from pathlib import Path

import ml_dtypes
import numpy
import pytest

import zoo
from tests.zoo_src.problems import LARGE, SMALL, differences

pytestmark = pytest.mark.gpu
kernels = zoo.Zoo(Path(__file__).resolve().parents[1] / "zoo_cubins")


def on_device(problem):
    """name -> what owns the memory, and the arguments of the call."""
    buffers, arguments = {}, dict(problem.others)
    for name, memory in problem.memory.items():
        dtype = "u8" if memory.buffer.dtype.itemsize == 1 else memory.dtype
        buffers[name] = zoo.empty(memory.buffer.shape, dtype).copy_from(memory.buffer)
        arguments[name] = zoo.ptr(buffers[name].address, memory.shape, memory.dtype, memory.strides)
    return buffers, arguments


@pytest.mark.parametrize("problem", SMALL + LARGE, ids=lambda problem: problem.name)
def test_a_kernel_does_what_its_head_says(problem):
    buffers, arguments = on_device(problem)
    stream = zoo.stream()
    plan = kernels.prepare(problem.kernel, stream=stream, **arguments)
    for _ in range(2):
        plan(stream)
    after = {name: buffer.numpy() for name, buffer in buffers.items()}
    assert differences(problem, after, plan.launch) == []


def test_both_tiles_are_chosen_by_their_cost():
    names = set()
    for problem in (problem for problem in SMALL if problem.kernel == "gemm.fp8b128.dense"):
        _buffers, arguments = on_device(problem)
        names.add(kernels.prepare(problem.kernel, stream=zoo.stream(), **arguments).launch.variant.constants["CLUSTER"])
    assert names == {1, 2}


def test_tensor_maps_move_with_the_arrays():
    """A repeated call replaces the addresses inside the encoded maps."""
    generator = numpy.random.default_rng(11)
    for turn in range(3):
        x = generator.integers(-50, 50, (16, 64)).astype(ml_dtypes.bfloat16)
        v = generator.integers(-50, 50, 64).astype(numpy.float32)
        call = dict(x=zoo.to_device(x), v=zoo.to_device(v), d=zoo.empty((8, 64), "f32"))
        kernels.launch("gemm.bf16_mxfp4.dense", **call)
        numpy.testing.assert_array_equal(call["d"].numpy(), x[::2].astype(numpy.float32) + v, err_msg=f"turn {turn}")

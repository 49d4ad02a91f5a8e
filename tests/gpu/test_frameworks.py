"""The same kernel from every framework on the same numbers gives the same bytes."""

import ml_dtypes
import numpy
import pytest

import zoo
from zoo.reference.mxfp8 import quantize_mxfp8_rows

pytestmark = pytest.mark.gpu
NAME = "quantize.mxfp8.rows"
M, K = 257, 1056


@pytest.fixture(scope="module")
def problem():
    x = (numpy.random.default_rng(7).standard_normal((M, K)) * numpy.exp2(numpy.arange(K) % 40 - 20)).astype(ml_dtypes.bfloat16)
    q, scales = quantize_mxfp8_rows(x, element="e4m3", rounding="rceil", layout="plain")
    return x, q.view(numpy.uint8), scales.view(numpy.uint8)


def same(problem, q, scales):
    numpy.testing.assert_array_equal(numpy.asarray(q).view(numpy.uint8), problem[1])
    numpy.testing.assert_array_equal(numpy.asarray(scales).view(numpy.uint8), problem[2])


def test_numpy(problem):
    q, scales = zoo.empty((M, K), "e4m3"), zoo.empty((M, K // 32), "ue8m0")
    zoo.launch(NAME, x=zoo.to_device(problem[0]), q=q, scales=scales, rounding="rceil")
    same(problem, q.numpy(), scales.numpy())


def test_raw_pointers_with_an_explicit_stream(problem):
    x, q, scales = zoo.to_device(problem[0]), zoo.empty((M, K), "u8"), zoo.empty((M, K // 32), "u8")
    raw = dict(
        x=zoo.ptr(x.address, (M, K), "bf16"), q=zoo.ptr(q.address, (M, K), "e4m3"), scales=zoo.ptr(scales.address, (M, K // 32), "ue8m0")
    )
    with pytest.raises(zoo.StreamError, match="pass stream="):
        zoo.launch(NAME, **raw, rounding="rceil")
    zoo.launch(NAME, **raw, rounding="rceil", stream=zoo.stream())
    same(problem, q.numpy(), scales.numpy())


def test_torch(problem):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(problem[0].view(numpy.int16)).cuda().view(torch.bfloat16)
    q, scales = (
        torch.empty(M, K, device="cuda", dtype=torch.float8_e4m3fn),
        torch.empty(M, K // 32, device="cuda", dtype=torch.float8_e8m0fnu),
    )
    zoo.launch(NAME, x=x, q=q, scales=scales, rounding="rceil")
    same(problem, q.view(torch.uint8).cpu().numpy(), scales.view(torch.uint8).cpu().numpy())


def test_torch_bytes_for_scales_and_a_side_stream(problem):
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(problem[0].view(numpy.int16)).cuda().view(torch.bfloat16)
    q, scales = torch.empty(M, K, device="cuda", dtype=torch.float8_e4m3fn), torch.empty(M, K // 32, device="cuda", dtype=torch.uint8)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    zoo.launch(NAME, x=x, q=q, scales=scales, rounding="rceil", stream=side)
    side.synchronize()
    same(problem, q.view(torch.uint8).cpu().numpy(), scales.cpu().numpy())


def test_cupy(problem):
    cupy = pytest.importorskip("cupy")
    x, q, scales = cupy.asarray(problem[0].view(numpy.uint16)), cupy.empty((M, K), cupy.uint8), cupy.empty((M, K // 32), cupy.uint8)
    zoo.launch(NAME, x=zoo.view(x, "bf16"), q=zoo.view(q, "e4m3"), scales=scales, rounding="rceil")
    same(problem, q.get(), scales.get())


def test_jax_in_and_out(problem):
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU backend")
    x = jax.numpy.asarray(problem[0])
    q, scales = zoo.empty((M, K), "u8"), zoo.empty((M, K // 32), "u8")
    zoo.launch(NAME, x=x, q=zoo.view(q, "e4m3"), scales=scales, rounding="rceil")
    same(problem, jax.dlpack.from_dlpack(q), jax.dlpack.from_dlpack(scales))
    with pytest.raises(zoo.ArgumentError, match="q: read-only"):
        zoo.launch(NAME, x=x, q=x.astype(ml_dtypes.float8_e4m3fn), scales=scales)


def test_numba(problem):
    cuda = pytest.importorskip("numba.cuda")
    x = zoo.to_device(problem[0])
    q, scales = cuda.device_array((M, K), numpy.uint8), cuda.device_array((M, K // 32), numpy.uint8)
    zoo.launch(NAME, x=x, q=zoo.view(q, "e4m3"), scales=scales, rounding="rceil", stream=zoo.stream())
    zoo.stream().synchronize()
    same(problem, q.copy_to_host(), scales.copy_to_host())


def test_anything_with_dlpack(problem):
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    q, scales = zoo.empty((M, K), "e4m3"), zoo.empty((M, K // 32), "ue8m0")
    zoo.launch(NAME, x=Wrapped(zoo.to_device(problem[0])), q=Wrapped(q), scales=scales, rounding="rceil")
    same(problem, q.numpy(), scales.numpy())


def test_host_memory_is_refused(problem):
    q, scales = zoo.empty((M, K), "e4m3"), zoo.empty((M, K // 32), "ue8m0")
    with pytest.raises(zoo.ArgumentError, match="x: lies in host memory; copy it to the device first"):
        zoo.launch(NAME, x=problem[0], q=q, scales=scales)

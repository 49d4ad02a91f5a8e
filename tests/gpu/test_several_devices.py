"""Several devices in one process: the arguments' device is where the kernel runs, whatever is current."""

import threading

import numpy
import pytest

import zoo
from zoo.reference.mxfp8 import quantize_mxfp8_rows
from zoo.runtime import driver

pytestmark = pytest.mark.gpu
NAME = "quantize.mxfp8.rows"
M, K = 96, 512


@pytest.fixture(scope="module", autouse=True)
def two_devices():
    if driver.device_count() < 2:
        pytest.skip("this machine has one GPU")


@pytest.fixture(scope="module")
def problem():
    x = numpy.random.default_rng(3).standard_normal((M, K)).astype(numpy.float32)
    q, scales = quantize_mxfp8_rows(x, element="e4m3", rounding="floor", layout="plain")
    return x, q.view(numpy.uint8), scales.view(numpy.uint8)


def call(x, device):
    return dict(x=zoo.to_device(x, device), q=zoo.empty((M, K), "e4m3", device), scales=zoo.empty((M, K // 32), "ue8m0", device))


def right(arrays, problem):
    q, scales = arrays["q"].numpy().view(numpy.uint8), arrays["scales"].numpy().view(numpy.uint8)
    return (q == problem[1]).all() and (scales == problem[2]).all()


@pytest.mark.parametrize("stream", ["zoo", 0])
def test_launches_alternate_between_devices_without_switching(problem, stream):
    calls = [call(problem[0], device) for device in (0, 1, 0, 1)]
    plans = [zoo.prepare(NAME, **arrays) for arrays in calls]
    for arrays, plan in zip(calls, plans, strict=True):
        where = zoo.stream(arrays["x"].device) if stream == "zoo" else 0
        zoo.launch(NAME, stream=where, **arrays)
        plan(where)
    assert all(right(arrays, problem) for arrays in calls)


def test_torch_on_the_second_device_while_the_first_is_current(problem):
    torch = pytest.importorskip("torch")
    torch.cuda.set_device(0)
    x = torch.from_numpy(problem[0]).to("cuda:1")
    q = torch.empty(M, K, device="cuda:1", dtype=torch.float8_e4m3fn)
    scales = torch.empty(M, K // 32, device="cuda:1", dtype=torch.float8_e8m0fnu)
    zoo.launch(NAME, x=x, q=q, scales=scales)
    assert torch.cuda.current_device() == 0
    assert (q.view(torch.uint8).cpu().numpy() == problem[1]).all()


def test_threads_on_different_devices(problem):
    failures = []

    def work(device):
        try:
            arrays = call(problem[0], device)
            for _ in range(200):
                zoo.launch(NAME, **arrays)
            assert right(arrays, problem)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index % 2,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_mixed_devices_are_refused(problem):
    arrays = call(problem[0], 0)
    with pytest.raises(zoo.ArgumentError, match="scales: lies on device 1, x on device 0"):
        zoo.launch(NAME, **{**arrays, "scales": zoo.empty((M, K // 32), "ue8m0", 1)})

"""Graphs, threads, streams, forks and sizes on a real device."""

import os
import threading

import numpy
import pytest

import zoo
from tools.lab.viewed import of_matrices
from zoo.catalog import Zoo
from zoo.checks.gpu import runnable
from zoo.packaged import packaged
from zoo.reference.mxfp8 import quantize_mxfp8_rows
from zoo.runtime import driver
from zoo.runtime.clusters import clusters_at_once
from zoo.shipped.places import cubins_directory

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
NAME = "quantize.mxfp8.rows"


def arrays(m, k, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(m, k, device="cuda", dtype=torch.float32, generator=generator).to(torch.bfloat16)
    return dict(
        x=x,
        q=torch.empty(m, k, device="cuda", dtype=torch.float8_e4m3fn),
        scales=torch.empty(m, k // 32, device="cuda", dtype=torch.float8_e8m0fnu),
    )


def bits(tensor):
    return tensor.view(torch.uint8).cpu().numpy()


def expected(x):
    host = x.view(torch.int16).cpu().numpy()
    import ml_dtypes

    q, scales = quantize_mxfp8_rows(host.view(ml_dtypes.bfloat16), element="e4m3", rounding="floor", layout="plain")
    return q.view(numpy.uint8), scales.view(numpy.uint8)


def right(call):
    q, scales = expected(call["x"])
    return (bits(call["q"]) == q).all() and (bits(call["scales"]) == scales).all()


def test_a_graph_replays_the_launch_on_new_numbers():
    call = arrays(64, 256)
    plan = zoo.prepare(NAME, **call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        zoo.launch(NAME, **call)
        plan(torch.cuda.current_stream())
    for seed in range(1000):
        if seed % 100 == 0:
            call["x"].copy_(arrays(64, 256, seed)["x"])
            call["q"].view(torch.uint8).fill_(0xFF)
        graph.replay()
        if seed % 100 == 0:
            torch.cuda.synchronize()
            assert right(call)


def test_launching_what_is_not_loaded_under_capture_is_refused_and_the_capture_survives():
    fresh = Zoo(cubins_directory())
    call = arrays(64, 256)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(zoo.CaptureError, match="not loaded"):
            fresh.launch(NAME, **call)
        call["x"].mul_(2)
    before = call["x"].clone()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(call["x"], before * 2)
    assert fresh.load(NAME) > 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fresh.launch(NAME, **call)
    graph.replay()
    torch.cuda.synchronize()
    assert right(call)


def test_loading_on_another_thread_does_not_break_a_capture():
    call, errors = arrays(64, 256), []

    def load():
        try:
            Zoo(cubins_directory()).load(NAME)
        except Exception as error:
            errors.append(error)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="global"):
        loader = threading.Thread(target=load)
        loader.start()
        loader.join()
        call["x"].mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert not errors


def test_threads_and_streams_launch_side_by_side():
    problems = [arrays(32 + index, 512, index) for index in range(8)]
    failures = []

    def work(call):
        try:
            streams = [torch.cuda.Stream() for _ in range(4)]
            for turn in range(500):
                zoo.launch(NAME, stream=streams[turn % 4], **call)
            torch.cuda.synchronize()
            assert right(call)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in problems]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_plan_serves_many_threads_and_streams():
    call = arrays(64, 512)
    plan, failures = zoo.prepare(NAME, **call), []

    def work():
        try:
            stream = torch.cuda.Stream()
            for _ in range(500):
                plan(stream)
            stream.synchronize()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and right(call)


def test_first_load_by_many_threads_loads_once():
    fresh, call, failures = Zoo(cubins_directory()), arrays(64, 256), []
    start = threading.Barrier(64)
    loads = []
    original = fresh.library._load
    fresh.library._load = lambda variant, device: loads.append(variant) or original(variant, device)

    def work():
        try:
            start.wait()
            fresh.launch(NAME, stream=torch.cuda.default_stream(), **call)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not failures and len(loads) == 1 and right(call)


def test_a_thread_without_a_context_can_launch_a_plan():
    call, failures = arrays(64, 256), []
    plan = zoo.prepare(NAME, **call)

    def work():
        try:
            plan(0)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not failures and right(call)


def test_after_a_fork_the_error_says_so():
    call = arrays(64, 256)
    plan = zoo.prepare(NAME, **call)
    for use in (lambda: plan(0), lambda: zoo.launch(NAME, **call), lambda: zoo.to_device(numpy.zeros(4, numpy.float32))):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                use()
                message = "no error"
            except BaseException as error:
                message = f"{type(error).__name__}: {error}"
            os.write(writing, message.encode()[:4000])
            os._exit(0)
        os.close(writing)
        os.waitpid(child, 0)
        message = os.read(reading, 4096).decode()
        os.close(reading)
        assert message.startswith("ForkError: this process was forked after CUDA was initialised"), message


def test_new_pointers_are_checked_like_the_first():
    call = arrays(64, 256)
    zoo.launch(NAME, **call)
    whole = torch.empty(64 * 256 + 1, device="cuda", dtype=torch.uint8)
    misaligned = whole[1:].view(64, 256).view(torch.float8_e4m3fn)
    with pytest.raises(zoo.ArgumentError, match=r"q: the address .* must be a multiple of"):
        zoo.launch(NAME, **{**call, "q": misaligned})
    overlapping = call["x"].view(torch.uint8).view(-1)[: 64 * 256].view(64, 256).view(torch.float8_e4m3fn)
    with pytest.raises(zoo.ArgumentError, match="q: overlaps x"):
        zoo.launch(NAME, **{**call, "q": overlapping})
    zoo.launch(NAME, **call)
    torch.cuda.synchronize()
    assert right(call)


def test_repeated_launches_give_the_same_bits():
    call = arrays(1000, 1024)
    zoo.launch(NAME, **call)
    first = bits(call["q"]), bits(call["scales"])
    for _ in range(100):
        call["q"].view(torch.uint8).fill_(0xFF)
        zoo.launch(NAME, **call)
        assert (bits(call["q"]) == first[0]).all() and (bits(call["scales"]) == first[1]).all()


@pytest.mark.parametrize("layout", ["plain", "blocked"])
def test_more_than_2_to_the_31_elements(layout):
    """The last rows of a matrix of 2^31 + 2^20 elements are those of the same rows alone."""
    k = 8192
    m = 2**31 // k + 128
    x = torch.empty(m, k, device="cuda", dtype=torch.bfloat16)
    for start in range(0, m, 16384):
        x[start : start + 16384].normal_()
    shape = (m, k // 32) if layout == "plain" else (-(-m // 128) * 128, k // 32)
    q = torch.empty(m, k, device="cuda", dtype=torch.float8_e4m3fn)
    scales = torch.empty(shape, device="cuda", dtype=torch.float8_e8m0fnu)
    of_matrices(packaged).launch(NAME, x=x, q=q, scales=scales, layout=layout)
    tail = x[-128:].clone()
    tail_q = torch.empty(128, k, device="cuda", dtype=torch.float8_e4m3fn)
    tail_scales = torch.empty(128, k // 32, device="cuda", dtype=torch.float8_e8m0fnu)
    of_matrices(packaged).launch(NAME, x=tail, q=tail_q, scales=tail_scales, layout=layout)
    assert torch.equal(q[-128:].view(torch.uint8), tail_q.view(torch.uint8))
    assert torch.equal(scales[-128:].view(torch.uint8), tail_scales.view(torch.uint8))
    assert right(dict(x=x[-128:], q=q[-128:], scales=tail_scales)) or layout == "blocked"


def test_clusters_that_run_at_once_are_counted_for_each_size():
    device = driver.device(0)
    variant = runnable(packaged.kernel("gemm.fp8b128.dense"), device)[0]
    at_once = clusters_at_once(packaged.library, variant, device)
    assert at_once[1] == device.multiprocessors
    assert all(0 < at_once[size] * size <= device.multiprocessors for size in (2, 4, 8))

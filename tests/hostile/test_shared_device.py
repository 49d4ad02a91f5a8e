"""One emulated device used from many threads: their calls follow each other, and nobody finds what is not there."""

import sys
import threading

import ml_dtypes
import numpy
import pytest

import zoo

NAME = "quantize.mxfp8.rows"


@pytest.fixture
def often_switched():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_eight_threads_on_one_device_report_nothing_that_is_not_there(often_switched):
    """Its memory grew under a kernel that another thread was running: out-of-bounds where there was none."""
    device = zoo.emulator.Device(arch="sm_90a")
    failures, start = [], threading.Barrier(8)

    def use(number):
        try:
            values = numpy.full((4, 64 + 32 * (number % 3)), 1.0 + number, ml_dtypes.bfloat16)
            start.wait()
            for _ in range(3):
                x = device.array(values)
                q = device.empty(values.shape, "e4m3")
                scales = device.empty((4, values.shape[1] // 32), "ue8m0")
                device.alloc(1 << 20)  # so that the arena must grow
                zoo.launch(NAME, x=x, q=q, scales=scales)
                if not (q.numpy().astype(numpy.float32) > 0).all():
                    failures.append(f"thread {number}: wrong numbers")
        except Exception as error:
            failures.append(f"thread {number}: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[:3]

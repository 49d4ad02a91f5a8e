"""zoo's own streams, and what stands for a stream, where a driver or an owner does otherwise than usual; the driver is a stand-in."""

import contextlib
import threading
from types import SimpleNamespace

import pytest

from zoo.errors import DriverError, StreamError
from zoo.runtime import driver, streams


class Driver:
    """Makes streams 5, 6, ..., or fails to; what was destroyed, and whose context was current then."""

    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    def __init__(self):
        self.made, self.destroyed, self.waited, self.status = 4, [], [], 0

    def cuStreamCreate(self, flags):
        assert flags == 1
        self.made += 1
        return self.status, self.made

    def cuStreamDestroy(self, handle):
        self.destroyed.append(handle)
        return (0,)

    def cuStreamSynchronize(self, handle):
        self.waited.append((handle, list(CURRENT)))
        return (0,)

    CUresult = staticmethod(int)


CURRENT: list[int] = []


class Device:
    def __init__(self, ordinal, fails=False):
        self.ordinal, self.fails = ordinal, fails

    @contextlib.contextmanager
    def current(self):
        CURRENT.append(self.ordinal)
        try:
            yield
        finally:
            CURRENT.pop()
        if self.fails:
            raise DriverError("restoring the context", 999)


@pytest.fixture
def made(monkeypatch):
    used = Driver()
    monkeypatch.setattr(driver, "bindings", lambda: used)
    monkeypatch.setattr(driver, "relaxed_capture", contextlib.nullcontext)
    monkeypatch.setattr(driver, "device", Device)
    monkeypatch.setattr(streams, "_own", {})
    return used


def test_a_stream_that_was_not_made_is_not_destroyed_and_one_that_was_is(made):
    made.status = 999
    with pytest.raises(DriverError, match="creating a stream"):
        streams.Stream(Device(0))
    assert made.destroyed == []
    made.status = 0
    with pytest.raises(DriverError, match="restoring the context"):
        streams.Stream(Device(0, fails=True))
    assert made.destroyed == [6]


def test_a_device_has_one_stream_which_is_waited_for_where_it_lives(made):
    one, other = streams.stream(), streams.stream(3)
    assert streams.stream(0) is one and streams.stream(3) is other and one is not other
    assert (one.device.ordinal, one.handle, one.__cuda_stream__()) == (0, 5, (0, 5))
    assert streams.of_zoo(3)() == other.handle == 6
    other.synchronize()
    assert made.waited == [(6, [3])]


def test_two_threads_that_ask_at_once_get_one_stream(made, monkeypatch):
    """The first holds the lock until the second waits for it."""
    began, asked = threading.Event(), threading.Event()

    class Lock:
        def __enter__(self):
            asked.set() if began.is_set() else None
            inner.acquire()

        def __exit__(self, *_):
            inner.release()

    inner = threading.Lock()
    monkeypatch.setattr(streams, "_lock", Lock())
    first_create = made.cuStreamCreate

    def slowly(flags):
        began.set()
        asked.wait(10)
        return first_create(flags)

    made.cuStreamCreate = slowly
    found = []
    threads = [threading.Thread(target=lambda: found.append(streams.stream(1))) for _ in range(2)]
    threads[0].start()
    began.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] and made.made == 5


def source(handle):
    return lambda: handle


def test_owners_that_agree_have_one_stream_and_others_are_named_with_theirs():
    same = source(7)
    assert streams.agreeing({same: "a"})() == 7 and streams.agreeing({same: "a", source(7): "b", source(7): "c"})() == 7
    for last, said in ((8, "0x8"), (None, "none"), (0, "0x0")):
        with pytest.raises(StreamError) as refused:
            streams.agreeing({same: "a", source(7): "b", source(last): "c"})()
        assert str(refused.value) == f"the owners of a and c work on different streams (0x7 and {said}); say which with stream="
    assert streams.none() is None


class CUstream:
    """cuda-bindings' in name, and only that makes it a number."""

    def __int__(self):
        return 9


class Number:
    def __int__(self):
        return 9


def test_a_stream_is_found_where_its_kind_keeps_it():
    assert streams.handle_of(CUstream()) == 9
    with pytest.raises(StreamError):
        streams.handle_of(Number())
    kept = SimpleNamespace
    assert streams.handle_of(kept(handle=kept(value=3))) == 3 and streams.handle_of(kept(handle=4)) == 4
    assert streams.handle_of(kept(handle=kept(value=None))) == 0  # ctypes says None for 0
    assert streams.handle_of(kept(cuda_stream="a text", ptr=5)) == 5
    assert streams.handle_of(kept(cuda_stream=6, ptr=5)) == 6
    assert streams.handle_of(kept(__cuda_stream__=lambda: (1, 7), cuda_stream=6)) == 7
    for wrong in (kept(handle=None), kept(__cuda_stream__=lambda: 7), kept(__cuda_stream__=(0, 7, 8)), kept(ptr="a text")):
        with pytest.raises(StreamError, match="is no stream; pass an int"):
            streams.handle_of(wrong)


def test_frameworks_are_asked_for_the_stream_of_the_device(monkeypatch):
    asked = []
    torch = SimpleNamespace(_C=SimpleNamespace(_cuda_getCurrentRawStream=lambda device: asked.append(device) or 11))
    cupy = SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda device: asked.append(device) or SimpleNamespace(ptr=12)))
    monkeypatch.setitem(streams.sys.modules, "torch", torch)
    monkeypatch.setitem(streams.sys.modules, "cupy", cupy)
    for find in (streams.of_torch, streams.of_cupy):
        find.cache_clear()
    assert (streams.of_torch(2)(), streams.of_cupy(1)()) == (11, 12) and asked == [2, 1]
    assert (
        streams.of_torch(2) is streams.of_torch(2) and streams.of_cupy(1) is streams.of_cupy(1) and streams.of_zoo(1) is streams.of_zoo(1)
    )
    for find in (streams.of_torch, streams.of_cupy):
        find.cache_clear()

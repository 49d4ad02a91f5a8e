"""The CUDA driver as zoo uses it: opened on first need, errors as exceptions, devices with their primary contexts."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn

from zoo.contract.chips import Chip, chip_of
from zoo.contract.whole_numbers import whole
from zoo.errors import DriverError, ForkError

_lock = threading.Lock()
_bindings: ModuleType | None = None
_devices: dict[int, Device] = {}
_forked = False


def _after_fork_in_child() -> None:
    global _forked, _lock
    _forked = _bindings is not None
    _lock = threading.Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)

_OLDEST = 13000  # CUDA 13.0, as cuDriverGetVersion writes it
_NOT_INITIALIZED = 3
_CAPTURE_IMPLICIT = 906
_UNKNOWN_ADDRESS = (1, 101, 201)  # invalid value, device or context: what drivers answer for memory that is none of theirs


def forked() -> bool:
    """Whether this is the child of a process that had used the driver."""
    return _forked


def bindings() -> ModuleType:
    """cuda.bindings.driver, with the driver initialised."""
    global _bindings
    if _forked:
        _raise_forked()
    if _bindings is None:
        with _lock:
            if _bindings is None:
                _bindings = _open()
    return _bindings


def _open() -> ModuleType:
    driver = importlib.import_module("cuda.bindings.driver")
    try:
        status = int(driver.cuInit(0)[0])
    except Exception as error:  # cuda-bindings raises its own kinds when libcuda is missing
        raise DriverError(
            "no CUDA driver: libcuda.so.1 was not found; install the NVIDIA driver, or in a container start it with "
            f"GPU support ({type(error).__name__})"
        ) from None
    if status == 100:
        raise DriverError("the CUDA driver is installed but sees no GPU; check CUDA_VISIBLE_DEVICES and nvidia-smi", status)
    if status == _NOT_INITIALIZED:  # another library had used the driver before the fork
        _raise_forked()
    if status:
        raise DriverError(f"the CUDA driver did not initialise: {_describe(driver, status)}", status)
    status, version = driver.cuDriverGetVersion()
    if status:
        raise DriverError(f"asking for the driver's version: {_describe(driver, int(status))}", int(status))
    if version < _OLDEST:
        raise DriverError(
            f"the CUDA driver is too old: it is for CUDA {version // 1000}.{version % 1000 // 10}; install release 580 or later"
        )
    return driver


def _raise_forked() -> NoReturn:
    raise ForkError(
        "this process was forked after CUDA was initialised, and the driver does not survive a fork; "
        "use the 'spawn' start method, or fork before the first use of a GPU",
        _NOT_INITIALIZED,
    )


def _describe(driver: ModuleType, status: int) -> str:
    try:
        code = driver.CUresult(status)
        name, words = driver.cuGetErrorName(code)[1], driver.cuGetErrorString(code)[1]
        return f"{name.decode()} ({status}): {words.decode()}"
    except Exception:  # a status this version of cuda-bindings does not know
        return f"status {status}"


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a binding's result tuple; DriverError saying `what` was being done when it failed."""
    status = int(result[0])
    if status:
        if status == _NOT_INITIALIZED and _forked:
            _raise_forked()
        raise DriverError(f"{what}: {_describe(bindings(), status)}", status)
    return None if len(result) == 1 else result[1] if len(result) == 2 else result[1:]


@dataclass(frozen=True, eq=False)
class Device:
    ordinal: int
    handle: object
    context: object
    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_memory: int  # the most a CTA can have, with opt-in
    chip: Chip  # what costs read of it

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes the device's primary context current, and whatever was current before afterwards."""
        driver = bindings()
        check(driver.cuCtxPushCurrent(self.context), "making a context current")
        try:
            yield
        finally:
            check(driver.cuCtxPopCurrent(), "restoring the context")

    def adopt_thread(self) -> bool:
        """Makes the primary context current for good in a thread that has none, as CUDA's runtime API does on first use."""
        driver = bindings()
        if int(check(driver.cuCtxGetCurrent(), "asking for the current context")):
            return False
        check(driver.cuCtxSetCurrent(self.context), "making a context current")
        return True


def device(ordinal: int) -> Device:
    whole(ordinal, "device")
    found = _devices.get(ordinal)
    if found is None or _forked:
        driver = bindings()
        with _lock:
            found = _devices.get(ordinal)
            if found is None:
                found = _devices[ordinal] = _open_device(driver, ordinal)
    return found


def device_count() -> int:
    return int(check(bindings().cuDeviceGetCount(), "counting devices"))


def _open_device(driver: ModuleType, ordinal: int) -> Device:
    count = check(driver.cuDeviceGetCount(), "counting devices")
    if not 0 <= ordinal < count:
        raise DriverError(f"there is no device {ordinal}; the driver sees {count}")
    handle = check(driver.cuDeviceGet(ordinal), f"opening device {ordinal}")

    def attribute(name: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(driver.cuDeviceGetAttribute(which, handle), f"asking device {ordinal}"))

    name = check(driver.cuDeviceGetName(128, handle), f"asking device {ordinal}").split(b"\0")[0].decode()
    multiprocessors = attribute("MULTIPROCESSOR_COUNT")
    rates = [attribute(one) for one in ("CLOCK_RATE", "MEMORY_CLOCK_RATE", "GLOBAL_MEMORY_BUS_WIDTH")]
    return Device(
        ordinal=ordinal,
        handle=handle,
        name=name,
        capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        multiprocessors=multiprocessors,
        shared_memory=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        chip=chip_of(name, multiprocessors, *rates),
        # last: were anything refused after it, the context would stay retained by nobody
        context=check(driver.cuDevicePrimaryCtxRetain(handle), f"starting device {ordinal}"),
    )


def device_of(address: int) -> int:
    """The ordinal of the device whose memory `address` is, or -1 for memory of the host."""
    driver = bindings()
    attributes = driver.CUpointer_attribute
    kind = driver.cuPointerGetAttribute(attributes.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address)
    if int(kind[0]) in _UNKNOWN_ADDRESS or int(check(kind, "asking whose memory an address is")) not in (2, 4):  # device, unified
        return -1
    return int(check(driver.cuPointerGetAttribute(attributes.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address), "locating memory"))


@contextlib.contextmanager
def relaxed_capture() -> Iterator[None]:
    """Lets the thread allocate, load and free while some other stream of it is being captured, without breaking that capture."""
    driver = bindings()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = check(driver.cuThreadExchangeStreamCaptureMode(relaxed), "entering relaxed capture mode")
    try:
        yield
    finally:
        check(driver.cuThreadExchangeStreamCaptureMode(before), "leaving relaxed capture mode")


def is_capturing(stream: int) -> bool:
    """Whether work on the stream would enter a capture, of it or (the null stream) of any that it would wait for."""
    driver = bindings()
    result = driver.cuStreamIsCapturing(stream)
    if int(result[0]) == _CAPTURE_IMPLICIT:
        return True
    return int(check(result, "asking whether the stream is being captured")) != 0

"""What XLA calls to run a kernel: Python functions behind ctypes, one for GPUs and one for the host.

A handler holds the interpreter's lock while it runs, as all Python does: it must wait for a thread that computes in Python. It runs
once for each kernel of a program and start of that program, or, where XLA captures the program in a graph, once for each capture.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.contract.resolve import Launch, resolve
from zoo.errors import ZooError
from zoo.jax import call_frame, interruptions
from zoo.jax.call_frame import Buffer
from zoo.jax.described import Described, Part
from zoo.packaged import packaged
from zoo.runtime import driver
from zoo.runtime.arrays import ptr, view
from zoo.runtime.costs import kernel_on
from zoo.runtime.multiprocessors import multiprocessors
from zoo.runtime.recent import Recent

TARGET = "zoo_launch"
_MOST_PLANS = 4096  # of a thread; one that calls more different kernels makes some of them anew
_ENVIRONMENT = 256  # bytes, more than any C library's fenv_t has

_local = threading.local()
_registered: list[Any] = []  # what must live as long as XLA may call it
_host = threading.Event()  # set once a program for it has a kernel


@lru_cache(maxsize=4096)
def _read(text: bytes) -> Described:
    return Described.read(text)


def _on_gpu(frame: int) -> None:
    stream, key = call_frame.stream_of(frame), call_frame.key_of(frame)
    try:
        plan, inputs, results = _local.plans[key, stream]
    except (AttributeError, KeyError):
        plan, inputs, results = _planned(frame, stream, key)
    if plan is None:
        return
    addresses = call_frame.inputs_at(frame, inputs) + call_frame.results_at(frame, results)
    if not plan.move(addresses):
        _planned(frame, stream, key)  # says which array may not lie where it does
        raise ZooError(f"{plan.launch.kernel}: its arrays may not lie where they do")
    plan.run(stream)


def _planned(frame: int, stream: int, key: int) -> tuple[Any, Sequence[int], Sequence[int]]:
    """The plan of a call, and the inputs and the results whose addresses it takes; None where there is nothing to do.

    An array that is changed in place is an input and a result, at one address.
    """
    call = _read(call_frame.text_of(frame))
    buffers = _checked(call, frame)
    written = {part.name for part in call.results}
    inputs = [number for number, part in enumerate(call.inputs) if part.name not in written]
    somewhere = next((buffer.address for buffer in buffers if buffer.address and 0 not in buffer.shape), None)
    if somewhere is None:
        return None, (), ()
    device = driver.device_of(somewhere)
    parts = [(call.inputs[number], buffers[number]) for number in inputs]
    parts += zip(call.results, buffers[len(call.inputs) :], strict=True)
    arguments = {part.name: ptr(buffer.address, part.shape, part.dtype, part.strides, device) for part, buffer in parts}
    with multiprocessors(None):  # a thread of the program may be the one that XLA calls from, and plans are kept
        plan = packaged.prepare(call.kernel, stream=stream, variant=call.variant, **arguments, **dict(call.settings))
    if not hasattr(_local, "plans"):
        _local.plans = Recent(_MOST_PLANS)
    found = _local.plans[key, stream] = plan, inputs, range(len(call.results))
    return found


def _checked(call: Described, frame: int) -> list[Buffer]:
    """The buffers of a call, which are what it was described with."""
    buffers = call_frame.buffers_of(frame)
    parts = (*call.inputs, *call.results)
    if len(buffers) != len(parts):
        raise ZooError(f"{call.kernel}: XLA passes {len(buffers)} arrays, the program was traced with {len(parts)}")
    for part, buffer in zip(parts, buffers, strict=True):
        if buffer.shape != part.storage:
            raise ZooError(f"{call.kernel}: {part.name}: XLA passes {buffer.shape}, the program was traced with {part.storage}")
    return buffers


def _load(frame: int) -> None:
    """Once for each kernel of a program, before it runs: loads it on the devices that are in use, which a capture could not."""
    for device, launch in launches(_read(call_frame.text_of(frame))):
        packaged.library.function(launch.variant, device)


def launches(call: Described) -> list[tuple[driver.Device, Launch]]:
    """The call on each device that is in use, as far as addresses do not matter."""
    kernel, values = packaged.kernel(call.kernel), {**call.arrays(), **dict(call.settings)}
    devices = map(driver.device, _devices_in_use())
    return [
        (device, resolve(kernel_on(kernel, device), values, device.capability, device.multiprocessors, call.variant)) for device in devices
    ]


def _devices_in_use() -> list[int]:
    """Those with a primary context: to load a kernel on others would start them."""
    cuda, found = driver.bindings(), []
    for ordinal in range(driver.device_count()):
        handle = driver.check(cuda.cuDeviceGet(ordinal), "opening a device")
        _, active = driver.check(cuda.cuDevicePrimaryCtxGetState(handle), "asking for a device's state")
        if active:
            found.append(ordinal)
    return found


def _on_host(frame: int) -> None:
    from zoo.reference.kernels import run

    call = _read(call_frame.text_of(frame))
    buffers = _checked(call, frame)
    given = {part.name for part in call.inputs}
    arguments: dict[str, Any] = dict(call.settings)
    for part, buffer in zip((*call.inputs, *call.results), buffers, strict=True):
        array = _as_numpy(part, buffer.address)
        if part.name not in given:
            array[...] = np.zeros((), array.dtype)  # what no kernel writes is 0, and not what memory held
        arguments[part.name] = array if part.dtype == "u8" else view(array, part.dtype)
    with _subnormals_kept(), interruptions.put_off():
        run(call.kernel, arguments, variant=call.variant)


@contextlib.contextmanager
def _subnormals_kept() -> Iterator[None]:
    """XLA's threads take subnormal numbers for zeros, and the rules do not: the thread computes as C does by default meanwhile."""
    library, before = ctypes.CDLL(None), ctypes.create_string_buffer(_ENVIRONMENT)
    library.fegetenv(before)
    library.fesetenv(ctypes.c_void_p(-1))  # FE_DFL_ENV
    try:
        yield
    finally:
        library.fesetenv(before)


def _expect_on_host(frame: int) -> None:
    """Once for each kernel of a program, before it runs."""
    _host.set()


def _end_on_host() -> None:
    """Before Python shuts down, which ends any thread that asks for the interpreter's lock: one of XLA's, where nobody waited for a kernel.

    Arrays that are still there are waited for, as XLA would. Of what computes others nothing tells, and XLA's client would wait for threads
    that wait for the one that was ended: so it is kept until the process ends.
    """
    if not _host.is_set():
        return
    for array in jax.live_arrays("cpu"):
        with contextlib.suppress(Exception):  # of a computation that failed
            array.block_until_ready()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(jax.local_devices(backend="cpu")[0].client))


def _as_numpy(part: Part, address: int) -> np.ndarray:
    dtype = numpy_dtype(part.dtype)
    size = int(np.prod(part.storage)) * dtype.itemsize
    if not size:
        return np.zeros(part.shape, dtype)
    memory = (ctypes.c_uint8 * size).from_address(address)
    strides = tuple(stride * dtype.itemsize for stride in part.strides)
    return np.ndarray(part.shape, dtype, memoryview(memory), strides=strides)


def _handler(run: Callable[[int], None], header: tuple[int, int], traits: int = 0) -> object:
    @interruptions.called_by_c
    def handle(address: int) -> int | None:
        try:
            if not call_frame.answer_metadata(address, traits, header):
                run(address)
        except BaseException as error:  # nothing may leave a function that C calls
            if isinstance(error, KeyboardInterrupt):
                interruptions.raise_later()
            code = call_frame.INVALID_ARGUMENT if isinstance(error, ZooError) else call_frame.INTERNAL
            words = str(error) if isinstance(error, ZooError) else f"zoo.jax: {type(error).__name__}: {error}"
            return call_frame.error(address, code, words)
        return None

    function = call_frame.Handler(handle)
    _registered.append(function)
    return jax.ffi.pycapsule(ctypes.cast(function, ctypes.c_void_p))


def register() -> None:
    """Tells XLA of the handlers: once, for neither can be taken back."""
    try:
        header = call_frame.version_in_header(Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h").read_text())
    except (OSError, call_frame.UnknownLayoutError) as error:
        raise ImportError(f"zoo.jax does not know this jaxlib: {error}") from None
    execute = _handler(_on_gpu, header, call_frame.COMMAND_BUFFER_COMPATIBLE)
    on_gpu = {"instantiate": _handler(_load, header), "execute": execute}
    jax.ffi.register_ffi_target(TARGET, on_gpu, platform="CUDA")
    on_host = {"instantiate": _handler(_expect_on_host, header), "execute": _handler(_on_host, header)}
    jax.ffi.register_ffi_target(TARGET, on_host, platform="cpu")
    atexit.register(_end_on_host)

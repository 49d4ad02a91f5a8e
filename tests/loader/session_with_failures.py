"""A session of everything the loader asks of a driver, once for each of its calls, with that one call failing.

    python -m tests.loader.session_with_failures        # against the stand-in: a JSON line for each session, the first without a failure

Each session is a process of its own, forked before the driver is opened. After its failure it goes through all its steps again.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import importlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator

import numpy

import zoo
from zoo.catalog import Zoo
from zoo.runtime import driver

recorder = ctypes.CDLL("libcuda.so.1")
KINDS = ("allocations", "streams", "libraries", "contexts", "pushed", "relaxed")
FAILURE = 999
NAME = "quantize.mxfp8.rows"
PROOFS = Zoo("tests/zoo_cubins")


class Foreign:
    def __init__(self, array: zoo.DeviceArray):
        self.__cuda_array_interface__ = dict(shape=array.shape, typestr="<f2", data=(array.address, False), version=3)


def in_a_thread(function: Callable[[], None]) -> None:
    failed: list[Exception] = []

    def work() -> None:
        try:
            function()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def steps() -> Iterator[Callable[[], None]]:
    """What a program does; its arrays are made where they are first needed, so that a step which fails leaves the others whole."""

    @functools.cache
    def array(name: str, shape: tuple[int, ...], dtype: str) -> zoo.DeviceArray:
        return zoo.empty(shape, dtype)

    def call() -> dict[str, object]:
        return dict(x=array("x", (256, 512), "f16"), q=array("q", (256, 512), "e4m3"), scales=array("scales", (256, 16), "ue8m0"))

    def copied() -> None:
        values = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
        copy = zoo.to_device(values)
        assert (copy.numpy() == values).all() and copy.__cuda_array_interface__["data"][0] == copy.address
        copy.__dlpack__()

    def launched() -> None:
        zoo.launch(NAME, **call())
        zoo.launch(NAME, **call())

    def launched_in_a_thread() -> None:
        in_a_thread(lambda: zoo.launch(NAME, **call()))

    def prepared() -> None:
        plan = zoo.prepare(NAME, **call())
        plan()
        plan(zoo.stream())
        in_a_thread(plan)

    def mapped() -> None:  # with tensor maps, which a repeated call moves
        for name in ("a", "another"):
            a, b = (zoo.view(array(one, (64, 64), "u8"), "e4m3") for one in (name, "b"))
            PROOFS.launch("gemm.fp8b128.dense", a=a, b=b, d=array("d", (64, 64), "bf16"), who=array("who", (1,), "i32"), shift=0)

    def foreign() -> None:
        x = array("x", (256, 512), "f16")
        raw = zoo.ptr(array("q", (256, 512), "e4m3").address, (256, 512), "e4m3")
        zoo.launch(NAME, **{**call(), "x": Foreign(x), "q": raw})

    def loaded() -> None:
        assert zoo.load(NAME, variant="f16_e5m2_t256") == 1

    yield from (copied, launched, launched_in_a_thread, prepared, mapped, foreign, loaded)


def session(remarks: list[str]) -> None:
    for step in steps():
        try:
            step()
        except zoo.ZooError as error:
            remarks.append(f"{type(error).__name__}: {error}")
        except Exception as error:
            remarks.append(f"FOREIGN {step.__name__}: {type(error).__name__}: {error}")
    gc.collect()


def live() -> dict[str, int]:
    return {kind: recorder.zoo_recorder_live(kind.encode()) for kind in KINDS}


def one(failing: int) -> dict[str, object]:
    first: list[str] = []
    again: list[str] = []
    sys.unraisablehook = lambda said: first.append(f"{type(said.exc_value).__name__}: {said.exc_value}")  # of what is freed
    if failing:
        recorder.zoo_recorder_fail(b"*", FAILURE, ctypes.c_long(failing))
    session(first)
    calls = recorder.zoo_recorder_calls(b"*")
    recorder.zoo_recorder_recover()
    sys.unraisablehook = lambda said: again.append(f"{type(said.exc_value).__name__}: {said.exc_value}")
    session(again)
    zoo.empty((1,), "u8")  # which frees what could not be freed before
    gc.collect()
    return {"failing": failing, "calls": calls, "first": first, "again": again, "live": live()}


def main() -> None:
    total = 0
    failing = 0
    while failing <= total:
        sys.stdout.flush()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writing, json.dumps(one(failing)).encode() + b"\n")
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as answers:
            line = answers.read()
        os.waitpid(child, 0)
        total = total or json.loads(line)["calls"]
        sys.stdout.write(line or json.dumps({"failing": failing, "died": True}) + "\n")
        failing += 1


if __name__ == "__main__":
    for kernel in (*zoo.find(NAME), *PROOFS.find("gemm.fp8b128.dense")):  # read before the forks, once for all
        assert kernel.variants
    for module in ("cuda.bindings.driver", "ml_dtypes", "numpy.ma"):  # each session would import it again
        importlib.import_module(module)
    assert driver._bindings is None
    gc.freeze()
    gc.disable()
    main()

"""Problems for the test kernels, for whoever can run them: memory as numpy arrays, and what must be in it afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy

from tests.zoo_src import expected
from zoo.contract.resolve import Launch

POISON = 0xA5


@dataclass(frozen=True)
class Memory:
    """A buffer, and the part of it that is the argument: its shape, and strides in elements."""

    buffer: numpy.ndarray
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    name: str
    kernel: str
    memory: dict[str, Memory]
    others: dict[str, int | float | str]  # scalars and options
    wanted: Callable[[Launch], dict[str, numpy.ndarray]]  # argument -> its whole buffer after the launch


def whole(array: numpy.ndarray, dtype: str) -> Memory:
    strides = tuple(stride // array.itemsize for stride in array.strides)
    return Memory(array, dtype, array.shape, strides)


def in_rows(array: numpy.ndarray, dtype: str, pitch: int) -> Memory:
    """Rows `pitch` elements apart, with poison between."""
    rows, width = array.shape
    buffer = numpy.full(rows * pitch * array.itemsize, POISON, numpy.uint8).view(array.dtype).reshape(rows, pitch)
    buffer[:, :width] = array
    return Memory(buffer, dtype, array.shape, (pitch, 1))


def random_bytes(shape, seed: int) -> numpy.ndarray:
    return numpy.random.default_rng(seed).integers(0, 256, shape, dtype=numpy.uint8)


def dense(m: int, n: int, k: int, output: str, with_bias: bool) -> Problem:
    a, b = random_bytes((m, k), 1), random_bytes((n, k), 2)
    bias = numpy.arange(n, dtype=numpy.float32) % 7 if with_bias else None
    d = numpy.zeros((m, n), numpy.float32 if output == "f32" else ml_dtypes.bfloat16)
    memory = {"a": in_rows(a, "e4m3", k + 16), "b": whole(b, "e4m3"), "d": in_rows(d, output, n + 3)}
    memory["who"] = whole(numpy.full(40, -1, numpy.int32), "i32")
    if with_bias:
        memory["bias"] = whole(bias, "f32")

    def wanted(launch: Launch) -> dict[str, numpy.ndarray]:
        block_m = launch.variant.constants["BLOCK_M"]
        filled = memory["d"].buffer.copy()
        filled[:, :n] = expected.fp8b128_dense(a, b, bias, 0.5, -3, block_m, output)
        who = memory["who"].buffer.copy()
        whose = expected.fp8b128_dense_who(m, n, block_m, launch.grid[0], launch.cluster[0])[: len(who)]
        who[: len(whose)] = whose
        return {"d": filled, "who": who}

    name = f"dense-{m}x{n}x{k}-{output}{'-bias' if with_bias else ''}"
    return Problem(name, "gemm.fp8b128.dense", memory, {"alpha": 0.5, "shift": -3}, wanted)


def masked(groups: int, max_m: int, k_bytes: int, layout: str, with_counts: bool) -> Problem:
    a = random_bytes((groups, max_m, k_bytes), 3)
    shape = (groups, max_m, k_bytes // 16) if layout == "plain" else (groups, -(-max_m // 128), -(-k_bytes // 64), 32, 16)
    scale, untouched = random_bytes(shape, 4), random_bytes(a.shape, 5)
    valid = numpy.array([max_m + 5, -2, max_m // 2, 33][:groups], numpy.int32)
    blocks = -(-max_m // 32)
    memory = {
        "a": whole(a, "e2m1x2"), "a_scale": whole(scale, "ue8m0"), "masked_m": whole(valid, "i32"), "d": whole(untouched, "u8"),
        "workspace": whole(numpy.full(groups * blocks, -1, numpy.int32), "i32"),
    }  # fmt: skip
    if with_counts:
        memory["counts"] = whole(numpy.full(groups, -1, numpy.int32), "i32")

    def wanted(launch: Launch) -> dict[str, numpy.ndarray]:
        d, counts = expected.mxfp4_masked(a, scale, valid, untouched, layout)
        after = {"d": d, "workspace": expected.mxfp4_masked_workspace(valid, max_m, 7).astype(numpy.int32)}
        return {**after, "counts": counts.astype(numpy.int32)} if with_counts else after

    name = f"masked-{groups}x{max_m}x{k_bytes}-{layout}{'-counts' if with_counts else ''}"
    return Problem(name, "gemm.mxfp4.m_grouped_masked", memory, {"layout": layout, "tag": 7}, wanted)


def stepping(m: int, k: int) -> Problem:
    generator = numpy.random.default_rng(6)
    x = generator.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    v = generator.integers(-8, 8, k).astype(numpy.float32)
    d = numpy.zeros((-(-m // 2), -(-k // 32) * 32), numpy.float32)
    memory = {"x": in_rows(x, "bf16", -(-k // 8) * 8 + 8), "v": whole(v, "f32"), "d": whole(d, "f32")}

    def wanted(launch: Launch) -> dict[str, numpy.ndarray]:
        return {"d": expected.bf16_mxfp4_dense(x, v, -5)}

    return Problem(f"stepping-{m}x{k}", "gemm.bf16_mxfp4.dense", memory, {"add": -5}, wanted)


SMALL = [
    dense(1, 1, 32, "f32", False), dense(65, 130, 96, "bf16", True),
    dense(130, 300, 64, "f32", True), dense(200, 20, 160, "bf16", False),
    masked(1, 1, 16, "plain", True), masked(3, 70, 96, "plain", False),
    masked(4, 133, 80, "blocked", True), masked(1, 1, 16, "blocked", False),
    stepping(1, 1), stepping(2, 32), stepping(33, 70),
]  # fmt: skip
LARGE = [
    dense(2000, 3000, 256, "f32", True), dense(5000, 700, 512, "bf16", False),
    masked(4, 1000, 1040, "plain", True), masked(4, 1000, 1040, "blocked", True), stepping(1000, 513),
]  # fmt: skip


def differences(problem: Problem, after: dict[str, numpy.ndarray], launch: Launch) -> list[str]:
    """Of every buffer, written or not: the bytes that are not as they should be."""
    wrong = []
    wanted = {name: memory.buffer for name, memory in problem.memory.items()} | problem.wanted(launch)
    for name, array in wanted.items():
        found, right = after[name].view(numpy.uint8), numpy.ascontiguousarray(array).view(numpy.uint8)
        if array.dtype == numpy.float32 and numpy.isnan(array).any():  # a sum's NaN has no fixed payload
            holes = numpy.isnan(array)
            same = (numpy.isnan(after[name]) == holes).all() and (after[name][~holes] == array[~holes]).all()
        else:
            same = (found == right).all()
        if not same:
            places = numpy.argwhere(after[name] != array)
            first = tuple(places[0])
            wrong.append(f"{name}: {len(places)} elements differ, the first at {first}: {after[name][first]}, not {array[first]}")
    return wrong

"""D = C + A B^T where C is D: every tile reads an element of C before anybody writes it, and no element is added twice."""

import ml_dtypes
import numpy as np
import pytest

import zoo
from zoo.emulator import Device
from zoo.errors import ArgumentError

# Tiles whose last wave is shared by clusters, tiles of one and two waves of rows, few tokens with and without a shared K, and Blackwell's.
HOPPER = [
    "t64", "t128_w96", "t192_rest", "few8_w64_split8", "few8_w64_in_turn", "few64_w64_shared4", "few96_w64_split4", "f32_t192",
    "f32_few32_w64_split4",
]  # fmt: skip
CASES = [("gemm.fp8b128.dense", "sm_90a", variant) for variant in HOPPER]
CASES += [("gemm.fp8b128.dense", "sm_100f", variant) for variant in ("t256_w256", "t128", "few128")]
CASES += [("gemm.mxfp8.dense", "sm_100f", variant) for variant in ("t128", "few128")]


def operands(kernel, rows, columns, k):
    random = np.random.default_rng(rows)
    a, b = (random.standard_normal((extent, k), np.float32).astype(ml_dtypes.float8_e4m3fn) for extent in (rows, columns))
    if kernel == "gemm.mxfp8.dense":
        scales = [random.integers(124, 130, (-(-extent // 128), k // 128, 32, 16), np.uint8) for extent in (rows, columns)]
    else:
        shapes = (rows, k // 128), (-(-columns // 128), k // 128)
        scales = [np.exp2(random.integers(-2, 2, shape)).astype(np.float32) for shape in shapes]
    return {"a": a, "a_scale": scales[0], "b": b, "b_scale": scales[1]}


@pytest.mark.parametrize(("kernel", "arch", "variant"), CASES, ids=["-".join(case[1:]) + case[0][4:9] for case in CASES])
def test_c_in_the_memory_of_d_gives_the_bits_of_c_elsewhere(kernel, arch, variant):
    rows = 7 if "few8" in variant else 30 if variant.removeprefix("f32_").startswith("few") else 140
    columns, k = 136, 1024 if variant in ("few8_w64_split8", "few128") else 512 if "split" in variant else 256
    given = operands(kernel, rows, columns, k)
    dtype = np.float32 if variant.startswith("f32") else ml_dtypes.bfloat16
    c = np.random.default_rng(4).standard_normal((rows, columns), np.float32).astype(dtype)
    found = []
    for in_place in (False, True):
        gpu = Device(arch, scheduling="random", seed=7, arithmetic="hw", multiprocessors=6)
        arrays = {name: gpu.array(array) for name, array in given.items()} | {"d": gpu.array(c.copy() if in_place else np.zeros_like(c))}
        zoo.launch(kernel, variant=variant, c=arrays["d"] if in_place else gpu.array(c), **arrays)
        found.append(arrays["d"].numpy())
    assert np.array_equal(*(one.view(np.uint8) for one in found)) and not np.array_equal(found[0], c)


@pytest.mark.parametrize("how", ["a row later", "half of the columns", "another dtype", "other strides"])
def test_c_that_is_only_partly_d_is_refused(how):
    gpu = Device("sm_90a")
    given = {name: gpu.array(array) for name, array in operands("gemm.fp8b128.dense", 16, 64, 128).items()}
    memory = gpu.empty((17, 128), "f32").address

    def d(row=0, column=0, dtype="f32", stride=128):
        return zoo.ptr(memory + 4 * (128 * row + column), (16, 64), dtype, (stride, 1), device=gpu)

    c = {"a row later": d(row=1), "half of the columns": d(column=32), "another dtype": d(dtype="bf16"), "other strides": d(stride=64)}[how]
    with pytest.raises(ArgumentError, match=", and the kernel writes d; c may be d itself, with its dtype, shape and strides"):
        zoo.launch("gemm.fp8b128.dense", c=c, d=d(), **given)

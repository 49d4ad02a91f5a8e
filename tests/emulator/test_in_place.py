"""D = C + A B^T where C is D: every tile reads an element of C before anybody writes it, and no element is added twice."""

import ml_dtypes
import numpy as np
import pytest

import zoo
from zoo.contract.array import Array, contiguous_strides
from zoo.contract.resolve import resolve
from zoo.emulator import Device
from zoo.errors import ArgumentError
from zoo.packaged import packaged

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
    def array(place, shape, dtype, **more):
        return Array(place, dtype, shape, **({"strides": contiguous_strides(shape)} | more))

    def part_of_d(row=0, column=0, dtype="f32", stride=128):
        return array((5 << 32) + 4 * (128 * row + column), (16, 64), dtype, strides=(stride, 1))

    given = {
        "a": array(1 << 32, (16, 128), "e4m3"), "a_scale": array(2 << 32, (16, 1), "f32"), "b": array(3 << 32, (64, 128), "e4m3"),
        "b_scale": array(4 << 32, (1, 1), "f32"), "d": part_of_d(),
    }  # fmt: skip
    wrong = {
        "a row later": part_of_d(row=1), "half of the columns": part_of_d(column=32), "another dtype": part_of_d(dtype="bf16"),
        "other strides": part_of_d(stride=64),
    }  # fmt: skip
    kernel = packaged.kernel("gemm.fp8b128.dense")
    assert resolve(kernel, given | {"c": part_of_d()}, (9, 0), 132).grid[0] > 0
    assert resolve(kernel, given | {"c": part_of_d(column=64)}, (9, 0), 132).grid[0] > 0  # the other half of one buffer
    with pytest.raises(ArgumentError, match="c: overlaps d, and the kernel writes d; c may be d itself, with its dtype, shape and strides"):
        resolve(kernel, given | {"c": wrong[how]}, (9, 0), 132)

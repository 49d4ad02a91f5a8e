"""gemm.fp8b128 on Blackwell in the emulator: scales that its kernels turn into powers of two, and what becomes of those that are none.

Operands are small whole numbers with small powers of two as scales, so that sums are exact in any order; what must come out is worked out
in float64, without zoo.reference. ZOO_CUBINS is another folder than the packaged one.
"""

import os

import ml_dtypes
import numpy
import pytest

from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, Placed, Problem, difference
from zoo.contract.array import Array
from zoo.contract.resolve import resolve
from zoo.emulator import Device
from zoo.errors import VariantError
from zoo.runtime.arrays import Pointer
from zoo.shipped.packaged import packaged

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
D_DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": numpy.float16, "f32": numpy.float32}
SCHEDULES = 2  # as late as is legal, then at random


def kernel_and_variants(name):
    (kernel,) = ZOO.find(name)
    return kernel, [variant for variant in kernel.variants if variant.arch == "sm_100f"]


def variants(*names):
    found = [(kernel, variant) for kernel, several in map(kernel_and_variants, names) for variant in several]
    return pytest.mark.parametrize(("kernel", "variant"), found, ids=[f"{kernel.name} {variant.name}" for kernel, variant in found])


def operand(random, *shape):
    return random.integers(-4, 5, shape).astype(ml_dtypes.float8_e4m3fn)


def scales(random, *shape):
    return numpy.exp2(random.integers(-2, 3, shape)).astype(numpy.float32)


def product(a, a_scale, b, b_scale):
    left = a.astype(numpy.float64) * numpy.repeat(a_scale, 128, axis=1)[:, : a.shape[1]]
    right = numpy.repeat(numpy.repeat(b_scale, 128, axis=0)[: len(b)], 128, axis=1)[:, : b.shape[1]] * b.astype(numpy.float64)
    return left @ right.T


def as_bytes(values):
    return numpy.where(
        numpy.isnan(values), 255, numpy.log2(numpy.abs(values), where=values > 0, out=numpy.full(values.shape, 0.0)) + 127
    ).astype(numpy.uint8)


def placed_scales(values, stored, strides=None):
    return Placed(as_bytes(values), strides, "ue8m0") if stored == "ue8m0" else Placed(values, strides)


def dense(M, N, K, d="f32", stored=("f32", "f32"), turned=False, change=None, more=False):
    random = numpy.random.default_rng(M + 31 * N + K)
    blocks, columns = -(-K // 128), -(-N // 128)
    a, b, a_scale, b_scale = operand(random, M, K), operand(random, N, K), scales(random, M, blocks), scales(random, columns, blocks)
    if change:
        change(a_scale, b_scale)
    expected = product(a, a_scale, b, b_scale)
    inputs = {
        "a": Placed(a, (K + 16, 1)),
        "a_scale": placed_scales(a_scale, stored[0], (1, M + 3) if turned else None),
        "b": Placed(b, (K + 32, 1)),
        "b_scale": placed_scales(b_scale, stored[1], (1, columns) if turned else (blocks + 1, 1)),
    }
    if more:
        factors, c = random.choice([0.25, 0.5, 1, 2], M), random.integers(-8, 9, (M, N))
        expected = expected * factors[:, None] + c
        inputs |= {"row_scale": Placed(factors.astype(numpy.float32)), "c": Placed(c.astype(ml_dtypes.bfloat16))}
    values = expected.astype(D_DTYPES[d])
    values.view(f"u{values.itemsize}")[numpy.isnan(expected)] = 0x7FFFFFFF if d == "f32" else 0x7FFF
    return Problem(f"{M} x {N} x {K}", inputs, {"d": Placed(values, (N + 8, 1))})


def wrong(problem, kernel, variant, schedules=SCHEDULES):
    return difference(problem, kernel, variant, executor(ZOO, schedules), POISONS[:1])


@variants("gemm.fp8b128.dense")
def test_ragged_products_are_exact(kernel, variant):
    assert wrong(dense(130, 136, 48, "bf16", turned=True), kernel, variant) is None
    assert wrong(dense(5, 264, 304, "f16", ("ue8m0", "f32"), more=True), kernel, variant) is None
    assert wrong(dense(33, 72, 1168, "f32", ("f32", "ue8m0")), kernel, variant) is None  # K is shared where tokens are columns


def no_power_of_two(a_scale, b_scale):
    a_scale[3, 1], a_scale[5, 0], b_scale[1, 0] = 0.75, -1, numpy.nan


@variants("gemm.fp8b128.dense")
def test_what_is_no_power_of_two_makes_its_rows_nan_and_no_others(kernel, variant):
    problem = dense(9, 136, 272, change=no_power_of_two)
    expected = problem.outputs["d"].values
    expected.view(numpy.uint32)[[3, 5]] = 0x7FFFFFFF
    lost = numpy.isnan(expected)
    assert lost[:, 128:].all() and lost[[3, 5]].all() and not lost[[0, 1, 2, 4, 6, 7, 8], :128].any()
    assert wrong(problem, kernel, variant) is None


def ends_of_the_range(a_scale, b_scale):
    a_scale[0], a_scale[1], b_scale[:] = 2.0**-127, 2.0**127, 2.0**-16


@variants("gemm.fp8b128.dense")
def test_the_least_and_the_largest_scale_are_powers_like_others_and_zero_is_the_least(kernel, variant):
    assert wrong(dense(4, 8, 128, change=ends_of_the_range), kernel, variant, 1) is None
    problem = dense(4, 8, 128, change=ends_of_the_range)
    problem.inputs["a_scale"].values[0] = 0
    assert wrong(problem, kernel, variant, 1) is None


def groups(N, K, sizes, by_index, d="f32", stored="f32"):
    random = numpy.random.default_rng(N + K + len(sizes))
    M, G, blocks, columns = sum(sizes) + 3, len(sizes), -(-K // 128), -(-N // 128)
    a, b, a_scale, b_scale = operand(random, M, K), operand(random, G, N, K), scales(random, M, blocks), scales(random, G, columns, blocks)
    ends = numpy.cumsum(sizes).astype(numpy.int32)
    owner = numpy.append(numpy.repeat(numpy.arange(G), sizes), [-1] * 3).astype(numpy.int32)
    expected = numpy.zeros((M, N))
    for group in range(G):
        rows = owner == group
        expected[rows] = product(a[rows], a_scale[rows], b[group], b_scale[group])
    a[-3:] = numpy.nan
    inputs = {"a": Placed(a), "a_scale": placed_scales(a_scale, stored), "b": Placed(b), "b_scale": placed_scales(b_scale, stored)}
    inputs |= {"m_indices": Placed(owner)} if by_index else {"offsets": Placed(ends)}
    untouched = numpy.broadcast_to((owner < 0)[:, None], (M, N))
    return Problem(f"groups {sizes}", inputs, {"d": Placed(expected.astype(D_DTYPES[d]), untouched=untouched)})


@variants("gemm.fp8b128.m_grouped_contiguous")
def test_groups_that_end_within_a_tile_are_exact(kernel, variant):
    by_index = variant.constants["INDEXED"]
    assert wrong(groups(136, 144, (7, 0, 130, 1), by_index, "bf16"), kernel, variant) is None
    assert wrong(groups(8, 272, (1,) * 34 + (0, 40), by_index, "f16", "ue8m0"), kernel, variant, 1) is None  # more than a warp has lanes


@variants("gemm.fp8b128.m_grouped_gather")
def test_gathered_rows_bring_their_own_scales_and_rows_of_none_are_zeros(kernel, variant):
    random = numpy.random.default_rng(2)
    T, N, K, sizes = 37, 136, 144, (130, 0, 5)
    M, index = sum(sizes) + 2, random.integers(-1, T, sum(sizes) + 2, dtype=numpy.int32)
    a, b, a_scale, b_scale = operand(random, T, K), operand(random, 3, N, K), scales(random, T, 2), scales(random, 3, 2, 2)
    a[7], a_scale[8] = numpy.nan, numpy.nan  # which nobody takes
    index[(index == 7) | (index == 8)] = -1
    owner = numpy.append(numpy.repeat(numpy.arange(3), sizes), [-1, -1])
    expected = numpy.zeros((M, N))
    for group in range(3):
        rows = (owner == group) & (index >= 0)
        expected[rows] = product(a[index[rows]], a_scale[index[rows]], b[group], b_scale[group])
    index[owner < 0] = 2**31 - 1
    inputs = {"a": Placed(a), "a_scale": Placed(a_scale, (1, T + 2)), "b": Placed(b), "b_scale": placed_scales(b_scale, "ue8m0")}
    inputs |= {"index": Placed(index), "offsets": Placed(numpy.cumsum(sizes).astype(numpy.int32))}
    d = Placed(expected.astype(numpy.float32), untouched=numpy.broadcast_to((owner < 0)[:, None], (M, N)))
    assert wrong(Problem("gathered", inputs, {"d": d}), kernel, variant) is None


@variants("gemm.fp8b128.m_grouped_masked")
def test_rows_in_places_are_exact(kernel, variant):
    random = numpy.random.default_rng(1)
    N, K, R, used = 136, 176, 131, numpy.array([0, 131, 5, 129], numpy.int32)
    a, b = operand(random, 4, R, K), operand(random, 4, N, K)
    a_scale, b_scale = scales(random, 4, R, 2), scales(random, 4, 2, 2)
    expected = numpy.stack([product(a[group], a_scale[group], b[group], b_scale[group]) for group in range(4)])
    untouched = numpy.arange(R)[None, :] >= used[:, None]
    a[untouched], a_scale[untouched] = numpy.nan, numpy.nan
    inputs = {
        "a": Placed(a),
        "a_scale": Placed(a_scale, (2 * R + 6, 1, R + 1)),
        "b": Placed(b),
        "b_scale": Placed(b_scale),
        "rows": Placed(used),
    }
    d = Placed(expected.astype(numpy.float32), untouched=numpy.broadcast_to(untouched[:, :, None], expected.shape))
    assert wrong(Problem("places", inputs, {"d": d}), kernel, variant) is None


@pytest.mark.parametrize(("d", "accumulate", "stored"), [("f32", "no", "f32"), ("bf16", "yes", "ue8m0"), ("f32", "yes", "ue8m0")])
@variants("gemm.fp8b128.k_grouped")
def test_groups_along_k_end_where_they_end_and_not_where_a_step_does(kernel, variant, d, accumulate, stored):
    random = numpy.random.default_rng(5)
    M, N, sizes = 131, 264, (16, 0, 144, 69)
    K, ends = sum(sizes) + 7, numpy.cumsum(sizes)
    a, b, blocks = operand(random, M, K), operand(random, N, K), -(-K // 128) + len(sizes)
    a_scale, b_scale = scales(random, blocks, M), scales(random, blocks, N)
    before = random.integers(-8, 9, (4, M, N)).astype(D_DTYPES[d])
    expected, block = numpy.zeros((4, M, N)), 0
    for group, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        for first in range(end - size, end, 128):
            part = slice(first, min(first + 128, end))
            left = a[:, part].astype(numpy.float64) * a_scale[block, :, None]
            expected[group] += left @ (b[:, part].astype(numpy.float64) * b_scale[block, :, None]).T
            block += 1
    a[:, ends[-1] :], b[:, ends[-1] :] = numpy.nan, numpy.nan  # nobody's
    a_scale[block:], b_scale[block:] = numpy.nan, numpy.nan
    pitch = -(-K // 16) * 16
    inputs = {"a": Placed(a, (pitch, 1)), "b": Placed(b, (pitch + 16, 1)), "offsets": Placed(ends.astype(numpy.int32))}
    inputs |= {"a_scale": placed_scales(a_scale, stored, (M + 1, 1)), "b_scale": placed_scales(b_scale, "f32", (N, 1))}
    if accumulate == "yes":
        expected += before.astype(numpy.float64)
    placed = Placed(expected.astype(D_DTYPES[d]), before=before if accumulate == "yes" else None)
    assert wrong(Problem("along K", inputs, {"d": placed}, {"accumulate": accumulate}), kernel, variant) is None


@pytest.mark.parametrize("grouping", ["dense", "m_grouped_contiguous", "m_grouped_masked"])
def test_hopper_takes_f32_scales_and_says_so(grouping):
    kernel, on_blackwell = kernel_and_variants(f"gemm.fp8b128.{grouping}")
    shapes = {"a": (1, 4, 16), "a_scale": (1, 4, 1), "b": (1, 8, 16), "b_scale": (1, 1, 1), "d": (1, 4, 8), "rows": (1,), "offsets": (1,)}
    stacked = {"m_grouped_masked": shapes, "m_grouped_contiguous": ("b", "b_scale", "offsets"), "dense": ()}[grouping]
    dtypes = {"a": "e4m3", "b": "e4m3", "a_scale": "ue8m0", "b_scale": "ue8m0", "d": "bf16", "rows": "i32", "offsets": "i32"}
    call = {}
    for index, (name, shape) in enumerate(shapes.items()):
        if name in kernel.arguments:
            shape = shape if name in stacked else shape[1:]
            strides = tuple(int(numpy.prod(shape[axis + 1 :])) for axis in range(len(shape)))
            call[name] = Array((index + 1) << 20, dtypes[name], shape, strides)
    with pytest.raises(VariantError, match="no variant for sm_90a takes a_scale = ue8m0, b_scale = ue8m0, d = bf16"):
        resolve(kernel, call, (9, 0), 132)
    assert resolve(kernel, call, (10, 0), 148).variant in on_blackwell


def test_what_was_requantised_multiplies_to_the_same_within_what_elements_lose():
    random = numpy.random.default_rng(3)
    M, N, K = 20, 136, 272
    a, b = random.standard_normal((M, K)) * 40, random.standard_normal((N, K)) * 40
    a, b = a.astype(ml_dtypes.float8_e4m3fn), b.astype(ml_dtypes.float8_e4m3fn)
    a_scale, b_scale = (random.uniform(0.001, 0.01, shape).astype(numpy.float32) for shape in ((M, 3), (2, 3)))
    device = Device(arch="sm_100f", arithmetic="hw", multiprocessors=3)

    def put(values, dtype):
        strides = tuple(int(numpy.prod(values.shape[axis + 1 :])) for axis in range(values.ndim))
        return Pointer(device.alloc(numpy.ascontiguousarray(values).view(numpy.uint8).reshape(-1)), values.shape, dtype, strides, device)

    made = {}
    for name, q, scale, direction in (("a", a, a_scale, "rows"), ("b", b[None], b_scale[None], "squares")):
        q_out, new = put(numpy.zeros_like(q), "e4m3"), put(numpy.zeros(scale.shape, numpy.uint8), "ue8m0")
        ZOO.prepare(f"requantize.fp8b128.{direction}", q=put(q, "e4m3"), scales=put(scale, "f32"), q_out=q_out, scales_out=new)()
        flat = (q_out.shape[-2:], new.shape[-2:])
        made[name] = Pointer(q_out.address, flat[0], "e4m3", (K, 1), device)
        made[name + "_scale"] = Pointer(new.address, flat[1], "ue8m0", (3, 1), device)
    d = put(numpy.zeros((M, N), numpy.float32), "f32")
    ZOO.prepare("gemm.fp8b128.dense", **made, d=d)()
    found, exact = device.read(d.address, (M, N), numpy.float32), product(a, a_scale, b, b_scale)
    magnitudes = product(abs(a.astype(numpy.float32)), a_scale, abs(b.astype(numpy.float32)), b_scale)
    assert (abs(found - exact) <= magnitudes * (2.0**-3 + 2.0**-8)).all()  # half a unit of three bits of each factor
    assert (found != exact.astype(numpy.float32)).any()

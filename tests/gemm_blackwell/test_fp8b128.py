"""gemm.fp8b128 on Blackwell in the emulator: scales that its kernels turn into powers of two, and what becomes of those that are none.

Operands are small whole numbers with small powers of two as scales, so that sums are exact in any order; what must come out is worked out
in float64, without zoo.reference. ZOO_CUBINS is another folder than the packaged one.
"""

import os
from dataclasses import replace

import ml_dtypes
import numpy
import pytest

from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, Placed, Problem, difference
from zoo.contract.array import Array, Pointer
from zoo.contract.resolve import resolve
from zoo.emulator import Device
from zoo.packaged import packaged

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
    a_scale, b_scale = scales(random, M, blocks), scales(random, N, blocks)
    before = random.integers(-8, 9, (4, M, N)).astype(D_DTYPES[d])
    expected, block = numpy.zeros((4, M, N)), 0
    for group, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        for first in range(end - size, end, 128):
            part = slice(first, min(first + 128, end))
            left = a[:, part].astype(numpy.float64) * a_scale[:, block, None]
            expected[group] += left @ (b[:, part].astype(numpy.float64) * b_scale[:, block, None]).T
            block += 1
    a[:, ends[-1] :], b[:, ends[-1] :] = numpy.nan, numpy.nan  # nobody's
    a_scale[:, block:], b_scale[:, block:] = numpy.nan, numpy.nan
    pitch = -(-K // 16) * 16
    inputs = {"a": Placed(a, (pitch, 1)), "b": Placed(b, (pitch + 16, 1)), "offsets": Placed(ends.astype(numpy.int32))}
    inputs |= {"a_scale": placed_scales(a_scale, stored, (1, M + 1)), "b_scale": placed_scales(b_scale, "f32", (1, N))}
    if accumulate == "yes":
        expected += before.astype(numpy.float64)
    placed = Placed(expected.astype(D_DTYPES[d]), before=before if accumulate == "yes" else None)
    assert wrong(Problem("along K", inputs, {"d": placed}, {"accumulate": accumulate}), kernel, variant) is None


@pytest.mark.parametrize("grouping", ["dense", "m_grouped_contiguous", "m_grouped_masked"])
def test_one_call_with_bytes_as_scales_runs_on_hopper_too(grouping):
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
    assert resolve(kernel, call, (9, 0), 132).variant.arch == "sm_90a"
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


# ---- SwiGLU. Gates of 128 and more are their own silu, to the bit. --------------------------------------------------------------------

GATED = [
    f"gemm.fp8b128.{grouping}.{result}"
    for grouping in ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
    for result in ("swiglu", "swiglu_fp8b128")
]


def gates_and_ups(random, columns, K, order):
    """B of twice as many rows in this order, its scales, and its elements with them."""
    gates, ups = random.integers(1, 5, (columns, K)), random.integers(-4, 5, (columns, K))
    b = numpy.concatenate([gates, ups]) if order == "halves" else numpy.stack([gates, ups], 1).reshape(2 * columns, K)
    b_scale = numpy.exp2(random.integers(0, 2, (-(-2 * columns // 128), -(-K // 128)))).astype(numpy.float32)
    return b.astype(ml_dtypes.float8_e4m3fn), b_scale


def h_of(a, a_scale, b, b_scale, order, row_scale):
    sums = product(a, a_scale, b, b_scale).astype(numpy.float32)
    half = sums.shape[1] // 2
    gates, ups = (sums[:, :half], sums[:, half:]) if order == "halves" else (sums[:, 0::2], sums[:, 1::2])
    assert (gates >= 128).all()
    return gates * ups * row_scale[:, None]


def quantised(h, scaling):
    blocks = -(-h.shape[1] // 128)
    q, found = numpy.zeros(h.shape, ml_dtypes.float8_e4m3fn), numpy.ones((len(h), blocks), numpy.float32)
    for block in range(blocks):
        own = slice(128 * block, 128 * block + 128)
        largest = abs(h[:, own]).max(1)
        exact = largest / numpy.float32(448)
        scale = (
            exact if scaling == "exact" else numpy.exp2(numpy.ceil(numpy.log2(numpy.where(largest == 0, 448, largest).astype(float) / 448)))
        )
        found[:, block] = numpy.where(largest == 0, 1, scale)
        q[:, own] = h[:, own] * (numpy.float32(1) / found[:, block, None])
    return q, found


def swiglu(kernel, variant, columns, K, sizes, order, scaling, seed):
    """Groups of these sizes, the last rows nobody's; of dense one group. Gathered rows come from A in another order, and every seventh is none."""
    random, grouping = numpy.random.default_rng(seed), kernel.fields["grouping"]
    more = 0 if grouping == "dense" else 3
    R = max(sizes) + more
    places = [group * R if grouping == "m_grouped_masked" else sum(sizes[:group]) for group in range(len(sizes))]
    M = R * len(sizes) if grouping == "m_grouped_masked" else sum(sizes) + more
    a = random.integers(1, 5, (M, K)).astype(ml_dtypes.float8_e4m3fn)
    a_scale = numpy.exp2(random.integers(0, 2, (M, -(-K // 128)))).astype(numpy.float32)
    row_scale = random.choice([0.25, 0.5, 1, 3], M).astype(numpy.float32)
    weights = [gates_and_ups(random, columns, K, order) for _ in sizes]
    owner, h = numpy.full(M, -1, numpy.int32), numpy.zeros((M, columns), numpy.float32)
    for group, (begin, size) in enumerate(zip(places, sizes, strict=True)):
        rows = slice(begin, begin + size)
        owner[rows], h[rows] = group, h_of(a[rows], a_scale[rows], *weights[group], order, row_scale[rows])
    a[owner < 0], a_scale[owner < 0] = numpy.nan, numpy.nan
    if grouping == "m_grouped_gather":
        index, h[::7] = random.permutation(M).astype(numpy.int32), 0
        a[index], a_scale[index] = a.copy(), a_scale.copy()
        index[owner < 0], index[::7], index[::14] = 2**31 - 1, -1, M

    def shaped(array):
        return array.reshape(len(sizes), R, *array.shape[1:]) if grouping == "m_grouped_masked" else array

    b, b_scale = (numpy.stack(parts) if grouping != "dense" else parts[0] for parts in zip(*weights, strict=True))
    inputs = {"a": Placed(shaped(a)), "a_scale": placed_scales(shaped(a_scale), ("f32", "ue8m0")[seed % 2]), "b": Placed(b)}
    inputs |= {"b_scale": placed_scales(b_scale, ("ue8m0", "f32")[seed % 2]), "row_scale": Placed(shaped(row_scale))}
    if grouping == "m_grouped_masked":
        inputs["rows"] = Placed(numpy.array(sizes, numpy.int32))
    elif grouping == "m_grouped_contiguous":
        ends = numpy.cumsum(sizes).astype(numpy.int32)
        inputs |= {"m_indices": Placed(owner)} if variant.constants["INDEXED"] else {"offsets": Placed(ends)}
    elif grouping == "m_grouped_gather":
        inputs |= {"index": Placed(index), "offsets": Placed(numpy.cumsum(sizes).astype(numpy.int32))}
    results = {"d": h.astype(ml_dtypes.bfloat16)}
    if kernel.fields["extra"] != "swiglu":
        results = dict(zip(("q", "scales"), quantised(h, scaling), strict=True))
    outputs = {
        name: Placed(shaped(array), untouched=numpy.broadcast_to(shaped(owner < 0)[..., None], shaped(array).shape))
        for name, array in results.items()
    }
    settings = {"gates": order} | ({"scaling": scaling} if "q" in results else {})
    return Problem(f"{sizes} x {columns} x {K}, {order}, {scaling}", inputs, outputs, settings)


@variants(*GATED)
def test_ups_of_128_columns_have_two_scales_where_gates_are_an_odd_number_of_64(kernel, variant):
    assert wrong(swiglu(kernel, variant, 192, 144, (5,), "halves", "exact", 1), kernel, variant) is None
    assert wrong(swiglu(kernel, variant, 64, 144, (33,), "halves", "pow2", 2), kernel, variant, 1) is None


@variants(*GATED)
def test_a_last_block_of_the_result_may_be_short_and_a_tile_have_few_rows(kernel, variant):
    assert wrong(swiglu(kernel, variant, 144, 160, (131,), "interleaved", "pow2", 3), kernel, variant, 1) is None
    sizes = (3,) if kernel.fields["grouping"] == "dense" else (3, 0, 7, 1)
    assert wrong(swiglu(kernel, variant, 16, 272, sizes, "interleaved", "exact", 4), kernel, variant) is None


@pytest.mark.parametrize("multiprocessors", [3, 148, 160])
@variants("gemm.fp8b128.dense", "gemm.fp8b128.dense.swiglu_fp8b128")
def test_k_is_shared_by_as_many_as_the_multiprocessors_allow(kernel, variant, multiprocessors):
    if not variant.constants["SWAPPED"]:
        pytest.skip("few tokens only")
    K = 128 * 32 + 16
    problem = swiglu(kernel, variant, 16, K, (2,), "interleaved", "exact", 5) if "extra" in kernel.fields else dense(2, 8, K)
    values = {"M": 2, "N": 8, "I": 16, "K": K, "sms": multiprocessors}
    values |= {"batch_invariant.yes": 0, "batch_invariant.no": 1, "gates.interleaved": 1}
    for name, expression in kernel.derived:
        values[name] = expression.evaluate(values)
    assert values["SHARES"] == (2 if multiprocessors == 3 else 8)
    assert wrong(replace(problem, multiprocessors=multiprocessors), kernel, variant, 1) is None

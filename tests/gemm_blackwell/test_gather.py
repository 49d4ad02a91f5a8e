"""Products of rows taken through an index, in the emulator, against float64 on operands whose sums are exact: exact_groups.

tests/gemm_blackwell/which.py says how to run more.
"""

import numpy
import pytest

from tests.gemm_blackwell.exact_groups import BLOCKS, blocked, extras, operand, placed_d, placed_elements, placed_weights, sides, weights
from tests.gemm_blackwell.named import named
from tests.gemm_blackwell.runs import wrong
from tests.gemm_blackwell.which import ZOO
from zoo.checks.problem import Placed, Problem
from zoo.contract.array import Pointer, contiguous_strides
from zoo.emulator import Device, machine

FORMATS = ("mxfp8", "mxfp4", "nvfp4", "mxfp8_mxfp4")
TILES = ("t128", "few128")
EMULATED_NAN = numpy.uint32(0x7FFFFFFF).view(numpy.float32)  # what the tensor core writes
of_all = pytest.mark.parametrize(("format", "tile"), [(format, tile) for format in FORMATS for tile in TILES])
of_tiles = pytest.mark.parametrize("tile", TILES)


def gathered(format, N, K, T, sizes, nobody=0, d="f32", gap=0, scale_pitch=None, more=False, index=None, dtype="e4m3"):
    """Groups of rows that take any of T rows; a tenth takes none. The last row is nobody's, and NaN where the format has one."""
    random = numpy.random.default_rng(N * 31 + K + sum(sizes))
    G, M = len(sizes), sum(sizes) + nobody
    format_of_a, format_of_b = sides(format)
    a, bs = operand(format_of_a, T, K, random, dtype), weights(format_of_b, G, N, K, random)
    ends = numpy.cumsum(sizes).astype(numpy.int32)
    if index is None:
        index = numpy.where(random.random(M) < 0.1, -1, random.integers(0, T - 1, M))
    index = numpy.array(index, numpy.int32)
    index[sum(sizes) :] = T - 1
    exists = (index >= 0) & (index < T)
    rows = numpy.where(exists[:, None], a.values[numpy.where(exists, index, 0)], 0)
    expected, factors = numpy.zeros((M, N)), extras(random, G, N, (M,))
    for group, (size, end) in enumerate(zip(sizes, ends, strict=True)):
        of_d = slice(end - size, end)
        expected[of_d] = rows[of_d] @ bs[group].values.T
        if more:
            expected[of_d] = (expected[of_d] * factors["alpha"][group] + factors["bias"][group]) * factors["row_scale"][of_d, None]
    if format_of_a == "mxfp8":
        a.elements[-1] = numpy.nan
    a.scales[-1] = 0xFF if format != "nvfp4" else 0x7F
    pitch = -(-a.elements.shape[1] // 16) * 16 + 16 * gap
    inputs = {
        "a": placed_elements(format_of_a, a.elements, (pitch, 1)),
        "a_scale": Placed(a.scales, (scale_pitch or a.scales.shape[1], 1), "e4m3" if format == "nvfp4" else "ue8m0"),
        "index": Placed(index),
        "offsets": Placed(ends),
    } | placed_weights(format, bs, N, K, gap)
    if more:
        inputs |= {name: Placed(values.astype(numpy.float32)) for name, values in factors.items()}
    untouched = numpy.broadcast_to((numpy.arange(M) >= sum(sizes))[:, None], (M, N))
    return Problem(f"{N} {K} {T} {sizes}", inputs, {"d": placed_d(expected, d, (N + 8 * gap, 1), untouched)})


@of_all
def test_groups_end_within_a_tile_and_take_rows_in_any_order(format, tile):
    problem = gathered(format, 40, 96, 23, (0, 5, 0, 130, 1, 0), nobody=3, gap=1, more=True)
    assert wrong("m_grouped_gather", format, tile, problem) is None


@of_all
@pytest.mark.parametrize("pitch", ["multiple of 16", "odd"])
def test_scales_that_are_read_16_at_a_time_or_one_by_one(format, tile, pitch):
    K = 1312  # the last 16 scales of a row are not all there, and a line of K is not whole
    scale_pitch = -(-(K // BLOCKS[format]) // 16) * 16 if pitch == "multiple of 16" else K // BLOCKS[format] + 1 | 1
    problem = gathered(format, 8, K, 5, (3, 2), scale_pitch=scale_pitch)
    assert wrong("m_grouped_gather", format, tile, problem, schedules=2) is None


@of_tiles
@pytest.mark.parametrize("d", ["bf16", "f16"])
def test_tiles_of_several_columns_and_rows(tile, d):
    assert wrong("m_grouped_gather", "mxfp4", tile, gathered("mxfp4", 264, 32, 300, (128, 129, 256), d=d)) is None


@of_tiles
def test_indices_outside_a_are_rows_of_zeros(tile):
    index = [0, -1, 7, 2**31 - 1, -(2**31), 6, 8, 3, 127, 128]  # of 8 rows
    assert wrong("m_grouped_gather", "mxfp8", tile, gathered("mxfp8", 8, 64, 8, (4, 6), more=True, index=without_last(index))) is None


def without_last(index, last=7):
    """Row `last` is NaN; nobody takes it here."""
    return [last - 1 if row == last else row for row in index]


@of_tiles
def test_rows_that_a_tile_does_not_have_are_not_copied(tile, monkeypatch):
    sizes, copies, dismantle = (1, 0, 6, 130), 0, machine.Machine.dismantle

    def counted(ended):
        nonlocal copies
        copies += sum(int(n) for ins, n in zip(ended.program.instructions, ended.counts, strict=False) if n and "gather4" in ins.text)
        dismantle(ended)

    monkeypatch.setattr(machine.Machine, "dismantle", counted)
    assert wrong("m_grouped_gather", "mxfp8", tile, gathered("mxfp8", 8, 32, 9, sizes), schedules=1) is None
    assert copies == 1 + 2 + 32 + 1  # of four rows each, in one K block


@of_tiles
def test_one_row_is_taken_by_all(tile):
    assert wrong("m_grouped_gather", "nvfp4", tile, gathered("nvfp4", 24, 64, 4, (33, 130), index=[2] * 163)) is None


@of_tiles
def test_more_groups_than_lanes_of_a_warp_in_any_order_of_launch(tile):
    sizes = (0,) * 33 + (1, 0, 140, 2) + (0,) * 40 + (3, 0)
    assert wrong("m_grouped_gather", "mxfp8", tile, gathered("mxfp8", 136, 32, 40, sizes, nobody=1), schedules=2) is None


@of_tiles
def test_no_groups_and_no_rows_write_nothing(tile):
    for sizes, nobody in (((), 0), ((0, 0), 0), ((0, 0), 9)):
        assert wrong("m_grouped_gather", "mxfp8_mxfp4", tile, gathered("mxfp8_mxfp4", 8, 32, 3, sizes, nobody)) is None


@of_tiles
def test_elements_of_the_other_type(tile):
    problem = gathered("mxfp8_mxfp4", 8, 64, 5, (3, 2), dtype="e5m2")
    assert wrong("m_grouped_gather", "mxfp8_mxfp4", tile, problem) is None


@of_tiles
def test_nan_stays_in_rows_that_take_it_and_in_its_groups_columns(tile):
    problem = gathered("mxfp8", 24, 64, 9, (6, 5, 4), index=[0, 1, 2, 3, 4, 5, 6, 0, 1, -1, 2, 5, 6, 3, 4])
    problem.inputs["a"].values[1, 63] = numpy.nan
    problem.inputs["a_scale"].values[6, 1] = 0xFF
    problem.inputs["b"].values[1, 5, 0] = numpy.nan
    expected = problem.outputs["d"].values
    expected[[1, 8, 6, 12]], expected[6:11, 5] = EMULATED_NAN, EMULATED_NAN
    assert wrong("m_grouped_gather", "mxfp8", tile, problem) is None


@of_all
def test_a_product_has_the_bits_of_its_rows_moved_first(format, tile):
    """Any elements and scales, so that sums depend on the order of addition."""
    K, N, T, sizes = 352, 16, 12, (3, 0, 6)
    random, (format_of_a, _) = numpy.random.default_rng(4), sides(format)
    ends = numpy.cumsum(sizes).astype(numpy.int32)
    index = random.integers(0, T, sum(sizes)).astype(numpy.int32)
    problem = gathered(format, N, K, T, sizes, index=index)
    high = 0x7E if format == "nvfp4" else 140
    for name in ("a_scale", "b_scale"):
        values = problem.inputs[name].values
        values[...] = random.integers(high - 26, high, values.shape)
    a = problem.inputs["a"].values.view(numpy.uint8)
    a[...] = random.integers(0, 0x70, a.shape)
    moved = {name: problem.inputs[name] for name in ("b", "b_scale", "offsets")}
    scales = problem.inputs["a_scale"].values[index]
    tiles = [blocked(scales[end - size : end]) for size, end in zip(sizes, ends, strict=True) if size]
    whole = numpy.zeros((128 + 128 * len(sizes), -(-scales.shape[1] // 4) * 4), numpy.uint8)
    whole.reshape(-1)[: sum(map(len, tiles))] = numpy.concatenate(tiles)
    moved["a"] = placed_elements(format_of_a, problem.inputs["a"].values[index])
    moved["a_scale"] = Placed(whole, dtype=problem.inputs["a_scale"].dtype)
    found = {grouping: sums(f"gemm.{format}.{grouping}", tile, inputs, sum(sizes), N) for grouping, inputs in
             (("m_grouped_gather", problem.inputs), ("m_grouped_contiguous", moved))}  # fmt: skip
    numpy.testing.assert_array_equal(*found.values())
    assert len(numpy.unique(found["m_grouped_gather"])) > N  # they are not all alike


def sums(name, tile, inputs, M, N):
    """D's bits."""
    device = Device(arch="sm_100f", arithmetic="hw", multiprocessors=3)
    arguments = {}
    for argument, placed in inputs.items():
        values = numpy.ascontiguousarray(placed.values)
        dtype = placed.dtype or {"int32": "i32", "float8_e4m3fn": "e4m3"}[values.dtype.name]
        arguments[argument] = Pointer(
            device.alloc(values.reshape(-1).view(numpy.uint8)), values.shape, dtype, contiguous_strides(values.shape), device
        )
    d = device.empty((M, N), "f32")
    assert ZOO.prepare(name, variant=tile, d=d, **named(name, arguments))().ok
    return d.numpy().view(numpy.uint32)

"""Block-scaled products of groups in the emulator, against float64 on operands whose sums are exact.

Arrays lie amid guards, padding of scales is 0xFF, rows of nobody are NaN where the format has one: zoo.checks.problem, exact_groups.
tests/gemm_blackwell/which.py says how to run more schedules, and other cubins.
"""

import itertools

import ml_dtypes
import numpy
import pytest

from tests.gemm_blackwell import exact_groups
from tests.gemm_blackwell.exact_groups import BLOCKS, along_k, contiguous, masked, placed_elements, placed_scales, values_of
from tests.gemm_blackwell.named import named
from tests.gemm_blackwell.runs import wrong
from tests.gemm_blackwell.which import ZOO
from zoo.checks.problem import Laid, Placed, Problem
from zoo.contract.array import Pointer
from zoo.emulator import Device, machine
from zoo.reference.block_formats import block_format
from zoo.reference.quantize import quantize_cols, quantize_rows

FORMATS = ("mxfp8", "mxfp4", "nvfp4")
TILES = ("t256_w256", "t128", "few128")
ALONG_K = ("t256_w256", "t128")
EMULATED_NAN = numpy.uint32(0x7FFFFFFF).view(numpy.float32)  # what the tensor core writes

of_all = pytest.mark.parametrize(("format", "tile"), [(format, tile) for format in FORMATS for tile in TILES])
of_all_along_k = pytest.mark.parametrize(("format", "tile"), [(format, tile) for format in FORMATS for tile in ALONG_K])


@of_all
def test_groups_end_within_a_tile_and_scales_begin_anew(format, tile):
    problem = contiguous(format, 40, 96, (0, 5, 0, 130, 1, 0), nobody=3, gap=1, more=True)
    assert wrong("m_grouped_contiguous", format, tile, problem) is None


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("d", ["bf16", "f16"])
def test_tiles_of_several_columns_and_rows(tile, d):
    assert wrong("m_grouped_contiguous", "mxfp4", tile, contiguous("mxfp4", 264, 32, (128, 129, 256), d=d)) is None


@pytest.mark.parametrize("tile", TILES)
def test_more_groups_than_lanes_of_a_warp_in_any_order_of_launch(tile):
    sizes = (0,) * 33 + (1, 0, 140, 2) + (0,) * 40 + (3, 0)
    assert wrong("m_grouped_contiguous", "mxfp8", tile, contiguous("mxfp8", 136, 32, sizes, nobody=1), schedules=2) is None


@pytest.mark.parametrize("tile", TILES)
def test_no_groups_and_no_rows_write_nothing(tile):
    for sizes, nobody in (((), 0), ((0, 0), 0), ((0, 0), 9)):
        assert wrong("m_grouped_contiguous", "nvfp4", tile, contiguous("nvfp4", 8, 32, sizes, nobody)) is None


@pytest.mark.parametrize("tile", TILES)
def test_elements_of_either_type_on_either_side(tile):
    for of_a, of_b in itertools.product((ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2), repeat=2):
        problem = contiguous("mxfp8", 8, 64, (3, 2))
        a, b = (problem.inputs[name] for name in ("a", "b"))
        changed = {"a": Placed(a.values.astype(of_a), a.strides), "b": Placed(b.values.astype(of_b), b.strides)}
        assert wrong("m_grouped_contiguous", "mxfp8", tile, Problem(problem.name, {**problem.inputs, **changed}, problem.outputs)) is None


@pytest.mark.parametrize("tile", TILES)
def test_nan_stays_in_its_rows_columns_and_groups(tile):
    problem = contiguous("mxfp8", 24, 64, (6, 5, 4))
    elements, b = problem.inputs["a"].values, problem.inputs["b"].values
    scales = problem.inputs["a_scale"].values.reshape(-1)
    expected = problem.outputs["d"].values
    elements[7, 63] = numpy.nan  # row 1 of group 1
    scales[512 * 2 + 16 * 3] = 0xFF  # row 3 of group 2, its first block
    b[0, 5, 0] = numpy.nan
    expected[7], expected[6 + 5 + 3], expected[:6, 5] = EMULATED_NAN, EMULATED_NAN, EMULATED_NAN
    assert wrong("m_grouped_contiguous", "mxfp8", tile, problem) is None


@of_all
def test_places_are_used_in_part_to_the_edge_or_not_at_all(format, tile):
    assert wrong("m_grouped_masked", format, tile, masked(format, 40, 96, 9, (0, 9, 1, 0, 5), gap=1, more=True)) is None


@pytest.mark.parametrize("tile", TILES)
def test_places_higher_than_a_tile_in_any_order_of_launch(tile):
    assert wrong("m_grouped_masked", "nvfp4", tile, masked("nvfp4", 136, 32, 260, (129, 0, 260, 1), d="bf16"), schedules=2) is None


@pytest.mark.parametrize("tile", TILES)
def test_rows_that_groups_do_not_use_cost_no_instructions(tile, monkeypatch):
    instructions, dismantle = [], machine.Machine.dismantle

    def counted(ended):
        instructions.append(sum(ended.counts))
        dismantle(ended)

    monkeypatch.setattr(machine.Machine, "dismantle", counted)
    for rows in (4, 1024):
        assert wrong("m_grouped_masked", "mxfp8", tile, masked("mxfp8", 8, 32, rows, (4,) * 8), schedules=1) is None
    assert instructions[1] < 1.2 * instructions[0]


@of_all_along_k
@pytest.mark.parametrize("accumulate", [False, True])
def test_groups_along_k_begin_anew_and_empty_ones_are_zero_or_stay(format, tile, accumulate):
    problem = along_k(format, 9, 40, (0, 5, 300, 0, 49, 0), gap=1, alpha=6, nobody=64, accumulate=accumulate)
    assert wrong("k_grouped", format, tile, problem) is None


@pytest.mark.parametrize("tile", ALONG_K)
@pytest.mark.parametrize("accumulate", [False, True])
def test_several_tiles_along_k_in_any_order_of_launch(tile, accumulate):
    problem = along_k("mxfp4", 130, 136, (33, 0, 128), d="bf16", alpha=1, accumulate=accumulate, padding=0, ends_of_padding=True)
    assert wrong("k_grouped", "mxfp4", tile, problem, schedules=2) is None


@pytest.mark.parametrize("tile", ALONG_K)
def test_nan_of_a_group_along_k_stays_there(tile):
    problem = along_k("nvfp4", 9, 8, (64, 100, 40))
    first_tiles_of_group_1 = 2 * 512  # group 0 has 128 / 16 scales a row: two tiles
    problem.inputs["a_scale"].values.reshape(-1)[first_tiles_of_group_1 + 16 * 2] = 0xFF  # row 2
    problem.outputs["d"].values[1, 2] = EMULATED_NAN
    assert wrong("k_grouped", "nvfp4", tile, problem) is None


def launched(name, tile, placed, **options):
    """D's bytes, f32, of arrays by argument; d are zeros."""
    device = Device(arch="sm_100f", arithmetic="hw", multiprocessors=3)
    arguments = {}
    for argument, array in placed.items():
        laid = Laid(array, 16)
        arguments[argument] = Pointer(device.alloc(numpy.ascontiguousarray(array.values)), laid.shape, laid.dtype, laid.strides, device)
    report = ZOO.prepare(name, variant=tile, **named(name, arguments), **options)()
    assert report.ok, str(report)
    return device.read(arguments["d"].address, placed["d"].values.shape, numpy.float32)


@pytest.mark.parametrize("format", FORMATS)
def test_what_quantisers_write_for_groups_of_rows_is_an_operand_as_it_is(format):
    sizes, K, N = (3, 0, 130), 96, 16
    draw, offsets = numpy.random.default_rng(1), numpy.cumsum(sizes).astype(numpy.int32)
    made = block_format(format, tensor_scale=0.01) if format == "nvfp4" else block_format(format)
    x, w = draw.standard_normal((sum(sizes), K)).astype(numpy.float32), draw.standard_normal((3, N, K)).astype(numpy.float32)
    a, b = quantize_rows(x, made, "blocked", offsets), quantize_rows(w, made, "blocked")
    plain_a, plain_b = quantize_rows(x, made, "plain", offsets), quantize_rows(w, made)
    columns = -(-K // BLOCKS[format] // 4) * 4
    placed = {
        "a": placed_elements(format, a.q),
        "a_scale": placed_scales(format, a.scales.view(numpy.uint8), (256 + 128 * 3, columns)),
        "b": placed_elements(format, b.q),
        "b_scale": placed_scales(format, b.scales.reshape(-1).view(numpy.uint8), (3, 128, columns)),
        "offsets": Placed(offsets),
        "d": Placed(numpy.zeros((sum(sizes), N), numpy.float32)),
    }
    left, right = (values_of(format, plain.q, plain.scales) for plain in (plain_a, plain_b))
    group = numpy.repeat(numpy.arange(3), sizes)
    expected, magnitude = (numpy.einsum("mk,mnk->mn", f(left), f(right)[group]) for f in (numpy.array, numpy.abs))
    got = launched(f"gemm.{format}.m_grouped_contiguous", "few128", placed)
    assert (numpy.abs(got - expected) <= (K + 16) * 2.0**-23 * magnitude).all()
    assert (magnitude > 0).all()


@pytest.mark.parametrize("format", FORMATS)
def test_what_quantisers_write_for_groups_along_k_is_an_operand_as_it_is(format):
    sizes, M, N = (70, 0, 130), 136, 16
    draw, offsets = numpy.random.default_rng(1), numpy.cumsum(sizes).astype(numpy.int32)
    made = block_format(format, tensor_scale=0.01) if format == "nvfp4" else block_format(format)
    placed, values = {"offsets": Placed(offsets), "d": Placed(numpy.zeros((3, M, N), numpy.float32))}, {}
    for name, rows in (("a", M), ("b", N)):
        x = draw.standard_normal((sum(sizes), rows)).astype(numpy.float32)
        found, plain = (quantize_cols(x, made, layout, offsets, padded=True) for layout in ("blocked", "plain"))
        columns = -(-(sum(sizes) + 128 * 3) // (4 * BLOCKS[format])) * 4
        pitch = -(-found.q.shape[1] // 16) * 16
        whole = numpy.zeros((rows, pitch), found.q.dtype)
        whole[:, : found.q.shape[1]] = found.q
        placed[name] = placed_elements(format, whole)
        placed[name + "_scale"] = placed_scales(format, found.scales.view(numpy.uint8), (-(-rows // 128) * 128, columns))
        values[name] = values_of(format, plain.q, plain.scales)
    got = launched(f"gemm.{format}.k_grouped", "t128", placed)
    for group, (start, end) in enumerate(((0, 128), (128, 128), (128, 384))):
        left, right = values["a"][:, start:end], values["b"][:, start:end]
        error = numpy.abs(got[group] - left @ right.T)
        assert (error <= 300 * 2.0**-23 * (numpy.abs(left) @ numpy.abs(right).T)).all()
        assert group == 1 or (numpy.abs(left) @ numpy.abs(right).T > 0).all()


def test_a_row_has_the_same_bits_in_any_tile_among_any_rows():
    K, N = 160, 24
    draw = numpy.random.default_rng(3)
    a, b = draw.integers(0, 256, (5, K // 2), dtype=numpy.uint8), draw.integers(0, 256, (2, N, K // 2), dtype=numpy.uint8)
    a_scale, b_scale = draw.integers(0, 0x7E, (5, K // 16), dtype=numpy.uint8), draw.integers(0, 0x7E, (2, N, K // 16), dtype=numpy.uint8)

    def sums(tile, rows, groups, ends):
        tiles = [exact_groups.blocked(piece) for piece in numpy.split(a_scale[rows], ends[:-1])]
        placed = {
            "a": exact_groups.placed_elements("nvfp4", a[rows]),
            "a_scale": exact_groups.placed_scales("nvfp4", numpy.concatenate(tiles), (128 + 128 * len(ends), 12)),
            "b": exact_groups.placed_elements("nvfp4", b[groups]),
            "b_scale": exact_groups.placed_scales(
                "nvfp4", numpy.concatenate([exact_groups.blocked(b_scale[group]) for group in groups]), (len(ends), 128, 12)
            ),
            "offsets": Placed(numpy.array(ends, numpy.int32)),
            "d": Placed(numpy.zeros((len(rows), N), numpy.float32)),
        }
        return launched("gemm.nvfp4.m_grouped_contiguous", tile, placed).view(numpy.uint32)

    together = sums("t128", [0, 1, 2, 3, 4], [0, 1], [2, 5])
    for tile in ("t256_w256", "few128"):
        numpy.testing.assert_array_equal(sums(tile, [0, 1, 2, 3, 4], [0, 1], [2, 5]), together)
    numpy.testing.assert_array_equal(sums("few128", [3], [1], [1]), together[3:4])
    assert len(numpy.unique(together)) > N  # they are not all alike

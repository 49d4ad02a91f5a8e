"""MXFP8 times MXFP4 in the emulator: 4-bit rows that lie a byte an element in shared memory, on either side of the tensor core.

Against float64 on operands whose sums are exact: exact_groups. tests/gemm_blackwell/which.py says how to run more.
"""

import numpy
import pytest

from tests.gemm_blackwell.exact_groups import (
    ANY_BYTE,
    D_DTYPES,
    blocked,
    contiguous,
    masked,
    operand,
    placed_d,
    placed_elements,
    placed_scales,
)
from tests.gemm_blackwell.named import named
from tests.gemm_blackwell.runs import wrong
from tests.gemm_blackwell.which import ZOO
from zoo.checks.problem import Problem
from zoo.contract.array import Pointer, contiguous_strides
from zoo.emulator import Device

MIXED = "mxfp8_mxfp4"
TILES = ("t256_w256", "t128", "few128")
of_tiles = pytest.mark.parametrize("tile", TILES)


def dense(M, N, K, d="f32", gap=0, a_dtype="e4m3", b_dtype=None):
    """b_dtype: of MXFP8; None: B is MXFP4."""
    random = numpy.random.default_rng(M * 31 + N + K)
    a, b = operand("mxfp8", M, K, random, a_dtype), operand("mxfp8" if b_dtype else "mxfp4", N, K, random, b_dtype or "e4m3")
    elements = b.elements if b_dtype else numpy.pad(b.elements, ((0, 0), (0, -b.elements.shape[1] % 64)), constant_values=ANY_BYTE)
    columns = -(-K // 128) * 4
    inputs = {
        "a": placed_elements("mxfp8", a.elements, (K + 16 * gap, 1)),
        "a_scale": placed_scales("mxfp8", blocked(a.scales), (-(-M // 128) * 128, columns)),
        "b": placed_elements("mxfp8" if b_dtype else "mxfp4", elements, (elements.shape[1] + 32 * gap, 1)),
        "b_scale": placed_scales("mxfp8", blocked(b.scales), (-(-N // 128) * 128, columns)),
    }
    return Problem(f"{M} {N} {K}", inputs, {"d": placed_d(a.values @ b.values.T, d, (N + 8 * gap, 1))})


@of_tiles
@pytest.mark.parametrize("a_dtype", ["e4m3", "e5m2"])
def test_rows_that_end_within_128_elements_and_padding_of_any_byte(tile, a_dtype):
    assert wrong("dense", MIXED, tile, dense(5, 72, 288, gap=1, a_dtype=a_dtype), schedules=2) is None


@of_tiles
@pytest.mark.parametrize("d", D_DTYPES)
def test_tiles_of_several_rows_and_columns(tile, d):
    assert wrong("dense", MIXED, tile, dense(260, 264, 32, d=d)) is None


@of_tiles
def test_more_lines_than_stages_and_k_shared_by_ctas(tile):
    assert wrong("dense", MIXED, tile, dense(3, 8, 1056), schedules=2) is None


@of_tiles
@pytest.mark.parametrize("types", [("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_each_operand_has_its_own_type_on_either_side_of_the_tensor_core(tile, types):
    assert wrong("dense", "mxfp8", tile, dense(9, 24, 96, a_dtype=types[0], b_dtype=types[1])) is None


@of_tiles
def test_groups_back_to_back(tile):
    assert wrong("m_grouped_contiguous", MIXED, tile, contiguous(MIXED, 40, 96, (0, 5, 0, 130, 1), nobody=3, gap=1, more=True)) is None


@of_tiles
def test_groups_in_places(tile):
    assert wrong("m_grouped_masked", MIXED, tile, masked(MIXED, 136, 160, 9, (0, 9, 1, 5), gap=1, more=True)) is None


def test_rows_of_2880_elements_are_packed_and_then_multiplied():
    M, N, K = 2, 8, 2880
    random = numpy.random.default_rng(0)
    a, b = operand("mxfp8", M, K, random), operand("mxfp4", N, K, random)
    device = Device(arch="sm_100f", arithmetic="hw", multiprocessors=3)

    def put(values, dtype):
        return Pointer(
            device.alloc(numpy.ascontiguousarray(values).view(numpy.uint8)), values.shape, dtype, contiguous_strides(values.shape), device
        )

    packed, d = device.empty((N, 1472), "e2m1x2"), device.empty((M, N), "f32")
    assert ZOO.prepare("pack.mxfp4", q=put(b.elements, "e2m1x2"), packed=packed)().ok
    scales = {name: put(blocked(side.scales).reshape(128, 92), "ue8m0") for name, side in (("a_scale", a), ("b_scale", b))}
    assert ZOO.prepare(f"gemm.{MIXED}.dense", a=put(a.elements, "e4m3"), b=packed, d=d, **named(f"gemm.{MIXED}.dense", scales))().ok
    numpy.testing.assert_array_equal(d.numpy(), (a.values @ b.values.T).astype(numpy.float32))


@of_tiles
def test_nan_stays_in_its_row_and_column(tile):
    problem = dense(9, 24, 96)
    expected = problem.outputs["d"].values
    problem.inputs["a"].values[7, 95] = numpy.nan
    problem.inputs["b_scale"].values.reshape(-1)[16 * 5 + 2] = ANY_BYTE  # row 5, its third block
    expected[7], expected[:, 5] = (numpy.uint32(0x7FFFFFFF).view(numpy.float32) for _ in range(2))
    assert wrong("dense", MIXED, tile, problem) is None

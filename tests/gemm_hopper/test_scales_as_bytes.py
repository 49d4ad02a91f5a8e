"""Scales of gemm.fp8b128 as ue8m0 bytes on Hopper, in the emulator. ZOO_CUBINS is another folder than the packaged one.

What must come out is what f32 scales of the same numbers give by zoo.reference, to the bit; the numbers are worked out here.
"""

import os

import ml_dtypes
import numpy
import pytest

from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, Placed, Problem, difference
from zoo.packaged import packaged
from zoo.reference.gemm import gemm_fp8b128, gemm_fp8b128_k_grouped

ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
SCHEDULES = 2  # as late as is legal, then at random

# Every way in which scales are brought: by rows, by rows that begin between scales of B, ahead, where K is shared, where tokens are columns
DENSE = ("t128", "t128_w144", "t256_ahead", "t64", "few8_w64_split2")
GATHER = ("t128", "t128_w256_moved", "few32_w128")
ALONG_K = ("bf16_t256", "bf16_t192")


def wrong(name, variant, problem):
    (kernel,) = ZOO.find(name)
    (found,) = [one for one in kernel.variants if one.arch == "sm_90a" and one.name == variant]
    return difference(problem, kernel, found, executor(ZOO, SCHEDULES), POISONS[:1])


def number(codes):
    """Of a byte, without a table: 2^(byte - 127)."""
    return numpy.where(codes == 255, numpy.nan, numpy.exp2(codes.astype(numpy.float64) - 127)).astype(numpy.float32)


def operand(random, *shape):
    return random.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)


def codes(random, *shape):
    return random.integers(115, 140, shape, dtype=numpy.uint8)


def placed(values, as_bytes, strides=None):
    return Placed(values, strides, "ue8m0") if as_bytes else Placed(number(values), strides)


def bf16(sums):
    values = sums.astype(ml_dtypes.bfloat16)
    values.view(numpy.uint16)[numpy.isnan(sums)] = 0x7FFF
    return values


def dense(variant, M, N, K, as_bytes=(True, True), transposed=0, a_codes=None, b_codes=None):
    """`transposed`: M and N contiguous, so many elements more than there are from block to block."""
    M = min(M, 8) if variant.startswith("few8") else M
    random, blocks, columns = numpy.random.default_rng(M + N + K), -(-K // 128), -(-N // 128)
    a, b = operand(random, M, K), operand(random, N, K)
    a_scale = codes(random, M, blocks) if a_codes is None else a_codes
    b_scale = codes(random, columns, blocks) if b_codes is None else b_codes
    splits = 2 if "split2" in variant else 1
    inputs = {
        "a": Placed(a),
        "a_scale": placed(a_scale, as_bytes[0], (1, M + transposed) if transposed else (blocks + 3, 1)),
        "b": Placed(b),
        "b_scale": placed(b_scale, as_bytes[1], (1, columns + transposed) if transposed else (blocks + 2, 1)),
    }
    return Problem(f"{M} x {N} x {K}", inputs, {"d": Placed(bf16(gemm_fp8b128(a, number(a_scale), b, number(b_scale), splits)))})


@pytest.mark.parametrize("variant", DENSE)
def test_the_least_byte_is_no_zero_and_255_is_nan_in_its_own_row_alone(variant):
    rows = 65 if variant == "t64" else 5  # it takes no fewer
    a_codes = numpy.array([[0], [254], [255], [1], *[[127]] * (rows - 4)], numpy.uint8)
    problem = dense(variant, rows, 136, 48, a_codes=a_codes, b_codes=numpy.array([[127], [200]], numpy.uint8))
    d = problem.outputs["d"].values.astype(numpy.float32)
    assert (d[0, :128] != 0).any() and numpy.isnan(d[2]).all() and not numpy.isnan(d[[0, 3, 4]]).any()
    assert wrong("gemm.fp8b128.dense", variant, problem) is None


@pytest.mark.parametrize("transposed", [0, 1, 16], ids=["rows", "odd_pitch", "pitch_of_a_copy"])
@pytest.mark.parametrize("variant", DENSE)
def test_rows_of_bytes_begin_anywhere(variant, transposed):
    assert wrong("gemm.fp8b128.dense", variant, dense(variant, 133, 136, 400, transposed=transposed)) is None


@pytest.mark.parametrize("as_bytes", [(True, False), (False, True)], ids=["of_a", "of_b"])
@pytest.mark.parametrize("variant", DENSE)
def test_bytes_of_one_operand_leave_the_other_f32(variant, as_bytes):
    """128 rows of a whose f32 scales lie together are what is copied at once."""
    assert wrong("gemm.fp8b128.dense", variant, dense(variant, 128, 136, 272, as_bytes, transposed=16)) is None


@pytest.mark.parametrize("as_bytes", [(True, False), (False, True), (True, True)], ids=["of_a", "of_b", "of_both"])
@pytest.mark.parametrize("variant", GATHER)
def test_gathered_rows_bring_their_own_bytes(variant, as_bytes):
    random = numpy.random.default_rng(2)
    T, N, K, sizes = 37, 136, 400, (70, 0, 5)
    M, index = sum(sizes), random.integers(-1, T, sum(sizes), dtype=numpy.int32)
    a, b, a_scale, b_scale = operand(random, T, K), operand(random, 3, N, K), codes(random, T, 4), codes(random, 3, 2, 4)
    expected = numpy.zeros((M, N), numpy.float32)
    for group, (size, end) in enumerate(zip(sizes, numpy.cumsum(sizes), strict=True)):
        rows = numpy.arange(end - size, end)[index[end - size : end] >= 0]
        expected[rows] = gemm_fp8b128(a[index[rows]], number(a_scale[index[rows]]), b[group], number(b_scale[group]))
    inputs = {
        "a": Placed(a),
        "a_scale": placed(a_scale, as_bytes[0], (1, T + 2)),
        "b": Placed(b),
        "b_scale": placed(b_scale, as_bytes[1], (11, 5, 1)),
        "index": Placed(index),
        "offsets": Placed(numpy.cumsum(sizes).astype(numpy.int32)),
    }
    workspaces = {}
    if variant.endswith("moved"):
        bytes_of_rows, units = -(-(M * K) // 128) * 128, -(-M // 16)
        workspaces["workspace"] = Placed(random.integers(0, 256, bytes_of_rows + 4 * (16 * units * 4 + units + 4), dtype=numpy.uint8))
    problem = Problem("gathered", inputs, {"d": Placed(bf16(expected))}, workspaces=workspaces)
    assert wrong("gemm.fp8b128.m_grouped_gather", variant, problem) is None


@pytest.mark.parametrize("as_bytes", [(True, False), (False, True), (True, True)], ids=["of_a", "of_b", "of_both"])
@pytest.mark.parametrize("variant", ALONG_K)
def test_rows_of_bytes_along_k_begin_at_multiples_of_4_and_end_anywhere(variant, as_bytes):
    random = numpy.random.default_rng(5)
    M, N, sizes = 131, 136, (16, 0, 144, 528, 69)
    K, ends = sum(sizes), numpy.cumsum(sizes)
    a, b, blocks = operand(random, M, K), operand(random, N, K), -(-K // 128) + len(sizes)
    a_scale, b_scale = codes(random, M, blocks), codes(random, N, blocks)
    a_scale[130, :3], b_scale[:3, 1] = (0, 255, 0), (0, 254, 1)
    expected = gemm_fp8b128_k_grouped(a, number(a_scale), b, number(b_scale), ends)
    pitch = -(-K // 16) * 16
    inputs = {"a": Placed(a, (pitch, 1)), "b": Placed(b, (pitch, 1)), "offsets": Placed(ends.astype(numpy.int32))}
    inputs |= {"a_scale": placed(a_scale, as_bytes[0], (1, 132)), "b_scale": placed(b_scale, as_bytes[1], (1, 140))}
    problem = Problem("along K", inputs, {"d": Placed(bf16(expected))}, {"accumulate": "no"})
    assert wrong("gemm.fp8b128.k_grouped", variant, problem) is None

"""Products with 4-bit weights whose A has scales for 1 x 128, or whose sums are never promoted: from the quantiser on, by the written rules."""

import ml_dtypes
import numpy
import pytest

from zoo.errors import ArgumentError, ConstraintError
from zoo.packaged import packaged
from zoo.reference.float32 import fused_multiply_add
from zoo.reference.four_bit_gemm import exact, gemm_fp8_by_four_bit
from zoo.reference.four_bit_weights import nvfp4_as_e4m3
from zoo.reference.fragments import pack_nvfp4, permuted_columns
from zoo.reference.kernels import run
from zoo.reference.kernels.call import H200, resolved

GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")
NAMES = [f"gemm.fp8_{weights}.{grouping}" for weights in ("nvfp4", "mxfp4") for grouping in GROUPINGS]
PROMOTED, SCALED, NEVER, IF_ASKED = range(4)  # Promotion of src_cu/gemm/hopper_w4/operands.cuh


def operands(M, N, K):
    random = numpy.random.default_rng(M + N + K)
    q, scales = random.integers(0, 256, (N, K // 2), numpy.uint8), random.integers(0x30, 0x40, (N, K // 16), numpy.uint8)
    return random.standard_normal((M, K)), q, scales


def arguments(M, N, K, **more):
    x, q, scales = operands(M, N, K)
    a = permuted_columns(x.astype(ml_dtypes.float8_e4m3fn))
    return {"a": a, "b": pack_nvfp4(q, scales), "d": numpy.zeros((M, N), numpy.float32), **more}


@pytest.mark.parametrize("layout", ["plain", "mn_major"])
@pytest.mark.parametrize("K", [96, 416, 2880])
def test_what_the_quantiser_writes_is_what_the_product_takes(layout, K):
    M, N = 5, 24
    x, q, scales = operands(M, N, K)
    x[2] *= 1000
    x = x.astype(ml_dtypes.bfloat16)
    blocks, columns = -(-K // 128), -(-K // 64) * 64
    a = numpy.zeros((M, columns // 64, 64), ml_dtypes.float8_e4m3fn)
    a_scale = numpy.zeros((M, blocks) if layout == "plain" else (blocks, -(-M // 4) * 4), numpy.float32)
    written = a_scale if layout == "plain" else a_scale[:, :M].T
    run("quantize.fp8b128.rows", {"x": x, "q": a, "scales": written, "layout": layout, "order": "fragments"})
    d = numpy.zeros((M, N), numpy.float32)
    run("gemm.fp8_nvfp4.dense", {"a": a, "a_block_scale": written, "b": pack_nvfp4(q, scales), "d": d})
    product, magnitude = exact(x.astype(numpy.float32), nvfp4_as_e4m3(q, scales))
    assert (numpy.abs(d / 8 - product) <= magnitude * 2.0**-3.9).all()  # e4m3 has three bits behind the first
    assert numpy.abs(d / 8 - product).max() > 0


@pytest.mark.parametrize("tokens", ["fp8", "bf16"])
def test_weights_packed_for_the_other_tokens_are_refused_in_words_that_name_the_packers_option(tokens):
    x, q, scales = operands(3, 64, 64)
    a = permuted_columns(x.astype(ml_dtypes.float8_e4m3fn)) if tokens == "fp8" else x.astype(ml_dtypes.bfloat16)
    d = numpy.zeros((3, 64), numpy.float32)
    run(f"gemm.{tokens}_nvfp4.dense", {"a": a, "b": pack_nvfp4(q, scales, tokens=tokens), "d": d})
    other = {"fp8": "bf16", "bf16": "fp8"}[tokens]
    with pytest.raises(
        ArgumentError, match=rf"b: expected .*; weights as pack\.nvfp4\.fragments writes them with gates=\"plain\" and tokens=\"{tokens}\"$"
    ):
        run(f"gemm.{tokens}_nvfp4.dense", {"a": a, "b": pack_nvfp4(q, scales, tokens=other), "d": d})
    given = {"a": (a.shape, "e4m3" if tokens == "fp8" else "bf16"), "b": (pack_nvfp4(q, scales, tokens=other).shape, "u8")}
    with pytest.raises(ArgumentError, match=rf"b: expected .* with gates=\"plain\" and tokens=\"{tokens}\"$"):
        packaged.shapes(f"gemm.{tokens}_nvfp4.dense", **given, N=64)


def test_blocks_as_a_checkpoint_has_them_are_refused_in_words_that_name_their_view():
    with pytest.raises(ArgumentError, match=r"q: expected 3 dimensions \(G, R, KB\), got 4; .*\.view\(G, N, K // 2\)"):
        packaged.shapes("pack.mxfp4.fragments", q=((2, 64, 2, 16), "u8"), scales=((2, 64, 2), "ue8m0"))


def test_a_half_of_a_block_that_is_not_there_makes_zero_of_minus_zero():
    a, b = numpy.full((1, 64), -(2.0**-9)), numpy.full((8, 64), 2.0**-9)
    a, b = (x.astype(ml_dtypes.float8_e4m3fn) for x in (a, b))
    smallest = numpy.full((1, 1), 2.0**-140, numpy.float32)
    sums = gemm_fp8_by_four_bit(a, b, a_scale=smallest)
    assert (sums == 0).all() and not numpy.signbit(sums).any()
    whole = [numpy.concatenate([numpy.zeros((len(x), 128), x.dtype), x, numpy.zeros((len(x), 64), x.dtype)], axis=1) for x in (a, b)]
    assert numpy.signbit(gemm_fp8_by_four_bit(*whole, a_scale=smallest.repeat(2, 1))).all()  # it is the second half that is small


def test_scales_are_multiplied_in_one_rounding():
    a, q, scales = operands(7, 16, 256)
    a, b = a.astype(ml_dtypes.float8_e4m3fn), nvfp4_as_e4m3(q, scales)
    of_a = numpy.random.default_rng(1).uniform(0.1, 3, (7, 2)).astype(numpy.float32)
    parts = [gemm_fp8_by_four_bit(a[:, first : first + 128], b[:, first : first + 128]) for first in (0, 128)]
    expected = fused_multiply_add(parts[1], of_a[:, 1:], fused_multiply_add(parts[0], of_a[:, :1], numpy.zeros((7, 16), numpy.float32)))
    numpy.testing.assert_array_equal(gemm_fp8_by_four_bit(a, b, a_scale=of_a), expected)
    assert (expected != of_a[:, :1] * parts[0] + of_a[:, 1:] * parts[1]).any()


@pytest.mark.parametrize("M", [1, 9, 33, 65, 129, 300, 5000])
@pytest.mark.parametrize("invariant", ["no", "yes"])
def test_a_call_goes_to_a_tile_of_its_kind(M, invariant):
    kernel, scale = packaged.kernel("gemm.fp8_nvfp4.dense"), numpy.ones((M, 2), numpy.float32)
    for more, kinds in (({}, {PROMOTED, IF_ASKED}), ({"a_block_scale": scale}, {SCALED}), ({"promotion": "never"}, {NEVER, IF_ASKED})):
        call = resolved(kernel, arguments(M, 136, 192, batch_invariant=invariant, **more), H200, None)
        assert call.launch.variant.constants["PROMOTION"] in kinds


def test_sums_that_are_never_promoted_have_no_scales_for_1_x_128():
    scale = numpy.ones((4, 1), numpy.float32)
    with pytest.raises(ConstraintError, match="never promoted"):
        run("gemm.fp8_nvfp4.dense", arguments(4, 8, 64, a_block_scale=scale, promotion="never"))


def test_a_scale_of_rows_comes_after_those_of_blocks():
    scale, of_rows = numpy.full((4, 1), 0.75, numpy.float32), numpy.array([1, 2, 0.5, 4], numpy.float32)
    plain, both = arguments(4, 8, 64, a_block_scale=scale), arguments(4, 8, 64, a_block_scale=scale, a_scale=of_rows)
    run("gemm.fp8_nvfp4.dense", plain)
    run("gemm.fp8_nvfp4.dense", both)
    numpy.testing.assert_array_equal(both["d"], plain["d"] * of_rows[:, None])


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_takes_any_number_of_rows(name):
    kernel = packaged.kernel(name)
    for kinds in ((PROMOTED, IF_ASKED), (SCALED,), (NEVER, IF_ASKED)):
        assert any(variant.constants["PROMOTION"] in kinds and variant.constants["SPLITS"] == 1 for variant in kernel.variants)

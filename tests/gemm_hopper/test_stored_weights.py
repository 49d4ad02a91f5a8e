"""Products with 4-bit weights as a checkpoint stores them: the same numbers as packed ones, whatever K they end with; which cubins serve them."""

import ml_dtypes
import numpy
import pytest

from zoo.errors import ConstraintError
from zoo.packaged import packaged
from zoo.reference.four_bit_weights import largest_scales
from zoo.reference.fragment_words import ROWS
from zoo.reference.fragments import pack_mxfp4, pack_nvfp4, permuted_columns
from zoo.reference.kernels import run
from zoo.reference.kernels.call import H200, resolved

GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked", "m_grouped_gather")


def weights(kind, form, N, K):
    random = numpy.random.default_rng(N + K)
    q = random.integers(0, 256, (N, K // 2), numpy.uint8)
    if form == "nvfp4":
        scales = random.integers(0x30, 0x50, (N, K // 16), numpy.uint8)
        return {"b": pack_nvfp4(q, scales, tokens=kind)}, {"b": q, "b_scale": scales.view(ml_dtypes.float8_e4m3fn)}
    scales = random.integers(110, 130, (N, K // 32), numpy.uint8)
    packed = pack_mxfp4(q, scales, tokens=kind)
    largest = numpy.full(-(-N // ROWS) * ROWS, 127, numpy.uint8)
    largest[:N] = largest_scales(q, scales)
    of_rows = {"b_row_scale": largest.view(ml_dtypes.float8_e8m0fnu)}
    return {"b": packed.b, "b_row_scale": packed.row_scale}, {"b": q, "b_scale": scales.view(ml_dtypes.float8_e8m0fnu)} | of_rows


def tokens(kind, M, K):
    x = numpy.random.default_rng(M).standard_normal((M, K))
    return x.astype(ml_dtypes.bfloat16) if kind == "bf16" else permuted_columns(x.astype(ml_dtypes.float8_e4m3fn))


@pytest.mark.parametrize("K", [32, 64, 96, 2912])
@pytest.mark.parametrize("form", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize(("kind", "blocks"), [("fp8", False), ("fp8", True), ("bf16", False)])
def test_what_is_stored_gives_the_bits_of_what_is_packed(kind, blocks, form, K):
    a, results = tokens(kind, 3, K), []
    of_blocks = {"a_block_scale": numpy.random.default_rng(K).random((3, -(-K // 128)), numpy.float32) + 0.5} if blocks else {}
    packed, stored = weights(kind, form, 24, K)
    for extra, given in (("", packed), (".stored", stored)):
        results.append(numpy.zeros((3, 24), numpy.float32))
        run(f"gemm.{kind}_{form}.dense{extra}", {"a": a, "d": results[-1], "batch_invariant": "yes", **of_blocks, **given})
    numpy.testing.assert_array_equal(results[0], results[1])
    assert numpy.abs(results[0]).max() > 0


@pytest.mark.parametrize("form", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("kind", ["fp8", "bf16"])
def test_a_cluster_that_shares_k_gives_the_bits_that_it_gives_of_packed_weights(kind, form):
    a, results = tokens(kind, 7, 2880), []
    for extra, given in zip(("", ".stored"), weights(kind, form, 136, 2880), strict=True):
        kernel = packaged.kernel(f"gemm.{kind}_{form}.dense{extra}")
        call = resolved(kernel, {"a": a, "d": numpy.zeros((7, 136), numpy.float32), **given}, H200, None)
        assert call.launch.variant.name == "few8_split4"
        results.append(numpy.zeros((7, 136), numpy.float32))
        run(kernel.name, {"a": a, "d": results[-1], **given})
    numpy.testing.assert_array_equal(results[0], results[1])
    assert numpy.abs(results[0]).max() > 0


@pytest.mark.parametrize(("kind", "columns"), [("fp8", 64), ("bf16", 32)])
def test_rows_of_b_are_as_long_as_those_of_a_but_for_what_fills_those_up(kind, columns):
    with pytest.raises(ConstraintError, match="as many columns as those of a"):
        run(
            f"gemm.{kind}_nvfp4.dense.stored",
            {"a": tokens(kind, 3, 128), "d": numpy.zeros((3, 8), numpy.float32), **weights(kind, "nvfp4", 8, 128 - columns)[1]},
        )


@pytest.mark.parametrize("form", ["nvfp4", "mxfp4"])
@pytest.mark.parametrize("kind", ["fp8", "bf16"])
def test_one_cubin_a_tile_serves_every_grouping_but_gathered_rows_and_where_a_cluster_shares_k(kind, form):
    files = [
        {variant.name: variant.file for variant in packaged.kernel(f"gemm.{kind}_{form}.{grouping}.stored").variants}
        for grouping in GROUPINGS
    ]
    under_scales_of_blocks = {"few8_blocks", "few32_blocks", "t96_blocks"} if kind == "fp8" else set()
    assert all(files[0].items() >= of_one.items() for of_one in files[:3])
    assert files[3].keys() == files[1].keys() and not {*files[3].values()} & {*files[0].values()}
    assert all(of_one.keys() >= under_scales_of_blocks for of_one in files)
    sharing = {"few8_split4", "few32_split4"} | ({"few8_split4_blocks"} if kind == "fp8" else set())
    assert files[0].keys() - files[1].keys() == sharing
    assert [len(of_one.keys() - under_scales_of_blocks - sharing) for of_one in files] == [4, 4, 4, 4]


def test_the_cubins_of_hopper_outgrow_no_wheel():
    sizes = {variant.file: variant.bytes for kernel in packaged.find() for variant in kernel.variants if variant.arch == "sm_90a"}
    assert sum(sizes.values()) <= 32_000_000

"""A tile of several passes of one matrix drops C and the factors of rows: its sums would not stay in registers. Only its table keeps such calls
away; tiles of groups, which have no C, take factors."""

import pytest

from zoo.packaged import packaged

(DENSE,) = packaged.find("gemm.fp8b128.dense")
SEVERAL_PASSES = [
    variant
    for variant in DENSE.variants
    if variant.arch == "sm_90a" and not variant.constants["SWAPPED"] and variant.constants["TOKENS"] > 64 * variant.constants["WARPGROUPS"]
]


@pytest.mark.parametrize("variant", SEVERAL_PASSES, ids=[variant.name for variant in SEVERAL_PASSES])
def test_a_tile_of_several_passes_takes_neither_c_nor_factors_of_rows(variant):
    absent = dict.fromkeys(variant.when.names, 0)
    assert variant.when.evaluate(absent)
    for name in ("c", "row_scale"):
        assert not variant.when.evaluate(absent | {f"{name}.present": 1}), name


def test_there_are_such_tiles():
    assert {variant.name.removeprefix("f32_") for variant in SEVERAL_PASSES} == {"t256", "t256_ahead"}


def test_tiles_of_groups_take_factors_of_rows():
    for name in ("gemm.fp8b128.m_grouped_contiguous", "gemm.fp8b128.m_grouped_masked", "gemm.fp8b128.m_grouped_gather"):
        (kernel,) = packaged.find(name)
        assert not [variant.name for variant in kernel.variants if variant.arch == "sm_90a" and "row_scale.present" in variant.when.names]

"""A tile of several waves drops C and the factors of rows: it has no registers for them. Only its table keeps such calls away."""

import pytest

from zoo.shipped.packaged import packaged

WAVES = [
    (kernel, variant)
    for kernel in packaged.find("gemm.fp8b128.*")
    if "row_scale" in kernel.arguments and not kernel.fields.get("extra")
    for variant in kernel.variants
    if variant.arch == "sm_90a"
    and not variant.constants["SWAPPED"]
    and (variant.constants["TOKENS"] > 64 * variant.constants["WARPGROUPS"] or variant.constants["WEIGHTS"] == 256)
]


@pytest.mark.parametrize(("kernel", "variant"), WAVES, ids=[f"{kernel.name} {variant.name}" for kernel, variant in WAVES])
def test_a_tile_of_several_waves_takes_neither_c_nor_factors_of_rows(kernel, variant):
    absent = dict.fromkeys(variant.when.names, 0) | {
        "offsets.present": int("_indices" not in variant.name),
        "m_indices.present": int("_indices" in variant.name),
    }
    assert variant.when.evaluate(absent)
    for name in {"c", "row_scale"} & set(kernel.arguments):
        assert not variant.when.evaluate(absent | {f"{name}.present": 1}), name


def test_there_are_such_tiles_in_every_table_that_has_them():
    assert {variant.name.removeprefix("f32_") for _, variant in WAVES} >= {"t256", "t256_ahead", "t256_indices", "t128_w256"}

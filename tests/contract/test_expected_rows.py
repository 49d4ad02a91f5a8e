"""Which tile a masked FP8 GEMM gets by the rows that a slot is expected to use: few in decoding, though R is the most that a slot may get."""

import pytest

from zoo.packaged import packaged

(KERNEL,) = packaged.find("gemm.fp8b128.m_grouped_masked")
G, N, K = 32, 4096, 7168


def rows_of_tile(R: int, expected_rows: int) -> int:
    places = {"a_group": R * K, "a_stride": K, "d_group": R * N, "d_stride": N}
    values = {"G": G, "R": R, "N": N, "K": K, "sms": 132, "d.f32": 0, "expected_rows": expected_rows, **places}
    for name, expression in KERNEL.derived:
        values[name] = expression.evaluate(values)
    tiles = [one for one in KERNEL.variants if one.arch == "sm_90a" and one.dtypes.get("d") != "f32"]
    taken = [one for one in tiles if one.when.evaluate(values | one.constants)]
    return min(taken, key=lambda one: one.cost.evaluate(values | one.symbols)).constants["TOKENS"]


@pytest.mark.parametrize("R", [256, 1024, 8192])
def test_slots_that_may_be_nearly_empty_get_a_tile_for_80_rows(R):
    assert rows_of_tile(R, 0) == rows_of_tile(R, 80) == 128


def test_slots_with_fewer_rows_than_are_expected_get_a_tile_for_their_rows():
    assert rows_of_tile(32, 0) == rows_of_tile(32, 1024) == rows_of_tile(32, 32) == 32


def test_a_tile_is_not_just_as_high_as_the_average_slot():
    """Half of the slots would take a second tile."""
    assert rows_of_tile(192, 192) == 192
    assert rows_of_tile(1024, 192) != 192

"""Tiles that fill no wave are shared along K by clusters: whoever says what D must be says it of the right elements."""

import numpy
import pytest

from zoo.checks.emulated import executor
from zoo.checks.gemm import problems
from zoo.checks.problem import POISONS, difference
from zoo.checks.shared_rest import first_row, shared, shares_rest, with_a_rest
from zoo.packaged import packaged

DENSE = packaged.kernel("gemm.fp8b128.dense")
SHARING = [variant for variant in DENSE.variants if shares_rest(variant)]


def test_there_are_such_tiles():
    assert {variant.arch for variant in SHARING} == {"sm_90a"}
    assert len(SHARING) >= 4


@pytest.mark.parametrize("variant", SHARING, ids=lambda variant: variant.name)
def test_problems_share_a_lone_tile_and_the_last_of_many_by_two_and_by_four(variant):
    seen = set()
    for count, sizes in with_a_rest(variant):
        cut, where = shared(DENSE, variant, sizes, count, False)
        seen.add((cut, bool(where.all())))
        assert where.any()
    assert seen == {(2, True), (2, False), (4, True), (4, False)}


@pytest.mark.parametrize("variant", SHARING, ids=lambda variant: variant.name)
def test_nothing_is_shared_where_a_row_must_not_depend_on_its_batch(variant):
    for count, sizes in with_a_rest(variant):
        cut, where = shared(DENSE, variant, sizes, count, True)
        assert cut == 1 and not where.any()


def test_the_shared_tiles_are_the_last_in_the_order_of_the_tiles():
    """Six tiles of 128 x 144 on four multiprocessors: down the band of two rows first, so the last two are the last column's."""
    variant = next(variant for variant in SHARING if variant.name == "t128_w144")
    cut, where = shared(DENSE, variant, (131, 312, 1680), 4, False)
    assert cut == 2
    assert numpy.array_equal(where, numpy.broadcast_to(numpy.arange(312) >= 288, (131, 312)))


def test_tiles_are_about_as_high_as_each_other_and_leave_no_row_out():
    """Of nine tiles on four multiprocessors the last is shared, which is the third of the last column: it begins at row 260."""
    variant = next(variant for variant in SHARING if variant.name == "t192_rest")
    for rows, tokens in ((131, 128), (193, 192), (577, 192), (300, 128), (65536, 256)):
        tiles = -(-rows // tokens)
        begins = [first_row(tile, tokens, rows) for tile in range(tiles + 1)]
        heights = numpy.diff(begins)
        assert begins[0] == 0 and begins[-1] == rows and all(begin % 4 == 0 for begin in begins[:-1])
        assert heights.max() <= tokens and heights.max() - heights[:-1].min() <= 4 and heights[-1] > heights.max() - 4 * 2
    cut, where = shared(DENSE, variant, (390, 264, 1680), 4, False)
    assert cut == 2 and where[260:, 256:].all() and where.sum() == 130 * 8


@pytest.mark.parametrize("multiprocessors", [4, 132], ids=["two_of_three_clusters_have_no_share", "a_tile_for_four"])
def test_shares_are_exchanged_in_the_emulator(multiprocessors):
    """Also where some clusters have none, and wait for nobody."""
    variant = next(variant for variant in SHARING if variant.name == "t128_w144")
    wanted = next(
        problem for problem in problems(DENSE, variant) if problem.multiprocessors == multiprocessors and "fills no wave" in problem.name
    )
    assert difference(wanted, DENSE, variant, executor(packaged), POISONS[:1]) is None

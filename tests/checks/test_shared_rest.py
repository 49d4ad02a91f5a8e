"""Tiles that fill no wave are shared along K by clusters: whoever says what D must be says it of the right elements."""

import numpy
import pytest

from zoo.checks.emulated import executor
from zoo.checks.gemm import problems
from zoo.checks.problem import POISONS, difference
from zoo.checks.shared_rest import shared, shares_rest, with_a_rest
from zoo.shipped.packaged import packaged

DENSE = packaged.kernel("gemm.fp8b128.dense")
SHARING = [variant for variant in DENSE.variants if shares_rest(variant)]


def test_there_are_such_tiles():
    assert {variant.arch for variant in SHARING} == {"sm_90a"}
    assert len(SHARING) > 4


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
    """Six tiles of 128 x 128 on four multiprocessors: down the band of two rows first, so the last two are the last column's."""
    variant = next(variant for variant in SHARING if variant.name == "t128_rest")
    cut, where = shared(DENSE, variant, (131, 280, 1680), 4, False)
    assert cut == 2
    assert numpy.array_equal(where, numpy.broadcast_to(numpy.arange(280) >= 256, (131, 280)))


@pytest.mark.parametrize("multiprocessors", [4, 132], ids=["two_of_three_clusters_have_no_share", "a_tile_for_four"])
def test_shares_are_exchanged_in_the_emulator(multiprocessors):
    """Also where some clusters have none, and wait for nobody."""
    variant = next(variant for variant in SHARING if variant.name == "t128_w96")
    wanted = next(
        problem for problem in problems(DENSE, variant) if problem.multiprocessors == multiprocessors and "fills no wave" in problem.name
    )
    assert difference(wanted, DENSE, variant, executor(packaged), POISONS[:1]) is None

"""Which elements of a product are sums of shares of K: those of the tiles that are left when every wave of CTAs is full."""

from types import SimpleNamespace

import numpy as np
import pytest

from zoo.reference.kernels.shared_rest import shares_of_rest

TALL, WIDE, BAND = 4, 6, 2  # rows and columns of a tile, rows of tiles in a band


def _launch(shares, ctas, rests=1):
    constants = {"SPLITS_LAST_WAVE": rests, "TOKENS": TALL, "WEIGHTS": WIDE, "BAND": BAND}
    return SimpleNamespace(variant=SimpleNamespace(constants=constants), cluster=(shares, 1, 1), grid=(ctas, 1, 1))


# The turns of the tiles of five rows of tiles and three columns: down a band of two rows, column after column; the last band has one row.
TURNS = np.array([
    [0, 2, 4],
    [1, 3, 5],
    [6, 8, 10],
    [7, 9, 11],
    [12, 13, 14],
])  # fmt: skip


@pytest.mark.parametrize("ctas", [1, 2, 4, 6, 7, 8, 14, 15, 16])
@pytest.mark.parametrize(("rows", "columns"), [(5 * TALL, 3 * WIDE), (4 * TALL + 1, 2 * WIDE + 1), (5 * TALL - 1, 3 * WIDE - 1)])
def test_what_is_left_of_the_last_wave_is_shared_to_the_last_element_and_nothing_else(rows, columns, ctas):
    shares, where = shares_of_rest(_launch(2, ctas), rows, columns)
    first = {1: 15, 2: 14, 4: 12, 6: 12, 7: 14, 8: 8, 14: 14, 15: 15, 16: 0}[ctas]
    assert shares == 2
    assert np.array_equal(where, np.kron(first <= TURNS, np.ones((TALL, WIDE), bool))[:rows, :columns])


@pytest.mark.parametrize(("shares", "launch"), [(1, _launch(1, 4)), (1, _launch(2, 4, rests=0))])
def test_nothing_is_shared_by_one_cta_nor_where_clusters_are_no_share_of_k(shares, launch):
    assert shares_of_rest(launch, 5 * TALL, 3 * WIDE)[0] == shares
    assert not shares_of_rest(launch, 5 * TALL, 3 * WIDE)[1].any()

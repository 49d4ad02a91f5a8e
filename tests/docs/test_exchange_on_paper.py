"""The table of exchange costs is what its tool computes, and the tool's timeline has the right ends."""

import pytest

from tests.recorder import ROOT
from tools import exchange_on_paper as paper


def test_the_page_has_the_tools_table():
    assert paper.table() in (ROOT / "docs" / "expert_parallel.md").read_text()


@pytest.mark.parametrize("ranks", [8, 64])
@pytest.mark.parametrize("tokens", [16, 8192])
def test_parts_hide_no_more_than_there_is(ranks, tokens):
    exchange = paper.message(tokens, ranks, paper.ROW) + paper.message(tokens, ranks, paper.RESULT)
    assert paper.layer(tokens, ranks, 1) == pytest.approx(paper.products(tokens, ranks) + exchange)
    in_parts = paper.layer(tokens, ranks, 2)
    assert in_parts >= max(2 * paper.products(tokens // 2, ranks), exchange) * (1 - 1e-12)  # sums in another order
    assert in_parts <= 2 * paper.products(tokens // 2, ranks) + exchange

"""Experts spread over processes: rows, gradients and faults, by gloo on the CPU."""

from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.ranks import ON_GLOO, Ranks  # noqa: E402
from zoo.torch.nn import experts_parallel  # noqa: E402

if torch.distributed.is_available():
    from tests.torch.nn.experts_over_ranks import (
        EQUAL,
        EQUAL_ON_FOUR,
        REFUSED,
        TIMEOUT,
        ends_with,
        loads_of_another_number_of_ranks,
        saves_for_another_number_of_ranks,
    )
else:
    EQUAL = EQUAL_ON_FOUR = REFUSED = []

pytestmark = ON_GLOO
SIZES = {2: EQUAL, 4: EQUAL_ON_FOUR}
STAGES = ["digests", "counts", "rows", "results", "gradients of results", "gradients of rows"]
FAULTS = [
    *(("ends", stage, "trains") for stage in (*STAGES, "products")),
    *(("ends", stage, "trains in parts") for stage in ("results", "gradients of results")),
    ("ends", "results", "serves with a capacity"),
    *(("is late", stage, "trains") for stage in ("digests", "rows", "gradients of rows")),
]


def named(case, given=(), words=""):
    return "-".join((case.__name__, *given))


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Of each number of ranks: all cases in one group of processes."""
    return {
        size: Ranks(size, tmp_path_factory.mktemp("ranks"), [*cases, *(one[:2] for one in REFUSED)]).outcome(240)
        for size, cases in SIZES.items()
    }


@pytest.mark.parametrize(
    ("size", "number"),
    [pytest.param(size, number, id=f"{size}-{named(*one)}") for size, cases in SIZES.items() for number, one in enumerate(cases)],
)
def test_ranks_compute_what_one_process_does(outcomes, size, number):
    words = [outcomes[size].get((rank, number), "not reached") for rank in range(size)]
    assert words == [""] * size, named(*SIZES[size][number])


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=[named(*one) for one in REFUSED])
@pytest.mark.parametrize("size", SIZES)
def test_every_rank_refuses_what_differs_between_ranks(outcomes, size, number):
    words = [outcomes[size].get((rank, len(SIZES[size]) + number), "not reached") for rank in range(size)]
    assert all(re.search(REFUSED[number][2], one) for one in words), words


def test_a_message_keeps_rows_of_three_bytes():
    """As scales of MXFP8 have at K = 96."""
    given = torch.arange(10, dtype=torch.uint8).view(5, 2), torch.arange(15, dtype=torch.uint8).view(5, 3), torch.arange(5.0)
    rows = experts_parallel._packed(given, 1)
    assert rows.shape == (6, 12) and bool((rows[5] == -1).all())
    for one, found in zip(given, experts_parallel._unpacked(rows[:5], experts_parallel._kinds(given)), strict=True):
        assert torch.equal(one, found)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("checkpoint"))
    found = Ranks(2, tmp_path_factory.mktemp("ranks"), [(saves_for_another_number_of_ranks, (folder,))]).outcome(240)
    assert found == {(0, 0): "", (1, 0): ""}
    return folder


@pytest.mark.parametrize("size", [1, 4])
def test_experts_of_two_ranks_are_loaded_on_another_number(checkpoint, tmp_path_factory, size):
    case = loads_of_another_number_of_ranks, (checkpoint,)
    found = Ranks(size, tmp_path_factory.mktemp("ranks"), [case]).outcome(240)
    assert found == {(rank, 0): "" for rank in range(size)}


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """Four pairs of processes at a time: most of them wait."""
    found = {}
    for begin in range(0, len(FAULTS), 4):
        pairs = {one: Ranks(2, tmp_path_factory.mktemp("ranks"), [(ends_with, one)]) for one in FAULTS[begin : begin + 4]}
        found |= {one: (pair.outcome(100), pair.hung) for one, pair in pairs.items()}
    return found


@pytest.mark.parametrize("fault", FAULTS, ids=["-".join(one) for one in FAULTS])
def test_a_rank_that_fails_ends_the_others_within_the_time_out(faults, fault):
    found, hung = faults[fault]
    assert hung == []
    words = found.get((0, 0), "not reached")
    exchange = "results" if fault[1] == "products" else fault[1]
    seconds = re.match(rf"([\d.]+) s: Experts: exchange of {exchange}: rank 0 of 2 waited in vain", words)
    assert seconds, words
    assert float(seconds[1]) < 2 * TIMEOUT if fault[0] == "is late" else float(seconds[1]) < TIMEOUT
    assert ((1, 0) in found) == (fault[0] == "is late")

"""Experts spread over ranks on GPUs: the sum of each rank has the bits that one GPU computes. Two GPUs talk by NCCL; ranks that share one by gloo."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.torch.nn.experts_over_ranks import (  # noqa: E402
    EQUAL_ON_FOUR,
    SERVED,
    a_graph_replays_other_tokens,
    a_late_rank_ends_the_others,
    gradients_are_those_of_float64,
    serves_as_one_process,
)
from tests.torch.nn.ranks import Ranks  # noqa: E402
from zoo.torch.nn.formats import on_gpu  # noqa: E402

pytestmark = pytest.mark.gpu
GRAPHS = [(a_graph_replays_other_tokens, ("fp8b128", parts)) for parts in "12"]  # which gloo cannot capture
CASES = [
    *((serves_as_one_process, (format, "unequal")) for format in SERVED),
    *EQUAL_ON_FOUR[2:],
    (gradients_are_those_of_float64, ()),
    *GRAPHS,
]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    cases = CASES if torch.cuda.device_count() >= 2 else CASES[: -len(GRAPHS)]
    return Ranks(2, tmp_path_factory.mktemp("ranks"), cases, torch.cuda.device_count()).outcome(120)


@pytest.mark.parametrize("number", range(len(CASES)), ids=["-".join((case.__name__, *given)) for case, given in CASES])
def test_gpus_compute_what_one_gpu_does(outcome, number):
    case, given = CASES[number]
    if CASES[number] in GRAPHS and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    if case is serves_as_one_process and given[0] not in on_gpu(torch.cuda.get_device_capability()):
        pytest.skip(f"no product of {given[0]} on this GPU")
    assert [outcome.get((rank, number), "not reached") for rank in range(2)] == ["", ""]


def test_a_late_rank_ends_the_other_soon_after_the_time_out(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    ranks = Ranks(2, tmp_path, [(a_late_rank_ends_the_others, ())], 2)
    assert ranks.outcome(60) == {(1, 0): ""} and ranks.hung == []

"""Deliberate bugs in the block-scaled products are found, and none in the products as they are. `python -m tests.gemm_blackwell.mutants`
tries as many as you like; here is one of some kinds."""

import pytest

from tests.gemm_blackwell import mutants
from tests.gemm_blackwell.which import SCHEDULES

EVERY = tuple(mutants.PRODUCTS)
PAIRS = ("mxfp4", "t256_w256")  # has all that the others have, but for partial sums
QUICK = (
    "does not wait",
    "waits for the other phase",
    "does not commit",
    "commits to one CTA of the pair",
    "expects 16 bytes too few",
    "a barrier counts one too many",
    "a box is loaded twice",
    "scales are copied to the next column",
    "a product of A and B exchanged",
    "a product of another N",
    "half of tensor memory is freed",
    "tensor memory is freed before all have read",
    "an address in the other CTA",
    "takes the tile after the one it got",
    "rounds towards zero",
    "bit 12 of the instruction descriptor of 4-bit elements",
    "scales are copied to the next lane",
    "waits for the launch ahead at the end",
    "a proxy fence by one lane",
    "an arrival that names its own CTA",
    "fetches a tensor map 64 bytes further on",
)

THROUGH_AN_INDEX = ("nvfp4 gather", "few128")
QUICK_THROUGH_AN_INDEX = ("a number is read 16 bytes further on", "a box to the next 1024 bytes", "does not expect bytes")


def test_the_kinds_are_many_and_each_has_a_place():
    every = mutants.every_place(EVERY)
    assert len(mutants.KINDS) >= 60 and all(every.values())
    assert len({mutant.name for found in every.values() for mutant in found}) == sum(map(len, every.values()))


def test_every_edit_changes_the_text_of_its_kernel():
    for found in mutants.drawn(1, EVERY):
        mutant = next(mutant for mutant in found if (mutant.product, mutant.variant) == PAIRS or mutant.number == 0)
        assert mutant.ptx() != mutants.text_of(mutant.product, mutant.variant), mutant.name


@pytest.mark.parametrize("kind", mutants.KINDS if SCHEDULES else QUICK)
def test_a_deliberate_bug_is_found(kind):
    of_all = f": {kind}, "
    (verdict,) = mutants.judged(1, 0, (of_all,) if SCHEDULES else (" ".join(PAIRS) + of_all,), EVERY)
    assert verdict.found_by, verdict


@pytest.mark.parametrize("kind", QUICK_THROUGH_AN_INDEX)
def test_a_deliberate_bug_is_found_in_what_gathers(kind):
    (verdict,) = mutants.judged(1, 0, (f"{' '.join(THROUGH_AN_INDEX)}: {kind}, ",), THROUGH_AN_INDEX[:1])
    assert verdict.found_by, verdict

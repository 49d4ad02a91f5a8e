"""The emulator finds deliberate bugs. test_kernels.py shows the other half: no finding on the kernels as they are."""

import proof_cases
import pytest
from mutant_catalogue import MUTANTS
from mutant_edits import NothingToEdit, change, first, mutate
from mutant_runner import judge

# Its race is between lanes of one warp, whose memory the emulator orders as a whole.
NOT_FOUND = {"tcgen05_persistent: lane 0 reports before its warp has read"}


def test_the_catalogue_is_broad():
    assert len(MUTANTS) >= 60
    assert len({mutant.kind for mutant in MUTANTS}) >= 15
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_edit_changes_the_text(compile_ptx):
    for mutant in MUTANTS:
        case = proof_cases.get(mutant.case)
        ptx = compile_ptx(case.path, case.arch)
        assert mutate(ptx, case.entry, mutant.edits) != ptx, mutant.name


def test_an_edit_that_finds_nothing_is_an_error(compile_ptx):
    case = proof_cases.get("bulk_copy")
    ptx = compile_ptx(case.path, case.arch)
    with pytest.raises(NothingToEdit):
        mutate(ptx, case.entry, (change(first(r"tcgen05\.mma"), 0, add=1),))
    with pytest.raises(NothingToEdit):
        mutate(ptx, case.entry, (change(first(r"mbarrier\.try_wait"), 2, to="%r1"), change(first(r"mbarrier\.try_wait"), 2, to="%r1")))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_deliberate_bug_is_found(mutant, compile_ptx):
    verdict = judge(mutant, compile_ptx)
    assert bool(verdict.found_by) == (mutant.name not in NOT_FOUND), verdict

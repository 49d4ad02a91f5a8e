"""Variants of GEMMs in the emulator: small problems, asynchronous work as late as is legal, then at random.

`zoo verify --emulate` has seen all problems of each cubin, and its evidence is pinned by the cubin's bytes. Here the bytes draw one variant of
each kernel and arch, and a quarter of the cubins of 4-bit weights. ZOO_EXAMPLES=100, ZOO_SCHEDULES=20 and ZOO_CUBINS, another folder than the
packaged one, run all variants.
"""

import contextlib
import os
from itertools import islice

import pytest

from zoo import checks
from zoo.catalog import Zoo
from zoo.checks.emulated import executor
from zoo.checks.problem import POISONS, difference
from zoo.errors import VariantError
from zoo.packaged import packaged

EXAMPLES = int(os.environ.get("ZOO_EXAMPLES", 2))
SCHEDULES = int(os.environ.get("ZOO_SCHEDULES", 2))
ZOO = Zoo(os.environ["ZOO_CUBINS"]) if "ZOO_CUBINS" in os.environ else packaged
MOST_ELEMENTS = 16_000  # of the inputs of a problem
LOOKED_AT = max(16, EXAMPLES)  # the first problems of a kernel are its smaller ones
EVERY = not {"ZOO_EXAMPLES", "ZOO_SCHEDULES", "ZOO_CUBINS"}.isdisjoint(os.environ)


def drawn(kernels):
    """(kernel, variant): each variant, or one of each kernel and arch."""
    for kernel in kernels:
        for arch in kernel.archs:
            variants = sorted((variant for variant in kernel.variants if variant.arch == arch), key=lambda variant: variant.sha256)
            yield from ((kernel, variant) for variant in variants[: None if EVERY else 1])


VARIANTS = list(drawn(ZOO.find("gemm.*")))


def small_problems(kernel, variant):
    """Of the first of the variant's problems those that do not take long."""
    some = [problem for problem in islice(checks.problems(kernel, variant), LOOKED_AT) if problem.elements > 0]
    most = max(MOST_ELEMENTS, min((problem.elements for problem in some), default=0))  # a variant may want many rows
    return [problem for problem in some if problem.elements <= most]


@pytest.mark.parametrize(("kernel", "variant"), VARIANTS, ids=[f"{kernel.name} {variant.name}" for kernel, variant in VARIANTS])
def test_a_variant_gives_the_references_bytes_under_any_schedule(kernel, variant):
    small, ran = small_problems(kernel, variant), 0
    step = max(1, len(small) // EXAMPLES)
    for problem in (small[i] for first in range(step) for i in range(first, len(small), step)):
        schedules = SCHEDULES if "ZOO_SCHEDULES" in os.environ or ran == 0 else 1
        try:
            wrong = difference(problem, kernel, variant, executor(ZOO, schedules), POISONS[:1])
        except VariantError:
            continue  # sizes that this variant does not take; another one does
        assert wrong is None, f"{problem.name}: {wrong}"
        ran += 1
        if ran == EXAMPLES:
            return
    assert ran, "no small problem has sizes that this variant takes; add one to its checks"


SHARING = [(kernel, variant) for kernel in ZOO.find("gemm.*") for variant in kernel.variants if "SHARERS" in variant.constants][
    : None if EVERY else 1
]


@pytest.mark.parametrize(("kernel", "variant"), SHARING, ids=[f"{kernel.name} {variant.name}" for kernel, variant in SHARING])
def test_a_stage_is_written_by_other_ctas_only_when_all_have_given_it_back(kernel, variant):
    problem = next(iter(checks.problems(kernel, variant)))  # the one that is there for it
    wrong = difference(problem, kernel, variant, executor(ZOO, SCHEDULES), POISONS[:1])
    assert wrong is None, f"{problem.name}: {wrong}"


def four_bit_cubins():
    """Of the kernels and variants that a cubin serves one, which its bytes draw."""
    served = {}
    for kernel in (kernel for tokens in ("fp8", "bf16") for kernel in ZOO.find(f"gemm.{tokens}_*4.*")):
        for variant in kernel.variants:
            served.setdefault(variant.sha256, []).append((kernel, variant))
    return [ways[int(digest, 16) % len(ways)] for digest, ways in served.items() if EVERY or int(digest, 16) % 4 == 0]


def rows_and_depth(problem):
    a = problem.inputs["a"].values
    return a.size // max(1, a.shape[-1]), a.shape[-1]


OF_FOUR_BITS = four_bit_cubins()


@pytest.mark.parametrize(("kernel", "variant"), OF_FOUR_BITS, ids=[f"{kernel.name} {variant.name}" for kernel, variant in OF_FOUR_BITS])
def test_a_cubin_of_four_bits_gives_the_references_bytes_whatever_comes_first(kernel, variant):
    which = int(variant.sha256, 16) // 7 % 2
    for problem in sorted(small_problems(kernel, variant), key=lambda problem: rows_and_depth(problem)[which], reverse=True):
        with contextlib.suppress(VariantError):  # it is for other scales of a
            wrong = difference(problem, kernel, variant, executor(ZOO, max(2, SCHEDULES)), POISONS[:1])
            assert wrong is None, f"{problem.name}: {wrong}"
            return
    pytest.fail("no small problem is for this variant; add one to its checks")

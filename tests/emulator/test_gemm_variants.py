"""Every variant of every GEMM in the emulator: small problems, asynchronous work as late as is legal, then at random.

ZOO_EXAMPLES=100 for all small ones, ZOO_SCHEDULES=20 for more orders, ZOO_CUBINS for another folder than the packaged one. By default the
first variant that is launched in a way of its own runs two problems, the first of them under all schedules. Those that differ from it in
numbers alone run one under one, and of them an eighth, which their bytes draw, under one name: `zoo verify --emulate` has seen all problems of each cubin, and
the evidence of that is pinned by the same bytes. Each cubin of 4-bit weights, for one of the kernels that it serves, runs besides its small problem of most
rows or of the longest K under two schedules or more; so a way to launch one runs the first of its two problems only.
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


def is_first(kernel, variant):
    """Whether no earlier variant of the kernel is launched like this one."""
    return next(other for other in kernel.variants if (other.arch, other.launch) == (variant.arch, variant.launch)) is variant


NAMED = {variant.sha256: kernel.name for kernel in ZOO.find("gemm.*") for variant in kernel.variants}  # cubins serve several
VARIANTS = [
    (kernel, variant)
    for kernel in ZOO.find("gemm.*")
    for variant in kernel.variants
    if EVERY or is_first(kernel, variant) or (int(variant.sha256, 16) % 8 == 0 and kernel.name == NAMED[variant.sha256])
]


def small_problems(kernel, variant):
    """Of the first of the variant's problems those that do not take long."""
    some = [problem for problem in islice(checks.problems(kernel, variant), LOOKED_AT) if problem.elements > 0]
    most = max(MOST_ELEMENTS, min((problem.elements for problem in some), default=0))  # a variant may want many rows
    return [problem for problem in some if problem.elements <= most]


@pytest.mark.parametrize(("kernel", "variant"), VARIANTS, ids=[f"{kernel.name} {variant.name}" for kernel, variant in VARIANTS])
def test_a_variant_gives_the_references_bytes_under_any_schedule(kernel, variant):
    small, ran = small_problems(kernel, variant), 0
    thorough = EVERY or is_first(kernel, variant)
    examples = EXAMPLES if EVERY or variant.sha256 not in TESTED_BESIDES else 1
    step = max(1, len(small) // EXAMPLES)
    for problem in (small[i] for first in range(step) for i in range(first, len(small), step)):
        schedules = SCHEDULES if "ZOO_SCHEDULES" in os.environ or (thorough and ran == 0) else 1
        try:
            wrong = difference(problem, kernel, variant, executor(ZOO, schedules), POISONS[:1])
        except VariantError:
            continue  # sizes that this variant does not take; another one does
        assert wrong is None, f"{problem.name}: {wrong}"
        ran += 1
        if ran == examples or not thorough:
            return
    assert ran, "no small problem has sizes that this variant takes; add one to its checks"


SHARING = [
    (kernel, variant)
    for kernel in ZOO.find("gemm.*")
    for variant in kernel.variants
    if "SHARERS" in variant.constants and (EVERY or is_first(kernel, variant))
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
    return [ways[int(digest, 16) % len(ways)] for digest, ways in served.items()]


def rows_and_depth(problem):
    a = problem.inputs["a"].values
    return a.size // max(1, a.shape[-1]), a.shape[-1]


OF_FOUR_BITS = four_bit_cubins()
TESTED_BESIDES = {variant.sha256 for _, variant in OF_FOUR_BITS}


@pytest.mark.parametrize(("kernel", "variant"), OF_FOUR_BITS, ids=[f"{kernel.name} {variant.name}" for kernel, variant in OF_FOUR_BITS])
def test_a_cubin_of_four_bits_gives_the_references_bytes_whatever_comes_first(kernel, variant):
    which = int(variant.sha256, 16) // 7 % 2
    for problem in sorted(small_problems(kernel, variant), key=lambda problem: rows_and_depth(problem)[which], reverse=True):
        with contextlib.suppress(VariantError):  # it is for other scales of a
            wrong = difference(problem, kernel, variant, executor(ZOO, max(2, SCHEDULES)), POISONS[:1])
            assert wrong is None, f"{problem.name}: {wrong}"
            return
    pytest.fail("no small problem is for this variant; add one to its checks")

"""Problems for the rearrangement of elements; every answer is that of zoo.reference.pack, to the byte."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from zoo.checks.problem import NoChecks, Placed, Problem
from zoo.contract.manifest import Kernel, Variant
from zoo.reference.pack import pack_mxfp4

# Rows and bytes: one piece, a row that needs no padding, each length of padding, around what a CTA takes; gpt-oss's rows.
_SHAPES = ((1, 16), (3, 64), (5, 32), (7, 48), (33, 80), (255, 64), (257, 64), (31, 1040), (1, 17_440), (9, 1440), (0, 64))


def problems(kernel: Kernel, variant: Variant) -> Iterator[Problem]:
    if kernel.fields["formats"] != "mxfp4":
        raise NoChecks(kernel, f"packing {kernel.fields['formats']}", "add its problems to zoo/checks/pack.py")
    random = numpy.random.default_rng(18)
    for rows, columns in _SHAPES:
        for gap in (0, 1):  # rows further apart than they are long
            yield problem(random, rows, columns, gap)


def problem(random: numpy.random.Generator, rows: int, columns: int, gap: int) -> Problem:
    q = random.integers(1, 256, (rows, columns), dtype=numpy.uint8)  # no zeros, which padding could be taken for
    packed = pack_mxfp4(q)
    return Problem(
        f"{rows} rows of {columns} bytes, {gap} pieces apart",
        {"q": Placed(q, (columns + 16 * gap, 1), "e2m1x2")},
        {"packed": Placed(packed, (packed.shape[1] + 32 * gap, 1), "e2m1x2")},
    )

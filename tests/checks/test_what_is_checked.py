"""A size that is lost from a kernel's problems is noticed: what there is to check is written down in problems.txt, a line for each kernel.

    python -m tests.checks.test_what_is_checked     writes it anew, after problems were changed on purpose

A line has a kernel's problems, their elements, and a digest of their names, settings, shapes, strides and whole numbers, of smaller problems
those of the results too. Other values are not in it, for they may differ in a last bit from one processor to another. Of variants, the first
of each arch is asked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

from zoo import checks
from zoo.checks.problem import Placed
from zoo.contract.manifest import Kernel
from zoo.shipped.packaged import packaged

FILE = Path(__file__).with_name("problems.txt")
MOST_ELEMENTS = 20_000  # of a problem whose results are worked out


def _described(placed: Placed) -> str:
    values = placed.values
    whole = values.tobytes() if values.dtype == numpy.int32 else b""
    return f"{values.dtype}{values.shape}{placed.strides}{placed.dtype}{placed.aligned}{placed.padding}{placed.untouched is None}{zlib.crc32(whole)}"


def line_of(kernel: Kernel) -> str:
    count = elements = digest = 0
    for arch in kernel.archs:
        variant = next(one for one in kernel.variants if one.arch == arch)
        for problem in checks.problems(kernel, variant):
            count, elements = count + 1, elements + problem.elements
            results = problem.outputs if problem.elements <= MOST_ELEMENTS else {}
            arrays = {**problem.inputs, **problem.workspaces, **results}
            text = f"{problem.name}{sorted(problem.settings.items())}{problem.multiprocessors}" + "".join(
                f"{name} {_described(arrays[name])}" for name in sorted(arrays)
            )
            digest = zlib.crc32(text.encode(), digest)
    return f"{kernel.name}: {count} problems, {elements} elements, {digest:08x}"


def lines() -> Iterator[str]:
    return (line_of(kernel) for kernel in packaged.find("*"))


@pytest.mark.parametrize("name", packaged.manifest.names)
def test_no_problem_of_a_kernel_is_lost_or_changes_its_size_unseen(name):
    written = dict(line.split(": ", 1) for line in FILE.read_text().splitlines())
    assert line_of(packaged.kernel(name)) == f"{name}: {written[name]}", "if on purpose: python -m tests.checks.test_what_is_checked"


def test_every_kernel_and_no_other_is_written_down():
    assert [line.partition(":")[0] for line in FILE.read_text().splitlines()] == [kernel.name for kernel in packaged.find("*")]


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in lines()))

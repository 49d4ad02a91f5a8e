"""What a kernel is asked is noticed when it changes: its problems are written down in problems.txt, a line for each kernel.

    python -m tests.checks.test_what_is_checked           writes it anew, after problems were changed on purpose
    python -m tests.checks.test_what_is_checked NAME      prints a line for each problem of a kernel, to compare with those of before

A line has a kernel's problems, their elements, and a digest of their names, settings, shapes, strides and the bits of every input, of
smaller problems those of the results too. Bits may be written down because they are rules: what is drawn is drawn in 64 bits and rounded to
fewer, and results are the reference's, which are those of every processor. Of variants, one is asked for each way in which problems differ.
"""

from __future__ import annotations

import importlib
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from zoo import checks
from zoo.checks import quantize_groups, quantize_rows
from zoo.checks.problem import NoChecks, Placed
from zoo.contract.manifest import Kernel, Variant
from zoo.packaged import packaged

FILE = Path(__file__).with_name("problems.txt")
MOST_ELEMENTS = 20_000  # of a problem whose results are worked out
DECIDING = (
    "GROUPING",
    "INDEXED",
    "USES_WORKSPACE",
    "ANY_ACTIVATION",
    "DEQUANTIZES_ONCE",
    "PROMOTION",
    "SPLITS_LAST_WAVE",
    "SHARERS",
    "SPLITS",
)  # constants of variants that zoo/checks asks about


# Products of 4-bit weights with gates and ups: four kinds of operands have the same problems but for numbers, which plain products hold.
_LIKE_OTHERS = re.compile(r"gemm\.(fp8_mxfp4|bf16_nvfp4|bf16_mxfp4\.m_grouped_\w+)\..*swiglu.*")
_OF_GATES = re.compile(r"gemm\.(fp8|bf16)_(nvfp4|mxfp4)\..*swiglu.*")
NAMES = [name for name in packaged.manifest.names if not _LIKE_OTHERS.fullmatch(name)]


def _bits(values: numpy.ndarray | None) -> int | None:
    return None if values is None else zlib.crc32(numpy.ascontiguousarray(values).view(numpy.uint8))


def _described(placed: Placed) -> str:
    values = placed.values
    bits = [_bits(array) for array in (values, placed.before, placed.untouched)]
    return f"{values.dtype}{values.shape}{placed.strides}{placed.dtype}{placed.aligned}{placed.padding}{bits}{placed.within is None}"


def _ways(kernel: Kernel) -> Iterable[Variant]:
    """The first variant of each way: what it reads, what decides, and, as products of an arch have rules of their own, the arch."""
    read = [name for name, argument in kernel.arguments.items() if not argument.written]
    found: dict[tuple[object, ...], Variant] = {}
    for variant in kernel.variants:
        arch = variant.arch if kernel.fields["op"] == "gemm" else None
        # all tiles of 4-bit gates are asked the same, whichever tokens' scales they take
        deciding = [name for name in DECIDING if name != "PROMOTION" or not _OF_GATES.fullmatch(kernel.name)]
        way = arch, *(variant.dtypes.get(name) for name in read), *(variant.constants.get(name) for name in deciding)
        found.setdefault(way, variant)
    return found.values()


def _problems_of(kernel: Kernel) -> Iterator[tuple[int, str]]:
    """(elements, all in words)"""
    for variant in _ways(kernel):
        for problem in checks.problems(kernel, variant):
            results = problem.outputs if problem.elements <= MOST_ELEMENTS else {}
            arrays = {**problem.inputs, **problem.workspaces, **results}
            said = "".join(f"{name} {_described(arrays[name])}" for name in sorted(arrays))
            yield problem.elements, f"{problem.name}{sorted(problem.settings.items())}{problem.multiprocessors}{said}"


def line_of(kernel: Kernel) -> str:
    count = elements = digest = 0
    for size, text in _problems_of(kernel):
        count, elements, digest = count + 1, elements + size, zlib.crc32(text.encode(), digest)
    return f"{kernel.name}: {count} problems, {elements} elements, {digest:08x}"


def lines() -> Iterator[str]:
    return (line_of(packaged.kernel(name)) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_no_problem_of_a_kernel_is_lost_or_changes_unseen(name):
    written = dict(line.split(": ", 1) for line in FILE.read_text().splitlines())
    assert line_of(packaged.kernel(name)) == f"{name}: {written[name]}", "if on purpose: python -m tests.checks.test_what_is_checked"


def test_every_kernel_and_no_other_is_written_down():
    assert [line.partition(":")[0] for line in FILE.read_text().splitlines()] == NAMES


@pytest.mark.parametrize("which", ["quantize.rows", "quantize.rows.m_grouped"])
def test_columns_are_as_many_as_a_table_of_shapes_says(which):
    """None of them is rounded up, so that each number there means something."""
    grouped = which.endswith("grouped")
    for block, unit in ((16, 16), (32, 32), (128, 16)):
        shapes = [*quantize_rows._SHAPES[block], *quantize_rows._STRIDED[block]]
        columns = quantize_groups._COLUMNS[block] if grouped else [across for _, across in shapes]
        assert columns and not any(across % unit for across in columns)
    assert not any(across % 32 for _, _, across in quantize_groups._LARGE) or not grouped


# module, fields, what it says
OTHERS = {
    "gemm.fp8b128": ("gemm", {"formats": "mxfp8"}, "products of mxfp8; add their problems to zoo/checks, beside those of zoo/checks/gemm.py"),
    "gemm.fp8b128.swiglu": ("gemm_swiglu", {"formats": "mxfp8"}, "products of mxfp8; add their problems to zoo/checks, beside those of zoo/checks/gemm.py"),
    "gemm.fp8_": ("gemm_four_bit", {"formats": "mxfp8"}, "products of mxfp8; add their weights to zoo/checks/gemm_four_bit.py"),
    **{
        f"gemm.{module}.{place}": (module, fields, f"products of {fields['formats']}, {fields['grouping']}; add their problems to zoo/checks/{module}.py")
        for module, known, unknown in (("block_scaled", "dense", "k_grouped"), ("block_scaled_groups", "k_grouped", "dense"))
        for place, fields in enumerate((
            {"formats": "fp8b128", "grouping": known}, {"formats": "mxfp8", "grouping": unknown}, {"formats": "mxfp8", "grouping": known, "extra": "swiglu"},
        ))
    },
}  # fmt: skip


@pytest.mark.parametrize("which", OTHERS)
def test_a_product_that_a_module_has_no_problems_for_is_refused_in_words(which):
    module, fields, words = OTHERS[which]
    with pytest.raises(NoChecks) as refusal:
        next(importlib.import_module(f"zoo.checks.{module}").problems(SimpleNamespace(name="k", fields=fields), None))
    assert str(refusal.value) == f"k: nobody has written checks for {words}"


if __name__ == "__main__":
    if sys.argv[1:]:
        print(*(text for _, text in _problems_of(packaged.kernel(sys.argv[1]))), sep="\n")
    else:
        FILE.write_text("".join(f"{line}\n" for line in lines()))

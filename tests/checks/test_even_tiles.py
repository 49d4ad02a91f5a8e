"""Tiles of one matrix are about as high as each other: the kernel and who starts it must count a box's rows alike, or a barrier waits for ever."""

import itertools
import re
from pathlib import Path

import pytest

from zoo.checks.emulated import executor
from zoo.checks.gemm import problems
from zoo.checks.problem import POISONS, difference
from zoo.packaged import packaged

SOURCE = (Path(__file__).parents[2] / "src_cu" / "gemm" / "schedule" / "tile_schedule.cuh").read_text()
MOST, FRACTION = (int(re.search(rf"constexpr int {name} = (\d+);", SOURCE)[1]) for name in ("MOST", "FRACTION"))
FEW = int(re.search(r"TOKENS >= (\d+)\), EvenTiles", SOURCE)[1])  # tiles of fewer tokens are whole, but those of tokens as rows
DENSE = [
    (kernel, variant)
    for kernel in packaged.find("gemm.*.dense")
    for variant in kernel.variants
    if variant.arch == "sm_90a" and "TOKENS" in variant.constants
]


def first(tile, tokens, rows):
    """As EvenTiles in the source."""
    if rows > MOST:
        return tile * tokens
    fours = -(-(rows << FRACTION) // (4 * -(-rows // tokens)))
    return ((tile * fours + (1 << FRACTION) - 1) >> FRACTION) * 4


def box(tokens, rows, even):
    return min(rows, first(1, tokens, rows)) if even else min(tokens, rows)


@pytest.mark.parametrize(("kernel", "variant"), DENSE, ids=lambda one: one.name)
def test_kernel_and_launch_count_the_rows_of_a_box_alike(kernel, variant):
    tokens, sharers = variant.constants["TOKENS"], variant.constants.get("SHARERS", 1)
    even = tokens >= FEW or variant.constants.get("SWAPPED") == 0
    of_a = next(parameter.recipe for parameter in variant.launch.parameters if parameter.recipe and parameter.argument == "a")
    passed = [parameter.value for parameter in variant.launch.parameters if parameter.value and "TOKENS" in repr(parameter.value)]
    for rows in {1, MOST - 1, MOST, MOST + 1} | {at + more for at, more in itertools.product((tokens, 2 * tokens, 9 * tokens), (-1, 0, 1))}:
        values = {"M": rows, "sms": 132} | variant.constants
        height = box(tokens, rows, even)
        expected = -(-height // (8 * sharers)) * 8 if sharers > 1 else height
        assert of_a.box[1].evaluate(values) == expected, rows
        assert all(value.evaluate(values) == expected for value in passed), rows
        begins = [min(rows, first(tile, tokens, rows)) for tile in range(11)]
        assert not even or max(end - begin for begin, end in itertools.pairwise(begins)) <= height, "a row that no box brings"


@pytest.mark.parametrize("name", ["t128", "few128_w64_split2"])
def test_nan_in_a_row_that_the_boxes_of_two_tiles_bring_stays_there(name):
    kernel = packaged.kernel("gemm.fp8b128.dense")
    variant = next(variant for variant in kernel.variants if variant.name == name)
    assert [first(tile, 128, 257) for tile in range(3)] == [0, 88, 172] and box(128, 257, True) == 88
    wanted = next(problem for problem in problems(kernel, variant) if "the boxes of two tiles" in problem.name)
    assert difference(wanted, kernel, variant, executor(packaged), POISONS[:1]) is None

"""The checks of groups quantised along both dimensions: the reference passes, and each way to be slightly wrong does not."""

from dataclasses import replace

import numpy
import pytest

import zoo
from tests.reference.test_kernels import by_the_rule
from zoo import checks
from zoo.reference.groups import gather
from zoo.reference.kernels import quantisers
from zoo.reference.quantize import quantize_cols, quantize_rows

FORMATS = ("fp8b128", "mxfp8", "mxfp4", "nvfp4")
NAMES = [f"quantize.{format}.both.{grouping}" for format in FORMATS for grouping in ("m_grouped_contiguous", "m_grouped_padded")]


def outcome(name, execute=by_the_rule):
    kernel = zoo.kernel(name)
    return checks.check(kernel, kernel.variants[0], execute, 20_000, (0xA5,))


@pytest.mark.parametrize("name", NAMES)
def test_a_right_kernel_passes(name):
    found = outcome(name)
    assert found.error is None
    assert found.checks > 30 and 5 < found.left_out < 20


def one_block_of_all_rows(x, format, layout, offsets, padded):
    """Blocks along M do not begin with the groups."""
    return quantisers.quantize_rows(numpy.ascontiguousarray(x[: offsets[-1]].T), format, layout)


def last_row_for_none(x, index):
    """-1 as numpy has it."""
    return gather(x, numpy.where(index == -1, len(x) - 1, index).astype(numpy.int32)) if len(x) else gather(x, index)


def rows_without_groups(x, format, layout, offsets):
    """A group does not begin with a new tile of scales."""
    right = quantize_rows(x, format, layout, offsets)
    if layout == "plain":
        return right
    packed = quantize_rows(x[: offsets[-1]], format, layout).scales
    return replace(right, scales=numpy.pad(packed, (0, right.scales.size - packed.size)))


def first_scale(x, format, layout, offsets, padded):
    """All groups use the first tensor scale."""
    return quantize_cols(x, format.of_group(numpy.zeros(1, int)), layout, offsets, padded)


MUTANTS = {
    "blocks across groups": ("fp8b128", "quantize_cols", one_block_of_all_rows),
    "-1 is the last row": ("fp8b128", "gather", last_row_for_none),
    "groups share tiles of scales": ("mxfp8", "quantize_rows", rows_without_groups),
    "one tensor scale": ("nvfp4", "quantize_cols", first_scale),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_slightly_wrong_kernel_is_caught(mutant):
    format, name, wrong = MUTANTS[mutant]

    def execute(*launch):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quantisers, name, wrong)
            return by_the_rule(*launch)

    assert "wrong" in outcome(f"quantize.{format}.both.m_grouped_contiguous", execute).error


def test_a_rule_for_scales_that_is_ignored_is_caught():
    def execute(kernel, variant, buffers, settings):
        return by_the_rule(kernel, variant, buffers, {**settings, "scaling": "exact"})

    assert "wrong" in outcome(NAMES[0], execute).error

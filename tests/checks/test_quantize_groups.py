"""The problems of quantisers over groups of rows catch what such kernels get wrong. The 'kernel' is the reference, broken on purpose."""

import re
from types import SimpleNamespace

import numpy
import pytest

from tests.checks.described import found, put, quantiser
from zoo import checks
from zoo.checks.checked_format import format_of
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference import quantize_rows
from zoo.reference.groups import gather, padded_bounds

CASES = [
    ("mxfp8", "contiguous", "plain"),
    ("mxfp4", "contiguous", "blocked"),
    ("nvfp4", "padded", "blocked"),
    ("fp8b128", "padded", "mn_major"),
]
MOST_ELEMENTS = 15_000  # the small problems: every hazard of groups is among them


def described(format, grouping, layout):
    return quantiser(format, "rows", (layout,), grouping=f"m_grouped_{grouping}")


def right(kernel, variant, buffers, settings):
    after = {name: buffer.image.copy() for name, buffer in buffers.items()}
    x, offsets = found(buffers, after, "x", numpy_dtype("bf16")), found(buffers, after, "offsets", numpy.int32)
    if "index" in buffers:
        index = found(buffers, after, "index", numpy.int32).copy()
        index[offsets[-1] :] = -1
        x = gather(x, index)
    padded = kernel.fields["grouping"] == "m_grouped_padded"
    given = found(buffers, after, "tensor_scale", numpy.float32) if "tensor_scale" in buffers else 1
    result = quantize_rows(x, format_of(kernel, variant).made(settings, given), settings["layout"], offsets, padded)
    put(buffers, after, "q", result.q)
    put(buffers, after, "scales", result.scales)
    if padded:
        for name, bounds in zip(("padded_starts", "padded_ends"), padded_bounds(offsets), strict=True):
            put(buffers, after, name, bounds)
    return after


@pytest.mark.parametrize(("format", "grouping", "layout"), CASES)
def test_a_right_kernel_passes(format, grouping, layout):
    outcome = checks.check(*described(format, grouping, layout), right, MOST_ELEMENTS)
    assert outcome.error is None
    assert outcome.checks > 50 and outcome.left_out > 10


def ends_without_padding(buffers, after):
    put(buffers, after, "padded_ends", found(buffers, after, "offsets", numpy.int32))


def a_scale_in_the_padding(buffers, after):
    """The last row of the buffer is never a row of data."""
    if buffers["scales"].laid.elements(after["scales"]).size:
        buffers["scales"].laid.elements(after["scales"])[-1] = 1


def a_row_after_the_last_offset(buffers, after):
    offsets, q = found(buffers, after, "offsets", numpy.int32), buffers["q"].laid.elements(after["q"])
    if q.size and offsets[-1] < len(q):
        q[offsets[-1]] = 0


def an_input(name):
    def change(buffers, after):
        after[name][buffers[name].laid.offset] ^= 1

    return change


def wrong_input(name, change):
    """The right kernel, given another input."""

    def execute(kernel, variant, buffers, settings):
        if name not in buffers:
            return right(kernel, variant, buffers, settings)
        image = buffers[name].image.copy()
        elements = buffers[name].laid.elements(image)
        elements[...] = change(elements.view(numpy.int32)).view(numpy.uint32)
        after = right(kernel, variant, buffers | {name: SimpleNamespace(image=image, laid=buffers[name].laid)}, settings)
        return after | {name: buffers[name].image}

    return execute


def broken(change):
    def execute(kernel, variant, buffers, settings):
        after = right(kernel, variant, buffers, settings)
        change(buffers, after)
        return after

    return execute


MISTAKES = {
    "the ends do not count the padding": (("nvfp4", "padded", "blocked"), broken(ends_without_padding), "padded_ends"),
    "a scale in the padding": (("fp8b128", "padded", "mn_major"), broken(a_scale_in_the_padding), "scales"),
    "a row after the last offset": (
        ("mxfp8", "contiguous", "plain"),
        broken(a_row_after_the_last_offset),
        "no row in any group.*q: 288 bytes that are not",
    ),
    "-1 gathers row 0": (
        ("mxfp8", "contiguous", "plain"),
        wrong_input("index", lambda index: numpy.maximum(index, 0)),
        "gathered.*: (q|scales): ",
    ),
    "empty groups take a tile": (
        ("mxfp4", "contiguous", "blocked"),
        wrong_input(
            "offsets", lambda offsets: numpy.minimum(numpy.maximum.accumulate(offsets + (offsets == numpy.roll(offsets, 1))), offsets[-1])
        ),
        "scales|q",
    ),
    "an input": (("mxfp8", "contiguous", "plain"), broken(an_input("offsets")), "offsets: the kernel changed an input"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_caught(mistake):
    (format, grouping, layout), execute, words = MISTAKES[mistake]
    outcome = checks.check(*described(format, grouping, layout), execute, MOST_ELEMENTS)
    assert outcome.error is not None
    assert re.search(words, outcome.error), outcome.error

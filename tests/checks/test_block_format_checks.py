"""The checks of mxfp4, nvfp4 and fp8b128: the reference passes, and each way to be slightly wrong does not."""

from dataclasses import replace

import numpy
import pytest

import zoo
from tests.checks.described import as_quantiser, flushed, setting
from zoo import checks
from zoo.reference import quantize_rows
from zoo.reference.fragments import permuted_columns

# format -> the layout that is checked: that with the most that can go wrong
LAYOUTS = {"mxfp4": "blocked", "nvfp4": "plain", "fp8b128": "mn_major"}


def kernel_and_variant(name):
    kernel = zoo.kernel(f"quantize.{name}.rows")
    return kernel, next(v for v in kernel.variants if v.name.startswith(f"bf16_{LAYOUTS[name]}_"))


def quantised(x, format, settings):
    result = quantize_rows(x, format, settings["layout"])
    if settings.get("order") == "fragments":
        result = replace(result, q=permuted_columns(result.q))
    return [(result, "")]


def executor(**changes):
    return as_quantiser(quantised, **changes)


def without_negative_zero(q):
    q = q.copy()
    for nibble, minus_zero in ((0x0F, 0x08), (0xF0, 0x80)):
        q[q & nibble == minus_zero] &= 0xFF ^ nibble
    return q


def last_scale_wrong(scales):
    scales = scales.copy()
    scales.view(numpy.uint8).reshape(-1)[-1:] ^= 1
    return scales


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_right_kernel_passes(name):
    kernel, variant = kernel_and_variant(name)
    outcome = checks.check(kernel, variant, executor())
    assert outcome.error is None
    assert outcome.checks > 20


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mxfp4", {"change_x": flushed}),
        ("mxfp4", {"change_q": without_negative_zero}),
        ("mxfp4", {"change_scales": last_scale_wrong}),
        ("mxfp4", {"change_settings": setting(rounding="rceil")}),
        ("nvfp4", {"change_x": flushed}),
        ("nvfp4", {"change_q": without_negative_zero}),
        ("nvfp4", {"change_scales": last_scale_wrong}),
        ("fp8b128", {"change_x": flushed}),
        ("fp8b128", {"change_scales": last_scale_wrong}),
        ("fp8b128", {"change_settings": setting(scaling="pow2")}),
        ("fp8b128", {"change_q": lambda q: numpy.where(q.view(numpy.uint8) == 0x7F, numpy.uint8(0xFF), q.view(numpy.uint8))}),
    ],
)
def test_a_slightly_wrong_kernel_is_caught(name, changes):
    kernel, variant = kernel_and_variant(name)
    assert "wrong" in checks.check(kernel, variant, executor(**changes)).error


def nudged(x):
    """Ties are no ties any more: a kernel that rounds them up."""
    wide = x.astype(numpy.float32)
    return numpy.where(numpy.isfinite(wide), wide * numpy.float32(1 + 2**-20), wide)


@pytest.mark.parametrize("name", LAYOUTS)
def test_ties_that_are_rounded_up_are_caught(name):
    kernel, variant = kernel_and_variant(name)

    def execute(kernel, variant, buffers, settings):
        right, up = executor()(kernel, variant, buffers, settings), executor(change_x=nudged)(kernel, variant, buffers, settings)
        return {**right, "q": up["q"]}  # the scales stay right

    assert checks.check(kernel, variant, execute).error is not None

"""The checks of mxfp4, nvfp4 and fp8b128: the reference passes, and each way to be slightly wrong does not."""

import ml_dtypes
import numpy
import pytest

import zoo
from zoo import checks
from zoo.reference import Fp8b128, Mxfp4, Nvfp4, quantize_rows

DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": numpy.float16, "f32": numpy.float32}
# format -> the layout that is checked: that with the most that can go wrong
LAYOUTS = {"mxfp4": "blocked", "nvfp4": "plain", "fp8b128": "mn_major"}


def format_of(name, settings, tensor_scale):
    if name == "mxfp4":
        return Mxfp4(settings["rounding"])
    return Nvfp4(tensor_scale) if name == "nvfp4" else Fp8b128(settings["scaling"] == "pow2")


def kernel_and_variant(name):
    kernel = zoo.kernel(f"quantize.{name}.rows")
    return kernel, next(v for v in kernel.variants if v.name.startswith(f"bf16_{LAYOUTS[name]}_"))


def executor(name, change_x=lambda x: x, change_q=lambda q, x: q, change_scales=lambda s: s, change_settings=lambda s: s):
    """The reference as a kernel, with one thing changed."""

    def execute(kernel, variant, buffers, settings):
        after = {argument: buffer.image.copy() for argument, buffer in buffers.items()}
        x = numpy.ascontiguousarray(buffers["x"].laid.elements(after["x"])).view(DTYPES[variant.dtypes["x"]])
        given = buffers["tensor_scale"].laid.elements(after["tensor_scale"]).view(numpy.float32)[0] if name == "nvfp4" else None
        settings = change_settings(settings)
        result = quantize_rows(change_x(x), format_of(name, settings, given), settings["layout"])
        for argument, values in (("q", change_q(result.q.view(numpy.uint8).copy(), x)), ("scales", change_scales(result.scales))):
            laid = buffers[argument].laid
            if values.size:
                elements = laid.elements(after[argument])
                elements[...] = values.view(elements.dtype).reshape(laid.shape)
        return after

    return execute


def flushed(x):
    return numpy.where(numpy.abs(x.astype(numpy.float32)) < numpy.finfo(numpy.float32).tiny, x.dtype.type(0), x)


def without_negative_zero(q, x):
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
    outcome = checks.check(kernel, variant, executor(name))
    assert outcome.error is None
    assert outcome.checks > 20


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mxfp4", {"change_x": flushed}),
        ("mxfp4", {"change_q": without_negative_zero}),
        ("mxfp4", {"change_scales": last_scale_wrong}),
        ("mxfp4", {"change_settings": lambda settings: {**settings, "rounding": "rceil"}}),
        ("nvfp4", {"change_x": flushed}),
        ("nvfp4", {"change_q": without_negative_zero}),
        ("nvfp4", {"change_scales": last_scale_wrong}),
        ("fp8b128", {"change_x": flushed}),
        ("fp8b128", {"change_scales": last_scale_wrong}),
        ("fp8b128", {"change_settings": lambda settings: {**settings, "scaling": "pow2"}}),
        ("fp8b128", {"change_q": lambda q, x: numpy.where(q == 0x7F, numpy.uint8(0xFF), q)}),
    ],
)
def test_a_slightly_wrong_kernel_is_caught(name, changes):
    kernel, variant = kernel_and_variant(name)
    assert "wrong" in checks.check(kernel, variant, executor(name, **changes)).error


def nudged(x):
    """Ties are no ties any more: a kernel that rounds them up."""
    wide = x.astype(numpy.float32)
    return numpy.where(numpy.isfinite(wide), wide * numpy.float32(1 + 2**-20), wide)


@pytest.mark.parametrize("name", LAYOUTS)
def test_ties_that_are_rounded_up_are_caught(name):
    kernel, variant = kernel_and_variant(name)

    def execute(kernel, variant, buffers, settings):
        right, up = executor(name)(kernel, variant, buffers, settings), executor(name, change_x=nudged)(kernel, variant, buffers, settings)
        return {**right, "q": up["q"]}  # the scales stay right

    assert checks.check(kernel, variant, execute).error is not None

"""The checks must fail for every kernel that is wrong: here the 'kernel' is the reference, broken on purpose."""

import re
from dataclasses import replace

import numpy
import pytest

import zoo
from zoo import checks
from zoo.checks import NoChecks
from zoo.contract.names import Vocabulary
from zoo.errors import DriverError, VariantError
from zoo.reference.mxfp8 import quantize_mxfp8_rows

KERNEL = zoo.kernel("quantize.mxfp8.rows")
VARIANTS = [variant for variant in KERNEL.variants if variant.arch == "sm_90a"]
PLAIN = next(v for v in VARIANTS if v.name == "bf16_e4m3_plain_t256")
BLOCKED = next(v for v in VARIANTS if v.name == "bf16_e4m3_blocked_t256")


def reference(kernel, variant, buffers, settings):
    """A right kernel."""
    after = {name: buffer.image.copy() for name, buffer in buffers.items()}
    x = buffers["x"].laid.elements(after["x"]).view(zoo_dtype(variant.dtypes["x"]))
    q, scales = quantize_mxfp8_rows(numpy.ascontiguousarray(x), variant.dtypes["q"], settings["rounding"], settings["layout"])
    put(buffers["q"], after["q"], q.view(numpy.uint8))
    put(buffers["scales"], after["scales"], scales.view(numpy.uint8).reshape(buffers["scales"].laid.shape))
    return after


def put(buffer, image, values):
    if values.size:
        buffer.laid.elements(image)[...] = values


def zoo_dtype(name):
    from zoo.contract.numpy_dtypes import numpy_dtype

    return numpy_dtype(name)


def broken(change):
    """The reference, and then `change(buffers, after)`."""

    def execute(kernel, variant, buffers, settings):
        after = reference(kernel, variant, buffers, settings)
        change(buffers, after)
        return after

    return execute


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_right_kernel_passes(variant):
    outcome = checks.check(KERNEL, variant, reference)
    assert outcome.error is None
    assert outcome.checks == len(list(checks.problems(KERNEL, variant))) > 15


def one_element(name, change):
    def execute(buffers, after):
        elements = buffers[name].laid.elements(after[name])
        if elements.size:
            index = tuple(extent - 1 for extent in elements.shape)
            elements[index] = change(elements[index])

    return execute


def byte_at(name, offset):
    def execute(buffers, after):
        after[name][offset(buffers[name].laid)] ^= 1

    return execute


def in_the_gap(buffers, after):
    laid = buffers["q"].laid
    if len(laid.shape) == 2 and laid.strides[0] > laid.shape[1] and laid.shape[0] > 1:
        after["q"][laid.offset + laid.shape[1]] ^= 1


def only_the_first_poison(buffers, after):
    """A kernel that forgets its last element, where the poison happens to be the answer."""
    elements = buffers["q"].laid.elements(after["q"])
    before = buffers["q"].laid.elements(buffers["q"].image)
    if elements.size:
        elements[-1, -1] = before[-1, -1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (one_element("q", lambda bits: bits ^ 1), r"q: 1 of \d+ elements are wrong, first \(0, 31\)"),
        (one_element("scales", lambda bits: bits + 1), "scales: 1 of 1 elements are wrong"),
        (byte_at("q", lambda laid: laid.offset - 1), "q: 1 bytes that are not the kernel's were written, first the one -1 bytes"),
        (byte_at("q", lambda laid: -1), "q: 1 bytes that are not the kernel's"),
        (byte_at("scales", lambda laid: 0), "scales: 1 bytes that are not the kernel's"),
        (byte_at("x", lambda laid: laid.offset), "x: the kernel changed an input, first at byte 0"),
        (in_the_gap, "strided rows, .* q: 1 bytes that are not the kernel's"),
        (only_the_first_poison, r"q: 1 of 32 elements are wrong, .*\(never written\)"),
    ],
)
def test_a_write_out_of_place_or_a_wrong_element_is_caught(change, words):
    outcome = checks.check(KERNEL, PLAIN, broken(change))
    assert outcome.error is not None
    assert re.search(words, outcome.error)


def other_rule(**changes):
    """The reference under another rule than the one that was asked for."""

    def execute(kernel, variant, buffers, settings):
        return reference(kernel, variant, buffers, {**settings, **changes})

    return execute


def numeric(change_x=lambda x: x, change_q=lambda q: q):
    def execute(kernel, variant, buffers, settings):
        after = reference(kernel, variant, buffers, settings)
        x = buffers["x"].laid.elements(buffers["x"].image).view(zoo_dtype(variant.dtypes["x"]))
        q, scales = quantize_mxfp8_rows(change_x(numpy.ascontiguousarray(x)), variant.dtypes["q"], **settings)
        put(buffers["q"], after["q"], change_q(q.view(numpy.uint8).copy()))
        put(buffers["scales"], after["scales"], scales.view(numpy.uint8).reshape(buffers["scales"].laid.shape))
        return after

    return execute


def flushed(x):
    tiny = numpy.finfo(numpy.float32).tiny
    return numpy.where(numpy.abs(x.astype(numpy.float32)) < tiny, x.dtype.type(0), x)


def without_negative_zero(q):
    q[q == 0x80] = 0
    return q


def nan_with_its_sign(q):
    q[q == 0x7F] = 0xFF
    return q


def infinity_clamped(x):
    largest = x.dtype.type(3.3895313892515355e38)
    return numpy.where(numpy.isinf(x.astype(numpy.float32)), numpy.copysign(largest, x), x)


@pytest.mark.parametrize(
    ("variant", "execute"),
    [
        (PLAIN, other_rule(rounding="rceil")),
        (BLOCKED, other_rule(rounding="floor")),
        (PLAIN, numeric(change_x=flushed)),
        (PLAIN, numeric(change_x=infinity_clamped)),
        (PLAIN, numeric(change_q=without_negative_zero)),
        (PLAIN, numeric(change_q=nan_with_its_sign)),
    ],
    ids=["floor done as rceil", "rceil done as floor", "flush to zero", "infinity clamped", "minus zero lost", "NaN keeps its sign"],
)
def test_another_rounding_or_special_case_is_caught(variant, execute):
    outcome = checks.check(KERNEL, variant, execute)
    assert outcome.error is not None and "elements are wrong" in outcome.error


def test_ties_are_there_for_a_kernel_that_rounds_halves_up():
    """Only problems about ties may see the difference between rounding half to even and half away from zero."""

    def half_up(kernel, variant, buffers, settings):
        if settings["layout"] != "plain":
            raise VariantError("for plain scales")
        after = reference(kernel, variant, buffers, settings)
        x = numpy.ascontiguousarray(buffers["x"].laid.elements(buffers["x"].image)).view(zoo_dtype("bf16")).astype(numpy.float32)
        if not x.size:
            return after
        _, scales = quantize_mxfp8_rows(x, "e4m3", **settings)
        with numpy.errstate(all="ignore"):
            scaled = x / numpy.repeat(scales.astype(numpy.float32), 32, axis=1)
            nudged = numpy.where(numpy.isfinite(scaled), numpy.clip(scaled * numpy.float32(1 + 2**-20), -448, 448), numpy.nan)
            q = nudged.astype(zoo_dtype("e4m3")).view(numpy.uint8)
        q = numpy.where(numpy.isnan(nudged), numpy.uint8(0x7F), q)
        put(buffers["q"], after["q"], q)
        return after

    assert checks.check(KERNEL, PLAIN, half_up).error is not None


def test_padding_of_blocked_scales_left_unwritten_is_caught():
    def unpadded(buffers, after):
        rows, columns = buffers["x"].laid.shape
        before = buffers["scales"].laid.elements(buffers["scales"].image)
        written = buffers["scales"].laid.elements(after["scales"])
        if before.ndim == 4 and rows < 128 * before.shape[0] and rows * columns:
            written[-1, -1, -1, -1] = before[-1, -1, -1, -1]  # the last line holds rows 31, 63, 95 and 127 of the last tile

    assert "never written" in checks.check(KERNEL, BLOCKED, broken(unpadded)).error


def test_a_driver_error_is_a_failure_and_not_a_crash():
    def failing(*_):
        raise DriverError("an illegal address", 700)

    assert checks.check(KERNEL, PLAIN, failing).error == "shape 1 x 32, floor: an illegal address"


def test_a_variant_that_no_problem_fits_has_not_passed():
    def refusing(*_):
        raise VariantError("not these sizes")

    outcome = checks.check(KERNEL, PLAIN, refusing)
    assert outcome.checks == 0 and "no problem has sizes" in outcome.error


@pytest.mark.parametrize(
    ("name", "like", "what"),
    [
        ("gemm.fp8token.dense", "gemm.fp8b128.dense", "products of fp8token"),
        ("gemm.nvfp4.dense.swiglu", "gemm.fp8b128.dense.swiglu", "one without alpha"),
        ("quantize.fp8_nvfp4.rows", "quantize.mxfp8.rows", "the format 'fp8_nvfp4'"),
        ("dequantize.bf16_mxfp4.rows", "dequantize.mxfp8.rows", "the format 'bf16_mxfp4'"),
        ("dequantize.mxfp8.rows.m_grouped_contiguous", "dequantize.mxfp8.rows", "kernels such as dequantize.rows.m_grouped_contiguous"),
        ("quantize.mxfp8.both.swiglu", "quantize.mxfp8.both", "kernels such as quantize.both.swiglu"),
        ("quantize.mxfp8.rows", "scales.blocked", "one without x"),
        ("scales.blocked", "quantize.mxfp8.rows", "one without blocked"),
        ("gemm.fp8b128.dense", "quantize.mxfp8.rows", "one without d"),
    ],
)
def test_a_kernel_without_checks_is_refused_in_words(name, like, what):
    """Whatever a zoo of somebody's own holds: another format, another grouping, other arguments under a name that zoo knows."""
    kernel = replace(zoo.kernel(like), name=name, fields=Vocabulary({}).fields(name))
    with pytest.raises(NoChecks, match=f"^{re.escape(f'{name}: nobody has written checks for {what}')}; .*zoo/checks"):
        checks.check(kernel, kernel.variants[0], reference, most_elements=10_000)


def test_an_arrangement_of_scales_that_zoo_has_no_word_for_is_refused_in_words():
    kernel = replace(zoo.kernel("scales.blocked"), name="scales.swizzled", fields={"op": "scales", "arrangement": "swizzled"})
    with pytest.raises(NoChecks, match=r"^scales\.swizzled: nobody has written checks for kernels such as scales.swizzled; "):
        next(checks.problems(kernel, kernel.variants[0]))


def test_arrays_have_the_promised_alignment_and_no_more():
    from zoo.checks.problem import Laid, Placed

    for alignment in (1, 2, 16, 128):
        assert Laid(Placed(numpy.zeros((3, 4), numpy.uint8)), alignment).offset % (2 * alignment) == alignment

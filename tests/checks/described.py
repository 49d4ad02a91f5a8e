"""Kernels that the tests of the checks make up, and the reference in the place of a kernel."""

from collections.abc import Mapping
from types import SimpleNamespace

import numpy
import pytest

from zoo.checks import gemm
from zoo.checks.checked_format import format_of
from zoo.contract.numpy_dtypes import numpy_dtype
from zoo.reference.block_formats import FORMATS
from zoo.reference.gemm import gemm_fp8b128

_ALIGNMENTS = {
    "x": 16, "index": 4, "offsets": 4, "tensor_scale": 4, "padded_starts": 4, "padded_ends": 4,
    "q": 16, "q_rows": 16, "q_cols": 16, "scales": 4, "scales_rows": 4, "scales_cols": 4,
}  # fmt: skip


def layouts_of(format):
    return FORMATS[format].rule.layouts


def options_of(format):
    """What a launch may choose about the scales."""
    return FORMATS[format].rule.choices


def quantiser(format, direction, layouts=None, dtypes=None, **fields):
    """A kernel and a variant, of x in bf16 and the format's first elements unless `dtypes` say more. No layouts: it has no such option."""
    options = dict(options_of(format)) | ({} if layouts == () else {"layout": layouts or layouts_of(format)})
    kernel = SimpleNamespace(
        name=".".join(("quantize", format, direction, *fields.values())),
        fields={"op": "quantize", "formats": format, "direction": direction, **fields},
        arguments={name: SimpleNamespace(alignment=alignment, forms=()) for name, alignment in _ALIGNMENTS.items()},
        options={name: SimpleNamespace(values=values) for name, values in options.items()},
    )
    return kernel, SimpleNamespace(dtypes={"x": "bf16", **(dtypes or {})}, options={})


def found(buffers, after, name, dtype):
    """An array as a kernel reads it."""
    return numpy.ascontiguousarray(buffers[name].laid.elements(after[name])).view(dtype)


def put(buffers, after, name, values):
    """Writes values to the first elements of an array, as a kernel would."""
    elements = buffers[name].laid.elements(after[name])
    if values.size:
        values = numpy.ascontiguousarray(values).view(elements.dtype)
        if values.size == elements.size:
            values = values.reshape(elements.shape)
        elements[tuple(map(slice, values.shape))] = values


def as_quantiser(quantize, change_x=None, change_settings=None, change_format=None, change_q=None, change_scales=None, change=None):
    """The reference as a kernel, with what is given changed. `quantize(x, format, settings)` makes (result, suffix of its arrays) pairs."""

    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}
        x = found(buffers, after, "x", numpy_dtype(variant.dtypes["x"]))
        given = found(buffers, after, "tensor_scale", numpy.float32) if "tensor_scale" in buffers else 1
        settings = change_settings(settings) if change_settings else settings
        format = format_of(kernel, variant).made(settings, given)
        format = change_format(format) if change_format else format
        for result, suffix in quantize(change_x(x) if change_x else x, format, settings):
            for name, values, changed in (("q", result.q, change_q), ("scales", result.scales, change_scales)):
                if name + suffix in buffers:
                    put(buffers, after, name + suffix, changed(values) if changed else values)
        if change:
            change(buffers, after)
        return after

    return execute


def setting(**chosen):
    """A launch that ignores what it was asked for."""

    def change(settings: Mapping[str, str]) -> dict[str, str]:
        return {**settings, **chosen}

    return change


def flushed(x):
    """Subnormal numbers are zeros."""
    return numpy.where(numpy.abs(x.astype(numpy.float32)) < numpy.finfo(numpy.float32).tiny, x.dtype.type(0), x)


def has_rows(problem):
    """Whether a product has rows of D to write, as its inputs say."""
    counts = [placed.values for name, placed in problem.inputs.items() if name in ("offsets", "rows")]
    if "m_indices" in problem.inputs:
        return bool((problem.inputs["m_indices"].values >= 0).any())
    return bool(counts[0].any()) if counts else len(problem.inputs["a"].values) > 0


_PRODUCTS = {}


def remembered_product(*given):
    """gemm_fp8b128, worked out once for the same operands: the checks want it, and the reference in the place of a kernel does."""
    key = tuple((one.shape, one.tobytes()) if isinstance(one, numpy.ndarray) else one for one in given)
    if key not in _PRODUCTS:
        _PRODUCTS[key] = gemm_fp8b128(*given)
    return _PRODUCTS[key]


@pytest.fixture(autouse=True, scope="module")
def products_are_worked_out_once():
    """The operands are what a made-up kernel reads out of its buffers, so wrong ones are still other ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "gemm_fp8b128", remembered_product)
        yield
    _PRODUCTS.clear()

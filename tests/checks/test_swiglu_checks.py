"""The checks of SwiGLU before quantisation: the reference passes, and each way to be slightly wrong does not."""

import numpy
import pytest

import zoo
from tests.checks.described import as_quantiser, setting
from zoo import checks
from zoo.reference import quantize_rows
from zoo.reference.swiglu import swiglu


def kernel_and_variant(name):
    kernel = zoo.kernel(f"quantize.{name}.rows.swiglu")
    return kernel, next(v for v in kernel.variants if v.dtypes["x"] == "bf16" and v.dtypes.get("q") != "e5m2")


def executor(activate=swiglu, **changes):
    return as_quantiser(
        lambda x, format, settings: [
            (quantize_rows(activate(x.reshape(len(x), x[:1].size), settings["gates"]), format, settings["layout"]), "")
        ],
        **changes,
    )


def without_subnormals(x, order):
    """exp(-|g|) flushed to zero."""
    wide = x.astype(numpy.float32)
    far = (numpy.abs(wide) > 87.4) & (numpy.abs(wide) < 88.1)
    return swiglu(numpy.where(far, numpy.copysign(numpy.float32(89), wide), wide), order)


def in_the_dtype_of_x(x, order):
    return swiglu(x, order).astype(x.dtype).astype(numpy.float32)


def by_the_library(x, order):
    """silu as numpy would compute it: other last bits."""
    wide = x.astype(numpy.float32)
    half = wide.shape[1] // 2
    gate, up = (wide[:, :half], wide[:, half:]) if order == "halves" else (wide[:, 0::2], wide[:, 1::2])
    with numpy.errstate(all="ignore"):
        return gate / (1 + numpy.exp(-gate)) * up


@pytest.mark.parametrize("name", ["fp8b128", "mxfp8", "nvfp4"])
def test_a_right_kernel_passes(name):
    kernel, variant = kernel_and_variant(name)
    outcome = checks.check(kernel, variant, executor())
    assert outcome.error is None
    assert outcome.checks > 40


@pytest.mark.parametrize("name", ["fp8b128", "mxfp8", "nvfp4"])
@pytest.mark.parametrize(
    "changes",
    [
        {"change_settings": setting(gates="halves")},
        {"activate": in_the_dtype_of_x},
        {"activate": by_the_library},
        {"activate": without_subnormals},
    ],
    ids=["order of gates ignored", "rounded to the dtype of x", "another silu", "subnormals flushed"],
)
def test_a_slightly_wrong_kernel_is_caught(name, changes):
    kernel, variant = kernel_and_variant(name)
    assert "wrong" in checks.check(kernel, variant, executor(**changes)).error


@pytest.mark.parametrize(("name", "option", "value"), [("mxfp8", "rounding", "floor"), ("fp8b128", "scaling", "exact")])
def test_a_rule_for_scales_that_is_ignored_is_caught(name, option, value):
    kernel, variant = kernel_and_variant(name)
    assert "wrong" in checks.check(kernel, variant, executor(change_settings=setting(**{option: value}))).error

"""The problems of the FP8 GEMMs catch what such kernels get wrong. The 'kernel' is the reference, group by group."""

from types import SimpleNamespace

import ml_dtypes
import numpy
import pytest

from zoo import checks
from zoo.reference.gemm import exact, gemm_fp8b128, rounded

GROUPINGS = ("dense", "m_grouped_contiguous", "m_grouped_masked")
ALIGNMENTS = {"a": 16, "a_scale": 4, "b": 16, "b_scale": 4, "d": 16, "offsets": 4, "rows": 4}
FLOATS = {"a": ml_dtypes.float8_e4m3fn, "b": ml_dtypes.float8_e4m3fn, "a_scale": numpy.float32, "b_scale": numpy.float32}
MOST_ELEMENTS = 60_000


def kernel(grouping):
    arguments = {name: SimpleNamespace(alignment=alignment) for name, alignment in ALIGNMENTS.items()}
    return SimpleNamespace(fields={"op": "gemm", "formats": "fp8b128", "grouping": grouping}, arguments=arguments)


def variant(splits=1, dtype="bf16"):
    return SimpleNamespace(dtypes={"d": dtype}, constants={"SPLITS": splits}, options={})


def executor(product=gemm_fp8b128, rows_too_many=0, other_group=0, forget=None):
    """The reference with, perhaps, one thing changed."""

    def execute(kernel, variant, buffers, settings):
        after = {name: buffer.image.copy() for name, buffer in buffers.items()}

        def read(name):
            elements = numpy.ascontiguousarray(buffers[name].laid.elements(after[name]))
            return elements.view(FLOATS.get(name, numpy.int32))

        a, a_scale, b, b_scale = (read(name) for name in ("a", "a_scale", "b", "b_scale"))
        d = buffers["d"].laid.elements(after["d"])
        splits = variant.constants["SPLITS"]

        def multiply(target, a, a_scale, b, b_scale):
            if target.size:
                sums = product(a, a_scale, b, b_scale, splits)
                target[...] = rounded(sums, variant.dtypes["d"]).view(target.dtype)

        if b.ndim == 2:
            multiply(d, a, a_scale, b, b_scale)
        elif a.ndim == 3:
            for group, used in enumerate(read("rows")):
                rows = slice(0, used + rows_too_many)
                multiply(d[group, rows], a[group, rows], a_scale[group, rows], b[group], b_scale[group])
        else:
            begin = 0
            for group, end in enumerate(read("offsets")):
                rows = slice(begin, end + rows_too_many * (group == len(b) - 1))
                weights = (group + other_group) % len(b)
                multiply(d[rows], a[rows], a_scale[rows], b[weights], b_scale[weights])
                begin = end
        if forget and d.size:
            d[forget(d.shape)] = buffers["d"].laid.elements(buffers["d"].image)[forget(d.shape)]
        return after

    return execute


def check(grouping, execute, **chosen):
    return checks.check(kernel(grouping), variant(**chosen), execute, MOST_ELEMENTS)


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_a_right_kernel_passes(grouping, dtype):
    outcome = check(grouping, executor(), dtype=dtype)
    assert outcome.error is None and outcome.checks >= 8


def test_a_right_kernel_that_splits_k_passes():
    assert check("dense", executor(), splits=4).error is None


def unsplit(a, a_scale, b, b_scale, splits):
    return gemm_fp8b128(a, a_scale, b, b_scale, 1)


def exactly(a, a_scale, b, b_scale, splits):
    return exact(a, a_scale, b, b_scale)[0].astype(numpy.float32)


def first_scale_for_all(a, a_scale, b, b_scale, splits):
    return gemm_fp8b128(a, a_scale[:, :1].repeat(a_scale.shape[1], 1), b, b_scale, splits)


def first_scale_of_b_for_all_rows(a, a_scale, b, b_scale, splits):
    return gemm_fp8b128(a, a_scale, b, b_scale[:1].repeat(len(b_scale), 0), splits)


def without_the_last_block(a, a_scale, b, b_scale, splits):
    kept = (a.shape[1] - 1) // 128 * 128
    return gemm_fp8b128(a[:, :kept], a_scale[:, : kept // 128], b[:, :kept], b_scale[:, : kept // 128], splits)


def nan_in_the_row_below(a, a_scale, b, b_scale, splits):
    sums = gemm_fp8b128(a, a_scale, b, b_scale, splits)
    lost = numpy.isnan(sums)
    lost[1:] |= numpy.isnan(sums[:-1]) & ~numpy.isnan(sums).all(axis=0)
    return numpy.where(lost, numpy.float32(numpy.nan), sums)


@pytest.mark.parametrize(
    "product", [exactly, first_scale_for_all, first_scale_of_b_for_all_rows, without_the_last_block, nan_in_the_row_below]
)
def test_another_product_is_caught(product):
    assert "elements are wrong" in check("dense", executor(product)).error


def test_another_order_of_the_sum_is_caught():
    assert "elements are wrong" in check("dense", executor(unsplit), splits=4, dtype="f32").error


@pytest.mark.parametrize("grouping", GROUPINGS[1:])
def test_a_row_of_nobody_written_is_caught(grouping):
    assert "not the kernel's were written" in check(grouping, executor(rows_too_many=1)).error


def test_the_weights_of_another_group_are_caught():
    assert "elements are wrong" in check("m_grouped_contiguous", executor(other_group=1)).error


@pytest.mark.parametrize("grouping", GROUPINGS)
def test_a_forgotten_element_is_caught(grouping):
    last = {"dense": lambda shape: (-1, -1), "m_grouped_contiguous": lambda shape: (0, -1), "m_grouped_masked": lambda shape: (1, 0, -1)}
    assert "never written" in check(grouping, executor(forget=last[grouping])).error
